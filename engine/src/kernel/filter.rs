//! The certified filter: integer sums that tell which rows can't reach a score.
//!
//! # The bound
//! Let `T_m(c)` be the f32 entries of a query, `top_m = max_c T_m(c)`, and `t` the score that a row must reach.
//! A row with codes `c_m` has the exact sum `S = sum top_m - sum (top_m - T_m(c_m))`. Its f32 score, summed in
//! order from 0, differs from S by at most `e = g A` with `A = sum max_c |T_m(c)|` and `g = M 2^-24 / (1 - M 2^-24)`
//! (the usual bound; M >= additions that round, and additions of f32 don't underflow). So it is below `t`
//! whenever
//! ```text
//! sum (top_m - T_m(c_m)) > R,   R = sum top_m - t + e.
//! ```
//! With `d = R / 254` and deficits `D_m(c) = min(255, floor((top_m - T_m(c)) / d))`, each at most the true quotient,
//! ```text
//! sum D_m(c_m) >= 255   implies   sum (top_m - T_m(c_m)) >= 255 d > R.
//! ```
//! A sum of bytes that saturates at 255 thus drops a row exactly when it reaches 255; no wider sums are needed.
//! R and the quotients are computed in f64 with relative errors of some 2^-50, for which `d` has a margin of
//! 1/254, and quotients are scaled by 1 - 2^-40 so that `floor` never rounds up over an integer; `e` is doubled
//! to cover the f64 error of `sum top_m - t` (at most (M + 2) 2^-53 of magnitudes that `e` counts 2^-24 of).
//!
//! For ordinary numbers the quotients are computed in f32, which takes a third of the time: subtraction, product and the
//! rounding of `1 / d` each add at most 2^-24 of the quotient (a difference of f32 does not underflow, and a product that
//! does is far below 1), for which they are scaled by 1 - 2^-20.
//!
//! # Cells
//! Where codes are of the difference between a row and its cell, the score of the cell is one more entry of the sum, which all
//! rows of a cell share: its deficit is not looked up but is where their sums of bytes begin, and the tables are the same for
//! all cells. Blocks whose rows are of several cells begin at the deficit of the best of these.
//!
//! # Levels
//! A deficit table with fewer entries is cheaper to look up where registers are small: at level `b` codes are
//! looked up by their upper `b` bits, in a table of the least deficit of each group, which keeps the bound. The
//! scan chooses the level whose lookups and survivors together cost least, by what it measures.

use super::block::{Bits, Entries, ROWS_PER_BLOCK};
use super::instructions::Kernel;
use super::lanes::Lanes;
use super::looks;
use super::stream::{ask_ahead, touch};
use super::survivors::Survivors;

/// The result of aiming a filter at a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No row can reach the score.
    Nothing,
    /// The filter cannot exclude any row.
    Everything,
    /// Some rows may reach the score.
    Some,
}

/// A deficit for each code, or for each group of codes; on lines of its own, so that no load reads two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct Table(pub(super) [u8; 256]);

/// Deficit tables for one query, aimed at a score.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    kernel: Kernel,
    bits: Bits,
    subspaces: usize,
    /// Bits of a code that are used: codes are below `2^width`.
    width: u32,
    tops: Vec<f32>,
    sum_of_tops: f64,
    /// `A`, and twice `e`.
    magnitudes: f64,
    error: f64,
    /// `R` of the last aim.
    range: f64,
    /// (subspaces, 256): the deficits of each code
    exact: Vec<Table>,
    /// (subspaces, 256): the least deficit of each group of codes, at `level`
    grouped: Vec<Table>,
    level: u32,
    /// Lines of a block that the first look reads, if there are two looks.
    first: Option<usize>,
    /// Where sums begin: the deficit that all rows of the blocks have at least besides their codes'.
    start: u8,
    /// `1 / d` of the last aim, and the highest score of a cell.
    inverse: f64,
    top_cell: f32,
    /// How much each subspace tells rows apart: the sum of some of its deficits.
    weights: Vec<u32>,
}

