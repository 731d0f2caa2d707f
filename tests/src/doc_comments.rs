//! Real pairs that exist on every machine that builds the project: the doc comments of its own dependencies.
//!
//! The query is "item: first sentence", and the key is the rest of the comment (without code and sections). Pairs are
//! split by crate, so that training sees nothing of a test crate.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Shorter rests are left out, and longer ones are cut.
const MIN_REST: usize = 40;
const MAX_REST: usize = 400;

/// A doc comment in two halves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The place: `crate::item (file:line)`.
    pub key: String,
    /// The name of the item and the first sentence.
    pub query: String,
    /// The rest of the comment.
    pub rest: String,
}

/// The part of the pairs to which a crate belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Split {
    /// Three quarters of the crates.
    Train,
    /// One twelfth of the crates.
    Valid,
    /// One sixth of the crates.
    Test,
}

/// Pairs by split, in a fixed order.
pub type Pairs = BTreeMap<Split, Vec<Pair>>;

/// Collects at most `most` pairs, chosen by hash, from the sources of the crates in `lock` that are in cargo's registry
/// cache. Also returns the number of crates.
pub fn collect(lock: &Path, most: usize) -> Result<(Pairs, usize)> {
    let sources = sources(lock)?;
    ensure!(
        !sources.is_empty(),
        "no sources of dependencies in cargo's registry: run `cargo fetch` first"
    );
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for (name, dir) in &sources {
        for file in rust_files(dir) {
            let Ok(text) = fs::read_to_string(&file) else {
                continue;
            };
            let place = file
                .strip_prefix(dir)
                .unwrap_or(&file)
                .display()
                .to_string();
            for pair in pairs(&text, name, &place) {
                // Related crates share texts. Each text is taken once, so that none is on both sides of a split.
                if seen.insert(hash(&pair.rest)) && seen.insert(hash(&pair.query)) {
                    all.push((split(name), pair));
                }
            }
        }
    }
    all.sort_by_key(|(_, pair)| hash(&pair.key));
    all.truncate(most);
    let mut found = Pairs::new();
    for (split, pair) in all {
        found.entry(split).or_default().push(pair);
    }
    Ok((found, sources.len()))
}

/// Returns the source directories of the crates in a lock file, by name.
fn sources(lock: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let text = fs::read_to_string(lock).with_context(|| format!("reading {}", lock.display()))?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home =
        home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let registry = home
        .context("neither CARGO_HOME nor HOME is set")?
        .join("registry/src");
    let Ok(registries) = fs::read_dir(&registry) else {
        return Ok(BTreeMap::new());
    };
    let registries: Vec<PathBuf> = registries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    let mut found = BTreeMap::new();
    for package in text.split("[[package]]") {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name))?;
            Some(
                line.trim_start_matches([' ', '=', '"'])
                    .trim_end_matches('"')
                    .to_owned(),
            )
        };
        let (Some(name), Some(version)) = (field("name"), field("version")) else {
            continue;
        };
        let dir = format!("{name}-{version}");
        if let Some(dir) = registries
            .iter()
            .map(|registry| registry.join(&dir))
            .find(|dir| dir.is_dir())
        {
            found.insert(name, dir);
        }
    }
    Ok(found)
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.join("src")];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the pairs of one source file.
pub fn pairs(text: &str, name: &str, place: &str) -> Vec<Pair> {
    let mut found = Vec::new();
    let mut comment = String::new();
    let mut code = false;
    let mut cut = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(words) = line.strip_prefix("///") {
            let words = words.trim();
            if words.starts_with("```") {
                code = !code;
            } else if words.starts_with("# ") || words.starts_with("## ") {
                cut = true;
            } else if !code && !cut {
                comment.push_str(words);
                comment.push(if words.is_empty() { '\n' } else { ' ' });
            }
            continue;
        }
        // Attributes may be between a comment and its item.
        if line.starts_with("#[") || (line.is_empty() && comment.is_empty()) {
            continue;
        }
        if let Some(item) = item(line)
            && let Some((first, rest)) = halves(&comment)
        {
            let key = format!("{name}::{item} ({place}:{})", number + 1);
            found.push(Pair {
                key,
                query: format!("{item}: {first}"),
                rest,
            });
        }
        comment.clear();
        code = false;
        cut = false;
    }
    found
}

