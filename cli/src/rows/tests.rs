//! Each format gives its rows, each bad line its place and reason, and memory does not grow with the input.

use super::*;
use mopqdb::Value;
use std::io::{BufReader, Cursor};
use std::path::Path;

fn rows_of(
    name: &str,
    content: &[u8],
    format: Option<Format>,
    several: bool,
) -> Vec<Result<ReadRow, BadRow>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    let input = Input::of(&path, format).unwrap();
    let mut reader = open(&input, several, &Fields::default()).unwrap();
    let mut rows = Vec::new();
    while let Some(row) = reader.next_row().unwrap() {
        rows.push(row);
    }
    rows
}

fn plain(rows: Vec<Result<ReadRow, BadRow>>) -> Vec<Row> {
    rows.into_iter().map(|row| row.unwrap().row).collect()
}

#[test]
fn jsonl_rows_contain_texts_or_vectors() {
    let rows = plain(rows_of(
        "a.jsonl",
        b"{\"key\": \"a\", \"text\": \"one\\ntwo\"}\r\n\n{\"vector\": [1, 2.5e0], \"key\": 7}\n{\"key\":-3,\"text\":\"\"}",
        None,
        false,
    ));
    assert_eq!(rows[0], Row::text("a", "one\ntwo"));
    assert_eq!(rows[1], Row::vector("7", [1.0, 2.5]));
    assert_eq!(rows[2], Row::text("-3", ""));
}

#[test]
fn a_bad_line_is_reported_with_its_place_and_the_next_line_is_read() {
    for (line, said) in [
        ("{\"key\": \"a\"", "ends inside its JSON, at column 11"),
        ("{\"key\": \"a\"}", "neither \"text\" nor \"vector\""),
        ("{\"key\": \"a\", \"text\": \"x\", \"vector\": [1]}", "both"),
        ("{\"key\": \"\", \"text\": \"x\"}", "the key is empty"),
        ("{\"key\": \"a\", \"vector\": []}", "the vector is empty"),
        (
            "{\"key\": \"a\", \"vector\": [1, 1e39]}",
            "value 1 of \"vector\" is 1e39",
        ),
        (
            "{\"key\": \"a\", \"vector\": [1, null]}",
            "value 1 of \"vector\" is null",
        ),
        (
            "{\"key\": \"a\", \"text\": \"x\", \"tag\": {\"a\": 1, \"a\": 2}}",
            "the field \"tag.a\" twice",
        ),
        ("{\"key\": 1.5, \"text\": \"x\"}", "is the number 1.5"),
        ("not json", "at column"),
        ("\u{fffd}", "at column"),
    ] {
        let content = format!(
            "{{\"key\": \"first\", \"text\": \"x\"}}\n{line}\n{{\"key\": \"last\", \"text\": \"x\"}}\n"
        );
        let rows = rows_of("a.jsonl", content.as_bytes(), None, false);
        assert_eq!(rows.len(), 3, "{line}");
        let bad = rows[1].as_ref().unwrap_err();
        assert!(bad.place.ends_with("a.jsonl:2"), "{bad}");
        assert!(bad.what.contains(said), "{line} gave {bad}");
        assert_eq!(rows[2].as_ref().unwrap().row.key, "last");
    }
}

#[test]
fn tsv_takes_the_first_tab_and_keeps_the_others() {
    let rows = rows_of("a.tsv", b"k1\tone\ttwo\nno tab\n\tx\n", None, false);
    assert_eq!(rows[0].as_ref().unwrap().row, Row::text("k1", "one\ttwo"));
    assert!(rows[1].as_ref().unwrap_err().what.contains("--format txt"));
    assert!(rows[2].as_ref().unwrap_err().what.contains("key is empty"));
}

#[test]
fn txt_lines_are_numbered_from_one_and_per_file() {
    let content = b"\xef\xbb\xbfone\n\nthree";
    let rows = plain(rows_of("a.txt", content, None, false));
    assert_eq!(rows, [Row::text("1", "one"), Row::text("3", "three")]);
    let rows = plain(rows_of("part.tsv", content, Some(Format::Txt), true));
    assert_eq!(
        rows,
        [Row::text("part:1", "one"), Row::text("part:3", "three")]
    );
}

