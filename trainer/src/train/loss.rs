//! Losses as pure functions of tensors.
//!
//! CE(A, B) is the mean over rows r of `-log softmax_c(<A_r, B_c>)[r]`. It is made of two parts, so that devices can
//! share the work ([`crate::train::sampling`]): the log-sum-exp of a row over a block of candidates, and the score of the
//! row's own positive.

use tch::{Kind, Tensor};

/// The score of a masked candidate. After subtracting any real score its exponential is exactly 0. It is finite, so that a
/// row whose candidates are all masked has a gradient of 0 and not NaN.
pub const MASKED: f64 = -1e30;

/// <A_r, B_c> (rows, candidates), with `mask` (rows, candidates; true: not a candidate) taken out.
pub fn scores(a: &Tensor, b: &Tensor, mask: Option<&Tensor>) -> Tensor {
    let scores = a.matmul(&b.tr());
    match mask {
        Some(mask) => scores.masked_fill(mask, MASKED),
        None => scores,
    }
}

/// True where candidate c has the same key as row r but belongs to another pair.
///
/// Row r's own candidate is column `own + r` if `own` is given; otherwise none of the candidates is.
pub fn collisions(rows: &Tensor, candidates: &Tensor, own: Option<i64>) -> Option<Tensor> {
    let mask = rows.unsqueeze(1).eq_tensor(&candidates.unsqueeze(0));
    if let Some(first) = own {
        let _ = mask
            .narrow(1, first, rows.size()[0])
            .diagonal(0, 0, 1)
            .fill_(0);
    }
    // Usually there are no collisions; masking would then cost a pass over the scores for nothing.
    (mask.any().int64_value(&[]) != 0).then_some(mask)
}

/// |k_r - k^_r|² of each row (rows).
pub fn reconstruction(k: &Tensor, k_hat: &Tensor) -> Tensor {
    (k - k_hat)
        .square()
        .sum_dim_intlist(-1, false, None::<Kind>)
}

/// |k_r - k^_r| of each row (rows). A small constant keeps the root away from 0, where its gradient is infinite.
pub fn distance(k: &Tensor, k_hat: &Tensor) -> Tensor {
    (reconstruction(k, k_hat) + 1e-12).sqrt()
}

/// (<q_r, k_c> - <q_r, k^_c>)² (rows, rows).
pub fn product_error(q: &Tensor, k: &Tensor, k_hat: &Tensor) -> Tensor {
    q.matmul(&(k - k_hat).tr()).square()
}

/// `-Sum_i log p_i[code_i]` of each row, from scaled logits (subspaces, rows, codewords) and codes (subspaces, rows).
pub fn log_probability(logits: &Tensor, codes: &Tensor) -> Tensor {
    let log_p = logits.log_softmax(-1, logits.kind());
    -log_p
        .gather(-1, &codes.unsqueeze(-1), false)
        .squeeze_dim(-1)
        .sum_dim_intlist(0, false, None::<Kind>)
}

