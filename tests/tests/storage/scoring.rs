//! Learned scorers: how they change answers, and what a switch to one leaves unchanged.

use mopqdb::bundle::BundleWriter;
use mopqdb::{
    Bundle, CreateOptions, Database, Hit, Metric, QueryOptions, Reader, RebuildOptions, Scorer,
    Search, Serving, register_model,
};
use mopqdb_tests::support::{Random, codebooks, put, small};
use std::collections::BTreeMap;
use std::path::Path;

const DIM: usize = 8;

/// Returns a model with the codes of another, and a scorer.
fn scored(dir: &Path, base: &Bundle, scorer: &Scorer, serving: Option<Serving>) -> Bundle {
    let mut writer = BundleWriter::new(dir)
        .encoder_from(base)
        .method("pq")
        .scorer(scorer);
    if let Some(quantizer) = base.quantizer().unwrap() {
        writer = writer.quantizer(&quantizer);
    }
    if let Some(serving) = serving {
        writer = writer.serving(serving);
    }
    writer.finish().unwrap()
}

fn rebuild(db: &Database, bundle: &Bundle) -> mopqdb::Rebuilt {
    register_model(db.dir(), bundle).unwrap();
    db.rebuild(&RebuildOptions::default().model(Some(bundle.model_id())))
        .unwrap()
}

/// Returns every file of every segment, with the time of its last change.
fn segment_files(dir: &Path) -> BTreeMap<String, std::time::SystemTime> {
    let entries = std::fs::read_dir(dir.join("segments")).unwrap();
    let files = entries.map(|entry| {
        let entry = entry.unwrap();
        let changed = entry.metadata().unwrap().modified().unwrap();
        (entry.file_name().into_string().unwrap(), changed)
    });
    files.collect()
}

fn map(random: &mut Random) -> Vec<f32> {
    // Small whole numbers, so that sums are exact in any order.
    (0..DIM * DIM)
        .map(|_| random.below(5) as f32 - 2.0)
        .collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn mapped(query: &[f32], map: &[f32]) -> Vec<f32> {
    let column = |j: usize| (0..DIM).map(|i| query[i] * map[i * DIM + j]).sum();
    (0..DIM).map(column).collect()
}

#[test]
fn a_new_scorer_changes_only_the_record_and_the_answers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut random = Random::new(61);
    let mut whole = || -> Vec<f32> { (0..DIM).map(|_| random.below(5) as f32 - 2.0).collect() };
    let vectors: Vec<Vec<f32>> = (0..500).map(|_| whole()).collect();
    let queries: Vec<Vec<f32>> = (0..5).map(|_| whole()).collect();
    let new = CreateOptions::vectors(DIM, Metric::Ip);
    // Rows stay in the tail until the test seals them.
    let options = small().seal_rows(1000);
    let db = Database::create(&path, &new, options).unwrap();
    let key = |n: usize| format!("k{n:03}");
    let rows: Vec<_> = (vectors.iter().enumerate())
        .map(|(n, vector)| put(&key(n), vector))
        .collect();
    db.insert(&rows[..300]).unwrap();
    db.seal().unwrap();
    db.insert(&rows[300..450]).unwrap();
    let base = codebooks(dir.path(), &vectors.concat(), DIM, Metric::Ip, false, 1);
    rebuild(&db, &base);
    // These rows stay in the tail.
    db.insert(&rows[450..]).unwrap();

    let map = map(&mut random);
    let scorer = Scorer::new(DIM, Some(map.clone()), None).unwrap();
    let serving = Serving::new(10, 40).unwrap();
    let learned = scored(&dir.path().join("learned"), &base, &scorer, Some(serving));
    assert_eq!(learned.codes_id(), base.codes_id());
    assert_ne!(learned.model_id(), base.model_id());
    let files = segment_files(&path);
    let tail = db.stats().unwrap().tail_rows;
    let rebuilt = rebuild(&db, &learned);
    assert_eq!((rebuilt.rows, rebuilt.encoded), (0, 0));
    assert_eq!(
        segment_files(&path),
        files,
        "no file of a segment was written"
    );
    assert_eq!((db.stats().unwrap().tail_rows, tail), (50, 50));

    let check = |hits: &[Hit], query: &[f32], candidates: usize| {
        let quantizer = base.quantizer().unwrap().unwrap();
        let table = quantizer.table(query).unwrap();
        let mut best: Vec<(usize, f32)> = (vectors.iter().enumerate())
            .map(|(n, vector)| {
                let mut code = vec![0; quantizer.shape().subspaces()];
                quantizer.quantize(vector, &mut code).unwrap();
                (n, table.score(&code))
            })
            .collect();
        let order = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        best.sort_by(order);
        best.truncate(candidates);
        let query_mapped = mapped(query, &map);
        for (n, score) in &mut best {
            *score = dot(&query_mapped, &vectors[*n]);
        }
        best.sort_by(order);
        assert_eq!(hits.len(), 10);
        for (hit, (n, score)) in hits.iter().zip(best) {
            assert_eq!((hit.key.as_str(), hit.score), (key(n).as_str(), score));
            assert_eq!(hit.similarity, Some(dot(query, &vectors[n])));
        }
    };
    let reader = Reader::open(&path, small()).unwrap();
    for query in &queries {
        // A query takes as many candidates as the bundle proposes, unless it sets another number.
        check(&db.query(query, 10).unwrap(), query, 40);
        check(&reader.query(query, 10).unwrap(), query, 40);
        let options = QueryOptions::top(10).candidates(500);
        check(&db.query_with(query, &options).unwrap(), query, 500);
        let exact = QueryOptions::top(10).search(Search::Exact);
        for hit in db.query_with(query, &exact).unwrap() {
            assert_eq!(hit.similarity, Some(hit.score), "exact search uses no map");
        }
        // A minimum similarity removes hits at any rank.
        let least = 2.0;
        let all = db
            .query_with(query, &QueryOptions::top(500).candidates(500))
            .unwrap();
        let mut kept = db
            .query_with(
                query,
                &QueryOptions::top(500).candidates(500).min_similarity(least),
            )
            .unwrap();
        let mut expected: Vec<Hit> = all;
        expected.retain(|hit| hit.similarity.unwrap() >= least);
        assert_eq!(kept, expected);
        kept = db
            .query_with(
                query,
                &QueryOptions::top(497)
                    .candidates(500)
                    .min_similarity(least)
                    .offset(3),
            )
            .unwrap();
        assert_eq!(kept, expected[3..]);
    }

    // Reopened, it answers the same; rolled back, as before.
    let before: Vec<_> = queries.iter().map(|q| db.query(q, 10).unwrap()).collect();
    db.close().unwrap();
    let db = Database::open(&path, small()).unwrap();
    for (query, before) in queries.iter().zip(&before) {
        assert_eq!(db.query(query, 10).unwrap(), *before);
    }
    rebuild(&db, &base);
    for query in &queries {
        for hit in db.query(query, 10).unwrap() {
            assert_eq!(hit.similarity, Some(hit.score));
        }
    }
    assert!(db.verify(&Default::default()).unwrap().is_sound());
}

