//! Cells: a query looks at the rows of some of them, and nothing else about its answer depends on them.

use mopqdb::bundle::BundleWriter;
use mopqdb::eval::{Questions, tune};
use mopqdb::quantizer::{Cells, Quantizer, TrainPq, train_pq};
use mopqdb::{
    Bundle, CellCount, CreateOptions, Database, Filter, LearnOptions, Metric, Probes, Query,
    QueryOptions, RebuildOptions, Search, Snapshot, Value, VerifyOptions, Watch, register_model,
};
use mopqdb_tests::support::{Oracle, Random, codebooks, in_cells, put, small};
use std::collections::BTreeSet;
use std::path::Path;

const DIM: usize = 8;

/// Rows around some centres, so that cells mean something.
fn rows(random: &mut Random, count: usize) -> Vec<Vec<f32>> {
    let centres: Vec<Vec<f32>> = (0..30).map(|_| random.vector(DIM)).collect();
    let near = |random: &mut Random| {
        let centre = &centres[random.below(30)];
        centre.iter().map(|x| x + 0.2 * random.unit()).collect()
    };
    (0..count).map(|_| near(random)).collect()
}

fn created(path: &Path, bundle: &Bundle, seal_rows: usize, threads: usize) -> Database {
    let options = small().seal_rows(seal_rows).threads(threads);
    Database::create(path, &CreateOptions::bundle(bundle.dir()), options).unwrap()
}

fn fill(db: &Database, oracle: &mut Oracle, rows: &[Vec<f32>]) {
    for (first, some) in (0..).step_by(97).zip(rows.chunks(97)) {
        let batch: Vec<_> = (some.iter().zip(first..))
            .map(|(vector, n): (_, usize)| put(&format!("{}/{n}", n % 7), vector))
            .collect();
        db.insert(&batch).unwrap();
        for row in &batch {
            let Value::Vector(vector) = &row.value else {
                unreachable!()
            };
            oracle.put(&row.key, vector.clone());
        }
    }
    for n in (0..rows.len()).step_by(13) {
        let key = format!("{}/{n}", n % 7);
        db.delete(&[&key]).unwrap();
        oracle.remove(&key);
    }
}

/// Keys and scores of the hits, in a batch, and some of them one by one, which agree.
fn answers(
    snapshot: &Snapshot,
    queries: &[Vec<f32>],
    options: &QueryOptions,
) -> Vec<Vec<(String, f32)>> {
    let asked: Vec<Query<'_>> = queries.iter().map(Into::into).collect();
    let together = snapshot.query_batch(&asked, options).unwrap();
    for (query, hits) in queries.iter().zip(&together).step_by(9) {
        assert_eq!(&snapshot.query_with(query, options).unwrap(), hits);
    }
    let hits = together.into_iter().map(|hits| {
        let pairs = hits.into_iter().map(|hit| (hit.key, hit.score));
        pairs.collect()
    });
    hits.collect()
}

