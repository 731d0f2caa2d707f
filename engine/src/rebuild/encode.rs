//! The files of one segment under another model: vectors if the encoder differs, and codes.

use super::RebuildOptions;
use crate::disk::files::Files;
use crate::error::{Error, Result};
use crate::ids::RowId;
use crate::model::Model;
use crate::row::RowsKind;
use crate::segment::{CodesFile, FileName, ShortId, VecsFile, VecsMeta, VecsWriter};
use crate::stored::Stored;
use crate::threads;
use crate::view::segment::{SegmentView, check_codes, codes_path, vecs_path};
use crate::words::{SegmentWords, WordsWriter};
use crate::write::CodesSink;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The number of texts encoded at a time.
const TEXTS: usize = 1024;

/// The number of rows processed, by kind of work.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Encoded {
    pub(crate) rows: u64,
    pub(crate) reused: u64,
    pub(crate) texts: u64,
    /// The number of texts whose words were indexed.
    pub(crate) indexed: u64,
}

/// Writes the missing files of a segment under `target` into `out`. Looks in `homes` for existing files. A file is used
/// only if every byte of it is intact and it was made from these rows; otherwise it is written again.
pub(crate) fn encode_segment(
    files: &Arc<dyn Files>,
    homes: &[&Path],
    out: &Path,
    view: &SegmentView,
    target: &Model,
    options: &RebuildOptions,
    done: &mut dyn FnMut(u64),
) -> Result<Encoded> {
    let mut encoded = Encoded::default();
    let rows = view.sealed.rows.row_count();
    let vecs = match target.kind() {
        RowsKind::Vector => None,
        RowsKind::Text => Some(match find_vecs(files, homes, view, target)? {
            Some(vecs) => vecs,
            None => {
                encoded.texts = encode_texts(files, out, view, target, options)?;
                VecsFile::open(&**files, &vecs_path(out, view.sealed.id, target))?
            }
        }),
    };
    if target.words().is_some() && !has_words(files, homes, view, target)? {
        index_texts(files, out, view, target, options)?;
        encoded.indexed = rows as u64;
    }
    if target.quantizer().is_none() || has_codes(files, homes, view, target)? {
        encoded.reused = rows as u64;
        done(rows as u64);
        return Ok(encoded);
    }
    let hash = view.sealed.rows.hash();
    let mut sink = CodesSink::create(files, out, view.sealed.id, hash, rows as u32, target)?;
    let source = |range: Range<usize>| match &vecs {
        Some(vecs) => vecs.vectors(range),
        None => view.sealed.rows.vectors(range),
    };
    let threads = threads::count(options.threads)?;
    let mut pages = view.sealed.read_once(options.memory_limit / 4);
    let share = share_rows(target.dim(), threads, options.memory_limit);
    for start in (0..rows).step_by(share * threads) {
        options.check_stop()?;
        let end = (start + share * threads).min(rows);
        let shares = (start..end)
            .step_by(share)
            .map(|at| at..(at + share).min(end));
        let quantized = threads::share_out("mopqdb-rebuild", shares, |range| {
            let mut wide = Vec::with_capacity(range.len() * target.dim());
            source(range.clone())?.widen_into(&mut wide);
            (target.quantize(&wide)).map_err(|e| named(view, target, &range, &wide, e))
        })?;
        for codes in quantized {
            sink.push(&codes.codes, &codes.cells)?;
        }
        if let Some(vecs) = &vecs {
            vecs.release();
        }
        pages.passed((end - start) * target.dim() * 4);
        done((end - start) as u64);
    }
    sink.finish()?;
    encoded.rows = rows as u64;
    Ok(encoded)
}

/// Returns the number of rows in one thread's share, so that all buffers stay well within the limit.
fn share_rows(dim: usize, threads: usize, memory_limit: usize) -> usize {
    // Per row and thread: a widened vector, and the quantizer's projection of it.
    let row = dim * 4 * 3;
    (memory_limit / 4 / threads / row).clamp(64, 8192) / 64 * 64
}

/// Adds to an error the row that a model can't quantize.
fn named(
    view: &SegmentView,
    target: &Model,
    range: &Range<usize>,
    wide: &[f32],
    error: Error,
) -> Error {
    let dim = target.dim();
    let bad = wide
        .chunks_exact(dim)
        .position(|vector| target.quantize(vector).is_err());
    let key = bad.and_then(|at| view.sealed.rows.key(RowId((range.start + at) as u32)).ok());
    let model = target.model_id().short();
    Error::model(format!(
        "model {model} can't quantize the row {:?}: {error}; the old model stays",
        key.unwrap_or("?")
    ))
}

fn find_vecs(
    files: &Arc<dyn Files>,
    homes: &[&Path],
    view: &SegmentView,
    target: &Model,
) -> Result<Option<VecsFile>> {
    for home in homes {
        let path = vecs_path(home, view.sealed.id, target);
        // Its existence is not checked first: compaction may remove the files of a segment at any time.
        let vecs = match VecsFile::open(&**files, &path) {
            Err(e) if e.is_gone() || matches!(e, Error::Corrupt(_)) => continue,
            opened => opened?,
        };
        let meta = vecs.meta();
        if meta.rows_hash == view.sealed.rows.hash()
            && meta.encoder == target.encoder_id().0
            && meta.precision == target.precision()
            && vecs.verify().is_empty()
        {
            return Ok(Some(vecs));
        }
    }
    Ok(None)
}

