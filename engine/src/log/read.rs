//! Reading a log, after a crash or while it is being written.

use super::{Batch, HEADER_LEN, Kind, MAGIC, RECORD_HEADER_LEN, VERSION, checksum};
use crate::error::{Error, Result};
use crate::ids::LogId;
use std::path::Path;

/// The contents of a log.
#[derive(Debug)]
pub(crate) struct LogContents {
    /// The whole batches, in order.
    pub batches: Vec<Batch>,
    /// Whether the log was closed by an end record.
    pub ended: bool,
    /// Where the whole records end.
    pub end: u64,
    /// What follows them, if anything does.
    pub torn: Option<Torn>,
    /// The number of last batches that may not have been synced; a power cut may still undo them.
    pub unproven: usize,
}

/// The incomplete end of a log after a crash. It was never acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Torn {
    /// Offset of the first byte that is part of no whole record.
    pub offset: u64,
    /// Bytes from there to the end.
    pub len: u64,
}

/// Reads the records of a log from `from` on (0: the start), given all its bytes.
///
/// A bad record that was synced is [`Error::Corrupt`]: one in a log that was closed in order, or before a whole
/// record that was written when more than this had been synced. Otherwise what follows is a torn tail.
pub(crate) fn read(path: &Path, log: LogId, bytes: &[u8], from: u64) -> Result<LogContents> {
    let mut contents = LogContents {
        batches: Vec::new(),
        ended: false,
        end: HEADER_LEN as u64,
        torn: None,
        unproven: 0,
    };
    if !header(path, log, bytes)? {
        // Less than a header, in a log that took no record yet: its creation was cut short.
        contents.end = 0;
        contents.torn = Some(Torn {
            offset: 0,
            len: bytes.len() as u64,
        });
        return Ok(contents);
    }
    let mut at = from.max(HEADER_LEN as u64) as usize;
    // Offsets of the batches, and how far the log is known to have been synced.
    let mut offsets = Vec::new();
    let mut synced = 0;
    while at < bytes.len() && !contents.ended {
        let Some(record) = Record::at(log, bytes, at) else {
            break;
        };
        match record.kind {
            Kind::End => contents.ended = true,
            Kind::Batch => {
                offsets.push(at as u64);
                contents
                    .batches
                    .push(Batch::decode(record.payload).map_err(|detail| {
                        // The checksum is right, so these are the bytes that were written.
                        Error::corrupt(path, "record", at as u64, detail)
                    })?)
            }
        }
        synced = synced.max(record.synced);
        at = record.next;
    }
    contents.end = at as u64;
    if !contents.ended {
        let synced = synced.max(begun(bytes, at).unwrap_or(0));
        contents.unproven = offsets.iter().filter(|&&offset| offset >= synced).count();
    }
    if at < bytes.len() {
        if contents.ended {
            return Err(Error::corrupt(
                path,
                "record",
                at as u64,
                "bytes follow the end of the log",
            ));
        }
        if let Some(later) = synced_beyond(log, bytes, at) {
            let detail = format!(
                "the record here is damaged: the one at byte {later} was written after it was synced"
            );
            return Err(Error::corrupt(path, "record", at as u64, detail));
        }
        contents.torn = Some(Torn {
            offset: at as u64,
            len: (bytes.len() - at) as u64,
        });
    }
    Ok(contents)
}

/// Returns `true` if the header is complete. A damaged header is an error.
fn header(path: &Path, log: LogId, bytes: &[u8]) -> Result<bool> {
    let Some(header) = bytes.get(..HEADER_LEN) else {
        return Ok(false);
    };
    let sum = u64::from_le_bytes(header[56..].try_into().expect("8 bytes"));
    if sum != checksum(log, &header[..56], &[]) {
        // A header of garbage with nothing behind it is a creation cut short; a log is named in no record, and
        // takes none, before its header was synced.
        if bytes.len() == HEADER_LEN && synced_beyond(log, bytes, 0).is_none() {
            return Ok(false);
        }
        return Err(Error::corrupt(
            path,
            "header",
            0,
            "its checksum does not match",
        ));
    }
    if header[..8] != MAGIC {
        return Err(Error::Incompatible {
            path: path.into(),
            what: "not a mopqdb log".into(),
        });
    }
    let version = u32::from_le_bytes(header[8..12].try_into().expect("4 bytes"));
    if version == 0 || version > VERSION {
        let what = format!(
            "log format version {version}, this program reads versions 1 to {VERSION}; use a newer mopqdb"
        );
        return Err(Error::Incompatible {
            path: path.into(),
            what,
        });
    }
    Ok(true)
}

