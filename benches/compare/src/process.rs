//! The resources that this process has used, and the size of files.

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::Path;

/// Returns the CPU seconds of all threads.
pub fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the resident memory in bytes.
pub fn resident() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kb: f64 = kb.context("VmRSS in /proc/self/status")?.trim().parse()?;
    Ok(kb * 1024.0)
}

/// Returns the total size of all files below a folder.
pub fn disk(dir: &Path) -> Result<u64> {
    for_each_file(dir, &mut |path| Ok(fs::metadata(path)?.len()))
}

/// Reads all files below a folder, so that they are in the page cache, however long ago they were written.
pub fn warm(dir: &Path) -> Result<u64> {
    for_each_file(dir, &mut |path| {
        std::io::copy(&mut fs::File::open(path)?, &mut std::io::sink())
    })
}

fn for_each_file(dir: &Path, of: &mut dyn FnMut(&Path) -> std::io::Result<u64>) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        sum += match path.is_dir() {
            true => for_each_file(&path, of)?,
            false => of(&path).with_context(|| path.display().to_string())?,
        };
    }
    Ok(sum)
}
