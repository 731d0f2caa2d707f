//! Checking a database for damage, without opening it.

use crate::disk::files::{Disk, Storage};
use crate::disk::layout::Layout;
use crate::error::{Error, Result};
use crate::ids::RowId;
use crate::log;
use crate::model::Model;
use crate::model::bundle::Bundle;
use crate::options::ReadOptions;
use crate::quantizer::CellStarts;
use crate::row::RowsKind;
use crate::segment::FileName;
use crate::segment::SegmentRecord;
use crate::version;
use crate::version::VersionRecord;
use crate::version::manifest::{self, Found};
use crate::view::segment::{Sealed, SegmentView};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of a check. Every checksum is always compared.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Whether to compute every code again from its stored vector. It must be equal bit for bit.
    pub deep: bool,
    /// How many texts to encode again. Each must equal its stored vector within [`ENCODE_TOLERANCE`].
    pub encode: usize,
}

impl VerifyOptions {
    setters!(
        deep: bool,
        encode: usize,
    );
}

/// The largest accepted distance (1 - cosine) between a text's vector and the stored one. The last digits of ONNX
/// Runtime's output depend on the rest of the batch, and stored vectors are rounded to f16.
pub const ENCODE_TOLERANCE: f64 = 1e-3;

/// The result of a check.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Verified {
    /// What is damaged or missing; empty if the database is sound.
    pub problems: Vec<String>,
    /// Observations that are not damage.
    pub notes: Vec<String>,
    /// The newest version.
    pub generation: u64,
    /// The number of files that were read.
    pub files: u64,
    /// The number of bytes that were checked.
    pub bytes: u64,
    /// The number of rows in segments, including dead ones.
    pub rows: u64,
    /// The number of codes that were computed again.
    pub codes: u64,
    /// The number of texts that were encoded again.
    pub texts: u64,
}

impl Verified {
    /// Returns `true` if nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, error: &Error) {
        self.problems.push(error.to_string());
    }

    /// Counts a file, and records the damage in it.
    fn file(&mut self, path: &Path, damage: Result<Vec<Error>>) {
        self.files += 1;
        self.bytes += std::fs::metadata(path).map_or(0, |meta| meta.len());
        match damage {
            Ok(damage) => damage.iter().for_each(|e| self.problem(e)),
            Err(e) => self.problem(&e),
        }
    }
}

/// Checks a database as a reader: takes no lock, changes nothing, and also works on a database that can't be opened.
/// Compares every byte that a query, a rebuild or a rollback could read with its checksum.
pub fn verify(dir: impl AsRef<Path>, options: &VerifyOptions) -> Result<Verified> {
    let layout = Layout::existing(dir.as_ref())?;
    let mut found = Verified::default();
    let Some(record) = newest_record(&layout, &mut found)? else {
        return Ok(found);
    };
    found.generation = record.generation.0;
    check_models(&layout, &mut found)?;
    let storage: Arc<dyn Storage> = Arc::new(Disk::default());
    let model = match version::load::model(&storage, &layout, &record, &ReadOptions::default()) {
        Ok(model) => Some(model),
        Err(e) => {
            let said = e.to_string();
            if !found.problems.contains(&said) {
                found.problems.push(said);
            }
            None
        }
    };
    let segments = layout.segments();
    let names: Vec<FileName> = Disk::default()
        .list(&segments)
        .map_err(Error::io("listing", &segments))?
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    for segment in &record.segments {
        found.rows += u64::from(segment.rows);
        let before = found.problems.len();
        check_files(&segments, segment, &names, &mut found);
        // The following checks read the same bytes, so skip them if the bytes are damaged.
        if found.problems.len() == before
            && let Some(model) = &model
            && let Err(e) = check_segment(&layout, segment, model, options, &mut found)
        {
            found.problem(&e);
        }
    }
    check_logs(&layout, &record, &mut found)?;
    let aside = Disk::default().list(&layout.orphans()).unwrap_or_default();
    if !aside.is_empty() {
        found.notes.push(format!(
            "{} files that were moved aside are in {}",
            aside.len(),
            layout.orphans().display()
        ));
    }
    Ok(found)
}

/// Reads every file of a segment.
fn check_files(dir: &Path, segment: &SegmentRecord, names: &[FileName], found: &mut Verified) {
    let disk = Disk::default();
    let of_segment = names
        .iter()
        .copied()
        .filter(|name| name.segment() == segment.id);
    let derived = of_segment.filter(|name| name.component().is_derived());
    for name in segment.files().into_iter().chain(derived) {
        let path = name.within(dir);
        found.file(&path, name.component().verify(&disk, &path));
    }
}

/// Returns the newest record that a manifest holds. Damage to the newest manifest is a problem; the next older one is
/// then used, so that as much as possible is checked.
fn newest_record(layout: &Layout, found: &mut Verified) -> Result<Option<VersionRecord>> {
    let disk = Disk::default();
    let generations = manifest::generations(&disk, layout.dir())?;
    if generations.is_empty() {
        manifest::newest(&disk, layout.dir()).map(Some)?;
    }
    for &generation in generations.iter().rev() {
        found.files += 1;
        match manifest::read(&disk, layout.dir(), generation)? {
            Found::Record(record) => return Ok(Some(*record)),
            Found::Damaged(what) => {
                let path = manifest::path(layout.dir(), generation);
                let detail =
                    format!("{what}; opening the database for writing or a repair restores it");
                found.problem(&Error::corrupt(path, "record", 0, detail));
            }
            Found::Absent => {}
        }
    }
    Ok(None)
}

