use crate::out::{Out, plural, size};
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use mopqdb::BackupOptions;
use serde_json::json;
use std::path::PathBuf;

/// Copy a live database, consistently, to a new directory
///
/// The copy is an independent database with every row acknowledged before, all models and the training records. Other
/// processes can insert and query meanwhile. If a backup was stopped, the same command starts it over. A rebuild in
/// progress and `orphans/` are not copied.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb backup my.db my-backup.db
  mopqdb backup my.db /mnt/other/my.db && mopqdb verify /mnt/other/my.db --deep
  mopqdb backup my.db snapshot.db --link      # at once, and no protection from a failing disk")]
pub struct Backup {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Directory to create
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    /// Leave out models that are not active, with their codes, and the records of training
    #[arg(long)]
    active_only: bool,
    /// Share files with the database by hard links, if the file system supports them, instead of copying them
    #[arg(long)]
    link: bool,
}

impl Backup {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let options = BackupOptions::default()
            .active_only(self.active_only)
            .link(self.link);
        let done = mopqdb::backup_with(&self.db, &self.dest, &options)?;
        let mut out = Out::new(settings);
        let dest = self.dest.display().to_string();
        if out.is_json() {
            let (files, bytes, linked) = (done.files, done.bytes, done.linked);
            out.object(&json!({"files": files, "bytes": bytes, "linked": linked, "dest": dest}))?;
            return out.flush();
        }
        let linked = match done.linked {
            0 => String::new(),
            n => format!(", {n} of them linked"),
        };
        out.line(format!(
            "copied {}{linked}, {}, to {dest}",
            plural(done.files, "file"),
            size(done.bytes)
        ))?;
        out.flush()
    }
}
