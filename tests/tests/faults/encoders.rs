//! Hostile ONNX and tokenizer files in bundles whose hashes are valid: they give errors, and the process survives.

use crate::{Case, report, scratch, torture};
use mopqdb::encoder::{EncoderSpec, locate_onnxruntime};
use mopqdb::{Bundle, BundleWriter, CreateOptions, Database, Options, Row};
use mopqdb_tests::support::Random;
use std::path::{Path, PathBuf};

pub fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/assets/tiny")
}

/// Returns `true` if ONNX Runtime is installed. If not, a test is skipped with a message; `make test` makes that a
/// failure.
pub fn runtime() -> bool {
    match locate_onnxruntime() {
        Ok(_) => true,
        Err(error) if std::env::var_os("MOPQDB_REQUIRE_NATIVE").is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            false
        }
    }
}

struct Parts {
    spec: EncoderSpec,
    dim: usize,
    graph: Vec<u8>,
    tokenizer: Vec<u8>,
}

impl Parts {
    fn tiny() -> Self {
        let bundle = Bundle::open(tiny()).unwrap();
        let spec = bundle.manifest().encoder.clone().unwrap();
        Self {
            graph: std::fs::read(tiny().join("encoder.onnx")).unwrap(),
            tokenizer: std::fs::read(tiny().join("tokenizer.json")).unwrap(),
            dim: bundle.input_dim(),
            spec,
        }
    }

    /// Makes a bundle of these files and a database with it, inserts a text and queries. An error at any step is a
    /// valid result.
    fn use_with(&self, graph: &[u8], tokenizer: &[u8]) -> mopqdb::Result<()> {
        let dir = scratch();
        let files = [("encoder.onnx", graph), ("tokenizer.json", tokenizer)];
        let files = files.map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
        let bundle = BundleWriter::new(dir.path().join("bundle"))
            .metric(mopqdb::Metric::Cosine)
            .method("encoder")
            .encoder(self.spec.clone(), self.dim, files)
            .finish()?;
        let options = Options::default().threads(1);
        let new = CreateOptions::bundle(bundle.dir());
        let db = Database::create(dir.path().join("db"), &new, options)?;
        db.insert(&[Row::text("a", "a blue horse"), Row::text("b", "")])?;
        db.query("a horse", 2)?;
        Ok(())
    }
}

/// Returns a field of a protobuf message, preceded by its length.
fn message(number: u64, inner: &[u8]) -> Vec<u8> {
    let mut bytes = varint(number << 3 | 2);
    bytes.extend(varint(inner.len() as u64));
    bytes.extend(inner);
    bytes
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Returns the model with these bytes at the end of its graph.
fn with_in_graph(model: &[u8], more: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = model;
    let read = |rest: &mut &[u8]| {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, after) = rest.split_first().expect("a whole model");
            *rest = after;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        number
    };
    while !rest.is_empty() {
        let key = read(&mut rest);
        match key & 7 {
            0 => {
                let value = read(&mut rest);
                out.extend(varint(key));
                out.extend(varint(value));
            }
            2 => {
                let len = read(&mut rest) as usize;
                let (inner, after) = rest.split_at(len);
                rest = after;
                let more = if key >> 3 == 7 { more } else { &[] };
                out.extend(message(key >> 3, &[inner, more].concat()));
            }
            other => panic!("a model has no fields of wire type {other}"),
        }
    }
    out
}

/// Returns an initializer with dims, float data, a name, and further fields.
fn initializer(dims: &[u64], more: &[u8]) -> Vec<u8> {
    let mut tensor: Vec<u8> = (dims.iter())
        .flat_map(|&dim| [varint(1 << 3), varint(dim)].concat())
        .collect();
    tensor.extend([2 << 3, 1]);
    tensor.extend(message(8, b"hostile"));
    tensor.extend(more);
    message(5, &tensor)
}

