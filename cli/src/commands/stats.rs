use crate::out::{Out, Table, count, plural, size};
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use mopqdb::{CellStats, Drift, Stats};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Show rows, bytes per row by kind, segments, deletions, drift, and whether retraining is advised
///
/// New rows are in the log, later in segments, which are immutable files. A deleted or replaced row takes space in its
/// segment until compaction removes it. `memory that a query reads` is what one query scans: the codes of all rows, or
/// their vectors under the model `exact`; under a model with cells a query scans a part of them. `disk` is the size of the
/// database's files, by kind.
///
/// Drift compares rows inserted since training with those it was trained on: their distance to their codes, and the
/// codewords that they use. Retraining is advised if there are at least 1,000 new rows, and their mean error is 15%
/// (and four standard errors) above that of the training rows, or a tenth of the codeword use has changed, or a tenth
/// of the rows are in other cells, or there are four times as many rows as in training.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb stats my.db
  mopqdb stats my.db --where \"lang = 'en'\"
  mopqdb stats my.db --json | jq .drift.advice")]
pub struct StatsArgs {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Only count the rows that pass this filter, in SQL: `mopqdb query --help` describes it
    #[arg(long = "where", value_name = "EXPR")]
    filter: Option<String>,
}

impl StatsArgs {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        if let Some(expression) = &self.filter {
            return self.count(expression, settings);
        }
        let stats = super::read(&self.db, settings)?.stats()?;
        let mut out = Out::new(settings);
        if out.is_json() {
            let mut object = serde_json::to_value(&stats)?;
            object["bytes_per_row"] = per_row(&object["bytes"], stats.rows);
            object["retrain_advised"] = json!(advice(&stats).is_some());
            out.object(&object)?;
            return out.flush();
        }
        let mut table = Table::new(&["", ""]);
        for (label, value) in labelled(&stats) {
            table.row(vec![label.into(), value]);
        }
        out.table(&table)?;
        out.flush()
    }
}

impl StatsArgs {
    fn count(&self, expression: &str, settings: &Settings) -> Result<()> {
        let filter = super::filter::sql(expression)?;
        let rows = super::read(&self.db, settings)?.count_where(&filter)?;
        let mut out = Out::new(settings);
        match out.is_json() {
            true => out.object(&json!({"rows": rows}))?,
            false => out.line(plural(rows, "row"))?,
        }
        out.flush()
    }
}

/// Returns the figures with their labels.
fn labelled(stats: &Stats) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("rows", count(stats.rows)),
        (
            "rows in the log, not yet in a segment",
            count(stats.tail_rows),
        ),
        (
            "deleted or replaced rows, not yet compacted",
            count(stats.dead_rows),
        ),
        ("segments", count(stats.segments as u64)),
        (
            "vectors",
            format!("{} dimensions, compared by {}", stats.dim, stats.metric),
        ),
        ("active model", model(stats)),
        ("memory that a query reads", scanned(stats)),
    ];
    lines.extend(stats.cells.as_ref().map(cells).into_iter().flatten());
    lines.extend(on_disk(stats));
    lines.extend(stats.drift.as_ref().map(drift).into_iter().flatten());
    lines.push((
        "retraining",
        advice(stats).unwrap_or_else(|| "not advised".into()),
    ));
    lines
}

fn model(stats: &Stats) -> String {
    let short = stats.model.get(..12).unwrap_or(&stats.model);
    format!("{short} ({})", stats.method)
}

fn scanned(stats: &Stats) -> String {
    let all = stats.scan_bytes_per_row * stats.rows as f64;
    sized(all as u64, stats.rows)
}

fn cells(cells: &CellStats) -> [(&'static str, String); 2] {
    [
        (
            "cells",
            format!(
                "{}, {} of them empty, {} rows in the largest",
                count(cells.cells as u64),
                count(cells.empty as u64),
                count(cells.largest)
            ),
        ),
        (
            "cells: imbalance (rows looked at, compared with even cells)",
            format!("{:.2}", cells.imbalance),
        ),
    ]
}

/// Returns the kinds that exist, and then their sum.
fn on_disk(stats: &Stats) -> impl Iterator<Item = (&'static str, String)> {
    let (bytes, rows) = (stats.bytes, stats.rows);
    let kinds = [
        ("disk: keys, and texts or vectors as inserted", bytes.rows),
        ("disk: vectors made by encoders", bytes.vecs),
        ("disk: index of words", bytes.words),
        ("disk: codes of all models", bytes.codes),
        ("disk: lists of deleted rows", bytes.deletions),
        ("disk: log", bytes.logs),
        ("disk: models", bytes.models),
        ("disk: catalog, reserve, staged files", bytes.other),
    ];
    let there = kinds.into_iter().filter(|(_, bytes)| *bytes > 0);
    there
        .chain([("disk: total", bytes.total())])
        .map(move |(label, bytes)| (label, sized(bytes, rows)))
}

fn sized(bytes: u64, rows: u64) -> String {
    match rows {
        0 => size(bytes),
        _ => format!(
            "{} ({:.1} bytes per row)",
            size(bytes),
            bytes as f64 / rows as f64
        ),
    }
}

fn drift(drift: &Drift) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        (
            "drift: rows that the model was trained on",
            count(drift.trained_rows),
        ),
        ("drift: rows inserted since", count(drift.new_rows)),
        (
            "drift: mean squared error of rows trained on",
            format!("{:.4}", drift.trained_error),
        ),
    ];
    if drift.new_rows > 0 {
        lines.extend([
            (
                "drift: mean squared error of rows since",
                format!("{:.4}", drift.new_error),
            ),
            (
                "drift: change in codeword use",
                format!("{:.1}%", 100.0 * drift.use_shift),
            ),
        ]);
        if let (Some(moved), Some(shift)) = (drift.moved_cells, drift.cell_shift) {
            lines.push((
                "drift: cells whose share of the rows changed",
                format!("{moved}, {:.1}% of the rows", 100.0 * shift),
            ));
        }
    }
    lines
}

/// Returns why to train now, and how.
fn advice(stats: &Stats) -> Option<String> {
    let drift = stats.drift.as_ref()?;
    let why = drift.advice.as_ref()?;
    Some(format!(
        "advised: {why}; run `mopqdb train DB` and `mopqdb rebuild DB`"
    ))
}

fn per_row(bytes: &Value, rows: u64) -> Value {
    let kinds = bytes.as_object().into_iter().flatten();
    let a_row = |value: &Value| json!(value.as_f64().unwrap_or(0.0) / rows.max(1) as f64);
    Value::Object(
        kinds
            .map(|(kind, value)| (kind.clone(), a_row(value)))
            .collect(),
    )
}
