//! Damaged and foreign files: an error each time, never a panic or a wrong answer.

use super::*;
use crate::error::Error;
use crate::segment::{WordsFile, WordsPacker};
use std::fs;

fn texts() -> Vec<String> {
    let mut seed = Seed(1);
    let mut texts: Vec<_> = (0..300).map(|_| seed.text(12)).collect();
    texts.push("the end".into());
    texts
}

fn sample() -> (tempfile::TempDir, PathBuf) {
    let texts = texts();
    let texts: Vec<_> = texts.iter().map(|text| Some(text.as_str())).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), Settings::default(), &texts);
    (dir, path)
}

/// Returns every result that a words file can give.
fn ask(path: &Path) -> Result<String> {
    let words = SegmentWords::open(&DISK, path)?;
    assert!(words.serves(&Settings::default().id()));
    let mut answers = String::new();
    for query in ["w0 w1 w2", "w5 w19 w77 end", "nothing"] {
        let terms = Terms::of(&Tokenizer::new(Settings::default()), query);
        let dead = [!1, u64::MAX, u64::MAX, u64::MAX, (1 << 45) - 1];
        let counts = words.count(&terms, Some(&dead))?;
        let scorer = Scorer::new(&counts);
        let found = best([(&words as &dyn Indexed, None)], &terms, &scorer, 20)?;
        let mut scores = [0.0; 3];
        words.score(&terms, &scorer, &[0, 100, 300], &mut scores)?;
        answers += &format!("{counts:?} {found:?} {scores:?}");
    }
    Ok(answers)
}

fn rewrite(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_bit_or_a_cut_is_an_error() {
    let (_dir, path) = sample();
    let right = ask(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let mut corrupt = 0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        rewrite(&path, &damaged);
        match ask(&path) {
            Err(Error::Corrupt(found)) => {
                assert_eq!(found.file, path);
                corrupt += 1;
            }
            Err(Error::Incompatible { .. }) => assert!(at < 64, "byte {at}"),
            other => panic!("byte {at}: {other:?}"),
        }
    }
    assert!(corrupt > bytes.len() * 9 / 10);
    for len in (0..bytes.len()).step_by(13) {
        rewrite(&path, &bytes[..len]);
        assert!(
            matches!(
                ask(&path),
                Err(Error::Corrupt(_) | Error::Incompatible { .. })
            ),
            "{len}"
        );
    }
    rewrite(&path, &[&bytes[..], &[0; 64]].concat());
    assert!(ask(&path).is_err());
    rewrite(&path, &bytes);
    assert_eq!(ask(&path).unwrap(), right);
}

#[test]
fn damage_is_named_by_file_and_section_and_verify_finds_all_of_it() {
    let mut seed = Seed(2);
    let texts: Vec<_> = (0..20_000).map(|_| seed.text(30)).collect();
    let texts: Vec<_> = texts.iter().map(|text| Some(text.as_str())).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), Settings::default(), &texts);
    let mut bytes = fs::read(&path).unwrap();
    assert!(bytes.len() > 200_000, "{} bytes", bytes.len());
    let words = SegmentWords::open(&DISK, &path).unwrap();
    assert!(words.verify().is_empty());
    for chunk in 0..3 {
        bytes[64 + chunk * 65_536 + 500] ^= 4;
    }
    rewrite(&path, &bytes);
    // Opening reads none of these bytes.
    let words = SegmentWords::open(&DISK, &path).unwrap();
    let damage = words.verify();
    assert_eq!(damage.len(), 3);
    for (chunk, error) in damage.iter().enumerate() {
        let Error::Corrupt(found) = error else {
            panic!("{error}");
        };
        assert_eq!((&found.file, &*found.section), (&path, "INDEX"));
        assert_eq!(found.offset, 64 + chunk as u64 * 65_536);
    }
}

/// Valid checksums over bytes that the search library never wrote.
#[test]
fn invalid_index_files_give_errors_and_no_panic() {
    let (dir, path) = sample();
    let right = ask(&path).unwrap();
    let file = WordsFile::open(&DISK, &path).unwrap();
    let meta = *file.meta();
    let names = file.names().map(str::to_owned).collect::<Vec<_>>();
    let forged = dir.path().join("forged");
    let mut seed = Seed(4);
    let (mut errors, mut same) = (0, 0);
    for round in 0..600 {
        let mut packer = WordsPacker::create(Arc::new(DISK), &forged).unwrap();
        let hit = &names[round % names.len()];
        for name in &names {
            let mut bytes = file.bytes(file.packed(name).unwrap()).unwrap().to_vec();
            if name == hit && !bytes.is_empty() {
                let at = seed.below(bytes.len() as u64) as usize;
                match round % 5 {
                    0 => bytes.truncate(at),
                    1 => bytes[at] = 0xff,
                    _ => bytes[at] ^= 1 << seed.below(8),
                }
            }
            packer.begin(name);
            packer.write(&bytes).unwrap();
        }
        packer.finish(&meta).unwrap();
        match ask(&forged) {
            Err(Error::Corrupt(_)) => errors += 1,
            Err(other) => panic!("{other}"),
            Ok(answers) => same += usize::from(answers == right),
        }
    }
    assert!(
        errors > 50 && same > 50,
        "{errors} errors, {same} right answers"
    );
}

#[test]
fn a_file_with_other_settings_counts_as_missing_and_a_misnamed_file_as_damaged() {
    let english = Settings::default();
    let german = Settings {
        language: Language::German,
        ..english
    };
    let (dir, words) = segment(german, &all(&["a", "b"]));
    assert!(words.serves(&german.id()) && !words.serves(&english.id()));
    fs::rename(path(dir.path(), german), path(dir.path(), english)).unwrap();
    let error = SegmentWords::open(&DISK, &path(dir.path(), english)).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}

#[test]
fn a_file_of_another_version_of_the_index_counts_as_missing() {
    let (dir, path) = sample();
    let file = WordsFile::open(&DISK, &path).unwrap();
    let mut meta = *file.meta();
    meta.index_version += 1;
    let newer = dir.path().join("newer");
    let packer = WordsPacker::create(Arc::new(DISK), &newer).unwrap();
    packer.finish(&meta).unwrap();
    let words = SegmentWords::open(&DISK, &newer).unwrap();
    assert!(!words.serves(&meta.words));
    assert!(words.verify().is_empty(), "its contents are not checked");
}

#[test]
fn an_index_for_different_rows_is_damage() {
    let (dir, path) = sample();
    let file = WordsFile::open(&DISK, &path).unwrap();
    let mut meta = *file.meta();
    meta.rows += 1;
    let other = dir.path().join("other");
    let mut packer = WordsPacker::create(Arc::new(DISK), &other).unwrap();
    for name in file.names() {
        packer.begin(name);
        let range = file.packed(name).unwrap();
        packer.write(file.bytes(range).unwrap()).unwrap();
    }
    packer.finish(&meta).unwrap();
    assert!(matches!(ask(&other), Err(Error::Corrupt(_))));
    let words = SegmentWords::open(&DISK, &other).unwrap();
    assert_eq!(words.verify().len(), 1);
}
