//! Searching texts by their words: scores equal the plain formula, wherever the rows are.

use mopqdb::bundle::{Bundle, BundleWriter, tiny_bundle};
use mopqdb::{
    CreateOptions, Database, Error, FoundBy, Fusion, Hit, Language, Metric, Options, QueryOptions,
    Reader, RebuildOptions, Row, Scorer, Search, WordsSettings, register_model,
};
use mopqdb_tests::support::{Random, small};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Returns a text of words with few letters, so that many rows share some.
fn text(random: &mut Random) -> String {
    let words = 1 + random.below(12);
    let word = |random: &mut Random| ["ant", "bee", "cat", "dog", "elk", "fox"][random.below(6)];
    let words: Vec<&str> = (0..words).map(|_| word(random)).collect();
    words.join(" ")
}

fn plain_words() -> WordsSettings {
    WordsSettings::default().language(Language::None)
}

fn create(path: &Path, options: Options) -> Database {
    let new = CreateOptions::bundle(tiny_bundle()).words(plain_words());
    Database::create(path, &new, options).unwrap()
}

/// Returns BM25 of every row, as in a textbook: key and score, best first, ties in the order of insertion.
fn bm25(rows: &[(String, String)], query: &str) -> Vec<(String, f64)> {
    let terms: BTreeSet<&str> = query.split(' ').collect();
    let n = rows.len() as f64;
    let lens = rows.iter().map(|(_, text)| text.split(' ').count());
    let average = lens.sum::<usize>() as f64 / n;
    let tf = |text: &str, term: &str| text.split(' ').filter(|word| *word == term).count() as f64;
    let mut scores: Vec<(String, f64)> = Vec::new();
    for (key, text) in rows {
        let len = text.split(' ').count() as f64;
        let mut score = 0.0;
        for term in &terms {
            let df = rows.iter().filter(|(_, text)| tf(text, term) > 0.0).count() as f64;
            let idf = (1.0 + (n - df + 0.5) / (df + 0.5)).ln();
            let tf = tf(text, term);
            score += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * len / average));
        }
        if score > 0.0 {
            scores.push((key.clone(), score));
        }
    }
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    scores
}

fn by_words(k: usize) -> QueryOptions {
    QueryOptions::top(k).search(Search::Words)
}

#[test]
fn scores_equal_the_plain_formula_wherever_the_rows_are() {
    let mut random = Random::new(81);
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut steps: Vec<(Vec<Row>, Vec<String>)> = Vec::new();
    for batch in 0..8 {
        let mut put = Vec::new();
        for _ in 0..30 {
            let (key, text) = (format!("k{}", random.below(150)), text(&mut random));
            if put.iter().any(|row: &Row| row.key == key) {
                continue;
            }
            // A replaced row counts as a new one, at the end.
            if !rows.iter().any(|row| *row == (key.clone(), text.clone())) {
                rows.retain(|(other, _)| *other != key);
                rows.push((key.clone(), text.clone()));
            }
            put.push(Row::text(key, text));
        }
        let mut gone = Vec::new();
        if batch % 2 == 1 {
            gone = rows.iter().step_by(9).map(|(key, _)| key.clone()).collect();
            rows.retain(|(key, _)| !gone.contains(key));
        }
        steps.push((put, gone));
    }
    let queries = [
        "ant",
        "bee cat",
        "cat bee",
        "dog dog elk",
        "fox ant bee cat dog elk",
        "gnu",
        "ant gnu",
    ];
    let dir = tempfile::tempdir().unwrap();
    let mut first: Option<Vec<Vec<Hit>>> = None;
    for (n, seal_rows) in [20, 70, 1_000_000].into_iter().enumerate() {
        let path = dir.path().join(n.to_string());
        let db = create(&path, small().seal_rows(seal_rows));
        for (put, gone) in &steps {
            db.insert(put).unwrap();
            let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
            db.delete(&gone).unwrap();
        }
        let ask = |db: &mopqdb::Handle| -> Vec<Vec<Hit>> {
            let queries = queries.iter();
            queries
                .map(|query| db.query_with(*query, &by_words(500)).unwrap())
                .collect()
        };
        let answers = ask(&db);
        for (query, hits) in queries.iter().zip(&answers) {
            let expected = bm25(&rows, query);
            assert_eq!(hits.len(), expected.len(), "{query}");
            for (hit, (_, score)) in hits.iter().zip(&expected) {
                assert!(
                    (f64::from(hit.score) - score).abs() < 1e-4,
                    "{query}: {hit:?} {score}"
                );
                assert_eq!((hit.words, hit.similarity), (Some(hit.score), None));
                assert_eq!(hit.found_by, Some(FoundBy::Words));
                let own = expected.iter().find(|(key, _)| *key == hit.key);
                assert!((own.unwrap().1 - f64::from(hit.score)).abs() < 1e-4);
            }
            assert!(hits.windows(2).all(|two| {
                two[0].score > two[1].score
                    || two[0].score == two[1].score && two[0].seq < two[1].seq
            }));
        }
        let bits = |answers: &[Vec<Hit>]| -> Vec<Vec<(String, u32)>> {
            let hits = |hits: &Vec<Hit>| {
                hits.iter()
                    .map(|hit| (hit.key.clone(), hit.score.to_bits()))
                    .collect()
            };
            answers.iter().map(hits).collect()
        };
        match &first {
            Some(first) => assert_eq!(bits(first), bits(&answers), "{seal_rows} rows per segment"),
            None => first = Some(answers.clone()),
        }
        assert_eq!(
            bits(&ask(&Reader::open(&path, small()).unwrap())),
            bits(&answers)
        );
        db.compact().unwrap();
        assert_eq!(bits(&ask(&db)), bits(&answers));
        db.close().unwrap();
        let db = Database::open(&path, small()).unwrap();
        assert_eq!(bits(&ask(&db)), bits(&answers));
        let verified = db.verify(&Default::default()).unwrap();
        assert!(verified.is_sound(), "{:?}", verified.problems);
        // Pages, and a filter, which does not change the statistics over all rows.
        let all = &answers[1];
        let page = db.query_with("bee cat", &by_words(5).offset(3)).unwrap();
        assert_eq!(page, all[3..8]);
        let filter = mopqdb::Filter::Prefix("k1".into());
        let among = db
            .query_with("bee cat", &by_words(500).among(filter))
            .unwrap();
        let expected: Vec<Hit> = all
            .iter()
            .filter(|hit| hit.key.starts_with("k1"))
            .cloned()
            .collect();
        assert_eq!(among, expected);
    }
}

