//! A trainable BERT-like encoder: token ids -> pooled vector.
//!
//! It computes the same as the graph that the engine's ONNX writer writes, so an exported encoder agrees with the
//! trained one. Names and layouts are those of Hugging Face's `BertModel`. There is no dropout, so a step depends only
//! on its seed.

use anyhow::{Context, Result, ensure};
use mopqdb::encoder::write::BertConfig;
use safetensors::tensor::{Dtype, SafeTensors};
use tch::{Device, Kind, Tensor};

use super::{Group, Parameter, leaf, parameter};
use crate::export::floats;

/// The token ids of some texts, padded to the longest text.
#[derive(Debug)]
pub struct Tokens {
    /// The ids: (rows, tokens), int64.
    pub ids: Tensor,
    /// The mask: (rows, tokens), 1 for a token, 0 for padding, float.
    pub mask: Tensor,
}

impl Tokens {
    /// Pads the texts to the longest.
    pub fn pad(texts: &[&[u32]], device: Device) -> Self {
        let longest = texts.iter().map(|ids| ids.len()).max().unwrap_or(0).max(1);
        let (mut ids, mut mask) = (
            vec![0i64; texts.len() * longest],
            vec![0f32; texts.len() * longest],
        );
        for (row, text) in texts.iter().enumerate() {
            for (place, &id) in text.iter().enumerate() {
                ids[row * longest + place] = i64::from(id);
                mask[row * longest + place] = 1.0;
            }
        }
        let shape = [texts.len() as i64, longest as i64];
        Self {
            ids: Tensor::from_slice(&ids).view(shape).to_device(device),
            mask: Tensor::from_slice(&mask).view(shape).to_device(device),
        }
    }
}

/// The shape of a trainable encoder.
#[derive(Debug, Clone)]
pub struct BertShape {
    /// Layers, widths and heads.
    pub config: BertConfig,
    /// Whether pooled vectors are scaled to length 1.
    pub normalize: bool,
}

/// The encoder on one device.
#[derive(Debug)]
pub struct Bert {
    shape: BertShape,
    /// The tensors by name, without a prefix.
    tensors: Vec<(String, Tensor)>,
}

impl Bert {
    /// Creates an encoder from named tensors, as [`read_weights`] returns them or a checkpoint stores them. Tensors
    /// that a model of this shape does not use are ignored.
    pub fn new(shape: &BertShape, tensors: &[(String, Tensor)]) -> Result<Self> {
        let find = |name: String| {
            let found = tensors.iter().find(|(other, _)| *other == name);
            let (_, tensor) =
                found.with_context(|| format!("the encoder's weights contain no {name}"))?;
            Ok((name, leaf(tensor)))
        };
        let bert = Self {
            shape: shape.clone(),
            tensors: names(&shape.config)
                .into_iter()
                .map(find)
                .collect::<Result<_>>()?,
        };
        let hidden = bert.get("embeddings.word_embeddings.weight").size()[1];
        ensure!(
            hidden == shape.config.hidden as i64,
            "the encoder's weights have width {hidden}, but its configuration says {}",
            shape.config.hidden
        );
        Ok(bert)
    }

    /// Creates an encoder from the values of a model that has one, named like its parameters.
    pub fn restore(shape: &BertShape, values: &[(String, Tensor)], device: Device) -> Result<Self> {
        let own = values.iter().filter_map(|(name, tensor)| {
            Some((
                name.strip_prefix(PREFIX)?.to_owned(),
                tensor.to_device(device),
            ))
        });
        Self::new(shape, &own.collect::<Vec<_>>())
    }

