//! Search modes compared with plain scans: the same answer wherever the rows are and whatever computes it.

use mopqdb::testing::kernel::Kernel;
use mopqdb::testing::scan::Scanner;
use mopqdb::{
    Bundle, CreateOptions, Database, Error, Filter, Hit, Metric, Options, Query, QueryOptions,
    RebuildOptions, Row, Search, Snapshot, VerifyOptions, register_model,
};
use mopqdb_tests::support::{Oracle, Random, codebooks, keys, put, small, vectors};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

const DIM: usize = 8;

/// Returns small whole numbers, whose sums are exact in any order and often tie.
fn whole(random: &mut Random) -> Vec<f32> {
    (0..DIM).map(|_| random.below(5) as f32 - 2.0).collect()
}

/// An operation on a database.
#[derive(Debug, Clone)]
enum Step {
    Insert(Vec<Row>),
    Delete(Vec<String>),
}

/// The steps, their result, and codebooks for it.
struct World {
    steps: Vec<Step>,
    oracle: Oracle,
    bundle: Bundle,
    queries: Vec<Vec<f32>>,
}

fn world(dir: &Path, metric: Metric) -> World {
    let mut random = Random::new(31);
    let mut steps = Vec::new();
    let mut oracle = Oracle::default();
    for batch in 0..12 {
        // Some keys occur again in a later batch, which replaces the earlier row.
        let mut names = BTreeSet::new();
        while names.len() < 50 {
            names.insert(format!("{}/{}", random.below(7), random.below(60)));
        }
        let put_one = |key: String| {
            let vector = whole(&mut random);
            oracle.put(&key, vector.clone());
            put(&key, &vector)
        };
        let rows: Vec<Row> = names.into_iter().map(put_one).collect();
        steps.push(Step::Insert(rows));
        if batch % 3 == 1 {
            let gone: Vec<String> = oracle.rows.keys().step_by(17).cloned().collect();
            for key in &gone {
                oracle.remove(key);
            }
            steps.push(Step::Delete(gone));
        }
    }
    let flat: Vec<f32> = (oracle.rows.values())
        .flat_map(|(_, vector)| vector.clone())
        .collect();
    World {
        steps,
        bundle: codebooks(dir, &flat, DIM, metric, true, 9),
        oracle,
        queries: (0..6).map(|_| whole(&mut random)).collect(),
    }
}

impl World {
    /// A database to which the steps were applied, with a switch to the codebooks after some of them.
    fn database(
        &self,
        path: &Path,
        metric: Metric,
        options: Options,
        switch_after: usize,
    ) -> Database {
        let new = CreateOptions::vectors(DIM, metric);
        let db = Database::create(path, &new, options).unwrap();
        for (n, step) in self.steps.iter().enumerate() {
            if n == switch_after {
                switch(&db, &self.bundle);
            }
            match step {
                Step::Insert(rows) => {
                    db.insert(rows).unwrap();
                }
                Step::Delete(keys) => {
                    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                    db.delete(&keys).unwrap();
                }
            }
        }
        db
    }

    /// Returns the best rows by codes or by vectors, among those whose key passes: key and score, ties in order of
    /// insertion.
    fn plain(
        &self,
        query: &[f32],
        metric: Metric,
        by_codes: bool,
        passes: &dyn Fn(&str) -> bool,
    ) -> Vec<Plain> {
        let quantizer = self.bundle.quantizer().unwrap().unwrap();
        let table = quantizer.table(query).unwrap();
        let score = |vector: &[f32]| match by_codes {
            true => {
                let mut code = vec![0; quantizer.shape().subspaces()];
                quantizer.quantize(vector, &mut code).unwrap();
                table.score(&code)
            }
            false => similarity(query, vector, metric),
        };
        let mut all: Vec<Plain> = (self.oracle.rows.iter())
            .filter(|(key, _)| passes(key))
            .map(|(key, (order, vector))| Plain {
                key: key.clone(),
                score: score(vector),
                order: *order,
            })
            .collect();
        all.sort_by(Plain::compare);
        all
    }

