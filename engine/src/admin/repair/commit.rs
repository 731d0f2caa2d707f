//! Recomputing vectors and codes, and committing the repaired version.

use super::files::is_damage;
use super::logs::Logs;
use super::segments::{Found, FoundSegment};
use super::{Base, Repair};
use crate::admin::verify;
use crate::columns::Schema;
use crate::disk::files::list;
use crate::disk::orphans::orphan;
use crate::error::{Error, Result};
use crate::ids::{DatabaseId, Generation};
use crate::model::Model;
use crate::rebuild::{RebuildOptions, encode_segment};
use crate::segment::SegmentRecord;
use crate::segment::{CodesFile, Component, Deletions, FileName, MadeFrom, RowsFile};
use crate::version::VersionRecord;
use crate::version::catalog::Catalog;
use crate::version::manifest;
use crate::version::record::RECORD_VERSION;
use crate::view::live::Live;
use crate::view::segment::{Sealed, SegmentView, derived};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

impl Repair<'_> {
    /// Writes vectors and codes of every sound segment whose own are missing or damaged.
    pub(super) fn derive(&mut self, found: &Found, model: &Model) -> Result<()> {
        let dir = self.layout.segments();
        for segment in found.segments.iter().filter(|s| s.damage.is_empty()) {
            for file in derived(segment.id, model) {
                let path = file.within(&dir);
                if path.exists() && !path.is_file() {
                    orphan(&*self.disk, &self.layout, &path)?;
                }
                // Computing vectors again is slow, so a single flipped bit is corrected instead.
                if file.component() == Component::Vecs
                    && path.is_file()
                    && !self.is_sound(file.component(), &path)?
                {
                    self.correct(&path, file.component().kind())?;
                }
                if file.component() == Component::Codes && self.codes_differ(&path, segment, model)
                {
                    self.remove_derived(&path, "does not match its vectors")?;
                }
            }
            let view = self.view(segment)?;
            let encoded = encode_segment(
                &self.disk,
                &[&dir],
                &dir,
                &view,
                model,
                &RebuildOptions::default(),
                &mut |_| (),
            )?;
            if encoded.texts > 0 {
                self.done(format!(
                    "segment {}: {} texts were encoded again",
                    segment.id, encoded.texts
                ));
            }
            if encoded.indexed > 0 {
                self.done(format!(
                    "segment {}: the words of {} texts were indexed again",
                    segment.id, encoded.indexed
                ));
            }
            if encoded.rows > 0 {
                self.done(format!(
                    "segment {}: the codes of {} rows were computed again",
                    segment.id, encoded.rows
                ));
            }
            self.check_others(segment, model)?;
        }
        self.disk.sync_dir(&dir).map_err(Error::io("syncing", &dir))
    }

    /// Returns a segment with its rows alone.
    fn view(&self, segment: &FoundSegment) -> Result<SegmentView> {
        let path = FileName::Rows(segment.id).within(&self.layout.segments());
        Ok(SegmentView {
            sealed: Arc::new(Sealed {
                id: segment.id,
                rows: RowsFile::open(&*self.disk, &path)?,
                vecs: None,
                codes: None,
                columns: None,
                words: None,
            }),
            live: segment.live.clone(),
        })
    }

    /// Returns `true` if a codes file is intact but does not match its vectors.
    fn codes_differ(&self, path: &Path, segment: &FoundSegment, model: &Model) -> bool {
        let whole = CodesFile::open(&*self.disk, path).is_ok_and(|codes| codes.verify().is_empty());
        let sealed = {
            let dir = self.layout.segments();
            Sealed::open(&*self.disk, &dir, segment.id, None, model)
        };
        whole
            && sealed.is_ok_and(|sealed| {
                let mut differ = false;
                let compared = verify::compare_codes(&sealed, model, |_| differ = true);
                compared.is_ok() && differ
            })
    }

    /// Returns `true` if the file exists and is undamaged.
    fn is_sound(&self, component: Component, path: &Path) -> Result<bool> {
        match component.verify(&*self.disk, path) {
            Ok(damage) => Ok(damage.is_empty()),
            Err(e) if is_damage(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Checks the files made for other models and moves damaged ones away. `rebuild` computes them again when it needs
    /// them.
    fn check_others(&mut self, segment: &FoundSegment, model: &Model) -> Result<()> {
        let dir = self.layout.segments();
        let active = derived(segment.id, model);
        let names = list(&*self.disk, &dir)?;
        let files = names
            .iter()
            .filter_map(|name| name.parse::<FileName>().ok());
        let others = files.filter(|file| {
            file.segment() == segment.id && file.component().is_derived() && !active.contains(file)
        });
        let rows = MadeFrom {
            segment: segment.id,
            rows_hash: segment.rows.hash(),
            rows: segment.rows.row_count() as u32,
        };
        for file in others {
            let (path, component) = (file.within(&dir), file.component());
            let damage = match component.made_from(&*self.disk, &path) {
                Ok(Some(made_from)) if made_from == rows => {
                    component.verify(&*self.disk, &path)?.pop()
                }
                Ok(_) => Some(Error::corrupt(
                    &path,
                    "meta",
                    0,
                    "it was made from different rows",
                )),
                Err(e) => Some(e),
            };
            match damage {
                Some(damage) if is_damage(&damage) => {
                    self.remove_derived(&path, &damage.to_string())?;
                }
                Some(damage) => return Err(damage),
                None => {}
            }
        }
        Ok(())
    }

    /// Moves away a file that can be computed again.
    fn remove_derived(&mut self, path: &Path, why: &str) -> Result<()> {
        orphan(&*self.disk, &self.layout, path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.done(format!("{name} was moved to orphans: {why}"));
        Ok(())
    }

    /// Commits a version if the current one does not match the files.
    pub(super) fn commit(
        &mut self,
        base: &Base,
        found: &mut Found,
        logs: &Logs,
        (model, schema): (&Model, Schema),
    ) -> Result<()> {
        if !self.report.pending.is_empty() {
            return Ok(());
        }
        let adopted = found.segments.iter().any(|segment| segment.named.is_none());
        if adopted || base.record.is_none() {
            Found::kill_older(&mut found.segments, &found.dead, &logs.tombstones)?;
        }
        let unchanged = !found.new_list
            && found.segments.iter().all(|segment| segment.named.is_some())
            && (base.record.as_ref()).is_some_and(|record| record.model == model.id());
        if unchanged {
            return Ok(());
        }
        let generation = Generation(found.generation.0 + 1);
        let mut records = Vec::new();
        for segment in &found.segments {
            records.push(match &segment.named {
                Some(named) => named.clone(),
                None => self.name_segment(segment, generation)?,
            });
        }
        let dir = self.layout.segments();
        self.disk
            .sync_dir(&dir)
            .map_err(Error::io("syncing", &dir))?;
        let known = base.hint.as_ref().and_then(|record| record.database);
        let record = VersionRecord {
            version: RECORD_VERSION,
            generation,
            metric: model.metric(),
            rows: model.kind(),
            dim: model.dim() as u32,
            store: Some(model.precision()),
            database: Some(match known {
                Some(database) => database,
                None => DatabaseId::random()?,
            }),
            words: model.words_choice(),
            columns: schema,
            serving: (base.hint.as_ref())
                .map_or_else(BTreeMap::new, |record| record.serving.clone()),
            encoder: model.encoder_id(),
            model: model.id(),
            segments: records,
            first_log: logs.first,
            first_seq: logs.first_seq,
            next_segment: found.next_segment,
        };
        if base.record.is_none() && self.layout.catalog().exists() {
            orphan(&*self.disk, &self.layout, &self.layout.catalog())?;
        }
        let catalog = Catalog::open(&self.layout.catalog())
            .map_err(Error::io("opening the catalog", self.layout.catalog()))?;
        catalog.commit(&record)?;
        manifest::publish(&*self.disk, self.layout.dir(), &record)?;
        self.done(format!(
            "version {generation} was made from {} segments and the logs from {} on",
            record.segments.len(),
            record.first_log
        ));
        Ok(())
    }

    fn name_segment(
        &self,
        segment: &FoundSegment,
        generation: Generation,
    ) -> Result<SegmentRecord> {
        let rows = segment.rows.row_count() as u32;
        let dead = segment.live.dead();
        if dead > 0 {
            let deletions = dead_rows(segment, &segment.live, generation);
            let path = deletions.name().within(&self.layout.segments());
            deletions.write(Arc::clone(&self.disk), &path)?;
        }
        Ok(SegmentRecord {
            id: segment.id,
            rows,
            rows_hash: segment.rows.hash().0,
            dead,
            deletions: (dead > 0).then_some(generation),
            columns: segment.columns.hash(),
        })
    }
}

fn dead_rows(segment: &FoundSegment, live: &Live, generation: Generation) -> Deletions {
    let mut deletions = Deletions::none(segment.id, generation, live.row_count());
    for row in live.dead_rows() {
        deletions.insert(row);
    }
    deletions
}
