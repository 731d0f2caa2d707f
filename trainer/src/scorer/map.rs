//! The query map A (hidden, hidden), learned from pairs.
//!
//! With the batch's queries q and keys k as they are stored:
//!
//! Loss = mean_r -log softmax_c(t <q_r A, k_c>)[r] + λ |A - I|²
//!
//! from A = I. Keys that stand in the batch twice are no negatives of themselves. The scale t is learned by its logarithm,
//! from 25 for vectors of length 1. λ is chosen by the recall at 10 of validation queries over all keys. All is done on the
//! query side: no stored row and no code depends on A.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail, ensure};
use mopqdb::eval::{Places, VectorQuestions};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor, no_grad};

use crate::data::Vectors;
use crate::random::Random;
use crate::train::loss::{MASKED, collisions};
use crate::train::{AdamConfig, Moments};

/// All that decides the map, with the source of each number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MapConfig {
    /// t at the start, for vectors of length 1.
    pub temperature: f64,
    /// Weights λ of the distance from I that are tried.
    pub lambdas: Vec<f64>,
    /// Adam's learning rate.
    pub learning_rate: f64,
    /// Passes over the pairs.
    pub epochs: usize,
    /// Pairs per step.
    pub batch: usize,
    /// Where the order of the pairs comes from.
    pub seed: u64,
}

impl Default for MapConfig {
    fn default() -> Self {
        Self {
            temperature: 25.0,               // as in the reference runs
            lambdas: vec![1e-3, 3e-3, 1e-2], // as in the reference runs
            learning_rate: 5e-4,             // as in the reference runs
            epochs: 10,                      // as in the reference runs
            batch: 1_000,                    // as in the reference runs
            seed: 42,
        }
    }
}

/// What a map is learned from.
#[derive(Debug, Clone, Copy)]
pub struct MapLessons<'a> {
    /// All stored vectors.
    pub keys: Vectors<'a>,
    /// Of each row, the row that stands for its text ([`Corpus::twins`](crate::data::Corpus::twins)).
    pub twins: &'a [u32],
    /// Training queries (queries, hidden).
    pub queries: &'a [f32],
    /// (query, row)
    pub pairs: &'a [(u32, u32)],
    /// What chooses λ, and decides whether the map is adopted. Without any, the middle λ is taken.
    pub validation: &'a VectorQuestions,
}

/// What one λ came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// λ.
    pub lambda: f64,
    /// Recall at 10 of the validation queries.
    pub recall: f64,
}

/// A learned map, and how it does on validation.
#[derive(Debug, Clone)]
pub struct LearnedMap {
    /// A (hidden, hidden), row-major: a query is searched as q A.
    pub map: Vec<f32>,
    /// t as it was learned.
    pub temperature: f64,
    /// The λ that was chosen.
    pub lambda: f64,
    /// All that were tried.
    pub tried: Vec<Tried>,
    /// Where the right rows stand by exact search without the map.
    pub exact: Places,
    /// The same with it.
    pub mapped: Places,
}

impl LearnedMap {
    /// What the map gains at 10 on validation: whether it is adopted ([`Gain::is_adopted`](super::Gain::is_adopted)).
    pub fn gain(&self, seed: u64) -> super::Gain {
        super::Gain::of(&self.mapped.recalls(10), &self.exact.recalls(10), seed)
    }
}

