//! From a text to a vector to a code: the encoder and the quantizer of one generation, as snapshots carry them.
//!
//! On disk a model is a [bundle]; the [registry] is the folder of bundles that a database has. The [encoder] turns texts
//! into vectors, the [quantizer](crate::quantizer) vectors into codes.

pub mod bundle;
pub mod encoder;
pub(crate) mod registry;
pub(crate) mod scorer;
pub(crate) mod shared;

use crate::error::{Error, Result};
use crate::ids::{CodesId, EncoderId, ModelId};
use crate::metric::Metric;
use crate::model::bundle::Bundle;
use crate::model::encoder::{Encoder, EncoderOptions, PluggedEncoder};
use crate::model::scorer::Scorer;
use crate::quantizer::{CodeShape, Quantizer, RowCodes};
use crate::row::Serving;
use crate::row::{Given, Row, RowsKind};
use crate::stored::{Precision, Stored};
use crate::threads;
use crate::watch::Watch;
use crate::words::{Choice, Vocabulary, Words};
use std::sync::{Arc, Mutex, OnceLock};

/// A model: an encoder (text to vector) and a quantizer (vector to code), either optional.
pub struct Model {
    id: Option<ModelId>,
    encoder_id: EncoderId,
    metric: Metric,
    dim: usize,
    precision: Precision,
    /// Whether its database's texts are searched by their words; `None`: nobody has decided.
    words_choice: Option<Choice>,
    words: Option<Arc<Words>>,
    bundle: Option<Bundle>,
    quantizer: Option<Quantizer>,
    /// Loaded when first used: opening a database, and queries by vector, need no encoder.
    encoder: OnceLock<Arc<dyn Encoder>>,
    loading: Mutex<()>,
    threads: usize,
}

impl Model {
    /// Returns a model without encoder and quantizer: precomputed vectors, searched exactly.
    pub fn none(dim: usize, metric: Metric) -> Self {
        Self {
            id: None,
            encoder_id: EncoderId::vectors(dim, metric),
            metric,
            dim,
            precision: RowsKind::Vector.precision(),
            words_choice: None,
            words: None,
            bundle: None,
            quantizer: None,
            encoder: OnceLock::new(),
            loading: Mutex::new(()),
            threads: 0,
        }
    }

    /// Returns the model of a bundle.
    pub fn open(bundle: Bundle, threads: usize) -> Result<Self> {
        let quantizer = bundle.quantizer()?;
        let dim = bundle.input_dim();
        if let Some(q) = &quantizer
            && q.input_dim() != dim
        {
            return Err(Error::model(format!(
                "{}: its quantizer takes vectors of {}, its encoder gives {dim}",
                bundle.dir().display(),
                q.input_dim()
            )));
        }
        let kind = match bundle.has_encoder() {
            true => RowsKind::Text,
            false => RowsKind::Vector,
        };
        Ok(Self {
            id: Some(bundle.model_id()),
            precision: kind.precision(),
            words_choice: None,
            words: None,
            encoder_id: bundle.encoder_id(),
            metric: bundle.metric(),
            dim,
            quantizer,
            bundle: Some(bundle),
            encoder: OnceLock::new(),
            loading: Mutex::new(()),
            threads,
        })
    }

    /// Takes the encoder that the program brings, if it is the one that the bundle names.
    ///
    /// # Errors
    /// [`Error::Model`] if it has another name, or another width.
    pub(crate) fn plug(self, encoder: Option<&PluggedEncoder>) -> Result<Self> {
        let named = self
            .bundle
            .as_ref()
            .and_then(|bundle| bundle.manifest().plugged_encoder.clone());
        if let (Some(PluggedEncoder(encoder)), Some(named)) = (encoder, named) {
            if encoder.name() != named || encoder.dim() != self.dim {
                return Err(Error::model(format!(
                    "the database was made with the encoder {named:?} of {} values, this is {:?} of {}",
                    self.dim,
                    encoder.name(),
                    encoder.dim()
                )));
            }
            let _ = self.encoder.set(Arc::clone(encoder));
        }
        Ok(self)
    }

