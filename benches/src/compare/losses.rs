//! Where we lose, found in the figures, and why, by the kind of peer.

use super::outcome::{Compared, Measured};
use crate::report::markdown::{number, recall};

/// A column in which a peer can be better.
struct Column {
    name: &'static str,
    /// More is better.
    value: fn(&Measured) -> Option<f64>,
    /// How much more it takes to be said.
    least: f64,
}

const COLUMNS: [Column; 9] = [
    Column {
        name: "queries one at a time",
        value: |m| Some(m.one),
        least: 1.1,
    },
    Column {
        name: "queries in batches",
        value: |m| Some(m.batch),
        least: 1.1,
    },
    Column {
        name: "queries one at a time on two threads",
        value: |m| m.one_two,
        least: 1.1,
    },
    Column {
        name: "queries in batches on two threads",
        value: |m| m.batch_two,
        least: 1.1,
    },
    Column {
        name: "memory",
        value: |m| Some(1.0 / m.ram.max(1.0)),
        least: 1.1,
    },
    Column {
        name: "bytes on disk",
        value: |m| Some(1.0 / m.disk.max(1.0)),
        least: 1.1,
    },
    Column {
        name: "building",
        value: |m| Some(1.0 / m.build.max(1e-3)),
        least: 1.5,
    },
    Column {
        name: "opening",
        value: |m| Some(1.0 / m.open.max(1e-4)),
        least: 2.0,
    },
    Column {
        name: "inserting",
        value: |m| m.insert,
        least: 1.5,
    },
];

/// Peers that compare every row whole.
const WHOLE: [&str; 2] = ["faiss_flat", "sqlite_vec_flat"];

fn ours(measured: &Measured) -> bool {
    measured.peer.starts_with("mopqdb")
}

/// The row of ours that peers are held against: learned codes where there are any, of the fewest bytes.
pub fn champion(compared: &Compared) -> Option<&Measured> {
    let of = |peer: &str| {
        let own = compared.peers.iter().filter(|m| m.peer == peer);
        own.min_by_key(|m| m.bytes)
    };
    of("mopqdb_mopq").or_else(|| of("mopqdb_opq"))
}

/// What counts as recall: the true keys where they are known.
pub fn found(measured: &Measured) -> f64 {
    measured.recall_true.unwrap_or(measured.recall_exact)
}

/// A line a column in which somebody is better than us.
pub fn lines(compared: &Compared) -> Vec<String> {
    let Some(champion) = champion(compared) else {
        return Vec::new();
    };
    let peers: Vec<&Measured> = compared.peers.iter().filter(|m| !ours(m)).collect();
    let mut lines = Vec::new();
    let mut better: Vec<&Measured> = peers
        .iter()
        .copied()
        .filter(|m| found(m) > found(champion) + super::sweep::TOLERANCE)
        .collect();
    better.sort_by(|a, b| found(b).total_cmp(&found(a)));
    if !better.is_empty() {
        let list: Vec<String> = better
            .iter()
            .map(|m| {
                format!(
                    "{} {} ({} bytes a row)",
                    m.name,
                    recall(Some(found(m))),
                    m.bytes
                )
            })
            .collect();
        lines.push(format!(
            "**recall@10** ({} has {}): {}. {}",
            champion.name,
            recall(Some(found(champion))),
            list.join(", "),
            recall_reason(&better, champion)
        ));
    }
    for column in COLUMNS {
        let Some(own) = (column.value)(champion) else {
            continue;
        };
        let mut ahead: Vec<(f64, &Measured)> = peers
            .iter()
            .filter_map(|m| Some(((column.value)(m)? / own, *m)))
            .filter(|(ratio, _)| *ratio >= column.least)
            .collect();
        ahead.sort_by(|a, b| b.0.total_cmp(&a.0));
        if ahead.is_empty() {
            continue;
        }
        let list: Vec<String> = ahead
            .iter()
            .map(|(ratio, m)| {
                let less = found(champion) - found(m);
                let note = if column.name.starts_with("queries") && less > super::sweep::TOLERANCE {
                    format!(
                        ", finding {} against {}",
                        recall(Some(found(m))),
                        recall(Some(found(champion)))
                    )
                } else {
                    String::new()
                };
                format!("{} ({} bytes) {}x{note}", m.name, m.bytes, number(*ratio))
            })
            .collect();
        let reasons = ahead.iter().map(|(_, m)| reason(column.name, &m.peer));
        lines.push(format!(
            "**{}**: {}. {}",
            column.name,
            list.join("; "),
            once_each(reasons.collect())
        ));
    }
    lines.extend(passed_over(&peers, champion));
    lines.extend(whole_vectors(compared));
    lines
}

