//! What a query sees: the model, segments, tail and deletions of one moment, together.

use crate::error::{Error, Result};
use crate::ids::{Generation, RowId, Seq};
use crate::model::Model;
use crate::row::{Filter, Hit, MAX_K, Query, QueryOptions, Row, Value};
use crate::scan::{BlockSource, Found, Scanner, VectorSource, Vectors};
use crate::view::segment::{SealedCodes, SealedExact, SegmentView};
use crate::view::tail::{RunCodes, RunExact, Tail};
use std::sync::Arc;

/// Roughly what it takes to read a hit's key and text.
const HIT_CYCLES: f64 = 1000.0;

/// An immutable view of a database. Holding one keeps its files readable, whatever is sealed, compacted or rebuilt
/// meanwhile; its answers never change.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) generation: Generation,
    pub(crate) model: Arc<Model>,
    pub(crate) segments: Arc<Vec<SegmentView>>,
    pub(crate) tail: Tail,
    pub(crate) scanner: Arc<Scanner>,
}

/// Where a row is in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Segment(usize, RowId),
    Tail(usize, RowId),
}

impl Snapshot {
    /// The committed version that it stands on.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Its model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Living rows.
    pub fn rows(&self) -> u64 {
        let sealed: u64 = self
            .segments
            .iter()
            .map(|view| u64::from(view.live.alive()))
            .sum();
        sealed + self.tail.alive()
    }

    /// The newest `Seq` in it; a model that is trained on it says so, and rows after are new to it.
    pub fn last_seq(&self) -> Seq {
        let sealed = self
            .segments
            .iter()
            .filter_map(|view| view.sealed.rows.summary().seqs)
            .map(|(_, last)| last);
        let tail = self
            .tail
            .runs()
            .map(|view| view.run.seq(RowId(view.run.rows() - 1)));
        sealed.chain(tail).max().unwrap_or_default()
    }

    /// Whether a row with this key is there.
    pub fn contains(&self, key: &str) -> Result<bool> {
        Ok(self.find(key)?.is_some())
    }

    /// The row with this key.
    pub fn get(&self, key: &str) -> Result<Option<Row>> {
        let Some(place) = self.find(key)? else {
            return Ok(None);
        };
        let value = match self.text(place)? {
            Some(text) => Value::Text(text),
            None => Value::Vector(self.vector(place)?),
        };
        Ok(Some(Row {
            key: key.into(),
            value,
        }))
    }

    /// The same view, searched by another scanner: to compare kernels, or numbers of threads.
    pub fn scanned_by(&self, scanner: Scanner) -> Self {
        Self {
            scanner: Arc::new(scanner),
            ..self.clone()
        }
    }

    /// The stored vectors of up to `count` living rows, evenly spread over all rows, widened. Reads no others.
    pub fn spread(&self, count: usize) -> Result<Vec<Vec<f32>>> {
        let all = self.rows() as usize;
        let count = count.min(all);
        let mut wanted = (0..count).map(|part| part * all / count).peekable();
        let segments = (self.segments.iter().enumerate())
            .flat_map(|(at, view)| view.live.iter().map(move |row| Place::Segment(at, row)));
        let runs = (self.tail.runs().enumerate())
            .flat_map(|(at, view)| view.live.iter().map(move |row| Place::Tail(at, row)));
        (segments.chain(runs).enumerate())
            .filter(|(number, _)| wanted.next_if_eq(number).is_some())
            .map(|(_, place)| self.vector(place))
            .collect()
    }

    /// Where the living row with this key is. The newest segments are asked first.
    pub(crate) fn find(&self, key: &str) -> Result<Option<Place>> {
        if let Some((at, row)) = self.tail.find(key) {
            return Ok(Some(Place::Tail(at, row)));
        }
        for (at, view) in self.segments.iter().enumerate().rev() {
            if let Some(row) = view.find(key)? {
                return Ok(Some(Place::Segment(at, row)));
            }
        }
        Ok(None)
    }

    /// Ends the row at a place.
    pub(crate) fn kill(&mut self, place: Place) -> bool {
        match place {
            Place::Segment(at, row) => Arc::make_mut(&mut self.segments)[at].live.kill(row),
            Place::Tail(at, row) => self.tail.kill(at, row),
        }
    }

    pub(crate) fn seq(&self, place: Place) -> Result<Seq> {
        match place {
            Place::Segment(at, row) => self.segments[at].sealed.rows.seq(row),
            Place::Tail(at, row) => Ok(self.tail.run(at).run.seq(row)),
        }
    }

    pub(crate) fn text(&self, place: Place) -> Result<Option<String>> {
        match place {
            Place::Segment(at, row) => self.segments[at].sealed.rows.text(row),
            Place::Tail(at, row) => {
                Ok(self.tail.run(at).run.text(row).map(|text| text.to_string()))
            }
        }
    }

