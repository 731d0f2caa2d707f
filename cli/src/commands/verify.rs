use crate::exit::{Damaged, usage};
use crate::out::{Out, plural, say, size};
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use mopqdb::VerifyOptions;
use std::path::PathBuf;

/// Check a database for damage
///
/// Reads every byte and compares it with its checksum. Takes no lock, changes nothing, and works on a database that
/// can't be opened. --deep also recomputes every code from its stored vector and compares it bit by bit, without the
/// encoder. --encode N also encodes N texts again and compares them with the stored vectors (cosine of at least 0.999).
/// Lists damage and exits with 3.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb verify my.db
  mopqdb verify my.db --deep --encode 100")]
pub struct Verify {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Recompute every code
    #[arg(long)]
    deep: bool,
    /// With --deep: encode N texts again
    #[arg(long, value_name = "N")]
    encode: Option<usize>,
}

impl Verify {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<()> {
        if self.encode.is_some() && !self.deep {
            return Err(usage("--encode goes with --deep"));
        }
        let options = VerifyOptions::default()
            .deep(self.deep)
            .encode(self.encode.unwrap_or(0));
        let found = mopqdb::verify(&self.db, &options)?;
        let mut out = Out::new(settings);
        if out.is_json() {
            out.object(&found)?;
        } else {
            for problem in &found.problems {
                out.line(problem)?;
            }
            for note in &found.notes {
                say(note);
            }
            if found.is_sound() {
                let mut words = format!(
                    "sound: {} in segments, {}, {} read",
                    plural(found.rows, "row"),
                    plural(found.files, "file"),
                    size(found.bytes)
                );
                if self.deep {
                    words += &format!(", {} computed again", plural(found.codes, "code"));
                }
                if self.encode.is_some() {
                    words += &format!(", {} encoded again", plural(found.texts, "text"));
                }
                out.line(words)?;
            }
        }
        out.flush()?;
        match found.is_sound() {
            true => Ok(()),
            false => Err(Damaged(found.problems.len()).into()),
        }
    }
}
