//! Writing BERT-like weights as an ONNX graph.
//!
//! The operators have the order and shape in which ONNX Runtime recognises attention, layer norm and gelu, and fuses
//! them. Names and layouts of the weights are those of Hugging Face's `BertModel`.

use super::graph::{Dim, GraphWriter, Precision, Setting};
use super::proto::element;
use super::weights::Weights;
use crate::error::{Error, Result};
use serde::Deserialize;

/// The shape of a BERT-like model: the fields of `config.json` that affect the computation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct BertConfig {
    /// The number of layers to write, from the first on.
    #[serde(rename = "num_hidden_layers")]
    pub layers: usize,
    /// The width of the hidden states.
    #[serde(rename = "hidden_size")]
    pub hidden: usize,
    /// The number of attention heads.
    #[serde(rename = "num_attention_heads")]
    pub heads: usize,
    /// The width of the feed-forward layer.
    #[serde(rename = "intermediate_size")]
    pub intermediate: usize,
    /// The value that layer norm adds to the variance.
    #[serde(default = "usual_eps")]
    pub layer_norm_eps: f32,
    /// The activation: "gelu" or "relu".
    #[serde(default = "usual_activation")]
    pub hidden_act: String,
    /// The kind of positions. Only "absolute" is supported.
    #[serde(default = "usual_positions")]
    pub position_embedding_type: String,
    /// The kind of model. Only "bert" is supported.
    #[serde(default = "usual_kind")]
    pub model_type: String,
}

fn usual_eps() -> f32 {
    1e-12
}

fn usual_activation() -> String {
    "gelu".into()
}

fn usual_positions() -> String {
    "absolute".into()
}

fn usual_kind() -> String {
    "bert".into()
}

impl BertConfig {
    /// Reads Hugging Face's `config.json`.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| {
            Error::model_because(format!("config.json of the model: {error}"), error)
        })
    }

    fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::model(what));
        if self.model_type != "bert" || self.position_embedding_type != "absolute" {
            return refuse(format!(
                "a {} model with {} positions is not supported, only bert with absolute positions. Export it as ONNX with another \
                 tool, and make a bundle of that",
                self.model_type, self.position_embedding_type
            ));
        }
        if !matches!(self.hidden_act.as_str(), "gelu" | "relu") {
            return refuse(format!(
                "activation {:?} is not supported; use gelu or relu",
                self.hidden_act
            ));
        }
        let Self {
            layers,
            hidden,
            heads,
            ..
        } = self;
        if *heads == 0 || *hidden == 0 || hidden % heads != 0 || *layers > 1000 {
            return refuse(format!(
                "{layers} layers, {hidden} hidden, {heads} heads are not a valid model"
            ));
        }
        Ok(())
    }
}

/// Writes the encoder as an ONNX file. Inputs are `input_ids`, `attention_mask` and `token_type_ids` (i64); the output
/// is `last_hidden_state`, (batch, tokens, hidden). `weights` is a safetensors file.
pub fn write_bert(weights: &[u8], config: &BertConfig, precision: Precision) -> Result<Vec<u8>> {
    config.check()?;
    let weights = Weights::read(
        weights,
        "embeddings.word_embeddings.weight",
        &["", "bert.", "model."],
    )?;
    let mut bert = Bert {
        graph: GraphWriter::new(precision),
        weights,
        config,
    };
    let tokens = [Dim::Named("batch"), Dim::Named("tokens")];
    let ids = bert.graph.input("input_ids", element::INT64, &tokens);
    let mask = bert.graph.input("attention_mask", element::INT64, &tokens);
    let types = bert.graph.input("token_type_ids", element::INT64, &tokens);
    bert.constants();
    let bias = bert.mask_bias(&mask);
    let mut x = bert.embeddings(&ids, &types)?;
    for layer in 0..config.layers {
        let last = layer + 1 == config.layers;
        x = bert.layer(layer, &x, &bias, last)?;
    }
    if config.layers == 0 {
        bert.graph
            .node("Identity", "last_hidden_state", &[&x], vec![]);
    }
    let hidden = [tokens[0], tokens[1], Dim::Fixed(config.hidden)];
    bert.graph
        .output("last_hidden_state", element::FLOAT, &hidden);
    Ok(bert.graph.finish("bert"))
}

struct Bert<'a> {
    graph: GraphWriter,
    weights: Weights<'a>,
    config: &'a BertConfig,
}

