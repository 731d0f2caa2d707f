//! The progress of a run on stderr: a bar on a terminal, otherwise one line per epoch.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::run::EpochRecord;
use crate::train::Watch;

/// Shows loss, recall, pairs per second and the time left.
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    epochs: usize,
    epoch: usize,
    phase: String,
    loss: f64,
    recall: Option<f64>,
    pairs: usize,
    begin: Instant,
    /// Seconds of the last complete epoch of this phase.
    last_epoch: Option<f64>,
}

impl Progress {
    /// Creates the display; with `quiet` it shows nothing.
    pub fn new(quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(8));
            let style = "{msg} [{bar:24}] {pos}/{len}";
            bar.set_style(
                ProgressStyle::with_template(style)
                    .expect("a template")
                    .progress_chars("=> "),
            );
            bar
        });
        Self {
            bar,
            quiet,
            epochs: 0,
            epoch: 0,
            phase: String::new(),
            loss: 0.0,
            recall: None,
            pairs: 0,
            begin: Instant::now(),
            last_epoch: None,
        }
    }

    fn message(&self) -> String {
        let pace = self.pairs as f64 / self.begin.elapsed().as_secs_f64().max(1e-9);
        let recall = self
            .recall
            .map_or(String::new(), |recall| format!(" recall@10 {recall:.3}"));
        let left = self.last_epoch.map_or(String::new(), |seconds| {
            let rest = seconds * (self.epochs + 1 - self.epoch) as f64
                - self.begin.elapsed().as_secs_f64();
            format!(", {} left", words(Duration::from_secs_f64(rest.max(0.0))))
        });
        format!(
            "{} {}/{} loss {:.3}{recall}, {pace:.0} pairs/s{left}",
            self.phase, self.epoch, self.epochs, self.loss
        )
    }

    /// Removes the bar from the terminal.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Prints a line.
    pub fn say(&self, words: &str) {
        match &self.bar {
            Some(bar) => bar.println(words),
            None if !self.quiet => eprintln!("{words}"),
            None => {}
        }
    }
}

impl Watch for Progress {
    fn epoch(&mut self, epoch: usize, of: usize, phase: &str, steps: usize) {
        if self.phase != phase {
            self.last_epoch = None;
        }
        (self.epoch, self.epochs, self.phase) = (epoch, of, phase.to_owned());
        (self.pairs, self.begin) = (0, Instant::now());
        if let Some(bar) = &self.bar {
            bar.set_length(steps as u64);
            bar.set_position(0);
        }
    }

    fn step(&mut self, loss: f64, pairs: usize) {
        // A running mean, because single steps vary.
        self.loss = if self.pairs == 0 {
            loss
        } else {
            0.95 * self.loss + 0.05 * loss
        };
        self.pairs += pairs;
        if let Some(bar) = &self.bar {
            bar.set_message(self.message());
            bar.inc(1);
        }
    }

    fn note(&mut self, words: &str) {
        self.say(words);
    }

    fn record(&mut self, record: &EpochRecord) {
        self.last_epoch = Some(record.seconds);
        self.recall = record.recall.or(self.recall);
        if self.bar.is_none() {
            let recall = record
                .recall
                .map_or(String::new(), |recall| format!(", recall@10 {recall:.4}"));
            self.say(&format!(
                "epoch {}/{} {}: loss {:.4}{recall}, {:.0} pairs/s",
                record.epoch, self.epochs, record.phase, record.loss, record.pairs_per_second
            ));
        }
    }
}

/// Formats a time as "1 h 02 min", "3 min" or "12 s".
fn words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=89 => format!("{seconds} s"),
        seconds @ 90..=5_399 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_their_own_unit() {
        let of = |seconds| words(Duration::from_secs(seconds));
        assert_eq!(
            [of(12), of(200), of(3_720 * 2)],
            ["12 s", "3 min", "2 h 04 min"]
        );
    }
}
