//! The promise, tested: one file a kind of fault. Sizes are for every push; `make torture` runs the long ones, by
//! `MOPQDB_TORTURE=1`.

mod backups;
mod bounds;
mod creating;
mod encoders;
mod flips;
mod full_disk;
mod io_errors;
mod kills;
mod limits;
mod links;
mod old_files;
mod power;
mod processes;
mod rebuilds;
mod registering;
mod repairs;
mod seen;
mod stress;
mod world;

/// Whether to run the long sizes.
pub fn torture() -> bool {
    std::env::var_os("MOPQDB_TORTURE").is_some_and(|value| value != "0")
}

/// A directory for databases that come and go, in memory where the machine has it: a sync to a real disk proves nothing
/// here, since what a power cut leaves is worked out from the recording.
pub fn scratch() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir()
        && let Ok(dir) = tempfile::tempdir_in(memory)
    {
        return dir;
    }
    tempfile::tempdir().unwrap()
}

/// Tells how many faults were tried and survived, on a line that `make torture` gathers.
pub fn report(tried: usize, what: impl std::fmt::Display) {
    println!("\nFAULTS {tried} {what}");
}

/// Says which case it was, if it fails.
pub struct Case(pub String);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the case: {}", self.0);
        }
    }
}
