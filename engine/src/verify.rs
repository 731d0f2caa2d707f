//! Checking a database without opening it: what is damaged, and where.

use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::files::{Disk, Files};
use crate::ids::RowId;
use crate::layout::Layout;
use crate::log;
use crate::manifest::{self, Found};
use crate::model::Model;
use crate::options::Options;
use crate::recover;
use crate::sealed::{Sealed, SegmentView};
use crate::segment::{Deletions, FileName};
use crate::snapshot::widen_into;
use crate::version::{RowsKind, VersionRecord};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How closely to look.
#[derive(Debug, Clone, Copy, Default)]
pub struct VerifyOptions {
    /// Read every byte against its checksum, and compute every code anew from its stored vector: it must be the same
    /// to the bit.
    pub deep: bool,
    /// Encode this many texts anew and compare with what is stored, within [`ENCODE_TOLERANCE`].
    pub encode: usize,
}

/// How far a text's vector may be from the stored one, as 1 - cosine: ONNX Runtime's output depends in its last digits
/// on what else is in a batch, and stored vectors are rounded to f16.
pub const ENCODE_TOLERANCE: f64 = 1e-3;

/// What a check found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Verified {
    /// What is damaged or missing; empty if the database is sound.
    pub problems: Vec<String>,
    /// What is worth knowing and no damage.
    pub notes: Vec<String>,
    /// The newest version.
    pub generation: u64,
    /// Files that were read.
    pub files: u64,
    /// Rows in segments, dead ones included.
    pub rows: u64,
    /// Codes that were computed anew.
    pub codes: u64,
    /// Texts that were encoded anew.
    pub texts: u64,
}

impl Verified {
    /// Whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, error: &Error) {
        self.problems.push(error.to_string());
    }
}

/// Checks a database, as a reader: takes no lock, changes nothing, and works on one that does not open.
pub fn verify(dir: impl AsRef<Path>, options: &VerifyOptions) -> Result<Verified> {
    let layout = Layout::existing(dir.as_ref())?;
    let mut found = Verified::default();
    let Some(record) = newest_record(&layout, &mut found)? else {
        return Ok(found);
    };
    found.generation = record.generation.0;
    let model = match recover::model(&layout, &record, &Options::default()) {
        Ok(model) => Some(model),
        Err(e) => {
            found.problem(&e);
            None
        }
    };
    if let Some(bundle) = model.as_ref().and_then(|model| model.bundle()) {
        found.files += bundle.manifest().files.len() as u64 + 1;
        if options.deep
            && let Err(e) = bundle.verify()
        {
            found.problem(&e);
        }
    }
    check_other_models(&layout, &record, options, &mut found)?;
    for segment in &record.segments {
        found.rows += u64::from(segment.rows);
        if let Some(model) = &model
            && let Err(e) = check_segment(&layout, segment, model, options, &mut found)
        {
            found.problem(&e);
        }
    }
    check_logs(&layout, &record, &mut found)?;
    Ok(found)
}

/// The newest record that a manifest holds; damage to the newest one is a problem, and then an older one is looked at,
/// so that as much as can be is checked.
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
                    format!("{what}; open the database for writing, or run `mopqdb repair`");
                found.problem(&Error::corrupt(path, "record", 0, detail));
            }
            Found::Absent => {}
        }
    }
    Ok(None)
}

fn check_other_models(
    layout: &Layout,
    record: &VersionRecord,
    options: &VerifyOptions,
    found: &mut Verified,
) -> Result<()> {
    let models = layout.models();
    for name in Disk::default()
        .list(&models)
        .map_err(Error::io("listing", &models))?
    {
        if name.parse().is_ok_and(|id| record.model != Some(id)) {
            let checked = Bundle::open(models.join(&name))
                .and_then(|b| if options.deep { b.verify() } else { Ok(()) });
            if let Err(e) = checked {
                found.problem(&e);
            }
        }
    }
    Ok(())
}

