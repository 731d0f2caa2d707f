//! A real terminal gets a progress bar and tables cut to its width; a pipe gets neither.

use crate::support::{data, program, run};
use std::path::Path;
use std::process::Command;

/// Runs a command line on a terminal of 60 columns, with util-linux's `script`. Returns `None` if it is not installed.
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
fn a_terminal_gets_progress_with_rows_per_second_and_a_pipe_does_not() {
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
    // The bar is removed at the end, and only the result is left.
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
fn rows_are_counted_if_their_total_is_unknown() {
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
fn hits_fit_the_width_of_a_terminal() {
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

/// Characters that a terminal would act on: controls of C0 and C1, DEL, and bidirectional controls.
const HOSTILE: [char; 8] = [
    '\u{1b}', '\u{7}', '\u{8}', '\u{7f}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{200f}',
];

#[test]
fn control_characters_in_keys_and_queries_are_replaced_on_a_terminal_but_not_in_a_pipe() {
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
