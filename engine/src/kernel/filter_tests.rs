//! The filter's one promise, on every instantiation: it never drops a row that reaches the score.

use super::block::{Bits, Entries};
use super::filter::{Filter, Verdict, look_again, survivors};
use super::lanes::Lanes;
use super::portable::Portable;
use super::random::Random;
use super::survivors::Survivors;
use super::{Kernel, adc};

/// AVX-512 VBMI as its manual describes it, in plain code: the same overrides as the real one, so that only the
/// instructions themselves are left to a CPU that has them.
#[derive(Clone, Copy)]
struct Emulated([u8; 64]);

impl Lanes for Emulated {
    const LARGE_TABLES: bool = true;

    unsafe fn all(byte: u8) -> Self {
        Self([byte; 64])
    }

    unsafe fn load(bytes: &[u8; 64]) -> Self {
        Self(*bytes)
    }

    unsafe fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|l| {
            self.0[l].saturating_add(other.0[l])
        }))
    }

    unsafe fn nibble(self, shift: u32) -> Self {
        Self(self.0.map(|x| x >> shift & 15))
    }

    unsafe fn shuffle(table: &[u8; 16], index: Self) -> Self {
        // vpshufb: zero if the top bit is set, else the low four bits count.
        Self(index.0.map(|i| {
            if i > 127 {
                0
            } else {
                table[usize::from(i & 15)]
            }
        }))
    }

    unsafe fn choose(self, bit: u32, clear: Self, set: Self) -> Self {
        Self(std::array::from_fn(|l| {
            if self.0[l] >> bit & 1 == 1 {
                set.0[l]
            } else {
                clear.0[l]
            }
        }))
    }

    unsafe fn below_full(self) -> u64 {
        (0..64).fold(0, |mask, l| mask | u64::from(self.0[l] != 255) << l)
    }

    unsafe fn lookup(table: &[u8; 256], code: Self, bits: u32, shift: u32) -> Self {
        let index = code.0.map(|c| {
            if shift == 0 {
                c
            } else {
                c >> shift & (255 >> shift)
            }
        });
        // vpermb looks at six bits of the index, vpermi2b at seven.
        let permute =
            |first: usize, width: u32, i: u8| table[first + (usize::from(i) & ((1 << width) - 1))];
        Self(index.map(|i| match bits {
            4..=6 => permute(0, 6, i),
            7 => permute(0, 7, i),
            _ if i > 127 => permute(128, 7, i),
            _ => permute(0, 7, i),
        }))
    }
}

/// A table's entries, by subspace.
type Entry<'a> = &'a dyn Fn(&mut Random, usize) -> f32;

struct Case {
    name: &'static str,
    bits: Bits,
    subspaces: usize,
    codewords: usize,
    values: Vec<f32>,
    blocks: Vec<u8>,
}

impl Case {
    fn new(
        name: &'static str,
        random: &mut Random,
        (subspaces, codewords): (usize, usize),
        entry: Entry<'_>,
    ) -> Self {
        let bits = if codewords <= 16 {
            Bits::Four
        } else {
            Bits::Eight
        };
        let mut values = vec![0.0; subspaces * bits.values()];
        for m in 0..subspaces {
            for j in 0..codewords {
                values[m * bits.values() + j] = entry(random, m);
            }
        }
        // 11 blocks: groups of every size, and what is left of them.
        let blocks = match bits {
            Bits::Eight => (0..11 * 64 * subspaces)
                .map(|_| random.below(codewords) as u8)
                .collect(),
            Bits::Four => {
                let bytes = subspaces.div_ceil(2);
                let mut nibble = |m: usize| {
                    if m < subspaces {
                        random.below(codewords) as u8
                    } else {
                        0
                    }
                };
                (0..11 * bytes)
                    .flat_map(|plane| {
                        let m = plane % bytes * 2;
                        (0..64)
                            .map(|_| nibble(m) | nibble(m + 1) << 4)
                            .collect::<Vec<_>>()
                    })
                    .collect()
            }
        };
        Self {
            name,
            bits,
            subspaces,
            codewords,
            values,
            blocks,
        }
    }

