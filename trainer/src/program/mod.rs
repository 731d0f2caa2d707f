//! What `mopqdb-train` does: rows and pairs in, a registered model out.
//!
//! [`Flags`] say what is wanted, a [`Run`] is the folder that keeps its checkpoint, log and plot, [`Embeddings`] keep
//! the vectors of queries for the next run.

pub(crate) mod checkpoint;
mod embeddings;
mod flags;
mod plot;
mod progress;
pub(crate) mod run;

pub use checkpoint::write_whole;
pub use embeddings::Embeddings;
pub use flags::Flags;
pub use run::{Busy, EpochRecord, Run};

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use mopqdb::eval::VectorQuestions;
use mopqdb::{Bundle, BundleWriter, Metric, Options, Reader, RowsKind};
use serde_json::json;
use xxhash_rust::xxh3::Xxh3;

use crate::config::TrainConfig;
use crate::data::{Columns, Corpus, KeyColumn, Pairs, QueryColumn};
use crate::joint::{Joint, Origin, Readings};
use crate::random::Random;
use crate::train::{Lessons, Outcome, Texts, Trained, Trainer, Watch as _, check_sizes};
use progress::Progress;

/// How it ended.
#[derive(Debug)]
pub enum Ending {
    /// With a model.
    Model(serde_json::Value),
    /// By request; the words say how to go on.
    Stopped(String),
}

/// Trains as the flags say. `stop` ends it between two steps.
pub fn run(flags: &Flags, stop: &AtomicBool) -> Result<Ending> {
    let config = flags.train_config()?;
    let mut progress = Progress::new(flags.quiet);
    let rows = Rows::read(flags, &config)?;
    let questions = rows.pairs(flags, &config)?;
    for words in [&questions.train, &questions.valid].map(|pairs| &pairs.left_out) {
        words.iter().for_each(|words| progress.note(words));
    }
    check_sizes(&config, questions.train.pairs.len(), rows.corpus.rows())?;
    let origin = match &config.joint {
        Some(_) => Some(origin(flags, &rows)?),
        None => None,
    };
    let fingerprint = questions.fingerprint(&rows, &config, origin.as_ref())?;
    let home = match &flags.run {
        Some(dir) => dir.clone(),
        None => {
            let name = format!("{}-{fingerprint}", config.method.name());
            flags.db.join("runs").join(name)
        }
    };
    if !flags.fresh
        && flags.out.is_none()
        && let Some(done) = finished(&home, &fingerprint, &flags.db)?
    {
        progress.note("this very run was done before; --fresh does it again");
        return Ok(Ending::Model(done));
    }
    let words = toml::to_string(&config)?;
    let run = Run::open(&home, &format!("# {fingerprint}\n{words}"))?;
    if flags.fresh {
        run.begin()?;
    }
    let joint = match (&config.joint, origin) {
        (Some(joint), Some(origin)) => Some(Joint::new(origin, joint)?),
        _ => None,
    };
    let (queries, asked) = questions.encode(flags, &config, &rows, &mut progress, stop)?;
    let validation = VectorQuestions::new(asked, questions.valid.answers());
    let texts = match &joint {
        Some(joint) => Some(questions.texts(joint, &rows)?),
        None => None,
    };
    let lessons = Lessons {
        corpus: &rows.corpus,
        queries: &queries,
        pairs: &questions.train.pairs,
        validation: &validation,
        texts: texts.as_ref(),
    };
    let outcome = Trainer::new(&config, &lessons, &run, stop)?.run(&mut progress);
    progress.finish();
    match outcome? {
        Outcome::Stopped { epochs } => Ok(Ending::Stopped(format!(
            "stopped after {epochs} whole epochs, which are kept in {}; the same command goes on from there",
            home.display()
        ))),
        Outcome::Trained(trained) => {
            let mut done = hand_over(flags, &config, &rows, &trained, joint.as_ref(), &home)?;
            done["fingerprint"] = json!(fingerprint);
            conclude(&home, &done)?;
            Ok(Ending::Model(done))
        }
    }
}

/// The rows of the database and the model they are stored under.
struct Rows {
    corpus: Corpus,
    reader: Reader,
    bundle: Option<Bundle>,
    /// The `Seq` of the newest row: rows after it were not trained on, and `mopqdb stats` compares them with those before.
    through_seq: u64,
}

