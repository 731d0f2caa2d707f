//! Tests of the guarantees, one file per kind of fault. The default sizes are for every push; `make torture` runs the
//! long ones with `MOPQDB_TORTURE=1`.

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

/// Returns `true` if the long sizes are requested.
pub fn torture() -> bool {
    std::env::var_os("MOPQDB_TORTURE").is_some_and(|value| value != "0")
}

/// Returns a directory for short-lived databases, in memory if possible: a sync to a real disk proves nothing here,
/// since the effects of a power cut are computed from the recording.
pub fn scratch() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir()
        && let Ok(dir) = tempfile::tempdir_in(memory)
    {
        return dir;
    }
    tempfile::tempdir().unwrap()
}

/// Prints how many faults were tried and survived, on a line that `make torture` collects.
pub fn report(tried: usize, what: impl std::fmt::Display) {
    println!("\nFAULTS {tried} {what}");
}

/// Prints the case if the test fails in it.
pub struct Case(pub String);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the case: {}", self.0);
        }
    }
}
