//! Lines of rows and pairs, as the program reads them.

use super::Scratch;
use mopqdb::Value;
use mopqdb_cli::rows::pairs::{Columns, groups};
use mopqdb_cli::rows::{Fields, Format, Input, KeyFile, Lines, Source, open};
use std::io::BufReader;

/// A file of rows or pairs: the first byte selects the format.
pub fn lines(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else {
        return;
    };
    let dir = Scratch::dir();
    let path = dir.file("rows", bytes);
    match kind % 6 {
        kind @ 0..3 => {
            let format = [Format::Jsonl, Format::Tsv, Format::Txt][usize::from(kind)];
            let source = Source::File(path);
            rows(&Input { source, format }, bytes);
        }
        3 => {
            let columns = Columns {
                key_ids: bytes.len().is_multiple_of(2),
                queries: None,
                skip_missing: false,
            };
            for ask in columns.read(&path).into_iter().flat_map(|read| read.asks) {
                assert!(!ask.right.is_empty() && !ask.right.contains(""));
            }
        }
        4 => drop(groups(&path)),
        _ => {
            let mut keys = KeyFile::open(&path).unwrap();
            while let Ok(Ok(key)) = keys.next_key("a row") {
                assert!(!key.is_empty());
            }
            let _ = keys.expect_end();
        }
    }
}

fn rows(input: &Input, bytes: &[u8]) {
    let newlines = bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
    let mut reader = open(input, false, &Fields::default()).unwrap();
    let (mut read, mut bad) = (0, 0);
    // Compressed bytes may be damaged, and may expand to more.
    let compressed = matches!(
        bytes,
        [0x1f, 0x8b, ..] | [0x28, 0xb5, ..] | [0x50..=0x5f, 0x2a, ..]
    );
    loop {
        let row = match reader.next_row() {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(error) => {
                assert!(compressed, "the file exists: {error:#}");
                return;
            }
        };
        match row {
            Ok(row) => {
                read += 1;
                // The engine accepts every row that the reader accepts.
                assert!(!row.row.key.is_empty() && row.row.key.len() <= mopqdb::MAX_KEY);
                match &row.row.value {
                    Value::Text(text) => assert!(compressed || text.len() <= bytes.len()),
                    Value::Vector(vector) => {
                        assert!(!vector.is_empty() && vector.iter().all(|x| x.is_finite()));
                    }
                }
            }
            Err(wrong) => {
                bad += 1;
                assert!(!wrong.what.is_empty() && wrong.place.contains("rows:"));
            }
        }
    }
    assert!(
        compressed || read + bad <= newlines + 1,
        "one row per line at most"
    );
    // With a low limit, lines that are too long are reported, and the others are the same.
    let source = BufReader::with_capacity(7, std::io::Cursor::new(bytes.to_vec()));
    let mut capped = Lines::with_longest("rows", Box::new(source), 16);
    let mut seen = 0;
    while let Some(line) = capped.read().expect("no disk") {
        seen += 1;
        if let Ok(line) = line {
            assert!(line.len() <= 16 && !line.contains('\n'));
        }
    }
    assert!(seen == newlines || seen == newlines + 1);
}
