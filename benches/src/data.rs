//! Seeded vectors, and codes as a source to scan.

use mopqdb::quantizer::{CodeShape, LookupTable};
use mopqdb::testing::scan::{BlockSource, Found};
use std::ops::Range;

/// An endless stream of vectors, the same for the same seed.
pub struct Stream {
    state: u64,
    dim: usize,
    /// The cluster centres: (clusters, dim). Empty for isotropic vectors.
    centres: Vec<f32>,
    /// Reflections (any number, dim) and the spread of each axis before them; `None` leaves vectors as they are drawn.
    shape: Option<(Vec<f32>, Vec<f32>)>,
}

impl Stream {
    /// Creates vectors that are normal in every direction: the hardest data for any bound.
    pub fn isotropic(seed: u64, dim: usize) -> Self {
        Self {
            state: seed,
            dim,
            centres: Vec::new(),
            shape: None,
        }
    }

    /// Creates vectors in two thousand normal clusters with a spread of 0.4.
    pub fn clustered(seed: u64, dim: usize) -> Self {
        let mut stream = Self::isotropic(1, dim);
        let centres = stream.take(2000);
        Self {
            state: seed,
            dim,
            centres,
            shape: None,
        }
    }

    /// Creates clustered vectors like embeddings of texts: axes have decreasing variance, no axis is a coordinate, and
    /// all rows have length 1.
    pub fn embedding_like(seed: u64, dim: usize) -> Self {
        let mut stream = Self::clustered(seed, dim);
        let mut reflections = Self::isotropic(2, dim).take(4);
        reflections.chunks_exact_mut(dim).for_each(normalise);
        let spread = (0..dim)
            .map(|d| (1.0 + d as f32 / 4.0).powf(-0.7))
            .collect();
        stream.shape = Some((reflections, spread));
        stream
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns an approximately normal number: a sum of eight uniform ones.
    fn normal(&mut self) -> f32 {
        let sum: u64 = (0..2)
            .map(|_| self.next())
            .map(|x| (x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48))
            .sum();
        (sum as f32 / 65_536.0 - 4.0) * 1.2247
    }

    /// Returns the next `rows` vectors, (rows, dim).
    pub fn take(&mut self, rows: usize) -> Vec<f32> {
        let clusters = self.centres.len() / self.dim;
        let mut out = Vec::with_capacity(rows * self.dim);
        for _ in 0..rows {
            let cluster = if clusters == 0 {
                0
            } else {
                self.next() as usize % clusters
            };
            for d in 0..self.dim {
                let noise = self.normal();
                out.push(match clusters {
                    0 => noise,
                    _ => self.centres[cluster * self.dim + d] + 0.4 * noise,
                });
            }
            if let Some((reflections, spread)) = &self.shape {
                let start = out.len() - self.dim;
                bend(&mut out[start..], reflections, spread);
            }
        }
        out
    }
}

/// Scales each axis, rotates all of them, and makes the length 1.
fn bend(row: &mut [f32], reflections: &[f32], spread: &[f32]) {
    for (x, spread) in row.iter_mut().zip(spread) {
        *x *= spread;
    }
    for mirror in reflections.chunks_exact(row.len()) {
        let along: f32 = row.iter().zip(mirror).map(|(x, m)| x * m).sum();
        for (x, m) in row.iter_mut().zip(mirror) {
            *x -= 2.0 * along * m;
        }
    }
    normalise(row);
}

fn normalise(row: &mut [f32]) {
    let length = row.iter().map(|x| x * x).sum::<f32>().sqrt();
    row.iter_mut().for_each(|x| *x /= length);
}

/// Packed codes in memory, aligned to a cache line, as they are in a segment's file.
pub struct Blocks {
    shape: CodeShape,
    rows: usize,
    bytes: Vec<u8>,
    first: usize,
}

const LINE: usize = 64;

impl Blocks {
    /// Packs codes of shape (rows, subspaces).
    pub fn new(shape: CodeShape, codes: &[u8]) -> Self {
        let rows = codes.len() / shape.subspaces();
        let mut bytes: Vec<u8> =
            Vec::with_capacity(LINE + shape.blocks(rows) * shape.block_bytes());
        let first = bytes.as_ptr().align_offset(LINE);
        bytes.resize(first, 0);
        shape.pack(codes, &mut bytes);
        assert_eq!(
            bytes.as_ptr().align_offset(LINE),
            first,
            "the codes have moved in memory"
        );
        Self {
            shape,
            rows,
            bytes,
            first,
        }
    }

    /// Returns all bytes as they are scanned.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.first..]
    }
}

impl BlockSource for Blocks {
    fn rows(&self) -> usize {
        self.rows
    }

    fn blocks(&self, blocks: Range<usize>) -> mopqdb::Result<&[u8]> {
        let size = self.shape.block_bytes();
        Ok(&self.bytes()[blocks.start * size..blocks.end * size])
    }

    fn live(&self) -> Option<&[u64]> {
        None
    }
}

/// Returns the k best by a plain f32 sum of every row and a sort.
pub fn plain_top(table: &LookupTable, codes: &[u8], k: usize) -> Vec<(f32, u32)> {
    let mut all: Vec<(f32, u32)> = codes
        .chunks_exact(table.shape().subspaces())
        .enumerate()
        .map(|(row, code)| (table.score(code), row as u32))
        .collect();
    let best_first = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    if k < all.len() {
        all.select_nth_unstable_by(k, best_first);
        all.truncate(k);
    }
    all.sort_unstable_by(best_first);
    all
}

/// Stops the bench if an answer differs from the plain one.
pub fn check(found: &[Found], expected: &[(f32, u32)]) {
    let found: Vec<(f32, u32)> = found
        .iter()
        .take(expected.len())
        .map(|f| (f.score, f.row))
        .collect();
    assert_eq!(
        found, expected,
        "the scan's answer differs from a plain sum"
    );
}
