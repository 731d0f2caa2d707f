//! The models of a database: bundles in `models/`, each in a directory named by its content.
//!
//! The folder is the list. Registering takes no lock: a bundle is copied under a temporary name and renamed, and two
//! that register the same one do the same thing. Each model gets a number that gives the order. Clocks may go
//! backwards, and file times are lost when a database is copied.

use crate::disk::files::{self, Disk, Files, Storage};
use crate::disk::layout::Layout;
use crate::error::{Error, Result};
use crate::ids::{EncoderId, ModelId};
use crate::model::Model;
use crate::model::bundle::{Bundle, MANIFEST_FILE};
use crate::model::shared::Parts;
use crate::row::{RowsKind, Serving};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use xxhash_rust::xxh3::xxh3_64;

/// A model in the list of a database's models.
#[derive(Debug, Clone, Serialize)]
pub struct ModelInfo {
    /// The content id.
    pub id: ModelId,
    /// Whether it is the active model.
    pub active: bool,
    /// Whether it is the model `exact`: the active encoder without a quantizer.
    pub exact: bool,
    /// How it was trained: `mopq`, `opq`, ...; `scorer` for a learned scorer without a quantizer; `exact`; `encoder` for
    /// another encoder without a quantizer.
    pub method: String,
    /// Subspaces and codewords of its quantizer.
    pub shape: Option<(usize, usize)>,
    /// When it was registered, in seconds since 1970; 0 for an `exact` that has no bundle.
    pub registered: u64,
    /// Its training config and seed, as the trainer wrote them.
    pub training: serde_json::Value,
    /// Its validation recall and the like, as the trainer wrote them.
    pub evaluation: serde_json::Value,
    /// How many candidates queries take under it: the setting that the database has for it, or else the one that its
    /// training measured. Without either they take the default.
    pub serving: Option<Serving>,
}

/// Copies a bundle into the database, completely or not at all.
pub(crate) fn register(files: &dyn Files, layout: &Layout, bundle: &Bundle) -> Result<ModelId> {
    register_as(files, layout, bundle, Registered::next(files, layout)?)
}

fn register_as(
    files: &dyn Files,
    layout: &Layout,
    bundle: &Bundle,
    registered: Registered,
) -> Result<ModelId> {
    let id = bundle.model_id();
    let home = layout.model(id);
    if home.is_dir() && is_sound(&home, id)? {
        return Ok(id);
    }
    bundle.verify()?;
    let mut others = model_dirs(files, layout)?;
    others.retain(|dir| *dir != home);
    let parts = Parts::of(files, &others);
    let models = layout.models();
    let tmp = models.join(format!(".{}.{}.tmp", id.short(), std::process::id()));
    remove_dir(files, &tmp)?;
    files
        .create_dir(&tmp)
        .map_err(Error::io("creating", &tmp))?;
    for entry in &bundle.manifest().files {
        let from = bundle.dir().join(&entry.name);
        parts.place(files, entry, &from, &tmp.join(&entry.name))?;
    }
    let place = tmp.join(MANIFEST_FILE);
    match bundle.derived_manifest() {
        Some(bytes) => write(files, &place, &bytes)?,
        None => {
            let from = bundle.dir().join(MANIFEST_FILE);
            files::copy(files, &from, &place).map_err(Error::io("copying", &from))?;
        }
    }
    write(
        files,
        &tmp.join(REGISTERED_FILE),
        registered.encode().as_bytes(),
    )?;
    files.sync_dir(&tmp).map_err(Error::io("syncing", &tmp))?;
    if let Err(e) = files.rename(&tmp, &home) {
        if !home.is_dir() {
            return Err(Error::io("naming", &home)(e));
        }
        // Another process may have registered the same bundle meanwhile.
        if !is_sound(&home, id)? {
            replace_files(files, bundle, &tmp, &home)?;
        }
        remove_dir(files, &tmp)?;
    }
    files
        .sync_dir(&models)
        .map_err(Error::io("syncing", &models))?;
    for entry in &bundle.manifest().files {
        parts.unite(files, entry, &home.join(&entry.name));
    }
    Ok(id)
}

