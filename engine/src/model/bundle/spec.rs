//! `manifest.json`: what a bundle is made of and how its parts are used.
//!
//! Plain JSON for people, sealed for machines: its last field is the hash of every byte before it, so that a flipped
//! bit in a prefix or a limit is noticed as surely as one in the weights.

use crate::disk::files::Storage;
use crate::error::{Error, Result};
use crate::ids::content::{ContentHash, from_hex, to_hex};
use crate::ids::{CodesId, EncoderId, ModelId};
use crate::metric::Metric;
use crate::model::encoder::EncoderSpec;
use crate::quantizer::{Activation, Cells, CodeShape, MAX_CELLS, Quantizer, QueryMode, Selection};
use crate::row::Serving;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;
use std::path::Path;

/// The version that this program writes, and the newest that it reads.
pub const MANIFEST_VERSION: u32 = 2;

/// The manifest's name in a bundle.
pub const MANIFEST_FILE: &str = "manifest.json";

/// The name of the quantizer's tensors in a bundle.
pub const TENSORS_FILE: &str = "tensors.safetensors";

/// The name of the scorer's tensors in a bundle.
pub const SCORER_FILE: &str = "scorer.safetensors";

/// The name of the term statistics in a bundle.
pub const STATISTICS_FILE: &str = "words.json";

/// Far larger than any manifest that mopqdb writes.
pub(super) const MAX_MANIFEST_BYTES: u64 = 16 << 20;

/// What a bundle is made of and how its parts are used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of this layout.
    pub version: u32,
    /// How the quantizer was made: "mopq", "opq", ...; "none" where there is none.
    pub method: String,
    /// How queries and keys are compared.
    pub metric: Metric,
    /// The width of the stored vectors: of the encoder's output, or of precomputed vectors.
    pub input_dim: usize,
    /// How texts become vectors; none in a bundle for precomputed vectors.
    pub encoder: Option<EncoderSpec>,
    /// The name of an encoder that the program brings, where texts are encoded by none of the bundle's files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugged_encoder: Option<String>,
    /// How vectors become codes; none until one is trained.
    pub quantizer: Option<QuantizerSpec>,
    /// Settings of queries that were measured when the model was trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serving: Option<Serving>,
    /// Configuration, seed and course of the training, as the trainer wrote them.
    pub training: serde_json::Value,
    /// Measured recall, as the trainer wrote it.
    pub evaluation: serde_json::Value,
    /// Every other file of the bundle.
    pub files: Vec<FileEntry>,
}

/// How vectors become codes; the numbers are in `tensors.safetensors`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantizerSpec {
    /// Width after the head: subspaces x sub_dim.
    pub dim: usize,
    /// Slices per vector.
    pub subspaces: usize,
    /// Codewords per slice.
    pub codewords: usize,
    /// Whether a linear layer comes first.
    pub head: bool,
    /// "none" or "elu", after the head.
    pub activation: ActivationName,
    /// Whether a rotation follows.
    pub rotation: bool,
    /// How a codeword is chosen.
    pub selection: SelectionName,
    /// How a query is transformed before its table is built.
    pub query: QueryName,
    /// The temperature of a soft query.
    pub temperature: Option<f32>,
    /// The cells, by which queries look at a part of the rows; `None` if they look at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<CellsSpec>,
}

/// Cells without their tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellsSpec {
    /// Cells.
    pub count: usize,
    /// Groups of cells; 0 if rows are compared with every cell.
    pub groups: usize,
    /// Whether codes are of the difference between a row and its cell.
    pub residual: bool,
}

impl CellsSpec {
    fn of(cells: &Cells) -> Self {
        Self {
            count: cells.len(),
            groups: cells.groups().len() / cells.dim(),
            residual: cells.is_residual(),
        }
    }

    fn in_id(self) -> &'static str {
        match self.residual {
            true => "residual",
            false => "plain",
        }
    }
}

/// [`Activation`] by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are those of Activation")]
pub enum ActivationName {
    None,
    Elu,
}

/// [`Selection`] by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are those of Selection")]
pub enum SelectionName {
    L2,
    Cosine,
    Product,
    Bilinear,
    Keys,
}

/// [`QueryMode`] by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are those of QueryMode")]
pub enum QueryName {
    Plain,
    Soft,
}

// Ids hash these names. They are written out, so that renaming a variant does not change the id of a model on disk.

impl ActivationName {
    fn in_id(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Elu => "Elu",
        }
    }
}

impl SelectionName {
    fn in_id(self) -> &'static str {
        match self {
            Self::L2 => "L2",
            Self::Cosine => "Cosine",
            Self::Product => "Product",
            Self::Bilinear => "Bilinear",
            Self::Keys => "Keys",
        }
    }
}

