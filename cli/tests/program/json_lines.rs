//! JSONL: the fields that are read, and the messages about lines that can't be inserted.

use crate::support::{run, run_with};
use std::path::Path;

/// Messages of the JSON library, which are meant for programmers.
const NOT_OURS: [&str; 7] = [
    "invalid type",
    "invalid value",
    "did not match any variant",
    "expected a",
    "EOF",
    "struct",
    "untagged",
];

/// Inserts a line, which must be refused, and returns the message.
fn refused(dir: &Path, line: &str, flags: &[&str]) -> String {
    let arguments = [&["insert", "x.db"], flags].concat();
    let said = run_with(dir, &arguments, format!("{line}\n")).failed(1);
    assert!(said.contains("stdin:1: "), "{line}: {said}");
    for word in NOT_OURS {
        assert!(
            !said.contains(word),
            "{word:?} is in the message about {line}: {said}"
        );
    }
    said
}

#[test]
fn errors_about_types_name_the_field() {
    let dir = tempfile::tempdir().unwrap();
    for (line, said) in [
        (
            "[1,2]",
            "is a JSON array; give one JSON object per line (`jq -c '.[]'`",
        ),
        ("7", "is a number; give one JSON object per line"),
        ("\"a\"", "is a string; give one JSON object per line"),
        ("null", "is null; give one JSON object per line"),
        (
            r#"{"key":"a","text":5}"#,
            r#""text" is a number; a text is a string"#,
        ),
        (
            r#"{"key":"a","text":["x"]}"#,
            r#""text" is an array; a text"#,
        ),
        (
            r#"{"key":["x"],"text":"a"}"#,
            r#""key" is an array; a key is a string or an integer"#,
        ),
        (
            r#"{"key":{"x":1},"text":"a"}"#,
            r#""key" is an object; a key"#,
        ),
        (r#"{"key":null,"text":"a"}"#, r#""key" is null; a key"#),
        (r#"{"key":true,"text":"a"}"#, r#""key" is a boolean; a key"#),
        (
            r#"{"key":1.5,"text":"a"}"#,
            r#""key" is the number 1.5; a key"#,
        ),
        (
            r#"{"key":"a","vector":"x"}"#,
            r#""vector" is a string; a vector is an array of numbers"#,
        ),
        (
            r#"{"key":"a","vector":[1,"b"]}"#,
            r#"value 1 of "vector" is a string; a vector"#,
        ),
        (
            r#"{"key":"a","vector":[[1,2]]}"#,
            r#"value 0 of "vector" is an array; a vector"#,
        ),
        (
            r#"{"key":"a","vector":[1,2,null,4]}"#,
            r#"value 2 of "vector" is null; a vector"#,
        ),
        (
            r#"{"key":"a","vector":[1,-1e39]}"#,
            r#"value 1 of "vector" is -1e39; a 32-bit float is at most 3.4e38"#,
        ),
        (
            r#"{"key":"a","vector":[1,1e999]}"#,
            "a number is too large, at column 28",
        ),
        (r#"{"vector":[1]}"#, r#"has no field "key"; --key-field"#),
        (
            r#"{"key":"a"}"#,
            r#"has neither "text" nor "vector"; --text-field"#,
        ),
        (r#"{"key":"a","text":null}"#, "has only null in"),
        (
            r#"{"key":"a","text":"x","vector":[1]}"#,
            r#"has both "text" and "vector""#,
        ),
        (
            r#"{"key":"a","key":"b","vector":[1]}"#,
            r#"has the field "key" twice"#,
        ),
        (
            r#"{"key":"a","vector":[1],"vector":[1]}"#,
            r#"has the field "vector" twice"#,
        ),
    ] {
        let message = refused(dir.path(), line, &[]);
        assert!(message.contains(said), "{line}: {message}");
    }
    // Null counts as a missing field.
    let nulls = r#"{"key":"a","text":null,"vector":[1,2]}"#;
    run_with(dir.path(), &["insert", "x.db"], nulls).ok();
}

#[test]
fn errors_about_syntax_name_the_column() {
    let dir = tempfile::tempdir().unwrap();
    for (line, said) in [
        (
            "hello",
            "is not JSON: not the beginning of a value, at column 1\n",
        ),
        (
            r#"{"key":"a" "text":"b"}"#,
            "is not JSON: expected `,` or `}`, at column 12\n",
        ),
        (
            r#"{'key':"a"}"#,
            "is not JSON: a field's name is not in double quotes, at column 2\n",
        ),
        (
            r#"{"key":"a","vector":[NaN]}"#,
            "is not JSON: not the beginning of a value, at column 22\n",
        ),
        (
            r#"{"key":"a","text":"b"#,
            "ends inside its JSON, at column 20; give one JSON object per line (`jq -c .`",
        ),
        (
            r#"{"key":"a","vector":[1]} {}"#,
            "continues after its JSON object, at column 26; give one JSON object per line\n",
        ),
    ] {
        let message = refused(dir.path(), line, &[]);
        assert!(message.contains(said), "{line}: {message}");
    }
}

#[test]
fn a_json_array_or_a_multi_line_object_is_an_error_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let rows = r#"{"key": "a", "vector": [1, 2]}"#;
    for array in [
        format!("[\n  {rows},\n  {rows}\n]\n"),
        format!("[{rows},\n{rows}]\n"),
        format!("[{rows}]\n"),
    ] {
        std::fs::write(dir.path().join("x.json"), array).unwrap();
        let said = run(dir.path(), &["insert", "x.db", "x.json"]).failed(1);
        assert!(
            said.contains("x.json:1: is a JSON array; give one JSON object per line"),
            "{said}"
        );
        assert!(said.contains("jq -c '.[]'"), "{said}");
    }
    std::fs::write(dir.path().join("x.json"), "{\n  \"key\": \"a\"\n}\n").unwrap();
    let said = run(dir.path(), &["insert", "x.db", "x.json"]).failed(1);
    assert!(
        said.contains("x.json:1:") && said.contains("`jq -c .`"),
        "{said}"
    );
}

#[test]
fn key_and_text_may_have_other_names() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let row = r#"{"id": 7, "vector": [3, 4], "n": 1}"#;
    let named = ["--key-field", "id"];
    assert!(refused(dir, row, &[]).contains("--key-field"));
    assert!(!dir.join("x.db").exists());
    let all = [&["insert", "x.db", "--ignore-unknown"], &named[..]].concat();
    run_with(dir, &all, row).ok();
    assert_eq!(run(dir, &["get", "x.db", "7"]).ok(), "7\t[3, 4]\n");
    assert_eq!(run(dir, &["columns", "x.db"]).ok(), "");
    // With another name for the key, `key` is a field that can't be a column.
    let both = r#"{"id": 7, "key": "k", "vector": [3, 4]}"#;
    assert!(refused(dir, both, &named).contains("has the field \"key\""));
    // The text is read from its own field: this database takes vectors, and the error is about a text.
    let text = r#"{"id": 7, "text": "k", "body": "b"}"#;
    let flags = [
        "--key-field",
        "id",
        "--text-field",
        "body",
        "--ignore-unknown",
    ];
    assert!(refused(dir, text, &flags).contains("is a text, and this database has no encoder"));
    let said = refused(dir, r#"{"id": 7, "text": "k"}"#, &flags);
    assert!(
        said.contains("has neither \"body\" nor \"vector\""),
        "{said}"
    );
    let said = refused(dir, r#"{"id": 7, "body": 5}"#, &flags);
    assert!(
        said.contains("\"body\" is a number; a text is a string"),
        "{said}"
    );
}

#[test]
fn flags_without_effect_or_in_conflict_are_usage_errors() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("x.txt"), "a\n").unwrap();
    std::fs::write(dir.join("x.jsonl"), "{\"key\":\"a\",\"vector\":[1,2]}\n").unwrap();
    for (flags, said) in [
        (
            &["x.txt", "--key-field", "id"][..],
            "--key-field is for JSON objects",
        ),
        (
            &["x.txt", "--text-field", "id"],
            "--text-field is for JSON objects",
        ),
        (
            &["x.txt", "--ignore-unknown"],
            "--ignore-unknown is for JSON objects",
        ),
        (
            &["x.jsonl", "--format", "tsv", "--ignore-unknown"],
            "--ignore-unknown is for",
        ),
        (
            &["x.jsonl", "--text-field", "key"],
            "can't both be the field \"key\"",
        ),
        (
            &["x.jsonl", "--key-field", "a", "--text-field", "a"],
            "can't both be the field \"a\"",
        ),
        (
            &["x.jsonl", "--key-field", "vector"],
            "--key-field can't be \"vector\"",
        ),
        (
            &["x.jsonl", "--text-field", "vector"],
            "--text-field can't be \"vector\"",
        ),
        (&["x.jsonl", "--key-field", ""], "--key-field is empty"),
        (
            &["x.jsonl", "--keys", "x.txt"],
            "--keys is for rows without keys",
        ),
    ] {
        let message = run(dir, &[&["insert", "x.db"], flags].concat()).failed(2);
        assert!(message.contains(said), "{flags:?}: {message}");
        assert!(!dir.join("x.db").exists());
    }
    // A flag has an effect if one of several files is JSONL, and names may be swapped.
    std::fs::write(dir.join("y.jsonl"), "{\"text\":\"b\",\"vector\":[1,2]}\n").unwrap();
    let swapped = ["--key-field", "text", "--text-field", "key"];
    run(
        dir,
        &[&["insert", "x.db", "y.jsonl"], &swapped[..]].concat(),
    )
    .ok();
    let said = run(
        dir,
        &["insert", "x.db", "x.jsonl", "x.txt", "--ignore-unknown"],
    )
    .failed(1);
    assert!(
        said.contains("inserted 1 row") && said.contains("x.txt:1: it is a text"),
        "{said}"
    );
}

#[test]
fn skip_bad_creates_the_database_for_the_first_good_row() {
    let dir = tempfile::tempdir().unwrap();
    let lines = "{\"key\":1}\n[\n{\"key\":\"a\",\"vector\":[1,2]}\n";
    let skipping = run_with(dir.path(), &["insert", "x.db", "--skip-bad"], lines);
    assert!(skipping.err.contains("skipped stdin:1:") && skipping.err.contains("skipped stdin:2:"));
    assert!(
        skipping
            .ok()
            .contains("inserted 1 row (1 new, 0 replaced, 0 unchanged); skipped 2 bad rows")
    );
}