    /// Returns the rows that a search with candidates finds: the best by codes, ordered by vectors.
    fn rescored(
        &self,
        query: &[f32],
        metric: Metric,
        candidates: usize,
        passes: &dyn Fn(&str) -> bool,
    ) -> Vec<Plain> {
        let mut best = self.plain(query, metric, true, passes);
        best.truncate(candidates);
        for row in &mut best {
            row.score = similarity(query, &self.oracle.rows[&row.key].1, metric);
        }
        best.sort_by(Plain::compare);
        best
    }
}

/// A row as a plain scan ranks it.
#[derive(Debug, Clone, PartialEq)]
struct Plain {
    key: String,
    score: f32,
    order: u64,
}

impl Plain {
    fn compare(&self, other: &Self) -> std::cmp::Ordering {
        (other.score.total_cmp(&self.score)).then(self.order.cmp(&other.order))
    }
}

fn similarity(query: &[f32], vector: &[f32], metric: Metric) -> f32 {
    let pairs = query.iter().zip(vector);
    match metric {
        Metric::L2 => -pairs.map(|(a, b)| (a - b) * (a - b)).sum::<f32>(),
        _ => pairs.map(|(a, b)| a * b).sum(),
    }
}

fn switch(db: &Database, bundle: &Bundle) {
    register_model(db.dir(), bundle).unwrap();
    let options = RebuildOptions::default().model(Some(bundle.model_id()));
    db.rebuild(&options).unwrap();
}

/// Checks that hits are these rows with these scores, bit for bit.
fn same(hits: &[Hit], expected: &[Plain], has_similarity: bool, what: &str) {
    let found: Vec<(&str, f32)> = hits.iter().map(|hit| (&hit.key[..], hit.score)).collect();
    let wanted: Vec<(&str, f32)> = (expected.iter().map(|row| (&row.key[..], row.score))).collect();
    assert_eq!(found, wanted, "{what}");
    for hit in hits {
        let similarity = has_similarity.then_some(hit.score);
        assert_eq!(hit.similarity, similarity, "{what}");
    }
}

/// Compares every search mode in a snapshot with plain scans.
fn check(world: &World, snapshot: &Snapshot, metric: Metric, what: &str) {
    let all = |_: &str| true;
    let rows = world.oracle.rows.len();
    for query in &world.queries {
        let codes = world.plain(query, metric, true, &all);
        let exact = world.plain(query, metric, false, &all);
        for k in [1, 7, 64, 1000] {
            let ask = |options: QueryOptions| snapshot.query_with(query, &options).unwrap();
            let upto = |rows: &[Plain]| rows[..k.min(rows.len())].to_vec();
            let top = QueryOptions::top(k);
            same(
                &ask(top.clone().search(Search::Codes)),
                &upto(&codes),
                false,
                what,
            );
            same(
                &ask(top.clone().search(Search::Exact)),
                &upto(&exact),
                true,
                what,
            );
            for candidates in [k, k + 3, k + 50] {
                let expected = world.rescored(query, metric, candidates, &all);
                let found = ask(top.clone().candidates(candidates));
                same(
                    &found,
                    &upto(&expected),
                    true,
                    &format!("{what}, {candidates} candidates"),
                );
            }
            let default = QueryOptions::default_candidates(k);
            same(
                &ask(top.clone()),
                &upto(&world.rescored(query, metric, default, &all)),
                true,
                what,
            );
            same(&ask(top.candidates(rows.max(k))), &upto(&exact), true, what);
        }
    }
}

