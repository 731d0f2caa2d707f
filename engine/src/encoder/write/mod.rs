//! Writing encoders as ONNX files, with no Python and no protoc: BERT-like ones from their weights, and tables of token
//! vectors.

mod bert;
mod graph;
mod proto;
mod table;
mod weights;

pub use bert::{BertConfig, write_bert};
pub use graph::Precision;
pub use table::write_token_vectors;
