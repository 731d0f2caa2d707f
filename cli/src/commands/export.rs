mod faiss;
mod jsonl;
mod npy;

use crate::exit::{Lost, usage};
use crate::out::{Out, plural};
use crate::settings::Settings;
use crate::stop;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use mopqdb::{RowsRead, Snapshot, find_model};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Export rows, vectors or codes to files that other programs read
///
/// DEST is a new directory. `jsonl`: rows.jsonl, as `insert` reads it. `npy`: vectors.npy, codes.npy (rows, subspaces),
/// codebooks.npy (subspaces, codewords, sub_dim), and head_weight.npy, head_bias.npy, rotation.npy where the model has
/// them. `faiss`: index.faiss, which Faiss loads; it takes the same query vectors as `mopqdb query --vectors` and finds
/// the same rows. With npy and faiss, line n of keys.txt (from 0) is the key of row n; tabs, line ends and backslashes
/// in keys are written \t, \n and \\.
///
/// Columns are fields of the objects in rows.jsonl. `--where` exports the rows that pass a filter.
///
/// Without it, `jsonl` reads only the files that hold rows: it works without the model, and on a database whose codes are damaged.
/// With --salvage it also skips damage in those files: it writes every row that can be read, lists the rest, and exits
/// with 3 if there is any.
///
/// Faiss does not support an activation after the projection, or soft queries; exporting such a model is an error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb export my.db out --format faiss
  python3 -c 'import faiss; print(faiss.read_index(\"out/index.faiss\").ntotal)'
  mopqdb export my.db out --format jsonl
  mopqdb export my.db recent --format jsonl --where \"year >= 2020\"
  mopqdb export damaged.db out --format jsonl --salvage")]
pub struct Export {
    /// The database
    #[arg(value_name = "DB")]
    db: PathBuf,
    /// Directory to create
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    /// What to write
    #[arg(long, value_enum)]
    format: Kind,
    /// A model other than the active one, by the first digits of its id (npy and faiss)
    #[arg(long, value_name = "ID")]
    model: Option<String>,
    /// Skip and list damaged data (jsonl)
    #[arg(long)]
    salvage: bool,
    /// Export only rows that pass this filter, in SQL: `mopqdb query --help` describes it (jsonl)
    #[arg(long = "where", value_name = "EXPR", conflicts_with = "salvage")]
    filter: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A Faiss index file, and keys.txt
    Faiss,
    /// Vectors, codes and codebooks as numpy arrays, and keys.txt
    Npy,
    /// Rows, as `insert` reads them
    Jsonl,
}

impl Export {
    /// Writes a new directory, completely or not at all.
    pub fn run(self, settings: &Settings) -> Result<()> {
        stop::listen();
        if self.format == Kind::Jsonl {
            return self.rows(settings);
        }
        if self.salvage {
            return Err(usage("--salvage goes with --format jsonl"));
        }
        if self.filter.is_some() {
            return Err(usage("--where goes with --format jsonl"));
        }
        let reader = super::read(&self.db, settings)?;
        let snapshot = reader.snapshot();
        let model = match &self.model {
            None => Arc::clone(snapshot.model()),
            Some(prefix) => {
                let id = find_model(&self.db, prefix)?;
                Arc::new(super::open_model(&self.db, id, settings)?)
            }
        };
        let rows = self.in_new_dir(|dest| match self.format {
            Kind::Faiss => faiss::write(&snapshot, &model, dest),
            _ => npy::write(&snapshot, &model, dest),
        })?;
        self.print(rows, &RowsRead::default(), settings)
    }

    /// Writes the rows, which needs only the files that hold them.
    fn rows(&self, settings: &Settings) -> Result<()> {
        if self.model.is_some() {
            return Err(usage("--model goes with --format npy or faiss"));
        }
        if let Some(expression) = &self.filter {
            let filter = super::filter::sql(expression)?;
            let reader = super::read(&self.db, settings)?;
            // A filter that does not fit the columns is refused before anything is written.
            let rows = reader.snapshot().cursor().among(&filter)?;
            let rows = self.in_new_dir(|dest| jsonl::write_rows(rows, dest))?;
            return self.print(rows, &RowsRead::default(), settings);
        }
        let read = self.in_new_dir(|dest| jsonl::write(&self.db, dest, self.salvage))?;
        self.print(read.rows, &read, settings)?;
        match read.damage.len() {
            0 => Ok(()),
            damaged => Err(Lost(damaged).into()),
        }
    }

    /// Creates the directory, and removes it if it can't be filled: a partial export is worse than none.
    fn in_new_dir<T>(&self, write: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        std::fs::create_dir(&self.dest)
            .with_context(|| format!("creating the directory {}", self.dest.display()))?;
        let written = write(&self.dest);
        if written.is_err() {
            let _ = std::fs::remove_dir_all(&self.dest);
        }
        written
    }

    fn print(&self, rows: u64, read: &RowsRead, settings: &Settings) -> Result<()> {
        let mut out = Out::new(settings);
        match out.is_json() {
            true => {
                let mut object = json!({"exported": rows, "dest": self.dest.display().to_string()});
                if self.salvage {
                    object["damage"] = json!(read.damage);
                    object["lost_keys"] = json!(read.lost_keys);
                }
                out.object(&object)?;
            }
            false => {
                for damage in &read.damage {
                    out.line(format!("left out: {damage}"))?;
                }
                for key in &read.lost_keys {
                    out.line(format!("lost key: {key}"))?;
                }
                out.line(format!(
                    "exported {} to {}",
                    plural(rows, "row"),
                    self.dest.display()
                ))?;
            }
        }
        out.flush()
    }
}

/// Calls `each` with keys and vectors, a few thousand rows at a time.
fn for_each_batch(
    snapshot: &Snapshot,
    mut each: impl FnMut(&[String], &[f32]) -> Result<()>,
) -> Result<u64> {
    const BATCH: usize = 4096;
    let (mut keys, mut vectors, mut rows) = (Vec::new(), Vec::new(), 0);
    let mut failed = None;
    let outcome = snapshot.for_each_row(|row| {
        keys.push(row.key.to_owned());
        vectors.extend_from_slice(row.vector);
        rows += 1;
        if keys.len() == BATCH {
            let sent = each(&keys, &vectors);
            keys.clear();
            vectors.clear();
            if let Err(error) = sent.and_then(|()| not_stopped()) {
                failed = Some(error);
                return Err(mopqdb::Error::invalid("the export ended"));
            }
        }
        Ok(())
    });
    if let Some(error) = failed {
        return Err(error);
    }
    outcome?;
    if !keys.is_empty() {
        each(&keys, &vectors)?;
    }
    Ok(rows)
}

fn not_stopped() -> Result<()> {
    match stop::asked() {
        true => anyhow::bail!("stopped; nothing was kept"),
        false => Ok(()),
    }
}