/// Returns whether the folder of a model holds all of it. An error is one of the disk.
fn is_sound(home: &Path, id: ModelId) -> Result<bool> {
    match Bundle::open(home).and_then(|found| found.verify().map(|()| found.model_id())) {
        Ok(found) => Ok(found == id),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(Error::Corrupt(_) | Error::Model(_)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Gives a damaged folder the files of a whole one, of the same model. One by one, the manifest last: at no time has the
/// folder less of the model than before, which may be the active one.
fn replace_files(files: &dyn Files, bundle: &Bundle, from: &Path, home: &Path) -> Result<()> {
    let listed = bundle.manifest().files.iter();
    let mut names: Vec<&str> = listed.map(|entry| entry.name.as_str()).collect();
    names.push(MANIFEST_FILE);
    // The number that it has stays, if it can be read; a model without one is of an earlier version of this program.
    if Registered::read(files, home).is_err() {
        names.push(REGISTERED_FILE);
    }
    for name in names {
        let place = home.join(name);
        if place.is_dir() {
            remove_dir(files, &place)?;
        }
        files
            .rename(&from.join(name), &place)
            .map_err(Error::io("naming", &place))?;
    }
    files.sync_dir(home).map_err(Error::io("syncing", home))
}

fn remove_dir(files: &dyn Files, dir: &Path) -> Result<()> {
    match files.remove_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("removing", dir)(e)),
        _ => Ok(()),
    }
}

/// The name of the model that every database has: its encoder without a quantizer. Rows are searched by their stored
/// vectors, so no answer is approximate.
pub const EXACT: &str = "exact";

/// The method of a model that has a scorer and no quantizer.
const SCORER: &str = "scorer";

/// Opens a model of a database whose active model is `active`, which may be the one; `exact` too. Writes nothing.
pub(crate) fn open(
    storage: &Arc<dyn Storage>,
    layout: &Layout,
    active: &Model,
    id: ModelId,
    threads: usize,
) -> Result<Model> {
    let exact = id == ModelId::exact(active.encoder_id());
    if exact && active.kind() == RowsKind::Vector {
        // A record names no model for it, so it needs no bundle.
        let exact = Model::none(active.dim(), active.metric());
        return Ok(exact.stored_as(active.precision()));
    }
    let path = layout.model(id);
    let model = match active.bundle() {
        _ if path.is_dir() => Model::open(Bundle::open_on(Arc::clone(storage), &path)?, threads),
        Some(bundle) if exact => Model::open(bundle.without_quantizer(), threads),
        _ => Err(Error::NoModel {
            wanted: id.to_string(),
        }),
    };
    Ok(model?
        .stored_as(active.precision())
        .with_words(active.words_choice())
        .with_encoder_of(active))
}

/// The same for a rebuild, after which a record names the model: `exact` gets its bundle now if it has none yet.
pub(crate) fn open_to_serve(
    files: &Arc<dyn Files>,
    layout: &Layout,
    active: &Model,
    id: ModelId,
    threads: usize,
) -> Result<Model> {
    let storage: Arc<dyn Storage> = files.clone();
    let model = open(&storage, layout, active, id, threads)?;
    match model.bundle() {
        Some(bundle) if bundle.derived_manifest().is_some() => {
            register_as(&**files, layout, bundle, Registered::first())?;
            open(&storage, layout, active, id, threads)
        }
        _ => Ok(model),
    }
}

/// The file in a bundle's directory that records its registration.
pub(crate) const REGISTERED_FILE: &str = "REGISTERED";

/// The registration of a model: its number and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Registered {
    number: u64,
    /// Since 1970.
    seconds: u64,
}

impl Registered {
    /// For a model that is registered now. Two processes that register at once may get the same number: neither is the
    /// later one, and the id decides.
    fn next(files: &dyn Storage, layout: &Layout) -> Result<Self> {
        let numbers = model_dirs(files, layout)?.into_iter().map(|dir| {
            // Damaged models are reported when models are listed.
            let registered = Self::read(files, &dir).unwrap_or_default();
            registered.map_or(0, |registered| registered.number)
        });
        Ok(Self {
            number: numbers.max().unwrap_or(0).saturating_add(1),
            seconds: seconds(SystemTime::now()),
        })
    }

    /// For `exact`, which was there from the start: it never counts as the newest.
    fn first() -> Self {
        Self {
            number: 0,
            seconds: seconds(SystemTime::now()),
        }
    }

    /// `NUMBER SECONDS CHECKSUM`, a line.
    fn encode(self) -> String {
        let text = format!("{} {}", self.number, self.seconds);
        format!("{text} {:016x}\n", xxh3_64(text.as_bytes()))
    }

    fn decode(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let number = words.next()?.parse().ok()?;
        let seconds = words.next()?.parse().ok()?;
        let registered = Self { number, seconds };
        (registered.encode() == line).then_some(registered)
    }

    /// None for a model that an earlier version of this program registered.
    fn read(files: &dyn Storage, dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(REGISTERED_FILE);
        match files.read(&path) {
            Ok(bytes) => match std::str::from_utf8(&bytes).ok().and_then(Self::decode) {
                Some(registered) => Ok(Some(registered)),
                None => Err(Error::corrupt(
                    path,
                    "line",
                    0,
                    "it is not a number, a time and their checksum; without the file the model counts as an old one",
                )),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("reading", &path)(e)),
        }
    }
}

