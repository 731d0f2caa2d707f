//! The trainable codebook: selection of a codeword in each subspace, and the gradient through that choice.
//!
//! z is split into `subspaces` slices z_i; slice i chooses j* = argmax_j s_ij among the codewords C_ij:
//!
//! | selection | s_ij |
//! |---|---|
//! | l2 | -\|z_i - C_ij\|² |
//! | cosine | cos(z_i, C_ij) |
//! | product | <z_i, C_ij> |
//! | bilinear | z_i W C_ijᵀ |
//! | keys | <z_i, K_ij> |
//!
//! p_i = softmax_j(s_ij / temperature), and the straight-through assignment a_i = onehot(j*) - sg(p_i) + p_i has the
//! value of its first term and the gradient of its last.

use tch::{Kind, Tensor};

use super::{Group, Parameter, leaf, parameter};
use crate::config::StraightThrough;

/// How a slice chooses a codeword, with the parameters of the choice.
#[derive(Debug)]
pub enum Selection {
    /// Nearest.
    L2,
    /// Smallest angle.
    Cosine,
    /// Largest inner product.
    Product,
    /// W (sub_dim, sub_dim), shared by the subspaces.
    Bilinear(Tensor),
    /// K (subspaces, codewords, sub_dim).
    Keys(Tensor),
}

/// Trainable codewords.
#[derive(Debug)]
pub struct SoftCodebook {
    /// (subspaces, codewords, sub_dim)
    pub codewords: Tensor,
    /// How a slice chooses a codeword.
    pub selection: Selection,
    /// The temperature of the softmax over codewords.
    pub temperature: f64,
    /// How the gradient passes the choice.
    pub straight_through: StraightThrough,
}

/// A batch of embeddings, quantized.
#[derive(Debug)]
pub struct Quantized {
    /// z^ (rows, dim): the chosen codewords, exactly.
    pub hat: Tensor,
    /// The codes: (subspaces, rows).
    pub codes: Tensor,
    /// s_ij, up to a constant of each slice (subspaces, rows, codewords).
    pub logits: Tensor,
}

impl SoftCodebook {
    /// Creates trainable codewords from their starting values.
    pub fn new(
        codewords: &Tensor,
        selection: Selection,
        temperature: f64,
        straight_through: StraightThrough,
    ) -> Self {
        Self {
            codewords: leaf(codewords),
            selection: match selection {
                Selection::Bilinear(w) => Selection::Bilinear(leaf(&w)),
                Selection::Keys(k) => Selection::Keys(leaf(&k)),
                plain => plain,
            },
            temperature,
            straight_through,
        }
    }

    /// Returns s_ij of z (rows, dim), up to a constant of each slice: (subspaces, rows, codewords).
    pub fn logits(&self, z: &Tensor) -> Tensor {
        let z = self.slices(z); // subspaces, rows, sub_dim
        let c = &self.codewords;
        match &self.selection {
            // -|z - C|² = 2<z, C> - |C|² - |z|², and |z|² changes neither argmax nor softmax.
            Selection::L2 => {
                let norms = c.square().sum_dim_intlist(-1, false, None::<Kind>); // subspaces, codewords
                (-norms)
                    .unsqueeze(1)
                    .baddbmm(&z, &c.transpose(1, 2), 1.0, 2.0)
            }
            Selection::Cosine => unit(&z).bmm(&unit(c).transpose(1, 2)),
            Selection::Product => z.bmm(&c.transpose(1, 2)),
            Selection::Bilinear(w) => z.matmul(w).bmm(&c.transpose(1, 2)),
            Selection::Keys(keys) => z.bmm(&keys.transpose(1, 2)),
        }
    }

    /// Returns p_ij of logits (subspaces, rows, codewords).
    pub fn probabilities(&self, logits: &Tensor) -> Tensor {
        if self.temperature == 1.0 {
            logits.softmax(-1, logits.kind())
        } else {
            (logits / self.temperature).softmax(-1, logits.kind())
        }
    }

    /// Returns the chosen codewords of codes (subspaces, rows): (rows, dim).
    pub fn decode(&self, codes: &Tensor) -> Tensor {
        let (subspaces, codewords, sub_dim) = self.shape();
        let rows = codes.size()[1];
        let first =
            Tensor::arange(subspaces, (Kind::Int64, codes.device())).unsqueeze(1) * codewords;
        let flat = self.codewords.view([subspaces * codewords, sub_dim]);
        self.join(
            &flat
                .index_select(0, &(codes + first).view(-1))
                .view([subspaces, rows, sub_dim]),
        )
    }

