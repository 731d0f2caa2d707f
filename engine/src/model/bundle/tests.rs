//! The guarantees of a bundle, on bundles without an encoder. Those with one are tested with the encoder.

use super::spec::{ActivationName, CellsSpec, QueryName, SelectionName};
use super::*;
use crate::error::Error;
use crate::ids::EncoderId;
use crate::metric::Metric;
use crate::model::encoder::{EncoderSpec, Pooling};
use crate::quantizer::{
    Activation, Cells, CodeShape, Codebook, Head, Quantizer, QueryMode, Selection,
};
use std::fs;
use std::path::Path;

/// Returns values without a pattern, computed from a counter.
fn values(n: usize, salt: u32) -> Vec<f32> {
    let spread = |i: u32| (i.wrapping_mul(2_654_435_761) ^ salt.wrapping_mul(40_503)) >> 8;
    (0..n as u32)
        .map(|i| spread(i + 1) as f32 / (1 << 23) as f32 - 1.0)
        .collect()
}

/// Returns a quantizer with every optional part: 6 numbers in, 4 after the head, 2 subspaces of 4 codewords.
fn quantizer(selection: Selection, query: QueryMode) -> Quantizer {
    let codebook = Codebook::new(CodeShape::new(2, 4).unwrap(), 2, values(16, 1)).unwrap();
    let head = Head::new(4, 6, values(24, 2), Some(values(4, 3))).unwrap();
    Quantizer::builder(codebook, Metric::Ip)
        .head(Some(head))
        .activation(Activation::Elu)
        .rotation(Some(values(16, 4)))
        .selection(selection)
        .query_mode(query)
        .build()
        .unwrap()
}

fn codes(quantizer: &Quantizer) -> Vec<u8> {
    let mut codes = vec![0; 32 * 2];
    quantizer.quantize(&values(32 * 6, 9), &mut codes).unwrap();
    codes
}

#[test]
fn a_quantizer_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let selections = [
        Selection::L2,
        Selection::Cosine,
        Selection::Product,
        Selection::Bilinear { w: values(4, 5) },
        Selection::Keys {
            keys: values(16, 6),
        },
    ];
    let mut ids = Vec::new();
    for (n, selection) in selections.into_iter().enumerate() {
        for (m, query) in [QueryMode::Plain, QueryMode::Soft { temperature: 0.1 }]
            .into_iter()
            .enumerate()
        {
            let written = quantizer(selection.clone(), query);
            let place = dir.path().join(format!("{n}-{m}"));
            let bundle = BundleWriter::new(&place)
                .method("mopq")
                .quantizer(&written)
                .training(serde_json::json!({"seed": 7, "text": "größer"}))
                .finish()
                .unwrap();
            let bundle = Bundle::open(bundle.dir()).unwrap();
            let read = bundle.quantizer().unwrap().unwrap();
            assert_eq!(codes(&read), codes(&written));
            assert_eq!(read.query_mode(), written.query_mode());
            assert_eq!(read.selection(), written.selection());
            assert_eq!(read.head(), written.head());
            assert_eq!((bundle.input_dim(), bundle.metric()), (6, Metric::Ip));
            assert!(!bundle.has_encoder() && bundle.encoder().unwrap().is_none());
            ids.push(bundle.model_id());
        }
    }
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(
        ids.len(),
        all,
        "models that compute differently have different ids"
    );
}

#[test]
fn the_id_depends_on_the_content_not_on_the_path_or_training_record() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, seed: u32| {
        BundleWriter::new(dir.path().join(name))
            .quantizer(&quantizer(Selection::L2, QueryMode::Plain))
            .training(serde_json::json!({ "seed": seed }))
            .finish()
            .unwrap()
            .model_id()
    };
    assert_eq!(write("one", 1), write("two", 2));
}

