//! `--joint`: trains an encoder, from its weights to the ONNX file that the engine runs.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use mopqdb::encoder::write::{BertConfig, Precision, write_bert};
use mopqdb::encoder::{
    Encoder as _, EncoderFiles, EncoderOptions, EncoderSpec, OnnxEncoder, Pooling, SideTokenizer,
};
use tch::{Device, Tensor};

use crate::config::JointConfig;
use crate::model::bert::{Bert, BertShape, read_weights};
use crate::train::Texts;

/// The files of the encoder to start from, and how it is run.
#[derive(Debug)]
pub struct Origin {
    /// The weights, as safetensors.
    pub weights: Vec<u8>,
    /// The contents of `config.json`.
    pub config: Vec<u8>,
    /// The contents of `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// How the untrained encoder is run.
    pub spec: EncoderSpec,
}

/// The texts to learn from.
#[derive(Debug, Clone, Copy)]
pub struct Readings<'a> {
    /// The training queries.
    pub queries: &'a [&'a str],
    /// All keys.
    pub keys: &'a [&'a str],
    /// The validation queries.
    pub validation: &'a [&'a str],
}

/// The files of a bundle by name.
pub type Files = Vec<(String, Vec<u8>)>;

/// An encoder to be trained: its shape, and how it is run.
pub struct Joint {
    shape: BertShape,
    spec: EncoderSpec,
    tokenizer: Vec<u8>,
    weights: Vec<(String, Tensor)>,
}

impl Joint {
    /// Creates an encoder with the first `layers` of the origin, and with the configured lengths.
    pub fn new(origin: Origin, joint: &JointConfig) -> Result<Self> {
        let mut config = BertConfig::from_json(&origin.config)?;
        ensure!(
            joint.layers <= config.layers,
            "joint.layers is {}, but the weights have {} layers",
            joint.layers,
            config.layers
        );
        config.layers = joint.layers;
        ensure!(
            origin.spec.pooling == Pooling::Mean && origin.spec.query_graph.is_none(),
            "--joint trains one encoder with mean pooling for queries and keys; this encoder is run differently"
        );
        let mut spec = EncoderSpec::bert(joint.key_tokens);
        spec.normalize = origin.spec.normalize;
        spec.key.prefix = origin.spec.key.prefix;
        spec.query.prefix = origin.spec.query.prefix;
        spec.query.max_tokens = joint.query_tokens;
        Ok(Self {
            shape: BertShape {
                config,
                normalize: spec.normalize,
            },
            spec,
            tokenizer: origin.tokenizer,
            weights: read_weights(&origin.weights)?,
        })
    }

    /// Returns the token ids of all texts.
    pub fn texts(&self, readings: Readings<'_>) -> Result<Texts> {
        let of = |texts: &[&str], side| -> Result<Vec<Vec<u32>>> {
            let tokenizer = SideTokenizer::load(&self.tokenizer, side)?;
            texts.iter().map(|text| Ok(tokenizer.ids(text)?)).collect()
        };
        Ok(Texts {
            shape: self.shape.clone(),
            weights: self
                .weights
                .iter()
                .map(|(name, t)| (name.clone(), t.shallow_clone()))
                .collect(),
            queries: Arc::new(of(readings.queries, &self.spec.query)?),
            keys: Arc::new(of(readings.keys, &self.spec.key)?),
            validation: of(readings.validation, &self.spec.query)?,
        })
    }

