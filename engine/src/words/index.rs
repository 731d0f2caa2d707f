//! The word index of a segment, read from its words file.

use super::Indexed;
use super::bm25::{Postings, Scorer, Term};
use super::counts::{Counts, Vocabulary};
use super::directory::Packed;
use super::lens::Lens;
use super::terms::Terms;
use crate::disk::files::Storage;
use crate::error::{Error, Result};
use crate::ids::WordsId;
use crate::scan::TopK;
use crate::segment::WordsFile;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tantivy::index::{InvertedIndexReader, SegmentReader};
use tantivy::postings::{BlockSegmentPostings, TermInfo};
use tantivy::schema::IndexRecordOption;
use tantivy::{Index, TantivyError};

/// The word index of a segment.
///
/// `open` reads the frame of the file only. The first query opens the index: it loads the dictionary and one byte per row.
/// Postings stay in the file. A query copies the postings of its terms.
pub(crate) struct SegmentWords {
    packed: Packed,
    opened: OnceLock<Opened>,
}

struct Opened {
    postings: Arc<InvertedIndexReader>,
    lens: Lens,
}

impl SegmentWords {
    /// Opens a words file, checking its frame and lengths.
    pub(crate) fn open(files: &dyn Storage, path: &Path) -> Result<Self> {
        let file = Arc::new(WordsFile::open(files, path)?);
        Ok(Self {
            packed: Packed::new(file),
            opened: OnceLock::new(),
        })
    }

    /// Returns the file.
    pub(crate) fn file(&self) -> &WordsFile {
        self.packed.file()
    }

    /// Returns `true` if the file was made with these settings and this program's index version. Otherwise it counts as
    /// missing.
    pub(crate) fn serves(&self, words: &WordsId) -> bool {
        let meta = self.file().meta();
        meta.words == *words && meta.index_version == super::INDEX_VERSION
    }

    /// Reads everything and returns what is damaged. If nothing is damaged, opens the index, too.
    pub(crate) fn verify(&self) -> Vec<Error> {
        let mut damage = self.file().verify();
        if damage.is_empty() && self.file().meta().index_version == super::INDEX_VERSION {
            damage.extend(self.opened().err());
        }
        damage
    }

    fn opened(&self) -> Result<&Opened> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = self.guarded(|| self.open_index())?;
        // Another thread may have opened it first. Then its index is used.
        Ok(self.opened.get_or_init(|| opened))
    }

    fn open_index(&self) -> tantivy::Result<Opened> {
        let index = Index::open(self.packed.clone())?;
        let segments = index.searchable_segments()?;
        let [segment] = segments.as_slice() else {
            return Err(strange(format!("{} segments", segments.len())));
        };
        let reader = SegmentReader::open(segment)?;
        let field = index.schema().get_field(super::FIELD)?;
        let lens = reader.get_fieldnorms_reader(field)?;
        let rows = self.file().meta().rows;
        let found = (reader.max_doc(), lens.num_docs());
        if found != (rows, rows) {
            return Err(strange(format!(
                "{found:?} documents and lengths for {rows} rows"
            )));
        }
        Ok(Opened {
            postings: reader.inverted_index(field)?,
            lens: Lens::new((0..rows).map(|row| lens.fieldnorm_id(row)).collect()),
        })
    }

    /// Calls the library, and turns its errors and panics into damage of this file. Files are checked before the
    /// library reads them, so neither should happen.
    fn guarded<T>(&self, run: impl FnOnce() -> tantivy::Result<T>) -> Result<T> {
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(self.packed.explain(error.to_string())),
            Err(_) => Err(self.packed.explain("the search library panicked")),
        }
    }

    /// Opens the postings of the terms that the segment has.
    fn terms(
        opened: &Opened,
        terms: &Terms,
        option: IndexRecordOption,
    ) -> tantivy::Result<Vec<Term<Blocks>>> {
        let mut found = Vec::new();
        for (number, term) in terms.iter().enumerate() {
            if let Some(info) = opened.postings.terms().get(term)? {
                let blocks = Blocks::open(opened, &info, option)?;
                found.push(Term::new(number, blocks));
            }
        }
        Ok(found)
    }
}

