//! The `mopqdb` program; all of it is in the library beside it.

fn main() -> std::process::ExitCode {
    mopqdb_cli::main()
}
