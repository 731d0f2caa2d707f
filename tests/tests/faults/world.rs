//! A small database, a script of operations on it, and its expected contents after each of them.

use mopqdb::testing::disk::Files;
use mopqdb::{
    Bundle, ColumnValue, CreateOptions, Database, Error, Metric, Options, RebuildOptions, Row,
    Snapshot, register_model,
};
use mopqdb_tests::support::{Oracle, Random, codebooks, in_cells, put};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub const DIM: usize = 8;
pub const METRIC: Metric = Metric::Ip;

/// Returns options that seal early, on one thread, without automatic work.
pub fn options() -> Options {
    Options::default()
        .threads(1)
        .seal_rows(14)
        .seal_in_background(false)
        .auto_compact(false)
        .maintenance(Duration::from_secs(3600))
}

/// A row of every database here. What it has of columns follows from its key and vector, so that it can be checked.
pub fn row(key: &str, vector: &[f32]) -> Row {
    let row = put(key, vector)
        .set("first", f64::from(vector[0]))
        .set("name", key);
    match vector[1] > 0.0 {
        true => row.set("positive", true),
        false => row,
    }
}

/// An operation.
#[derive(Debug, Clone)]
pub enum Step {
    Insert(Vec<(String, Vec<f32>)>),
    Delete(Vec<String>),
    Seal,
    Compact,
    /// Rebuilds to the nth of the two models.
    Rebuild(usize),
    /// Closes the database and opens it again.
    Reopen,
}

/// Returns operations that are the same for the same seed.
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

/// The expected contents of a database.
#[derive(Debug, Clone, Default)]
pub struct World {
    pub oracle: Oracle,
    /// Which of the two models is active.
    pub model: Option<usize>,
}

impl World {
    /// Returns the expected contents after a step.
    pub fn after(&self, step: &Step) -> Self {
        let mut next = self.clone();
        match step {
            Step::Insert(rows) => {
                for (at, (key, vector)) in rows.iter().enumerate() {
                    // If a batch has several rows with one key, the last counts, at its own place in the order.
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

/// What a user knows about a database after a fault.
#[derive(Debug, Clone)]
pub struct Known {
    /// The possible contents; the first if nothing unusual happened.
    pub worlds: Vec<World>,
    /// Further possible contents after it is opened again: the outcome of a step is unknown, and nothing was accepted
    /// since.
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

    /// Records the outcome of a step.
    pub fn step(&mut self, step: &Step, outcome: Result<(), Error>) {
        match outcome {
            Ok(()) => {
                for world in &mut self.worlds {
                    let after = world.after(step);
                    // A step that changes nothing needs no log.
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
                    // It failed before the switch, or after it, when only cleaning up was left.
                    self.worlds.push(self.worlds[0].after(step));
                } else if unknown && !self.stuck {
                    self.unknown = self.worlds.iter().map(|w| w.after(step)).collect();
                }
                self.stuck |= unknown;
            }
        }
    }

    /// Returns the possible contents after it is opened again.
    pub fn reopened(&self) -> Vec<World> {
        [&self.worlds[..], &self.unknown].concat()
    }
}

/// What a snapshot holds: rows in any order, and how many there were. Every row has its columns.
pub fn held(snapshot: &Snapshot) -> mopqdb::Result<(BTreeMap<String, Vec<f32>>, usize)> {
    held_with(snapshot, |expected, found| {
        assert_eq!(*found, expected.columns, "{:?}", expected.key);
    })
}

/// Like [`held`], with another check of what a row has of columns.
pub fn held_with(
    snapshot: &Snapshot,
    check: impl Fn(&Row, &BTreeMap<String, ColumnValue>),
) -> mopqdb::Result<(BTreeMap<String, Vec<f32>>, usize)> {
    let mut rows = BTreeMap::new();
    let mut count = 0;
    snapshot.for_each_row(|found| {
        check(&row(found.key, found.vector), &found.columns()?);
        rows.insert(found.key.to_owned(), found.vector.to_vec());
        count += 1;
        Ok(())
    })?;
    Ok((rows, count))
}

/// The two models of every database in these tests.
pub struct Models(pub [Bundle; 2]);

impl Models {
    pub fn train(dir: &Path) -> Self {
        let mut random = Random::new(77);
        let sample: Vec<f32> = (0..60).flat_map(|_| random.vector(DIM)).collect();
        Self([
            codebooks(dir, &sample, DIM, METRIC, false, 1),
            in_cells(dir, &sample, DIM, METRIC, 5, 2),
        ])
    }

    /// Opens models that another process trained here.
    pub fn open(dir: &Path) -> Self {
        let names = ["bundle-false-1", "bundle-5-cells-2"];
        Self(names.map(|name| Bundle::open(dir.join(name)).unwrap()))
    }

    /// Returns which of the worlds this snapshot is, by rows and model. Panics if it is none of them, or a mix.
    pub fn recognise(&self, snapshot: &Snapshot, worlds: &[World]) -> usize {
        let (rows, count) = held(snapshot).unwrap();
        assert_eq!(count, rows.len(), "each key occurs once");
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
            panic!("the snapshot is none of {} worlds", worlds.len())
        })
    }

    /// Checks that a snapshot is one of the worlds, and answers as a plain scan of it. Returns which world it is.
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

    /// Creates a database with the two models registered, and closes it.
    pub fn create(&self, path: &Path) {
        let db = Database::create(path, &CreateOptions::vectors(DIM, METRIC), options()).unwrap();
        for bundle in &self.0 {
            register_model(path, bundle).unwrap();
        }
        db.close().unwrap();
    }

    /// Runs a step. The caller handles `Reopen`.
    pub fn run(&self, db: &Database, step: &Step) -> Result<(), Error> {
        match step {
            Step::Insert(rows) => {
                let rows: Vec<Row> = rows.iter().map(|(key, v)| row(key, v)).collect();
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
            Step::Reopen => unreachable!("the caller handles it"),
        }
    }
}

/// Opens a database on these files.
pub fn open(files: &Arc<dyn Files>, path: &Path) -> Result<Database, Error> {
    Database::open_on(Arc::clone(files), path, options())
}
