//! Writing a sound segment from damaged segments, or from segments whose `Seq`s overlap.

use super::columns::gather;
use super::segments::{Found, FoundSegment};
use super::{Base, Repair};
use crate::columns::Schema;
use crate::error::Result;
use crate::ids::{Generation, RowId, SegmentId, Seq};
use crate::model::Model;
use crate::row::{RowsKind, ValueRef};
use crate::segment::{RowsFile, Salvaged, VecsFile};
use crate::stored::Stored;
use crate::view::live::Live;
use crate::view::segment::vecs_path;
use crate::write::{NewSegment, Rows, TakeRow, TakeVectors, write_rows};
use std::collections::HashSet;

/// Texts encoded per batch.
const STEP: usize = 256;

impl Repair<'_> {
    /// Writes damaged segments again, without the rows that can't be read. Does nothing if loss is not accepted.
    pub(super) fn make_sound(
        &mut self,
        mut found: Found,
        base: &Base,
        under: (&Model, &Schema),
    ) -> Result<Found> {
        for segment in &found.segments {
            self.count_losses(segment)?;
            self.count_lost_values(segment)?;
        }
        if !self.report.pending.is_empty() {
            return Ok(found);
        }
        let mut segments = Vec::new();
        for mut segment in std::mem::take(&mut found.segments) {
            let Some(why) = segment.damage.first() else {
                self.make_columns_sound(&mut segment, under.1, &mut found)?;
                segments.push(segment);
                continue;
            };
            let damage = format!("segment {}: {why}", segment.id);
            found.new_list = true;
            let rewritten = self.rewrite(vec![segment], &mut found, under)?;
            self.done(match &rewritten {
                Some(new) => format!(
                    "{damage}; its {} readable rows were written to segment {}",
                    new.rows.row_count(),
                    new.id
                ),
                None => format!("{damage}; it has no live row that could be read"),
            });
            segments.extend(rewritten);
        }
        if base.record.is_none() || segments.iter().any(|segment| segment.named.is_none()) {
            segments = self.part_overlaps(segments, &mut found, under)?;
        }
        found.segments = segments;
        Ok(found)
    }

    /// Reports the live rows of a damaged segment that can't be read.
    fn count_losses(&mut self, segment: &FoundSegment) -> Result<()> {
        let Some(why) = segment.damage.first() else {
            return Ok(());
        };
        let (mut lost, mut keys) = (0, Vec::new());
        segment.rows.salvage(|row| {
            if let Salvaged::Lost { row, key, .. } = row
                && segment.live.contains(row)
            {
                lost += 1;
                keys.extend(key.map(str::to_owned));
            }
            Ok(())
        })?;
        if lost > 0 {
            let alive = segment.live.alive();
            let what = format!(
                "segment {}: {lost} of {alive} live rows can't be read; the keys of {} of them are known: {why}",
                segment.id,
                keys.len()
            );
            self.lose(what, keys);
        }
        Ok(())
    }

    /// Merges segments whose ranges of `Seq`s overlap, which they must not. A restored segment may lie within another
    /// one.
    fn part_overlaps(
        &mut self,
        segments: Vec<FoundSegment>,
        found: &mut Found,
        under: (&Model, &Schema),
    ) -> Result<Vec<FoundSegment>> {
        let mut apart: Vec<FoundSegment> = Vec::new();
        let mut group: Vec<FoundSegment> = Vec::new();
        let mut end = Seq(0);
        let mut ended = |group: &mut Vec<FoundSegment>, repair: &mut Self| -> Result<()> {
            let inputs = std::mem::take(group);
            if inputs.len() < 2 || inputs.iter().any(|input| !input.damage.is_empty()) {
                apart.extend(inputs);
                return Ok(());
            }
            let ids: Vec<String> = inputs.iter().map(|input| input.id.to_string()).collect();
            let merged = repair.rewrite(inputs, found, under)?;
            let into = merged
                .as_ref()
                .map_or("none".into(), |new| new.id.to_string());
            repair.done(format!(
                "segments {} were merged into segment {into}, since their rows were inserted in the same period",
                ids.join(", ")
            ));
            found.new_list = true;
            apart.extend(merged);
            Ok(())
        };
        for segment in segments {
            if let Some((first, last)) = segment.rows.summary().seqs {
                if first > end {
                    ended(&mut group, self)?;
                }
                end = end.max(last);
            }
            group.push(segment);
        }
        ended(&mut group, self)?;
        Ok(apart)
    }

    /// Writes the live, readable rows of some segments as a new segment without codes. The old segments move to
    /// `orphans/`.
    fn rewrite(
        &mut self,
        inputs: Vec<FoundSegment>,
        found: &mut Found,
        (model, schema): (&Model, &Schema),
    ) -> Result<Option<FoundSegment>> {
        let dir = self.layout.segments();
        let mut remains = Remains {
            inputs: Vec::new(),
            order: Vec::new(),
            model,
        };
        let mut seen: HashSet<Seq> = HashSet::new();
        for (at, input) in inputs.iter().enumerate() {
            input.rows.salvage(|row| {
                if let Salvaged::Row(row) = row
                    && input.live.contains(row.row)
                    && seen.insert(row.seq)
                {
                    remains.order.push((row.seq, at as u32, row.row));
                }
                Ok(())
            })?;
            let vecs = match model.kind() {
                RowsKind::Vector => None,
                RowsKind::Text => VecsFile::open(&*self.disk, &vecs_path(&dir, input.id, model))
                    .ok()
                    .filter(|vecs| {
                        vecs.meta().rows_hash == input.rows.hash()
                            && vecs.meta().encoder == model.encoder_id().0
                            && vecs.meta().precision == model.precision()
                            && vecs.verify().is_empty()
                    }),
            };
            remains.inputs.push((&input.rows, vecs));
        }
        remains.order.sort_unstable();
        let rewritten = if remains.order.is_empty() {
            None
        } else {
            let new = NewSegment {
                id: found.next_segment,
                generation: Generation(found.generation.0 + 1),
                replaces: inputs.iter().map(|input| input.id).collect(),
            };
            found.next_segment = SegmentId(new.id.0 + 1);
            let summary = write_rows(&self.disk, &dir, &new, model, &remains)?;
            let columns: Vec<_> = inputs.iter().map(|input| &input.columns).collect();
            let batch = gather(schema, &columns, remains.order.iter().copied());
            self.write_columns(new.id, schema, &summary, &batch)?;
            let path = crate::segment::FileName::Rows(new.id).within(&dir);
            let rows = RowsFile::open(&*self.disk, &path)?;
            Some(FoundSegment {
                id: new.id,
                columns: self.find_columns(new.id, &rows, None)?,
                live: Live::all(rows.row_count() as u32),
                rows,
                damage: Vec::new(),
                named: None,
            })
        };
        drop(remains);
        for input in &inputs {
            self.put_aside(input.id)?;
        }
        Ok(rewritten)
    }
}

