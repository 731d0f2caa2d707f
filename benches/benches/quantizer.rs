//! Encoding, tables and training, on every kernel. Codes are compared with those of the scalar kernel before the clock
//! starts.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mopqdb::Metric;
use mopqdb::quantizer::{Quantizer, TrainPq, train_opq, train_pq};
use mopqdb::testing::kernel::Kernel;
use mopqdb_benches::data::Stream;

const DIM: usize = 128;

fn options(subspaces: usize, iterations: usize) -> TrainPq {
    TrainPq::default()
        .subspaces(subspaces)
        .iterations(iterations)
        .threads(1)
}

fn encode(c: &mut Criterion) {
    let mut stream = Stream::isotropic(4, DIM);
    for subspaces in [8, 16] {
        let trained =
            train_pq(&stream.take(5_000), DIM, Metric::Ip, &options(subspaces, 3)).expect("trains");
        let rows = stream.take(2_000);
        let on = |kernel: Kernel| {
            Quantizer::builder(trained.quantizer.codebook().clone(), Metric::Ip)
                .kernel(kernel)
                .build()
                .expect("fits")
        };
        let mut expected = vec![0; 2_000 * subspaces];
        on(Kernel::named("scalar").expect("there is always a scalar kernel"))
            .quantize(&rows, &mut expected)
            .expect("finite");
        let mut group = c.benchmark_group(format!("encode {subspaces}x256"));
        group
            .throughput(Throughput::Elements(2_000))
            .sample_size(10);
        for kernel in Kernel::available()
            .into_iter()
            .filter(|k| k.name() != "portable")
        {
            let quantizer = on(kernel);
            let mut codes = vec![0; 2_000 * subspaces];
            quantizer.quantize(&rows, &mut codes).expect("finite");
            assert_eq!(codes, expected, "codes differ on {kernel:?}");
            group.bench_function(BenchmarkId::from_parameter(kernel.name()), |b| {
                b.iter(|| quantizer.quantize(&rows, &mut codes));
            });
        }
        group.finish();
        let query = stream.take(1);
        c.bench_function(&format!("table {subspaces}x256"), |b| {
            b.iter(|| trained.quantizer.table(&query))
        });
    }
}

fn train(c: &mut Criterion) {
    let rows = Stream::clustered(5, DIM).take(5_000);
    let mut group = c.benchmark_group("train 8x256, 5000 rows, 5 iterations, one thread");
    group.sample_size(10);
    for (name, train) in [
        ("pq", train_pq as fn(&_, _, _, &_) -> _),
        ("opq", train_opq),
    ] {
        let trained = train(&rows, DIM, Metric::Ip, &options(8, 5)).expect("trains");
        let falls = trained
            .distortions
            .windows(2)
            .all(|pair| pair[1] <= pair[0] * 1.000_001);
        assert!(
            falls,
            "the error must never rise: {:?}",
            trained.distortions
        );
        group.bench_function(name, |b| {
            b.iter(|| train(&rows, DIM, Metric::Ip, &options(8, 5)))
        });
    }
}

criterion_group!(benches, encode, train);
criterion_main!(benches);
