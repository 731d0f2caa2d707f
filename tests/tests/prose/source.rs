//! The prose of a source file: its comments, texts and test names, at the lines where they are.

use std::fs;
use std::path::Path;

/// Returns the prose of a file, with its line numbers kept; `None` if the file is of a kind without prose. Of a page,
/// a script and a configuration file that is everything.
pub fn prose(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let read = || fs::read_to_string(path).unwrap();
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs") => Some(of_rust(&read())),
        Some("md" | "py" | "sh" | "mk" | "toml") => Some(read()),
        None if ["Makefile", "run", "init"].contains(&name) => Some(read()),
        _ => None,
    }
}

/// Returns comments, string literals and names of tests, with spaces for the code between them. A bar before and after a
/// string keeps phrases from crossing it.
fn of_rust(text: &str) -> String {
    let mut prose = String::new();
    let (mut rest, mut is_test) = (text, false);
    while let Some(first) = rest.chars().next() {
        let literal = Literal::at(rest);
        let len = if rest.starts_with("//") {
            let line = rest.lines().next().unwrap_or(rest);
            let said = line.trim_start_matches(['/', '!']);
            prose.push_str(&" ".repeat(line.len() - said.len()));
            prose.push_str(said);
            line.len()
        } else if let Some(literal) = literal {
            prose.push('|');
            prose.push_str(&literal.said());
            prose.push('|');
            literal.len
        } else if let Some(name) = rest.strip_prefix("fn ").filter(|_| is_test) {
            let name = name.split('(').next().unwrap_or(name);
            prose.push_str("|  ");
            prose.push_str(&name.replace('_', " "));
            is_test = false;
            "fn ".len() + name.len()
        } else {
            is_test |= rest.starts_with("#[test]");
            prose.push(if first == '\n' { '\n' } else { ' ' });
            first.len_utf8()
        };
        rest = &rest[len..];
    }
    prose
}

/// A string or character literal.
struct Literal<'t> {
    content: &'t str,
    /// The bytes from its first to its last quote.
    len: usize,
    raw: bool,
}

impl<'t> Literal<'t> {
    /// Returns the literal that begins here, if one does.
    fn at(text: &'t str) -> Option<Self> {
        if let Some(content) = text.strip_prefix('"') {
            let end = unescaped(content, '"')?;
            return Some(Self {
                content: &content[..end],
                len: end + 2,
                raw: false,
            });
        }
        if let Some(content) = text.strip_prefix('\'') {
            // A lifetime has no quote at its end.
            let end = unescaped(content, '\'')?;
            let is_character = content.starts_with('\\') || content[..end].chars().count() == 1;
            return is_character.then_some(Self {
                content: "",
                len: end + 2,
                raw: true,
            });
        }
        let hashes = text.strip_prefix('r')?;
        let quote = hashes
            .find('"')
            .filter(|at| hashes[..*at].chars().all(|c| c == '#'))?;
        let close = format!("\"{}", &hashes[..quote]);
        let content = &hashes[quote + 1..];
        let end = content.find(&close)?;
        Some(Self {
            content: &content[..end],
            len: 1 + quote + 1 + end + close.len(),
            raw: true,
        })
    }

    /// Returns what it says. An escaped end of a line joins two lines, any other escape separates words.
    fn said(&self) -> String {
        if self.raw {
            return self.content.to_owned();
        }
        let mut said = String::new();
        let mut escaped = false;
        for c in self.content.chars() {
            match (escaped, c) {
                (false, '\\') => escaped = true,
                (true, '\n') => {
                    said.push('\n');
                    escaped = false;
                }
                (true, _) => {
                    said.push('|');
                    escaped = false;
                }
                (false, c) => said.push(c),
            }
        }
        said
    }
}

/// Returns the position of the first `quote` that no backslash escapes.
fn unescaped(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let is_end = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        is_end.then_some(at)
    })
}

#[test]
fn comments_texts_and_test_names_are_prose_and_code_is_not() {
    let source = r##"//! First.
/// Second
/// third.
fn code<'a>(name: &'a str) -> char {
    let text = "one \
                two\n{name}"; // four
    let raw = r#"a "quoted" row"#;
    '"'
}
#[test]
fn a_row_is_found() {}
"##;
    let prose = of_rust(source);
    let words = |line: &str| {
        line.replace(['|', '{', '}'], " ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let lines: Vec<String> = prose.lines().map(words).collect();
    assert_eq!(
        lines,
        [
            "First.",
            "Second",
            "third.",
            "",
            "one",
            "two name four",
            "a \"quoted\" row",
            "",
            "",
            "",
            "a row is found"
        ]
    );
}