fn check_models(layout: &Layout, found: &mut Verified) -> Result<()> {
    let models = layout.models();
    let names = match Disk::default().list(&models) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        names => names.map_err(Error::io("listing", &models))?,
    };
    for name in names {
        if name.parse::<crate::ModelId>().is_err() {
            continue;
        }
        match Bundle::open(models.join(&name)).and_then(|bundle| bundle.verify().map(|()| bundle)) {
            Ok(bundle) => {
                let files = &bundle.manifest().files;
                found.files += files.len() as u64 + 1;
                found.bytes += files.iter().map(|file| file.bytes).sum::<u64>();
            }
            Err(e) => found.problem(&e),
        }
    }
    Ok(())
}

/// Opens a segment as a query does, and runs the checks that the options request.
fn check_segment(
    layout: &Layout,
    segment: &SegmentRecord,
    model: &Model,
    options: &VerifyOptions,
    found: &mut Verified,
) -> Result<()> {
    let disk = Disk::default();
    let dir = layout.segments();
    let sealed = Arc::new(Sealed::open(
        &disk,
        &dir,
        segment.id,
        segment.columns,
        model,
    )?);
    let view = SegmentView::with_deletions(&disk, &dir, segment, Arc::clone(&sealed))?;
    if options.deep {
        found.codes += compare_codes(&sealed, model, |e| found.problems.push(e.to_string()))?;
    }
    if options.encode > 0 && model.kind() == RowsKind::Text {
        check_texts(&view, model, options.encode, found)?;
    }
    Ok(())
}

/// Computes every code again from its stored vector and compares them. Returns the number of codes.
pub(crate) fn compare_codes(
    sealed: &Sealed,
    model: &Model,
    mut differs: impl FnMut(&Error),
) -> Result<u64> {
    let (Some(codes), Some(shape)) = (&sealed.codes, model.shape()) else {
        return Ok(0);
    };
    let mut stored = vec![0; shape.subspaces()];
    let mut wide = Vec::new();
    let mut cells = codes.starts().map(CellStarts::each_position);
    for start in (0..sealed.rows.row_count()).step_by(64) {
        let end = (start + 64).min(sealed.rows.row_count());
        wide.clear();
        let in_order: Vec<u32>;
        let rows = match cells {
            None => {
                sealed.vectors(start..end)?.widen_into(&mut wide);
                in_order = (start as u32..end as u32).collect();
                &in_order[..]
            }
            Some(_) => {
                let rows = codes.rows_at(start..end)?;
                for &row in rows {
                    let row = row as usize;
                    sealed.vectors(row..row + 1)?.widen_into(&mut wide);
                }
                rows
            }
        };
        let block = codes.blocks(start / 64..start / 64 + 1)?;
        let fresh = model.quantize(&wide)?;
        let fresh_codes = fresh.codes.chunks_exact(shape.subspaces());
        for ((at, fresh_code), &row) in fresh_codes.enumerate().zip(rows) {
            shape.unpack_row(block, at, &mut stored);
            let cell = cells.as_mut().and_then(Iterator::next);
            let fresh_cell = fresh.cells.get(at).copied();
            if stored != fresh_code || cell != fresh_cell {
                let key = sealed.rows.key(RowId(row))?;
                let of = |codes: &[u8], cell: Option<u32>| match cell {
                    None => format!("{codes:?}"),
                    Some(cell) => format!("{codes:?} in cell {cell}"),
                };
                let detail = format!(
                    "row {row} (key {key:?}) has codes {}, but its vector gives {}",
                    of(&stored, cell),
                    of(fresh_code, fresh_cell)
                );
                differs(&Error::corrupt(codes.path(), "codes", 0, detail));
            }
        }
    }
    Ok(sealed.rows.row_count() as u64)
}

/// Encodes some live texts of a segment again and compares the vectors.
fn check_texts(
    view: &SegmentView,
    model: &Model,
    wanted: usize,
    found: &mut Verified,
) -> Result<()> {
    let stride = (view.live.alive() as usize).div_ceil(wanted).max(1);
    for row in view.live.iter().step_by(stride) {
        let Some(text) = view.sealed.rows.text(row)? else {
            continue;
        };
        let fresh = model.encode_keys(&[&text])?.as_ref().widen();
        let at = row.0 as usize;
        let mut stored = Vec::new();
        view.sealed.vectors(at..at + 1)?.widen_into(&mut stored);
        let (mut dot, mut a, mut b) = (0.0, 0.0, 0.0);
        for (x, y) in stored.iter().zip(&fresh) {
            let (x, y) = (f64::from(*x), f64::from(*y));
            dot += x * y;
            a += x * x;
            b += y * y;
        }
        let apart = 1.0 - dot / (a * b).sqrt();
        if apart > ENCODE_TOLERANCE {
            found.problems.push(format!(
                "{}: the text of {:?} encodes to a vector {apart:.1e} away from the stored one; the tolerance is {ENCODE_TOLERANCE:.0e}",
                view.sealed.rows.path().display(),
                view.sealed.rows.key(row)?
            ));
        }
        found.texts += 1;
    }
    Ok(())
}

fn check_logs(layout: &Layout, record: &VersionRecord, found: &mut Verified) -> Result<()> {
    let disk = Disk::default();
    for id in version::replay::live_logs(&disk, layout, record)? {
        let path: PathBuf = layout.logs().join(log::name(id));
        found.files += 1;
        found.bytes += std::fs::metadata(&path).map_or(0, |meta| meta.len());
        let contents = disk
            .read(&path)
            .map_err(Error::io("reading", &path))
            .and_then(|b| log::read(&path, id, &b, 0));
        match contents {
            Ok(contents) => {
                if let Some(torn) = contents.torn {
                    found.notes.push(format!(
                        "{}: {} bytes at the end are a write in progress, or one that a crash interrupted",
                        path.display(),
                        torn.len
                    ));
                }
            }
            Err(e) => found.problem(&e),
        }
    }
    Ok(())
}
