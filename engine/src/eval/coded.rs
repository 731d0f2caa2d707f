//! Rows ranked by their codes, a chunk at a time, whether they come from a snapshot or from memory.

use super::codes::{CodeCounter, Usage};
use super::rank::{self, CodesChunk, ExactChunk, Ranking};
use super::rows::{Picked, Rows, gather};
use super::{CodePlaces, EvalOptions, Evaluation, VectorQuestions, for_each_chunk, inner};
use crate::error::Result;
use crate::quantizer::Quantizer;
use crate::scan::{InMemory, Scanner};
use crate::threads;

/// What ranks rows by the codes of a quantizer.
#[derive(Clone, Copy)]
pub(super) struct Coded<'a> {
    pub(super) quantizer: &'a Quantizer,
    pub(super) questions: &'a VectorQuestions,
    pub(super) scanner: &'a Scanner,
    pub(super) options: &'a EvalOptions<'a>,
}

impl Coded<'_> {
    /// Places among codes and, where there is a head, among its projections; what the codes are like.
    pub(super) fn evaluate(self, rows: &dyn Rows) -> Result<Evaluation> {
        let picked = rows.pick(&self.questions.answers)?;
        let mut coded = self.ranking(&picked)?;
        let mut head = match self.quantizer.head() {
            Some(_) => Some(Projected::new(self, &picked)?),
            None => None,
        };
        let mut counter = CodeCounter::new(self.quantizer);
        for_each_chunk(rows, self.chunk(), self.options, |first, vectors| {
            let codes = self.quantize(vectors)?;
            let projected = self.project(vectors)?;
            counter.add(&projected, &codes);
            coded.add(self.scanner, first, &self.codes_chunk(&codes))?;
            match &mut head {
                Some(head) => head.add(first, &projected),
                None => Ok(()),
            }
        })?;
        let (places, samples) = coded.finish();
        Ok(Evaluation {
            places,
            head: head.map(|head| head.ranking.finish().0),
            codes: Some(counter.finish()),
            samples,
        })
    }

    /// Places among codes and the codewords in use, for which rows need not be projected by themselves.
    pub(super) fn rank(self, rows: &dyn Rows) -> Result<CodePlaces> {
        let mut coded = self.ranking(&rows.pick(&self.questions.answers)?)?;
        let mut usage = Usage::new(self.quantizer.shape());
        for_each_chunk(rows, self.chunk(), self.options, |first, vectors| {
            let codes = self.quantize(vectors)?;
            usage.add(&codes);
            coded.add(self.scanner, first, &self.codes_chunk(&codes))
        })?;
        Ok(CodePlaces {
            places: coded.finish().0,
            used: usage.used(),
        })
    }

    fn ranking(&self, picked: &Picked) -> Result<Ranking<'_>> {
        let (width, subspaces) = (
            self.quantizer.input_dim(),
            self.quantizer.shape().subspaces(),
        );
        let codes = self.quantize(picked.values())?;
        Ranking::new(&self.questions.answers, self.options, |query, rows| {
            let query = &self.questions.vectors[query * width..][..width];
            let table = self.quantizer.table(query)?;
            let code = |row: &u32| &codes[picked.at(*row) * subspaces..][..subspaces];
            Ok(rows.iter().map(|row| table.score(code(row))).collect())
        })
    }

    fn codes_chunk<'c>(&'c self, codes: &'c [u8]) -> CodesChunk<'c> {
        CodesChunk::new(self.quantizer, &self.questions.vectors, codes)
    }

    fn chunk(&self) -> usize {
        // Vectors, embeddings and codes.
        let values = self.quantizer.input_dim() + self.quantizer.dim() + 64;
        self.options.chunk(4 * values)
    }

    /// The codes of vectors: (n, subspaces).
    fn quantize(&self, vectors: &[f32]) -> Result<Vec<u8>> {
        let width = self.quantizer.input_dim();
        let mut codes = vec![0; vectors.len() / width * self.quantizer.shape().subspaces()];
        let threads = self.scanner.threads();
        in_parallel(threads, vectors, width, &mut codes, |rows, codes| {
            self.quantizer.quantize(rows, codes)
        })?;
        Ok(codes)
    }

    /// Vectors as the head projects them: (n, dim).
    fn project(&self, vectors: &[f32]) -> Result<Vec<f32>> {
        let width = self.quantizer.input_dim();
        let mut projected = vec![0.0; vectors.len() / width * self.quantizer.dim()];
        let threads = self.scanner.threads();
        in_parallel(threads, vectors, width, &mut projected, |rows, out| {
            self.quantizer.project(rows, out)
        })?;
        Ok(projected)
    }
}

/// Places among the projections of a head.
struct Projected<'a> {
    coded: Coded<'a>,
    /// (queries, dim)
    queries: Vec<f32>,
    ranking: Ranking<'a>,
}

impl<'a> Projected<'a> {
    fn new(coded: Coded<'a>, picked: &Picked) -> Result<Self> {
        let (dim, metric) = (coded.quantizer.dim(), inner(coded.quantizer.metric()));
        let queries = coded.project(&coded.questions.vectors)?;
        let keys = coded.project(picked.values())?;
        let ranking = Ranking::new(&coded.questions.answers, coded.options, |query, rows| {
            let keys = gather(&keys, dim, rows.iter().map(|row| picked.at(*row)));
            rank::scores(coded.scanner, &keys, &queries[query * dim..][..dim], metric)
        })?;
        Ok(Self {
            coded,
            queries,
            ranking,
        })
    }

    /// `keys` is (n, dim).
    fn add(&mut self, first: u32, keys: &[f32]) -> Result<()> {
        let quantizer = self.coded.quantizer;
        let chunk = ExactChunk {
            rows: InMemory {
                values: keys,
                dim: quantizer.dim(),
            },
            queries: &self.queries,
            metric: inner(quantizer.metric()),
        };
        self.ranking.add(self.coded.scanner, first, &chunk)
    }
}

/// Maps rows (n, width) to `out` (n, anything), a share for each thread.
fn in_parallel<T: Send>(
    threads: usize,
    rows: &[f32],
    width: usize,
    out: &mut [T],
    map: impl Fn(&[f32], &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    let n = rows.len() / width;
    if n == 0 {
        return Ok(());
    }
    let out_width = out.len() / n;
    let share = n.div_ceil(threads.max(1));
    let map = &map;
    std::thread::scope(|scope| {
        let parts = rows
            .chunks(share * width)
            .zip(out.chunks_mut(share * out_width));
        let running: Result<Vec<_>> = parts
            .map(|(rows, out)| threads::start_in(scope, "mopqdb-eval", move || map(rows, out)))
            .collect();
        running?
            .into_iter()
            .try_for_each(|part| part.join().expect("it returns its errors"))
    })
}