/// Learns the map. Once `stop` is set it ends with an error, after the step at hand.
pub fn fit_map(
    lessons: &MapLessons<'_>,
    config: &MapConfig,
    stop: &AtomicBool,
) -> Result<LearnedMap> {
    ensure!(
        lessons.pairs.len() >= 2,
        "{} pairs are too few: a pair needs at least one other to be contrasted with",
        lessons.pairs.len()
    );
    ensure!(!config.lambdas.is_empty(), "no lambda to try");
    ensure!(config.batch >= 2, "batch is {}; at least 2", config.batch);
    let validation = lessons.validation;
    let hidden = lessons.keys.hidden;
    let places = |queries: &[f32]| {
        let values = queries;
        lessons
            .keys
            .places(Vectors { values, hidden }, &validation.answers)
    };
    let exact = places(&validation.vectors);
    let mut found: Vec<(Fitted, f64, Places)> = Vec::new();
    for &lambda in &config.lambdas {
        let fitted = fit(lessons, config, lambda, stop)?;
        let places = places(&mapped(&validation.vectors, &fitted.map, hidden));
        found.push((fitted, lambda, places));
    }
    let tried: Vec<Tried> = found
        .iter()
        .map(|(_, lambda, places)| Tried {
            lambda: *lambda,
            recall: places.recall(10),
        })
        .collect();
    let best = match validation.is_empty() {
        true => found.len() / 2,
        false => (1..found.len()).fold(0, |best, at| {
            // Of equals the one nearest to I, which comes last where λ ascends.
            let nearer = tried[at].lambda > tried[best].lambda;
            let better = tried[at].recall > tried[best].recall;
            if better || tried[at].recall == tried[best].recall && nearer {
                at
            } else {
                best
            }
        }),
    };
    let (fitted, lambda, mapped) = found.swap_remove(best);
    Ok(LearnedMap {
        map: fitted.map,
        temperature: fitted.temperature,
        lambda,
        tried,
        exact,
        mapped,
    })
}

/// Queries (queries, hidden) under a map (hidden, hidden): q A.
pub fn mapped(queries: &[f32], map: &[f32], hidden: usize) -> Vec<f32> {
    let of = |values: &[f32]| Tensor::from_slice(values).view([-1, hidden as i64]);
    crate::export::floats(&of(queries).matmul(&of(map)))
}

struct Fitted {
    map: Vec<f32>,
    temperature: f64,
}

fn fit(
    lessons: &MapLessons<'_>,
    config: &MapConfig,
    lambda: f64,
    stop: &AtomicBool,
) -> Result<Fitted> {
    let (hidden, rows) = (lessons.keys.hidden, config.batch.min(lessons.pairs.len()));
    let mut map = Tensor::eye(hidden as i64, (Kind::Float, Device::Cpu));
    // t is exp of this, over the lengths of queries and keys.
    let start = config.temperature.ln() as f32;
    let mut log_t = Tensor::from_slice(&[start]);
    let lengths = length(lessons.queries, hidden) * length(lessons.keys.values, hidden);
    ensure!(
        lengths > 0.0,
        "all queries or all keys are zero; there is nothing to learn from"
    );
    let adam = AdamConfig {
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
    };
    let (mut of_map, mut of_t) = (Moments::zero(&map), Moments::zero(&log_t));
    for epoch in 0..config.epochs {
        let order = Random::new(config.seed, "map", epoch as u64).order(lessons.pairs.len());
        for some in order.chunks_exact(rows) {
            if stop.load(Ordering::Relaxed) {
                bail!("stopped; nothing was changed");
            }
            let pairs: Vec<(u32, u32)> = some.iter().map(|&n| lessons.pairs[n as usize]).collect();
            let q = gathered(lessons.queries, hidden, pairs.iter().map(|pair| pair.0));
            let k = gathered(lessons.keys.values, hidden, pairs.iter().map(|pair| pair.1));
            let twins = pairs
                .iter()
                .map(|pair| i64::from(lessons.twins[pair.1 as usize]));
            let twins = Tensor::from_slice(&twins.collect::<Vec<_>>());
            let mask = collisions(&twins, &twins, Some(0));
            let t = f64::from(f32::try_from(&log_t)?).exp() / lengths;
            let step = gradients(&q, &k, mask.as_ref(), &map, t, lambda);
            ensure!(
                step.loss.is_finite(),
                "the loss is {}: the map has diverged; a smaller learning rate helps",
                step.loss
            );
            adam.step(&mut map, &mut of_map, &step.to_map, config.learning_rate);
            adam.step(&mut log_t, &mut of_t, &step.to_log_t, config.learning_rate);
        }
    }
    Ok(Fitted {
        map: crate::export::floats(&map),
        temperature: f64::from(f32::try_from(&log_t)?).exp() / lengths,
    })
}

struct Step {
    loss: f64,
    /// (hidden, hidden)
    to_map: Tensor,
    /// (1)
    to_log_t: Tensor,
}

