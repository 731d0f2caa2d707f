//! What a run gained, measured at its end on validation queries, and what more bytes or more pairs would give.

use anyhow::Result;
use mopqdb::eval::bootstrap::ratio;
use mopqdb::eval::{Keys, VectorQuestions};
use mopqdb::quantizer::{Activation, Quantizer, TrainPq, train_opq};
use serde_json::{Value as Json, json};

use crate::data::Corpus;
use crate::random::Random;

/// The most validation queries for which the active model and exact search are measured too.
pub(super) const QUERIES: usize = 1_000;
/// The most validation queries, and the most rows to learn from, of an estimate for another number of bytes.
const QUICK_QUERIES: usize = 500;
const QUICK_ROWS: usize = 8_192;
/// Bytes per row that are estimated.
const BYTES: [usize; 4] = [4, 8, 16, 32];
/// Hits of a query.
const K: usize = 10;

/// Recall at 10 of each validation query, in one order.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// By the codes of the active model, if it has some.
    pub(super) codes_before: Option<Vec<f64>>,
    /// By the codes that were learned, if some were.
    pub(super) codes: Option<Vec<f64>>,
    /// By whole queries under the active model.
    pub(super) whole_before: Vec<f64>,
    /// By whole queries under the model that was learned.
    pub(super) whole: Vec<f64>,
    /// By exact search; 1 for each query, if its answers are those of exact search.
    pub(super) exact: Vec<f64>,
}

impl Found {
    /// Returns the means over the queries that all of them have, as JSON.
    pub(super) fn json(&self, labelled: bool, bytes: usize) -> Json {
        let of_codes = [&self.codes_before, &self.codes].into_iter().flatten();
        let of_all = [&self.whole_before, &self.whole, &self.exact];
        let queries = of_codes.chain(of_all).map(Vec::len).min().unwrap_or(0);
        if queries == 0 {
            return Json::Null;
        }
        let mean = |of: &[f64]| of[..queries].iter().sum::<f64>() / queries as f64;
        let compared = |ours: &[f64], theirs: &[f64]| {
            let theirs = &theirs[..queries];
            if theirs.iter().all(|&recall| recall == 0.0) {
                return Json::Null;
            }
            let interval = ratio(&ours[..queries], theirs, 42);
            json!({"ratio": mean(ours) / mean(theirs), "low": interval.low, "high": interval.high})
        };
        json!({
            "queries": queries,
            "labelled": labelled,
            "bytes": bytes,
            "codes": {
                "before": self.codes_before.as_deref().map(mean),
                "after": self.codes.as_deref().map(mean),
            },
            // Without right answers, an active model whose scorer improves on exact search would seem to lose.
            "whole": {
                "before": labelled.then(|| mean(&self.whole_before)),
                "after": mean(&self.whole),
                "to_before": labelled.then(|| compared(&self.whole, &self.whole_before)),
                "to_exact": labelled.then(|| compared(&self.whole, &self.exact)),
            },
            "exact": mean(&self.exact),
        })
    }
}

/// Estimates what codes of other sizes find: OPQ behind the projection that was learned, from few rows and with few
/// steps. It is comparable with its own figure for the same size, not with the codes that were learned.
pub(super) fn other_sizes(
    corpus: &Corpus,
    learned: &Quantizer,
    validation: &VectorQuestions,
    (seed, threads): (u64, usize),
) -> Result<Json> {
    let Some(head) = learned.head() else {
        return Ok(Json::Null);
    };
    if validation.is_empty() || learned.activation() != Activation::None {
        return Ok(Json::Null);
    }
    let mut rows = Random::new(seed, "other sizes", 0).order(corpus.rows());
    rows.truncate(QUICK_ROWS);
    rows.sort_unstable();
    let sample: Vec<f32> = rows
        .iter()
        .flat_map(|&row| corpus.vector(row))
        .copied()
        .collect();
    let dim = learned.dim();
    let mut projected = vec![0.0; rows.len() * dim];
    learned.project(&sample, &mut projected)?;
    let questions = VectorQuestions {
        vectors: validation.vectors[..validation.len().min(QUICK_QUERIES) * corpus.hidden].to_vec(),
        answers: validation
            .answers
            .iter()
            .take(QUICK_QUERIES)
            .cloned()
            .collect(),
    };
    let mut estimates = Vec::new();
    for bytes in BYTES.into_iter().filter(|bytes| dim.is_multiple_of(*bytes)) {
        let options = TrainPq::default()
            .subspaces(bytes)
            .codewords(rows.len().clamp(2, 256))
            .iterations(2)
            .seed(seed)
            .threads(threads);
        let opq = train_opq(&projected, dim, learned.metric(), &options)?.quantizer;
        let quantizer = Quantizer::builder(opq.codebook().clone(), learned.metric())
            .head(Some(head.clone()))
            .rotation(opq.rotation().map(<[f32]>::to_vec))
            .build()?;
        let keys = Keys::new(&corpus.vectors, &quantizer)?.threads(threads);
        let recall = keys.rank(&questions, K)?.places.recall(K);
        estimates.push(json!({"bytes": bytes, "recall": recall}));
    }
    Ok(json!(estimates))
}

