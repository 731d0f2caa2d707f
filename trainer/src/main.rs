//! The `mopqdb-train` program: learns a new model of a database from pairs. `mopqdb train` runs it.

use std::io::Read as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use clap::Parser as _;
use mopqdb_trainer::program::{Busy, Ending, Flags, lines, run};

static STOP: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    if let Some(code) = tame_openmp() {
        return code;
    }
    let flags = Flags::parse();
    // The first Ctrl-C ends the run after a step; the second ends the program.
    let signals = AtomicUsize::new(0);
    let handler = move || {
        if signals.fetch_add(1, Ordering::Relaxed) > 0 {
            std::process::exit(130);
        }
        stop();
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        eprintln!("mopqdb-train: warning: Ctrl-C will not stop cleanly: {error}");
    }
    stop_with_the_parent();
    match run(&flags, &STOP) {
        Ok(Ending::Model(done)) => {
            print(&flags, &done);
            ExitCode::SUCCESS
        }
        Ok(Ending::Stopped(words)) => {
            eprintln!("mopqdb-train: {words}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("mopqdb-train: {error:#}");
            ExitCode::from(exit_code(&error))
        }
    }
}

/// Asks the run to end between two steps.
fn stop() {
    if !STOP.swap(true, Ordering::Relaxed) {
        eprintln!("stopping after this step; the last complete epoch is kept");
    }
}

/// `mopqdb train` holds the other end of our standard input, and sets this variable. It closes the pipe to stop this process;
/// the system closes it if that process dies.
fn stop_with_the_parent() {
    if std::env::var_os("MOPQDB_TRAIN_STOP_AT_EOF").is_none() {
        return;
    }
    let watch = || {
        // Nothing is written to the pipe, so this returns when it is closed.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop();
    };
    if let Err(error) = std::thread::Builder::new()
        .name("parent".into())
        .spawn(watch)
    {
        eprintln!("mopqdb-train: warning: it will not stop when mopqdb stops: {error}");
    }
}

fn print(flags: &Flags, done: &serde_json::Value) {
    if flags.json {
        println!("{done}");
        return;
    }
    let text = |name: &str| done[name].as_str().unwrap_or("").to_owned();
    println!("{}", text("model"));
    for line in lines(done) {
        eprintln!("{line}");
    }
    let next = match &flags.out {
        Some(out) => format!("the bundle is in {}", out.display()),
        None => format!("`mopqdb rebuild {}` switches to it", flags.db.display()),
    };
    match done["run"].as_str() {
        Some(run) => eprintln!("{next}; the log and the plot are in {run}"),
        None => eprintln!("{next}"),
    }
}

/// Returns the exit code for an error, by what a caller can do about it: see docs/cli.
fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<Busy>() {
        return 4;
    }
    match error.downcast_ref::<mopqdb::Error>() {
        Some(mopqdb::Error::Corrupt(_)) => 3,
        Some(mopqdb::Error::Locked { .. }) => 4,
        Some(mopqdb::Error::Missing { .. }) => 5,
        _ => 1,
    }
}

/// Makes idle OpenMP threads sleep instead of spin, unless the user has set a policy. libgomp reads its environment when it
/// is loaded, before `main`, so the program restarts itself. On a busy machine spinning costs ten times the work.
fn tame_openmp() -> Option<ExitCode> {
    const ONCE: &str = "MOPQDB_TRAIN_STARTED";
    if std::env::var_os(ONCE).is_some() || std::env::var_os("OMP_WAIT_POLICY").is_some() {
        return None;
    }
    let program = std::env::current_exe().ok()?;
    let mut again = std::process::Command::new(program);
    again
        .args(std::env::args_os().skip(1))
        .env(ONCE, "1")
        .env("OMP_WAIT_POLICY", "PASSIVE")
        .env("GOMP_SPINCOUNT", "0");
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt as _;
        // `exec` returns only if it failed; this process then continues.
        let _ = again.exec();
        None
    }
    #[cfg(not(unix))]
    {
        let status = again.status().ok()?;
        Some(ExitCode::from(
            status
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(1),
        ))
    }
}
