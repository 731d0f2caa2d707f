//! An embedded approximate-nearest-neighbour database whose quantizer learns what its users search for.

mod backup;
mod database;
pub mod disk;
mod drift;
mod error;
pub mod eval;
pub mod format;
#[doc(hidden)]
pub mod hostile;
mod ids;
pub mod kernel;
mod learn;
mod log;
mod metric;
mod model;
mod options;
mod prune;
pub mod quantizer;
mod reader;
mod rebuild;
mod repair;
mod row;
mod salvage;
pub mod scan;
pub mod segment;
mod snapshot;
mod stats;
mod threads;
pub mod vectors;
mod verify;
mod version;
mod view;
mod watch;
mod write;

pub use backup::{Backup, BackupOptions, backup, backup_with};
pub use database::Database;
pub use drift::Drift;
pub use error::{Corruption, Error, Result};
pub use ids::{EncoderId, Generation, LogId, ModelId, RowId, SegmentId, Seq};
pub use learn::{AUTO_QUANTIZE_ROWS, LearnOptions, Learned, learn};
pub use metric::Metric;
pub use model::Model;
pub use model::bundle::{Bundle, BundleWriter};
pub use model::registry::{EXACT, ModelInfo, find_model, models, open_model, register_model};
pub use model::{bundle, encoder};
pub use options::{CreateOptions, Options};
pub use prune::{PruneOptions, Pruned, prune};
pub use reader::Reader;
pub use rebuild::{RebuildOptions, Rebuilt, rebuild};
pub use repair::{RepairOptions, Repaired, repair};
pub use row::{
    Filter, Hit, Inserted, MAX_K, MAX_KEY, MAX_TEXT, Query, QueryOptions, Row, RowsKind, Value,
};
pub use salvage::{RowsRead, read_rows};
pub use snapshot::{RowView, Snapshot};
pub use stats::{Bytes, Stats};
pub use threads::MAX_THREADS;
pub use verify::{ENCODE_TOLERANCE, Verified, VerifyOptions, verify};
pub use watch::{Progress, Watch};
pub use write::Compacted;
