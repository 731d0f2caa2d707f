//! An int8 variant of a graph: weights of matrix products as 7-bit integers with one scale per column, activations as
//! 8-bit integers with one scale per token, computed at run time; tables of vectors as 7-bit integers with one scale
//! per row.
//!
//! `MatMul(x, W)` becomes `MatMulInteger(q(x), Wq) * max|x| * scale(W)`, with one scale per token.
//! DynamicQuantizeLinear has one per batch, so the vector of a text would depend on the other texts in its batch
//! (measured: cosine down to .98 between a text alone and in a batch), which is not acceptable for a database. Weights
//! use 7 of 8 bits: without VNNI a CPU adds two products of u8 and i8 in 16 bits, and 2 * 255 * 63 = 32,130 < 32,768 is
//! the largest sum that fits. So every CPU gives the same result.

use super::graph::raw_tensor;
use super::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, attribute, element,
};
use crate::error::{Error, Result};
use prost::Message as _;
use std::collections::{HashMap, HashSet};

/// The largest magnitude of a quantized weight; see the module's documentation.
const LEVELS: f32 = 63.0;

/// The largest magnitude of a quantized activation.
const LEVELS_X: f32 = 127.0;

/// Tables with fewer rows are not quantized: positions and types are small, and every token uses them.
const MIN_TABLE_ROWS: usize = 1000;

/// Narrower tables do not hold vectors; they may be the scales of a quantized table.
const MIN_TABLE_COLUMNS: usize = 8;

/// Writes the int8 variant of an ONNX encoder. Refuses a graph without anything to quantize.
pub fn quantize_graph(model: &[u8]) -> Result<Vec<u8>> {
    let mut model = ModelProto::decode(model).map_err(|error| {
        Error::model_because(format!("this is not an ONNX model: {error}"), error)
    })?;
    let opset = model.opset_import.iter().find(|set| set.domain.is_empty());
    let opset = opset.map_or(0, |set| set.version);
    if opset < 11 {
        return Err(Error::model(
            "a graph of opset 11 or newer can be quantized; export it again",
        ));
    }
    let graph = model
        .graph
        .as_mut()
        .ok_or_else(|| Error::model("the model contains no graph"))?;
    let weights: HashMap<String, Weight> =
        graph.initializer.iter().filter_map(Weight::of).collect();
    let mut wanted: HashMap<String, Use> = HashMap::new();
    let mut kept: HashSet<String> = graph
        .output
        .iter()
        .map(|output| output.name.clone())
        .collect();
    for node in &graph.node {
        for (place, input) in node.input.iter().enumerate() {
            match use_of(node, place, weights.get(input)) {
                Some(how) if wanted.get(input).is_none_or(|known| *known == how) => {
                    wanted.insert(input.clone(), how);
                }
                _ => {
                    kept.insert(input.clone());
                }
            }
        }
    }
    wanted.retain(|name, _| !kept.contains(name));
    if wanted.is_empty() {
        return Err(Error::model(
            "the graph has no float weights of matrix products; is it quantized already?",
        ));
    }
    rewrite(graph, &weights, &wanted, opset);
    Ok(model.encode_to_vec())
}

/// How a weight is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// As the right side of a MatMul.
    Product,
    /// As a table from which rows are gathered.
    Table,
}

fn use_of(node: &NodeProto, place: usize, weight: Option<&Weight>) -> Option<Use> {
    let weight = weight?;
    let by_rows = node
        .attribute
        .iter()
        .all(|setting| setting.name != "axis" || setting.i.unwrap_or(0) == 0);
    match (node.op_type.as_str(), place) {
        ("MatMul", 1) => Some(Use::Product),
        ("Gather", 0)
            if by_rows && weight.rows >= MIN_TABLE_ROWS && weight.columns >= MIN_TABLE_COLUMNS =>
        {
            Some(Use::Table)
        }
        _ => None,
    }
}

/// A matrix of floats, (rows, columns).
struct Weight {
    rows: usize,
    columns: usize,
    values: Vec<f32>,
}

impl Weight {
    fn of(tensor: &TensorProto) -> Option<(String, Self)> {
        let &[rows, columns] = &tensor.dims[..] else {
            return None;
        };
        let (rows, columns) = (usize::try_from(rows).ok()?, usize::try_from(columns).ok()?);
        let values: Vec<f32> = match &tensor.raw_data {
            Some(raw) => {
                let word =
                    |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("chunks of four"));
                raw.chunks_exact(4).map(word).collect()
            }
            None => tensor.float_data.clone(),
        };
        let whole = tensor.data_type == element::FLOAT
            && rows * columns > 0
            && values.len() == rows * columns;
        (whole && values.iter().all(|value| value.is_finite())).then(|| {
            let weight = Self {
                rows,
                columns,
                values,
            };
            (tensor.name.clone(), weight)
        })
    }

    /// Quantizes with one scale per column, for products.
    fn by_column(&self) -> (Vec<i8>, Vec<f32>) {
        let mut scales = vec![0.0f32; self.columns];
        for row in self.values.chunks_exact(self.columns) {
            for (scale, value) in scales.iter_mut().zip(row) {
                *scale = scale.max(value.abs());
            }
        }
        scales.iter_mut().for_each(|scale| *scale = step(*scale));
        let quantized = self
            .values
            .iter()
            .enumerate()
            .map(|(at, value)| nearest(*value, scales[at % self.columns]));
        (quantized.collect(), scales)
    }

    /// Quantizes with one scale per row, for tables.
    fn by_row(&self) -> (Vec<i8>, Vec<f32>) {
        let rows = self.values.chunks_exact(self.columns);
        let scales: Vec<f32> = rows
            .map(|row| step(row.iter().fold(0.0, |most, value| most.max(value.abs()))))
            .collect();
        let quantized = self
            .values
            .iter()
            .enumerate()
            .map(|(at, value)| nearest(*value, scales[at / self.columns]));
        (quantized.collect(), scales)
    }
}

