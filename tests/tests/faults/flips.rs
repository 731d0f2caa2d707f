//! Flipped bits, and files that were cut or grew: an error or the same answer, never a different one.

use crate::world::{DIM, Models, Step, World, options, row};
use crate::{Case, report, scratch, torture};
use mopqdb::{Database, Filter, Hit, QueryOptions, Reader, Row, Search};
use mopqdb_tests::recording::copy_dir;
use mopqdb_tests::support::Random;
use std::fs;
use std::path::{Path, PathBuf};

/// A closed database with all kinds of files: two segments under a model, deletions in one of them, rows in a log.
pub fn sample(models: &Models, path: &Path) -> World {
    models.create(path);
    let db = Database::open(path, options()).unwrap();
    let mut random = Random::new(801);
    let mut insert = |range: std::ops::Range<usize>| {
        Step::Insert(
            range
                .map(|n| (format!("k{n}"), random.vector(DIM)))
                .collect(),
        )
    };
    let steps = [
        insert(0..9),
        Step::Rebuild(1),
        insert(9..14),
        Step::Seal,
        Step::Delete(vec!["k2".into(), "k11".into()]),
        Step::Seal,
        insert(20..23),
        Step::Delete(vec!["k4".into()]),
    ];
    let mut world = World::default();
    for step in &steps {
        models.run(&db, step).unwrap();
        world = world.after(step);
    }
    db.close().unwrap();
    world
}

/// Returns all files with their bytes, except sled's, the locks and the reserve, which holds no data.
pub fn files(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![path.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap().path();
            let name = entry.file_name().unwrap().to_str().unwrap().to_owned();
            if entry.is_dir() {
                if name != "catalog" {
                    left.push(entry);
                }
            } else if !name.contains("LOCK") && !name.contains(".lock") && name != "RESERVE" {
                let bytes = fs::read(&entry).unwrap();
                found.push((entry, bytes));
            }
        }
    }
    found.sort();
    found
}

/// Returns every answer of a database.
pub fn answers(path: &Path) -> mopqdb::Result<(Vec<Hit>, Vec<Option<Row>>)> {
    let reader = Reader::open(path, options())?;
    let query = [0.5, -0.25, 1.0, 0.0, 0.125, -1.0, 0.75, 0.3];
    let mut hits = Vec::new();
    // All rows are candidates. Rescoring by vectors alone would hide a wrong code.
    for search in [Search::Auto, Search::Codes, Search::Exact] {
        if search != Search::Codes || reader.snapshot().model().quantizer().is_some() {
            let top = QueryOptions::top(100).search(search);
            hits.extend(reader.query_with(&query, &top)?);
        }
    }
    // Unlike hits and rows, filters read what is known of blocks of rows.
    for filter in ["first > 0 AND name >= 'k1'", "positive IS NULL"] {
        let among = QueryOptions::top(100).among(Filter::sql(filter)?);
        hits.extend(reader.query_with(&query, &among.columns(["first", "positive"]))?);
    }
    let rows = (0..24).map(|n| reader.get(&format!("k{n}")));
    let rows = rows.collect::<mopqdb::Result<Vec<_>>>()?;
    reader.snapshot().for_each_row(|_| Ok(()))?;
    reader.stats()?;
    Ok((hits, rows))
}

/// Replaces the bytes of a file, queries, and restores the file.
fn with(
    path: &Path,
    file: &Path,
    bytes: &[u8],
    original: &[u8],
) -> mopqdb::Result<(Vec<Hit>, Vec<Option<Row>>)> {
    replace(file, bytes);
    let answered = answers(path);
    replace(file, original);
    answered
}

fn replace(file: &Path, bytes: &[u8]) {
    // Written as a new file: segments are read-only, and an old mapping keeps the old file.
    fs::remove_file(file).unwrap();
    fs::write(file, bytes).unwrap();
}

