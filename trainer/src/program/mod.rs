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
mod scoring;
mod unlabelled;

pub use checkpoint::write_whole;
pub use embeddings::Embeddings;
pub use flags::Flags;
pub use run::{Busy, EpochRecord, Run};

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use mopqdb::eval::VectorQuestions;
use mopqdb::{Bundle, BundleWriter, Metric, Model, Options, Reader, RowsKind};
use mopqdb_formats::vectors::VectorFormat;
use serde_json::json;
use xxhash_rust::xxh3::Xxh3;

use crate::config::{Method, TrainConfig};
use crate::data::{Columns, Corpus, KeyColumn, Pairs, QueryColumn};
use crate::joint::{Joint, Origin, Readings};
use crate::random::Random;
use crate::train::{Lessons, Outcome, Texts, Trained, Trainer, Watch as _, check_sizes};
use progress::Progress;
use unlabelled::{Log, Unlabelled};

/// How it ended.
#[derive(Debug)]
pub enum Ending {
    /// With a model.
    Model(serde_json::Value),
    /// By request; the words say how to continue.
    Stopped(String),
}

/// Trains as the flags say. `stop` ends it between two steps.
pub fn run(flags: &Flags, stop: &AtomicBool) -> Result<Ending> {
    let mut config = flags.train_config()?;
    let mut progress = Progress::new(flags.quiet);
    let rows = Rows::read(flags, &config)?;
    flags.fit(&mut config, rows.corpus.hidden)?;
    let questions = rows.pairs(flags, &config)?;
    for words in [&questions.train, &questions.valid].map(|pairs| &pairs.left_out) {
        words.iter().for_each(|words| progress.note(words));
    }
    check_sizes(&config, questions.train.pairs.len(), rows.corpus.rows())?;
    if config.method == Method::Distill {
        unlabelled::check_rows(&rows.corpus)?;
    }
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
    let encoded = questions.encode(flags, &config, &rows, &mut progress, stop)?;
    let mut validation = VectorQuestions::new(encoded.valid, questions.valid.answers());
    let mut queries = encoded.train;
    let (mut logged, mut held_out) = (Vec::new(), Vec::new());
    if config.method == Method::Distill {
        let labelled = questions.train.queries.len();
        let judged = !validation.is_empty();
        let more = Unlabelled::new(&config, &rows.corpus, &encoded.log, labelled, judged);
        queries.extend(encoded.log);
        (logged, held_out) = (more.logged, more.held_out);
        if !judged {
            progress.note(&format!(
                "recall@10 is of the exact first ten rows of {} queries that are not learned from",
                more.validation.len()
            ));
            validation = more.validation;
        }
    }
    let texts = match &joint {
        Some(joint) => Some(questions.texts(joint, &rows)?),
        None => None,
    };
    let lessons = Lessons {
        corpus: &rows.corpus,
        queries: &queries,
        pairs: &questions.train.pairs,
        logged: &logged,
        held_out: &held_out,
        validation: &validation,
        texts: texts.as_ref(),
    };
    let outcome = Trainer::new(&config, &lessons, &run, stop)?.run(&mut progress);
    progress.finish();
    match outcome? {
        Outcome::Stopped { epochs } => Ok(Ending::Stopped(format!(
            "stopped after {epochs} complete epochs, which are kept in {}; the same command continues from there",
            home.display()
        ))),
        Outcome::Trained(trained) => {
            let learned = match &joint {
                None => {
                    progress.note("learning how candidates are scored");
                    let labelled = match questions.valid.pairs.is_empty() {
                        true => &VectorQuestions::default(),
                        false => &validation,
                    };
                    let asked = &questions.train;
                    scoring::learn_map(&rows.corpus, &queries, asked, labelled, config.seed, stop)?
                }
                // An encoder that has learned makes other vectors.
                Some(_) => scoring::Learned::default(),
            };
            let valid = joint.is_none().then_some(&questions.valid);
            let scoring = (learned, valid);
            let mut done = hand_over(
                flags,
                &config,
                &rows,
                &trained,
                joint.as_ref(),
                scoring,
                &home,
            )?;
            done["fingerprint"] = json!(fingerprint);
            conclude(&home, &done)?;
            Ok(Ending::Model(done))
        }
    }
}

/// The rows of the database and the model they are stored under.
struct Rows {
    corpus: Corpus,
    /// The reader is gone, and with it its hold on the database's files.
    model: Arc<Model>,
    bundle: Option<Bundle>,
    /// The `Seq` of the newest row: rows after it were not trained on, and `mopqdb stats` compares them with those before.
    through_seq: u64,
    has_texts: bool,
}

