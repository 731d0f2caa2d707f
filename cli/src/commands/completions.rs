use anyhow::Result;
use clap::Args;
use clap_complete::Shell;
use std::io::Write;

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb completions bash > ~/.local/share/bash-completion/completions/mopqdb
  mopqdb completions zsh > \"${fpath[1]}/_mopqdb\"
  mopqdb completions fish > ~/.config/fish/completions/mopqdb.fish")]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command(), "mopqdb", &mut script);
        Ok(std::io::stdout().write_all(&script)?)
    }
}
