//! The version record: the committed state of a database.

use crate::columns::Schema;
use crate::ids::{DatabaseId, EncoderId, Generation, LogId, ModelId, SegmentId, Seq};
use crate::metric::Metric;
use crate::model::Model;
use crate::row::RowsKind;
use crate::row::Serving;
use crate::segment::SegmentRecord;
use crate::stored::Precision;
use crate::words::Choice;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// The newest version of the record's layout that this program reads and writes.
pub const RECORD_VERSION: u32 = 2;
const MAGIC: [u8; 8] = *b"MOPQVER\0";
/// Magic 8, version 4, zero 4, body length 8, xxh3 of the body 8, generation 8, zero 16, xxh3 of the former 56 bytes 8.
const HEADER_LEN: usize = 64;

/// Everything that is committed at generation n: which model, which segments, which logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VersionRecord {
    /// The version of its layout: a record is written in the one in which it was read.
    #[serde(skip)]
    pub version: u32,
    /// The generation.
    pub generation: Generation,
    /// How queries and keys are compared.
    pub metric: Metric,
    /// Whether rows are texts, which the encoder turns into vectors, or vectors.
    pub rows: RowsKind,
    /// Width of the stored vectors.
    pub dim: u32,
    /// How they are rounded. Version 1 does not say it: f32 for vectors, f16 for texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Precision>,
    /// Which database this is, wherever its files are copied to. Version 1 has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseId>,
    /// Whether texts are searched by their words, and how they become terms. Version 1 does not have it: nobody decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) words: Option<Choice>,
    /// The columns, without those that only live logs have. Version 1 has none.
    #[serde(default, skip_serializing_if = "Schema::is_new")]
    pub(crate) columns: Schema,
    /// Settings of queries, by model. Version 1 has none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub serving: BTreeMap<ModelId, Serving>,
    /// The encoder that made the stored vectors.
    pub encoder: EncoderId,
    /// The active model; none for precomputed vectors without a quantizer.
    pub model: Option<ModelId>,
    /// The live segments, oldest first.
    pub segments: Vec<SegmentRecord>,
    /// Logs from this one on hold what is in no segment.
    pub first_log: LogId,
    /// No `Seq` below this is in a live log.
    pub first_seq: Seq,
    /// The next segment gets this id, or a later one.
    pub next_segment: SegmentId,
}

/// Why bytes are not a valid record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadRecord {
    /// Not what was written.
    #[error("{0}")]
    Damaged(String),
    /// Written by a newer program.
    #[error(
        "record version {0}, this program reads versions 1 to {RECORD_VERSION}; use a newer mopqdb"
    )]
    Future(u32),
}

impl VersionRecord {
    /// Returns the first record of a new database.
    pub(crate) fn first(model: &Model, database: DatabaseId, columns: Schema) -> Self {
        Self {
            version: RECORD_VERSION,
            generation: Generation(1),
            metric: model.metric(),
            rows: model.kind(),
            dim: model.dim() as u32,
            store: Some(model.precision()),
            database: Some(database),
            words: model.words_choice(),
            columns,
            serving: BTreeMap::new(),
            encoder: model.encoder_id(),
            model: model.id(),
            segments: Vec::new(),
            first_log: LogId(1),
            first_seq: Seq(1),
            next_segment: SegmentId(1),
        }
    }

    /// Returns the active model by its id: that of `exact` where none is named.
    pub(crate) fn model_id(&self) -> ModelId {
        self.model.unwrap_or_else(|| ModelId::exact(self.encoder))
    }

    /// Returns the settings of queries under the active model.
    pub(crate) fn active_serving(&self) -> Option<Serving> {
        self.serving.get(&self.model_id()).copied()
    }

    /// Returns how stored vectors are rounded.
    pub(crate) fn precision(&self) -> Precision {
        self.store.unwrap_or_else(|| self.rows.precision())
    }