impl Rows {
    fn read(flags: &Flags, config: &TrainConfig) -> Result<Self> {
        let options = Options::default().threads(config.threads);
        let reader = Reader::open(&flags.db, options)?;
        let snapshot = reader.snapshot();
        let model = Arc::clone(snapshot.model());
        ensure!(
            model.metric() != Metric::L2,
            "{}: the metric is l2, for which only pq and opq learn: `mopqdb train DB --method opq`, without pairs",
            flags.db.display()
        );
        ensure!(
            config.joint.is_none() || model.kind() == RowsKind::Text,
            "{}: --joint trains an encoder of texts, and the rows are vectors",
            flags.db.display()
        );
        // Texts are for finding pairs and for an encoder that learns.
        let with_texts = flags.pairs.is_some() || flags.valid.is_some() || config.joint.is_some();
        let (corpus, through_seq) =
            Corpus::read(&snapshot, with_texts).with_context(|| flags.db.display().to_string())?;
        let bundle = model.bundle().cloned();
        Ok(Self {
            corpus,
            bundle,
            through_seq,
            has_texts: model.kind() == RowsKind::Text,
            model,
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
            vectors.is_some() || self.has_texts || flags.pairs.is_none() && flags.valid.is_none(),
            "{}: the rows are vectors, so queries are too: give them with --queries FILE.npy",
            flags.db.display()
        );
        let log = match &flags.query_log {
            Some(path) => Some(self.log(path)?),
            None => None,
        };
        let train = match &flags.pairs {
            Some(path) => Pairs::read(path, columns(vectors.as_ref()), &self.corpus)?,
            None => Pairs::none(),
        };
        let (train, valid) = match (&flags.valid, &flags.pairs) {
            (Some(path), _) => {
                let own = valid_vectors.as_ref().or(vectors.as_ref());
                let valid = Pairs::read(path, columns(own), &self.corpus)?;
                (train, valid.first(config.validation_queries))
            }
            (None, None) => (train, Pairs::none()),
            (None, Some(_)) => {
                // Of a handful nothing can be spared.
                let spare = if train.queries.len() < 20 { 0.0 } else { 0.1 };
                let share =
                    (config.validation_queries as f64 / train.queries.len() as f64).min(spare);
                let mut random = Random::new(config.seed, "validation", 0);
                train.split(|| random.unit() < share)
            }
        };
        if let Some(path) = &flags.pairs {
            ensure!(
                train.pairs.len() >= 2,
                "{}: {} pairs to train on; at least 2 are needed, and some thousands to learn anything",
                path.display(),
                train.pairs.len()
            );
        }
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
            log,
        })
    }

    /// Queries without labels: texts, one per line, or a file of vectors by its name.
    fn log(&self, path: &Path) -> Result<Log> {
        if VectorFormat::of(path).is_some() {
            let vectors = self.vectors(path)?;
            ensure!(!vectors.is_empty(), "{}: no queries in it", path.display());
            return Ok(Log::Vectors(vectors.concat()));
        }
        ensure!(
            self.has_texts,
            "{}: the rows are vectors, so queries are too: give a file that ends in .npy, .fvecs or .fbin",
            path.display()
        );
        Log::texts(path)
    }

    /// A file of vectors, as the database takes them.
    fn vectors(&self, path: &Path) -> Result<Vec<Vec<f32>>> {
        let (dim, values) = mopqdb_formats::vectors::read_all(path)?;
        let model = &self.model;
        let rows = values.chunks_exact(dim.max(1)).enumerate();
        rows.map(|(row, vector)| {
            Ok(model.check_vector(vector, || format!("{}: row {row}", path.display()))?)
        })
        .collect()
    }

    fn encoder_name(&self) -> String {
        self.model.encoder_id().to_string()
    }
}

/// The pairs of a run, and their queries' vectors where the user gave them.
struct Asked {
    train: Pairs,
    valid: Pairs,
    vectors: Option<Vec<Vec<f32>>>,
    valid_vectors: Option<Vec<Vec<f32>>>,
    log: Option<Log>,
}

/// Vectors of queries (queries, hidden).
struct Encoded {
    train: Vec<f32>,
    valid: Vec<f32>,
    log: Vec<f32>,
}