    /// Returns the pooled vectors of texts (texts, hidden), without a gradient. Each batch contains texts of similar
    /// length.
    pub fn read(&self, texts: &[Vec<u32>], device: Device) -> Vec<f32> {
        let hidden = self.shape.config.hidden;
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|&text| texts[text].len());
        let mut vectors = vec![0.0; texts.len() * hidden];
        for some in order.chunks(64) {
            let ids: Vec<&[u32]> = some.iter().map(|&text| texts[text].as_slice()).collect();
            let pooled = tch::no_grad(|| self.forward(&Tokens::pad(&ids, device)));
            for (&text, vector) in some.iter().zip(floats(&pooled).chunks_exact(hidden)) {
                vectors[text * hidden..][..hidden].copy_from_slice(vector);
            }
        }
        vectors
    }

    /// Returns pooled vectors (rows, hidden): the mean over a text's tokens.
    pub fn forward(&self, tokens: &Tokens) -> Tensor {
        let hidden = self.hidden_states(tokens);
        let mask = tokens.mask.unsqueeze(-1); // rows, tokens, 1
        let sums = (hidden * &mask).sum_dim_intlist(1, false, None::<Kind>);
        let mean = sums / mask.sum_dim_intlist(1, false, None::<Kind>);
        if !self.shape.normalize {
            return mean;
        }
        let norm = mean
            .square()
            .sum_dim_intlist(-1, true, None::<Kind>)
            .clamp_min(1e-24)
            .sqrt();
        mean / norm
    }

    /// Returns the last layer's states (rows, tokens, hidden).
    fn hidden_states(&self, tokens: &Tokens) -> Tensor {
        let length = tokens.ids.size()[1];
        let words = Tensor::embedding(
            self.get("embeddings.word_embeddings.weight"),
            &tokens.ids,
            -1,
            false,
            false,
        );
        let places = self
            .get("embeddings.position_embeddings.weight")
            .narrow(0, 0, length);
        let kind = self
            .get("embeddings.token_type_embeddings.weight")
            .narrow(0, 0, 1);
        let mut x = self.norm("embeddings.LayerNorm", &(words + kind + places));
        // rows, 1, 1, tokens: excludes padding from attention.
        let bias = (&tokens.mask - 1.0).unsqueeze(1).unsqueeze(1) * 1e9;
        for layer in 0..self.shape.config.layers {
            x = self.layer(layer, &x, &bias);
        }
        x
    }

    fn layer(&self, layer: usize, x: &Tensor, bias: &Tensor) -> Tensor {
        let at = |part: &str| format!("encoder.layer.{layer}.{part}");
        let (rows, length, hidden) = x.size3().expect("rows, tokens, hidden");
        let heads = self.shape.config.heads as i64;
        let split = |part: &str| {
            let all = self.linear(&at(&format!("attention.self.{part}")), x);
            all.view([rows, length, heads, hidden / heads])
                .transpose(1, 2) // rows, heads, tokens, head_dim
        };
        let (q, k, v) = (split("query"), split("key"), split("value"));
        let scale = ((hidden / heads) as f64).sqrt();
        let weights = (q.matmul(&k.transpose(-1, -2)) / scale + bias).softmax(-1, x.kind());
        let attended = weights
            .matmul(&v)
            .transpose(1, 2)
            .reshape([rows, length, hidden]);
        let x = self.norm(
            &at("attention.output.LayerNorm"),
            &(self.linear(&at("attention.output.dense"), &attended) + x),
        );
        let inner = self.linear(&at("intermediate.dense"), &x);
        let inner = match self.shape.config.hidden_act.as_str() {
            "relu" => inner.relu(),
            _ => inner.gelu("none"),
        };
        self.norm(
            &at("output.LayerNorm"),
            &(self.linear(&at("output.dense"), &inner) + x),
        )
    }

    fn linear(&self, name: &str, x: &Tensor) -> Tensor {
        x.linear(
            self.get(&format!("{name}.weight")),
            Some(self.get(&format!("{name}.bias"))),
        )
    }

    fn norm(&self, name: &str, x: &Tensor) -> Tensor {
        let (weight, bias) = (
            self.get(&format!("{name}.weight")),
            self.get(&format!("{name}.bias")),
        );
        let eps = f64::from(self.shape.config.layer_norm_eps);
        x.layer_norm(
            [self.shape.config.hidden as i64],
            Some(weight),
            Some(bias),
            eps,
            false,
        )
    }

    fn get(&self, name: &str) -> &Tensor {
        let found = self.tensors.iter().find(|(other, _)| other == name);
        &found
            .expect("new() took every tensor that the shape names")
            .1
    }

    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        let of = |(name, tensor): &(String, Tensor)| {
            parameter(&format!("{PREFIX}{name}"), Group::Encoder, tensor)
        };
        self.tensors.iter().map(of).collect()
    }
}

/// The prefix of an encoder's tensors among a model's parameters.
pub const PREFIX: &str = "bert.";

/// Returns the name of every tensor that a model of this shape uses.
fn names(config: &BertConfig) -> Vec<String> {
    let mut names: Vec<String> = ["word", "position", "token_type"]
        .map(|table| format!("embeddings.{table}_embeddings.weight"))
        .to_vec();
    let mut with_bias =
        |name: String| names.extend([format!("{name}.weight"), format!("{name}.bias")]);
    with_bias("embeddings.LayerNorm".into());
    for layer in 0..config.layers {
        for part in [
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
            "attention.output.dense",
            "attention.output.LayerNorm",
            "intermediate.dense",
            "output.dense",
            "output.LayerNorm",
        ] {
            with_bias(format!("encoder.layer.{layer}.{part}"));
        }
    }
    names
}

/// Returns all tensors of a safetensors file as floats, without the prefix that some exports have.
pub fn read_weights(bytes: &[u8]) -> Result<Vec<(String, Tensor)>> {
    let file = SafeTensors::deserialize(bytes)
        .context("the encoder's weights are not a safetensors file")?;
    let mut tensors = Vec::new();
    for (name, view) in file.iter() {
        let kind = match view.dtype() {
            Dtype::F32 => Kind::Float,
            Dtype::F16 => Kind::Half,
            Dtype::BF16 => Kind::BFloat16,
            _ => continue, // position ids and the like
        };
        let shape: Vec<i64> = view.shape().iter().map(|&n| n as i64).collect();
        let tensor = Tensor::from_data_size(view.data(), &shape, kind).to_kind(Kind::Float);
        let name = ["bert.", "model."]
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix))
            .unwrap_or(name);
        tensors.push((name.to_owned(), tensor));
    }
    Ok(tensors)
}

/// Writes the weights as a safetensors file, for the engine's ONNX writer.
pub fn write_weights(values: &[(String, Tensor)]) -> Result<Vec<u8>> {
    let blocks: Vec<(&str, Vec<usize>, Vec<u8>)> = values
        .iter()
        .filter_map(|(name, tensor)| Some((name.strip_prefix(PREFIX)?, tensor)))
        .map(|(name, tensor)| {
            let shape = tensor.size().iter().map(|&n| n as usize).collect();
            let bytes = crate::export::floats(tensor)
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect();
            (name, shape, bytes)
        })
        .collect();
    let views = blocks
        .iter()
        .map(|(name, shape, bytes)| {
            Ok((
                *name,
                safetensors::tensor::TensorView::new(Dtype::F32, shape.clone(), bytes)?,
            ))
        })
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
    Ok(safetensors::serialize(views, None)?)
}
