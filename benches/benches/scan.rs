//! Scans of codes and of full-precision vectors, on every kernel. The answer is compared with a plain sum before the
//! clock starts.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mopqdb::Metric;
use mopqdb::StoredRef;
use mopqdb::quantizer::{TrainPq, train_pq};
use mopqdb::testing::kernel::Kernel;
use mopqdb::testing::scan::{Scanner, VectorSource};
use mopqdb_benches::data::{Blocks, Stream, check, plain_top};
use std::ops::Range;

const DIM: usize = 128;
const ROWS: usize = 200_000;

fn codes(c: &mut Criterion) {
    for (name, mut stream) in [
        ("isotropic", Stream::isotropic(2, DIM)),
        ("clustered", Stream::clustered(2, DIM)),
    ] {
        for (subspaces, codewords) in [(8, 256), (16, 256), (16, 16)] {
            let options = TrainPq::default()
                .subspaces(subspaces)
                .codewords(codewords)
                .iterations(8);
            let quantizer = train_pq(&stream.take(10_000), DIM, Metric::Ip, &options)
                .expect("trains")
                .quantizer;
            let mut codes = vec![0; ROWS * subspaces];
            for codes in codes.chunks_mut(10_000 * subspaces) {
                quantizer
                    .quantize(&stream.take(10_000), codes)
                    .expect("finite");
            }
            let blocks = Blocks::new(quantizer.shape(), &codes);
            let table = quantizer.table(&stream.take(1)).expect("finite");
            let mut group = c.benchmark_group(format!("scan {subspaces}x{codewords} {name}"));
            group
                .throughput(Throughput::Elements(ROWS as u64))
                .sample_size(20);
            for kernel in Kernel::available() {
                let scanner = Scanner::with_kernel(kernel, 1);
                for k in [10, 1000] {
                    let scan = || {
                        scanner
                            .scan(&[&blocks], std::slice::from_ref(&table), k)
                            .expect("a scan in memory does not fail")
                    };
                    check(&scan()[0], &plain_top(&table, &codes, k));
                    group.bench_function(BenchmarkId::new(kernel.name(), k), |b| b.iter(scan));
                }
            }
        }
    }
}

struct Rows(Vec<f32>);

impl VectorSource for Rows {
    fn rows(&self) -> usize {
        self.0.len() / DIM
    }
    fn dim(&self) -> usize {
        DIM
    }
    fn live(&self) -> Option<&[u64]> {
        None
    }
    fn rows_at(&self, rows: Range<usize>) -> mopqdb::Result<StoredRef<'_>> {
        Ok(StoredRef::F32(&self.0[rows.start * DIM..rows.end * DIM]))
    }
}

fn vectors(c: &mut Criterion) {
    let mut stream = Stream::isotropic(3, DIM);
    let (rows, query) = (Rows(stream.take(50_000)), stream.take(1));
    let plain = Scanner::with_kernel(
        Kernel::named("scalar").expect("there is always a scalar kernel"),
        1,
    );
    let expected = plain
        .scan_exact(&[&rows], &query, Metric::Ip, 10)
        .expect("finite");
    let mut group = c.benchmark_group("exact scan of vectors");
    group
        .throughput(Throughput::Elements(50_000))
        .sample_size(20);
    for kernel in Kernel::available() {
        let scanner = Scanner::with_kernel(kernel, 1);
        let scan = || {
            scanner
                .scan_exact(&[&rows], &query, Metric::Ip, 10)
                .expect("finite")
        };
        assert_eq!(scan(), expected);
        group.bench_function(kernel.name(), |b| b.iter(scan));
    }
}

criterion_group!(benches, codes, vectors);
criterion_main!(benches);
