//! `stats` and `models`, as people read them.

use crate::support::{data, run};

#[test]
fn every_figure_of_stats_has_a_self_explanatory_label() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    data(&dir.join("x.npy"), 1, 3000, 8);
    run(dir, &["insert", "x.db", "x.npy"]).ok();
    run(dir, &["seal", "x.db"]).ok();
    let train = [
        "train",
        "x.db",
        "--method",
        "pq",
        "--subspaces",
        "4",
        "--codewords",
        "16",
    ];
    run(dir, &train).ok();
    run(dir, &["rebuild", "x.db"]).ok();
    run(dir, &["delete", "x.db", "1", "2"]).ok();
    let told = run(dir, &["stats", "x.db"]).ok();
    let figure = |label: &str| {
        let mut lines = told.lines().filter_map(|line| line.split_once('\t'));
        let found = lines.find(|(found, _)| *found == label);
        found
            .unwrap_or_else(|| panic!("no {label}: {told}"))
            .1
            .to_owned()
    };
    assert_eq!(figure("rows"), "2,998");
    assert_eq!(figure("rows in the log, not yet in a segment"), "0");
    assert_eq!(figure("deleted or replaced rows, not yet compacted"), "2");
    assert_eq!(figure("vectors"), "8 dimensions, compared by cosine");
    assert_eq!(
        figure("memory that a query reads"),
        "5.86 KiB (2.0 bytes per row)"
    );
    assert!(figure("active model").ends_with("(pq)"));
    for kind in [
        "keys, and texts or vectors as inserted",
        "codes of all models",
        "log",
        "models",
        "total",
    ] {
        assert!(figure(&format!("disk: {kind}")).ends_with(" bytes per row)"));
    }
    assert_eq!(figure("drift: rows that the model was trained on"), "2,998");
    assert_eq!(figure("drift: rows inserted since"), "0");
    assert_eq!(figure("retraining"), "not advised");
    for jargon in ["a row", "tail", "dead"] {
        assert!(!told.contains(jargon), "{told}");
    }
    // The names for scripts stay the same.
    let stats = run(dir, &["stats", "x.db", "--json"]).json().remove(0);
    for name in [
        "rows",
        "dead_rows",
        "tail_rows",
        "segments",
        "generation",
        "kind",
        "metric",
        "dim",
        "model",
        "method",
        "scan_bytes_per_row",
        "bytes",
        "drift",
        "bytes_per_row",
        "retrain_advised",
    ] {
        assert!(stats.get(name).is_some(), "{name}: {stats}");
    }
}

#[test]
fn a_table_in_a_pipe_has_a_header() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    data(&dir.join("x.npy"), 1, 10, 8);
    run(dir, &["insert", "x.db", "x.npy"]).ok();
    let table = run(dir, &["models", "x.db"]).ok();
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    assert_eq!(
        lines[0],
        [
            "active",
            "model",
            "method",
            "codes",
            "made",
            "candidates",
            "recall"
        ]
    );
    assert_eq!(
        (lines.len(), lines[1].len(), lines[1][0], lines[1][2]),
        (2, 7, "*", "exact")
    );
}
