//! Opening: which version is the truth, what the logs add to it, what is left over.

use crate::disk::files::{Files, relocate};
use crate::disk::layout::Layout;
use crate::disk::reserve::Reserve;
use crate::error::{Error, Result};
use crate::ids::{Generation, LogId, SegmentId, Seq};
use crate::log::{self, Batch, LogContents, LogWriter};
use crate::model::Model;
use crate::model::bundle::Bundle;
use crate::options::Options;
use crate::scan::Scanner;
use crate::segment::FileName;
use crate::snapshot::Snapshot;
use crate::version::VersionRecord;
use crate::version::catalog::{Catalog, Testimony};
use crate::version::manifest::{self, Found};
use crate::view::segment::SegmentView;
use crate::view::tail::Tail;
use crate::write::replay;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// A catalog and the record that it and the manifests agree on, mended where they did not.
#[derive(Debug)]
pub(crate) struct Witnesses {
    pub(crate) catalog: Catalog,
    pub(crate) record: VersionRecord,
    /// Whether one of the two had to be mended: then nothing is removed for good.
    pub(crate) mended: bool,
}

/// Finds the newest version. The higher of all manifest names and the catalog's record is the one; whichever witness
/// holds it whole is the truth, and the other is mended. If neither does, only `repair` can help: an older manifest is
/// never taken for the newest.
pub(crate) fn witnesses(
    files: &dyn Files,
    layout: &Layout,
    reserve: &Reserve,
    warnings: &mut Vec<String>,
) -> Result<Witnesses> {
    let dir = layout.dir();
    let named = manifest::generations(files, dir)?.last().copied();
    if named.is_none() && !dir.join("catalog").is_dir() {
        return Err(manifest::newest(files, dir).expect_err("there is no manifest"));
    }
    let (mut catalog, testimony) = open_catalog(files, layout, reserve, warnings)?;
    let (held, silence) = match testimony {
        Testimony::Record(record) => (Some(*record), String::new()),
        Testimony::Nothing(why) => (None, why),
    };
    let newest = named.max(held.as_ref().map(|record| record.generation));
    let Some(newest) = newest else {
        return Err(Error::corrupt(
            layout.catalog(),
            "record",
            0,
            no_witness(&silence),
        ));
    };
    if named.is_none() {
        expect_nothing_newer(
            files,
            layout,
            held.as_ref().expect("it gave the generation"),
        )?;
    }
    let published = manifest::read(files, dir, newest)?;
    let held = held.filter(|record| record.generation == newest);
    match (held, published) {
        (Some(held), Found::Record(published)) if held == *published => Ok(Witnesses {
            catalog,
            record: held,
            mended: false,
        }),
        (Some(held), Found::Record(published)) => {
            // Both whole, of the same generation, and different: no crash leaves that.
            let detail = format!(
                "catalog and manifest hold two different versions {}",
                published.generation
            );
            drop(held);
            Err(Error::corrupt(
                manifest::path(dir, newest),
                "record",
                0,
                format!("{detail}; run `mopqdb repair`"),
            ))
        }
        (Some(held), lost) => {
            let why = match lost {
                Found::Damaged(why) => format!("was damaged ({why})"),
                _ => "was missing".into(),
            };
            reserve.spend(|| manifest::publish(files, dir, &held))?;
            warnings.push(format!(
                "the manifest of version {newest} {why}; it was written again from the catalog"
            ));
            Ok(Witnesses {
                catalog,
                record: held,
                mended: true,
            })
        }
        (None, Found::Record(published)) => {
            catalog.commit_spending(&published, reserve)?;
            let why = if silence.is_empty() {
                "was behind".into()
            } else {
                format!("had no record ({silence})")
            };
            warnings.push(format!(
                "the catalog {why}; version {newest} was restored to it from its manifest"
            ));
            Ok(Witnesses {
                catalog,
                record: *published,
                mended: true,
            })
        }
        (None, lost) => {
            let why = match lost {
                Found::Damaged(why) => why,
                _ => "it is missing".into(),
            };
            let detail = format!(
                "{why}, and the catalog does not hold version {newest} either; run `mopqdb repair`"
            );
            Err(Error::corrupt(
                manifest::path(dir, newest),
                "record",
                0,
                detail,
            ))
        }
    }
}

fn no_witness(silence: &str) -> String {
    format!("no manifest, and no record in the catalog ({silence}); run `mopqdb repair`")
}