impl Filter {
    /// For a table whose codes are below `codewords`. `cells`: the highest score of a cell, to which the entries of the table are
    /// added, and the largest magnitude of one; none if rows' scores begin at 0.
    pub(crate) fn new(
        kernel: Kernel,
        table: Entries<'_>,
        codewords: usize,
        cells: Option<(f32, f32)>,
    ) -> Self {
        let subspaces = table.subspaces();
        let (top_cell, magnitude) = cells.unwrap_or_default();
        let mut tops = Vec::with_capacity(subspaces);
        let (mut sum_of_tops, mut magnitudes) = (f64::from(top_cell), f64::from(magnitude));
        for m in 0..subspaces {
            let (top, magnitude) = kernel.extent(&table.subspace(m)[..codewords]);
            tops.push(top);
            sum_of_tops += f64::from(top);
            magnitudes += f64::from(magnitude);
        }
        let additions = subspaces + usize::from(cells.is_some());
        let rounding = additions as f64 * f64::from(f32::EPSILON) / 2.0;
        let width = usize::BITS - (codewords - 1).leading_zeros();
        // Four-bit codes come two subspaces to a byte: an odd last one has a neighbour without deficits.
        let tables = match table.bits {
            Bits::Four => subspaces.next_multiple_of(2),
            Bits::Eight => subspaces,
        };
        Self {
            kernel,
            bits: table.bits,
            subspaces,
            width: width.max(4),
            tops,
            sum_of_tops,
            magnitudes,
            error: 2.0 * magnitudes * rounding / (1.0 - rounding),
            range: f64::INFINITY,
            exact: vec![Table([0; 256]); tables],
            grouped: Vec::new(),
            level: width.max(4),
            first: None,
            start: 0,
            inverse: 0.0,
            top_cell,
            weights: vec![0; subspaces],
        }
    }

    /// Sets the least score of a cell that the rows of the next blocks begin with, one of those that the filter was made for. Returns
    /// whether any of them can reach the score that the filter is aimed at.
    pub(crate) fn enter(&mut self, cell: f32) -> bool {
        let deficit = (f64::from(self.top_cell) - f64::from(cell)) * self.inverse;
        // As the deficit of a code: at most the true quotient.
        self.start = deficit as u8;
        self.start < 255
    }

    /// `R` for a score, relative to the one that the tables were made for: below 1 they could be sharper.
    pub(crate) fn sharpness(&self, score: f32) -> f64 {
        (self.sum_of_tops - f64::from(score) + self.error) / self.range
    }

    /// Makes the tables for rows that must reach `score`.
    pub(crate) fn aim(&mut self, table: Entries<'_>, codewords: usize, score: f32) -> Verdict {
        let range = self.sum_of_tops - f64::from(score) + self.error;
        self.range = range;
        if range < 0.0 {
            return Verdict::Nothing;
        }
        if range == f64::INFINITY {
            return Verdict::Everything;
        }
        // A range of 0 still drops whatever has a deficit: the least d makes it 255.
        let inverse = 254.0 / range.max(1e-280) * (1.0 - (-40f64).exp2());
        self.inverse = inverse;
        let coarse = self.coarse(inverse);
        for (m, deficits) in self.exact[..self.subspaces].iter_mut().enumerate() {
            let (used, unused) = deficits.0.split_at_mut(codewords);
            let entries = &table.subspace(m)[..codewords];
            match coarse {
                Some(inverse) => self
                    .kernel
                    .coarse_deficits(entries, self.tops[m], inverse, used),
                None => self.kernel.deficits(entries, self.tops[m], inverse, used),
            }
            let some = used.iter().step_by(4);
            self.weights[m] = some.map(|&deficit| u32::from(deficit)).sum();
            unused.fill(255);
        }
        self.group();
        Verdict::Some
    }

    /// The inverse by which quotients may be computed in f32, with room for their rounding; none where something could
    /// overflow or vanish.
    fn coarse(&self, inverse: f64) -> Option<f32> {
        let ordinary = self.magnitudes < 1e37 && (1e-30..1e30).contains(&inverse);
        ordinary.then_some((inverse * (1.0 - (-20f64).exp2())) as f32)
    }

    /// Returns the possible levels, the cheapest first; the last one is exact.
    pub(crate) fn levels(&self) -> std::ops::RangeInclusive<u32> {
        match self.width {
            7 | 8 => 4..=self.width,
            // Few enough entries as it is.
            width => width..=width,
        }
    }

    pub(crate) fn level(&self) -> u32 {
        self.level
    }

    /// Looks codes up by their upper `level` bits, one of `levels`, from now on.
    pub(crate) fn set_level(&mut self, level: u32) {
        assert!(self.levels().contains(&level), "one of the levels");
        self.level = level;
        self.first = None;
        self.group();
    }