fn rebuild(db: &Database, bundle: &Bundle) {
    register_model(db.dir(), bundle).unwrap();
    let options = RebuildOptions::default().model(bundle.model_id());
    db.rebuild(&options).unwrap();
}

#[test]
fn auto_adds_the_weighted_words_to_the_similarity() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::new(82);
    let db = create(&dir.path().join("db"), small());
    let rows: Vec<Row> = (0..200)
        .map(|n| Row::text(format!("k{n:03}"), text(&mut random)))
        .collect();
    db.insert(&rows).unwrap();
    let base = Bundle::open(tiny_bundle()).unwrap();
    let query = "bee cat fox";
    let words: BTreeMap<String, f32> = (db.query_with(query, &by_words(500)).unwrap().into_iter())
        .map(|hit| (hit.key, hit.score))
        .collect();
    let exact = QueryOptions::top(500).search(Search::Exact);
    let similarities: BTreeMap<String, f32> = (db.query_with(query, &exact).unwrap().into_iter())
        .map(|hit| (hit.key, hit.score))
        .collect();
    let auto = QueryOptions::top(500).candidates(500);
    // The default weight for cosine, then a learned one, then none.
    for weight in [0.008_f32, 0.25, 0.0] {
        if weight != 0.008 {
            let scorer = Scorer::new(32, None, Some(weight)).unwrap();
            let learned = BundleWriter::new(dir.path().join(format!("w{weight}")))
                .encoder_from(&base)
                .scorer(&scorer)
                .finish()
                .unwrap();
            rebuild(&db, &learned);
        }
        let hits = db.query_with(query, &auto).unwrap();
        assert_eq!(hits.len(), 200);
        for hit in &hits {
            let (own, similarity) = (words.get(&hit.key), similarities[&hit.key]);
            assert_eq!(hit.similarity, Some(similarity));
            match weight == 0.0 {
                true => assert_eq!((hit.words, hit.score), (None, similarity)),
                false => {
                    let own = own.copied().unwrap_or(0.0);
                    assert_eq!(hit.words, Some(own));
                    assert_eq!(hit.score, similarity + weight * own);
                    let by = match own > 0.0 {
                        true => FoundBy::Both,
                        false => FoundBy::Vectors,
                    };
                    assert_eq!(hit.found_by, Some(by));
                }
            }
        }
        assert!(hits.windows(2).all(|two| two[0].score >= two[1].score));
        // A query by vector has no words.
        let vector = db.model().encode_queries(&[query]).unwrap();
        for hit in db.query_with(&vector, &QueryOptions::top(5)).unwrap() {
            assert_eq!((hit.words, hit.similarity), (None, Some(hit.score)));
        }
    }
    // With few candidates, a row that only its words find is included too.
    let few = QueryOptions::top(3).candidates(3);
    for hit in db.query_with(query, &few).unwrap() {
        assert!(similarities.contains_key(&hit.key));
    }
    // Reciprocal ranks, computed here.
    let rank = |scores: &BTreeMap<String, f32>| -> BTreeMap<String, usize> {
        let mut order: Vec<(&String, f32)> =
            scores.iter().map(|(key, score)| (key, *score)).collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        let ranks = order.into_iter().enumerate();
        ranks
            .map(|(rank, (key, _))| (key.clone(), rank + 1))
            .collect()
    };
    let (by_similarity, by_words) = (rank(&similarities), rank(&words));
    let fused = db
        .query_with(query, &auto.fusion(Fusion::ReciprocalRank))
        .unwrap();
    assert_eq!(fused.len(), 200);
    for hit in fused {
        let part = |ranks: &BTreeMap<String, usize>| {
            ranks
                .get(&hit.key)
                .map_or(0.0, |&rank| 1.0 / (60.0 + rank as f32))
        };
        let expected = part(&by_similarity) + part(&by_words);
        assert!((hit.score - expected).abs() < 1e-7, "{hit:?} {expected}");
    }
}

