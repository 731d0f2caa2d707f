//! Writing a bundle: into a directory of its own beside the place, synced, then renamed there whole.

use super::id::to_hex;
use super::manifest::{
    FileEntry, MANIFEST_FILE, Manifest, QuantizerSpec, TENSORS_FILE, check_name,
};
use super::open::Bundle;
use super::tensors;
use crate::encoder::EncoderSpec;
use crate::error::{Error, Result};
use crate::metric::Metric;
use crate::quantizer::Quantizer;
use sha2::{Digest as _, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

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
    /// Said, or taken from another bundle; else the quantizer's, else cosine.
    metric: Option<Metric>,
    quantizer: Option<Quantizer>,
    parts: Vec<Part>,
}

/// One file to be: its bytes, or a file of another bundle to link or copy.
enum Part {
    Bytes { name: String, bytes: Vec<u8> },
    From { entry: FileEntry, path: PathBuf },
}

impl BundleWriter {
    /// A bundle at `dir`, which must not exist yet.
    pub fn new(dir: impl AsRef<Path>) -> Self {
        Self {
            dir: dir.as_ref().to_path_buf(),
            manifest: Manifest::empty(Metric::Cosine),
            metric: None,
            quantizer: None,
            parts: Vec::new(),
        }
    }

    /// How queries and keys are compared; if not said, as the encoder's bundle or the quantizer says.
    pub fn metric(mut self, metric: Metric) -> Self {
        self.metric = Some(metric);
        self
    }

    /// How the quantizer was made: "mopq", "opq", ...
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.manifest.method = method.into();
        self
    }

    /// The width of ready-made vectors, for a bundle without an encoder.
    pub fn vectors(mut self, dim: usize) -> Self {
        self.manifest.input_dim = dim;
        self
    }

    /// The encoder (or the width of ready-made vectors) and the metric of another bundle. Files are linked where the
    /// file system can, else copied.
    pub fn encoder_from(mut self, other: &Bundle) -> Self {
        let from = other.manifest();
        self.metric = Some(from.metric);
        self.manifest.input_dim = from.input_dim;
        self.manifest.encoder = from.encoder.clone();
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

    /// An encoder from the bytes of its files, giving vectors of `dim` numbers. The names are those of `spec`.
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

    /// The quantizer.
    pub fn quantizer(mut self, quantizer: &Quantizer) -> Self {
        self.quantizer = Some(quantizer.clone());
        self
    }

    /// Configuration, seed and course of the training.
    pub fn training(mut self, training: serde_json::Value) -> Self {
        self.manifest.training = training;
        self
    }

    /// Measured recall.
    pub fn evaluation(mut self, evaluation: serde_json::Value) -> Self {
        self.manifest.evaluation = evaluation;
        self
    }

    /// Writes the bundle and opens it. Contents are synced before the name, so a crash leaves the whole bundle or
    /// none; what a crashed run left beside the place is a hidden directory that nobody takes for a bundle.
    pub fn finish(mut self) -> Result<Bundle> {
        self.fit()?;
        if self.dir.exists() {
            return Err(Error::invalid(format!(
                "{} is already there; name another directory",
                self.dir.display()
            )));
        }
        let parent = match self.dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        fs::create_dir_all(&parent).map_err(Error::io("creating", &parent))?;
        let fresh = Fresh::create(&parent)?;
        for part in std::mem::take(&mut self.parts) {
            let entry = write_part(&fresh.0, part)?;
            self.manifest.files.push(entry);
        }
        self.manifest.files.sort_by(|a, b| a.name.cmp(&b.name));
        self.manifest.check()?;
        write_file(&fresh.0.join(MANIFEST_FILE), &self.manifest.encode())?;
        sync_dir(&fresh.0)?;
        // Opened before it is named: what is refused never has the name.
        Bundle::open(&fresh.0)?;
        fs::rename(&fresh.0, &self.dir).map_err(Error::io("naming", &self.dir))?;
        sync_dir(&parent)?;
        Bundle::open(&self.dir)
    }

    /// Brings metric, width and quantizer together, or says how they differ.
    fn fit(&mut self) -> Result<()> {
        let Some(quantizer) = self.quantizer.take() else {
            self.manifest.metric = self.metric.unwrap_or(Metric::Cosine);
            return Ok(());
        };
        self.manifest.metric = self.metric.unwrap_or(quantizer.metric());
        if self.manifest.metric != quantizer.metric() {
            return Err(Error::Model(format!(
                "the quantizer is for {}, its encoder for {}",
                quantizer.metric(),
                self.manifest.metric
            )));
        }
        if self.manifest.input_dim == 0 {
            self.manifest.input_dim = quantizer.input_dim();
        }
        if self.manifest.input_dim != quantizer.input_dim() {
            return Err(Error::Model(format!(
                "the quantizer takes vectors of {} dimensions, its encoder gives {}",
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

/// A hidden directory beside the place, gone when it was not renamed.
struct Fresh(PathBuf);

impl Fresh {
    fn create(parent: &Path) -> Result<Self> {
        let pid = std::process::id();
        for attempt in 0..1000 {
            let dir = parent.join(format!(".bundle-{pid}-{attempt}.tmp"));
            match fs::create_dir(&dir) {
                Ok(()) => return Ok(Self(dir)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("creating", &dir)(error)),
            }
        }
        Err(Error::invalid(format!(
            "{} is full of .bundle-*.tmp; remove them",
            parent.display()
        )))
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // After the rename there is nothing of that name; a failure here leaves only a hidden directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write_part(dir: &Path, part: Part) -> Result<FileEntry> {
    // Before anything is written: a name with a path in it would be written outside.
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
            write_file(&dir.join(&entry.name), &bytes)?;
            Ok(entry)
        }
        Part::From { entry, path } => {
            let to = dir.join(&entry.name);
            // A link needs no sync: the file it names was synced when its own bundle was written.
            if fs::hard_link(&path, &to).is_err() {
                fs::copy(&path, &to).map_err(Error::io("copying", &path))?;
                File::open(&to)
                    .and_then(|file| file.sync_all())
                    .map_err(Error::io("syncing", &to))?;
            }
            Ok(entry)
        }
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(Error::io("creating", path))?;
    file.write_all(bytes).map_err(Error::io("writing", path))?;
    // Linked files share their bytes with other bundles: nobody may write to them.
    let mut permissions = file
        .metadata()
        .map_err(Error::io("reading", path))?
        .permissions();
    permissions.set_readonly(true);
    file.set_permissions(permissions)
        .map_err(Error::io("writing", path))?;
    file.sync_all().map_err(Error::io("syncing", path))
}

fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|file| file.sync_all())
        .map_err(Error::io("syncing", dir))
}