/// Opens the catalog. One that can't be opened is put aside and begun anew: the manifests have what it had.
fn open_catalog(
    files: &dyn Files,
    layout: &Layout,
    reserve: &Reserve,
    warnings: &mut Vec<String>,
) -> Result<(Catalog, Testimony)> {
    let path = layout.catalog();
    let open = || Catalog::open(&path).map_err(Error::io("opening the catalog", &path));
    match reserve.spend(open) {
        Ok(catalog) => {
            let testimony = catalog.read()?;
            Ok((catalog, testimony))
        }
        // sled writes when it is opened. There is nothing wrong with the catalog.
        Err(e) if e.is_full() => Err(e),
        Err(e) => {
            let why = match e {
                Error::Io { source, .. } => source.to_string(),
                other => other.to_string(),
            };
            let aside = reserve.spend(|| orphan(files, layout, &path))?;
            warnings.push(format!(
                "the catalog could not be opened ({why}); it was put aside as {}",
                aside.display()
            ));
            Ok((reserve.spend(open)?, Testimony::Nothing(why)))
        }
    }
}

/// With no manifest at all the catalog is trusted only if nothing on disk is newer than what it says.
fn expect_nothing_newer(files: &dyn Files, layout: &Layout, record: &VersionRecord) -> Result<()> {
    let segments = list(files, &layout.segments())?;
    let newest = segments
        .iter()
        .filter_map(|name| name.parse::<FileName>().ok())
        .map(FileName::segment)
        .max();
    let newer_segment = newest.is_some_and(|id| id >= record.next_segment);
    let newer_deletions = segments.iter().any(|name| {
        matches!(name.parse(), Ok(FileName::Deletions(_, version)) if version > record.generation)
    });
    if newer_segment || newer_deletions {
        let detail = format!(
            "all manifests are missing, and files newer than the catalog's version {} are there; run `mopqdb repair`",
            record.generation
        );
        return Err(Error::corrupt(layout.catalog(), "record", 0, detail));
    }
    Ok(())
}

/// The model that a record names.
pub(crate) fn model(
    layout: &Layout,
    record: &VersionRecord,
    options: &Options,
) -> Result<Arc<Model>> {
    let model = match record.model {
        None => Model::none(record.dim as usize, record.metric),
        Some(id) => {
            let dir = layout.model(id);
            if !dir.is_dir() {
                return Err(Error::corrupt(
                    dir,
                    "model",
                    0,
                    "the active model is missing; put its folder back, or run `mopqdb repair` to go on with another; `mopqdb export DB DEST --format jsonl` needs no model",
                ));
            }
            let bundle = Bundle::open(&dir)?;
            if bundle.model_id() != id {
                let detail = format!(
                    "this bundle is model {}, its directory is named {id}",
                    bundle.model_id()
                );
                return Err(Error::corrupt(layout.model(id), "manifest", 0, detail));
            }
            Model::open(bundle, options.threads)?.no_mmap(options.no_mmap)
        }
    };
    let agrees = model.metric() == record.metric
        && model.dim() == record.dim as usize
        && model.encoder_id() == record.encoder
        && model.rows() == record.rows;
    if !agrees {
        let detail = format!(
            "version {} and its model do not agree on metric, width or encoder",
            record.generation
        );
        return Err(Error::corrupt(
            manifest::path(layout.dir(), record.generation),
            "record",
            0,
            detail,
        ));
    }
    Ok(Arc::new(model))
}

/// The snapshot of a record, without what its logs add. Segments of `before` that are still the same stay open.
pub(crate) fn snapshot(
    files: &dyn Files,
    layout: &Layout,
    record: &VersionRecord,
    model: Arc<Model>,
    scanner: Arc<Scanner>,
    before: Option<&Snapshot>,
) -> Result<Snapshot> {
    let dir = layout.segments();
    let before = before.filter(|snapshot| Arc::ptr_eq(&snapshot.model, &model));
    let mut segments = Vec::with_capacity(record.segments.len());
    for segment in &record.segments {
        let open = before.and_then(|snapshot| {
            snapshot
                .segments
                .iter()
                .find(|view| view.sealed.id == segment.id)
        });
        segments.push(match open {
            Some(view) => {
                SegmentView::with_deletions(files, &dir, segment, Arc::clone(&view.sealed))?
            }
            None => SegmentView::open(files, &dir, segment, &model)?,
        });
    }
    let mut last = None;
    for view in &segments {
        let Some((first, end)) = view.sealed.rows.summary().seqs else {
            continue;
        };
        if last.is_some_and(|last| first <= last) {
            let detail = "its rows are older than those of the segment before it";
            return Err(Error::corrupt(view.sealed.rows.path(), "meta", 0, detail));
        }
        last = Some(end);
    }
    Ok(Snapshot {
        generation: record.generation,
        model,
        segments: Arc::new(segments),
        tail: Tail::default(),
        scanner,
    })
}

/// The live logs of a record, oldest first.
pub(crate) fn live_logs(
    files: &dyn Files,
    layout: &Layout,
    record: &VersionRecord,
) -> Result<Vec<LogId>> {
    let names = list(files, &layout.logs())?;
    let mut logs: Vec<_> = names
        .iter()
        .filter_map(|name| log::parse_name(name))
        .collect();
    logs.retain(|&id| id >= record.first_log);
    logs.sort_unstable();
    Ok(logs)
}

