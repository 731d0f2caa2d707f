//! Training against what it promises: errors that fall, the same result on any number of threads, odd inputs.

use super::*;
use crate::kernel::random::Random;
use crate::metric::Metric;
use crate::watch::Watch;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Clustered rows whose dimensions are correlated, so that a rotation helps.
fn correlated(seed: u64, rows: usize, dim: usize) -> Vec<f32> {
    let mut random = Random::new(seed);
    let mix = random.normals(dim * dim);
    let scales: Vec<f32> = (0..dim).map(|d| 3.0 / (1.0 + d as f32)).collect();
    (0..rows)
        .flat_map(|_| {
            let z: Vec<f32> = scales.iter().map(|s| s * random.normal()).collect();
            (0..dim)
                .map(|i| (0..dim).map(|j| mix[i * dim + j] * z[j]).sum::<f32>())
                .collect::<Vec<_>>()
        })
        .collect()
}

fn options(subspaces: usize, codewords: usize, iterations: usize) -> TrainPq {
    TrainPq {
        subspaces,
        codewords,
        iterations,
        ..TrainPq::default()
    }
}

fn error(quantizer: &Quantizer, rows: &[f32]) -> f64 {
    let (dim, n) = (quantizer.dim(), rows.len() / quantizer.dim());
    let (mut projected, mut codes) = (
        vec![0.0; n * dim],
        vec![0; n * quantizer.shape().subspaces()],
    );
    let mut decoded = vec![0.0; n * dim];
    quantizer.project(rows, &mut projected).unwrap();
    quantizer.quantize(rows, &mut codes).unwrap();
    quantizer.decode(&codes, &mut decoded);
    projected
        .iter()
        .zip(&decoded)
        .map(|(a, b)| f64::from(a - b).powi(2))
        .sum::<f64>()
        / n as f64
}

#[test]
fn the_error_never_rises_and_opq_ends_below_pq() {
    let rows = correlated(1, 4000, 16);
    let pq = train_pq(&rows, 16, Metric::L2, &options(4, 32, 20)).unwrap();
    let opq = train_opq(&rows, 16, Metric::L2, &options(4, 32, 20)).unwrap();
    for trained in [&pq, &opq] {
        assert!(trained.distortions.len() >= 10);
        for pair in trained.distortions.windows(2) {
            assert!(
                pair[1] <= pair[0] * (1.0 + 1e-6),
                "{:?}",
                trained.distortions
            );
        }
        let last = *trained.distortions.last().unwrap();
        assert!(error(&trained.quantizer, &rows) <= last * (1.0 + 1e-5));
    }
    assert!(opq.distortions.last() < pq.distortions.last());
    // The rotation is orthogonal.
    let r = opq.quantizer.rotation().unwrap();
    for i in 0..16 {
        for j in 0..16 {
            let dot: f32 = (0..16).map(|k| r[i * 16 + k] * r[j * 16 + k]).sum();
            assert!((dot - f32::from(u8::from(i == j))).abs() < 1e-5);
        }
    }
}

#[test]
fn the_result_depends_on_the_seed_and_not_on_the_threads() {
    let rows = correlated(2, 9000, 8);
    for train in [train_pq, train_opq] {
        let run = |threads: usize, seed: u64| {
            let options = TrainPq {
                threads,
                seed,
                sample: 8500,
                ..options(2, 64, 6)
            };
            let trained = train(&rows, 8, Metric::Ip, &options).unwrap();
            assert_eq!(trained.rows, 8500);
            trained.quantizer.codebook().clone()
        };
        let one = run(1, 7);
        assert_eq!(one, run(3, 7));
        assert_ne!(one, run(1, 8));
    }
}

#[test]
fn fewer_rows_than_codewords_are_kept_exactly() {
    let rows = correlated(3, 20, 8);
    for train in [train_pq, train_opq] {
        let trained = train(&rows, 8, Metric::Ip, &options(2, 256, 5)).unwrap();
        assert!(
            error(&trained.quantizer, &rows) < 1e-9,
            "{:?}",
            trained.distortions
        );
    }
}

