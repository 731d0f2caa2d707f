//! Options for creating and opening a database.

use crate::columns::{ColumnType, DEFAULT_MASK_BYTES};
use crate::metric::Metric;
use crate::model::encoder::{Encoder, PluggedEncoder};
use crate::stored::Precision;
use crate::words::Settings as WordsSettings;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options for creating a database: what its rows are, which never changes.
///
/// ```
/// use mopqdb::{CreateOptions, Metric, Precision};
/// let vectors = CreateOptions::vectors(768, Metric::Cosine).store(Precision::I8);
/// let texts = CreateOptions::text();
/// # let _ = (vectors, texts);
/// ```
#[derive(Debug, Clone)]
pub struct CreateOptions {
    pub(crate) rows: NewRows,
    pub(crate) store: Option<Precision>,
    pub(crate) words: Option<WordsSettings>,
    pub(crate) columns: Vec<(String, ColumnType)>,
}

/// What the rows of a new database are.
#[derive(Debug, Clone)]
pub(crate) enum NewRows {
    Vectors {
        dim: usize,
        metric: Metric,
    },
    /// As this bundle says; width and metric, where given, must agree with it.
    Bundle {
        path: PathBuf,
        dim: Option<usize>,
        metric: Option<Metric>,
    },
    /// Texts, with the default encoder.
    Text,
    /// Texts, with an encoder of the program's own.
    Encoded {
        encoder: PluggedEncoder,
        metric: Metric,
    },
}

impl CreateOptions {
    /// Returns options for a database of precomputed vectors.
    pub fn vectors(dim: usize, metric: Metric) -> Self {
        Self::of(NewRows::Vectors { dim, metric })
    }

    /// Returns options for a database of texts with the default encoder, which must be installed
    /// ([`default_bundle`](crate::encoder::default_bundle)).
    pub fn text() -> Self {
        Self::of(NewRows::Text)
    }

    /// Returns options for a database with this bundle's model.
    pub fn bundle(path: impl Into<PathBuf>) -> Self {
        Self::of(NewRows::Bundle {
            path: path.into(),
            dim: None,
            metric: None,
        })
    }

    /// Returns options for a database of texts with an encoder of your own. The database stores its
    /// [name](Encoder::name); whoever opens the database gives the encoder again, by
    /// [`Options::encoder`] or [`ReadOptions::encoder`], to insert or search texts.
    pub fn encoder(encoder: Arc<dyn Encoder>, metric: Metric) -> Self {
        Self::of(NewRows::Encoded {
            encoder: PluggedEncoder(encoder),
            metric,
        })
    }

    fn of(rows: NewRows) -> Self {
        Self {
            rows,
            store: None,
            words: Some(WordsSettings::default()),
            columns: Vec::new(),
        }
    }

    /// Sets the precision of stored vectors. It cannot be changed later. Default: f32 for vectors, f16 for what an
    /// encoder makes of texts.
    #[must_use]
    pub fn store(mut self, precision: Precision) -> Self {
        self.store = Some(precision);
        self
    }

    /// Sets how texts become terms, by which they can be searched for words too; `None`: not at all. It cannot be changed
    /// later. Databases of vectors have no words.
    #[must_use]
    pub fn words(mut self, settings: impl Into<Option<WordsSettings>>) -> Self {
        self.words = settings.into();
        self
    }

    /// Declares a column. Others appear when rows first have values of them.
    #[must_use]
    pub fn column(mut self, name: impl Into<String>, kind: ColumnType) -> Self {
        self.columns.push((name.into(), kind));
        self
    }

    /// Requires the vectors to have this width. A bundle of another width is then refused.
    #[must_use]
    pub fn dim(mut self, width: usize) -> Self {
        match &mut self.rows {
            NewRows::Vectors { dim, .. } => *dim = width,
            NewRows::Bundle { dim, .. } => *dim = Some(width),
            NewRows::Text | NewRows::Encoded { .. } => {}
        }
        self
    }

    /// Requires this metric. A bundle for another metric is then refused.
    #[must_use]
    pub fn metric(mut self, wanted: Metric) -> Self {
        match &mut self.rows {
            NewRows::Vectors { metric, .. } | NewRows::Encoded { metric, .. } => *metric = wanted,
            NewRows::Bundle { metric, .. } => *metric = Some(wanted),
            NewRows::Text => {}
        }
        self
    }
}

