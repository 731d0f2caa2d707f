//! Checks the project's prose: forbidden phrases in pages, comments, texts and scripts; links, paths and commands in pages.
//!
//! [`phrases`] has the list of phrases with their replacements; add to it what readers stumble over. [`source`] finds the
//! prose in a source file.

mod phrases;
mod source;

use phrases::forbidden;
use source::prose;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file with its prose.
struct Page {
    /// Its path from the root of the repository.
    name: String,
    text: String,
}

/// Returns all Markdown files of the repository.
fn pages() -> Vec<Page> {
    let mut found = files();
    found.retain(|page| page.name.ends_with(".md"));
    found
}

/// Returns all files of the repository that have prose.
fn files() -> Vec<Page> {
    fn walk(dir: &Path, name: &str, found: &mut Vec<Page>) {
        // Directories that git ignores.
        const SKIPPED: [&str; 6] = [
            "target",
            "demo.db",
            "demo.data",
            "found",
            "artifacts",
            "coverage",
        ];
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let part = entry.file_name().into_string().unwrap();
            if (part.starts_with('.') && part != ".ci") || SKIPPED.contains(&part.as_str()) {
                continue;
            }
            let name = format!("{name}{part}");
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), &format!("{name}/"), found);
            } else if let Some(text) = prose(&entry.path()) {
                found.push(Page { name, text });
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), "", &mut found);
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(found.iter().any(|page| page.name == "README.md"));
    found
}

/// Returns the lines of fenced code blocks in `language`, with their numbers. A trailing backslash joins two lines.
fn fenced(text: &str, language: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut inside, mut joined) = (None, false);
    for (number, line) in text.lines().enumerate() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            inside = inside.is_none().then(|| fence.trim() == language);
        } else if inside == Some(true) {
            let part = line.strip_suffix('\\').unwrap_or(line);
            match found.last_mut() {
                Some((_, last)) if joined => last.push_str(part),
                _ => found.push((number + 1, part.to_owned())),
            }
            joined = part.len() < line.len();
        }
    }
    found
}

/// Returns the text without fenced code blocks, with its line numbers kept.
fn outside_fences(text: &str) -> String {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        lines.push(if fence || inside { "" } else { line });
        inside ^= fence;
    }
    lines.join("\n")
}

/// Splits a line as a shell does, up to a comment. `|`, `&&`, `;`, `<` and `>` are words of their own.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote) = (None::<String>, None);
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ') => words.extend(word.take()),
            (None, '|' | '&' | ';' | '<' | '>') => {
                words.extend(word.take());
                words.push(c.to_string());
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Returns the arguments of each call of `program` in a line, without those that the shell takes for itself.
fn calls(line: &str, program: &str) -> Vec<Vec<String>> {
    let words = shell_words(line);
    let commands = words.split(|word| ["|", "&", ";", "<", ">"].contains(&word.as_str()));
    commands
        .map(|command| {
            let set = |word: &&String| word.contains('=') && !word.starts_with('-');
            command.iter().skip_while(set).cloned().collect::<Vec<_>>()
        })
        .filter(|command| command.first().is_some_and(|name| name == program))
        .collect()
}

/// Returns what is wrong with the calls of `mopqdb` in a line.
fn wrong_calls(line: &str) -> Vec<String> {
    let calls = calls(line, "mopqdb").into_iter();
    let errors = calls.filter_map(|call| mopqdb_cli::command().try_get_matches_from(call).err());
    // `--help` and `--version` are errors to clap, which do not begin so.
    let texts = errors.map(|error| error.to_string());
    texts.filter(|text| text.starts_with("error:")).collect()
}

/// Returns the targets of the links and images of a page, with their line numbers.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in outside_fences(text).lines().enumerate() {
        for (at, _) in line.match_indices("](") {
            if let Some((target, _)) = line[at + 2..].split_once(')') {
                found.push((number + 1, target.to_owned()));
            }
        }
    }
    found
}

/// Returns the anchors of a page's headings, as GitHub names them.
fn anchors(text: &str) -> BTreeSet<String> {
    let text = outside_fences(text);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                _ => None,
            });
            kept.collect()
        })
        .collect()
}

/// Returns what is wrong with the links of a page.
fn broken_links(page: &Page) -> Vec<String> {
    let here = root().join(&page.name);
    let mut broken = Vec::new();
    for (line, target) in links(&page.text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
        let file = match file {
            "" => here.clone(),
            file => here.parent().unwrap().join(file),
        };
        let has_anchor = || {
            anchor.is_empty() || prose(&file).is_some_and(|text| anchors(&text).contains(anchor))
        };
        if !file.exists() || !has_anchor() {
            broken.push(format!("{}:{line}: {target}", page.name));
        }
    }
    broken
}

