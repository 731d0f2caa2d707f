//! The state of a run between epochs, in one safetensors file that is replaced atomically.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use tch::Tensor;

/// Tensors with their names, in any order.
pub type Named = Vec<(String, Tensor)>;

/// The numbers of a run that are kept besides tensors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Complete epochs, warm-up included.
    pub epochs: usize,
    /// The best validation recall so far, and its epoch.
    pub best: Option<(f64, usize)>,
    /// Epochs since the best one.
    pub since_best: usize,
    /// Seconds of processor time spent so far.
    pub cpu_seconds: f64,
    /// Steps of each parameter's moments.
    pub steps: i64,
}

/// The complete state of a run between two epochs.
#[derive(Debug, Default)]
pub struct Checkpoint {
    /// The numbers of a run that are kept besides tensors.
    pub progress: Progress,
    /// Parameters.
    pub values: Named,
    /// Adam's means.
    pub means: Named,
    /// Adam's squares.
    pub squares: Named,
    /// The best epoch's parameters.
    pub best: Named,
    /// Tensors that are not trained: a rotation behind an activation.
    pub constants: Named,
}

const PARTS: [&str; 5] = ["value", "mean", "square", "best", "constant"];

impl Checkpoint {
    fn parts(&self) -> [&Named; 5] {
        [
            &self.values,
            &self.means,
            &self.squares,
            &self.best,
            &self.constants,
        ]
    }

    /// Writes a temporary file, syncs it and renames it, so that a file of this name is always complete.
    pub fn write(&self, path: &Path, config: &str) -> Result<()> {
        let mut blocks = Vec::new();
        for (part, named) in PARTS.iter().zip(self.parts()) {
            for (name, tensor) in named {
                let shape: Vec<usize> = tensor.size().iter().map(|&n| n as usize).collect();
                let bytes: Vec<u8> = crate::export::floats(tensor)
                    .iter()
                    .flat_map(|x| x.to_le_bytes())
                    .collect();
                blocks.push((format!("{part}/{name}"), shape, bytes));
            }
        }
        let views: Vec<(&str, TensorView<'_>)> = blocks
            .iter()
            .map(|(name, shape, bytes)| {
                Ok((
                    name.as_str(),
                    TensorView::new(Dtype::F32, shape.clone(), bytes)?,
                ))
            })
            .collect::<Result<_, safetensors::SafeTensorError>>()?;
        let words = HashMap::from([
            (
                "progress".to_owned(),
                serde_json::to_string(&self.progress)?,
            ),
            ("config".to_owned(), config.to_owned()),
        ]);
        let bytes = safetensors::serialize(views, Some(words))?;
        write_whole(path, &bytes)
    }

    /// Reads the checkpoint, if there is one. `config` must be that of the run that wrote it.
    pub fn read(path: &Path, config: &str) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let at = || format!("{}: reading the checkpoint", path.display());
        let bytes = fs::read(path).with_context(at)?;
        let (_, header) = SafeTensors::read_metadata(&bytes).with_context(at)?;
        let words = header.metadata().clone().unwrap_or_default();
        ensure!(
            words.get("config").map(String::as_str) == Some(config),
            "{}: this checkpoint is of another configuration, or of other rows, queries or pairs; name another --run, or begin again with --fresh",
            path.display()
        );
        let progress = words
            .get("progress")
            .context("no progress in it")
            .with_context(at)?;
        let mut read = Self {
            progress: serde_json::from_str(progress).with_context(at)?,
            ..Self::default()
        };
        let tensors = SafeTensors::deserialize(&bytes).with_context(at)?;
        for name in header.offset_keys() {
            let view = tensors.tensor(&name).with_context(at)?;
            let values: Vec<f32> = view
                .data()
                .as_chunks::<4>()
                .0
                .iter()
                .map(|bytes| f32::from_le_bytes(*bytes))
                .collect();
            let shape: Vec<i64> = view.shape().iter().map(|&n| n as i64).collect();
            let tensor = Tensor::from_slice(&values).view(&shape[..]);
            let (part, name) = name
                .split_once('/')
                .context("a tensor of no part")
                .with_context(at)?;
            let part = match part {
                "value" => &mut read.values,
                "mean" => &mut read.means,
                "square" => &mut read.squares,
                "best" => &mut read.best,
                _ => &mut read.constants,
            };
            part.push((name.to_owned(), tensor));
        }
        Ok(Some(read))
    }
}

/// Replaces a file atomically; the new one is synced first.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = path.with_extension("tmp");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().with_context(|| format!("{}: writing {} bytes", path.display(), bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_comes_back_bit_for_bit_and_only_to_its_own_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last.safetensors");
        assert!(Checkpoint::read(&path, "a").unwrap().is_none());
        let named = |seed: u64| -> Named {
            ["b", "a"]
                .iter()
                .enumerate()
                .map(|(i, name)| {
                    let tensor = crate::testing::random_tensor(seed + i as u64, &[3, 2]);
                    ((*name).to_owned(), tensor.to_kind(tch::Kind::Float))
                })
                .collect()
        };
        let checkpoint = Checkpoint {
            progress: Progress {
                epochs: 3,
                best: Some((0.1 + 0.2, 2)),
                since_best: 1,
                cpu_seconds: 1.5,
                steps: 77,
            },
            values: named(1),
            means: named(3),
            squares: named(5),
            best: named(7),
            constants: Vec::new(),
        };
        checkpoint.write(&path, "a").unwrap();
        let read = Checkpoint::read(&path, "a").unwrap().unwrap();
        assert_eq!(read.progress, checkpoint.progress);
        for (a, b) in read.parts().iter().zip(checkpoint.parts()) {
            assert_eq!(a.len(), b.len());
            for (name, tensor) in b {
                let (_, read) = a.iter().find(|(other, _)| other == name).unwrap();
                assert_eq!(crate::testing::max_difference(read, tensor), 0.0);
            }
        }
        assert!(
            Checkpoint::read(&path, "b")
                .unwrap_err()
                .to_string()
                .contains("another configuration")
        );
    }
}
