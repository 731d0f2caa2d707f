//! Filters against brute force: random columns, rows and expressions, with deletions, compaction and opening again.

use mopqdb::columns::{ColumnType, ColumnValue};
use mopqdb::quantizer::TrainPq;
use mopqdb::{
    CreateOptions, Database, Filter, LearnOptions, Metric, QueryOptions, RebuildOptions, Row,
    Search, Watch,
};
use mopqdb_tests::support::{Random, small};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

const DIM: usize = 4;
const STRINGS: [&str; 6] = ["", "a", "ab", "b", "größe", "z%"];

/// What the database should hold.
struct World {
    schema: Vec<(String, ColumnType)>,
    rows: BTreeMap<String, Row>,
}

fn value(random: &mut Random, kind: ColumnType) -> ColumnValue {
    let string = |random: &mut Random| STRINGS[random.below(STRINGS.len())];
    match kind {
        _ if random.below(4) == 0 => ColumnValue::Null,
        ColumnType::Bool => (random.below(2) == 0).into(),
        ColumnType::Int => (random.below(20) as i64 - 10).into(),
        ColumnType::Float => (random.below(20) as f64 / 2.0 - 5.0).into(),
        ColumnType::String => string(random).into(),
        ColumnType::Strings => {
            let count = random.below(3);
            let items: Vec<&str> = (0..count).map(|_| string(random)).collect();
            items.into()
        }
        ColumnType::Timestamp => ColumnValue::Timestamp(random.below(5) as i64 * 86_400_000_000),
    }
}

/// An expression as it is written, and what it says of a row.
type Expr = (String, Box<dyn Fn(&Row) -> Option<bool>>);

fn literal(value: &ColumnValue) -> String {
    match value {
        ColumnValue::Null => "NULL".into(),
        ColumnValue::Bool(is) => is.to_string(),
        ColumnValue::Int(number) => number.to_string(),
        ColumnValue::Float(number) => format!("{number:?}"),
        ColumnValue::String(text) => format!("'{text}'"),
        other => other.to_json().to_string().replace('"', "'"),
    }
}