impl QueryName {
    fn in_id(self) -> &'static str {
        match self {
            Self::Plain => "Plain",
            Self::Soft => "Soft",
        }
    }
}

impl QuantizerSpec {
    /// Describes a quantizer without its tensors.
    pub fn of(quantizer: &Quantizer) -> Self {
        let (query, temperature) = match quantizer.query_mode() {
            QueryMode::Plain => (QueryName::Plain, None),
            QueryMode::Soft { temperature } => (QueryName::Soft, Some(temperature)),
        };
        Self {
            dim: quantizer.dim(),
            subspaces: quantizer.shape().subspaces(),
            codewords: quantizer.shape().codewords(),
            head: quantizer.head().is_some(),
            activation: match quantizer.activation() {
                Activation::None => ActivationName::None,
                Activation::Elu => ActivationName::Elu,
            },
            rotation: quantizer.rotation().is_some(),
            selection: match quantizer.selection() {
                Selection::L2 => SelectionName::L2,
                Selection::Cosine => SelectionName::Cosine,
                Selection::Product => SelectionName::Product,
                Selection::Bilinear { .. } => SelectionName::Bilinear,
                Selection::Keys { .. } => SelectionName::Keys,
            },
            query,
            temperature,
            cells: quantizer.cells().map(CellsSpec::of),
        }
    }

    /// Returns the shape of the codes.
    pub fn shape(&self) -> Result<CodeShape> {
        CodeShape::new(self.subspaces, self.codewords)
    }

    fn query_mode(&self) -> Option<QueryMode> {
        match (self.query, self.temperature) {
            (QueryName::Plain, None) => Some(QueryMode::Plain),
            (QueryName::Soft, Some(temperature)) => Some(QueryMode::Soft { temperature }),
            _ => None,
        }
    }

    /// Returns the query mode. Requires: the manifest was checked.
    pub(super) fn checked_query_mode(&self) -> QueryMode {
        self.query_mode()
            .expect("Manifest::check refused a temperature without a soft query")
    }
}

/// One file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// A plain name, no path.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its hash, 64 hex digits.
    pub sha256: String,
}

impl FileEntry {
    /// Returns whether these bytes are the file's.
    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        self.bytes == bytes.len() as u64 && self.sha256 == to_hex(&Sha256::digest(bytes))
    }
}

/// Only the version, to refuse a newer manifest by name before its fields are looked at.
#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

impl Manifest {
    /// Returns the manifest of an encoder that a program brings.
    pub(super) fn of_plugged_encoder(name: String, dim: usize, metric: Metric) -> Self {
        Self {
            input_dim: dim,
            plugged_encoder: Some(name),
            ..Self::empty(metric)
        }
    }

    /// Returns a manifest without encoder and quantizer.
    pub(super) fn empty(metric: Metric) -> Self {
        Self {
            version: MANIFEST_VERSION,
            method: "none".into(),
            metric,
            input_dim: 0,
            encoder: None,
            plugged_encoder: None,
            quantizer: None,
            serving: None,
            training: serde_json::Value::Null,
            evaluation: serde_json::Value::Null,
            files: Vec::new(),
        }
    }

    /// The same encoder, without the quantizer, the scorer and what was said of them.
    pub(super) fn without_quantizer(&self) -> Self {
        let learned = [TENSORS_FILE, SCORER_FILE, STATISTICS_FILE];
        let files = self
            .files
            .iter()
            .filter(|file| !learned.contains(&file.name.as_str()));
        Self {
            input_dim: self.input_dim,
            encoder: self.encoder.clone(),
            plugged_encoder: self.plugged_encoder.clone(),
            files: files.cloned().collect(),
            ..Self::empty(self.metric)
        }
    }

    /// Returns the entry of a file.
    pub fn file(&self, name: &str) -> Option<&FileEntry> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Returns the content id of the encoder.
    pub fn encoder_id(&self) -> EncoderId {
        if let Some(name) = &self.plugged_encoder {
            let hash = ContentHash::new("mopqdb plugged encoder 1")
                .field(name.as_bytes())
                .number(self.input_dim as u64)
                .field(self.metric.name().as_bytes());
            return EncoderId(hash.finish());
        }
        let Some(spec) = &self.encoder else {
            return EncoderId::vectors(self.input_dim, self.metric);
        };
        let sha256 = |name: &str| self.file(name).map(|file| file.sha256.as_str());
        let hash = ContentHash::new("mopqdb encoder 1")
            .number(self.input_dim as u64)
            .field(self.metric.name().as_bytes())
            .maybe(sha256(&spec.graph))
            .maybe(spec.query_graph.as_deref().and_then(sha256))
            .maybe(sha256(&spec.tokenizer))
            .field(spec.inputs.ids.as_bytes())
            .maybe(spec.inputs.mask.as_deref())
            .maybe(spec.inputs.types.as_deref())
            .field(spec.output.as_bytes())
            .field(spec.pooling.name().as_bytes())
            .number(u64::from(spec.normalize))
            .field(spec.key.prefix.as_bytes())
            .number(spec.key.max_tokens as u64)
            .field(spec.query.prefix.as_bytes())
            .number(spec.query.max_tokens as u64);
        EncoderId(hash.finish())
    }

