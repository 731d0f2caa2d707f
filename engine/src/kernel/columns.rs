//! A matrix in the order in which the float kernels read it: lanes run over its outputs.

/// Outputs that one step of a float kernel works on: two AVX2 registers, one of AVX-512.
pub(crate) const LANES: usize = 16;

/// The matrix of `y_o = offset_o + sum_d x_d V_do`, with outputs padded to a multiple of [`LANES`].
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// (outputs / LANES, inputs, LANES), zeros in the padding
    pub(super) values: Vec<[f32; LANES]>,
    /// (outputs / LANES, LANES), -infinity in the padding, so that it is never the largest
    pub(super) offsets: Vec<[f32; LANES]>,
    /// Largest sum of magnitudes of an output's values, and largest magnitude of an offset.
    pub(super) largest: (f32, f32),
}

impl Columns {
    /// From a matrix (outputs, inputs), as codewords and torch's weights are kept.
    pub(crate) fn from_rows(inputs: usize, rows: &[f32], offsets: Option<&[f32]>) -> Self {
        Self::new(inputs, rows.len() / inputs, offsets, |d, o| {
            rows[o * inputs + d]
        })
    }

    /// From a matrix (inputs, outputs), as a rotation `y = x R` is kept.
    pub(crate) fn from_columns(inputs: usize, outputs: usize, matrix: &[f32]) -> Self {
        Self::new(inputs, outputs, None, |d, o| matrix[d * outputs + o])
    }

    fn new(
        inputs: usize,
        outputs: usize,
        given: Option<&[f32]>,
        value: impl Fn(usize, usize) -> f32,
    ) -> Self {
        let tiles = outputs.div_ceil(LANES);
        let mut values = vec![[0.0; LANES]; tiles * inputs];
        let mut offsets = vec![[f32::NEG_INFINITY; LANES]; tiles];
        let mut largest = (0.0f32, 0.0f32);
        for o in 0..outputs {
            let (tile, lane) = (o / LANES, o % LANES);
            let mut sum = 0.0;
            for d in 0..inputs {
                let value = value(d, o);
                values[tile * inputs + d][lane] = value;
                sum += value.abs();
            }
            offsets[tile][lane] = given.map_or(0.0, |given| given[o]);
            largest = (largest.0.max(sum), largest.1.max(offsets[tile][lane].abs()));
        }
        Self {
            inputs,
            outputs,
            values,
            offsets,
            largest,
        }
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// `V_do`
    pub(super) fn value(&self, d: usize, output: usize) -> f32 {
        self.values[output / LANES * self.inputs + d][output % LANES]
    }

    pub(super) fn offset(&self, output: usize) -> f32 {
        self.offsets[output / LANES][output % LANES]
    }

    /// Offsets and values of each LANES outputs.
    #[inline(always)]
    pub(super) fn tiles(&self) -> impl Iterator<Item = (&[f32; LANES], &[[f32; LANES]])> {
        self.offsets
            .iter()
            .zip(self.values.chunks_exact(self.inputs))
    }

    /// Returns `true` if no partial sum can overflow for inputs of at most this magnitude: each is at most the sum of
    /// magnitudes, with a rounding of at most (1 + 2^-24)^inputs, for which the distance from 1e38 to f32::MAX = 3.4e38
    /// has room.
    pub(crate) fn stays_finite(&self, largest: f32) -> bool {
        self.inputs < 1 << 20 && largest * self.largest.0 + self.largest.1 < 1e38
    }
}
