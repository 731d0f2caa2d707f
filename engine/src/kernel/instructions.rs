//! Kernel selection: CPU features are detected once, and a [`Kernel`] value proves support.

#[cfg(target_arch = "x86_64")]
use super::avx2::{Avx2, Avx2Dots, Avx2Sums};
#[cfg(target_arch = "x86_64")]
use super::avx512::{Avx512, Avx512Dots, Avx512Sums, VnniDots};
#[cfg(target_arch = "x86_64")]
use super::avx512_nearest;
use super::block::{Entries, ROWS_PER_BLOCK};
use super::bytes::{MAX_BYTES_DIM, Queries, Rounded};
use super::columns::Columns;
use super::distance::Plain;
use super::filter::Filter;
use super::portable::Portable;
use super::rows::{Places, Rows, Value};
use super::survivors::Survivors;
use super::{adc, deficits, distance, dots, filter, float, portable, scalar, stream};
use crate::error::{Error, Result};
use crate::metric::Metric;
use std::fmt;
use std::sync::OnceLock;

/// An instruction set that this CPU was found to have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kernel(pub(super) Instructions);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Instructions {
    Scalar,
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Names of all kernels, whether or not this CPU runs them, slowest first.
const NAMES: [&str; 4] = ["scalar", "portable", "avx2", "avx512"];

impl Kernel {
    /// Returns the fastest kernel of this CPU, or the one that the environment variable `MOPQDB_KERNEL` names. Returns
    /// an error if it names no kernel, or one that this CPU can't run. Decided once per process.
    pub fn detect() -> Result<Self> {
        static DETECTED: OnceLock<Result<Kernel, String>> = OnceLock::new();
        DETECTED
            .get_or_init(|| match std::env::var("MOPQDB_KERNEL") {
                Ok(name) => Self::named(&name).map_err(|e| format!("MOPQDB_KERNEL: {e}")),
                Err(std::env::VarError::NotPresent) => Ok(Self::best()),
                Err(e) => Err(format!("MOPQDB_KERNEL: {e}")),
            })
            .clone()
            .map_err(Error::Invalid)
    }

    fn best() -> Self {
        *Self::available().last().expect("scalar is always there")
    }

    /// Returns the kernel of that name.
    pub fn named(name: &str) -> Result<Self> {
        let available = Self::available();
        if let Some(kernel) = available.iter().find(|k| k.name() == name) {
            return Ok(*kernel);
        }
        let names: Vec<_> = available.iter().map(Kernel::name).collect();
        Err(Error::invalid(if NAMES.contains(&name) {
            format!(
                "this CPU can't run the kernel {name:?}; it runs {}",
                names.join(", ")
            )
        } else {
            format!(
                "there is no kernel {name:?}; this CPU runs {}",
                names.join(", ")
            )
        }))
    }

    /// Returns every kernel that this CPU runs, slowest first.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut, reason = "other architectures have two")]
        let mut kernels = vec![Self(Instructions::Scalar), Self(Instructions::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            if avx2 {
                kernels.push(Self(Instructions::Avx2));
            }
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vbmi")
            {
                kernels.push(Self(Instructions::Avx512));
            }
        }
        kernels
    }

