//! Training and encoding.

use super::codes::stream;
use super::figures::{Figures, Line, Target};
use super::{Bench, DIM, faiss, thousands};
use crate::clock::{cpu_time, fastest};
use anyhow::Result;
use mopqdb::Metric;
use mopqdb::quantizer::{Quantizer, TrainPq, train_opq, train_pq};

/// Measures PQ and OPQ on the same rows and iterations as faiss, and encoding by both.
pub fn case(bench: &Bench, subspaces: usize, figures: &mut Figures) -> Result<()> {
    let rows = stream("clustered", 9).take(if bench.quick { 20_000 } else { 65_536 });
    let count = rows.len() / DIM;
    let training = TrainPq::default().subspaces(subspaces).threads(1);
    let start = cpu_time();
    let pq = train_pq(&rows, DIM, Metric::L2, &training)?;
    let pq_seconds = (cpu_time() - start).as_secs_f64();
    let start = cpu_time();
    let opq = train_opq(&rows, DIM, Metric::L2, &training)?;
    let opq_seconds = (cpu_time() - start).as_secs_f64();
    let some = &rows[..DIM * count.min(20_000)];
    let mut codes = vec![0; some.len() / DIM * subspaces];
    let mut encode = || fastest(bench.repeats(), || pq.quantizer.quantize(some, &mut codes));
    let before = encode();
    let peer = faiss::train(bench, &rows, subspaces, training.iterations)?;
    let encode = before.min(encode());

    let (theirs, level) = peer.seconds("encode")?;
    let rate = |seconds: f64| (some.len() / DIM) as f64 / seconds / 1e6;
    let what = format!("encode {subspaces}x256");
    figures.lines.push(Line {
        what: what.clone(),
        unit: "Mvectors/s",
        ours: rate(encode),
        peer: Some((rate(theirs), format!("compute_codes, level {level}"))),
        note: String::new(),
    });
    figures.reach(&what, "vs faiss", theirs / encode);
    for (name, seconds, trained) in [("PQ", pq_seconds, &pq), ("OPQ", opq_seconds, &opq)] {
        let error = distortion(&trained.quantizer, &rows)?;
        let (theirs, level) = peer.seconds(name)?;
        let their_error = peer.distortion(name)?;
        let what = format!("train {name} {subspaces}x256");
        figures.lines.push(Line {
            what: format!(
                "{what}, {} rows, {} iterations",
                thousands(count),
                training.iterations
            ),
            unit: "runs/s",
            ours: 1.0 / seconds,
            peer: Some((1.0 / theirs, format!("faiss {name}, level {level}"))),
            note: format!(
                "error {error:.3}, faiss {their_error:.3}: {:+.2}%",
                100.0 * (error / their_error - 1.0)
            ),
        });
        figures.reach(&what, "vs faiss", theirs / seconds);
        figures.reach(&what, "less distortion", their_error / error);
    }
    Ok(())
}

/// Returns the mean squared error per row.
fn distortion(quantizer: &Quantizer, rows: &[f32]) -> Result<f64> {
    let n = rows.len() / DIM;
    let (mut projected, mut decoded) = (vec![0.0; rows.len()], vec![0.0; rows.len()]);
    let mut codes = vec![0; n * quantizer.shape().subspaces()];
    quantizer.project(rows, &mut projected)?;
    quantizer.quantize(rows, &mut codes)?;
    quantizer.decode(&codes, &mut decoded);
    let sum: f64 = projected
        .iter()
        .zip(&decoded)
        .map(|(a, b)| f64::from(a - b).powi(2))
        .sum();
    Ok(sum / n as f64)
}

/// The targets of training and encoding.
pub const TARGETS: [Target; 10] = [
    Target::new("encode 8x256", "vs faiss", 10.0, 15.0),
    Target::new("encode 16x256", "vs faiss", 3.5, 4.0),
    Target::new("train PQ 8x256", "vs faiss", 1.0, 2.0),
    Target::new("train PQ 8x256", "less distortion", 0.99, 1.0),
    Target::new("train PQ 16x256", "vs faiss", 1.0, 2.0),
    Target::new("train PQ 16x256", "less distortion", 0.99, 1.0),
    Target::new("train OPQ 8x256", "vs faiss", 1.0, 2.0),
    Target::new("train OPQ 8x256", "less distortion", 0.99, 1.0),
    Target::new("train OPQ 16x256", "vs faiss", 1.0, 2.0),
    Target::new("train OPQ 16x256", "less distortion", 0.99, 1.0),
];
