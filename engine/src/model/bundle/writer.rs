//! Writing a bundle: into a temporary directory next to the destination, which is synced and then renamed.

use super::open::Bundle;
use super::spec::{
    FileEntry, MANIFEST_FILE, Manifest, QuantizerSpec, SCORER_FILE, STATISTICS_FILE, TENSORS_FILE,
    check_name,
};
use super::{scorer, tensors};
use crate::disk::files::{self, Disk, Files};
use crate::error::{Error, Result};
use crate::ids::content::to_hex;
use crate::metric::Metric;
use crate::model::encoder::EncoderSpec;
use crate::model::scorer::Scorer;
use crate::quantizer::Quantizer;
use crate::row::Serving;
use crate::words::Vocabulary;
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Collects the parts of a bundle; [`finish`](Self::finish) checks that they fit and writes them.
///
/// ```no_run
/// # fn main() -> mopqdb::Result<()> {
/// # let base = mopqdb::bundle::Bundle::open("base")?;
/// # let quantizer = base.quantizer()?.unwrap();
/// use mopqdb::bundle::BundleWriter;
/// let bundle = BundleWriter::new("trained")
///     .encoder_from(&base)
///     .method("mopq")
///     .quantizer(&quantizer)
///     .training(serde_json::json!({"seed": 1}))
///     .finish()?;
/// # Ok(()) }
/// ```
pub struct BundleWriter {
    dir: PathBuf,
    manifest: Manifest,
    /// The metric, if it was set or taken from another bundle; otherwise that of the quantizer; otherwise cosine.
    metric: Option<Metric>,
    quantizer: Option<Quantizer>,
    scorer: Option<Scorer>,
    parts: Vec<Part>,
}

/// A file to write: its bytes, or a file of another bundle to link or copy.
enum Part {
    Bytes { name: String, bytes: Vec<u8> },
    From { entry: FileEntry, path: PathBuf },
}

impl BundleWriter {
    /// Creates a writer of a bundle at `dir`, which must not exist yet.
    pub fn new(dir: impl AsRef<Path>) -> Self {
        Self {
            dir: dir.as_ref().to_path_buf(),
            manifest: Manifest::empty(Metric::Cosine),
            metric: None,
            quantizer: None,
            scorer: None,
            parts: Vec::new(),
        }
    }

    /// Sets the metric. The default is that of the encoder's bundle or of the quantizer.
    pub fn metric(mut self, metric: Metric) -> Self {
        self.metric = Some(metric);
        self
    }

