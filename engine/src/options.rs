//! Options for creating and opening a database.

use crate::metric::Metric;
use crate::stored::Precision;
use std::path::PathBuf;
use std::time::Duration;

/// Options for creating a database.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// The bundle to start with: an encoder, codebooks, or both. Without a bundle the database stores vectors
    /// of `dim` values.
    pub bundle: Option<PathBuf>,
    /// The dimensions of the vectors. With a bundle it is optional, and must match it.
    pub dim: Option<usize>,
    /// The metric. With a bundle it is optional, and must match it. Default: cosine.
    pub metric: Option<Metric>,
    /// How stored vectors are rounded. It cannot be changed later. Default: f32 for vectors, f16 for what an
    /// encoder makes of texts.
    pub store: Option<Precision>,
}

impl CreateOptions {
    /// Returns options for a database of precomputed vectors.
    pub fn vectors(dim: usize, metric: Metric) -> Self {
        Self {
            bundle: None,
            dim: Some(dim),
            metric: Some(metric),
            store: None,
        }
    }

    /// Returns options for a database with this bundle's model.
    pub fn bundle(path: impl Into<PathBuf>) -> Self {
        Self {
            bundle: Some(path.into()),
            dim: None,
            metric: None,
            store: None,
        }
    }

    /// Sets the precision of stored vectors.
    #[must_use]
    pub fn store(mut self, precision: Precision) -> Self {
        self.store = Some(precision);
        self
    }
}

/// Options for opening a database.
#[derive(Debug, Clone)]
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
        }
    }
}