    /// Returns the encoder, the quantizer and the scorer together, by content.
    pub fn model_id(&self) -> ModelId {
        let unscored = match self.codes_id() {
            Some(codes) => ModelId(codes.0),
            None => ModelId::exact(self.encoder_id()),
        };
        let (scorer, statistics) = (self.file(SCORER_FILE), self.file(STATISTICS_FILE));
        if scorer.is_none() && statistics.is_none() {
            return unscored;
        }
        let sha256 = |file: Option<&FileEntry>| file.map(|file| file.sha256.clone());
        let hash = ContentHash::new("mopqdb model 2").field(&unscored.0);
        let hash = hash
            .maybe(sha256(scorer).as_deref())
            .maybe(sha256(statistics).as_deref());
        ModelId(hash.finish())
    }

    /// Returns what codes depend on, by content: the encoder and the quantizer. `None` without a quantizer.
    pub fn codes_id(&self) -> Option<CodesId> {
        let spec = self.quantizer.as_ref()?;
        // The name of the kind is that of models, whose ids these were before there were scorers.
        let hash = ContentHash::new("mopqdb model 1").field(&self.encoder_id().0);
        // The shape and the presence of head and rotation are in the tensors' own header.
        let tensors = self.file(TENSORS_FILE).map(|file| file.sha256.as_str());
        let hash = hash
            .maybe(tensors)
            .field(spec.activation.in_id().as_bytes())
            .field(spec.selection.in_id().as_bytes())
            .field(spec.query.in_id().as_bytes())
            .number(spec.temperature.map_or(0, |t| u64::from(t.to_bits())));
        // The cells themselves are among the tensors.
        let hash = match spec.cells {
            Some(cells) => hash.field(cells.in_id().as_bytes()),
            None => hash,
        };
        Some(CodesId(hash.finish()))
    }

    /// Returns the bytes of `manifest.json`, sealed.
    pub(super) fn encode(&self) -> Vec<u8> {
        let text = serde_json::to_string_pretty(self).expect("a manifest has only string keys");
        let body = text
            .strip_suffix("\n}")
            .expect("a struct with fields ends so");
        let mut bytes = format!("{body},{SEAL_BEFORE}").into_bytes();
        let seal = to_hex(&Sha256::digest(&bytes));
        bytes.extend_from_slice(seal.as_bytes());
        bytes.extend_from_slice(SEAL_AFTER.as_bytes());
        bytes
    }

    /// Reads and checks the manifest of a bundle, and looks at none of its other files.
    pub(crate) fn read(files: &dyn Storage, dir: &Path) -> Result<Self> {
        let path = dir.join(MANIFEST_FILE);
        let bytes = files.read(&path).map_err(Error::io("reading", &path))?;
        Self::decode(&path, &bytes)
    }

    /// Reads and checks `manifest.json`.
    pub(super) fn decode(path: &Path, bytes: &[u8]) -> Result<Self> {
        let corrupt = |detail: String| Error::corrupt(path, "manifest", 0, detail);
        // A later version may be sealed otherwise: it is refused by its name first.
        match serde_json::from_slice::<VersionOnly>(bytes) {
            Ok(found) if found.version > MANIFEST_VERSION => {
                return Err(Error::Incompatible {
                    path: path.to_path_buf(),
                    what: format!(
                        "this is a bundle of version {}, this program reads up to {MANIFEST_VERSION}; use a newer mopqdb",
                        found.version
                    ),
                });
            }
            _ => {}
        }
        let sealed_at = bytes
            .len()
            .checked_sub(64 + SEAL_AFTER.len())
            .ok_or_else(|| corrupt("it is cut short".into()))?;
        let (sealed, seal) = bytes.split_at(sealed_at);
        let digits = seal
            .strip_suffix(SEAL_AFTER.as_bytes())
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .filter(|_| sealed.ends_with(SEAL_BEFORE.as_bytes()));
        let Some(digits) = digits else {
            return Err(corrupt(
                "it does not end in its checksum: cut short, or not written by mopqdb".into(),
            ));
        };
        if digits != to_hex(&Sha256::digest(sealed)) {
            return Err(corrupt(
                "its checksum does not match; a bundle is written by a program, not by hand".into(),
            ));
        }
        let body = sealed
            .strip_suffix(format!(",{SEAL_BEFORE}").as_bytes())
            .ok_or_else(|| corrupt("it does not end in its checksum".into()))?;
        let text = [body, b"}"].concat();
        let manifest: Self =
            serde_json::from_slice(&text).map_err(|error| corrupt(error.to_string()))?;
        manifest.check().map_err(|error| error.of_model_at(path))?;
        Ok(manifest)
    }

