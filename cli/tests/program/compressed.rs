//! gzip and zstd: read wherever rows are read, recognised by their bytes, and never truncated without an error.

use crate::support::{data, run, run_with};
use std::io::Write;
use std::path::Path;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zst(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

fn lines(rows: std::ops::Range<usize>) -> String {
    rows.map(|n| format!("{{\"key\":\"k{n}\",\"vector\":[{n},1]}}\n"))
        .collect()
}

fn inserted(dir: &Path, arguments: &[&str], input: &[u8]) -> String {
    let out = run_with(
        dir,
        &[&["insert", "x.db", "--json"], arguments].concat(),
        input,
    )
    .json();
    format!("{} of {}", out[0]["rows"], out[0]["total"])
}

#[test]
fn every_format_is_read_compressed_from_files_and_from_standard_input() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    for (name, compress) in [("gz", gzip as fn(&[u8]) -> Vec<u8>), ("zst", zst)] {
        for format in ["npy", "fvecs", "fbin"] {
            let plain = dir.join(format!("v.{format}"));
            data(&plain, 7, 500, 6);
            let bytes = compress(&std::fs::read(&plain).unwrap());
            let packed = format!("v.{format}.{name}");
            std::fs::write(dir.join(&packed), &bytes).unwrap();
            assert_eq!(inserted(dir, &[&packed], b""), "500 of 500", "{packed}");
            assert_eq!(inserted(dir, &["--format", format], &bytes), "500 of 500");
            std::fs::remove_file(&plain).unwrap();
        }
        // The rows are the same each time, so none is new after the first time.
        let stats = run(dir, &["stats", "x.db", "--json"]).json();
        assert_eq!(stats[0]["rows"], 500);
        std::fs::remove_dir_all(dir.join("x.db")).unwrap();

        // Two members, as `cat a.gz b.gz` makes them, and a name without a compression extension.
        let two = [
            compress(lines(0..5).as_bytes()),
            compress(lines(5..9).as_bytes()),
        ]
        .concat();
        std::fs::write(dir.join("two.jsonl"), &two).unwrap();
        assert_eq!(inserted(dir, &["two.jsonl"], b""), "9 of 9");
        assert_eq!(inserted(dir, &[], &two), "9 of 9");
        std::fs::write(dir.join(format!("k.{name}")), compress(b"x\ny\nz\n")).unwrap();
        data(&dir.join("three.npy"), 7, 3, 2);
        let keys = format!("k.{name}");
        assert_eq!(
            inserted(dir, &["three.npy", "--keys", &keys], b""),
            "3 of 12"
        );
        std::fs::remove_dir_all(dir.join("x.db")).unwrap();

        // Texts need an encoder. An error about it shows that the line was read.
        run(dir, &["create", "x.db", "--dim", "2"]).ok();
        for (file, text) in [("t.tsv", "k\ta text\n"), ("t.txt", "a text\n")] {
            let packed = format!("{file}.{name}");
            std::fs::write(dir.join(&packed), compress(text.as_bytes())).unwrap();
            let said = run(dir, &["insert", "x.db", &packed]).failed(1);
            assert!(
                said.contains(&format!("{packed}:1: it is a text")),
                "{said}"
            );
        }
        std::fs::remove_dir_all(dir.join("x.db")).unwrap();
    }
}

#[test]
fn compressed_files_have_the_same_numbered_keys_as_plain_files() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    for name in ["a", "b"] {
        data(&dir.join("x.npy"), 7, 3, 2);
        let bytes = gzip(&std::fs::read(dir.join("x.npy")).unwrap());
        std::fs::write(dir.join(format!("{name}.npy.gz")), bytes).unwrap();
    }
    run(dir, &["insert", "x.db", "a.npy.gz", "b.npy.gz"]).ok();
    run(dir, &["get", "x.db", "a:0", "b:2"]).ok();
}

#[test]
fn damaged_or_truncated_input_is_an_error_and_the_rows_before_it_are_kept() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    // Enough rows that some are read before the missing end is noticed.
    let rows = lines(0..60_000);
    for (name, bytes) in [
        ("x.jsonl.gz", gzip(rows.as_bytes())),
        ("x.jsonl.zst", zst(rows.as_bytes())),
    ] {
        std::fs::write(dir.join(name), &bytes[..bytes.len() - 3]).unwrap();
        for flags in [&[][..], &["--skip-bad"]] {
            let said = run(dir, &[&["insert", "x.db", name], flags].concat()).failed(1);
            assert!(said.contains(&format!("reading {name}: the ")), "{said}");
            assert!(
                said.contains("data ends too early; is the copy complete?"),
                "{said}"
            );
            assert!(said.contains("durably, and then stopped"), "{said}");
        }
        let kept = run(dir, &["stats", "x.db", "--json"]).json()[0]["rows"]
            .as_u64()
            .unwrap();
        assert!((1..=60_000).contains(&kept), "{kept}");
        let said = run_with(dir, &["insert", "x.db"], &bytes[..bytes.len() / 2]).failed(1);
        assert!(said.contains("reading stdin: the "), "{said}");

        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 0x55;
        std::fs::write(dir.join(name), &damaged).unwrap();
        let said = run(dir, &["insert", "x.db", name]).failed(1);
        assert!(said.contains(name), "{said}");
        std::fs::remove_dir_all(dir.join("x.db")).unwrap();
    }
    data(&dir.join("x.npy"), 7, 5000, 6);
    let bytes = gzip(&std::fs::read(dir.join("x.npy")).unwrap());
    std::fs::write(dir.join("x.npy.gz"), &bytes[..bytes.len() / 2]).unwrap();
    let said = run(dir, &["insert", "x.db", "x.npy.gz"]).failed(1);
    assert!(
        said.contains("x.npy.gz: reading: the gzip data ends too early"),
        "{said}"
    );
    assert_eq!(said.matches("too early").count(), 1, "{said}");
}