    /// Returns z^ with its straight-through gradient.
    pub fn quantize(&self, z: &Tensor) -> Quantized {
        let logits = self.logits(z);
        let codes = logits.argmax(-1, false);
        let chosen = self.decode(&codes);
        // Sum_j a_ij C_ij is computed in two parts, so that no one-hot matrix is needed. The value and the gradient of
        // a's first part to C are those of `chosen`. The gradient through p is that of Sum_j p_ij sg(C_ij), whose value
        // is subtracted again (x - x is exactly 0, so `hat` is exactly the codewords).
        let through = match self.straight_through {
            StraightThrough::Softmax => {
                self.join(&self.probabilities(&logits).bmm(&self.codewords.detach()))
            }
            StraightThrough::Copy => z.shallow_clone(),
        };
        Quantized {
            hat: chosen + (&through - through.detach()),
            codes,
            logits,
        }
    }

    /// Returns the soft reconstruction z̄ = Sum_j p_ij C_ij (rows, dim), from logits.
    pub fn soft(&self, logits: &Tensor) -> Tensor {
        self.join(&self.probabilities(logits).bmm(&self.codewords))
    }

    /// Returns (subspaces, codewords, sub_dim).
    pub fn shape(&self) -> (i64, i64, i64) {
        self.codewords
            .size3()
            .expect("codewords have three dimensions")
    }

    /// Splits (rows, dim) into (subspaces, rows, sub_dim).
    pub(crate) fn slices(&self, z: &Tensor) -> Tensor {
        let (subspaces, _, sub_dim) = self.shape();
        z.view([-1, subspaces, sub_dim]).transpose(0, 1)
    }

    /// Joins (subspaces, rows, sub_dim) into (rows, dim).
    pub(crate) fn join(&self, slices: &Tensor) -> Tensor {
        let (subspaces, _, sub_dim) = self.shape();
        slices.transpose(0, 1).reshape([-1, subspaces * sub_dim])
    }

    pub(super) fn parameters(&self) -> Vec<Parameter> {
        let mut all = vec![parameter("codebook", Group::Quantizer, &self.codewords)];
        match &self.selection {
            Selection::Bilinear(w) => all.push(parameter("W", Group::Quantizer, w)),
            Selection::Keys(keys) => all.push(parameter("keys", Group::Quantizer, keys)),
            Selection::L2 | Selection::Cosine | Selection::Product => {}
        }
        all
    }
}

