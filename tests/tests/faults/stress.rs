//! A writer, a compactor, a rebuilder and eight readers at once.

use crate::support::Random;
use crate::world::{DIM, METRIC, Models, options};
use crate::{scratch, torture};
use mopqdb::{Database, Options, Reader, RebuildOptions, Row};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pairs of rows that are written together, each pair with the round in which it was written as its first value. A query
/// must find both halves of a pair from the same round, and nothing older than was acknowledged before it began.
#[test]
fn queries_are_whole_and_fresh_while_others_write_compact_and_rebuild() {
    const PAIRS: usize = 24;
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    models.create(&path);
    let db = Database::open(
        &path,
        Options {
            maintenance: Duration::from_millis(20),
            auto_compact: true,
            ..options()
        },
    )
    .unwrap();
    let acknowledged: Vec<AtomicU64> = (0..PAIRS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let time = Duration::from_secs(if torture() { 120 } else { 8 });
    let counts = [const { AtomicU64::new(0) }; 4];
    let [queries, compactions, rebuilds, rounds] = &counts;
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (db, path, stop, acknowledged) = (&db, &path, &stop, &acknowledged);
            scope.spawn(move || {
                // Every other one as another process would.
                let other = (n % 2 == 1).then(|| Reader::open(path, options()).unwrap());
                let mut old = None;
                while !stop.load(Ordering::SeqCst) {
                    let before: Vec<u64> = acknowledged
                        .iter()
                        .map(|a| a.load(Ordering::SeqCst))
                        .collect();
                    let snapshot = match &other {
                        None => db.snapshot(),
                        Some(reader) => {
                            reader.refresh().unwrap();
                            reader.snapshot()
                        }
                    };
                    let hits = snapshot.query(&[1.0; DIM][..], 1000).unwrap();
                    queries.fetch_add(1, Ordering::SeqCst);
                    let mut found: HashMap<String, u64> = HashMap::new();
                    for hit in &hits {
                        let Some(Row {
                            value: mopqdb::Value::Vector(vector),
                            ..
                        }) = snapshot.get(&hit.key).unwrap()
                        else {
                            panic!("{} was found and is not there", hit.key)
                        };
                        let again = found.insert(hit.key.clone(), vector[0] as u64);
                        assert!(again.is_none(), "{} twice", hit.key);
                    }
                    for (pair, &least) in before.iter().enumerate() {
                        let halves =
                            ["l", "r"].map(|side| found.get(&format!("{side}{pair}")).copied());
                        assert_eq!(halves[0], halves[1], "pair {pair}");
                        assert!(
                            halves[0].unwrap_or(0) >= least,
                            "pair {pair}: {halves:?}, {least} was acknowledged"
                        );
                    }
                    // One that is held on to stays as it was, whatever is retired.
                    let kept = old.get_or_insert_with(|| (snapshot.clone(), hits.clone()));
                    assert_eq!(kept.0.query(&[1.0; DIM][..], 1000).unwrap(), kept.1);
                    if queries.load(Ordering::SeqCst) % 50 == 0 {
                        old = None;
                    }
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                db.compact().unwrap();
                compactions.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        scope.spawn(|| {
            for n in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let wanted = RebuildOptions {
                    model: Some(models.0[n % 2].model_id()),
                    threads: 1,
                    ..RebuildOptions::default()
                };
                // From within, and as another process would, which leaves the commit to this one.
                if n % 2 == 0 {
                    db.rebuild(&wanted).unwrap();
                } else {
                    mopqdb::rebuild(&path, &wanted).unwrap();
                }
                rebuilds.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut random = Random::new(1001);
        let started = Instant::now();
        let mut round = 0u64;
        while started.elapsed() < time {
            round += 1;
            let pair = random.below(PAIRS);
            let mut vector = random.vector(DIM);
            vector[0] = round as f32;
            let rows = ["l", "r"].map(|side| Row::vector(format!("{side}{pair}"), vector.clone()));
            db.insert(&rows).unwrap();
            acknowledged[pair].store(round, Ordering::SeqCst);
        }
        rounds.store(round, Ordering::SeqCst);
        stop.store(true, Ordering::SeqCst);
    });
    let [queries, compactions, rebuilds, rounds] = counts.map(AtomicU64::into_inner);
    println!(
        "{rounds} writes, {queries} queries, {compactions} compactions, {rebuilds} rebuilds ({METRIC})"
    );
    assert!(rebuilds > 0 && compactions > 0 && queries > 100);
}
