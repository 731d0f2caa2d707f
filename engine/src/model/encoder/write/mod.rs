//! Writing encoders as ONNX files, without Python or protoc: BERT-like models from their weights, and tables of token
//! vectors.

mod bert;
mod graph;
pub(crate) mod proto;
mod quantize;
mod table;
mod weights;

pub use bert::{BertConfig, write_bert};
pub use graph::Precision;
pub use quantize::quantize_graph;
pub use table::write_token_vectors;
