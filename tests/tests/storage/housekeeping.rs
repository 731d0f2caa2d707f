//! Tests of verify, repair, backup and prune.

use mopqdb::{
    Database, Error, Metric, Options, PruneOptions, Reader, RebuildOptions, RepairOptions,
    VerifyOptions, backup, prune, register_model, repair, verify,
};
use mopqdb_tests::support::{Oracle, Random, codebooks, put, small, vectors};
use std::fs;
use std::path::{Path, PathBuf};

fn deep() -> VerifyOptions {
    VerifyOptions::default().deep(true)
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.retain(|path| path.extension().is_some_and(|e| e == extension));
    found.sort();
    found
}

/// A database with codes, several segments, deletions and a tail; and its expected contents.
fn sample(dir: &Path, seed: u64) -> (PathBuf, Oracle, mopqdb::Bundle) {
    let path = dir.join("db");
    let mut random = Random::new(seed);
    let db = vectors(&path, 8, Metric::Ip);
    let mut oracle = Oracle::default();
    let flat: Vec<f32> = (0..100).flat_map(|_| random.vector(8)).collect();
    let bundle = codebooks(dir, &flat, 8, Metric::Ip, false, seed);
    register_model(&path, &bundle).unwrap();
    db.rebuild(&RebuildOptions::default()).unwrap();
    for n in 0..230 {
        let key = (n * 7 % 200).to_string();
        let vector = random.vector(8);
        db.insert(&[put(&key, &vector)]).unwrap();
        oracle.put(&key, vector);
        if n % 9 == 4 {
            let key = (n * 5 % 200).to_string();
            assert_eq!(db.delete(&[&key]).unwrap() == 1, oracle.remove(&key));
        }
    }
    db.close().unwrap();
    (path, oracle, bundle)
}

#[test]
fn every_code_of_a_sound_database_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let (path, ..) = sample(dir.path(), 31);
    let found = verify(&path, &deep()).unwrap();
    assert!(found.is_sound(), "{:?}", found.problems);
    assert!(found.codes >= 200 && found.files > 10, "{found:?}");
}

#[test]
fn verify_names_every_damaged_file_of_a_database_that_does_not_open() {
    let dir = tempfile::tempdir().unwrap();
    let (path, ..) = sample(dir.path(), 32);
    let codes = files(&path.join("segments"), "codes").remove(0);
    let rows = files(&path.join("segments"), "rows").remove(1);
    for file in [&codes, &rows] {
        let mut bytes = fs::read(file).unwrap();
        let middle = bytes.len() / 3;
        bytes[middle] ^= 2;
        fs::remove_file(file).unwrap();
        fs::write(file, bytes).unwrap();
    }
    let found = verify(&path, &deep()).unwrap();
    for file in [&codes, &rows] {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(
            found.problems.iter().any(|p| p.contains(name)),
            "{name}: {:?}",
            found.problems
        );
    }
}

#[test]
fn repair_reconstructs_the_version_from_segments_if_both_witnesses_are_lost() {
    for seed in [33, 34] {
        let dir = tempfile::tempdir().unwrap();
        let (path, oracle, bundle) = sample(dir.path(), seed);
        if seed == 34 {
            // Rows that compaction dropped must not come back.
            Database::open(&path, small()).unwrap().compact().unwrap();
        }
        fs::remove_dir_all(path.join("catalog")).unwrap();
        for entry in fs::read_dir(&path).unwrap() {
            let file = entry.unwrap().path();
            if file
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("MANIFEST")
            {
                fs::remove_file(file).unwrap();
            }
        }
        assert!(Database::open(&path, small()).is_err());
        let done = repair(&path, &RepairOptions::default().accept_loss(true)).unwrap();
        assert_eq!(done.rows, Some(oracle.rows.len() as u64), "{done:?}");
        let db = Database::open(&path, small()).unwrap();
        assert!(db.warnings().is_empty(), "{:?}", db.warnings());
        let mut random = Random::new(seed);
        oracle.check(
            &db.snapshot(),
            &[random.vector(8), random.vector(8)],
            Metric::Ip,
            Some(&bundle),
        );
        drop(db);
        assert!(verify(&path, &deep()).unwrap().is_sound());
        assert!(
            repair(&path, &RepairOptions::default())
                .unwrap()
                .done
                .is_empty(),
            "nothing is left to repair"
        );
    }
}

