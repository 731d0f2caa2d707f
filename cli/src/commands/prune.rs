use crate::out::{Out, plural, size};
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use mopqdb::{PruneOptions, find_model};
use std::path::PathBuf;

/// Drop inactive models with their codes, and staged files
///
/// The active model always stays. You cannot roll back to a dropped model.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb prune my.db --dry-run
  mopqdb prune my.db --keep 3f2a       # keeps that model in addition to the active one")]
pub struct Prune {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// A model to keep, by the first digits of its id; may be given several times
    #[arg(long, value_name = "ID")]
    keep: Vec<String>,
    /// Also drop `orphans/`: files moved aside by recovery and repair
    #[arg(long)]
    orphans: bool,
    /// Only list what would be dropped
    #[arg(long)]
    dry_run: bool,
}

impl Prune {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let keep: Result<Vec<_>, _> = self
            .keep
            .iter()
            .map(|prefix| find_model(&self.db, prefix))
            .collect();
        let options = PruneOptions::default()
            .keep(keep?)
            .orphans(self.orphans)
            .dry_run(self.dry_run);
        let pruned = mopqdb::prune(&self.db, &options)?;
        let mut out = Out::new(settings);
        if out.is_json() {
            out.object(&pruned)?;
            return out.flush();
        }
        if self.dry_run {
            for path in &pruned.paths {
                out.line(path.display().to_string())?;
            }
        }
        out.line(format!(
            "{} {}, {}, {}",
            if self.dry_run {
                "would drop"
            } else {
                "dropped"
            },
            plural(pruned.models.len() as u64, "model"),
            plural(pruned.paths.len() as u64, "file"),
            size(pruned.bytes)
        ))?;
        out.flush()
    }
}