/// Columns of queries in which another that compares every row whole is ahead of ours that does.
fn whole_vectors(compared: &Compared) -> Option<String> {
    let own = compared.peers.iter().find(|m| m.peer == "mopqdb_exact")?;
    let others = compared.peers.iter().filter(|m| WHOLE.contains(&&*m.peer));
    let (ahead, reasons): (Vec<String>, Vec<&str>) = others
        .flat_map(|m| COLUMNS.iter().map(move |column| (m, column)))
        .filter(|(_, column)| column.name.starts_with("queries"))
        .filter_map(|(m, column)| {
            let ratio = (column.value)(m)? / (column.value)(own)?;
            let words = format!("{} {}x in {}", m.name, number(ratio), column.name);
            let why = match m.peer == "faiss_flat" && column.name.contains("batches") {
                true => "faiss's batches are matrix products; our sums have one order, whatever the company, so that a score is the same to the bit.",
                false => "A query by itself reads every row once, at memory's pace, of which theirs gets more; why was not looked into.",
            };
            (ratio >= column.least).then_some((words, why))
        })
        .unzip();
    (!ahead.is_empty()).then(|| {
        format!(
            "**whole vectors**, against {}: {}. {}",
            own.name,
            ahead.join("; "),
            once_each(reasons)
        )
    })
}

/// Settings that are ahead of us in speed, and of the one that was chosen, and were not because they find less.
fn passed_over(peers: &[&Measured], champion: &Measured) -> Option<String> {
    let fastest = |m: &&Measured| {
        let chosen = m.sweep.iter().find(|tried| tried.setting == m.setting)?;
        let faster = m.sweep.iter().filter(|tried| tried.one > chosen.one);
        let fastest = faster.max_by(|a, b| a.one.total_cmp(&b.one))?;
        let ratio = fastest.one / champion.one;
        let words = format!(
            "{} ({}) {}x, finding {} of the exact top against {}",
            m.name,
            fastest.setting,
            number(ratio),
            recall(Some(fastest.recall_exact)),
            recall(Some(champion.recall_exact))
        );
        (ratio >= 1.1).then(|| (words, reason("queries one at a time", &m.peer)))
    };
    let (list, reasons): (Vec<String>, Vec<&str>) = peers.iter().filter_map(fastest).unzip();
    (!list.is_empty()).then(|| {
        format!(
            "**queries one at a time, by settings that were not chosen** as they find less than the chosen one: {}. {}",
            list.join("; "),
            once_each(reasons)
        )
    })
}

/// Reasons that several peers share are said once.
pub(super) fn once_each(mut reasons: Vec<&str>) -> String {
    reasons.sort_unstable();
    reasons.dedup();
    reasons.join(" ")
}

fn recall_reason(better: &[&Measured], champion: &Measured) -> &'static str {
    let dear = |m: &&&Measured| m.bytes > 2 * champion.bytes || m.peer.contains("refined");
    if better.iter().filter(dear).count() == better.len() {
        "They compare whole vectors, kept in memory or read from disk; we answer from the codes alone and do not re-rank."
    } else {
        "Whole vectors find more than codes; and at equal bytes residuals to a cell's centre, or a loss made for inner \
         products, say more of a row than plain OPQ does where no pairs were learned from."
    }
}

