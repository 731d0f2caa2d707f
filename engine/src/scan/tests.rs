//! The scan against a plain f32 sum and a sort, on every kernel that this CPU has.

use super::*;
use crate::error::Result;
use crate::kernel::Kernel;
use crate::kernel::random::Random;
use crate::metric::Metric;
use crate::quantizer::{CellOrder, CellStarts, CodeShape, LookupTable, RowCodes};
use crate::stored::StoredRef;
use std::ops::Range;

struct Blocks {
    shape: CodeShape,
    rows: usize,
    bytes: Vec<u8>,
    live: Option<Vec<u64>>,
}

impl Blocks {
    fn new(shape: CodeShape, codes: &[u8], live: Option<Vec<u64>>) -> Self {
        let mut bytes = Vec::new();
        shape.pack(codes, &mut bytes);
        Self {
            shape,
            rows: codes.len() / shape.subspaces(),
            bytes,
            live,
        }
    }
}

impl BlockSource for Blocks {
    fn rows(&self) -> usize {
        self.rows
    }

    fn blocks(&self, blocks: Range<usize>) -> Result<&[u8]> {
        let size = self.shape.block_bytes();
        Ok(&self.bytes[blocks.start * size..blocks.end * size])
    }

    fn live(&self) -> Option<&[u64]> {
        self.live.as_deref()
    }
}

fn is_live(live: Option<&[u64]>, row: usize) -> bool {
    live.is_none_or(|words| words[row / 64] >> (row % 64) & 1 == 1)
}

/// The k best, then everything that ties with the k-th, up to k per source, from all scores.
fn expected(mut all: Vec<Found>, k: usize) -> Vec<Found> {
    all.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then(a.source.cmp(&b.source))
            .then(a.row.cmp(&b.row))
    });
    if all.len() > k {
        let kth = all[k - 1].score;
        let mut taken = std::collections::HashMap::new();
        all.retain(|f| {
            let taken = taken.entry(f.source).or_insert(0);
            *taken += 1;
            f.score >= kth && *taken <= k
        });
    }
    all
}

fn plain(sources: &[Blocks], codes: &[Vec<u8>], table: &LookupTable, k: usize) -> Vec<Found> {
    let subspaces = table.shape().subspaces();
    let mut all = Vec::new();
    for (source, (blocks, codes)) in sources.iter().zip(codes).enumerate() {
        for (row, code) in codes.chunks_exact(subspaces).enumerate() {
            if is_live(blocks.live(), row) {
                all.push(Found {
                    score: table.score(code),
                    source: source as u32,
                    row: row as u32,
                });
            }
        }
    }
    expected(all, k)
}

fn same(found: &[Found], expected: &[Found]) -> bool {
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(a, b)| {
            a.score.to_bits() == b.score.to_bits() && (a.source, a.row) == (b.source, b.row)
        })
}

fn scanners() -> Vec<Scanner> {
    println!("not available on this CPU: {:?}", Kernel::unavailable());
    Kernel::available()
        .into_iter()
        .flat_map(|kernel| {
            // However little there is to do; threads share codes, or queries.
            [(1, 0), (3, usize::MAX), (3, 0)].map(|(threads, own_queries)| Scanner {
                share: 1.0,
                own_queries,
                ..Scanner::with_kernel(kernel, threads)
            })
        })
        .collect()
}

