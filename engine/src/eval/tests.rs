//! Compares places with a few lines of brute force: ties, exclusions, groups, several chunks.

use super::*;
use crate::database::Database;
use crate::kernel::random::Random;
use crate::model::bundle::{Bundle, BundleWriter};
use crate::options::{CreateOptions, Options};
use crate::quantizer::{CodeShape, Codebook, Head, Quantizer};
use crate::row::{Row, Value};
use std::collections::{BTreeSet, HashMap};

const DIM: usize = 4;
const ROWS: usize = 2500;

struct Setup {
    _dir: tempfile::TempDir,
    database: Database,
    bundle: Bundle,
    vectors: Vec<Vec<f32>>,
}

/// Uses few codewords, so that ties are frequent.
fn setup(metric: Metric, head: bool) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::new(11);
    let mut uniform =
        |n: usize| -> Vec<f32> { (0..n).map(|_| random.unit() as f32 * 2.0 - 1.0).collect() };
    let codebook = Codebook::new(CodeShape::new(2, 3).unwrap(), 2, uniform(12)).unwrap();
    let head = head.then(|| Head::new(DIM, DIM, uniform(DIM * DIM), Some(uniform(DIM))).unwrap());
    let quantizer = Quantizer::builder(codebook, metric)
        .head(head)
        .build()
        .unwrap();
    let bundle = BundleWriter::new(dir.path().join("bundle"))
        .metric(metric)
        .vectors(DIM)
        .method("test")
        .quantizer(&quantizer)
        .finish()
        .unwrap();
    let vectors: Vec<Vec<f32>> = (0..ROWS).map(|_| uniform(DIM)).collect();
    let database = Database::create(
        dir.path().join("db"),
        &CreateOptions::vectors(DIM, metric),
        Options::default(),
    )
    .unwrap();
    let rows: Vec<Row> = vectors
        .iter()
        .enumerate()
        .map(|(n, vector)| Row::vector(n.to_string(), vector.clone()))
        .collect();
    database.insert(&rows[..1500]).unwrap();
    database.seal().unwrap();
    database.insert(&rows[1500..]).unwrap();
    Setup {
        _dir: dir,
        database,
        bundle,
        vectors,
    }
}

fn expected(own: f32, others: impl Iterator<Item = f32>) -> Place {
    let mut place = Place {
        greater: 0,
        equal: 1,
    };
    for score in others {
        place.greater += u64::from(score > own);
        place.equal += u64::from(score == own);
    }
    place
}

#[test]
fn places_are_those_of_brute_force_with_ties_exclusions_and_several_chunks() {
    for metric in [Metric::Ip, Metric::L2] {
        let setup = setup(metric, false);
        let snapshot = setup.database.snapshot();
        let model = Model::open(setup.bundle.clone(), 1).unwrap();
        let quantizer = model.quantizer().unwrap();
        // Some queries are rows themselves, and are excluded from their own ranking.
        let asks: Vec<Ask> = (0..40)
            .map(|n| Ask {
                query: Value::Vector(match n % 2 {
                    0 => setup.vectors[n * 7].clone(),
                    _ => vec![0.3, -0.2, 0.1, n as f32 / 40.0],
                }),
                right: [n, n + 100, n + 2000]
                    .iter()
                    .map(usize::to_string)
                    .collect(),
            })
            .collect();
        let find = FindOptions {
            by_key: true,
            exclude_self: true,
            groups: None,
        };
        let questions = Questions::find(&snapshot, &asks, &find).unwrap();
        assert_eq!(questions.all.len(), 40);
        assert_eq!(questions.all[2].excluded, [14]);
        // This limit makes chunks of 1,024 rows.
        let options = EvalOptions {
            cuts: vec![1, 5, 20],
            candidates: None,
            probes: None,
            samples: 3,
            memory_limit: 1,
            watch: Watch::new(),
        };
        let evaluator = Evaluator::new(&snapshot, &model, &questions, options.clone()).unwrap();
        let evaluation = evaluator.search(Search::Codes).unwrap();
        let exact = evaluator.search(Search::Exact).unwrap();
        // There are fewer rows than a query for 250 hits takes candidates, so the order is that of exact search.
        let all = EvalOptions {
            cuts: vec![250],
            ..options
        };
        let all = Evaluator::new(&snapshot, &model, &questions, all).unwrap();
        let rescored = all.search(Search::Auto).unwrap();

        let mut codes = vec![0; ROWS * 2];
        quantizer
            .quantize(&setup.vectors.concat(), &mut codes)
            .unwrap();
        for (n, question) in questions.all.iter().enumerate() {
            let Value::Vector(query) = &question.query else {
                panic!("the questions are vectors")
            };
            let table = quantizer.table(query).unwrap();
            let coded = |row: usize| table.score(&codes[row * 2..][..2]);
            let others = |right: usize| {
                (0..ROWS)
                    .filter(move |row| *row != right && !question.excluded.contains(&(*row as u32)))
            };
            for (at, &right) in question.right.iter().enumerate() {
                let right = right as usize;
                let wanted = expected(coded(right), others(right).map(coded));
                let found = evaluation.places(20).0[n][at];
                for k in [1, 5, 20] {
                    assert_eq!(
                        found.within(k),
                        wanted.within(k),
                        "{metric} {n} {found:?} {wanted:?}"
                    );
                }
                let whole = |row: usize| -> f32 {
                    let pairs = query.iter().zip(&setup.vectors[row]);
                    match metric {
                        Metric::L2 => -pairs.map(|(a, b)| (a - b) * (a - b)).sum::<f32>(),
                        _ => pairs.map(|(a, b)| a * b).sum(),
                    }
                };
                let wanted = expected(whole(right), others(right).map(whole));
                for k in [1, 5, 20] {
                    assert_eq!(
                        exact.places(20).0[n][at].within(k),
                        wanted.within(k),
                        "{metric} {n}"
                    );
                    assert_eq!(
                        rescored.places(250).0[n][at].within(k),
                        wanted.within(k),
                        "{metric} {n}"
                    );
                }
            }
            if n < 3 {
                let mut best: Vec<(f32, u32)> = (0..ROWS as u32)
                    .filter(|row| !question.excluded.contains(row))
                    .map(|row| (coded(row as usize), row))
                    .collect();
                best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                best.truncate(10);
                assert_eq!(evaluation.samples[n], best);
            }
        }
        let (report, head) = evaluator.codes().unwrap().unwrap();
        assert!(head.is_none());
        let uses: Vec<u64> = report.usage.iter().map(|book| book.iter().sum()).collect();
        assert_eq!(uses, [ROWS as u64; 2]);
        assert!(report.distinct <= 9 && report.relative_distortion > 0.0);
    }
}

