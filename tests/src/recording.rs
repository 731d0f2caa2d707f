//! A recording of everything that was done to a directory, and the directory as a power cut at any moment could leave
//! it.
//!
//! Whatever was synced stays. Each write that was not synced is kept, dropped, cut or turned into garbage, and each
//! new, changed or removed name is kept or dropped, all independently: a disk may reorder everything that no sync
//! orders. A write whose sync failed is never made durable by a later sync, which is how Linux behaves.

use crate::watched::{Call, Watcher};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// One recorded event. Paths are relative to the directory.
#[derive(Debug, Clone)]
pub enum Event {
    /// A new file.
    Create(u64, PathBuf),
    /// Bytes at the end of a file.
    Write(u64, Vec<u8>),
    /// A file made durable, or not.
    Sync(u64, bool),
    /// A name that moved.
    Rename(PathBuf, PathBuf),
    /// A second name.
    Link(PathBuf, PathBuf),
    /// A name that went.
    Remove(PathBuf),
    /// A directory that went.
    RemoveDir(PathBuf),
    /// A directory that came.
    CreateDir(PathBuf),
    /// Names made durable, or not.
    SyncDir(PathBuf, bool),
    /// The catalog was committed and copied: the nth copy.
    Catalog(usize),
    /// Something that the one who records wants to remember: what was acknowledged here.
    Mark(usize),
}

/// What becomes of that which no sync made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// All of it reached the disk: what a killed process leaves.
    Kept,
    /// None of it did.
    Dropped,
    /// Of each write a part; each name or not.
    Torn,
    /// Each write is garbage; each name or not.
    Garbage,
    /// Any of these, each on its own.
    Any,
}

/// How sled's directory is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogState {
    /// As it was at that moment.
    Now,
    /// One commit ahead, if it is the next thing to happen.
    Next,
    /// One commit behind.
    Before,
    /// As it was at first.
    First,
    /// An empty directory.
    Empty,
    /// No directory.
    Absent,
    /// Its files hold garbage.
    Garbage,
}

/// All states that a catalog may be found in.
pub const CATALOG_STATES: [CatalogState; 7] = [
    CatalogState::Now,
    CatalogState::Next,
    CatalogState::Before,
    CatalogState::First,
    CatalogState::Empty,
    CatalogState::Absent,
    CatalogState::Garbage,
];

/// All fates.
pub const FATES: [Fate; 5] = [
    Fate::Kept,
    Fate::Dropped,
    Fate::Torn,
    Fate::Garbage,
    Fate::Any,
];

/// Records.
#[derive(Debug)]
pub struct Recording {
    root: PathBuf,
    /// The directory with copies of the catalog.
    copies: PathBuf,
    first: BTreeMap<PathBuf, Vec<u8>>,
    directories: BTreeSet<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    catalogs: usize,
}

impl Recording {
    /// Starts to record changes of a directory, whose present contents count as durable. Copies of the catalog are kept
    /// in another directory.
    pub fn of(root: &Path, copies: &Path) -> Self {
        let mut first = BTreeMap::new();
        let mut directories = BTreeSet::new();
        gather(root, Path::new(""), &mut first, &mut directories);
        let recording = Self {
            root: root.into(),
            copies: copies.into(),
            first,
            directories,
            state: Mutex::default(),
        };
        recording.copy_catalog();
        recording
    }

    /// Records that something was acknowledged.
    pub fn mark(&self, mark: usize) {
        self.push(Event::Mark(mark));
    }

    /// Copies the catalog in its present state.
    pub fn copy_catalog(&self) {
        let mut state = self.state.lock().unwrap();
        let nth = state.catalogs;
        let from = self.root.join("catalog");
        if from.is_dir() {
            copy_dir(&from, &self.copies.join(nth.to_string()));
            state.catalogs += 1;
            state.events.push(Event::Catalog(nth));
        }
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.state.lock().unwrap().events.len()
    }

    /// Returns `true` if nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the moments right before and right after each sync, when the most and the least can be lost.
    pub fn sync_points(&self) -> Vec<usize> {
        let state = self.state.lock().unwrap();
        let syncs = state.events.iter().enumerate().filter(|(_, event)| {
            matches!(
                event,
                Event::Sync(..) | Event::SyncDir(..) | Event::Catalog(_)
            )
        });
        let mut points: Vec<_> = syncs.flat_map(|(at, _)| [at, at + 1]).collect();
        points.dedup();
        points
    }

    /// Returns the last mark before a moment.
    pub fn marked(&self, point: usize) -> usize {
        let state = self.state.lock().unwrap();
        let marks = state.events[..point]
            .iter()
            .rev()
            .find_map(|event| match event {
                Event::Mark(mark) => Some(*mark),
                _ => None,
            });
        marks.unwrap_or(0)
    }

    /// Describes what happened just before a moment.
    pub fn describe(&self, point: usize) -> String {
        let state = self.state.lock().unwrap();
        let last = state.events[..point].last();
        match last {
            Some(Event::Write(file, bytes)) => format!("write of {} bytes to {file}", bytes.len()),
            other => format!("{other:?}"),
        }
    }

