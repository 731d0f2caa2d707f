//! The rows that a run learns from, and its pairs and queries, checked against these rows.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use mopqdb::{Bundle, Metric, Model, Options, Reader, RowsKind};
use mopqdb_formats::vectors::VectorFormat;

use super::asked::Asked;
use super::flags::Flags;
use super::unlabelled::Log;
use crate::config::TrainConfig;
use crate::data::{Columns, Corpus, KeyColumn, Pairs, QueryColumn};
use crate::random::Random;

/// The rows of the database and its active model.
pub(super) struct Rows {
    pub(super) corpus: Corpus,
    /// The active model. No reader is kept, so that other processes may remove files of the database.
    pub(super) model: Arc<Model>,
    pub(super) bundle: Option<Bundle>,
    /// The `Seq` of the newest row. `mopqdb stats` compares the rows after it with those before.
    pub(super) through_seq: u64,
    pub(super) has_texts: bool,
}

impl Rows {
    pub(super) fn read(flags: &Flags, config: &TrainConfig) -> Result<Self> {
        let options = Options::default().threads(config.threads);
        let reader = Reader::open(&flags.db, options)?;
        let snapshot = reader.snapshot();
        let model = Arc::clone(snapshot.model());
        ensure!(
            model.metric() != Metric::L2 || flags.only.is_some(),
            "{}: the metric is l2, for which only pq and opq learn: `mopqdb train DB --method opq`, without pairs",
            flags.db.display()
        );
        ensure!(
            model.metric() != Metric::L2 || snapshot.term_statistics()?.is_some(),
            "{}: the metric is l2, for which there is no query map, and the rows have no words: there is no scorer to learn",
            flags.db.display()
        );
        ensure!(
            config.joint.is_none() || model.kind() == RowsKind::Text,
            "{}: --joint trains an encoder of texts, and the rows are vectors",
            flags.db.display()
        );
        // Texts are needed to find the rows of pairs, and to train an encoder.
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

    pub(super) fn pairs(&self, flags: &Flags, config: &TrainConfig) -> Result<Asked> {
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
                // Fewer than 20 queries are too few to set some aside.
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

    /// Reads queries without labels: texts, one per line, or vectors, by the name of the file.
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

    /// Reads a file of vectors, and checks each as a query of this database.
    fn vectors(&self, path: &Path) -> Result<Vec<Vec<f32>>> {
        let (dim, values) = mopqdb_formats::vectors::read_all(path)?;
        let model = &self.model;
        let rows = values.chunks_exact(dim.max(1)).enumerate();
        rows.map(|(row, vector)| {
            Ok(model.check_vector(vector, || format!("{}: row {row}", path.display()))?)
        })
        .collect()
    }

    pub(super) fn encoder_name(&self) -> String {
        self.model.encoder_id().to_string()
    }
}
