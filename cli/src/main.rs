//! The `mopqdb` program. Its code is in the library of this crate.

fn main() -> std::process::ExitCode {
    mopqdb_cli::main()
}
