//! The `mopqdb-train` program: learns a new model of a database from pairs. `mopqdb train` runs it.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser as _;
use mopqdb_trainer::flags::Flags;
use mopqdb_trainer::program::{Ending, run};
use mopqdb_trainer::run::Busy;

static STOP: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    if let Some(code) = tame_openmp() {
        return code;
    }
    let flags = Flags::parse();
    // The first Ctrl-C ends the run between two steps; the second ends the program.
    let handler = || {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(1);
        }
        eprintln!("stopping after this step; the last whole epoch is kept");
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        eprintln!("mopqdb-train: warning: Ctrl-C will not stop cleanly: {error}");
    }
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
            eprintln!("mopqdb-train: error: {error:#}");
            ExitCode::from(exit_code(&error))
        }
    }
}

fn print(flags: &Flags, done: &serde_json::Value) {
    if flags.json {
        println!("{done}");
        return;
    }
    let text = |name: &str| done[name].as_str().unwrap_or("").to_owned();
    println!("{}", text("model"));
    let recall = |of: &str| done[of]["10"].as_f64();
    if let Some(recall10) = recall("recall") {
        let whole = recall("unquantized_recall").unwrap_or(0.0);
        eprintln!(
            "{}: validation recall@10 {recall10:.4} (un-quantized {whole:.4})",
            text("method")
        );
    }
    let next = match &flags.out {
        Some(out) => format!("the bundle is in {}", out.display()),
        None => format!("`mopqdb rebuild {}` switches to it", flags.db.display()),
    };
    eprintln!("{next}; the log and the plot are in {}", text("run"));
}

/// By what a caller can do: see the command line's page.
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

/// libgomp reads its environment as it is loaded, before `main`: idle threads that spin cost others ten times the work
/// on a busy machine. So the program starts itself once more with waiting that sleeps, unless somebody has said how.
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
        // Comes back only when it could not be done; then we go on as we are.
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