#[test]
fn answers_equal_plain_scans_wherever_the_rows_are() {
    for metric in [Metric::Ip, Metric::L2] {
        let dir = tempfile::tempdir().unwrap();
        let world = world(dir.path(), metric);
        let tail = small().seal_rows(1_000_000);
        let path = |name: &str| dir.path().join(name);
        let middle = world.steps.len() / 2;

        let db = world.database(&path("tail"), metric, tail, 0);
        assert_eq!(db.stats().unwrap().segments, 0);
        check(&world, &db.snapshot(), metric, "all in the log");
        db.seal().unwrap();
        check(&world, &db.snapshot(), metric, "sealed");

        let db = world.database(&path("parts"), metric, small(), middle);
        let stats = db.stats().unwrap();
        assert!(stats.segments > 2 && stats.dead_rows > 0, "{stats:?}");
        check(&world, &db.snapshot(), metric, "several segments");
        db.close().unwrap();
        let db = Database::open(path("parts"), small()).unwrap();
        check(&world, &db.snapshot(), metric, "opened again");
        db.compact().unwrap();
        check(&world, &db.snapshot(), metric, "compacted");
    }
}

#[test]
fn answers_are_the_same_on_every_kernel_and_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path(), Metric::Ip);
    let db = world.database(&dir.path().join("db"), Metric::Ip, small(), 3);
    for kernel in Kernel::available() {
        for threads in [1, 2, 5] {
            let scanner = Scanner::with_kernel(kernel, threads);
            let snapshot = db.snapshot().scanned_by(scanner);
            let what = format!("{} on {threads} threads", kernel.name());
            check(&world, &snapshot, Metric::Ip, &what);
        }
    }
}

#[test]
fn candidates_of_any_width_are_scored_like_the_exact_scan() {
    // The sums are rounded, so the last bit shows the order in which a kernel adds.
    for (dim, metric) in [
        (1, Metric::Ip),
        (7, Metric::L2),
        (12, Metric::Cosine),
        (100, Metric::Ip),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random::new(5);
        let db = vectors(&dir.path().join("db"), dim, metric);
        let rows: Vec<Vec<f32>> = (0..130).map(|_| random.vector(dim)).collect();
        for (n, row) in rows.iter().enumerate() {
            db.insert(&[put(&n.to_string(), row)]).unwrap();
        }
        let options = mopqdb::quantizer::TrainPq::default()
            .subspaces(1)
            .codewords(4);
        let trained = mopqdb::quantizer::train_pq(&rows.concat(), dim, metric, &options).unwrap();
        let bundle = mopqdb::bundle::BundleWriter::new(dir.path().join("bundle"))
            .metric(metric)
            .vectors(dim)
            .method("pq")
            .quantizer(&trained.quantizer)
            .finish()
            .unwrap();
        switch(&db, &bundle);
        for kernel in Kernel::available() {
            let snapshot = db.snapshot().scanned_by(Scanner::with_kernel(kernel, 1));
            for _ in 0..5 {
                let query = random.vector(dim);
                let exact = QueryOptions::top(130).search(Search::Exact);
                let auto = QueryOptions::top(130);
                assert_eq!(
                    snapshot.query_with(&query, &auto).unwrap(),
                    snapshot.query_with(&query, &exact).unwrap(),
                    "{dim} {metric} {}",
                    kernel.name()
                );
            }
        }
    }
}

#[test]
fn consecutive_pages_form_one_long_answer() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path(), Metric::Ip);
    let db = world.database(&dir.path().join("db"), Metric::Ip, small(), 3);
    let query = &world.queries[0];
    let rows = world.oracle.rows.len();
    let ways = [
        QueryOptions::top(rows).search(Search::Codes),
        QueryOptions::top(rows).search(Search::Exact),
        QueryOptions::top(150).candidates(150),
    ];
    for way in ways {
        let whole = db.query_with(query, &way).unwrap();
        let mut paged = Vec::new();
        while paged.len() < way.k {
            let mut page = way.clone().offset(paged.len());
            page.k = 7.min(way.k - paged.len());
            let hits = db.query_with(query, &page).unwrap();
            assert_eq!(hits.len(), page.k);
            paged.extend(hits);
        }
        assert_eq!(paged, whole, "{}", way.search);
        let behind = QueryOptions::top(5).search(way.search).offset(rows);
        assert_eq!(db.query_with(query, &behind).unwrap(), []);
    }
}