impl Bert<'_> {
    /// Adds the constants that several nodes share.
    fn constants(&mut self) {
        let (heads, head_dim) = (
            self.config.heads as i64,
            (self.config.hidden / self.config.heads) as i64,
        );
        for (name, values) in [("zero", [0]), ("one", [1]), ("two", [2])] {
            self.graph.integers(name, &values);
        }
        // 0 keeps the dimension of the input.
        self.graph.integers("shape.split", &[0, 0, heads, head_dim]);
        self.graph
            .integers("shape.joined", &[0, 0, heads * head_dim]);
        self.graph.scalar("scale", (head_dim as f32).sqrt());
        self.graph.scalar("half", 0.5);
        self.graph.scalar("one.f", 1.0);
        self.graph.scalar("sqrt2", std::f32::consts::SQRT_2);
        self.graph.scalar("masked", f32::MIN);
    }

    /// Adds the mask bias, (batch, 1, 1, tokens): 0 for a token and the smallest f32 for padding. It is added before
    /// the softmax.
    fn mask_bias(&mut self, mask: &str) -> String {
        let g = &mut self.graph;
        g.node("Unsqueeze", "mask.1", &[mask, "one"], vec![]);
        g.node("Unsqueeze", "mask.2", &["mask.1", "two"], vec![]);
        let to = Setting::Int("to", i64::from(element::FLOAT));
        g.node("Cast", "mask.float", &["mask.2"], vec![to]);
        g.node("Sub", "mask.inverse", &["one.f", "mask.float"], vec![]);
        g.node("Mul", "mask.bias", &["mask.inverse", "masked"], vec![])
    }

    /// Adds the embeddings of words, positions and types, summed and normalised.
    fn embeddings(&mut self, ids: &str, types: &str) -> Result<String> {
        let hidden = self.config.hidden;
        let words = self.table("embeddings.word_embeddings.weight", hidden)?;
        let positions = self.table("embeddings.position_embeddings.weight", hidden)?;
        let kinds = self.table("embeddings.token_type_embeddings.weight", hidden)?;
        let g = &mut self.graph;
        let words = g.node("Gather", "embed.words", &[&words, ids], vec![]);
        let kinds = g.node("Gather", "embed.types", &[&kinds, types], vec![]);
        // Takes the first rows of the table, one per token. (Range and Gather fail under ORT's optimiser.)
        let span = vec![Setting::Int("start", 1), Setting::Int("end", 2)];
        let tokens = g.node("Shape", "embed.tokens", &[ids], span);
        let positions = g.node(
            "Slice",
            "embed.positions",
            &[&positions, "zero", &tokens, "zero"],
            vec![],
        );
        let sum = g.node("Add", "embed.sum.1", &[&words, &kinds], vec![]);
        let sum = g.node("Add", "embed.sum.2", &[&sum, &positions], vec![]);
        self.layer_norm("embeddings.LayerNorm", &sum, "embed")
    }

    /// Adds a table with any number of vectors.
    fn table(&mut self, name: &str, hidden: usize) -> Result<String> {
        let rows = self.weights.shape(name)?.first().copied().unwrap_or(0);
        if rows == 0 {
            return Err(Error::model(format!("{name} is empty")));
        }
        let values = self.weights.take(name, &[rows, hidden])?;
        Ok(self.graph.weights(name, &[rows, hidden], &values))
    }

    /// Adds attention and feed-forward, each summed with its input and normalised.
    fn layer(&mut self, layer: usize, x: &str, bias: &str, last: bool) -> Result<String> {
        let (hidden, wide) = (self.config.hidden, self.config.intermediate);
        let from = format!("encoder.layer.{layer}");
        let at = |part: &str| format!("layer.{layer}.{part}");
        let attended = self.attention(layer, x, bias)?;
        let projected = self.linear(
            &format!("{from}.attention.output.dense"),
            &attended,
            &at("attended"),
            hidden,
            hidden,
        )?;
        let sum = self
            .graph
            .node("Add", &at("attended.sum"), &[&projected, x], vec![]);
        let x = self.layer_norm(
            &format!("{from}.attention.output.LayerNorm"),
            &sum,
            &at("attention"),
        )?;
        let inner = self.linear(
            &format!("{from}.intermediate.dense"),
            &x,
            &at("inner"),
            hidden,
            wide,
        )?;
        let inner = self.activation(&inner, &at("inner"));
        let outer = self.linear(
            &format!("{from}.output.dense"),
            &inner,
            &at("outer"),
            wide,
            hidden,
        )?;
        let sum = self
            .graph
            .node("Add", &at("outer.sum"), &[&outer, &x], vec![]);
        let name = if last {
            "last_hidden_state".into()
        } else {
            at("out")
        };
        self.layer_norm(&format!("{from}.output.LayerNorm"), &sum, &name)
    }

    /// softmax(Q K^T / sqrt(head_dim) + bias) V, (batch, tokens, hidden)
    fn attention(&mut self, layer: usize, x: &str, bias: &str) -> Result<String> {
        let hidden = self.config.hidden;
        let from = format!("encoder.layer.{layer}.attention.self");
        let at = |part: &str| format!("layer.{layer}.{part}");
        let mut heads = Vec::new();
        // Keys are stored transposed: (batch, heads, head_dim, tokens).
        for (part, order) in [
            ("query", [0, 2, 1, 3]),
            ("key", [0, 2, 3, 1]),
            ("value", [0, 2, 1, 3]),
        ] {
            let flat = self.linear(&format!("{from}.{part}"), x, &at(part), hidden, hidden)?;
            let split = self.graph.node(
                "Reshape",
                &at(&format!("{part}.split")),
                &[&flat, "shape.split"],
                vec![],
            );
            let perm = vec![Setting::Ints("perm", order.to_vec())];
            heads.push(self.graph.node(
                "Transpose",
                &at(&format!("{part}.heads")),
                &[&split],
                perm,
            ));
        }
        let g = &mut self.graph;
        let scores = g.node("MatMul", &at("scores"), &[&heads[0], &heads[1]], vec![]);
        let scaled = g.node("Div", &at("scores.scaled"), &[&scores, "scale"], vec![]);
        let masked = g.node("Add", &at("scores.masked"), &[&scaled, bias], vec![]);
        let weights = g.node(
            "Softmax",
            &at("weights"),
            &[&masked],
            vec![Setting::Int("axis", -1)],
        );
        let mixed = g.node("MatMul", &at("mixed"), &[&weights, &heads[2]], vec![]);
        let perm = vec![Setting::Ints("perm", vec![0, 2, 1, 3])];
        let joined = g.node("Transpose", &at("mixed.tokens"), &[&mixed], perm);
        Ok(g.node(
            "Reshape",
            &at("mixed.joined"),
            &[&joined, "shape.joined"],
            vec![],
        ))
    }

    /// x W^T + b. torch stores W as (outputs, inputs), MatMul takes (inputs, outputs).
    fn linear(
        &mut self,
        from: &str,
        x: &str,
        to: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<String> {
        let weight = self
            .weights
            .take(&format!("{from}.weight"), &[outputs, inputs])?;
        let mut transposed = vec![0.0; weight.len()];
        for (output, row) in weight.chunks_exact(inputs).enumerate() {
            for (input, value) in row.iter().enumerate() {
                transposed[input * outputs + output] = *value;
            }
        }
        let bias = self.weights.take(&format!("{from}.bias"), &[outputs])?;
        let weight = self
            .graph
            .weights(&format!("{from}.weight"), &[inputs, outputs], &transposed);
        let bias = self
            .graph
            .weights(&format!("{from}.bias"), &[outputs], &bias);
        let product = self
            .graph
            .node("MatMul", &format!("{to}.product"), &[x, &weight], vec![]);
        Ok(self
            .graph
            .node("Add", &format!("{to}.linear"), &[&product, &bias], vec![]))
    }

    fn layer_norm(&mut self, from: &str, x: &str, to: &str) -> Result<String> {
        let hidden = self.config.hidden;
        let scale = self.weights.take(&format!("{from}.weight"), &[hidden])?;
        let bias = self.weights.take(&format!("{from}.bias"), &[hidden])?;
        let scale = self
            .graph
            .weights(&format!("{from}.weight"), &[hidden], &scale);
        let bias = self
            .graph
            .weights(&format!("{from}.bias"), &[hidden], &bias);
        let settings = vec![
            Setting::Int("axis", -1),
            Setting::Float("epsilon", self.config.layer_norm_eps),
        ];
        Ok(self
            .graph
            .node("LayerNormalization", to, &[x, &scale, &bias], settings))
    }

    /// gelu(x) = x/2 (1 + erf(x / sqrt 2)), or relu.
    fn activation(&mut self, x: &str, to: &str) -> String {
        let at = |part: &str| format!("{to}.{part}");
        let g = &mut self.graph;
        if self.config.hidden_act == "relu" {
            return g.node("Relu", &at("relu"), &[x], vec![]);
        }
        let scaled = g.node("Div", &at("gelu.scaled"), &[x, "sqrt2"], vec![]);
        let erf = g.node("Erf", &at("gelu.erf"), &[&scaled], vec![]);
        let sum = g.node("Add", &at("gelu.sum"), &[&erf, "one.f"], vec![]);
        let product = g.node("Mul", &at("gelu.product"), &[x, &sum], vec![]);
        g.node("Mul", &at("gelu"), &[&product, "half"], vec![])
    }
}
