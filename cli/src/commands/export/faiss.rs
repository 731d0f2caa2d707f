//! An index file of Faiss: `IxPT` (a chain of transforms) around `IxPq` (codes) or a flat index (whole vectors).
//!
//! Faiss has no page on its format; this is what its own reader takes (faiss/impl/index_read.cpp): a four-letter code,
//! then fields in order, little-endian, vectors with their length as u64 in front.

use super::for_each_batch;
use super::npy::KeysFile;
use crate::commands::same_encoder;
use anyhow::{Context, Result, bail};
use mopqdb::quantizer::{Activation, Bits, Quantizer, QueryMode};
use mopqdb::{Metric, Model, Snapshot};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

pub(super) fn write(snapshot: &Snapshot, model: &Model, dest: &Path) -> Result<u64> {
    same_encoder(snapshot, model)?;
    if let Some(quantizer) = model.quantizer() {
        expressible(quantizer)?;
    }
    let path = dest.join("index.faiss");
    let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    let mut out = Index {
        out: BufWriter::with_capacity(1 << 20, file),
        rows: snapshot.rows(),
        metric: model.metric(),
    };
    out.transforms(model).context("writing index.faiss")?;
    let mut keys = KeysFile::create(dest)?;
    let rows = match model.quantizer() {
        None => {
            out.flat(model.dim())?;
            for_each_batch(snapshot, |batch, vectors| {
                keys.write(batch)?;
                Ok(out.floats(vectors)?)
            })?
        }
        Some(quantizer) => {
            out.codes_front(quantizer)?;
            let rows = for_each_batch(snapshot, |batch, vectors| {
                keys.write(batch)?;
                Ok(out.codes(quantizer, &model.quantize(vectors)?)?)
            })?;
            // Search type: plain ADC; no signs; Faiss's own default of a threshold that plain ADC does not use.
            out.i32(0)?;
            out.bytes(&[0])?;
            out.i32(i32::try_from(
                nbits(quantizer) * quantizer.shape().subspaces() + 1,
            )?)?;
            rows
        }
    };
    assert_eq!(rows, snapshot.rows(), "a snapshot stays as it is");
    keys.finish()?;
    let file = out
        .out
        .into_inner()
        .map_err(|error| error.into_error())
        .context("writing index.faiss")?;
    file.sync_all().context("syncing index.faiss")?;
    Ok(rows)
}

/// Models that Faiss can't express are refused by name.
fn expressible(quantizer: &Quantizer) -> Result<()> {
    if quantizer.activation() != Activation::None {
        bail!(
            "the model has an activation (ELU) after its head, which Faiss can't express; export --format npy holds all of it"
        );
    }
    if let QueryMode::Soft { .. } = quantizer.query_mode() {
        bail!(
            "the model searches with a soft-quantized query (SPQ), which Faiss can't express; export --format npy holds all of it"
        );
    }
    Ok(())
}

/// Bits a code as Faiss packs them; codebooks are padded to as many codewords.
fn nbits(quantizer: &Quantizer) -> usize {
    match quantizer.shape().bits() {
        Bits::Four => 4,
        Bits::Eight => 8,
    }
}

struct Index {
    out: BufWriter<File>,
    rows: u64,
    metric: Metric,
}

