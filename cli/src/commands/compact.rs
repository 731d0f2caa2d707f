use crate::out::{Out, plural};
use crate::settings::Settings;
use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Merge segments and free the space of deleted and replaced rows
///
/// This happens automatically while a program writes. Queries continue meanwhile.
#[derive(Debug, Args)]
pub struct Compact {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
}

impl Compact {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let database = super::open(&self.db, settings)?;
        let done = database.compact()?;
        let mut out = Out::new(settings);
        match out.is_json() {
            true => out.object(
                &json!({"inputs": done.inputs, "outputs": done.outputs, "dropped": done.dropped, "out_of_room": done.out_of_room}),
            )?,
            false => out.line(format!(
                "{} made {}, {} dropped",
                plural(done.inputs as u64, "segment"),
                done.outputs,
                plural(done.dropped, "dead row")
            ))?,
        }
        out.flush()?;
        database.close()?;
        if done.out_of_room {
            bail!(
                "the disk has no space for the rest; free some space or delete more rows, and run it again"
            );
        }
        Ok(())
    }
}