#[test]
fn no_flipped_bit_of_any_file_changes_an_answer() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    let world = sample(&models, &path);
    let reader = Reader::open(&path, options()).unwrap();
    models.check(&reader.snapshot(), &[world]);
    drop(reader);
    let expected = answers(&path).unwrap();
    let newest = (files(&path).into_iter().map(|(file, _)| file))
        .filter(|file| file.to_string_lossy().contains("MANIFEST-"))
        .max()
        .unwrap();
    let mut random = Random::new(802);
    let (mut tried, mut refused) = (0, 0);
    for (file, bytes) in files(&path) {
        let mut unseen = 0;
        let thorough = file.extension() == Some("log".as_ref()) || file == newest;
        for byte in 0..bytes.len() {
            // Every bit of the files that name all others; of the rest every bit, or one bit per byte.
            let bits = if torture() || thorough {
                0..8
            } else {
                let bit = random.below(8);
                bit..bit + 1
            };
            for bit in bits {
                let mut flipped = bytes.clone();
                flipped[byte] ^= 1 << bit;
                let _case = Case(format!("{} byte {byte} bit {bit}", file.display()));
                tried += 1;
                match with(&path, &file, &flipped, &bytes) {
                    Err(_) => refused += 1,
                    Ok(answered) => {
                        assert_eq!(answered, expected);
                        unseen += 1;
                    }
                }
            }
        }
        let name = file.strip_prefix(&path).unwrap().display();
        println!(
            "  {name}: {} bytes, {unseen} flips changed nothing",
            bytes.len()
        );
    }
    report(
        tried,
        format_args!("bits flipped in our files, {refused} refused, no other answer given"),
    );
    assert_eq!(answers(&path).unwrap(), expected);
}

#[test]
fn cutting_or_extending_any_file_changes_no_answer() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    sample(&models, &path);
    let expected = answers(&path).unwrap();
    let (log, bytes) = only_log(&path);
    let earlier: Vec<_> = batch_ends(&bytes)
        .into_iter()
        .map(|end| with(&path, &log, &bytes[..end], &bytes).unwrap())
        .collect();
    assert_eq!(earlier.len(), 3, "none, one and two batches");
    let mut random = Random::new(803);
    let mut tried = 0;
    for (file, bytes) in files(&path) {
        let mut lengths: Vec<usize> = (0..bytes.len()).collect();
        if !torture() {
            lengths.retain(|&len| len < 2 || len + 2 > bytes.len() || random.below(16) == 0);
        }
        let grown = [1, 63, 64, 4096].map(|more| bytes.len() + more);
        for len in lengths.into_iter().chain(grown) {
            let mut other = bytes.clone();
            other.resize(len, 0);
            let _case = Case(format!(
                "{} of {} bytes made {len}",
                file.display(),
                bytes.len()
            ));
            tried += 1;
            if let Ok(answered) = with(&path, &file, &other, &bytes) {
                // A cut log is read like one whose writer was killed: its batches from the first to some last one.
                let prefix =
                    earlier.contains(&answered) && file.extension() == Some("log".as_ref());
                assert!(answered == expected || prefix);
            }
        }
    }
    report(tried, "files cut or grown, no other answer given");
}

fn only_log(path: &Path) -> (PathBuf, Vec<u8>) {
    let mut logs = files(path);
    logs.retain(|(file, _)| file.extension() == Some("log".as_ref()));
    assert_eq!(logs.len(), 1);
    logs.remove(0)
}

/// Returns the ends of the header and of each batch of a log, as FORMAT.md defines them.
fn batch_ends(log: &[u8]) -> Vec<usize> {
    let mut ends = vec![64];
    while let Some(len) = log
        .get(ends[ends.len() - 1]..)
        .and_then(|rest| rest.get(..4))
    {
        let len = u32::from_le_bytes(len.try_into().unwrap()) as usize;
        if len == 0 {
            break;
        }
        ends.push((ends[ends.len() - 1] + 32 + len).next_multiple_of(8));
    }
    ends
}

/// A batch that is missing at the end of the newest log can't be detected. If the log was cut within a batch, the
/// writer reports it and keeps the rest.
#[test]
fn a_writer_reports_a_missing_end_of_a_log_and_keeps_the_rest() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let template = dir.path().join("db");
    sample(&models, &template);
    let (log, bytes) = only_log(&template);
    let ends = batch_ends(&bytes);
    for len in (0..bytes.len()).step_by(if torture() { 1 } else { 23 }) {
        let copy = scratch();
        let path = copy.path().join("db");
        copy_dir(&template, &path);
        fs::write(
            path.join(log.strip_prefix(&template).unwrap()),
            &bytes[..len],
        )
        .unwrap();
        let _case = Case(format!("cut at {len}"));
        let db = Database::open(&path, options()).unwrap();
        let said = db.warnings().iter().any(|w| w.contains(".log"));
        assert_eq!(said, !ends.contains(&len), "{:?}", db.warnings());
        if said {
            let aside = fs::read_dir(path.join("orphans"))
                .unwrap()
                .next()
                .unwrap()
                .unwrap();
            let kept = fs::read(aside.path()).unwrap();
            assert!(
                bytes[..len].ends_with(&kept),
                "the moved bytes are the ones that were there"
            );
        }
    }
}

