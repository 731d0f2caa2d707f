//! Cells for a model that was learned without them: its codes stay what they are, and queries look at a part of them.

use super::learn::{LearnOptions, sample};
use crate::error::{Error, Result};
use crate::model::bundle::{Bundle, BundleWriter};
use crate::quantizer::{TrainPq, add_cells};
use crate::snapshot::Snapshot;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Writes a bundle of a snapshot's model with cells, learned from its rows, to `dir`. The number of cells, the sample, the seed, the
/// threads and the memory limit are those of the options.
///
/// # Errors
/// [`Error::Invalid`] if the model has no codes or has cells already, if the options ask for no cells, or if there are more
/// cells than rows.
pub fn learn_cells(
    snapshot: &Snapshot,
    options: &LearnOptions,
    dir: impl AsRef<Path>,
) -> Result<Bundle> {
    let model = snapshot.model();
    let (Some(bundle), Some(quantizer)) = (model.bundle(), model.quantizer()) else {
        return Err(Error::invalid(
            "the active model has no codes to which cells can be added; train a model with codes, and rebuild to it",
        ));
    };
    if quantizer.cells().is_some() {
        return Err(Error::invalid(
            "the active model has cells already; they can be replaced only together with its codes",
        ));
    }
    let cells = options.cells.of(snapshot.rows());
    if cells == 0 {
        return Err(Error::invalid(
            "no cells are asked for; `auto` makes none for fewer than a million rows",
        ));
    }
    let (vectors, _) = sample(snapshot, options, cells, &BTreeSet::new())?;
    let with_cells = TrainPq {
        cells,
        ..options.pq.clone()
    };
    let quantizer = add_cells(quantizer, &vectors, &with_cells)?;
    let manifest = bundle.manifest();
    let mut training = manifest.training.clone();
    if let Value::Object(fields) = &mut training {
        let how =
            json!({"cells": cells, "seed": options.pq.seed, "rows": vectors.len() / model.dim()});
        fields.insert("cells".into(), how);
    }
    let mut writer = BundleWriter::new(dir)
        .encoder_from(bundle)
        .method(&manifest.method)
        .quantizer(&quantizer)
        .training(training)
        .evaluation(manifest.evaluation.clone());
    if let Some(scorer) = bundle.scorer() {
        writer = writer.scorer(scorer);
    }
    if let Some(statistics) = bundle.statistics() {
        writer = writer.statistics(statistics);
    }
    writer.finish()
}
