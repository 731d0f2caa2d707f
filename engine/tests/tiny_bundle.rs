//! The tiny bundle in `assets/tiny`, which mopqdb writes from a seeded generator. It is kept in the repository so that
//! every test of texts has a real encoder. `MOPQDB_WRITE_FIXTURES=1` writes it again.
#![cfg(feature = "onnx-write")]

use mopqdb::Metric;
use mopqdb::bundle::{Bundle, BundleWriter, tiny_bundle};
use mopqdb::encoder::EncoderSpec;
use mopqdb::encoder::write::{BertConfig, Precision, write_bert};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const SEED: u64 = 0x6d6f_7071;
const HIDDEN: usize = 32;
const INTERMEDIATE: usize = 64;
const LAYERS: usize = 2;
const MAX_TOKENS: usize = 64;

/// splitmix64, and roughly normal numbers from it. It uses only additions and one multiplication, so results are the
/// same on every machine.
struct Generator(u64);

impl Generator {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The sum of twelve uniform numbers has variance 1.
    fn normals(&mut self, n: usize, deviation: f32) -> Vec<f32> {
        let mut one = || {
            (0..12)
                .map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32)
                .sum::<f32>()
                - 6.0
        };
        (0..n).map(|_| one() * deviation).collect()
    }
}

/// Returns special tokens, every printable ASCII character alone and inside a word, some common endings, and a list of
/// words.
fn vocabulary() -> Vec<String> {
    let mut tokens: Vec<String> = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        .map(String::from)
        .to_vec();
    let printable = (b'!'..=b'~')
        .filter(|c| !c.is_ascii_uppercase())
        .map(char::from);
    for c in printable {
        tokens.push(c.to_string());
        if c.is_ascii_alphanumeric() {
            tokens.push(format!("##{c}"));
        }
    }
    tokens.extend(
        [
            "##s", "##ed", "##ing", "##er", "##ly", "##es", "##al", "##ion", "##able",
        ]
        .map(String::from),
    );
    tokens.extend(
        include_str!("../assets/tiny-words.txt")
            .lines()
            .map(String::from),
    );
    let mut seen = std::collections::HashSet::new();
    tokens.retain(|token| seen.insert(token.clone()));
    tokens
}

fn tokenizer() -> Vec<u8> {
    let tokens = vocabulary();
    let special = |content: &str, id: usize| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let vocabulary: serde_json::Map<String, Value> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), json!(id)))
        .collect();
    let piece = |name: &str| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let text = |name: &str, kind: u8| json!({"Sequence": {"id": name, "type_id": kind}});
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special("[PAD]", 0), special("[UNK]", 1), special("[CLS]", 2), special("[SEP]", 3)],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                       "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [piece("[CLS]"), text("A", 0), piece("[SEP]")],
            "pair": [piece("[CLS]"), text("A", 0), piece("[SEP]"), text("B", 1), piece("[SEP]")],
            "special_tokens": {
                "[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}
            }
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocabulary}
    });
    serde_json::to_vec(&tokenizer).unwrap()
}

/// Weights being drawn, in the order of their names in a BERT.
struct Weights {
    generator: Generator,
    tensors: Vec<(String, Vec<usize>, Vec<f32>)>,
}

impl Weights {
    fn normal(&mut self, name: impl Into<String>, shape: &[usize], deviation: f32) {
        let values = self.generator.normals(shape.iter().product(), deviation);
        self.tensors.push((name.into(), shape.to_vec(), values));
    }

    fn norm(&mut self, name: &str) {
        let around_one = self
            .generator
            .normals(HIDDEN, 0.05)
            .iter()
            .map(|value| 1.0 + value)
            .collect();
        self.tensors
            .push((format!("{name}.weight"), vec![HIDDEN], around_one));
        self.normal(format!("{name}.bias"), &[HIDDEN], 0.05);
    }

    fn linear(&mut self, name: &str, outputs: usize, inputs: usize) {
        self.normal(format!("{name}.weight"), &[outputs, inputs], 0.1);
        self.normal(format!("{name}.bias"), &[outputs], 0.02);
    }
}

/// Returns random weights whose residual stream preserves the words: texts with the same words have similar vectors.
fn weights(tokens: usize) -> Vec<u8> {
    let mut weights = Weights {
        generator: Generator(SEED),
        tensors: Vec::new(),
    };
    weights.normal("embeddings.word_embeddings.weight", &[tokens, HIDDEN], 1.0);
    weights.normal(
        "embeddings.position_embeddings.weight",
        &[MAX_TOKENS, HIDDEN],
        0.05,
    );
    weights.normal(
        "embeddings.token_type_embeddings.weight",
        &[2, HIDDEN],
        0.05,
    );
    weights.norm("embeddings.LayerNorm");
    for layer in 0..LAYERS {
        let at = |part: &str| format!("encoder.layer.{layer}.{part}");
        for part in ["self.query", "self.key", "self.value", "output.dense"] {
            weights.linear(&at(&format!("attention.{part}")), HIDDEN, HIDDEN);
        }
        weights.norm(&at("attention.output.LayerNorm"));
        weights.linear(&at("intermediate.dense"), INTERMEDIATE, HIDDEN);
        weights.linear(&at("output.dense"), HIDDEN, INTERMEDIATE);
        weights.norm(&at("output.LayerNorm"));
    }
    let bytes: Vec<Vec<u8>> = weights
        .tensors
        .iter()
        .map(|(_, _, values)| {
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect()
        })
        .collect();
    let views = weights
        .tensors
        .iter()
        .zip(&bytes)
        .map(|((name, shape, _), data)| {
            (
                name,
                TensorView::new(Dtype::F32, shape.clone(), data).unwrap(),
            )
        });
    safetensors::serialize(views, None).unwrap()
}

fn make(dir: &Path) -> Bundle {
    let config = BertConfig {
        layers: LAYERS,
        hidden: HIDDEN,
        heads: 4,
        intermediate: INTERMEDIATE,
        layer_norm_eps: 1e-12,
        hidden_act: "gelu".into(),
        position_embedding_type: "absolute".into(),
        model_type: "bert".into(),
    };
    let graph = write_bert(&weights(vocabulary().len()), &config, Precision::F32).unwrap();
    let spec = EncoderSpec::bert(MAX_TOKENS);
    let files = [
        (spec.graph.clone(), graph),
        (spec.tokenizer.clone(), tokenizer()),
    ];
    BundleWriter::new(dir)
        .metric(Metric::Cosine)
        .encoder(spec, HIDDEN, files)
        .training(json!({"encoder": "tiny", "seed": SEED}))
        .finish()
        .unwrap()
}

#[test]
fn the_bundle_in_the_repository_is_what_the_writer_writes() {
    let kept = tiny_bundle();
    if std::env::var_os("MOPQDB_WRITE_FIXTURES").is_some() {
        let _ = fs::remove_dir_all(&kept);
        make(&kept);
    }
    let dir = tempfile::tempdir().unwrap();
    let made = make(&dir.path().join("tiny"));
    let kept = Bundle::open(kept).unwrap();
    assert_eq!(made.manifest(), kept.manifest(), "seed {SEED}");
    kept.verify().unwrap();
    let bytes: u64 = kept.manifest().files.iter().map(|file| file.bytes).sum();
    assert!(bytes < 300_000, "{bytes} bytes in the repository");
}
