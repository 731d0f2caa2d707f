//! Writing a file under a temporary name, which is synced and then renamed.

use crate::disk::files::{Files, NewFile, temporary};
use crate::format::{Check, ContainerWriter, Kind, Section, Written};
use crate::{Error, Result};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A container that is written to a temporary file, which is removed if the value is dropped before `finish`.
pub(super) struct Output {
    files: Arc<dyn Files>,
    path: PathBuf,
    tmp: PathBuf,
    /// `None` once finished.
    writer: Option<ContainerWriter<Box<dyn NewFile>>>,
}

impl Output {
    pub(super) fn create(files: Arc<dyn Files>, path: &Path, kind: Kind) -> Result<Self> {
        let tmp = temporary(path);
        let writer =
            create_replacing(&*files, &tmp).and_then(|file| ContainerWriter::new(file, kind));
        let writer = writer.map_err(Error::io("creating", &tmp))?;
        Ok(Self {
            files,
            path: path.to_path_buf(),
            tmp,
            writer: Some(writer),
        })
    }

    /// Returns the final path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn begin(&mut self, section: Section, check: Check) -> Result<()> {
        self.writing(|writer| writer.begin(section, check))
    }

    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.writing(|writer| writer.write(bytes))
    }

    pub(super) fn section(&mut self, section: Section, check: Check, bytes: &[u8]) -> Result<()> {
        self.writing(|writer| writer.section(section, check, bytes))
    }

    /// Returns the number of bytes written to the current section.
    pub(super) fn section_len(&self) -> u64 {
        self.writer.as_ref().map_or(0, ContainerWriter::section_len)
    }

    /// Syncs the file, then renames it to its final name. The caller syncs the directory.
    pub(super) fn finish(mut self) -> Result<Written> {
        let writer = self.writer.take().expect("finish consumes the output");
        let synced = writer.finish().and_then(|(mut file, written)| {
            file.read_only()?;
            file.sync()?;
            Ok(written)
        });
        let renamed = synced
            .map_err(Error::io("writing", &self.tmp))
            .and_then(|written| {
                (self.files.rename(&self.tmp, &self.path))
                    .map_err(Error::io("naming", &self.path))?;
                Ok(written)
            });
        if renamed.is_err() {
            // The first error is returned. If removing the temporary file fails, the next open removes it.
            let _ = self.files.remove(&self.tmp);
        }
        renamed
    }

    #[inline]
    fn writing(
        &mut self,
        write: impl FnOnce(&mut ContainerWriter<Box<dyn NewFile>>) -> io::Result<()>,
    ) -> Result<()> {
        let writer = self.writer.as_mut().expect("finish consumes the output");
        write(writer).map_err(|error| Error::io("writing", &self.tmp)(error))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            let _ = self.files.remove(&self.tmp);
        }
    }
}

/// A byte buffer that is moved to a temporary file when it becomes large.
pub(super) struct Spill {
    files: Arc<dyn Files>,
    path: PathBuf,
    memory: Vec<u8>,
    file: Option<Box<dyn NewFile>>,
    len: u64,
}

impl Spill {
    /// The most memory that a buffer uses.
    const MEMORY: usize = 1 << 20;

    /// Creates an empty buffer, whose file will be named after `path`.
    pub(super) fn new(files: Arc<dyn Files>, path: &Path, what: &str) -> Self {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{what}"));
        Self {
            files,
            path: temporary(&path.with_file_name(name)),
            memory: Vec::new(),
            file: None,
            len: 0,
        }
    }

    /// Returns the number of bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.memory.extend_from_slice(bytes);
        self.len += bytes.len() as u64;
        if self.memory.len() >= Self::MEMORY {
            self.write_out()?;
        }
        Ok(())
    }

    /// Calls `each` with all bytes, in order and in pieces.
    pub(super) fn drain(mut self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if self.file.is_none() {
            return each(&self.memory);
        }
        self.write_out()?;
        let spilled = (self.files.map(&self.path)).map_err(Error::io("reading", &self.path))?;
        if spilled.len() as u64 != self.len {
            let found = format!("{} of {} bytes were read back", spilled.len(), self.len);
            return Err(Error::io("reading", &self.path)(io::Error::other(found)));
        }
        spilled.chunks(Self::MEMORY).try_for_each(&mut each)
    }

    fn write_out(&mut self) -> Result<()> {
        let mut write = || {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(create_replacing(&*self.files, &self.path)?),
            };
            file.write_all(&self.memory)
        };
        write().map_err(Error::io("writing", &self.path))?;
        self.memory.clear();
        Ok(())
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _ = self.files.remove(&self.path);
        }
    }
}

/// Creates a temporary file, replacing one that a killed process left.
fn create_replacing(files: &dyn Files, tmp: &Path) -> io::Result<Box<dyn NewFile>> {
    match files.remove(tmp) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => files.create(tmp),
    }
}
