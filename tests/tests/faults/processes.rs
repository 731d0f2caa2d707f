//! Readers in processes of their own. The test runs itself as a child, which refreshes and queries whenever it is told
//! to, and prints what it found. Only the parent knows what was acknowledged before.

use crate::world::{DIM, options};
use mopqdb::{Reader, Snapshot, Value};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Returns the first value of each row that a query finds, by key. Each row must occur once.
pub fn first_values(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let hits = snapshot.query(&[1.0; DIM][..], 1000).unwrap();
    let mut found = BTreeMap::new();
    for hit in &hits {
        let row = snapshot.get(&hit.key).unwrap();
        let Some(Value::Vector(vector)) = row.map(|row| row.value) else {
            panic!("{} was found, but does not exist", hit.key)
        };
        let again = found.insert(hit.key.clone(), vector[0] as u64);
        assert!(again.is_none(), "{} twice", hit.key);
    }
    found
}

/// The child process. Under `cargo test` it does nothing.
#[test]
fn child() {
    let Ok(path) = std::env::var("MOPQDB_READER_DIR") else {
        return;
    };
    let reader = Reader::open(&path, options()).unwrap();
    let mut old = None;
    for (n, line) in std::io::stdin().lines().enumerate() {
        let _told = line.unwrap();
        reader.refresh().unwrap();
        let snapshot = reader.snapshot();
        let found = first_values(&snapshot);
        // A snapshot that is held stays unchanged, whatever another process retires.
        let (held, then) = old.get_or_insert_with(|| (snapshot, found.clone()));
        assert_eq!(first_values(held), *then, "a snapshot stays as it was");
        if n % 20 == 19 {
            old = None;
        }
        let words: Vec<_> = found.iter().map(|(key, n)| format!("{key}={n}")).collect();
        let mut out = std::io::stdout().lock();
        out.write_all(format!("\n#FOUND {}\n", words.join(" ")).as_bytes())
            .unwrap();
        out.flush().unwrap();
    }
}

/// A reader in another process.
pub struct ReaderProcess {
    child: Child,
    told: Option<ChildStdin>,
    says: BufReader<ChildStdout>,
}

impl ReaderProcess {
    pub fn start(path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "processes::child",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("MOPQDB_READER_DIR", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let told = child.stdin.take();
        let says = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, told, says }
    }

    /// Returns what it finds now.
    pub fn ask(&mut self) -> BTreeMap<String, u64> {
        let told = self.told.as_mut().expect("open until the end");
        told.write_all(b"look\n").expect("the reader is alive");
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.says.read_line(&mut line).unwrap();
            assert!(read > 0, "the reading process ended by itself");
            if let Some(found) = line.strip_prefix("#FOUND") {
                let words = found.split_whitespace();
                let pairs = words.map(|word| word.split_once('=').expect("key=number"));
                return pairs
                    .map(|(key, n)| (key.to_owned(), n.parse().unwrap()))
                    .collect();
            }
        }
    }

    /// Ends it, and checks that it ended without an error.
    pub fn end(mut self) {
        drop(self.told.take());
        std::io::copy(&mut self.says, &mut std::io::sink()).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}