fn reason(column: &str, peer: &str) -> &'static str {
    match column {
        "queries one at a time"
        | "queries in batches"
        | "queries one at a time on two threads"
        | "queries in batches on two threads" => match peer {
            "usearch_hnsw" | "hnswlib_hnsw" => {
                "A graph looks at some hundreds of rows where we scan all; it pays with whole vectors and links in memory."
            }
            "faiss_fastscan" => {
                "Four-bit tables fit into registers on any CPU since SSSE3; 8-bit ones only with AVX-512 VBMI, and exact \
                 scores take a second look at the survivors."
            }
            "scann_ah" => {
                "ScaNN has four-bit tables in registers, and its tree skips most rows; we scan all."
            }
            "lancedb_pq" | "lancedb_refined" => {
                "lancedb looks into some of its cells; we scan all rows."
            }
            _ => {
                "The reason was not looked into; it may be that in few rows what a query costs before the scan (its projection, its table) and \
                 after it (the keys of its hits) weighs more than the scan."
            }
        },
        "memory" => {
            "They have codes and nothing else in memory; a database's keys and deletions cost some, and so does, in few rows, \
             what any number of rows needs."
        }
        "bytes on disk" => {
            "They keep codes alone; we keep each vector as it was given beside them, to rebuild under a new model, and each key."
        }
        "building" => match peer {
            "faiss_flat" | "sqlite_vec_flat" => "There is nothing to train in whole vectors.",
            _ => {
                "Our build trains a rotation with the codes, writes every row durably and compacts; theirs does less."
            }
        },
        "opening" => "They read one file; we check manifests, segments and the log first.",
        "inserting" => match peer {
            "lancedb_pq" | "lancedb_refined" | "sqlite_vec_flat" => {
                "They write less a call, or sync less often."
            }
            _ => {
                "In memory only: such an insert is gone with the process. Ours is on disk when the call returns."
            }
        },
        _ => "",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::outcome::Swept;
    use super::*;

    pub(crate) fn measured(peer: &str, recall: f64, one: f64) -> Measured {
        Measured {
            peer: peer.into(),
            name: peer.into(),
            run: Default::default(),
            version: "1".into(),
            durable: "yes".into(),
            setting: String::new(),
            sweep: Vec::new(),
            bytes: 8,
            asked: 500,
            recall_exact: recall,
            recall_true: None,
            one,
            one_two: None,
            batch: one,
            batch_two: None,
            share: 1.0,
            ram: 10.0,
            disk: 10.0,
            build: 1.0,
            open: 0.1,
            insert: None,
        }
    }

    pub(crate) fn compared(peers: Vec<Measured>) -> Compared {
        Compared {
            case: "c".into(),
            what: "a case".into(),
            rows: 1000,
            dim: 4,
            queries: 10,
            repeats: 1,
            seconds: 0.1,
            quick: true,
            machine: Default::default(),
            when: None,
            peers,
            missing: Vec::new(),
        }
    }

    #[test]
    fn a_peer_that_is_faster_is_named_with_what_it_finds() {
        let peers = vec![
            measured("mopqdb_opq", 0.5, 100.0),
            measured("hnswlib_hnsw", 0.99, 500.0),
            measured("faiss_fastscan", 0.4, 200.0),
            measured("faiss_pq", 0.5, 50.0),
        ];
        let mut peers = peers;
        peers[0].batch_two = Some(150.0);
        peers[2].batch_two = Some(450.0);
        let lines = lines(&compared(peers)).join("\n");
        assert!(lines.contains("hnswlib_hnsw (8 bytes) 5.00x"), "{lines}");
        assert!(
            lines.contains("**queries in batches on two threads**: faiss_fastscan (8 bytes) 3.00x"),
            "{lines}"
        );
        assert!(!lines.contains("one at a time on two threads"), "{lines}");
        assert!(
            lines.contains("faiss_fastscan (8 bytes) 2.00x, finding .400 against .500"),
            "{lines}"
        );
        assert!(lines.contains("hnswlib_hnsw .990"), "{lines}");
        assert!(!lines.contains("faiss_pq"), "{lines}");
    }

    #[test]
    fn a_faster_setting_that_finds_too_little_is_named() {
        let swept = |setting: &str, recall_exact, one| Swept {
            setting: setting.into(),
            recall_exact,
            one,
        };
        let mut scann = measured("scann_ah", 0.5, 90.0);
        scann.setting = "all".into();
        scann.sweep = vec![
            swept("all", 0.5, 95.0),
            swept("half", 0.495, 94.0),
            swept("some", 0.3, 700.0),
            swept("few", 0.2, 300.0),
        ];
        let own = measured("mopqdb_opq", 0.5, 100.0);
        let lost = lines(&compared(vec![own.clone(), scann.clone()]));
        let [line] = &lost[..] else {
            panic!("{lost:?}");
        };
        assert!(
            line.contains("scann_ah (some) 7.00x, finding .300 of the exact top against .500"),
            "{line}"
        );
        let fast = measured("mopqdb_opq", 0.5, 900.0);
        assert_eq!(
            lines(&compared(vec![fast, scann.clone()])),
            [""; 0],
            "we are faster"
        );
        scann.sweep.truncate(2);
        assert_eq!(
            lines(&compared(vec![own, scann])),
            [""; 0],
            "none is faster than the chosen one"
        );
    }

    #[test]
    fn whole_vectors_are_held_against_whole_vectors() {
        let mut peers = vec![
            measured("mopqdb_opq", 0.5, 900.0),
            measured("mopqdb_exact", 1.0, 20.0),
            measured("faiss_flat", 1.0, 30.0),
            measured("sqlite_vec_flat", 1.0, 21.0),
            measured("hnswlib_hnsw", 1.0, 800.0),
        ];
        peers[2].batch = 19.0;
        let line = whole_vectors(&compared(peers.clone())).unwrap();
        assert!(
            line.contains("against mopqdb_exact: faiss_flat 1.50x in queries one at a time. "),
            "{line}"
        );
        peers[2].one = 20.0;
        assert_eq!(whole_vectors(&compared(peers)), None);
    }

    #[test]
    fn learned_codes_stand_for_us_where_there_are_any() {
        let peers = vec![
            measured("mopqdb_opq", 0.5, 9.0),
            measured("mopqdb_mopq", 0.6, 8.0),
        ];
        let compared = compared(peers);
        assert_eq!(champion(&compared).unwrap().peer, "mopqdb_mopq");
        assert!(lines(&compared).is_empty(), "ours are not peers of ours");
        assert!(lines(&self::compared(vec![])).is_empty());
    }
}
