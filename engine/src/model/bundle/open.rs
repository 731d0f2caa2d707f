//! Opening a bundle. Everything is checked before it is used: the encoder's files when they are first loaded, the rest
//! when the bundle is opened.

use super::spec::{
    FileEntry, MANIFEST_FILE, MAX_MANIFEST_BYTES, Manifest, SCORER_FILE, STATISTICS_FILE,
    TENSORS_FILE,
};
use super::{scorer, tensors};
use crate::disk::files::{Disk, Storage};
#[cfg(feature = "onnx")]
use crate::disk::{files::OpenFile, mmap::Mapping};
use crate::error::{Error, Result};
use crate::ids::content::to_hex;
use crate::ids::{CodesId, EncoderId, ModelId};
use crate::metric::Metric;
#[cfg(feature = "onnx")]
use crate::model::encoder::GraphSource;
use crate::model::encoder::{Encoder, EncoderOptions};
use crate::model::scorer::Scorer;
use crate::quantizer::Quantizer;
use crate::words::Vocabulary;
use sha2::{Digest as _, Sha256};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A model on disk: an immutable directory of plain files, identified by their contents. Cheap to clone.
#[derive(Clone)]
pub struct Bundle(Arc<Opened>);

struct Opened {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    manifest: Manifest,
    model_id: ModelId,
    encoder_id: EncoderId,
    quantizer: Option<Quantizer>,
    scorer: Option<Scorer>,
    statistics: Option<Vocabulary>,
    /// Loaded on first use, then shared.
    encoder: Mutex<Option<Arc<dyn Encoder>>>,
    /// Whether the manifest differs from the one in `dir`, because [`Bundle::without_quantizer`] made it.
    derived: bool,
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bundle({}, {:?})", self.dir().display(), self.model_id())
    }
}

