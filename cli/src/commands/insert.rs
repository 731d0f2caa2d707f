mod batch;
mod feed;
mod seen;

use crate::exit::usage;
use crate::out::{Out, count, plural};
use crate::rows::{Format, KeyFile, ReadRow, Source};
use crate::settings::Settings;
use crate::{progress::Progress, stop};
use anyhow::{Context, Result, bail};
use batch::Batch;
use clap::Args;
use feed::{Feed, Item};
use mopqdb::{CreateOptions, Database, Inserted, Metric, Value};
use seen::Seen;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Insert rows, or replace those with the same key
///
/// The database is made with the defaults where there is none. Rows are durable batch by batch: after Ctrl-C, a bad line
/// or a crash everything acknowledged is kept, and inserting the same file again changes nothing but time.
///
/// FILE is `-` or a name that ends in .jsonl ({"key": "...", "text": "..."} or {"key": "...", "vector": [...]}),
/// .tsv (key TAB text), .txt (a text a line; the key is the line's number, from 1), .npy, .fvecs or .fbin (vectors; keys
/// are row numbers, from 0, or come from --keys). With several numbered files keys are FILESTEM:N.
///
/// A key that comes twice in one run is an error, which names both places: --skip-bad keeps the first row, --replace the
/// last. To tell, a run remembers about 24 bytes for each row with a key of its own, one bit for each numbered row of
/// several files, and nothing with --replace.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb insert my.db articles.jsonl
  zcat dump.jsonl.gz | mopqdb insert my.db -
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
    /// Keys for rows that have none of their own, one a line
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Let a numbered key that exists with other content be replaced, and the last row win where a key comes twice
    #[arg(long)]
    replace: bool,
    /// Skip rows that can't be taken, and count them, rather than stop at the first
    #[arg(long)]
    skip_bad: bool,
    /// Print {"acked": <rows so far>} after each durable batch
    #[arg(long)]
    ack: bool,
    /// Do not advise `mopqdb train` when there are 65,536 rows or more and no quantizer
    #[arg(long)]
    no_auto: bool,
}

/// Rows that have waited so long are inserted, full batch or not: standard input may be slow.
const PATIENCE: Duration = Duration::from_millis(300);

impl Insert {
    /// Reads, inserts, tells.
    pub fn run(mut self, settings: &Settings) -> Result<()> {
        if self.files.is_empty() {
            self.files.push("-".into());
        }
        let sources: Vec<Source> = self.files.iter().map(|file| Source::of(file)).collect();
        if sources
            .iter()
            .filter(|source| **source == Source::Stdin)
            .count()
            > 1
        {
            return Err(usage("standard input can be read only once; give `-` once"));
        }
        if self.keys.is_some() && sources.len() > 1 {
            return Err(usage(
                "--keys names the rows of one FILE; insert the files one by one",
            ));
        }
        stop::listen();
        let keys = self.keys.as_deref().map(KeyFile::open).transpose()?;
        let mut feed = Feed::start(sources, self.format, keys)?;
        let first = feed.next(Duration::MAX);
        let (database, created) = self.open(settings, &first)?;
        let mut run = Run {
            database,
            insert: &self,
            out: Out::new(settings),
            progress: feed.progress(),
            started: Instant::now(),
            done: Inserted::default(),
            skipped: 0,
        };
        if created {
            let model = run.database.model();
            run.progress.say(&format!(
                "mopqdb: {} did not exist: made it, {} dimensions, {}",
                self.db.display(),
                model.dim(),
                model.metric()
            ));
        }
        let outcome = run.all(&mut feed, first);
        run.finish(outcome)
    }

    /// Opens the database, or makes one that suits the first row.
    fn open(&self, settings: &Settings, first: &Item) -> Result<(Database, bool)> {
        if !Database::is_vacant(&self.db)? {
            return Ok((super::open(&self.db, settings)?, false));
        }
        let new = match first {
            Item::Row(ReadRow { row, .. }, _) => match &row.value {
                Value::Text(_) => CreateOptions::bundle(mopqdb::encoder::default_bundle()?),
                Value::Vector(vector) => CreateOptions::vectors(vector.len(), Metric::Cosine),
            },
            Item::Bad(bad) => return Err(bad.clone()).context("no database was made"),
            Item::Failed(error) => bail!("{error:#}; no database was made"),
            Item::End | Item::Waiting => bail!("there are no rows to insert; no database was made"),
        };
        Ok((super::create(&self.db, &new, settings)?, true))
    }
}