    /// The stored vector, widened.
    pub(crate) fn vector(&self, place: Place) -> Result<Vec<f32>> {
        let one = |row: RowId| row.0 as usize..row.0 as usize + 1;
        Ok(to_f32(match place {
            Place::Segment(at, row) => self.segments[at].sealed.vectors(one(row))?,
            Place::Tail(at, row) => self.tail.run(at).run.vectors(one(row)),
        }))
    }

    fn key(&self, place: Place) -> Result<String> {
        match place {
            Place::Segment(at, row) => Ok(self.segments[at].sealed.rows.key(row)?.to_owned()),
            Place::Tail(at, row) => Ok(self.tail.run(at).run.key(row).to_string()),
        }
    }

    /// The k best rows for a query, best first.
    pub fn query<'q>(&self, query: impl Into<Query<'q>>, k: usize) -> Result<Vec<Hit>> {
        self.query_with(query, &QueryOptions::top(k))
    }

    /// The best rows for a query, best first, as the options say.
    pub fn query_with<'q>(
        &self,
        query: impl Into<Query<'q>>,
        options: &QueryOptions,
    ) -> Result<Vec<Hit>> {
        let mut hits = self.query_batch(&[query.into()], options)?;
        Ok(hits.pop().expect("one query, one answer"))
    }

    /// The best rows for each of several queries, which share one pass over the codes.
    pub fn query_batch(
        &self,
        queries: &[Query<'_>],
        options: &QueryOptions,
    ) -> Result<Vec<Vec<Hit>>> {
        let k = options.k;
        if k == 0 || k > MAX_K {
            return Err(Error::invalid(format!(
                "k is {k}; ask for 1 to {MAX_K} hits"
            )));
        }
        let vectors = self.query_vectors(queries)?;
        let masks = self.masks(options.filter.as_ref())?;
        let found = self.scan(&vectors, k, &masks)?;
        self.scanner
            .each(&found, k as f64 * HIT_CYCLES, |found| self.hits(found, k))
    }

    /// The queries as vectors of the stored width, n x dim.
    fn query_vectors(&self, queries: &[Query<'_>]) -> Result<Vec<f32>> {
        let texts: Vec<&str> = queries
            .iter()
            .filter_map(|query| match query {
                Query::Text(text) => Some(*text),
                Query::Vector(_) => None,
            })
            .collect();
        let encoded = if texts.is_empty() {
            Vec::new()
        } else {
            self.model.encode_queries(&texts)?
        };
        let mut encoded = encoded.chunks_exact(self.model.dim().max(1));
        let mut all = Vec::with_capacity(queries.len() * self.model.dim());
        for query in queries {
            let vector = match query {
                Query::Text(_) => encoded.next().expect("a vector for each text"),
                Query::Vector(vector) => vector,
            };
            all.extend(self.model.check_vector(vector, || "the query".into())?);
        }
        Ok(all)
    }

    /// For each segment, then each run, the rows that may be returned: deletions and filter together.
    fn masks(&self, filter: Option<&Filter>) -> Result<Vec<Option<Vec<u64>>>> {
        let Some(filter) = filter else {
            return Ok(Vec::new());
        };
        let mut masks = Vec::new();
        for view in self.segments.iter() {
            let rows = &view.sealed.rows;
            let found = match filter {
                Filter::Prefix(prefix) => rows.rows_with_prefix(prefix)?,
                Filter::Keys(keys) => {
                    let found = keys.iter().map(|key| rows.find(key));
                    found
                        .filter_map(Result::transpose)
                        .collect::<Result<Vec<_>>>()?
                }
            };
            masks.push(Some(mask(
                rows.rows(),
                found.into_iter().filter(|&row| view.live.contains(row)),
            )));
        }
        for view in self.tail.runs() {
            let wanted = |key: &str| match filter {
                Filter::Prefix(prefix) => key.starts_with(prefix.as_str()),
                Filter::Keys(keys) => keys.contains(key),
            };
            let found = view.live.iter().filter(|&row| wanted(view.run.key(row)));
            masks.push(Some(mask(view.run.rows() as usize, found)));
        }
        Ok(masks)
    }

    /// Candidates a query, best first: those among which the k best are.
    fn scan(
        &self,
        vectors: &[f32],
        k: usize,
        masks: &[Option<Vec<u64>>],
    ) -> Result<Vec<Vec<Found>>> {
        let sealed_masks = |at: usize| masks.get(at).and_then(|mask| mask.as_deref());
        let live = |at: usize, own| {
            if masks.is_empty() {
                own
            } else {
                sealed_masks(at)
            }
        };
        let dim = self.model.dim();
        if self.segments.is_empty() && self.tail.runs().next().is_none() {
            return Ok(vec![Vec::new(); vectors.len() / dim]);
        }
        match self.model.quantizer() {
            Some(quantizer) => {
                let queries: Vec<_> = vectors.chunks_exact(dim).collect();
                let tables = self
                    .scanner
                    .each(&queries, quantizer.table_cycles(), |query| {
                        quantizer.table(query)
                    })?;
                let sealed: Vec<_> = (self.segments.iter().enumerate())
                    .map(|(at, view)| SealedCodes {
                        codes: view
                            .sealed
                            .codes
                            .as_ref()
                            .expect("opened with codes under a quantizer"),
                        live: live(at, view.live.words()),
                    })
                    .collect();
                let runs: Vec<_> = (self.tail.runs().enumerate())
                    .map(|(at, view)| RunCodes {
                        run: &view.run,
                        live: live(sealed.len() + at, view.live.words()),
                    })
                    .collect();
                let sources: Vec<&dyn BlockSource> = (sealed.iter().map(|s| s as &dyn BlockSource))
                    .chain(runs.iter().map(|r| r as &dyn BlockSource))
                    .collect();
                self.scanner.scan(&sources, &tables, k)
            }
            None => {
                let sealed: Vec<_> = (self.segments.iter().enumerate())
                    .map(|(at, view)| SealedExact {
                        sealed: &view.sealed,
                        dim,
                        live: live(at, view.live.words()),
                    })
                    .collect();
                let runs: Vec<_> = (self.tail.runs().enumerate())
                    .map(|(at, view)| RunExact {
                        run: &view.run,
                        live: live(sealed.len() + at, view.live.words()),
                    })
                    .collect();
                let sources: Vec<&dyn VectorSource> =
                    (sealed.iter().map(|s| s as &dyn VectorSource))
                        .chain(runs.iter().map(|r| r as &dyn VectorSource))
                        .collect();
                self.scanner
                    .scan_exact(&sources, vectors, self.model.metric(), k)
            }
        }
    }

    /// The k best of the candidates, ties by `Seq`, with their keys and texts.
    fn hits(&self, found: &[Found], k: usize) -> Result<Vec<Hit>> {
        let place = |found: &Found| {
            let (at, row) = (found.source as usize, RowId(found.row));
            match at.checked_sub(self.segments.len()) {
                None => Place::Segment(at, row),
                Some(at) => Place::Tail(at, row),
            }
        };
        let mut ranked = Vec::with_capacity(found.len());
        for found in found {
            let place = place(found);
            ranked.push((found.score, self.seq(place)?, place));
        }
        ranked.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        ranked.truncate(k);
        let hit = |(score, seq, place)| {
            Ok(Hit {
                key: self.key(place)?,
                score,
                text: self.text(place)?,
                seq,
            })
        };
        ranked.into_iter().map(hit).collect()
    }

    /// Calls `each` with every living row, oldest segment first, in `Seq` order within it. The vector is the stored
    /// one, widened.
    pub fn for_each_row(&self, mut each: impl FnMut(RowView<'_>) -> Result<()>) -> Result<()> {
        let mut vector = Vec::with_capacity(self.model.dim());
        for view in self.segments.iter() {
            let mut cursor = view.sealed.rows.cursor();
            while let Some(row) = cursor.next()? {
                if !view.live.contains(row.row) {
                    continue;
                }
                let at = row.row.0 as usize;
                vector.clear();
                widen_into(view.sealed.vectors(at..at + 1)?, &mut vector);
                let text = match row.value {
                    crate::segment::ValueRef::Text(text) => Some(text),
                    crate::segment::ValueRef::Vector(_) => None,
                };
                each(RowView {
                    seq: row.seq,
                    key: row.key,
                    text,
                    vector: &vector,
                })?;
            }
        }
        for view in self.tail.runs() {
            for row in view.live.iter() {
                let at = row.0 as usize;
                vector.clear();
                widen_into(view.run.vectors(at..at + 1), &mut vector);
                let text = view.run.text(row).map(|text| &**text);
                each(RowView {
                    seq: view.run.seq(row),
                    key: view.run.key(row),
                    text,
                    vector: &vector,
                })?;
            }
        }
        Ok(())
    }
}

/// A row in passing.
#[derive(Debug, Clone, Copy)]
pub struct RowView<'a> {
    /// When it was accepted.
    pub seq: Seq,
    /// The user's key.
    pub key: &'a str,
    /// The text, where rows are texts.
    pub text: Option<&'a str>,
    /// The stored vector, widened.
    pub vector: &'a [f32],
}

fn to_f32(vectors: Vectors<'_>) -> Vec<f32> {
    let mut all = Vec::with_capacity(vectors.len());
    widen_into(vectors, &mut all);
    all
}

/// Appends stored vectors, widened.
pub(crate) fn widen_into(vectors: Vectors<'_>, out: &mut Vec<f32>) {
    match vectors {
        Vectors::F32(v) => out.extend_from_slice(v),
        Vectors::F16(v) => out.extend(v.iter().map(|x| x.to_f32())),
    }
}

fn mask(rows: usize, found: impl Iterator<Item = RowId>) -> Vec<u64> {
    let mut words = vec![0; rows.div_ceil(64)];
    for row in found {
        words[row.0 as usize / 64] |= 1 << (row.0 % 64);
    }
    words
}