impl Index {
    fn bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.out.write_all(bytes)
    }

    fn i32(&mut self, value: i32) -> std::io::Result<()> {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> std::io::Result<()> {
        self.bytes(&value.to_le_bytes())
    }

    fn floats(&mut self, values: &[f32]) -> std::io::Result<()> {
        for some in values.chunks(4096) {
            let bytes: Vec<u8> = some.iter().flat_map(|value| value.to_le_bytes()).collect();
            self.bytes(&bytes)?;
        }
        Ok(())
    }

    /// A vector with its length.
    fn vector(&mut self, values: &[f32]) -> std::io::Result<()> {
        self.u64(values.len() as u64)?;
        self.floats(values)
    }

    /// What every index begins with.
    fn header(&mut self, code: &[u8; 4], dim: usize) -> std::io::Result<()> {
        self.bytes(code)?;
        self.i32(dim as i32)?;
        self.u64(self.rows)?;
        // Two fields that Faiss no longer uses.
        self.u64(1 << 20)?;
        self.u64(1 << 20)?;
        // Trained.
        self.bytes(&[1])?;
        self.i32(match self.metric {
            Metric::Ip | Metric::Cosine => 0,
            Metric::L2 => 1,
        })
    }

    /// The chain that a query goes through: normalised for cosine, head, rotation.
    fn transforms(&mut self, model: &Model) -> std::io::Result<()> {
        let quantizer = model.quantizer();
        let head = quantizer.and_then(Quantizer::head);
        let rotation = quantizer.and_then(Quantizer::rotation);
        let normalised = self.metric == Metric::Cosine;
        let count =
            usize::from(normalised) + usize::from(head.is_some()) + usize::from(rotation.is_some());
        if count == 0 {
            return Ok(());
        }
        self.header(b"IxPT", model.dim())?;
        self.i32(count as i32)?;
        if normalised {
            self.bytes(b"VNrm")?;
            self.floats(&[2.0])?;
            self.transform_end(model.dim(), model.dim())?;
        }
        if let Some(head) = head {
            self.linear(
                head.weight(),
                head.bias().unwrap_or_default(),
                head.hidden(),
                head.dim(),
            )?;
        }
        if let Some(rotation) = rotation {
            // Ours is y = x R, Faiss's y = A x.
            let dim = quantizer.map_or(0, Quantizer::dim);
            let transposed: Vec<f32> = (0..dim * dim)
                .map(|n| rotation[n % dim * dim + n / dim])
                .collect();
            self.linear(&transposed, &[], dim, dim)?;
        }
        Ok(())
    }

    fn linear(
        &mut self,
        matrix: &[f32],
        bias: &[f32],
        d_in: usize,
        d_out: usize,
    ) -> std::io::Result<()> {
        self.bytes(b"LTra")?;
        self.bytes(&[u8::from(!bias.is_empty())])?;
        self.vector(matrix)?;
        self.vector(bias)?;
        self.transform_end(d_in, d_out)
    }

    fn transform_end(&mut self, d_in: usize, d_out: usize) -> std::io::Result<()> {
        self.i32(d_in as i32)?;
        self.i32(d_out as i32)?;
        self.bytes(&[1])
    }

    /// Whole vectors; they follow.
    fn flat(&mut self, dim: usize) -> std::io::Result<()> {
        let code = if self.metric == Metric::L2 {
            b"IxF2"
        } else {
            b"IxFI"
        };
        self.header(code, dim)?;
        self.u64(self.rows * dim as u64)
    }

    /// The codebooks, and how many bytes of codes follow.
    fn codes_front(&mut self, quantizer: &Quantizer) -> Result<()> {
        let (shape, nbits) = (quantizer.shape(), nbits(quantizer));
        self.header(b"IxPq", quantizer.dim())?;
        for field in [quantizer.dim(), shape.subspaces(), nbits] {
            self.u64(field as u64)?;
        }
        let (codewords, sub_dim) = (shape.codewords(), quantizer.codebook().sub_dim());
        let full = 1 << nbits;
        self.u64((shape.subspaces() * full * sub_dim) as u64)?;
        for subspace in 0..shape.subspaces() {
            self.floats(quantizer.codebook().subspace(subspace))?;
            // Codewords that no code names.
            self.floats(&vec![0.0; (full - codewords) * sub_dim])?;
        }
        Ok(self.u64(self.rows * (shape.subspaces() * nbits).div_ceil(8) as u64)?)
    }

    /// Codes (n, subspaces), packed as Faiss does: of two nibbles the first is the low one.
    fn codes(&mut self, quantizer: &Quantizer, codes: &[u8]) -> std::io::Result<()> {
        match quantizer.shape().bits() {
            Bits::Eight => self.bytes(codes),
            Bits::Four => {
                let mut packed = Vec::with_capacity(codes.len().div_ceil(2));
                for row in codes.chunks_exact(quantizer.shape().subspaces()) {
                    packed.extend(
                        row.chunks(2)
                            .map(|pair| pair[0] | pair.get(1).map_or(0, |high| high << 4)),
                    );
                }
                self.bytes(&packed)
            }
        }
    }
}