fn check_segment(
    layout: &Layout,
    segment: &crate::version::SegmentRecord,
    model: &Model,
    options: &VerifyOptions,
    found: &mut Verified,
) -> Result<()> {
    let disk = Disk::default();
    let dir = layout.segments();
    if let Some(version) = segment.deletions {
        let path = FileName::Deletions(segment.id, version).within(&dir);
        found.files += 1;
        Deletions::read(&disk, &path)?;
    }
    let sealed = Arc::new(Sealed::open(&disk, &dir, segment.id, model)?);
    let view = SegmentView::with_deletions(&disk, &dir, segment, Arc::clone(&sealed))?;
    found.files += 1 + u64::from(sealed.vecs.is_some()) + u64::from(sealed.codes.is_some());
    if options.deep {
        let mut damage = sealed.rows.verify();
        damage.extend(sealed.vecs.iter().flat_map(|vecs| vecs.verify()));
        damage.extend(sealed.codes.iter().flat_map(|codes| codes.verify()));
        if damage.is_empty() {
            check_codes(&sealed, model, found)?;
        }
        damage.iter().for_each(|e| found.problem(e));
    }
    if options.encode > 0 && model.rows() == RowsKind::Text {
        check_texts(&view, model, options.encode, found)?;
    }
    Ok(())
}

/// Computes every code anew from its stored vector.
fn check_codes(sealed: &Sealed, model: &Model, found: &mut Verified) -> Result<()> {
    let (Some(codes), Some(shape)) = (&sealed.codes, model.shape()) else {
        return Ok(());
    };
    let mut stored = vec![0; shape.subspaces()];
    let mut wide = Vec::new();
    for start in (0..sealed.rows.rows()).step_by(64) {
        let end = (start + 64).min(sealed.rows.rows());
        wide.clear();
        widen_into(sealed.vectors(start..end)?, &mut wide);
        let block = codes.blocks(start / 64..start / 64 + 1)?;
        let fresh = model.quantize(&wide)?;
        for (at, fresh) in fresh.chunks_exact(shape.subspaces()).enumerate() {
            shape.unpack_row(block, at, &mut stored);
            if stored != fresh {
                let key = sealed.rows.key(RowId((start + at) as u32))?;
                let detail = format!(
                    "row {} (key {key:?}) has codes {stored:?}, its vector gives {fresh:?}",
                    start + at
                );
                found.problem(&Error::corrupt(codes.path(), "codes", 0, detail));
            }
            found.codes += 1;
        }
    }
    Ok(())
}

/// Encodes some living texts of a segment anew.
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
        let fresh = model.encode_keys(&[&text])?;
        let at = row.0 as usize;
        let mut stored = Vec::new();
        widen_into(view.sealed.vectors(at..at + 1)?, &mut stored);
        let (mut dot, mut a, mut b) = (0.0, 0.0, 0.0);
        for (x, y) in stored.iter().zip(&fresh) {
            let (x, y) = (f64::from(*x), f64::from(y.to_f32()));
            dot += x * y;
            a += x * x;
            b += y * y;
        }
        let apart = 1.0 - dot / (a * b).sqrt();
        if apart > ENCODE_TOLERANCE {
            found.problems.push(format!(
                "{}: the text of {:?} is encoded {apart:.1e} away from its stored vector, the tolerance is {ENCODE_TOLERANCE:.0e}",
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
    for id in recover::live_logs(&disk, layout, record)? {
        let path: PathBuf = layout.logs().join(log::name(id));
        found.files += 1;
        let contents = disk
            .read(&path)
            .map_err(Error::io("reading", &path))
            .and_then(|b| log::read(&path, id, &b, 0));
        match contents {
            Ok(contents) => {
                if let Some(torn) = contents.torn {
                    found.notes.push(format!(
                        "{}: {} bytes at the end are a write in progress, or one that a crash cut short",
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
