//! Small file systems, that can be full or read-only.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of its own, unmounted at the end. None, and said, where this may not mount one.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// Mounts one at a folder, which is made, with options of `mount`: `size=8m`.
    pub fn new(at: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(at)
            .output();
        match mount {
            Ok(done) if done.status.success() => Some(Self(at.into())),
            Ok(done) => {
                eprintln!(
                    "SKIPPED: can't mount a tmpfs here: {}",
                    String::from_utf8_lossy(&done.stderr)
                );
                None
            }
            Err(e) => {
                eprintln!("SKIPPED: no mount here: {e}");
                None
            }
        }
    }

    /// With other options; whether that could be done.
    pub fn remount(&self, options: &str) -> bool {
        let done = Command::new("mount")
            .args(["-o", &format!("remount,{options}")])
            .arg(&self.0)
            .status();
        done.is_ok_and(|status| status.success())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