/// One set of codes split into sources in several ways, with several tables and k: all kernels, all threads.
fn check(
    scanners: &[Scanner],
    name: &str,
    shape: CodeShape,
    tables: &[LookupTable],
    codes: &[u8],
    seed: u64,
) {
    let mut random = Random::new(seed);
    let rows = codes.len() / shape.subspaces();
    for split in [1, 3] {
        let mut parts = Vec::new();
        let mut start = 0;
        for part in 0..split {
            let end = if part + 1 == split {
                rows
            } else {
                start + random.below(rows - start + 1)
            };
            parts.push(codes[start * shape.subspaces()..end * shape.subspaces()].to_vec());
            start = end;
        }
        for alive in [100, 60, 3] {
            let sources: Vec<_> = parts
                .iter()
                .map(|codes| {
                    let words = (codes.len() / shape.subspaces()).div_ceil(64);
                    let live = (alive < 100).then(|| {
                        (0..words)
                            .map(|_| {
                                (0..64).fold(0, |w, bit| {
                                    w | u64::from(random.below(100) < alive) << bit
                                })
                            })
                            .collect()
                    });
                    Blocks::new(shape, codes, live)
                })
                .collect();
            let borrowed: Vec<&dyn BlockSource> = sources.iter().map(|s| s as _).collect();
            for k in [1, 10, 100, rows + 7] {
                let expected: Vec<_> = tables
                    .iter()
                    .map(|t| plain(&sources, &parts, t, k))
                    .collect();
                for scanner in scanners {
                    let found = scanner.scan(&borrowed, tables, k).unwrap();
                    assert_eq!(found.len(), tables.len());
                    for (query, (found, expected)) in found.iter().zip(&expected).enumerate() {
                        assert!(
                            same(found, expected),
                            "{name} {shape:?} seed {seed} {:?} x{} query {query} k {k} split {split} alive {alive}%",
                            scanner.kernel(),
                            scanner.threads()
                        );
                    }
                }
            }
        }
    }
}

fn random_codes(random: &mut Random, shape: CodeShape, rows: usize) -> Vec<u8> {
    (0..rows * shape.subspaces())
        .map(|_| random.below(shape.codewords()) as u8)
        .collect()
}

#[test]
fn every_kernel_thread_count_and_split_finds_what_a_plain_sum_finds() {
    let scanners = scanners();
    for (i, (subspaces, codewords)) in [
        (1, 2),
        (1, 256),
        (2, 16),
        (3, 16),
        (4, 256),
        (8, 256),
        (8, 128),
        (16, 256),
        (16, 16),
        (31, 9),
        (32, 256),
        (7, 100),
        (256, 256),
        (255, 16),
    ]
    .into_iter()
    .enumerate()
    {
        let seed = 100 + i as u64;
        let mut random = Random::new(seed);
        let shape = CodeShape::new(subspaces, codewords).unwrap();
        let rows = if subspaces > 64 { 700 } else { 5000 };
        let codes = random_codes(&mut random, shape, rows);
        let tables: Vec<_> = (0..3)
            .map(|_| LookupTable::new(shape, &random.normals(subspaces * codewords)).unwrap())
            .collect();
        check(&scanners, "random", shape, &tables, &codes, seed);
    }
}

#[test]
fn hostile_tables_and_codes_are_answered_exactly() {
    let scanners = scanners();
    for (i, (subspaces, codewords)) in [(8, 256), (5, 16), (16, 200)].into_iter().enumerate() {
        let seed = 200 + i as u64;
        let mut random = Random::new(seed);
        let shape = CodeShape::new(subspaces, codewords).unwrap();
        let size = subspaces * codewords;
        let codes = random_codes(&mut random, shape, 3000);
        let mut tables: Vec<(&str, Vec<f32>)> = Vec::new();
        tables.push(("constant", vec![0.7; size]));
        tables.push(("zero", vec![0.0; size]));
        tables.push(("negative zero", vec![-0.0; size]));
        tables.push((
            "huge",
            random.normals(size).iter().map(|x| x * 1e36).collect(),
        ));
        tables.push((
            "tiny",
            random.normals(size).iter().map(|x| x * 1e-38).collect(),
        ));
        tables.push((
            "denormal",
            random.normals(size).iter().map(|x| x * 1e-44).collect(),
        ));
        tables.push((
            "far from zero",
            random
                .normals(size)
                .iter()
                .map(|x| 1e7 + x * 1e-1)
                .collect(),
        ));
        tables.push((
            "alternating far",
            (0..size)
                .map(|i| if i / codewords % 2 == 0 { 3e7 } else { -3e7 } + random.normal())
                .collect(),
        ));
        let mut dominant = random.normals(size);
        dominant[..codewords].iter_mut().for_each(|x| *x *= 1e6);
        tables.push(("one dominant subspace", dominant));
        let mut spike = vec![0.0; size];
        spike[size - 1] = 1e30;
        tables.push(("one spike", spike));
        tables.push((
            "few values",
            (0..size).map(|_| random.below(3) as f32).collect(),
        ));
        tables.push((
            "mixed scales",
            (0..size)
                .map(|_| random.normal() * 10f32.powi(random.below(60) as i32 - 30))
                .collect(),
        ));
        for (name, entries) in &tables {
            let table = LookupTable::new(shape, entries).unwrap();
            check(
                &scanners,
                name,
                shape,
                std::slice::from_ref(&table),
                &codes,
                seed,
            );
        }
        let normal = LookupTable::new(shape, &random.normals(size)).unwrap();
        let same_code: Vec<u8> = (0..3000 * subspaces)
            .map(|i| (i % subspaces % codewords) as u8)
            .collect();
        check(
            &scanners,
            "all-equal codes",
            shape,
            std::slice::from_ref(&normal),
            &same_code,
            seed,
        );
        let few: Vec<u8> = (0..3000)
            .flat_map(|row| codes[row % 5 * subspaces..][..subspaces].to_vec())
            .collect();
        check(
            &scanners,
            "five distinct rows",
            shape,
            &[normal],
            &few,
            seed,
        );
    }
}

