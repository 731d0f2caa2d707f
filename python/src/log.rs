//! The engine's warnings, forwarded to `logging.getLogger("mopqdb")`.

use pyo3::prelude::*;
use std::fmt::{Debug, Write as _};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, subscriber};

/// Forwards warnings of this project and nothing else.
struct Forward;

/// Starts forwarding. A program with a subscriber of its own keeps it.
pub(crate) fn forward() {
    let _ = subscriber::set_global_default(Forward);
}

impl Subscriber for Forward {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("mopqdb")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            _ => "warning",
        };
        // An interpreter that is shutting down takes no more messages, and a handler that raises must not stop the engine.
        Python::try_attach(|py| {
            let log = py.import("mopqdb._log")?;
            log.call_method1("forward", (level, words.0)).map(drop)
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message of an event, and its other fields after it.
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let said = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        said.expect("a string takes what is written");
    }
}
