//! Content ids: the id of a model or an encoder is the hash of its contents.

use crate::error::{Error, Result};
use crate::metric::Metric;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// Declares a 32-byte name by content.
macro_rules! content_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// Returns the first 12 hex digits: for people and for file names.
            pub fn short(&self) -> String {
                to_hex(&self.0[..6])
            }

            /// Returns `true` if the hex digits of this id begin with `prefix`, in either case.
            pub fn starts_with(&self, prefix: &str) -> bool {
                !prefix.is_empty() && to_hex(&self.0).starts_with(&prefix.to_ascii_lowercase())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&to_hex(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.short())
            }
        }

        impl FromStr for $name {
            type Err = Error;

            /// Takes all 64 hex digits; a shorter prefix is resolved where the known ids are listed.
            fn from_str(text: &str) -> Result<Self> {
                from_hex(text).map(Self).ok_or_else(|| {
                    Error::invalid(format!("{text:?} is not an id; it has 64 hex digits"))
                })
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

content_id! {
    /// What turns a text into a stored vector: encoder, tokenizer, pooling, prefixes and limits. For precomputed
    /// vectors it is the hash of their dimensions and metric.
    EncoderId
}

content_id! {
    /// What codes depend on: the encoder, the quantizer's tensors and how they are used. Codes files carry it, so that
    /// codes are never scored with another codebook.
    CodesId
}

content_id! {
    /// Everything that defines an answer: what [`CodesId`] stands for, and how candidates are scored. Without a learned
    /// scorer it has the bytes of the [`CodesId`].
    ModelId
}

content_id! {
    /// How texts become terms: settings, and the versions of tokenizer and index. Counts of terms are valid under one id only.
    WordsId
}

impl ModelId {
    /// Returns the id of the model that every database has without training: this encoder and no
    /// quantizer.
    pub fn exact(encoder: EncoderId) -> Self {
        let hash = ContentHash::new("mopqdb model 1").field(&encoder.0);
        Self(hash.field(b"no quantizer").finish())
    }
}

impl EncoderId {
    /// Returns the id for precomputed vectors with these dimensions and this metric.
    pub fn vectors(dim: usize, metric: Metric) -> Self {
        let hash = ContentHash::new("mopqdb vectors 1")
            .number(dim as u64)
            .field(metric.name().as_bytes());
        Self(hash.finish())
    }
}

/// Hashes fields with their lengths, so that no two lists of fields run into each other.
pub(crate) struct ContentHash(Sha256);

impl ContentHash {
    /// Begins with a word for the kind of thing that is named.
    pub(crate) fn new(kind: &str) -> Self {
        Self(Sha256::new()).field(kind.as_bytes())
    }

    /// Adds one field.
    pub(crate) fn field(mut self, bytes: &[u8]) -> Self {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// Adds a text, or its absence: an absent field differs from an empty one.
    pub(crate) fn maybe(self, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.field(b"some").field(text.as_bytes()),
            None => self.field(b"none"),
        }
    }

    /// Adds a number.
    pub(crate) fn number(self, number: u64) -> Self {
        self.field(&number.to_le_bytes())
    }

    /// Returns the hash of all fields.
    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// Lower-case hex digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// N bytes from twice as many hex digits of either case.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = (high * 16 + low) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_from_its_hex_digits() {
        let id = ModelId(ContentHash::new("test").field(b"x").finish());
        assert_eq!(id.to_string().parse::<ModelId>().unwrap(), id);
        assert_eq!(
            id.to_string().to_uppercase().parse::<ModelId>().unwrap(),
            id
        );
        assert_eq!(id.short().len(), 12);
        assert!(id.starts_with(&id.short()) && !id.starts_with("") && !id.starts_with("xyz"));
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<ModelId>(&json).unwrap(), id);
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "ab", &"g".repeat(64), &"a".repeat(63), &"é".repeat(32)] {
            assert!(text.parse::<EncoderId>().is_err(), "{text}");
        }
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        let one = ContentHash::new("k").field(b"ab").field(b"c").finish();
        let two = ContentHash::new("k").field(b"a").field(b"bc").finish();
        assert_ne!(one, two);
        assert_ne!(
            ContentHash::new("k").maybe(None).finish(),
            ContentHash::new("k").maybe(Some("")).finish()
        );
    }
}
