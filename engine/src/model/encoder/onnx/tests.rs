//! Tests ONNX Runtime on the tiny bundle if the library is installed. Otherwise they are skipped with a message.

use super::*;
use crate::model::bundle::{Bundle, tiny_bundle};
use crate::model::encoder::{Pooling, round_to_f16};
use std::io::Write as _;

/// Returns `true` if ONNX Runtime is installed. If not, the test is skipped, with a message that no test runner hides;
/// with `MOPQDB_REQUIRE_NATIVE` set, as `make test` sets it, the test fails instead.
pub(super) fn runtime(test: &str) -> bool {
    match locate_onnxruntime() {
        Ok(_) => true,
        Err(error) if std::env::var_os("MOPQDB_REQUIRE_NATIVE").is_some() => panic!("{error}"),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {error}");
            false
        }
    }
}

fn tiny() -> Bundle {
    Bundle::open(tiny_bundle()).unwrap()
}

/// Returns the tiny encoder, run with a changed spec.
fn tiny_with(change: impl FnOnce(&mut EncoderSpec)) -> Result<OnnxEncoder> {
    let bundle = tiny();
    let mut spec = bundle.manifest().encoder.clone().unwrap();
    change(&mut spec);
    let read = |name: &str| std::fs::read(bundle.dir().join(name)).unwrap();
    let files = EncoderFiles::from_bytes(read("encoder.onnx"), read("tokenizer.json"));
    OnnxEncoder::load(&spec, files, &EncoderOptions::with_threads(2))
}

pub(super) fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Returns texts of many lengths, all different.
fn many(n: usize) -> Vec<String> {
    let words = [
        "river",
        "window",
        "blue",
        "horse",
        "iterator",
        "vector",
        "music",
        "parser",
        "bread",
        "unknownword",
    ];
    let text = |i: usize| {
        (0..i * 7 % 40)
            .map(|j| words[(i * 3 + j * j) % words.len()])
            .collect::<Vec<_>>()
    };
    (0..n)
        .map(|i| format!("{i} {}", text(i).join(" ")))
        .collect()
}

#[test]
fn texts_that_share_words_have_similar_vectors() {
    if !runtime("texts_that_share_words_have_similar_vectors") {
        return;
    }
    let encoder = tiny().encoder().unwrap().unwrap();
    assert_eq!(encoder.dim(), 32);
    let texts = [
        "the blue whale swims in the sea",
        "a whale in the blue sea",
        "parse a string into a number",
    ];
    let vectors = encoder.encode_keys(&texts).unwrap();
    let rows: Vec<&[f32]> = vectors.chunks(32).collect();
    for row in &rows {
        assert!(
            (row.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5,
            "normalised"
        );
    }
    assert!(cosine(rows[0], rows[1]) > cosine(rows[0], rows[2]) + 0.1);
    let again = encoder.encode_queries(&texts).unwrap();
    assert_eq!(vectors, again, "queries are encoded as keys here");
}

/// The largest difference of a value between a text encoded alone and in a batch. On the CPUs measured (AVX2) there is
/// none, but ONNX Runtime does not promise that.
const BATCH_TOLERANCE: f32 = 2e-6;

#[test]
fn a_vector_does_not_depend_on_the_other_texts_or_their_order() {
    if !runtime("a_vector_does_not_depend_on_the_other_texts_or_their_order") {
        return;
    }
    let encoder = tiny().encoder().unwrap().unwrap();
    // There are more texts than in one window, so that several windows go through the pipeline.
    let texts = many(WINDOW + 500);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let together = encoder.encode_keys(&texts).unwrap();
    assert_eq!(together.len(), texts.len() * 32);
    let mut largest = 0.0f32;
    for n in (0..texts.len()).step_by(97) {
        let alone = encoder.encode_keys(&[texts[n]]).unwrap();
        for (a, b) in alone.iter().zip(&together[n * 32..]) {
            largest = largest.max((a - b).abs());
        }
    }
    assert!(largest <= BATCH_TOLERANCE, "{largest}");
    let again = encoder.encode_keys(&texts).unwrap();
    assert_eq!(together, again, "the same texts make the same batches");
}

#[test]
fn queries_of_several_threads_are_answered_at_once() {
    if !runtime("queries_of_several_threads_are_answered_at_once") {
        return;
    }
    let encoder = tiny().encoder().unwrap().unwrap();
    let texts = many(40);
    let expected: Vec<_> = texts
        .iter()
        .map(|text| encoder.encode_queries(&[text]).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for (text, expected) in texts.iter().zip(&expected) {
                    assert_eq!(&encoder.encode_queries(&[text]).unwrap(), expected);
                }
            });
        }
    });
}