#[test]
fn a_filter_is_applied_before_the_candidates_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path(), Metric::Ip);
    let db = world.database(&dir.path().join("db"), Metric::Ip, small(), 3);
    let some: BTreeSet<String> = world.oracle.rows.keys().step_by(5).cloned().collect();
    type Passes<'a> = Box<dyn Fn(&str) -> bool + 'a>;
    let filters: [(Filter, Passes<'_>); 3] = [
        (
            Filter::Prefix("3/".into()),
            Box::new(|key| key.starts_with("3/")),
        ),
        (
            Filter::Keys(some.clone()),
            Box::new(|key| some.contains(key)),
        ),
        (Filter::Prefix("9".into()), Box::new(|_| false)),
    ];
    for (filter, passes) in filters {
        for query in &world.queries {
            let ask = |options: QueryOptions| {
                db.query_with(query, &options.among(filter.clone()))
                    .unwrap()
            };
            // Fewer candidates than rows that pass, and far fewer than there are rows.
            let mut expected = world.rescored(query, Metric::Ip, 12, &*passes);
            expected.truncate(10);
            let found = ask(QueryOptions::top(10).candidates(12));
            same(&found, &expected, true, "re-scored");
            for (search, by_codes) in [(Search::Codes, true), (Search::Exact, false)] {
                let mut expected = world.plain(query, Metric::Ip, by_codes, &*passes);
                expected.truncate(10);
                let found = ask(QueryOptions::top(10).search(search));
                same(&found, &expected, !by_codes, search.name());
            }
        }
    }
}

#[test]
fn minimum_scores_shorten_an_answer_and_never_reorder_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path(), Metric::Ip);
    let db = world.database(&dir.path().join("db"), Metric::Ip, small(), 3);
    let query = &world.queries[0];
    for search in [Search::Auto, Search::Codes, Search::Exact] {
        let top = QueryOptions::top(40).search(search);
        let whole = db.query_with(query, &top).unwrap();
        // The score of the 20th hit, which others may share.
        let least = whole[19].score;
        let enough = whole.iter().filter(|hit| hit.score >= least).count();
        assert!((20..40).contains(&enough), "{enough}");
        let cut = db.query_with(query, &top.clone().min_score(least)).unwrap();
        assert_eq!(cut, whole[..enough], "{search}");
        let page = top.clone().min_score(least).offset(5);
        assert_eq!(db.query_with(query, &page).unwrap(), whole[5..enough]);
        let none = top.clone().min_score(f32::INFINITY);
        assert_eq!(db.query_with(query, &none).unwrap(), []);
        if search != Search::Codes {
            let cut = db.query_with(query, &top.min_similarity(least)).unwrap();
            assert_eq!(cut, whole[..enough], "{search}");
        }
    }
}

#[test]
fn a_batch_answers_like_its_queries_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path(), Metric::L2);
    let db = world.database(&dir.path().join("db"), Metric::L2, small(), 3);
    let mut random = Random::new(77);
    // More queries than share a pass.
    let asked: Vec<Vec<f32>> = (0..150).map(|_| whole(&mut random)).collect();
    let queries: Vec<Query<'_>> = asked.iter().map(Query::from).collect();
    for search in [Search::Auto, Search::Codes, Search::Exact] {
        let options = QueryOptions::top(9).search(search).offset(2);
        let together = db.query_batch(&queries, &options).unwrap();
        for (query, hits) in asked.iter().zip(together) {
            assert_eq!(hits, db.query_with(query, &options).unwrap(), "{search}");
        }
    }
}

