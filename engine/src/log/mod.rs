//! The write-ahead log: batches that were accepted and are not yet in a segment.
//!
//! A [`LogWriter`] appends records to one file and syncs them group by group; [`read`] gives the records of a log
//! back, and distinguishes a torn tail (an unacknowledged write that a crash cut short) from damage (synced bytes
//! that have changed). Chapter "Log" of FORMAT.md draws the bytes.

mod batch;
mod read;
mod salvage;
mod write;

pub(crate) use batch::{Batch, Change};
pub(crate) use read::{LogContents, read};
pub(crate) use salvage::salvage;
pub(crate) use write::LogWriter;

use crate::ids::LogId;

const MAGIC: [u8; 8] = *b"MOPQLOG\0";
/// The version of the logs that this program writes. It reads this one and those before it.
const VERSION: u32 = 2;
/// Magic 8, version 4, zero 4, log id 8, zero 32, xxh3 of the former 56 bytes 8.
const HEADER_LEN: usize = 64;
/// Length 4, kind 4, offset of this record 8, synced offset 8, checksum 8.
const RECORD_HEADER_LEN: usize = 32;
/// A batch larger than this is refused: the length field is 32 bits wide, with room to spare.
const MAX_PAYLOAD: usize = 1 << 30;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    /// A [`Batch`].
    Batch = 1,
    /// The log was closed in order: everything before this was synced.
    End = 2,
}

/// The checksum of a record: over its header's other fields, the log's id and its payload, so that a record of
/// another log, or at another offset, is not accepted.
fn checksum(log: LogId, header: &[u8], payload: &[u8]) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::with_seed(log.0);
    hash.update(header);
    hash.update(payload);
    hash.digest()
}

/// Returns the name of a log in its directory.
pub(crate) fn name(log: LogId) -> String {
    format!("{:010}.log", log.0)
}

/// Returns the log that has this name.
pub(crate) fn parse_name(file: &str) -> Option<LogId> {
    let id = LogId(file.strip_suffix(".log")?.parse().ok()?);
    (name(id) == file).then_some(id)
}
