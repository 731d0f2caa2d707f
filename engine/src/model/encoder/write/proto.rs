//! The messages of an ONNX file, with the field numbers of onnx.proto. Fields that are only passed through are kept as
//! bytes, so that reading and writing a model loses nothing.

/// A complete ONNX file.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ModelProto {
    #[prost(int64, tag = "1")]
    pub(crate) ir_version: i64,
    #[prost(string, tag = "2")]
    pub(crate) producer_name: String,
    #[prost(string, tag = "3")]
    pub(crate) producer_version: String,
    #[prost(string, tag = "4")]
    pub(crate) domain: String,
    #[prost(int64, tag = "5")]
    pub(crate) model_version: i64,
    #[prost(string, tag = "6")]
    pub(crate) doc_string: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) opset_import: Vec<OperatorSetId>,
    #[prost(bytes = "vec", repeated, tag = "14")]
    pub(crate) metadata_props: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "20")]
    pub(crate) training_info: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "25")]
    pub(crate) functions: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "26")]
    pub(crate) configuration: Vec<Vec<u8>>,
}

/// The operator set version that the nodes refer to.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OperatorSetId {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(int64, tag = "2")]
    pub(crate) version: i64,
}

/// Nodes in the order in which they can run, and the weights.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    pub(crate) node: Vec<NodeProto>,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) initializer: Vec<TensorProto>,
    #[prost(string, tag = "10")]
    pub(crate) doc_string: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) input: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub(crate) output: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "13")]
    pub(crate) value_info: Vec<ValueInfo>,
    #[prost(bytes = "vec", repeated, tag = "14")]
    pub(crate) quantization_annotation: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "15")]
    pub(crate) sparse_initializer: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "16")]
    pub(crate) metadata_props: Vec<Vec<u8>>,
}

/// One operation of the graph.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    pub(crate) input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) output: Vec<String>,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
    #[prost(string, tag = "4")]
    pub(crate) op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) attribute: Vec<AttributeProto>,
    #[prost(string, tag = "6")]
    pub(crate) doc_string: String,
    #[prost(string, tag = "7")]
    pub(crate) domain: String,
    #[prost(string, tag = "8")]
    pub(crate) overload: String,
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub(crate) metadata_props: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "10")]
    pub(crate) device_configurations: Vec<Vec<u8>>,
}

/// An attribute of a node.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AttributeProto {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(float, optional, tag = "2")]
    pub(crate) f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub(crate) i: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(crate) s: Option<Vec<u8>>,
    #[prost(message, optional, tag = "5")]
    pub(crate) t: Option<TensorProto>,
    #[prost(bytes = "vec", optional, tag = "6")]
    pub(crate) g: Option<Vec<u8>>,
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub(crate) floats: Vec<f32>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub(crate) ints: Vec<i64>,
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub(crate) strings: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "10")]
    pub(crate) tensors: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "11")]
    pub(crate) graphs: Vec<Vec<u8>>,
    #[prost(string, tag = "13")]
    pub(crate) doc_string: String,
    #[prost(bytes = "vec", optional, tag = "14")]
    pub(crate) tp: Option<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "15")]
    pub(crate) type_protos: Vec<Vec<u8>>,
    #[prost(int32, tag = "20")]
    pub(crate) kind: i32,
    #[prost(string, tag = "21")]
    pub(crate) ref_attr_name: String,
    #[prost(bytes = "vec", optional, tag = "22")]
    pub(crate) sparse_tensor: Option<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "23")]
    pub(crate) sparse_tensors: Vec<Vec<u8>>,
}

/// AttributeProto.AttributeType.
pub(crate) mod attribute {
    pub(crate) const FLOAT: i32 = 1;
    pub(crate) const INT: i32 = 2;
    pub(crate) const INTS: i32 = 7;
}

/// A tensor with its name, shape and values.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TensorProto {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub(crate) dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(crate) data_type: i32,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) segment: Option<Vec<u8>>,
    #[prost(float, repeated, tag = "4")]
    pub(crate) float_data: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    pub(crate) int32_data: Vec<i32>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub(crate) string_data: Vec<Vec<u8>>,
    #[prost(int64, repeated, tag = "7")]
    pub(crate) int64_data: Vec<i64>,
    #[prost(string, tag = "8")]
    pub(crate) name: String,
    #[prost(bytes = "vec", optional, tag = "9")]
    pub(crate) raw_data: Option<Vec<u8>>,
    #[prost(double, repeated, tag = "10")]
    pub(crate) double_data: Vec<f64>,
    #[prost(uint64, repeated, tag = "11")]
    pub(crate) uint64_data: Vec<u64>,
    #[prost(string, tag = "12")]
    pub(crate) doc_string: String,
    #[prost(bytes = "vec", repeated, tag = "13")]
    pub(crate) external_data: Vec<Vec<u8>>,
    #[prost(int32, tag = "14")]
    pub(crate) data_location: i32,
    #[prost(bytes = "vec", repeated, tag = "16")]
    pub(crate) metadata_props: Vec<Vec<u8>>,
}

/// TensorProto.DataType.
pub(crate) mod element {
    pub(crate) const FLOAT: i32 = 1;
    pub(crate) const UINT8: i32 = 2;
    pub(crate) const INT8: i32 = 3;
    pub(crate) const INT64: i32 = 7;
    pub(crate) const FLOAT16: i32 = 10;
}

/// The name and type of an input or output.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ValueInfo {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) kind: Option<TypeProto>,
    #[prost(string, tag = "3")]
    pub(crate) doc_string: String,
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub(crate) metadata_props: Vec<Vec<u8>>,
}

/// The type of a value. Only tensor types are decoded.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TypeProto {
    #[prost(message, optional, tag = "1")]
    pub(crate) tensor: Option<TensorType>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(crate) sequence: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "5")]
    pub(crate) map: Option<Vec<u8>>,
    #[prost(string, tag = "6")]
    pub(crate) denotation: String,
    #[prost(bytes = "vec", optional, tag = "8")]
    pub(crate) sparse_tensor: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "9")]
    pub(crate) optional: Option<Vec<u8>>,
}

/// Element type and shape.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TensorType {
    #[prost(int32, tag = "1")]
    pub(crate) element: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) shape: Option<TensorShape>,
}

/// The dimensions of a tensor.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TensorShape {
    #[prost(message, repeated, tag = "1")]
    pub(crate) dim: Vec<Dimension>,
}

/// A number, a name for a variable dimension, or neither.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Dimension {
    #[prost(int64, optional, tag = "1")]
    pub(crate) value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub(crate) param: Option<String>,
    #[prost(string, tag = "3")]
    pub(crate) denotation: String,
}
