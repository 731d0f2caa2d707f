//! The `mopqdb` program.

mod bundle;
mod setup;

use clap::{Parser, Subcommand};

/// An embedded database for nearest-neighbour search whose quantizer learns what its users search for.
#[derive(Debug, Parser)]
#[command(name = "mopqdb", version)]
struct Cli {
    /// Print one JSON object a line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Setup(setup::Setup),
    Bundle(bundle::BundleCommand),
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    match cli.command {
        Command::Setup(setup) => setup.run(cli.json),
        Command::Bundle(bundle) => bundle.run(cli.json, 0),
    }
}