impl Rows {
    fn read(flags: &Flags, config: &TrainConfig) -> Result<Self> {
        let options = Options::default().threads(config.threads);
        let reader = Reader::open(&flags.db, options)?;
        let snapshot = reader.snapshot();
        let model = snapshot.model();
        ensure!(
            model.metric() != Metric::L2,
            "{}: the metric is l2, for which pairs teach nothing here: use `mopqdb train --method opq` without pairs",
            flags.db.display()
        );
        ensure!(
            config.joint.is_none() || model.kind() == RowsKind::Text,
            "{}: --joint trains an encoder of texts, and the rows are vectors",
            flags.db.display()
        );
        let mut all = Vec::new();
        snapshot.for_each_row(|row| {
            all.push((
                row.seq,
                row.key.to_owned(),
                row.text.map(str::to_owned),
                row.vector.to_vec(),
            ));
            Ok(())
        })?;
        all.sort_by_key(|row| row.0);
        let through_seq = all.last().map_or(0, |row| row.0.0);
        let has_texts = model.kind() == RowsKind::Text;
        let (mut keys, mut texts, mut vectors) = (Vec::new(), Vec::new(), Vec::new());
        for (_, key, text, vector) in all {
            keys.push(key);
            texts.extend(text);
            vectors.extend(vector);
        }
        let corpus = Corpus::new(
            keys,
            has_texts.then_some(texts),
            vectors,
            model.dim(),
            model.metric(),
        )
        .with_context(|| flags.db.display().to_string())?;
        let bundle = model.bundle().cloned();
        Ok(Self {
            corpus,
            reader,
            bundle,
            through_seq,
        })
    }

    fn pairs(&self, flags: &Flags, config: &TrainConfig) -> Result<Asked> {
        let vectors = match &flags.queries {
            Some(path) => Some(self.vectors(path)?),
            None => None,
        };
        let valid_vectors = match &flags.valid_queries {
            Some(path) => Some(self.vectors(path)?),
            None => None,
        };
        let columns = |vectors: Option<&Vec<Vec<f32>>>| Columns {
            query: match vectors {
                Some(vectors) => QueryColumn::Row { of: vectors.len() },
                None => QueryColumn::Text,
            },
            key: match flags.key_ids || vectors.is_some() {
                true => KeyColumn::Id,
                false => KeyColumn::Text,
            },
            skip_missing: flags.skip_missing,
        };
        ensure!(
            vectors.is_some() || self.corpus.texts.is_some(),
            "{}: the rows are vectors, so queries are too: give them with --queries FILE.npy",
            flags.db.display()
        );
        let train = Pairs::read(&flags.pairs, columns(vectors.as_ref()), &self.corpus)?;
        let (train, valid) = match &flags.valid {
            Some(path) => {
                let own = valid_vectors.as_ref().or(vectors.as_ref());
                let valid = Pairs::read(path, columns(own), &self.corpus)?;
                (train, valid.first(config.validation_queries))
            }
            None => {
                // Of a handful nothing can be spared.
                let spare = if train.queries.len() < 20 { 0.0 } else { 0.1 };
                let share =
                    (config.validation_queries as f64 / train.queries.len() as f64).min(spare);
                let mut random = Random::new(config.seed, "validation", 0);
                train.split(|| random.unit() < share)
            }
        };
        ensure!(
            train.pairs.len() >= 2,
            "{}: {} pairs to train on; at least 2 are needed, and some thousands to learn anything",
            flags.pairs.display(),
            train.pairs.len()
        );
        let valid_vectors = if flags.valid.is_some() {
            valid_vectors
        } else {
            None
        };
        Ok(Asked {
            train,
            valid,
            vectors,
            valid_vectors,
        })
    }

    /// A file of vectors, as the database takes them.
    fn vectors(&self, path: &Path) -> Result<Vec<Vec<f32>>> {
        let (dim, values) = mopqdb_formats::vectors::read_all(path)?;
        let model = self.reader.model();
        let rows = values.chunks_exact(dim.max(1)).enumerate();
        rows.map(|(row, vector)| {
            Ok(model.check_vector(vector, || format!("{}: row {row}", path.display()))?)
        })
        .collect()
    }

