use crate::out::{Out, Table, count, size};
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Show rows, bytes a row by kind, segments, deletions, drift, and whether retraining is advised
///
/// Drift compares rows inserted since training with those it was trained on: how far they are from their codes, and
/// which codewords they use. Retraining is advised, with 1,000 new rows or more, when their mean error is 15% above
/// that of the training rows (and beyond four standard errors), when a tenth of the use of codewords has moved, or when
/// there are four times as many rows as in training.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb stats my.db
  mopqdb stats my.db --json | jq .drift.advice")]
pub struct Stats {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
}

impl Stats {
    /// Prints them.
    pub fn run(self, settings: &Settings) -> Result<()> {
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
        let mut add = |name: &str, value: String| table.row(vec![name.into(), value]);
        add("rows", count(stats.rows));
        add("not yet in a segment", count(stats.tail_rows));
        add("deleted, not yet compacted", count(stats.dead_rows));
        add("segments", count(stats.segments as u64));
        add(
            "vectors",
            format!("{} dimensions, {}", stats.dim, stats.metric),
        );
        let short = stats.model.get(..12).unwrap_or(&stats.model);
        let model = format!("{short} ({})", stats.method);
        add("model", model);
        add(
            "bytes scanned a row",
            format!("{}", stats.scan_bytes_per_row),
        );
        let bytes = serde_json::to_value(stats.bytes)?;
        for (kind, bytes) in bytes.as_object().into_iter().flatten() {
            let bytes = bytes.as_u64().unwrap_or(0);
            if bytes > 0 {
                let a_row = bytes as f64 / stats.rows.max(1) as f64;
                add(
                    &format!("on disk: {kind}"),
                    format!("{} ({a_row:.1} a row)", size(bytes)),
                );
            }
        }
        add("on disk", size(stats.bytes.total()));
        if let Some(drift) = &stats.drift {
            add(
                "rows of training, and since",
                format!("{}, {}", count(drift.trained_rows), count(drift.new_rows)),
            );
            add(
                "their mean error",
                format!("{:.4}, {:.4}", drift.trained_error, drift.new_error),
            );
            add(
                "codeword use moved",
                format!("{:.1}%", 100.0 * drift.use_shift),
            );
        }
        add(
            "retraining",
            advice(&stats).unwrap_or_else(|| "not advised".into()),
        );
        out.table(&table)?;
        out.flush()
    }
}

/// Why to train now, and how.
fn advice(stats: &mopqdb::Stats) -> Option<String> {
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
