//! How a database is made and opened.

use crate::metric::Metric;
use crate::stored::Precision;
use std::path::PathBuf;
use std::time::Duration;

/// What a new database is.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// The bundle that it starts with: an encoder, codebooks, or both. Without one it takes vectors of `dim`.
    pub bundle: Option<PathBuf>,
    /// Width of the vectors; with a bundle it may be left out, and has to agree.
    pub dim: Option<usize>,
    /// How queries and keys are compared; with a bundle it may be left out, and has to agree. Default: cosine.
    pub metric: Option<Metric>,
    /// How stored vectors are rounded, for good. Default: f32 for vectors, f16 for what an encoder makes of texts.
    pub store: Option<Precision>,
}

impl CreateOptions {
    /// A database of ready-made vectors.
    pub fn vectors(dim: usize, metric: Metric) -> Self {
        Self {
            bundle: None,
            dim: Some(dim),
            metric: Some(metric),
            store: None,
        }
    }

    /// A database with this bundle's model.
    pub fn bundle(path: impl Into<PathBuf>) -> Self {
        Self {
            bundle: Some(path.into()),
            dim: None,
            metric: None,
            store: None,
        }
    }

    /// Rounds stored vectors like this.
    #[must_use]
    pub fn store(mut self, precision: Precision) -> Self {
        self.store = Some(precision);
        self
    }
}

/// How a database is opened. The defaults suit most.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads of a scan, of quantizing and of encoding; 0: as many as the machine has cores. At most
    /// [`MAX_THREADS`](crate::MAX_THREADS).
    pub threads: usize,
    /// A tail of this many rows is sealed into a segment.
    pub seal_rows: usize,
    /// Logs of this many bytes are sealed too.
    pub seal_bytes: u64,
    /// Seal on a thread of its own. An insert waits for it only when the tail has grown to twice what is due; otherwise
    /// the insert that makes a seal due does it.
    pub seal_in_background: bool,
    /// Memory that rebuilding, compacting and training may take for their buffers, in bytes.
    pub memory_limit: usize,
    /// Merge small segments and drop dead rows in the background.
    pub auto_compact: bool,
    /// With this many rows and no quantizer ever registered, learn codes in the background, and switch to them if that
    /// costs hardly any recall on the database's own rows: see
    /// [`Database::auto_quantize`](crate::Database::auto_quantize). A rebuild to
    /// [`ModelId::exact`](crate::ModelId::exact) ends it for good. `None`, the default: rows are searched exactly until a
    /// model is trained and switched to by hand. [`AUTO_QUANTIZE_ROWS`](crate::AUTO_QUANTIZE_ROWS) is a good number.
    pub auto_quantize: Option<u64>,
    /// How often the maintenance thread looks for a prepared rebuild to commit.
    pub maintenance: Duration,
    /// Read segments into memory in place of mapping them.
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