fn strange(what: impl Into<String>) -> TantivyError {
    TantivyError::InternalError(what.into())
}

/// If dead rows are fewer than one in this many of a term's rows, looking them up is faster than reading all.
const FEW: u64 = 16;

/// Returns how many live rows have a term.
fn df(
    opened: &Opened,
    info: &TermInfo,
    live: Option<&[u64]>,
    dead: &[u32],
) -> tantivy::Result<u64> {
    let all = u64::from(info.doc_freq);
    let Some(live) = live.filter(|_| !dead.is_empty()) else {
        return Ok(all);
    };
    let term = Term::new(0, Blocks::open(opened, info, IndexRecordOption::Basic)?);
    // Looking up dead rows reads at most as many blocks as there are dead rows.
    Ok(match (dead.len() as u64) < all / FEW {
        true => all.saturating_sub(term.among(dead)),
        false => term.within(live),
    })
}

impl Indexed for SegmentWords {
    fn count(&self, terms: &Terms, live: Option<&[u64]>) -> Result<Counts> {
        let opened = self.opened()?;
        let dead = opened.lens.dead(live);
        let count = |term: &str| match opened.postings.terms().get(term)? {
            Some(info) => df(opened, &info, live, &dead),
            None => Ok(0),
        };
        let counted = self.guarded(|| terms.iter().map(count).collect())?;
        Ok(Counts {
            rows: opened.lens.rows(live),
            total_len: opened.lens.total(live),
            df: counted,
        })
    }

    fn count_all(&self, live: Option<&[u64]>, into: &mut Vocabulary) -> Result<()> {
        let opened = self.opened()?;
        let dead = opened.lens.dead(live);
        into.rows += opened.lens.rows(live);
        into.total_len += opened.lens.total(live);
        self.guarded(|| {
            let mut terms = opened.postings.terms().stream()?;
            while let Some((term, info)) = terms.next() {
                let term = str::from_utf8(term).map_err(|e| strange(e.to_string()))?;
                into.add(term, df(opened, info, live, &dead)?);
            }
            Ok(())
        })
    }

    fn best(
        &self,
        terms: &Terms,
        scorer: &Scorer,
        mask: Option<&[u64]>,
        top: &mut TopK,
    ) -> Result<()> {
        let opened = self.opened()?;
        self.guarded(|| {
            let terms = Self::terms(opened, terms, IndexRecordOption::WithFreqs)?;
            scorer.collect(terms, opened.lens.bytes(), mask, top);
            Ok(())
        })
    }

    fn score(
        &self,
        terms: &Terms,
        scorer: &Scorer,
        rows: &[u32],
        scores: &mut [f32],
    ) -> Result<()> {
        let opened = self.opened()?;
        self.guarded(|| {
            let terms = Self::terms(opened, terms, IndexRecordOption::WithFreqs)?;
            scorer.score(terms, opened.lens.bytes(), rows, scores);
            Ok(())
        })
    }
}

impl fmt::Debug for SegmentWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SegmentWords").field(self.file()).finish()
    }
}

/// The postings of a term, in blocks of 128 rows.
struct Blocks(BlockSegmentPostings);

impl Blocks {
    fn open(opened: &Opened, info: &TermInfo, option: IndexRecordOption) -> tantivy::Result<Self> {
        let postings = &opened.postings;
        Ok(Self(
            postings.read_block_postings_from_terminfo(info, option)?,
        ))
    }
}

impl Postings for Blocks {
    fn rows(&self) -> &[u32] {
        self.0.docs()
    }

    fn counts(&self) -> &[u32] {
        self.0.freqs()
    }

    fn advance(&mut self) {
        self.0.advance();
    }

    fn seek(&mut self, row: u32) -> usize {
        self.0.seek(row)
    }
}
