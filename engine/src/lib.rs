//! An embedded vector and text search database whose quantizer learns what its users search for.
//!
//! A database is a directory. [`Database`] is the handle of the one process that writes it, [`Reader`] that of any other
//! process; both answer queries ([`Handle`]). Handles are cheap to clone, and may be used from several threads. All calls
//! block until their work is done.
//!
//! # Vectors
//! ```
//! use mopqdb::{CreateOptions, Database, Metric, Options, Row};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("colours.db");
//! let new = CreateOptions::vectors(3, Metric::Cosine);
//! let db = Database::open_or_create(&path, &new, Options::default())?;
//! db.insert(&[
//!     Row::vector("red", [1.0, 0.0, 0.0]),
//!     Row::vector("blue", [0.0, 0.0, 1.0]),
//! ])?;
//! for hit in db.query(&[0.9, 0.1, 0.0], 10)? {
//!     println!("{:.3}  {}", hit.score, hit.key);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! [`RowBatch`] takes keys and values in columns.
//!
//! # Texts
//! A database of texts has an encoder, which turns each text into a vector when it is inserted. [`CreateOptions::text`]
//! takes the default one, which `mopqdb setup` installs; [`CreateOptions::bundle`] one from a [bundle];
//! [`CreateOptions::encoder`] one of your own:
//! ```
//! use mopqdb::encoder::Encoder;
//! use mopqdb::{CreateOptions, Database, Metric, Options, Row};
//! use std::sync::Arc;
//!
//! /// Counts letters.
//! struct Letters;
//!
//! impl Encoder for Letters {
//!     fn name(&self) -> String {
//!         "letters-1".into()
//!     }
//!     fn dim(&self) -> usize {
//!         26
//!     }
//!     fn encode_keys(&self, texts: &[&str]) -> mopqdb::Result<Vec<f32>> {
//!         let count = |text: &str, letter| text.bytes().filter(|&b| b == letter).count() as f32;
//!         let texts = texts.iter();
//!         Ok(texts.flat_map(|text| (b'a'..=b'z').map(|letter| count(text, letter))).collect())
//!     }
//!     fn encode_queries(&self, texts: &[&str]) -> mopqdb::Result<Vec<f32>> {
//!         self.encode_keys(texts)
//!     }
//! }
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("words.db");
//! let new = CreateOptions::encoder(Arc::new(Letters), Metric::Cosine);
//! let db = Database::create(&path, &new, Options::default())?;
//! db.insert(&[Row::text("a", "banana"), Row::text("b", "cherry")])?;
//! assert_eq!(db.query("nab", 1)?[0].text.as_deref(), Some("banana"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Training
//! Rows are searched exactly until a model with codes is active. [`Database::learn`] learns one from the rows,
//! [`register_model`] adds one that the trainer made from pairs, and [`Database::rebuild`] switches, while others query
//! and insert. [`rebuild`](rebuild()) does the same from any process.
//! ```
//! use mopqdb::quantizer::TrainPq;
//! use mopqdb::{LearnOptions, RebuildOptions};
//! # use mopqdb::{CreateOptions, Database, Metric, Options, Row};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("numbers.db");
//! # let new = CreateOptions::vectors(4, Metric::Ip);
//! # let db = Database::create(&path, &new, Options::default())?;
//! # let row = |n: u32| Row::vector(n.to_string(), [n, n % 7, n % 5, n % 3].map(|x| x as f32));
//! # db.insert(&(0..500).map(row).collect::<Vec<_>>())?;
//! let codes = TrainPq::default().subspaces(2).codewords(16);
//! let model = db.learn(&LearnOptions::default().pq(codes))?;
//! db.rebuild(&RebuildOptions::default().model(model))?;
//! assert_eq!(db.model().model_id(), model);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! [`eval`] measures what a model finds.
//!
//! # Readers
//! A [`Reader`] takes no lock and needs no permission to write. It sees the database as it was when it was opened or last
//! [refreshed](Reader::refresh). A [`Snapshot`] never changes:
//! ```
//! use mopqdb::{QueryOptions, ReadOptions, Reader, Search};
//! # use mopqdb::{CreateOptions, Database, Metric, Options, Row};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("one.db");
//! # let new = CreateOptions::vectors(1, Metric::Ip);
//! # let db = Database::create(&path, &new, Options::default())?;
//! let reader = Reader::open(&path, ReadOptions::default())?;
//! db.insert(&[Row::vector("new", [1.0])])?;
//! assert!(reader.is_empty());
//! reader.refresh()?;
//! let exact = QueryOptions::top(10).search(Search::Exact);
//! assert_eq!(reader.query_with(&[1.0], &exact)?.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// `pub` means: part of the API, or of what the feature `testing` shows.
#![cfg_attr(feature = "testing", warn(unreachable_pub))]

