//! `mopqdb bench`, and the kernel that a user may choose.

use crate::support::{Ran, data, program, run};
use mopqdb::testing::kernel::Kernel;
use std::path::Path;
use std::process::Command;

fn run_on(kernel: &str, dir: &Path, arguments: &[&str]) -> Ran {
    let mut program = Command::new(program());
    let program = program.args(arguments).current_dir(dir);
    let output = program.env("MOPQDB_KERNEL", kernel).output();
    output.expect("the program starts").into()
}

fn database(dir: &Path, rows: usize) {
    data(&dir.join("v.npy"), 1, rows, 16);
    run(dir, &["insert", "my.db", "v.npy", "--no-auto"]).ok();
    run(
        dir,
        &["train", "my.db", "--method", "pq", "--subspaces", "8"],
    )
    .ok();
    run(dir, &["rebuild", "my.db"]).ok();
}

#[test]
fn a_bench_checks_answers_before_timing() {
    let dir = tempfile::tempdir().unwrap();
    database(dir.path(), 3000);
    let bench = ["bench", "my.db", "--seconds", "0.05", "--json"];
    let found = &run(dir.path(), &bench).json()[0];
    assert_eq!(found["rows"], 3000);
    assert_eq!(found["answers_checked"], 3);
    for name in ["rows_per_s", "gb_per_s", "bandwidth_share", "p50_us"] {
        assert!(found[name].as_f64().unwrap() > 0.0, "{name}: {found}");
    }
    assert!(found["p99_us"].as_f64() >= found["p50_us"].as_f64());
    assert!(found["queries"].as_u64().unwrap() >= 10);
}

#[test]
fn a_bench_reports_the_bytes_that_each_search_mode_reads() {
    let dir = tempfile::tempdir().unwrap();
    database(dir.path(), 3000);
    let bench = |more: &[&str]| {
        let common = ["bench", "my.db", "--seconds", "0.05", "--json"];
        run(dir.path(), &[&common[..], more].concat())
            .json()
            .remove(0)
    };
    let read = |found: &serde_json::Value| {
        let number = |name: &str| found[name].as_f64().unwrap();
        (
            number("scanned_bytes_per_row").round(),
            number("vector_bytes_per_query"),
        )
    };
    let codes = bench(&[]);
    assert_eq!(
        (codes["search"].as_str(), read(&codes)),
        (Some("codes"), (8.0, 0.0))
    );
    let auto = bench(&["--search", "auto", "--candidates", "500"]);
    assert_eq!(
        (auto["candidates"].as_u64(), read(&auto)),
        (Some(500), (8.0, 500.0 * 64.0))
    );
    let exact = bench(&["--search", "exact"]);
    assert_eq!(read(&exact), (64.0, 0.0));
    let refused = ["bench", "my.db", "--candidates", "500"];
    assert!(
        run(dir.path(), &refused)
            .failed(2)
            .contains("--search codes takes none")
    );
}

#[test]
fn a_bench_asks_the_queries_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    database(dir.path(), 3000);
    data(&dir.path().join("q.npy"), 2, 2, 16);
    let bench = |file: &str| {
        let arguments = ["bench", "my.db", "--seconds", "0.05", "--queries", file];
        run(dir.path(), &[&arguments[..], &["--json"]].concat())
    };
    let found = &bench("q.npy").json()[0];
    assert_eq!(
        (&found["answers_checked"], &found["encoding_p50_us"]),
        (&2.into(), &0.0.into())
    );
    std::fs::write(dir.path().join("empty.txt"), "\n\n").unwrap();
    assert!(bench("empty.txt").failed(1).contains("has no queries"));
    data(&dir.path().join("wide.npy"), 2, 2, 17);
    let error = bench("wide.npy").failed(1);
    assert!(error.contains("17") && error.contains("16"), "{error}");
}

#[test]
fn a_bench_of_few_or_no_rows_reports_that() {
    let dir = tempfile::tempdir().unwrap();
    data(&dir.path().join("v.npy"), 1, 2, 16);
    run(dir.path(), &["insert", "my.db", "v.npy", "--no-auto"]).ok();
    let bench = ["bench", "my.db", "--seconds", "0.05", "--json"];
    let found = &run(dir.path(), &bench).json()[0];
    assert_eq!(found["answers_checked"], 2, "all rows are checked");
    run(dir.path(), &["delete", "my.db", "0", "1"]).ok();
    let error = run(dir.path(), &bench).failed(1);
    assert!(error.contains("no rows to search"), "{error}");
}

#[test]
fn the_environment_chooses_the_kernel_without_changing_answers() {
    let dir = tempfile::tempdir().unwrap();
    database(dir.path(), 3000);
    let query = ["query", "my.db", "--vectors", "v.npy", "-k", "3", "--json"];
    let expected = run(dir.path(), &query).ok();
    assert!(expected.lines().count() == 3000);
    for kernel in Kernel::available() {
        let found = run_on(kernel.name(), dir.path(), &query).ok();
        assert!(found == expected, "another answer on {}", kernel.name());
        let bench = ["bench", "my.db", "--seconds", "0.05", "--json"];
        let told = &run_on(kernel.name(), dir.path(), &bench).json()[0];
        assert_eq!(told["kernel"], kernel.name());
    }
    for name in Kernel::unavailable() {
        let error = run_on(name, dir.path(), &query).failed(1);
        assert!(error.contains("this CPU can't run"), "{error}");
    }
    let error = run_on("sse9", dir.path(), &query).failed(1);
    assert!(
        error.contains("MOPQDB_KERNEL: there is no kernel \"sse9\""),
        "{error}"
    );
}
