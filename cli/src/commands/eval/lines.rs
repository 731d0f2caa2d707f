//! The output: one object or one table line per model and search mode.

use super::SEED;
use super::measure::{Measured, tells_exact};
use crate::out::Table;
use mopqdb::Search;
use mopqdb::eval::bootstrap::{self, Interval};
use mopqdb::eval::{Questions, Ranks};
use serde_json::{Value, json};

/// Returns a line as an object; lines after the first are compared with the first.
pub(super) fn object(
    line: &Measured,
    lines: &[&Measured],
    cuts: &[usize],
    questions: &Questions,
    rows: u64,
) -> Value {
    let by_cut = |value: &dyn Fn(usize) -> Value| -> Value {
        Value::Object(cuts.iter().map(|&k| (k.to_string(), value(k))).collect())
    };
    let Measured { model, ranks, .. } = line;
    let mut object = json!({
        "search": ranks.search.name(),
        "model": model.id,
        "method": model.method,
        "active": model.active,
        "recall": by_cut(&|k| json!(ranks.recall(k))),
        "interval": by_cut(&|k| json!(bootstrap::interval(&ranks.recalls(k), SEED))),
        "recall_worst": by_cut(&|k| json!(ranks.places(k).bounds(k).0)),
        "recall_best": by_cut(&|k| json!(ranks.places(k).bounds(k).1)),
        "unquantized": by_cut(&|k| json!(model.exact.recall(k))),
        "queries": questions.all.len(),
        "missing_answers": questions.missing_answers.len(),
        "unanswerable": questions.unanswerable,
        "rows": rows,
        "seconds": line.seconds,
    });
    if cuts.iter().any(|&k| ranks.candidates(k).is_some()) {
        object["candidates"] = by_cut(&|k| json!(ranks.candidates(k)));
    }
    if let Some(codes) = line.codes() {
        if let Some(head) = &model.head {
            object["unquantized_head"] = by_cut(&|k| json!(head.recall(k)));
        }
        object["reconstruction_loss"] = json!(codes.distortion);
        object["relative_distortion"] = json!(codes.relative_distortion);
        object["codewords_used"] = json!(codes.used);
        object["entropy_bits"] = json!(codes.entropy);
        object["distinct_codes"] = json!(codes.distinct);
    }
    let told = |mean: f64, interval: Interval| json!({"mean": mean, "low": interval.low, "high": interval.high});
    if is_compared_with_exact(line, lines) {
        object["ratio_to_exact"] = by_cut(&|k| {
            let (mean, interval) = ratio(ranks, &model.exact, k);
            told(mean, interval)
        });
    }
    let first = lines[0];
    if !std::ptr::eq(line, first) {
        object["compared_with"] = json!(first.model.id);
        object["compared_with_search"] = json!(first.ranks.search.name());
        object["difference"] = by_cut(&|k| {
            let mean = ranks.recall(k) - first.ranks.recall(k);
            let (ours, theirs) = (ranks.recalls(k), first.ranks.recalls(k));
            told(mean, bootstrap::difference(&ours, &theirs, SEED))
        });
    }
    object
}

/// Returns `true` if it is not exact search, and exact search is among the lines too.
fn is_compared_with_exact(line: &Measured, lines: &[&Measured]) -> bool {
    let exact = |line: &Measured| line.ranks.search == Search::Exact;
    !exact(line) && lines.iter().any(|line| exact(line))
}

/// Returns recall@k divided by that of exact search, and its interval.
fn ratio(ranks: &Ranks, exact: &Ranks, k: usize) -> (f64, Interval) {
    let interval = bootstrap::ratio(&ranks.recalls(k), &exact.recalls(k), SEED);
    (ranks.recall(k) / exact.recall(k), interval)
}

/// Returns one line per model and search mode, and one for the full-precision vectors of its encoder.
pub(super) fn table(lines: &[&Measured], cuts: &[usize]) -> Table {
    let compared = lines.iter().any(|line| is_compared_with_exact(line, lines));
    let mut headers: Vec<String> = ["model", "method", "search"].map(str::to_owned).into();
    headers.extend(cuts.iter().map(|k| format!(">recall@{k}")));
    if compared {
        headers.extend(cuts.iter().map(|k| format!(">of exact@{k}")));
    }
    headers.extend([">loss".to_owned(), ">used".to_owned()]);
    let mut table = Table::new(&headers);
    let blank = || "-".to_owned();
    let ratios = |of: &dyn Fn(usize) -> String| -> Vec<String> {
        match compared {
            true => cuts.iter().map(|&k| of(k)).collect(),
            false => Vec::new(),
        }
    };
    for (n, line) in lines.iter().enumerate() {
        let Measured { model, ranks, .. } = line;
        let mark = if model.active { "*" } else { "" };
        let mut cells = vec![
            format!("{}{mark}", model.short()),
            model.method.clone(),
            ranks.search.to_string(),
        ];
        cells.extend(cuts.iter().map(|&k| {
            let interval = bootstrap::interval(&ranks.recalls(k), SEED);
            let half = (interval.high - interval.low) / 2.0;
            format!("{:.3} ±{half:.3}", ranks.recall(k))
        }));
        cells.extend(ratios(&|k| match is_compared_with_exact(line, lines) {
            false => blank(),
            true => {
                let (mean, interval) = ratio(ranks, &model.exact, k);
                format!("{mean:.3} ({:.3}-{:.3})", interval.low, interval.high)
            }
        }));
        cells.extend(match line.codes() {
            None => [blank(), blank()],
            Some(codes) => {
                let used = codes.used.iter().sum::<usize>() as f64;
                let of = codes.usage.iter().map(Vec::len).sum::<usize>() as f64;
                let loss = format!("{:.3}", codes.relative_distortion);
                [loss, format!("{:.0}%", 100.0 * used / of)]
            }
        });
        table.row(cells);
        let mut beside = |what: &str, recall: &dyn Fn(usize) -> f64| {
            let mut cells = vec![blank(), what.to_owned(), blank()];
            cells.extend(cuts.iter().map(|&k| format!("{:.3}", recall(k))));
            cells.extend(ratios(&|_| blank()));
            cells.extend([blank(), blank()]);
            table.row(cells);
        };
        if let (Some(head), true) = (&model.head, ends(lines, n)) {
            beside("its head, unquantized", &|k| head.recall(k));
        }
        if tells_exact(lines, n) {
            beside("full-precision vectors", &|k| model.exact.recall(k));
        }
    }
    table
}

/// Returns `true` if it is the last line of its model.
fn ends(lines: &[&Measured], n: usize) -> bool {
    n + 1 == lines.len() || Measured::begins(lines, n + 1)
}
