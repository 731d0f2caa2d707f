//! Statistics of a database.

use crate::admin::drift::Drift;
use crate::disk::layout::Layout;
use crate::disk::usage;
use crate::error::Result;
use crate::ids::{Generation, RowId};
use crate::metric::Metric;
use crate::row::RowsKind;
use crate::segment::{Component, FileName};
use crate::snapshot::Snapshot;
use serde::Serialize;

/// Statistics of a database.
#[derive(Debug, Clone, Serialize)]
pub struct Stats {
    /// The number of live rows.
    pub rows: u64,
    /// The number of deleted and replaced rows that still take space; compaction frees it.
    pub dead_rows: u64,
    /// The number of live rows that are not in a segment yet.
    pub tail_rows: u64,
    /// The number of segments.
    pub segments: usize,
    /// The generation of the committed version.
    pub generation: Generation,
    /// Whether rows are texts or vectors.
    pub kind: RowsKind,
    /// The metric by which rows are compared.
    pub metric: Metric,
    /// The width of the stored vectors.
    pub dim: usize,
    /// The id of the active model.
    pub model: String,
    /// The method by which the model was trained; `exact` if rows are searched without a quantizer.
    pub method: String,
    /// The bytes that a scan reads per row: of codes, or of vectors if there is no quantizer.
    pub scan_bytes_per_row: f64,
    /// The cells of the active model; none if it has none.
    pub cells: Option<CellStats>,
    /// Bytes on disk, by kind.
    pub bytes: Bytes,
    /// How the rows inserted since training differ from those it was trained on; `None` if nothing was trained.
    pub drift: Option<Drift>,
}

/// How live rows are spread over the cells of a model.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CellStats {
    /// Cells.
    pub cells: usize,
    /// Cells without rows.
    pub empty: usize,
    /// The rows of the largest cell.
    pub largest: u64,
    /// The rows that a query looks at, divided by those that it would look at if all cells had the same number of rows, for
    /// queries that are distributed as the rows are: 1 at best, and the number of cells if all rows are in one.
    pub imbalance: f64,
}

impl CellStats {
    fn of(snapshot: &Snapshot) -> Result<Option<Self>> {
        let Some(cells) = snapshot.model().cells() else {
            return Ok(None);
        };
        let mut rows = vec![0_u64; cells as usize];
        for part in snapshot.parts() {
            let Some(starts) = part.cell_starts() else {
                continue;
            };
            for entry in 0..starts.len() {
                let positions = starts.positions(entry);
                let alive = match part.live().words() {
                    None => positions.len(),
                    Some(_) => {
                        let rows = part.rows_at(positions)?.iter();
                        rows.filter(|&&row| part.live().contains(RowId(row)))
                            .count()
                    }
                };
                rows[starts.cell(entry) as usize] += alive as u64;
            }
        }
        let all = rows.iter().sum::<u64>().max(1) as f64;
        let squares: f64 = rows.iter().map(|&rows| (rows as f64 / all).powi(2)).sum();
        Ok(Some(Self {
            cells: rows.len(),
            empty: rows.iter().filter(|&&rows| rows == 0).count(),
            largest: rows.iter().copied().max().unwrap_or(0),
            imbalance: squares * rows.len() as f64,
        }))
    }
}

/// Bytes on disk, by kind.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Bytes {
    /// Keys, texts, and vectors that the user inserted.
    pub rows: u64,
    /// Vectors made by encoders.
    pub vecs: u64,
    /// Word indexes of the texts.
    pub words: u64,
    /// Codes of all models.
    pub codes: u64,
    /// Files that mark deleted rows.
    pub deletions: u64,
    /// Columns of rows.
    pub columns: u64,
    /// Write-ahead logs.
    pub logs: u64,
    /// Bundles. A file that several of them share counts once.
    pub models: u64,
    /// Everything else: catalog, manifests, staged and orphaned files.
    pub other: u64,
}

impl Bytes {
    /// Returns the sum of all kinds.
    pub fn total(&self) -> u64 {
        self.rows
            + self.vecs
            + self.words
            + self.columns
            + self.codes
            + self.deletions
            + self.logs
            + self.models
            + self.other
    }

    /// Returns the counter for one kind of segment file.
    fn of(&mut self, component: Component) -> &mut u64 {
        match component {
            Component::Rows => &mut self.rows,
            Component::Vecs => &mut self.vecs,
            Component::Words => &mut self.words,
            Component::Codes => &mut self.codes,
            Component::Deletions => &mut self.deletions,
            Component::Columns => &mut self.columns,
        }
    }
}

impl Stats {
    pub(crate) fn of(layout: &Layout, snapshot: &Snapshot) -> Result<Self> {
        let model = snapshot.model();
        let dead: u64 = snapshot
            .segments
            .iter()
            .map(|view| u64::from(view.live.dead()))
            .sum();
        let width = match (model.shape(), model.kind()) {
            (Some(shape), _) => shape.row_bytes(),
            (None, RowsKind::Text) => model.dim() * 2,
            (None, RowsKind::Vector) => model.dim() * 4,
        };
        Ok(Self {
            rows: snapshot.rows(),
            dead_rows: dead,
            tail_rows: snapshot.tail.alive(),
            segments: snapshot.segments.len(),
            generation: snapshot.generation(),
            kind: model.kind(),
            metric: model.metric(),
            dim: model.dim(),
            model: model.model_id().to_string(),
            method: model.method().to_owned(),
            scan_bytes_per_row: width as f64,
            cells: CellStats::of(snapshot)?,
            bytes: bytes(layout),
            drift: Drift::of(snapshot)?,
        })
    }
}

/// Adds up the bytes of all files. A file that several models share counts once.
fn bytes(layout: &Layout) -> Bytes {
    let mut bytes = Bytes::default();
    for (path, len) in usage::tree(layout.dir()) {
        let Ok(inside) = path.strip_prefix(layout.dir()) else {
            continue;
        };
        let home = inside
            .iter()
            .next()
            .and_then(|part| part.to_str())
            .unwrap_or_default();
        let component = match home {
            "segments" => FileName::of(&path).map(FileName::component),
            _ => None,
        };
        let kind = match (home, component) {
            (_, Some(component)) => bytes.of(component),
            ("logs", _) => &mut bytes.logs,
            ("models", _) => &mut bytes.models,
            _ => &mut bytes.other,
        };
        *kind += len;
    }
    bytes
}
