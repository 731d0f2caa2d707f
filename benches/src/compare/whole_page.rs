//! The page of the whole job: its table, and where we lose and why.

use super::losses;
use super::outcome::{Whole, WholeJob};
use crate::report::markdown::{Table, number, recall, thousands};
use std::fmt::Write as _;

/// What stands between the markers.
pub(super) fn whole_job(job: &WholeJob) -> String {
    let mut table = Table::new(&[
        "system",
        "texts/s",
        "texts a CPU-s",
        "query p50 ms",
        "p99 ms",
        "CPU ms a query",
        "disk B/text",
        "memory, inserting",
        "memory, querying",
        "recall@10, true keys",
    ]);
    let mb = |bytes: f64| format!("{} MB", number(bytes / 1e6));
    for s in &job.systems {
        let own = if s.name == "mopqdb" {
            format!("**{}**", s.name)
        } else {
            s.name.clone()
        };
        table.row(vec![
            own,
            number(s.insert_wall),
            number(s.insert_cpu),
            number(s.p50_ms),
            number(s.p99_ms),
            number(s.query_cpu_ms),
            number(s.disk),
            mb(s.insert_memory),
            mb(s.query_memory),
            recall(Some(s.recall_true)),
        ]);
    }
    let mut text = format!(
        "{} texts of `{}`, {} queries one after another, {} threads, {} ({}).\n\n{table}\n",
        thousands(job.texts as i64),
        job.set,
        thousands(job.queries as i64),
        job.threads,
        job.machine.cpu,
        job.machine.simd
    );
    for s in &job.systems {
        let _ = writeln!(text, "- {} ({}): {}.", s.name, s.version, s.note);
    }
    for m in &job.missing {
        let _ = writeln!(text, "- {} could not be run: {}.", m.name, m.why);
    }
    let cores: Vec<String> = job
        .systems
        .iter()
        .map(|s| format!("{} {:.2}", s.name, s.insert_wall / s.insert_cpu))
        .collect();
    let _ = writeln!(
        text,
        "\nCores that each had on average while inserting: {}. Where that is well below {}, the machine was busy, and what is by \
         the clock (texts/s, p50, p99) is too slow for all.\n",
        cores.join(", "),
        job.threads
    );
    text.push_str(&whole_losses(job));
    text
}

fn whole_losses(job: &WholeJob) -> String {
    let Some(own) = job.systems.iter().find(|s| s.name == "mopqdb") else {
        return String::new();
    };
    let mut lines = Vec::new();
    let mut reasons = Vec::new();
    for s in job.systems.iter().filter(|s| s.name != "mopqdb") {
        let slower = threads_of_a_query(own, s);
        let copy = "Our database keeps a copy of its encoder, 90 MB.";
        let inserting = own.insert_memory / s.insert_memory;
        let querying = own.query_memory / s.query_memory;
        let found = s.recall_true / own.recall_true;
        let by_clock = s.insert_wall / own.insert_wall;
        let columns = [
            ("texts a second by the clock", by_clock, UNKNOWN),
            ("texts a CPU second", s.insert_cpu / own.insert_cpu, UNKNOWN),
            ("p50", own.p50_ms / s.p50_ms, slower),
            ("p99", own.p99_ms / s.p99_ms, slower),
            (
                "CPU time a query",
                own.query_cpu_ms / s.query_cpu_ms,
                UNKNOWN,
            ),
            ("bytes on disk", own.disk / s.disk, copy),
            ("memory while inserting", inserting, UNKNOWN),
            ("memory while querying", querying, UNKNOWN),
            ("recall", found, whole_recall(&s.name)),
        ];
        for (what, ratio, why) in columns.into_iter().filter(|(_, ratio, _)| *ratio > 1.1) {
            let ratio = number(ratio);
            lines.push(format!(
                "{} is better than mopqdb in {what}, {ratio}x",
                s.name
            ));
            reasons.push(why);
        }
    }
    if lines.is_empty() {
        return "In none of these columns is another ahead by more than a tenth.\n".into();
    }
    format!(
        "Where we lose by more than a tenth: {}. {}\n",
        lines.join("; "),
        losses::once_each(reasons)
    )
}

const UNKNOWN: &str = "Why some of this is so was not looked into.";

/// Whether a slower answer is one of fewer threads.
fn threads_of_a_query(own: &Whole, other: &Whole) -> &'static str {
    let threads = |s: &Whole| s.query_cpu_ms / s.p50_ms;
    if threads(own) < 1.3 && threads(other) > 1.5 {
        "We encode a query on one thread, they on two."
    } else {
        UNKNOWN
    }
}

fn whole_recall(name: &str) -> &'static str {
    if name.starts_with("Chroma") {
        "Chroma compares whole vectors."
    } else if name.starts_with("lancedb") {
        "lancedb, as far as its recall tells, encodes what is left of a vector after the centre of its cell; our OPQ codes are of the vector, and without pairs nothing \
         was learned for them."
    } else {
        UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_job_says_where_another_is_ahead() {
        let system = |name: &str, speed: f64| Whole {
            name: name.into(),
            version: "1".into(),
            note: "n".into(),
            insert_wall: speed,
            insert_cpu: 1.0,
            p50_ms: 1.0,
            p99_ms: 1.0,
            query_cpu_ms: 1.0,
            disk: 1.0,
            insert_memory: 1e6,
            query_memory: 1e6,
            recall_true: 0.5,
        };
        let job = |other: f64| WholeJob {
            texts: 1,
            queries: 1,
            threads: 1,
            set: "s".into(),
            machine: Default::default(),
            when: None,
            systems: vec![system("mopqdb", 100.0), system("other", other)],
            missing: Vec::new(),
        };
        assert!(
            whole_job(&job(250.0))
                .contains("other is better than mopqdb in texts a second by the clock, 2.50x")
        );
        assert!(whole_job(&job(50.0)).contains("In none of these columns"));
        let mut parallel = job(50.0);
        parallel.systems[1].p50_ms = 0.5;
        parallel.systems[1].disk = 0.5;
        let text = whole_job(&parallel);
        assert!(
            text.contains("in p50, 2.00x; other is better than mopqdb in bytes on disk, 2.00x. Our database keeps a copy"),
            "{text}"
        );
        assert!(
            text.contains("We encode a query on one thread, they on two."),
            "{text}"
        );
        parallel.systems[1].query_cpu_ms = 0.5;
        assert!(whole_job(&parallel).contains(UNKNOWN), "as few threads");
    }
}
