//! The longer texts of `--help`: examples, and what scripts may rely on.

/// The text below the list of commands.
pub const TOP: &str = "\
Start:
  mopqdb insert my.db articles.jsonl          # creates my.db and fills it
  mopqdb query my.db \"how do birds navigate\"
  mopqdb train my.db --pairs clicks.tsv       # learns from pairs of query and key
  mopqdb rebuild my.db                        # re-encodes all rows, then switches

Results go to stdout, progress and warnings to stderr. Exit codes: 0 done; 1 failed; 2 wrong usage;
3 corrupt data; 4 locked by another process; 5 missing part (encoder library, trainer).";

/// The end of each command's page, which has no options that every command has.
const COMMON: &str = "\nOptions of every command: [`mopqdb`](README.md#mopqdb).\n";

/// Returns the text of `--help` as a section: its title, and the lines that `keep` leaves of it.
fn section(command: &clap::Command, name: &str, keep: impl Fn(Vec<&str>) -> Vec<&str>) -> String {
    let help = command
        .clone()
        .term_width(100)
        .render_long_help()
        .to_string();
    let help = keep(help.lines().map(str::trim_end).collect());
    format!("# {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end())
}

/// Removes the options that every command has: `--help`, `--version` and those below the heading of [`Settings`].
///
/// [`Settings`]: crate::settings::Settings
fn without_common(mut help: Vec<&str>) -> Vec<&str> {
    let first = (help.iter()).position(|line| line.trim_start().starts_with("-h, --help"));
    let heading = help.iter().position(|line| *line == "Everywhere:");
    let (Some(mut first), Some(heading)) = (first, heading) else {
        return help;
    };
    let is_heading = |line: &&str| !line.is_empty() && !line.starts_with(' ');
    let rest = (help[heading + 1..].iter()).position(is_heading);
    let end = rest.map_or(help.len(), |rest| heading + 1 + rest);
    if first > 0 && help[first - 1] == "Options:" {
        first -= 1;
    }
    help.drain(first..end);
    help
}

/// Returns the pages of `docs/cli` by file name: one per command, and the index.
pub fn pages() -> Vec<(String, String)> {
    let mut top = crate::command();
    top.build();
    let mut list = String::from(
        "# The command line\n\nMade from the text of `--help`; a test keeps them the same.\n\n",
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
        let mut text = section(command, &format!("mopqdb {name}"), without_common);
        for inner in command
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help")
        {
            let name = format!("mopqdb {name} {}", inner.get_name());
            text += &format!("\n#{}", section(inner, &name, without_common));
        }
        text += COMMON;
        pages.push((format!("{name}.md"), text));
    }
    list += &format!("\n{}", section(&top, "mopqdb", |help| help));
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
            let is_index = name == "README.md";
            assert_eq!(text.contains("--memory-limit <"), is_index, "{name}");
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