impl Bundle {
    /// Opens a bundle. Reads and checks the manifest and the quantizer's tensors, and checks that every file exists
    /// with its length. The encoder's files are hashed when it is first loaded, by [`encoder`](Self::encoder).
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_on(Arc::new(Disk::default()), dir.as_ref())
    }

    /// Opens a bundle on another [`Storage`].
    pub(crate) fn open_on(storage: Arc<dyn Storage>, dir: &Path) -> Result<Self> {
        let dir = dir.to_path_buf();
        let path = dir.join(MANIFEST_FILE);
        let bytes = match read_up_to(&*storage, &path, MAX_MANIFEST_BYTES) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let what = match storage.list(&dir) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {
                        "there is no such directory".into()
                    }
                    _ => format!("it contains no {MANIFEST_FILE}"),
                };
                return Err(Error::model(format!(
                    "{} is not a bundle: {what}",
                    dir.display()
                )));
            }
            other => other?,
        };
        let manifest = Manifest::decode(&path, &bytes)?;
        for entry in &manifest.files {
            let path = dir.join(&entry.name);
            let len = storage.len(&path).map_err(Error::io("opening", &path))?;
            check_length(&path, len, entry)?;
        }
        let quantizer = match (&manifest.quantizer, manifest.file(TENSORS_FILE)) {
            (Some(spec), Some(entry)) => {
                let bytes = read_checked(&*storage, &dir, entry)?;
                Some(tensors::decode(
                    &dir.join(TENSORS_FILE),
                    &bytes,
                    &manifest,
                    spec,
                )?)
            }
            _ => None,
        };
        let scorer = match manifest.file(SCORER_FILE) {
            Some(entry) => {
                let bytes = read_checked(&*storage, &dir, entry)?;
                let path = dir.join(SCORER_FILE);
                Some(scorer::decode(&path, &bytes, manifest.input_dim)?)
            }
            None => None,
        };
        let statistics = match manifest.file(STATISTICS_FILE) {
            Some(entry) => {
                let bytes = read_checked(&*storage, &dir, entry)?;
                let path = dir.join(STATISTICS_FILE);
                let read = serde_json::from_slice(&bytes);
                Some(read.map_err(|e| Error::model_because(format!("{}: {e}", path.display()), e))?)
            }
            None => None,
        };
        Ok(Self(Arc::new(Opened {
            model_id: manifest.model_id(),
            encoder_id: manifest.encoder_id(),
            dir,
            manifest,
            quantizer,
            scorer,
            statistics,
            encoder: Mutex::new(None),
            derived: false,
            storage,
        })))
    }

    /// Returns the bundle of an encoder that the program supplies, which has no files.
    pub(crate) fn of_plugged_encoder(name: String, dim: usize, metric: Metric) -> Result<Self> {
        let manifest = Manifest::of_plugged_encoder(name, dim, metric);
        manifest.check()?;
        Ok(Self(Arc::new(Opened {
            storage: Arc::new(Disk::default()),
            model_id: manifest.model_id(),
            encoder_id: manifest.encoder_id(),
            dir: PathBuf::new(),
            manifest,
            quantizer: None,
            scorer: None,
            statistics: None,
            encoder: Mutex::new(None),
            derived: true,
        })))
    }

    /// Returns a bundle with the same encoder, in the same files, without the quantizer.
    pub(crate) fn without_quantizer(&self) -> Self {
        let manifest = self.0.manifest.without_quantizer();
        Self(Arc::new(Opened {
            model_id: manifest.model_id(),
            encoder_id: manifest.encoder_id(),
            dir: self.0.dir.clone(),
            manifest,
            quantizer: None,
            scorer: None,
            statistics: None,
            encoder: Mutex::new(None),
            derived: true,
            storage: Arc::clone(&self.0.storage),
        }))
    }

    /// Returns the bytes of a manifest that is not in a file yet.
    pub(crate) fn derived_manifest(&self) -> Option<Vec<u8>> {
        self.0.derived.then(|| self.0.manifest.encode())
    }

    /// Returns the directory of the bundle.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Returns the manifest of the bundle.
    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }

    /// Returns the hash of everything that determines a result.
    pub fn model_id(&self) -> ModelId {
        self.0.model_id
    }

    /// Returns the hash of everything that determines the codes; `None` without a quantizer.
    pub fn codes_id(&self) -> Option<CodesId> {
        self.0.manifest.codes_id()
    }

    /// Returns the hash of everything that determines the encoder's vectors.
    pub fn encoder_id(&self) -> EncoderId {
        self.0.encoder_id
    }

    /// Returns the metric by which queries and keys are compared.
    pub fn metric(&self) -> Metric {
        self.0.manifest.metric
    }

    /// Returns `true` if the bundle has an encoder.
    pub fn has_encoder(&self) -> bool {
        let manifest = &self.0.manifest;
        manifest.encoder.is_some() || manifest.plugged_encoder.is_some()
    }

    /// Returns the width of the stored vectors.
    pub fn input_dim(&self) -> usize {
        self.0.manifest.input_dim
    }

    /// Returns the quantizer, if the bundle has one.
    pub fn quantizer(&self) -> Result<Option<Quantizer>> {
        Ok(self.0.quantizer.clone())
    }

    /// Returns the scorer, if one was learned.
    pub fn scorer(&self) -> Option<&Scorer> {
        self.0.scorer.as_ref()
    }

    /// Returns the term statistics with which the model was trained.
    pub(crate) fn statistics(&self) -> Option<&Vocabulary> {
        self.0.statistics.as_ref()
    }

    /// Returns the encoder, if the bundle has one: loaded on the first call with [`EncoderOptions::default`], then
    /// shared.
    pub fn encoder(&self) -> Result<Option<Arc<dyn Encoder>>> {
        self.encoder_with(&EncoderOptions::default())
    }

    /// Returns the encoder, loaded with the given options if it isn't loaded yet.
    pub fn encoder_with(&self, options: &EncoderOptions) -> Result<Option<Arc<dyn Encoder>>> {
        if let Some(name) = &self.0.manifest.plugged_encoder {
            return Err(Error::Missing {
                what: format!(
                    "the encoder {name:?} is part of the program that made this database"
                ),
                remedy: "pass it when the database is opened".into(),
            });
        }
        if !self.has_encoder() {
            return Ok(None);
        }
        let mut shared = self
            .0
            .encoder
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if shared.is_none() {
            *shared = Some(self.load_encoder(options)?);
        }
        Ok(shared.clone())
    }

    #[cfg(feature = "onnx")]
    fn load_encoder(&self, options: &EncoderOptions) -> Result<Arc<dyn Encoder>> {
        use crate::model::encoder::{EncoderFiles, OnnxEncoder};
        let manifest = &self.0.manifest;
        let spec = manifest
            .encoder
            .as_ref()
            .expect("the caller has checked that there is one");
        let graph = |name: &str| -> Result<GraphSource> {
            let file = self.keep_open(name)?;
            Ok(Box::new(move || file.checked()))
        };
        let files = EncoderFiles {
            graph: graph(&spec.graph)?,
            query_graph: spec.query_graph.as_deref().map(graph).transpose()?,
            tokenizer: self.keep_open(&spec.tokenizer)?.checked()?.to_vec(),
        };
        let encoder = OnnxEncoder::load(spec, files, options)
            .map_err(|error| error.of_model_at(&self.0.dir))?;
        if encoder.dim() != manifest.input_dim {
            return Err(Error::model(format!(
                "{}: the encoder gives {} dimensions, but the manifest says {}",
                self.0.dir.display(),
                encoder.dim(),
                manifest.input_dim
            )));
        }
        Ok(Arc::new(encoder))
    }

    #[cfg(not(feature = "onnx"))]
    fn load_encoder(&self, _options: &EncoderOptions) -> Result<Arc<dyn Encoder>> {
        Err(Error::Missing {
            what: "this build of mopqdb has no encoder".into(),
            remedy: "build it with the feature `onnx`, or insert precomputed vectors".into(),
        })
    }

    /// Opens an encoder's file and keeps it open, so that it can be read even if the bundle is removed in the meantime.
    #[cfg(feature = "onnx")]
    fn keep_open(&self, name: &str) -> Result<KeptFile> {
        let entry = self
            .0
            .manifest
            .file(name)
            .expect("Manifest::check saw each file listed")
            .clone();
        let path = self.0.dir.join(name);
        let opened = self.0.storage.open(&path);
        let file = opened.map_err(Error::io("opening", &path))?;
        Ok(KeptFile { file, path, entry })
    }

    /// Reads and hashes every file, for `verify`, including those that [`open`](Self::open) only checks when they are
    /// used.
    pub fn verify(&self) -> Result<()> {
        for entry in &self.0.manifest.files {
            read_checked(&*self.0.storage, &self.0.dir, entry)?;
        }
        Ok(())
    }
}

