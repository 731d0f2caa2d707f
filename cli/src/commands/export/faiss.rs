//! Writes a Faiss index file that gives the same answers as the database.

use super::for_each_batch;
use super::npy::KeysFile;
use crate::commands::same_encoder;
use anyhow::{Result, bail};
use mopqdb::quantizer::{Activation, Cells, Quantizer, QueryMode};
use mopqdb::{Metric, Model, Snapshot};
use mopqdb_formats::faiss::{Codebooks, Distance, Index, IndexWriter, Transform};
use std::path::Path;

pub(super) fn write(snapshot: &Snapshot, model: &Model, dest: &Path) -> Result<u64> {
    same_encoder(snapshot, model)?;
    if let Some(quantizer) = model.quantizer() {
        expressible(quantizer)?;
    }
    let transforms = transforms(model);
    let index = Index {
        rows: snapshot.rows(),
        dim: model.dim(),
        distance: match model.metric() {
            Metric::Ip | Metric::Cosine => Distance::InnerProduct,
            Metric::L2 => Distance::L2,
        },
        transforms: &transforms,
        codebooks: model.quantizer().map(codebooks),
    };
    let mut out = IndexWriter::create(&dest.join("index.faiss"), &index)?;
    let mut keys = KeysFile::create(dest)?;
    let rows = for_each_batch(snapshot, |batch, vectors| {
        keys.write(batch)?;
        match index.codebooks {
            None => out.write_vectors(vectors)?,
            Some(_) => out.write_codes(&model.quantize(vectors)?.codes)?,
        }
        Ok(())
    })?;
    keys.finish()?;
    out.finish()?;
    Ok(rows)
}

/// Refuses models that Faiss can't express, with the reason.
fn expressible(quantizer: &Quantizer) -> Result<()> {
    if quantizer.activation() != Activation::None {
        bail!(
            "the model has an activation (ELU) after its head, which Faiss can't express; `export --format npy` writes all of it"
        );
    }
    if quantizer.cells().is_some_and(Cells::is_residual) {
        bail!(
            "the model's codes are of the difference between a row and its cell, which this export does not write; train with --cells 0 and export that model, or use --format npy, which holds cells and codes"
        );
    }
    if let QueryMode::Soft { .. } = quantizer.query_mode() {
        bail!(
            "the model searches with a soft-quantized query (SPQ), which Faiss can't express; `export --format npy` writes all of it"
        );
    }
    Ok(())
}

/// Returns the transforms of a query: normalisation for cosine, head, rotation.
fn transforms(model: &Model) -> Vec<Transform<'_>> {
    let normalise = (model.metric() == Metric::Cosine).then_some(Transform::Normalise);
    let quantizer = model.quantizer();
    let head = quantizer
        .and_then(Quantizer::head)
        .map(|head| Transform::Linear {
            weight: head.weight(),
            bias: head.bias().unwrap_or_default(),
            outputs: head.dim(),
        });
    let rotation = quantizer.and_then(Quantizer::rotation);
    let rotation = rotation.map(Transform::Rotation);
    [normalise, head, rotation].into_iter().flatten().collect()
}

fn codebooks(quantizer: &Quantizer) -> Codebooks<'_> {
    Codebooks {
        subspaces: quantizer.shape().subspaces(),
        codewords: quantizer.shape().codewords(),
        values: quantizer.codebook().values(),
    }
}
