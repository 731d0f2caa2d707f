use crate::out::{Out, plural, size};
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Copy a live database, consistently, to a new directory
///
/// Everything acknowledged before is in the copy, which is a database of its own; others may go on inserting and querying.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb backup my.db my-backup.db
  mopqdb backup my.db /mnt/other/my.db && mopqdb verify /mnt/other/my.db --deep")]
pub struct Backup {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Directory to make
    #[arg(value_name = "DEST")]
    dest: PathBuf,
}

impl Backup {
    /// Copies.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let done = mopqdb::backup(&self.db, &self.dest)?;
        let mut out = Out::new(settings);
        let dest = self.dest.display().to_string();
        match out.is_json() {
            true => out.object(&json!({"files": done.files, "bytes": done.bytes, "dest": dest}))?,
            false => out.line(format!(
                "copied {}, {}, to {dest}",
                plural(done.files, "file"),
                size(done.bytes)
            ))?,
        }
        out.flush()
    }
}
