//! BM25. Segments and runs provide postings, and this module scores them, so equal rows have equal scores in both.
//!
//! ```text
//! score(row) = sum over the query's terms t, in the order of their bytes, of
//!              idf(t) (k1 + 1) tf / (tf + k1 (1 - b + b len / average))
//! idf(t)     = ln(1 + (N - df + 0.5) / (df + 0.5))
//! ```
//!
//! Here tf is the number of times the row has the term, and len its length in tokens, rounded down to one of 256 values. The
//! logarithm and the average are computed in f64 and then rounded to f32: the f32 logarithm differs in its last bit between
//! machines. Everything else is f32, in the order of the code below.

use super::counts::Counts;
use crate::scan::TopK;
use tantivy::fieldnorm::FieldNormReader;

const K1: f32 = 1.2;
const B: f32 = 0.75;

/// The number of rows that are scored at a time: 16 KiB of sums stay in the L1 cache.
const WINDOW: usize = 4096;

/// Quotients are looked up for term frequencies up to this.
const LOOKED_UP: usize = 4;

/// Returns the byte of a length in tokens.
pub(super) fn len_to_byte(tokens: u32) -> u8 {
    FieldNormReader::fieldnorm_to_id(tokens)
}

/// Returns the length that a byte stands for: exact up to 40, then rounded down by up to an eighth.
pub(super) fn byte_to_len(byte: u8) -> u32 {
    FieldNormReader::id_to_fieldnorm(byte)
}

/// Scores rows for the terms of a query.
pub(crate) struct Scorer {
    /// The weight of each term.
    weights: Vec<f32>,
    /// `k1 (1 - b + b len / average)` for each byte of a length.
    norms: [f32; 256],
    /// `tf / (tf + norm)` for tf from 1 to [`LOOKED_UP`].
    quotients: Box<[[f32; 256]; LOOKED_UP]>,
}

impl Scorer {
    /// Computes the weights of terms from their counts.
    pub(crate) fn new(counts: &Counts) -> Self {
        let average = (counts.total_len as f64 / counts.rows as f64) as f32;
        // Without tokens there is no average. Only the counts of a model can have no tokens and yet score rows.
        let average = if average > 0.0 { average } else { 1.0 };
        let norms: [f32; 256] = std::array::from_fn(|byte| {
            K1 * (1.0 - B + B * byte_to_len(byte as u8) as f32 / average)
        });
        let quotient = |tf: usize| norms.map(|norm| quotient(tf as f32, norm));
        let quotients = Box::new(std::array::from_fn(|at| quotient(at + 1)));
        let weight = |&df: &u64| idf(df, counts.rows) * (1.0 + K1);
        Self {
            weights: counts.df.iter().map(weight).collect(),
            norms,
            quotients,
        }
    }

    /// Returns what a term adds to the score of a row that has it `tf` times.
    #[inline]
    fn gain(&self, weight: f32, tf: u32, len: u8) -> f32 {
        let len = usize::from(len);
        let quotient = match self.quotients.get((tf as usize).wrapping_sub(1)) {
            Some(looked_up) => looked_up[len],
            None => quotient(tf as f32, self.norms[len]),
        };
        weight * quotient
    }

    /// Offers every row that has a term, and whose bit in `mask` is set, to `top`. Rows ascend.
    ///
    /// Requires: terms are in order; `lens` has one byte per row.
    pub(super) fn collect<P: Postings>(
        &self,
        mut terms: Vec<Term<P>>,
        lens: &[u8],
        mask: Option<&[u64]>,
        top: &mut TopK,
    ) {
        let mut sums = [0_f32; WINDOW];
        // A bit is set if one of 64 rows has a sum.
        let mut touched = [false; WINDOW / 64];
        loop {
            terms.retain_mut(|term| !term.left().is_empty());
            let Some(first) = terms.iter().map(|term| term.left_rows()[0]).min() else {
                return;
            };
            let base = first as usize / 64 * 64;
            for term in &mut terms {
                let weight = self.weights[term.number];
                term.take_until(base + WINDOW, |row, tf| {
                    let at = row as usize - base;
                    sums[at] += self.gain(weight, tf, lens[row as usize]);
                    touched[at / 64] = true;
                });
            }
            for (group, touched) in touched.iter_mut().enumerate().filter(|(_, t)| **t) {
                let sums = &mut sums[group * 64..][..64];
                let first = base + group * 64;
                let mask = mask.map_or(u64::MAX, |mask| mask[first / 64]);
                offer(sums, mask, first, top);
                sums.fill(0.0);
                *touched = false;
            }
        }
    }

