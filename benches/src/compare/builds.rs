//! Every index of a case is built before any is asked, as many at once as there are cores: what building takes is told
//! in CPU seconds, and whoever is measured has the machine to itself.

use super::case::Case;
use super::cores;
use super::peers::{About, Built, Programs, Setting};
use anyhow::{Context, Result, anyhow};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A case and those who can be asked about it.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// What is searched.
    pub case: &'a Case,
    /// The peers.
    pub programs: &'a Programs,
}

/// A peer at a size.
pub struct Entry<'a> {
    /// The module: `faiss_pq`.
    pub peer: &'a str,
    /// What it says of itself.
    pub about: &'a About,
    /// Bytes a row that were asked for.
    pub bytes: usize,
    /// What is built.
    pub settings: Vec<Setting>,
}

impl Entry<'_> {
    fn inherits(&self, from: &Entry<'_>) -> bool {
        self.about.built_by.as_deref() == Some(from.peer) && self.bytes == from.bytes
    }
}

impl Site<'_> {
    /// Where a setting's index is.
    pub fn index(&self, entry: &Entry<'_>, setting: usize) -> PathBuf {
        let indexes = self.case.dir.join("index");
        indexes.join(format!("{}-{}-{setting}", entry.peer, entry.bytes))
    }

    /// Asks a peer to do something with an index.
    pub fn call<T: DeserializeOwned>(
        &self,
        peer: &str,
        command: &str,
        index: &Path,
        setting: &Value,
        more: &[&str],
    ) -> Result<T> {
        let path = |path: &Path| path.to_str().map(str::to_owned).context("a path in UTF-8");
        let (case, index, setting) = (path(&self.case.dir)?, path(index)?, setting.to_string());
        let arguments = [&[command, &case, &index, &setting], more].concat();
        self.programs.peer(peer, &arguments)
    }

    fn build(&self, entry: &Entry<'_>, n: usize) -> Result<Built> {
        let index = self.index(entry, n);
        let _ = fs::remove_dir_all(&index);
        let setting = &entry.settings[n].build;
        let built: Built = self.call(entry.peer, "build", &index, setting, &[])?;
        let seconds = built.build.cpu;
        eprintln!("  {} built: {setting}, {seconds:.1} CPU-s", entry.peer);
        Ok(built)
    }
}

/// Builds all settings of all entries: for each entry what its settings took, or why it has none. The last are begun
/// first, for they take the longest.
pub fn all(site: Site<'_>, entries: &[Entry<'_>]) -> Vec<Result<Vec<Built>>> {
    let heir = |entry: &&Entry<'_>| entries.iter().any(|other| entry.inherits(other));
    let own = (0..entries.len()).filter(|&e| !heir(&&entries[e]));
    let jobs = own.flat_map(|e| (0..entries[e].settings.len()).map(move |n| (e, n)));
    let jobs: Vec<(usize, usize)> = jobs.collect();
    let built = cores::each(jobs.len(), |job| {
        let (e, n) = jobs[job];
        let entry = &entries[e];
        let built = site.build(entry, n);
        let heirs = (0..entries.len()).filter(|&h| entries[h].inherits(entry));
        let mut all: Vec<((usize, usize), Result<Built>)> = heirs
            .map(|h| {
                let copied = match &built {
                    Ok(built) => copy_folder(&site.index(entry, n), &site.index(&entries[h], n))
                        .map(|()| built.clone()),
                    Err(why) => Err(anyhow!("{why:#}")),
                };
                ((h, n), copied)
            })
            .collect();
        all.push(((e, n), built));
        all
    });
    let mut built: HashMap<_, _> = built.into_iter().flatten().collect();
    let mut of = |(e, n)| built.remove(&(e, n)).context("it was not built")?;
    (0..entries.len())
        .map(|e| (0..entries[e].settings.len()).map(|n| of((e, n))).collect())
        .collect()
}

/// Everything in a folder, to another that is emptied first.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).with_context(|| format!("{}: making it", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("{}: reading", from.display()))? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &copy)?;
        } else {
            fs::copy(entry.path(), &copy)
                .with_context(|| format!("{}: copying", copy.display()))?;
        }
    }
    Ok(())
}

/// Reads everything in a folder once, so that whoever opens it finds it in memory, however long ago it was built.
pub fn warm(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("{}: reading", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            warm(&path)?;
        } else {
            let mut file = fs::File::open(&path).with_context(|| path.display().to_string())?;
            io::copy(&mut file, &mut io::sink()).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_copied_with_all_that_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("inner")).unwrap();
        fs::write(from.join("inner/file"), "new").unwrap();
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join("old"), "of a run before").unwrap();
        copy_folder(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("inner/file")).unwrap(), "new");
        assert!(!to.join("old").exists());
        warm(&to).unwrap();
        assert!(warm(&dir.path().join("none")).is_err());
    }

    /// A peer that is a script: it writes its setting, waits for the other core's build, and fails where it is told to.
    #[test]
    fn all_are_built_two_at_once_and_a_failure_is_its_own_peers() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("peer");
        let script = "#!/bin/sh\nset -e\nmkdir -p \"$4\"\ncase $5 in *bad*) exit 1;; esac\necho \"$5\" > \"$4/built\"\n\
                      echo '{\"build\": {\"count\": 1, \"wall\": 1, \"cpu\": 2}, \"disk\": 3}'\n";
        fs::write(&program, script).unwrap();
        let mut mode = fs::metadata(&program).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        fs::set_permissions(&program, mode).unwrap();
        let programs = Programs {
            python: "python3".into(),
            ours: dir.path().into(),
        };
        let case = Case {
            name: "c".into(),
            what: String::new(),
            dir: dir.path().join("case"),
            rows: 1,
            dim: 1,
            exact: Vec::new(),
            right: None,
            own: Vec::new(),
            models: Vec::new(),
            began: 0,
        };
        let about = |built_by: Option<&str>| About {
            name: "x".into(),
            version: "1".into(),
            durable: "no".into(),
            built_by: built_by.map(str::to_owned),
        };
        let setting = |build: &str| Setting {
            build: serde_json::json!({ "kind": build }),
            bytes: 8,
            search: Vec::new(),
        };
        let entry = |peer, about, settings: &[&str]| Entry {
            peer,
            about,
            bytes: 8,
            settings: settings.iter().map(|build| setting(build)).collect(),
        };
        let (plain, after) = (about(None), about(Some("mopqdb_a")));
        let entries = [
            entry("mopqdb_a", &plain, &["one", "two"]),
            entry("mopqdb_b", &plain, &["good", "bad"]),
            entry("mopqdb_heir", &after, &["one, refined", "two, refined"]),
        ];
        let site = Site {
            case: &case,
            programs: &programs,
        };
        let built = all(site, &entries);
        assert_eq!(built[0].as_ref().unwrap().len(), 2);
        assert!(built[1].is_err());
        assert_eq!(built[2].as_ref().unwrap().len(), 2);
        for (n, kind) in ["one", "two"].into_iter().enumerate() {
            let said = fs::read_to_string(site.index(&entries[2], n).join("built")).unwrap();
            assert_eq!(said.trim(), format!("{{\"kind\":\"{kind}\"}}"), "a copy");
        }
    }
}