#[test]
fn a_sample_that_misleads_is_answered_exactly() {
    let shape = CodeShape::new(2, 256).unwrap();
    let entries: Vec<f32> = (0..512).map(|i| (i % 256) as f32).collect();
    let table = LookupTable::new(shape, &entries).unwrap();
    let blocks = 2048;
    // Blocks that the seeding will look at hold the best rows, more than their share and fewer than are asked for; with
    // none, it is not misled.
    for (k, sampled, best) in [
        (10, 16, 6),
        (10, 16, 0),
        (100, 128, 40),
        (1000, 128, 500),
        (1000, 128, 0),
        (10_000, 128, 8192),
    ] {
        let mut random = Random::new(12);
        let mut codes = vec![0; 2 * 64 * blocks];
        codes.fill_with(|| random.below(100) as u8);
        for row in 0..best {
            let block = (2 * (row % sampled) + 1) * blocks / (2 * sampled);
            let at = 2 * (64 * block + row / sampled);
            codes[at..at + 2].fill(255 - random.below(100) as u8);
        }
        let parts = [codes];
        let sources = [Blocks::new(shape, &parts[0], None)];
        let expected = plain(&sources, &parts, &table, k);
        assert!(expected.len() >= k);
        for scanner in scanners() {
            let found = scanner
                .scan(&[&sources[0]], std::slice::from_ref(&table), k)
                .unwrap();
            assert!(
                same(&found[0], &expected),
                "k {k}, {best} best, {:?} x{}",
                scanner.kernel(),
                scanner.threads()
            );
        }
    }
}

/// A source that has its k rows wants better ones; the next one, which may tie, must not be held to that.
#[test]
fn ties_in_a_later_source_are_kept_after_a_first_that_was_full() {
    for (subspaces, codewords) in [(1, 17), (1, 16), (2, 256), (8, 256)] {
        let shape = CodeShape::new(subspaces, codewords).unwrap();
        for entry in [0.0, 1e-45, -1e-40, 0.7, -3e30] {
            let table = LookupTable::new(shape, &vec![entry; subspaces * codewords]).unwrap();
            // Many tiles each, so that the first source is known to be full before its end.
            let parts = [vec![1; 20_000 * subspaces], vec![2; 9_000 * subspaces]];
            let sources = parts
                .each_ref()
                .map(|codes| Blocks::new(shape, codes, None));
            let expected = plain(&sources, &parts, &table, 5);
            assert_eq!(expected.len(), 10);
            for scanner in scanners() {
                let found = scanner
                    .scan(&[&sources[0], &sources[1]], std::slice::from_ref(&table), 5)
                    .unwrap();
                assert!(
                    same(&found[0], &expected),
                    "{shape:?} {entry:e} {:?} x{}",
                    scanner.kernel(),
                    scanner.threads()
                );
            }
        }
    }
}

