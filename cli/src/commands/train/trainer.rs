//! Running `mopqdb-train`: a program of its own, so that this one links no libtorch.

use super::{Method, Train};
use crate::exit::Child;
use crate::settings::Settings;
use crate::stop;
use anyhow::{Context, Result};
use mopqdb::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

const NAME: &str = if cfg!(windows) {
    "mopqdb-train.exe"
} else {
    "mopqdb-train"
};

/// Runs the trainer with our terminal and returns its exit status.
pub(super) fn run(train: &Train, method: Option<Method>, settings: &Settings) -> Result<()> {
    let program = find()?;
    let status = wait_for(&program, arguments(train, method, settings))
        .with_context(|| format!("running {}", program.display()))?;
    match status.code() {
        Some(0) => Ok(()),
        // It has reported the error on stderr, and uses the same exit codes.
        Some(code) => Err(Child(u8::try_from(code).unwrap_or(1)).into()),
        None if stop::counted() > 1 => Err(Child(130).into()),
        None => anyhow::bail!(
            "{} was killed; run the same command again to continue",
            program.display()
        ),
    }
}

/// Runs the trainer to its end. The first signal asks it to stop after its step, the second ends it.
///
/// It is asked by closing its standard input, not by a signal: a Ctrl-C of the terminal reaches it too, and a signal of
/// ours on top would be its second. If this process is killed, the system closes the pipe, and the trainer stops.
fn wait_for(program: &Path, arguments: Vec<OsString>) -> std::io::Result<ExitStatus> {
    stop::count();
    let mut command = Command::new(program);
    // If pairs are piped to the trainer, it needs its standard input.
    if !arguments.iter().any(is_stdin) {
        command
            .stdin(Stdio::piped())
            .env("MOPQDB_TRAIN_STOP_AT_EOF", "1");
    }
    let mut child = command.args(arguments).spawn()?;
    let mut lifeline = child.stdin.take();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match stop::counted() {
            0 => {}
            1 => drop(lifeline.take()),
            _ => child.kill()?,
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_stdin(argument: &OsString) -> bool {
    ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"]
        .iter()
        .any(|name| argument == name)
}

/// Finds the trainer next to this program or on PATH.
pub(super) fn find() -> Result<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.join(NAME)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join(NAME));
    beside.into_iter().chain(on_path).find(|program| program.is_file()).ok_or_else(|| {
        Error::Missing {
            what: format!("{NAME} is neither next to mopqdb nor on PATH"),
            remedy: "build it in the sources: `make setup` fetches libtorch, `cargo build --package mopqdb-trainer` builds it, or train without pairs: `mopqdb train DB --method opq`".into(),
        }
        .into()
    })
}

fn arguments(train: &Train, method: Option<Method>, settings: &Settings) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec![train.db.clone().into()];
    let mut add = |flag: &str, value: Option<OsString>| {
        if let Some(value) = value {
            arguments.push(flag.into());
            arguments.push(value);
        }
    };
    let path = |path: &Option<PathBuf>| path.as_deref().map(Path::as_os_str).map(Into::into);
    let number = |number: Option<usize>| number.map(|number| number.to_string().into());
    add("--pairs", path(&train.pairs));
    add("--query-log", path(&train.query_log));
    add("--valid", path(&train.valid));
    add("--queries", path(&train.columns.queries));
    add("--html", path(&train.html));
    add("--config", path(&train.config));
    add("--only", train.only.map(|_| "scorer".into()));
    add("--method", method.map(|method| method.name().into()));
    add("--sampling", train.sampling.as_deref().map(Into::into));
    add("--devices", train.devices.as_deref().map(Into::into));
    add("--select", train.select.as_deref().map(Into::into));
    add("--subspaces", number(train.subspaces));
    add("--codewords", number(train.codewords));
    add("--dim", number(train.dim));
    add("--epochs", number(train.epochs));
    add("--batch", number(train.batch));
    add("--lr", train.lr.map(|rate| rate.to_string().into()));
    add("--seed", train.seed.map(|seed| seed.to_string().into()));
    add(
        "--threads",
        number(Some(settings.threads).filter(|threads| *threads > 0)),
    );
    for (flag, given) in [
        ("--key-ids", train.columns.key_ids),
        ("--skip-missing", train.columns.skip_missing),
        ("--joint", train.joint),
        ("--fresh", train.fresh),
        ("--json", settings.json),
    ] {
        if given {
            arguments.push(flag.into());
        }
    }
    arguments.extend(train.more.iter().map(Into::into));
    arguments
}
