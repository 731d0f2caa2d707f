use crate::out::Out;
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Seal the rows that are only in the log into a segment
///
/// This happens automatically as the log grows, and at the end of an insert that leaves a large log. A sealed database
/// opens faster.
#[derive(Debug, Args)]
pub struct Seal {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
}

impl Seal {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let database = super::open(&self.db, settings)?;
        let sealed = database.seal()?;
        let mut out = Out::new(settings);
        match out.is_json() {
            true => out.object(&json!({"sealed": sealed}))?,
            false if sealed => out.line("sealed")?,
            false => out.line("nothing to seal")?,
        }
        out.flush()?;
        Ok(database.close()?)
    }
}
