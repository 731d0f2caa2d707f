//! One run of the command: moves rows from the feed to the database, and reports the result.

use super::Insert;
use super::batch::Batch;
use super::feed::{Feed, Item};
use super::seen::Seen;
use super::typed::Typed;
use crate::out::{Out, count, plural};
use crate::progress::Progress;
use crate::rows::BadRow;
use crate::settings::Settings;
use crate::stop;
use anyhow::{Result, bail};
use mopqdb::{Database, Inserted, Trial};
use serde_json::json;
use std::time::Duration;

/// Rows that have waited this long are inserted even if the batch is not full, because standard input may be slow.
const PATIENCE: Duration = Duration::from_millis(300);

/// The progress of a run.
pub(super) struct Run<'a> {
    insert: &'a Insert,
    settings: &'a Settings,
    out: Out,
    done: Inserted,
    skipped: u64,
}

impl<'a> Run<'a> {
    pub(super) fn new(insert: &'a Insert, settings: &'a Settings) -> Self {
        Self {
            insert,
            settings,
            out: Out::new(settings),
            done: Inserted::default(),
            skipped: 0,
        }
    }

    /// Inserts everything and reports the result, even after an error.
    pub(super) fn all(mut self, feed: &mut Feed) -> Result<()> {
        let first = self.first(feed)?;
        let (database, created) = self.insert.open(self.settings, &first)?;
        let progress = Progress::new("inserting", "rows", feed.rows_total());
        if created {
            let model = database.model();
            progress.say(&format!(
                "mopqdb: {} did not exist and was created: {} dimensions, {}",
                self.insert.db.display(),
                model.dim(),
                model.metric()
            ));
        }
        let outcome = self.rows(&database, &progress, feed, first);
        // Stop at once when asked to.
        if !stop::asked() {
            seal(&database, &progress);
        }
        drop(progress);
        let trial = match outcome {
            Ok(()) => self.insert.quantize(&database),
            Err(_) => None,
        };
        self.tell(&database, &outcome, trial.as_ref())?;
        database.close()?;
        outcome
    }

    /// Returns the first item that tells which database is needed. Skipped rows don't.
    fn first(&mut self, feed: &mut Feed) -> Result<Item> {
        loop {
            match feed.next(PATIENCE) {
                Item::Waiting if stop::asked() => bail!("stopped before the first row"),
                Item::Waiting => {}
                Item::Bad(bad) if self.insert.skip_bad => {
                    self.skip(&bad, |line| eprintln!("{line}"))
                }
                item => return Ok(item),
            }
        }
    }

    fn rows(
        &mut self,
        database: &Database,
        progress: &Progress,
        feed: &mut Feed,
        first: Item,
    ) -> Result<()> {
        let seen = (!self.insert.replace).then(|| Seen::new(feed.places()));
        let mut batch = Batch::new(database.clone(), seen);
        let mut rows = Typed::new(feed, &database.columns(), first);
        let mut item = rows.next(PATIENCE);
        let stopped = loop {
            let bad = match item {
                Item::Row(row, origin) => batch.add(row, origin)?.err(),
                Item::Bad(bad) => Some(bad),
                Item::Waiting => {
                    self.send(&mut batch, progress)?;
                    None
                }
                Item::Failed(error) => break Some(error),
                Item::End => break None,
            };
            if let Some(bad) = bad {
                if !self.insert.skip_bad {
                    break Some(bad.into());
                }
                self.skip(&bad, |line| progress.say(line));
            } else if batch.is_full() {
                self.send(&mut batch, progress)?;
            }
            if stop::asked() {
                break Some(anyhow::anyhow!("stopped"));
            }
            item = rows.next(PATIENCE);
        };
        // The rows before the bad line are kept.
        self.send(&mut batch, progress)?;
        stopped.map_or(Ok(()), Err)
    }

    /// Skips and counts a row that can't be inserted, if skipping is allowed.
    fn skip(&mut self, bad: &BadRow, say: impl FnOnce(&str)) {
        self.skipped += 1;
        if self.skipped <= 10 {
            say(&format!("mopqdb: skipped {bad}"));
        }
    }

    /// Inserts the batch; when this returns it is durable.
    fn send(&mut self, batch: &mut Batch, progress: &Progress) -> Result<()> {
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
        // Skipped rows count as done, so that the progress reaches the end of the file.
        progress.set(self.done.rows() + self.skipped);
        Ok(())
    }

    fn tell(
        &mut self,
        database: &Database,
        outcome: &Result<()>,
        trial: Option<&Trial>,
    ) -> Result<()> {
        let done = &self.done;
        let skipped_too = match self.skipped {
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
            "skipped": self.skipped, "total": snapshot.rows(), "train_advised": advised,
            "learned": trial.map(|trial| json!({
                "model": trial.model, "method": trial.method, "bytes_per_row": trial.bytes_per_row,
                "recall_of_exact": trial.recall, "queries": trial.queries, "switched": trial.switched,
            })),
        });
        match (outcome, self.out.is_json()) {
            (_, true) => self.out.object(&figures)?,
            (Ok(()), false) if self.insert.ack => eprintln!("mopqdb: {words}"),
            (Ok(()), false) => self.out.line(&words)?,
            (Err(_), false) => eprintln!("mopqdb: {words}, durably, and then stopped, because:"),
        }
        self.out.flush()?;
        if advised && !self.insert.no_auto && trial.is_none() {
            eprintln!(
                "mopqdb: {} rows are searched exactly; `mopqdb train {} --pairs PAIRS.tsv` (`--method opq` without pairs) \
                 learns codes that are searched faster",
                count(snapshot.rows()),
                self.insert.db.display()
            );
        }
        Ok(())
    }
}

/// Seals the log if it is large, because the next process that opens the database would read it row by row. The rows
/// are durable in any case.
fn seal(database: &Database, progress: &Progress) {
    if let Err(error) = database.seal_if_large() {
        progress.say(&format!(
            "mopqdb: all rows are durable, but they could not be sealed, so the database opens slowly until they are \
             (`mopqdb seal DB`): {error}"
        ));
    }
}
