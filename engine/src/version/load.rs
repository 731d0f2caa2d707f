//! Opening the model and the segments of a record.

use crate::columns::MaskCache;
use crate::disk::files::Storage;
use crate::disk::layout::Layout;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::model::bundle::Bundle;
use crate::options::ReadOptions;
use crate::scan::Scanner;
use crate::snapshot::Snapshot;
use crate::version::VersionRecord;
use crate::version::manifest;
use crate::view::segment::SegmentView;
use crate::view::tail::Tail;
use std::sync::Arc;

/// Returns the model that a record names.
pub(crate) fn model(
    storage: &Arc<dyn Storage>,
    layout: &Layout,
    record: &VersionRecord,
    options: &ReadOptions,
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
                    "the active model is missing; put its folder back, or repair the database to continue with another model; the rows can be exported without it",
                ));
            }
            let bundle = Bundle::open_on(Arc::clone(storage), &dir)?;
            if bundle.model_id() != id {
                let detail = format!(
                    "this bundle is model {}, its directory is named {id}",
                    bundle.model_id()
                );
                return Err(Error::corrupt(layout.model(id), "manifest", 0, detail));
            }
            Model::open(bundle, options.threads)?.plug(options.encoder.as_ref())?
        }
    };
    let model = model.stored_as(record.precision()).with_words(record.words);
    let agrees = model.metric() == record.metric
        && model.dim() == record.dim as usize
        && model.encoder_id() == record.encoder
        && model.kind() == record.rows;
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

/// Returns the snapshot of a record, without the contents of its logs. Segments of `before` that are unchanged stay
/// open.
pub(crate) fn snapshot(
    files: &dyn Storage,
    layout: &Layout,
    record: &VersionRecord,
    model: Arc<Model>,
    (scanner, masks): (Arc<Scanner>, Arc<MaskCache>),
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
        serving: record.active_serving(),
        model,
        segments: Arc::new(segments),
        tail: Tail::default(),
        schema: Arc::new(record.columns.clone()),
        masks,
        scanner,
    })
}