    /// Returns the trained encoder's files by name and how they are run. Checks that ONNX Runtime and libtorch agree on
    /// `samples` to 1e-4.
    pub fn export(&self, trained: &[u8], samples: &[&str]) -> Result<(EncoderSpec, Files)> {
        let graph = write_bert(trained, &self.shape.config, Precision::F32)?;
        let files = EncoderFiles::from_bytes(graph.clone(), self.tokenizer.clone());
        let served = OnnxEncoder::load(&self.spec, files, &EncoderOptions::with_threads(1))
            .context("loading the exported encoder")?;
        let tokenizer = SideTokenizer::load(&self.tokenizer, &self.spec.key)?;
        let ids: Vec<Vec<u32>> = samples
            .iter()
            .map(|text| Ok(tokenizer.ids(text)?))
            .collect::<Result<_>>()?;
        let bert = Bert::new(&self.shape, &read_weights(trained)?)?;
        let ours = bert.read(&ids, Device::Cpu);
        let theirs = served.encode_keys(samples)?;
        let apart = ours
            .iter()
            .zip(&theirs)
            .map(|(a, b)| (a - b).abs())
            // NaN counts as the largest difference.
            .fold(0.0, |most, apart| if apart <= most { most } else { apart });
        ensure!(
            ours.len() == theirs.len() && apart <= 1e-4,
            "the exported encoder differs from the trained one by {apart}; at most 1e-4 is accepted"
        );
        let files = vec![
            (self.spec.graph.clone(), graph),
            (self.spec.tokenizer.clone(), self.tokenizer.clone()),
        ];
        Ok((self.spec.clone(), files))
    }

    /// Returns the width of the vectors.
    pub fn hidden(&self) -> usize {
        self.shape.config.hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Sampling, TrainConfig};
    use crate::data::Corpus;
    use crate::program::Run;
    use crate::random::Random;
    use crate::train::{Lessons, Outcome, Trainer, Unwatched};
    use mopqdb::Metric;
    use mopqdb::eval::VectorQuestions;
    use std::sync::atomic::AtomicBool;

    const VOCABULARY: usize = 64;

    type Add<'a> = dyn FnMut(String, &[i64], f64, f64) + 'a;

