//! Every kernel of this CPU compared with plain arithmetic, on shapes, values and deletions that the bytes choose.

use mopqdb::Metric;
use mopqdb::StoredRef;
use mopqdb::quantizer::{CodeShape, Codebook, LookupTable, Quantizer};
use mopqdb::testing::kernel::Kernel;
use mopqdb::testing::scan::{BlockSource, Found, Scanner, VectorSource};
use std::ops::Range;

/// Bytes as a source of choices; zeros after their end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn below(&mut self, n: usize) -> usize {
        (usize::from(self.byte()) << 8 | usize::from(self.byte())) % n
    }

    /// Returns a small number that often ties, any finite or infinite number, or NaN.
    fn value(&mut self) -> f32 {
        match self.byte() {
            kind @ 0..224 => (f32::from(kind) - 112.0) / 8.0,
            224..240 => f32::from_bits(u32::from_le_bytes([
                self.byte(),
                self.byte(),
                self.byte(),
                self.byte(),
            ])),
            kind => [0.0, -0.0, 1e-40, 3e38, -3e38, f32::INFINITY, f32::NAN, 1e19]
                [usize::from(kind) % 8],
        }
    }

    fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.value()).collect()
    }

    /// Returns a mask of live rows, or `None` for all.
    fn live(&mut self, rows: usize) -> Option<Vec<u64>> {
        (self.byte() % 2 == 1).then(|| {
            let word =
                |choices: &mut Self| (0..8).fold(0, |w, _| w << 8 | u64::from(choices.byte()));
            (0..rows.div_ceil(64)).map(|_| word(self)).collect()
        })
    }
}

struct Rows<'a> {
    rows: usize,
    dim: usize,
    live: Option<&'a [u64]>,
    blocks: &'a [u8],
    block_bytes: usize,
    values: &'a [f32],
}

impl BlockSource for Rows<'_> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn blocks(&self, blocks: Range<usize>) -> mopqdb::Result<&[u8]> {
        Ok(&self.blocks[blocks.start * self.block_bytes..blocks.end * self.block_bytes])
    }

    fn live(&self) -> Option<&[u64]> {
        self.live
    }
}

impl VectorSource for Rows<'_> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn live(&self) -> Option<&[u64]> {
        self.live
    }

    fn rows_at(&self, rows: Range<usize>) -> mopqdb::Result<StoredRef<'_>> {
        let values = &self.values[rows.start * self.dim..rows.end * self.dim];
        Ok(StoredRef::F32(values))
    }
}

fn scanners() -> Vec<Scanner> {
    let kernels = Kernel::available();
    kernels
        .into_iter()
        .map(|kernel| Scanner::with_kernel(kernel, 1))
        .collect()
}

/// Returns the score's bits and the row of each result.
fn bits(found: &[Vec<Found>]) -> Vec<Vec<(u32, u32)>> {
    let one = |found: &Vec<Found>| found.iter().map(|f| (f.score.to_bits(), f.row)).collect();
    found.iter().map(one).collect()
}

fn is_live(live: Option<&[u64]>, row: usize) -> bool {
    live.is_none_or(|words| words[row / 64] >> (row % 64) & 1 == 1)
}

/// Codes, tables and full-precision vectors.
pub fn kernels(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    match choices.byte() % 3 {
        0 => codes(&mut choices),
        1 => vectors(&mut choices),
        _ => quantizers(&mut choices),
    }
}

/// The scan over codes equals a plain sum and a sort, bit for bit, on every kernel, over one source or several. A few
/// bytes generate many rows: each is a copy of an earlier one with some codes changed, so that scores tie. Rows may be
/// in the order of their scores, so that samples mislead the scan.
fn codes(choices: &mut Choices<'_>) {
    let shape = CodeShape::new(1 + choices.below(24), 2 + choices.below(255)).unwrap();
    let (subspaces, codewords) = (shape.subspaces(), shape.codewords());
    let (k, threads) = (1 + choices.below(600), 1 + choices.below(2));
    let sizes: Vec<usize> = (0..1 + choices.below(3))
        .map(|_| choices.below(2500))
        .collect();
    // Chosen before the table, which may use up all bytes.
    let (mut state, order) = (1 + choices.below(65_535) as u64, choices.byte() % 3);
    let tame = !choices.byte().is_multiple_of(4);
    let mut given = choices.values(subspaces * codewords);
    if tame {
        let wild = |x: &&mut f32| !x.is_finite() || x.abs() > 1e30;
        given.iter_mut().filter(wild).for_each(|x| *x = 0.5);
    }
    // A query that is not finite is refused when its table is made.
    let Ok(table) = LookupTable::new(shape, &given) else {
        assert!(!tame, "all entries are finite and small");
        return;
    };
    let mut below = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize % n
    };
    let mut all: Vec<Vec<u8>> = vec![vec![0; subspaces]];
    for row in 1..sizes.iter().sum::<usize>() {
        let mut own = all[below(row)].clone();
        for _ in 0..below(4) {
            own[below(subspaces)] = below(codewords) as u8;
        }
        all.push(own);
    }
    if order > 0 {
        all.sort_by(|a, b| table.score(a).total_cmp(&table.score(b)));
    }
    if order > 1 {
        all.reverse();
    }
    let codes = all[..sizes.iter().sum()].concat();
    let mut expected: Vec<(f32, u32, u32)> = Vec::new();
    let (mut parts, mut rest) = (Vec::new(), &codes[..]);
    for (source, &rows) in sizes.iter().enumerate() {
        let (own, others) = rest.split_at(rows * subspaces);
        let live = choices.live(rows);
        let living = (own.chunks_exact(subspaces).enumerate())
            .filter(|(row, _)| is_live(live.as_deref(), *row));
        expected.extend(living.map(|(row, code)| (table.score(code), source as u32, row as u32)));
        let mut blocks = Vec::new();
        shape.pack(own, &mut blocks);
        parts.push((rows, live, blocks));
        rest = others;
    }
    let sources: Vec<Rows<'_>> = (parts.iter())
        .map(|(rows, live, blocks)| Rows {
            rows: *rows,
            dim: 0,
            live: live.as_deref(),
            blocks,
            block_bytes: shape.block_bytes(),
            values: &[],
        })
        .collect();
    let sources: Vec<&dyn BlockSource> = sources.iter().map(|rows| rows as _).collect();
    let best_first = |a: &(f32, u32, u32), b: &(f32, u32, u32)| {
        b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2)))
    };
    expected.sort_by(best_first);
    // All rows that tie with the k-th best are candidates, up to k per source. These are the first k of them.
    expected.truncate(k);
    for kernel in Kernel::available() {
        let scanner = Scanner::with_kernel(kernel, threads);
        let found = scanner
            .scan(&sources, std::slice::from_ref(&table), k)
            .unwrap();
        let mut found: Vec<_> = (found[0].iter())
            .map(|f| (f.score, f.source, f.row))
            .collect();
        found.sort_by(best_first);
        found.truncate(k);
        assert_eq!(found, expected, "{kernel:?} {shape:?} k {k} {sizes:?}");
    }
}

