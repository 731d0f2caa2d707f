//! How much work a query does under a model where its options do not say it.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Serving settings of a model, as measured: how many candidates a query takes. They are kept with the database, under
/// the id of the model, and options of a query go before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Serving {
    /// Hits for which the settings were measured.
    pub k: u32,
    /// Candidates of a query for so many hits.
    pub candidates: u32,
}

impl Serving {
    /// Takes the number of hits that was measured, and the candidates of such a query.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are no hits, or fewer candidates than hits.
    pub fn new(k: u32, candidates: u32) -> Result<Self> {
        let serving = Self { k, candidates };
        match serving.is_valid() {
            true => Ok(serving),
            false => Err(Error::invalid(format!(
                "{candidates} candidates for {k} hits; a query has at least one hit, and as many candidates as hits"
            ))),
        }
    }

    pub(crate) fn is_valid(self) -> bool {
        self.k > 0 && self.candidates >= self.k
    }

    /// Returns the candidates of a query for k hits: in proportion to what was measured, and never fewer than k.
    pub fn candidates_for(self, k: usize) -> usize {
        let scaled = k as u128 * u128::from(self.candidates);
        let scaled = scaled.div_ceil(u128::from(self.k.max(1)));
        usize::try_from(scaled).unwrap_or(usize::MAX).max(k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_scaled_to_the_hits() {
        let serving = Serving::new(10, 250).unwrap();
        assert_eq!(serving.candidates_for(10), 250);
        assert_eq!(serving.candidates_for(1), 25);
        assert_eq!(serving.candidates_for(100), 2_500);
        assert_eq!(Serving::new(7, 10).unwrap().candidates_for(3), 5);
        assert_eq!(Serving::new(10, 10).unwrap().candidates_for(3), 3);
        assert!(Serving::new(0, 10).is_err() && Serving::new(10, 9).is_err());
    }
}