/// If an id changed, every codes file of that model would become an orphan.
#[test]
fn ids_never_change_between_versions() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = small(dir.path()).manifest().clone();
    manifest.files[0].sha256 = "5a".repeat(32);
    let mut found = Vec::new();
    for activation in [ActivationName::None, ActivationName::Elu] {
        for selection in [
            SelectionName::L2,
            SelectionName::Cosine,
            SelectionName::Product,
            SelectionName::Bilinear,
            SelectionName::Keys,
        ] {
            for query in [QueryName::Plain, QueryName::Soft] {
                let spec = manifest.quantizer.as_mut().unwrap();
                (spec.activation, spec.selection, spec.query) = (activation, selection, query);
                found.push(manifest.model_id().short());
            }
        }
    }
    assert_eq!(
        found,
        [
            "bc1d473ae831",
            "fc5193a5f003",
            "fd7a16e35bbc",
            "1725b3bab86e",
            "ba8824e09bf0",
            "2a5e1e95441b",
            "736bf4256c6e",
            "8dd1323e192d",
            "c7e59ebd03c2",
            "b9087aabcab4",
            "0ca093fdc958",
            "399005bc23cb",
            "868080d76bf6",
            "2abbaed14fdc",
            "5c46ff2fde8e",
            "580e2a292dab",
            "4a9c66bf1909",
            "9539e7e780be",
            "1724ddc29d26",
            "40d29252f68d"
        ]
    );
    let metrics = [Metric::Ip, Metric::Cosine, Metric::L2];
    let vectors = metrics.map(|metric| EncoderId::vectors(6, metric).short());
    assert_eq!(vectors, ["1ed6446112c6", "4f07783176c9", "cc091782c1ee"]);
    let poolings = [Pooling::Mean, Pooling::Cls, Pooling::None].map(|pooling| pooling.name());
    assert_eq!(poolings, ["mean", "cls", "none"]);
}

#[test]
fn a_bundle_may_hold_only_the_width_of_precomputed_vectors() {
    let dir = tempfile::tempdir().unwrap();
    let id = |name: &str, metric, dim| {
        let place = dir.path().join(name);
        let bundle = BundleWriter::new(place)
            .metric(metric)
            .vectors(dim)
            .finish()
            .unwrap();
        assert!(bundle.quantizer().unwrap().is_none() && !bundle.has_encoder());
        bundle.encoder_id()
    };
    let one = id("one", Metric::L2, 64);
    assert_eq!(one, id("same", Metric::L2, 64));
    assert_ne!(one, id("wider", Metric::L2, 65));
    assert_ne!(one, id("cosine", Metric::Cosine, 64));
    // A quantizer for such vectors keeps the encoder id, so that stored rows stay usable.
    let base = Bundle::open(dir.path().join("one")).unwrap();
    let codebook = Codebook::new(CodeShape::new(8, 4).unwrap(), 8, values(8 * 4 * 8, 1)).unwrap();
    let trained = Quantizer::builder(codebook, Metric::L2).build().unwrap();
    let place = dir.path().join("trained");
    let bundle = BundleWriter::new(place)
        .encoder_from(&base)
        .quantizer(&trained)
        .finish()
        .unwrap();
    assert_eq!(bundle.encoder_id(), base.encoder_id());
    assert_ne!(bundle.model_id(), base.model_id());
}

#[test]
fn parts_that_do_not_fit_are_refused_and_leave_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let quantizer = quantizer(Selection::L2, QueryMode::Plain);
    let place = dir.path().join("b");
    let wrong_metric = BundleWriter::new(&place)
        .metric(Metric::L2)
        .quantizer(&quantizer);
    assert!(matches!(wrong_metric.finish(), Err(Error::Model(_))));
    let wrong_width = BundleWriter::new(&place).vectors(7).quantizer(&quantizer);
    assert!(matches!(wrong_width.finish(), Err(Error::Model(_))));
    assert!(
        matches!(BundleWriter::new(&place).finish(), Err(Error::Model(_))),
        "no width at all"
    );
    let no_files = BundleWriter::new(&place).encoder(EncoderSpec::bert(256), 384, []);
    assert!(matches!(no_files.finish(), Err(Error::Model(_))));
    let outside = [("../x".to_string(), vec![1])];
    let mut spec = EncoderSpec::bert(256);
    spec.graph = "../x".into();
    assert!(
        BundleWriter::new(&place)
            .encoder(spec, 384, outside)
            .finish()
            .is_err()
    );
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        0,
        "no partial bundle stays"
    );
    fs::create_dir(&place).unwrap();
    let there = BundleWriter::new(&place).quantizer(&quantizer).finish();
    assert!(
        matches!(there, Err(Error::Invalid(_))),
        "an existing directory is not changed"
    );
}

