//! Vectors in memory and exact search among them.

use mopqdb::eval::{Answers, Place, Places};
use tch::{Kind, Tensor, no_grad};

/// The number of rows in a libtorch tensor at a time.
const CHUNK: usize = 16_384;
/// The number of scores that exact search holds at a time: 128 MiB.
const SCORES: usize = 1 << 25;

/// Vectors of one width.
#[derive(Debug, Clone, Copy)]
pub struct Vectors<'a> {
    /// The values: (rows, hidden).
    pub values: &'a [f32],
    /// The width of a row.
    pub hidden: usize,
}

impl<'a> Vectors<'a> {
    /// Returns the number of rows.
    pub fn rows(self) -> usize {
        self.values.len() / self.hidden
    }

    /// Returns all rows in order, in chunks (some, hidden).
    pub fn chunks(self) -> impl Iterator<Item = Tensor> + 'a {
        self.chunks_of(CHUNK)
    }

    fn chunks_of(self, rows: usize) -> impl Iterator<Item = Tensor> + 'a {
        let chunks = self.values.chunks(rows * self.hidden);
        chunks.map(move |some| Tensor::from_slice(some).view([-1, self.hidden as i64]))
    }

    /// Returns the `k` rows with the largest inner products for each query, best first.
    pub fn nearest(self, queries: Vectors<'_>, k: usize) -> Vec<Vec<u32>> {
        let k = k.min(self.rows()) as i64;
        let mut found = Vec::with_capacity(queries.rows());
        no_grad(|| {
            for some in queries.chunks_of(SCORES / CHUNK) {
                let mut best: Option<(Tensor, Tensor)> = None;
                for (chunk, keys) in self.chunks().enumerate() {
                    let scores = some.matmul(&keys.tr());
                    let (mut scores, mut rows) =
                        scores.topk(k.min(scores.size()[1]), -1, true, true);
                    rows += (chunk * CHUNK) as i64;
                    if let Some((before, rows_before)) = &best {
                        let merged = Tensor::cat(&[before, &scores], 1);
                        let (top, places) = merged.topk(k.min(merged.size()[1]), -1, true, true);
                        rows = Tensor::cat(&[rows_before, &rows], 1).gather(1, &places, false);
                        scores = top;
                    }
                    best = Some((scores, rows));
                }
                if let Some((_, rows)) = best {
                    let rows = Vec::<Vec<i64>>::try_from(rows).expect("two dimensions");
                    found.extend(
                        rows.into_iter()
                            .map(|rows| rows.iter().map(|&r| r as u32).collect()),
                    );
                }
            }
        });
        found
    }

    /// Returns the places of the right rows of each query among all rows, by inner product.
    pub fn places(self, queries: Vectors<'_>, answers: &[Answers]) -> Places {
        let together = (SCORES / self.rows().max(1)).clamp(1, 1_024);
        let mut places = Vec::with_capacity(answers.len());
        no_grad(|| {
            let asked = queries.chunks_of(together).zip(answers.chunks(together));
            for (some, answers) in asked {
                let blocks = self.chunks().map(|keys| some.matmul(&keys.tr()));
                let scores = Tensor::cat(&blocks.collect::<Vec<_>>(), 1); // some, rows
                for (query, answers) in answers.iter().enumerate() {
                    let scores = scores.get(query as i64);
                    let right = &answers.right;
                    let own: Vec<f64> = (right.iter())
                        .map(|&row| scores.double_value(&[i64::from(row)]))
                        .collect();
                    for row in answers.excluded.iter().filter(|row| !right.contains(row)) {
                        let _ = scores.get(i64::from(*row)).fill_(f64::NEG_INFINITY);
                    }
                    let count = |mask: Tensor| mask.sum(Kind::Int64).int64_value(&[]) as u64;
                    let place = |own: f64| Place {
                        greater: count(scores.gt(own)),
                        equal: count(scores.eq(own)),
                    };
                    places.push(own.into_iter().map(place).collect());
                }
            }
        });
        Places(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::floats;
    use crate::testing::random_tensor;

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn exact_search_equals_sorting_all_rows() {
        let (rows, hidden) = (CHUNK + 300, 4);
        let keys = floats(&random_tensor(1, &[rows as i64, hidden as i64]));
        let asked = floats(&random_tensor(2, &[5, hidden as i64]));
        let (keys, queries) = (
            Vectors {
                values: &keys,
                hidden,
            },
            Vectors {
                values: &asked,
                hidden,
            },
        );
        let found = keys.nearest(queries, 12);
        let answers: Vec<Answers> = found
            .iter()
            .map(|rows| Answers {
                right: vec![rows[0], rows[7]],
                excluded: vec![rows[0], rows[3]],
            })
            .collect();
        let places = keys.places(queries, &answers);
        for (query, vector) in asked.chunks(hidden).enumerate() {
            let mut order: Vec<u32> = (0..rows as u32).collect();
            let score = |row: u32| dot(&keys.values[row as usize * hidden..][..hidden], vector);
            order.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
            assert_eq!(found[query], order[..12]);
            // Row 3 of the order is excluded; row 0 is right nevertheless.
            let place = |greater| Place { greater, equal: 1 };
            assert_eq!(places.0[query], [place(0), place(6)]);
        }
    }

    #[test]
    fn equal_rows_are_ties_and_all_rows_are_found_if_there_are_fewer_than_k() {
        let keys = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0];
        let keys = Vectors {
            values: &keys,
            hidden: 2,
        };
        let queries = Vectors {
            values: &[2.0, 0.5],
            hidden: 2,
        };
        let answers = Answers {
            right: vec![2],
            excluded: vec![],
        };
        assert_eq!(
            keys.places(queries, &[answers]).0,
            [[Place {
                greater: 0,
                equal: 2
            }]]
        );
        let mut found = keys.nearest(queries, 10);
        found[0][..2].sort_unstable();
        assert_eq!(found, [[0, 2, 1]]);
    }
}
