//! Prepares a data set: its keys in a text database with the default encoder, and the model that `mopqdb train` learned
//! from its pairs. Uses the commands that a user has. Both are kept between runs.

use crate::peers::Programs;
use anyhow::{Context, Result, ensure};
use mopqdb::quantizer::Quantizer;
use mopqdb::{
    BundleWriter, CreateOptions, Database, Metric, Options, Reader, Row, find_model, models,
    open_model,
};
use mopqdb_benches::set::{Questions, Set};
use std::fs;
use std::path::{Path, PathBuf};

/// Texts per insert, and so the most that a killed run loses.
const BATCH: usize = 4096;

pub struct Prepared {
    pub name: String,
    pub test: Questions,
    /// The keys as texts; the key of a row is its number.
    db: PathBuf,
    rows: usize,
    encoded: usize,
    /// A head and 8-byte codes learned from the training pairs; `None` if there is no trainer.
    pub learned: Option<Quantizer>,
}

impl Prepared {
    pub fn new(
        out: &Path,
        name: &str,
        data: &Path,
        programs: &Programs,
        quick: bool,
    ) -> Result<Self> {
        let set = Set::load(data)?;
        let test = set.questions(data, "test.tsv")?;
        let db = out.join("sets").join(name);
        let encoded = encode(&db, &set.keys)?;
        let learned = learn(&db, data, programs, quick)
            .inspect_err(|why| eprintln!("{name}: no learned codes: {why:#}"))
            .ok();
        let rows = set.keys.len();
        Ok(Self {
            name: name.to_owned(),
            test,
            db,
            rows,
            encoded,
            learned,
        })
    }

    /// Returns the width of the vectors, as encoded or projected by the learned head.
    pub fn dim(&self, projected: bool) -> Option<usize> {
        match projected {
            false => Some(self.encoded),
            true => self.learned.as_ref().map(Quantizer::dim),
        }
    }

    /// Returns rows and test queries as encoded.
    pub fn vectors(&self) -> Result<[Vec<f32>; 2]> {
        let reader = Reader::open(&self.db, Options::default())?;
        let mut rows = vec![0.0; self.rows * self.encoded];
        reader.snapshot().for_each_row(|row| {
            let number: usize = row.key.parse().expect("keys are row numbers");
            rows[number * self.encoded..][..self.encoded].copy_from_slice(row.vector);
            Ok(())
        })?;
        let queries: Vec<&str> = self.test.queries.iter().map(String::as_str).collect();
        Ok([rows, reader.model().encode_queries(&queries)?])
    }

    /// Writes the learned codes as a bundle for vectors; without the head for projected vectors.
    pub fn bundle(&self, to: &Path, projected: bool) -> Result<bool> {
        let Some(learned) = &self.learned else {
            return Ok(false);
        };
        let (quantizer, metric, dim) = match projected {
            false => (learned.clone(), Metric::Cosine, self.encoded),
            true => {
                let codes = Quantizer::builder(learned.codebook().clone(), Metric::Ip).build()?;
                let plain =
                    learned.rotation().is_none() && learned.selection() == codes.selection();
                ensure!(
                    plain,
                    "the learned model has more than a head and codebooks"
                );
                (codes, Metric::Ip, learned.dim())
            }
        };
        let _ = fs::remove_dir_all(to);
        let writer = BundleWriter::new(to).metric(metric).vectors(dim);
        writer.method("mopq").quantizer(&quantizer).finish()?;
        Ok(true)
    }
}

/// Inserts the missing texts. Returns the width of the vectors.
fn encode(db: &Path, keys: &[String]) -> Result<usize> {
    let database = if db.exists() {
        Database::open(db, Options::default())?
    } else {
        fs::create_dir_all(db.parent().context("a folder")?)?;
        let bundle = CreateOptions::bundle(mopqdb::encoder::default_bundle()?);
        Database::create(db, &bundle, Options::default())?
    };
    let there = database.snapshot().rows() as usize;
    for (first, some) in (there..).step_by(BATCH).zip(keys[there..].chunks(BATCH)) {
        let numbered = some.iter().zip(first..);
        let rows = numbered.map(|(text, n)| Row::text(n.to_string(), text));
        database.insert(&rows.collect::<Vec<_>>())?;
        let (done, all) = (first + some.len(), keys.len());
        eprintln!("{}: {done} of {all} texts encoded", db.display());
    }
    let dim = database.model().dim();
    database.close()?;
    Ok(dim)
}

fn learn(db: &Path, data: &Path, programs: &Programs, quick: bool) -> Result<Quantizer> {
    // Next to the database, not inside it.
    let known = db.with_extension(if quick { "model-quick" } else { "model" });
    if !known.exists() {
        let mut train = programs.mopqdb();
        train.arg("train").arg(db);
        train.arg("--pairs").arg(data.join("train.tsv"));
        train.arg("--valid").arg(data.join("valid.tsv"));
        train.args(["--devices", "cpu:2", "--batch", "256", "--sampling", "dcs"]);
        if quick {
            train.args(["--epochs", "2", "--", "--warmup", "2"]);
        }
        let status = train.status().context("running mopqdb")?;
        ensure!(status.success(), "mopqdb train failed");
        let newest = models(db)?.into_iter().rfind(|model| !model.exact);
        let newest = newest.context("no model was registered")?;
        fs::write(&known, newest.id.to_string())?;
    }
    let model = open_model(db, find_model(db, &fs::read_to_string(&known)?)?, 0)?;
    model.quantizer().cloned().context("the model has no codes")
}