impl Asked {
    /// Vectors of all queries.
    fn encode(
        &self,
        flags: &Flags,
        config: &TrainConfig,
        rows: &Rows,
        progress: &mut Progress,
        stop: &AtomicBool,
    ) -> Result<Encoded> {
        if config.joint.is_some() {
            // The encoder in the making encodes them, again and again.
            return Ok(Encoded {
                train: Vec::new(),
                valid: vec![0.0; self.valid.queries.len() * rows.corpus.hidden],
                log: Vec::new(),
            });
        }
        let cache = Embeddings::new(
            &flags.db.join("runs").join("embeddings"),
            rows.encoder_name(),
        );
        let model = &rows.model;
        let mut of_texts = |texts: &[String]| {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            if texts.is_empty() {
                return Ok(Vec::new());
            }
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
        let log = match &self.log {
            Some(Log::Texts(texts)) => of_texts(texts)?,
            Some(Log::Vectors(vectors)) => vectors.clone(),
            None => Vec::new(),
        };
        let mut of = |pairs: &Pairs, vectors: Option<&Vec<Vec<f32>>>| match vectors {
            None => of_texts(&pairs.queries),
            Some(vectors) => {
                let row = |query: &String| query.parse::<usize>().expect("checked as a row number");
                let rows = pairs.queries.iter().map(|query| &vectors[row(query)]);
                Ok(rows.flatten().copied().collect())
            }
        };
        let valid_vectors = self.valid_vectors.as_ref().or(self.vectors.as_ref());
        Ok(Encoded {
            train: of(&self.train, self.vectors.as_ref())?,
            valid: of(&self.valid, valid_vectors)?,
            log,
        })
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
        match &self.log {
            Some(Log::Texts(texts)) => hash.texts(texts),
            Some(Log::Vectors(vectors)) => hash.floats(vectors),
            None => {}
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
    (learned, valid): (scoring::Learned, Option<&Pairs>),
    home: &Path,
) -> Result<serde_json::Value> {
    let place: PathBuf = match &flags.out {
        Some(out) => out.clone(),
        None => home.join("bundle"),
    };
    if flags.out.is_none() {
        remove(&place)?;
    }
    let begin = |place: &Path| -> Result<BundleWriter> {
        let writer = BundleWriter::new(place).metric(rows.corpus.metric);
        let writer = match (joint, &trained.encoder, &rows.bundle) {
            (Some(joint), Some(weights), _) => {
                let texts = rows.corpus.texts.as_ref().context("--joint needs texts")?;
                let samples: Vec<&str> = texts.iter().take(64).map(String::as_str).collect();
                let (spec, files) = joint.export(weights, &samples)?;
                writer.encoder(spec, joint.hidden(), files)
            }
            (_, _, Some(bundle)) => writer.encoder_from(bundle),
            _ => writer.vectors(rows.corpus.hidden),
        };
        Ok(writer
            .method(config.method.name())
            .quantizer(&trained.quantizer))
    };
    let hidden = rows.corpus.hidden;
    // Words are weighed over the candidates of these codes and this map, so these are written first, for that alone.
    let words = match valid.filter(|valid| rows.has_texts && !valid.queries.is_empty()) {
        Some(valid) => {
            let draft = home.join("draft");
            remove(&draft)?;
            let mut writer = begin(&draft)?;
            if let Some(scorer) = scoring::scorer(hidden, learned.map.clone(), None)? {
                writer = writer.scorer(&scorer);
            }
            let words = scoring::learn_weight(&flags.db, &writer.finish()?, valid, config.threads)?;
            remove(&draft)?;
            words
        }
        None => None,
    };
    let mut report = trained.report.clone();
    report["scorer"] = json!({
        "map": learned.report,
        "words": words.as_ref().map(|words| &words.report),
    });
    let mut writer = begin(&place)?;
    let weight = words.as_ref().map(|words| words.weight);
    if let Some(scorer) = scoring::scorer(hidden, learned.map, weight)? {
        writer = writer.scorer(&scorer);
    }
    if let Some(words) = &words {
        writer = writer.statistics(&words.statistics);
    }
    let bundle = writer
        .training(json!({
            "config": config,
            "pairs": flags.pairs.as_ref().map(|path| path.display().to_string()),
            "query_log": flags.query_log.as_ref().map(|path| path.display().to_string()),
            "through_seq": rows.through_seq,
        }))
        .evaluation(report.clone())
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
        "report": report,
    });
    Ok(done)
}

/// Removes a folder that an earlier try may have left.
fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("{}: removing: {error}", dir.display())
        }
        _ => Ok(()),
    }
}

/// Leaves the result in the run's folder; nothing is left to continue.
fn conclude(home: &Path, done: &serde_json::Value) -> Result<()> {
    write_whole(&home.join("result.json"), &serde_json::to_vec_pretty(done)?)?;
    match fs::remove_file(home.join("last.safetensors")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("{}: {error}", home.display())
        }
        _ => Ok(()),
    }
}
