//! The keys of a database with their stored vectors, as a run reads them.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Result, ensure};
use mopqdb::{Metric, Snapshot};

use super::Vectors;

/// Every live row, in `Seq` order. Ties in the database go to the lower row, and so they do here.
#[derive(Debug, Clone)]
pub struct Corpus {
    /// The user's keys.
    pub keys: Vec<String>,
    /// Their texts, if the database has texts.
    pub texts: Option<Vec<String>>,
    /// Stored vectors (rows, hidden): the only copy in memory, which all devices read.
    pub vectors: Arc<Vec<f32>>,
    /// The width of a stored vector.
    pub hidden: usize,
    /// The metric by which queries and keys are compared.
    pub metric: Metric,
}

impl Corpus {
    /// Checks that the parts fit each other.
    pub fn new(
        keys: Vec<String>,
        texts: Option<Vec<String>>,
        vectors: Vec<f32>,
        hidden: usize,
        metric: Metric,
    ) -> Result<Self> {
        ensure!(
            !keys.is_empty(),
            "the database has no rows; insert the keys first"
        );
        ensure!(
            vectors.len() == keys.len() * hidden,
            "{} keys of {hidden} values need {} values, but there are {}",
            keys.len(),
            keys.len() * hidden,
            vectors.len()
        );
        if let Some(texts) = &texts {
            ensure!(
                texts.len() == keys.len(),
                "{} keys have {} texts",
                keys.len(),
                texts.len()
            );
        }
        Ok(Self {
            keys,
            texts,
            vectors: Arc::new(vectors),
            hidden,
            metric,
        })
    }

    /// Reads the live rows of a snapshot, and returns the largest `Seq` among them. Texts are omitted unless
    /// `with_texts`.
    pub fn read(snapshot: &Snapshot, with_texts: bool) -> Result<(Self, u64)> {
        let model = snapshot.model();
        let (rows, hidden) = (snapshot.rows() as usize, model.dim());
        let (mut seqs, mut keys) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let mut texts = Vec::new();
        // Allocated at its final size, because growing would need twice the memory.
        let mut vectors = Vec::with_capacity(rows * hidden);
        snapshot.for_each_row(|row| {
            seqs.push(row.seq.0);
            keys.push(row.key.to_owned());
            if with_texts {
                texts.extend(row.text.map(str::to_owned));
            }
            vectors.extend_from_slice(row.vector);
            Ok(())
        })?;
        if !seqs.is_sorted() {
            let mut order: Vec<u32> = (0..seqs.len() as u32).collect();
            order.sort_by_key(|&row| seqs[row as usize]);
            reorder(&mut vectors, hidden, &order);
            let in_order = |strings: &mut Vec<String>| {
                let take = |&row: &u32| std::mem::take(&mut strings[row as usize]);
                *strings = order.iter().map(take).collect();
            };
            in_order(&mut keys);
            if !texts.is_empty() {
                in_order(&mut texts);
            }
        }
        let through = seqs.iter().copied().max().unwrap_or(0);
        let texts = (with_texts && model.kind() == mopqdb::RowsKind::Text).then_some(texts);
        let corpus = Self::new(keys, texts, vectors, hidden, model.metric())?;
        Ok((corpus, through))
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.keys.len()
    }

    /// Returns all stored vectors.
    pub fn all(&self) -> Vectors<'_> {
        Vectors {
            values: &self.vectors,
            hidden: self.hidden,
        }
    }

    /// Returns one row's stored vector.
    pub fn vector(&self, row: u32) -> &[f32] {
        &self.vectors[row as usize * self.hidden..][..self.hidden]
    }

    /// Returns the rows by key.
    pub fn by_key(&self) -> HashMap<&str, u32> {
        self.keys
            .iter()
            .enumerate()
            .map(|(row, key)| (key.as_str(), row as u32))
            .collect()
    }

    /// Returns, for each row, the first row that a query can't distinguish from it: the first one with the same text,
    /// or itself.
    pub fn twins(&self) -> Vec<u32> {
        match (self.by_text(), &self.texts) {
            (Some(first), Some(texts)) => texts.iter().map(|text| first[text.as_str()]).collect(),
            _ => (0..self.rows() as u32).collect(),
        }
    }

    /// Returns the rows by text; of equal texts, the first row.
    pub fn by_text(&self) -> Option<HashMap<&str, u32>> {
        let texts = self.texts.as_ref()?;
        let mut rows = HashMap::with_capacity(texts.len());
        for (row, text) in texts.iter().enumerate() {
            rows.entry(text.as_str()).or_insert(row as u32);
        }
        Some(rows)
    }
}

/// Moves row `order[n]` of `values` (rows, width) to place n, with memory for one extra row.
fn reorder(values: &mut [f32], width: usize, order: &[u32]) {
    let mut placed = vec![false; order.len()];
    let mut first = vec![0.0; width];
    for start in 0..order.len() {
        if placed[start] {
            continue;
        }
        // Along a cycle: each place takes its row, which frees that row's place.
        first.copy_from_slice(&values[start * width..][..width]);
        let mut place = start;
        loop {
            placed[place] = true;
            let from = order[place] as usize;
            if from == start {
                values[place * width..][..width].copy_from_slice(&first);
                break;
            }
            values.copy_within(from * width..(from + 1) * width, place * width);
            place = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_reordered_in_place() {
        let rows = 100u32;
        let mut random = crate::random::Random::new(3, "order", 0);
        let order = random.order(rows as usize);
        let mut values: Vec<f32> = (0..rows).flat_map(|n| [n as f32, -(n as f32)]).collect();
        reorder(&mut values, 2, &order);
        for (row, from) in values.chunks(2).zip(order) {
            assert_eq!(row, [from as f32, -(from as f32)]);
        }
    }

    #[test]
    fn rows_with_the_same_text_are_one_key() {
        let corpus = |texts: Option<[&str; 4]>| {
            let keys = (0..4).map(|row| row.to_string()).collect();
            let texts = texts.map(|texts| texts.map(String::from).to_vec());
            Corpus::new(keys, texts, vec![0.0; 4], 1, Metric::Ip).unwrap()
        };
        assert_eq!(corpus(Some(["a", "b", "a", "b"])).twins(), [0, 1, 0, 1]);
        assert_eq!(corpus(None).twins(), [0, 1, 2, 3]);
    }
}
