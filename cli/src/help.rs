//! The longer texts of `--help`: examples, and what scripts may rely on.

/// The text below the list of commands.
pub const TOP: &str = "\
Start:
  mopqdb insert my.db articles.jsonl          # makes my.db and fills it
  mopqdb query my.db \"how do birds navigate\"
  mopqdb train my.db --pairs clicks.tsv       # learns from pairs of query and key
  mopqdb rebuild my.db                        # re-encodes all rows, then switches

Results go to stdout, progress and warnings to stderr. Exit codes: 0 done; 1 failed; 2 wrong usage;
3 corrupt data; 4 locked by another process; 5 missing part (encoder library, trainer).";

/// Returns the page of a command: its name, and the output of `--help`.
fn page(command: &clap::Command, name: &str) -> String {
    let help = command
        .clone()
        .term_width(100)
        .render_long_help()
        .to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    format!("# {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end())
}

/// Returns the pages of `docs/cli` by file name: one per command, and the index.
pub fn pages() -> Vec<(String, String)> {
    let mut top = crate::command();
    top.build();
    let mut list = String::from(
        "# The command line\n\nMade from `mopqdb --help`; a test keeps them the same.\n\n",
    );
    let mut pages = Vec::new();
    for command in top
        .get_subcommands()
        .filter(|command| command.get_name() != "help" && !command.is_hide_set())
    {
        let name = command.get_name();
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        list += &format!("- [`mopqdb {name}`]({name}.md): {about}\n");
        let mut text = page(command, &format!("mopqdb {name}"));
        for inner in command
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help")
        {
            text += &format!(
                "\n#{}",
                page(inner, &format!("mopqdb {name} {}", inner.get_name()))
            );
        }
        pages.push((format!("{name}.md"), text));
    }
    list += &format!("\n{}", page(&top, "mopqdb"));
    pages.push(("README.md".into(), list));
    pages
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_command_line_is_well_formed() {
        crate::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_page_with_the_text_of_its_help() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli");
        let pages = super::pages();
        if std::env::var_os("MOPQDB_WRITE_DOCS").is_some() {
            std::fs::create_dir_all(&docs).unwrap();
            for (name, text) in &pages {
                std::fs::write(docs.join(name), text).unwrap();
            }
        }
        for (name, text) in &pages {
            let found = std::fs::read_to_string(docs.join(name)).unwrap_or_default();
            assert!(
                found == *text,
                "docs/cli/{name} differs from --help; run `MOPQDB_WRITE_DOCS=1 cargo test -p mopqdb-cli page`"
            );
        }
        let files = std::fs::read_dir(&docs).unwrap().count();
        assert_eq!(
            files,
            pages.len(),
            "docs/cli contains a page of a command that does not exist"
        );
    }
}