    fn entries(&self) -> Entries<'_> {
        Entries {
            bits: self.bits,
            values: &self.values,
        }
    }

    /// `cells`: the scores of all cells, and the one that all rows are in.
    fn check(&self, cells: Option<(&[f32], usize)>) {
        let first = cells.map_or(0.0, |(cells, at)| cells[at]);
        let block_bytes = self.entries().block_bytes();
        let count = self.blocks.len() / block_bytes;
        let scores: Vec<f32> = (0..count * 64)
            .map(|row| {
                adc::score(
                    self.entries(),
                    first,
                    &self.blocks[row / 64 * block_bytes..][..block_bytes],
                    row % 64,
                )
            })
            .collect();
        let mut sorted = scores.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let mut filters: Vec<(Kernel, Filter)> = Kernel::available()
            .into_iter()
            .map(|kernel| {
                let cells = cells.map(|(cells, _)| kernel.extent(cells));
                let filter = Filter::new(kernel, self.entries(), self.codewords, cells);
                (kernel, filter)
            })
            .collect();
        let (_, mut filter) = filters.remove(0);
        for score in [
            sorted[0],
            sorted[0].next_up(),
            sorted[1],
            sorted[9],
            sorted[9].next_down(),
            sorted[sorted.len() / 2],
            *sorted.last().unwrap(),
            0.0,
        ] {
            let verdict = filter.aim(self.entries(), self.codewords, score);
            for (kernel, other) in &mut filters {
                assert_eq!(
                    other.aim(self.entries(), self.codewords, score),
                    verdict,
                    "{} {kernel:?}",
                    self.name
                );
            }
            if verdict == Verdict::Nothing {
                assert!(sorted[0] < score, "{}", self.name);
                continue;
            }
            assert_eq!(verdict, Verdict::Some);
            if cells.is_some() {
                let enters = filter.enter(first);
                for (_, other) in &mut filters {
                    assert_eq!(other.enter(first), enters, "{}", self.name);
                }
                if !enters {
                    assert!(sorted[0] < score, "{}", self.name);
                    continue;
                }
            }
            for level in filter.levels() {
                filter.set_level(level);
                for (kernel, other) in &mut filters {
                    other.set_level(level);
                    assert!(
                        other.tables() == filter.tables(),
                        "{} {kernel:?} level {level}: other tables",
                        self.name
                    );
                }
                let mut found = Survivors::default();
                found.clear(count);
                // SAFETY: these lanes need no features.
                unsafe { survivors::<Emulated>(&filter, &self.blocks, &mut found) };
                let masks = found.masks(count);
                for (row, &s) in scores.iter().enumerate() {
                    let kept = masks[row / 64] >> (row % 64) & 1 == 1;
                    assert!(
                        kept || s < score,
                        "{} {}x{} level {level}: row {row} scores {s:e}, wanted {score:e}, was dropped",
                        self.name,
                        self.subspaces,
                        self.codewords
                    );
                }
                found.clear(count);
                // SAFETY: as above.
                unsafe { survivors::<Portable>(&filter, &self.blocks, &mut found) };
                assert_eq!(masks, found.masks(count), "{} portable", self.name);
                for kernel in Kernel::available() {
                    kernel.survivors(&filter, &self.blocks, &mut found);
                    let others = found.masks(count);
                    assert_eq!(masks, others, "{} {kernel:?} level {level}", self.name);
                }
                self.check_looks(&mut filter, &masks);
            }
        }
    }
}

impl Case {
    /// Two looks leave what one does, wherever the blocks lie.
    fn check_looks(&self, filter: &mut Filter, masks: &[u64]) {
        let count = masks.len();
        let mut memory = vec![0; self.blocks.len() + 256];
        let mut found = Survivors::default();
        for (&lines, odd) in filter
            .possible_looks()
            .iter()
            .flat_map(|l| [(l, 0), (l, 64)])
        {
            let start = memory.as_ptr().align_offset(128) + odd;
            let blocks = &mut memory[start..][..self.blocks.len()];
            blocks.copy_from_slice(&self.blocks);
            filter.set_first_look(Some(lines));
            let name = format!("{} {lines} lines, {odd}", self.name);
            found.clear(count);
            // SAFETY: these lanes need no features.
            unsafe { survivors::<Emulated>(filter, blocks, &mut found) };
            let listed = found.masks(count);
            assert!(
                listed
                    .iter()
                    .zip(masks)
                    .all(|(more, mask)| more & mask == *mask),
                "{name}"
            );
            // SAFETY: as above.
            unsafe { look_again::<Emulated>(filter, blocks, &mut found) };
            assert_eq!(found.masks(count), masks, "{name}");
            for kernel in Kernel::available() {
                kernel.survivors(filter, blocks, &mut found);
                kernel.look_again(filter, blocks, &mut found);
                assert_eq!(found.masks(count), masks, "{name} {kernel:?}");
            }
        }
        filter.set_first_look(None);
    }
}