/// The exact scan gives the same bits on every kernel, and refuses a query that is not finite.
fn vectors(choices: &mut Choices<'_>) {
    let dim = 1 + choices.below(70);
    let (rows, k) = (choices.below(150), 1 + choices.below(40));
    let metric = [Metric::Ip, Metric::L2, Metric::Cosine][choices.below(3)];
    let live = choices.live(rows);
    let query = choices.values(dim);
    // Stored vectors were checked when they were inserted.
    let values: Vec<f32> = (choices.values(rows * dim).into_iter())
        .map(|x| if x.is_finite() { x } else { 1.0 })
        .collect();
    let source = Rows {
        rows,
        dim,
        live: live.as_deref(),
        blocks: &[],
        block_bytes: 0,
        values: &values,
    };
    // The values that a database accepts for a row or a query.
    let is_small = |x: &[f32]| x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() <= 1e37;
    let small = is_small(&query) && values.chunks_exact(dim).all(is_small);
    let mut answers = scanners().into_iter().map(|scanner| {
        let found = scanner.scan_exact(&[&source], &query, metric, k);
        let finite = query.iter().all(|x| x.is_finite());
        assert!(finite || found.is_err(), "a query that is not finite");
        assert!(
            !small || found.is_ok(),
            "scores of small vectors are finite"
        );
        (scanner.kernel(), found.ok().map(|found| bits(&found)))
    });
    let (_, first) = answers.next().expect("there is always a scalar kernel");
    let alive = (0..rows)
        .filter(|&row| is_live(live.as_deref(), row))
        .count();
    if let Some(first) = &first {
        assert_eq!(first[0].len(), alive.min(k));
    }
    for (kernel, other) in answers {
        assert_eq!(first, other, "{kernel:?} dim {dim} {metric} k {k}");
    }
}

/// Codes and tables are the same on every kernel, or all kernels refuse them.
fn quantizers(choices: &mut Choices<'_>) {
    let shape = CodeShape::new(1 + choices.below(6), 2 + choices.below(40)).unwrap();
    let sub_dim = 1 + choices.below(9);
    let dim = shape.subspaces() * sub_dim;
    let metric = [Metric::Ip, Metric::L2][choices.below(2)];
    let values = choices.values(dim * shape.codewords());
    let Ok(codebook) = Codebook::new(shape, sub_dim, values) else {
        return;
    };
    let rows = 1 + choices.below(5);
    let vectors = choices.values(dim * rows);
    let mut first = None;
    for kernel in Kernel::available() {
        let built = Quantizer::builder(codebook.clone(), metric)
            .kernel(kernel)
            .build();
        let answer = built.ok().map(|quantizer| {
            let mut codes = vec![0; vectors.len() / sub_dim];
            let coded = quantizer.quantize(&vectors, &mut codes).is_ok();
            if coded {
                assert!(
                    codes
                        .iter()
                        .all(|&code| usize::from(code) < shape.codewords())
                );
            }
            let table = quantizer.table(&vectors[..dim]).ok();
            let scores = table.map(|table| {
                codes
                    .chunks_exact(shape.subspaces())
                    .map(|row| table.score(row).to_bits())
                    .collect::<Vec<_>>()
            });
            (coded.then_some(codes), scores.filter(|_| coded))
        });
        let first = first.get_or_insert_with(|| answer.clone());
        assert_eq!(*first, answer, "{kernel:?} {shape:?} x {sub_dim} {metric}");
    }
}