#[test]
fn repair_moves_a_damaged_segment_aside_and_reports_what_was_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (path, oracle, _) = sample(dir.path(), 35);
    let rows = files(&path.join("segments"), "rows").remove(0);
    let bytes = fs::read(&rows).unwrap();
    fs::remove_file(&rows).unwrap();
    fs::write(&rows, &bytes[..bytes.len() / 2]).unwrap();
    assert!(matches!(
        Reader::open(&path, small()),
        Err(Error::Corrupt(_))
    ));
    let done = repair(&path, &RepairOptions::default().accept_loss(true)).unwrap();
    assert!(
        done.lost.iter().any(|line| line.contains("can't be read")),
        "{done:?}"
    );
    let db = Database::open(&path, small()).unwrap();
    assert!(db.snapshot().rows() < oracle.rows.len() as u64);
    for hit in db.query(&vec![0.1; 8], 1000).unwrap() {
        assert!(
            oracle.rows.contains_key(&hit.key),
            "{} was deleted",
            hit.key
        );
    }
}

#[test]
fn a_backup_of_a_live_database_is_a_database() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut oracle, bundle) = sample(dir.path(), 36);
    let db = Database::open(&path, small()).unwrap();
    let mut random = Random::new(36);
    let vector = random.vector(8);
    db.insert(&[put("last", &vector)]).unwrap();
    oracle.put("last", vector);
    let copy = dir.path().join("copy");
    let done = backup(&path, &copy).unwrap();
    assert!(done.files > 5 && done.bytes > 1000, "{done:?}");
    db.insert(&[put("after", &random.vector(8))]).unwrap();
    db.compact().unwrap();
    let restored = Database::open(&copy, small()).unwrap();
    assert!(restored.warnings().is_empty(), "{:?}", restored.warnings());
    oracle.check(
        &restored.snapshot(),
        &[random.vector(8)],
        Metric::Ip,
        Some(&bundle),
    );
    assert!(
        backup(&path, &copy)
            .unwrap_err()
            .to_string()
            .contains("is already a database")
    );
}

#[test]
fn prune_removes_inactive_models_with_their_codes_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (path, oracle, first) = sample(dir.path(), 37);
    let mut random = Random::new(37);
    let flat: Vec<f32> = (0..100).flat_map(|_| random.vector(8)).collect();
    let second = codebooks(dir.path(), &flat, 8, Metric::Ip, true, 99);
    register_model(&path, &second).unwrap();
    let db = Database::open(&path, small()).unwrap();
    db.rebuild(&RebuildOptions::default().model(Some(second.model_id())))
        .unwrap();
    assert!(matches!(
        prune(&path, &PruneOptions::default()),
        Err(Error::Locked { .. })
    ));
    drop(db);
    let would = prune(&path, &PruneOptions::default().dry_run(true)).unwrap();
    assert_eq!(would.models, [first.model_id()]);
    let before = files(&path.join("segments"), "codes").len();
    let done = prune(&path, &PruneOptions::default()).unwrap();
    assert_eq!(
        (done.bytes, done.paths.len()),
        (would.bytes, would.paths.len())
    );
    assert!(files(&path.join("segments"), "codes").len() < before);
    let reader = Reader::open(&path, Options::default()).unwrap();
    oracle.check(
        &reader.snapshot(),
        &[random.vector(8)],
        Metric::Ip,
        Some(&second),
    );
}

/// A database with two models, the second active, and both bundles.
fn two_models(dir: &Path, seed: u64) -> (PathBuf, Oracle, [mopqdb::Bundle; 2]) {
    let (path, oracle, first) = sample(dir, seed);
    let mut random = Random::new(seed);
    let flat: Vec<f32> = (0..100).flat_map(|_| random.vector(8)).collect();
    // The model with the lower id was registered later: its number decides, not its name.
    let second = (seed..)
        .map(|n| codebooks(dir, &flat, 8, Metric::Ip, true, n))
        .find(|second| second.model_id() < first.model_id())
        .unwrap();
    register_model(&path, &second).unwrap();
    let db = Database::open(&path, small()).unwrap();
    db.rebuild(&RebuildOptions::default()).unwrap();
    db.close().unwrap();
    (path, oracle, [first, second])
}

