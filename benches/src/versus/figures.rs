//! The measurements and their targets, as a table and as numbers.

use super::{Bench, database, scan, train};
use crate::machine::Machine;
use anyhow::Result;
use mopqdb::testing::kernel::Kernel;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;

/// One measurement, in a unit in which more is better.
pub struct Line {
    /// What was measured.
    pub what: String,
    /// The unit of both values.
    pub unit: &'static str,
    /// mopqdb's value.
    pub ours: f64,
    /// The peer's value, and the peer's name.
    pub peer: Option<(f64, String)>,
    /// Further information.
    pub note: String,
}

/// A ratio that a measurement should reach.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    what: &'static str,
    ratio: &'static str,
    binding: f64,
    stretch: f64,
}

impl Target {
    /// Creates a target: the work, the ratio that must be reached, and a ratio that would be better.
    pub const fn new(what: &'static str, ratio: &'static str, binding: f64, stretch: f64) -> Self {
        Self {
            what,
            ratio,
            binding,
            stretch,
        }
    }
}

/// All measurements of a run.
#[derive(Default)]
pub struct Figures {
    /// The measurements.
    pub lines: Vec<Line>,
    /// The targets, with the ratios that were reached.
    reached: Vec<(Target, f64)>,
}

impl Figures {
    /// Records a ratio, if there is a target for it.
    pub fn reach(&mut self, what: &str, ratio: &str, value: f64) {
        let mut targets = scan::TARGETS
            .iter()
            .chain(&train::TARGETS)
            .chain(&database::TARGETS);
        if let Some(target) = targets.find(|t| t.what == what && t.ratio == ratio) {
            self.reached.push((*target, value));
        }
    }

    /// Returns the tables, in Markdown.
    pub fn table(&self, kernel: Kernel) -> Result<String> {
        let machine = Machine::here();
        let mut table = format!(
            "{}, one core, CPU time, kernel {}; kernels that this CPU can't run: {:?}. Answers were compared with a plain \
             f32 sum, and faiss's scores against ours, before the clock started; faiss uses its fastest SIMD level. Of \
             bandwidth: relative to plain loads of the same memory by one core in the same minute.\n\n",
            machine.cpu,
            kernel.name(),
            Kernel::unavailable()
        );
        if !self.reached.is_empty() {
            table.push_str("| aim | reached | binding | stretch | |\n|---|---|---|---|---|\n");
        }
        for (target, value) in &self.reached {
            let verdict = match value {
                value if *value >= target.stretch => "**stretch**",
                value if *value >= target.binding => "binding",
                _ => "missed",
            };
            let shown = |value: f64| match target.ratio {
                "of bandwidth" | "vs the scan" => format!("{:.0}%", 100.0 * value),
                "less distortion" => format!("{value:.4}x"),
                _ => format!("{value:.2}x"),
            };
            writeln!(
                table,
                "| {}: {} | {} | {} | {} | {verdict} |",
                target.what,
                target.ratio,
                shown(*value),
                shown(target.binding),
                shown(target.stretch)
            )?;
        }
        table.push_str("\n| work | ours | peer | ratio | peer is | |\n|---|---|---|---|---|---|\n");
        for line in &self.lines {
            let (peer, ratio, name) = match &line.peer {
                Some((peer, name)) => (
                    format!("{peer:.3}"),
                    format!("**{:.2}x**", line.ours / peer),
                    name.as_str(),
                ),
                None => Default::default(),
            };
            writeln!(
                table,
                "| {} | {:.3} {} | {peer} | {ratio} | {name} | {} |",
                line.what, line.ours, line.unit, line.note
            )?;
        }
        Ok(table)
    }

    /// Writes the measurements so far.
    pub fn write(&self, bench: &Bench) -> Result<()> {
        fs::write(bench.out.join("table.md"), self.table(bench.kernel)?)?;
        let lines = self.lines.iter().map(|l| {
            json!({"what": l.what, "unit": l.unit, "ours": l.ours, "peer": l.peer.as_ref().map(|p| p.0),
                "peer_is": l.peer.as_ref().map(|p| &p.1), "note": l.note})
        });
        let reached = self.reached.iter().map(|(target, value)| {
            json!({"what": target.what, "ratio": target.ratio, "reached": value, "binding": target.binding,
                "stretch": target.stretch})
        });
        let numbers = json!({
            "kernel": bench.kernel.name(),
            "lines": lines.collect::<Vec<Value>>(),
            "targets": reached.collect::<Vec<Value>>(),
        });
        fs::write(
            bench.out.join("numbers.json"),
            serde_json::to_string_pretty(&numbers)?,
        )?;
        Ok(())
    }
}
