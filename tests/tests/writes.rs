//! Every write of the engine goes through `files::Files`, so that the fault tests see it, fail it and replay it.

use std::path::{Path, PathBuf};

/// The files that call the operating system directly, and why.
const EXCEPT: [(&str, &str); 2] = [
    ("disk/files.rs", "all other files call it"),
    ("disk/lock.rs", "the text of a lock is for people"),
];

/// Calls that change a disk.
const WRITES: [&str; 12] = [
    "fs::write(",
    "fs::rename(",
    "fs::remove_file(",
    "fs::remove_dir",
    "fs::create_dir",
    "fs::hard_link(",
    "fs::copy(",
    "fs::set_permissions(",
    "File::create",
    "OpenOptions",
    "DirBuilder",
    ".set_len(",
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

#[test]
fn every_write_of_the_engine_goes_through_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src");
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    let (mut past, mut excepted) = (Vec::new(), Vec::new());
    for path in paths {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        // Tests are at the end of their file.
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let writes = code.lines().enumerate().filter(|(_, line)| {
            !line.trim_start().starts_with("//") && WRITES.iter().any(|call| line.contains(call))
        });
        let writes: Vec<_> = writes
            .map(|(n, line)| format!("{name}:{}: {}", n + 1, line.trim()))
            .collect();
        if EXCEPT.iter().any(|(except, _)| *except == name) {
            excepted.push(!writes.is_empty());
        } else {
            past.extend(writes);
        }
    }
    assert_eq!(past, [""; 0]);
    assert_eq!(excepted, [true; 2], "an exception that is no longer needed");
}