    /// Sets the training method: "mopq", "opq", ...
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.manifest.method = method.into();
        self
    }

    /// Sets the dimensions of precomputed vectors, for a bundle without an encoder.
    pub fn vectors(mut self, dim: usize) -> Self {
        self.manifest.input_dim = dim;
        self
    }

    /// Takes the encoder (or the dimensions of precomputed vectors) and the metric from another bundle. Files are
    /// linked if the file system supports it, else copied.
    pub fn encoder_from(mut self, other: &Bundle) -> Self {
        let from = other.manifest();
        self.metric = Some(from.metric);
        self.manifest.input_dim = from.input_dim;
        self.manifest.encoder = from.encoder.clone();
        self.manifest.plugged_encoder = from.plugged_encoder.clone();
        for name in from.encoder.iter().flat_map(EncoderSpec::files) {
            let entry = from
                .file(name)
                .expect("an open bundle lists its files")
                .clone();
            let path = other.dir().join(name);
            self.parts.push(Part::From { entry, path });
        }
        self
    }

    /// Sets the encoder from the bytes of its files, with vectors of `dim` values. The file names are those in `spec`.
    pub fn encoder(
        mut self,
        spec: EncoderSpec,
        dim: usize,
        files: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) -> Self {
        self.manifest.encoder = Some(spec);
        self.manifest.input_dim = dim;
        let parts = files
            .into_iter()
            .map(|(name, bytes)| Part::Bytes { name, bytes });
        self.parts.extend(parts);
        self
    }

    /// Sets the quantizer.
    pub fn quantizer(mut self, quantizer: &Quantizer) -> Self {
        self.quantizer = Some(quantizer.clone());
        self
    }

    /// Sets how candidates are scored.
    pub fn scorer(mut self, scorer: &Scorer) -> Self {
        self.scorer = Some(scorer.clone());
        self
    }

    /// Sets the term statistics, as [`Snapshot::term_statistics`](crate::Snapshot::term_statistics) returns them, so
    /// that the scores of words do not change with the rows.
    pub fn statistics(mut self, statistics: &Vocabulary) -> Self {
        self.parts.push(Part::Bytes {
            name: STATISTICS_FILE.into(),
            bytes: serde_json::to_vec(statistics).expect("plain fields"),
        });
        self
    }

    /// Sets the settings of queries that were measured.
    pub fn serving(mut self, serving: Serving) -> Self {
        self.manifest.serving = Some(serving);
        self
    }

    /// Sets the record of the training: configuration, seed and log.
    pub fn training(mut self, training: serde_json::Value) -> Self {
        self.manifest.training = training;
        self
    }

    /// Sets the measured recall.
    pub fn evaluation(mut self, evaluation: serde_json::Value) -> Self {
        self.manifest.evaluation = evaluation;
        self
    }

    /// Writes the bundle and opens it. The contents are synced before the directory gets its name, so a crash leaves a
    /// complete bundle or none, and possibly a hidden temporary directory.
    pub fn finish(self) -> Result<Bundle> {
        self.finish_on(&Disk::default())
    }

    /// Like [`finish`](Self::finish), on another [`Files`].
    pub(crate) fn finish_on(mut self, files: &dyn Files) -> Result<Bundle> {
        self.fit()?;
        self.fit_scorer()?;
        if self.dir.exists() {
            return Err(Error::invalid(format!(
                "{} already exists; choose another directory",
                self.dir.display()
            )));
        }
        let parent = match self.dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let fresh = Fresh::create(files, &parent)?;
        for part in std::mem::take(&mut self.parts) {
            let entry = write_part(files, &fresh.dir, part)?;
            self.manifest.files.push(entry);
        }
        self.manifest.files.sort_by(|a, b| a.name.cmp(&b.name));
        self.manifest.check()?;
        let place = fresh.dir.join(MANIFEST_FILE);
        write_file(files, &place, &self.manifest.encode())?;
        let sync = |dir: &Path| files.sync_dir(dir).map_err(Error::io("syncing", dir));
        sync(&fresh.dir)?;
        // Opened before it is renamed, so that a bundle that is refused never has its final name.
        Bundle::open(&fresh.dir)?;
        files
            .rename(&fresh.dir, &self.dir)
            .map_err(Error::io("naming", &self.dir))?;
        sync(&parent)?;
        Bundle::open(&self.dir)
    }

    /// Adds the scorer, after checking that it fits the stored vectors.
    fn fit_scorer(&mut self) -> Result<()> {
        let Some(scorer) = self.scorer.take() else {
            return Ok(());
        };
        if scorer.dim() != self.manifest.input_dim {
            return Err(Error::model(format!(
                "the scorer is for vectors of {} dimensions, but these have {}",
                scorer.dim(),
                self.manifest.input_dim
            )));
        }
        if scorer.map().is_some() && self.manifest.metric == Metric::L2 {
            return Err(Error::model(
                "a query map can be used only with the metrics ip and cosine",
            ));
        }
        self.parts.push(Part::Bytes {
            name: SCORER_FILE.into(),
            bytes: scorer::encode(&scorer)?,
        });
        Ok(())
    }

    /// Determines metric and width from encoder and quantizer, or returns an error that says how they differ.
    fn fit(&mut self) -> Result<()> {
        let Some(quantizer) = self.quantizer.take() else {
            self.manifest.metric = self.metric.unwrap_or(Metric::Cosine);
            return Ok(());
        };
        self.manifest.metric = self.metric.unwrap_or(quantizer.metric());
        if self.manifest.metric != quantizer.metric() {
            return Err(Error::model(format!(
                "the quantizer is for the metric {}, but its encoder is for {}",
                quantizer.metric(),
                self.manifest.metric
            )));
        }
        if self.manifest.input_dim == 0 {
            self.manifest.input_dim = quantizer.input_dim();
        }
        if self.manifest.input_dim != quantizer.input_dim() {
            return Err(Error::model(format!(
                "the quantizer takes vectors of {} dimensions, but its encoder gives {}",
                quantizer.input_dim(),
                self.manifest.input_dim
            )));
        }
        self.manifest.quantizer = Some(QuantizerSpec::of(&quantizer));
        self.parts.push(Part::Bytes {
            name: TENSORS_FILE.into(),
            bytes: tensors::encode(&quantizer)?,
        });
        Ok(())
    }
}

/// A temporary directory next to the destination; removed on drop unless it was renamed.
struct Fresh<'f> {
    files: &'f dyn Files,
    dir: PathBuf,
}

impl<'f> Fresh<'f> {
    fn create(files: &'f dyn Files, parent: &Path) -> Result<Self> {
        // No two writers of this process use the same number, so an existing directory is from an earlier process.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let pid = std::process::id();
        for _ in 0..1000 {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let dir = parent.join(format!(".bundle-{pid}-{number}.tmp"));
            if dir.exists() {
                continue;
            }
            files
                .create_dir(&dir)
                .map_err(Error::io("creating", &dir))?;
            return Ok(Self { files, dir });
        }
        Err(Error::invalid(format!(
            "{} is full of .bundle-*.tmp; remove them",
            parent.display()
        )))
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        // After the rename no directory has that name. If removal fails, only a hidden directory stays.
        if self.dir.exists() {
            let _ = self.files.remove_dir(&self.dir);
        }
    }
}

fn write_part(files: &dyn Files, dir: &Path, part: Part) -> Result<FileEntry> {
    // Checked before anything is written: a name that contains a path would be written elsewhere.
    let (Part::Bytes { name, .. }
    | Part::From {
        entry: FileEntry { name, .. },
        ..
    }) = &part;
    check_name(name)?;
    match part {
        Part::Bytes { name, bytes } => {
            let entry = FileEntry {
                bytes: bytes.len() as u64,
                sha256: to_hex(&Sha256::digest(&bytes)),
                name,
            };
            write_file(files, &dir.join(&entry.name), &bytes)?;
            Ok(entry)
        }
        Part::From { entry, path } => {
            let to = dir.join(&entry.name);
            // A link needs no sync: the file was synced when its own bundle was written.
            files::link_or_copy(files, &path, &to).map_err(Error::io("copying", &path))?;
            Ok(entry)
        }
    }
}

fn write_file(files: &dyn Files, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = files.create(path).map_err(Error::io("creating", path))?;
    file.write_all(bytes).map_err(Error::io("writing", path))?;
    // Linked files share their bytes with other bundles, so they must be read-only.
    file.read_only().map_err(Error::io("writing", path))?;
    file.sync().map_err(Error::io("syncing", path))
}
