//! Shared by several tests: seeded tensors in float64, and differences.

use tch::{Device, Kind, Tensor};

use crate::random::Random;

/// Returns standard normal values, in float64.
pub(crate) fn random_tensor(seed: u64, shape: &[i64]) -> Tensor {
    let mut random = Random::new(seed, "test", 0);
    let count: i64 = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|_| random.normal()).collect();
    Tensor::from_slice(&values).view(shape)
}

/// Returns the largest difference between two tensors of one shape.
pub(crate) fn max_difference(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.size(), b.size());
    (a - b).abs().max().to_kind(Kind::Double).double_value(&[])
}

/// Returns |a - b| / |b|.
pub(crate) fn relative(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.size(), b.size());
    let size = |x: &Tensor| {
        x.to_device(Device::Cpu)
            .square()
            .sum(Kind::Double)
            .sqrt()
            .double_value(&[])
    };
    size(&(a - b)) / size(b)
}
