//! A small database, a script of operations on it, and what it should hold after each of them.

use mopqdb::testing::disk::Files;
use mopqdb::{
    Bundle, CreateOptions, Database, Error, Metric, Options, RebuildOptions, Row, Snapshot,
    register_model,
};
use mopqdb_tests::support::{Oracle, Random, codebooks, put};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub const DIM: usize = 8;
pub const METRIC: Metric = Metric::Ip;

/// Seals early, on one thread, and does nothing unasked.
pub fn options() -> Options {
    Options::default()
        .threads(1)
        .seal_rows(14)
        .seal_in_background(false)
        .auto_compact(false)
        .maintenance(Duration::from_secs(3600))
}

/// One operation.
#[derive(Debug, Clone)]
pub enum Step {
    Insert(Vec<(String, Vec<f32>)>),
    Delete(Vec<String>),
    Seal,
    Compact,
    /// Under the nth of the two models.
    Rebuild(usize),
    /// Close, and open again.
    Reopen,
}

/// Operations that are the same for the same seed.
pub fn script(seed: u64, steps: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    let key = |random: &mut Random| format!("k{}", random.below(40));
    (0..steps)
        .map(|_| match random.below(100) {
            0..46 => Step::Insert(
                (0..1 + random.below(7))
                    .map(|_| (key(&mut random), random.vector(DIM)))
                    .collect(),
            ),
            46..66 => Step::Delete((0..1 + random.below(4)).map(|_| key(&mut random)).collect()),
            66..76 => Step::Seal,
            76..82 => Step::Compact,
            82..92 => Step::Rebuild(random.below(2)),
            _ => Step::Reopen,
        })
        .collect()
}

/// What a database should hold.
#[derive(Debug, Clone, Default)]
pub struct World {
    pub oracle: Oracle,
    /// Which of the two models answers.
    pub model: Option<usize>,
}

impl World {
    /// What it should hold after a step.
    pub fn after(&self, step: &Step) -> Self {
        let mut next = self.clone();
        match step {
            Step::Insert(rows) => {
                for (at, (key, vector)) in rows.iter().enumerate() {
                    // Of rows with one key the last counts, at its own place in the order.
                    if !rows[at + 1..].iter().any(|(later, _)| later == key) {
                        next.oracle.put(key, vector.clone());
                    }
                }
            }
            Step::Delete(keys) => {
                for key in keys {
                    next.oracle.remove(key);
                }
            }
            Step::Rebuild(model) => next.model = Some(*model),
            Step::Seal | Step::Compact | Step::Reopen => {}
        }
        next
    }

    pub fn rows(&self) -> BTreeMap<&str, &[f32]> {
        let rows = self.oracle.rows.iter();
        rows.map(|(key, (_, vector))| (key.as_str(), vector.as_slice()))
            .collect()
    }
}

/// What a user knows of a database that met a fault.
#[derive(Debug, Clone)]
pub struct Known {
    /// It is one of these; the first if nothing unusual happened.
    pub worlds: Vec<World>,
    /// Or, once it is opened again, one of these: the outcome of a step is unknown, and nothing was accepted since.
    unknown: Vec<World>,
    stuck: bool,
}

impl Known {
    pub fn new(world: World) -> Self {
        Self {
            worlds: vec![world],
            unknown: Vec::new(),
            stuck: false,
        }
    }

    /// Notes what came of a step.
    pub fn step(&mut self, step: &Step, outcome: Result<(), Error>) {
        match outcome {
            Ok(()) => {
                for world in &mut self.worlds {
                    let after = world.after(step);
                    // What changes nothing needs no log.
                    assert!(
                        !self.stuck || after.oracle.rows == world.oracle.rows,
                        "{step:?} was accepted after an unknown outcome"
                    );
                    *world = after;
                }
            }
            Err(error) => {
                let unknown = matches!(error, Error::OutcomeUnknown(_));
                if let Step::Rebuild(_) = step {
                    // It failed before the switch, or after it, when only tidying was left.
                    self.worlds.push(self.worlds[0].after(step));
                } else if unknown && !self.stuck {
                    self.unknown = self.worlds.iter().map(|w| w.after(step)).collect();
                }
                self.stuck |= unknown;
            }
        }
    }

    /// What it may be when it is opened again.
    pub fn reopened(&self) -> Vec<World> {
        [&self.worlds[..], &self.unknown].concat()
    }
}