/// The loss of a batch and its gradients. With S = t (q A) kᵀ and G = (softmax(S) - I) / rows:
///
/// - to A: t qᵀ G k + 2 λ (A - I),
/// - to log t: Sum of G S.
fn gradients(
    q: &Tensor,
    k: &Tensor,
    mask: Option<&Tensor>,
    map: &Tensor,
    t: f64,
    lambda: f64,
) -> Step {
    no_grad(|| {
        let rows = q.size()[0];
        let mut scores = q.matmul(map).matmul(&k.tr()) * t; // rows, rows
        if let Some(mask) = mask {
            scores = scores.masked_fill(mask, MASKED);
        }
        let log_p = scores.log_softmax(-1, None);
        let own = log_p.diagonal(0, 0, 1).sum(Kind::Double);
        let mut g = log_p.exp();
        let _ = g.diagonal(0, 0, 1).g_sub_scalar_(1.0);
        let _ = g.g_mul_scalar_(1.0 / rows as f64);
        let from_identity = map - Tensor::eye(map.size()[0], (map.kind(), map.device()));
        let distance = from_identity.square().sum(Kind::Double).double_value(&[]);
        Step {
            loss: -own.double_value(&[]) / rows as f64 + lambda * distance,
            // A masked score is huge, but its g is exactly 0.
            to_log_t: (&g * &scores).sum(scores.kind()).view([1]),
            to_map: q.tr().matmul(&g.matmul(k)) * t + from_identity * (2.0 * lambda),
        }
    })
}

/// Root of the mean squared length of rows (_, hidden).
fn length(values: &[f32], hidden: usize) -> f64 {
    let squares: f64 = values.iter().map(|&x| f64::from(x).powi(2)).sum();
    (squares / (values.len() / hidden).max(1) as f64).sqrt()
}

