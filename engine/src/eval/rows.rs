//! The rows of a snapshot as vectors of one model, a chunk at a time.

use super::{EvalOptions, Questions, stopped};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::snapshot::Snapshot;
use crate::threads;
use std::collections::HashMap;

/// Texts encoded at once.
const TEXTS: usize = 256;

/// The rows of a snapshot under a model.
pub(super) struct Rows<'a> {
    snapshot: &'a Snapshot,
    model: &'a Model,
    /// The stored vectors are another encoder's: texts are encoded anew.
    anew: bool,
    chunk: usize,
    options: &'a EvalOptions<'a>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        model: &'a Model,
        options: &'a EvalOptions<'a>,
    ) -> Result<Self> {
        let anew = model.encoder_id() != snapshot.model().encoder_id();
        if !anew && model.dim() != snapshot.model().dim() {
            return Err(Error::Model(
                "the model takes vectors of another width than the stored ones".into(),
            ));
        }
        // Vectors, embeddings and codes of a chunk.
        let row_bytes = 4
            * (model.dim()
                + model
                    .quantizer()
                    .map_or(0, |quantizer| quantizer.dim() + 64));
        // Whole blocks, so that a chunk is scanned as a segment is.
        let chunk = (options.memory_limit / row_bytes).clamp(1 << 10, 1 << 20) & !63;
        Ok(Self {
            snapshot,
            model,
            anew,
            chunk,
            options,
        })
    }

    /// Calls `each` with the number of its first row and the vectors of each chunk, in the snapshot's order.
    pub(super) fn for_each_chunk(
        &self,
        mut each: impl FnMut(u32, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let total = self.snapshot.rows();
        let (mut first, mut rows) = (0_u32, 0_u32);
        let mut vectors = Vec::new();
        let mut texts = Vec::new();
        let mut flush = |first: &mut u32, rows: u32, vectors: &mut Vec<f32>| -> Result<()> {
            each(*first, vectors)?;
            *first = rows;
            vectors.clear();
            match self.options.progress {
                Some(progress) if !progress(u64::from(rows), total) => Err(stopped()),
                _ => Ok(()),
            }
        };
        self.snapshot.for_each_row(|row| {
            rows += 1;
            match self.anew {
                false => vectors.extend_from_slice(row.vector),
                true => {
                    texts.push(text(row.text)?.to_owned());
                    if texts.len() == TEXTS {
                        self.encode(&mut texts, &mut vectors)?;
                    }
                }
            }
            if (rows - first) as usize == self.chunk {
                self.encode(&mut texts, &mut vectors)?;
                flush(&mut first, rows, &mut vectors)?;
            }
            Ok(())
        })?;
        self.encode(&mut texts, &mut vectors)?;
        match rows > first {
            true => flush(&mut first, rows, &mut vectors),
            false => Ok(()),
        }
    }

    /// The vectors of every row that a question names.
    pub(super) fn pick(&self, questions: &Questions) -> Result<Picked> {
        let dim = self.model.dim();
        let mut picked = Picked {
            dim,
            at: HashMap::new(),
            values: Vec::new(),
        };
        for question in &questions.all {
            for row in question.right.iter().chain(&question.excluded) {
                picked.at.insert(*row, usize::MAX);
            }
        }
        let mut texts = Vec::new();
        let (mut number, mut found) = (0_u32, 0);
        self.snapshot.for_each_row(|row| {
            if let Some(at) = picked.at.get_mut(&number) {
                *at = found;
                found += 1;
                match self.anew {
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

fn text(text: Option<&str>) -> Result<&str> {
    text.ok_or_else(|| {
        Error::Model("the model has another encoder, and the rows have no texts to encode".into())
    })
}

/// Vectors of some rows, by the rows' numbers.
pub(super) struct Picked {
    dim: usize,
    at: HashMap<u32, usize>,
    values: Vec<f32>,
}

impl Picked {
    pub(super) fn vector(&self, row: u32) -> &[f32] {
        &self.values[self.at[&row] * self.dim..][..self.dim]
    }

    pub(super) fn vectors(&self, rows: &[u32]) -> Vec<f32> {
        rows.iter()
            .flat_map(|row| self.vector(*row))
            .copied()
            .collect()
    }
}

/// Maps rows (n, width) to `out` (n, anything), a share a thread.
pub(super) fn in_parallel<T: Send>(
    threads: usize,
    rows: &[f32],
    width: usize,
    out: &mut [T],
    map: impl Fn(&[f32], &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    let n = rows.len() / width;
    if n == 0 {
        return Ok(());
    }
    let out_width = out.len() / n;
    let share = n.div_ceil(threads.max(1));
    let map = &map;
    std::thread::scope(|scope| {
        let parts = rows
            .chunks(share * width)
            .zip(out.chunks_mut(share * out_width));
        let running: Result<Vec<_>> = parts
            .map(|(rows, out)| threads::start_in(scope, "mopqdb-eval", move || map(rows, out)))
            .collect();
        running?
            .into_iter()
            .try_for_each(|part| part.join().expect("it returns its errors"))
    })
}
