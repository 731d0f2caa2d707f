//! How candidates are scored: the query map and the weight of words, both learned from pairs.
//!
//! s(q, k) = <q A, v> + w b(q, k): v is the stored vector, b the score of the words. Stored rows and codes do not depend
//! on A and w, so a database switches to a newly learned scorer by committing one record.

use crate::error::{Error, Result};
use crate::kernel::{Columns, Kernel};

/// A query map and a weight of words. Either may be missing: without a map queries stay as they are.
#[derive(Debug, Clone)]
pub struct Scorer {
    dim: usize,
    /// (dim, dim), row-major: `q A`
    map: Option<Vec<f32>>,
    /// The same as the kernels read it.
    columns: Option<Columns>,
    weight: Option<f32>,
}

impl Scorer {
    /// Takes the map, row-major of `dim` x `dim` values and applied as `q A`, and the weight of words.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is neither, if a value is not finite, if the weight is negative, or if the map has
    /// another shape.
    pub fn new(dim: usize, map: Option<Vec<f32>>, weight: Option<f32>) -> Result<Self> {
        if map.is_none() && weight.is_none() {
            return Err(Error::invalid("a scorer has a map, a weight or both"));
        }
        if let Some(map) = &map {
            if dim == 0 || map.len() != dim * dim {
                return Err(Error::invalid(format!(
                    "a map of vectors of {dim} has {} values, got {}",
                    dim * dim,
                    map.len()
                )));
            }
            if map.iter().any(|value| !value.is_finite()) {
                return Err(Error::invalid("the map holds a value that is not finite"));
            }
        }
        if let Some(weight) = weight
            && !(weight >= 0.0 && weight.is_finite())
        {
            return Err(Error::invalid(format!("{weight} is no weight of words")));
        }
        let columns = (map.as_ref()).map(|map| Columns::from_columns(dim, dim, map));
        Ok(Self {
            dim,
            map,
            columns,
            weight,
        })
    }

    /// Returns the values of a vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the map, row-major.
    pub fn map(&self) -> Option<&[f32]> {
        self.map.as_deref()
    }

    /// Returns the weight of words.
    pub fn weight(&self) -> Option<f32> {
        self.weight
    }

    /// Returns the query by which stored vectors are scored: `q A`, each sum in the order of dimensions.
    pub(crate) fn map_query(&self, kernel: Kernel, query: &[f32]) -> Option<Vec<f32>> {
        let columns = self.columns.as_ref()?;
        let mut mapped = vec![0.0; self.dim];
        kernel.affine(columns, query, &mut mapped);
        Some(mapped)
    }
}

impl PartialEq for Scorer {
    fn eq(&self, other: &Self) -> bool {
        (self.dim, &self.map, self.weight) == (other.dim, &other.map, other.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_mapped_as_by_hand_on_every_kernel() {
        let map = vec![1.0, 2.0, 0.0, 0.0, 1.0, 0.5, -1.0, 0.0, 4.0];
        let scorer = Scorer::new(3, Some(map), None).unwrap();
        for kernel in Kernel::available() {
            let mapped = scorer.map_query(kernel, &[1.0, 10.0, 100.0]).unwrap();
            assert_eq!(mapped, [-99.0, 12.0, 405.0], "{}", kernel.name());
        }
        let weight = Scorer::new(3, None, Some(0.02)).unwrap();
        assert!(
            weight
                .map_query(Kernel::detect().unwrap(), &[0.0; 3])
                .is_none()
        );
    }

    #[test]
    fn what_is_no_scorer_is_refused() {
        for (map, weight) in [
            (None, None),
            (Some(vec![1.0; 8]), None),
            (Some(vec![f32::NAN; 9]), None),
            (None, Some(-0.1)),
            (None, Some(f32::INFINITY)),
        ] {
            assert!(Scorer::new(3, map, weight).is_err());
        }
    }
}