    fn push(&self, event: Event) {
        self.state.lock().unwrap().events.push(event);
    }

    fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap_or(path).into()
    }

    /// Writes the directory to `dest` as a power cut after `point` events could leave it.
    pub fn replay(
        &self,
        point: usize,
        fate: Fate,
        catalog: CatalogState,
        random: &mut dyn FnMut() -> u64,
        dest: &Path,
    ) {
        let state = self.state.lock().unwrap();
        let mut image = Image::new(&self.first);
        let mut directories = self.directories.clone();
        for event in &state.events[..point] {
            if let Event::CreateDir(path) = event {
                directories.insert(path.clone());
            }
            image.apply(event);
        }
        for directory in &directories {
            fs::create_dir_all(dest.join(directory)).unwrap();
        }
        for (name, bytes) in image.cut(fate, random) {
            let path = dest.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let now = state.events[..point].iter().rev().find_map(|e| match e {
            Event::Catalog(nth) => Some(*nth),
            _ => None,
        });
        let now = now.unwrap_or(0);
        let copy = |nth: usize| {
            copy_dir(&self.copies.join(nth.to_string()), &dest.join("catalog"));
        };
        let _ = fs::remove_dir_all(dest.join("catalog"));
        match catalog {
            CatalogState::Now => copy(now),
            CatalogState::Next => match state.events.get(point) {
                Some(Event::Catalog(next)) => copy(*next),
                _ => copy(now),
            },
            CatalogState::Before => copy(now.saturating_sub(1)),
            CatalogState::First => copy(0),
            CatalogState::Empty => fs::create_dir_all(dest.join("catalog")).unwrap(),
            CatalogState::Absent => {}
            CatalogState::Garbage => {
                copy(now);
                garble(&dest.join("catalog"), random);
            }
        }
    }
}

impl Watcher for Recording {
    fn before(&self, call: &Call<'_>) -> std::io::Result<usize> {
        // The catalog is committed just before its manifest is begun.
        if let Call::Create(_, path) = call
            && path
                .file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with("MANIFEST-"))
        {
            self.copy_catalog();
        }
        Ok(call.bytes())
    }

    fn after(&self, call: &Call<'_>, done: bool) {
        let path = |path: &Path| self.relative(path);
        let event = match *call {
            Call::Sync(file, _) => Event::Sync(file, done),
            Call::SyncDir(dir) => Event::SyncDir(path(dir), done),
            _ if !done => return,
            // A catalog that could not be opened was moved aside, so the test may choose its state.
            Call::Rename(from, _) if path(from) == Path::new("catalog") => return,
            Call::Create(file, name) => Event::Create(file, path(name)),
            Call::Write(file, _, bytes) => Event::Write(file, bytes.to_vec()),
            Call::Rename(from, to) => Event::Rename(path(from), path(to)),
            Call::Link(from, to) => Event::Link(path(from), path(to)),
            Call::Remove(name) => Event::Remove(path(name)),
            Call::RemoveDir(dir) => Event::RemoveDir(path(dir)),
            Call::CreateDir(dir) => Event::CreateDir(path(dir)),
            Call::ReadOnly(..) | Call::Look(_) => return,
        };
        self.push(event);
    }
}

/// A disk in memory, with its durable and its unsynced state.
struct Image {
    files: HashMap<u64, Content>,
    /// The names that programs see.
    seen: BTreeMap<PathBuf, u64>,
    /// The names that are durable.
    durable: BTreeMap<PathBuf, u64>,
    /// The changes of names that are not durable yet.
    pending: Vec<NameChange>,
}

#[derive(Default)]
struct Content {
    durable: Vec<u8>,
    /// The length that programs see.
    len: usize,
    pending: Vec<(usize, Vec<u8>)>,
    /// Writes whose sync failed; no later sync makes them durable.
    lost: Vec<(usize, Vec<u8>)>,
}

struct NameChange {
    gone: Option<PathBuf>,
    come: Option<(PathBuf, u64)>,
}

impl NameChange {
    fn is_in(&self, dir: &Path) -> bool {
        let within = |path: &Path| path.parent() == Some(dir);
        self.gone.as_deref().is_some_and(within)
            || self.come.as_ref().is_some_and(|(path, _)| within(path))
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        if let Some(gone) = &self.gone {
            names.remove(gone);
        }
        if let Some((path, file)) = &self.come {
            names.insert(path.clone(), *file);
        }
    }
}

impl Image {
    fn new(first: &BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let mut files = HashMap::new();
        let mut seen = BTreeMap::new();
        for (id, (path, bytes)) in (0..).zip(first) {
            let content = Content {
                durable: bytes.clone(),
                len: bytes.len(),
                ..Content::default()
            };
            files.insert(id, content);
            seen.insert(path.clone(), id);
        }
        Self {
            files,
            durable: seen.clone(),
            seen,
            pending: Vec::new(),
        }
    }