#[test]
fn no_row_that_reaches_the_score_is_ever_dropped() {
    println!(
        "not available on this CPU, and so not tested here: {:?}",
        Kernel::unavailable()
    );
    let mut random = Random::new(77);
    for shape in [
        (1, 2),
        (2, 16),
        (5, 16),
        (16, 9),
        (255, 16),
        (1, 17),
        (3, 33),
        (4, 64),
        (4, 256),
        (16, 128),
        (8, 65),
        (8, 128),
        (8, 129),
        (8, 256),
        (16, 256),
        (32, 200),
        (256, 256),
    ] {
        let entries: [(&'static str, Entry<'_>); 11] = [
            ("normal", &|r, _| r.normal()),
            ("constant", &|_, _| 0.7),
            ("zero", &|_, _| 0.0),
            ("huge", &|r, _| r.normal() * 1e35),
            ("tiny", &|r, _| r.normal() * 1e-38),
            ("denormal", &|r, _| r.normal() * 1e-44),
            ("far from zero", &|r, _| 1e7 + r.normal() * 0.1),
            (
                "far both ways",
                &|r, m| if m % 2 == 0 { 3e7 } else { -3e7 } + r.normal(),
            ),
            (
                "dominated",
                &|r, m| if m == 0 { 1e6 } else { 1.0 } * r.normal(),
            ),
            ("few values", &|r, _| r.below(3) as f32),
            ("mixed scales", &|r, _| {
                r.normal() * 10f32.powi(r.below(60) as i32 - 30)
            }),
        ];
        for (name, entry) in entries {
            let case = Case::new(name, &mut random, shape, entry);
            case.check(None);
            let cells: Vec<f32> = (0..5).map(|_| entry(&mut random, 0)).collect();
            for cell in [0, 3] {
                case.check(Some((&cells, cell)));
            }
        }
    }
}

#[test]
fn the_filter_drops_most_rows_of_ordinary_data() {
    let mut random = Random::new(78);
    let case = Case::new("normal", &mut random, (8, 256), &|r, _| r.normal());
    let mut scores: Vec<f32> = (0..11 * 64)
        .map(|row| {
            adc::score(
                case.entries(),
                0.0,
                &case.blocks[row / 64 * 512..][..512],
                row % 64,
            )
        })
        .collect();
    scores.sort_by(|a, b| b.total_cmp(a));
    let kernel = Kernel::detect().unwrap();
    let mut filter = Filter::new(kernel, case.entries(), 256, None);
    filter.aim(case.entries(), 256, scores[9]);
    let mut survivors = Survivors::default();
    kernel.survivors(&filter, &case.blocks, &mut survivors);
    let kept = survivors.len();
    assert!(
        (10..40).contains(&kept),
        "{kept} rows are left for the 10 best"
    );
}

/// Codes of lines that are left out of a first look do not matter to it.
#[test]
fn a_first_look_reads_some_lines_only() {
    let mut random = Random::new(79);
    let mut case = Case::new("weighted", &mut random, (8, 256), &|r, m| {
        r.normal() * if m < 6 { 10.0 } else { 1.0 }
    });
    let scores = (0..11 * 64).map(|row| {
        adc::score(
            case.entries(),
            0.0,
            &case.blocks[row / 64 * 512..][..512],
            row % 64,
        )
    });
    let score = scores.fold(f32::NEG_INFINITY, f32::max);
    for kernel in Kernel::available().into_iter().filter(|k| k.looks_twice()) {
        let mut filter = Filter::new(kernel, case.entries(), 256, None);
        filter.aim(case.entries(), 256, score);
        filter.set_level(7);
        filter.set_first_look(Some(6));
        let mut memory = vec![0; case.blocks.len() + 128];
        let start = memory.as_ptr().align_offset(128);
        let mut look = |blocks: &[u8]| {
            let aligned = &mut memory[start..][..blocks.len()];
            aligned.copy_from_slice(blocks);
            let mut found = Survivors::default();
            kernel.survivors(&filter, aligned, &mut found);
            found.masks(11)
        };
        let before = look(&case.blocks);
        for block in case.blocks.chunks_exact_mut(512) {
            block[6 * 64..].iter_mut().for_each(|code| *code ^= 85);
        }
        assert_eq!(look(&case.blocks), before, "{kernel:?}");
    }
}