/// Value 0, gradient of `-Sum_i p_i[code_i]`: -log of P' = sg(1 - p) + p, which is 1.
pub fn straight_through_probability(probabilities: &Tensor, codes: &Tensor) -> Tensor {
    let p = probabilities
        .gather(-1, &codes.unsqueeze(-1), false)
        .squeeze_dim(-1);
    (p.detach() - &p).sum_dim_intlist(0, false, None::<Kind>)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{max_difference, random_tensor};

    fn rows(tensor: &Tensor) -> Vec<Vec<f64>> {
        Vec::<Vec<f64>>::try_from(tensor.contiguous()).unwrap()
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    /// -log softmax(scores)[r, own + r] of each row (rows).
    fn cross_entropy(scores: &Tensor, own: i64) -> Tensor {
        let rows = scores.size()[0];
        let positives = scores.narrow(1, own, rows).diagonal(0, 0, 1);
        scores.logsumexp(-1, false) - positives
    }

    #[test]
    fn cross_entropy_agrees_with_plain_arithmetic() {
        let (a, b) = (random_tensor(1, &[4, 3]), random_tensor(2, &[4, 3]));
        let found = Vec::<f64>::try_from(cross_entropy(&scores(&a, &b, None), 0)).unwrap();
        let (a, b) = (rows(&a), rows(&b));
        for r in 0..4 {
            let sum: f64 = b.iter().map(|candidate| dot(&a[r], candidate).exp()).sum();
            let expected = -(dot(&a[r], &b[r]).exp() / sum).ln();
            assert!((found[r] - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn a_key_met_twice_is_not_its_own_negative() {
        let (a, b) = (random_tensor(3, &[3, 2]), random_tensor(4, &[3, 2]));
        let keys = Tensor::from_slice(&[7i64, 5, 7]);
        let mask = collisions(&keys, &keys, Some(0)).unwrap();
        let found = Vec::<f64>::try_from(cross_entropy(&scores(&a, &b, Some(&mask)), 0)).unwrap();
        let (a, b) = (rows(&a), rows(&b));
        // Row 0 has candidates 0 and 1 only; row 1 has all; row 2 has 1 and 2.
        for (r, candidates) in [(0, vec![0, 1]), (1, vec![0, 1, 2]), (2, vec![1, 2])] {
            let sum: f64 = candidates
                .iter()
                .map(|&c: &usize| dot(&a[r], &b[c]).exp())
                .sum();
            let expected = -(dot(&a[r], &b[r]).exp() / sum).ln();
            assert!((found[r] - expected).abs() < 1e-12, "row {r}");
        }
        assert!(collisions(&keys, &Tensor::from_slice(&[1i64, 2]), None).is_none());
    }

    #[test]
    fn a_row_of_masked_candidates_has_no_gradient() {
        let k = random_tensor(5, &[2, 3]).set_requires_grad(true);
        let q = random_tensor(6, &[2, 3]);
        let mask = Tensor::from_slice(&[true, true, true, true]).view([2, 2]);
        let lse = scores(&q, &k, Some(&mask)).logsumexp(-1, false);
        let total = lse
            .logaddexp(&Tensor::from_slice(&[1.0f64, 2.0]))
            .sum(Kind::Double);
        let gradient = Tensor::run_backward(&[total], &[&k], false, false).remove(0);
        assert_eq!(gradient.abs().max().double_value(&[]), 0.0);
    }

    #[test]
    fn the_errors_of_reconstruction_and_product_agree_with_plain_arithmetic() {
        let (q, k, hat) = (
            random_tensor(7, &[3, 4]),
            random_tensor(8, &[3, 4]),
            random_tensor(9, &[3, 4]),
        );
        let (squares, distances) = (reconstruction(&k, &hat), distance(&k, &hat));
        let errors = product_error(&q, &k, &hat);
        let (q, k, hat) = (rows(&q), rows(&k), rows(&hat));
        for r in 0..3 {
            let square: f64 = k[r].iter().zip(&hat[r]).map(|(a, b)| (a - b).powi(2)).sum();
            assert!((squares.double_value(&[r as i64]) - square).abs() < 1e-12);
            assert!((distances.double_value(&[r as i64]) - square.sqrt()).abs() < 1e-9);
            for c in 0..3 {
                let error = (dot(&q[r], &k[c]) - dot(&q[r], &hat[c])).powi(2);
                assert!((errors.double_value(&[r as i64, c as i64]) - error).abs() < 1e-11);
            }
        }
    }

    #[test]
    fn the_log_probability_is_that_of_the_codes_and_its_other_form_has_value_0() {
        let logits = random_tensor(10, &[2, 3, 4]).set_requires_grad(true);
        let codes = logits.argmax(-1, false);
        let found = log_probability(&logits, &codes);
        for r in 0..3i64 {
            let mut expected = 0.0;
            for i in 0..2i64 {
                let row: Vec<f64> = (0..4i64).map(|j| logits.double_value(&[i, r, j])).collect();
                let sum: f64 = row.iter().map(|x| x.exp()).sum();
                expected -= (row[codes.int64_value(&[i, r]) as usize].exp() / sum).ln();
            }
            assert!((found.double_value(&[r]) - expected).abs() < 1e-12);
        }
        let p = logits.softmax(-1, Kind::Double);
        let term = straight_through_probability(&p, &codes);
        assert_eq!(term.abs().max().double_value(&[]), 0.0);
        let gradient =
            Tensor::run_backward(&[term.sum(Kind::Double)], &[&logits], true, false).remove(0);
        let chosen = p.gather(-1, &codes.unsqueeze(-1), false).sum(Kind::Double);
        let expected = -Tensor::run_backward(&[chosen], &[&logits], false, false).remove(0);
        assert!(max_difference(&gradient, &expected) < 1e-14);
    }
}
