//! What is searched: the keys of a database with their stored vectors, as a run sees them.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use mopqdb::Metric;

/// Every live row, in `Seq` order: ties in the database go to the lower row, and so they do here.
#[derive(Debug, Clone)]
pub struct Corpus {
    /// The user's keys.
    pub keys: Vec<String>,
    /// Their texts, in a database that has them.
    pub texts: Option<Vec<String>>,
    /// Stored vectors (rows, hidden).
    pub vectors: Vec<f32>,
    /// Width of a stored vector.
    pub hidden: usize,
    /// How queries and keys are compared.
    pub metric: Metric,
}

impl Corpus {
    /// Checks that the parts fit.
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
            "{} keys of {hidden} numbers need {} numbers, there are {}",
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
            vectors,
            hidden,
            metric,
        })
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.keys.len()
    }

    /// One row's stored vector.
    pub fn vector(&self, row: u32) -> &[f32] {
        &self.vectors[row as usize * self.hidden..][..self.hidden]
    }

    /// Rows by key.
    pub fn by_key(&self) -> HashMap<&str, u32> {
        self.keys
            .iter()
            .enumerate()
            .map(|(row, key)| (key.as_str(), row as u32))
            .collect()
    }

    /// For each row, the first row that is the same key to a query: that of the same text, or itself.
    pub fn twins(&self) -> Vec<u32> {
        match (self.by_text(), &self.texts) {
            (Some(first), Some(texts)) => texts.iter().map(|text| first[text.as_str()]).collect(),
            _ => (0..self.rows() as u32).collect(),
        }
    }

    /// Rows by text; of equal texts, the first.
    pub fn by_text(&self) -> Option<HashMap<&str, u32>> {
        let texts = self.texts.as_ref()?;
        let mut rows = HashMap::with_capacity(texts.len());
        for (row, text) in texts.iter().enumerate() {
            rows.entry(text.as_str()).or_insert(row as u32);
        }
        Some(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_same_text_are_one_key_to_a_query() {
        let corpus = |texts: Option<[&str; 4]>| {
            let keys = (0..4).map(|row| row.to_string()).collect();
            let texts = texts.map(|texts| texts.map(String::from).to_vec());
            Corpus::new(keys, texts, vec![0.0; 4], 1, Metric::Ip).unwrap()
        };
        assert_eq!(corpus(Some(["a", "b", "a", "b"])).twins(), [0, 1, 0, 1]);
        assert_eq!(corpus(None).twins(), [0, 1, 2, 3]);
    }
}