#[test]
fn answers_are_those_of_the_cells_looked_at_whatever_the_segments_threads_and_filters() {
    for (metric, cells, seed) in [
        (Metric::Ip, 16, 1),
        (Metric::L2, 16, 2),
        (Metric::Ip, 200, 3),
        (Metric::L2, 120, 4),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random::new(seed);
        let rows = rows(&mut random, 1500);
        let bundle = in_cells(dir.path(), &rows.concat(), DIM, metric, cells, seed);
        let queries: Vec<Vec<f32>> = (0..40).map(|_| random.vector(DIM)).collect();
        let mut oracle = Oracle::default();
        // One segment; many and a tail; the tail alone.
        let layouts = [(usize::MAX, 1), (130, 3), (100_000, 2)];
        let dbs = layouts.map(|(seal_rows, threads)| {
            let path = dir.path().join(format!("db-{seal_rows}"));
            let db = created(&path, &bundle, seal_rows.min(1 << 20), threads);
            oracle = Oracle::default();
            fill(&db, &mut oracle, &rows);
            if seal_rows == usize::MAX {
                db.compact().unwrap();
            }
            db
        });
        let some: BTreeSet<String> = (0..1500)
            .step_by(29)
            .map(|n| format!("{}/{n}", n % 7))
            .collect();
        type Passes<'a> = Box<dyn Fn(&str) -> bool + 'a>;
        let filters: [(Option<Filter>, Passes<'_>); 4] = [
            (None, Box::new(|_| true)),
            (
                Some(Filter::Prefix("3/".into())),
                Box::new(|key| key.starts_with("3/")),
            ),
            (
                Some(Filter::Keys(some.clone())),
                Box::new(|key| some.contains(key)),
            ),
            (Some(Filter::Prefix("x".into())), Box::new(|_| false)),
        ];
        for probes in [
            None,
            Some(Probes::Cells(1)),
            Some(Probes::Cells(5)),
            Some(Probes::All),
        ] {
            for (filter, passes) in &filters {
                for k in [1, 20, 300] {
                    let mut options = QueryOptions::top(k).search(Search::Codes);
                    options.probes = probes;
                    options.filter = filter.clone();
                    let found = dbs
                        .each_ref()
                        .map(|db| answers(&db.snapshot(), &queries, &options));
                    assert_eq!(found[0], found[1], "{metric} {probes:?} k {k}");
                    assert_eq!(found[0], found[2], "{metric} {probes:?} k {k}");
                    for (query, found) in queries.iter().zip(&found[0]).step_by(9) {
                        let expected =
                            oracle.query_among(query, k, metric, Some(&bundle), probes, passes);
                        assert_eq!(found, &expected, "{metric} {probes:?} k {k}");
                    }
                    if k == 300 {
                        continue;
                    }
                    // Scored by their vectors, hits do not depend on the layout either.
                    let mut options = QueryOptions::top(k).candidates(40);
                    options.probes = probes;
                    options.filter = filter.clone();
                    let found = dbs
                        .each_ref()
                        .map(|db| answers(&db.snapshot(), &queries, &options));
                    assert_eq!(found[0], found[1], "{metric} {probes:?} k {k}");
                    assert_eq!(found[0], found[2], "{metric} {probes:?} k {k}");
                }
            }
        }
        for db in &dbs {
            let deep = VerifyOptions::default().deep(true);
            let found = db.verify(&deep).unwrap();
            assert!(found.is_sound(), "{found:?}");
        }
    }
}

#[test]
fn all_cells_of_unchanged_codes_answer_as_a_scan_without_cells_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::new(7);
    let rows = rows(&mut random, 900);
    let options = TrainPq::default().subspaces(4).codewords(32).iterations(4);
    let flat = train_pq(&rows.concat(), DIM, Metric::Ip, &options).unwrap();
    let centroids: Vec<f32> = rows[..25].concat();
    let cells = Cells::new(DIM, centroids, Vec::new(), false).unwrap();
    let celled = Quantizer::builder(flat.quantizer.codebook().clone(), Metric::Ip)
        .cells(Some(cells))
        .build()
        .unwrap();
    let queries: Vec<Vec<f32>> = (0..20).map(|_| random.vector(DIM)).collect();
    let found = [("flat", &flat.quantizer), ("celled", &celled)].map(|(name, quantizer)| {
        let bundle = BundleWriter::new(dir.path().join(name))
            .metric(Metric::Ip)
            .vectors(DIM)
            .method("pq")
            .quantizer(quantizer)
            .finish()
            .unwrap();
        let db = created(&dir.path().join(format!("{name}.db")), &bundle, 200, 2);
        fill(&db, &mut Oracle::default(), &rows);
        let mut options = QueryOptions::top(50).search(Search::Codes);
        options.probes = (name == "celled").then_some(Probes::All);
        answers(&db.snapshot(), &queries, &options)
    });
    let bits = |found: &[Vec<(String, f32)>]| -> Vec<(String, u32)> {
        let all = found.concat().into_iter();
        all.map(|(key, score)| (key, score.to_bits())).collect()
    };
    assert_eq!(bits(&found[0]), bits(&found[1]));
}

