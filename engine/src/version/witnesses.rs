//! The two witnesses of the newest version record, which are its copies in the catalog and in a manifest, and what to
//! do if they disagree.

use crate::disk::files::{Files, Storage, list};
use crate::disk::layout::Layout;
use crate::disk::orphans::orphan;
use crate::disk::reserve::Reserve;
use crate::error::{Error, Result};
use crate::segment::FileName;
use crate::version::VersionRecord;
use crate::version::catalog::{Catalog, Testimony};
use crate::version::manifest::{self, Found};

/// A catalog, and the record that catalog and manifest hold. If they disagreed, one of them was written again.
#[derive(Debug)]
pub(crate) struct Witnesses {
    pub(crate) catalog: Catalog,
    pub(crate) record: VersionRecord,
    /// Whether one of the two was restored. Then no file is deleted permanently.
    pub(crate) restored: bool,
}

/// Finds the newest version. Its generation is the higher of the newest manifest's name and the catalog's record. The
/// witness that holds an intact record of this generation is right, and the other is written again from it. If neither
/// does, only `repair` can help: an older manifest is never used as the newest.
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
            restored: false,
        }),
        (Some(held), Found::Record(published)) => {
            // Both are intact, have the same generation, and differ. No crash causes that.
            let detail = format!(
                "catalog and manifest hold two different records of version {}",
                published.generation
            );
            drop(held);
            Err(Error::corrupt(
                manifest::path(dir, newest),
                "record",
                0,
                format!("{detail}; repair the database"),
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
                restored: true,
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
                "the catalog {why}; it was restored from the manifest of version {newest}"
            ));
            Ok(Witnesses {
                catalog,
                record: *published,
                restored: true,
            })
        }
        (None, lost) => {
            let why = match lost {
                Found::Damaged(why) => why,
                _ => "it is missing".into(),
            };
            let detail = format!(
                "{why}, and the catalog does not hold version {newest} either; repair the database"
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
    format!("there is no manifest, and no record in the catalog ({silence}); repair the database")
}

/// Opens the catalog. One that can't be opened moves to `orphans/`, and a new one is created from the manifests.
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
        // sled writes when it is opened, so the disk may be full. Nothing is wrong with the catalog.
        Err(e) if e.is_full() => Err(e),
        Err(e) => {
            let why = match e {
                Error::Io { source, .. } => source.to_string(),
                other => other.to_string(),
            };
            let aside = reserve.spend(|| orphan(files, layout, &path))?;
            warnings.push(format!(
                "the catalog could not be opened ({why}); it was moved to {}",
                aside.display()
            ));
            Ok((reserve.spend(open)?, Testimony::Nothing(why)))
        }
    }
}

/// Without any manifest, the catalog is trusted only if nothing on disk is newer than its record.
fn expect_nothing_newer(
    files: &dyn Storage,
    layout: &Layout,
    record: &VersionRecord,
) -> Result<()> {
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
            "all manifests are missing, and there are files newer than the catalog's version {}; repair the database",
            record.generation
        );
        return Err(Error::corrupt(layout.catalog(), "record", 0, detail));
    }
    Ok(())
}
