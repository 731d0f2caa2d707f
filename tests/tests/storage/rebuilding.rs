//! Changing the model of a database in use.

use mopqdb::testing::scan::Scanner;
use mopqdb::{
    AUTO_QUANTIZE_RECALL, AutoQuantized, Bundle, CreateOptions, Database, Error, Metric, ModelId,
    Options, PruneOptions, Query, QueryOptions, Reader, RebuildOptions, Search, Value, Watch,
    find_model, models, prune, rebuild, register_model,
};
use mopqdb_tests::support::{Oracle, Random, codebooks, put, small, vectors};
use std::sync::{Arc, Mutex};

fn filled(path: &std::path::Path, random: &mut Random) -> (Database, Oracle, Vec<f32>) {
    let db = vectors(path, 8, Metric::Ip);
    let mut oracle = Oracle::default();
    let mut flat = Vec::new();
    for n in 0..170 {
        let vector = random.vector(8);
        flat.extend_from_slice(&vector);
        db.insert(&[put(&n.to_string(), &vector)]).unwrap();
        oracle.put(&n.to_string(), vector);
    }
    for n in (0..170).step_by(9) {
        db.delete(&[&n.to_string()]).unwrap();
        oracle.remove(&n.to_string());
    }
    (db, oracle, flat)
}

#[test]
fn a_rebuild_switches_to_the_codes_of_the_new_model_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut random = Random::new(21);
    let (db, mut oracle, flat) = filled(&path, &mut random);
    let queries: Vec<_> = (0..5).map(|_| random.vector(8)).collect();
    oracle.check(&db.snapshot(), &queries, Metric::Ip, None);

    let first = codebooks(dir.path(), &flat, 8, Metric::Ip, false, 1);
    let second = codebooks(dir.path(), &flat, 8, Metric::Ip, true, 2);
    register_model(&path, &first).unwrap();
    assert!(
        db.model().id().is_none(),
        "registering does not switch the model"
    );
    let done = db
        .rebuild(&RebuildOptions::default().model(Some(first.model_id())))
        .unwrap();
    assert_eq!(done.model, first.model_id());
    oracle.check(&db.snapshot(), &queries, Metric::Ip, Some(&first));

    for n in 200..280 {
        let vector = random.vector(8);
        db.insert(&[put(&n.to_string(), &vector)]).unwrap();
        oracle.put(&n.to_string(), vector);
    }
    oracle.check(&db.snapshot(), &queries, Metric::Ip, Some(&first));
    register_model(&path, &second).unwrap();
    db.rebuild(&RebuildOptions::default().model(Some(second.model_id())))
        .unwrap();
    oracle.check(&db.snapshot(), &queries, Metric::Ip, Some(&second));

    // Back to the first model, reusing its files.
    let back = db
        .rebuild(&RebuildOptions::default().model(Some(first.model_id())))
        .unwrap();
    assert!(back.reused > 0, "{back:?}");
    oracle.check(&db.snapshot(), &queries, Metric::Ip, Some(&first));
    drop(db);
    let db = Database::open(&path, small()).unwrap();
    oracle.check(&db.snapshot(), &queries, Metric::Ip, Some(&first));
    db.compact().unwrap();
    oracle.check(&db.snapshot(), &queries, Metric::Ip, Some(&first));
    let listed = models(&path).unwrap();
    assert_eq!(listed.iter().filter(|m| !m.exact).count(), 2);
    assert_eq!(
        listed
            .iter()
            .filter(|m| m.active)
            .map(|m| m.id)
            .collect::<Vec<_>>(),
        [first.model_id()]
    );
}