#[test]
fn a_model_with_cells_is_learned_rebuilt_to_rolled_back_copied_and_tuned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut random = Random::new(8);
    let rows = rows(&mut random, 1200);
    let new = CreateOptions::vectors(DIM, Metric::Cosine);
    let db = Database::create(&path, &new, small().seal_rows(300)).unwrap();
    fill(&db, &mut Oracle::default(), &rows);
    let exact = db.model().model_id();
    let learn = |cells| {
        let codes = TrainPq::default().subspaces(4).codewords(16).iterations(4);
        let options = LearnOptions::default().pq(codes).cells(cells);
        db.learn(&options)
    };
    // Fewer than a million rows get no cells unless asked.
    let flat = learn(CellCount::Auto).unwrap();
    let celled = learn(CellCount::Exactly(20)).unwrap();
    let rebuild = |id| {
        let options = RebuildOptions::default().model(Some(id));
        db.rebuild(&options).unwrap()
    };
    rebuild(flat);
    assert!(db.model().quantizer().unwrap().cells().is_none());
    assert!(db.stats().unwrap().cells.is_none());
    let refused = db
        .snapshot()
        .query_with(&rows[0], &QueryOptions::top(1).probes(Probes::All));
    assert!(refused.unwrap_err().to_string().contains("has no cells"));
    rebuild(celled);
    let stats = db.stats().unwrap().cells.unwrap();
    assert_eq!(stats.cells, 20);
    assert!(stats.imbalance >= 1.0 && stats.largest >= 1200 / 13 / 20);
    let options = QueryOptions::top(10)
        .probes(Probes::Cells(3))
        .candidates(10);
    let before = answers(&db.snapshot(), &rows[..40], &options);
    rebuild(exact);
    let back = rebuild(celled);
    assert!(back.reused > 0, "{back:?}");
    assert_eq!(answers(&db.snapshot(), &rows[..40], &options), before);

    let copy = dir.path().join("copy");
    mopqdb::backup(&path, &copy).unwrap();
    let copied = Database::open(&copy, small()).unwrap();
    assert_eq!(answers(&copied.snapshot(), &rows[..40], &options), before);
    let deep = VerifyOptions::default().deep(true);
    assert!(copied.verify(&deep).unwrap().is_sound());
    db.compact().unwrap();
    assert_eq!(answers(&db.snapshot(), &rows[..40], &options), before);
    assert!(db.verify(&deep).unwrap().is_sound());

    let explained = |probes| {
        let mut options = QueryOptions::top(5).candidates(5);
        options.probes = probes;
        let query: Query<'_> = (&rows[3]).into();
        db.snapshot().query_explained(&[query], &options).unwrap().1
    };
    let stage = |probes, name: &str| {
        let found = explained(probes);
        (found.stages.into_iter()).find(|stage| stage.name == name)
    };
    let all = stage(Some(Probes::All), "cells").unwrap();
    assert_eq!((all.cells, all.rows), (20, db.snapshot().rows()));
    let one = stage(Some(Probes::Cells(1)), "cells").unwrap();
    assert!(one.cells == 1 && one.rows < all.rows / 4, "{one:?}");
    assert_eq!(explained(None).probes, Some(Probes::Cells(9)));

    // What was measured is what queries do from then on.
    let asked = rows[..60].iter().map(|vector| {
        let noisy = vector.iter().map(|x| x + 0.05 * random.unit());
        Value::Vector(noisy.collect())
    });
    let questions = Questions::unlabelled(asked);
    let tuned = tune(&db.snapshot(), &questions, 10, 0.9, &Watch::new()).unwrap();
    let chosen = tuned.chosen.unwrap();
    let (probes, candidates) = (chosen.probes.unwrap() as usize, chosen.candidates as usize);
    assert!(tuned.tried.iter().all(|tried| tried.probes.is_some()));
    let of_chosen = |tried: &&mopqdb::eval::Tried| {
        (tried.probes, tried.candidates) == (Some(probes), candidates)
    };
    assert!(tuned.tried.iter().find(of_chosen).unwrap().share >= 0.9);
    db.serve(chosen).unwrap();
    assert_eq!(explained(None).probes, Some(Probes::Cells(probes)));
    drop(db);
    let db = Database::open(&path, small()).unwrap();
    let query: Query<'_> = (&rows[3]).into();
    let options = QueryOptions::top(10);
    let explained = db.snapshot().query_explained(&[query], &options).unwrap().1;
    assert_eq!(explained.probes, Some(Probes::Cells(probes)));
    assert_eq!(explained.candidates, Some(candidates));
}

#[test]
fn rows_that_are_all_equal_are_in_one_cell_and_are_found() {
    let dir = tempfile::tempdir().unwrap();
    for metric in [Metric::Ip, Metric::L2] {
        let path = dir.path().join(format!("{metric}.db"));
        let db = Database::create(&path, &CreateOptions::vectors(DIM, metric), small()).unwrap();
        let same = vec![0.5; DIM];
        let rows: Vec<_> = (0..400).map(|n| put(&format!("{n:03}"), &same)).collect();
        db.insert(&rows).unwrap();
        let codes = TrainPq::default().subspaces(4).codewords(16).iterations(4);
        let options = LearnOptions::default().pq(codes);
        let learned = db.learn(&options.clone().cells(CellCount::Exactly(300)));
        db.rebuild(&RebuildOptions::default().model(Some(learned.unwrap())))
            .unwrap();
        let stats = db.stats().unwrap().cells.unwrap();
        assert_eq!(stats.largest, 400);
        assert_eq!(stats.empty, stats.cells - 1);
        let hits = db.snapshot().query(&same, 7).unwrap();
        let keys: Vec<_> = hits.iter().map(|hit| hit.key.as_str()).collect();
        assert_eq!(keys, ["000", "001", "002", "003", "004", "005", "006"]);
        let codes = QueryOptions::top(7).search(Search::Codes);
        let by_codes = db
            .snapshot()
            .query_with(&same, &codes.probes(Probes::Cells(1)));
        let keys: Vec<_> = by_codes.unwrap().into_iter().map(|hit| hit.key).collect();
        assert_eq!(keys, ["000", "001", "002", "003", "004", "005", "006"]);
        // More cells than rows.
        let refused = db.learn(&options.cells(CellCount::Exactly(401)));
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("401 cells for 400 rows"), "{error}");
    }
}

