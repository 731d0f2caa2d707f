mod auto;
mod batch;
mod feed;
mod flags;
mod open;
mod run;
mod seen;

use crate::rows::{Format, KeyFile};
use crate::settings::Settings;
use crate::stop;
use anyhow::Result;
use clap::Args;
use feed::Feed;
use run::Run;
use std::path::PathBuf;

/// Insert rows, or replace those with the same key
///
/// The database is made with the defaults where there is none. Rows are durable batch by batch: after Ctrl-C, a bad line
/// or a crash everything acknowledged is kept, and inserting the same file again changes nothing but time.
///
/// FILE is `-` or a name that ends in .jsonl (one object per line, {"key": "...", "text": "..."} or {"key": "...",
/// "vector": [...]}), .tsv (key TAB text), .txt (one text per line; the key is the line's number, from 1), .npy, .fvecs or
/// .fbin (vectors; keys are row numbers, from 0, or come from --keys). With several numbered files keys are FILESTEM:N.
/// Any of them, and standard input, may be compressed by gzip or zstd: the first bytes tell, and .gz or .zst after the
/// extension changes nothing.
///
/// With 65,536 rows or more and no codes yet, codes are learned from the rows themselves, and used from then on if
/// queries with them find .99 of the exact nearest ten of rows that were set aside. A line on stderr tells how many they
/// find; --no-auto leaves all of this out.
///
/// A key that comes twice in one run is an error, which names both places: --skip-bad keeps the first row, --replace the
/// last. To tell, a run remembers about 24 bytes for each row with a key of its own, one bit for each numbered row of
/// several files, and nothing with --replace.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb insert my.db articles.jsonl
  mopqdb insert my.db dump.jsonl.zst --key-field id --text-field body --ignore-unknown
  curl https://example.com/dump.jsonl.gz | mopqdb insert my.db -
  mopqdb insert vectors.db base.npy --keys ids.txt
  mopqdb insert my.db titles.txt --replace         # line 7 may differ from what `7` was")]
pub struct Insert {
    /// The database; made if it does not exist
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Files of rows; `-` or none: standard input, JSONL unless --format says otherwise
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Read every FILE in this format, whatever its name
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<Format>,
    /// Keys for rows that have none of their own (.txt and vectors), one per line
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// The field of a JSON object that holds the key; `key` unless given
    #[arg(long, value_name = "NAME")]
    key_field: Option<String>,
    /// The field of a JSON object that holds the text; `text` unless given
    #[arg(long, value_name = "NAME")]
    text_field: Option<String>,
    /// Leave out all other fields of a JSON object, which are an error otherwise
    #[arg(long)]
    ignore_unknown: bool,
    /// Let a numbered key that exists with other content be replaced, and the last row win where a key comes twice
    #[arg(long)]
    replace: bool,
    /// Skip rows that can't be taken, and count them, rather than stop at the first
    #[arg(long)]
    skip_bad: bool,
    /// Print {"acked": <rows so far>} after each durable batch
    #[arg(long)]
    ack: bool,
    /// Learn no codes from the rows, and advise no `mopqdb train`
    #[arg(long)]
    no_auto: bool,
    /// Seconds to wait while another process writes to the database; 0: fail at once, with exit code 4
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
}

impl Insert {
    /// Reads, inserts, tells.
    pub fn run(mut self, settings: &Settings) -> Result<()> {
        if self.files.is_empty() {
            self.files.push("-".into());
        }
        let inputs = self.inputs()?;
        let fields = self.fields(&inputs)?;
        let keys = self.keys.as_deref().map(KeyFile::open).transpose()?;
        let mut feed = Feed::start(&inputs, &fields, keys)?;
        // Until here Ctrl-C ends the program at once, and opening may wait for a pipe.
        stop::listen();
        Run::new(&self, settings).all(&mut feed)
    }
}