/// Declares a builder method for each of these public fields; those behind `into` take what becomes the type.
macro_rules! setters {
    ($($field:ident: $type:ty),* $(,)? $(; into $($into:ident: $wide:ty),* $(,)?)?) => {
        $(
            #[doc = concat!("Sets [`", stringify!($field), "`](#structfield.", stringify!($field), ").")]
            #[must_use]
            pub fn $field(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )*
        $($(
            #[doc = concat!("Sets [`", stringify!($into), "`](#structfield.", stringify!($into), ").")]
            #[must_use]
            pub fn $into(mut self, $into: impl Into<$wide>) -> Self {
                self.$into = $into.into();
                self
            }
        )*)?
    };
}

mod admin;
pub mod columns;
mod database;
mod disk;
mod error;
pub mod eval;
mod format;
mod ids;
mod kernel;
mod log;
mod metric;
mod model;
mod options;
pub mod quantizer;
mod query;
mod reader;
mod rebuild;
mod row;
mod scan;
mod segment;
mod snapshot;
mod stored;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod threads;
mod version;
mod view;
mod watch;
mod words;
mod write;

pub use admin::backup::{Backup, BackupOptions, backup, backup_with};
pub use admin::draft::{Draft, draft_cells};
pub use admin::drift::Drift;
pub use admin::machine::Machine;
pub use admin::models::{find_model, models, open_model, register_model};
pub use admin::prune::{PruneOptions, Pruned, prune};
pub use admin::repair::{RepairOptions, Repaired, repair};
pub use admin::runs::training_log;
pub use admin::salvage::{ReadRow, RowsRead, read_rows};
pub use admin::stats::{Bytes, CellStats, Stats};
pub use admin::verify::{ENCODE_TOLERANCE, Verified, VerifyOptions, verify};
pub use columns::{Column, ColumnType, ColumnValue};
pub use database::Database;
pub use disk::lock::FileLock;
pub use error::{Corruption, Error, Problem, Result};
pub use ids::{
    CodesId, DatabaseId, EncoderId, Generation, LogId, ModelId, RowId, SegmentId, Seq, WordsId,
};
pub use metric::Metric;
pub use model::Model;
pub use model::bundle::{Bundle, BundleWriter};
pub use model::registry::{EXACT, ModelInfo};
pub use model::scorer::Scorer;
pub use model::{bundle, encoder};
pub use options::{CreateOptions, Options, ReadOptions};
pub use query::explain::{Explanation, Stage};
pub use reader::{Handle, Reader};
pub use rebuild::celled::learn_cells;
pub use rebuild::learn::{AUTO_QUANTIZE_ROWS, CellCount, LearnOptions, Learned, Projection, learn};
pub use rebuild::own_rows::OwnRows;
pub use rebuild::{AUTO_QUANTIZE_RECALL, AutoQuantized, RebuildOptions, Rebuilt, Trial, rebuild};
pub use row::{
    Filter, FoundBy, Fusion, Hit, Inserted, MAX_CANDIDATES, MAX_K, MAX_KEY, MAX_TEXT, Probes,
    Query, QueryOptions, Row, RowBatch, RowsKind, Search, Serving, Value, ValueRef,
};
pub use snapshot::{RowCursor, RowView, Snapshot};
pub use stored::{Precision, Stored, StoredRef};
pub use threads::MAX_THREADS;
pub use version::record::RECORD_VERSION as FORMAT;
pub use watch::{Progress, Watch};
pub use words::{Language, Settings as WordsSettings, Vocabulary as TermStatistics};
pub use write::Compacted;

const _: () = {
    const fn shared_by_threads<T: Send + Sync>() {}
    shared_by_threads::<Database>();
    shared_by_threads::<Reader>();
    shared_by_threads::<Snapshot>();
    shared_by_threads::<Model>();
    shared_by_threads::<RowCursor>();
    shared_by_threads::<Error>();
};