    /// Sets the precision of the database's vectors.
    #[must_use]
    pub fn stored_as(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// Sets whether the texts of its database are searched by their words. Vectors never are.
    #[must_use]
    pub(crate) fn with_words(self, choice: Option<Choice>) -> Self {
        let choice = choice.filter(|_| self.kind() == RowsKind::Text);
        let words = match choice {
            Some(Choice::On(settings)) => Some(Arc::new(Words::new(settings))),
            Some(Choice::Off) | None => None,
        };
        if let (Some(words), Some(bundle)) = (&words, &self.bundle)
            && bundle.statistics().is_some_and(|own| own.words != words.id)
        {
            tracing::warn!(
                "the term statistics of model {} are of other words than this database's, and are not used",
                bundle.model_id().short()
            );
        }
        Self {
            words_choice: choice,
            words,
            ..self
        }
    }

    /// Returns whether the texts of its database are searched by their words; `None`: nobody has decided.
    pub(crate) fn words_choice(&self) -> Option<Choice> {
        self.words_choice
    }

    /// Returns the term statistics that it was trained with, if the database's texts become the same terms.
    pub(crate) fn statistics(&self) -> Option<&Vocabulary> {
        let statistics = self.bundle.as_ref()?.statistics()?;
        let words = self.words.as_ref()?;
        (statistics.words == words.id).then_some(statistics)
    }

    /// Returns how texts become terms, where they do.
    pub(crate) fn words(&self) -> Option<&Arc<Words>> {
        self.words.as_ref()
    }

    /// Returns how the vectors of its database are rounded.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Returns the content id, or `None` without a bundle.
    pub fn id(&self) -> Option<ModelId> {
        self.id
    }

    /// Returns the id by which models are listed and selected. Without a bundle it is the id of `exact`.
    pub fn model_id(&self) -> ModelId {
        self.id.unwrap_or_else(|| ModelId::exact(self.encoder_id))
    }

    /// Returns what its codes depend on, by content; `None` without a quantizer. Models that differ in the scorer alone
    /// share their codes.
    pub fn codes_id(&self) -> Option<CodesId> {
        self.bundle.as_ref()?.codes_id()
    }

    /// Returns how candidates are scored, if that was learned.
    pub fn scorer(&self) -> Option<&Scorer> {
        self.bundle.as_ref()?.scorer()
    }

    /// Returns the settings that its bundle proposes, measured when it was trained.
    pub fn serving(&self) -> Option<Serving> {
        self.bundle.as_ref()?.manifest().serving
    }

    /// Returns `true` if rows have the same vectors and codes under both models, so that no file has to be written to
    /// switch from one to the other.
    pub(crate) fn shares_files_with(&self, other: &Self) -> bool {
        self.encoder_id == other.encoder_id
            && self.codes_id() == other.codes_id()
            && self.words_choice == other.words_choice
    }

    /// Takes over the other's encoder, if it is the same one and was loaded.
    #[must_use]
    pub(crate) fn with_encoder_of(self, other: &Self) -> Self {
        if self.encoder_id == other.encoder_id
            && let Some(encoder) = other.encoder.get()
        {
            let _ = self.encoder.set(Arc::clone(encoder));
        }
        self
    }

    /// Returns how it was trained: `mopq`, `opq`, ...; `exact` without a quantizer.
    pub fn method(&self) -> &str {
        match &self.bundle {
            Some(bundle) if self.quantizer.is_some() || bundle.scorer().is_some() => {
                &bundle.manifest().method
            }
            _ => "exact",
        }
    }

    /// Returns the id of the encoder that made the stored vectors.
    pub fn encoder_id(&self) -> EncoderId {
        self.encoder_id
    }

    /// Returns how queries and keys are compared.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the width of the stored vectors.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the quantizer, if there is one.
    pub fn quantizer(&self) -> Option<&Quantizer> {
        self.quantizer.as_ref()
    }

    /// Returns the shape of its codes.
    pub fn shape(&self) -> Option<CodeShape> {
        self.quantizer.as_ref().map(Quantizer::shape)
    }

    /// Returns the number of its cells, if it has some.
    pub(crate) fn cells(&self) -> Option<u32> {
        let cells = self.quantizer.as_ref()?.cells()?;
        Some(cells.len() as u32)
    }

    /// Returns the bundle it was opened from.
    pub fn bundle(&self) -> Option<&Bundle> {
        self.bundle.as_ref()
    }

    /// Returns the kind of rows of a database with this model.
    pub fn kind(&self) -> RowsKind {
        match &self.bundle {
            Some(bundle) if bundle.has_encoder() => RowsKind::Text,
            _ => RowsKind::Vector,
        }
    }

    /// Returns the encoder, and loads it at the first call.
    pub fn encoder(&self) -> Result<&Arc<dyn Encoder>> {
        if let Some(encoder) = self.encoder.get() {
            return Ok(encoder);
        }
        let _one = self.loading.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(encoder) = self.encoder.get() {
            return Ok(encoder);
        }
        let options = EncoderOptions::with_threads(self.threads);
        let loaded = match &self.bundle {
            Some(bundle) => bundle.encoder_with(&options)?,
            None => None,
        };
        let loaded = loaded.ok_or_else(|| {
            Error::invalid(format!(
                "this database has no encoder: give vectors of {} values, or create a database with an encoder",
                self.dim
            ))
        })?;
        Ok(self.encoder.get_or_init(|| loaded))
    }

    /// Returns the vectors of these texts as keys, rounded as they are stored: n x dim.
    pub fn encode_keys(&self, texts: &[&str]) -> Result<Stored> {
        self.encode_keys_watched(texts, &Watch::new())
    }

    /// Does the same until `watch` stops it.
    pub(crate) fn encode_keys_watched(&self, texts: &[&str], watch: &Watch) -> Result<Stored> {
        let mut vectors = self.encoder()?.encode_keys_watched(texts, watch)?;
        let text = |row: usize| shorten(texts[row]);
        if vectors.len() != texts.len() * self.dim {
            return Err(Error::model(format!(
                "the encoder gave {} values for {} texts; its vectors have {}",
                vectors.len(),
                texts.len(),
                self.dim
            )));
        }
        if let Some(at) = vectors.iter().position(|x| !x.is_finite()) {
            return Err(Error::model(format!(
                "the encoder gave a value that is not finite for the text {:?}",
                text(at / self.dim)
            )));
        }
        // The graph of a bundle gives vectors of length 1 itself.
        if self.metric == Metric::Cosine && self.has_plugged_encoder() {
            for (row, vector) in vectors.chunks_exact_mut(self.dim).enumerate() {
                let (unit, _) = normalised(vector).ok_or_else(|| {
                    Error::model(format!(
                        "the encoder gave zeros for the text {:?}: they have no direction to compare by cosine",
                        text(row)
                    ))
                })?;
                vector.copy_from_slice(&unit);
            }
        }
        self.round(&vectors, |row| {
            format!("the vector of the text {:?}", text(row))
        })
    }

    /// Returns `true` if a program brings the encoder.
    fn has_plugged_encoder(&self) -> bool {
        let manifest = self.bundle.as_ref().map(Bundle::manifest);
        manifest.is_some_and(|manifest| manifest.plugged_encoder.is_some())
    }

    /// Returns the vectors as they are stored: n x dim. For cosine they have length 1.
    ///
    /// Requires: values are finite.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a value is too large to be rounded; `what` names the vector.
    pub(crate) fn round(
        &self,
        vectors: &[f32],
        what: impl FnOnce(usize) -> String,
    ) -> Result<Stored> {
        let unit = self.metric == Metric::Cosine;
        let stored = self.precision.round(vectors, self.dim, unit);
        if let Stored::F16(values) = &stored
            && let Some(at) = values.iter().position(|x| !x.is_finite())
        {
            return Err(Error::invalid(format!(
                "{} has {} at position {}; values that are stored as f16 are at most 65504",
                what(at / self.dim),
                vectors[at],
                at % self.dim
            )));
        }
        Ok(stored)
    }

    /// Returns the vectors of these texts as queries: n x dim.
    pub fn encode_queries(&self, texts: &[&str]) -> Result<Vec<f32>> {
        self.encoder()?.encode_queries(texts)
    }

    /// Checks that a row can be one of this model's database. The values of a vector are
    /// [checked](Self::check_vector) apart from it.
    ///
    /// # Errors
    /// [`Error::Invalid`] says what is wrong, without naming the row.
    pub fn check_row(&self, row: &Row) -> Result<()> {
        row.check()?;
        self.check_kind(row.value.as_given())
    }

    /// Checks that a row of this kind can be one of this model's database.
    pub(crate) fn check_kind(&self, value: Given<'_>) -> Result<()> {
        match (value, self.kind()) {
            (Given::Text(_), RowsKind::Text) | (Given::Vector(_), RowsKind::Vector) => Ok(()),
            (Given::Text(_), RowsKind::Vector) => Err(Error::invalid(format!(
                "it is a text, and this database has no encoder: it takes vectors of {} values",
                self.dim
            ))),
            (Given::Vector(_), RowsKind::Text) => Err(Error::invalid(
                "it is a vector, and this database encodes texts",
            )),
        }
    }

    /// Checks a query vector (dimensions, finite values) and normalises it for cosine.
    pub fn check_vector(&self, vector: &[f32], what: impl FnOnce() -> String) -> Result<Vec<f32>> {
        Ok(self.check_norm(vector, what)?.0)
    }

    /// The same, and the length that the vector had before it was normalised, if it was.
    pub(crate) fn check_norm(
        &self,
        vector: &[f32],
        what: impl FnOnce() -> String,
    ) -> Result<(Vec<f32>, Option<f64>)> {
        if vector.len() != self.dim {
            return Err(Error::invalid(format!(
                "{} has {} values, this database takes {}",
                what(),
                vector.len(),
                self.dim
            )));
        }
        let largest = largest(vector);
        if !largest.is_finite() {
            let at = vector.iter().position(|x| !x.is_finite());
            let at = at.expect("the largest is one of them");
            return Err(Error::invalid(format!(
                "{} has {} at position {at}; only finite values can be compared",
                what(),
                vector[at]
            )));
        }
        if self.metric != Metric::Cosine {
            // One row that is too large would make every query fail. The sum is needed for few rows
            // only.
            let square = || -> f64 { vector.iter().map(|&x| f64::from(x).powi(2)).sum() };
            let bound = f64::from(largest).powi(2) * vector.len() as f64;
            if bound > MAX_SQUARE && square() > MAX_SQUARE {
                let square = square();
                return Err(Error::invalid(format!(
                    "{} has a length of {:.1e}; scores up to a length of {:.1e} stay finite: scale the vectors down",
                    what(),
                    square.sqrt(),
                    MAX_SQUARE.sqrt()
                )));
            }
            return Ok((vector.to_vec(), None));
        }
        let (vector, norm) = normalised(vector).ok_or_else(|| {
            Error::invalid(format!(
                "{} is zero: it has no direction to compare by cosine",
                what()
            ))
        })?;
        Ok((vector, Some(norm)))
    }

    /// Returns the codes of stored vectors; empty without a quantizer.
    pub fn quantize(&self, vectors: &[f32]) -> Result<RowCodes> {
        match &self.quantizer {
            Some(quantizer) => quantizer.row_codes(vectors),
            None => Ok(RowCodes::default()),
        }
    }

    /// Like [`quantize`](Self::quantize), on all threads of the model if the batch is large enough.
    pub fn quantize_batch(&self, vectors: &[f32]) -> Result<RowCodes> {
        const SHARE: usize = 1024;
        let threads = threads::count(self.threads)?;
        let rows = vectors.len() / self.dim;
        let shares = threads.min(rows / SHARE);
        if shares < 2 || self.quantizer.is_none() {
            return self.quantize(vectors);
        }
        let share = rows.div_ceil(shares) * self.dim;
        let quantize = |part: &[f32]| self.quantize(part);
        match threads::share_out("mopqdb-quantize", vectors.chunks(share), quantize) {
            Ok(parts) => {
                let mut all = RowCodes::default();
                parts.iter().for_each(|part| all.append(part));
                Ok(all)
            }
            // Which row it is, counted from the first.
            Err(_) => self.quantize(vectors),
        }
    }
}

/// The largest squared length of a vector, stored or asked for. Then |q v| <= |q| |v| <= 1e37 and |q - v|^2 <= 2 |q|^2 + 2 |v|^2
/// <= 4e37, each sum on the way no more than that of its magnitudes: f32 has room up to 3.4e38.
const MAX_SQUARE: f64 = 1e37;

/// The largest magnitude, or one that is not finite if there is any: as integers, magnitudes compare as they should, inf
/// and NaN come after the others, and the loop is one of SIMD.
fn largest(vector: &[f32]) -> f32 {
    let magnitudes = vector.iter().map(|x| x.to_bits() & 0x7fff_ffff);
    f32::from_bits(magnitudes.max().unwrap_or(0))
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("id", &self.id)
            .field("encoder", &self.encoder_id)
            .field("dim", &self.dim)
            .finish()
    }
}

