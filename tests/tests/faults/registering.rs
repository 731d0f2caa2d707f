//! A model is registered completely or not at all, whichever call to the disk fails, and the models that share files
//! with it stay intact.

use crate::creating::Quiet;
use crate::world::options;
use crate::{Case, report, scratch, torture};
use mopqdb::quantizer::{TrainPq, train_pq};
use mopqdb::testing::register_model_on;
use mopqdb::{
    Bundle, BundleWriter, CreateOptions, Database, Error, Metric, VerifyOptions, models,
    register_model, verify,
};
use mopqdb_tests::faulty::{Fault, Faulty};
use mopqdb_tests::support::Random;
use mopqdb_tests::watched::Watched;
use std::path::Path;
use std::sync::Arc;

/// Returns two models over one encoder.
fn trained(dir: &Path) -> [Bundle; 2] {
    let encoder = Bundle::open(crate::encoders::tiny()).unwrap();
    let mut random = Random::new(61);
    let vectors: Vec<f32> = (0..60).flat_map(|_| random.vector(32)).collect();
    [1, 2].map(|seed| {
        let options = TrainPq::default().subspaces(4).codewords(16).seed(seed);
        let trained = train_pq(&vectors, 32, Metric::Cosine, &options).unwrap();
        let bundle = BundleWriter::new(dir.join(format!("trained-{seed}")))
            .encoder_from(&encoder)
            .method("pq")
            .quantizer(&trained.quantizer);
        bundle.finish().unwrap()
    })
}

/// Gives a file new contents of its own, even if it shared its bytes with other names.
fn rewrite(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).unwrap();
    change(&mut bytes);
    std::fs::remove_file(file).unwrap();
    std::fs::write(file, bytes).unwrap();
}

/// Creates a database with the first model, whose encoder is a copy; if `damaged`, also with the second, damaged.
fn database(path: &Path, [first, second]: &[Bundle; 2], damaged: bool) {
    let new = CreateOptions::bundle(crate::encoders::tiny());
    let db = Database::create(path, &new, options()).unwrap();
    db.close().unwrap();
    register_model(path, first).unwrap();
    let home = |bundle: &Bundle| path.join("models").join(bundle.model_id().to_string());
    rewrite(&home(first).join("encoder.onnx"), |_| {});
    if damaged {
        register_model(path, second).unwrap();
        rewrite(&home(second).join("tensors.safetensors"), |b| b[100] ^= 1);
        rewrite(&home(second).join("encoder.onnx"), |b| b[100] ^= 1);
    }
}

fn is_sound(path: &Path) -> bool {
    let deep = VerifyOptions::default().deep(true);
    verify(path, &deep).unwrap().is_sound()
}

#[test]
fn a_model_is_registered_completely_or_not_at_all_after_any_failed_call() {
    let dir = scratch();
    let bundles = trained(dir.path());
    let mut tried = 0;
    for damaged in [false, true] {
        for fault in [Fault::Broken, Fault::Full, Fault::Short] {
            for at in 1.. {
                if !torture() && at % 3 != 1 {
                    continue;
                }
                let path = dir.path().join("db");
                let _case = Case(format!("{fault:?} at call {at}, damaged: {damaged}"));
                database(&path, &bundles, damaged);
                let faulty = Faulty::new(fault, at, Arc::new(Quiet));
                let disk = Watched::disk(Arc::clone(&faulty) as _);
                let done = register_model_on(&*disk, &path, &bundles[1]);
                match &done {
                    // Sharing affects only the disk space, not the contents.
                    Ok(_) => assert!(is_sound(&path)),
                    Err(e) => assert!(matches!(e, Error::Io { .. }), "{e}"),
                }
                if !damaged {
                    assert!(is_sound(&path));
                    let listed = models(&path).unwrap().len();
                    assert!(listed == 3 || done.is_err() && listed == 2, "{listed}");
                }
                register_model(&path, &bundles[1]).unwrap();
                assert!(is_sound(&path));
                assert_eq!(models(&path).unwrap().len(), 3);
                Database::open(&path, options()).unwrap().close().unwrap();
                std::fs::remove_dir_all(&path).unwrap();
                if !faulty.hit() {
                    break;
                }
                tried += 1;
            }
        }
    }
    report(tried, "calls failed during registration");
}