    /// Returns how many lines of a block a first look may read, the fewest first; none where two looks are not
    /// worth while.
    pub(crate) fn looks(&self) -> &'static [usize] {
        match self.kernel.looks_twice() {
            true => self.possible_looks(),
            false => &[],
        }
    }

    pub(super) fn possible_looks(&self) -> &'static [usize] {
        match self.bits {
            Bits::Eight if self.level >= 7 => looks::choices(self.subspaces),
            _ => &[],
        }
    }

    /// Sets the number of lines that the first pass reads; survivors need a [second pass](Kernel::look_again). `None`:
    /// a single pass.
    pub(crate) fn set_first_look(&mut self, lines: Option<usize>) {
        assert!(lines.is_none_or(|lines| self.possible_looks().contains(&lines)));
        self.first = lines;
    }

    /// Lines that the first look reads, if there are two looks.
    pub(crate) fn first_look(&self) -> Option<usize> {
        self.first
    }

    fn group(&mut self) {
        if self.level == self.width {
            self.grouped.clear();
            return;
        }
        let size = 1 << (self.width - self.level);
        self.grouped.resize(self.exact.len(), Table([0; 256]));
        for (groups, exact) in self.grouped.iter_mut().zip(&self.exact) {
            self.kernel.least(&exact.0, size, &mut groups.0);
        }
    }

    pub(super) fn tables(&self) -> &[Table] {
        if self.level == self.width {
            &self.exact
        } else {
            &self.grouped
        }
    }

    pub(super) fn block_bytes(&self) -> usize {
        ROWS_PER_BLOCK
            * match self.bits {
                Bits::Four => self.subspaces.div_ceil(2),
                Bits::Eight => self.subspaces,
            }
    }
}

/// The rows of whole blocks that the filter can't drop, or that its first look can't.
///
/// Codes are read in the order in which they lie in memory, or in two such streams, whatever the order of the lookups:
/// CPUs fetch ahead what is read in order, and a scan that strides gets half of the memory's bandwidth or less, with or
/// without prefetches of its own. In order, prefetches that go further than the CPU's own help beyond L3 (`stream`).
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
pub(super) unsafe fn survivors<V: Lanes>(filter: &Filter, blocks: &[u8], out: &mut Survivors) {
    // SAFETY: the caller's promise is ours. Constants let the compiler lay each level out on its own.
    unsafe {
        match (filter.bits, filter.width, filter.level) {
            (Bits::Four, _, _) => four_bit::<V>(filter, blocks, out),
            (_, 8, 4) => eight_bit::<V, 4, 4, 4>(filter, blocks, out),
            (_, 8, 5) => eight_bit::<V, 5, 3, 2>(filter, blocks, out),
            (_, 8, 6) => eight_bit::<V, 6, 2, 2>(filter, blocks, out),
            (_, 8, 7) => seven_or_eight::<V, 7, 1>(filter, blocks, out),
            (_, 8, _) if V::LARGE_TABLES => seven_or_eight::<V, 8, 0>(filter, blocks, out),
            (_, 8, _) => each::<V, 8, 0>(filter, blocks, 0, out),
            (_, 7, 4) => eight_bit::<V, 4, 3, 4>(filter, blocks, out),
            (_, 7, 5) => eight_bit::<V, 5, 2, 2>(filter, blocks, out),
            (_, 7, 6) => eight_bit::<V, 6, 1, 2>(filter, blocks, out),
            (_, 7, _) => seven_or_eight::<V, 7, 0>(filter, blocks, out),
            (_, 6, _) => eight_bit::<V, 6, 0, 2>(filter, blocks, out),
            (_, _, _) => eight_bit::<V, 5, 0, 2>(filter, blocks, out),
        }
    }
}

/// Leaves of the blocks that a first look has listed the rows that all lines can't drop.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
pub(super) unsafe fn look_again<V: Lanes>(filter: &Filter, blocks: &[u8], out: &mut Survivors) {
    // SAFETY: the caller's promise is ours.
    unsafe {
        match (filter.width, filter.level) {
            (8, 7) => listed::<V, 7, 1>(filter, blocks, out),
            (7, _) => listed::<V, 7, 0>(filter, blocks, out),
            _ => listed::<V, 8, 0>(filter, blocks, out),
        }
    }
}

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn listed<V: Lanes, const BITS: u32, const SHIFT: u32>(
    filter: &Filter,
    blocks: &[u8],
    out: &mut Survivors,
) {
    let (tables, start) = (filter.tables(), filter.start);
    let (lines, _) = blocks.as_chunks::<ROWS_PER_BLOCK>();
    let block = |number: usize| &lines[number * tables.len()..][..tables.len()];
    let listed = out.look_again();
    for number in 0..listed {
        if number + looks::AHEAD < listed {
            looks::ask(block(out.listed(number + looks::AHEAD)));
        }
        let again = out.listed(number);
        // SAFETY: the caller's promise is ours.
        out.push(again, unsafe {
            left::<V, BITS, SHIFT>(tables, start, block(again))
        });
    }
}

