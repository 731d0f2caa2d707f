//! The pages: every figure between markers, from what was measured and from nothing else.

use super::losses::{self, found};
use super::outcome::{Compared, Measured, WholeJob};
use super::{peers, provenance, whole_page};
use crate::report::markdown::{Table, maybe, number, recall, thousands};
use crate::report::markers;
use crate::report::plot::{Plot, Scale, Series};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The case that the front page shows.
const SHOWN: &str = "wiki-384";

/// Keeps what was measured in `out` as `docs/measured`, and from all that is there rewrites the sections of
/// `docs/comparison.md`, their plots, and the table in `README.md` if its case is among them. What another machine measured is in
/// a folder NAME of `docs/measured`, and its page is `docs/comparison-NAME.md`.
pub fn write(out: &Path, docs: &Path, readme: &Path) -> Result<()> {
    let measured = docs.join("measured");
    keep(out, &measured)?;
    for case in page(&measured, docs, "comparison.md", "plots")? {
        if case.case == SHOWN {
            markers::rewrite(readme, "compare", &short(&case))?;
        }
    }
    for entry in fs::read_dir(&measured).into_iter().flatten() {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let file = format!("comparison-{name}.md");
            page(&entry.path(), docs, &file, &format!("plots/{name}"))?;
        }
    }
    Ok(())
}

/// One page, from what is in a folder; `plots` is a folder in `docs`. The cases that are on it.
fn page(measured: &Path, docs: &Path, file: &str, plots: &str) -> Result<Vec<Compared>> {
    let page = docs.join(file);
    fs::create_dir_all(docs.join(plots))?;
    let cases = read_cases(measured)?;
    for case in &cases {
        let picture = format!("{plots}/search-{}.svg", case.case);
        fs::write(docs.join(&picture), plot(case))?;
        let text = search(case, &picture) + &lost(case);
        markers::rewrite_or_add(&page, "search", &case.case, &text)?;
    }
    let whole = measured.join("whole.json");
    let mut job: Option<WholeJob> = None;
    if whole.exists() {
        job = Some(serde_json::from_slice(&fs::read(whole)?)?);
    }
    if let Some(job) = &job {
        markers::rewrite(&page, "whole", &whole_page::whole_job(job))?;
    }
    if job.is_some() || !cases.is_empty() {
        markers::rewrite(&page, "run", &provenance::said(&cases, job.as_ref()))?;
    }
    Ok(cases)
}

/// Keeps what was measured beside the pages, so that they can be written again where it was not measured.
fn keep(out: &Path, measured: &Path) -> Result<()> {
    let copy = |from: &Path, name: &str| -> Result<()> {
        fs::create_dir_all(measured)?;
        let to = measured.join(name);
        fs::copy(from, &to).with_context(|| format!("{}: writing", to.display()))?;
        Ok(())
    };
    for path in results(&out.join("search"), "")? {
        let name = path.file_name().context("a file's name")?;
        copy(&path, &format!("search-{}", name.to_string_lossy()))?;
    }
    let whole = out.join("whole.json");
    match whole.exists() {
        true => copy(&whole, "whole.json"),
        false => Ok(()),
    }
}

