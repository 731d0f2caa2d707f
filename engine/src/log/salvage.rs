//! Reading the intact batches of a damaged log.

use super::read::Record;
use super::{Batch, HEADER_LEN, Kind};
use crate::format::Corrector;
use crate::ids::LogId;
use std::ops::Range;

/// The whole batches of a damaged log.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    /// The batches, before and after the damage, in order.
    pub batches: Vec<Batch>,
    /// Records in which a flipped bit was corrected.
    pub corrected: u32,
    /// Bytes that belong to no complete record, except those at the end of the log.
    pub damaged: Vec<Range<u64>>,
    /// Bytes after the last complete record: damage, or a write that a crash interrupted.
    pub rest: u64,
}

/// Longer stretches are not searched for a flipped bit.
const LONGEST: usize = 64 * 1024;

/// Reads every whole record of a log. Its header is not needed: each record is checked with the id of its log.
pub(crate) fn salvage(log: LogId, bytes: &[u8]) -> Remains {
    let mut remains = Remains::default();
    let mut corrector = Corrector::default();
    let mut at = HEADER_LEN;
    while at < bytes.len() {
        if let Some(record) = Record::at(log, bytes, at) {
            if !remains.take(&record) {
                remains.damaged.push(at as u64..record.next as u64);
            }
            at = record.next;
            continue;
        }
        let next = (at.next_multiple_of(8)..bytes.len())
            .step_by(8)
            .find(|&later| later > at && Record::at(log, bytes, later).is_some());
        let end = next.unwrap_or(bytes.len());
        if end - at <= LONGEST {
            let mut stretch = bytes[at..end].to_vec();
            let whole = |bytes: &[u8]| Record::decode(log, bytes, at).is_some();
            if corrector.search(&mut stretch, &whole)
                && let Some(record) = Record::decode(log, &stretch, at)
                && remains.take(&record)
            {
                at = record.next;
                continue;
            }
        }
        match next {
            Some(next) => remains.damaged.push(at as u64..next as u64),
            None => remains.rest = (bytes.len() - at) as u64,
        }
        at = end;
    }
    remains.corrected = corrector.corrected;
    remains
}

impl Remains {
    /// Returns whether the record makes sense.
    fn take(&mut self, record: &Record<'_>) -> bool {
        match record.kind {
            Kind::End => true,
            Kind::Batch => match Batch::decode(record.payload) {
                Ok(batch) => {
                    self.batches.push(batch);
                    true
                }
                Err(_) => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Change, LogWriter, name, read};
    use super::*;
    use crate::columns::LoggedColumns;
    use crate::disk::files::Disk;
    use crate::ids::EncoderId;
    use crate::ids::Seq;
    use crate::stored::Stored;
    use std::path::Path;

    const LOG: LogId = LogId(5);

    fn sample() -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogWriter::create(&Disk::default(), dir.path(), LOG).unwrap();
        for first in [1, 3, 4] {
            let delete = |key: &str| Change::Delete { key: key.into() };
            let batch = Batch {
                first: Seq(first),
                encoder: EncoderId([1; 32]),
                changes: vec![delete("some key"), delete("another")],
                dim: 0,
                vectors: Stored::F32(Vec::new()),
                columns: LoggedColumns::default(),
            };
            log.append(&batch).unwrap();
            log.sync().unwrap();
        }
        log.end().unwrap();
        std::fs::read(dir.path().join(name(LOG))).unwrap()
    }

    fn firsts(remains: &Remains) -> Vec<u64> {
        remains.batches.iter().map(|batch| batch.first.0).collect()
    }

    #[test]
    fn every_flipped_bit_is_corrected_and_no_batch_is_lost() {
        let whole = sample();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let remains = salvage(LOG, &damaged);
            assert_eq!(firsts(&remains), [1, 3, 4], "bit {bit}");
            assert!(remains.damaged.is_empty() && remains.rest == 0, "bit {bit}");
        }
    }

    #[test]
    fn batches_behind_the_damage_are_kept() {
        let mut bytes = sample();
        // The first batch: nine bytes of it are garbage.
        bytes[HEADER_LEN + 40..][..9].fill(0xaa);
        assert!(read(Path::new("x.log"), LOG, &bytes, 0).is_err());
        let remains = salvage(LOG, &bytes);
        assert_eq!(firsts(&remains), [3, 4]);
        assert_eq!(remains.damaged.len(), 1);
        assert_eq!(remains.damaged[0].start, HEADER_LEN as u64);
    }
}
