//! Inferring the spec of an exported graph: finds inputs and output by the names that exporters use.
//!
//! Used once, when a bundle is made. The result is printed and written into the bundle, and never inferred again.

use super::session::{GraphInfo, Port};
use crate::error::{Error, Result};
use crate::model::encoder::spec::{EncoderSpec, Inputs, Pooling};

/// Fills inputs, output and pooling of `spec` from the graph. `output` and `pooling` override the inferred values.
pub(super) fn infer(
    info: &GraphInfo,
    spec: &mut EncoderSpec,
    output: Option<&str>,
    pooling: Option<Pooling>,
) -> Result<()> {
    let input = |names: &[&str]| {
        let found = info
            .inputs
            .iter()
            .find(|port| names.contains(&port.name.as_str()));
        found.map(|port| port.name.clone())
    };
    let ids = input(&["input_ids", "ids", "tokens"]).ok_or_else(|| {
        Error::model(format!(
            "the graph has no input_ids; it takes {}: only encoders of token ids are supported",
            names(&info.inputs)
        ))
    })?;
    spec.inputs = Inputs {
        ids,
        mask: input(&["attention_mask", "mask", "input_mask"]),
        types: input(&["token_type_ids", "segment_ids"]),
    };
    let chosen = match output {
        Some(name) => info.outputs.iter().find(|port| port.name == name),
        // The model pools a sentence embedding itself, as it was trained.
        None => [
            "sentence_embedding",
            "last_hidden_state",
            "token_embeddings",
        ]
        .iter()
        .find_map(|name| info.outputs.iter().find(|port| port.name == *name))
        .or_else(|| info.outputs.first().filter(|_| info.outputs.len() == 1)),
    };
    let chosen = chosen.ok_or_else(|| {
        Error::model(format!(
            "which output should be used? The graph has {}; name one with --output",
            names(&info.outputs)
        ))
    })?;
    spec.output = chosen.name.clone();
    spec.pooling = match (pooling, chosen.shape.len()) {
        (Some(pooling), _) => pooling,
        (None, 2) => Pooling::None,
        (None, _) => Pooling::Mean,
    };
    Ok(())
}

fn names(ports: &[Port]) -> String {
    let name = |port: &Port| format!("{} ({} {:?})", port.name, port.element, port.shape);
    ports.iter().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, shape: &[i64]) -> Port {
        Port {
            name: name.into(),
            element: "f32".into(),
            shape: shape.to_vec(),
        }
    }

    fn inferred(
        inputs: &[&str],
        outputs: &[(&str, &[i64])],
        output: Option<&str>,
    ) -> Result<EncoderSpec> {
        let info = GraphInfo {
            inputs: inputs.iter().map(|name| port(name, &[-1, -1])).collect(),
            outputs: outputs
                .iter()
                .map(|(name, shape)| port(name, shape))
                .collect(),
        };
        let mut spec = EncoderSpec::bert(256);
        infer(&info, &mut spec, output, None).map(|()| spec)
    }

    #[test]
    fn common_exports_are_recognised() {
        let hidden: (&str, &[i64]) = ("last_hidden_state", &[-1, -1, 384]);
        let pooled: (&str, &[i64]) = ("sentence_embedding", &[-1, 384]);
        let spec = inferred(&["input_ids", "attention_mask"], &[hidden], None).unwrap();
        assert_eq!(
            (spec.output.as_str(), spec.pooling),
            ("last_hidden_state", Pooling::Mean)
        );
        assert_eq!(spec.inputs.types, None);
        let spec = inferred(
            &["input_ids", "attention_mask", "token_type_ids"],
            &[hidden, pooled],
            None,
        )
        .unwrap();
        assert_eq!(
            (spec.output.as_str(), spec.pooling),
            ("sentence_embedding", Pooling::None)
        );
        assert_eq!(spec.inputs.types.as_deref(), Some("token_type_ids"));
        let spec = inferred(
            &["input_ids"],
            &[("x", &[-1, 8]), ("y", &[-1, -1, 8])],
            Some("y"),
        )
        .unwrap();
        assert_eq!((spec.output.as_str(), spec.pooling), ("y", Pooling::Mean));
    }

    #[test]
    fn an_unsupported_graph_is_refused_with_the_names_that_it_has() {
        let error = inferred(&["pixel_values"], &[("x", &[-1, 8])], None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("pixel_values"), "{error}");
        let error = inferred(&["input_ids"], &[("x", &[-1, 8]), ("y", &[-1, 8])], None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("--output") && error.contains('y'), "{error}");
    }
}