#[test]
fn unusual_texts_are_encoded_or_refused_without_a_panic() {
    if !runtime("unusual_texts_are_encoded_or_refused_without_a_panic") {
        return;
    }
    let encoder = tiny().encoder().unwrap().unwrap();
    assert!(encoder.encode_keys(&[]).unwrap().is_empty());
    let long = "blue whale ".repeat(100_000);
    let one_word = "x".repeat(1_000_000);
    let accents = "é".repeat(10_000);
    let odd = [
        "",
        " \t\n",
        "\0\u{1}\u{7f}\u{200b}\u{fffd}",
        "[SEP] [PAD] [CLS]",
        "日本語 🦀",
        &long,
        &one_word,
        &accents,
    ];
    let vectors = encoder.encode_keys(&odd).unwrap();
    assert!(vectors.iter().all(|value| value.is_finite()));
    // An empty text consists of special tokens only: it has a vector, the same as that of a text of blanks.
    assert!(cosine(&vectors[..32], &vectors[32..64]) > 0.9999);
    // A long text is cut to the token limit: what follows makes no difference.
    let cut = encoder
        .encode_keys(&["blue whale ".repeat(31).as_str()])
        .unwrap();
    assert!(cosine(&cut, &vectors[5 * 32..6 * 32]) > 0.9999);
}

#[test]
fn each_side_has_its_own_prefix_and_limit() {
    if !runtime("each_side_has_its_own_prefix_and_limit") {
        return;
    }
    let plain = tiny_with(|_| ()).unwrap();
    let sided = tiny_with(|spec| {
        spec.query.prefix = "search ".into();
        spec.key.max_tokens = 4;
    })
    .unwrap();
    let near = |a: &[f32], b: &[f32]| cosine(a, b) > 0.9999;
    let prefixed = plain.encode_keys(&["search blue horse"]).unwrap();
    assert!(near(
        &prefixed,
        &sided.encode_queries(&["blue horse"]).unwrap()
    ));
    assert!(!near(
        &prefixed,
        &sided.encode_keys(&["blue horse"]).unwrap()
    ));
    let cut = plain.encode_keys(&["blue horse"]).unwrap();
    assert!(near(
        &cut,
        &sided.encode_keys(&["blue horse river window"]).unwrap()
    ));
}

