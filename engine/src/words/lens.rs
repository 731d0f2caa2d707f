//! The lengths of the texts of a part, one byte each.

use super::bm25::byte_to_len;
use std::sync::Mutex;

/// The length in tokens of each row's text, as one byte, and the sum of the lengths of live rows.
#[derive(Debug)]
pub(super) struct Lens {
    bytes: Vec<u8>,
    total: u64,
    /// The most recently computed sum. The next one is usually of the same rows, or of slightly fewer.
    last: Mutex<Sum>,
}

#[derive(Debug)]
struct Sum {
    live: Vec<u64>,
    total: u64,
}

impl Lens {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let total = bytes.iter().map(|&byte| u64::from(byte_to_len(byte))).sum();
        let last = Mutex::new(Sum {
            live: Vec::new(),
            total,
        });
        Self { bytes, total, last }
    }

    /// Returns one byte per row.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of live rows: all rows without bits.
    pub(super) fn rows(&self, live: Option<&[u64]>) -> u64 {
        match live {
            None => self.bytes.len() as u64,
            Some(live) => live.iter().map(|word| u64::from(word.count_ones())).sum(),
        }
    }

    /// Returns the sum of the lengths of live rows. This compares the bits with those of the previous call, and then reads the
    /// lengths only of rows whose bits differ.
    pub(super) fn total(&self, live: Option<&[u64]>) -> u64 {
        let Some(live) = live else {
            return self.total;
        };
        let mut last = self.last.lock().expect("nothing panics with this lock");
        if last.live.len() != live.len() {
            last.live = vec![u64::MAX; live.len()];
            last.total = self.total;
        }
        let Sum { live: last, total } = &mut *last;
        for (at, (last, &live)) in last.iter_mut().zip(live).enumerate() {
            let mut changed = *last ^ live;
            *last = live;
            while changed != 0 {
                let bit = changed.trailing_zeros() as usize;
                changed &= changed - 1;
                // Bits past the last row mean nothing.
                let Some(&byte) = self.bytes.get(at * 64 + bit) else {
                    break;
                };
                let len = u64::from(byte_to_len(byte));
                match live >> bit & 1 {
                    1 => *total += len,
                    _ => *total -= len,
                }
            }
        }
        *total
    }

    /// Returns the dead rows, ascending.
    pub(super) fn dead(&self, live: Option<&[u64]>) -> Vec<u32> {
        let mut dead = Vec::new();
        for (at, &word) in live.into_iter().flatten().enumerate() {
            let mut word = !word;
            while word != 0 {
                let row = at * 64 + word.trailing_zeros() as usize;
                word &= word - 1;
                if row < self.bytes.len() {
                    dead.push(row as u32);
                }
            }
        }
        dead
    }
}