#[test]
fn a_scorer_without_codes_orders_the_rows_of_exact_search() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut random = Random::new(62);
    let vectors: Vec<Vec<f32>> = (0..200)
        .map(|_| (0..DIM).map(|_| random.below(5) as f32 - 2.0).collect())
        .collect();
    let new = CreateOptions::vectors(DIM, Metric::Ip);
    let db = Database::create(&path, &new, small()).unwrap();
    let rows: Vec<_> = (vectors.iter().enumerate())
        .map(|(n, vector)| put(&n.to_string(), vector))
        .collect();
    db.insert(&rows).unwrap();
    let base = BundleWriter::new(dir.path().join("base"))
        .metric(Metric::Ip)
        .vectors(DIM)
        .finish()
        .unwrap();
    let map = map(&mut random);
    let scorer = Scorer::new(DIM, Some(map.clone()), Some(0.5)).unwrap();
    let learned = scored(&dir.path().join("learned"), &base, &scorer, None);
    rebuild(&db, &learned);
    let query = &vectors[7];
    let options = QueryOptions::top(20).candidates(200);
    let hits = db.query_with(query, &options).unwrap();
    let mut expected: Vec<(f32, usize)> = (vectors.iter().enumerate())
        .map(|(n, vector)| (dot(&mapped(query, &map), vector), n))
        .collect();
    expected.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let found: Vec<(f32, usize)> = (hits.iter())
        .map(|hit| (hit.score, hit.key.parse().unwrap()))
        .collect();
    assert_eq!(found, expected[..20]);
    // `exact` is another model, which always exists.
    db.rebuild(&RebuildOptions::default().model(Some(mopqdb::find_model(&path, "exact").unwrap())))
        .unwrap();
    assert!(
        db.query(query, 5)
            .unwrap()
            .iter()
            .all(|hit| hit.similarity == Some(hit.score))
    );
}
