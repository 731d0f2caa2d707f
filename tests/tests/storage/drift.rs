//! Whether `stats` detects that new rows differ from the rows in training.

use mopqdb::bundle::BundleWriter;
use mopqdb::quantizer::{TrainPq, train_pq};
use mopqdb::{CreateOptions, Database, Drift, Metric};
use mopqdb_tests::support::{Random, put, small};

const DIM: usize = 16;

/// Returns a row near one of a few centres.
fn clustered(random: &mut Random, centres: &[Vec<f32>]) -> Vec<f32> {
    let centre = &centres[random.below(centres.len())];
    centre.iter().map(|x| x + 0.2 * random.unit()).collect()
}

/// Trains on 3,000 rows around some centres, then inserts as many around others, or around the same ones.
fn drift(shifted: bool, cells: usize, seed: u64) -> Drift {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut random = Random::new(seed);
    let centres: Vec<_> = (0..20).map(|_| random.vector(DIM)).collect();
    let others: Vec<_> = (0..20).map(|_| random.vector(DIM)).collect();
    let old: Vec<Vec<f32>> = (0..3000)
        .map(|_| clustered(&mut random, &centres))
        .collect();
    let trained = train_pq(
        &old.concat(),
        DIM,
        Metric::Ip,
        &TrainPq::default()
            .subspaces(4)
            .codewords(64)
            .iterations(8)
            .cells(cells)
            .seed(seed),
    );
    let bundle = BundleWriter::new(dir.path().join("bundle"))
        .metric(Metric::Ip)
        .vectors(DIM)
        .method("pq")
        .quantizer(&trained.unwrap().quantizer)
        .training(serde_json::json!({ "through_seq": 3000 }))
        .finish()
        .unwrap();
    let db = Database::create(&path, &CreateOptions::bundle(bundle.dir()), small()).unwrap();
    let rows: Vec<_> = old
        .iter()
        .enumerate()
        .map(|(n, v)| put(&format!("old {n}"), v))
        .collect();
    db.insert(&rows).unwrap();
    let new = if shifted { &others } else { &centres };
    let rows: Vec<_> = (0..3000)
        .map(|n| put(&format!("new {n}"), &clustered(&mut random, new)))
        .collect();
    db.insert(&rows).unwrap();
    db.compact().unwrap();
    db.stats()
        .unwrap()
        .drift
        .expect("a trained model has drift")
}

#[test]
fn rows_of_another_distribution_are_reported_as_drift() {
    let drift = drift(true, 0, 41);
    assert_eq!((drift.trained_rows, drift.new_rows), (3000, 3000));
    assert!(drift.new_error > 1.5 * drift.trained_error, "{drift:?}");
    assert!(drift.advice.is_some(), "{drift:?}");
}

#[test]
fn more_rows_of_the_same_distribution_are_no_reason_to_retrain() {
    for seed in 42..45 {
        let drift = drift(false, 0, seed);
        assert!(drift.advice.is_none(), "{drift:?}");
        assert!(drift.use_shift < 0.05, "{drift:?}");
    }
}

#[test]
fn rows_in_other_cells_than_before_training_are_counted() {
    let same = drift(false, 12, 9);
    assert_eq!(same.moved_cells, Some(0), "{same:?}");
    assert!(same.cell_shift.unwrap() < 0.05, "{same:?}");
    let moved = drift(true, 12, 9);
    assert!(moved.moved_cells.unwrap() >= 3, "{moved:?}");
    assert!(moved.cell_shift.unwrap() > 0.12, "{moved:?}");
    assert!(moved.advice.is_some());
    assert_eq!(drift(false, 0, 9).moved_cells, None);
}