/// Scales rows to length 1 (a row of length 0 stays 0).
fn unit(x: &Tensor) -> Tensor {
    let squares = x.square().sum_dim_intlist(-1, true, None::<Kind>);
    x / squares.clamp_min(1e-24).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{max_difference, random_tensor, relative};

    const ROWS: i64 = 9;
    const SHAPE: [i64; 3] = [3, 5, 4];

    fn book(
        selection: Selection,
        temperature: f64,
        straight_through: StraightThrough,
    ) -> SoftCodebook {
        SoftCodebook::new(
            &random_tensor(1, &SHAPE),
            selection,
            temperature,
            straight_through,
        )
    }

    fn embeddings() -> Tensor {
        random_tensor(2, &[ROWS, SHAPE[0] * SHAPE[2]]).set_requires_grad(true)
    }

    /// Returns the index of the best codeword for a slice, by plain loops, according to the table above.
    fn choose(score: impl Fn(&[f64]) -> f64, codewords: &[Vec<f64>]) -> i64 {
        let scores: Vec<f64> = codewords.iter().map(|c| score(c)).collect();
        let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        scores.iter().position(|&s| s == best).unwrap() as i64
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    fn rows_of(tensor: &Tensor) -> Vec<Vec<f64>> {
        Vec::<Vec<f64>>::try_from(tensor.detach().contiguous()).unwrap()
    }

    #[test]
    fn every_selection_agrees_with_plain_arithmetic() {
        let w = random_tensor(3, &[4, 4]);
        let keys = random_tensor(4, &SHAPE);
        let z = embeddings();
        for name in ["l2", "cosine", "product", "bilinear", "keys"] {
            let selection = match name {
                "l2" => Selection::L2,
                "cosine" => Selection::Cosine,
                "product" => Selection::Product,
                "bilinear" => Selection::Bilinear(w.copy()),
                _ => Selection::Keys(keys.copy()),
            };
            let book = book(selection, 1.0, StraightThrough::Softmax);
            let codes = book.quantize(&z).codes;
            for i in 0..SHAPE[0] {
                let codewords = rows_of(&book.codewords.get(i));
                let key_rows = rows_of(&keys.get(i));
                for (row, slice) in rows_of(&z.narrow(1, i * 4, 4)).iter().enumerate() {
                    let zw = rows_of(&Tensor::from_slice(slice).unsqueeze(0).matmul(&w)).remove(0);
                    let expected = match name {
                        "l2" => choose(
                            |c| {
                                -c.iter()
                                    .zip(slice)
                                    .map(|(a, b)| (a - b).powi(2))
                                    .sum::<f64>()
                            },
                            &codewords,
                        ),
                        "cosine" => choose(|c| dot(c, slice) / dot(c, c).sqrt(), &codewords),
                        "product" => choose(|c| dot(c, slice), &codewords),
                        "bilinear" => choose(|c| dot(c, &zw), &codewords),
                        _ => choose(|k| dot(k, slice), &key_rows),
                    };
                    assert_eq!(
                        codes.int64_value(&[i, row as i64]),
                        expected,
                        "{name}, subspace {i}, row {row}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_forward_value_is_exactly_the_chosen_codewords() {
        for straight_through in [StraightThrough::Softmax, StraightThrough::Copy] {
            let book = book(Selection::L2, 0.7, straight_through);
            let quantized = book.quantize(&embeddings());
            assert_eq!(
                max_difference(&quantized.hat, &book.decode(&quantized.codes)),
                0.0
            );
        }
    }

    /// to C_ij 1[j=j*] g_i + (2/t) p_ij <g_i, C_ij - c̄_i> (z_i - C_ij); to z_i (2/t) Cov_p(C_i) g_i.
    #[test]
    fn the_softmax_gradient_equals_the_closed_form() {
        for temperature in [1.0, 0.3, 4.0] {
            let book = book(Selection::L2, temperature, StraightThrough::Softmax);
            let z = embeddings();
            let g = random_tensor(5, &[ROWS, 12]);
            let quantized = book.quantize(&z);
            let found = Tensor::run_backward(
                &[(&quantized.hat * &g).sum(Kind::Double)],
                &[&z, &book.codewords],
                false,
                false,
            );

            let p = book.probabilities(&quantized.logits).detach(); // 3, ROWS, 5
            let c = book.codewords.detach(); // 3, 5, 4
            let z_slices = book.slices(&z).detach(); // 3, ROWS, 4
            let g_slices = book.slices(&g); // 3, ROWS, 4
            let mean = p.bmm(&c); // 3, ROWS, 4
            let to_c = Tensor::zeros(SHAPE, (Kind::Double, tch::Device::Cpu));
            let to_z = Tensor::zeros([3, ROWS, 4], (Kind::Double, tch::Device::Cpu));
            for i in 0..3 {
                for row in 0..ROWS {
                    let (gi, zi, mi) = (
                        g_slices.get(i).get(row),
                        z_slices.get(i).get(row),
                        mean.get(i).get(row),
                    );
                    let chosen = quantized.codes.int64_value(&[i, row]);
                    for j in 0..5 {
                        let (cij, pij) = (c.get(i).get(j), p.double_value(&[i, row, j]));
                        let centred = &cij - &mi;
                        let along = centred.dot(&gi).double_value(&[]);
                        let mut slot = to_c.get(i).get(j);
                        if j == chosen {
                            let _ = slot.g_add_(&gi);
                        }
                        let _ = slot.g_add_(&((&zi - &cij) * (2.0 / temperature * pij * along)));
                        let _ = to_z
                            .get(i)
                            .get(row)
                            .g_add_(&(centred * (2.0 / temperature * pij * along)));
                    }
                }
            }
            let to_z = book.join(&to_z);
            assert!(
                relative(&found[0], &to_z) < 1e-10,
                "to z at {temperature}: {}",
                relative(&found[0], &to_z)
            );
            assert!(
                relative(&found[1], &to_c) < 1e-10,
                "to C at {temperature}: {}",
                relative(&found[1], &to_c)
            );
        }
    }

    #[test]
    fn the_copied_gradient_reaches_the_embedding_unchanged_and_only_chosen_codewords() {
        let book = book(Selection::L2, 1.0, StraightThrough::Copy);
        let z = embeddings();
        let g = random_tensor(6, &[ROWS, 12]);
        let quantized = book.quantize(&z);
        let found = Tensor::run_backward(
            &[(&quantized.hat * &g).sum(Kind::Double)],
            &[&z, &book.codewords],
            false,
            false,
        );
        assert_eq!(max_difference(&found[0], &g), 0.0);
        for i in 0..3 {
            for j in 0..5 {
                let chosen = quantized.codes.get(i).eq(j).any().int64_value(&[]) != 0;
                let touched = found[1]
                    .get(i)
                    .get(j)
                    .abs()
                    .sum(Kind::Double)
                    .double_value(&[])
                    > 0.0;
                assert_eq!(chosen, touched, "subspace {i}, codeword {j}");
            }
        }
    }
}