#[test]
fn hostile_onnx_files_are_refused_without_a_crash() {
    if !runtime() {
        return;
    }
    let parts = Parts::tiny();
    parts.use_with(&parts.graph, &parts.tokenizer).unwrap();
    let untouched = with_in_graph(&parts.graph, &[]);
    parts.use_with(&untouched, &parts.tokenizer).unwrap();
    // Weights in another file, by any name, are refused before ONNX Runtime could open it.
    let secret = scratch();
    let outside = secret.path().join("secret");
    std::fs::write(&outside, [0; 64]).unwrap();
    for name in [
        outside.to_str().unwrap(),
        "../../../etc/passwd",
        "tokenizer.json",
    ] {
        let location = [message(1, b"location"), message(2, name.as_bytes())].concat();
        let external = [message(13, &location), vec![14 << 3, 1]].concat();
        let graph = with_in_graph(&parts.graph, &initializer(&[4, 4], &external));
        let _case = Case(format!("weights in {name}"));
        let error = parts.use_with(&graph, &parts.tokenizer).unwrap_err();
        assert!(error.to_string().contains("another file"), "{error}");
    }
    // A shape that claims more values than the file has is refused.
    for dims in [
        &[1 << 40, 1 << 20][..],
        &[u64::MAX, 2],
        &[1 << 31, 1 << 31, 1 << 31],
        &[0, u64::MAX >> 1],
        &[1 << 33],
    ] {
        let data = message(9, &[0; 16]);
        let graph = with_in_graph(&parts.graph, &initializer(dims, &data));
        let _case = Case(format!("a tensor of {dims:?}"));
        let _ = parts.use_with(&graph, &parts.tokenizer);
    }
    let mut random = Random::new(1301);
    let (mut tried, mut refused) = (0, 0);
    let cuts = (0..parts.graph.len()).step_by(parts.graph.len() / 24);
    for len in cuts {
        let _case = Case(format!("cut to {len} of {}", parts.graph.len()));
        assert!(
            parts
                .use_with(&parts.graph[..len], &parts.tokenizer)
                .is_err()
        );
        tried += 1;
        refused += 1;
    }
    for n in 0..if torture() { 1000 } else { 40 } {
        let mut graph = parts.graph.clone();
        // Names, shapes and operators are at the ends; most of the middle is weights.
        let near = random.below(400);
        let at = if n % 2 == 0 {
            near
        } else {
            graph.len() - 1 - near
        };
        graph[at] ^= 1 << random.below(8);
        let _case = Case(format!("byte {at} flipped"));
        refused += usize::from(parts.use_with(&graph, &parts.tokenizer).is_err());
        tried += 1;
    }
    report(
        tried,
        format_args!("ONNX files cut or flipped, {refused} refused, the process alive"),
    );
    parts.use_with(&parts.graph, &parts.tokenizer).unwrap();
}

#[test]
fn hostile_tokenizers_are_refused_without_a_crash() {
    if !runtime() {
        return;
    }
    let parts = Parts::tiny();
    let text = String::from_utf8(parts.tokenizer.clone()).unwrap();
    for bad in ["", "{", "null", "[]", "{}", "\"\\ud800\""] {
        let _case = Case(format!("the tokenizer is {bad:?}"));
        assert!(parts.use_with(&parts.graph, bad.as_bytes()).is_err());
    }
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    assert!(parts.use_with(&parts.graph, deep.as_bytes()).is_err());
    // Each value of the file is replaced by an invalid one.
    let hostile = [
        "null",
        "-1",
        "4294967295",
        "1e308",
        "\"\"",
        "\"(?:a+)+$\"",
        "[]",
        "{}",
        "[[[]]]",
        "{\"type\":\"Sequence\",\"pretokenizers\":[]}",
        "{\"Regex\":\"(\"}",
        "true",
    ];
    let mut values: Vec<usize> = (text.match_indices(':'))
        .map(|(at, _)| at + 1)
        .filter(|&at| !text[..at].contains("\"vocab\"") || at > text.len() - 200)
        .collect();
    let mut random = Random::new(1302);
    if !torture() {
        while values.len() > 30 {
            values.remove(random.below(values.len()));
        }
    }
    let (mut tried, mut refused) = (0, 0);
    for &at in &values {
        let end = at + text[at..].find([',', '}']).unwrap_or(0);
        for value in hostile {
            let changed = format!("{}{value}{}", &text[..at], &text[end..]);
            let _case = Case(format!(
                "{:?} made {value}",
                &text[at.saturating_sub(30)..end]
            ));
            let outcome = parts.use_with(&parts.graph, changed.as_bytes());
            refused += usize::from(outcome.is_err());
            tried += 1;
        }
    }
    report(
        tried,
        format_args!("tokenizers changed, {refused} refused, the process alive"),
    );
    parts.use_with(&parts.graph, &parts.tokenizer).unwrap();
}

/// Files that are known to make the tokenizers library panic, when loading or encoding (its issues 2094 and 2151).
#[test]
fn known_panics_of_the_tokenizers_library_are_errors() {
    if !runtime() {
        return;
    }
    let parts = Parts::tiny();
    let tiny: serde_json::Value = serde_json::from_slice(&parts.tokenizer).unwrap();
    let with = |field: &str, value: serde_json::Value| {
        let mut changed = tiny.clone();
        changed[field] = value;
        changed.to_string()
    };
    let known = [
        // A merge that is longer than any token.
        with(
            "model",
            serde_json::json!({
                "type": "BPE", "vocab": {"aa": 0, "bb": 1}, "merges": [["aa", "bb"]]
            }),
        ),
        with(
            "pre_tokenizer",
            serde_json::json!({"type": "FixedLength", "length": 0}),
        ),
        with(
            "normalizer",
            serde_json::json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        ),
        // A template with an undefined special token.
        with(
            "post_processor",
            serde_json::json!({
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "[NONE]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {}
            }),
        ),
    ];
    for tokenizer in &known {
        let _case = Case(tokenizer[..tokenizer.len().min(300)].into());
        let error = parts
            .use_with(&parts.graph, tokenizer.as_bytes())
            .unwrap_err();
        println!("{error}");
    }
    report(
        known.len(),
        "tokenizers that make their library panic, all errors",
    );
    parts.use_with(&parts.graph, &parts.tokenizer).unwrap();
}
