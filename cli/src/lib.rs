//! The `mopqdb` program. Each command is a short file in [`commands`]: parse, call the engine, print.
//!
//! Results go to stdout, progress and warnings to stderr; the exit code tells the kind of an error ([`exit`]).

pub mod commands;
pub mod exit;
pub mod help;
mod json;
mod key_lines;
pub mod out;
pub mod progress;
pub mod rows;
pub mod settings;
pub mod stop;
pub mod visible;

use clap::Parser;
use commands::Command;
use settings::Settings;
use std::process::ExitCode;

/// An embedded database for nearest-neighbour search whose quantizer learns what its users search for.
#[derive(Debug, Parser)]
#[command(name = "mopqdb", version, after_help = help::TOP, max_term_width = 100)]
#[command(propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    command: Command,
}

/// Returns the command line, for completions and pages.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// Prints a clap error. Help and version are not errors: clap prints them on stdout with exit code 0. Quoted arguments
/// may come from a file (`mopqdb get my.db $(cat keys)`), so characters that a terminal would act on are replaced.
fn print_usage(error: &clap::Error) {
    let plain = error.to_string();
    if plain.contains(|c| c != '\n' && visible::acts(c)) {
        plain
            .lines()
            .for_each(|line| eprintln!("{}", visible::visible(line)));
    } else {
        let _ = error.print();
    }
}

/// Parses the command line, runs the command and returns its exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            print_usage(&error);
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE));
        }
    };
    match commands::run(cli.command, &cli.settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}
