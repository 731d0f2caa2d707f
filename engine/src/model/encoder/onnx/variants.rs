//! The kinds of graphs that people export, made from the tiny one: each gives the same vectors, or is refused.

use super::tests::{cosine, runtime};
use super::*;
use crate::metric::Metric;
use crate::model::bundle::{Bundle, tiny_bundle};
use crate::model::encoder::write::proto::{
    AttributeProto, Dimension, ModelProto, NodeProto, TensorProto, ValueInfo,
};
use crate::model::encoder::write::quantize_graph;
use crate::model::encoder::{Pooling, Side};
use prost::Message as _;

const TEXTS: [&str; 4] = [
    "a blue horse",
    "the river and the sea",
    "parse",
    "music in the old house by the lake",
];

fn tiny_graph() -> ModelProto {
    let bytes = std::fs::read(tiny_bundle().join("encoder.onnx")).unwrap();
    ModelProto::decode(&bytes[..]).unwrap()
}

fn export(graph: &ModelProto) -> Export {
    let side = Side {
        prefix: String::new(),
        max_tokens: 64,
    };
    Export {
        graph: graph.encode_to_vec(),
        query_graph: None,
        tokenizer: std::fs::read(tiny_bundle().join("tokenizer.json")).unwrap(),
        metric: Metric::Cosine,
        output: None,
        pooling: None,
        normalize: None,
        key: side.clone(),
        query: side,
    }
}

/// Wraps the export, opens the bundle and encodes with it.
fn served(export: Export) -> Result<(Findings, Vec<f32>)> {
    let dir = tempfile::tempdir().unwrap();
    let (bundle, findings) = wrap(export, &dir.path().join("bundle"))?;
    let bundle = Bundle::open(bundle.dir())?;
    let vectors = bundle.encoder()?.unwrap().encode_keys(&TEXTS)?;
    Ok((findings, vectors))
}

fn expected() -> Vec<f32> {
    let encoder = Bundle::open(tiny_bundle())
        .unwrap()
        .encoder()
        .unwrap()
        .unwrap();
    encoder.encode_keys(&TEXTS).unwrap()
}

/// Returns the smallest cosine between the two vectors of a text.
fn agreement(a: &[f32], b: &[f32]) -> f32 {
    let rows = a.chunks(32).zip(b.chunks(32));
    rows.map(|(a, b)| cosine(a, b)).fold(1.0, f32::min)
}

fn node(op: &str, inputs: &[&str], output: &str, to: Option<i64>) -> NodeProto {
    let cast = to.map(|to| AttributeProto {
        name: "to".into(),
        i: Some(to),
        kind: 2,
        ..AttributeProto::default()
    });
    NodeProto {
        input: inputs.iter().map(|input| (*input).into()).collect(),
        output: vec![output.into()],
        op_type: op.into(),
        attribute: cast.into_iter().collect(),
        ..NodeProto::default()
    }
}

fn element_of(value: &mut ValueInfo) -> &mut i32 {
    &mut value
        .kind
        .as_mut()
        .unwrap()
        .tensor
        .as_mut()
        .unwrap()
        .element
}

fn dims_of(value: &mut ValueInfo) -> &mut Vec<Dimension> {
    &mut value
        .kind
        .as_mut()
        .unwrap()
        .tensor
        .as_mut()
        .unwrap()
        .shape
        .as_mut()
        .unwrap()
        .dim
}

#[test]
fn i32_inputs_are_supported() {
    if !runtime("i32_inputs_are_supported") {
        return;
    }
    let mut graph = tiny_graph();
    for input in &mut graph.graph.as_mut().unwrap().input {
        *element_of(input) = 6;
    }
    let (findings, vectors) = served(export(&graph)).unwrap();
    assert_eq!(findings.graph.inputs[0].element, "i32");
    assert!(agreement(&vectors, &expected()) > 0.99999);
}

#[test]
fn a_graph_without_token_types_is_supported() {
    if !runtime("a_graph_without_token_types_is_supported") {
        return;
    }
    let mut graph = tiny_graph();
    let inner = graph.graph.as_mut().unwrap();
    inner.input.retain(|input| input.name != "token_type_ids");
    inner.node.insert(
        0,
        node("Sub", &["input_ids", "input_ids"], "token_type_ids", None),
    );
    let (findings, vectors) = served(export(&graph)).unwrap();
    assert_eq!(findings.spec.inputs.types, None);
    assert!(agreement(&vectors, &expected()) > 0.99999);
}

/// Appends the mean over the mask as `sentence_embedding`, as sentence-transformers exports it.
fn with_sentence_embedding(graph: &mut ModelProto, element: i32) {
    let inner = graph.graph.as_mut().unwrap();
    let axes = TensorProto {
        dims: vec![1],
        data_type: 7,
        name: "pool.axis".into(),
        int64_data: vec![1],
        ..TensorProto::default()
    };
    let last = TensorProto {
        name: "pool.last".into(),
        int64_data: vec![2],
        ..axes.clone()
    };
    inner.initializer.extend([axes, last]);
    let sum = |input: &str, output: &str| {
        let mut sum = node("ReduceSum", &[input, "pool.axis"], output, None);
        sum.attribute.push(AttributeProto {
            name: "keepdims".into(),
            i: Some(0),
            kind: 2,
            ..AttributeProto::default()
        });
        sum
    };
    let sums = [sum("pool.kept", "pool.sum"), sum("pool.mask", "pool.count")];
    inner.node.extend([
        node("Cast", &["attention_mask"], "pool.float", Some(1)),
        node("Unsqueeze", &["pool.float", "pool.last"], "pool.mask", None),
        node(
            "Mul",
            &["last_hidden_state", "pool.mask"],
            "pool.kept",
            None,
        ),
    ]);
    inner.node.extend(sums);
    inner.node.extend([
        node("Div", &["pool.sum", "pool.count"], "pool.mean", None),
        node(
            "Cast",
            &["pool.mean"],
            "sentence_embedding",
            Some(i64::from(element)),
        ),
    ]);
    let mut output = inner.output[0].clone();
    output.name = "sentence_embedding".into();
    *element_of(&mut output) = element;
    dims_of(&mut output).remove(1);
    inner.output.push(output);
}

