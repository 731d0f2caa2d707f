//! Texts are encoded once, with the default encoder. The files are those of the trainer (`trainer/src/embeddings.rs`), so what
//! `make table` has encoded is not encoded again.

use anyhow::{Context, Result, ensure};
use mopqdb::Bundle;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Which side of a pair a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What is searched.
    Key,
    /// What is searched for.
    Query,
}

/// Folders of encoded texts, the first of which is written to.
pub struct Embeddings {
    folders: Vec<PathBuf>,
    bundle: Bundle,
}

impl Embeddings {
    /// Of the default encoder.
    pub fn new(folders: Vec<PathBuf>) -> Result<Self> {
        let bundle = Bundle::open(mopqdb::encoder::default_bundle()?)?;
        Ok(Self { folders, bundle })
    }

    /// Numbers a vector.
    pub fn dim(&self) -> usize {
        self.bundle.input_dim()
    }

    /// The vectors of texts, from a folder or by the encoder. Keys are rounded to f16, as a database stores them.
    pub fn of(&self, side: Side, texts: &[&str]) -> Result<Vec<f32>> {
        let name = file_name(
            &self.bundle.encoder_id().to_string(),
            side,
            texts,
            self.dim(),
        );
        for folder in &self.folders {
            let path = folder.join(&name);
            if path.exists() {
                return read(&path, texts.len(), self.dim());
            }
        }
        let encoder = self
            .bundle
            .encoder()?
            .context("the default bundle has an encoder")?;
        // By length, so that a batch has little padding; then back in order.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|&text| texts[text].len());
        let mut vectors = vec![0.0; texts.len() * self.dim()];
        for (n, part) in order.chunks(2048).enumerate() {
            let some: Vec<&str> = part.iter().map(|&text| texts[text]).collect();
            let mut encoded = match side {
                Side::Key => encoder.encode_keys(&some)?,
                Side::Query => encoder.encode_queries(&some)?,
            };
            if side == Side::Key {
                mopqdb::encoder::round_to_f16(&mut encoded);
            }
            for (&text, vector) in part.iter().zip(encoded.chunks_exact(self.dim())) {
                vectors[text * self.dim()..][..self.dim()].copy_from_slice(vector);
            }
            if n % 8 == 7 {
                eprintln!("  encoded {} of {} texts", (n + 1) * 2048, texts.len());
            }
        }
        let folder = self.folders.first().context("a folder to write to")?;
        fs::create_dir_all(folder)?;
        write(&folder.join(name), &vectors, self.dim())?;
        Ok(vectors)
    }
}

/// As the trainer names it: by encoder and texts.
fn file_name(encoder: &str, side: Side, texts: &[&str], dim: usize) -> String {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    let hash = encoder
        .bytes()
        .chain([0])
        .chain(bytes)
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let side = match side {
        Side::Key => "key",
        Side::Query => "query",
    };
    format!("{side}-{}x{dim}-{hash:016x}.safetensors", texts.len())
}

fn write(path: &Path, vectors: &[f32], dim: usize) -> Result<()> {
    let bytes: Vec<u8> = vectors.iter().flat_map(|x| x.to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, vec![vectors.len() / dim, dim], &bytes)?;
    let whole = path.with_extension("tmp");
    fs::write(
        &whole,
        safetensors::serialize(HashMap::from([("vectors", view)]), None)?,
    )?;
    fs::rename(&whole, path).with_context(|| format!("{}: writing", path.display()))
}

fn read(path: &Path, rows: usize, dim: usize) -> Result<Vec<f32>> {
    let at = || format!("{}: reading; remove it to encode anew", path.display());
    let bytes = fs::read(path).with_context(at)?;
    let tensors = SafeTensors::deserialize(&bytes).with_context(at)?;
    let view = tensors.tensor("vectors").with_context(at)?;
    ensure!(
        view.shape() == [rows, dim] && view.dtype() == Dtype::F32,
        "{}",
        at()
    );
    let floats = view.data().as_chunks::<4>().0.iter();
    Ok(floats.map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_come_back_under_the_trainers_name() {
        let dir = tempfile::tempdir().unwrap();
        let name = file_name("an encoder", Side::Query, &["a", "b"], 2);
        // FNV-1a of the encoder and the texts, a 0 after each: what the trainer names its files by.
        assert_eq!(name, "query-2x2-c0be6713db499789.safetensors");
        let path = dir.path().join(name);
        write(&path, &[1.0, -2.0, 0.5, 4.0], 2).unwrap();
        assert_eq!(read(&path, 2, 2).unwrap(), [1.0, -2.0, 0.5, 4.0]);
        assert!(read(&path, 3, 2).is_err());
    }
}