fn compare(a: &ColumnValue, b: &ColumnValue) -> Option<Ordering> {
    match (a, b) {
        (ColumnValue::Bool(a), ColumnValue::Bool(b)) => Some(a.cmp(b)),
        (ColumnValue::Int(a), ColumnValue::Int(b))
        | (ColumnValue::Timestamp(a), ColumnValue::Timestamp(b)) => Some(a.cmp(b)),
        (ColumnValue::Float(a), ColumnValue::Float(b)) => a.partial_cmp(b),
        (ColumnValue::String(a), ColumnValue::String(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

fn of(row: &Row, name: &str) -> ColumnValue {
    row.columns.get(name).cloned().unwrap_or(ColumnValue::Null)
}

fn leaf(random: &mut Random, world: &World) -> Expr {
    let (name, kind) = world.schema[random.below(world.schema.len())].clone();
    if random.below(6) == 0 {
        let negated = random.below(2) == 0;
        let text = format!("{name} IS {}NULL", if negated { "NOT " } else { "" });
        return (
            text,
            Box::new(move |row| Some((of(row, &name) == ColumnValue::Null) != negated)),
        );
    }
    if kind == ColumnType::Strings {
        let item = STRINGS[random.below(STRINGS.len())];
        let text = format!("{name} HAS '{item}'");
        return (
            text,
            Box::new(move |row| match of(row, &name) {
                ColumnValue::Strings(items) => Some(items.iter().any(|has| has == item)),
                _ => None,
            }),
        );
    }
    if kind == ColumnType::String && random.below(4) == 0 {
        let prefix = ["a", "gr", ""][random.below(3)];
        let text = format!("{name} LIKE '{prefix}%'");
        return (
            text,
            Box::new(move |row| match of(row, &name) {
                ColumnValue::String(text) => Some(text.starts_with(prefix)),
                _ => None,
            }),
        );
    }
    if random.below(4) == 0 {
        let values: Vec<_> = (0..1 + random.below(3))
            .map(|_| value(random, kind))
            .collect();
        let list: Vec<String> = values.iter().map(literal).collect();
        let text = format!("{name} IN ({})", list.join(", "));
        return (
            text,
            Box::new(move |row| {
                let own = of(row, &name);
                let equal = values
                    .iter()
                    .any(|v| compare(&own, v) == Some(Ordering::Equal));
                let null = own == ColumnValue::Null || values.contains(&ColumnValue::Null);
                (equal || !null).then_some(equal)
            }),
        );
    }
    let ops = match kind {
        ColumnType::Bool => &["=", "!="][..],
        _ => &["=", "!=", "<", "<=", ">", ">="],
    };
    let op = ops[random.below(ops.len())];
    let with = value(random, kind);
    let text = format!("{name} {op} {}", literal(&with));
    (
        text,
        Box::new(move |row| {
            let order = compare(&of(row, &name), &with)?;
            Some(match op {
                "=" => order.is_eq(),
                "!=" => order.is_ne(),
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                _ => order.is_ge(),
            })
        }),
    )
}

fn expr(random: &mut Random, world: &World, depth: usize) -> Expr {
    match random.below(if depth == 0 { 1 } else { 6 }) {
        0 | 1 => leaf(random, world),
        2 => {
            let (text, says) = expr(random, world, depth - 1);
            (
                format!("NOT ({text})"),
                Box::new(move |row| says(row).map(|is| !is)),
            )
        }
        3 => {
            let (text, says) = expr(random, world, depth - 1);
            (
                format!("({text}) IS NOT TRUE"),
                Box::new(move |row| Some(says(row) != Some(true))),
            )
        }
        which => {
            let ((a, says_a), (b, says_b)) = (
                expr(random, world, depth - 1),
                expr(random, world, depth - 1),
            );
            let (word, decides) = if which == 4 {
                ("AND", false)
            } else {
                ("OR", true)
            };
            (
                format!("({a}) {word} ({b})"),
                Box::new(move |row| {
                    let both = [says_a(row), says_b(row)];
                    match both.contains(&Some(decides)) {
                        true => Some(decides),
                        false => (!both.contains(&None)).then_some(!decides),
                    }
                }),
            )
        }
    }
}

fn vector(random: &mut Random) -> Vec<f32> {
    (0..DIM).map(|_| random.below(9) as f32 - 4.0).collect()
}

impl World {
    fn new(random: &mut Random) -> Self {
        let count = 2 + random.below(4);
        let kind = |random: &mut Random| ColumnType::ALL[random.below(ColumnType::ALL.len())];
        let schema = (0..count)
            .map(|at| (format!("c{at}"), kind(random)))
            .collect();
        Self {
            schema,
            rows: BTreeMap::new(),
        }
    }

    fn row(&self, random: &mut Random, key: usize) -> Row {
        let key = key.to_string();
        // Some rows change their columns alone.
        let vector = match self.rows.get(&key).filter(|_| random.below(2) == 0) {
            Some(Row {
                value: mopqdb::Value::Vector(vector),
                ..
            }) => vector.clone(),
            _ => vector(random),
        };
        let columns = self.schema.iter();
        columns.fold(Row::vector(key, vector), |row, (name, kind)| {
            match value(random, *kind) {
                ColumnValue::Null => row,
                value => row.set(name, value),
            }
        })
    }

    fn step(&mut self, random: &mut Random, mut db: Database, path: &Path) -> Database {
        match random.below(12) {
            0..=4 => {
                let rows: Vec<Row> = (0..1 + random.below(60))
                    .map(|_| {
                        let key = random_key(random);
                        self.row(random, key)
                    })
                    .collect();
                db.insert(&rows).unwrap();
                self.rows
                    .extend(rows.into_iter().map(|row| (row.key.clone(), row)));
            }
            5 => {
                let keys: Vec<String> = (0..20).map(|_| random_key(random).to_string()).collect();
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                db.delete(&keys).unwrap();
                keys.iter().for_each(|&key| drop(self.rows.remove(key)));
            }
            6 => {
                let (text, says) = expr(random, self, 1);
                let deleted = db.delete_where(&Filter::sql(&text).unwrap(), &Watch::new());
                let before = self.rows.len();
                self.rows.retain(|_, row| says(row) != Some(true));
                assert_eq!(
                    deleted.unwrap() as usize,
                    before - self.rows.len(),
                    "{text}"
                );
            }
            7 => {
                let (text, says) = expr(random, self, 1);
                let (name, kind) = &self.schema[random.below(self.schema.len())];
                let to = value(random, *kind);
                let set = [(&name[..], to.clone())];
                let filter = Filter::sql(&text).unwrap();
                db.update_where(&filter, &set, &Watch::new()).unwrap();
                for row in self.rows.values_mut().filter(|row| says(row) == Some(true)) {
                    match &to {
                        ColumnValue::Null => drop(row.columns.remove(name)),
                        to => drop(row.columns.insert(name.clone(), to.clone())),
                    }
                }
            }
            8 => drop(db.seal().unwrap()),
            9 => drop(db.compact().unwrap()),
            _ => {
                db.close().unwrap();
                db = Database::open(path, small()).unwrap();
            }
        }
        db
    }

    /// The database returns the best among exactly the rows that pass.
    fn check(&self, random: &mut Random, db: &Database, searches: &[Search]) {
        for (key, row) in &self.rows {
            assert_eq!(db.get(key).unwrap().as_ref(), Some(row));
        }
        let names: Vec<&str> = self.schema.iter().map(|(name, _)| &name[..]).collect();
        for _ in 0..6 {
            let (text, says) = expr(random, self, 3);
            let mut filter = Filter::sql(&text).unwrap();
            let prefix = random.below(10).to_string();
            let with_prefix = random.below(3) == 0;
            if with_prefix {
                filter = filter.and(Filter::Prefix(prefix.clone()));
            }
            let passes = |key: &str| {
                says(&self.rows[key]) == Some(true) && (!with_prefix || key.starts_with(&prefix))
            };
            let expected: Vec<&String> = self.rows.keys().filter(|key| passes(key)).collect();
            let count = db.count_where(&filter).unwrap() as usize;
            assert_eq!(count, expected.len(), "{text}");
            let query = vector(random);
            for &search in searches {
                let all = QueryOptions::top(10_000).search(search);
                let mut best = db.query_with(&query, &all).unwrap();
                assert_eq!(best.len(), self.rows.len());
                best.retain(|hit| passes(&hit.key));
                for k in [1, 10, 1000] {
                    let among = QueryOptions::top(k).search(search).among(filter.clone());
                    let hits = db
                        .query_with(&query, &among.columns(names.clone()))
                        .unwrap();
                    let scores = |hits: &[mopqdb::Hit]| -> Vec<(String, f32)> {
                        hits.iter()
                            .map(|hit| (hit.key.clone(), hit.score))
                            .collect()
                    };
                    assert_eq!(scores(&hits), scores(&best[..k.min(best.len())]), "{text}");
                    for hit in &hits {
                        for (name, value) in &hit.columns {
                            assert_eq!(*value, of(&self.rows[&hit.key], name));
                        }
                    }
                }
            }
        }
    }
}

fn random_key(random: &mut Random) -> usize {
    random.below(400)
}

#[test]
fn the_best_rows_that_pass_are_found_as_brute_force_finds_them() {
    let seeds = match std::env::var_os("MOPQDB_TORTURE") {
        Some(_) => 0..300,
        None => 0..8,
    };
    for seed in seeds {
        let mut random = Random::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let new = CreateOptions::vectors(DIM, Metric::Ip);
        let mut db = Database::create(&path, &new, small()).unwrap();
        let mut world = World::new(&mut random);
        // Every column is there from the first row on, so that it can be asked for.
        let full = world
            .schema
            .iter()
            .fold(Row::vector("0", [0.0; DIM]), |row, (name, kind)| {
                let mut one = ColumnValue::Null;
                while one == ColumnValue::Null {
                    one = value(&mut random, *kind);
                }
                row.set(name, one)
            });
        db.insert(std::slice::from_ref(&full)).unwrap();
        world.rows.insert("0".into(), full);
        let mut searches = vec![Search::Exact];
        for step in 0..40 {
            db = world.step(&mut random, db, &path);
            if step == 20 && world.rows.len() >= 32 {
                let codes = TrainPq::default().subspaces(2).codewords(16);
                let model = db.learn(&LearnOptions::default().pq(codes)).unwrap();
                db.rebuild(&RebuildOptions::default().model(model)).unwrap();
                searches.push(Search::Codes);
            }
            if step % 4 == 3 {
                world.check(&mut random, &db, &searches);
            }
        }
        assert!(
            db.verify(&mopqdb::VerifyOptions::default().deep(true))
                .unwrap()
                .is_sound()
        );
    }
}
