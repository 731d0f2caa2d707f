//! The commands, one file each.

mod backup;
mod bench;
mod bundle;
mod columns;
mod compact;
mod completions;
mod create;
mod delete;
mod eval;
mod export;
mod filter;
mod get;
mod insert;
mod keys;
mod models;
mod prune;
mod query;
mod rebuild;
mod repair;
mod seal;
mod setup;
mod stats;
mod train;
mod tune;
mod update;
mod verify;

use crate::out::say;
use crate::settings::Settings;
use anyhow::Result;
use clap::Subcommand;
use mopqdb::{CreateOptions, Database, Model, ModelId, Reader, Snapshot};
use std::path::Path;

/// The commands.
#[derive(Debug, Subcommand)]
#[expect(
    missing_docs,
    reason = "each is described by its arguments, which is what --help shows"
)]
pub enum Command {
    Create(create::Create),
    Insert(insert::Insert),
    Query(query::Query),
    Get(get::Get),
    Keys(keys::Keys),
    Delete(delete::Delete),
    Update(update::Update),
    Columns(columns::Columns),
    Train(train::Train),
    Tune(tune::Tune),
    Rebuild(rebuild::Rebuild),
    Eval(eval::Eval),
    Models(models::Models),
    Stats(stats::StatsArgs),
    Prune(prune::Prune),
    Seal(seal::Seal),
    Compact(compact::Compact),
    Verify(verify::Verify),
    Repair(repair::Repair),
    Backup(backup::Backup),
    Export(export::Export),
    Bench(bench::Bench),
    Bundle(bundle::BundleCommand),
    Setup(setup::Setup),
    Completions(completions::Completions),
}

/// Runs a command.
pub fn run(command: Command, settings: &Settings) -> Result<()> {
    match command {
        Command::Create(create) => create.run(settings),
        Command::Insert(insert) => insert.run(settings),
        Command::Query(query) => query.run(settings),
        Command::Get(get) => get.run(settings),
        Command::Keys(keys) => keys.run(settings),
        Command::Delete(delete) => delete.run(settings),
        Command::Update(update) => update.run(settings),
        Command::Columns(columns) => columns.run(settings),
        Command::Train(train) => train.run(settings),
        Command::Tune(tune) => tune.run(settings),
        Command::Rebuild(rebuild) => rebuild.run(settings),
        Command::Eval(eval) => eval.run(settings),
        Command::Models(models) => models.run(settings),
        Command::Stats(stats) => stats.run(settings),
        Command::Prune(prune) => prune.run(settings),
        Command::Seal(seal) => seal.run(settings),
        Command::Compact(compact) => compact.run(settings),
        Command::Verify(verify) => verify.run(settings),
        Command::Repair(repair) => repair.run(settings),
        Command::Backup(backup) => backup.run(settings),
        Command::Export(export) => export.run(settings),
        Command::Bench(bench) => bench.run(settings),
        Command::Bundle(bundle) => bundle.run(settings),
        Command::Setup(setup) => setup.run(settings),
        Command::Completions(completions) => completions.run(),
    }
}

/// Opens a database for writing and prints what recovery repaired.
fn open(db: &Path, settings: &Settings) -> Result<Database> {
    let database = Database::open(db, settings.options())?;
    warn(&database);
    Ok(database)
}

/// Creates a database.
fn create(db: &Path, new: &CreateOptions, settings: &Settings) -> Result<Database> {
    let database = Database::create(db, new, settings.options())?;
    warn(&database);
    Ok(database)
}

fn warn(database: &Database) {
    for warning in database.warnings() {
        say(warning);
    }
    let format = database.format();
    if format < mopqdb::FORMAT {
        say(format!(
            "this database has format {format}; its next change upgrades it to format {}, which mopqdb 0.1 can't open",
            mopqdb::FORMAT
        ));
    }
}

/// Opens a database for reading.
fn read(db: &Path, settings: &Settings) -> Result<Reader> {
    Ok(Reader::open(db, settings.options())?)
}

/// Opens a model of a database, active or not.
fn open_model(db: &Path, id: ModelId, settings: &Settings) -> Result<Model> {
    Ok(mopqdb::open_model(db, id, settings.threads)?)
}

/// Returns an error unless a model's codes can be computed from the stored vectors.
fn same_encoder(snapshot: &Snapshot, model: &Model) -> Result<()> {
    if model.encoder_id() != snapshot.model().encoder_id() {
        anyhow::bail!(
            "the encoder of that model differs from that of the stored vectors; run `mopqdb rebuild DB --model ID` first"
        );
    }
    Ok(())
}
