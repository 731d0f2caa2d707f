//! A first quantizer, which a database learns by itself and switches to if the recall stays high.

use super::{RebuildOptions, rebuild_store};
use crate::error::{Error, Result};
use crate::eval::{EvalOptions, Evaluator, Question, Questions};
use crate::ids::ModelId;
use crate::model::Model;
use crate::model::bundle::Bundle;
use crate::model::registry;
use crate::rebuild::learn::{LearnOptions, learn_without};
use crate::row::{QueryOptions, Value};
use crate::snapshot::Snapshot;
use crate::watch::Watch;
use crate::write::Store;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// The share of the exact nearest rows that a search by codes and stored vectors must find on a database's own rows, so
/// that the database switches to the codes by itself.
pub const AUTO_QUANTIZE_RECALL: f64 = 0.99;

/// The number of rows used as queries. They are not used in training.
const QUERIES: u64 = 400;

/// The number of nearest rows to find for each query.
const NEAREST: usize = 10;

/// The outcome of [`Database::auto_quantize`](crate::Database::auto_quantize).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AutoQuantized {
    /// There are too few rows.
    NotDue,
    /// The database has a quantizer already. If rows are searched exactly nevertheless, the user has chosen so.
    Had,
    /// Codes were learned. The trial says whether the database has switched to them.
    Tried(Trial),
}

/// The evaluation of codes learned from a database's own rows.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Trial {
    /// The model with these codes. It is registered in the database, whether or not the database switched to it.
    pub model: ModelId,
    /// The training method.
    pub method: &'static str,
    /// The size of each row's code in bytes.
    pub bytes_per_row: usize,
    /// The share of the exact nearest ten rows that are found by codes and stored vectors. Measured with rows that were
    /// not used in training, each excluded from its own result.
    pub recall: f64,
    /// The number of rows used as queries.
    pub queries: usize,
    /// Whether the database uses the codes now: the recall is at least [`AUTO_QUANTIZE_RECALL`].
    pub switched: bool,
}

/// Learns codes if there are at least `least_rows` rows and no quantizer yet, and switches to them if the recall is
/// high enough.
pub(crate) fn quantize_if_due(
    store: &Store,
    least_rows: u64,
    watch: &Watch,
) -> Result<AutoQuantized> {
    let snapshot = store.current();
    if snapshot.rows() < least_rows.max(1) {
        return Ok(AutoQuantized::NotDue);
    }
    let model = snapshot.model();
    let registered = registry::listed(&store.layout, model.model_id(), model.encoder_id())?;
    if registered.iter().any(|(_, model)| model.shape.is_some()) {
        return Ok(AutoQuantized::Had);
    }
    let held_out = held_out(snapshot.rows());
    let mut options = LearnOptions::automatic(model.dim());
    options.pq.threads = store.options.threads;
    options.pq.watch = watch.clone();
    options.memory_limit = store.options.memory_limit;
    let learned = learn_without(&snapshot, &options, &held_out)?;
    let files = &*store.files;
    let remove = |dir: &Path| match files.remove_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("removing", dir)(e)),
        _ => Ok(()),
    };
    // Written twice: first to be measured, then with the measurement.
    let scratch = store.layout.runs().join("auto");
    remove(&scratch)?;
    let draft = learned.write_on(files, &scratch, Json::Null)?;
    let recall = recall(store, &snapshot, &draft, &held_out, watch)?;
    drop(snapshot);
    remove(&scratch)?;
    let evaluation = json!({"own_rows": {
        "k": NEAREST, "recall_of_exact": recall, "queries": held_out.len(),
        "candidates": QueryOptions::default_candidates(NEAREST),
    }});
    let bundle = learned.write_on(files, &scratch, evaluation)?;
    let id = registry::register(files, &store.layout, &bundle)?;
    remove(&scratch)?;
    let shape = learned.trained.quantizer.shape();
    let trial = Trial {
        model: id,
        method: learned.method,
        bytes_per_row: shape.row_bytes(),
        recall,
        queries: held_out.len(),
        switched: recall >= AUTO_QUANTIZE_RECALL,
    };
    if trial.switched {
        let options = RebuildOptions {
            model: Some(id),
            threads: store.options.threads,
            memory_limit: store.options.memory_limit,
            watch: watch.clone(),
            ..RebuildOptions::default()
        };
        rebuild_store(store, &options)?;
    }
    Ok(AutoQuantized::Tried(trial))
}

/// Returns numbers of rows, evenly distributed: at most a tenth of all rows, and none if there are fewer than ten.
fn held_out(rows: u64) -> BTreeSet<u64> {
    let count = QUERIES.min(rows / 10);
    let middle = |n: u64| (u128::from(2 * n + 1) * u128::from(rows) / u128::from(2 * count)) as u64;
    (0..count).map(middle).collect()
}

/// Returns the share of the exact nearest rows of some rows that a query by these codes would find.
fn recall(
    store: &Store,
    snapshot: &Snapshot,
    draft: &Bundle,
    held_out: &BTreeSet<u64>,
    watch: &Watch,
) -> Result<f64> {
    let mut questions = Questions::default();
    let mut number = 0;
    snapshot.for_each_row(|row| {
        if held_out.contains(&number) {
            questions.all.push(Question {
                query: Value::Vector(row.vector.to_vec()),
                right: Vec::new(),
                excluded: vec![
                    u32::try_from(number)
                        .map_err(|_| Error::invalid("more rows than can be evaluated at once"))?,
                ],
            });
        }
        number += 1;
        Ok(())
    })?;
    let model = Model::open(draft.clone(), store.options.threads)?;
    let options = EvalOptions {
        memory_limit: store.options.memory_limit,
        watch: watch.clone(),
        ..EvalOptions::default()
    };
    let evaluator = Evaluator::new(snapshot, &model, &questions, options)?;
    let shares = evaluator.agreement(NEAREST)?;
    // Without queries the recall is 0.
    Ok(shares.iter().sum::<f64>() / shares.len().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_are_held_out_and_evenly() {
        assert_eq!(held_out(9), BTreeSet::new());
        assert_eq!(held_out(20), BTreeSet::from([5, 15]));
        let many = held_out(1_000_000);
        assert_eq!((many.len(), many.first()), (400, Some(&1250)));
        assert_eq!(many.last(), Some(&998_750));
    }
}
