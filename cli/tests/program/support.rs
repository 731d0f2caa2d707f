//! Runs the `mopqdb` program as a user would, with data for it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Returns the program that cargo has built for these tests.
pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_mopqdb"))
}

/// The output of a run and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit code; -1 if it was killed.
    pub(crate) code: i32,
    /// Results, from stdout.
    pub(crate) out: String,
    /// Messages, from stderr.
    pub(crate) err: String,
}

impl Ran {
    /// Returns its results if it succeeded.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "it failed: {}{}", self.out, self.err);
        self.out
    }

    /// Returns its messages if it ended with this code.
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(
            self.code, code,
            "it ended differently: {}{}",
            self.out, self.err
        );
        self.err
    }

    /// Returns its results, one JSON object per line.
    pub(crate) fn json(self) -> Vec<serde_json::Value> {
        let out = self.ok();
        out.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
            .collect()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).expect("results are UTF-8"),
            err: String::from_utf8(output.stderr).expect("messages are UTF-8"),
        }
    }
}

/// Runs `mopqdb` in a directory.
pub(crate) fn run(dir: &Path, arguments: &[&str]) -> Ran {
    run_with(dir, arguments, "")
}

/// Runs `mopqdb` with this standard input.
pub(crate) fn run_with(dir: &Path, arguments: &[&str], input: impl AsRef<[u8]>) -> Ran {
    let mut child = Command::new(program())
        .args(arguments)
        .current_dir(dir)
        .env_remove("MOPQDB_THREADS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("it was piped");
    let input = input.as_ref().to_owned();
    // The program may end before it has read everything.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("it ends");
    feeding.join().expect("feeding does not panic");
    output.into()
}

/// Returns seeded numbers in [-1, 1).
pub(crate) fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (0..count)
        .map(|_| (next() >> 40) as f32 / (1 << 23) as f32 - 1.0)
        .collect()
}

/// Writes a file of seeded vectors, and returns them.
pub(crate) fn data(path: &Path, seed: u64, rows: usize, dim: usize) -> Vec<f32> {
    let values = numbers(seed, rows * dim);
    let mut writer =
        mopqdb_formats::vectors::VectorWriter::create(path, dim).expect("the file can be made");
    writer.write(&values).expect("it can be written");
    writer.finish().expect("it can be synced");
    values
}
