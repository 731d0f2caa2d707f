//! The names of segment files.

use crate::{Generation, SegmentId};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The first 12 hexadecimal digits of the id of a model, an encoder or words settings. They are enough for a name,
/// because the file contains the whole id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShortId([u8; 6]);

impl ShortId {
    /// Returns the beginning of an id.
    pub fn of(id: &[u8; 32]) -> Self {
        Self(std::array::from_fn(|i| id[i]))
    }
}

impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for ShortId {
    type Err = ();

    fn from_str(digits: &str) -> Result<Self, ()> {
        let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if digits.len() != 12 || !digits.bytes().all(lower) {
            return Err(());
        }
        let number = u64::from_str_radix(digits, 16).map_err(|_| ())?;
        Ok(Self(std::array::from_fn(|i| {
            (number >> (40 - 8 * i)) as u8
        })))
    }
}

/// The name of a file of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileName {
    /// `SEGMENT.rows`
    Rows(SegmentId),
    /// `SEGMENT.ENCODER.vecs`
    Vecs(SegmentId, ShortId),
    /// `SEGMENT.MODEL.codes`
    Codes(SegmentId, ShortId),
    /// `SEGMENT.WORDS.words`
    Words(SegmentId, ShortId),
    /// `SEGMENT.VERSION.dels`
    Deletions(SegmentId, Generation),
    /// `SEGMENT.cols`
    Columns(SegmentId),
}

impl FileName {
    /// Returns the segment to which the file belongs.
    pub fn segment(self) -> SegmentId {
        match self {
            Self::Rows(segment)
            | Self::Columns(segment)
            | Self::Vecs(segment, _)
            | Self::Codes(segment, _)
            | Self::Words(segment, _)
            | Self::Deletions(segment, _) => segment,
        }
    }

    /// Returns the path in a directory.
    pub fn within(self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }

    /// Returns the name at the end of a path, if it is a segment file's.
    pub fn of(path: &Path) -> Option<Self> {
        path.file_name()?.to_str()?.parse().ok()
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Ten digits keep names in order in a listing; longer numbers are allowed.
        match self {
            Self::Rows(segment) => write!(f, "{segment:010}.rows"),
            Self::Vecs(segment, encoder) => write!(f, "{segment:010}.{encoder}.vecs"),
            Self::Codes(segment, model) => write!(f, "{segment:010}.{model}.codes"),
            Self::Words(segment, words) => write!(f, "{segment:010}.{words}.words"),
            Self::Deletions(segment, version) => write!(f, "{segment:010}.{version:010}.dels"),
            Self::Columns(segment) => write!(f, "{segment:010}.cols"),
        }
    }
}

impl FromStr for FileName {
    type Err = ();

    /// Accepts only what `Display` writes.
    fn from_str(name: &str) -> Result<Self, ()> {
        let number = |digits: &str| digits.parse::<u64>().map_err(|_| ());
        let mut parts = name.split('.');
        let mut next = || parts.next().ok_or(());
        let segment = SegmentId(number(next()?)?);
        let second = next()?;
        let parsed = match (second, parts.next()) {
            ("rows", None) => Self::Rows(segment),
            ("cols", None) => Self::Columns(segment),
            (encoder, Some("vecs")) => Self::Vecs(segment, encoder.parse()?),
            (model, Some("codes")) => Self::Codes(segment, model.parse()?),
            (words, Some("words")) => Self::Words(segment, words.parse()?),
            (version, Some("dels")) => Self::Deletions(segment, Generation(number(version)?)),
            _ => return Err(()),
        };
        if parsed.to_string() == name {
            Ok(parsed)
        } else {
            Err(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_written_and_no_other_spelling_is_accepted() {
        let short = ShortId::of(&[0xa0; 32]);
        for (name, spelled) in [
            (FileName::Rows(SegmentId(7)), "0000000007.rows"),
            (
                FileName::Rows(SegmentId(u64::MAX)),
                "18446744073709551615.rows",
            ),
            (
                FileName::Vecs(SegmentId(1), short),
                "0000000001.a0a0a0a0a0a0.vecs",
            ),
            (
                FileName::Codes(SegmentId(1), short),
                "0000000001.a0a0a0a0a0a0.codes",
            ),
            (
                FileName::Words(SegmentId(1), short),
                "0000000001.a0a0a0a0a0a0.words",
            ),
            (
                FileName::Deletions(SegmentId(12), Generation(34)),
                "0000000012.0000000034.dels",
            ),
            (FileName::Columns(SegmentId(7)), "0000000007.cols"),
        ] {
            assert_eq!(name.to_string(), spelled);
            assert_eq!(spelled.parse(), Ok(name));
            assert_eq!(
                FileName::of(Path::new("/some/where").join(spelled).as_path()),
                Some(name)
            );
        }
        for other in [
            "",
            ".rows",
            "7.rows",
            "7.cols",
            "0000000007.a0a0a0a0a0a0.cols",
            "+000000007.rows",
            "00000000007.rows",
            "0000000007.rows.tmp",
            "0000000007.rows.",
            "0000000007.codes",
            "0000000001.A0A0A0A0A0A0.codes",
            "0000000001.a0a0a0a0a0.codes",
            "0000000001.a0a0a0a0a0a0.codes.tmp",
            "0000000012.34.dels",
            "99999999999999999999.rows",
            "MANIFEST-1",
        ] {
            assert_eq!(other.parse::<FileName>(), Err(()), "{other:?}");
        }
    }
}
