//! The rows of a snapshot as vectors of one model, a chunk at a time.

use super::Answers;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::snapshot::Snapshot;
use std::collections::HashMap;

/// Texts encoded at once.
const TEXTS: usize = 256;

/// Rows as vectors of one model, numbered from 0.
pub(super) trait Rows {
    /// How many there are.
    fn count(&self) -> u64;

    /// Calls `each` with the number of its first row and the vectors of each `chunk` of rows, in order.
    fn for_each_chunk(
        &self,
        chunk: usize,
        each: &mut dyn FnMut(u32, &[f32]) -> Result<()>,
    ) -> Result<()>;

    /// The vectors of every row that the answers name.
    fn pick(&self, answers: &[Answers]) -> Result<Picked>;
}

/// The rows of a snapshot under a model.
pub(super) struct SnapshotRows<'a> {
    snapshot: &'a Snapshot,
    model: &'a Model,
    /// The stored vectors are those of another encoder: texts are encoded again.
    encodes: bool,
}

impl<'a> SnapshotRows<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, model: &'a Model) -> Result<Self> {
        let encodes = model.encoder_id() != snapshot.model().encoder_id();
        if !encodes && model.dim() != snapshot.model().dim() {
            return Err(Error::Model(
                "the model takes vectors of another width than the stored ones".into(),
            ));
        }
        Ok(Self {
            snapshot,
            model,
            encodes,
        })
    }

    fn encode(&self, texts: &mut Vec<String>, vectors: &mut Vec<f32>) -> Result<()> {
        if !texts.is_empty() {
            let borrowed: Vec<&str> = texts.iter().map(String::as_str).collect();
            vectors.extend(
                self.model
                    .encode_keys(&borrowed)?
                    .iter()
                    .map(|value| value.to_f32()),
            );
            texts.clear();
        }
        Ok(())
    }
}

impl Rows for SnapshotRows<'_> {
    fn count(&self) -> u64 {
        self.snapshot.rows()
    }

    fn for_each_chunk(
        &self,
        chunk: usize,
        each: &mut dyn FnMut(u32, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let (mut first, mut rows) = (0_u32, 0_u32);
        let mut vectors = Vec::new();
        let mut texts = Vec::new();
        self.snapshot.for_each_row(|row| {
            rows += 1;
            match self.encodes {
                false => vectors.extend_from_slice(row.vector),
                true => {
                    texts.push(text(row.text)?.to_owned());
                    if texts.len() == TEXTS {
                        self.encode(&mut texts, &mut vectors)?;
                    }
                }
            }
            if (rows - first) as usize == chunk {
                self.encode(&mut texts, &mut vectors)?;
                each(first, &vectors)?;
                first = rows;
                vectors.clear();
            }
            Ok(())
        })?;
        self.encode(&mut texts, &mut vectors)?;
        match rows > first {
            true => each(first, &vectors),
            false => Ok(()),
        }
    }

    fn pick(&self, answers: &[Answers]) -> Result<Picked> {
        let mut picked = Picked::wanted(answers);
        let mut texts = Vec::new();
        let (mut number, mut found) = (0_u32, 0);
        self.snapshot.for_each_row(|row| {
            if let Some(at) = picked.at.get_mut(&number) {
                *at = found;
                found += 1;
                match self.encodes {
                    false => picked.values.extend_from_slice(row.vector),
                    true => texts.push(text(row.text)?.to_owned()),
                }
                if texts.len() == TEXTS {
                    self.encode(&mut texts, &mut picked.values)?;
                }
            }
            number += 1;
            Ok(())
        })?;
        self.encode(&mut texts, &mut picked.values)?;
        Ok(picked)
    }
}

fn text(text: Option<&str>) -> Result<&str> {
    text.ok_or_else(|| {
        Error::Model("the model has another encoder, and the rows have no texts to encode".into())
    })
}

/// Vectors of some rows, by the rows' numbers.
pub(super) struct Picked {
    /// Where the vector of each row is.
    at: HashMap<u32, usize>,
    values: Vec<f32>,
}

impl Picked {
    /// A place for every row that the answers name, and no values yet.
    fn wanted(answers: &[Answers]) -> Self {
        let rows = answers
            .iter()
            .flat_map(|answers| answers.right.iter().chain(&answers.excluded));
        Self {
            at: rows.map(|row| (*row, usize::MAX)).collect(),
            values: Vec::new(),
        }
    }

    /// All vectors (picked, dim).
    pub(super) fn values(&self) -> &[f32] {
        &self.values
    }

    /// The number of a row's vector among [`values`](Self::values).
    pub(super) fn at(&self, row: u32) -> usize {
        self.at[&row]
    }
}

/// Of some rows (picked, width), those at `at`.
pub(super) fn gather(values: &[f32], width: usize, at: impl Iterator<Item = usize>) -> Vec<f32> {
    at.flat_map(|at| &values[at * width..][..width])
        .copied()
        .collect()
}

/// Keys in memory (rows, dim).
pub(super) struct MemoryRows<'a> {
    pub(super) values: &'a [f32],
    pub(super) dim: usize,
}

impl Rows for MemoryRows<'_> {
    fn count(&self) -> u64 {
        (self.values.len() / self.dim) as u64
    }

    fn for_each_chunk(
        &self,
        chunk: usize,
        each: &mut dyn FnMut(u32, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let chunks = self.values.chunks(chunk * self.dim);
        (0..)
            .step_by(chunk)
            .zip(chunks)
            .try_for_each(|(first, vectors)| each(first, vectors))
    }

    fn pick(&self, answers: &[Answers]) -> Result<Picked> {
        let mut picked = Picked::wanted(answers);
        for (found, (row, at)) in picked.at.iter_mut().enumerate() {
            *at = found;
            let vector = &self.values[*row as usize * self.dim..][..self.dim];
            picked.values.extend_from_slice(vector);
        }
        Ok(picked)
    }
}
