//! The metadata of a rows file.

use crate::format::{Decode, Encode, FormatError, Put, Take};
use crate::segment::RowsHash;
use crate::segment::vectors;
use crate::stored::Precision;
use crate::{Generation, Metric, SegmentId, Seq};
use std::num::NonZeroU32;

/// The number for texts, in the field for the precision of vectors.
const TEXTS: u32 = 1;

/// The width and precision of the vectors of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VectorKind {
    /// Values per vector.
    pub dim: NonZeroU32,
    /// How they are rounded.
    pub precision: Precision,
}

/// The metadata of a rows file that is known before its rows are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsMeta {
    /// The segment.
    pub segment: SegmentId,
    /// The first version that will name it.
    pub version: Generation,
    /// The kind of precomputed vectors (normalised, if the metric is cosine); `None` if the rows are texts.
    pub vectors: Option<VectorKind>,
    /// The metric by which they are compared.
    pub metric: Metric,
    /// The segments whose live rows these are: the inputs of a compaction, by which `repair` recognises them.
    pub replaces: Vec<SegmentId>,
}

/// The contents of a rows file, known once it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowsSummary {
    /// The number of rows.
    pub rows: u32,
    /// The first and the last `Seq`, if there are rows.
    pub seqs: Option<(Seq, Seq)>,
    /// The size of all keys in bytes.
    pub key_bytes: u64,
    /// The size of all texts or vectors in bytes, uncompressed.
    pub value_bytes: u64,
    /// The size of the file in bytes.
    pub file_bytes: u64,
    /// The hash of the file, which covers every byte.
    pub hash: RowsHash,
}

/// The META section: both together, except for what the frame of the file contains.
pub(super) struct Meta {
    pub(super) about: RowsMeta,
    pub(super) rows: u32,
    pub(super) seqs: Option<(Seq, Seq)>,
    pub(super) key_bytes: u64,
    pub(super) value_bytes: u64,
}

impl RowsMeta {
    /// Returns `true` if rows have norms: vectors that are normalised when they are stored.
    pub fn has_norms(&self) -> bool {
        self.vectors.is_some() && self.metric == Metric::Cosine
    }
}

impl Encode for Meta {
    fn encode(&self, out: &mut Vec<u8>) {
        let (values, dim) = match self.about.vectors {
            None => (TEXTS, 0),
            Some(kind) => (vectors::number(kind.precision), kind.dim.get()),
        };
        let (first, last) = self.seqs.unwrap_or_default();
        out.put_u64(self.about.segment.0);
        out.put_u64(self.about.version.0);
        out.put_u32(self.rows);
        out.put_u32(values);
        out.put_u32(dim);
        out.put_u32(match self.about.metric {
            Metric::Ip => 1,
            Metric::Cosine => 2,
            Metric::L2 => 3,
        });
        out.put_u64(first.0);
        out.put_u64(last.0);
        out.put_u64(self.key_bytes);
        out.put_u64(self.value_bytes);
        out.put_u32(0); // order: by Seq
        out.put_u32(self.about.replaces.len() as u32);
        for segment in &self.about.replaces {
            out.put_u64(segment.0);
        }
    }
}

impl Decode for Meta {
    fn decode(fields: &mut Take<'_>) -> Result<Self, FormatError> {
        let segment = SegmentId(fields.u64()?);
        let version = Generation(fields.u64()?);
        let rows = fields.u32()?;
        let (values, dim) = (fields.u32()?, fields.u32()?);
        let vectors = match (values, NonZeroU32::new(dim)) {
            (TEXTS, None) => None,
            (2.., Some(dim)) => Some(VectorKind {
                dim,
                precision: vectors::precision(values, fields)?,
            }),
            _ => {
                return Err(fields.wrong(format!(
                    "values of unknown kind {values} with {dim} dimensions"
                )));
            }
        };
        let metric = match fields.u32()? {
            1 => Metric::Ip,
            2 => Metric::Cosine,
            3 => Metric::L2,
            other => return Err(fields.wrong(format!("{other} is not a known metric"))),
        };
        let (first, last) = (Seq(fields.u64()?), Seq(fields.u64()?));
        // They ascend and are distinct, so the range has at least as many numbers as there are rows.
        let room = last.0.checked_sub(first.0);
        let enough = match rows {
            0 => (first, last) == (Seq(0), Seq(0)),
            rows => room.is_some_and(|room| room >= u64::from(rows) - 1),
        };
        if !enough {
            return Err(fields.wrong(format!("{rows} rows with Seq {first} to {last}")));
        }
        let key_bytes = fields.u64()?;
        let value_bytes = fields.u64()?;
        fields.zero_u32()?;
        let replaces = fields.u32()?;
        let replaces = (0..replaces).map(|_| fields.u64().map(SegmentId));
        let replaces = replaces.collect::<Result<_, _>>()?;
        Ok(Self {
            about: RowsMeta {
                segment,
                version,
                vectors,
                metric,
                replaces,
            },
            rows,
            seqs: (rows > 0).then_some((first, last)),
            key_bytes,
            value_bytes,
        })
    }
}
