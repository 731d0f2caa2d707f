//! Compares the default encoder, as mopqdb writes it, with vectors that were computed independently. Needs the files
//! that `make setup` downloads. Without them the tests are skipped with a message, or fail if `MOPQDB_REQUIRE_NATIVE`
//! is set.
#![cfg(feature = "onnx")]

use mopqdb::bundle::Bundle;
use mopqdb::encoder::{Encoder, default_bundle, locate_onnxruntime};
use serde::Deserialize;
use std::io::Write as _;
use std::sync::Arc;

fn encoder(test: &str) -> Option<Arc<dyn Encoder>> {
    match locate_onnxruntime().and_then(|_| default_bundle()) {
        Ok(dir) => Some(Bundle::open(dir).unwrap().encoder().unwrap().unwrap()),
        Err(error) if std::env::var_os("MOPQDB_REQUIRE_NATIVE").is_some() => panic!("{error}"),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {error}");
            None
        }
    }
}

#[derive(Deserialize)]
struct Reference {
    texts: Vec<String>,
    vectors: Vec<Vec<f32>>,
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum::<f64>()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn the_default_encoder_gives_the_known_embeddings() {
    let Some(encoder) = encoder("the_default_encoder_gives_the_known_embeddings") else {
        return;
    };
    let reference: Reference =
        serde_json::from_str(include_str!("../assets/minilm-reference.json")).unwrap();
    let texts: Vec<&str> = reference.texts.iter().map(String::as_str).collect();
    assert_eq!(encoder.dim(), 384);
    let vectors = encoder.encode_keys(&texts).unwrap();
    for ((text, expected), found) in texts
        .iter()
        .zip(&reference.vectors)
        .zip(vectors.chunks(384))
    {
        let cosine = cosine(expected, found);
        assert!(cosine >= 0.9999, "{cosine} for {text:?}");
        let most = expected
            .iter()
            .zip(found)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        assert!(most < 1e-5, "{most} for {text:?}");
    }
}

#[test]
fn batching_changes_vectors_only_by_rounding() {
    let Some(encoder) = encoder("batching_changes_vectors_only_by_rounding") else {
        return;
    };
    let words = [
        "split",
        "a",
        "string",
        "at",
        "whitespace",
        "river",
        "horse",
        "of",
        "blue",
        "iterators",
    ];
    let text = |n: usize| {
        (0..1 + n * 5 % 23)
            .map(|w| words[(n + w * w) % 10])
            .collect::<Vec<_>>()
            .join(" ")
    };
    let texts: Vec<String> = (0..60).map(text).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let together = encoder.encode_keys(&texts).unwrap();
    let mut most = 0.0f32;
    for (text, row) in texts.iter().zip(together.chunks(384)) {
        let alone = encoder.encode_keys(&[text]).unwrap();
        most = alone
            .iter()
            .zip(row)
            .map(|(a, b)| (a - b).abs())
            .fold(most, f32::max);
    }
    println!("largest difference between alone and in a batch: {most:e}");
    assert!(most < 2e-6, "{most}");
}