#[test]
fn a_deleted_row_is_not_a_candidate() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path(), Metric::Ip);
    let db = world.database(&dir.path().join("db"), Metric::Ip, small(), 3);
    let query = &world.queries[0];
    let few = QueryOptions::top(5).candidates(5);
    let mut best = world.plain(query, Metric::Ip, true, &|_| true);
    // All candidates are deleted. The next ones take their place, as if the others had never existed.
    for _ in 0..5 {
        let gone: Vec<String> = best.drain(..5).map(|row| row.key).collect();
        let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
        db.delete(&gone).unwrap();
        let mut expected: Vec<&str> = best[..5].iter().map(|row| &row.key[..]).collect();
        let hits = db.query_with(query, &few).unwrap();
        let mut found = keys(&hits);
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
}

#[test]
fn explain_reports_the_counts_of_each_stage() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path(), Metric::Ip);
    let db = world.database(&dir.path().join("db"), Metric::Ip, small(), 3);
    let rows = world.oracle.rows.len() as u64;
    let query = Query::from(&world.queries[0]);
    let explained = |options: &QueryOptions| {
        let (hits, explanation) = db.snapshot().query_explained(&[query], options).unwrap();
        assert_eq!(hits[0], db.query_with(query, options).unwrap());
        let names: Vec<_> = explanation.stages.iter().map(|stage| stage.name).collect();
        assert_eq!(names, ["vectors", "filter", "candidates", "score", "hits"]);
        assert!(explanation.stages.iter().all(|stage| stage.micros >= 0.0));
        explanation
    };
    let auto = explained(&QueryOptions::top(5).candidates(50));
    let counts = |n: usize| (auto.stages[n].rows, auto.stages[n].bytes);
    assert_eq!((auto.search, auto.candidates), (Search::Auto, Some(50)));
    assert_eq!(counts(0), (1, 0));
    assert_eq!(counts(1), (rows, 0));
    // Two bytes per row, in blocks of 64 rows.
    assert!(counts(2).0 >= 50 && counts(2).1 >= 2 * rows && counts(2).1 % 128 == 0);
    assert_eq!(counts(3), (50, 50 * 4 * DIM as u64));
    assert!((1..=50).contains(&auto.stages[3].pages));
    assert_eq!(counts(4), (5, 0));
    let exact = explained(&QueryOptions::top(5).search(Search::Exact));
    assert_eq!((exact.search, exact.candidates), (Search::Exact, None));
    assert!(exact.stages[2].bytes >= rows * 4 * DIM as u64);
    let filtered = QueryOptions::top(5).among(Filter::Prefix("3/".into()));
    let passed = (world.oracle.rows.keys()).filter(|key| key.starts_with("3/"));
    assert_eq!(explained(&filtered).stages[1].rows, passed.count() as u64);
}

#[test]
fn without_codes_auto_is_exact_and_codes_is_an_error_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let db = vectors(&dir.path().join("db"), 2, Metric::Ip);
    db.insert(&[put("a", &[1.0, 0.0]), put("b", &[0.0, 1.0])])
        .unwrap();
    let ask = |options: QueryOptions| db.query_with(&[1.0, 0.5], &options);
    let top = QueryOptions::top(2);
    let auto = ask(top.clone()).unwrap();
    assert_eq!(auto, ask(top.clone().search(Search::Exact)).unwrap());
    assert_eq!(auto[0].similarity, Some(1.0));
    // Options for codes are accepted even without codes.
    assert_eq!(auto, ask(top.clone().candidates(10)).unwrap());
    let (_, explained) = (db.snapshot())
        .query_explained(&[Query::from(&[1.0, 0.5])], &top)
        .unwrap();
    assert_eq!(
        (explained.search, explained.candidates),
        (Search::Exact, None)
    );
    let error = ask(top.search(Search::Codes)).unwrap_err().to_string();
    assert!(
        error.contains("no codes") && error.contains("rebuild"),
        "{error}"
    );
}