#[test]
fn constant_dimensions_and_duplicates_are_served() {
    let mut rows = correlated(4, 2000, 8);
    for row in rows.chunks_exact_mut(8) {
        row[..4].fill(2.5);
    }
    let constant = vec![1.0; 8 * 500];
    let few: Vec<f32> = (0..3000).flat_map(|i| [(i % 3) as f32; 8]).collect();
    for train in [train_pq, train_opq] {
        assert!(
            error(
                &train(&constant, 8, Metric::Ip, &options(2, 16, 5))
                    .unwrap()
                    .quantizer,
                &constant
            ) < 1e-9
        );
        assert!(
            error(
                &train(&few, 8, Metric::Ip, &options(2, 256, 5))
                    .unwrap()
                    .quantizer,
                &few
            ) < 1e-9
        );
        let trained = train(&rows, 8, Metric::Ip, &options(2, 64, 5)).unwrap();
        assert!(error(&trained.quantizer, &rows).is_finite());
    }
}

#[test]
fn empty_clusters_are_repaired() {
    // Many copies of one row and few others: seeding on a sample leaves centroids without rows.
    let mut rows = vec![0.0; 4 * 20_000];
    let mut random = Random::new(5);
    for x in &mut rows[..4 * 40] {
        *x = random.normal();
    }
    let trained = train_pq(&rows, 4, Metric::Ip, &options(1, 64, 20)).unwrap();
    assert!(
        error(&trained.quantizer, &rows) < 1e-9,
        "{:?}",
        trained.distortions
    );
}

#[test]
fn what_can_not_be_trained_on_is_refused() {
    let good = correlated(6, 100, 8);
    for train in [train_pq, train_opq] {
        for bad in [f32::NAN, f32::INFINITY, 1e20] {
            let mut rows = good.clone();
            rows[8 * 31 + 2] = bad;
            let error = train(&rows, 8, Metric::Ip, &options(2, 16, 5))
                .unwrap_err()
                .to_string();
            assert!(error.contains("row 31 "), "{error}");
        }
        assert!(train(&[], 8, Metric::Ip, &options(2, 16, 5)).is_err());
        assert!(train(&good, 8, Metric::Ip, &options(3, 16, 5)).is_err());
        assert!(train(&good, 8, Metric::Ip, &options(2, 300, 5)).is_err());
        assert!(train(&good, 8, Metric::Ip, &options(2, 16, 0)).is_err());
        assert!(train(&good[1..], 8, Metric::Ip, &options(2, 16, 5)).is_err());
    }
}

#[test]
fn training_reports_its_steps_and_stops_when_asked() {
    for train in [train_pq, train_opq] {
        let rows = correlated(5, 300, 8);
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let stop = Arc::new(AtomicBool::new(false));
        let mut options = options(4, 16, 5);
        options.watch = Watch::new()
            .on_progress(move |now| tell.lock().unwrap().push((now.done, now.total)))
            .stop_when(Arc::clone(&stop));
        train(&rows, 8, Metric::Ip, &options).unwrap();
        let steps = std::mem::take(&mut *told.lock().unwrap());
        assert!(steps.is_sorted() && steps.len() > 5, "{steps:?}");
        assert!(steps.last().is_some_and(|(done, total)| done == total));
        // Asked for in the middle of the work: the next step does not begin.
        let (tell, asked) = (Arc::clone(&told), Arc::clone(&stop));
        options.watch = Watch::new()
            .on_progress(move |now| {
                tell.lock().unwrap().push((now.done, now.total));
                asked.store(now.done >= 2, Ordering::SeqCst);
            })
            .stop_when(stop);
        let error = train(&rows, 8, Metric::Ip, &options).unwrap_err();
        assert!(error.to_string().contains("stopped"), "{error}");
        assert_eq!(told.lock().unwrap().len(), 3);
    }
}