#[test]
fn a_rebuild_prepared_during_writes_is_committed_by_the_writer_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut random = Random::new(22);
    let (db, mut oracle, flat) = filled(&path, &mut random);
    let model = codebooks(dir.path(), &flat, 8, Metric::Ip, false, 3);
    register_model(&path, &model).unwrap();
    let queries: Vec<_> = (0..3).map(|_| random.vector(8)).collect();
    std::thread::scope(|scope| {
        // Another process, which does not hold the lock, would call exactly this.
        let other = scope.spawn(|| rebuild(&path, &RebuildOptions::default()));
        let mut n = 1000;
        while !other.is_finished() {
            let vector = random.vector(8);
            db.insert(&[put(&n.to_string(), &vector)]).unwrap();
            oracle.put(&n.to_string(), vector);
            n += 1;
            // All of the old model, or all of the new one.
            let snapshot = db.snapshot();
            let bundle = snapshot.model().id().map(|_| &model);
            let search = bundle.map_or(Search::Exact, |_| Search::Codes);
            let top = QueryOptions::top(10).search(search);
            let hits = snapshot.query_with(&queries[0], &top).unwrap();
            let expected = oracle.query(&queries[0], 10, Metric::Ip, bundle);
            for (hit, (_, score)) in hits.iter().zip(&expected) {
                assert!((hit.score - score).abs() < 1e-5, "{hit:?} {score}");
            }
        }
        assert_eq!(other.join().unwrap().unwrap().model, model.model_id());
    });
    assert_eq!(db.model().id(), Some(model.model_id()));
    oracle.check(&db.snapshot(), &queries, Metric::Ip, Some(&model));
    drop(db);
    let db = Database::open(&path, small()).unwrap();
    oracle.check(&db.snapshot(), &queries, Metric::Ip, Some(&model));
}

#[test]
fn a_reader_finishes_on_its_snapshot_and_sees_the_new_model_when_it_refreshes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut random = Random::new(23);
    let (db, oracle, flat) = filled(&path, &mut random);
    let queries = [random.vector(8)];
    let reader = Reader::open(&path, Options::default()).unwrap();
    let model = codebooks(dir.path(), &flat, 8, Metric::Ip, false, 4);
    register_model(&path, &model).unwrap();
    drop(db);
    // No one holds the lock, so the rebuild commits by itself.
    rebuild(&path, &RebuildOptions::default()).unwrap();
    oracle.check(&reader.snapshot(), &queries, Metric::Ip, None);
    assert!(reader.refresh().unwrap());
    oracle.check(&reader.snapshot(), &queries, Metric::Ip, Some(&model));
}

#[test]
fn a_database_can_start_with_codebooks() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::new(24);
    for metric in [Metric::Ip, Metric::L2, Metric::Cosine] {
        let sample: Vec<f32> = (0..100).flat_map(|_| random.vector(8)).collect();
        let bundle = codebooks(
            &dir.path().join(metric.name()),
            &sample,
            8,
            metric,
            false,
            5,
        );
        let path = dir.path().join(format!("{metric}.db"));
        let db = Database::create(&path, &CreateOptions::bundle(bundle.dir()), small()).unwrap();
        let mut oracle = Oracle::default();
        for n in 0..120 {
            let mut vector = random.vector(8);
            db.insert(&[put(&n.to_string(), &vector)]).unwrap();
            if metric == Metric::Cosine {
                vector = db.model().check_vector(&vector, || "it".into()).unwrap();
            }
            oracle.put(&n.to_string(), vector);
        }
        let mut query = random.vector(8);
        if metric == Metric::Cosine {
            let length = query.iter().map(|x| x * x).sum::<f32>().sqrt();
            query.iter_mut().for_each(|x| *x /= length);
        }
        oracle.check(&db.snapshot(), &[query], metric, Some(&bundle));
    }
}