/// The readable rows of some segments, in the order of their `Seq`s.
struct Remains<'a> {
    /// The rows, with the vectors of texts if those are sound.
    inputs: Vec<(&'a RowsFile, Option<VecsFile>)>,
    /// The `Seq`, input and row of each.
    order: Vec<(Seq, u32, RowId)>,
    model: &'a Model,
}

impl Remains<'_> {
    fn text(&self, input: u32, row: RowId) -> Result<String> {
        let (rows, _) = &self.inputs[input as usize];
        let text = rows.text(row)?;
        Ok(text.expect("a database of texts has segments of texts"))
    }

    /// Returns the stored vectors of some rows of texts. Missing ones are encoded.
    fn texts_vectors(&self, rows: &[(Seq, u32, RowId)]) -> Result<Stored> {
        let mut missing = Vec::new();
        for &(_, input, row) in rows {
            if self.inputs[input as usize].1.is_none() {
                missing.push(self.text(input, row)?);
            }
        }
        let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
        let (precision, dim) = (self.model.precision(), self.model.dim());
        let encoded = match missing.is_empty() {
            true => Stored::none(precision),
            false => self.model.encode_keys(&missing)?,
        };
        let mut next = 0..missing.len();
        let mut vectors = Stored::none(precision);
        vectors.reserve(rows.len(), dim);
        for &(_, input, row) in rows {
            let at = row.0 as usize;
            match &self.inputs[input as usize].1 {
                Some(vecs) => vectors.extend(vecs.vectors(at..at + 1)?),
                None => {
                    let at = next.next().expect("there is one vector per text");
                    vectors.extend(encoded.as_ref().rows(at..at + 1, dim));
                }
            }
        }
        Ok(vectors)
    }
}

impl Rows for Remains<'_> {
    fn each_row(&self, take: TakeRow<'_>) -> Result<()> {
        for &(seq, input, row) in &self.order {
            let (rows, _) = &self.inputs[input as usize];
            let key = rows.key(row)?;
            match self.model.kind() {
                RowsKind::Text => take(seq, key, ValueRef::Text(&self.text(input, row)?))?,
                RowsKind::Vector => take(seq, key, rows.vector(row)?)?,
            }
        }
        Ok(())
    }

    fn each_vector(&self, take: TakeVectors<'_>) -> Result<()> {
        for rows in self.order.chunks(STEP) {
            take(self.texts_vectors(rows)?.as_ref())?;
        }
        Ok(())
    }
}