/// One run of the command.
struct Run<'a> {
    database: Database,
    insert: &'a Insert,
    out: Out,
    progress: Progress,
    started: Instant,
    done: Inserted,
    skipped: u64,
}

impl Run<'_> {
    fn all(&mut self, feed: &mut Feed, first: Item) -> Result<()> {
        let mut batch = Batch::new(
            self.database.clone(),
            (!self.insert.replace).then(|| Seen::new(feed.places())),
        );
        let mut item = first;
        let stopped = loop {
            match item {
                Item::Row(row, origin) => {
                    if let Err(bad) = batch.add(row, origin)? {
                        if let Err(bad) = self.bad(bad) {
                            break Some(bad);
                        }
                    } else if batch.is_full() {
                        self.send(&mut batch, feed)?;
                    }
                }
                Item::Bad(bad) => {
                    if let Err(bad) = self.bad(bad) {
                        break Some(bad);
                    }
                }
                Item::Waiting => self.send(&mut batch, feed)?,
                Item::Failed(error) => break Some(error),
                Item::End => break None,
            }
            if stop::asked() {
                break Some(anyhow::anyhow!("stopped"));
            }
            item = feed.next(PATIENCE);
        };
        // What came before the bad line is kept.
        self.send(&mut batch, feed)?;
        stopped.map_or(Ok(()), Err)
    }

    /// A row that can't be taken: skipped and counted, or the end.
    fn bad(&mut self, bad: crate::rows::BadRow) -> Result<()> {
        if !self.insert.skip_bad {
            return Err(bad.into());
        }
        self.skipped += 1;
        if self.skipped <= 10 {
            self.progress.say(&format!("mopqdb: skipped {bad}"));
        }
        Ok(())
    }

    /// Inserts the batch; when this returns it is durable.
    fn send(&mut self, batch: &mut Batch, feed: &Feed) -> Result<()> {
        let Some(inserted) = batch.insert()? else {
            return Ok(());
        };
        self.done.new += inserted.new;
        self.done.replaced += inserted.replaced;
        self.done.unchanged += inserted.unchanged;
        if self.insert.ack {
            self.out.object(&json!({"acked": self.done.rows()}))?;
            self.out.flush()?;
        }
        let speed = self.done.rows() as f64 / self.started.elapsed().as_secs_f64().max(1e-3);
        feed.show(&self.progress, self.done.rows());
        self.progress.note(format!(
            "{} rows, {} rows/s",
            count(self.done.rows()),
            count(speed as u64)
        ));
        Ok(())
    }

    /// Tells what was done, whatever the outcome.
    fn finish(self, outcome: Result<()>) -> Result<()> {
        let Self {
            database,
            insert,
            mut out,
            progress,
            done,
            skipped,
            ..
        } = self;
        drop(progress);
        let skipped_too = match skipped {
            0 => String::new(),
            n => format!("; skipped {}", plural(n, "bad row")),
        };
        let words = format!(
            "inserted {} ({} new, {} replaced, {} unchanged){skipped_too}",
            plural(done.rows(), "row"),
            count(done.new),
            count(done.replaced),
            count(done.unchanged),
        );
        let snapshot = database.snapshot();
        let advised =
            snapshot.rows() >= mopqdb::AUTO_QUANTIZE_ROWS && snapshot.model().quantizer().is_none();
        let figures = json!({
            "rows": done.rows(), "new": done.new, "replaced": done.replaced, "unchanged": done.unchanged,
            "skipped": skipped, "total": snapshot.rows(), "train_advised": advised,
        });
        match (&outcome, out.is_json()) {
            (_, true) => out.object(&figures)?,
            (Ok(()), false) if insert.ack => eprintln!("mopqdb: {words}"),
            (Ok(()), false) => out.line(&words)?,
            (Err(_), false) => eprintln!("mopqdb: {words}, durably; nothing after that, because:"),
        }
        out.flush()?;
        if advised && !insert.no_auto {
            eprintln!(
                "mopqdb: {} rows are searched exactly; `mopqdb train {} --pairs PAIRS.tsv` (`--method opq` without pairs) \
                 learns codes that are searched faster, at some loss of recall",
                count(snapshot.rows()),
                insert.db.display()
            );
        }
        drop(snapshot);
        database.close()?;
        outcome
    }
}
