//! The start of a run: a head from the principal axes of the keys, and codewords from the projected keys after warm-up.

use anyhow::{Result, ensure};
use mopqdb::Metric;
use mopqdb::quantizer::{Quantizer, TrainPq, train_opq, train_pq};
use tch::{Device, Kind, Tensor};

use crate::config::{Method, Select, Start, TrainConfig};
use crate::data::Vectors;
use crate::model::codebook::{Selection, SoftCodebook};
use crate::model::head::Head;
use crate::random::Random;

/// Returns the head of keys x (rows, hidden): their first `dim` principal axes in a random rotation, scaled so that the
/// mean of |z|² is `start_norm`.
///
/// The axes keep most of every inner product. The rotation spreads the variance evenly over the subspaces; without it the
/// first subspace would have most of it, which is bad for plain PQ.
pub fn head(keys: Vectors<'_>, config: &TrainConfig) -> Result<Head> {
    let hidden = keys.hidden as i64;
    let dim = config.dim as i64;
    ensure!(
        dim <= hidden,
        "dim {dim} is wider than the embeddings, which have {hidden}; choose --dim {hidden} or less"
    );
    let zero = Tensor::zeros([hidden, hidden], (Kind::Double, Device::Cpu));
    let moment = keys
        .chunks()
        .map(|part| part.tr().matmul(&part).to_kind(Kind::Double))
        .fold(zero, |sum, part| sum + part)
        / keys.rows() as f64;
    let (values, vectors) = moment.linalg_eigh("L"); // ascending
    let axes = vectors.narrow(1, hidden - dim, dim).tr(); // dim, hidden
    let kept = values
        .narrow(0, hidden - dim, dim)
        .sum(Kind::Double)
        .double_value(&[]);
    ensure!(
        kept > 0.0,
        "all stored vectors are zero; there is nothing to learn from"
    );
    let mut random = Random::new(config.seed, "head", 0);
    let noise: Vec<f64> = (0..dim * dim).map(|_| random.normal()).collect();
    let (turn, _) = Tensor::linalg_qr(&Tensor::from_slice(&noise).view([dim, dim]), "reduced");
    let weight = turn.matmul(&axes) * (config.start_norm / kept).sqrt();
    let bias = Tensor::zeros([dim], (Kind::Float, Device::Cpu));
    Ok(Head::new(
        &weight.to_kind(Kind::Float),
        &bias,
        config.activation,
    ))
}

/// Returns head and codewords at the start of the joint epochs.
pub fn codebook(
    head: &Head,
    keys: Vectors<'_>,
    config: &TrainConfig,
) -> Result<(Head, SoftCodebook)> {
    let (subspaces, codewords, sub_dim) = (config.subspaces, config.codewords, config.sub_dim());
    let shape = [subspaces as i64, codewords as i64, sub_dim as i64];
    let (head, start) = match config.start {
        Start::Uniform => {
            let mut random = Random::new(config.seed, "codewords", 0);
            let count = subspaces * codewords * sub_dim;
            let values: Vec<f32> = (0..count)
                .map(|_| (2.0 * random.unit() - 1.0) as f32)
                .collect();
            (rotate(head, None), values)
        }
        Start::Kmeans => {
            let trained =
                train_pq(&embed(head, keys), config.dim, Metric::L2, &options(config))?.quantizer;
            (rotate(head, None), trained.codebook().values().to_vec())
        }
        Start::Opq => {
            let embedded = match config.method {
                Method::Distill => embed_some(head, keys, config),
                _ => embed(head, keys),
            };
            let trained = train_opq(&embedded, config.dim, Metric::L2, &options(config))?.quantizer;
            (
                rotate(head, trained.rotation()),
                trained.codebook().values().to_vec(),
            )
        }
    };
    let start = Tensor::from_slice(&start).view(shape);
    let selection = match (config.method, config.select) {
        (Method::Dpq, _) => Selection::Keys(start.copy()),
        (_, Select::L2) => Selection::L2,
        (_, Select::Cosine) => Selection::Cosine,
        (_, Select::Product) => Selection::Product,
        (_, Select::Bilinear) => {
            Selection::Bilinear(Tensor::eye(sub_dim as i64, (Kind::Float, Device::Cpu)))
        }
    };
    let codebook = SoftCodebook::new(
        &start,
        selection,
        config.temperature,
        config.straight_through,
    );
    Ok((head, codebook))
}