    /// Computes the scores of ascending rows: 0 for a row without any term.
    ///
    /// Requires: as for [`collect`](Self::collect).
    pub(super) fn score<P: Postings>(
        &self,
        terms: Vec<Term<P>>,
        lens: &[u8],
        rows: &[u32],
        scores: &mut [f32],
    ) {
        scores.fill(0.0);
        for mut term in terms {
            let weight = self.weights[term.number];
            for (&row, score) in rows.iter().zip(&mut *scores) {
                match term.seek(row) {
                    Some(found) if found == row => {
                        let tf = term.postings.counts()[term.at];
                        *score += self.gain(weight, tf, lens[row as usize]);
                    }
                    Some(_) => {}
                    None => break,
                }
            }
        }
    }
}

/// Offers those of 64 rows to `top` that have a sum and whose bit is set.
fn offer(sums: &[f32], mask: u64, first: usize, top: &mut TopK) {
    // Sums are not negative, so they compare as integers do.
    let best = sums
        .iter()
        .fold(0, |best, sum| best.max(sum.to_bits() as i32));
    let best = f32::from_bits(best as u32);
    if best <= 0.0 || best < top.cutoff() {
        return;
    }
    for (at, &sum) in sums.iter().enumerate() {
        if sum > 0.0 && sum >= top.cutoff() && mask >> at & 1 == 1 {
            top.push(sum, (first + at) as u32);
        }
    }
}

fn quotient(tf: f32, norm: f32) -> f32 {
    tf / (tf + norm)
}

/// Returns the weight of a term by its rarity: above 0 for a term that all rows have, highest for one that no row has.
/// In a damaged model, `df` may be larger than `rows`.
fn idf(df: u64, rows: u64) -> f32 {
    let df = df.min(rows);
    let odds = ((rows - df) as f64 + 0.5) / (df as f64 + 0.5);
    odds.ln_1p() as f32
}

/// The rows that have a term, ascending, in blocks, and how often each row has it.
pub(super) trait Postings {
    /// Returns the rows of this block; none at the end.
    fn rows(&self) -> &[u32];

    /// Returns how often each of them has the term.
    fn counts(&self) -> &[u32];

    /// Moves to the next block.
    fn advance(&mut self);

    /// Moves to the block of the first row that is not less than this one, and returns its position in the block. If there is none,
    /// the position is not within the block.
    fn seek(&mut self, row: u32) -> usize;
}

/// A position in the postings of a term of the query.
pub(super) struct Term<P> {
    /// The number of the term in the query.
    number: usize,
    postings: P,
    /// The position in the block.
    at: usize,
}

impl<P: Postings> Term<P> {
    pub(super) fn new(number: usize, postings: P) -> Self {
        Self {
            number,
            postings,
            at: 0,
        }
    }

    /// Returns the rows that are left in this block, or those of the next one if none are left.
    fn left(&mut self) -> &[u32] {
        if self.at >= self.postings.rows().len() {
            self.postings.advance();
            self.at = 0;
        }
        self.left_rows()
    }

    fn left_rows(&self) -> &[u32] {
        &self.postings.rows()[self.at..]
    }

    /// Calls `each` with the rows before `end`.
    #[inline]
    fn take_until(&mut self, end: usize, mut each: impl FnMut(u32, u32)) {
        loop {
            let rows = self.left();
            let taken = match rows {
                [] => return,
                [first, ..] if *first as usize >= end => return,
                [.., last] if (*last as usize) < end => rows.len(),
                // At least one, so that this ends even if rows do not ascend.
                _ => rows.partition_point(|&row| (row as usize) < end).max(1),
            };
            let range = self.at..self.at + taken;
            let rows = &self.postings.rows()[range.clone()];
            for (&row, &tf) in rows.iter().zip(&self.postings.counts()[range]) {
                each(row, tf);
            }
            self.at += taken;
            if self.at < self.postings.rows().len() {
                return;
            }
        }
    }

    /// Moves to the first row that is not less than this one, and returns it.
    fn seek(&mut self, row: u32) -> Option<u32> {
        self.at = self.postings.seek(row);
        self.postings.rows().get(self.at).copied()
    }

    /// Returns how many of some ascending rows have the term.
    pub(super) fn among(mut self, rows: &[u32]) -> u64 {
        let mut found = 0;
        for &row in rows {
            match self.seek(row) {
                Some(at) => found += u64::from(at == row),
                None => break,
            }
        }
        found
    }

    /// Returns how many of the rows whose bits are set have the term.
    pub(super) fn within(mut self, bits: &[u64]) -> u64 {
        let mut found = 0;
        loop {
            let rows = self.left();
            if rows.is_empty() {
                return found;
            }
            let set = |&row: &u32| bits[row as usize / 64] >> (row % 64) & 1;
            found += rows.iter().map(set).sum::<u64>();
            self.at = self.postings.rows().len();
        }
    }
}
