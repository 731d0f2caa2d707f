use crate::out::{Out, plural};
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Mend a damaged database as far as can be, saying what was lost
///
/// Works on a database that does not open. What is damaged beyond mending is put aside in its `orphans/`, never deleted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cp -r my.db my.db.before && mopqdb repair my.db")]
pub struct Repair {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
}

impl Repair {
    /// Mends and tells.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let repaired = mopqdb::repair(&self.db)?;
        let mut out = Out::new(settings);
        if out.is_json() {
            out.object(&json!({"done": repaired.done, "rows": repaired.rows}))?;
            return out.flush();
        }
        for done in &repaired.done {
            out.line(done)?;
        }
        if repaired.done.is_empty() {
            out.line("nothing was amiss")?;
        }
        out.line(format!("{} now", plural(repaired.rows, "row")))?;
        out.flush()
    }
}
