mod auto;
mod batch;
mod feed;
mod flags;
mod open;
mod run;
mod seen;
mod typed;

use crate::rows::{Format, KeyFile};
use crate::settings::Settings;
use crate::stop;
use anyhow::Result;
use clap::Args;
use feed::Feed;
use run::Run;
use std::path::PathBuf;

/// Insert rows, or replace rows with the same key
///
/// Creates the database with defaults if it does not exist. Each batch is durable: after Ctrl-C, a bad line or a crash
/// everything acknowledged is kept, and the same file can be inserted again.
///
/// FILE is `-` or a name that ends in .jsonl (one object per line, {"key": "...", "text": "..."} or {"key": "...",
/// "vector": [...]}), .tsv (key TAB text), .csv (key,text), .txt (one text per line; the key is the line's number, from 1), .npy, .fvecs
/// or .fbin (vectors; keys are row numbers, from 0, or come from --keys). With several numbered files keys are
/// FILESTEM:N. Files and standard input may be compressed with gzip or zstd, which is detected by content; .gz or .zst
/// after the extension is ignored.
///
/// Other fields of JSON objects, and other columns of CSV and TSV with --header, become columns, by which rows can be filtered (`mopqdb query --where`). Fields of nested
/// objects are named a.b. New columns get their type from the first 4,096 rows (or those before a pause of standard
/// input): bool, int, float, string, or a list of strings; 10 and then 10.5 is float. A later value of another type is an
/// error that names line and column. In CSV and TSV a value is what it looks like, and an empty one is null; a value of CSV
/// may be in double quotes. `mopqdb create --column NAME:TYPE` declares a column, which timestamps need.
///
/// From 65,536 rows on, if there are no codes yet, the command learns codes from the rows. It uses them if queries then
/// find .99 of the exact ten nearest rows, measured on rows that were set aside, and reports the result on stderr.
/// --no-auto prevents this.
///
/// A key that occurs twice in one run is an error that names both places; --skip-bad keeps the first row, --replace the
/// last. Detecting this takes about 24 bytes per row with its own key, one bit per numbered row of several files, and
/// nothing with --replace.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb insert my.db articles.jsonl
  mopqdb insert my.db dump.jsonl.zst --key-field id --text-field body --ignore-unknown
  curl https://example.com/dump.jsonl.gz | mopqdb insert my.db -
  mopqdb insert my.db posts.csv --header --text-field body
  mopqdb insert vectors.db base.npy --keys ids.txt
  mopqdb insert my.db titles.txt --replace         # line 7 may differ from what `7` was")]
pub struct Insert {
    /// The database; created if it does not exist
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Files of rows; `-` or none: standard input, as JSONL unless --format is given
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Format of every FILE; default: by its name
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<Format>,
    /// Keys for rows without keys (.txt and vectors), one per line
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// The first line of CSV and TSV has the names of its columns
    #[arg(long)]
    header: bool,
    /// JSON field, or column below --header, of the key [default: key]
    #[arg(long, value_name = "NAME")]
    key_field: Option<String>,
    /// JSON field, or column below --header, of the text [default: text]
    #[arg(long, value_name = "NAME")]
    text_field: Option<String>,
    /// Ignore other fields instead of making columns of them
    #[arg(long)]
    ignore_unknown: bool,
    /// Replace existing numbered keys with other content; if a key occurs twice, keep the last row
    #[arg(long)]
    replace: bool,
    /// Skip and count invalid rows instead of stopping at the first
    #[arg(long)]
    skip_bad: bool,
    /// Print {"acked": <rows so far>} after each durable batch
    #[arg(long)]
    ack: bool,
    /// Do not learn codes, and do not suggest `mopqdb train`
    #[arg(long)]
    no_auto: bool,
    /// Seconds to wait while another process writes to the database; 0: fail at once, with exit code 4
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
}

impl Insert {
    /// Runs the command.
    pub fn run(mut self, settings: &Settings) -> Result<()> {
        if self.files.is_empty() {
            self.files.push("-".into());
        }
        let inputs = self.inputs()?;
        let fields = self.fields(&inputs)?;
        let keys = self.keys.as_deref().map(KeyFile::open).transpose()?;
        let mut feed = Feed::start(&inputs, &fields, keys)?;
        // Up to here, Ctrl-C ends the program at once; opening may wait for a pipe.
        stop::listen();
        Run::new(&self, settings).all(&mut feed)
    }
}