    fn change(&mut self, gone: Option<PathBuf>, come: Option<(PathBuf, u64)>) {
        let change = NameChange { gone, come };
        change.apply(&mut self.seen);
        self.pending.push(change);
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Create(file, path) => {
                self.files.insert(*file, Content::default());
                self.change(None, Some((path.clone(), *file)));
            }
            Event::Write(file, bytes) => {
                let content = self.files.get_mut(file).expect("a created file");
                content.pending.push((content.len, bytes.clone()));
                content.len += bytes.len();
            }
            Event::Sync(file, done) => {
                let content = self.files.get_mut(file).expect("a created file");
                for (offset, bytes) in std::mem::take(&mut content.pending) {
                    if *done {
                        lay(&mut content.durable, offset, &bytes);
                    } else {
                        content.lost.push((offset, bytes));
                    }
                }
            }
            Event::Rename(from, to) => {
                let inside: Vec<_> = (self.seen.iter())
                    .filter(|(path, _)| path.starts_with(from))
                    .map(|(path, file)| (path.clone(), *file))
                    .collect();
                assert!(
                    !inside.is_empty(),
                    "{} was created without being recorded",
                    from.display()
                );
                // A directory moves with everything in it.
                for (path, file) in inside {
                    let rest = path.strip_prefix(from).expect("the path begins with it");
                    let come = match rest.as_os_str().is_empty() {
                        true => to.clone(),
                        false => to.join(rest),
                    };
                    self.change(Some(path), Some((come, file)));
                }
            }
            Event::Link(from, to) => {
                let file = self.seen[from];
                self.change(None, Some((to.clone(), file)));
            }
            Event::Remove(path) => self.change(Some(path.clone()), None),
            Event::RemoveDir(dir) => {
                let inside: Vec<_> = self
                    .seen
                    .keys()
                    .filter(|p| p.starts_with(dir))
                    .cloned()
                    .collect();
                for path in inside {
                    self.change(Some(path), None);
                }
            }
            Event::SyncDir(dir, done) => {
                if *done {
                    let (synced, rest) = std::mem::take(&mut self.pending)
                        .into_iter()
                        .partition(|change| change.is_in(dir));
                    self.pending = rest;
                    for change in synced {
                        change.apply(&mut self.durable);
                    }
                }
            }
            Event::CreateDir(_) | Event::Catalog(_) | Event::Mark(_) => {}
        }
    }

    /// Returns the files that exist after the cut.
    fn cut(mut self, fate: Fate, random: &mut dyn FnMut() -> u64) -> Vec<(PathBuf, Vec<u8>)> {
        for change in &self.pending {
            let kept = match fate {
                Fate::Kept => true,
                Fate::Dropped => false,
                _ => random() & 8 == 0,
            };
            if kept {
                change.apply(&mut self.durable);
            }
        }
        let mut found = Vec::new();
        for (path, file) in &self.durable {
            let content = &self.files[file];
            let mut bytes = content.durable.clone();
            for (offset, written) in content.lost.iter().chain(&content.pending) {
                let fate = match fate {
                    Fate::Any => [Fate::Kept, Fate::Dropped, Fate::Torn, Fate::Garbage]
                        [(random() >> 7) as usize % 4],
                    fate => fate,
                };
                match fate {
                    Fate::Kept | Fate::Any => lay(&mut bytes, *offset, written),
                    Fate::Dropped => {}
                    Fate::Torn => {
                        let len = (random() >> 7) as usize % (written.len() + 1);
                        lay(&mut bytes, *offset, &written[..len]);
                    }
                    Fate::Garbage => {
                        let garbage: Vec<u8> =
                            written.iter().map(|_| (random() >> 17) as u8).collect();
                        lay(&mut bytes, *offset, &garbage);
                    }
                }
            }
            found.push((path.clone(), bytes));
        }
        found
    }
}

/// Writes bytes over others; a gap before them is filled with zeros.
fn lay(bytes: &mut Vec<u8>, offset: usize, over: &[u8]) {
    if over.is_empty() {
        return;
    }
    let end = offset + over.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(over);
}

fn gather(
    root: &Path,
    at: &Path,
    files: &mut BTreeMap<PathBuf, Vec<u8>>,
    directories: &mut BTreeSet<PathBuf>,
) {
    directories.insert(at.into());
    for entry in fs::read_dir(root.join(at)).unwrap() {
        let entry = entry.unwrap();
        let path = at.join(entry.file_name());
        if path == Path::new("catalog") || path == Path::new("LOCK") {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            gather(root, &path, files, directories);
        } else {
            files.insert(path, fs::read(entry.path()).unwrap());
        }
    }
}

/// Copies a directory and everything in it.
pub fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn garble(dir: &Path, random: &mut dyn FnMut() -> u64) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            garble(&path, random);
        } else {
            let len = fs::metadata(&path).unwrap().len() as usize;
            let garbage: Vec<u8> = (0..len).map(|_| (random() >> 17) as u8).collect();
            fs::write(&path, garbage).unwrap();
        }
    }
}