#[test]
fn a_backup_has_every_model_in_its_order_and_can_be_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let (path, oracle, [first, second]) = two_models(dir.path(), 41);
    let copy = dir.path().join("copy");
    backup(&path, &copy).unwrap();
    let ids = |path: &Path| -> Vec<_> {
        let listed = mopqdb::models(path).unwrap();
        listed.iter().map(|m| (m.id, m.registered)).collect()
    };
    assert_eq!(ids(&copy), ids(&path));
    assert!(verify(&copy, &deep()).unwrap().is_sound());
    let model = Some(first.model_id());
    let options = RebuildOptions::default().model(model);
    let rolled_back = mopqdb::rebuild(&copy, &options).unwrap();
    // Its codes were copied too, except those of the tail, which was never sealed under it.
    assert!(rolled_back.reused > rolled_back.rows, "{rolled_back:?}");
    let mut random = Random::new(41);
    let queries = [random.vector(8), random.vector(8)];
    let reader = Reader::open(&copy, small()).unwrap();
    oracle.check(&reader.snapshot(), &queries, Metric::Ip, Some(&first));
    // Without a name, a rebuild uses the model registered last.
    let newest = mopqdb::rebuild(&copy, &RebuildOptions::default()).unwrap();
    assert_eq!(newest.model, second.model_id());

    let less = dir.path().join("less");
    let active = mopqdb::BackupOptions::default().active_only(true);
    mopqdb::backup_with(&path, &less, &active).unwrap();
    let listed = mopqdb::models(&less).unwrap();
    let trained: Vec<_> = listed.iter().filter(|m| !m.exact).map(|m| m.id).collect();
    assert_eq!(trained, [second.model_id()]);
    assert!(mopqdb::rebuild(&less, &options).is_err());
    let reader = Reader::open(&less, small()).unwrap();
    oracle.check(&reader.snapshot(), &queries, Metric::Ip, Some(&second));
}

/// Returns device and inode of every file below a directory.
#[cfg(unix)]
fn inodes(dir: &Path) -> std::collections::BTreeMap<PathBuf, (u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let mut found = std::collections::BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            found.extend(inodes(&path));
        } else {
            found.insert(path, (meta.dev(), meta.ino()));
        }
    }
    found
}

#[cfg(unix)]
#[test]
fn a_backup_shares_files_with_its_database_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let (path, oracle, [_, second]) = two_models(dir.path(), 42);
    let own: Vec<_> = inodes(&path).into_values().collect();
    let shared = |copy: &Path| -> Vec<PathBuf> {
        let theirs = inodes(copy).into_iter();
        let both = theirs.filter(|(_, inode)| own.contains(inode));
        both.map(|(path, _)| path).collect()
    };
    let copy = dir.path().join("copy");
    let done = backup(&path, &copy).unwrap();
    assert_eq!((shared(&copy), done.linked), (Vec::new(), 0));

    let linked = dir.path().join("linked");
    let options = mopqdb::BackupOptions::default().link(true);
    let done = mopqdb::backup_with(&path, &linked, &options).unwrap();
    let both = shared(&linked);
    assert_eq!(both.len() as u64, done.linked);
    for extension in ["rows", "codes", "dels", "safetensors"] {
        let is = |path: &&PathBuf| path.extension().is_some_and(|e| e == extension);
        assert!(
            both.iter().any(|path| is(&path)),
            "no .{extension} is shared"
        );
    }
    // Files that are rewritten or grow are separate.
    let grows = |path: &&PathBuf| {
        let text = path.to_string_lossy();
        ["/logs/", "MANIFEST-", "/catalog/", "REGISTERED"]
            .iter()
            .any(|part| text.contains(part))
    };
    assert_eq!(both.iter().find(grows), None);
    // Deleting one does not affect the other.
    let db = Database::open(&linked, small()).unwrap();
    db.delete(&["1", "2", "3"]).unwrap();
    db.compact().unwrap();
    drop(db);
    prune(&linked, &PruneOptions::default()).unwrap();
    assert!(verify(&path, &deep()).unwrap().is_sound());
    let reader = Reader::open(&path, small()).unwrap();
    let query = [Random::new(42).vector(8)];
    oracle.check(&reader.snapshot(), &query, Metric::Ip, Some(&second));
}

