use crate::out::{Out, Table, say};
use crate::settings::Settings;
use anyhow::Result;
use clap::{Args, Subcommand};
use mopqdb::{Bundle, ModelInfo};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// List the models of a database: method, shape, date, candidates, recall
///
/// `*` marks the active model. Candidates are given with the number of hits for which training or `mopqdb tune` measured
/// them. Recall is measured on the validation pairs of the training. `exact` is in every
/// database: the active encoder without a quantizer, which searches rows by their stored vectors. `mopqdb rebuild DB
/// --model ID` switches to one of them.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  mopqdb models my.db
  mopqdb models add my.db int8-bundle      # prints its id
  mopqdb rebuild my.db --model 3f2a        # switch to one of them; the first digits are enough
  mopqdb rebuild my.db --model exact"
)]
pub struct Models {
    #[command(subcommand)]
    action: Option<Action>,
    /// The database
    #[arg(value_name = "DB", required = true)]
    db: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    Add(Add),
}

/// Add a bundle to the models of a database, and print its id
///
/// The bundle may have another encoder, an int8 variant, or codebooks for vectors. The database still answers with the
/// model that it has: `mopqdb rebuild DB --model ID` switches to the new one. The bundle is copied; a damaged or
/// incompatible one is refused.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb bundle quantize default-bundle int8-bundle
  mopqdb models add my.db int8-bundle
  mopqdb rebuild my.db --model 3f2a")]
struct Add {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// The bundle's directory
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
}

impl Add {
    fn run(self, settings: &Settings) -> Result<()> {
        let bundle = Bundle::open(&self.bundle)?;
        let id = mopqdb::register_model(&self.db, &bundle)?;
        let mut out = Out::new(settings);
        if out.is_json() {
            out.object(&json!({"model": id.to_string()}))?;
        } else {
            out.line(id.to_string())?;
            say(format!(
                "added; `mopqdb rebuild {} --model {}` switches to it",
                self.db.display(),
                id.short()
            ));
        }
        out.flush()
    }
}

impl Models {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        match (self.action, self.db) {
            (Some(Action::Add(add)), _) => add.run(settings),
            (None, Some(db)) => list(&db, settings),
            (None, None) => unreachable!("clap asks for DB where there is no subcommand"),
        }
    }
}

fn list(db: &Path, settings: &Settings) -> Result<()> {
    let mut out = Out::new(settings);
    let models = mopqdb::models(db)?;
    if out.is_json() {
        for model in &models {
            out.object(model)?;
        }
        return out.flush();
    }
    let mut table = Table::new(&[
        "active",
        "model",
        "method",
        "codes",
        "made",
        "candidates",
        "recall",
    ]);
    for model in &models {
        let active = if model.active { "*" } else { "" };
        let shape = model
            .shape
            .map_or_else(|| "-".into(), |(m, l)| format!("{m}x{l}"));
        let made = match model.registered {
            0 => "-".into(),
            seconds => date(seconds),
        };
        table.row(vec![
            active.into(),
            model.id.short(),
            model.method.clone(),
            shape,
            made,
            model.serving.map_or_else(
                || "-".into(),
                |serving| format!("{} for {}", serving.candidates, serving.k),
            ),
            recall(model),
        ]);
    }
    out.table(&table)?;
    out.flush()
}

/// `@10 .788 @100 .945`, of whatever the trainer measured.
fn recall(model: &ModelInfo) -> String {
    let measured = &model.evaluation;
    let recall = [
        &measured["recall"],
        &measured["valid"]["recall"],
        &measured["validation"]["recall"],
    ];
    let Some(Value::Object(recall)) = recall.into_iter().find(|value| value.is_object()) else {
        return "-".into();
    };
    let mut cuts: Vec<(u64, f64)> = recall
        .iter()
        .filter_map(|(k, value)| Some((k.parse().ok()?, value.as_f64()?)))
        .collect();
    cuts.sort_by_key(|(k, _)| *k);
    cuts.iter()
        .map(|(k, value)| format!("@{k} {value:.3}"))
        .collect::<Vec<_>>()
        .join("  ")
}

/// Seconds since 1970 as `2024-02-29 12:00` UTC.
pub(super) fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Civil from days (proleptic Gregorian): years of 365.2425 days that begin in March.
    let shifted = days as i64 + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}",
        rest / 3600,
        rest / 60 % 60
    )
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00");
        assert_eq!(date(951_782_399), "2000-02-28 23:59");
        assert_eq!(date(951_782_400), "2000-02-29 00:00");
        assert_eq!(date(1_709_208_000), "2024-02-29 12:00");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59");
    }
}