/// A vector of length one in the same direction, and the length that it had. Computed in f64, so that neither huge nor
/// tiny values overflow. A vector that is of length one already, to the rounding of f32, stays as it is: storing it again
/// changes nothing.
fn normalised(vector: &[f32]) -> Option<(Vec<f32>, f64)> {
    let squares: f64 = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    if squares == 0.0 {
        return None;
    }
    if (squares - 1.0).abs() < 1e-6 {
        return Some((vector.to_vec(), 1.0));
    }
    let norm = squares.sqrt();
    let scale = norm.recip();
    let unit = vector.iter().map(|&x| (f64::from(x) * scale) as f32);
    Some((unit.collect(), norm))
}

/// The beginning of a text, for messages.
fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_normalised_for_cosine_once_and_for_ever() {
        let model = Model::none(3, Metric::Cosine);
        for vector in [[3.0, 0.0, 4.0], [1e-30, 2e-30, 0.0], [1e30, -1e30, 1e30]] {
            let once = model.check_vector(&vector, || "it".into()).unwrap();
            let twice = model.check_vector(&once, || "it".into()).unwrap();
            assert_eq!(once, twice);
            let length: f32 = once.iter().map(|x| x * x).sum();
            assert!((length - 1.0).abs() < 1e-5, "{once:?}");
        }
    }

    #[test]
    fn a_vector_that_cannot_be_compared_is_refused_in_words() {
        let model = Model::none(2, Metric::Cosine);
        for (vector, words) in [
            (&[1.0][..], "has 1 values, this database takes 2"),
            (&[f32::NAN, 0.0], "NaN at position 0"),
            (&[0.0, f32::INFINITY], "inf at position 1"),
            (&[0.0, -0.0], "is zero"),
        ] {
            let error = model
                .check_vector(vector, || "the query".into())
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(words) && error.starts_with("the query"),
                "{error}"
            );
        }
        assert!(
            Model::none(2, Metric::Ip)
                .check_vector(&[0.0, 0.0], || "it".into())
                .is_ok()
        );
    }
}