#[test]
fn nothing_to_scan_gives_nothing() {
    let shape = CodeShape::new(4, 256).unwrap();
    let table = LookupTable::new(shape, &[1.0; 1024]).unwrap();
    let empty = Blocks::new(shape, &[], None);
    let dead = Blocks::new(shape, &[1; 400], Some(vec![0; 2]));
    for scanner in scanners() {
        assert_eq!(
            scanner.scan(&[], std::slice::from_ref(&table), 5).unwrap(),
            [vec![]]
        );
        assert_eq!(
            scanner
                .scan(&[&empty, &dead], std::slice::from_ref(&table), 5)
                .unwrap(),
            [vec![]]
        );
        assert_eq!(
            scanner.scan(&[&dead], &[], 5).unwrap(),
            Vec::<Vec<Found>>::new()
        );
        assert_eq!(
            scanner
                .scan(&[&dead], std::slice::from_ref(&table), 0)
                .unwrap(),
            [vec![]]
        );
    }
}

#[test]
fn a_source_that_fails_fails_the_scan() {
    struct Broken;
    impl BlockSource for Broken {
        fn rows(&self) -> usize {
            1_000_000
        }
        fn blocks(&self, _: Range<usize>) -> Result<&[u8]> {
            Err(crate::Error::corrupt("x.codes", "CODES", 64, "checksum"))
        }
        fn live(&self) -> Option<&[u64]> {
            None
        }
    }
    let shape = CodeShape::new(4, 256).unwrap();
    let table = LookupTable::new(shape, &[1.0; 1024]).unwrap();
    for scanner in scanners() {
        let error = scanner
            .scan(&[&Broken], std::slice::from_ref(&table), 5)
            .unwrap_err();
        assert!(matches!(error, crate::Error::Corrupt(_)));
    }
}

struct Rows<'a> {
    dim: usize,
    vectors: StoredRef<'a>,
    live: Option<Vec<u64>>,
}

impl VectorSource for Rows<'_> {
    fn rows(&self) -> usize {
        self.vectors.len() / self.dim
    }
    fn dim(&self) -> usize {
        self.dim
    }
    fn live(&self) -> Option<&[u64]> {
        self.live.as_deref()
    }
    fn rows_at(&self, rows: Range<usize>) -> Result<StoredRef<'_>> {
        Ok(self.vectors.rows(rows, self.dim))
    }
}

/// As the design says: 16 interleaved fused sums, halves added until one is left.
fn plain_similarity(metric: Metric, query: &[f32], row: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    for (d, (q, v)) in query.iter().zip(row).enumerate() {
        sums[d % 16] = match metric {
            Metric::L2 => (q - v).mul_add(q - v, sums[d % 16]),
            _ => q.mul_add(*v, sums[d % 16]),
        };
    }
    let eight: Vec<f32> = (0..8).map(|l| sums[l] + sums[l + 8]).collect();
    let four: Vec<f32> = (0..4).map(|l| eight[l] + eight[l + 4]).collect();
    let sum = (four[0] + four[2]) + (four[1] + four[3]);
    if metric == Metric::L2 {
        0.0 - sum
    } else {
        0.0 + sum
    }
}

