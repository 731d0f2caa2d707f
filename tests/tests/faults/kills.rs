//! `kill -9` of a real process, repeatedly, while it inserts, deletes, seals, compacts and rebuilds.
//!
//! The test runs itself as a child, which continues a script from the state of the database and writes to a pipe what
//! was acknowledged. The parent kills it at a random moment, or when it reaches a named place (where it reports that
//! and waits), and opens the database.

use crate::world::{Models, Step, World, open, options, script};
use crate::{Case, report, torture};
use mopqdb::{Database, Reader};
use mopqdb_tests::support::Random;
use mopqdb_tests::watched::{Call, Watched, Watcher};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SEED: u64 = 701;
const STEPS: usize = 4000;

/// The part of the engine that makes a call to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// A batch is written to the log.
    Log,
    /// Files of a segment are written.
    Seal,
    /// A version is committed: deletion files and manifest.
    Commit,
    /// Codes under another model are staged and adopted.
    Switch,
    /// Files that the version no longer needs are removed.
    Retire,
}

const PLACES: [Place; 5] = [
    Place::Log,
    Place::Seal,
    Place::Commit,
    Place::Switch,
    Place::Retire,
];

fn place(call: &Call<'_>) -> Option<Place> {
    let path = call.path().to_string_lossy();
    let renamed_from = match call {
        Call::Rename(from, _) => from.to_string_lossy(),
        _ => "".into(),
    };
    Some(match call {
        Call::Look(_) => return None,
        _ if path.contains("/staging") || renamed_from.contains("/staging") => Place::Switch,
        Call::Remove(_) if path.ends_with(".tmp") => return None,
        Call::Remove(_) => Place::Retire,
        _ if path.contains("/logs") => Place::Log,
        _ if path.contains("MANIFEST-") || path.contains(".del") => Place::Commit,
        _ if path.contains("/segments") => Place::Seal,
        _ => return None,
    })
}

/// Tracks where the process is. At the nth call of a place it reports that and waits to be killed.
#[derive(Debug)]
struct Stopping {
    wanted: Option<Place>,
    left: AtomicUsize,
}

impl Watcher for Stopping {
    fn before(&self, call: &Call<'_>) -> io::Result<usize> {
        let place = place(call);
        if place.is_some() && place == self.wanted && self.left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            say(&format!("AT {call:?}"));
            loop {
                std::thread::sleep(Duration::from_secs(60));
            }
        }
        if let Some(place) = place {
            say(&format!("IN {place:?}"));
        }
        Ok(call.bytes())
    }

    fn after(&self, call: &Call<'_>, _done: bool) {
        if place(call).is_some() {
            say("OUT");
        }
    }
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    // One write, so that a kill leaves the whole line or nothing. If the parent has gone, the child ends too.
    let _ = out.write_all(format!("\n#{line}\n").as_bytes());
    let _ = out.flush();
}

/// The child process. Under `cargo test` it does nothing.
#[test]
fn child() {
    let Ok(path) = std::env::var("MOPQDB_CHILD_DIR") else {
        return;
    };
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let wanted = std::env::var("MOPQDB_CHILD_STOP").ok().map(|name| {
        *PLACES
            .iter()
            .find(|place| format!("{place:?}") == name)
            .unwrap()
    });
    let watcher = Stopping {
        wanted,
        left: AtomicUsize::new(number("MOPQDB_CHILD_NTH")),
    };
    let files = Watched::disk(Arc::new(watcher));
    let models = Models::open(Path::new(&std::env::var("MOPQDB_CHILD_MODELS").unwrap()));
    let path = Path::new(&path);
    let mut db = Some(open(&files, path).unwrap());
    let first = number("MOPQDB_CHILD_FIRST");
    for (at, step) in script(SEED, STEPS).iter().enumerate().skip(first) {
        if let Step::Reopen = step {
            drop(db.take());
            db = Some(open(&files, path).unwrap());
        } else {
            models.run(db.as_ref().unwrap(), step).unwrap();
        }
        say(&format!("ACK {at}"));
    }
}

/// How a child ended: the first step that it did not acknowledge, and where it was.
struct Killed {
    next: usize,
    at: Option<Place>,
    stopped: bool,
}

