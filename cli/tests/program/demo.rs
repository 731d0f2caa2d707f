//! `make demo` prints the commands that it runs.

use std::path::Path;
use std::process::Command;

#[test]
fn commands_that_the_demo_prints_can_be_pasted() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/demo.sh");
    let script = std::fs::read_to_string(script).unwrap();
    let from = script.find("quoted() {").expect("it quotes what it prints");
    let function = &script[from..];
    let function = &function[..function.find("\n}\n").unwrap() + 3];
    let words = [
        "query",
        "demo.db",
        "split a string",
        "it's $HOME",
        "",
        "a\\b",
        "*",
        "\"x\"",
        "two\nlines",
        "-k",
        "3",
    ];
    let bash = |script: &str, words: &[&str]| {
        let output = Command::new("bash")
            .args(["-c", &format!("{function}{script}"), "bash"])
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = bash("quoted \"$@\"", &words);
    assert!(
        printed.starts_with("query demo.db 'split a string' "),
        "{printed}"
    );
    // Pasted into a shell, it has the same words again.
    let pasted = bash(&format!("printf '%s|' {printed}"), &[]);
    assert_eq!(pasted, words.join("|") + "|");
    for line in script
        .lines()
        .filter(|line| line.contains("target/debug/mopqdb"))
    {
        assert!(
            line.contains("quoted"),
            "it prints a command that may not be what it runs: {line}"
        );
    }
}