/// The JSON files of a folder whose names begin so; none if there is no such folder.
fn results(folder: &Path, start: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(start) && name.ends_with(".json") {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// The cases that were run, real ones first, small ones first.
fn read_cases(measured: &Path) -> Result<Vec<Compared>> {
    let mut cases: Vec<Compared> = Vec::new();
    for path in results(measured, "search-")? {
        let bytes = fs::read(&path)?;
        cases.push(serde_json::from_slice(&bytes).with_context(|| path.display().to_string())?);
    }
    cases.retain(|case| !case.peers.is_empty());
    cases.sort_by_key(|case| {
        (
            case.case.starts_with("clustered"),
            case.rows,
            case.case.clone(),
        )
    });
    Ok(cases)
}

fn order(case: &Compared) -> Vec<&Measured> {
    let mut peers: Vec<&Measured> = case.peers.iter().collect();
    // By bytes, ours first among equals.
    peers.sort_by_key(|m| (m.bytes, !m.peer.starts_with("mopqdb")));
    peers
}

fn name(measured: &Measured) -> String {
    match measured.peer.starts_with("mopqdb") {
        true => format!("**{}**", measured.name),
        false => measured.name.clone(),
    }
}

fn search(case: &Compared, picture: &str) -> String {
    let mut text = String::new();
    let real = case.peers.iter().any(|m| m.recall_true.is_some());
    let _ = writeln!(
        text,
        "### {}\n\n{}; {}.\n",
        case.case,
        capital(&case.what),
        conditions(case)
    );
    let mut table = Table::new(&[
        "index",
        "bytes",
        "recall@10, exact top",
        "recall@10, true keys",
        "one at a time",
        "one, two threads",
        "batched",
        "batched, two threads",
        "RAM B/row",
        "disk B/row",
        "build CPU-s",
        "open s",
        "inserts/s",
        "durable",
    ]);
    for m in order(case) {
        table.row(vec![
            name(m),
            thousands(m.bytes as i64),
            recall(Some(m.recall_exact)),
            recall(m.recall_true),
            number(m.one),
            maybe(m.one_two),
            number(m.batch),
            maybe(m.batch_two),
            number(m.ram),
            number(m.disk),
            number(m.build),
            number(m.open),
            maybe(m.insert),
            m.durable.clone(),
        ]);
    }
    let _ = writeln!(text, "{table}");
    let what = if real { "true keys" } else { "exact top" };
    let _ = writeln!(
        text,
        "![Recall@10 of the {what} against queries a second, {}]({picture})\n",
        case.case
    );
    let settings: Vec<String> = order(case)
        .iter()
        .filter(|m| m.sweep.len() > 1)
        .map(|m| {
            format!(
                "{} at {} bytes: {} (of {})",
                m.name,
                m.bytes,
                defaults(&m.setting),
                m.sweep.len()
            )
        })
        .collect();
    if !settings.is_empty() {
        let _ = writeln!(
            text,
            "Settings that were chosen: {}.\n\n{}",
            settings.join("; "),
            sweeps(case)
        );
    }
    // 0 where an older run did not keep it.
    let fewer = |m: &&&Measured| (1..case.queries).contains(&m.asked);
    for m in order(case).iter().filter(fewer) {
        let _ = writeln!(
            text,
            "{} was asked the first {} queries only, for time.\n",
            m.name, m.asked
        );
    }
    for m in order(case) {
        if let Some(look) = held_up(m) {
            let _ = writeln!(
                text,
                "{} seems to have been held up: {} queries/s one at a time, where the short look at the same setting had {}.\n",
                m.name,
                number(m.one),
                number(look)
            );
        }
    }
    let there = |peer: &&str| {
        case.peers.iter().any(|m| m.peer == *peer) || case.missing.iter().any(|m| m.name == *peer)
    };
    let not_run: Vec<&str> = peers::all()
        .filter(|peer| !there(peer) && (real || *peer != peers::LEARNED))
        .collect();
    if !not_run.is_empty() {
        let _ = writeln!(text, "Not run in this run: {}.\n", not_run.join(", "));
    }
    if !case.missing.is_empty() {
        let missing: Vec<String> = case
            .missing
            .iter()
            .map(|m| format!("{}: {}", m.name, m.why))
            .collect();
        let _ = writeln!(text, "Not in the table: {}.\n", missing.join("; "));
    }
    let mut versions: Vec<String> = case
        .peers
        .iter()
        .filter(|m| !m.peer.starts_with("mopqdb"))
        .map(|m| {
            let name = m.name.split(',').next().unwrap_or(&m.name);
            format!("{name} {}", m.version)
        })
        .collect();
    versions.sort();
    versions.dedup();
    let _ = writeln!(
        text,
        "Versions: mopqdb {}; {}.\n",
        case.machine.version,
        versions.join(", ")
    );
    text
}

/// How fast a peer was in its short look, if that was far faster: what was measured then had a bad moment of a shared machine.
fn held_up(m: &Measured) -> Option<f64> {
    let looked = m.sweep.iter().find(|tried| tried.setting == m.setting)?;
    (looked.one > 1.5 * m.one).then_some(looked.one)
}

/// A setting in words, if it is none too.
fn defaults(setting: &str) -> &str {
    match setting {
        "" => "its defaults",
        named => named,
    }
}

/// What every setting found and how fast, folded away.
fn sweeps(case: &Compared) -> String {
    let mut table = Table::new(&[
        "index",
        "bytes",
        "setting",
        "recall@10, exact top",
        "one at a time",
    ]);
    for m in order(case).into_iter().filter(|m| m.sweep.len() > 1) {
        for tried in &m.sweep {
            let chosen = if tried.setting == m.setting {
                " (chosen)"
            } else {
                ""
            };
            let setting = defaults(&tried.setting);
            table.row(vec![
                name(m),
                thousands(m.bytes as i64),
                format!("{setting}{chosen}"),
                recall(Some(tried.recall_exact)),
                number(tried.one),
            ]);
        }
    }
    format!(
        "<details><summary>All settings that were tried, by a short look at each</summary>\n\n{table}\n</details>\n"
    )
}

/// What a reader has to know to read the figures.
fn conditions(case: &Compared) -> String {
    let m = &case.machine;
    let share = case.peers.iter().map(|m| m.share).sum::<f64>() / case.peers.len().max(1) as f64;
    let busy = if share < 0.9 {
        format!(
            "; **the machine was busy**: a loop of one thread got {:.0}% of a core on average, so what is by the clock \
             (two threads, opening, inserts) is too slow for all of them, and unevenly so",
            100.0 * share
        )
    } else {
        String::new()
    };
    format!(
        "{} queries, {} repeats of {} s, {}, {} cores, {}, {:.0} GB, our kernel {}{}{busy}",
        thousands(case.queries as i64),
        case.repeats,
        case.seconds,
        m.cpu,
        m.cores,
        m.simd,
        m.memory,
        m.kernel,
        if case.quick {
            "; a quick run, for checking"
        } else {
            ""
        },
    )
}

fn lost(case: &Compared) -> String {
    let Some(champion) = losses::champion(case) else {
        return String::new();
    };
    let mut text = format!(
        "Where we lose, against {} ({} bytes):\n\n",
        champion.name, champion.bytes
    );
    let lines = losses::lines(case);
    for line in &lines {
        let _ = writeln!(text, "- {line}");
    }
    if lines.is_empty() {
        text.push_str("- nothing that was measured.\n");
    }
    text
}

/// For the front page.
fn short(case: &Compared) -> String {
    let mut table = Table::new(&[
        "index",
        "bytes a row",
        "recall@10",
        "queries/s",
        "RAM B/row",
        "durable",
    ]);
    for m in order(case) {
        table.row(vec![
            name(m),
            thousands(m.bytes as i64),
            recall(Some(found(m))),
            number(m.one),
            number(m.ram),
            m.durable.split(':').next().unwrap_or("").into(),
        ]);
    }
    let truth = match case.peers.iter().any(|m| m.recall_true.is_some()) {
        true => "of the true keys",
        false => "of the exact top",
    };
    format!(
        "{}: recall {truth}, queries one at a time a CPU second, {} ({}).{}\n\n{table}",
        capital(&case.what),
        case.machine.cpu,
        case.machine.simd,
        if case.quick { " A quick run." } else { "" },
    )
}

fn plot(case: &Compared) -> String {
    let real = case.peers.iter().any(|m| m.recall_true.is_some());
    let mut series: Vec<Series> = Vec::new();
    for m in order(case) {
        let strong = m.peer.starts_with("mopqdb");
        let point = (m.one, found(m));
        let label = format!("{} ({} B)", m.name, m.bytes);
        series.push(Series {
            name: label,
            points: vec![point],
            line: false,
            strong,
            dashed: false,
        });
    }
    let title = format!(
        "{}: recall@10 of the {}",
        case.case,
        if real { "true keys" } else { "exact top" }
    );
    Plot {
        title: &title,
        x: "queries a CPU second, one at a time",
        y: "recall@10",
        x_scale: Scale::Log,
        y_scale: Scale::Linear,
        series: &series,
    }
    .svg()
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::super::losses::tests::{compared, measured};
    use super::super::outcome::Swept;
    use super::*;

    #[test]
    fn whoever_was_far_faster_in_the_short_look_is_named() {
        let mut slow = measured("scann_ah", 0.5, 100.0);
        slow.setting = "a".into();
        slow.sweep = [("a", 140.0), ("b", 900.0)]
            .map(|(setting, one)| Swept {
                setting: setting.into(),
                recall_exact: 0.5,
                one,
            })
            .into();
        assert_eq!(held_up(&slow), None, "another setting's speed is its own");
        slow.one = 90.0;
        assert_eq!(held_up(&slow), Some(140.0));
        let text = search(&compared(vec![slow]), "x.svg");
        assert!(
            text.contains("scann_ah seems to have been held up: 90"),
            "{text}"
        );
    }

    #[test]
    fn pages_are_made_of_what_was_measured_and_of_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (out, docs) = (dir.path().join("out"), dir.path().join("docs"));
        fs::create_dir_all(out.join("search")).unwrap();
        fs::create_dir_all(&docs).unwrap();
        let markers = |names: &[&str]| -> String {
            let pair = |n: &&str| format!("<!-- begin: {n} -->\nold\n<!-- end: {n} -->\n");
            names.iter().map(pair).collect::<String>() + "<!-- more: search -->\n"
        };
        let (page, readme) = (docs.join("comparison.md"), dir.path().join("README.md"));
        fs::write(&page, markers(&["run", "search-other-128", "whole"])).unwrap();
        fs::write(&readme, markers(&["compare"])).unwrap();

        write(&out, &docs, &readme).unwrap();
        assert!(
            fs::read_to_string(&readme).unwrap().contains("old"),
            "nothing measured, nothing changed"
        );

        let mut case = compared(vec![
            measured("mopqdb_opq", 0.5, 123.0),
            measured("faiss_pq", 0.25, 77.0),
        ]);
        case.peers[0].share = 0.5;
        let swept = |setting: &str| super::super::outcome::Swept {
            setting: setting.into(),
            recall_exact: 0.24,
            one: 70.0,
        };
        case.peers[1].sweep = vec![swept("level A"), swept("")];
        case.peers[1].asked = 7;
        fs::write(
            out.join("search/c.json"),
            serde_json::to_vec(&case).unwrap(),
        )
        .unwrap();
        write(&out, &docs, &readme).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        assert!(
            text.contains("| **mopqdb_opq** | 8 | .500 | – | 123 |"),
            "{text}"
        );
        assert!(
            text.contains("**the machine was busy**: a loop of one thread got 75% of a core"),
            "{text}"
        );
        assert!(text.contains("<!-- begin: search-c -->\n### c"), "{text}");
        let fewer = "faiss_pq was asked the first 7 queries only";
        assert_eq!(text.matches("queries only").count(), 1, "{text}");
        assert!(text.contains(fewer), "{text}");
        for row in ["level A", "its defaults (chosen)"] {
            assert!(
                text.contains(&format!("| faiss_pq | 8 | {row} | .240 | 70.0 |")),
                "{text}"
            );
        }
        for kept in ["whole", "search-other-128"] {
            assert!(
                text.contains(&format!("<!-- begin: {kept} -->\nold")),
                "{text}"
            );
        }
        let short = fs::read_to_string(&readme).unwrap();
        assert!(short.contains("old"), "not the case that it shows: {short}");
        case.case = SHOWN.into();
        fs::write(
            out.join("search/shown.json"),
            serde_json::to_vec(&case).unwrap(),
        )
        .unwrap();
        write(&out, &docs, &readme).unwrap();
        // Elsewhere, where nothing was measured, the pages come out the same.
        let made = fs::read_to_string(&page).unwrap();
        let blank = made.replace(".500", "").replace(".250", "");
        assert_ne!(blank, made);
        fs::write(&page, blank).unwrap();
        write(&dir.path().join("nothing"), &docs, &readme).unwrap();
        assert_eq!(fs::read_to_string(&page).unwrap(), made);
        let short = fs::read_to_string(&readme).unwrap();
        assert!(
            short.contains("| faiss_pq | 8 | .250 | 77.0 | 10.0 | yes |"),
            "{short}"
        );
        assert!(docs.join("plots/search-c.svg").exists());

        // Another machine's.
        let other = docs.join("comparison-fast.md");
        fs::write(&other, markers(&["run", "whole"])).unwrap();
        fs::create_dir_all(docs.join("measured/fast")).unwrap();
        case.peers[0].one = 999.0;
        let bytes = serde_json::to_vec(&case).unwrap();
        fs::write(docs.join("measured/fast/search-x.json"), bytes).unwrap();
        write(&dir.path().join("nothing"), &docs, &readme).unwrap();
        let text = fs::read_to_string(&other).unwrap();
        assert!(text.contains("| – | 999 |"), "{text}");
        assert!(
            text.contains(&format!("](plots/fast/search-{SHOWN}.svg)")),
            "{text}"
        );
        assert!(
            docs.join(format!("plots/fast/search-{SHOWN}.svg")).exists()
                && fs::read_to_string(&page).unwrap() == made
                && !fs::read_to_string(&readme).unwrap().contains("999")
        );
    }
}