/// Since 1970; 0 before.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}

fn write(files: &dyn Files, to: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = files.create(to).map_err(Error::io("creating", to))?;
    file.write_all(bytes).map_err(Error::io("writing", to))?;
    file.read_only().map_err(Error::io("writing", to))?;
    file.sync().map_err(Error::io("syncing", to))
}

/// Returns the model registered last, the default of a rebuild. `exact` is chosen by name only; if it is both active
/// and the last registered, there is nothing newer to switch to.
pub(crate) fn newest(
    layout: &Layout,
    active: ModelId,
    encoder: EncoderId,
) -> Result<Option<ModelId>> {
    let mut listed = listed(layout, active, encoder)?;
    listed.retain(|(order, info)| !info.exact || (info.active && order.0 > 0));
    Ok(listed.last().map(|(_, info)| info.id))
}

/// Returns the models of a database, oldest first, with what decides their order. `exact` is always
/// among them.
pub(crate) fn listed(
    layout: &Layout,
    active: ModelId,
    encoder: EncoderId,
) -> Result<Vec<((u64, SystemTime), ModelInfo)>> {
    let disk = Disk::default();
    let exact = ModelId::exact(encoder);
    let mut found = Vec::new();
    for path in model_dirs(&disk, layout)? {
        let bundle = Bundle::open(&path)?;
        let manifest = bundle.manifest();
        let registered = Registered::read(&disk, &path)?;
        let changed = std::fs::metadata(&path)
            .and_then(|m| m.modified())
            .map_err(Error::io("reading", &path))?;
        let shape = bundle
            .quantizer()?
            .map(|q| (q.shape().subspaces(), q.shape().codewords()));
        let id = bundle.model_id();
        let info = ModelInfo {
            id,
            active: active == id,
            exact: exact == id,
            method: match shape {
                Some(_) => manifest.method.clone(),
                None if bundle.scorer().is_some() => SCORER.into(),
                None if exact == id => EXACT.into(),
                None => "encoder".into(),
            },
            shape,
            registered: registered.map_or(seconds(changed), |registered| registered.seconds),
            training: manifest.training.clone(),
            evaluation: manifest.evaluation.clone(),
            serving: manifest.serving,
        };
        // Those without a number came first, in the order of the file system's own clock.
        let order = match registered {
            Some(registered) => (registered.number, SystemTime::UNIX_EPOCH),
            None => (0, changed),
        };
        found.push((order, info));
    }
    if found.iter().all(|(_, info)| !info.exact) {
        let info = ModelInfo {
            id: exact,
            active: active == exact,
            exact: true,
            method: EXACT.into(),
            shape: None,
            registered: 0,
            training: serde_json::Value::Null,
            evaluation: serde_json::Value::Null,
            serving: None,
        };
        found.push(((0, SystemTime::UNIX_EPOCH), info));
    }
    found.sort_by_key(|(order, info)| (*order, info.id));
    Ok(found)
}

/// Returns the folders of the models of a database.
pub(crate) fn model_dirs(files: &dyn Storage, layout: &Layout) -> Result<Vec<PathBuf>> {
    let models = layout.models();
    let names = files.list(&models).map_err(Error::io("listing", &models))?;
    let ids = names.iter().filter(|name| name.parse::<ModelId>().is_ok());
    Ok(ids.map(|name| models.join(name)).collect())
}

/// Returns the ids of the models, in the order of their registration; damaged ones too.
pub(crate) fn by_registration(layout: &Layout) -> Result<Vec<ModelId>> {
    if !layout.models().is_dir() {
        return Ok(Vec::new());
    }
    let disk = Disk::default();
    let mut found = Vec::new();
    for path in model_dirs(&disk, layout)? {
        let id = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        let id: ModelId = id.expect("model_dirs gives directories named by ids");
        let number = Registered::read(&disk, &path)
            .ok()
            .flatten()
            .map_or(0, |r| r.number);
        found.push((number, id));
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, id)| id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_read_back_and_a_changed_one_is_not() {
        let registered = Registered {
            number: 12,
            seconds: 1_763_270_000,
        };
        let line = registered.encode();
        assert_eq!(Registered::decode(&line), Some(registered));
        for at in 0..line.len() {
            for bit in 0..7 {
                let mut bytes = line.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let other = String::from_utf8(bytes).expect("still ASCII");
                assert_eq!(Registered::decode(&other), None, "{other:?}");
            }
            assert_eq!(Registered::decode(&line[..at]), None);
        }
    }
}