    /// Refuses names that lead out of the bundle, missing files and numbers that can't be.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::model(what));
        if self.version == 0 {
            return refuse("version 0 is no version of a bundle".into());
        }
        if !(1..=MAX_DIM).contains(&self.input_dim) {
            return refuse(format!(
                "vectors of {} dimensions; served are 1 to {MAX_DIM}",
                self.input_dim
            ));
        }
        if self.serving.is_some_and(|serving| !serving.is_valid()) {
            return refuse("its settings of queries contradict themselves".into());
        }
        let mut names = HashSet::new();
        for file in &self.files {
            check_name(&file.name)?;
            if !names.insert(file.name.as_str()) {
                return refuse(format!("{} is listed twice", file.name));
            }
            if from_hex::<32>(&file.sha256).is_none()
                || file.sha256.bytes().any(|b| b.is_ascii_uppercase())
            {
                return refuse(format!("{:?} is no sha256 of {}", file.sha256, file.name));
            }
            let limit = size_limit(&file.name);
            if file.bytes > limit {
                return refuse(format!(
                    "{} has {} bytes, at most {limit} are served",
                    file.name, file.bytes
                ));
            }
        }
        if let Some(name) = &self.plugged_encoder
            && (self.encoder.is_some() || name.is_empty() || name.len() > 256)
        {
            return refuse(
                "the name of a plugged encoder has 1 to 256 bytes, and takes the place of an encoder".into(),
            );
        }
        let mut wanted = HashSet::new();
        if let Some(spec) = &self.encoder {
            spec.check()?;
            for file in spec.files() {
                if !wanted.insert(file) {
                    return refuse(format!("{file} is named for two parts of the encoder"));
                }
            }
        }
        if let Some(spec) = &self.quantizer {
            spec.shape()?;
            if spec.query_mode().is_none() {
                return refuse("a soft query has a temperature, and a plain one has none".into());
            }
            if spec.dim == 0 || spec.dim > MAX_DIM || spec.dim % spec.subspaces != 0 {
                return refuse(format!(
                    "{} dimensions don't make {} subspaces",
                    spec.dim, spec.subspaces
                ));
            }
            if !spec.head && spec.dim != self.input_dim {
                return refuse(format!(
                    "without a head, {} dimensions can't become {}",
                    self.input_dim, spec.dim
                ));
            }
            if let Some(cells) = spec.cells {
                if !(1..=MAX_CELLS).contains(&cells.count) || cells.groups > cells.count.min(256) {
                    return refuse(format!(
                        "{} cells in {} groups; a model has up to {MAX_CELLS} cells in up to 256 groups, none of them empty",
                        cells.count, cells.groups
                    ));
                }
                if cells.residual && self.metric == Metric::L2 {
                    return refuse(
                        "codes of the difference between a row and its cell are for ip and cosine"
                            .into(),
                    );
                }
            }
            if !wanted.insert(TENSORS_FILE) {
                return refuse(format!("{TENSORS_FILE} is named for two parts"));
            }
        }
        for learned in [SCORER_FILE, STATISTICS_FILE] {
            if names.contains(learned) && self.version > 1 && !wanted.insert(learned) {
                return refuse(format!("{learned} is named for two parts"));
            }
        }
        if let Some(missing) = wanted.iter().find(|name| !names.contains(**name)) {
            return refuse(format!("{missing} is used but not listed"));
        }
        if let Some(stray) = names.iter().find(|name| !wanted.contains(**name)) {
            return refuse(format!("{stray} is listed but not used"));
        }
        Ok(())
    }
}

/// The maximum dimensions of a vector.
pub const MAX_DIM: usize = 65_536;

const SEAL_BEFORE: &str = "\n  \"checksum\": \"";
const SEAL_AFTER: &str = "\"\n}\n";

/// The most bytes that a file of a bundle may have.
fn size_limit(name: &str) -> u64 {
    match Path::new(name).extension().and_then(|ext| ext.to_str()) {
        // A protobuf message ends at 2 GiB.
        Some("onnx") => 2 << 30,
        Some("safetensors") => 1 << 30,
        // The largest tokenizers that we know, of 250,000 tokens, have some 20 MB.
        _ => 128 << 20,
    }
}

/// Refuses a name that does not stay in its folder on every system, and hidden files.
pub(super) fn check_name(name: &str) -> Result<()> {
    let plain = !name.is_empty()
        && name.len() <= 128
        && !name.starts_with('.')
        && name != MANIFEST_FILE
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if plain {
        return Ok(());
    }
    Err(Error::model(format!("{name:?} is not a plain file name")))
}
