//! Writing a graph: nodes are appended in the order in which they run, each named after its output.

use super::proto::{
    AttributeProto, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetId, TensorProto,
    TensorShape, TensorType, TypeProto, ValueInfo, attribute, element,
};
use half::f16;
use prost::Message as _;

/// The operator set version. Every ONNX Runtime that we load supports it; LayerNormalization requires 17.
const OPSET: i64 = 18;
const IR_VERSION: i64 = 8;

/// The precision of weights in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Unchanged.
    #[default]
    F32,
    /// Half the size; converted to f32 when the graph is loaded.
    F16,
}

/// A dimension of an input or output.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dim {
    /// A fixed size.
    Fixed(usize),
    /// A named size, which depends on the batch.
    Named(&'static str),
}

/// An attribute of a node.
pub(super) enum Setting {
    Float(&'static str, f32),
    Int(&'static str, i64),
    Ints(&'static str, Vec<i64>),
}

/// A graph that is being written.
#[derive(Default)]
pub(super) struct GraphWriter {
    graph: GraphProto,
    precision: Precision,
}

impl GraphWriter {
    pub(super) fn new(precision: Precision) -> Self {
        Self {
            precision,
            ..Self::default()
        }
    }

    /// Declares an input of the graph.
    pub(super) fn input(&mut self, name: &str, kind: i32, shape: &[Dim]) -> String {
        self.graph.input.push(value_info(name, kind, shape));
        name.into()
    }

    /// Declares an output of the graph.
    pub(super) fn output(&mut self, name: &str, kind: i32, shape: &[Dim]) {
        self.graph.output.push(value_info(name, kind, shape));
    }

    /// Adds weights. Requires: the number of values is that of the shape.
    pub(super) fn weights(&mut self, name: &str, shape: &[usize], values: &[f32]) -> String {
        assert_eq!(
            values.len(),
            shape.iter().product::<usize>(),
            "{name} has the values of its shape"
        );
        match self.precision {
            Precision::F32 => {
                let raw = values
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect();
                self.tensor(name, element::FLOAT, shape, raw)
            }
            Precision::F16 => {
                let raw = values
                    .iter()
                    .flat_map(|value| f16::from_f32(*value).to_le_bytes())
                    .collect();
                let kept = self.tensor(&format!("{name}.f16"), element::FLOAT16, shape, raw);
                let to = Setting::Int("to", i64::from(element::FLOAT));
                self.node("Cast", name, &[&kept], vec![to])
            }
        }
    }

    /// Adds a single number.
    pub(super) fn scalar(&mut self, name: &str, value: f32) -> String {
        self.tensor(name, element::FLOAT, &[], value.to_le_bytes().to_vec())
    }

    /// Adds a list of integers, such as a shape or axes.
    pub(super) fn integers(&mut self, name: &str, values: &[i64]) -> String {
        let raw = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.tensor(name, element::INT64, &[values.len()], raw)
    }

    pub(super) fn tensor(
        &mut self,
        name: &str,
        kind: i32,
        shape: &[usize],
        raw: Vec<u8>,
    ) -> String {
        self.graph
            .initializer
            .push(raw_tensor(name, kind, shape, raw));
        name.into()
    }

    /// Appends a node with one output, whose name it returns.
    pub(super) fn node(
        &mut self,
        op: &str,
        output: &str,
        inputs: &[&str],
        settings: Vec<Setting>,
    ) -> String {
        self.graph.node.push(NodeProto {
            input: inputs.iter().map(|input| (*input).into()).collect(),
            output: vec![output.into()],
            name: output.into(),
            op_type: op.into(),
            attribute: settings.into_iter().map(Setting::into_attribute).collect(),
            ..NodeProto::default()
        });
        output.into()
    }

    /// Returns the bytes of the ONNX file.
    pub(super) fn finish(mut self, name: &str) -> Vec<u8> {
        self.graph.name = name.into();
        let model = ModelProto {
            ir_version: IR_VERSION,
            producer_name: "mopqdb".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            opset_import: vec![OperatorSetId {
                domain: String::new(),
                version: OPSET,
            }],
            graph: Some(self.graph),
            ..ModelProto::default()
        };
        model.encode_to_vec()
    }
}

impl Setting {
    fn into_attribute(self) -> AttributeProto {
        let empty = AttributeProto::default();
        match self {
            Self::Float(name, f) => AttributeProto {
                name: name.into(),
                f: Some(f),
                kind: attribute::FLOAT,
                ..empty
            },
            Self::Int(name, i) => AttributeProto {
                name: name.into(),
                i: Some(i),
                kind: attribute::INT,
                ..empty
            },
            Self::Ints(name, ints) => AttributeProto {
                name: name.into(),
                ints,
                kind: attribute::INTS,
                ..empty
            },
        }
    }
}

/// Returns a tensor whose values are little-endian bytes.
pub(super) fn raw_tensor(name: &str, kind: i32, shape: &[usize], raw: Vec<u8>) -> TensorProto {
    TensorProto {
        dims: shape.iter().map(|dim| *dim as i64).collect(),
        data_type: kind,
        name: name.into(),
        raw_data: Some(raw),
        ..TensorProto::default()
    }
}

fn value_info(name: &str, kind: i32, shape: &[Dim]) -> ValueInfo {
    let dim = |dim: &Dim| match *dim {
        Dim::Fixed(size) => Dimension {
            value: Some(size as i64),
            ..Dimension::default()
        },
        Dim::Named(name) => Dimension {
            param: Some(name.into()),
            ..Dimension::default()
        },
    };
    let tensor = TensorType {
        element: kind,
        shape: Some(TensorShape {
            dim: shape.iter().map(dim).collect(),
        }),
    };
    ValueInfo {
        name: name.into(),
        kind: Some(TypeProto {
            tensor: Some(tensor),
            ..TypeProto::default()
        }),
        ..ValueInfo::default()
    }
}