/// Returns the step between levels for values up to `most`; any step if all are 0.
fn step(most: f32) -> f32 {
    if most > 0.0 { most / LEVELS } else { 1.0 }
}

fn nearest(value: f32, step: f32) -> i8 {
    (value / step).round_ties_even().clamp(-LEVELS, LEVELS) as i8
}

/// Replaces the selected weights and the nodes that use them.
fn rewrite(
    graph: &mut GraphProto,
    weights: &HashMap<String, Weight>,
    wanted: &HashMap<String, Use>,
    opset: i64,
) {
    let mut initializers = constants();
    for tensor in std::mem::take(&mut graph.initializer) {
        let Some(how) = wanted.get(&tensor.name) else {
            initializers.push(tensor);
            continue;
        };
        let weight = &weights[&tensor.name];
        let (quantized, scales, scale_shape) = match how {
            Use::Product => {
                let (quantized, scales) = weight.by_column();
                // The activation's largest magnitude is the only factor multiplied at run time.
                let scales = scales.iter().map(|scale| scale / LEVELS_X).collect();
                (quantized, scales, vec![weight.columns])
            }
            Use::Table => {
                let (quantized, scales) = weight.by_row();
                (quantized, scales, vec![weight.rows, 1])
            }
        };
        let raw = quantized
            .iter()
            .map(|value| value.to_le_bytes()[0])
            .collect();
        let shape = [weight.rows, weight.columns];
        initializers.push(raw_tensor(&int8(&tensor.name), element::INT8, &shape, raw));
        let raw = scales
            .iter()
            .flat_map(|scale| scale.to_le_bytes())
            .collect();
        initializers.push(raw_tensor(
            &scale(&tensor.name),
            element::FLOAT,
            &scale_shape,
            raw,
        ));
    }
    // Some older exports list weights among the inputs.
    graph
        .input
        .retain(|input| !wanted.contains_key(&input.name));
    graph.initializer = initializers;

    // An activation that is used in several products is quantized once.
    let mut activations = HashSet::new();
    let mut nodes = Vec::new();
    for node in std::mem::take(&mut graph.node) {
        let weight = match node.op_type.as_str() {
            "MatMul" => node.input.get(1),
            "Gather" => node.input.first(),
            _ => None,
        };
        match weight.and_then(|name| wanted.get(name)) {
            Some(Use::Product) => {
                let x = node.input[0].clone();
                if activations.insert(x.clone()) {
                    nodes.extend(quantize_tokens(&x, opset));
                }
                nodes.extend(integer_product(&node));
            }
            Some(Use::Table) => nodes.extend(integer_rows(&node)),
            None => nodes.push(node),
        }
    }
    graph.node = nodes;
}

fn int8(weight: &str) -> String {
    format!("{weight}/int8")
}

/// Returns a name for a step on the way to or from `name`. No exporter uses such names.
fn part_of(name: &str, part: &str) -> String {
    format!("{name}/int8.{part}")
}

fn scale(weight: &str) -> String {
    format!("{weight}/int8.scale")
}

fn node(op: &str, inputs: Vec<String>, outputs: Vec<String>) -> NodeProto {
    NodeProto {
        name: format!("{}.{op}", outputs[0]),
        op_type: op.into(),
        input: inputs,
        output: outputs,
        ..NodeProto::default()
    }
}

fn cast(input: String, output: String, to: i32) -> NodeProto {
    let mut cast = node("Cast", vec![input], vec![output]);
    cast.attribute.push(AttributeProto {
        name: "to".into(),
        i: Some(i64::from(to)),
        kind: attribute::INT,
        ..AttributeProto::default()
    });
    cast
}

const LEVELS_OF_X: &str = "int8.levels";
const MIDDLE: &str = "int8.middle";
const ZERO_POINT: &str = "int8.zero";
const LEAST: &str = "int8.least";
const LAST_AXIS: &str = "int8.axis";