/// Returns a small bundle, in which every bit can be flipped.
fn small(dir: &Path) -> Bundle {
    BundleWriter::new(dir.join("b"))
        .method("mopq")
        .quantizer(&quantizer(
            Selection::Keys {
                keys: values(16, 6),
            },
            QueryMode::Soft { temperature: 0.5 },
        ))
        .finish()
        .unwrap()
}

fn rewrite(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
}

#[test]
fn every_flipped_bit_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = small(dir.path());
    for name in [MANIFEST_FILE, TENSORS_FILE] {
        let path = bundle.dir().join(name);
        let bytes = fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            rewrite(&path, &flipped);
            assert!(Bundle::open(bundle.dir()).is_err(), "bit {bit} of {name}");
        }
        rewrite(&path, &bytes);
    }
    assert_eq!(
        Bundle::open(bundle.dir()).unwrap().model_id(),
        bundle.model_id()
    );
}

#[test]
fn a_file_of_any_other_length_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = small(dir.path());
    for name in [MANIFEST_FILE, TENSORS_FILE] {
        let path = bundle.dir().join(name);
        let bytes = fs::read(&path).unwrap();
        for len in 0..bytes.len() {
            rewrite(&path, &bytes[..len]);
            assert!(Bundle::open(bundle.dir()).is_err(), "{name} cut to {len}");
        }
        for more in [1, 7, 4096] {
            rewrite(&path, &[&bytes[..], &vec![0; more]].concat());
            assert!(
                Bundle::open(bundle.dir()).is_err(),
                "{name} with {more} zeros appended"
            );
        }
        rewrite(&path, &bytes);
    }
}

/// Opens a bundle whose manifest was changed and sealed again, as an attacker would.
fn hostile(dir: &Path, change: impl FnOnce(&mut Manifest)) -> crate::error::Result<Bundle> {
    let bundle = small(dir);
    let mut manifest = bundle.manifest().clone();
    change(&mut manifest);
    rewrite(&bundle.dir().join(MANIFEST_FILE), &manifest.encode());
    let opened = Bundle::open(bundle.dir());
    fs::remove_dir_all(bundle.dir()).unwrap();
    opened
}

#[test]
fn a_hostile_manifest_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |change: &dyn Fn(&mut Manifest)| {
        let error = hostile(dir.path(), change).unwrap_err();
        assert!(!matches!(error, Error::Io { .. }), "{error}");
    };
    hostile(dir.path(), |_| ()).expect("unchanged, it opens");
    for name in [
        "../tensors",
        "/etc/passwd",
        "a/b",
        "..",
        "",
        ".x",
        "a\\b",
        "manifest.json",
        "a\0b",
    ] {
        refused(&|m| m.files[0].name = name.into());
    }
    refused(&|m| m.files.push(m.files[0].clone()));
    refused(&|m| m.files[0].sha256 = "0".repeat(63));
    refused(&|m| m.files[0].bytes = u64::MAX);
    refused(&|m| m.files[0].bytes += 1);
    refused(&|m| m.files.clear());
    refused(&|m| m.input_dim = 0);
    refused(&|m| m.input_dim = usize::MAX);
    refused(&|m| m.input_dim = 7);
    refused(&|m| m.quantizer.as_mut().unwrap().subspaces = 0);
    refused(&|m| m.quantizer.as_mut().unwrap().subspaces = 3);
    refused(&|m| m.quantizer.as_mut().unwrap().codewords = 257);
    refused(&|m| m.quantizer.as_mut().unwrap().dim = usize::MAX);
    refused(&|m| m.quantizer.as_mut().unwrap().temperature = None);
    refused(&|m| m.quantizer.as_mut().unwrap().temperature = Some(-1.0));
    refused(&|m| m.quantizer.as_mut().unwrap().selection = SelectionName::L2);
    refused(&|m| m.quantizer = None);
    refused(&|m| m.version = 0);
}

#[test]
fn the_error_for_a_newer_version_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let error = hostile(dir.path(), |m| m.version = 9).unwrap_err();
    assert!(matches!(error, Error::Incompatible { .. }));
    assert!(error.to_string().contains("version 9"), "{error}");
}

#[test]
fn the_error_for_a_directory_without_a_bundle_names_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    for (place, word) in [("nowhere", "no such directory"), (".", "manifest.json")] {
        let error = Bundle::open(dir.path().join(place)).unwrap_err();
        assert!(
            matches!(error, Error::Model(_)) && error.to_string().contains(word),
            "{error}"
        );
    }
}