/// The rows of a block that a table for each line can't drop.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn left<V: Lanes, const BITS: u32, const SHIFT: u32>(
    tables: &[Table],
    start: u8,
    block: &[[u8; ROWS_PER_BLOCK]],
) -> u64 {
    // SAFETY: the caller's promise is ours.
    unsafe {
        let mut sum = V::all(start);
        for (table, line) in tables.iter().zip(block) {
            sum = sum.add(V::lookup(&table.0, V::load(line), BITS, SHIFT));
        }
        sum.below_full()
    }
}

/// One block after another, each with all tables; the first has this number.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn each<V: Lanes, const BITS: u32, const SHIFT: u32>(
    filter: &Filter,
    blocks: &[u8],
    first: usize,
    out: &mut Survivors,
) {
    let (tables, start) = (filter.tables(), filter.start);
    let (lines, _) = blocks.as_chunks::<ROWS_PER_BLOCK>();
    for (number, block) in (first..).zip(lines.chunks_exact(tables.len())) {
        block.iter().for_each(ask_ahead);
        // SAFETY: the caller's promise is ours.
        out.push(number, unsafe {
            left::<V, BITS, SHIFT>(tables, start, block)
        });
    }
}

/// The usual numbers of subspaces are constants, and have two looks.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn seven_or_eight<V: Lanes, const BITS: u32, const SHIFT: u32>(
    filter: &Filter,
    blocks: &[u8],
    out: &mut Survivors,
) {
    // SAFETY: the caller's promise is ours.
    unsafe {
        match (filter.tables().len(), filter.first) {
            (4, Some(2)) => some_lines::<V, BITS, SHIFT, 4, 2>(filter, blocks, out),
            (4, _) => some_lines::<V, BITS, SHIFT, 4, 4>(filter, blocks, out),
            (8, Some(4)) => some_lines::<V, BITS, SHIFT, 8, 4>(filter, blocks, out),
            (8, Some(6)) => some_lines::<V, BITS, SHIFT, 8, 6>(filter, blocks, out),
            (8, _) => some_lines::<V, BITS, SHIFT, 8, 8>(filter, blocks, out),
            (16, Some(8)) => some_lines::<V, BITS, SHIFT, 16, 8>(filter, blocks, out),
            (16, Some(12)) => some_lines::<V, BITS, SHIFT, 16, 12>(filter, blocks, out),
            (16, _) => some_lines::<V, BITS, SHIFT, 16, 16>(filter, blocks, out),
            _ if V::LARGE_TABLES && BITS == 8 => {
                eight_bit::<V, BITS, SHIFT, 2>(filter, blocks, out)
            }
            _ => each::<V, BITS, SHIFT>(filter, blocks, 0, out),
        }
    }
}

/// `LOOKED_AT` of the `LINES` lines of each block.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn some_lines<
    V: Lanes,
    const BITS: u32,
    const SHIFT: u32,
    const LINES: usize,
    const LOOKED_AT: usize,
>(
    filter: &Filter,
    bytes: &[u8],
    out: &mut Survivors,
) {
    let start = filter.start;
    let tables: &[Table; LINES] = filter.tables().try_into().expect("a table a line");
    let (blocks, _) = bytes.as_chunks::<ROWS_PER_BLOCK>().0.as_chunks::<LINES>();
    let lines = if LOOKED_AT == LINES {
        std::array::from_fn(|line| line)
    } else {
        looks::lines::<LOOKED_AT>(&filter.weights, bytes)
    };
    // SAFETY: the caller's promise is ours.
    unsafe {
        if BITS == 7 {
            if !V::by_seven_bits::<SHIFT, LINES, LOOKED_AT>(tables, lines, start, blocks, out) {
                each::<V, BITS, SHIFT>(filter, bytes, 0, out);
            }
        } else {
            in_pairs::<V, LINES, LOOKED_AT>(tables, lines, start, blocks, out);
        }
    }
}

