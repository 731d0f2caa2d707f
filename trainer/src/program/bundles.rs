//! The bundle of what was learned, and the files that a run leaves.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use mopqdb::quantizer::Quantizer;
use mopqdb::{Bundle, BundleWriter, Scorer};
use serde_json::Value as Json;

use super::checkpoint::write_whole;
use super::rows::Rows;
use super::scoring::{Learned, Scored};
use crate::joint::Joint;

/// What a bundle has besides its scorer.
pub(super) struct Parts<'a> {
    pub(super) rows: &'a Rows,
    pub(super) method: &'a str,
    pub(super) quantizer: Option<&'a Quantizer>,
    /// The encoder that was trained, with its weights; otherwise the encoder is that of the rows.
    pub(super) encoder: Option<(&'a Joint, &'a [u8])>,
}

impl Parts<'_> {
    fn begin(&self, place: &Path) -> Result<BundleWriter> {
        let corpus = &self.rows.corpus;
        let writer = BundleWriter::new(place).metric(corpus.metric);
        let writer = match (self.encoder, &self.rows.bundle) {
            (Some((joint, weights)), _) => {
                let texts = corpus.texts.as_ref().context("--joint needs texts")?;
                let samples: Vec<&str> = texts.iter().take(64).map(String::as_str).collect();
                let (spec, files) = joint.export(weights, &samples)?;
                writer.encoder(spec, joint.hidden(), files)
            }
            (None, Some(bundle)) => writer.encoder_from(bundle),
            (None, None) => writer.vectors(corpus.hidden),
        };
        let writer = writer.method(self.method);
        Ok(match self.quantizer {
            Some(quantizer) => writer.quantizer(quantizer),
            None => writer,
        })
    }

    /// Writes what is measured: codes and query map. The weight of words and the number of candidates are chosen by it.
    pub(super) fn draft(&self, place: &Path, map: Option<&[f32]>) -> Result<Bundle> {
        remove(place)?;
        let writer = self.begin(place)?;
        Ok(self.scored(writer, map, None)?.finish()?)
    }

    /// Writes all of it, with the training's configuration and what was measured.
    pub(super) fn finish(
        &self,
        place: &Path,
        (learned, scored): (&Learned, &Scored),
        training: Json,
        evaluation: Json,
    ) -> Result<Bundle> {
        let writer = self.begin(place)?;
        let mut writer = self.scored(writer, learned.map.as_deref(), scored.weight)?;
        if let Some(statistics) = &scored.statistics {
            writer = writer.statistics(statistics);
        }
        if let Some(serving) = scored.serving {
            writer = writer.serving(serving);
        }
        Ok(writer.training(training).evaluation(evaluation).finish()?)
    }

    fn scored(
        &self,
        writer: BundleWriter,
        map: Option<&[f32]>,
        weight: Option<f32>,
    ) -> Result<BundleWriter> {
        if map.is_none() && weight.is_none() {
            return Ok(writer);
        }
        let hidden = self.rows.corpus.hidden;
        let scorer = Scorer::new(hidden, map.map(<[f32]>::to_vec), weight)?;
        Ok(writer.scorer(&scorer))
    }
}

/// Returns the result of an earlier run with the same fingerprint, if the database still has its model.
pub(super) fn finished(
    home: &Path,
    fingerprint: &str,
    db: &Path,
) -> Result<Option<serde_json::Value>> {
    let read = || serde_json::from_slice(&fs::read(home.join("result.json")).ok()?).ok();
    let Some(done) = read().filter(|done: &serde_json::Value| done["fingerprint"] == fingerprint)
    else {
        return Ok(None);
    };
    let models = mopqdb::models(db)?;
    let there = |id: &str| models.iter().any(|model| model.id.to_string() == id);
    Ok(done["model"].as_str().is_some_and(there).then_some(done))
}

/// Removes a directory that an earlier run may have left.
pub(super) fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("{}: removing: {error}", dir.display())
        }
        _ => Ok(()),
    }
}

/// Writes the result to the directory of the run, and removes its checkpoint.
pub(super) fn conclude(home: &Path, done: &serde_json::Value) -> Result<()> {
    write_whole(&home.join("result.json"), &serde_json::to_vec_pretty(done)?)?;
    match fs::remove_file(home.join("last.safetensors")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("{}: {error}", home.display())
        }
        _ => Ok(()),
    }
}