    /// Returns the number of rows of all segments, dead ones included.
    pub(crate) fn rows_stored(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| u64::from(segment.rows))
            .sum()
    }

    /// Returns the bytes of both witnesses.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let body = serde_json::to_vec(self).expect("a record has only plain fields");
        let mut out = Vec::with_capacity(HEADER_LEN + body.len());
        out.extend(MAGIC);
        out.extend(self.version.to_le_bytes());
        out.extend([0; 4]);
        out.extend((body.len() as u64).to_le_bytes());
        out.extend(xxh3_64(&body).to_le_bytes());
        out.extend(self.generation.0.to_le_bytes());
        out.extend([0; 16]);
        out.extend(xxh3_64(&out).to_le_bytes());
        out.extend(body);
        out
    }

    /// Returns the record that `encode` wrote.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let damaged = |what: &str| BadRecord::Damaged(what.into());
        let (header, body) = bytes.split_at_checked(HEADER_LEN).ok_or_else(|| {
            BadRecord::Damaged(format!("{} bytes are less than its header", bytes.len()))
        })?;
        let u64_at =
            |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        if u64_at(56) != xxh3_64(&header[..56]) || header[..8] != MAGIC {
            return Err(damaged("its header's checksum does not match"));
        }
        let version = u32::from_le_bytes(header[8..12].try_into().expect("4 bytes"));
        if version == 0 || version > RECORD_VERSION {
            return Err(BadRecord::Future(version));
        }
        if u64_at(16) != body.len() as u64 || u64_at(24) != xxh3_64(body) {
            return Err(damaged("its checksum does not match"));
        }
        let mut record: Self =
            serde_json::from_slice(body).map_err(|e| BadRecord::Damaged(e.to_string()))?;
        let has_all = record.store.is_some() && record.database.is_some();
        let has_any = !record.serving.is_empty()
            || record.words.is_some()
            || !record.columns.is_new()
            || (record.segments.iter()).any(|segment| segment.columns.is_some());
        if (version > 1) != has_all || (version == 1 && has_any) {
            return Err(damaged("its members are those of another version"));
        }
        if record.serving.values().any(|serving| !serving.is_valid()) {
            return Err(damaged("settings of queries contradict themselves"));
        }
        record.version = version;
        if record.generation.0 != u64_at(32) {
            return Err(damaged("header and body name two generations"));
        }
        Ok(record)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::columns::ColumnType;
    use crate::words::Settings;

    fn schema() -> Schema {
        let mut schema = Schema::default();
        schema.introduce("year", ColumnType::Int).unwrap();
        schema
    }

    pub(crate) fn record(generation: u64) -> VersionRecord {
        VersionRecord {
            version: RECORD_VERSION,
            generation: Generation(generation),
            metric: Metric::Cosine,
            rows: RowsKind::Text,
            dim: 384,
            store: Some(Precision::I8),
            database: Some(DatabaseId([5; 16])),
            words: Some(Choice::On(Settings::default())),
            columns: schema(),
            serving: BTreeMap::from([(ModelId([9; 32]), Serving::new(10, 300).unwrap())]),
            encoder: EncoderId([7; 32]),
            model: Some(ModelId([9; 32])),
            segments: vec![SegmentRecord {
                id: SegmentId(4),
                rows: 70_000,
                rows_hash: 0x1234_5678_9abc_def0,
                dead: 12,
                deletions: Some(Generation(3)),
                columns: Some(0xfedc_ba98_7654_3210),
            }],
            first_log: LogId(12),
            first_seq: Seq(80_001),
            next_segment: SegmentId(5),
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        assert_eq!(
            VersionRecord::decode(&record(6).encode()).unwrap(),
            record(6)
        );
        let old = VersionRecord {
            version: 1,
            store: None,
            database: None,
            words: None,
            columns: Schema::default(),
            serving: BTreeMap::new(),
            segments: vec![SegmentRecord {
                columns: None,
                ..record(6).segments.remove(0)
            }],
            ..record(6)
        };
        let bytes = old.encode();
        assert_eq!(bytes[8..12], [1, 0, 0, 0]);
        let read = VersionRecord::decode(&bytes).unwrap();
        assert_eq!(read, old);
        assert_eq!(read.precision(), Precision::F16);
    }

    #[test]
    fn a_record_with_the_members_of_another_version_is_damage() {
        let with = |version, store| VersionRecord {
            version,
            store,
            ..record(6)
        };
        let old = VersionRecord {
            version: 1,
            store: None,
            database: None,
            words: None,
            columns: Schema::default(),
            serving: BTreeMap::new(),
            segments: Vec::new(),
            ..record(6)
        };
        let columns = VersionRecord {
            columns: schema(),
            ..old.clone()
        };
        let segments = VersionRecord {
            segments: record(6).segments,
            ..old
        };
        for wrong in [
            with(1, Some(Precision::F32)),
            with(2, None),
            columns,
            segments,
        ] {
            let decoded = VersionRecord::decode(&wrong.encode());
            assert!(matches!(decoded, Err(BadRecord::Damaged(_))), "{decoded:?}");
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_record_is_seen() {
        let bytes = record(6).encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(VersionRecord::decode(&flipped).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(
                VersionRecord::decode(&bytes[..len]).is_err(),
                "cut at {len}"
            );
        }
        let longer = [bytes, vec![0]].concat();
        assert!(VersionRecord::decode(&longer).is_err());
    }

    #[test]
    fn a_record_of_the_future_is_refused_by_name() {
        let mut bytes = record(6).encode();
        bytes[8] = 3;
        let sum = xxh3_64(&bytes[..56]).to_le_bytes();
        bytes[56..64].copy_from_slice(&sum);
        assert_eq!(VersionRecord::decode(&bytes), Err(BadRecord::Future(3)));
    }
}
