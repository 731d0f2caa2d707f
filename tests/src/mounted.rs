//! Small file systems that can be full or read-only.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system, which is unmounted on drop.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// Mounts a tmpfs at a folder, which is created, with options of `mount` such as `size=8m`. Returns `None`, with a
    /// message, if mounting is not permitted.
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
                eprintln!("SKIPPED: mount is not available here: {e}");
                None
            }
        }
    }

    /// Mounts it again with other options. Returns `true` on success.
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