#[test]
fn contradicting_options_are_refused_with_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(dir.path(), Metric::Ip);
    let db = world.database(&dir.path().join("db"), Metric::Ip, small(), 3);
    let top = QueryOptions::top;
    for (options, said) in [
        (top(0), "k is 0; ask for 1 to 10000 hits"),
        (top(10_001), "k is 10001; ask for 1 to 10000 hits"),
        (
            top(10_000).offset(1),
            "k is 10000 with an offset of 1; ask for 1 to 10000 hits",
        ),
        (top(2).offset(usize::MAX), "ask for 1 to 10000 hits"),
        (
            top(10).candidates(9),
            "9 candidates for 10 hits; ask for 10 to 1000000",
        ),
        (
            top(10).offset(5).candidates(14),
            "14 candidates for 15 hits; ask for 15 to 1000000",
        ),
        (top(10).candidates(1_000_001), "ask for 10 to 1000000"),
        (
            top(10).search(Search::Codes).candidates(100),
            "a search by codes takes no candidates",
        ),
        (
            top(10).search(Search::Exact).candidates(100),
            "a search by exact takes no candidates",
        ),
        (top(10).min_score(f32::NAN), "a least score is not a number"),
        (
            top(10).min_similarity(f32::NAN),
            "a least score is not a number",
        ),
        (
            top(10).search(Search::Codes).min_similarity(0.5),
            "have no similarity",
        ),
    ] {
        let error = db.query_with(&world.queries[0], &options).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains(said), "{said}: {error}");
    }
    // The largest allowed number, which exceeds the number of rows.
    let rows = world.oracle.rows.len();
    for most in [
        top(10_000),
        top(10_000).candidates(1_000_000),
        top(1).offset(9_999),
    ] {
        let expected = if most.offset == 0 { rows } else { 0 };
        let hits = db.query_with(&world.queries[0], &most).unwrap();
        assert_eq!(hits.len(), expected);
    }
}

/// Returns the only file with the vectors of these rows, and the position of one vector in it.
fn stored_at(db: &Path, vector: &[f32]) -> (std::path::PathBuf, usize) {
    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut found = Vec::new();
    let mut folders = vec![db.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let held = std::fs::read(&path).unwrap();
            let at = held.windows(bytes.len()).position(|some| some == bytes);
            found.extend(at.map(|at| (path, at)));
        }
    }
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn damaged_vectors_are_an_error_and_search_by_codes_still_works() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut random = Random::new(8);
    let rows: Vec<Vec<f32>> = (0..200).map(|_| random.vector(DIM)).collect();
    let options = small().seal_rows(1_000_000);
    let new = CreateOptions::vectors(DIM, Metric::Ip);
    let db = Database::create(&path, &new, options.clone()).unwrap();
    let all: Vec<Row> = (rows.iter().enumerate())
        .map(|(n, row)| put(&n.to_string(), row))
        .collect();
    db.insert(&all).unwrap();
    db.seal().unwrap();
    switch(
        &db,
        &codebooks(dir.path(), &rows.concat(), DIM, Metric::Ip, false, 1),
    );
    let by_codes = QueryOptions::top(10).search(Search::Codes);
    let query = random.vector(DIM);
    let before = db.query_with(&query, &by_codes).unwrap();
    db.close().unwrap();

    let (file, at) = stored_at(&path, &rows[77]);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let db = Database::open(&path, options).unwrap();
    let snapshot: Arc<Snapshot> = db.snapshot();
    for search in [Search::Auto, Search::Exact] {
        let error = snapshot
            .query_with(&query, &QueryOptions::top(10).search(search))
            .unwrap_err();
        let Error::Corrupt(damage) = &error else {
            panic!("{search}: {error}")
        };
        assert_eq!(damage.file, file, "{error}");
        assert_eq!(damage.section, "VECTORS", "{error}");
        assert!((1..=at as u64).contains(&damage.offset), "{error}");
    }
    assert_eq!(snapshot.query_with(&query, &by_codes).unwrap(), before);
    let seen = db.verify(&VerifyOptions::default()).unwrap();
    assert!(!seen.problems.is_empty());
}