/// Returns the name of the item that a line declares.
fn item(line: &str) -> Option<&str> {
    const KINDS: [&str; 9] = [
        "fn",
        "struct",
        "enum",
        "trait",
        "type",
        "mod",
        "const",
        "static",
        "macro_rules!",
    ];
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub") || ["unsafe", "async", "extern", "default", "\"C\""].contains(word)
    });
    let mut kind = words.next()?;
    let mut name = words.next()?;
    if kind == "const" && name == "fn" {
        kind = "fn";
        name = words.next()?;
    }
    if !KINDS.contains(&kind) {
        return None;
    }
    let end = name
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(name.len());
    (end > 0).then(|| &name[..end])
}

/// Returns the first sentence and the rest, if the rest is long enough.
fn halves(comment: &str) -> Option<(String, String)> {
    let flat: Vec<String> = comment
        .split('\n')
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let flat = flat
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("\n");
    let end = [flat.find(". ").map(|at| at + 1), flat.find('\n')]
        .into_iter()
        .flatten()
        .min()?;
    let (first, rest) = flat.split_at(end);
    let first = first.trim().trim_end_matches('.').to_owned();
    let mut rest = rest.replace('\n', " ").trim().to_owned();
    if first.len() < 10 || rest.len() < MIN_REST {
        return None;
    }
    if rest.len() > MAX_REST {
        let end = (0..=MAX_REST).rev().find(|&at| rest.is_char_boundary(at))?;
        rest.truncate(end);
    }
    let clean = |text: &str| text.replace(['\t', '\r'], " ");
    Some((clean(&first), clean(&rest)))
}

/// Returns the part of a crate. All of a crate is in one part.
fn split(name: &str) -> Split {
    match hash(name) % 12 {
        0 | 1 => Split::Test,
        2 => Split::Valid,
        _ => Split::Train,
    }
}

/// Returns the FNV-1a hash, which is the same on every machine.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    hash ^ (hash >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doc_comment_becomes_a_pair() {
        let source = "
/// Splits a string at whitespace. The pieces are given one after the other, and empty
/// ones are left out.
///
/// ```
/// let x = 1;
/// ```
/// # Panics
/// Never at all, whatever the input may be, and that is a promise.
#[inline]
pub const fn split_whitespace(&self) -> Pieces<'_> {

/// Too short.
struct Nothing;
";
        let found = pairs(source, "std", "src/str.rs");
        assert_eq!(
            found,
            [Pair {
                key: "std::split_whitespace (src/str.rs:11)".into(),
                query: "split_whitespace: Splits a string at whitespace".into(),
                rest: "The pieces are given one after the other, and empty ones are left out."
                    .into(),
            }]
        );
    }

    #[test]
    fn the_dependencies_of_this_workspace_have_thousands_of_pairs_split_by_crate() {
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
        let (found, crates) = collect(&lock, 12_000).unwrap();
        let of = |split| &found[&split];
        let name = |pair: &Pair| pair.key.split("::").next().unwrap().to_owned();
        let train: HashSet<String> = of(Split::Train).iter().map(name).collect();
        let test: HashSet<String> = of(Split::Test).iter().map(name).collect();
        println!(
            "{crates} crates, {} + {} + {} pairs",
            of(Split::Train).len(),
            of(Split::Valid).len(),
            of(Split::Test).len()
        );
        assert!(train.is_disjoint(&test));
        assert!(of(Split::Train).len() > 1000 && of(Split::Test).len() > 200);
    }
}
