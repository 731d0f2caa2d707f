//! What re-scores candidates: s(q, k) = <q A, v_k> + w b(q, k), v_k being the stored vector and b the BM25 score of words.
//!
//! [`fit_map`] learns the query map A from pairs, [`Gain`] decides whether it is adopted, [`fit_weight`] chooses w, and
//! [`fewest_candidates`] how many candidates a query takes. None of them touches codes: a database whose scorer has
//! changed answers from the codes that it has.

mod adoption;
mod candidates;
mod map;
mod weight;

pub use adoption::{Gain, LEAST_GAIN};
pub use candidates::{Depth, SHARE, fewest_candidates};
pub use map::{LearnedMap, MapConfig, MapLessons, Tried, fit_map, mapped};
pub use weight::{Asked, Candidate, Weight, fit_weight};