#[test]
fn statistics_of_a_model_do_not_change_with_new_rows() {
    let dir = tempfile::tempdir().unwrap();
    let db = create(&dir.path().join("db"), small());
    db.insert(&[Row::text("a", "ant bee"), Row::text("b", "bee bee cat")])
        .unwrap();
    let statistics = db.snapshot().term_statistics().unwrap().unwrap();
    let base = Bundle::open(tiny_bundle()).unwrap();
    let frozen = BundleWriter::new(dir.path().join("frozen"))
        .encoder_from(&base)
        .scorer(&Scorer::new(32, None, Some(0.1)).unwrap())
        .statistics(&statistics)
        .finish()
        .unwrap();
    let before = db.query_with("bee", &by_words(2)).unwrap();
    rebuild(&db, &frozen);
    assert_eq!(db.query_with("bee", &by_words(2)).unwrap(), before);
    db.insert(&[Row::text("c", "bee dog elk fox ant")]).unwrap();
    let after = db.query_with("bee", &by_words(9)).unwrap();
    for hit in &before {
        assert!(after.contains(hit), "{hit:?} of {after:?}");
    }
    assert_eq!(after.len(), 3);
}

#[test]
fn word_search_without_words_is_an_error_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let ask = |db: &Database| db.query_with("ant", &by_words(3)).unwrap_err().to_string();
    let vectors = CreateOptions::vectors(4, Metric::Ip);
    let db = Database::create(dir.path().join("v"), &vectors, small()).unwrap();
    assert!(ask(&db).contains("no words to search by"), "{}", ask(&db));
    let without = CreateOptions::bundle(tiny_bundle()).words(None);
    let db = Database::create(dir.path().join("w"), &without, small()).unwrap();
    db.insert(&[Row::text("a", "ant")]).unwrap();
    assert!(ask(&db).contains("no words to search by"));
    // This was decided at creation: a rebuild of the active model does not add them.
    let options = RebuildOptions::default().model(db.model().model_id());
    db.rebuild(&options).unwrap();
    assert!(ask(&db).contains("no words to search by"));
    let db = create(&dir.path().join("x"), small());
    db.insert(&[Row::text("a", "ant")]).unwrap();
    for (query, hits) in [
        ("", 0),
        (" ", 0),
        ("\u{1}\u{2}", 0),
        ("the", 0),
        ("ant\u{0}", 1),
    ] {
        assert_eq!(
            db.query_with(query, &by_words(3)).unwrap().len(),
            hits,
            "{query:?}"
        );
    }
    let vector = vec![0.5; 32];
    let error = db.query_with(&vector, &by_words(3)).unwrap_err();
    assert!(
        error.to_string().contains("no words to search for"),
        "{error}"
    );
    let least = by_words(3).min_similarity(0.5);
    assert!(matches!(
        db.query_with("ant", &least),
        Err(Error::Invalid(_))
    ));
}

#[test]
fn rebuild_and_repair_write_a_lost_word_index_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = create(&path, small());
    let rows: Vec<Row> = (0..40)
        .map(|n| Row::text(n.to_string(), format!("ant {n}")))
        .collect();
    db.insert(&rows).unwrap();
    db.seal().unwrap();
    let answer = db.query_with("ant 7", &by_words(50)).unwrap();
    db.close().unwrap();
    let lose = || {
        for entry in std::fs::read_dir(path.join("segments")).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_some_and(|end| end == "words") {
                std::fs::remove_file(file).unwrap();
            }
        }
    };
    lose();
    let db = Database::open(&path, small()).unwrap();
    let error = db.query_with("ant 7", &by_words(50)).unwrap_err();
    assert!(
        error.to_string().contains("rebuild of the active model"),
        "{error}"
    );
    // Without words for every part, no words are searched.
    assert!(
        db.query("ant 7", 3)
            .unwrap()
            .iter()
            .all(|hit| hit.words.is_none())
    );
    let options = RebuildOptions::default().model(db.model().model_id());
    let rebuilt = db.rebuild(&options).unwrap();
    assert_eq!((rebuilt.indexed, rebuilt.encoded, rebuilt.rows), (40, 0, 0));
    assert_eq!(db.query_with("ant 7", &by_words(50)).unwrap(), answer);
    assert_eq!(
        db.rebuild(&options).unwrap().indexed,
        0,
        "nothing is missing"
    );
    db.close().unwrap();
    lose();
    let repaired = mopqdb::repair(&path, &Default::default()).unwrap();
    assert!(
        repaired
            .done
            .iter()
            .any(|line| line.contains("words of 40 texts")),
        "{repaired:?}"
    );
    let db = Database::open(&path, small()).unwrap();
    assert_eq!(db.query_with("ant 7", &by_words(50)).unwrap(), answer);
}