fn gathered(values: &[f32], hidden: usize, rows: impl Iterator<Item = u32>) -> Tensor {
    let some: Vec<f32> = rows
        .flat_map(|row| &values[row as usize * hidden..][..hidden])
        .copied()
        .collect();
    Tensor::from_slice(&some).view([-1, hidden as i64])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::floats;
    use crate::testing::random_tensor;

    const HIDDEN: usize = 12;
    const ROWS: usize = 600;

    #[test]
    fn the_gradients_are_those_of_finite_differences() {
        let (q, k) = (random_tensor(1, &[5, 4]), random_tensor(2, &[5, 4]));
        let map = random_tensor(3, &[4, 4]);
        let keys = Tensor::from_slice(&[1i64, 2, 3, 2, 5]);
        let mask = collisions(&keys, &keys, Some(0));
        assert!(mask.is_some());
        let (t, lambda, e) = (0.8f64, 0.3, 1e-5);
        let of = |map: &Tensor, t: f64| gradients(&q, &k, mask.as_ref(), map, t, lambda);
        let step = of(&map, t);
        for at in 0..16i64 {
            let moved = |by: f64| {
                let map = map.copy();
                let _ = map.view(-1).get(at).g_add_scalar_(by);
                of(&map, t).loss
            };
            let expected = (moved(e) - moved(-e)) / (2.0 * e);
            let found = step.to_map.view(-1).double_value(&[at]);
            assert!((found - expected).abs() < 1e-8, "{at}: {found}, {expected}");
        }
        let expected = (of(&map, t * e.exp()).loss - of(&map, t * (-e).exp()).loss) / (2.0 * e);
        let found = step.to_log_t.double_value(&[0]);
        assert!((found - expected).abs() < 1e-8, "{found}, {expected}");
    }

    struct World {
        keys: Vec<f32>,
        queries: Vec<f32>,
        rotation: Tensor,
        pairs: Vec<(u32, u32)>,
        twins: Vec<u32>,
        validation: VectorQuestions,
    }

    /// Keys on the sphere times `length`; queries are keys with a little noise, turned by `strength` of a fixed rotation.
    fn world(strength: f64, length: f64) -> World {
        let skew = random_tensor(7, &[HIDDEN as i64, HIDDEN as i64]);
        let rotation = ((&skew - skew.tr()) * (0.3 * strength)).linalg_matrix_exp();
        let unit = |x: Tensor| {
            let norms = x.square().sum_dim_intlist(-1, true, None::<Kind>).sqrt();
            x / norms
        };
        let shape = [ROWS as i64, HIDDEN as i64];
        let keys = unit(random_tensor(8, &shape));
        let queries = unit(&keys + random_tensor(9, &shape) * 0.12).matmul(&rotation) * length;
        let queries = floats(&queries);
        let asked = ROWS - 150;
        World {
            keys: floats(&(keys * length)),
            rotation,
            pairs: (0..asked as u32).map(|row| (row, row)).collect(),
            twins: (0..ROWS as u32).collect(),
            validation: VectorQuestions::new(
                queries[asked * HIDDEN..].to_vec(),
                (asked..ROWS).map(|row| vec![row as u32]).collect(),
            ),
            queries,
        }
    }

    fn learned(world: &World, config: &MapConfig) -> LearnedMap {
        let lessons = MapLessons {
            keys: Vectors {
                values: &world.keys,
                hidden: HIDDEN,
            },
            twins: &world.twins,
            queries: &world.queries,
            pairs: &world.pairs,
            validation: &world.validation,
        };
        fit_map(&lessons, config, &AtomicBool::new(false)).unwrap()
    }

    fn quick() -> MapConfig {
        MapConfig {
            batch: 150,
            epochs: 100,
            learning_rate: 5e-3,
            ..MapConfig::default()
        }
    }

    /// Whether vectors have length 1 or another.
    #[test]
    fn a_planted_rotation_is_undone() {
        for length in [1.0, 7.0] {
            let world = world(1.0, length);
            let learned = learned(&world, &quick());
            let (before, after) = (learned.exact.recall(1), learned.mapped.recall(1));
            assert!(before < 0.6 && after > 0.9, "{before} {after}");
            assert!(learned.gain(1).is_adopted());
            // q A is what the query was before it was turned: A is near the rotation's inverse, up to a factor.
            let map = Tensor::from_slice(&learned.map).view([HIDDEN as i64, HIDDEN as i64]);
            let product = world.rotation.matmul(&map.to_kind(Kind::Double));
            let diagonal = product.diagonal(0, 0, 1).square().sum(Kind::Double);
            let share = (diagonal / product.square().sum(Kind::Double)).double_value(&[]);
            assert!(share > 0.9, "{share}");
        }
    }

    #[test]
    fn no_step_is_exact_search() {
        let world = world(0.5, 1.0);
        let config = MapConfig {
            epochs: 0,
            ..quick()
        };
        let learned = learned(&world, &config);
        assert_eq!(learned.exact, learned.mapped);
        assert_eq!(learned.lambda, 1e-2, "of equals the nearest to I");
        assert!((learned.temperature - 25.0).abs() < 1e-3);
        let identity: Vec<f32> = (0..HIDDEN * HIDDEN)
            .map(|at| f32::from(u8::from(at % (HIDDEN + 1) == 0)))
            .collect();
        assert_eq!(learned.map, identity);
    }

    /// Where queries already lie by their keys, a map gains nothing and is not adopted.
    #[test]
    fn a_map_that_is_not_needed_is_not_adopted() {
        let world = world(0.0, 1.0);
        let learned = learned(&world, &MapConfig::default());
        assert!(!learned.gain(1).is_adopted(), "{:?}", learned.gain(1));
    }

    #[test]
    fn the_seed_decides() {
        let world = world(1.0, 1.0);
        let of = |seed| {
            let config = MapConfig {
                seed,
                epochs: 3,
                ..quick()
            };
            learned(&world, &config).map
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn what_cannot_be_learned_from_is_refused_and_a_stop_is_heard() {
        let mut world = world(1.0, 1.0);
        let words = |world: &World, stop: bool| {
            let lessons = MapLessons {
                keys: Vectors {
                    values: &world.keys,
                    hidden: HIDDEN,
                },
                twins: &world.twins,
                queries: &world.queries,
                pairs: &world.pairs,
                validation: &world.validation,
            };
            let refused = fit_map(&lessons, &quick(), &AtomicBool::new(stop));
            refused.unwrap_err().to_string()
        };
        assert!(words(&world, true).contains("stopped"));
        world.pairs.truncate(1);
        assert!(words(&world, false).contains("1 pairs are too few"));
        world.pairs.push((1, 1));
        world.queries.fill(0.0);
        assert!(words(&world, false).contains("are zero"));
    }
}