/// What a snapshot holds: rows in any order, and how many there were.
pub fn held(snapshot: &Snapshot) -> mopqdb::Result<(BTreeMap<String, Vec<f32>>, usize)> {
    let mut rows = BTreeMap::new();
    let mut count = 0;
    snapshot.for_each_row(|row| {
        rows.insert(row.key.to_owned(), row.vector.to_vec());
        count += 1;
        Ok(())
    })?;
    Ok((rows, count))
}

/// The two models of every database here.
pub struct Models(pub [Bundle; 2]);

impl Models {
    pub fn train(dir: &Path) -> Self {
        let mut random = Random::new(77);
        let sample: Vec<f32> = (0..60).flat_map(|_| random.vector(DIM)).collect();
        Self([1, 2].map(|n| codebooks(dir, &sample, DIM, METRIC, n == 2, n)))
    }

    /// Those that another process trained here.
    pub fn open(dir: &Path) -> Self {
        let names = ["bundle-false-1", "bundle-true-2"];
        Self(names.map(|name| Bundle::open(dir.join(name)).unwrap()))
    }

    /// Which of the worlds this snapshot is: rows and model. Panics if it is none, or a mix.
    pub fn recognise(&self, snapshot: &Snapshot, worlds: &[World]) -> usize {
        let (rows, count) = held(snapshot).unwrap();
        assert_eq!(count, rows.len(), "no key twice");
        assert_eq!(snapshot.rows(), count as u64);
        let model = snapshot.model().id().map(|id| {
            (self.0.iter().position(|b| b.model_id() == id)).expect("one of the two models")
        });
        let found = worlds.iter().position(|world| {
            world.model == model
                && world
                    .rows()
                    .into_iter()
                    .eq(rows.iter().map(|(k, v)| (k.as_str(), v.as_slice())))
        });
        found.unwrap_or_else(|| {
            for world in worlds {
                let expected = world.rows();
                let missing: Vec<_> = expected.keys().filter(|k| !rows.contains_key(**k)).collect();
                let extra: Vec<_> =
                    (rows.keys()).filter(|k| !expected.contains_key(k.as_str())).collect();
                let other: Vec<_> = (rows.iter())
                    .filter(|(k, v)| expected.get(k.as_str()).is_some_and(|e| e != v))
                    .map(|(k, _)| k)
                    .collect();
                eprintln!(
                    "model {:?} for {model:?}; missing {missing:?}, extra {extra:?}, with another value {other:?}",
                    world.model
                );
            }
            panic!("none of {} worlds", worlds.len())
        })
    }

    /// Sees that a snapshot is one of the worlds, and answers as a plain scan of it. Which one it is.
    pub fn check(&self, snapshot: &Snapshot, worlds: &[World]) -> usize {
        let which = self.recognise(snapshot, worlds);
        let world = &worlds[which];
        let bundle = world.model.map(|model| &self.0[model]);
        let queries: Vec<Vec<f32>> = (0..2)
            .map(|q| {
                (0..DIM)
                    .map(|d| ((q * 7 + d * 3) % 5) as f32 - 2.0)
                    .collect()
            })
            .collect();
        world.oracle.check(snapshot, &queries, METRIC, bundle);
        which
    }

    /// Makes a database with the two models registered, and closes it.
    pub fn create(&self, path: &Path) {
        let db = Database::create(path, &CreateOptions::vectors(DIM, METRIC), options()).unwrap();
        for bundle in &self.0 {
            register_model(path, bundle).unwrap();
        }
        db.close().unwrap();
    }

    /// Does a step. `Reopen` is the caller's.
    pub fn run(&self, db: &Database, step: &Step) -> Result<(), Error> {
        match step {
            Step::Insert(rows) => {
                let rows: Vec<Row> = rows.iter().map(|(key, v)| put(key, v)).collect();
                db.insert(&rows).map(drop)
            }
            Step::Delete(keys) => {
                let keys: Vec<_> = keys.iter().map(String::as_str).collect();
                db.delete(&keys).map(drop)
            }
            Step::Seal => db.seal().map(drop),
            Step::Compact => db.compact().map(drop),
            Step::Rebuild(model) => {
                let options = RebuildOptions::default()
                    .model(Some(self.0[*model].model_id()))
                    .threads(1);
                db.rebuild(&options).map(drop)
            }
            Step::Reopen => unreachable!("the caller's"),
        }
    }
}

/// Opens a database on these files.
pub fn open(files: &Arc<dyn Files>, path: &Path) -> Result<Database, Error> {
    Database::open_on(Arc::clone(files), path, options())
}
