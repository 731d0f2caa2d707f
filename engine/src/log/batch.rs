//! A batch of the log: changes that were accepted together, stored completely or not at all.

use crate::columns::LoggedColumns;
use crate::format::{Encode, Take};
use crate::ids::{EncoderId, Seq};
use crate::stored::{Precision, Stored, StoredRef};
use half::f16;
use std::sync::Arc;

/// What one `insert` or `delete` changed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Batch {
    /// The `Seq` of the first change; the others follow it one by one.
    pub first: Seq,
    /// The encoder whose vectors these are.
    pub encoder: EncoderId,
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// Values per vector.
    pub dim: usize,
    /// The stored vectors of the rows put, in order: (rows put, dim).
    pub vectors: Stored,
    /// The columns of the rows put, in order.
    pub columns: LoggedColumns,
}

/// One accepted row, or the deletion of one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// Inserts or replaces the row with this key; its vector is the batch's next one.
    Put {
        /// The user's key.
        key: Arc<str>,
        /// The text, where the database encodes texts.
        text: Option<Arc<str>>,
        /// The length that the vector had before it was normalised, where it was.
        norm: Option<f64>,
    },
    /// Deletes the row with this key.
    Delete {
        /// The user's key.
        key: Arc<str>,
    },
}

impl Change {
    /// Returns `true` if a row is put.
    pub(crate) fn is_put(&self) -> bool {
        matches!(self, Self::Put { .. })
    }

    /// Returns the key.
    pub(crate) fn key(&self) -> &Arc<str> {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

const PUT_F32: u8 = 1;
const PUT_F16: u8 = 2;
const DELETE: u8 = 3;
const PUT_I8: u8 = 4;
/// What follows are the columns of all rows of the batch.
const COLUMNS: u8 = 5;
/// Added to the kind of a row whose vector is followed by its norm.
const WITH_NORM: u8 = 16;
const NO_TEXT: u32 = u32::MAX;

impl Batch {
    /// Returns the `Seq` after the last change.
    pub(crate) fn end(&self) -> Seq {
        Seq(self.first.0 + self.changes.len() as u64)
    }

    /// Returns the changes with their `Seq`s and, of rows put, their vectors.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Seq, &Change, Option<StoredRef<'_>>)> {
        let mut next = 0;
        (self.first.0..)
            .zip(&self.changes)
            .map(move |(seq, change)| {
                let vector = matches!(change, Change::Put { .. }).then(|| {
                    next += 1;
                    self.vectors.as_ref().rows(next - 1..next, self.dim)
                });
                (Seq(seq), change, vector)
            })
    }

    /// Appends the batch to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.first.0.to_le_bytes());
        out.extend(self.encoder.0);
        out.extend((self.changes.len() as u32).to_le_bytes());
        for (_, change, vector) in self.iter() {
            let (Change::Put { text, norm, .. }, Some(vector)) = (change, vector) else {
                out.push(DELETE);
                put_bytes(out, change.key().as_bytes());
                continue;
            };
            let kind = match vector.precision() {
                Precision::F32 => PUT_F32,
                Precision::F16 => PUT_F16,
                Precision::I8 => PUT_I8,
            };
            out.push(kind + norm.map_or(0, |_| WITH_NORM));
            put_bytes(out, change.key().as_bytes());
            match text {
                Some(text) => put_bytes(out, text.as_bytes()),
                None => out.extend(NO_TEXT.to_le_bytes()),
            }
            out.extend((self.dim as u32).to_le_bytes());
            match vector {
                StoredRef::F32(v) => out.extend_from_slice(bytemuck::cast_slice(v)),
                StoredRef::F16(v) => out.extend_from_slice(bytemuck::cast_slice(v)),
                StoredRef::I8 { scales, values } => {
                    out.extend_from_slice(bytemuck::cast_slice(scales));
                    out.extend_from_slice(bytemuck::cast_slice(values));
                }
            }
            out.extend(norm.iter().flat_map(|norm| norm.to_le_bytes()));
        }
        if !self.columns.is_empty() {
            out.push(COLUMNS);
            self.columns.encode(out);
        }
    }

