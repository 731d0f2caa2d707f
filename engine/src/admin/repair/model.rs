//! Choosing the model of the repaired database.

use super::files::is_damage;
use super::segments::Found;
use super::{Base, Repair};
use crate::disk::files::list;
use crate::disk::orphans::orphan;
use crate::error::{Error, Result};
use crate::ids::ModelId;
use crate::model::Model;
use crate::model::bundle::Bundle;
use crate::model::registry;
use crate::row::RowsKind;
use crate::segment::{FileName, VecsFile};
use crate::stored::Precision;
use crate::version::VersionRecord;
use crate::view::segment::codes_path;
use std::sync::Arc;

impl Repair<'_> {
    /// Returns the model that the newest record names, or the best remaining one. If there is none, that is reported
    /// and `None` is returned.
    pub(super) fn choose_model(
        &mut self,
        base: &Base,
        found: &Found,
    ) -> Result<Option<Arc<Model>>> {
        let hint = base.hint.as_ref();
        self.put_damaged_models_aside(hint.and_then(|record| record.model))?;
        if let Some(record) = hint {
            match record.model {
                None => {
                    let model = Model::none(record.dim as usize, record.metric);
                    let model = model.stored_as(record.precision()).with_words(record.words);
                    return Ok(Some(Arc::new(model)));
                }
                Some(id) => match self.open_model(id) {
                    Ok(model) => {
                        let model = model.stored_as(record.precision()).with_words(record.words);
                        return Ok(Some(Arc::new(model)));
                    }
                    Err(e) => self.done(format!("the active model {} is lost: {e}", id.short())),
                },
            }
        }
        let mut models = Vec::new();
        for id in registry::by_registration(&self.layout)? {
            match self.open_model(id) {
                Ok(model) => models.push(model),
                Err(e) => self.done(format!("model {} can't be used: {e}", id.short())),
            }
        }
        // Vectors can be searched exactly without a model.
        let vectors = match (hint, found.segments.first()) {
            (Some(record), _) => {
                (record.rows == RowsKind::Vector).then_some((record.dim, record.metric))
            }
            (None, Some(segment)) => {
                let meta = segment.rows.meta();
                meta.vectors.map(|kind| (kind.dim.get(), meta.metric))
            }
            (None, None) => None,
        };
        models.extend(vectors.map(|(dim, metric)| Model::none(dim as usize, metric)));
        if let Some(precision) = self.precision(hint, found)? {
            let stored = models.into_iter().map(|model| model.stored_as(precision));
            models = stored.collect();
        }
        models.rotate_right(usize::from(vectors.is_some()));
        let best = (models.into_iter().enumerate())
            .filter(|(_, model)| self.fits(model, base, found))
            .max_by_key(|(order, model)| (self.coded(model, found), *order));
        let Some((_, model)) = best else {
            let what = format!(
                "{}: no model is left that could serve these rows. They are whole and can be exported, and a copy of the model's folder in `models/` makes the database usable again",
                self.layout.models().display()
            );
            self.report.pending.push(what);
            return Ok(None);
        };
        let name = model.id().map_or("exact".into(), |id| id.short());
        self.done(format!("the database now uses model {name}"));
        Ok(Some(Arc::new(model)))
    }

    /// Moves damaged models to `orphans/`, since a model can't be computed again. The active one stays if its quantizer
    /// can be used.
    fn put_damaged_models_aside(&mut self, active: Option<ModelId>) -> Result<()> {
        for id in registry::by_registration(&self.layout)? {
            let dir = self.layout.model(id);
            let Err(damage) = Bundle::open(&dir).and_then(|bundle| bundle.verify()) else {
                continue;
            };
            if !matches!(damage, Error::Model(_)) && !is_damage(&damage) {
                return Err(damage);
            }
            if active == Some(id) && self.open_model(id).is_ok() {
                self.report.pending.push(format!(
                    "the encoder of the active model is damaged, so texts can't be encoded; put a copy of the file in its place: {damage}"
                ));
            } else {
                orphan(&*self.disk, &self.layout, &dir)?;
                self.done(format!(
                    "model {} is damaged and was moved to orphans: {damage}",
                    id.short()
                ));
            }
        }
        Ok(())
    }

    fn open_model(&self, id: ModelId) -> Result<Model> {
        let dir = self.layout.model(id);
        let bundle = Bundle::open(&dir)?;
        if bundle.model_id() != id {
            let what = format!("this is model {}", bundle.model_id());
            return Err(Error::corrupt(dir, "manifest", 0, what));
        }
        Model::open(bundle, 0)
    }

    fn fits(&self, model: &Model, base: &Base, found: &Found) -> bool {
        let same = base.hint.as_ref().is_none_or(|record| {
            (model.encoder_id(), model.metric()) == (record.encoder, record.metric)
        });
        let first = found.segments.first().map(|segment| segment.rows.meta());
        let kind = first.is_none_or(|meta| match meta.vectors {
            None => model.kind() == RowsKind::Text,
            Some(kind) => {
                model.kind() == RowsKind::Vector && model.dim() == kind.dim.get() as usize
            }
        });
        same && kind && first.is_none_or(|meta| meta.metric == model.metric())
    }

    /// Returns how stored vectors are rounded, according to a record or else the files; `None` if neither says.
    fn precision(&self, hint: Option<&VersionRecord>, found: &Found) -> Result<Option<Precision>> {
        if let Some(record) = hint {
            return Ok(Some(record.precision()));
        }
        let given = found.segments.iter().filter_map(|s| s.rows.vector_kind());
        if let Some(kind) = given.into_iter().next() {
            return Ok(Some(kind.precision));
        }
        let dir = self.layout.segments();
        for name in list(&*self.disk, &dir)? {
            if let Ok(name @ FileName::Vecs(..)) = name.parse()
                && let Ok(vecs) = VecsFile::open(&*self.disk, &name.within(&dir))
            {
                return Ok(Some(vecs.meta().precision));
            }
        }
        Ok(None)
    }

    /// Counts the segments that have codes under a model, or at least vectors.
    fn coded(&self, model: &Model, found: &Found) -> usize {
        let dir = self.layout.segments();
        let has =
            |segment: &super::segments::FoundSegment| match codes_path(&dir, segment.id, model) {
                Some(path) => path.is_file(),
                None => FileName::Rows(segment.id).within(&dir).is_file(),
            };
        let with_codes = found.segments.iter().filter(|s| has(s)).count();
        // If two models have everything, prefer the one that the codes were made for.
        with_codes * 2 + usize::from(model.quantizer().is_some() && with_codes > 0)
    }
}