#[test]
fn probes_that_cannot_be_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::new(10);
    let rows = rows(&mut random, 300);
    let bundle = in_cells(dir.path(), &rows.concat(), DIM, Metric::Ip, 9, 10);
    let db = created(&dir.path().join("db"), &bundle, 100, 1);
    fill(&db, &mut Oracle::default(), &rows);
    let ask = |options: QueryOptions| {
        let found = db.snapshot().query_with(&rows[0], &options);
        found.map(|hits| hits.len()).map_err(|e| e.to_string())
    };
    let top = QueryOptions::top(5);
    for (options, words) in [
        (top.clone().probes(Probes::Cells(0)), "0 probes"),
        (
            top.clone().probes(Probes::Cells(10)),
            "10 probes; the active model has 9 cells",
        ),
        (
            top.clone().search(Search::Exact).probes(Probes::All),
            "looks at no cells",
        ),
    ] {
        let error = ask(options).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(ask(top.clone().probes(Probes::Cells(9))), Ok(5));
    assert!(
        mopqdb::Serving::new(10, 20)
            .unwrap()
            .with_probes(0)
            .is_err()
    );
    // A setting of another number of cells does not outlive them: it means all.
    let serving = mopqdb::Serving::new(10, 20).unwrap().with_probes(5000);
    db.serve(serving.unwrap()).unwrap();
    assert_eq!(ask(top), Ok(5));

    // Cells of another width than the codewords, and residual ones for l2.
    let quantizer = bundle.quantizer().unwrap().unwrap();
    let wide = Cells::new(DIM + 1, vec![0.0; 2 * (DIM + 1)], Vec::new(), false).unwrap();
    let build = |metric, cells| {
        Quantizer::builder(quantizer.codebook().clone(), metric)
            .cells(Some(cells))
            .build()
    };
    assert!(build(Metric::Ip, wide).is_err());
    let residual = Cells::new(DIM, vec![0.0; 2 * DIM], Vec::new(), true).unwrap();
    assert!(build(Metric::L2, residual).is_err());
}

#[test]
fn codes_of_other_cells_are_other_codes() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::new(11);
    let rows = rows(&mut random, 300);
    let one = in_cells(dir.path(), &rows.concat(), DIM, Metric::Ip, 9, 10);
    let other = in_cells(dir.path(), &rows.concat(), DIM, Metric::Ip, 10, 10);
    assert_ne!(one.codes_id(), other.codes_id());
    let path = dir.path().join("db");
    let db = created(&path, &one, 100, 1);
    fill(&db, &mut Oracle::default(), &rows);
    register_model(&path, &other).unwrap();
    let done = db.rebuild(&RebuildOptions::default().model(Some(other.model_id())));
    assert!(done.unwrap().rows > 0);
}

#[test]
fn cells_are_added_to_a_model_whose_codes_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut random = Random::new(12);
    let rows = rows(&mut random, 700);
    let flat = codebooks(dir.path(), &rows.concat(), DIM, Metric::Ip, true, 12);
    let db = created(&path, &flat, 200, 2);
    fill(&db, &mut Oracle::default(), &rows);
    let options = QueryOptions::top(50).search(Search::Codes);
    let before = answers(&db.snapshot(), &rows[..20], &options);
    let draft = |cells| {
        let options = LearnOptions::default().cells(cells);
        mopqdb::draft_cells(&db.snapshot(), &options, &path)
    };
    let error = draft(CellCount::Auto).unwrap_err().to_string();
    assert!(error.contains("no cells are asked for"), "{error}");
    let celled = draft(CellCount::Exactly(12)).unwrap().register().unwrap();
    db.rebuild(&RebuildOptions::default().model(Some(celled)))
        .unwrap();
    let cells = db.model().quantizer().unwrap().cells().unwrap().len();
    assert_eq!(cells, 12);
    let all = options.clone().probes(Probes::All);
    assert_eq!(answers(&db.snapshot(), &rows[..20], &all), before);
    let few = options.probes(Probes::Cells(2));
    assert_ne!(answers(&db.snapshot(), &rows[..20], &few), before);
    let error = draft(CellCount::Exactly(12)).unwrap_err().to_string();
    assert!(error.contains("has cells already"), "{error}");
}
