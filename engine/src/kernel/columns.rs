//! A matrix in the order in which the float kernels read it: lanes run over its outputs.

/// Outputs that one step of a float kernel works on: two AVX2 registers, one of AVX-512.
pub(crate) const LANES: usize = 16;

/// The matrix of `y_o = offset_o + sum_d x_d V_do`, with outputs padded to a multiple of [`LANES`].
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// (inputs, padded outputs), zeros in the padding
    pub(super) values: Vec<f32>,
    /// (padded outputs), zeros in the padding
    pub(super) offsets: Vec<f32>,
    /// Largest sum of magnitudes of an output's values, and largest magnitude of an offset.
    pub(super) largest: (f32, f32),
}

impl Columns {
    /// From a matrix (outputs, inputs), as codewords and torch's weights are kept.
    pub(crate) fn from_rows(inputs: usize, rows: &[f32], offsets: Option<&[f32]>) -> Self {
        let outputs = rows.len() / inputs;
        let stride = outputs.next_multiple_of(LANES);
        let mut values = vec![0.0; inputs * stride];
        for (o, row) in rows.chunks_exact(inputs).enumerate() {
            for (d, &value) in row.iter().enumerate() {
                values[d * stride + o] = value;
            }
        }
        Self::new(inputs, outputs, values, offsets)
    }

    /// From a matrix (inputs, outputs), as a rotation `y = x R` is kept.
    pub(crate) fn from_columns(inputs: usize, outputs: usize, matrix: &[f32]) -> Self {
        let stride = outputs.next_multiple_of(LANES);
        let mut values = vec![0.0; inputs * stride];
        for (padded, row) in values
            .chunks_exact_mut(stride)
            .zip(matrix.chunks_exact(outputs))
        {
            padded[..outputs].copy_from_slice(row);
        }
        Self::new(inputs, outputs, values, None)
    }

    fn new(inputs: usize, outputs: usize, values: Vec<f32>, given: Option<&[f32]>) -> Self {
        let stride = outputs.next_multiple_of(LANES);
        let mut offsets = vec![0.0; stride];
        if let Some(given) = given {
            offsets[..outputs].copy_from_slice(given);
        }
        let mut sums = vec![0.0f32; stride];
        for row in values.chunks_exact(stride) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += value.abs();
            }
        }
        let largest = |of: &[f32]| of.iter().fold(0.0, |max: f32, v| max.max(v.abs()));
        let largest = (largest(&sums), largest(&offsets));
        Self {
            inputs,
            outputs,
            values,
            offsets,
            largest,
        }
    }

    /// Outputs with their padding.
    pub(super) fn stride(&self) -> usize {
        self.offsets.len()
    }

    /// Whether no partial sum can overflow for this input: each is at most the sum of magnitudes, with a
    /// rounding of at most (1 + 2^-24)^inputs, for which the distance from 1e38 to f32::MAX = 3.4e38 has room.
    pub(super) fn stays_finite(&self, x: &[f32]) -> bool {
        let max = x.iter().fold(0.0, |max: f32, v| max.max(v.abs()));
        self.inputs < 1 << 20 && max * self.largest.0 + self.largest.1 < 1e38
    }
}