#[test]
fn a_backup_into_its_own_database_or_around_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let outer = dir.path().join("outer");
    fs::create_dir(&outer).unwrap();
    let (path, ..) = sample(&outer, 43);
    let before = fs::read_dir(&path).unwrap().count();
    let mut refused = vec![
        (path.clone(), "is the database itself"),
        (path.join("copy"), "is inside the database"),
        (path.join("models/a/b"), "is inside the database"),
        (path.join("segments/../copy"), "is inside the database"),
        (outer.join("db/../db/copy"), "is inside the database"),
        (path.join("new/../../copy"), "does not exist"),
        (outer.clone(), "has the database in it"),
        (dir.path().to_path_buf(), "has the database in it"),
    ];
    #[cfg(unix)]
    {
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(path.join("segments"), &link).unwrap();
        refused.push((link.clone(), "is inside the database"));
        refused.push((link.join("copy"), "is inside the database"));
        refused.push((link.join("../copy"), "is inside the database"));
    }
    for (dest, why) in refused {
        let error = backup(&path, &dest).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
        assert!(error.to_string().contains(why), "{dest:?}: {error}");
    }
    assert_eq!(fs::read_dir(&path).unwrap().count(), before);
    // A directory whose name only begins with the database's is another directory.
    backup(&path, outer.join("db-copy")).unwrap();
}

/// A database of texts with its encoder and two models trained over it, and the bundles of all three.
#[cfg(unix)]
fn one_encoder(dir: &Path) -> (PathBuf, [mopqdb::Bundle; 3]) {
    use mopqdb::quantizer::{TrainPq, train_pq};
    let path = dir.join("db");
    let encoder = mopqdb::Bundle::open(mopqdb::bundle::tiny_bundle()).unwrap();
    let new = mopqdb::CreateOptions::bundle(encoder.dir());
    Database::create(&path, &new, small())
        .unwrap()
        .close()
        .unwrap();
    let mut random = Random::new(51);
    let vectors: Vec<f32> = (0..60).flat_map(|_| random.vector(32)).collect();
    let models = [1, 2].map(|seed| {
        let options = TrainPq::default().subspaces(4).codewords(16).seed(seed);
        let trained = train_pq(&vectors, 32, Metric::Cosine, &options).unwrap();
        let bundle = mopqdb::BundleWriter::new(dir.join(format!("trained-{seed}")))
            .encoder_from(&encoder)
            .method("pq")
            .quantizer(&trained.quantizer)
            .finish()
            .unwrap();
        register_model(&path, &bundle).unwrap();
        bundle
    });
    let [first, second] = models;
    (path, [encoder, first, second])
}

/// Returns how many distinct files of this name the models of a database have on disk.
#[cfg(unix)]
fn distinct(path: &Path, name: &str) -> (usize, usize) {
    let of_name = inodes(&path.join("models")).into_iter();
    let found: Vec<_> = of_name.filter(|(path, _)| path.ends_with(name)).collect();
    let files: std::collections::BTreeSet<_> = found.iter().map(|(_, inode)| inode).collect();
    (found.len(), files.len())
}

#[cfg(unix)]
fn model_bytes(path: &Path) -> u64 {
    Reader::open(path, small())
        .unwrap()
        .stats()
        .unwrap()
        .bytes
        .models
}