/// A file of a bundle, kept open and checked at each read.
#[cfg(feature = "onnx")]
struct KeptFile {
    file: Box<dyn OpenFile>,
    path: PathBuf,
    entry: FileEntry,
}

#[cfg(feature = "onnx")]
impl KeptFile {
    /// Returns its bytes, after comparing their hash with the manifest's.
    fn checked(&self) -> Result<Mapping> {
        let failed = || Error::io("reading", &self.path);
        // Check the length before reading.
        let len = self.file.bytes().map_err(failed())?;
        check_length(&self.path, len, &self.entry)?;
        let bytes = self.file.map().map_err(failed())?;
        check_contents(&self.path, &bytes, &self.entry)?;
        Ok(bytes)
    }
}

/// Reads one listed file and compares length and hash.
fn read_checked(storage: &dyn Storage, dir: &Path, entry: &FileEntry) -> Result<Vec<u8>> {
    let path = dir.join(&entry.name);
    let bytes = read_up_to(storage, &path, entry.bytes)?;
    check_contents(&path, &bytes, entry)?;
    Ok(bytes)
}

fn check_contents(path: &Path, bytes: &[u8], entry: &FileEntry) -> Result<()> {
    check_length(path, bytes.len() as u64, entry)?;
    let found = to_hex(&Sha256::digest(bytes));
    if found != entry.sha256 {
        let detail = format!(
            "its sha256 is {found}, but the manifest says {}",
            entry.sha256
        );
        return Err(Error::corrupt(path, "contents", 0, detail));
    }
    Ok(())
}

/// Reads a file of at most `limit` bytes.
fn read_up_to(storage: &dyn Storage, path: &Path, limit: u64) -> Result<Vec<u8>> {
    let len = storage.len(path).map_err(Error::io("opening", path))?;
    if len > limit {
        let detail = format!("it has more than {limit} bytes");
        return Err(Error::corrupt(path, "contents", limit, detail));
    }
    storage.read(path).map_err(Error::io("reading", path))
}

fn check_length(path: &Path, found: u64, entry: &FileEntry) -> Result<()> {
    if found == entry.bytes {
        return Ok(());
    }
    let detail = format!(
        "it has {found} bytes, but the manifest says {}",
        entry.bytes
    );
    Err(Error::corrupt(
        path,
        "contents",
        found.min(entry.bytes),
        detail,
    ))
}
