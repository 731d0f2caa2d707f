//! The quantizer: project, choose codewords, decode, and turn a query into its table.

use super::cells::{Cells, ScoredCell};
use super::codebook::Codebook;
use super::fixed;
use super::head::Head;
use super::order::RowCodes;
use super::selection::{Activation, QueryMode, Selection, Selectors};
use super::shape::CodeShape;
use super::table::LookupTable;
use crate::error::{Error, Result};
use crate::kernel::{Columns, Kernel};
use crate::metric::Metric;

/// Turns vectors into codes and queries into lookup tables. Immutable and cheap to share behind an
/// `Arc`.
#[derive(Debug, Clone)]
pub struct Quantizer {
    head: Option<Head>,
    activation: Activation,
    /// (dim, dim), applied as `y = x R`
    rotation: Option<Vec<f32>>,
    codebook: Codebook,
    selection: Selection,
    query_mode: QueryMode,
    metric: Metric,
    cells: Option<Cells>,
    kernel: Kernel,
    // The same, in the order in which the kernels read them.
    head_columns: Option<Columns>,
    rotation_columns: Option<Columns>,
    /// One per subspace.
    selector_columns: Vec<Columns>,
    codeword_columns: Vec<Columns>,
}

/// What a query is for a scan.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) table: LookupTable,
    /// The query in the space of the codewords.
    pub(crate) query: Vec<f32>,
}

/// Collects the parts of a [`Quantizer`]; [`build`](Self::build) checks that they fit.
#[derive(Debug, Clone)]
pub struct QuantizerBuilder {
    head: Option<Head>,
    activation: Activation,
    rotation: Option<Vec<f32>>,
    codebook: Codebook,
    selection: Selection,
    query_mode: QueryMode,
    metric: Metric,
    cells: Option<Cells>,
    kernel: Option<Kernel>,
}

impl QuantizerBuilder {
    /// Sets the projection.
    pub fn head(mut self, head: Option<Head>) -> Self {
        self.head = head;
        self
    }

    /// Sets the activation after the head.
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// Sets the rotation: a matrix (dim, dim) applied after the activation as `y = x R`.
    pub fn rotation(mut self, rotation: Option<Vec<f32>>) -> Self {
        self.rotation = rotation;
        self
    }

    /// Sets how codewords are chosen. Default: l2.
    pub fn selection(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Sets how a query is transformed before its table is built. Default: plain.
    pub fn query_mode(mut self, query_mode: QueryMode) -> Self {
        self.query_mode = query_mode;
        self
    }

    /// Sets the cells, in the space of the codewords. Default: none.
    pub fn cells(mut self, cells: Option<Cells>) -> Self {
        self.cells = cells;
        self
    }

    /// Sets the kernel. Default: the best for this CPU.
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = Some(kernel);
        self
    }

    /// Checks that the parts fit together.
    pub fn build(self) -> Result<Quantizer> {
        let dim = self.codebook.dim();
        if let Some(head) = &self.head
            && head.dim() != dim
        {
            return Err(Error::invalid(format!(
                "the head has {} outputs, the codebook {dim} dimensions",
                head.dim()
            )));
        }
        if let Some(rotation) = &self.rotation {
            if rotation.len() != dim * dim {
                return Err(Error::invalid(format!(
                    "a rotation of {dim} dimensions has {} values, got {}",
                    dim * dim,
                    rotation.len()
                )));
            }
            if rotation.iter().any(|v| !v.is_finite()) {
                return Err(Error::invalid(
                    "the rotation holds a value that is not finite",
                ));
            }
        }
        if let QueryMode::Soft { temperature } = self.query_mode
            && !(temperature.is_finite() && temperature > 0.0)
        {
            return Err(Error::invalid(format!(
                "a soft query needs a temperature above 0, got {temperature}"
            )));
        }
        if let Some(cells) = &self.cells {
            if cells.dim() != dim {
                return Err(Error::invalid(format!(
                    "the cells have {} dimensions, the codebook {dim}",
                    cells.dim()
                )));
            }
            if cells.is_residual() && self.metric == Metric::L2 {
                return Err(Error::invalid(
                    "codes of the difference between a row and its cell are for ip and cosine",
                ));
            }
        }
        let kernel = match self.kernel {
            Some(kernel) => kernel,
            None => Kernel::detect()?,
        };
        let selectors = Selectors::new(&self.codebook, &self.selection)?;
        let (codewords, sub_dim) = (self.codebook.shape().codewords(), self.codebook.sub_dim());
        let selector_columns = selectors
            .values
            .chunks_exact(codewords * sub_dim)
            .zip(selectors.offsets.chunks_exact(codewords))
            .map(|(rows, offsets)| Columns::from_rows(sub_dim, rows, Some(offsets)))
            .collect();
        let codeword_columns = (0..self.codebook.shape().subspaces())
            .map(|m| Columns::from_rows(sub_dim, self.codebook.subspace(m), None))
            .collect();
        Ok(Quantizer {
            head_columns: self
                .head
                .as_ref()
                .map(|head| Columns::from_rows(head.hidden(), head.weight(), head.bias())),
            rotation_columns: self
                .rotation
                .as_ref()
                .map(|rotation| Columns::from_columns(dim, dim, rotation)),
            selector_columns,
            codeword_columns,
            head: self.head,
            activation: self.activation,
            rotation: self.rotation,
            codebook: self.codebook,
            selection: self.selection,
            query_mode: self.query_mode,
            metric: self.metric,
            cells: self.cells,
            kernel,
        })
    }
}

