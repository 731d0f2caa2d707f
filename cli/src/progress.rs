//! Progress on stderr, only on a terminal: the amount done, the speed, and the remaining time.

use crate::stop;
use crate::visible::visible;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mopqdb::Watch;
use std::time::Duration;

/// A progress bar on stderr; hidden unless stderr is a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Creates a bar. `doing` is a verb ("inserting"), counted in `unit` ("rows"). Without a total, no remaining time
    /// is shown.
    pub fn new(doing: &str, unit: &str, total: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
        let style = match total {
            Some(_) => format!(
                "{doing} [{{bar:24}}] {{human_pos}}/{{human_len}} {unit}, {{per_sec}} {unit}/s, {{eta}} left{{msg}}"
            ),
            None => {
                format!("{{spinner}} {doing} {{human_pos}} {unit}, {{per_sec}} {unit}/s{{msg}}")
            }
        };
        bar.set_style(style_of(&style));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar }
    }

    /// Sets the number of units done.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// Sets the numbers of units done and in total.
    pub fn set_of(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Shows the engine's progress on this bar, and stops the work when the user asks for that.
    pub fn watch(&self) -> Watch {
        Watch::new()
            .on_progress(self.shown())
            .stop_when(stop::flag())
    }

    /// Returns a callback that shows the engine's progress on this bar.
    pub fn shown(&self) -> impl Fn(mopqdb::Progress) + Send + Sync + 'static {
        let bar = self.bar.clone();
        move |now| {
            bar.set_length(now.total);
            bar.set_position(now.done);
        }
    }

    /// Sets the note after the numbers.
    pub fn note(&self, note: impl Into<String>) {
        self.bar.set_message(format!(", {}", visible(&note.into())));
    }

    /// Prints a line above the bar.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{}", visible(line)));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style_of(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("our templates are well formed");
    style.progress_chars("=> ").with_key(
        "per_sec",
        |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = write!(out, "{}", indicatif::HumanCount(state.per_sec() as u64));
        },
    )
}
