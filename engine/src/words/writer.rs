//! Writes the word index of a segment.

use super::scratch::Scratch;
use super::settings::Settings;
use super::tokens::{Stems, Tokenizer, Tokens};
use super::{FIELD, INDEX_VERSION};
use crate::disk::files::Files;
use crate::error::Result;
use crate::format::Written;
use crate::ids::SegmentId;
use crate::segment::{RowsHash, WordsMeta, WordsPacker};
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use tantivy::indexer::{SingleSegmentIndexWriter, merge_indices};
use tantivy::schema::{Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::store::Compressor;
use tantivy::tokenizer::{Token, TokenStream, TokenizerManager};
use tantivy::{Index, IndexSettings, TantivyDocument};

/// The memory for postings in bytes. A full piece is written to temporary files, and pieces are merged at the end.
const PIECE: usize = 96 << 20;

/// The initial size of the hash table of terms.
const INITIAL: usize = 1 << 20;

/// Writes a words file from the texts of the rows, in order.
///
/// Uses memory for one piece (96 MiB) and for one text beyond that; while pieces are merged, for the dictionary of each
/// and a few bytes per row. Other data of more than a megabyte is in temporary files next to the words file. Starts no
/// threads.
pub(crate) struct WordsWriter {
    files: Arc<dyn Files>,
    path: PathBuf,
    settings: Settings,
    meta: WordsMeta,
    open: Option<Piece>,
    /// The finished pieces, in order.
    done: Vec<(Index, Scratch)>,
    /// The number of rows pushed so far.
    rows: u32,
}

/// Rows that are indexed in memory.
struct Piece {
    writer: SingleSegmentIndexWriter,
    scratch: Scratch,
    field: Field,
    /// The memory in use before the first row.
    empty: usize,
}

impl WordsWriter {
    /// Begins a file for a segment of this many rows. `path` is its final path.
    pub(crate) fn create(
        files: Arc<dyn Files>,
        path: &Path,
        settings: Settings,
        segment: SegmentId,
        rows_hash: RowsHash,
        rows: u32,
    ) -> Self {
        Self {
            files,
            path: path.to_path_buf(),
            settings,
            meta: WordsMeta {
                segment,
                rows_hash,
                words: settings.id(),
                rows,
                index_version: INDEX_VERSION,
            },
            open: None,
            done: Vec::new(),
            rows: 0,
        }
    }

    /// Adds the text of the next row. A dead row may be added without its text.
    pub(crate) fn push(&mut self, text: Option<&str>) -> Result<()> {
        let piece = match &mut self.open {
            Some(piece) => piece,
            none => none.insert(begin(
                &self.files,
                &self.path,
                self.settings,
                self.done.len(),
            )?),
        };
        let mut document = TantivyDocument::default();
        if let Some(text) = text {
            document.add_text(piece.field, text);
        }
        let added = piece.writer.add_document(document);
        added.map_err(|error| piece.scratch.explain(error))?;
        self.rows += 1;
        if piece.writer.mem_usage() - piece.empty >= PIECE {
            self.put_aside()?;
        }
        Ok(())
    }

    /// Finishes the current piece.
    pub(super) fn put_aside(&mut self) -> Result<()> {
        if let Some(Piece {
            writer, scratch, ..
        }) = self.open.take()
        {
            let index = writer.finalize();
            let index = index.map_err(|error| scratch.explain(error))?;
            self.done.push((index, scratch));
        }
        Ok(())
    }

    /// Syncs the file and renames it to its final path; the caller syncs the directory.
    pub(crate) fn finish(mut self) -> Result<Written> {
        assert_eq!(self.rows, self.meta.rows, "every row was pushed");
        if self.open.is_none() && self.done.is_empty() {
            let none = begin(&self.files, &self.path, self.settings, 0)?;
            self.open = Some(none);
        }
        self.put_aside()?;
        if self.done.len() > 1 {
            let scratch = Scratch::new(self.files.clone(), &self.path, self.done.len());
            let pieces: Vec<_> = self.done.iter().map(|(index, _)| index.clone()).collect();
            let merged = merge_indices(&pieces, scratch.clone());
            let merged = merged.map_err(|error| scratch.explain(error))?;
            // The pieces and their files.
            drop(pieces);
            self.done = vec![(merged, scratch)];
        }
        let (index, scratch) = self.done.pop().expect("there is at least one piece");
        self.pack(&index, &scratch)
    }

    fn pack(&self, index: &Index, scratch: &Scratch) -> Result<Written> {
        let ids = index.searchable_segment_ids();
        let ids = ids.map_err(|error| scratch.explain(error))?;
        let [id] = ids.as_slice() else {
            unreachable!("one piece, or all merged into one: {ids:?}");
        };
        // The library gives its segment a random id. It is replaced by zeros, so that equal rows give equal files.
        let drawn = id.uuid_string();
        let hyphens = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
        let hyphenated = hyphens.map(|(from, to)| &drawn[from..to]).join("-");
        let anonymous = |text: &str| {
            let digits = |text: &str| text.replace(|c: char| c != '-', "0");
            text.replace(&drawn, &digits(&drawn))
                .replace(&hyphenated, &digits(&hyphenated))
        };

        let mut packer = WordsPacker::create(self.files.clone(), &self.path)?;
        for path in scratch.names() {
            let name = path.to_str().expect("the library's names are ASCII");
            let bytes = scratch.bytes(&path);
            match name {
                // Only the library's garbage collector reads this list.
                ".managed.json" => continue,
                "meta.json" => {
                    let meta = str::from_utf8(&bytes).expect("JSON is UTF-8");
                    packer.begin(name);
                    packer.write(anonymous(meta).as_bytes())?;
                }
                _ if name.ends_with(".store") => {
                    packer.begin(&anonymous(name));
                    packer.write(footer(&bytes))?;
                }
                _ => {
                    packer.begin(&anonymous(name));
                    packer.write(&bytes)?;
                }
            }
        }
        packer.finish(&self.meta)
    }
}

/// Returns the footer of a file of the library. Of the stored documents, only the footer is kept: they are empty, take
/// five bytes each, and are never read.
fn footer(file: &[u8]) -> &[u8] {
    let fixed = (file.last_chunk::<8>()).expect("a file of the library has a footer");
    let [a, b, c, d, ..] = *fixed;
    let len = u32::from_le_bytes([a, b, c, d]) as usize + fixed.len();
    &file[file.len() - len..]
}

fn begin(files: &Arc<dyn Files>, path: &Path, settings: Settings, number: usize) -> Result<Piece> {
    let mut schema = Schema::builder();
    let indexing = TextFieldIndexing::default()
        .set_tokenizer(FIELD)
        .set_index_option(IndexRecordOption::WithFreqs)
        .set_fieldnorms(true);
    let field = schema.add_text_field(FIELD, TextOptions::default().set_indexing_options(indexing));
    let tokenizers = TokenizerManager::new();
    tokenizers.register(FIELD, ForIndex::new(settings));
    let scratch = Scratch::new(files.clone(), path, number);
    let writer = Index::builder()
        .schema(schema.build())
        .settings(IndexSettings {
            docstore_compression: Compressor::None,
            docstore_compress_dedicated_thread: false,
            ..IndexSettings::default()
        })
        .tokenizers(tokenizers)
        .single_segment_index_writer(scratch.clone(), INITIAL);
    let writer: SingleSegmentIndexWriter = writer.map_err(|error| scratch.explain(error))?;
    Ok(Piece {
        empty: writer.mem_usage(),
        writer,
        scratch,
        field,
    })
}

/// Returns an index of some texts, for the search library's own queries.
#[cfg(test)]
pub(super) fn index_of(settings: Settings, texts: &[String]) -> Index {
    let files = Arc::new(crate::disk::files::Disk::default());
    let files: Arc<dyn Files> = files;
    let mut piece = begin(&files, Path::new("none"), settings, 0).unwrap();
    for text in texts {
        let mut document = TantivyDocument::default();
        document.add_text(piece.field, text);
        piece.writer.add_document(document).unwrap();
    }
    piece.writer.finalize().unwrap()
}

/// The tokenizer of this crate with the interface of the library.
#[derive(Clone)]
struct ForIndex {
    tokenizer: Tokenizer,
    stems: Stems,
    token: Token,
}

impl ForIndex {
    fn new(settings: Settings) -> Self {
        Self {
            tokenizer: Tokenizer::new(settings),
            stems: Stems::default(),
            token: Token::default(),
        }
    }
}

impl tantivy::tokenizer::Tokenizer for ForIndex {
    type TokenStream<'t> = Stream<'t>;

    fn token_stream<'t>(&'t mut self, text: &'t str) -> Stream<'t> {
        // Positions of tokens are not indexed.
        self.token.position = 0;
        Stream {
            tokens: self.tokenizer.tokens_of_many(text, &mut self.stems),
            token: &mut self.token,
        }
    }
}

struct Stream<'t> {
    tokens: Tokens<'t>,
    token: &'t mut Token,
}

impl TokenStream for Stream<'_> {
    fn advance(&mut self) -> bool {
        let Some(token) = self.tokens.next() else {
            return false;
        };
        self.token.text.clear();
        self.token.text.push_str(token);
        true
    }

    fn token(&self) -> &Token {
        self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        self.token
    }
}