/// Trains the engine's PQ or OPQ on the projected keys. Returns the head, with OPQ's rotation folded in, and the quantizer.
pub fn quantize_after(
    head: &Head,
    keys: Vectors<'_>,
    config: &TrainConfig,
) -> Result<(Head, Quantizer)> {
    let embedded = embed(head, keys);
    let trained = match config.method {
        Method::Opq => train_opq(&embedded, config.dim, Metric::L2, &options(config))?.quantizer,
        _ => train_pq(&embedded, config.dim, Metric::L2, &options(config))?.quantizer,
    };
    Ok((rotate(head, trained.rotation()), trained))
}

fn options(config: &TrainConfig) -> TrainPq {
    TrainPq::default()
        .subspaces(config.subspaces)
        .codewords(config.codewords)
        .iterations(config.quantizer_iterations)
        .sample(config.quantizer_sample)
        .seed(config.seed)
        .threads(config.threads)
        .watch(mopqdb::Watch::new())
}

/// Returns the head followed by a rotation (dim, dim; z R), if there is one.
fn rotate(head: &Head, rotation: Option<&[f32]>) -> Head {
    let dim = head.bias.size()[0];
    match rotation {
        Some(rotation) => head.rotated(&Tensor::from_slice(rotation).view([dim, dim])),
        None => head.copy(),
    }
}

/// Projects only the keys that OPQ will use. With a million keys that saves half a gigabyte. (The other methods let the
/// engine draw the sample, so that their earlier runs can be repeated.)
fn embed_some(head: &Head, keys: Vectors<'_>, config: &TrainConfig) -> Vec<f32> {
    if keys.rows() <= config.quantizer_sample {
        return embed(head, keys);
    }
    let mut rows = Random::new(config.seed, "opq", 0).order(keys.rows());
    rows.truncate(config.quantizer_sample);
    rows.sort_unstable();
    let row = |&row: &u32| &keys.values[row as usize * keys.hidden..][..keys.hidden];
    let values: Vec<f32> = rows.iter().flat_map(row).copied().collect();
    let hidden = keys.hidden;
    embed(
        head,
        Vectors {
            values: &values,
            hidden,
        },
    )
}

/// Projects all keys: (rows, dim).
fn embed(head: &Head, keys: Vectors<'_>) -> Vec<f32> {
    tch::no_grad(|| {
        let mut values = Vec::with_capacity(keys.rows() * head.bias.size()[0] as usize);
        for part in keys.chunks() {
            let part = head.forward(&part).contiguous().view(-1);
            values.extend(Vec::<f32>::try_from(part).expect("one dimension of floats"));
        }
        values
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_starts_at_its_norm_and_keeps_inner_products() {
        let (rows, hidden) = (400, 12);
        // Eight strong axes, four weak ones.
        let x = crate::testing::random_tensor(1, &[rows, hidden]).to_kind(Kind::Float);
        let strength: Vec<f32> = (0..hidden)
            .map(|axis| if axis < 8 { 1.0 } else { 0.01 })
            .collect();
        let x = x * Tensor::from_slice(&strength);
        let config = TrainConfig {
            dim: 8,
            subspaces: 2,
            start_norm: 20.0,
            ..TrainConfig::default()
        };
        let values = crate::export::floats(&x);
        let keys = Vectors {
            values: &values,
            hidden: hidden as usize,
        };
        let z = head(keys, &config).unwrap().forward(&x);
        let norm = z.square().sum(Kind::Double).double_value(&[]) / rows as f64;
        assert!((norm - 20.0).abs() < 0.05, "{norm}");
        let (inner, expected) = (z.matmul(&z.tr()), x.matmul(&x.tr()));
        let scale = inner.double_value(&[0, 0]) / expected.double_value(&[0, 0]);
        assert!(crate::testing::relative(&inner, &(expected * scale)) < 0.01);
    }

    #[test]
    fn a_head_wider_than_its_input_is_refused_by_both_numbers() {
        let config = TrainConfig {
            dim: 8,
            ..TrainConfig::default()
        };
        let keys = Vectors {
            values: &[0.5; 80],
            hidden: 4,
        };
        let words = head(keys, &config).unwrap_err().to_string();
        assert!(words.contains('8') && words.contains("have 4"), "{words}");
    }
}
