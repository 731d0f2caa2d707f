//! How to run an encoder, as its bundle specifies it. Nothing is guessed from file names.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The largest token limit that a bundle may have. No known encoder takes more.
pub const MAX_TOKENS: usize = 32_768;

/// How the graph's output becomes one vector per text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The mean over the tokens that the attention mask keeps.
    Mean,
    /// The first token's vector.
    Cls,
    /// The graph's output is already one vector per text.
    None,
}

impl Pooling {
    /// Returns the name used in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Cls => "cls",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Pooling {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "mean" => Ok(Self::Mean),
            "cls" => Ok(Self::Cls),
            "none" => Ok(Self::None),
            other => Err(format!("{other:?} is not a pooling; use mean, cls or none")),
        }
    }
}

/// The preprocessing of queries or of keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// A text put before each input, as some models were trained with ("query: ").
    pub prefix: String,
    /// The token limit, special tokens included. Longer inputs are cut.
    pub max_tokens: usize,
}

/// The names of the graph's inputs. Their element types (i64 or i32) are read from the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// The input for token ids, (batch, tokens).
    pub ids: String,
    /// The input for the attention mask: 1 for a token, 0 for padding.
    pub mask: Option<String>,
    /// The input for token types. All are zero, because each text is one segment.
    pub types: Option<String>,
}

/// How an encoder is run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncoderSpec {
    /// The file of the graph for keys, and for queries if they have none of their own.
    pub graph: String,
    /// The file of the graph for queries, if the towers differ.
    pub query_graph: Option<String>,
    /// The file of the tokenizer.
    pub tokenizer: String,
    /// The names of the graphs' inputs.
    pub inputs: Inputs,
    /// The name of the graphs' output that is used.
    pub output: String,
    /// How the output becomes one vector per text.
    pub pooling: Pooling,
    /// Whether vectors are scaled to length 1.
    pub normalize: bool,
    /// The preprocessing of keys.
    pub key: Side,
    /// The preprocessing of queries.
    pub query: Side,
}

impl EncoderSpec {
    /// Returns the spec of a usual BERT export: a graph in `encoder.onnx` with the usual inputs, `last_hidden_state`,
    /// mean pooling, normalised.
    pub fn bert(max_tokens: usize) -> Self {
        let side = Side {
            prefix: String::new(),
            max_tokens,
        };
        Self {
            graph: "encoder.onnx".into(),
            query_graph: None,
            tokenizer: "tokenizer.json".into(),
            inputs: Inputs {
                ids: "input_ids".into(),
                mask: Some("attention_mask".into()),
                types: Some("token_type_ids".into()),
            },
            output: "last_hidden_state".into(),
            pooling: Pooling::Mean,
            normalize: true,
            key: side.clone(),
            query: side,
        }
    }

    /// Returns the names of the encoder's files.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        [
            Some(&self.graph),
            self.query_graph.as_ref(),
            Some(&self.tokenizer),
        ]
        .into_iter()
        .flatten()
        .map(String::as_str)
    }

    /// Checks limits and names.
    pub fn check(&self) -> Result<()> {
        for (side, name) in [(&self.key, "key"), (&self.query, "query")] {
            // Two special tokens and one token of the text.
            if !(3..=MAX_TOKENS).contains(&side.max_tokens) {
                return Err(Error::model(format!(
                    "the encoder's max tokens for a {name} are {}; 3 to {MAX_TOKENS} are supported",
                    side.max_tokens
                )));
            }
            if side.prefix.len() > 4096 {
                return Err(Error::model(format!(
                    "the encoder's prefix for a {name} has {} bytes; at most 4096 are supported",
                    side.prefix.len()
                )));
            }
        }
        Ok(())
    }
}