    /// Returns the batch that `encode` wrote, or what is wrong with these bytes.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = Cursor(bytes);
        let first = Seq(rest.u64()?);
        let encoder = EncoderId(rest.array()?);
        let count = rest.u32()? as usize;
        // Each change takes five bytes or more: a count that the record can't hold allocates nothing.
        let mut changes = Vec::with_capacity(count.min(rest.0.len() / 5));
        let mut vectors = None;
        for _ in 0..count {
            changes.push(rest.change(&mut vectors)?);
        }
        let (dim, vectors) = vectors.unwrap_or_else(|| (0, Stored::none(Precision::F32)));
        let puts = changes.iter().filter(|change| change.is_put()).count();
        let columns = rest.columns(puts)?;
        if first.0.checked_add(count as u64).is_none() {
            return Err(format!("Seq {first} leaves no room for {count} changes"));
        }
        Ok(Self {
            first,
            encoder,
            changes,
            dim,
            vectors,
            columns,
        })
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (head, rest) = self
            .0
            .split_at_checked(len)
            .ok_or_else(|| format!("{len} bytes wanted, {} left", self.0.len()))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N)?.try_into().expect("take gave N bytes"))
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn string(&mut self, len: u32) -> Result<Arc<str>, String> {
        let bytes = self.take(len as usize)?;
        Ok(std::str::from_utf8(bytes)
            .map_err(|e| e.to_string())?
            .into())
    }

    /// The columns of this many rows, if the batch has some, and the end.
    fn columns(&mut self, rows: usize) -> Result<LoggedColumns, String> {
        let Some((&kind, bytes)) = self.0.split_first() else {
            return Ok(LoggedColumns::none(rows));
        };
        if kind != COLUMNS {
            let len = self.0.len();
            return Err(format!("{len} bytes follow the last change"));
        }
        let mut fields = Take::new("columns", 0, bytes);
        let columns = LoggedColumns::decode(&mut fields, rows).map_err(|e| e.to_string())?;
        fields.end().map_err(|e| e.to_string())?;
        Ok(columns)
    }

    /// A change; the vector of a row put goes to the others of its batch, which have its kind and width.
    fn change(&mut self, vectors: &mut Option<(usize, Stored)>) -> Result<Change, String> {
        let [tag] = self.array()?;
        let key_len = self.u32()?;
        let key = self.string(key_len)?;
        if tag == DELETE {
            return Ok(Change::Delete { key });
        }
        let text = match self.u32()? {
            NO_TEXT => None,
            len => Some(self.string(len)?),
        };
        let dim = self.u32()? as usize;
        let bytes = |width: usize| dim.checked_mul(width).ok_or("a vector too long");
        let precision = match tag & !WITH_NORM {
            PUT_F32 => Precision::F32,
            PUT_F16 => Precision::F16,
            PUT_I8 => Precision::I8,
            _ => return Err(format!("a change of unknown kind {tag}")),
        };
        let (width, all) = vectors.get_or_insert_with(|| (dim, Stored::none(precision)));
        if *width != dim {
            return Err(format!("vectors of {width} and of {dim} values"));
        }
        if all.as_ref().precision() != precision {
            return Err("vectors of two kinds".into());
        }
        match all {
            Stored::F32(all) => all.extend(le_values(self.take(bytes(4)?)?, f32::from_le_bytes)),
            Stored::F16(all) => all.extend(le_values(self.take(bytes(2)?)?, f16::from_le_bytes)),
            Stored::I8 { scales, values } => {
                scales.push(f32::from_le_bytes(self.array()?));
                values.extend(le_values(self.take(dim)?, i8::from_le_bytes));
            }
        }
        let norm = match tag & WITH_NORM {
            0 => None,
            _ => Some(f64::from_le_bytes(self.array()?)),
        };
        Ok(Change::Put { key, text, norm })
    }
}

fn le_values<T, const N: usize>(
    bytes: &[u8],
    value: impl Fn([u8; N]) -> T,
) -> impl Iterator<Item = T> {
    let chunks = bytes.chunks_exact(N);
    chunks.map(move |chunk| value(chunk.try_into().expect("chunks are exact")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{Columns, Schema};

    fn sample() -> Batch {
        Batch {
            first: Seq(7),
            encoder: EncoderId([3; 32]),
            changes: vec![
                Change::Put {
                    key: "a".into(),
                    text: Some("text\0with every\u{7f}thing é".into()),
                    norm: None,
                },
                Change::Delete { key: "gone".into() },
                Change::Put {
                    key: "b".into(),
                    text: None,
                    norm: Some(1.0 / 3.0),
                },
            ],
            dim: 2,
            vectors: Stored::F16([0.5, -0.0, 1.5, -2.25].map(f16::from_f32).to_vec()),
            columns: LoggedColumns::none(2),
        }
    }

    fn with_columns() -> Batch {
        let mut columns = Columns::default();
        columns.set("year", [2020, 2021]).unwrap();
        columns.set("lang", [None, Some("de")]).unwrap();
        Batch {
            columns: columns.bind(&Schema::default()).unwrap(),
            ..sample()
        }
    }

    #[test]
    fn vectors_of_two_kinds_or_widths_are_refused() {
        let one = |vectors: Stored, dim| {
            let batch = Batch {
                changes: sample().changes[..1].to_vec(),
                dim,
                vectors,
                columns: LoggedColumns::none(1),
                ..sample()
            };
            let mut bytes = Vec::new();
            batch.encode(&mut bytes);
            bytes
        };
        let first = one(Stored::F16(vec![f16::ZERO; 2]), 2);
        for (other, why) in [
            (one(Stored::F32(vec![0.0; 2]), 2), "two kinds"),
            (one(Stored::F16(vec![f16::ZERO; 3]), 3), "2 and of 3"),
        ] {
            let mut bytes = first.clone();
            // The count, and the change of the other behind its own header of 8 + 32 + 4 bytes.
            bytes[40] = 2;
            bytes.extend(&other[44..]);
            assert!(Batch::decode(&bytes).unwrap_err().contains(why));
        }
    }

    #[test]
    fn a_batch_comes_back_as_it_was_in_every_precision() {
        let values = [0.5, -0.0, 1.5, -2.25];
        for precision in Precision::ALL {
            for batch in [sample(), with_columns()] {
                let batch = Batch {
                    vectors: precision.round(&values, 2, false),
                    ..batch
                };
                let mut bytes = Vec::new();
                batch.encode(&mut bytes);
                assert_eq!(Batch::decode(&bytes).unwrap(), batch);
                assert_eq!(batch.end(), Seq(10));
            }
        }
    }

    #[test]
    fn a_batch_cut_anywhere_or_followed_by_anything_is_refused() {
        for batch in [sample(), with_columns()] {
            let mut bytes = Vec::new();
            batch.encode(&mut bytes);
            for len in 0..bytes.len() {
                // Without its columns it is a batch, which its record's checksum does not let through.
                let whole = Batch::decode(&bytes[..len]);
                assert!(whole.is_err() || whole == Ok(sample()), "cut at {len}");
            }
            bytes.push(0);
            assert!(Batch::decode(&bytes).is_err());
        }
    }
}