#[test]
fn a_database_trains_its_first_quantizer_if_the_options_ask_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut random = Random::new(27);
    let asked = small()
        .auto_quantize(Some(300))
        .maintenance(std::time::Duration::from_millis(5));
    let new = CreateOptions::vectors(12, Metric::Ip);
    let db = Database::create(&path, &new, asked.clone()).unwrap();
    let mut oracle = Oracle::default();
    let mut insert = |db: &Database, oracle: &mut Oracle, range: std::ops::Range<usize>| {
        for n in range {
            let vector = random.vector(12);
            db.insert(&[put(&n.to_string(), &vector)]).unwrap();
            oracle.put(&n.to_string(), vector);
        }
    };
    insert(&db, &mut oracle, 0..299);
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(db.model().quantizer().is_none(), "too few rows");

    insert(&db, &mut oracle, 299..400);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while db.model().quantizer().is_none() {
        assert!(std::time::Instant::now() < deadline, "nothing was trained");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let model = db.model();
    assert_eq!(
        model.shape().unwrap().subspaces(),
        6,
        "8 does not divide 12"
    );
    insert(&db, &mut oracle, 400..420);
    let queries = [vec![0.25; 12], vec![-0.5; 12]];
    oracle.check(&db.snapshot(), &queries, Metric::Ip, model.bundle());
    let methods = || -> Vec<String> {
        let models = models(&path).unwrap();
        models.into_iter().map(|model| model.method).collect()
    };
    assert_eq!(methods(), ["exact", "opq"]);
    drop(db);

    // It is trained once, and the result is there after reopening.
    let db = Database::open(&path, asked.clone()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(db.model().id(), model.id());
    assert_eq!(methods(), ["exact", "opq"]);
    oracle.check(&db.snapshot(), &queries, Metric::Ip, model.bundle());

    // A user who switches back to exact search is not overruled, now or after reopening.
    db.rebuild(&to(ModelId::exact(model.encoder_id()))).unwrap();
    let overruled = |db: &Database| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        oracle.check(&db.snapshot(), &queries, Metric::Ip, None);
        db.model().quantizer().is_some()
    };
    assert!(!overruled(&db));
    db.close().unwrap();
    assert!(!overruled(&Database::open(&path, asked).unwrap()));
}

#[test]
fn a_first_quantizer_is_switched_to_only_if_it_finds_the_nearest_rows() {
    // Noise in 128 dimensions, of which eight bytes represent little; and the same with 120 dimensions near zero.
    for (small_after, switches) in [(128, false), (8, true)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let mut random = Random::new(3);
        let db = vectors(&path, 128, Metric::Ip);
        let rows: Vec<_> = (0..3000)
            .map(|n| {
                let mut vector = random.vector(128);
                vector[small_after..].iter_mut().for_each(|x| *x *= 1e-4);
                put(&n.to_string(), &vector)
            })
            .collect();
        db.insert(&rows).unwrap();
        let watch = Watch::new();
        let due = |rows: u64| db.auto_quantize(rows, &watch).unwrap();
        assert_eq!(due(3001), AutoQuantized::NotDue);
        let AutoQuantized::Tried(trial) = due(3000) else {
            panic!("it must be tried")
        };
        println!("{trial:?}");
        assert_eq!((trial.bytes_per_row, trial.queries), (8, 300));
        assert_eq!(trial.switched, switches, "{trial:?}");
        assert_eq!(trial.switched, trial.recall >= AUTO_QUANTIZE_RECALL);
        assert_eq!(db.model().quantizer().is_some(), switches);
        let listed = find_model(&path, &trial.model.to_string()).unwrap();
        assert_eq!(listed, trial.model, "it is one of the models in both cases");
        assert_eq!(due(3000), AutoQuantized::Had);

        // The recall of queries is counted here again: rows 5, 15, 25 and so on, every tenth, were set aside.
        db.rebuild(&to(trial.model)).unwrap();
        let mut kept = 0;
        for n in (5..3000).step_by(10) {
            let Value::Vector(query) = &rows[n].value else {
                panic!("a vector")
            };
            let best = |search: Search| -> Vec<String> {
                let top = QueryOptions::top(11).search(search);
                let hits = db.query_with(query, &top).unwrap().into_iter();
                let others = hits.map(|hit| hit.key).filter(|key| *key != n.to_string());
                others.take(10).collect()
            };
            let ours = best(Search::Auto);
            kept += (best(Search::Exact).iter())
                .filter(|key| ours.contains(key))
                .count();
        }
        assert!((kept as f64 / 3000.0 - trial.recall).abs() < 1e-9, "{kept}");
    }
}

