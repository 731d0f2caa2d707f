//! Distillation without labels: the scores of the stored vectors are the teacher (ListNet, as in Distill-VQ). Queries
//! are made from the keys, so only rows are needed.
//!
//! A batch has queries x_q and a pool of distinct keys x_k, all of which are stored vectors. With the teacher's
//! distribution over the pool, T_r = softmax_u(<x_q, x_u> / t), and z = x Wᵀ + b:
//!
//! Loss = mean_r -Sum_u T_ru log softmax_u(<z_r, k^_u>) + w mean_r -Sum_u T_ru log softmax_u(<z_r, k_u>)
//!
//! with k^ straight-through. The head warms up with the second term alone.
//!
//! The gradients are computed explicitly: that takes about half of autograd's time, and no graph of the pool's logits
//! is kept.

use tch::{Kind, Tensor, no_grad};

use crate::model::codebook::SoftCodebook;
use crate::model::head::Head;
use crate::random::Random;

/// The weights of the objective.
#[derive(Debug, Clone)]
pub struct Distill {
    /// w.
    pub dense_weight: f64,
    /// Temperature t of the teacher, for vectors of length 1.
    pub teacher_temperature: f64,
    /// Share of the label in the target of a query that has one.
    pub label_share: f64,
}

/// How a query is made from three keys: of unit length, with `cosine` to `key`, and otherwise along k_a - k_b.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recipe {
    /// The row that answers the query.
    pub key: u32,
    /// a.
    pub plus: u32,
    /// b.
    pub minus: u32,
    /// s.
    pub cosine: f32,
}

impl Recipe {
    /// Draws two of `rows` rows and a cosine for a key.
    pub fn draw(key: u32, rows: usize, (least, largest): (f64, f64), random: &mut Random) -> Self {
        Self {
            key,
            plus: random.below(rows) as u32,
            minus: random.below(rows) as u32,
            cosine: (least + (largest - least) * random.unit()) as f32,
        }
    }