impl Quantizer {
    /// Returns a builder with the required parts.
    pub fn builder(codebook: Codebook, metric: Metric) -> QuantizerBuilder {
        QuantizerBuilder {
            head: None,
            activation: Activation::None,
            rotation: None,
            codebook,
            selection: Selection::L2,
            query_mode: QueryMode::Plain,
            metric,
            cells: None,
            kernel: None,
        }
    }

    /// Returns the width of the vectors that [`quantize`](Self::quantize) and
    /// [`table`](Self::table) take.
    pub fn input_dim(&self) -> usize {
        self.head.as_ref().map_or(self.dim(), Head::hidden)
    }

    /// Returns the width after projection: subspaces x sub_dim.
    pub fn dim(&self) -> usize {
        self.codebook.dim()
    }

    /// Returns the subspaces and codewords.
    pub fn shape(&self) -> CodeShape {
        self.codebook.shape()
    }

    /// Returns how queries and keys are compared.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the codewords.
    pub fn codebook(&self) -> &Codebook {
        &self.codebook
    }

    /// Returns the linear layer in front, if there is one.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// Sets the activation after the head.
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// Returns the rotation (dim, dim) applied as `y = x R`, if there is one.
    pub fn rotation(&self) -> Option<&[f32]> {
        self.rotation.as_deref()
    }

    /// Returns the cells, if there are some.
    pub fn cells(&self) -> Option<&Cells> {
        self.cells.as_ref()
    }

    /// Returns `true` if codes are of the difference between a row and its cell.
    pub(crate) fn is_residual(&self) -> bool {
        self.cells.as_ref().is_some_and(Cells::is_residual)
    }

    /// Returns the same quantizer with other cells.
    pub(super) fn in_cells(self, cells: Cells) -> Self {
        debug_assert_eq!(cells.dim(), self.dim());
        Self {
            cells: Some(cells),
            ..self
        }
    }

    /// Returns the kernel that it runs on.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Returns how codewords are chosen.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Returns what a query becomes before its table.
    pub fn query_mode(&self) -> QueryMode {
        self.query_mode
    }

    /// Applies head, activation and rotation to each of n rows: (n, input_dim) to (n, dim). The error names a row that
    /// is not finite, or whose projection is not.
    ///
    /// # Panics
    /// If `vectors` is not a whole number of rows, or `out` does not hold as many rows.
    pub fn project(&self, vectors: &[f32], out: &mut [f32]) -> Result<()> {
        self.project_from(0, vectors, out)
    }

    /// `first` is the number that errors give to the first row.
    fn project_from(&self, first: usize, vectors: &[f32], out: &mut [f32]) -> Result<()> {
        let (inputs, dim) = (self.input_dim(), self.dim());
        check_rows("vectors", vectors.len(), inputs, out.len(), dim);
        check_finite(first, vectors, inputs, "holds a value that is not finite")?;
        match &self.head_columns {
            Some(columns) => self.kernel.affine(columns, vectors, out),
            None => out.copy_from_slice(vectors),
        }
        if self.activation == Activation::Elu {
            out.iter_mut().for_each(|x| *x = fixed::elu(*x));
        }
        if let Some(columns) = &self.rotation_columns {
            let straight = out.to_vec();
            self.kernel.affine(columns, &straight, out);
        }
        check_finite(
            first,
            out,
            dim,
            "is too large for this model: its projection is not finite",
        )
    }

    /// Codes of n rows: (n, input_dim) to (n, subspaces). The error names the row that is not finite, or whose
    /// projection or selection overflows.
    ///
    /// # Panics
    /// If `vectors` is not a whole number of rows, or `out` does not hold as many rows.
    pub fn quantize(&self, vectors: &[f32], out: &mut [u8]) -> Result<()> {
        let mut cells = match &self.cells {
            Some(_) => vec![0; vectors.len() / self.input_dim()],
            None => Vec::new(),
        };
        self.quantize_into(vectors, out, &mut cells)
    }

