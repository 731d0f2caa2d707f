//! Measuring recall on pairs of query and right answer.

use crate::call::watched;
use crate::handle::json;
use crate::input::{self, Asked, Count, Text, from_tuple, setting, texts};
use mopqdb::eval::{Ask, EvalOptions, Evaluator, FindOptions, Questions, bootstrap};
use mopqdb::{Error, Model, Search, Snapshot, open_model};
use pyo3::prelude::*;
use serde_json::{Value, json as object};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Queries, and the right answers of each.
pub(crate) type Pairs<'py> = Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>;

from_tuple! {
    /// What is measured.
    Measured {
        k: Vec<Count>,
        model: Option<Text>,
        search: Text,
        /// Right answers are keys; otherwise texts.
        by_key: bool,
        skip_missing: bool,
        candidates: Option<Count>,
    }
}

/// Returns recall at each k, with its interval, as JSON.
pub(crate) fn eval(
    py: Python<'_>,
    snapshot: &Snapshot,
    dir: &Path,
    pairs: Pairs<'_>,
    measured: Measured,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let asks = asks(pairs)?;
    let search = setting(
        py,
        "way to search",
        &measured.search.0,
        &Search::ALL,
        Search::name,
    )?;
    watched(py, progress, |watch| {
        let find = FindOptions::default().by_key(measured.by_key);
        let questions = Questions::find(snapshot, &asks, &find)?;
        check_missing(&questions, &measured)?;
        let active = snapshot.model();
        let other: Option<Model> = match input::model(dir, measured.model.as_ref())? {
            Some(id) if id != active.model_id() => Some(open_model(dir, id, 0)?),
            _ => None,
        };
        let model = other.as_ref().unwrap_or(active);
        let cuts: Vec<usize> = measured.k.iter().map(|k| k.0).collect();
        let options = EvalOptions::default()
            .cuts(cuts.clone())
            .candidates(measured.candidates.map(|count| count.0))
            .watch(watch.clone());
        let evaluator = Evaluator::new(snapshot, model, &questions, options)?;
        let ranks = evaluator.search(search)?;
        let recall: Vec<Value> = cuts
            .iter()
            .map(|&k| {
                let interval = bootstrap::interval(&ranks.recalls(k), 42);
                object!({"k": k, "recall": ranks.recall(k), "low": interval.low, "high": interval.high})
            })
            .collect();
        json(&object!({
            "model": model.model_id().to_string(), "method": model.method(), "search": search.name(),
            "queries": questions.all.len(), "skipped": questions.unanswerable, "recall": recall,
        }))
    })
}

/// One question per distinct text; lines with the same text are one query with many right answers.
fn asks(pairs: Pairs<'_>) -> PyResult<Vec<Ask>> {
    let mut asks: Vec<Ask> = Vec::with_capacity(pairs.len());
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (query, right) in pairs {
        let asked = Asked::of(&query)?;
        let right: BTreeSet<String> = match right.extract::<Text>() {
            Ok(one) => [one.0.to_string()].into(),
            Err(_) => {
                let all = texts(&right, "right answer")?;
                all.iter().map(|text| text.0.to_string()).collect()
            }
        };
        if let Asked::Text(text) = &asked {
            let place = seen.entry(text.0.to_string()).or_insert(asks.len());
            if let Some(ask) = asks.get_mut(*place) {
                ask.right.extend(right);
                continue;
            }
        }
        asks.push(Ask {
            query: asked.value(),
            right,
        });
    }
    Ok(asks)
}

fn check_missing(questions: &Questions, measured: &Measured) -> mopqdb::Result<()> {
    let what = if measured.by_key { "key" } else { "text" };
    if questions.all.is_empty() {
        let message = match questions.missing_answers.first() {
            None => "there are no pairs to measure".into(),
            Some(first) => format!("no row has the {what} {first:?}, nor that of any other pair"),
        };
        return Err(Error::invalid(message));
    }
    match questions.missing_answers.first() {
        Some(first) if !measured.skip_missing => Err(Error::invalid(format!(
            "no row has the {what} {first:?} ({} such answers); insert such rows first, or leave these pairs out with \
             skip_missing=True",
            questions.missing_answers.len()
        ))),
        _ => Ok(()),
    }
}
