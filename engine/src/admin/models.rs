//! Listing, finding, opening and registering models, by the directory of a database.

use crate::disk::files::{Disk, Files, Storage};
use crate::disk::layout::Layout;
use crate::error::{Error, Result};
use crate::ids::ModelId;
use crate::model::Model;
use crate::model::bundle::Bundle;
use crate::model::registry::{self, EXACT, ModelInfo};
use crate::options::ReadOptions;
use crate::row::RowsKind;
use crate::version::{load, manifest};
use std::path::Path;
use std::sync::Arc;

/// Returns the models of a database, oldest first. `exact` is always among them.
pub fn models(dir: impl AsRef<Path>) -> Result<Vec<ModelInfo>> {
    let layout = Layout::existing(dir.as_ref())?;
    let record = manifest::newest(&Disk::default(), layout.dir())?;
    let listed = registry::listed(&layout, record.model_id(), record.encoder)?;
    let settled = listed.into_iter().map(|(_, mut info)| {
        let own = record.serving.get(&info.id).copied();
        info.serving = own.or(info.serving);
        info
    });
    Ok(settled.collect())
}

/// Returns the id of the model that begins with `prefix`, or of `exact`.
pub fn find_model(dir: impl AsRef<Path>, prefix: &str) -> Result<ModelId> {
    let layout = Layout::existing(dir.as_ref())?;
    let disk = Disk::default();
    let record = manifest::newest(&disk, layout.dir())?;
    let exact = ModelId::exact(record.encoder);
    if prefix == EXACT {
        return Ok(exact);
    }
    let dirs = registry::model_dirs(&disk, &layout)?;
    let ids = dirs
        .iter()
        .filter_map(|path| path.file_name()?.to_str()?.parse::<ModelId>().ok())
        .filter(|id| *id != exact)
        .chain([exact]);
    let matching: Vec<ModelId> = ids.filter(|id| id.starts_with(prefix)).collect();
    match matching[..] {
        [one] => Ok(one),
        [] => Err(Error::NoModel {
            wanted: format!("whose id begins with {prefix:?}"),
        }),
        _ => Err(Error::invalid(format!(
            "{} models begin with {prefix:?}; give more digits",
            matching.len()
        ))),
    }
}

/// Opens a model of a database, active or not, or `exact`. Writes nothing.
pub fn open_model(dir: impl AsRef<Path>, id: ModelId, threads: usize) -> Result<Model> {
    let layout = Layout::existing(dir.as_ref())?;
    let storage: Arc<dyn Storage> = Arc::new(Disk::default());
    let record = manifest::newest(&*storage, layout.dir())?;
    let active = load::model(&storage, &layout, &record, &ReadOptions::default())?;
    registry::open(&storage, &layout, &active, id, threads)
}

/// Adds a bundle to the models of a database. It becomes active only by a rebuild. Takes no lock.
///
/// Refuses a damaged bundle, and one with another metric, kind or width than the database, before anything is written.
/// If the database has the model already, nothing is done, unless its folder there is damaged: then it gets the files
/// of this bundle, and keeps its place in the order of models.
pub fn register_model(dir: impl AsRef<Path>, bundle: &Bundle) -> Result<ModelId> {
    register_model_on(&Disk::default(), dir.as_ref(), bundle)
}

/// Like [`register_model`], on another [`Files`]; for tests.
pub fn register_model_on(files: &dyn Files, dir: &Path, bundle: &Bundle) -> Result<ModelId> {
    let layout = Layout::existing(dir)?;
    // Refuse a directory that is not a database before anything is written to it.
    let record = manifest::newest(files, layout.dir())?;
    let texts = record.rows == RowsKind::Text;
    let unfit = if bundle.metric() != record.metric {
        format!(
            "it compares by {}, the database by {}; make one for {1}, or create a database with it",
            bundle.metric(),
            record.metric
        )
    } else if texts && !bundle.has_encoder() {
        "it has no encoder, and the rows are texts; make a bundle with an encoder, or train a model over the rows"
            .into()
    } else if !texts && bundle.has_encoder() {
        format!(
            "it encodes texts, and the rows are vectors of {}; train a model over them, or create a database of texts with it",
            record.dim
        )
    } else if !texts && bundle.input_dim() != record.dim as usize {
        format!(
            "it takes vectors of {}, and the rows are vectors of {}; train a model over them",
            bundle.input_dim(),
            record.dim
        )
    } else {
        // Checks that its parts fit each other.
        Model::open(bundle.clone(), 1)?;
        return registry::register(files, &layout, bundle);
    };
    Err(Error::model(format!(
        "{} is not a model for this database: {unfit}",
        bundle.dir().display()
    )))
}
