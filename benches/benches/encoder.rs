//! The encoder: its speed compared with a plain Python script on the same texts and threads, the time to the first
//! vector, the effect of batching, and memory over a million texts.
//!
//! `cargo bench -p mopqdb-benches --bench encoder -- speed [TEXTS] | first | tolerance | soak [TEXTS] [--bundle DIR]`.
//! The Python peer runs if `MOPQDB_PEER_PYTHON` names an interpreter with onnxruntime, tokenizers and numpy.

use anyhow::{Context as _, Result};
use mopqdb::bundle::{Bundle, tiny_bundle};
use mopqdb::encoder::{Encoder, EncoderOptions, default_bundle};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

fn main() -> Result<()> {
    match run() {
        Err(error) if matches!(error.downcast_ref(), Some(mopqdb::Error::Missing { .. })) => {
            eprintln!("SKIPPED the encoder bench: {error}");
            Ok(())
        }
        other => other,
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let number = args.iter().find_map(|arg| arg.parse::<usize>().ok());
    let bundle = args
        .iter()
        .position(|arg| arg == "--bundle")
        .and_then(|at| args.get(at + 1))
        .map(PathBuf::from);
    let model =
        |fallback: fn() -> mopqdb::Result<PathBuf>| bundle.clone().map_or_else(fallback, Ok);
    match args.first().map(String::as_str) {
        Some("first") => first(&model(default_bundle)?),
        Some("tolerance") => tolerance(&model(default_bundle)?),
        Some("soak") => soak(&model(|| Ok(tiny_bundle()))?, number.unwrap_or(1_000_000)),
        _ => speed(&model(default_bundle)?, number.unwrap_or(1000)),
    }
}

/// splitmix64: the same texts on every machine.
struct Generator(u64);

impl Generator {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// Returns texts of common words of one or two tokens each.
fn texts(n: usize, words: impl Fn(&mut Generator) -> usize) -> Vec<String> {
    let list: Vec<&str> = include_str!("../../engine/assets/tiny-words.txt")
        .lines()
        .collect();
    let mut generator = Generator(7);
    (0..n)
        .map(|_| {
            let words = words(&mut generator);
            (0..words)
                .map(|_| list[generator.below(list.len())])
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

fn load(dir: &Path, threads: usize) -> Result<std::sync::Arc<dyn Encoder>> {
    let encoder = Bundle::open(dir)?.encoder_with(&EncoderOptions::with_threads(threads))?;
    encoder.context("the bundle has no encoder")
}

fn speed(dir: &Path, n: usize) -> Result<()> {
    // Texts of 13 tokens, special tokens included; and texts of 3 to 190 words, mostly short, as in practice.
    let short = texts(n * 2, |_| 11);
    let mixed = texts(n, |generator| {
        let spread = [3, 6, 12, 24, 48, 95][generator.below(6)];
        spread + generator.below(spread)
    });
    for threads in [1, 2] {
        let encoder = load(dir, threads)?;
        for (name, texts) in [("short, 13 tokens", &short), ("mixed lengths", &mixed)] {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            encoder.encode_keys(&texts[..texts.len() / 4])?;
            let mut best = Seconds::MAX;
            let mut vectors = Vec::new();
            let mut peer = Seconds::MAX;
            // In turns, so that other load affects both. On a busy machine CPU time says more than wall-clock time.
            for _ in 0..3 {
                let started = Seconds::now()?;
                vectors = encoder.encode_keys(&texts)?;
                best = best.min(Seconds::now()?.since(started));
                if let Some(seconds) = run_peer(dir, &texts, threads, &vectors, encoder.dim())? {
                    peer = peer.min(seconds);
                }
            }
            assert!(vectors.iter().all(|value| value.is_finite()));
            let rate = |seconds: f64| texts.len() as f64 / seconds;
            let peer = if peer.wall < f64::MAX {
                format!(
                    "Python {:.0} ({:.0} per CPU-second): {:.2}x in wall-clock time, {:.2}x in CPU time",
                    rate(peer.wall),
                    rate(peer.cpu),
                    peer.wall / best.wall,
                    peer.cpu / best.cpu
                )
            } else {
                "no Python peer (MOPQDB_PEER_PYTHON)".into()
            };
            println!(
                "{name}, {threads} threads: {:.0} texts/s ({:.0} per CPU-second); {peer}",
                rate(best.wall),
                rate(best.cpu)
            );
        }
    }
    Ok(())
}

/// Runs the Python script on the same texts. It compares its vectors with ours before it times itself.
fn run_peer(
    dir: &Path,
    texts: &[&str],
    threads: usize,
    vectors: &[f32],
    dim: usize,
) -> Result<Option<Seconds>> {
    let Some(python) = std::env::var_os("MOPQDB_PEER_PYTHON") else {
        return Ok(None);
    };
    let work = tempfile::tempdir()?;
    std::fs::write(work.path().join("texts.json"), serde_json::to_vec(texts)?)?;
    let bytes: Vec<u8> = vectors
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    std::fs::write(work.path().join("vectors.f32"), bytes)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/encode.py");
    let output = Command::new(python)
        .arg(script)
        .args([dir, work.path()])
        .args([threads.to_string(), dim.to_string()])
        .output()
        .context("running the Python peer")?;
    anyhow::ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let printed = String::from_utf8(output.stdout)?;
    let (wall, cpu) = printed
        .trim()
        .split_once(' ')
        .context("the peer must print two numbers")?;
    Ok(Some(Seconds {
        wall: wall.parse()?,
        cpu: cpu.parse()?,
    }))
}

/// Wall-clock time, and CPU time of all threads of this process.
#[derive(Clone, Copy)]
struct Seconds {
    wall: f64,
    cpu: f64,
}

impl Seconds {
    const MAX: Self = Self {
        wall: f64::MAX,
        cpu: f64::MAX,
    };

    fn now() -> Result<Self> {
        let wall = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)?
            .as_secs_f64();
        let stat = std::fs::read_to_string("/proc/self/stat").context("reading /proc")?;
        // After the name in parentheses, the 12th and 13th fields are ticks in user and system mode, 100 per second.
        let rest = stat.rsplit_once(')').context("no name")?.1;
        let ticks = rest
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(str::parse::<f64>);
        let cpu = ticks.sum::<Result<f64, _>>()? / 100.0;
        Ok(Self { wall, cpu })
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            wall: self.wall - earlier.wall,
            cpu: self.cpu - earlier.cpu,
        }
    }

    fn min(self, other: Self) -> Self {
        Self {
            wall: self.wall.min(other.wall),
            cpu: self.cpu.min(other.cpu),
        }
    }
}

/// Measures the time from opening the bundle to the first vector of a query.
fn first(dir: &Path) -> Result<()> {
    let (started, begun) = (Instant::now(), Seconds::now()?);
    let bundle = Bundle::open(dir)?;
    let opened = started.elapsed();
    let encoder = bundle.encoder()?.context("the bundle has no encoder")?;
    let loaded = started.elapsed();
    encoder.encode_queries(&["split a string at whitespace"])?;
    let answered = started.elapsed();
    let cpu = Seconds::now()?.since(begun).cpu;
    println!(
        "opened {opened:.0?}, loaded {loaded:.0?}, first vector {answered:.0?}; CPU {cpu:.2} s"
    );
    let mut times: Vec<_> = (0..50)
        .map(|_| {
            let started = Instant::now();
            encoder
                .encode_queries(&["split a string at whitespace"])
                .map(|_| started.elapsed())
        })
        .collect::<Result<_, _>>()?;
    times.sort();
    println!(
        "a query of 8 tokens: p50 {:.1?}, p98 {:.1?}",
        times[25], times[49]
    );
    Ok(())
}

/// Measures the largest difference of a value between a text encoded alone and in batches of all lengths.
fn tolerance(dir: &Path) -> Result<()> {
    let encoder = load(dir, 2)?;
    let texts = texts(400, |generator| 1 + generator.below(120));
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let dim = encoder.dim();
    let together = encoder.encode_keys(&texts)?;
    let (mut most, mut least) = (0.0f32, 1.0f64);
    for (text, row) in texts.iter().zip(together.chunks(dim)) {
        let alone = encoder.encode_keys(&[text])?;
        most = alone
            .iter()
            .zip(row)
            .map(|(a, b)| (a - b).abs())
            .fold(most, f32::max);
        let dot = |a: &[f32], b: &[f32]| {
            a.iter()
                .zip(b)
                .map(|(a, b)| f64::from(*a) * f64::from(*b))
                .sum::<f64>()
        };
        least = least.min(dot(&alone, row) / (dot(&alone, &alone) * dot(row, row)).sqrt());
    }
    println!(
        "alone compared with in a batch, {} texts: largest difference {most:.1e}, smallest cosine {least:.8}",
        texts.len()
    );
    Ok(())
}

/// Measures memory over many texts: it must not grow.
fn soak(dir: &Path, n: usize) -> Result<()> {
    let encoder = load(dir, 2)?;
    let started = Instant::now();
    let step = (n / 10).max(1);
    let mut rss = Vec::new();
    for done in (0..n).step_by(step) {
        // Lengths and batch sizes change all the time, as in a long-running program.
        let texts = texts(step, |generator| 1 + generator.below(40));
        for batch in texts.chunks(1 + done % 4097 + 500) {
            let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
            encoder.encode_keys(&batch)?;
        }
        rss.push(resident_mb()?);
        println!(
            "{} texts, {:.0} s, {:.0} MB",
            done + step,
            started.elapsed().as_secs_f64(),
            rss[rss.len() - 1]
        );
    }
    let (early, late) = (rss[rss.len() / 4], rss[rss.len() - 1]);
    println!("from a quarter to the end: {:+.1} MB", late - early);
    anyhow::ensure!(
        late - early < 20.0,
        "memory grew from {early:.0} to {late:.0} MB"
    );
    Ok(())
}

fn resident_mb() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading /proc")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}