fn to(model: ModelId) -> RebuildOptions {
    RebuildOptions::default().model(Some(model))
}

#[test]
fn exact_is_a_model_that_every_database_has_and_can_be_switched_to_and_from() {
    let dir = tempfile::tempdir().unwrap();
    for metric in [Metric::Ip, Metric::L2] {
        let path = dir.path().join(metric.name());
        let mut random = Random::new(28);
        let db = vectors(&path, 8, metric);
        let mut oracle = Oracle::default();
        let mut flat = Vec::new();
        for n in 0..170 {
            let vector = random.vector(8);
            flat.extend_from_slice(&vector);
            db.insert(&[put(&n.to_string(), &vector)]).unwrap();
            oracle.put(&n.to_string(), vector);
        }
        let queries: Vec<_> = (0..5).map(|_| random.vector(8)).collect();
        let exact = find_model(&path, "exact").unwrap();
        assert_eq!(db.model().model_id(), exact);
        assert_eq!(find_model(&path, &exact.short()).unwrap(), exact);
        let listed = models(&path).unwrap();
        assert_eq!(listed.len(), 1);
        assert!(listed[0].exact && listed[0].active && listed[0].id == exact);
        // It is chosen only by name, and switching to the active model does nothing.
        let nothing = db.rebuild(&RebuildOptions::default()).unwrap_err();
        assert!(matches!(nothing, Error::NoModel { .. }), "{nothing}");
        db.rebuild(&to(exact)).unwrap();

        let bundle = codebooks(
            &dir.path().join("b"),
            &flat,
            8,
            metric,
            false,
            metric as u64,
        );
        let model = register_model(&path, &bundle).unwrap();
        db.rebuild(&to(model)).unwrap();
        oracle.check(&db.snapshot(), &queries, metric, Some(&bundle));
        let reader = Reader::open(&path, Options::default()).unwrap();

        // Rows that are in no segment yet are included.
        for n in 170..190 {
            let vector = random.vector(8);
            db.insert(&[put(&n.to_string(), &vector)]).unwrap();
            oracle.put(&n.to_string(), vector);
        }
        let back = db.rebuild(&to(exact)).unwrap();
        assert_eq!((back.model, back.encoded), (exact, 0));
        assert_eq!(db.model().id(), None, "a record names no model for it");
        oracle.check(&db.snapshot(), &queries, metric, None);
        assert!(reader.refresh().unwrap());
        oracle.check(&reader.snapshot(), &queries, metric, None);
        let active: Vec<bool> = models(&path).unwrap().iter().map(|m| m.active).collect();
        assert_eq!(active, [true, false]);
        drop(db);
        let db = Database::open(&path, small()).unwrap();
        assert!(db.warnings().is_empty());
        oracle.check(&db.snapshot(), &queries, metric, None);

        // The newest is the trained one, also when switching from exact; and back by a process without the lock.
        assert_eq!(db.rebuild(&RebuildOptions::default()).unwrap().model, model);
        oracle.check(&db.snapshot(), &queries, metric, Some(&bundle));
        assert_eq!(rebuild(&path, &to(exact)).unwrap().model, exact);
        oracle.check(&db.snapshot(), &queries, metric, None);
        drop(db);
        assert_eq!(rebuild(&path, &to(model)).unwrap().model, model);
        assert_eq!(rebuild(&path, &to(exact)).unwrap().model, exact);
        let pruned = prune(&path, &PruneOptions::default()).unwrap();
        assert_eq!(pruned.models, [model]);
        let db = Database::open(&path, small()).unwrap();
        assert_eq!(db.rebuild(&to(exact)).unwrap().model, exact);
        oracle.check(&db.snapshot(), &queries, metric, None);
        let unknown = db.rebuild(&to(model)).unwrap_err();
        assert!(matches!(unknown, Error::NoModel { .. }), "{unknown}");
    }
}

