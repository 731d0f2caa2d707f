//! What a query searches: the parts of a snapshot, or rows that an evaluation holds, under one model.

use crate::metric::Metric;
use crate::quantizer::Quantizer;
use crate::scan::Scanner;
use crate::snapshot::Snapshot;
use crate::view::part::Part;
use crate::view::searchable::Searchable;

/// Rows in parts, and what their codes and vectors mean.
pub(crate) struct Searched<'a, P> {
    pub(crate) parts: Vec<P>,
    /// Makes the tables that score codes; `None`: rows have no codes.
    pub(crate) quantizer: Option<&'a Quantizer>,
    /// How stored vectors are compared.
    pub(crate) metric: Metric,
    /// Values per stored vector.
    pub(crate) dim: usize,
    pub(crate) scanner: &'a Scanner,
}

impl Snapshot {
    /// This snapshot as its own model searches it.
    pub(crate) fn searched(&self) -> Searched<'_, Part<'_>> {
        Searched {
            parts: self.parts().collect(),
            quantizer: self.model.quantizer(),
            metric: self.model.metric(),
            dim: self.model.dim(),
            scanner: &self.scanner,
        }
    }
}

impl<P: Searchable> Searched<'_, P> {
    /// The number of queries in (queries, dim).
    pub(crate) fn queries(&self, vectors: &[f32]) -> usize {
        vectors.len() / self.dim
    }
}
