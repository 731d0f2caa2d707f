//! A cache of encoded texts: their vectors are kept in files named by encoder and texts, so that texts are encoded once.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::checkpoint::write_whole;

/// A directory of encoded texts.
#[derive(Debug, Clone)]
pub struct Embeddings {
    dir: PathBuf,
    encoder: String,
}

/// Texts that are encoded together. Between such batches the run can be stopped.
const TOGETHER: usize = 512;

impl Embeddings {
    /// Opens the cache in `dir`, for the encoder with this id.
    pub fn new(dir: &Path, encoder: impl Into<String>) -> Self {
        Self {
            dir: dir.to_path_buf(),
            encoder: encoder.into(),
        }
    }

    /// Returns the vectors of texts (texts, hidden), from the directory or from `encode`, which gets some texts at a time.
    /// `side` separates queries from keys, which an encoder may treat differently.
    pub fn of(
        &self,
        side: &str,
        texts: &[&str],
        hidden: usize,
        mut encode: impl FnMut(&[&str]) -> Result<Vec<f32>>,
        mut done: impl FnMut(usize),
    ) -> Result<Vec<f32>> {
        let path = self.path(side, texts, hidden);
        if let Some(vectors) = read(&path, texts.len(), hidden)? {
            done(texts.len());
            return Ok(vectors);
        }
        // Sorted by length, so that batches have little padding.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|&text| texts[text].len());
        let mut vectors = vec![0.0; texts.len() * hidden];
        for part in order.chunks(TOGETHER) {
            let some: Vec<&str> = part.iter().map(|&text| texts[text]).collect();
            let encoded = encode(&some)?;
            ensure!(
                encoded.len() == some.len() * hidden,
                "the encoder gave {} numbers for {} texts of {hidden}",
                encoded.len(),
                some.len()
            );
            for (&text, vector) in part.iter().zip(encoded.chunks_exact(hidden)) {
                vectors[text * hidden..][..hidden].copy_from_slice(vector);
            }
            done(some.len());
        }
        fs::create_dir_all(&self.dir)
            .with_context(|| format!("{}: making the folder", self.dir.display()))?;
        write(&path, &vectors, hidden)?;
        Ok(vectors)
    }

    fn path(&self, side: &str, texts: &[&str], hidden: usize) -> PathBuf {
        let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
        let hash = self
            .encoder
            .bytes()
            .chain([0])
            .chain(bytes)
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        self.dir.join(format!(
            "{side}-{}x{hidden}-{hash:016x}.safetensors",
            texts.len()
        ))
    }
}

fn write(path: &Path, vectors: &[f32], hidden: usize) -> Result<()> {
    let bytes: Vec<u8> = vectors.iter().flat_map(|x| x.to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, vec![vectors.len() / hidden, hidden], &bytes)?;
    write_whole(
        path,
        &safetensors::serialize(HashMap::from([("vectors", view)]), None)?,
    )
}

fn read(path: &Path, rows: usize, hidden: usize) -> Result<Option<Vec<f32>>> {
    if !path.exists() {
        return Ok(None);
    }
    let at = || {
        format!(
            "{}: reading; remove it to encode the texts again",
            path.display()
        )
    };
    let bytes = fs::read(path).with_context(at)?;
    let tensors = SafeTensors::deserialize(&bytes).with_context(at)?;
    let view = tensors.tensor("vectors").with_context(at)?;
    ensure!(
        view.shape() == [rows, hidden] && view.dtype() == Dtype::F32,
        "{}",
        at()
    );
    let floats = view.data().as_chunks::<4>().0.iter();
    Ok(Some(
        floats.map(|bytes| f32::from_le_bytes(*bytes)).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_encoded_once_and_come_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Embeddings::new(dir.path(), "an encoder");
        let texts = ["a longer text", "short", "", "middling"];
        let mut calls = 0;
        let mut get = |cache: &Embeddings, side: &str| {
            let encode = |some: &[&str]| {
                calls += 1;
                Ok(some
                    .iter()
                    .flat_map(|text| [text.len() as f32, 1.5])
                    .collect())
            };
            cache.of(side, &texts, 2, encode, |_| ()).unwrap()
        };
        let expected = [13.0, 1.5, 5.0, 1.5, 0.0, 1.5, 8.0, 1.5];
        assert_eq!(get(&cache, "query"), expected);
        assert_eq!(get(&cache, "query"), expected);
        assert_eq!(get(&cache, "key"), expected);
        assert_eq!(
            get(&Embeddings::new(dir.path(), "another"), "query"),
            expected
        );
        assert_eq!(calls, 3);
    }
}