/// Applies the batches of a log to a snapshot, from `next` on, which moves behind them. Returns those it applied.
///
/// Batches ascend by `Seq`, from log to log too, with one exception: a log that recovery carried others over to repeats
/// them, and stands beside them until a version names it alone. A crash, or a reader, may come in between; what was
/// applied once is then not applied again.
pub(crate) fn apply_log(
    path: &Path,
    contents: LogContents,
    snapshot: &mut Snapshot,
    next: &mut Seq,
) -> Result<Vec<Batch>> {
    let mut applied = contents.batches;
    applied.retain(|batch| {
        let new = batch.first >= *next;
        *next = (*next).max(batch.end());
        new
    });
    for batch in &applied {
        check_batch(path, batch, snapshot)?;
        replay(snapshot, batch)?;
    }
    Ok(applied)
}

/// A batch is only ever quantized under the encoder that made its vectors.
fn check_batch(path: &Path, batch: &Batch, snapshot: &Snapshot) -> Result<()> {
    let model = &snapshot.model;
    if batch.encoder != model.encoder_id() {
        let detail = format!(
            "a batch of encoder {}, this version has {}",
            batch.encoder.short(),
            model.encoder_id().short()
        );
        return Err(Error::corrupt(path, "record", 0, detail));
    }
    for change in &batch.changes {
        if let log::Change::Put { key, text, vector } = change {
            let texts = model.rows() == crate::row::RowsKind::Text;
            let half = matches!(vector, log::StoredVector::F16(_));
            if vector.dim() != model.dim() || text.is_some() != texts || half != texts {
                let detail = format!("the row {key:?} is not of this database's kind");
                return Err(Error::corrupt(path, "record", 0, detail));
            }
        }
    }
    Ok(())
}

/// What the logs of an opened database gave.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) next_seq: Seq,
    pub(crate) next_log: LogId,
    /// Bytes of live logs.
    pub(crate) bytes: u64,
    /// The log that everything was carried over to, to be named by a new version.
    pub(crate) carried: Option<LogId>,
    /// There were batches to carry over, and no room for them.
    pub(crate) in_place: bool,
}

