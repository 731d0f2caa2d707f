//! An embedded vector and text search database whose quantizer learns what its users search for.
//!
//! [`Database`] is the handle of the one writing process, [`Reader`] that of any other process; both
//! answer queries ([`Handle`]). Calls block. Start with the example at [`Database`].

mod admin;
mod database;
pub mod disk;
mod error;
pub mod eval;
pub mod format;
mod ids;
pub mod kernel;
mod learn;
mod log;
mod metric;
mod model;
mod options;
pub mod quantizer;
mod query;
mod reader;
mod rebuild;
mod row;
pub mod scan;
pub mod segment;
mod snapshot;
mod stored;
#[doc(hidden)]
pub mod testing;
mod threads;
mod version;
mod view;
mod watch;
mod write;

pub use admin::backup::{Backup, BackupOptions, backup, backup_with};
pub use admin::draft::Draft;
pub use admin::drift::Drift;
pub use admin::models::{find_model, models, open_model, register_model};
pub use admin::prune::{PruneOptions, Pruned, prune};
pub use admin::repair::{RepairOptions, Repaired, repair};
pub use admin::runs::training_log;
pub use admin::salvage::{RowsRead, read_rows};
pub use admin::stats::{Bytes, Stats};
pub use admin::verify::{ENCODE_TOLERANCE, Verified, VerifyOptions, verify};
pub use database::Database;
pub use error::{Corruption, Error, Result};
pub use ids::{CodesId, DatabaseId, EncoderId, Generation, LogId, ModelId, RowId, SegmentId, Seq};
pub use learn::{AUTO_QUANTIZE_ROWS, LearnOptions, Learned, learn};
pub use metric::Metric;
pub use model::Model;
pub use model::bundle::{Bundle, BundleWriter};
pub use model::registry::{EXACT, ModelInfo};
pub use model::scorer::Scorer;
pub use model::serving::Serving;
pub use model::{bundle, encoder};
pub use options::{CreateOptions, Options};
pub use query::explain::{Explanation, Stage};
pub use reader::{Handle, Reader};
pub use rebuild::{AUTO_QUANTIZE_RECALL, AutoQuantized, RebuildOptions, Rebuilt, Trial, rebuild};
pub use row::{
    Filter, Hit, Inserted, MAX_CANDIDATES, MAX_K, MAX_KEY, MAX_TEXT, Query, QueryOptions, Row,
    RowsKind, Search, Value, ValueRef,
};
pub use snapshot::{RowView, Snapshot};
pub use stored::{Precision, Stored, StoredRef};
pub use threads::MAX_THREADS;
pub use version::record::RECORD_VERSION as FORMAT;
pub use watch::{Progress, Watch};
pub use write::Compacted;
