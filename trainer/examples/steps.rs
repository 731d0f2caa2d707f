//! Steps per CPU-second of the full objective on frozen embeddings: 384 -> 128, 8 x 256, batch 512, both
//! cross-entropies, softmax straight-through. `cargo run --release -p mopqdb-trainer --example steps`

use mopqdb_trainer::config::{Activation, Sampling, StraightThrough, TrainConfig};
use mopqdb_trainer::devices::Gather;
use mopqdb_trainer::methods::Objective;
use mopqdb_trainer::model::codebook::{Selection, SoftCodebook};
use mopqdb_trainer::model::head::Head;
use mopqdb_trainer::model::{Input, Model};
use mopqdb_trainer::random::Random;
use mopqdb_trainer::train::{AdamConfig, Rates, Replica, Slice, cpu_seconds};
use tch::Tensor;

fn main() -> anyhow::Result<()> {
    tch::set_num_threads(1);
    let mut random = Random::new(1, "steps", 0);
    let mut normal = |shape: &[i64], scale: f64| {
        let count = shape.iter().product::<i64>();
        let values: Vec<f32> = (0..count)
            .map(|_| (random.normal() * scale) as f32)
            .collect();
        Tensor::from_slice(&values).view(shape)
    };
    let rows = 512;
    let slice = Slice {
        queries: Input::Vectors(normal(&[rows, 384], 0.05)),
        keys: Input::Vectors(normal(&[rows, 384], 0.05)),
        rows,
        key_ids: Some(Tensor::arange(rows, (tch::Kind::Int64, tch::Device::Cpu))),
    };
    let model = Model {
        encoder: None,
        head: Head::new(
            &normal(&[128, 384], 0.3),
            &normal(&[128], 0.1),
            Activation::None,
        ),
        codebook: Some(SoftCodebook::new(
            &normal(&[8, 256, 16], 0.4),
            Selection::L2,
            1.0,
            StraightThrough::Softmax,
        )),
    };
    let config = TrainConfig::default();
    let objective = Objective::of(&config).expect("mopq has its own objective");
    let adam = AdamConfig {
        beta1: config.beta1,
        beta2: config.beta2,
        epsilon: config.epsilon,
    };
    let mut replica = Replica::new(model, adam, objective, Sampling::InBatch);
    let gather = Gather::solo();
    let rates = Rates {
        encoder: 1e-4,
        quantizer: 1e-3,
    };
    for round in 0..4 {
        let begin = cpu_seconds();
        let steps = 60;
        for _ in 0..steps {
            replica.step(&gather, &slice, rates)?;
        }
        let spent = cpu_seconds() - begin;
        println!(
            "round {round}: {:.1} steps per CPU-second",
            f64::from(steps) / spent
        );
    }
    Ok(())
}
