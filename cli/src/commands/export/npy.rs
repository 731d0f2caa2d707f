//! Vectors, codes and codebooks as numpy arrays.

use super::for_each_batch;
use crate::out::escape;
use anyhow::{Context, Result};
use mopqdb::{Model, Snapshot};
use mopqdb_formats::vectors::{Element, NpyWriter};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

pub(super) fn write(snapshot: &Snapshot, model: &Model, dest: &Path) -> Result<u64> {
    super::super::same_encoder(snapshot, model)?;
    let mut vectors = NpyWriter::create(&dest.join("vectors.npy"), Element::F32, &[model.dim()])?;
    let (mut codes, mut row_cells) = (None, None);
    if let Some(quantizer) = model.quantizer() {
        let shape = quantizer.shape();
        codes = Some(NpyWriter::create(
            &dest.join("codes.npy"),
            Element::U8,
            &[shape.subspaces()],
        )?);
        array(
            dest,
            "codebooks",
            &[shape.codewords(), quantizer.codebook().sub_dim()],
            quantizer.codebook().values(),
        )?;
        if let Some(head) = quantizer.head() {
            array(dest, "head_weight", &[head.hidden()], head.weight())?;
            if let Some(bias) = head.bias() {
                array(dest, "head_bias", &[], bias)?;
            }
        }
        if let Some(rotation) = quantizer.rotation() {
            array(dest, "rotation", &[quantizer.dim()], rotation)?;
        }
        if let Some(cells) = quantizer.cells() {
            array(dest, "cells", &[cells.dim()], cells.centroids())?;
            let path = dest.join("row_cells.npy");
            row_cells = Some(NpyWriter::create(&path, Element::U32, &[])?);
        }
    }
    let mut keys = KeysFile::create(dest)?;
    let rows = for_each_batch(snapshot, |batch, values| {
        keys.write(batch)?;
        vectors.write_f32(values)?;
        if let Some(codes) = &mut codes {
            let quantized = model.quantize(values)?;
            codes.write_u8(&quantized.codes)?;
            if let Some(row_cells) = &mut row_cells {
                row_cells.write_u32(&quantized.cells)?;
            }
        }
        Ok(())
    })?;
    keys.finish()?;
    vectors.finish()?;
    for array in [codes, row_cells].into_iter().flatten() {
        array.finish()?;
    }
    Ok(rows)
}

fn array(dest: &Path, name: &str, row_shape: &[usize], values: &[f32]) -> Result<()> {
    let mut writer = NpyWriter::create(&dest.join(format!("{name}.npy")), Element::F32, row_shape)?;
    writer.write_f32(values)?;
    writer.finish()?;
    Ok(())
}

/// keys.txt: line n is the key of row n.
pub(super) struct KeysFile {
    out: BufWriter<File>,
}

impl KeysFile {
    pub(super) fn create(dest: &Path) -> Result<Self> {
        let path = dest.join("keys.txt");
        let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self {
            out: BufWriter::with_capacity(1 << 20, file),
        })
    }

    pub(super) fn write(&mut self, keys: &[String]) -> Result<()> {
        for key in keys {
            writeln!(self.out, "{}", escape(key)).context("writing keys.txt")?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<()> {
        let file = self
            .out
            .into_inner()
            .map_err(|error| error.into_error())
            .context("writing keys.txt")?;
        file.sync_all().context("syncing keys.txt")
    }
}
