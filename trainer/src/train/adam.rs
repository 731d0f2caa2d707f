//! Adam (Kingma and Ba), without weight decay and clipping. It is written here because its moments go into checkpoints:
//! a resumed run takes the same steps as one that was never interrupted.

use tch::{Tensor, no_grad};

/// Constants of the update.
#[derive(Debug, Clone, Copy)]
pub struct AdamConfig {
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squared gradients.
    pub beta2: f64,
    /// A small number that is added to the root of the mean of squared gradients.
    pub epsilon: f64,
}

/// The moments of one parameter.
#[derive(Debug)]
pub struct Moments {
    /// Mean of gradients.
    pub mean: Tensor,
    /// Mean of squared gradients.
    pub square: Tensor,
    /// The steps that this parameter has taken.
    pub steps: i64,
}

impl Moments {
    /// Returns the moments of a parameter that has taken no step.
    pub fn zero(parameter: &Tensor) -> Self {
        Self {
            mean: parameter.zeros_like().set_requires_grad(false),
            square: parameter.zeros_like().set_requires_grad(false),
            steps: 0,
        }
    }
}

impl AdamConfig {
    /// theta <- theta - lr * m^ / (sqrt(v^) + eps), with m^ = m/(1-b1^t), v^ = v/(1-b2^t).
    pub fn step(&self, parameter: &mut Tensor, moments: &mut Moments, gradient: &Tensor, lr: f64) {
        no_grad(|| {
            moments.steps += 1;
            let t = moments.steps as i32;
            let _ = moments.mean.g_mul_scalar_(self.beta1);
            let _ = moments.mean.g_add_(&(gradient * (1.0 - self.beta1)));
            let _ = moments.square.g_mul_scalar_(self.beta2);
            let _ = moments
                .square
                .g_add_(&(gradient.square() * (1.0 - self.beta2)));
            let root = (&moments.square / (1.0 - self.beta2.powi(t))).sqrt() + self.epsilon;
            let step = &moments.mean * (lr / (1.0 - self.beta1.powi(t))) / root;
            let _ = parameter.g_sub_(&step);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_steps_agree_with_plain_arithmetic() {
        let adam = AdamConfig {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
        };
        let mut x = Tensor::from_slice(&[1.0f64, -2.0]).set_requires_grad(true);
        let mut moments = Moments::zero(&x);
        let (mut expected, mut m, mut v) = ([1.0f64, -2.0], [0.0f64; 2], [0.0f64; 2]);
        for t in 1..=3 {
            let gradient = [0.3 * f64::from(t), -1.0 / f64::from(t)];
            adam.step(&mut x, &mut moments, &Tensor::from_slice(&gradient), 0.01);
            for i in 0..2 {
                m[i] = 0.9 * m[i] + 0.1 * gradient[i];
                v[i] = 0.999 * v[i] + 0.001 * gradient[i] * gradient[i];
                let (mh, vh) = (
                    m[i] / (1.0 - 0.9f64.powi(t)),
                    v[i] / (1.0 - 0.999f64.powi(t)),
                );
                expected[i] -= 0.01 * mh / (vh.sqrt() + 1e-8);
            }
        }
        let got = Vec::<f64>::try_from(&x).unwrap();
        for i in 0..2 {
            assert!((got[i] - expected[i]).abs() < 1e-14, "{got:?} {expected:?}");
        }
    }
}