/// Returns the report of a finished run as lines of text.
pub fn lines(done: &Json) -> Vec<String> {
    let gains = &done["report"]["gains"];
    let mut lines = Vec::new();
    if let Some(queries) = gains["queries"].as_u64() {
        let answers = match gains["labelled"].as_bool() {
            Some(true) => "right answers",
            _ => "exact first ten rows",
        };
        lines.push(format!(
            "recall@10 of the {answers} of {queries} validation queries:"
        ));
        let row = |name: &str, before: &Json, after: &Json| {
            format!("  {name:<24}{:>8}{:>8}", number(before), number(after))
        };
        lines.push(format!("  {:<24}{:>8}{:>8}", "", "active", "learned"));
        let codes = &gains["codes"];
        if codes["after"].is_number() {
            let name = format!("codes ({} bytes per row)", gains["bytes"]);
            lines.push(row(&name, &codes["before"], &codes["after"]));
        }
        let whole = &gains["whole"];
        lines.push(row("whole search", &whole["before"], &whole["after"]));
        lines.push(row("exact search", &gains["exact"], &gains["exact"]));
        for (name, of) in [
            ("the active model", "to_before"),
            ("exact search", "to_exact"),
        ] {
            let ratio = &whole[of];
            if ratio.is_object() {
                lines.push(format!(
                    "the whole search finds {} [{}, {}] of what {name} finds",
                    number(&ratio["ratio"]),
                    number(&ratio["low"]),
                    number(&ratio["high"])
                ));
            }
        }
    }
    let scorer = &done["report"]["scorer"];
    let map = &scorer["map"];
    if let Some(adopted) = map["adopted"].as_bool() {
        lines.push(format!(
            "the query map {}: it adds {} [{}, {}] to recall@10 of exact search",
            if adopted { "is used" } else { "is not used" },
            number(&map["gain"]),
            number(&map["gain_low"]),
            number(&map["gain_high"])
        ));
    }
    if let Some(weight) = scorer["words"]["weight"].as_f64() {
        lines.push(format!("words count with a weight of {weight:.4}"));
    }
    if let Some(candidates) = scorer["serving"]["candidates"].as_u64() {
        lines.push(format!(
            "a query for {} hits takes {candidates} candidates",
            scorer["serving"]["k"]
        ));
    }
    if let Some(sizes) = done["report"]["other_sizes"].as_array()
        && !sizes.is_empty()
    {
        let size = |one: &Json| format!("{} bytes {}", one["bytes"], number(&one["recall"]));
        let sizes: Vec<String> = sizes.iter().map(size).collect();
        lines.push(format!(
            "other sizes, a quick estimate with OPQ behind this projection: {}",
            sizes.join(", ")
        ));
    }
    if let Some(pairs) = done["report"]["pairs"].as_u64().filter(|&pairs| pairs > 0) {
        let half = &done["report"]["half"];
        lines.push(match half["codes"].as_f64() {
            Some(_) => format!(
                "learned from {pairs} pairs; with {} of them the codes find {} instead of {}: {}",
                half["pairs"],
                number(&half["codes"]),
                number(&half["codes_of_all"]),
                match half["gain_low"].as_f64() {
                    Some(low) if low > 0.0 => "more pairs are likely to help",
                    _ => "more pairs are not likely to help much",
                }
            ),
            None => format!(
                "learned from {pairs} pairs; --half trains on half of them too and shows whether more would help"
            ),
        });
    }
    lines
}

/// Three digits behind the point; a dash where there is no number.
fn number(value: &Json) -> String {
    value
        .as_f64()
        .map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_the_queries_that_all_have() {
        let found = Found {
            codes_before: None,
            codes: Some(vec![1.0, 0.0, 1.0]),
            whole_before: vec![1.0, 0.0],
            whole: vec![1.0, 1.0],
            exact: vec![1.0, 1.0, 0.0],
        };
        let json = found.json(true, 8);
        assert_eq!((&json["queries"], &json["exact"]), (&2.into(), &1.0.into()));
        assert_eq!(json["codes"]["after"], 0.5);
        assert_eq!(json["codes"]["before"], Json::Null);
        assert_eq!(json["whole"]["to_before"]["ratio"], 2.0);
        let unlabelled = &found.json(false, 8)["whole"];
        assert_eq!(unlabelled["after"], 1.0);
        assert_eq!(
            (&unlabelled["before"], &unlabelled["to_exact"]),
            (&Json::Null, &Json::Null)
        );
        assert_eq!(Found::default().json(true, 8), Json::Null);
    }

    #[test]
    fn the_lines_have_what_was_measured_and_dashes_where_nothing_was() {
        let done = json!({"report": {
            "pairs": 25212,
            "gains": {
                "queries": 1000, "labelled": true, "bytes": 8, "exact": 0.815,
                "codes": {"before": null, "after": 0.718},
                "whole": {
                    "before": 0.868, "after": 0.901,
                    "to_exact": {"ratio": 1.106, "low": 1.089, "high": 1.119}, "to_before": null,
                },
            },
            "scorer": {
                "map": {"adopted": true, "gain": 0.047, "gain_low": 0.039, "gain_high": 0.055},
                "words": {"weight": 0.01234}, "serving": {"k": 10, "candidates": 133},
            },
            "other_sizes": [{"bytes": 4, "recall": 0.4}, {"bytes": 16, "recall": 0.75}],
        }});
        let text = lines(&done).join("\n");
        for expected in [
            "right answers of 1000 validation queries",
            "codes (8 bytes per row)        -   0.718",
            "whole search               0.868   0.901",
            "finds 1.106 [1.089, 1.119] of what exact search finds",
            "the query map is used: it adds 0.047 [0.039, 0.055]",
            "a weight of 0.0123",
            "10 hits takes 133 candidates",
            "4 bytes 0.400, 16 bytes 0.750",
            "25212 pairs; --half",
        ] {
            assert!(text.contains(expected), "{expected:?} in\n{text}");
        }
        assert!(!text.contains("active model finds"));
        assert!(lines(&json!({"report": {}})).is_empty());
    }
}