#[test]
fn places_among_projections_bound_those_among_codes() {
    let setup = setup(Metric::Ip, true);
    let model = Model::open(setup.bundle.clone(), 1).unwrap();
    let asks = [Ask {
        query: Value::Vector(vec![0.5; DIM]),
        right: BTreeSet::from(["3".to_owned()]),
    }];
    let snapshot = setup.database.snapshot();
    let find = FindOptions {
        by_key: true,
        ..FindOptions::default()
    };
    let questions = Questions::find(&snapshot, &asks, &find).unwrap();
    let options = EvalOptions {
        cuts: vec![ROWS],
        ..EvalOptions::default()
    };
    let evaluator = Evaluator::new(&snapshot, &model, &questions, options).unwrap();
    let (_, head) = evaluator.codes().unwrap().unwrap();
    let quantizer = model.quantizer().unwrap();
    let mut keys = vec![0.0; ROWS * DIM];
    quantizer
        .project(&setup.vectors.concat(), &mut keys)
        .unwrap();
    let mut query = vec![0.0; DIM];
    quantizer.project(&[0.5; DIM], &mut query).unwrap();
    let score = |row: usize| -> f64 {
        query
            .iter()
            .zip(&keys[row * DIM..])
            .map(|(a, b)| f64::from(a * b))
            .sum()
    };
    let greater = (0..ROWS)
        .filter(|row| score(*row) > score(3) + 1e-6)
        .count() as u64;
    let found = head.unwrap().0[0][0].greater;
    assert!(found.abs_diff(greater) <= 1, "{found} {greater}");
}

#[test]
fn groups_make_every_row_of_the_group_right_but_not_the_query_itself() {
    let setup = setup(Metric::Ip, false);
    let group = |keys: &[usize]| {
        keys.iter()
            .map(|n| (n.to_string(), "g".to_owned()))
            .collect::<HashMap<_, _>>()
    };
    let asks = [
        Ask {
            query: Value::Vector(setup.vectors[5].clone()),
            right: BTreeSet::from(["6".to_owned()]),
        },
        Ask {
            query: Value::Vector(vec![1.0; DIM]),
            right: BTreeSet::from(["no such row".to_owned()]),
        },
    ];
    let find = FindOptions {
        by_key: true,
        exclude_self: true,
        groups: Some(group(&[5, 6, 7, 2000])),
    };
    let questions = Questions::find(&setup.database.snapshot(), &asks, &find).unwrap();
    assert_eq!(questions.all.len(), 1);
    assert_eq!(questions.all[0].right, [6, 7, 2000]);
    assert_eq!(questions.all[0].excluded, [5]);
    assert_eq!(
        questions.missing_answers,
        BTreeSet::from(["no such row".to_owned()])
    );
    assert_eq!(questions.unanswerable, 1);
}

#[test]
fn a_tie_counts_by_its_chance_and_lies_between_its_bounds() {
    let place = Place {
        greater: 9,
        equal: 4,
    };
    assert_eq!(
        [9, 10, 11, 13].map(|k| place.within(k)),
        [0.0, 0.25, 0.5, 1.0]
    );
    assert!(place.at_best(10) && !place.at_worst(12) && place.at_worst(13));
    let places = Places(vec![vec![
        place,
        Place {
            greater: 0,
            equal: 1,
        },
    ]]);
    assert_eq!(places.recall(10), 0.625);
    assert_eq!(places.bounds(10), (0.5, 1.0));
}

#[test]
fn an_evaluation_stops_on_request() {
    let setup = setup(Metric::Ip, false);
    let asks = [Ask {
        query: Value::Vector(vec![0.5; DIM]),
        right: BTreeSet::from(["3".to_owned()]),
    }];
    let snapshot = setup.database.snapshot();
    let find = FindOptions {
        by_key: true,
        ..FindOptions::default()
    };
    let questions = Questions::find(&snapshot, &asks, &find).unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let options = EvalOptions::default().watch(Watch::new().stop_when(stop));
    let model = Model::open(setup.bundle.clone(), 1).unwrap();
    let error = Evaluator::new(&snapshot, &model, &questions, options).unwrap_err();
    assert!(matches!(error, Error::Cancelled(_)), "{error}");
}
