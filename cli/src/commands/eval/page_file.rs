//! The HTML file of the report: opened before the evaluation, written after it.

use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A writable file. Its old contents stay until there is a new page.
pub(super) struct PageFile {
    path: PathBuf,
    file: File,
    /// Whether the file was created; it is then removed if no page is written.
    made: bool,
}

impl PageFile {
    /// Opens the file, or returns an error if it can't be written.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let open = |make| {
            let mut options = OpenOptions::new();
            options.write(true).create_new(make).open(path)
        };
        let (file, made) = match open(true) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => (open(false), false),
            made => (made, true),
        };
        let file = file.with_context(|| format!("--html: opening {}", path.display()))?;
        let path = path.to_path_buf();
        Ok(Self { path, file, made })
    }

    /// Replaces the contents of the file by the page. Returns its path.
    pub(super) fn write(mut self, page: &str) -> Result<PathBuf> {
        self.replace(page)
            .with_context(|| format!("writing {}", self.path.display()))?;
        self.made = false;
        Ok(self.path.clone())
    }

    fn replace(&mut self, page: &str) -> std::io::Result<()> {
        // A pipe or a device (`--html /dev/stdout`) has no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(page.as_bytes())
    }
}

impl Drop for PageFile {
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