    fn encoder_name(&self) -> String {
        self.reader.model().encoder_id().to_string()
    }
}

/// The pairs of a run, and their queries' vectors where the user gave them.
struct Asked {
    train: Pairs,
    valid: Pairs,
    vectors: Option<Vec<Vec<f32>>>,
    valid_vectors: Option<Vec<Vec<f32>>>,
}

impl Asked {
    /// Vectors of the training and the validation queries.
    fn encode(
        &self,
        flags: &Flags,
        config: &TrainConfig,
        rows: &Rows,
        progress: &mut Progress,
        stop: &AtomicBool,
    ) -> Result<(Vec<f32>, Vec<f32>)> {
        if let Some(vectors) = &self.vectors {
            let of = |pairs: &Pairs, vectors: &[Vec<f32>]| -> Vec<f32> {
                let row = |query: &String| query.parse::<usize>().expect("checked as a row number");
                pairs
                    .queries
                    .iter()
                    .flat_map(|query| vectors[row(query)].iter().copied())
                    .collect()
            };
            let valid_vectors = self.valid_vectors.as_ref().unwrap_or(vectors);
            return Ok((of(&self.train, vectors), of(&self.valid, valid_vectors)));
        }
        if config.joint.is_some() {
            // The encoder in the making encodes them, again and again.
            return Ok((
                Vec::new(),
                vec![0.0; self.valid.queries.len() * rows.corpus.hidden],
            ));
        }
        let cache = Embeddings::new(
            &flags.db.join("runs").join("embeddings"),
            rows.encoder_name(),
        );
        let model = rows.reader.model();
        let mut of = |pairs: &Pairs| {
            let texts: Vec<&str> = pairs.queries.iter().map(String::as_str).collect();
            progress.note(&format!("encoding {} queries", texts.len()));
            cache.of(
                "query",
                &texts,
                rows.corpus.hidden,
                |some| {
                    ensure!(
                        !stop.load(Ordering::Relaxed),
                        "stopped while the queries were encoded; the same command starts over"
                    );
                    Ok(model.encode_queries(some)?)
                },
                |_| (),
            )
        };
        Ok((of(&self.train)?, of(&self.valid)?))
    }

    fn texts(&self, joint: &Joint, rows: &Rows) -> Result<Texts> {
        fn slices(texts: &[String]) -> Vec<&str> {
            texts.iter().map(String::as_str).collect()
        }
        let keys = rows.corpus.texts.as_ref().context("--joint needs texts")?;
        joint.texts(Readings {
            queries: &slices(&self.train.queries),
            keys: &slices(keys),
            validation: &slices(&self.valid.queries),
        })
    }

    /// All that decides the result: configuration, rows, queries, pairs, and what an encoder starts from.
    fn fingerprint(
        &self,
        rows: &Rows,
        config: &TrainConfig,
        origin: Option<&Origin>,
    ) -> Result<String> {
        let mut hash = Hash::default();
        hash.bytes(toml::to_string(config)?.as_bytes());
        hash.bytes(rows.encoder_name().as_bytes());
        hash.texts(&rows.corpus.keys);
        hash.texts(rows.corpus.texts.as_deref().unwrap_or_default());
        hash.floats(&rows.corpus.vectors);
        for pairs in [&self.train, &self.valid] {
            hash.texts(&pairs.queries);
            for (query, row) in &pairs.pairs {
                hash.bytes(&query.to_le_bytes());
                hash.bytes(&row.to_le_bytes());
            }
        }
        for vectors in [&self.vectors, &self.valid_vectors].into_iter().flatten() {
            vectors.iter().for_each(|vector| hash.floats(vector));
        }
        if let Some(origin) = origin {
            hash.bytes(&origin.config);
            hash.bytes(&origin.weights);
            hash.bytes(&origin.tokenizer);
        }
        Ok(format!("{:016x}", hash.0.digest()))
    }
}

/// Parts with their lengths, so that no two lists of parts are the same bytes.
#[derive(Default)]
struct Hash(Xxh3);

impl Hash {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn texts(&mut self, texts: &[String]) {
        self.0.update(&(texts.len() as u64).to_le_bytes());
        texts.iter().for_each(|text| self.bytes(text.as_bytes()));
    }