/// Returns the constants that all quantized products share.
fn constants() -> Vec<TensorProto> {
    let float = |name: &str, value: f32| {
        raw_tensor(name, element::FLOAT, &[], value.to_le_bytes().to_vec())
    };
    vec![
        float(LEVELS_OF_X, LEVELS_X),
        // Cast truncates towards zero and all values are positive, so adding one half rounds.
        float(MIDDLE, 128.5),
        // A token whose values are all zero needs a scale too.
        float(LEAST, 1e-30),
        raw_tensor(ZERO_POINT, element::UINT8, &[], vec![128]),
        raw_tensor(
            LAST_AXIS,
            element::INT64,
            &[1],
            (-1i64).to_le_bytes().to_vec(),
        ),
    ]
}

/// Quantizes x to u8 around 128, by the largest magnitude of each token: `x.max` has shape (.., 1), `x.int8` the shape
/// of x.
fn quantize_tokens(x: &str, opset: i64) -> [NodeProto; 7] {
    let at = |part: &str| part_of(x, part);
    let mut most = node("ReduceMax", vec![at("abs")], vec![at("most")]);
    if opset >= 18 {
        most.input.push(LAST_AXIS.into());
    } else {
        most.attribute.push(AttributeProto {
            name: "axes".into(),
            ints: vec![-1],
            kind: attribute::INTS,
            ..AttributeProto::default()
        });
    }
    [
        node("Abs", vec![x.into()], vec![at("abs")]),
        most,
        node("Max", vec![at("most"), LEAST.into()], vec![at("max")]),
        node(
            "Div",
            vec![LEVELS_OF_X.into(), at("max")],
            vec![at("inverse")],
        ),
        node("Mul", vec![x.into(), at("inverse")], vec![at("scaled")]),
        node(
            "Add",
            vec![at("scaled"), MIDDLE.into()],
            vec![at("shifted")],
        ),
        cast(at("shifted"), int8(x), element::UINT8),
    ]
}

fn integer_product(product: &NodeProto) -> [NodeProto; 4] {
    let (x, weight, out) = (&product.input[0], &product.input[1], &product.output[0]);
    let at = |part: &str| part_of(out, part);
    [
        node(
            "MatMulInteger",
            vec![int8(x), int8(weight), ZERO_POINT.into()],
            vec![at("integer")],
        ),
        cast(at("integer"), at("float"), element::FLOAT),
        node(
            "Mul",
            vec![at("float"), part_of(x, "max")],
            vec![at("scaled")],
        ),
        node("Mul", vec![at("scaled"), scale(weight)], vec![out.clone()]),
    ]
}

fn integer_rows(gather: &NodeProto) -> [NodeProto; 4] {
    let (table, ids, out) = (&gather.input[0], &gather.input[1], &gather.output[0]);
    let at = |part: &str| part_of(out, part);
    [
        node(
            "Gather",
            vec![int8(table), ids.clone()],
            vec![at("integer")],
        ),
        node(
            "Gather",
            vec![scale(table), ids.clone()],
            vec![at("scales")],
        ),
        cast(at("integer"), at("float"), element::FLOAT),
        node("Mul", vec![at("float"), at("scales")], vec![out.clone()]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::encoder::write::{Precision, write_token_vectors};

    #[test]
    fn bytes_that_are_not_a_model_and_models_without_weights_are_refused() {
        assert!(quantize_graph(b"hello").is_err());
        let small = write_token_vectors(&[1.0; 64], 8, Precision::F32).unwrap();
        assert!(
            matches!(quantize_graph(&small), Err(Error::Model(what)) if what.to_string().contains("quantized already"))
        );
    }

    #[test]
    fn a_table_keeps_each_value_within_half_a_step() {
        let values: Vec<f32> = (0..MIN_TABLE_ROWS * 16)
            .map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0)
            .collect();
        let graph = write_token_vectors(&values, 16, Precision::F32).unwrap();
        let quantized = quantize_graph(&graph).unwrap();
        assert!(quantized.len() * 2 < graph.len());
        let model = ModelProto::decode(&quantized[..]).unwrap();
        let tensors = &model.graph.unwrap().initializer;
        let raw = |name: &str| {
            tensors
                .iter()
                .find(|t| t.name == name)
                .unwrap()
                .raw_data
                .clone()
                .unwrap()
        };
        let (ints, scales) = (raw("vectors/int8"), raw("vectors/int8.scale"));
        for (row, values) in values.chunks(16).enumerate() {
            let scale = f32::from_le_bytes(scales[row * 4..][..4].try_into().unwrap());
            for (at, value) in values.iter().enumerate() {
                let back = f32::from(ints[row * 16 + at] as i8) * scale;
                assert!((back - value).abs() <= scale * 0.5001, "{back} {value}");
            }
        }
        assert!(
            quantize_graph(&quantized).is_err(),
            "a quantized graph is not quantized again"
        );
    }

    #[test]
    fn reading_and_writing_a_model_loses_nothing() {
        let graph = write_token_vectors(&[0.5; 64], 8, Precision::F16).unwrap();
        assert_eq!(
            ModelProto::decode(&graph[..]).unwrap().encode_to_vec(),
            graph
        );
    }
}
