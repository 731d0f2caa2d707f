//! f32 scores of whole blocks, for rows that no filter can drop.

use super::block::{Bits, Entries, ROWS_PER_BLOCK};

/// The number of rows that are summed at the same time: their additions overlap, while each row's
/// sum stays in order.
const ROWS: usize = 8;

/// The f32 sums of a block's rows, in subspace order, beginning with what `out` holds.
#[inline(always)]
pub(super) fn scores(table: Entries<'_>, block: &[u8], out: &mut [f32; ROWS_PER_BLOCK]) {
    match table.bits {
        Bits::Eight => {
            let (tables, _) = table.values.as_chunks::<256>();
            let (columns, _) = block.as_chunks::<ROWS_PER_BLOCK>();
            for (first, out) in (0..).step_by(ROWS).zip(out.chunks_exact_mut(ROWS)) {
                let mut sums: [f32; ROWS] = (*out).try_into().expect("as many rows");
                for (entries, column) in tables.iter().zip(columns) {
                    for (sum, &code) in sums.iter_mut().zip(&column[first..first + ROWS]) {
                        *sum += entries[usize::from(code)];
                    }
                }
                out.copy_from_slice(&sums);
            }
        }
        Bits::Four => {
            let (tables, _) = table.values.as_chunks::<16>();
            let (columns, _) = block.as_chunks::<ROWS_PER_BLOCK>();
            for (first, out) in (0..).step_by(ROWS).zip(out.chunks_exact_mut(ROWS)) {
                let mut sums: [f32; ROWS] = (*out).try_into().expect("as many rows");
                for (pair, column) in tables.chunks(2).zip(columns) {
                    for (sum, &code) in sums.iter_mut().zip(&column[first..first + ROWS]) {
                        *sum += pair[0][usize::from(code & 15)];
                    }
                    if let Some(odd) = pair.get(1) {
                        for (sum, &code) in sums.iter_mut().zip(&column[first..first + ROWS]) {
                            *sum += odd[usize::from(code >> 4)];
                        }
                    }
                }
                out.copy_from_slice(&sums);
            }
        }
    }
}

/// Returns the f32 score of one row of a block, which begins with `first`.
#[inline(always)]
pub(super) fn score(table: Entries<'_>, first: f32, block: &[u8], row: usize) -> f32 {
    let mut sum = first;
    match table.bits {
        Bits::Eight => {
            let (tables, _) = table.values.as_chunks::<256>();
            let (columns, _) = block.as_chunks::<ROWS_PER_BLOCK>();
            for (entries, column) in tables.iter().zip(columns) {
                sum += entries[usize::from(column[row & 63])];
            }
        }
        Bits::Four => {
            let (tables, _) = table.values.as_chunks::<16>();
            let (columns, _) = block.as_chunks::<ROWS_PER_BLOCK>();
            for (pair, column) in tables.chunks(2).zip(columns) {
                let code = column[row & 63];
                sum += pair[0][usize::from(code & 15)];
                if let Some(odd) = pair.get(1) {
                    sum += odd[usize::from(code >> 4)];
                }
            }
        }
    }
    sum
}
