//! A database of colours, as a program that links the engine uses it: `cargo run --example colours`.

use mopqdb::{CreateOptions, Database, Filter, Metric, Options, QueryOptions, Reader, Row};

const COLOURS: [(&str, [f32; 3]); 8] = [
    ("warm/red", [1.0, 0.0, 0.0]),
    ("warm/orange", [1.0, 0.6, 0.0]),
    ("warm/yellow", [1.0, 1.0, 0.0]),
    ("cold/green", [0.0, 0.6, 0.1]),
    ("cold/cyan", [0.0, 1.0, 1.0]),
    ("cold/blue", [0.0, 0.0, 1.0]),
    ("cold/navy", [0.0, 0.0, 0.5]),
    ("warm/brown", [0.6, 0.3, 0.1]),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("colours.db");

    // One process writes.
    let db = Database::create(
        &path,
        &CreateOptions::vectors(3, Metric::L2),
        Options::default(),
    )?;
    let rows: Vec<Row> = COLOURS
        .iter()
        .map(|(name, rgb)| Row::vector(*name, *rgb))
        .collect();
    let inserted = db.insert(&rows)?;
    println!("{} colours are durable", inserted.new);

    // Any number of other processes read at the same time.
    let reader = Reader::open(&path, Options::default())?;
    println!("closest to tomato:");
    for hit in reader.query(&[1.0, 0.39, 0.28], 3)? {
        println!("  {:7.3}  {}", hit.score, hit.key);
    }
    println!("closest to tomato among cold ones:");
    let cold = QueryOptions::top(1).among(Filter::Prefix("cold/".into()));
    for hit in reader.query_with(&[1.0, 0.39, 0.28], &cold)? {
        println!("  {:7.3}  {}", hit.score, hit.key);
    }

    // A reader sees a change when it asks for it.
    db.delete(&["warm/brown"])?;
    assert!(reader.get("warm/brown")?.is_some());
    reader.refresh()?;
    assert!(reader.get("warm/brown")?.is_none());
    Ok(())
}