    /// Names of the kernels that this CPU can't run.
    pub fn unavailable() -> Vec<&'static str> {
        let available = Self::available();
        NAMES
            .into_iter()
            .filter(|name| available.iter().all(|k| k.name() != *name))
            .collect()
    }

    /// Returns its name, as `MOPQDB_KERNEL` takes it.
    pub fn name(&self) -> &'static str {
        match self.0 {
            Instructions::Scalar => "scalar",
            Instructions::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => "avx512",
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Compiles a loop, written once, for each set of x86-64 instructions, and calls the one that the kernel stands for.
macro_rules! by_level {
    ($kernel:expr, $scalar:path, $body:path, ($($arg:ident: $type:ty),*) $(-> $result:ty)?) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn avx2($($arg: $type),*) $(-> $result)? {
            $body($($arg),*)
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vbmi")]
        fn avx512($($arg: $type),*) $(-> $result)? {
            $body($($arg),*)
        }
        match $kernel.0 {
            Instructions::Scalar => $scalar($($arg),*),
            Instructions::Portable => $body($($arg),*),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a Kernel of these instructions exists only if the CPU was found to have these features.
            Instructions::Avx2 => unsafe { avx2($($arg),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Instructions::Avx512 => unsafe { avx512($($arg),*) },
        }
    }};
}

impl Kernel {
    /// `y = offsets + x V` for each row of `x`: (n, inputs) to (n, outputs).
    pub(crate) fn affine(self, columns: &Columns, x: &[f32], out: &mut [f32]) {
        assert!(
            x.len().is_multiple_of(columns.inputs)
                && out.len() == x.len() / columns.inputs * columns.outputs
        );
        by_level!(self, scalar::affine, float::affine, (columns: &Columns, x: &[f32], out: &mut [f32]))
    }

    /// `-|x - V_o|^2` for one input and every output.
    pub(crate) fn negative_distances(self, columns: &Columns, x: &[f32], out: &mut [f32]) {
        assert!(x.len() == columns.inputs && out.len() == columns.outputs);
        by_level!(self, scalar::negative_distances, float::negative_distances, (columns: &Columns, x: &[f32], out: &mut [f32]))
    }

    /// The best output of each subspace: rows (n, subspaces x inputs) to codes (n, subspaces). `Err` is the
    /// first row with a sum that is not finite.
    pub(crate) fn assign(
        self,
        subspaces: &[Columns],
        x: &[f32],
        out: &mut [u8],
    ) -> Result<(), usize> {
        let inputs = subspaces[0].inputs;
        let dim = subspaces.len() * inputs;
        assert!(x.len().is_multiple_of(dim) && out.len() == x.len() / dim * subspaces.len());
        assert!(
            subspaces
                .iter()
                .all(|c| c.inputs == inputs && c.outputs <= 256)
        );
        let plain = |row: usize, x: &[f32], codes: &mut [u8]| {
            for ((slice, code), columns) in x.chunks_exact(inputs).zip(codes).zip(subspaces) {
                *code = scalar::argmax(columns, slice).ok_or(row)?;
            }
            Ok::<(), usize>(())
        };
        if self.0 == Instructions::Scalar {
            for (row, (x, codes)) in x
                .chunks_exact(dim)
                .zip(out.chunks_exact_mut(subspaces.len()))
                .enumerate()
            {
                plain(row, x, codes)?;
            }
            return Ok(());
        }
        self.assign_finite(subspaces, x, out);
        let largest = self.largest_magnitude(x);
        if subspaces
            .iter()
            .all(|columns| columns.stays_finite(largest))
        {
            return Ok(());
        }
        for (row, (x, codes)) in x
            .chunks_exact(dim)
            .zip(out.chunks_exact_mut(subspaces.len()))
            .enumerate()
        {
            let finite = x
                .chunks_exact(inputs)
                .zip(subspaces)
                .all(|(slice, columns)| columns.stays_finite(self.largest_magnitude(slice)));
            if !finite {
                plain(row, x, codes)?;
            }
        }
        Ok(())
    }

    /// The largest magnitude of a value; not finite if one is not.
    pub(crate) fn largest_magnitude(self, x: &[f32]) -> f32 {
        by_level!(self, float::largest_magnitude, float::largest_magnitude, (x: &[f32]) -> f32)
    }

    fn assign_finite(self, subspaces: &[Columns], x: &[f32], out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vbmi")]
        fn avx512(subspaces: &[Columns], x: &[f32], out: &mut [u8]) {
            // SAFETY: this function is compiled for AVX-512.
            unsafe { avx512_nearest::assign(subspaces, x, out) }
        }
        #[cfg(target_arch = "x86_64")]
        if self.0 == Instructions::Avx512 {
            // SAFETY: a Kernel of these instructions exists only if the CPU was found to have these features.
            return unsafe { avx512(subspaces, x, out) };
        }
        by_level!(self, float::assign, float::assign, (subspaces: &[Columns], x: &[f32], out: &mut [u8]))
    }

    /// The best output for each of n rows (n, inputs), with its sum. Sums are finite: the caller has seen to it.
    pub(crate) fn nearest(self, columns: &Columns, x: &[f32], codes: &mut [u8], sums: &mut [f32]) {
        assert!(
            x.len() == codes.len() * columns.inputs
                && sums.len() == codes.len()
                && columns.outputs <= 256
        );
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vbmi")]
        fn avx512(columns: &Columns, x: &[f32], out: &mut [(u8, f32)]) {
            // SAFETY: this function is compiled for AVX-512.
            unsafe { avx512_nearest::each(columns, x, columns.inputs, out) }
        }
        #[cfg(target_arch = "x86_64")]
        if self.0 == Instructions::Avx512 {
            let mut found = vec![(0, 0.0); codes.len()];
            // SAFETY: a Kernel of these instructions exists only if the CPU was found to have these features.
            unsafe { avx512(columns, x, &mut found) };
            for (found, (code, sum)) in found.into_iter().zip(codes.iter_mut().zip(sums)) {
                (*code, *sum) = found;
            }
            return;
        }
        by_level!(self, float::nearest, float::nearest, (columns: &Columns, x: &[f32], codes: &mut [u8], sums: &mut [f32]))
    }

    /// Adds each row (n, inputs) to the sum of its code, (codes, inputs).
    pub(crate) fn accumulate(self, x: &[f32], inputs: usize, codes: &[u8], sums: &mut [f64]) {
        by_level!(self, float::accumulate, float::accumulate, (x: &[f32], inputs: usize, codes: &[u8], sums: &mut [f64]))
    }

    /// Computes the score of each row for each query: (queries, rows). The bits are those of the score of the widened
    /// row, wherever rows are and whatever else is scored; but see [`Rows::I8`].
    ///
    /// # Panics
    /// If a row has other than the queries' dimensions, or `out` is not as long as there are pairs.
    pub fn scores_of_rows(
        self,
        metric: Metric,
        queries: &Queries<'_>,
        rows: Rows<'_>,
        out: &mut [f32],
    ) {
        let count = rows.count(queries.dim);
        let count = count.expect("rows of the queries' dimensions, with their scales");
        assert!(out.len() == queries.count() * count);
        if out.is_empty() {
            return;
        }
        match rows {
            Rows::F32(values) => self.by_metric(metric, queries, values, &[], out),
            Rows::F16(values) => self.by_metric(metric, queries, values, &[], out),
            Rows::I8 { values, scales } if metric == Metric::L2 => {
                self.scores_of_pairs::<i8, true>(queries.values, queries.dim, values, scales, out);
            }
            Rows::I8 { values, scales } => {
                let (rounded, dim) = (queries.rounded(), queries.dim);
                self.scores_of_bytes(rounded, dim, values, scales, true, out);
            }
        }
    }

    /// Returns inner products of bytes, with VNNI only if `allowed`; tests compare both.
    pub(super) fn scores_of_bytes(
        self,
        queries: &Rounded,
        dim: usize,
        rows: Places<'_, i8>,
        scales: &[f32],
        #[cfg_attr(
            not(target_arch = "x86_64"),
            expect(unused_variables, reason = "VNNI is of x86-64")
        )]
        allowed: bool,
        out: &mut [f32],
    ) {
        assert!(dim <= MAX_BYTES_DIM, "sums of {dim} products may not fit");
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        fn avx2(
            queries: &Rounded,
            dim: usize,
            rows: Places<'_, i8>,
            scales: &[f32],
            out: &mut [f32],
        ) {
            // SAFETY: this function is compiled for AVX2.
            unsafe { dots::similarities::<Avx2Dots>(queries, dim, rows, scales, out) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl")]
        fn avx512(
            queries: &Rounded,
            dim: usize,
            rows: Places<'_, i8>,
            scales: &[f32],
            out: &mut [f32],
        ) {
            // SAFETY: this function is compiled for AVX-512 BW.
            unsafe { dots::similarities::<Avx512Dots>(queries, dim, rows, scales, out) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl,avx512vnni")]
        fn with_vnni(
            queries: &Rounded,
            dim: usize,
            rows: Places<'_, i8>,
            scales: &[f32],
            out: &mut [f32],
        ) {
            // SAFETY: this function is compiled for AVX-512 VNNI.
            unsafe { dots::similarities::<VnniDots>(queries, dim, rows, scales, out) }
        }
        match self.0 {
            // The compiler adds integers in any order.
            Instructions::Scalar | Instructions::Portable => {
                dots::plain(queries, dim, rows, scales, out);
            }
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a Kernel of these instructions exists only if the CPU was found to have these features.
            Instructions::Avx2 => unsafe { avx2(queries, dim, rows, scales, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above, and VNNI was found too.
            Instructions::Avx512 if allowed && is_x86_feature_detected!("avx512vnni") => unsafe {
                with_vnni(queries, dim, rows, scales, out);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Instructions::Avx512 => unsafe { avx512(queries, dim, rows, scales, out) },
        }
    }

    fn by_metric<V: Value>(
        self,
        metric: Metric,
        queries: &Queries<'_>,
        rows: Places<'_, V>,
        scales: &[f32],
        out: &mut [f32],
    ) {
        let Queries { values, dim, .. } = *queries;
        match metric {
            Metric::L2 => self.scores_of_pairs::<V, true>(values, dim, rows, scales, out),
            Metric::Ip | Metric::Cosine => {
                self.scores_of_pairs::<V, false>(values, dim, rows, scales, out)
            }
        }
    }

    fn scores_of_pairs<V: Value, const L2: bool>(
        self,
        queries: &[f32],
        dim: usize,
        rows: Places<'_, V>,
        scales: &[f32],
        out: &mut [f32],
    ) {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn avx2<V: Value, const L2: bool>(
            queries: &[f32],
            dim: usize,
            rows: Places<'_, V>,
            scales: &[f32],
            out: &mut [f32],
        ) {
            // SAFETY: this function is compiled for AVX2, FMA and F16C.
            unsafe { distance::similarities::<Avx2Sums, V, L2>(queries, dim, rows, scales, out) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vbmi")]
        fn avx512<V: Value, const L2: bool>(
            queries: &[f32],
            dim: usize,
            rows: Places<'_, V>,
            scales: &[f32],
            out: &mut [f32],
        ) {
            // SAFETY: this function is compiled for AVX-512.
            unsafe { distance::similarities::<Avx512Sums, V, L2>(queries, dim, rows, scales, out) }
        }
        match self.0 {
            Instructions::Scalar => distance::plain::<V, L2>(queries, dim, rows, scales, out),
            // SAFETY: plain sums need no features.
            Instructions::Portable => unsafe {
                distance::similarities::<Plain, V, L2>(queries, dim, rows, scales, out)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a Kernel of these instructions exists only if the CPU was found to have these features.
            Instructions::Avx2 => unsafe { avx2::<V, L2>(queries, dim, rows, scales, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Instructions::Avx512 => unsafe { avx512::<V, L2>(queries, dim, rows, scales, out) },
        }
    }

    /// The f32 score of each row of a block, which begins with what `out` holds of it.
    pub(crate) fn scores(self, table: Entries<'_>, block: &[u8], out: &mut [f32; ROWS_PER_BLOCK]) {
        assert_eq!(block.len(), table.block_bytes());
        match self.0 {
            Instructions::Scalar => scalar::scores(table, block, out),
            // Compiled for none of the larger instruction sets: it would become gathers, which take twice the time.
            _ => adc::scores(table, block, out),
        }
    }

    /// Returns the f32 score of one row of a block, which begins with `first`.
    #[inline]
    pub(crate) fn score(self, table: Entries<'_>, first: f32, block: &[u8], row: usize) -> f32 {
        adc::score(table, first, block, row)
    }

    /// Returns `true` if a first pass over some lines of a block pays off.
    pub(super) fn looks_twice(self) -> bool {
        match self.0 {
            Instructions::Scalar | Instructions::Portable => false,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => false,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => true,
        }
    }

    /// The rows of whole blocks that the filter can't drop, or, if it has two looks, that the first one can't.
    pub(crate) fn survivors(self, filter: &Filter, blocks: &[u8], out: &mut Survivors) {
        assert!(blocks.len().is_multiple_of(filter.block_bytes()));
        out.clear(blocks.len() / filter.block_bytes());
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn avx2(filter: &Filter, blocks: &[u8], out: &mut Survivors) {
            // SAFETY: this function is compiled for AVX2.
            unsafe { filter::survivors::<Avx2>(filter, blocks, out) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vbmi")]
        fn avx512(filter: &Filter, blocks: &[u8], out: &mut Survivors) {
            // SAFETY: this function is compiled for AVX-512 VBMI.
            unsafe { filter::survivors::<Avx512>(filter, blocks, out) }
        }
        match self.0 {
            // SAFETY: the portable lanes need no features.
            Instructions::Scalar | Instructions::Portable => unsafe {
                filter::survivors::<Portable>(filter, blocks, out)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a Kernel of these instructions exists only if the CPU was found to have these features.
            Instructions::Avx2 => unsafe { avx2(filter, blocks, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Instructions::Avx512 => unsafe { avx512(filter, blocks, out) },
        }
    }

    /// What a first look has listed, looked at again: the rows that the filter can't drop.
    pub(crate) fn look_again(self, filter: &Filter, blocks: &[u8], out: &mut Survivors) {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn avx2(filter: &Filter, blocks: &[u8], out: &mut Survivors) {
            // SAFETY: this function is compiled for AVX2.
            unsafe { filter::look_again::<Avx2>(filter, blocks, out) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vbmi")]
        fn avx512(filter: &Filter, blocks: &[u8], out: &mut Survivors) {
            // SAFETY: this function is compiled for AVX-512 VBMI.
            unsafe { filter::look_again::<Avx512>(filter, blocks, out) }
        }
        match self.0 {
            // SAFETY: the portable lanes need no features.
            Instructions::Scalar | Instructions::Portable => unsafe {
                filter::look_again::<Portable>(filter, blocks, out)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a Kernel of these instructions exists only if the CPU was found to have these features.
            Instructions::Avx2 => unsafe { avx2(filter, blocks, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Instructions::Avx512 => unsafe { avx512(filter, blocks, out) },
        }
    }

    /// Returns the largest entry, and the largest magnitude of one.
    pub(super) fn extent(self, entries: &[f32]) -> (f32, f32) {
        by_level!(self, deficits::extent, deficits::extent, (entries: &[f32]) -> (f32, f32))
    }

    /// `floor((top - entry) * inverse)` of each entry, at most 255. No entry is above the top.
    pub(super) fn deficits(self, entries: &[f32], top: f32, inverse: f64, out: &mut [u8]) {
        by_level!(self, deficits::deficits, deficits::deficits, (entries: &[f32], top: f32, inverse: f64, out: &mut [u8]))
    }

    /// The same in f32, each operation rounded; `top` less any entry is finite.
    pub(super) fn coarse_deficits(self, entries: &[f32], top: f32, inverse: f32, out: &mut [u8]) {
        by_level!(self, deficits::coarse, deficits::coarse, (entries: &[f32], top: f32, inverse: f32, out: &mut [u8]))
    }

    /// The least of each `size` neighbours, 2, 4, 8 or 16.
    pub(super) fn least(self, of: &[u8; 256], size: usize, out: &mut [u8; 256]) {
        by_level!(self, deficits::least, deficits::least, (of: &[u8; 256], size: usize, out: &mut [u8; 256]))
    }

    /// Returns the sum of all 64-bit words of as many whole 512 bytes as there are: reading memory and nothing else,
    /// which is what a scan is measured against.
    pub fn sum_of_words(self, bytes: &[u8]) -> u64 {
        by_level!(self, stream::sum_of_words, stream::sum_of_words, (bytes: &[u8]) -> u64)
    }

    /// Returns the costs of the parts of a scan on this kernel.
    pub(crate) fn costs(self) -> Costs {
        match self.0 {
            Instructions::Scalar => Costs::WITHOUT_FILTER,
            Instructions::Portable if !portable::FAST => Costs::WITHOUT_FILTER,
            Instructions::Portable => Costs {
                lookup: [20.0, 32.0, 52.0, 90.0, 170.0],
                ..Costs::WITHOUT_FILTER
            },
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => Costs {
                lookup: [6.0, 9.0, 13.0, 22.0, 38.0],
                ..Costs::WITHOUT_FILTER
            },
            // One permute for 128 entries, two for 256; nothing is gained by fewer.
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => Costs {
                lookup: [2.2, 2.2, 2.0, 2.0, 3.2],
                ..Costs::WITHOUT_FILTER
            },
        }
    }
}

/// The fewest bits of a code that the filter looks up.
const LOWEST_LEVEL: usize = 4;

/// Orders of magnitude in CPU cycles, for choosing between ways that give the same answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs {
    /// One subspace of 64 rows in the filter, by its level: from [`LOWEST_LEVEL`] on. Infinite: never.
    lookup: [f32; 5],
    /// One subspace of 64 rows in f32.
    pub(crate) sum: f32,
    /// A row that the filter let through, and each of its subspaces.
    pub(crate) survivor: (f32, f32),
}

impl Costs {
    const WITHOUT_FILTER: Self = Self {
        lookup: [f32::INFINITY; 5],
        sum: 64.0,
        survivor: (15.0, 2.0),
    };

    /// Returns the cost of one subspace of 64 rows in the filter at a level, and at each level
    /// above it.
    pub(crate) fn lookups_from(&self, level: u32) -> (f32, &[f32]) {
        let costs = &self.lookup[level as usize - LOWEST_LEVEL..];
        (costs[0], &costs[1..])
    }

    /// Returns the lowest cost of one subspace of 64 rows.
    pub(crate) fn least(&self) -> f32 {
        self.lookup.into_iter().fold(self.sum, f32::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_had_by_name_or_the_error_says_which_there_are() {
        for kernel in Kernel::available() {
            assert_eq!(Kernel::named(kernel.name()).unwrap(), kernel);
        }
        for name in Kernel::unavailable() {
            let error = Kernel::named(name).unwrap_err().to_string();
            assert!(
                error.contains("this CPU can't run") && error.contains("scalar"),
                "{error}"
            );
        }
        let error = Kernel::named("sse9").unwrap_err().to_string();
        assert!(
            error.contains("no kernel \"sse9\"") && error.contains("portable"),
            "{error}"
        );
    }
}
