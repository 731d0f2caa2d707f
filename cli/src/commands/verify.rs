use crate::exit::{Damaged, usage};
use crate::out::{Out, plural};
use crate::settings::Settings;
use anyhow::Result;
use clap::Args;
use mopqdb::VerifyOptions;
use std::path::PathBuf;

/// Check a database for damage
///
/// Takes no lock, changes nothing, and works on a database that does not open. --deep reads every byte against its checksum
/// and computes every code anew from its stored vector, which must be the same to the bit; it needs no encoder.
/// --encode N also encodes N texts anew and compares them with what is stored, to a cosine of 0.999. What is damaged is
/// listed, and the exit code is 3.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb verify my.db
  mopqdb verify my.db --deep --encode 100")]
pub struct Verify {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Check every byte and every code
    #[arg(long)]
    deep: bool,
    /// With --deep: encode so many texts anew
    #[arg(long, value_name = "N")]
    encode: Option<usize>,
}

impl Verify {
    /// Checks and lists.
    pub fn run(self, settings: &Settings) -> Result<()> {
        if self.encode.is_some() && !self.deep {
            return Err(usage("--encode goes with --deep"));
        }
        let options = VerifyOptions {
            deep: self.deep,
            encode: self.encode.unwrap_or(0),
        };
        let found = mopqdb::verify(&self.db, &options)?;
        let mut out = Out::new(settings);
        if out.is_json() {
            out.object(&found)?;
        } else {
            for problem in &found.problems {
                out.line(problem)?;
            }
            for note in &found.notes {
                eprintln!("mopqdb: {note}");
            }
            if found.is_sound() {
                let mut words = format!(
                    "sound: {} in segments, {}",
                    plural(found.rows, "row"),
                    plural(found.files, "file")
                );
                if self.deep {
                    words += &format!(", {} computed anew", plural(found.codes, "code"));
                }
                if self.encode.is_some() {
                    words += &format!(", {} encoded anew", plural(found.texts, "text"));
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