    /// Codes and cells of n rows (n, input_dim). Errors are those of [`quantize`](Self::quantize).
    ///
    /// # Panics
    /// If `vectors` is not a whole number of rows.
    pub fn row_codes(&self, vectors: &[f32]) -> Result<RowCodes> {
        let rows = vectors.len() / self.input_dim();
        let cells = self.cells.as_ref().map_or(0, |_| rows);
        let mut of = RowCodes {
            codes: vec![0; rows * self.shape().subspaces()],
            cells: vec![0; cells],
        };
        self.quantize_into(vectors, &mut of.codes, &mut of.cells)?;
        Ok(of)
    }

    /// `cells` has a place per row if there are cells, else none.
    pub(crate) fn quantize_into(
        &self,
        vectors: &[f32],
        out: &mut [u8],
        cells_out: &mut [u32],
    ) -> Result<()> {
        let (inputs, dim, subspaces) = (self.input_dim(), self.dim(), self.shape().subspaces());
        check_rows("vectors", vectors.len(), inputs, out.len(), subspaces);
        // Rows at a time: their projections stay in L2. A multiple of 6 and 8, as many as kernels take at once.
        const ROWS: usize = 240;
        let straight =
            self.head.is_none() && self.rotation.is_none() && self.activation == Activation::None;
        let mut projected = vec![
            0.0;
            if straight {
                0
            } else {
                ROWS.min(vectors.len() / inputs) * dim
            }
        ];
        let mut differences = Vec::new();
        for (group, (rows, codes)) in vectors
            .chunks(ROWS * inputs)
            .zip(out.chunks_mut(ROWS * subspaces))
            .enumerate()
        {
            let first = group * ROWS;
            let n = rows.len() / inputs;
            let mut slices = if straight {
                check_finite(first, rows, inputs, "holds a value that is not finite")?;
                rows
            } else {
                self.project_from(first, rows, &mut projected[..n * dim])?;
                &projected[..n * dim]
            };
            if let Some(cells) = &self.cells {
                let out = &mut cells_out[first..first + n];
                cells.assign(self.kernel, slices, out).map_err(|row| {
                    Error::invalid(format!(
                        "row {} is too large for this model: its distance to a cell is not finite",
                        first + row
                    ))
                })?;
                if cells.is_residual() {
                    differences.clear();
                    differences.extend_from_slice(slices);
                    cells.subtract(&mut differences, out);
                    slices = &differences;
                }
            }
            self.kernel
                .assign(&self.selector_columns, slices, codes)
                .map_err(|row| {
                    Error::invalid(format!(
                        "row {} is too large for this model: a codeword's logit is not finite",
                        first + row
                    ))
                })?;
        }
        Ok(())
    }

    /// Decodes codes into their codewords: (n, subspaces) to (n, dim), after projection.
    ///
    /// # Panics
    /// If `codes` is not a whole number of rows, `out` does not hold as many rows, or a code has no codeword.
    pub fn decode(&self, codes: &[u8], out: &mut [f32]) {
        let (dim, subspaces, sub_dim) = (
            self.dim(),
            self.shape().subspaces(),
            self.codebook.sub_dim(),
        );
        check_rows("codes", codes.len(), subspaces, out.len(), dim);
        for (codes, row) in codes.chunks_exact(subspaces).zip(out.chunks_exact_mut(dim)) {
            for (m, (&code, slice)) in codes.iter().zip(row.chunks_exact_mut(sub_dim)).enumerate() {
                slice.copy_from_slice(self.codebook.codeword(m, usize::from(code)));
            }
        }
    }

    /// The same, with the centroids of cells where codes are residual: what rows stand for.
    pub(crate) fn decode_rows(&self, rows: &RowCodes, out: &mut [f32]) {
        self.decode(&rows.codes, out);
        let Some(cells) = self.cells.as_ref().filter(|cells| cells.is_residual()) else {
            return;
        };
        for (row, &cell) in out.chunks_exact_mut(self.dim()).zip(&rows.cells) {
            for (x, c) in row.iter_mut().zip(cells.centroid(cell)) {
                *x += c;
            }
        }
    }

    /// Returns what each codeword adds to the score for this query (input_dim values; normalised by the
    /// caller if the metric is cosine). Refuses a query that is not finite or too large.
    pub fn table(&self, query: &[f32]) -> Result<LookupTable> {
        self.table_of(self.projected(query)?)
    }

    /// Returns the table and the projection of a query. Refuses what [`table`](Self::table) refuses.
    pub(crate) fn ask(&self, query: &[f32]) -> Result<Asked> {
        let query = self.projected(query)?;
        Ok(Asked {
            table: self.table_of(query.clone())?,
            query,
        })
    }

