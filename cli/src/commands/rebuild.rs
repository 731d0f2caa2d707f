use crate::out::{Out, count, plural};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stop;
use anyhow::Result;
use clap::Args;
use mopqdb::RebuildOptions;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Re-encode every row under another model, then switch to it
///
/// Queries and inserts continue meanwhile, in this and other processes; each answer is entirely of the old or of the
/// new model. Under the same encoder only the codes are computed again, and no text is encoded. The old model answers
/// until the switch. If interrupted, the same command continues.
///
/// If another process has the database open for writing, that process makes the switch when the rows are prepared.
/// --wait limits how long to wait for it (exit code 4: the prepared work is kept).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb rebuild my.db                    # to the newest model
  mopqdb rebuild my.db --model 3f2a       # to this one: an older one rolls back, and reuses its codes
  mopqdb rebuild my.db --model exact      # to no codes: rows are searched by their stored vectors")]
pub struct Rebuild {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// The model to switch to, by the first digits of its id, or `exact`; default: the newest
    #[arg(long, value_name = "ID|exact")]
    model: Option<String>,
    /// Seconds to wait for the writing process to commit
    #[arg(long, value_name = "S", default_value_t = 60)]
    wait: u64,
}

impl Rebuild {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        stop::listen();
        let model = self
            .model
            .as_deref()
            .map(|prefix| mopqdb::find_model(&self.db, prefix))
            .transpose()?;
        let progress = Progress::new("rebuilding", "rows", Some(0));
        let options = RebuildOptions::default()
            .model(model)
            .threads(settings.threads)
            .memory_limit(settings.memory_limit)
            .wait(Duration::from_secs(self.wait))
            .watch(progress.watch());
        let started = Instant::now();
        let rebuilt = mopqdb::rebuild(&self.db, &options)?;
        let seconds = started.elapsed().as_secs_f64();
        drop(progress);
        let mut out = Out::new(settings);
        if out.is_json() {
            out.object(&json!({
                "model": rebuilt.model.to_string(), "rows": rebuilt.rows, "reused": rebuilt.reused,
                "encoded": rebuilt.encoded, "indexed": rebuilt.indexed, "seconds": seconds,
            }))?;
            return out.flush();
        }
        let mut words = format!("{} is active", rebuilt.model.short());
        // Rows of the tail are quantized with the switch itself.
        if rebuilt.rows > 0 {
            words += &format!(", {} quantized", plural(rebuilt.rows, "row"));
        }
        if rebuilt.reused > 0 {
            words += &format!(", {} reused", count(rebuilt.reused));
        }
        if rebuilt.encoded > 0 {
            words += &format!(", {} encoded again", plural(rebuilt.encoded, "text"));
        }
        if rebuilt.indexed > 0 {
            words += &format!(", the words of {} indexed", plural(rebuilt.indexed, "text"));
        }
        out.line(format!("{words}, {seconds:.1} s"))?;
        out.flush()
    }
}
