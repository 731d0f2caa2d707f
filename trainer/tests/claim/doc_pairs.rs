//! Pairs that every checkout has: the doc comments of the crates it was built from, as cargo keeps their sources.
//!
//! "item name: first sentence" asks, the rest of the comment answers (code blocks and headed sections cut, 40 to 400
//! characters). Only crates of `Cargo.lock` are read, in its order, so that what else is on the machine does not matter.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

pub struct DocPair {
    pub krate: String,
    pub query: String,
    pub key: String,
}

/// All pairs with distinct keys, crate by crate.
pub fn doc_pairs() -> Vec<DocPair> {
    let lock = include_str!("../../../Cargo.lock");
    let mut pairs = Vec::new();
    let mut seen = HashSet::new();
    let sources = registry_sources();
    let mut name = "";
    for line in lock.lines() {
        if let Some(value) = field(line, "name") {
            name = value;
        } else if let Some(version) = field(line, "version") {
            let folder = format!("{name}-{version}");
            let Some(dir) = sources
                .iter()
                .map(|root| root.join(&folder))
                .find(|dir| dir.is_dir())
            else {
                continue;
            };
            for file in rust_files(&dir.join("src")) {
                let text = fs::read_to_string(&file).unwrap_or_default();
                for (query, key) in pairs_of(&text) {
                    if seen.insert(key.clone()) {
                        pairs.push(DocPair {
                            krate: folder.clone(),
                            query,
                            key,
                        });
                    }
                }
            }
        }
    }
    pairs
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.strip_prefix(name)?
        .strip_prefix(" = \"")?
        .strip_suffix('"')
}

/// `$CARGO_HOME/registry/src/*`
fn registry_sources() -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let Some(home) = home else { return Vec::new() };
    let mut roots: Vec<PathBuf> = fs::read_dir(home.join("registry/src"))
        .map(|dirs| dirs.flatten().map(|dir| dir.path()).collect())
        .unwrap_or_default();
    roots.sort();
    roots
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut entries: Vec<PathBuf> = fs::read_dir(dir)
        .map(|dir| dir.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The pairs of one file: each run of `///` lines and the item that follows.
fn pairs_of(source: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in source.lines() {
        let line = line.trim();
        if let Some(words) = line.strip_prefix("///") {
            comment.push(words);
        } else if line.starts_with("#[") || line.starts_with("//") {
            // Attributes and remarks stand between a comment and its item.
        } else {
            if !comment.is_empty()
                && let Some(item) = item_name(line)
                && let Some((first, rest)) = split_comment(&comment)
            {
                pairs.push((format!("{item}: {first}"), rest));
            }
            comment.clear();
        }
    }
    pairs
}

fn item_name(line: &str) -> Option<&str> {
    const KINDS: [&str; 8] = [
        "fn ", "struct ", "enum ", "trait ", "type ", "const ", "mod ", "static ",
    ];
    let line = line.strip_prefix("pub ")?;
    let start = KINDS
        .iter()
        .filter_map(|kind| Some(line.find(kind)? + kind.len()))
        .min()?;
    let rest = &line[start..];
    let end = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    (end > 1).then(|| &rest[..end])
}

/// The first sentence, and what follows it up to the first heading, without code blocks.
fn split_comment(lines: &[&str]) -> Option<(String, String)> {
    let mut words = String::new();
    let mut in_code = false;
    for line in lines.iter().map(|line| line.trim()) {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if line.starts_with('#') && !in_code {
            break;
        } else if !in_code {
            // An empty line ends a sentence, whether it has a full stop or not.
            let gap = line.is_empty()
                && !words.trim_end().is_empty()
                && !words.trim_end().ends_with(['.', ':', ';', '!', '?']);
            words.push_str(if gap { ". " } else { line });
            words.push(' ');
        }
    }
    let words = words.trim();
    let end = words.find(". ")? + 1;
    let (first, rest) = (words[..end].trim(), words[end..].trim());
    let cut: String = rest.chars().take(400).collect();
    (cut.chars().count() >= 40 && first.len() >= 8).then(|| (first.to_owned(), cut))
}