    fn floats(&mut self, values: &[f32]) {
        self.0.update(&(values.len() as u64).to_le_bytes());
        for value in values {
            self.0.update(&value.to_le_bytes());
        }
    }
}

/// The weights that `--joint` starts from: those named, or the default encoder's.
fn origin(flags: &Flags, rows: &Rows) -> Result<Origin> {
    let weights = match &flags.weights {
        Some(path) => path.clone(),
        None => mopqdb::encoder::native_dirs()
            .into_iter()
            .map(|dir| dir.join("model/model.safetensors"))
            .find(|path| path.exists())
            .context("--joint: no weights to start from; name them with --weights FILE.safetensors, or run `make setup`")?,
    };
    let read = |path: &Path| fs::read(path).with_context(|| format!("{}: reading", path.display()));
    let bundle = rows
        .bundle
        .as_ref()
        .context("--joint needs a database with an encoder")?;
    let spec = bundle
        .manifest()
        .encoder
        .clone()
        .context("--joint needs a database with an encoder")?;
    let tokenizer = read(&bundle.dir().join(&spec.tokenizer))?;
    Ok(Origin {
        config: read(&weights.with_file_name("config.json"))?,
        weights: read(&weights)?,
        tokenizer,
        spec,
    })
}

/// The result that this very run has left, if its model is still in the database.
fn finished(home: &Path, fingerprint: &str, db: &Path) -> Result<Option<serde_json::Value>> {
    let read = || serde_json::from_slice(&fs::read(home.join("result.json")).ok()?).ok();
    let Some(done) = read().filter(|done: &serde_json::Value| done["fingerprint"] == fingerprint)
    else {
        return Ok(None);
    };
    let models = mopqdb::models(db)?;
    let there = |id: &str| models.iter().any(|model| model.id.to_string() == id);
    Ok(done["model"].as_str().is_some_and(there).then_some(done))
}

/// Writes the bundle and registers it.
fn hand_over(
    flags: &Flags,
    config: &TrainConfig,
    rows: &Rows,
    trained: &Trained,
    joint: Option<&Joint>,
    home: &Path,
) -> Result<serde_json::Value> {
    let place: PathBuf = match &flags.out {
        Some(out) => out.clone(),
        None => home.join("bundle"),
    };
    if flags.out.is_none() && place.exists() {
        fs::remove_dir_all(&place)
            .with_context(|| format!("{}: removing what is left", place.display()))?;
    }
    let mut writer = BundleWriter::new(&place).metric(rows.corpus.metric);
    writer = match (joint, &trained.encoder, &rows.bundle) {
        (Some(joint), Some(weights), _) => {
            let texts = rows.corpus.texts.as_ref().context("--joint needs texts")?;
            let samples: Vec<&str> = texts.iter().take(64).map(String::as_str).collect();
            let (spec, files) = joint.export(weights, &samples)?;
            writer.encoder(spec, joint.hidden(), files)
        }
        (_, _, Some(bundle)) => writer.encoder_from(bundle),
        _ => writer.vectors(rows.corpus.hidden),
    };
    let bundle = writer
        .method(config.method.name())
        .quantizer(&trained.quantizer)
        .training(json!({
            "config": config,
            "pairs": flags.pairs.display().to_string(),
            "through_seq": rows.through_seq,
        }))
        .evaluation(trained.report.clone())
        .finish()?;
    let model = bundle.model_id();
    if flags.out.is_none() {
        mopqdb::register_model(&flags.db, &bundle)?;
        fs::remove_dir_all(&place).with_context(|| format!("{}: removing", place.display()))?;
    }
    let done = json!({
        "model": model.to_string(),
        "method": config.method.name(),
        "run": home.display().to_string(),
        "recall": trained.report.get("recall"),
        "unquantized_recall": trained.report.get("unquantized_recall"),
        "report": trained.report,
    });
    Ok(done)
}

/// Leaves the result in the run's folder; there is nothing to go on from any more.
fn conclude(home: &Path, done: &serde_json::Value) -> Result<()> {
    write_whole(&home.join("result.json"), &serde_json::to_vec_pretty(done)?)?;
    match fs::remove_file(home.join("last.safetensors")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("{}: {error}", home.display())
        }
        _ => Ok(()),
    }
}