#[test]
fn vectors_are_numbered_from_zero_and_non_finite_ones_are_bad_rows() {
    let mut fbin = 3_u32.to_le_bytes().to_vec();
    fbin.extend(2_u32.to_le_bytes());
    for value in [1.0_f32, 2.0, f32::NAN, 0.0, 3.0, 4.0] {
        fbin.extend(value.to_le_bytes());
    }
    let rows = rows_of("a.fbin", &fbin, None, false);
    assert_eq!(rows[0].as_ref().unwrap().row, Row::vector("0", [1.0, 2.0]));
    let bad = rows[1].as_ref().unwrap_err();
    assert!(
        bad.place.ends_with("a.fbin: row 1") && bad.what.contains("NaN"),
        "{bad}"
    );
    assert_eq!(rows[2].as_ref().unwrap().row.key, "2");
}

#[test]
fn an_unknown_format_is_an_error_with_a_remedy() {
    let error = Input::of(Path::new("data"), None).unwrap_err();
    assert!(error.to_string().contains("--format"), "{error}");
    assert_eq!(Format::of(Path::new("A.JSONL")), Some(Format::Jsonl));
}

#[test]
fn compression_extensions_change_neither_format_nor_stem() {
    for (name, format) in [
        ("A.JSONL.GZ", Some(Format::Jsonl)),
        ("x.y.npy.zst", Some(Format::Npy)),
        ("x.gz", None),
        ("gz", None),
        ("x.txt.xz", None),
        ("x.txt.gz.zst", None),
    ] {
        assert_eq!(Format::of(Path::new(name)), format, "{name}");
    }
    let rows = plain(rows_of("d.part.txt.gz", b"one", None, true));
    assert_eq!(rows, [Row::text("d.part:1", "one")]);
}

#[test]
fn a_json_array_longer_than_a_line_is_recognised() {
    let bytes = Cursor::new([&b"[{"[..], &[b'x'; 2000]].concat());
    let mut rows = texts::TextRows {
        lines: Lines::with_longest("f", Box::new(BufReader::with_capacity(100, bytes)), 1000),
        format: Format::Jsonl,
        fields: Fields::default(),
        prefix: String::new(),
    };
    let bad = rows.next_row().unwrap().unwrap().unwrap_err();
    assert!(bad.what.starts_with("is a JSON array"), "{bad}");
}

#[test]
fn columns_count_characters() {
    let said = jsonl("{\"key\": \"日本\" 7}", &Fields::default()).unwrap_err();
    assert_eq!(said, "is not JSON: expected `,` or `}`, at column 14");
}

#[test]
fn the_longest_row_fits_on_a_line_with_any_escapes() {
    let escaped = |bytes: usize| bytes * r"\u0001".len();
    let around = r#"{"key": "", "text": ""}"#.len();
    assert!(escaped(mopqdb::MAX_KEY) + escaped(mopqdb::MAX_TEXT) + around <= MAX_LINE);
}

#[test]
fn keys_come_from_their_file_one_per_row() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys.txt");
    std::fs::write(&path, "a\n\nc\n").unwrap();
    let mut keys = KeyFile::open(&path).unwrap();
    assert_eq!(keys.next_key("r").unwrap().unwrap(), "a");
    assert!(
        keys.next_key("r")
            .unwrap()
            .unwrap_err()
            .place
            .ends_with("keys.txt:2")
    );
    assert!(keys.expect_end().is_err());
    let error = keys.next_key("v.npy: row 3").unwrap_err().to_string();
    assert!(
        error.contains("has 3 keys, but there is another row, v.npy: row 3"),
        "{error}"
    );
}

#[test]
fn any_bytes_give_rows_or_errors_never_a_panic() {
    // A small seeded xorshift, so that failures can be reproduced.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let pieces: [&[u8]; 12] = [
        b"{",
        b"}",
        b"\"key\":",
        b"\"a\"",
        b",",
        b"\"vector\":[",
        b"1e999",
        b"]",
        b"\n",
        b"\t",
        b"\xff",
        b"[[[[",
    ];
    for _ in 0..2000 {
        let content: Vec<u8> = (0..next() % 20)
            .flat_map(|_| pieces[(next() % 12) as usize].to_vec())
            .collect();
        let text = String::from_utf8_lossy(&content);
        if let Ok((
            Row {
                value: Value::Vector(vector),
                ..
            },
            _,
        )) = jsonl(&text, &Fields::default())
        {
            assert!(vector.iter().all(|value| value.is_finite()));
        }
        let _ = tsv(&text);
    }
}