    /// Returns a tokenizer with the words w0 w1 ..., one token each, between [CLS] and [SEP].
    fn tokenizer() -> Vec<u8> {
        let mut vocabulary = serde_json::Map::new();
        for (id, word) in ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].iter().enumerate() {
            vocabulary.insert((*word).to_owned(), id.into());
        }
        for word in 4..VOCABULARY {
            vocabulary.insert(format!("w{word}"), word.into());
        }
        let special =
            |id: usize, word: &str| serde_json::json!({"id": word, "ids": [id], "tokens": [word]});
        serde_json::to_vec(&serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}},
                    {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
                ],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"[CLS]": special(2, "[CLS]"), "[SEP]": special(3, "[SEP]")}
            },
            "decoder": null,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
        }))
        .unwrap()
    }

    /// Returns two random layers of width 16.
    fn origin() -> Origin {
        let config = serde_json::json!({
            "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32
        });
        let mut random = Random::new(1, "weights", 0);
        let mut tensors: Vec<(String, Tensor)> = Vec::new();
        let mut add = |name: String, shape: &[i64], scale: f64, centre: f64| {
            let count = shape.iter().product::<i64>();
            let values: Vec<f32> = (0..count)
                .map(|_| (centre + scale * random.normal()) as f32)
                .collect();
            tensors.push((
                format!("bert.{name}"),
                Tensor::from_slice(&values).view(shape),
            ));
        };
        add(
            "embeddings.word_embeddings.weight".into(),
            &[VOCABULARY as i64, 16],
            1.0,
            0.0,
        );
        add(
            "embeddings.position_embeddings.weight".into(),
            &[20, 16],
            0.3,
            0.0,
        );
        add(
            "embeddings.token_type_embeddings.weight".into(),
            &[2, 16],
            0.3,
            0.0,
        );
        let norm = |name: String, add: &mut Add<'_>| {
            add(format!("{name}.weight"), &[16], 0.1, 1.0);
            add(format!("{name}.bias"), &[16], 0.1, 0.0);
        };
        norm("embeddings.LayerNorm".into(), &mut add);
        for layer in 0..2 {
            let at = |part: &str| format!("encoder.layer.{layer}.{part}");
            for (part, out, input) in [
                ("attention.self.query", 16, 16),
                ("attention.self.key", 16, 16),
                ("attention.self.value", 16, 16),
                ("attention.output.dense", 16, 16),
                ("intermediate.dense", 32, 16),
                ("output.dense", 16, 32),
            ] {
                add(at(&format!("{part}.weight")), &[out, input], 0.3, 0.0);
                add(at(&format!("{part}.bias")), &[out], 0.1, 0.0);
            }
            norm(at("attention.output.LayerNorm"), &mut add);
            norm(at("output.LayerNorm"), &mut add);
        }
        Origin {
            weights: crate::model::bert::write_weights(&tensors).unwrap(),
            config: serde_json::to_vec(&config).unwrap(),
            tokenizer: tokenizer(),
            spec: EncoderSpec::bert(20),
        }
    }

    /// Returns keys of three words, and queries of one of these words and a neighbour of another.
    fn readings() -> (Vec<String>, Vec<String>) {
        let mut random = Random::new(2, "texts", 0);
        let mut word = || format!("w{}", 4 + random.below(VOCABULARY - 4));
        let keys: Vec<String> = (0..300)
            .map(|_| format!("{} {} {}", word(), word(), word()))
            .collect();
        let queries = keys
            .iter()
            .map(|key| key.split(' ').take(2).collect::<Vec<_>>().join(" "))
            .collect();
        (queries, keys)
    }

    /// Needs ONNX Runtime, which `make setup` downloads.
    #[test]
    fn an_encoder_and_its_codebook_train_on_two_devices_and_the_bundle_gives_the_trained_vectors() {
        let joint_config = JointConfig {
            layers: 1,
            query_tokens: 8,
            key_tokens: 8,
            learning_rate: 1e-3,
        };
        let joint = Joint::new(origin(), &joint_config).unwrap();
        let (queries, keys) = readings();
        let query_texts: Vec<&str> = queries.iter().map(String::as_str).collect();
        let key_texts: Vec<&str> = keys.iter().map(String::as_str).collect();
        let readings = Readings {
            queries: &query_texts,
            keys: &key_texts,
            validation: &query_texts[200..],
        };
        let texts = joint.texts(readings).unwrap();
        assert_eq!(texts.keys[0].len(), 5);
        let bert = Bert::new(&texts.shape, &texts.weights).unwrap();
        let start = bert.read(&texts.keys, Device::Cpu);
        let corpus = Corpus::new(keys.clone(), None, start, 16, Metric::Cosine).unwrap();
        let validation = VectorQuestions::new(
            vec![0.0; 100 * 16],
            (200..300).map(|row| vec![row]).collect(),
        );
        let pairs: Vec<(u32, u32)> = (0..200).map(|row| (row, row)).collect();
        let lessons = Lessons {
            corpus: &corpus,
            queries: &[],
            pairs: &pairs,
            logged: &[],
            held_out: &[],
            validation: &validation,
            texts: Some(&texts),
        };
        let config = TrainConfig {
            dim: 8,
            subspaces: 2,
            codewords: 16,
            batch: 25,
            warmup: 2,
            epochs: 4,
            patience: 0,
            devices: "cpu:2".into(),
            sampling: Sampling::Dcs,
            joint: Some(joint_config),
            ..TrainConfig::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let run = Run::open(dir.path(), "joint").unwrap();
        let stop = AtomicBool::new(false);
        let outcome = Trainer::new(&config, &lessons, &run, &stop)
            .unwrap()
            .run(&mut Unwatched)
            .unwrap();
        let Outcome::Trained(trained) = outcome else {
            panic!("the run was not stopped")
        };
        let records = run.records().unwrap();
        assert!(records[1].loss < records[0].loss, "{records:?}");
        // Vectors of different texts would differ by about .03.
        let recall = records.last().and_then(|record| record.recall);
        assert!(recall.is_some_and(|recall| recall > 0.3), "{records:?}");
        let weights = trained.encoder.unwrap();
        let after = read_weights(&weights).unwrap();
        let moved = texts
            .weights
            .iter()
            .find(|(name, _)| name.ends_with("layer.0.output.dense.weight"))
            .unwrap();
        let now = after.iter().find(|(name, _)| *name == moved.0).unwrap();
        assert!(
            crate::testing::max_difference(&now.1, &moved.1) > 1e-3,
            "the encoder has not learned"
        );
        assert!(
            !after.iter().any(|(name, _)| name.contains("layer.1.")),
            "only one layer is kept"
        );
        let (spec, files) = joint.export(&weights, &key_texts[..40]).unwrap();
        assert_eq!((spec.query.max_tokens, files.len()), (8, 2));
    }
}
