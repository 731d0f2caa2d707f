use crate::exit::{Lost, Unrepaired};
use crate::out::{Out, plural, say};
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use mopqdb::{RepairOptions, Repaired};
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

/// Repair a damaged database, and report every decision
///
/// Works on a database that can't be opened. Reads every byte. Recomputes codes from vectors and vectors from texts,
/// corrects single flipped bits, and keeps all undamaged rows of a damaged file. Never deletes a file with rows: unused
/// files move to `orphans/` in the database.
///
/// Asks before it drops unreadable data; --yes answers yes. Without a terminal and without --yes it does everything
/// that loses nothing, and lists the rest. The exit code is 3 if anything is lost or left, 0 if everything was
/// recomputed.
///
/// --restore brings back the rows of files in `orphans/`. Rows that were deleted after their file was moved there come
/// back too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb repair my.db
  mopqdb repair my.db --yes
  mopqdb repair my.db --restore")]
pub struct Repair {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Continue without unreadable data
    #[arg(long)]
    yes: bool,
    /// Bring back the rows of files in orphans/
    #[arg(long)]
    restore: bool,
}

impl Repair {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let options = RepairOptions::default()
            .accept_loss(self.yes)
            .restore(self.restore);
        let mut repaired = mopqdb::repair(&self.db, &options)?;
        if !repaired.pending.is_empty() && std::io::stdin().is_terminal() && agrees(&repaired)? {
            let again = mopqdb::repair(&self.db, &options.accept_loss(true))?;
            let done = std::mem::take(&mut repaired.done);
            repaired = again;
            repaired.done.splice(0..0, done);
        }
        print(&repaired, settings)?;
        match (repaired.lost.len(), repaired.pending.len()) {
            (0, 0) => Ok(()),
            (lost, 0) => Err(Lost(lost).into()),
            (_, pending) => Err(Unrepaired(pending).into()),
        }
    }
}

/// Lists what would be lost, and asks the user.
fn agrees(repaired: &Repaired) -> Result<bool> {
    for what in &repaired.pending {
        say(what);
    }
    eprint!("Continue without it? The damaged files are kept in orphans/. [y/N] ");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn print(repaired: &Repaired, settings: &Settings) -> Result<()> {
    let mut out = Out::new(settings);
    if out.is_json() {
        out.object(repaired)?;
        return out.flush();
    }
    for done in &repaired.done {
        out.line(done)?;
    }
    for lost in &repaired.lost {
        out.line(format!("lost: {lost}"))?;
    }
    for pending in &repaired.pending {
        out.line(format!("not repaired: {pending}"))?;
    }
    for key in &repaired.lost_keys {
        out.line(format!("lost key: {key}"))?;
    }
    if repaired.done.is_empty() && repaired.is_whole() {
        out.line("nothing was wrong")?;
    }
    if let Some(rows) = repaired.rows {
        out.line(format!("{} now", plural(rows, "row")))?;
    }
    out.flush()
}