fn kill_one(
    path: &Path,
    models: &Path,
    first: usize,
    stop: Option<(Place, usize)>,
    after: Duration,
) -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "kills::child", "--nocapture", "--test-threads=1"])
        .env("MOPQDB_CHILD_DIR", path)
        .env("MOPQDB_CHILD_MODELS", models)
        .env("MOPQDB_CHILD_FIRST", first.to_string())
        .env(
            "MOPQDB_CHILD_NTH",
            stop.map_or(0, |(_, nth)| nth).to_string(),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    match stop {
        Some((place, _)) => command.env("MOPQDB_CHILD_STOP", format!("{place:?}")),
        None => command.env_remove("MOPQDB_CHILD_STOP"),
    };
    let mut child = command.spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let errors = BufReader::new(child.stderr.take().unwrap());
    let errors = std::thread::spawn(move || io::read_to_string(errors).unwrap_or_default());
    let (lines, received) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
    });
    let deadline = Instant::now() + after;
    let mut killed = Killed {
        next: first,
        at: None,
        stopped: false,
    };
    let mut alive = true;
    loop {
        let wait = deadline.saturating_duration_since(Instant::now());
        let line = if alive {
            received.recv_timeout(wait).ok()
        } else {
            received.recv().ok()
        };
        match line.as_deref().and_then(|line| line.strip_prefix('#')) {
            Some(line) if line.starts_with("AT ") => {
                killed.stopped = true;
                killed.at = stop.map(|(place, _)| place);
            }
            Some("OUT") => killed.at = None,
            Some(line) => {
                if let Some(place) = line.strip_prefix("IN ") {
                    killed.at = PLACES.iter().copied().find(|p| format!("{p:?}") == place);
                } else if let Some(at) = line.strip_prefix("ACK ") {
                    killed.next = at.parse::<usize>().unwrap() + 1;
                }
            }
            None if line.is_some() => {}
            None if !alive => break,
            None => {}
        }
        if alive && (killed.stopped || Instant::now() >= deadline) {
            child.kill().unwrap();
            alive = false;
        }
    }
    reader.join().unwrap();
    let status = child.wait().unwrap();
    let errors = errors.join().unwrap();
    assert!(
        status.code().is_none() && !errors.contains("panicked"),
        "the child ended by itself: {status}\n{errors}"
    );
    killed
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    // On a real disk: only a process is killed here, and the kernel keeps what it wrote.
    let dir = tempfile::tempdir().unwrap();
    let bundles = dir.path().join("bundles");
    std::fs::create_dir(&bundles).unwrap();
    let models = Models::train(&bundles);
    let path = dir.path().join("db");
    models.create(&path);
    let script = script(SEED, STEPS);
    let mut random = Random::new(SEED + 1);
    let mut world = World::default();
    let mut first = 0;
    let mut fell: BTreeMap<Option<Place>, usize> = BTreeMap::new();
    let kills = if torture() { 1000 } else { 50 };
    let mut acknowledged = 0;
    for n in 0..kills {
        if first + 200 > STEPS {
            // The script has ended: start again with an empty database.
            std::fs::remove_dir_all(&path).unwrap();
            models.create(&path);
            (first, world) = (0, World::default());
        }
        // Two in three kills are at a named place, each in turn; the others at a random moment.
        let turn = n - n / 3;
        let stop = (n % 3 != 0).then(|| (PLACES[turn % PLACES.len()], 1 + random.below(12)));
        let patience = match stop {
            Some(_) => Duration::from_secs(20),
            None => Duration::from_millis(60 + random.below(300) as u64),
        };
        let _case = Case(format!("kill {n}, from step {first}, stop {stop:?}"));
        let killed = kill_one(&path, &bundles, first, stop, patience);
        *fell.entry(killed.at).or_default() += 1;
        acknowledged += killed.next - first;
        for step in &script[first..killed.next] {
            world = world.after(step);
        }
        let worlds = [world.clone(), world.after(&script[killed.next])];
        let reader = Reader::open(&path, options()).unwrap();
        models.check(&reader.snapshot(), &worlds);
        let db = Database::open(&path, options()).unwrap();
        let which = models.check(&db.snapshot(), &worlds);
        drop(db);
        // A rebuild that was requested and not committed is committed by the next process that opens the database. That
        // happens elsewhere, so that the child starts from any state.
        first = killed.next + which;
        world = worlds[which].clone();
    }
    report(
        kills,
        format_args!("kills, {acknowledged} steps acknowledged, none lost; they fell in {fell:?}"),
    );
    for place in PLACES {
        assert!(
            fell.get(&Some(place)).is_some_and(|&n| n > 0),
            "no kill fell in {place:?}"
        );
    }
}
