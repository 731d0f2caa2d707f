//! Learns codes for a large database from its own rows after an insert.

use super::Insert;
use crate::out::{count, say};
use crate::progress::Progress;
use crate::stop;
use mopqdb::{AUTO_QUANTIZE_RECALL, AUTO_QUANTIZE_ROWS, AutoQuantized, Database, Trial};

impl Insert {
    /// Learns codes if they are due, and reports the result. The rows are durable in any case.
    pub(super) fn quantize(&self, database: &Database) -> Option<Trial> {
        let is_due = !self.no_auto
            && !stop::asked()
            && database.snapshot().rows() >= AUTO_QUANTIZE_ROWS
            && database.model().quantizer().is_none();
        if !is_due {
            return None;
        }
        let progress = Progress::new("learning codes", "steps", Some(0));
        let outcome = database.auto_quantize(AUTO_QUANTIZE_ROWS, &progress.watch());
        drop(progress);
        match outcome {
            Ok(AutoQuantized::Tried(trial)) => {
                self.say(&trial);
                Some(trial)
            }
            Ok(_) => None,
            Err(_) if stop::asked() => {
                say(
                    "all rows are durable; learning codes was stopped, and the next insert starts it again (unless --no-auto is given)",
                );
                None
            }
            Err(error) => {
                say(format!(
                    "all rows are durable and searched exactly; codes could not be learned: {error}"
                ));
                None
            }
        }
    }

    fn say(&self, trial: &Trial) {
        let db = self.db.display();
        let (compared, becomes) = match trial.switched {
            true => (
                "at least",
                format!(
                    "so queries use them from now on; `mopqdb rebuild {db} --model exact` goes back"
                ),
            ),
            false => (
                "less than",
                format!(
                    "so rows are searched exactly as before; `mopqdb train {db} --pairs PAIRS.tsv` learns better codes, \
                     `mopqdb rebuild {db} --model {}` uses these",
                    trial.model.short()
                ),
            ),
        };
        say(format!(
            "learned codes of {} bytes per row ({}): queries find {:.3} of the exact nearest ten of {} rows, {compared} \
             {AUTO_QUANTIZE_RECALL}, {becomes}",
            trial.bytes_per_row,
            trial.method,
            trial.recall,
            count(trial.queries as u64),
        ));
    }
}