#[test]
fn the_bundle_determines_pooling_and_normalising() {
    if !runtime("the_bundle_determines_pooling_and_normalising") {
        return;
    }
    let text = ["a blue horse"];
    let mean = tiny_with(|_| ()).unwrap().encode_keys(&text).unwrap();
    let raw = tiny_with(|spec| spec.normalize = false)
        .unwrap()
        .encode_keys(&text)
        .unwrap();
    assert!(cosine(&mean, &raw) > 0.99999);
    assert!(
        (raw.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() > 1e-3,
        "not normalised"
    );
    let cls = tiny_with(|spec| spec.pooling = Pooling::Cls)
        .unwrap()
        .encode_keys(&text)
        .unwrap();
    assert!(cosine(&mean, &cls) < 0.99);
}

#[test]
fn a_spec_that_does_not_fit_the_graph_is_refused_with_the_reason() {
    if !runtime("a_spec_that_does_not_fit_the_graph_is_refused_with_the_reason") {
        return;
    }
    let refused = |change: fn(&mut EncoderSpec), word: &str| {
        let error = tiny_with(change).err().expect("refused").to_string();
        assert!(error.contains(word), "{error}");
    };
    refused(
        |spec| spec.inputs.ids = "tokens".into(),
        "input_ids, attention_mask, token_type_ids",
    );
    refused(|spec| spec.inputs.types = None, "token_type_ids");
    refused(
        |spec| spec.output = "sentence_embedding".into(),
        "last_hidden_state",
    );
    refused(|spec| spec.pooling = Pooling::None, "2 dimensions");
    refused(|spec| spec.key.max_tokens = 2, "max tokens");
}

#[test]
fn a_changed_encoder_file_is_detected_when_it_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = tiny();
    for name in ["manifest.json", "encoder.onnx", "tokenizer.json"] {
        std::fs::copy(tiny.dir().join(name), dir.path().join(name)).unwrap();
    }
    for name in ["encoder.onnx", "tokenizer.json"] {
        let path = dir.path().join(name);
        let bytes = std::fs::read(&path).unwrap();
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 1;
        std::fs::write(&path, flipped).unwrap();
        let bundle = Bundle::open(dir.path()).unwrap();
        assert!(matches!(bundle.encoder(), Err(Error::Corrupt(_))), "{name}");
        assert!(matches!(bundle.verify(), Err(Error::Corrupt(_))), "{name}");
        std::fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn hostile_files_are_errors_not_panics() {
    if !runtime("hostile_files_are_errors_not_panics") {
        return;
    }
    let bundle = tiny();
    let spec = bundle.manifest().encoder.clone().unwrap();
    let graph = std::fs::read(bundle.dir().join("encoder.onnx")).unwrap();
    let tokenizer = std::fs::read(bundle.dir().join("tokenizer.json")).unwrap();
    let load = |graph: &[u8], tokenizer: &[u8]| {
        let files = EncoderFiles::from_bytes(graph.to_vec(), tokenizer.to_vec());
        OnnxEncoder::load(&spec, files, &EncoderOptions::with_threads(1))
    };
    load(&graph, &tokenizer).unwrap();
    for bad in [
        &b""[..],
        b"{",
        b"null",
        b"[]",
        &tokenizer[..tokenizer.len() / 2],
    ] {
        assert!(matches!(load(&graph, bad), Err(Error::Model(_))));
    }
    let text = String::from_utf8(tokenizer.clone()).unwrap();
    for (from, to) in [
        (
            "\"max_input_chars_per_word\":100",
            "\"max_input_chars_per_word\":-1",
        ),
        ("\"[CLS]\":2", "\"[CLS]\":4294967295"),
        ("\"ids\":[2]", "\"ids\":[]"),
        ("\"type\":\"WordPiece\"", "\"type\":\"BPE\""),
        ("\"id\":\"[SEP]\",\"ids\"", "\"id\":\"[NONE]\",\"ids\""),
    ] {
        assert!(text.contains(from), "{from}");
        // The file is either refused, or harmless: then the encoder must return vectors or an error.
        if let Ok(encoder) = load(&graph, text.replace(from, to).as_bytes()) {
            let _ = encoder.encode_keys(&["a blue horse", ""]);
        }
    }
    for len in (0..graph.len()).step_by(graph.len() / 40) {
        assert!(load(&graph[..len], &tokenizer).is_err(), "cut to {len}");
    }
}

#[test]
fn a_token_that_the_graph_does_not_know_is_an_error() {
    if !runtime("a_token_that_the_graph_does_not_know_is_an_error") {
        return;
    }
    let bundle = tiny();
    let spec = bundle.manifest().encoder.clone().unwrap();
    let graph = std::fs::read(bundle.dir().join("encoder.onnx")).unwrap();
    let tokenizer = std::fs::read_to_string(bundle.dir().join("tokenizer.json")).unwrap();
    // "[UNK]" is far outside the graph's table.
    let tokenizer = tokenizer
        .replace("\"[UNK]\":1", "\"[UNK]\":900000")
        .replace("\"id\":1,", "\"id\":900000,");
    let files = EncoderFiles::from_bytes(graph, tokenizer.into_bytes());
    if let Ok(encoder) = OnnxEncoder::load(&spec, files, &EncoderOptions::with_threads(1)) {
        assert!(matches!(
            encoder.encode_keys(&["日本"]),
            Err(Error::Model(_))
        ));
        encoder
            .encode_keys(&["a blue horse"])
            .expect("the session still works");
    }
}

#[test]
fn stored_values_are_rounded_to_f16() {
    let mut values = [0.1f32, -1.0, 65504.0, 1e9];
    round_to_f16(&mut values);
    assert_eq!(values[1..3], [-1.0, 65504.0]);
    assert!((values[0] - 0.1).abs() < 1e-4 && values[0] != 0.1 && values[3].is_infinite());
}
