use crate::out::{Out, plural, size};
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use mopqdb::BackupOptions;
use serde_json::json;
use std::path::PathBuf;

/// Copy a live database, consistently, to a new directory
///
/// Every row acknowledged before is in the copy, which is a database of its own, with all models and the records of training;
/// others may go on inserting and querying. A backup that was stopped is started over by the same command. Left out are
/// a rebuild in progress and what recovery put aside (`orphans`).
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
    /// Directory to make
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    /// Leave out models that are not active, with their codes, and the records of training
    #[arg(long)]
    active_only: bool,
    /// Share files with the database by hard links, where the file system can, instead of copying them
    #[arg(long)]
    link: bool,
}

impl Backup {
    /// Copies.
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