/// Returns the paths of this repository that a page names in code spans and that do not exist. A span is such a path if it
/// has a slash and its first part is a directory of the root or of the page.
fn missing_paths(page: &Page) -> Vec<String> {
    let root = root();
    let here = root.join(&page.name);
    let dirs = [root.as_path(), here.parent().unwrap()];
    let mut missing = Vec::new();
    for (number, line) in outside_fences(&page.text).lines().enumerate() {
        for span in line.split('`').skip(1).step_by(2) {
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
            let Some((first, _)) = span.split_once('/') else {
                continue;
            };
            if first == "target" || first.starts_with('.') || !span.chars().all(plain) {
                continue;
            }
            let claimed = dirs.iter().any(|dir| dir.join(first).is_dir());
            if claimed && !dirs.iter().any(|dir| dir.join(span).exists()) {
                missing.push(format!("{}:{}: {span}", page.name, number + 1));
            }
        }
    }
    missing
}

fn assert_none(wrong: &[String], what: &str) {
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

/// The list itself has every phrase, as have its tests.
const LISTS: &str = "tests/tests/prose/";

#[test]
fn pages_comments_and_texts_have_no_forbidden_phrases() {
    let (mut wrong, mut sources) = (Vec::new(), 0);
    for page in files() {
        sources += usize::from(page.name.ends_with(".rs"));
        if page.name.starts_with(LISTS) {
            continue;
        }
        for (line, said, replacement) in forbidden(&page.text) {
            wrong.push(format!("{}:{line}: {said:?} -> {replacement}", page.name));
        }
    }
    assert!(sources > 400, "only {sources} source files were found");
    assert_none(&wrong, "phrases that readers stumble over");
}

#[test]
fn links_lead_to_files_and_headings() {
    let broken: Vec<String> = pages().iter().flat_map(broken_links).collect();
    assert_none(&broken, "links that lead nowhere");
}

#[test]
fn paths_in_code_spans_exist() {
    let missing: Vec<String> = pages().iter().flat_map(missing_paths).collect();
    assert_none(&missing, "paths that are not in the repository");
}

#[test]
fn commands_in_code_blocks_parse() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let more = fs::read_to_string(root().join("benches/bench.mk")).unwrap();
    let targets: BTreeSet<&str> = (makefile.lines().chain(more.lines()))
        .filter_map(|line| line.split_once(':'))
        .map(|(target, _)| target)
        .collect();
    for page in pages() {
        for (line, code) in fenced(&page.text, "sh") {
            let place = format!("{}:{line}", page.name);
            seen += calls(&code, "mopqdb").len();
            wrong.extend((wrong_calls(&code).into_iter()).map(|error| format!("{place}: {error}")));
            for call in calls(&code, "make") {
                let named = call[1..].iter().filter(|word| !word.contains('='));
                let unknown = named.filter(|word| !targets.contains(word.as_str()));
                wrong
                    .extend(unknown.map(|word| format!("{place}: no target {word:?} in Makefile")));
            }
        }
    }
    assert!(seen >= 10, "only {seen} commands were found");
    assert_none(&wrong, "commands that do not parse");
}

#[test]
fn examples_in_the_help_parse() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    let mut commands = vec![mopqdb_cli::command()];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().cloned());
        let help = (command.get_after_long_help()).or(command.get_after_help());
        for line in help.map(ToString::to_string).unwrap_or_default().lines() {
            seen += calls(line, "mopqdb").len();
            let errors = wrong_calls(line).into_iter();
            wrong.extend(errors.map(|error| format!("{}: {error}", line.trim())));
        }
    }
    assert!(seen >= 40, "only {seen} examples were found");
    assert_none(&wrong, "examples that do not parse");
}

#[test]
fn what_is_wrong_with_a_page_is_found() {
    let page = |text: &str| Page {
        name: "docs/page.md".into(),
        text: text.into(),
    };
    let text = "[a](gone.md) [b](../README.md#gone) [c](../README.md#limits) [d](https://x)\n\
                ```sh\n[e](gone.md)\n```\n![f](plots/gone.svg)";
    assert_eq!(
        broken_links(&page(text)),
        [
            "docs/page.md:1: gone.md",
            "docs/page.md:1: ../README.md#gone",
            "docs/page.md:5: plots/gone.svg"
        ]
    );
    let text = "`engine/src/gone.rs` `engine/src/lib.rs` `plots/gone.svg`\n`models/ID` `engine/src/N.rs <x>`";
    assert_eq!(
        missing_paths(&page(text)),
        [
            "docs/page.md:1: engine/src/gone.rs",
            "docs/page.md:1: plots/gone.svg"
        ]
    );
}

#[test]
fn commands_are_read_as_a_shell_reads_them() {
    let text = "```sh\nX=1 mopqdb query my.db \"two words\" \\\n  --json > out # mopqdb gone\n```\n```text\nmopqdb gone\n```";
    let lines = fenced(text, "sh");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].0, 2);
    assert_eq!(
        calls(&lines[0].1, "mopqdb"),
        [["mopqdb", "query", "my.db", "two words", "--json"]]
    );
    assert_eq!(wrong_calls(&lines[0].1), [""; 0]);
    assert_eq!(
        wrong_calls("curl x | mopqdb insert my.db - && mopqdb gone").len(),
        1
    );
    assert_eq!(wrong_calls("mopqdb query my.db x --gone").len(), 1);
}
