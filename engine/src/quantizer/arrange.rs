//! The order of codewords: near ones get near numbers.
//!
//! The number of a codeword means nothing to the answer, yet the scan's filter looks codes up by their upper
//! bits alone where it can: the nearer to each other the codewords that share those bits, the more rows it drops.

use super::codebook::Codebook;
use super::quantizer::Quantizer;
use super::selection::Selection;
use crate::error::Result;

impl Quantizer {
    /// Returns the same quantizer with its codewords numbered so that scans are faster. Existing codes don't fit it:
    /// arrange a new quantizer before anything is quantized with it. The quantizers of [`train_pq`](super::train_pq)
    /// and [`train_opq`](super::train_opq) are arranged.
    pub fn arranged(&self) -> Result<Self> {
        let codebook = self.codebook();
        let (codewords, sub_dim) = (codebook.shape().codewords(), codebook.sub_dim());
        let orders: Vec<Vec<usize>> = (0..codebook.shape().subspaces())
            .map(|m| order(codebook.subspace(m), sub_dim))
            .collect();
        let permute = |values: &[f32]| -> Vec<f32> {
            orders
                .iter()
                .zip(values.chunks_exact(codewords * sub_dim))
                .flat_map(|(order, values)| {
                    order
                        .iter()
                        .flat_map(|&j| &values[j * sub_dim..][..sub_dim])
                })
                .copied()
                .collect()
        };
        let selection = match self.selection() {
            Selection::Keys { keys } => Selection::Keys {
                keys: permute(keys),
            },
            other => other.clone(),
        };
        let codebook = Codebook::new(codebook.shape(), sub_dim, permute(codebook.values()))?;
        Self::builder(codebook, self.metric())
            .head(self.head().cloned())
            .activation(self.activation())
            .rotation(self.rotation().map(<[f32]>::to_vec))
            .selection(selection)
            .query_mode(self.query_mode())
            .cells(self.cells().cloned())
            .kernel(self.kernel())
            .build()
    }
}

/// The codewords (n, sub_dim) in an order in which each run of 2^b, from a multiple of 2^b on, lies close together.
fn order(points: &[f32], sub_dim: usize) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..points.len() / sub_dim).collect();
    let span = ids.len().next_power_of_two();
    split(points, sub_dim, &mut ids, span);
    ids
}

/// Orders `ids` for a run of `span` numbers: halves it again and again, across where it is widest.
fn split(points: &[f32], sub_dim: usize, ids: &mut [usize], span: usize) {
    if ids.len() <= 1 {
        return;
    }
    let half = span / 2;
    if ids.len() <= half {
        return split(points, sub_dim, ids, half);
    }
    let mut direction = widest(points, sub_dim, ids);
    // As in k-means with two means of fixed sizes: cut, then cut again along the line between the means of the
    // halves.
    for _ in 0..6 {
        let place = |id: usize| -> f32 {
            let point = &points[id * sub_dim..][..sub_dim];
            point.iter().zip(&direction).map(|(x, d)| x * d).sum()
        };
        ids.sort_by(|&a, &b| place(a).total_cmp(&place(b)).then(a.cmp(&b)));
        let (low, high) = (
            mean(points, sub_dim, &ids[..half]),
            mean(points, sub_dim, &ids[half..]),
        );
        direction = high.iter().zip(&low).map(|(h, l)| h - l).collect();
    }
    let (low, high) = ids.split_at_mut(half);
    split(points, sub_dim, low, half);
    split(points, sub_dim, high, half);
}

fn mean(points: &[f32], sub_dim: usize, ids: &[usize]) -> Vec<f32> {
    let mut mean = vec![0.0; sub_dim];
    for &id in ids {
        for (m, x) in mean.iter_mut().zip(&points[id * sub_dim..][..sub_dim]) {
            *m += x / ids.len() as f32;
        }
    }
    mean
}

/// About the principal axis, by power iteration.
fn widest(points: &[f32], sub_dim: usize, ids: &[usize]) -> Vec<f32> {
    let mean = mean(points, sub_dim, ids);
    let mut axis: Vec<f32> = (0..sub_dim)
        .map(|d| 1.0 + d as f32 / sub_dim as f32)
        .collect();
    for _ in 0..10 {
        let mut next = vec![0.0f32; sub_dim];
        for &id in ids {
            let point = &points[id * sub_dim..][..sub_dim];
            let along: f32 = point
                .iter()
                .zip(&mean)
                .zip(&axis)
                .map(|((x, m), a)| (x - m) * a)
                .sum();
            for ((next, x), m) in next.iter_mut().zip(point).zip(&mean) {
                *next += along * (x - m);
            }
        }
        let norm = next.iter().map(|x| x * x).sum::<f32>().sqrt();
        if !(norm > 0.0 && norm.is_finite()) {
            break;
        }
        axis = next.iter().map(|x| x / norm).collect();
    }
    axis
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::random::Random;
    use crate::metric::Metric;
    use crate::quantizer::CodeShape;

    #[test]
    fn the_same_codewords_are_chosen_under_other_numbers() {
        let mut random = Random::new(3);
        for codewords in [2, 16, 100, 256] {
            let shape = CodeShape::new(2, codewords).unwrap();
            let codebook = Codebook::new(shape, 5, random.normals(10 * codewords)).unwrap();
            let keys = random.normals(10 * codewords);
            for selection in [Selection::L2, Selection::Keys { keys }] {
                let quantizer = Quantizer::builder(codebook.clone(), Metric::Ip)
                    .selection(selection)
                    .build()
                    .unwrap();
                let arranged = quantizer.arranged().unwrap();
                let rows = random.normals(50 * 10);
                let (mut before, mut after) = (vec![0; 100], vec![0; 100]);
                quantizer.quantize(&rows, &mut before).unwrap();
                arranged.quantize(&rows, &mut after).unwrap();
                let (mut decoded, mut again) = (vec![0.0; 500], vec![0.0; 500]);
                quantizer.decode(&before, &mut decoded);
                arranged.decode(&after, &mut again);
                assert_eq!(decoded, again, "{codewords} codewords");
            }
        }
    }

    #[test]
    fn codewords_that_share_upper_bits_lie_closer_together() {
        let mut random = Random::new(4);
        let points = random.normals(256 * 4);
        let spread = |ids: &[usize]| -> f32 {
            ids.chunks(16)
                .map(|group| {
                    let mean = mean(&points, 4, group);
                    let distance = |id: &usize| -> f32 {
                        (0..4).map(|d| (points[id * 4 + d] - mean[d]).powi(2)).sum()
                    };
                    group.iter().map(distance).sum::<f32>()
                })
                .sum()
        };
        let ids: Vec<usize> = (0..256).collect();
        let ordered = order(&points, 4);
        assert!(
            spread(&ordered) < 0.5 * spread(&ids),
            "{} {}",
            spread(&ordered),
            spread(&ids)
        );
        let mut sorted = ordered;
        sorted.sort_unstable();
        assert_eq!(sorted, ids, "a permutation");
    }
}