/// Two blocks at once share the loading of a table of 256 entries: four registers, each as large as a line of codes, so that
/// loads would set the pace. One is of the first half of all, one of the second: two streams of reading are faster than one.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn in_pairs<V: Lanes, const LINES: usize, const LOOKED_AT: usize>(
    tables: &[Table; LINES],
    lines: [usize; LOOKED_AT],
    start: u8,
    blocks: &[[[u8; ROWS_PER_BLOCK]; LINES]],
    out: &mut Survivors,
) {
    let middle = blocks.len() / 2;
    let (low, high) = blocks.split_at(middle);
    let mut halves = out.halves(middle);
    for (number, pair) in low.iter().zip(high).enumerate() {
        let pair = [pair.0, pair.1];
        for block in pair {
            lines.iter().for_each(|&line| touch(&block[line % LINES]));
        }
        // SAFETY: the caller's promise is ours.
        unsafe {
            let mut sums = [V::all(start); 2];
            for line in lines {
                let table = &tables[line % LINES].0;
                for (sum, block) in sums.iter_mut().zip(pair) {
                    *sum = sum.add(V::lookup(table, V::load(&block[line % LINES]), 8, 0));
                }
            }
            for (half, sum) in halves.iter_mut().zip(sums) {
                half.push(number, sum.below_full());
            }
        }
    }
    let counts = halves.map(|half| half.count);
    out.join(middle, counts);
    for (number, block) in (2 * middle..).zip(&high[middle..]) {
        // All of its lines: there is but one such block.
        // SAFETY: the caller's promise is ours.
        out.push(number, unsafe { left::<V, 8, 0>(tables, start, block) });
    }
}

/// `GROUP` blocks at once share the reading of a table.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn eight_bit<V: Lanes, const BITS: u32, const SHIFT: u32, const GROUP: usize>(
    filter: &Filter,
    blocks: &[u8],
    out: &mut Survivors,
) {
    let (block_bytes, start) = (filter.block_bytes(), filter.start);
    let mut groups = blocks.chunks_exact(GROUP * block_bytes);
    let mut first = 0;
    for group in &mut groups {
        touch(group);
        // SAFETY: the caller's promise is ours.
        unsafe {
            let mut sums = [V::all(start); GROUP];
            for (m, table) in filter.tables().iter().enumerate() {
                for (g, sum) in sums.iter_mut().enumerate() {
                    let at = g * block_bytes + m * ROWS_PER_BLOCK;
                    *sum = sum.add(V::lookup(&table.0, V::load(lanes(group, at)), BITS, SHIFT));
                }
            }
            for (g, sum) in sums.into_iter().enumerate() {
                out.push(first + g, sum.below_full());
            }
        }
        first += GROUP;
    }
    // SAFETY: the caller's promise is ours.
    unsafe { each::<V, BITS, SHIFT>(filter, groups.remainder(), first, out) };
}

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn four_bit<V: Lanes>(filter: &Filter, blocks: &[u8], out: &mut Survivors) {
    const GROUP: usize = 4;
    let (block_bytes, start) = (filter.block_bytes(), filter.start);
    let (pairs, _) = filter.tables().as_chunks::<2>();
    let rows = |table: &Table| -> [u8; 16] { table.0[..16].try_into().expect("16 long") };
    let mut groups = blocks.chunks_exact(GROUP * block_bytes);
    let mut first = 0;
    for group in &mut groups {
        touch(group);
        // SAFETY: the caller's promise is ours.
        unsafe {
            let mut sums = [V::all(start); GROUP];
            for (p, [even, odd]) in pairs.iter().enumerate() {
                let (even, odd) = (rows(even), rows(odd));
                for (g, sum) in sums.iter_mut().enumerate() {
                    let at = g * block_bytes + p * ROWS_PER_BLOCK;
                    let code = V::load(lanes(group, at));
                    *sum = sum
                        .add(V::shuffle(&even, code.nibble(0)))
                        .add(V::shuffle(&odd, code.nibble(4)));
                }
            }
            for (g, sum) in sums.into_iter().enumerate() {
                out.push(first + g, sum.below_full());
            }
        }
        first += GROUP;
    }
    for (number, block) in (first..).zip(groups.remainder().chunks_exact(block_bytes)) {
        // SAFETY: the caller's promise is ours.
        unsafe {
            let mut sum = V::all(start);
            for (p, [even, odd]) in pairs.iter().enumerate() {
                let code = V::load(lanes(block, p * ROWS_PER_BLOCK));
                sum = sum
                    .add(V::shuffle(&rows(even), code.nibble(0)))
                    .add(V::shuffle(&rows(odd), code.nibble(4)));
            }
            out.push(number, sum.below_full());
        }
    }
}

#[inline(always)]
fn lanes(bytes: &[u8], at: usize) -> &[u8; 64] {
    bytes[at..at + 64].try_into().expect("64 long")
}