/// Replays the live logs into a snapshot, for the writer: a torn tail is put aside and said. If any log was not closed
/// in order, all batches are carried over to a new log, closed in order, so that damage to them is damage from now on.
/// On a full disk the logs stay as they are, torn tails included, and only batches that may not be durable are carried
/// over.
///
/// # Errors
/// [`Error::Io`] if there is no room for those either.
pub(crate) fn replay_logs(
    files: &dyn Files,
    layout: &Layout,
    record: &VersionRecord,
    reserve: &Reserve,
    snapshot: &mut Snapshot,
    warnings: &mut Vec<String>,
) -> Result<Replayed> {
    let logs = live_logs(files, layout, record)?;
    let mut next_seq = record.first_seq;
    let mut bytes = 0;
    let mut open_end = false;
    let mut batches = Vec::new();
    let mut torn_tails = Vec::new();
    let (mut proven, mut unproven) = (HashSet::new(), HashSet::new());
    for &id in &logs {
        let path = layout.logs().join(log::name(id));
        let raw = files.read(&path).map_err(Error::io("reading", &path))?;
        let contents = log::read(&path, id, &raw, 0)?;
        if let Some(torn) = &contents.torn {
            torn_tails.push((id, raw[torn.offset as usize..].to_vec()));
        }
        bytes += raw.len() as u64;
        open_end |= !contents.ended;
        let (synced, last) =
            (contents.batches).split_at(contents.batches.len() - contents.unproven);
        proven.extend(synced.iter().map(|batch| batch.first));
        unproven.extend(last.iter().map(|batch| batch.first));
        batches.extend(apply_log(&path, contents, snapshot, &mut next_seq)?);
    }
    let mut next_log = LogId(
        logs.last()
            .map_or(record.first_log.0, |id| id.0 + 1)
            .max(record.first_log.0),
    );
    let mut carried = None;
    let mut in_place = false;
    if open_end {
        let id = next_log;
        next_log = LogId(id.0 + 1);
        // The version that will name the new log is committed with the reserve's help, if need be. So it is not spent here.
        let outcome = reserve.restore(record.rows_stored()).and_then(|()| {
            put_aside(files, layout, &torn_tails, warnings)?;
            carry_over(files, layout, id, &batches)
        });
        match outcome {
            Ok(new) => {
                bytes = new;
                carried = Some(id);
            }
            Err(e) if e.is_full() => {
                in_place = !batches.is_empty();
                // What was read and never synced might go again with the next power cut, after somebody has seen it. It is
                // seldom more than one batch.
                batches.retain(|batch| {
                    unproven.contains(&batch.first) && !proven.contains(&batch.first)
                });
                if !batches.is_empty() {
                    bytes += reserve.spend(|| {
                        let id = next_log;
                        next_log = LogId(id.0 + 1);
                        carry_over(files, layout, id, &batches)
                    })?;
                }
                warnings.push(format!(
                    "the disk is full ({e}), so the logs were not tidied up; delete rows and compact, or free some space: \
                     no rows are inserted until there is room"
                ));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(Replayed {
        next_seq,
        next_log,
        bytes,
        carried,
        in_place,
    })
}

/// Copies torn tails of logs to `orphans/`. If that fails, none is left there.
fn put_aside(
    files: &dyn Files,
    layout: &Layout,
    tails: &[(LogId, Vec<u8>)],
    warnings: &mut Vec<String>,
) -> Result<()> {
    if tails.is_empty() {
        return Ok(());
    }
    let orphans = layout.orphans();
    let aside = |id: LogId| orphans.join(format!("{}.torn", log::name(id)));
    let copy = || {
        files
            .create_dir(&orphans)
            .map_err(Error::io("creating", &orphans))?;
        for (id, bytes) in tails {
            let path = aside(*id);
            crate::disk::files::publish(files, &path, bytes)
                .map_err(Error::io("writing", &path))?;
        }
        Ok(())
    };
    if let Err(e) = copy() {
        for (id, _) in tails {
            let _ = files.remove(&aside(*id));
        }
        return Err(e);
    }
    for (id, bytes) in tails {
        warnings.push(format!(
            "the last {} bytes of {} were a write that was never finished or acknowledged; they were put aside as {}",
            bytes.len(),
            layout.logs().join(log::name(*id)).display(),
            aside(*id).display()
        ));
    }
    Ok(())
}

/// Writes all batches to a new log and closes it. Returns its bytes. If that fails, the log is removed; should it stay, its
/// batches are found twice, and applied once.
fn carry_over(files: &dyn Files, layout: &Layout, id: LogId, batches: &[Batch]) -> Result<u64> {
    let mut log = LogWriter::create(files, &layout.logs(), id)?;
    let write = || {
        for batch in batches {
            log.append(batch)?;
        }
        let bytes = log.bytes();
        log.end()?;
        Ok(bytes)
    };
    let outcome = write();
    if outcome.is_err() {
        let _ = files.remove(&layout.logs().join(log::name(id)));
    }
    outcome
}

/// The id that the next segment gets: above all that any file has.
pub(crate) fn next_segment(
    files: &dyn Files,
    layout: &Layout,
    record: &VersionRecord,
) -> Result<SegmentId> {
    let names = list(files, &layout.segments())?;
    let mut used = record.next_segment.0;
    let mut take = |names: Vec<String>| {
        let files = names
            .iter()
            .filter_map(|name| name.parse::<FileName>().ok());
        used = files.map(|file| file.segment().0 + 1).fold(used, u64::max);
    };
    take(names);
    // Codes that a rebuild staged for a segment which a crash then unmade: no other segment gets their name.
    let staging = layout.staging();
    if staging.is_dir() {
        for model in list(files, &staging)? {
            let dir = staging.join(model);
            if dir.is_dir() {
                take(list(files, &dir)?);
            }
        }
    }
    Ok(SegmentId(used))
}

/// Moves something to `orphans/`, under a name that is free there.
pub(crate) fn orphan(
    files: &dyn Files,
    layout: &Layout,
    path: &Path,
) -> Result<std::path::PathBuf> {
    let orphans = layout.orphans();
    files
        .create_dir(&orphans)
        .map_err(Error::io("creating", &orphans))?;
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let aside = (0..)
        .map(|n| {
            orphans.join(if n == 0 {
                name.clone()
            } else {
                format!("{name}.{n}")
            })
        })
        .find(|aside| !aside.exists())
        .expect("some number is free");
    relocate(files, path, &aside).map_err(Error::io("moving to orphans", path))?;
    files
        .sync_dir(&orphans)
        .map_err(Error::io("syncing", &orphans))?;
    Ok(aside)
}

pub(crate) fn list(files: &dyn Files, dir: &Path) -> Result<Vec<String>> {
    files.list(dir).map_err(Error::io("listing", dir))
}

/// The first record of a new database.
pub(crate) fn first_record(model: &Model) -> VersionRecord {
    VersionRecord {
        generation: Generation(1),
        metric: model.metric(),
        rows: model.rows(),
        dim: model.dim() as u32,
        encoder: model.encoder_id(),
        model: model.id(),
        segments: Vec::new(),
        first_log: LogId(1),
        first_seq: Seq(1),
        next_segment: SegmentId(1),
    }
}
