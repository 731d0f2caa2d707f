//! Inspecting an ONNX file before ONNX Runtime loads it: files with external weights are refused.
//!
//! A tensor may name a file that holds its data, by any path, and ONNX Runtime would open it. This walks the protobuf
//! messages in place, without building them, and only through the fields that can hold a tensor or a graph.

use crate::error::{Error, Result};

/// The maximum nesting of graphs in nodes (`If`, `Loop`); far above any exported encoder.
const MAX_DEPTH: usize = 32;

/// Returns an error if the file is not an ONNX model, or refers to external data.
pub fn inspect(model: &[u8]) -> Result<()> {
    let mut graphs = 0;
    // ModelProto
    for field in Fields(model) {
        match field? {
            (7, Value::Message(graph)) => {
                graphs += 1;
                walk_graph(graph, 0)?;
            }
            // TrainingInfoProto: initialization and algorithm are graphs.
            (20, Value::Message(training)) => walk_each(training, &[1, 2], 0, walk_graph)?,
            // FunctionProto: its nodes are field 7.
            (25, Value::Message(function)) => walk_each(function, &[7], 0, walk_node)?,
            _ => {}
        }
    }
    if graphs != 1 {
        return Err(broken("it contains no graph"));
    }
    Ok(())
}

type Walk = fn(&[u8], usize) -> Result<()>;

/// GraphProto: nodes 1, initializers 5, sparse initializers 15.
fn walk_graph(graph: &[u8], depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(broken("its graphs are nested too deeply"));
    }
    walk_each(graph, &[1], depth, walk_node)?;
    walk_each(graph, &[5], depth, walk_tensor)?;
    walk_each(graph, &[15], depth, walk_sparse)
}

/// NodeProto: attributes 5.
fn walk_node(node: &[u8], depth: usize) -> Result<()> {
    walk_each(node, &[5], depth, walk_attribute)
}

/// AttributeProto: tensor 5, graph 6, tensors 10, graphs 11, sparse tensor 22, sparse tensors 23.
fn walk_attribute(attribute: &[u8], depth: usize) -> Result<()> {
    walk_each(attribute, &[5, 10], depth, walk_tensor)?;
    walk_each(attribute, &[6, 11], depth + 1, walk_graph)?;
    walk_each(attribute, &[22, 23], depth, walk_sparse)
}

/// SparseTensorProto: values 1, indices 2.
fn walk_sparse(sparse: &[u8], depth: usize) -> Result<()> {
    walk_each(sparse, &[1, 2], depth, walk_tensor)
}

/// TensorProto: external_data 13, data_location 14 (1 = external).
fn walk_tensor(tensor: &[u8], _depth: usize) -> Result<()> {
    for field in Fields(tensor) {
        if matches!(field?, (13, _) | (14, Value::Number(1..))) {
            return Err(Error::model(
                "the ONNX file keeps weights in another file, which is not supported: save the model with its weights inside \
                 (onnx.save(model, path, save_as_external_data=False))",
            ));
        }
    }
    Ok(())
}

/// Walks every message in one of `fields`. If a field with such a number is not a message, that is an error.
fn walk_each(message: &[u8], fields: &[u64], depth: usize, walk: Walk) -> Result<()> {
    for field in Fields(message) {
        let (number, value) = field?;
        if fields.contains(&number) {
            match value {
                Value::Message(inner) => walk(inner, depth)?,
                Value::Number(_) => return Err(broken("a field has the wrong type")),
            }
        }
    }
    Ok(())
}

fn broken(why: &str) -> Error {
    Error::model(format!("this is not a readable ONNX model: {why}"))
}

/// The value of a field, as far as it is needed here.
enum Value<'a> {
    Number(u64),
    Message(&'a [u8]),
}

/// The fields of a message, in order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            if shift == 63 && byte > 1 {
                return None;
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn bytes(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.bytes(8).map(|_| Value::Number(0))?,
            2 => {
                let len = self.varint()?;
                Value::Message(self.bytes(len)?)
            }
            5 => self.bytes(4).map(|_| Value::Number(0))?,
            _ => return None,
        };
        (key >> 3 != 0).then_some((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| broken("its fields run past its end")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a field that holds a message.
    fn message(number: u8, inner: &[u8]) -> Vec<u8> {
        assert!(inner.len() < 128 * 128);
        let len = [inner.len() as u8 & 0x7f | 0x80, (inner.len() >> 7) as u8];
        [&[(number << 3) & 0x7f | 0x82, number >> 4], &len[..], inner].concat()
    }

    fn refused_for_elsewhere(model: &[u8]) -> bool {
        matches!(inspect(model), Err(Error::Model(what)) if what.to_string().contains("another file"))
    }

    #[test]
    fn external_data_is_refused_at_every_place() {
        let by_location = vec![14 << 3, 1];
        let by_entry = message(13, b"\x0a\x08location\x12\x0b/etc/passwd");
        for tensor in [by_location, by_entry] {
            let initializer = message(5, &tensor);
            assert!(refused_for_elsewhere(&message(7, &initializer)));
            let sparse = message(15, &message(1, &tensor));
            assert!(refused_for_elsewhere(&message(7, &sparse)));
            let constant = message(1, &message(5, &message(5, &tensor)));
            assert!(refused_for_elsewhere(&message(7, &constant)));
            let inner_graph = message(1, &message(5, &message(6, &initializer)));
            assert!(refused_for_elsewhere(&message(7, &inner_graph)));
            let function = [
                message(7, &[]),
                message(25, &message(7, &message(5, &message(5, &tensor)))),
            ]
            .concat();
            assert!(refused_for_elsewhere(&function));
            let training = [message(7, &[]), message(20, &message(2, &initializer))].concat();
            assert!(refused_for_elsewhere(&training));
        }
        inspect(&message(7, &message(5, &[14 << 3, 0]))).expect("data inside the file is accepted");
    }

    #[test]
    fn bytes_that_are_not_a_model_are_refused() {
        for bytes in [
            &b""[..],
            b"hello world",
            &[0xff; 40],
            &[0x3a, 0x7f],
            &[0x3a, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert!(inspect(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn deeply_nested_graphs_are_refused() {
        let mut graph = Vec::new();
        for _ in 0..200 {
            graph = message(1, &message(5, &message(6, &graph)));
        }
        assert!(inspect(&message(7, &graph)).is_err());
    }

    #[test]
    fn a_cut_or_flipped_model_never_panics() {
        let tensor = message(9, &[1, 2, 3, 4]);
        let model = message(
            7,
            &[
                message(5, &tensor),
                message(1, &message(5, &message(5, &tensor))),
            ]
            .concat(),
        );
        inspect(&model).unwrap();
        for len in 0..model.len() {
            assert!(inspect(&model[..len]).is_err(), "cut to {len}");
        }
        for bit in 0..model.len() * 8 {
            let mut flipped = model.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = inspect(&flipped);
        }
    }
}