#[cfg(unix)]
#[test]
fn a_symbolic_link_in_a_bundle_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = small(dir.path());
    for name in [MANIFEST_FILE, TENSORS_FILE] {
        let path = bundle.dir().join(name);
        let away = dir.path().join(name);
        fs::rename(&path, &away).unwrap();
        std::os::unix::fs::symlink(&away, &path).unwrap();
        let error = Bundle::open(bundle.dir()).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        fs::remove_file(&path).unwrap();
        fs::rename(&away, &path).unwrap();
    }
    Bundle::open(bundle.dir()).unwrap();
}

#[test]
fn a_value_that_is_not_finite_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = small(dir.path());
    let path = bundle.dir().join(TENSORS_FILE);
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    rewrite(&path, &bytes);
    let mut manifest = bundle.manifest().clone();
    let hash = <sha2::Sha256 as sha2::Digest>::digest(&bytes);
    manifest.files[0].sha256 = crate::ids::content::to_hex(&hash);
    rewrite(&bundle.dir().join(MANIFEST_FILE), &manifest.encode());
    let error = Bundle::open(bundle.dir()).unwrap_err();
    assert!(error.to_string().contains("NaN"), "{error}");
}

/// A quantizer with 300 cells in 15 groups.
fn with_cells(residual: bool) -> Quantizer {
    let base = quantizer(Selection::L2, QueryMode::Plain);
    let cells = Cells::new(4, values(1200, 7), values(60, 8), residual).unwrap();
    Quantizer::builder(base.codebook().clone(), Metric::Ip)
        .head(base.head().cloned())
        .cells(Some(cells))
        .build()
        .unwrap()
}

#[test]
fn cells_come_back_as_they_were_written_and_are_part_of_the_id() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, quantizer: &Quantizer| {
        let bundle = BundleWriter::new(dir.path().join(name)).quantizer(quantizer);
        bundle.finish().unwrap()
    };
    let ids = [true, false].map(|residual| {
        let written = with_cells(residual);
        let bundle = write(&format!("{residual}"), &written);
        let read = Bundle::open(bundle.dir())
            .unwrap()
            .quantizer()
            .unwrap()
            .unwrap();
        let rows = values(32 * 6, 9);
        let (read, written) = (read.row_codes(&rows), written.row_codes(&rows));
        let (read, written) = (read.unwrap(), written.unwrap());
        assert_eq!(read, written);
        assert!(read.cells.iter().any(|cell| *cell != read.cells[0]));
        bundle.codes_id().unwrap()
    });
    // The tensors are the same: that codes are residual is hashed by itself.
    assert_ne!(ids[0], ids[1]);
    let flat = with_cells(true);
    let flat = Quantizer::builder(flat.codebook().clone(), Metric::Ip)
        .head(flat.head().cloned())
        .build()
        .unwrap();
    assert!(!ids.contains(&write("flat", &flat).codes_id().unwrap()));
}

#[test]
fn a_manifest_whose_cells_are_not_those_of_the_tensors_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let spec = CellsSpec {
        count: 300,
        groups: 15,
        residual: true,
    };
    for (n, (wrong, words)) in [
        (Some(CellsSpec { count: 299, ..spec }), "the manifest says"),
        (Some(CellsSpec { groups: 14, ..spec }), "the manifest says"),
        (Some(CellsSpec { groups: 0, ..spec }), "uses 4 of them"),
        (
            Some(CellsSpec {
                count: 0,
                groups: 0,
                ..spec
            }),
            "0 cells",
        ),
        (
            Some(CellsSpec {
                count: 40_000,
                ..spec
            }),
            "40000 cells",
        ),
        (
            Some(CellsSpec {
                groups: 301,
                ..spec
            }),
            "301 groups",
        ),
        (None, "uses 3 of them"),
    ]
    .into_iter()
    .enumerate()
    {
        let place = dir.path().join(n.to_string());
        let bundle = BundleWriter::new(&place).quantizer(&with_cells(true));
        let mut manifest = bundle.finish().unwrap().manifest().clone();
        assert_eq!(manifest.quantizer.as_ref().unwrap().cells, Some(spec));
        manifest.quantizer.as_mut().unwrap().cells = wrong;
        rewrite(&place.join(MANIFEST_FILE), &manifest.encode());
        let error = Bundle::open(&place).unwrap_err().to_string();
        assert!(error.contains(words), "{n}: {error}");
    }
}