#[test]
fn an_exact_scan_equals_plain_sums_for_every_width_and_dimension() {
    let scanners = scanners();
    for (i, dim) in [1, 3, 16, 17, 96, 128, 384].into_iter().enumerate() {
        let seed = 300 + i as u64;
        let mut random = Random::new(seed);
        let halves: Vec<half::f16> = random
            .normals(1500 * dim)
            .into_iter()
            .map(half::f16::from_f32)
            .collect();
        let widened: Vec<f32> = halves.iter().map(|h| h.to_f32()).collect();
        let floats = random.normals(700 * dim);
        let live = Some((0..11).map(|_| random.next()).collect());
        let sources = [
            Rows {
                dim,
                vectors: StoredRef::F16(&halves),
                live: None,
            },
            Rows {
                dim,
                vectors: StoredRef::F32(&floats),
                live,
            },
        ];
        let queries = random.normals(3 * dim);
        for metric in [Metric::Ip, Metric::L2, Metric::Cosine] {
            for k in [1, 50, 5000] {
                for scanner in &scanners {
                    let found = scanner
                        .scan_exact(&[&sources[0], &sources[1]], &queries, metric, k)
                        .unwrap();
                    for (query, found) in queries.chunks_exact(dim).zip(found) {
                        let mut all = Vec::new();
                        for (source, values) in [&widened, &floats].into_iter().enumerate() {
                            for (row, vector) in values.chunks_exact(dim).enumerate() {
                                if is_live(sources[source].live(), row) {
                                    all.push(Found {
                                        score: plain_similarity(metric, query, vector),
                                        source: source as u32,
                                        row: row as u32,
                                    });
                                }
                            }
                        }
                        assert!(
                            same(&found, &expected(all, k)),
                            "seed {seed} dim {dim} {metric} k {k} {:?}",
                            scanner.kernel()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn an_exact_scan_refuses_what_is_not_finite() {
    let values = [1.0, 2.0, 3e38, 3e38];
    let rows = Rows {
        dim: 2,
        vectors: StoredRef::F32(&values),
        live: None,
    };
    let scanner = Scanner::new(1).unwrap();
    assert!(
        scanner
            .scan_exact(&[&rows], &[f32::NAN, 1.0], Metric::Ip, 1)
            .is_err()
    );
    assert!(
        scanner
            .scan_exact(&[&rows], &[2.0, 1.0], Metric::Ip, 1)
            .is_err(),
        "overflows"
    );
    assert!(
        scanner
            .scan_exact(&[&rows], &[2.0, 1.0, 3.0], Metric::Ip, 1)
            .is_err()
    );
    assert!(scanner.scan_exact(&[], &[2.0], Metric::Ip, 1).is_err());
}

#[test]
fn what_threads_make_of_items_comes_in_their_order_and_an_error_is_handed_on() {
    let items: Vec<usize> = (0..1001).collect();
    for threads in [1, 2, 3, 7] {
        let scanner = Scanner {
            share: 1.0,
            ..Scanner::new(threads).unwrap()
        };
        for count in [0, 1, 2, 3, 10, 1001] {
            let doubled = scanner.each(&items[..count], 1.0, |item| Ok(item * 2));
            let expected: Vec<usize> = (0..count).map(|item| item * 2).collect();
            assert_eq!(doubled.unwrap(), expected, "{threads} threads");
        }
        let error = scanner.each(&items, 1.0, |&item| match item {
            700 => Err(crate::error::Error::invalid("item 700")),
            _ => Ok(()),
        });
        assert!(error.unwrap_err().to_string().contains("item 700"));
    }
}

/// Codes that are ordered by cell, and the rows in that order.
struct InCells {
    shape: CodeShape,
    order: CellOrder,
    bytes: Vec<u8>,
    live: Option<Vec<u64>>,
}

impl CellSource for InCells {
    fn starts(&self) -> &CellStarts {
        &self.order.starts
    }

    fn blocks(&self, blocks: Range<usize>) -> Result<&[u8]> {
        let size = self.shape.block_bytes();
        Ok(&self.bytes[blocks.start * size..blocks.end * size])
    }

    fn rows_at(&self, positions: Range<usize>) -> Result<&[u32]> {
        Ok(&self.order.rows[positions])
    }

    fn live(&self) -> Option<&[u64]> {
        self.live.as_deref()
    }
}

#[test]
fn every_kernel_thread_count_and_grouping_finds_the_best_rows_of_the_cells_looked_at() {
    let scanners = scanners();
    for (seed, shape, cells, rows, scale) in [
        (300, (8, 256), 7_usize, 3000_usize, 1.0),
        (301, (5, 16), 40, 2000, 0.0),
        (302, (8, 256), 300, 1000, 1.0),
        (303, (16, 200), 1, 1500, 30.0),
        (304, (4, 256), 3, 9000, 0.1),
    ] {
        let mut random = Random::new(seed);
        let shape = CodeShape::new(shape.0, shape.1).unwrap();
        let subspaces = shape.subspaces();
        // Few different codes: ties within and across sources.
        let codes = random_codes(&mut random, shape, rows / 5);
        let tables: Vec<_> = (0..4)
            .map(|_| {
                let entries = random.normals(subspaces * shape.codewords());
                LookupTable::new(shape, &entries).unwrap()
            })
            .collect();
        let scores: Vec<Vec<f32>> = (0..4)
            .map(|_| random.normals(cells).iter().map(|x| x * scale).collect())
            .collect();
        let mut sources = Vec::new();
        let mut all_codes = Vec::new();
        let mut all_cells = Vec::new();
        for part in 0..2 {
            let rows = if part == 0 { rows } else { rows / 10 };
            let own: Vec<u8> = (0..rows)
                .flat_map(|_| {
                    let row = random.below(codes.len() / subspaces);
                    codes[row * subspaces..][..subspaces].to_vec()
                })
                .collect();
            let of_row: Vec<u32> = (0..rows).map(|_| random.below(cells) as u32).collect();
            let order = CellOrder::of(&of_row, cells as u32);
            let row_codes = RowCodes {
                codes: own.clone(),
                cells: of_row.clone(),
            };
            let mut bytes = Vec::new();
            shape.pack(&row_codes.gather(&order.rows, subspaces), &mut bytes);
            let live = (part == 0 && seed != 300).then(|| {
                (0..rows.div_ceil(64))
                    .map(|_| random.next() | random.next())
                    .collect()
            });
            sources.push(InCells {
                shape,
                order,
                bytes,
                live,
            });
            all_codes.push(own);
            all_cells.push(of_row);
        }
        let borrowed: Vec<&dyn CellSource> = sources.iter().map(|s| s as _).collect();
        for residual in [true, false] {
            for share in [100, 30] {
                // Each query looks at some cells; neighbours are looked at together now and then.
                let looked: Vec<Vec<bool>> = (0..4)
                    .map(|_| (0..cells).map(|_| random.below(100) < share).collect())
                    .collect();
                let visits: Vec<Vec<Visit>> = looked
                    .iter()
                    .map(|looked| visits(&mut random, &sources, looked))
                    .collect();
                let queries: Vec<Looked<'_>> = (0..4)
                    .map(|q| Looked {
                        table: &tables[q],
                        cells: residual.then(|| CellScores {
                            scores: &scores[q],
                            top: scores[q].iter().copied().fold(f32::MIN, f32::max),
                        }),
                        visits: &visits[q],
                    })
                    .collect();
                for k in [1, 10, 200, rows * 2] {
                    let wanted: Vec<Vec<Found>> = (0..4)
                        .map(|q| {
                            let mut all = Vec::new();
                            for (number, source) in sources.iter().enumerate() {
                                for (position, &row) in source.order.rows.iter().enumerate() {
                                    let cell = all_cells[number][row as usize] as usize;
                                    let code = &all_codes[number][row as usize * subspaces..];
                                    let first = if residual { scores[q][cell] } else { 0.0 };
                                    if looked[q][cell] && is_live(source.live(), position) {
                                        all.push(Found {
                                            score: tables[q].score_from(first, &code[..subspaces]),
                                            source: number as u32,
                                            row,
                                        });
                                    }
                                }
                            }
                            expected(all, k)
                        })
                        .collect();
                    for scanner in &scanners {
                        let alone = scanner.scan_cells(&borrowed, &queries[..1], k).unwrap();
                        let together = scanner.scan_cells(&borrowed, &queries, k).unwrap();
                        let name = format!(
                            "seed {seed} {:?} x{} residual {residual} {share}% k {k}",
                            scanner.kernel(),
                            scanner.threads()
                        );
                        assert!(same(&alone[0], &wanted[0]), "{name}");
                        for (found, wanted) in together.iter().zip(&wanted) {
                            assert!(same(found, wanted), "{name}");
                        }
                    }
                }
            }
        }
    }
}

fn visits(random: &mut Random, sources: &[InCells], looked: &[bool]) -> Vec<Visit> {
    let mut visits: Vec<Visit> = Vec::new();
    for (source, of) in sources.iter().enumerate() {
        for entry in 0..of.order.starts.len() {
            if !looked[of.order.starts.cell(entry) as usize] {
                continue;
            }
            let positions = of.order.starts.positions(entry);
            match visits.last_mut() {
                Some(last)
                    if last.source as usize == source
                        && last.entries.end as usize == entry
                        && random.below(2) == 0 =>
                {
                    last.entries.end += 1;
                    last.positions.end = positions.end;
                }
                _ => visits.push(Visit {
                    source: source as u32,
                    entries: entry as u32..entry as u32 + 1,
                    positions,
                }),
            }
        }
    }
    for at in (1..visits.len()).rev() {
        visits.swap(at, random.below(at + 1));
    }
    visits
}