/// Options for opening a database for writing.
///
/// ```
/// let options = mopqdb::Options::default().threads(4).seal_rows(100_000);
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Threads for scans, quantization and encoding; 0 means one per core. At most
    /// [`MAX_THREADS`](crate::MAX_THREADS).
    pub threads: usize,
    /// Seal the tail when it has this many rows.
    pub seal_rows: usize,
    /// Seal the tail when its logs have this many bytes.
    pub seal_bytes: u64,
    /// Seal on a background thread. An insert then waits only when the tail has grown to twice the limit. Otherwise,
    /// the insert that reaches the limit seals.
    pub seal_in_background: bool,
    /// Memory for the buffers of rebuild, compaction and training, in bytes.
    pub memory_limit: usize,
    /// Merge small segments and drop dead rows in the background.
    pub auto_compact: bool,
    /// With this many rows and no quantizer ever registered, learn codes in the background, and switch to them if that
    /// costs hardly any recall on the database's own rows: see
    /// [`Database::auto_quantize`](crate::Database::auto_quantize). A rebuild to
    /// [`ModelId::exact`](crate::ModelId::exact) ends it permanently. With `None`, the default, rows are searched
    /// exactly until you train a model and rebuild. [`AUTO_QUANTIZE_ROWS`](crate::AUTO_QUANTIZE_ROWS) is a good value.
    pub auto_quantize: Option<u64>,
    /// How often the maintenance thread looks for a prepared rebuild to commit.
    pub maintenance: Duration,
    /// Read segments into memory instead of mapping them.
    pub no_mmap: bool,
    /// Memory for what is kept of filters that were used, in bytes: a bit per row and filter.
    pub filter_memory: usize,
    pub(crate) encoder: Option<PluggedEncoder>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 0,
            seal_rows: 1 << 18,
            seal_bytes: 256 << 20,
            seal_in_background: true,
            memory_limit: 512 << 20,
            auto_compact: true,
            auto_quantize: None,
            maintenance: Duration::from_millis(200),
            no_mmap: false,
            filter_memory: DEFAULT_MASK_BYTES,
            encoder: None,
        }
    }
}

impl Options {
    setters!(
        threads: usize,
        seal_rows: usize,
        seal_bytes: u64,
        seal_in_background: bool,
        memory_limit: usize,
        auto_compact: bool,
        maintenance: Duration,
        no_mmap: bool,
        filter_memory: usize,
        ; into
        auto_quantize: Option<u64>,
    );

    /// Brings the encoder of a database that was [created with one](CreateOptions::encoder).
    #[must_use]
    pub fn encoder(mut self, encoder: Arc<dyn Encoder>) -> Self {
        self.encoder = Some(PluggedEncoder(encoder));
        self
    }

    /// Returns what a reader takes of these.
    pub(crate) fn for_reading(&self) -> ReadOptions {
        ReadOptions {
            threads: self.threads,
            no_mmap: self.no_mmap,
            filter_memory: self.filter_memory,
            encoder: self.encoder.clone(),
        }
    }
}

impl From<Options> for ReadOptions {
    fn from(options: Options) -> Self {
        options.for_reading()
    }
}

/// Options for opening a database for reading.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Threads for scans and for encoding queries; 0 means one per core. At most
    /// [`MAX_THREADS`](crate::MAX_THREADS).
    pub threads: usize,
    /// Read segments into memory instead of mapping them.
    pub no_mmap: bool,
    /// Memory for what is kept of filters that were used, in bytes: a bit per row and filter.
    pub filter_memory: usize,
    pub(crate) encoder: Option<PluggedEncoder>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Options::default().for_reading()
    }
}

impl ReadOptions {
    setters!(
        threads: usize,
        no_mmap: bool,
        filter_memory: usize,
    );

    /// Brings the encoder of a database that was [created with one](CreateOptions::encoder).
    #[must_use]
    pub fn encoder(mut self, encoder: Arc<dyn Encoder>) -> Self {
        self.encoder = Some(PluggedEncoder(encoder));
        self
    }
}