/// How much had been synced when a record was begun at `at` whose end never reached the disk, if its header is there.
fn begun(bytes: &[u8], at: usize) -> Option<u64> {
    let header = bytes.get(at..at + 24)?;
    let field = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    // Its checksum covers the payload too. But garbage does not hold its own offset.
    let (offset, synced) = (field(8), field(16));
    (offset == at as u64 && synced <= offset).then_some(synced)
}

/// The offset of a whole record after `at` that was written when more than `at` bytes had been synced.
fn synced_beyond(log: LogId, bytes: &[u8], at: usize) -> Option<usize> {
    (at.next_multiple_of(8)..bytes.len())
        .step_by(8)
        .find(|&later| {
            later > at
                && Record::at(log, bytes, later)
                    .is_some_and(|r| r.synced > at as u64 || r.kind == Kind::End)
        })
}

pub(super) struct Record<'a> {
    pub(super) kind: Kind,
    synced: u64,
    pub(super) payload: &'a [u8],
    pub(super) next: usize,
}

impl<'a> Record<'a> {
    /// Returns the whole record at this offset, if one is there.
    pub(super) fn at(log: LogId, bytes: &'a [u8], at: usize) -> Option<Self> {
        Self::decode(log, bytes.get(at..)?, at)
    }

    /// Returns the whole record that these bytes begin with, if they do, read from offset `at` of
    /// its log.
    pub(super) fn decode(log: LogId, bytes: &'a [u8], at: usize) -> Option<Self> {
        let header = bytes.get(..RECORD_HEADER_LEN)?;
        let field = |range: std::ops::Range<usize>| &header[range];
        let offset = u64::from_le_bytes(field(8..16).try_into().ok()?);
        if offset != at as u64 {
            return None;
        }
        let len = u32::from_le_bytes(field(0..4).try_into().ok()?) as usize;
        let kind = match u32::from_le_bytes(field(4..8).try_into().ok()?) {
            1 => Kind::Batch,
            2 => Kind::End,
            _ => return None,
        };
        let payload = bytes.get(RECORD_HEADER_LEN..RECORD_HEADER_LEN.checked_add(len)?)?;
        let whole = (RECORD_HEADER_LEN + len).next_multiple_of(8);
        // Padding is part of the record: it is there, and zero.
        if bytes
            .get(RECORD_HEADER_LEN + len..whole)?
            .iter()
            .any(|&b| b != 0)
        {
            return None;
        }
        let sum = u64::from_le_bytes(field(24..32).try_into().ok()?);
        if sum != checksum(log, &header[..24], payload) {
            return None;
        }
        Some(Self {
            kind,
            synced: u64::from_le_bytes(field(16..24).try_into().ok()?),
            payload,
            next: at + whole,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Change, LogWriter, name};
    use super::*;
    use crate::columns::LoggedColumns;
    use crate::disk::files::Disk;
    use crate::ids::EncoderId;
    use crate::ids::Seq;
    use crate::stored::Stored;

    const LOG: LogId = LogId(5);

    fn batch(first: u64, keys: &[&str]) -> Batch {
        let changes = keys
            .iter()
            .map(|&key| Change::Delete { key: key.into() })
            .collect();
        Batch {
            first: Seq(first),
            encoder: EncoderId([1; 32]),
            changes,
            dim: 0,
            vectors: Stored::F32(Vec::new()),
            columns: LoggedColumns::default(),
        }
    }

    /// Three groups: one batch, two batches, one batch; ended or not.
    fn sample(end: bool) -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogWriter::create(&Disk::default(), dir.path(), LOG).unwrap();
        log.append(&batch(1, &["a", "b"])).unwrap();
        log.sync().unwrap();
        log.append(&batch(3, &["c"])).unwrap();
        log.append(&batch(4, &["d"])).unwrap();
        log.sync().unwrap();
        log.append(&batch(5, &["e", "f", "g"])).unwrap();
        log.sync().unwrap();
        if end {
            log.end().unwrap();
        }
        let bytes = std::fs::read(dir.path().join(name(LOG))).unwrap();
        (dir, bytes)
    }

    fn read_all(bytes: &[u8]) -> Result<LogContents> {
        read(Path::new("x.log"), LOG, bytes, 0)
    }

    fn firsts(contents: &LogContents) -> Vec<u64> {
        contents.batches.iter().map(|b| b.first.0).collect()
    }

    #[test]
    fn what_was_appended_is_read_back() {
        let (_dir, bytes) = sample(true);
        let contents = read_all(&bytes).unwrap();
        assert_eq!(firsts(&contents), [1, 3, 4, 5]);
        assert!(contents.ended && contents.torn.is_none());
        assert_eq!(contents.end, bytes.len() as u64);
    }

    #[test]
    fn a_log_cut_anywhere_keeps_its_whole_batches_and_tells_of_the_rest() {
        let (_dir, bytes) = sample(false);
        let whole = read_all(&bytes).unwrap();
        assert!(!whole.ended && whole.torn.is_none());
        for len in 0..bytes.len() {
            let contents = read_all(&bytes[..len]).unwrap();
            let kept = firsts(&contents);
            assert!([1, 3, 4, 5].starts_with(&kept), "cut at {len}: {kept:?}");
            assert_eq!(
                contents.torn.is_none(),
                contents.end == len as u64 && len > 0,
                "cut at {len}"
            );
        }
    }

    #[test]
    fn every_flipped_bit_of_a_closed_log_is_damage() {
        let (_dir, bytes) = sample(true);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // The end record itself is the one that says "closed": damaged, the log reads as one that was not.
            let end_record = bytes.len() - RECORD_HEADER_LEN;
            match read_all(&flipped) {
                Err(Error::Corrupt(_)) => {}
                Ok(contents) if bit / 8 >= end_record => {
                    assert_eq!(firsts(&contents), [1, 3, 4, 5]);
                    assert!(!contents.ended && contents.torn.is_some(), "bit {bit}");
                }
                other => panic!("bit {bit}: {other:?}"),
            }
        }
    }