    /// Appends the query, of length `length`, to `made`:
    ///
    /// p = k_a - k_b minus its projection onto k;  q = s k/|k| + sqrt(1 - s²) p/|p|
    ///
    /// If one of the two has no direction (equal rows, a row of zeros), the query is the other.
    pub fn make(self, keys: &[f32], hidden: usize, length: f32, made: &mut Vec<f32>) {
        let row = |row: u32| &keys[row as usize * hidden..][..hidden];
        let (key, plus, minus) = (row(self.key), row(self.plus), row(self.minus));
        let norm = |x: &[f32]| dot(x, x).sqrt();
        let key_norm = norm(key);
        let first = made.len();
        made.extend(plus.iter().zip(minus).map(|(a, b)| a - b));
        let p = &mut made[first..];
        let before = norm(p);
        if key_norm > 0.0 {
            let along = dot(p, key) / (key_norm * key_norm);
            for (p, k) in p.iter_mut().zip(key) {
                *p -= along * k;
            }
        }
        // What is left of p along k is a rounding error.
        let rest = norm(p);
        let has_rest = rest > 1e-5 * before && rest > 0.0;
        let (of_key, of_rest) = match (key_norm > 0.0, has_rest) {
            (true, true) => {
                let sine = (1.0 - self.cosine * self.cosine).max(0.0).sqrt();
                (self.cosine / key_norm, sine / rest)
            }
            (true, false) => (1.0 / key_norm, 0.0),
            (false, true) => (0.0, 1.0 / rest),
            (false, false) => (0.0, 0.0),
        };
        for (p, k) in p.iter_mut().zip(key) {
            *p = length * (of_key * k + of_rest * *p);
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// A batch as tensors.
#[derive(Debug)]
pub struct Batch {
    /// x_q (queries, hidden)
    pub queries: Tensor,
    /// x_k (pool, hidden)
    pub keys: Tensor,
    /// T (queries, pool)
    pub target: Tensor,
}

impl Distill {
    /// Returns T for queries and a pool of vectors of this length, with the known labels (query, place in the pool).
    pub fn target(
        &self,
        queries: &Tensor,
        keys: &Tensor,
        length: f64,
        labels: &[(i64, i64)],
    ) -> Tensor {
        let scale = 1.0 / (self.teacher_temperature * length * length);
        let target = (queries * scale).matmul(&keys.tr()).softmax(-1, None);
        for &(query, place) in labels {
            let mut row = target.get(query);
            let _ = row.g_mul_scalar_(1.0 - self.label_share);
            let _ = row.get(place).g_add_scalar_(self.label_share);
        }
        target
    }

    /// Returns the loss and its gradients, in the order of the model's parameters: W (dim, hidden), b (dim) and, if
    /// there are codewords, C (subspaces, codewords, sub_dim). Without codewords the loss is the second term alone.
    pub fn gradients(
        &self,
        batch: &Batch,
        head: &Head,
        codebook: Option<&SoftCodebook>,
    ) -> (Vec<Tensor>, f64) {
        no_grad(|| {
            let rows = batch.queries.size()[0];
            let x = Tensor::cat(&[&batch.queries, &batch.keys], 0); // rows + pool, hidden
            let z = x.linear(&head.weight, Some(&head.bias)); // rows + pool, dim
            let (q, k) = (z.narrow(0, 0, rows), z.narrow(0, rows, z.size()[0] - rows));
            let Some(codebook) = codebook else {
                let dense = contrast(&q, &k, &batch.target, 1.0);
                let to_z = Tensor::cat(&[&dense.to_queries, &dense.to_keys], 0);
                return (of_head(&to_z, &x), dense.loss);
            };
            let dense = contrast(&q, &k, &batch.target, self.dense_weight);
            let (hat, passage) = through(codebook, &k);
            let coded = contrast(&q, &hat, &batch.target, 1.0);
            let (to_k, to_codewords) = passage.back(codebook, &coded.to_keys);
            let to_z = Tensor::cat(
                &[dense.to_queries + coded.to_queries, dense.to_keys + to_k],
                0,
            );
            let mut gradients = of_head(&to_z, &x);
            gradients.push(to_codewords);
            (gradients, coded.loss + dense.loss)
        })
    }
}

/// Returns the gradients to W and b from the gradient to z = x Wᵀ + b.
fn of_head(to_z: &Tensor, x: &Tensor) -> Vec<Tensor> {
    let to_bias = to_z.sum_dim_intlist(0, false, None::<Kind>);
    vec![to_z.tr().matmul(x), to_bias]
}

/// One of the two terms: its weighted loss and its gradients.
struct Contrast {
    loss: f64,
    /// (queries, dim)
    to_queries: Tensor,
    /// (pool, dim)
    to_keys: Tensor,
}

/// weight · mean_r -Sum_u T_ru log softmax_u(<q_r, k_u>). The gradient to the scores is weight (softmax - T) / rows.
fn contrast(q: &Tensor, k: &Tensor, target: &Tensor, weight: f64) -> Contrast {
    let scale = weight / q.size()[0] as f64;
    let mut log_p = q.matmul(&k.tr()).log_softmax(-1, None); // queries, pool
    let loss = -scale * (target * &log_p).sum(Kind::Double).double_value(&[]);
    let mut to_scores = log_p.exp_();
    let _ = to_scores.g_sub_(target);
    let _ = to_scores.g_mul_scalar_(scale);
    Contrast {
        loss,
        to_queries: to_scores.matmul(k),
        to_keys: to_scores.tr().matmul(q),
    }
}

/// What the backward pass through the straight-through choice needs from the forward pass.
struct Passage {
    /// (subspaces, pool, sub_dim)
    z: Tensor,
    /// (subspaces, pool)
    codes: Tensor,
    /// p (subspaces, pool, codewords)
    p: Tensor,
}

/// Returns k^ of k (pool, dim), by l2.
fn through(codebook: &SoftCodebook, k: &Tensor) -> (Tensor, Passage) {
    let logits = codebook.logits(k);
    let codes = logits.argmax(-1, false);
    let hat = codebook.decode(&codes);
    let passage = Passage {
        z: codebook.slices(k).contiguous(),
        codes,
        p: codebook.probabilities(&logits),
    };
    (hat, passage)
}

impl Passage {
    /// Returns the gradients to k (pool, dim) and to C, from the gradient to k^ (pool, dim). With g_i its slices and
    /// c̄_i = Sum_j p_ij C_ij:
    ///
    /// - v_ij = p_ij <g_i, C_ij - c̄_i> is the gradient to the scaled logit,
    /// - to z_i: (2/t) Sum_j v_ij C_ij (the part of z_i itself vanishes, as the v_ij of a slice sum to 0),
    /// - to C_ij: 1[j = j*] g_i + (2/t) v_ij (z_i - C_ij), summed over the pool.
    fn back(self, codebook: &SoftCodebook, to_hat: &Tensor) -> (Tensor, Tensor) {
        let (subspaces, codewords, sub_dim) = codebook.shape();
        let c = codebook.codewords.detach();
        let g = codebook.slices(to_hat).contiguous(); // subspaces, pool, sub_dim
        let mut v = g.bmm(&c.transpose(1, 2)); // subspaces, pool, codewords
        let mean = (&v * &self.p).sum_dim_intlist(-1, true, None::<Kind>); // <g_i, c̄_i>
        let _ = v.g_sub_(&mean);
        let _ = v.g_mul_(&self.p);
        let scale = 2.0 / codebook.temperature;
        let to_z = v.bmm(&c) * scale;
        let mass = v.sum_dim_intlist(1, false, None::<Kind>).unsqueeze(-1); // subspaces, codewords, 1
        let to_c = (v.transpose(1, 2).bmm(&self.z) - &c * mass) * scale;
        let first = Tensor::arange(subspaces, (Kind::Int64, c.device())).unsqueeze(1) * codewords;
        let chosen = (self.codes + first).view(-1);
        let mut flat = to_c.contiguous().view([subspaces * codewords, sub_dim]);
        let _ = flat.index_add_(0, &chosen, &g.view([-1, sub_dim]));
        (
            codebook.join(&to_z),
            flat.view([subspaces, codewords, sub_dim]),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Activation, StraightThrough};
    use crate::model::codebook::Selection;
    use crate::testing::{random_tensor, relative};

    const DISTILL: Distill = Distill {
        dense_weight: 0.7,
        teacher_temperature: 0.5,
        label_share: 0.25,
    };

    fn model() -> (Head, SoftCodebook) {
        let head = Head::new(
            &random_tensor(1, &[8, 6]),
            &random_tensor(2, &[8]),
            Activation::None,
        );
        let book = SoftCodebook::new(
            &random_tensor(3, &[2, 5, 4]),
            Selection::L2,
            1.3,
            StraightThrough::Softmax,
        );
        (head, book)
    }

    fn batch() -> Batch {
        let (queries, keys) = (random_tensor(4, &[7, 6]), random_tensor(5, &[9, 6]));
        let target = DISTILL.target(&queries, &keys, 1.5, &[(2, 4), (6, 0)]);
        Batch {
            queries,
            keys,
            target,
        }
    }

    /// Returns the loss at the top of this file, through autograd and the codebook's own straight-through choice.
    fn loss(batch: &Batch, head: &Head, codebook: Option<&SoftCodebook>) -> Tensor {
        let (q, k) = (head.forward(&batch.queries), head.forward(&batch.keys));
        let term = |k: &Tensor| {
            let log_p = q.matmul(&k.tr()).log_softmax(-1, None);
            -(&batch.target * log_p).sum(Kind::Double) / batch.queries.size()[0] as f64
        };
        match codebook {
            None => term(&k),
            Some(codebook) => term(&codebook.quantize(&k).hat) + term(&k) * DISTILL.dense_weight,
        }
    }

    #[test]
    fn the_explicit_gradients_are_those_of_the_loss() {
        let (head, book) = model();
        let batch = batch();
        for codebook in [None, Some(&book)] {
            let (found, value) = DISTILL.gradients(&batch, &head, codebook);
            let loss = loss(&batch, &head, codebook);
            assert!((value - loss.double_value(&[])).abs() < 1e-12);
            let mut parameters = vec![&head.weight, &head.bias];
            parameters.extend(codebook.map(|book| &book.codewords));
            let expected = Tensor::run_backward(&[&loss], &parameters, false, false);
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                assert!(relative(found, expected) < 1e-10);
            }
        }
    }

    #[test]
    fn the_target_mixes_the_teachers_softmax_and_the_label() {
        let batch = batch();
        let scores = batch.queries.matmul(&batch.keys.tr());
        for (query, label) in [(0, None), (2, Some(4))] {
            let of = |key| (scores.double_value(&[query, key]) / (0.5 * 1.5 * 1.5)).exp();
            let sum: f64 = (0..9).map(of).sum();
            for key in 0..9 {
                let expected = match label {
                    None => of(key) / sum,
                    Some(right) => 0.75 * of(key) / sum + if key == right { 0.25 } else { 0.0 },
                };
                let found = batch.target.double_value(&[query, key]);
                assert!((found - expected).abs() < 1e-12, "{query}, {key}");
            }
        }
    }

    #[test]
    fn a_made_query_has_the_requested_length_and_cosine() {
        let hidden = 16;
        let keys = crate::export::floats(&random_tensor(6, &[20, hidden as i64]));
        let mut random = Random::new(7, "recipes", 0);
        for key in 0..20 {
            let recipe = Recipe::draw(key, 20, (0.4, 0.9), &mut random);
            assert!((0.4..=0.9).contains(&recipe.cosine));
            if recipe.plus == recipe.minus {
                continue;
            }
            let mut made = Vec::new();
            recipe.make(&keys, hidden, 3.0, &mut made);
            let key = &keys[key as usize * hidden..][..hidden];
            let length = dot(&made, &made).sqrt();
            let cosine = dot(&made, key) / length / dot(key, key).sqrt();
            assert!((length - 3.0).abs() < 1e-4, "{length}");
            assert!(
                (cosine - recipe.cosine).abs() < 1e-4,
                "{recipe:?}: {cosine}"
            );
        }
    }

    #[test]
    fn a_query_made_from_rows_without_direction_uses_the_other_rows() {
        let keys = [3.0, 4.0, 0.0, 0.0, 6.0, 8.0, 0.0, 1.0];
        let make = |key, plus, minus| {
            let mut made = Vec::new();
            let recipe = Recipe {
                key,
                plus,
                minus,
                cosine: 0.5,
            };
            recipe.make(&keys, 2, 1.0, &mut made);
            made
        };
        let near = |found: Vec<f32>, x: f32, y: f32| {
            assert!(
                (found[0] - x).abs() < 1e-6 && (found[1] - y).abs() < 1e-6,
                "{found:?}"
            );
        };
        near(make(0, 3, 3), 0.6, 0.8); // a = b
        near(make(0, 2, 0), 0.6, 0.8); // along the key
        near(make(1, 3, 1), 0.0, 1.0); // the key is zero
        near(make(1, 3, 3), 0.0, 0.0); // everything is zero
    }
}