#[test]
fn cutting_open_files_does_not_crash_a_process_without_mappings() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let path = dir.path().join("db");
    let world = sample(&models, &path);
    let careful = options().no_mmap(true);
    let reader = Reader::open(&path, careful).unwrap();
    for (file, _) in files(&path) {
        // Cut in place, as another program would; segments are read-only.
        let mut permissions = fs::metadata(&file).unwrap().permissions();
        #[expect(
            clippy::permissions_set_readonly_false,
            reason = "the file is removed with the test"
        )]
        permissions.set_readonly(false);
        fs::set_permissions(&file, permissions).unwrap();
        fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(0)
            .unwrap();
    }
    models.check(&reader.snapshot(), &[world]);
    assert!(reader.refresh().is_err());
}

/// A writer can repair what a reader can't: it has the second witness.
#[test]
fn a_damaged_manifest_is_restored_from_the_catalog_with_a_warning() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let template = dir.path().join("db");
    let world = sample(&models, &template);
    let manifests: Vec<_> = files(&template)
        .into_iter()
        .filter(|(file, _)| file.to_string_lossy().contains("MANIFEST-"))
        .collect();
    let (newest, bytes) = manifests.last().unwrap();
    let mut random = Random::new(804);
    for n in 0..40 {
        let copy = scratch();
        let path = copy.path().join("db");
        copy_dir(&template, &path);
        let mut damaged = bytes.clone();
        match n % 4 {
            0 => damaged.truncate(random.below(bytes.len())),
            1 => damaged.extend([0; 8]),
            _ => damaged[random.below(bytes.len())] ^= 1 << random.below(8),
        }
        let _case = Case(format!("damage {n}"));
        replace(
            &path.join(newest.strip_prefix(&template).unwrap()),
            &damaged,
        );
        let db = Database::open(&path, options()).unwrap();
        assert!(
            db.warnings().iter().any(|w| w.contains("manifest")),
            "{:?}",
            db.warnings()
        );
        models.check(&db.snapshot(), std::slice::from_ref(&world));
    }
}

#[test]
fn no_flipped_bit_in_the_catalog_changes_an_answer() {
    let dir = scratch();
    let models = Models::train(dir.path());
    let template = dir.path().join("db");
    let world = sample(&models, &template);
    let mut catalog: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    let mut left = vec![PathBuf::from("catalog")];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(template.join(&at)).unwrap() {
            let entry = entry.unwrap();
            let path = at.join(entry.file_name());
            if entry.path().is_dir() {
                left.push(path);
            } else {
                catalog.push((path, fs::read(entry.path()).unwrap()));
            }
        }
    }
    catalog.retain(|(_, bytes)| !bytes.is_empty());
    catalog.sort();
    let total: usize = catalog.iter().map(|(_, bytes)| bytes.len()).sum();
    let telling: Vec<usize> = (catalog.iter().flat_map(|(_, bytes)| bytes))
        .enumerate()
        .filter_map(|(at, &byte)| (byte != 0).then_some(at))
        .collect();
    println!("catalog: {total} bytes, {} of them not zero", telling.len());
    let mut random = Random::new(805);
    let (tried, mut said) = (if torture() { 10_000 } else { 300 }, 0);
    for n in 0..tried {
        // Half of the flips are in bytes that are not zero.
        let mut at = if n % 2 == 0 {
            telling[random.below(telling.len())]
        } else {
            random.below(total)
        };
        let bit = random.below(8);
        let copy = scratch();
        let path = copy.path().join("db");
        copy_dir(&template, &path);
        for (file, bytes) in &catalog {
            if at < bytes.len() {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                fs::write(path.join(file), flipped).unwrap();
                break;
            }
            at -= bytes.len();
        }
        let _case = Case(format!("flip {n}: byte {at} bit {bit}"));
        let db = Database::open(&path, options()).unwrap();
        said += usize::from(!db.warnings().is_empty());
        models.check(&db.snapshot(), std::slice::from_ref(&world));
        db.insert(&[row("k1", &[0.5; DIM])]).unwrap();
    }
    report(
        tried,
        format_args!("bits flipped in sled's files, {said} noticed, no other answer given"),
    );
    assert!(said > 0, "none of them reached a record");
}