    /// Returns the score of every cell for a query; none without cells. Refuses what [`table`](Self::table) refuses, and
    /// queries that are too large for a cell.
    pub fn cell_scores(&self, query: &[f32]) -> Result<Vec<f32>> {
        self.scores_of_cells(&self.projected(query)?)
    }

    /// The same, of a projected query.
    pub(crate) fn scores_of_cells(&self, query: &[f32]) -> Result<Vec<f32>> {
        match &self.cells {
            Some(cells) => cells.scores(self.kernel, self.metric, query),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the `count` cells with the highest scores for a projected query, ties to the lower number.
    ///
    /// Requires: there are cells.
    pub(crate) fn best_cells(&self, query: &[f32], count: usize) -> Result<Vec<ScoredCell>> {
        let cells = self
            .cells
            .as_ref()
            .expect("asked for cells where there are");
        cells.best(self.kernel, self.metric, query, count)
    }

    fn projected(&self, query: &[f32]) -> Result<Vec<f32>> {
        if query.len() != self.input_dim() {
            return Err(Error::invalid(format!(
                "the query has {} dimensions, this model takes {}",
                query.len(),
                self.input_dim()
            )));
        }
        let mut projected = vec![0.0; self.dim()];
        self.project(query, &mut projected)
            .map_err(|_| Error::invalid("the query is not finite, or too large for this model"))?;
        Ok(projected)
    }

    fn table_of(&self, mut projected: Vec<f32>) -> Result<LookupTable> {
        if let QueryMode::Soft { temperature } = self.query_mode {
            self.soften(&mut projected, temperature)?;
        }
        let (codewords, sub_dim) = (self.shape().codewords(), self.codebook.sub_dim());
        let mut entries = vec![0.0; self.shape().subspaces() * codewords];
        for ((columns, slice), row) in self
            .codeword_columns
            .iter()
            .zip(projected.chunks_exact(sub_dim))
            .zip(entries.chunks_exact_mut(codewords))
        {
            match self.metric {
                Metric::Ip | Metric::Cosine => self.kernel.affine(columns, slice, row),
                Metric::L2 => self.kernel.negative_distances(columns, slice, row),
            }
        }
        LookupTable::new(self.shape(), &entries)
    }

    /// Roughly the CPU cycles that [`table`](Self::table) takes: eight products each.
    pub(crate) fn table_cycles(&self) -> f64 {
        (self.dim() * (self.input_dim() + self.shape().codewords())) as f64 / 8.0
    }

    /// Replaces each slice by the softmax-weighted mean of its codewords.
    fn soften(&self, vector: &mut [f32], temperature: f32) -> Result<()> {
        let (codewords, sub_dim) = (self.shape().codewords(), self.codebook.sub_dim());
        let mut logits = vec![0.0; codewords];
        for (m, slice) in vector.chunks_exact_mut(sub_dim).enumerate() {
            self.kernel
                .affine(&self.selector_columns[m], slice, &mut logits);
            // The score that training took the softmax of, up to a constant: for l2 -|z - C|^2 + |z|^2 is
            // twice our logit; for cosine we have |z| times it.
            let norm = slice
                .iter()
                .map(|&x| f64::from(x) * f64::from(x))
                .sum::<f64>()
                .sqrt();
            let scale = match self.selection {
                Selection::L2 => 2.0,
                Selection::Cosine if norm > 0.0 => 1.0 / norm,
                _ => 1.0,
            } / f64::from(temperature);
            if logits.iter().any(|l| !l.is_finite()) {
                return Err(Error::invalid("the query is too large for this model"));
            }
            let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut total = 0.0;
            let mut mean = vec![0.0; sub_dim];
            for (j, &logit) in logits.iter().enumerate() {
                let weight = fixed::exp((f64::from(logit) - f64::from(max)) * scale);
                total += weight;
                for (sum, &c) in mean.iter_mut().zip(self.codebook.codeword(m, j)) {
                    *sum = weight.mul_add(f64::from(c), *sum);
                }
            }
            for (z, sum) in slice.iter_mut().zip(mean) {
                *z = (sum / total) as f32;
            }
        }
        Ok(())
    }
}

fn check_rows(what: &str, len: usize, width: usize, out: usize, out_width: usize) {
    assert!(
        len.is_multiple_of(width) && out == len / width * out_width,
        "{len} {what} values of rows of {width}, {out} places of rows of {out_width}"
    );
}

fn check_finite(first: usize, values: &[f32], width: usize, what: &str) -> Result<()> {
    // No early exit, so that it runs in SIMD.
    if values.iter().fold(true, |all, x| all & x.is_finite()) {
        return Ok(());
    }
    let at = values.iter().position(|x| !x.is_finite()).unwrap_or(0);
    Err(Error::invalid(format!("row {} {what}", first + at / width)))
}
