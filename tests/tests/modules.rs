//! The top-level modules of the engine depend on each other in one direction only, and there are few of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The maximum number of entries in `engine/src`.
const MOST_ENTRIES: usize = 30;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src")
}

/// Returns every source file with its top-level module, which is the first part of its path.
fn sources(dir: &Path, room: Option<&str>, found: &mut Vec<(String, PathBuf)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let room = room.unwrap_or(&name).to_owned();
        if path.is_dir() {
            if name != "tests" {
                sources(&path, Some(&room), found);
            }
        } else if name != "tests" && !name.ends_with("_tests") {
            found.push((room, path));
        }
    }
}

/// Returns the code of a file without its comments and without the tests at its end.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let end = text
        .match_indices("#[cfg(test)]\n")
        .map(|(at, _)| at)
        .find(|&at| {
            let line = text[at..].lines().nth(1).unwrap_or_default();
            line.contains("mod ") && line.ends_with('{')
        });
    let lines = text[..end.unwrap_or(text.len())].lines();
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the names that follow `crate::` in a file, including those in braces.
fn names(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let word = |text: &str| -> String {
            let letters = text.trim_start().chars();
            letters
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        };
        let Some(list) = rest.strip_prefix('{') else {
            found.insert(word(rest));
            continue;
        };
        let (mut depth, mut item) = (0, 0);
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    found.insert(word(&list[item..at]));
                    item = at + 1;
                    if c == '}' {
                        break;
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// Returns which modules each module uses. A name that the crate's root re-exports counts as its module.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    sources(&root(), None, &mut files);
    let rooms: BTreeSet<String> = files.iter().map(|(room, _)| room.clone()).collect();
    let mut passed_on = BTreeMap::new();
    let lib = code(&root().join("lib.rs"));
    for statement in lib.split(';') {
        let Some(path) = statement.trim().strip_prefix("pub use ") else {
            continue;
        };
        let room = path.split("::").next().unwrap().to_owned();
        let last = path.rsplit("::").next().unwrap();
        let list = path.split_once('{').map_or(last, |(_, list)| list);
        for name in list.trim_end_matches('}').split(',') {
            passed_on.insert(name.trim().to_owned(), room.clone());
        }
    }
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (room, path) in files.into_iter().filter(|(room, _)| room != "lib") {
        let used = uses.entry(room.clone()).or_default();
        for name in names(&code(&path)) {
            let other = passed_on.get(&name).cloned().unwrap_or(name);
            if other != room && rooms.contains(&other) {
                used.insert(other);
            }
        }
    }
    uses
}

/// Returns a path from a module back to itself.
fn cycle(uses: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk<'u>(
        room: &'u str,
        uses: &'u BTreeMap<String, BTreeSet<String>>,
        way: &mut Vec<&'u str>,
        done: &mut BTreeSet<&'u str>,
    ) -> bool {
        if way.contains(&room) {
            way.push(room);
            return true;
        }
        if !done.insert(room) {
            return false;
        }
        way.push(room);
        let others = uses.get(room).into_iter().flatten();
        let found = others.into_iter().any(|other| walk(other, uses, way, done));
        if !found {
            way.pop();
        }
        found
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|room| {
        let mut way = Vec::new();
        walk(room, uses, &mut way, &mut done).then(|| way.into_iter().map(str::to_owned).collect())
    })
}

#[test]
fn modules_of_the_engine_have_no_cycles() {
    let uses = uses();
    assert!(uses["query"].contains("snapshot"), "{uses:?}");
    assert!(uses["database"].contains("write"), "{uses:?}");
    if let Some(way) = cycle(&uses) {
        panic!("a cycle of modules: {}", way.join(" -> "));
    }
}

#[test]
fn leaf_modules_use_only_errors_ids_and_threads() {
    let uses = uses();
    for (leaf, allowed) in [
        ("disk", &["error", "ids", "threads"][..]),
        ("format", &["error"]),
        ("kernel", &["error", "metric", "threads"]),
        ("columns", &["error", "format", "ids"]),
    ] {
        let more: Vec<_> = (uses[leaf].iter())
            .filter(|used| !allowed.contains(&used.as_str()))
            .collect();
        assert!(more.is_empty(), "{leaf} uses {more:?}");
    }
}

#[test]
fn the_engine_has_few_top_level_entries() {
    let entries = std::fs::read_dir(root()).unwrap().count();
    assert!(entries <= MOST_ENTRIES, "{entries} entries in engine/src");
}

#[test]
fn a_cycle_is_found() {
    let uses = |pairs: &[(&str, &str)]| {
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (a, b) in pairs {
            let used = uses.entry((*a).to_owned()).or_default();
            used.insert((*b).to_owned());
        }
        uses
    };
    assert_eq!(cycle(&uses(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    let found = cycle(&uses(&[("a", "b"), ("b", "c"), ("c", "b")])).unwrap();
    assert_eq!(found, ["a", "b", "c", "b"]);
    let code = "use crate::{a::{b, c}, D};\nuse crate::e::f;";
    assert_eq!(names(code), ["D", "a", "e"].map(str::to_owned).into());
}