    #[test]
    fn garbage_in_the_group_that_was_never_synced_is_a_torn_tail_even_before_a_whole_record() {
        let (_dir, bytes) = sample(false);
        let contents = read_all(&bytes).unwrap();
        // The second group (batches 3 and 4) was the last to be written: batch 3 is garbage, batch 4 whole.
        let second = read_all(&bytes).unwrap();
        drop(second);
        let first_end = HEADER_LEN + 32 + (8 + 32 + 4 + 2 * 6usize).next_multiple_of(8);
        let third_group =
            contents.end as usize - 32 - (8 + 32 + 4 + 3 * 6usize).next_multiple_of(8);
        let mut torn = bytes[..third_group].to_vec();
        torn[first_end + 40] ^= 0xff;
        let contents = read_all(&torn).unwrap();
        assert_eq!(firsts(&contents), [1]);
        assert_eq!(contents.torn.unwrap().offset, first_end as u64);
        // With the third group behind it the same damage is in bytes that were synced.
        let mut damaged = bytes.clone();
        damaged[first_end + 40] ^= 0xff;
        assert!(matches!(read_all(&damaged), Err(Error::Corrupt(_))));
    }

    #[test]
    fn batches_that_may_not_have_been_synced_are_counted() {
        let (_dir, ended) = sample(true);
        assert_eq!(read_all(&ended).unwrap().unproven, 0);
        // The third group proves the two before it.
        let (_dir, bytes) = sample(false);
        let whole = read_all(&bytes).unwrap();
        assert_eq!(whole.unproven, 1);
        let third = bytes.len() - 32 - (8 + 32 + 4 + 3 * 6usize).next_multiple_of(8);
        // With its header alone it still does; with less, the second group (two batches) may not have been synced.
        for (cut, unproven) in [
            (third + 40, 0),
            (third + 24, 0),
            (third + 23, 2),
            (third, 2),
        ] {
            let contents = read_all(&bytes[..cut]).unwrap();
            assert_eq!(firsts(&contents), [1, 3, 4], "cut at {cut}");
            assert_eq!(contents.unproven, unproven, "cut at {cut}");
        }
        // Garbage proves nothing.
        let mut garbage = bytes[..third].to_vec();
        garbage.extend([7; 64]);
        assert_eq!(read_all(&garbage).unwrap().unproven, 2);
    }

    #[test]
    fn a_log_is_read_on_from_where_it_ended() {
        let (_dir, bytes) = sample(false);
        let first_end = HEADER_LEN + 32 + (8 + 32 + 4 + 2 * 6usize).next_multiple_of(8);
        let contents = read(Path::new("x.log"), LOG, &bytes, first_end as u64).unwrap();
        assert_eq!(firsts(&contents), [3, 4, 5]);
    }

    #[test]
    fn a_log_of_the_future_is_refused_by_name() {
        let (_dir, mut bytes) = sample(true);
        bytes[8] = 9;
        let sum = checksum(LOG, &bytes[..56], &[]).to_le_bytes();
        bytes[56..64].copy_from_slice(&sum);
        let error = read_all(&bytes).unwrap_err();
        assert!(
            matches!(&error, Error::Incompatible { .. }) && error.to_string().contains("version 9")
        );
    }
}