#[test]
fn a_pooled_sentence_embedding_is_supported_in_f32_and_f16() {
    if !runtime("a_pooled_sentence_embedding_is_supported_in_f32_and_f16") {
        return;
    }
    for (element, least) in [(1, 0.99999), (10, 0.9999)] {
        let mut graph = tiny_graph();
        with_sentence_embedding(&mut graph, element);
        let (findings, vectors) = served(export(&graph)).unwrap();
        assert_eq!(
            (findings.spec.output.as_str(), findings.spec.pooling),
            ("sentence_embedding", Pooling::None)
        );
        assert!(
            agreement(&vectors, &expected()) > least,
            "element {element}"
        );
    }
}

#[test]
fn an_unspecified_width_is_found_by_running_the_graph() {
    if !runtime("an_unspecified_width_is_found_by_running_the_graph") {
        return;
    }
    let mut graph = tiny_graph();
    let output = &mut graph.graph.as_mut().unwrap().output[0];
    output.kind.as_mut().unwrap().tensor.as_mut().unwrap().shape = None;
    assert_eq!(served(export(&graph)).unwrap().0.dim, 32);
}

#[test]
fn an_int8_variant_is_smaller_and_has_similar_vectors() {
    if !runtime("an_int8_variant_is_smaller_and_has_similar_vectors") {
        return;
    }
    let graph = tiny_graph();
    let quantized = quantize_graph(&graph.encode_to_vec()).unwrap();
    assert!(
        quantized.len() < graph.encoded_len() * 9 / 10,
        "{}",
        quantized.len()
    );
    let mut export = export(&graph);
    export.graph = quantized;
    let (findings, vectors) = served(export).unwrap();
    assert!(
        findings.batch_difference < 2e-6,
        "the rest of the batch makes no difference"
    );
    let agreement = agreement(&vectors, &expected());
    assert!(agreement > 0.995 && agreement < 0.999_999, "{agreement}");
}

#[test]
fn two_towers_use_a_graph_each() {
    if !runtime("two_towers_use_a_graph_each") {
        return;
    }
    let graph = tiny_graph();
    let mut other = tiny_graph();
    let words = other.graph.as_mut().unwrap().initializer.iter_mut();
    let words = words
        .into_iter()
        .find(|t| t.name == "embeddings.word_embeddings.weight")
        .unwrap();
    words.raw_data.as_mut().unwrap().rotate_left(4 * 32);
    let mut export = export(&graph);
    export.query_graph = Some(other.encode_to_vec());
    let dir = tempfile::tempdir().unwrap();
    let (bundle, _) = wrap(export, &dir.path().join("towers")).unwrap();
    assert_ne!(
        bundle.encoder_id(),
        Bundle::open(tiny_bundle()).unwrap().encoder_id()
    );
    let encoder = bundle.encoder().unwrap().unwrap();
    let keys = encoder.encode_keys(&TEXTS).unwrap();
    assert!(agreement(&keys, &expected()) > 0.99999);
    assert!(agreement(&encoder.encode_queries(&TEXTS).unwrap(), &keys) < 0.9);
}

#[test]
fn an_unsupported_graph_is_refused_with_the_reason() {
    if !runtime("an_unsupported_graph_is_refused_with_the_reason") {
        return;
    }
    let refused = |export: Export, word: &str| {
        let error = served(export).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    // This graph ignores the mask, so padding changes the vectors.
    let mut graph = tiny_graph();
    for node in &mut graph.graph.as_mut().unwrap().node {
        if node.op_type == "Add" && node.input[1] == "mask.bias" {
            node.input[1] = "zero.f".into();
        }
    }
    let zero = TensorProto {
        data_type: 1,
        name: "zero.f".into(),
        float_data: vec![0.0],
        ..TensorProto::default()
    };
    graph.graph.as_mut().unwrap().initializer.push(zero);
    refused(export(&graph), "attention mask");
    // This graph has fixed shapes.
    let mut graph = tiny_graph();
    for input in &mut graph.graph.as_mut().unwrap().input {
        dims_of(input)[0] = Dimension {
            value: Some(1),
            ..Dimension::default()
        };
    }
    refused(export(&graph), "dynamic axes");
    // The side has more tokens than the graph has positions.
    let mut long = export(&tiny_graph());
    long.key.max_tokens = 100;
    refused(long, "allow fewer");
    // The weights are in another file.
    let mut graph = tiny_graph();
    graph.graph.as_mut().unwrap().initializer[0].data_location = 1;
    refused(export(&graph), "another file");
    // There is no such output.
    let mut other = export(&tiny_graph());
    other.output = Some("pooler_output".into());
    refused(other, "last_hidden_state");
}