#[test]
fn a_bundle_that_does_not_fit_is_refused_with_a_remedy_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut random = Random::new(29);
    let (db, _, flat) = filled(&path, &mut random);
    let before = models(&path).unwrap().len();
    let metric = codebooks(dir.path(), &flat, 8, Metric::L2, false, 1);
    let wide = codebooks(dir.path(), &flat, 16, Metric::Ip, false, 2);
    let texts = Bundle::open(mopqdb::bundle::tiny_bundle()).unwrap();
    for (bundle, words) in [
        (&metric, ["compares by l2", "create a database"]),
        (&wide, ["vectors of 16", "train a model"]),
        (&texts, ["compares by cosine", "create a database"]),
    ] {
        let error = register_model(&path, bundle).unwrap_err().to_string();
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
        assert!(
            error.contains(&bundle.dir().display().to_string()),
            "{error}"
        );
    }
    let damaged = codebooks(dir.path(), &flat, 8, Metric::Ip, false, 3);
    let tensors = damaged.dir().join("tensors.safetensors");
    let mut bytes = std::fs::read(&tensors).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::remove_file(&tensors).unwrap();
    std::fs::write(&tensors, bytes).unwrap();
    assert!(register_model(&path, &damaged).is_err());
    assert_eq!(models(&path).unwrap().len(), before);
    let left: Vec<_> = std::fs::read_dir(path.join("models")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    drop(db);
}

#[test]
fn rows_of_the_tail_are_counted_and_reported_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::new(26);
    let flat: Vec<f32> = (0..90).flat_map(|_| random.vector(8)).collect();
    let model = codebooks(dir.path(), &flat, 8, Metric::Ip, false, 6);
    for open in [true, false] {
        let path = dir.path().join(format!("db-{open}"));
        let new = CreateOptions::vectors(8, Metric::Ip);
        let db = Database::create(&path, &new, Options::default()).unwrap();
        for (n, vector) in flat.chunks(8).enumerate() {
            db.insert(&[put(&n.to_string(), vector)]).unwrap();
        }
        assert_eq!(db.stats().unwrap().tail_rows, 90);
        register_model(&path, &model).unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let options = RebuildOptions::default()
            .watch(Watch::new().on_progress(move |p| tell.lock().unwrap().push((p.done, p.total))));
        let done = if open {
            db.rebuild(&options).unwrap()
        } else {
            drop(db);
            rebuild(&path, &options).unwrap()
        };
        assert_eq!((done.rows, done.reused), (90, 0));
        assert_eq!(told.lock().unwrap().last(), Some(&(90, 90)));
    }
}

#[test]
fn a_batch_on_several_threads_answers_like_single_queries() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut random = Random::new(23);
    let (db, _, flat) = filled(&path, &mut random);
    let model = codebooks(dir.path(), &flat, 8, Metric::Ip, true, 1);
    register_model(&path, &model).unwrap();
    db.rebuild(&RebuildOptions::default().model(Some(model.model_id())))
        .unwrap();
    // There are enough queries that their tables, scans and hits are all worth sharing.
    let vectors: Vec<_> = (0..20_000).map(|_| random.vector(8)).collect();
    let queries: Vec<Query<'_>> = vectors.iter().map(|query| query[..].into()).collect();
    let options = QueryOptions::top(3);
    let alone = db.snapshot().scanned_by(Scanner::new(1).unwrap());
    let together = db.snapshot().scanned_by(Scanner::new(3).unwrap());
    let answers = together.query_batch(&queries, &options).unwrap();
    assert_eq!(answers.len(), vectors.len());
    for (query, answer) in vectors.iter().zip(answers) {
        assert_eq!(answer, alone.query_with(&query[..], &options).unwrap());
    }
}
