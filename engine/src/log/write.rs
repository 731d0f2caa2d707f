//! Appending to a log.

use super::{
    Batch, HEADER_LEN, Kind, MAGIC, MAX_PAYLOAD, RECORD_HEADER_LEN, VERSION, checksum, name,
};
use crate::disk::files::{Files, NewFile};
use crate::error::is_full;
use crate::error::{Error, Result};
use crate::ids::LogId;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A log that is being written. Records are gathered in memory and reach the disk together in [`sync_making_room`](Self::sync_making_room).
pub(crate) struct LogWriter {
    id: LogId,
    path: PathBuf,
    file: Box<dyn NewFile>,
    /// Bytes of the file, synced.
    synced: u64,
    /// Records since the last sync.
    pending: Vec<u8>,
    /// After a failed write or sync nothing is known of the file's end: it takes no more records.
    failed: bool,
}

impl LogWriter {
    /// Starts a log: the file with its header, and its name, are durable when this returns.
    pub(crate) fn create(files: &dyn Files, dir: &Path, id: LogId) -> Result<Self> {
        let path = dir.join(name(id));
        let mut header = Vec::with_capacity(HEADER_LEN);
        header.extend(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend([0; 4]);
        header.extend(id.0.to_le_bytes());
        header.extend([0; 32]);
        header.extend(checksum(id, &header, &[]).to_le_bytes());
        let mut file = files.create(&path).map_err(Error::io("creating", &path))?;
        let written = file
            .write_all(&header)
            .map_err(Error::io("writing", &path))
            .and_then(|()| file.sync().map_err(Error::io("syncing", &path)))
            .and_then(|()| files.sync_dir(dir).map_err(Error::io("syncing", dir)));
        if let Err(e) = written {
            // The file takes space and holds nothing. If removing it fails, it is read as an unfinished
            // creation.
            let _ = files.remove(&path);
            return Err(e);
        }
        Ok(Self {
            id,
            path,
            file,
            synced: HEADER_LEN as u64,
            pending: Vec::new(),
            failed: false,
        })
    }

    /// Returns the id of the log.
    pub(crate) fn id(&self) -> LogId {
        self.id
    }

    /// Returns the bytes of the log, including those not yet synced.
    pub(crate) fn bytes(&self) -> u64 {
        self.synced + self.pending.len() as u64
    }

    /// Adds a batch to what the next [`sync_making_room`](Self::sync_making_room) writes.
    pub(crate) fn append(&mut self, batch: &Batch) -> Result<()> {
        self.record(Kind::Batch, |out| batch.encode(out))
    }

    fn record(&mut self, kind: Kind, payload: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let start = self.pending.len();
        let offset = self.bytes();
        self.pending.extend([0; RECORD_HEADER_LEN]);
        payload(&mut self.pending);
        let len = self.pending.len() - start - RECORD_HEADER_LEN;
        if len > MAX_PAYLOAD {
            self.pending.truncate(start);
            return Err(Error::invalid(format!(
                "a batch of {len} bytes is over the limit of {MAX_PAYLOAD}; insert it in smaller batches"
            )));
        }
        let (header, payload) = self.pending[start..].split_at_mut(RECORD_HEADER_LEN);
        header[0..4].copy_from_slice(&(len as u32).to_le_bytes());
        header[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
        header[8..16].copy_from_slice(&offset.to_le_bytes());
        header[16..24].copy_from_slice(&self.synced.to_le_bytes());
        let sum = checksum(self.id, &header[..24], payload);
        header[24..].copy_from_slice(&sum.to_le_bytes());
        let padded = self.pending.len().next_multiple_of(8);
        self.pending.resize(padded, 0);
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.sync_making_room(|_| false)
    }

    /// Writes and syncs what was appended. One call makes a whole group of batches durable. If the disk is full,
    /// `make_room` is called with the number of bytes that are still to be written; if it returns `true`, the write
    /// continues where it stopped.
    pub(crate) fn sync_making_room(
        &mut self,
        mut make_room: impl FnMut(usize) -> bool,
    ) -> Result<()> {
        if self.failed {
            return Err(Error::OutcomeUnknown(format!(
                "{}: an earlier write failed",
                self.path.display()
            )));
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        // Set first, cleared last: whatever goes wrong between, this log takes no more.
        self.failed = true;
        let mut left = &self.pending[..];
        while !left.is_empty() {
            match self.file.write(left) {
                Ok(0) => {
                    return Err(Error::io("writing", &self.path)(
                        ErrorKind::WriteZero.into(),
                    ));
                }
                Ok(written) => left = &left[written..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // No sync has failed: what was written is there, and the rest follows it.
                Err(e) if is_full(&e) && make_room(left.len()) => {}
                Err(e) => return Err(Error::io("writing", &self.path)(e)),
            }
        }
        self.file.sync().map_err(Error::io("syncing", &self.path))?;
        self.synced += self.pending.len() as u64;
        self.pending.clear();
        // Release the buffer of a huge batch.
        self.pending.shrink_to(1 << 22);
        self.failed = false;
        Ok(())
    }

    /// Closes the log in order: a bad record in it is damage from now on, never a torn tail.
    pub(crate) fn end(self) -> Result<()> {
        self.end_making_room(|_| false)
    }

    /// Like [`end`](Self::end), making space as [`sync_making_room`](Self::sync_making_room) does.
    pub(crate) fn end_making_room(mut self, make_room: impl FnMut(usize) -> bool) -> Result<()> {
        self.record(Kind::End, |_| {})?;
        self.sync_making_room(make_room)
    }
}

impl std::fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogWriter")
            .field("path", &self.path)
            .field("len", &self.bytes())
            .finish()
    }
}