#[cfg(unix)]
#[test]
fn models_of_one_encoder_share_its_files_in_a_copy_too() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bundles) = one_encoder(dir.path());
    let encoder_bytes: u64 = bundles[0].manifest().files.iter().map(|f| f.bytes).sum();
    for name in ["encoder.onnx", "tokenizer.json"] {
        assert_eq!(distinct(&path, name), (3, 1), "{name}");
    }
    assert_eq!(distinct(&path, "tensors.safetensors"), (2, 2));
    // Shared files are counted once, and only the bytes that are freed with a model count as freed.
    let bytes = model_bytes(&path);
    assert!(bytes < 2 * encoder_bytes, "{bytes} for {encoder_bytes}");
    // Each folder is a complete bundle by itself, and differs from the bundle that it was made from.
    for bundle in &bundles {
        let home = path.join("models").join(bundle.model_id().to_string());
        mopqdb::Bundle::open(&home).unwrap().verify().unwrap();
        let own = inodes(&home);
        assert!(
            inodes(bundle.dir())
                .values()
                .all(|file| !own.values().any(|own| own == file))
        );
    }
    let copy = dir.path().join("copy");
    let done = backup(&path, &copy).unwrap();
    assert_eq!(distinct(&copy, "encoder.onnx"), (3, 1));
    assert_eq!((done.linked, model_bytes(&copy)), (4, bytes));
    let own: Vec<_> = inodes(&path).into_values().collect();
    assert!(inodes(&copy).values().all(|file| !own.contains(file)));

    let dry = PruneOptions::default().dry_run(true);
    let promised = prune(&path, &dry).unwrap();
    let pruned = prune(&path, &PruneOptions::default()).unwrap();
    assert_eq!((pruned.models.len(), pruned.bytes), (2, promised.bytes));
    assert_eq!(model_bytes(&path), bytes - pruned.bytes);
    assert!(verify(&path, &deep()).unwrap().is_sound());
}

#[cfg(unix)]
#[test]
fn separately_registered_models_share_files_after_the_next_registration() {
    let dir = tempfile::tempdir().unwrap();
    let (path, [_, first, second]) = one_encoder(dir.path());
    // An earlier version left them like this.
    let home = |bundle: &mopqdb::Bundle| path.join("models").join(bundle.model_id().to_string());
    let apart = home(&first).join("encoder.onnx");
    let bytes = fs::read(&apart).unwrap();
    fs::remove_file(&apart).unwrap();
    fs::write(&apart, bytes).unwrap();
    assert_eq!(distinct(&path, "encoder.onnx"), (3, 2));
    fs::remove_dir_all(home(&second)).unwrap();
    register_model(&path, &second).unwrap();
    assert_eq!(distinct(&path, "encoder.onnx"), (3, 1));
    assert_eq!(fs::read_dir(home(&first)).unwrap().count(), 5);
}

#[cfg(unix)]
#[test]
fn registering_a_damaged_model_again_restores_it_and_shared_files() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (path, [encoder, first, second]) = one_encoder(dir.path());
    let order = |path: &Path| -> Vec<_> {
        let listed = mopqdb::models(path).unwrap();
        listed.iter().map(|m| (m.id, m.registered)).collect()
    };
    let before = order(&path);
    let home = path.join("models").join(first.model_id().to_string());
    let damage = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let file = home.join(name);
        let mut bytes = fs::read(&file).unwrap();
        change(&mut bytes);
        fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        fs::write(&file, bytes).unwrap();
    };
    let flip: &dyn Fn(&mut Vec<u8>) = &|bytes| bytes[100] ^= 1;
    let cut: &dyn Fn(&mut Vec<u8>) = &|bytes| bytes.truncate(20);
    for name in ["tensors.safetensors", "manifest.json", "encoder.onnx"] {
        for (how, change) in [("flipped", flip), ("cut", cut)] {
            damage(name, change);
            assert!(
                !verify(&path, &deep()).unwrap().is_sound(),
                "{name} was {how}"
            );
            register_model(&path, &first).unwrap();
            let found = verify(&path, &deep()).unwrap();
            assert!(found.is_sound(), "{name} was {how}: {found:?}");
            assert_eq!(order(&path), before);
        }
    }
    fs::remove_file(home.join("tokenizer.json")).unwrap();
    register_model(&path, &first).unwrap();
    assert!(verify(&path, &deep()).unwrap().is_sound());
    assert_eq!(order(&path), before);

    // The encoder's own bundle restores what all models share of it.
    damage("encoder.onnx", flip);
    register_model(&path, &encoder).unwrap();
    assert!(verify(&path, &deep()).unwrap().is_sound());
    assert_eq!(distinct(&path, "encoder.onnx"), (3, 1));
    second.verify().unwrap();
    // No other files are left next to the models.
    assert_eq!(fs::read_dir(path.join("models")).unwrap().count(), 3);
    assert_eq!(fs::read_dir(home).unwrap().count(), 5);
}