fn has_codes(
    files: &Arc<dyn Files>,
    homes: &[&Path],
    view: &SegmentView,
    target: &Model,
) -> Result<bool> {
    for home in homes {
        let path = codes_path(home, view.sealed.id, target)
            .expect("a model with a quantizer has codes files");
        let codes = match CodesFile::open(&**files, &path) {
            Err(e) if e.is_gone() || matches!(e, Error::Corrupt(_)) => continue,
            opened => opened?,
        };
        let rows = &view.sealed.rows;
        let theirs = check_codes(&codes, rows, target).is_ok()
            && target.codes_id() == Some(codes.meta().codes);
        if theirs && codes.verify().is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_words(
    files: &Arc<dyn Files>,
    homes: &[&Path],
    view: &SegmentView,
    target: &Model,
) -> Result<bool> {
    let wanted = target
        .words()
        .expect("words are indexed only if the model has them");
    for home in homes {
        let name = FileName::Words(view.sealed.id, ShortId::of(&wanted.id.0));
        let words = match SegmentWords::open(&**files, &name.within(home)) {
            Err(e) if e.is_gone() || matches!(e, Error::Corrupt(_)) => continue,
            opened => opened?,
        };
        let theirs = words.file().expect_rows(&view.sealed.rows).is_ok();
        if theirs && words.serves(&wanted.id) && words.verify().is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Indexes the words of the live texts of a segment. Dead rows get none.
fn index_texts(
    files: &Arc<dyn Files>,
    out: &Path,
    view: &SegmentView,
    target: &Model,
    options: &RebuildOptions,
) -> Result<()> {
    let wanted = target
        .words()
        .expect("words are indexed only if the model has them");
    let rows = &view.sealed.rows;
    let name = FileName::Words(view.sealed.id, ShortId::of(&wanted.id.0));
    let mut writer = WordsWriter::create(
        Arc::clone(files),
        &name.within(out),
        wanted.settings,
        view.sealed.id,
        rows.hash(),
        rows.row_count() as u32,
    );
    let mut pages = view.sealed.read_once(options.memory_limit / 4);
    let mut cursor = rows.cursor();
    while let Some(row) = cursor.next()? {
        let text = row.value.text().filter(|_| view.live.contains(row.row));
        writer.push(text)?;
        pages.passed(row.key.len() + row.value.bytes() as usize);
        if row.row.0.is_multiple_of(4096) {
            options.check_stop()?;
        }
    }
    writer.finish()?;
    Ok(())
}

/// Encodes the live texts of a segment; dead rows get zeros.
fn encode_texts(
    files: &Arc<dyn Files>,
    out: &Path,
    view: &SegmentView,
    target: &Model,
    options: &RebuildOptions,
) -> Result<u64> {
    let rows = &view.sealed.rows;
    let meta = VecsMeta {
        segment: view.sealed.id,
        rows_hash: rows.hash(),
        encoder: target.encoder_id().0,
        rows: rows.row_count() as u32,
        dim: target.dim() as u32,
        precision: target.precision(),
    };
    let mut writer = VecsWriter::create(
        Arc::clone(files),
        &vecs_path(out, view.sealed.id, target),
        meta,
    )?;
    let mut cursor = rows.cursor();
    let mut pages = view.sealed.read_once(options.memory_limit / 4);
    let mut batch: Vec<Option<String>> = Vec::with_capacity(TEXTS);
    let mut texts = 0;
    loop {
        let next = cursor.next()?;
        let ended = next.is_none();
        if let Some(row) = next {
            let text = row.value.text().expect("rows of an encoder are texts");
            pages.passed(row.key.len() + text.len());
            batch.push(view.live.contains(row.row).then(|| text.to_owned()));
        }
        if batch.len() == TEXTS || (ended && !batch.is_empty()) {
            options.check_stop()?;
            let alive: Vec<&str> = batch.iter().flatten().map(String::as_str).collect();
            let vectors = match alive.is_empty() {
                true => Stored::none(target.precision()),
                false => target.encode_keys(&alive)?,
            };
            let zeros = vec![0.0; target.dim()];
            let zeros = target.precision().round(&zeros, target.dim(), false);
            let mut next = 0..alive.len();
            for row in &batch {
                let at = row
                    .as_ref()
                    .map(|_| next.next().expect("there is one vector per text"));
                writer.push(match at {
                    Some(at) => vectors.as_ref().rows(at..at + 1, target.dim()),
                    None => zeros.as_ref(),
                })?;
            }
            texts += alive.len() as u64;
            batch.clear();
        }
        if ended {
            break;
        }
    }
    writer.finish()?;
    Ok(texts)
}
