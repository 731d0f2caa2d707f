//! A batch as it stands in the log: what was accepted together, and is there whole or not at all.

use crate::ids::{EncoderId, Seq};
use half::f16;
use std::sync::Arc;

/// What one `insert` or `delete` changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The `Seq` of the first change; the others follow it one by one.
    pub first: Seq,
    /// The encoder whose vectors these are.
    pub encoder: EncoderId,
    /// The changes, in order.
    pub changes: Vec<Change>,
}

/// One accepted row, or the deletion of one.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The row with this key is now this.
    Put {
        /// The user's key.
        key: Arc<str>,
        /// The text, where the database encodes texts.
        text: Option<Arc<str>>,
        /// The vector as it is stored.
        vector: StoredVector,
    },
    /// There is no row with this key any more.
    Delete {
        /// The user's key.
        key: Arc<str>,
    },
}

impl Change {
    /// The key concerned.
    pub fn key(&self) -> &Arc<str> {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// A vector as it is stored: f32 as the user gave it, or f16 as an encoder made it.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredVector {
    /// As given (normalised for cosine).
    F32(Box<[f32]>),
    /// The encoder's output, rounded.
    F16(Box<[f16]>),
}

impl StoredVector {
    /// Elements.
    pub fn dim(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::F16(v) => v.len(),
        }
    }

    /// The same values as f32.
    pub fn widen(&self) -> Vec<f32> {
        match self {
            Self::F32(v) => v.to_vec(),
            Self::F16(v) => v.iter().map(|x| x.to_f32()).collect(),
        }
    }
}

const PUT_F32: u8 = 1;
const PUT_F16: u8 = 2;
const DELETE: u8 = 3;
const NO_TEXT: u32 = u32::MAX;

impl Batch {
    /// The `Seq` after the last change.
    pub fn end(&self) -> Seq {
        Seq(self.first.0 + self.changes.len() as u64)
    }

    /// Appends the batch to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.first.0.to_le_bytes());
        out.extend(self.encoder.0);
        out.extend((self.changes.len() as u32).to_le_bytes());
        for change in &self.changes {
            let tag = match change {
                Change::Put {
                    vector: StoredVector::F32(_),
                    ..
                } => PUT_F32,
                Change::Put {
                    vector: StoredVector::F16(_),
                    ..
                } => PUT_F16,
                Change::Delete { .. } => DELETE,
            };
            out.push(tag);
            put_bytes(out, change.key().as_bytes());
            let Change::Put { text, vector, .. } = change else {
                continue;
            };
            match text {
                Some(text) => put_bytes(out, text.as_bytes()),
                None => out.extend(NO_TEXT.to_le_bytes()),
            }
            out.extend((vector.dim() as u32).to_le_bytes());
            match vector {
                StoredVector::F32(v) => out.extend_from_slice(bytemuck::cast_slice(v)),
                StoredVector::F16(v) => out.extend_from_slice(bytemuck::cast_slice(v)),
            }
        }
    }

    /// The batch that `encode` wrote, or what is wrong with these bytes.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = Cursor(bytes);
        let first = Seq(rest.u64()?);
        let encoder = EncoderId(rest.array()?);
        let count = rest.u32()? as usize;
        // Each change takes five bytes or more: a count that the record can't hold allocates nothing.
        let mut changes = Vec::with_capacity(count.min(rest.0.len() / 5));
        for _ in 0..count {
            changes.push(rest.change()?);
        }
        if !rest.0.is_empty() {
            return Err(format!("{} bytes follow the last change", rest.0.len()));
        }
        if first.0.checked_add(count as u64).is_none() {
            return Err(format!("Seq {first} leaves no room for {count} changes"));
        }
        Ok(Self {
            first,
            encoder,
            changes,
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

    fn change(&mut self) -> Result<Change, String> {
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
        let vector = match tag {
            PUT_F32 => StoredVector::F32(le_values(self.take(bytes(4)?)?, f32::from_le_bytes)),
            PUT_F16 => StoredVector::F16(le_values(self.take(bytes(2)?)?, f16::from_le_bytes)),
            other => return Err(format!("a change of unknown kind {other}")),
        };
        Ok(Change::Put { key, text, vector })
    }
}

fn le_values<T, const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> T) -> Box<[T]> {
    bytes
        .chunks_exact(N)
        .map(|chunk| value(chunk.try_into().expect("chunks are exact")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Batch {
        Batch {
            first: Seq(7),
            encoder: EncoderId([3; 32]),
            changes: vec![
                Change::Put {
                    key: "a".into(),
                    text: Some("text\0with every\u{7f}thing é".into()),
                    vector: StoredVector::F16(vec![f16::from_f32(0.5), f16::NEG_ZERO].into()),
                },
                Change::Delete { key: "gone".into() },
                Change::Put {
                    key: "b".into(),
                    text: None,
                    vector: StoredVector::F32(vec![1.5, -2.25, 3.0].into()),
                },
            ],
        }
    }

    #[test]
    fn a_batch_comes_back_as_it_was() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        assert_eq!(Batch::decode(&bytes).unwrap(), sample());
        assert_eq!(sample().end(), Seq(10));
    }

    #[test]
    fn a_batch_cut_anywhere_or_followed_by_anything_is_refused() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        for len in 0..bytes.len() {
            assert!(Batch::decode(&bytes[..len]).is_err(), "cut at {len}");
        }
        bytes.push(0);
        assert!(Batch::decode(&bytes).is_err());
    }
}
