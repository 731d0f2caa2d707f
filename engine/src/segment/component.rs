//! The files that a segment may have: listed once, for everything that iterates over them.
//!
//! `backup`, `verify`, `repair`, `prune`, `stats` and `rebuild` iterate over these. A new kind of file is one more
//! variant here and one in [`FileName`].

use super::columns::ColumnsFile;
use super::{CodesFile, Deletions, FileName, RowsFile, RowsHash, ShortId, VecsFile, WordsFile};
use crate::disk::files::Storage;
use crate::error::{Error, Result};
use crate::format::Kind;
use crate::ids::SegmentId;
use std::path::Path;

/// A kind of file of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Component {
    /// What the user inserted: keys, texts or vectors.
    Rows,
    /// One encoder's output for the texts.
    Vecs,
    /// The codes under one quantizer.
    Codes,
    /// The word index of the texts.
    Words,
    /// The rows that are dead in a version.
    Deletions,
    /// The columns of the rows, which the user inserted too.
    Columns,
}

/// What a file that is made from a segment's rows says about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MadeFrom {
    pub(crate) segment: SegmentId,
    pub(crate) rows_hash: RowsHash,
    pub(crate) rows: u32,
}

impl Component {
    /// Returns `true` if such files can be computed again from the segment's rows. The others hold what the user
    /// inserted or deleted: they are removed only for a reason that can be seen on disk.
    pub(crate) fn is_derived(self) -> bool {
        match self {
            Self::Vecs | Self::Codes | Self::Words => true,
            Self::Rows | Self::Deletions | Self::Columns => false,
        }
    }

    /// Returns the kind of container of such a file.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Rows => Kind::Rows,
            Self::Vecs => Kind::Vecs,
            Self::Codes => Kind::Codes,
            Self::Words => Kind::Words,
            Self::Deletions => Kind::Deletions,
            Self::Columns => Kind::Columns,
        }
    }

    /// Opens such a file, reads all of it and returns what is damaged.
    ///
    /// # Errors
    /// Those of opening the file.
    pub(crate) fn verify(self, files: &dyn Storage, path: &Path) -> Result<Vec<Error>> {
        Ok(match self {
            Self::Rows => RowsFile::open(files, path)?.verify(),
            Self::Vecs => VecsFile::open(files, path)?.verify(),
            Self::Codes => CodesFile::open(files, path)?.verify(),
            Self::Words => WordsFile::open(files, path)?.verify(),
            Self::Deletions => {
                Deletions::read(files, path)?;
                Vec::new()
            }
            Self::Columns => ColumnsFile::open(files, path)?.verify(),
        })
    }

    /// Returns the rows that a file was made from, if such files are made from rows.
    ///
    /// # Errors
    /// Those of opening the file.
    pub(crate) fn made_from(self, files: &dyn Storage, path: &Path) -> Result<Option<MadeFrom>> {
        let (segment, rows_hash, rows) = match self {
            Self::Vecs => {
                let meta = *VecsFile::open(files, path)?.meta();
                (meta.segment, meta.rows_hash, meta.rows)
            }
            Self::Codes => {
                let meta = *CodesFile::open(files, path)?.meta();
                (meta.segment, meta.rows_hash, meta.rows)
            }
            Self::Words => {
                let meta = *WordsFile::open(files, path)?.meta();
                (meta.segment, meta.rows_hash, meta.rows)
            }
            Self::Columns => {
                let meta = *ColumnsFile::open(files, path)?.meta();
                (meta.segment, meta.rows_hash, meta.rows)
            }
            Self::Rows | Self::Deletions => return Ok(None),
        };
        Ok(Some(MadeFrom {
            segment,
            rows_hash,
            rows,
        }))
    }
}

impl FileName {
    /// Returns the kind of file that has this name.
    pub(crate) fn component(self) -> Component {
        match self {
            Self::Rows(_) => Component::Rows,
            Self::Vecs(..) => Component::Vecs,
            Self::Codes(..) => Component::Codes,
            Self::Words(..) => Component::Words,
            Self::Deletions(..) => Component::Deletions,
            Self::Columns(_) => Component::Columns,
        }
    }

    /// Returns what a file that can be computed again was made for: a component under an encoder or a quantizer.
    pub(crate) fn derived(self) -> Option<(Component, ShortId)> {
        match self {
            Self::Vecs(_, made_for) | Self::Codes(_, made_for) | Self::Words(_, made_for) => {
                Some((self.component(), made_for))
            }
            Self::Rows(_) | Self::Deletions(..) | Self::Columns(_) => None,
        }
    }
}
