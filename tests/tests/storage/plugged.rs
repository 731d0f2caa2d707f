//! Databases whose encoder the program brings.

use mopqdb::encoder::Encoder;
use mopqdb::{
    CreateOptions, Database, Error, Metric, Options, QueryOptions, Result, RowBatch, Search, Watch,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Counts letters, does not normalise, and knows words that it refuses.
struct Letters {
    /// Set by the word `stop`.
    stop: Arc<AtomicBool>,
}

impl Encoder for Letters {
    fn name(&self) -> String {
        "letters-1".into()
    }

    fn dim(&self) -> usize {
        26
    }

    fn encode_keys(&self, texts: &[&str]) -> Result<Vec<f32>> {
        if texts.contains(&"stop") {
            self.stop.store(true, Ordering::Relaxed);
        }
        if texts.contains(&"fail") {
            let own = std::io::Error::other("of the program's own");
            return Err(Error::encoder("letters-1 has failed", own));
        }
        if texts.contains(&"short") {
            return Ok(vec![1.0; 26 * texts.len() - 1]);
        }
        let count = |text: &str, letter| text.bytes().filter(|&b| b == letter).count() as f32;
        let texts = texts.iter();
        Ok(texts
            .flat_map(|text| (b'a'..=b'z').map(|letter| count(text, letter)))
            .collect())
    }

    fn encode_queries(&self, texts: &[&str]) -> Result<Vec<f32>> {
        self.encode_keys(texts)
    }
}

/// A database in a directory that goes away with it, and what stops its inserts.
fn database(metric: Metric) -> (tempfile::TempDir, Database, Watch) {
    let dir = tempfile::tempdir().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let encoder = Arc::new(Letters {
        stop: Arc::clone(&stop),
    });
    let new = CreateOptions::encoder(encoder, metric);
    let db = Database::create(dir.path().join("db"), &new, Options::default()).unwrap();
    (dir, db, Watch::new().stop_when(stop))
}

fn insert(db: &Database, texts: &[&str], watch: &Watch) -> Result<u64> {
    let keys: Vec<String> = (0..texts.len()).map(|at| at.to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let inserted = db.insert_watched(RowBatch::texts(&keys, texts)?, watch)?;
    Ok(inserted.rows())
}

#[test]
fn what_an_encoder_gives_is_normalised_for_cosine_and_for_nothing_else() {
    for (metric, expected) in [(Metric::Cosine, 1.0), (Metric::Ip, 14.0)] {
        let (_dir, db, watch) = database(metric);
        insert(&db, &["banana"], &watch).unwrap();
        let exact = QueryOptions::top(1).search(Search::Exact);
        let hits = db.query_with("banana", &exact).unwrap();
        assert!(
            (hits[0].score - expected).abs() < 1e-2,
            "{metric}: {hits:?}"
        );
    }
}

#[test]
fn what_can_not_be_stored_is_refused() {
    let (_dir, db, watch) = database(Metric::Cosine);
    for (text, words) in [
        ("123", "zeros for the text \"123\""),
        ("short", "25 values for 1 texts"),
        ("fail", "letters-1 has failed"),
    ] {
        let error = insert(&db, &[text], &watch).unwrap_err();
        assert!(matches!(error, Error::Model(_)), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(db.is_empty());
}

#[test]
fn the_error_of_an_encoder_is_the_source_of_ours() {
    let (_dir, db, watch) = database(Metric::Ip);
    let error = insert(&db, &["fail"], &watch).unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    assert!(source.is::<std::io::Error>(), "{source}");
}

#[test]
fn an_insert_that_is_stopped_while_it_encodes_changes_nothing() {
    let (_dir, db, watch) = database(Metric::Ip);
    let error = insert(&db, &["banana", "stop"], &watch).unwrap_err();
    assert!(matches!(error, Error::Cancelled(_)), "{error}");
    assert!(db.is_empty());
    insert(&db, &["banana"], &Watch::new()).unwrap();
    assert_eq!(db.len(), 1);
}
