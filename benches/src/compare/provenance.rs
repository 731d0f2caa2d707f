//! Of which run the figures of a page are: of one, if nothing was measured again by itself.

use super::machine::Machine;
use super::outcome::{Compared, WholeJob};
use super::when::{Run, When, day};
use std::fmt::Write as _;

/// A section of a page.
struct Part<'a> {
    name: String,
    when: Option<When>,
    machine: &'a Machine,
    /// Rows that an earlier run measured.
    earlier: Vec<&'a str>,
}

/// What stands between the markers.
pub(super) fn said(cases: &[Compared], whole: Option<&WholeJob>) -> String {
    let mut parts: Vec<Part<'_>> = cases.iter().map(of_case).collect();
    parts.extend(whole.map(|job| Part {
        name: "the whole job".into(),
        when: job.when,
        machine: &job.machine,
        earlier: Vec::new(),
    }));
    parts.sort_by_key(|part| part.when.map(|when| when.began));
    match one_run(&parts) {
        Some((first, last)) => {
            let each: Vec<String> = parts
                .iter()
                .filter_map(|part| Some(format!("{} {}", part.name, part.when?.hours())))
                .collect();
            let days = match (day(first.began), day(last.ended)) {
                (one, other) if one == other => one,
                (one, other) => format!("{one} to {other}"),
            };
            format!(
                "All of this page is one run, {days}, on one machine ({}), one after another: {} (UTC).\n",
                words(parts[0].machine),
                each.join(", ")
            )
        }
        None => apart(&parts),
    }
}

fn of_case(case: &Compared) -> Part<'_> {
    let run = case.when.map_or_else(Run::default, |when| when.run);
    let earlier = case.peers.iter().filter(|peer| peer.run != run);
    Part {
        name: format!("`{}`", case.case),
        when: case.when,
        machine: &case.machine,
        earlier: earlier.map(|peer| peer.name.as_str()).collect(),
    }
}

/// The first and the last of parts that are all of one run on one machine.
fn one_run(parts: &[Part<'_>]) -> Option<(When, When)> {
    let (first, last) = (parts.first()?.when?, parts.last()?.when?);
    let same = |part: &Part<'_>| {
        part.when.is_some_and(|when| when.run == first.run)
            && *part.machine == *parts[0].machine
            && part.earlier.is_empty()
    };
    parts.iter().all(same).then_some((first, last))
}

fn apart(parts: &[Part<'_>]) -> String {
    let mut text = String::from("Not all of this page is of one run:\n\n");
    for part in parts {
        let when = match part.when {
            Some(when) => format!("{}, {} UTC", day(when.began), when.hours()),
            None => "when was not kept".into(),
        };
        let _ = write!(text, "- {}: {when}; {}", part.name, words(part.machine));
        if !part.earlier.is_empty() {
            let _ = write!(
                text,
                "; of an earlier run there: {}",
                part.earlier.join(", ")
            );
        }
        text.push('\n');
    }
    text
}

fn words(machine: &Machine) -> String {
    format!("{}, {} cores, {}", machine.cpu, machine.cores, machine.simd)
}

#[cfg(test)]
mod tests {
    use super::super::losses::tests::{compared, measured};
    use super::*;

    fn case(name: &str, began: u64, run: Run) -> Compared {
        let mut case = compared(vec![measured("faiss_pq", 0.5, 1.0)]);
        case.case = name.into();
        case.peers[0].run = run;
        case.when = Some(When {
            run,
            began,
            ended: began + 600,
        });
        case
    }

    #[test]
    fn one_run_is_said_to_be_one_and_anything_else_is_told_apart() {
        let run = Run::begin();
        let day = 1_795_000_000;
        let mut cases = vec![case("b", day + 600, run), case("a", day, run)];
        assert_eq!(
            said(&cases, None),
            "All of this page is one run, 2026-11-18, on one machine (, 0 cores, ), one after another: `a` 11:06 to 11:16, `b` \
             11:16 to 11:26 (UTC).\n"
        );
        cases[0].machine.cores = 3;
        assert!(said(&cases, None).starts_with("Not all"), "two machines");
        cases[0].machine.cores = 0;
        cases[0].peers[0].run = Run::default();
        let text = said(&cases, None);
        assert!(
            text.contains("- `b`: 2026-11-18, 11:16 to 11:26 UTC; , 0 cores, ; of an earlier run there: faiss_pq"),
            "{text}"
        );
        cases[0] = case("b", day, Run::default());
        assert!(said(&cases, None).starts_with("Not all"), "two runs");
        cases[0].when = None;
        assert!(
            said(&cases, None).contains("- `b`: when was not kept;"),
            "an old one"
        );
    }
}
