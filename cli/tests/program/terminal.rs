//! A real terminal: a progress bar on it, tables cut to its width, and neither in a pipe.

use crate::support::{data, program, run};
use std::path::Path;
use std::process::Command;

/// Runs a command line on a terminal of 60 columns, by util-linux's `script`. None where there is none.
fn on_a_terminal(dir: &Path, arguments: &str) -> Option<String> {
    let line = format!("stty cols 60 rows 24; {} {arguments}", program().display());
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .current_dir(dir)
        .env("TERM", "xterm")
        .stdin(std::process::Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => panic!(
            "it failed on a terminal: {}",
            String::from_utf8_lossy(&output.stdout)
        ),
        Err(error) => {
            eprintln!("SKIPPED: no `script` to make a terminal with ({error})");
            None
        }
    }
}

#[test]
fn a_terminal_sees_progress_with_rows_a_second_and_a_pipe_does_not() {
    let dir = tempfile::tempdir().unwrap();
    data(&dir.path().join("x.npy"), 1, 60_000, 48);
    let Some(seen) = on_a_terminal(dir.path(), "insert x.db x.npy --no-auto") else {
        return;
    };
    assert!(
        seen.contains("inserting [") && seen.contains("/60,000 rows"),
        "{seen:?}"
    );
    assert!(seen.contains("rows/s") && seen.contains("left"), "{seen:?}");
    // The bar is gone in the end, and the result stands alone.
    let last = seen.rsplit("\u{1b}[2K").next().unwrap();
    assert!(last.contains("inserted 60,000 rows"), "{last:?}");

    let piped = run(dir.path(), &["insert", "x.db", "x.npy", "--no-auto"]);
    assert_eq!(piped.err, "", "nothing on stderr in a pipe");
    assert_eq!(
        piped.ok(),
        "inserted 60,000 rows (0 new, 0 replaced, 60,000 unchanged)\n"
    );
}

#[test]
fn rows_are_counted_where_nobody_knows_how_many_there_are_and_a_compressed_array_says_it() {
    let dir = tempfile::tempdir().unwrap();
    let rows: String = (0..60_000)
        .map(|n| format!("{{\"key\":\"{n}\",\"vector\":[{n},1,2,3]}}\n"))
        .collect();
    std::fs::write(dir.path().join("x.jsonl"), rows).unwrap();
    let Some(seen) = on_a_terminal(dir.path(), "insert x.db x.jsonl --no-auto") else {
        return;
    };
    assert!(
        seen.contains(" inserting ") && !seen.contains('%'),
        "{seen:?}"
    );
    assert!(
        seen.contains(" rows, ") && seen.contains("rows/s"),
        "{seen:?}"
    );

    data(&dir.path().join("y.npy"), 1, 60_000, 48);
    let packed = zstd::encode_all(&std::fs::read(dir.path().join("y.npy")).unwrap()[..], 1);
    std::fs::write(dir.path().join("y.npy.zst"), packed.unwrap()).unwrap();
    let seen = on_a_terminal(dir.path(), "insert y.db y.npy.zst --no-auto").unwrap();
    assert!(
        seen.contains("inserting [") && seen.contains("/60,000 rows"),
        "{seen:?}"
    );
}

#[test]
fn hits_on_a_terminal_fit_its_width() {
    let dir = tempfile::tempdir().unwrap();
    let long = "k".repeat(200);
    let rows = format!(
        "{{\"key\":\"{long}\",\"vector\":[1,0]}}\n{{\"key\":\"short\",\"vector\":[0,1]}}\n"
    );
    std::fs::write(dir.path().join("x.jsonl"), rows).unwrap();
    run(dir.path(), &["insert", "x.db", "x.jsonl"]).ok();
    data(&dir.path().join("q.npy"), 1, 1, 2);
    let Some(seen) = on_a_terminal(dir.path(), "query x.db --vectors q.npy") else {
        return;
    };
    let lines: Vec<&str> = seen
        .lines()
        .map(|line| line.trim_end_matches('\r'))
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(lines.len(), 2, "{seen:?}");
    assert!(
        lines.iter().all(|line| line.chars().count() <= 60),
        "{seen:?}"
    );
    assert!(seen.contains("kkk…") && seen.contains("short"), "{seen:?}");
}

/// What a terminal would act on: controls of C0 and C1, DEL, and controls of the writing direction.
const HOSTILE: [char; 8] = [
    '\u{1b}', '\u{7}', '\u{8}', '\u{7f}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{200f}',
];

#[test]
fn a_terminal_acts_on_nothing_that_keys_and_queries_hold_and_a_pipe_gets_them_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let key: String = ["a\tb\nc"]
        .into_iter()
        .map(str::to_owned)
        .chain(HOSTILE.map(String::from))
        .collect();
    let row = serde_json::json!({"key": key, "vector": [1, 0]});
    std::fs::write(dir.path().join("x.jsonl"), row.to_string()).unwrap();
    run(dir.path(), &["insert", "x.db", "x.jsonl"]).ok();
    data(&dir.path().join("q.npy"), 1, 1, 2);
    let shown = format!("a b c{}", "�".repeat(HOSTILE.len()));
    for command in [
        "keys x.db",
        "query x.db --vectors q.npy",
        "get x.db \"$KEY\"",
    ] {
        let command = command.replace("$KEY", &key);
        let Some(seen) = on_a_terminal(dir.path(), &command) else {
            return;
        };
        assert!(seen.contains(&shown), "{command:?}: {seen:?}");
        assert!(!seen.contains(HOSTILE), "{command:?}: {seen:?}");
        assert_eq!(seen.trim_end().lines().count(), 1, "{command:?}: {seen:?}");
    }
    for command in ["keys x.db --json", "query x.db --vectors q.npy --json"] {
        let seen = on_a_terminal(dir.path(), command).unwrap();
        assert!(!seen.contains(HOSTILE), "{command:?}: {seen:?}");
        let object: serde_json::Value = serde_json::from_str(&seen).unwrap();
        let exact = object
            .get("key")
            .unwrap_or_else(|| &object["hits"][0]["key"]);
        assert_eq!(exact, key.as_str());
    }
    let piped = run(dir.path(), &["query", "x.db", "--vectors", "q.npy"]).ok();
    assert_eq!(piped.lines().count(), 1, "{piped:?}");
    assert!(HOSTILE.iter().all(|c| piped.contains(*c)), "{piped:?}");
}
