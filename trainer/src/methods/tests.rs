//! Deterministic claims: the gradient of DCS over real replicas, each loss compared with plain arithmetic, and the
//! paper's Lemma 2.1 and Theorem 2.2.

use std::time::Duration;

use tch::{Kind, Tensor};

use super::*;
use crate::config::{Activation, ProbabilityTerm, Sampling, StraightThrough};
use crate::devices::{Fleet, Gather, parse};
use crate::model::codebook::Selection;
use crate::model::head::Head;
use crate::model::{Input, Model};
use crate::testing::{max_difference, random_tensor, relative};
use crate::train::{AdamConfig, Rates, Replica, Slice};

const DEVICES: i64 = 4;
const ROWS: i64 = 6;
const ADAM: AdamConfig = AdamConfig {
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
};

fn mopq() -> Objective {
    Objective::Mopq(mopq::Mopq {
        dense_weight: 1.0,
        probability_weight: 0.0,
        probability_term: ProbabilityTerm::Log,
        reconstruction_weight: 0.0,
    })
}

fn book() -> SoftCodebook {
    SoftCodebook::new(
        &random_tensor(11, &[2, 5, 4]),
        Selection::L2,
        1.0,
        StraightThrough::Softmax,
    )
}

/// Returns a replica with ELU(xW + b) of 10 -> 8 and 2 x 5 codewords, in float64.
fn replica(objective: Objective, sampling: Sampling) -> Replica {
    let head = Head::new(
        &random_tensor(12, &[8, 10]),
        &random_tensor(13, &[8]),
        Activation::Elu,
    );
    let model = Model {
        encoder: None,
        head,
        codebook: Some(book()),
    };
    Replica::new(model, ADAM, objective, sampling)
}

/// Returns queries, keys and ids of the whole batch. Two pairs on different devices have the same key.
fn batch() -> (Tensor, Tensor, Tensor) {
    let rows = DEVICES * ROWS;
    let mut ids: Vec<i64> = (0..rows).collect();
    ids[13] = ids[2];
    ids[4] = ids[2];
    (
        random_tensor(14, &[rows, 10]),
        random_tensor(15, &[rows, 10]),
        Tensor::from_slice(&ids),
    )
}

/// Returns the summed gradients of every device, and each device's loss, computed on the real threads.
fn over_devices(objective: Objective, sampling: Sampling) -> Vec<(Vec<Tensor>, f64)> {
    let devices = parse(&format!("cpu:{DEVICES}")).unwrap();
    let mut fleet = Fleet::start(&devices, Duration::from_secs(60), move |seat| {
        let replica = replica(objective.clone(), sampling);
        Ok(move |slice: Slice| replica.gradients(&seat.gather, &slice))
    })
    .unwrap();
    let (queries, keys, ids) = batch();
    let slices = (0..DEVICES).map(|device| Slice {
        queries: Input::Vectors(queries.narrow(0, device * ROWS, ROWS)),
        keys: Input::Vectors(keys.narrow(0, device * ROWS, ROWS)),
        rows: ROWS,
        key_ids: Some(ids.copy()),
    });
    fleet.run(slices.collect()).unwrap()
}

/// Returns the gradient of the mean loss of the whole batch in one graph.
fn in_one_graph() -> (Vec<Tensor>, f64) {
    let replica = replica(mopq(), Sampling::InBatch);
    let (queries, keys, ids) = batch();
    let (q, k) = (
        replica.model.head.forward(&queries),
        replica.model.head.forward(&keys),
    );
    let k_hat = replica.model.codebook.as_ref().unwrap().quantize(&k).hat;
    let same = ids
        .unsqueeze(1)
        .eq_tensor(&ids.unsqueeze(0))
        .to_kind(Kind::Double);
    let other = same - Tensor::eye(ids.size()[0], (Kind::Double, tch::Device::Cpu));
    let ce = |b: &Tensor| {
        let scores = q.matmul(&b.tr()) - &other * 1e300;
        -scores
            .log_softmax(-1, Kind::Double)
            .diagonal(0, 0, 1)
            .mean(Kind::Double)
    };
    let loss = ce(&k) + ce(&k_hat);
    let parameters = replica.model.parameters();
    let tensors: Vec<&Tensor> = parameters.iter().map(|p| &p.tensor).collect();
    (
        Tensor::run_backward(&[&loss], &tensors, false, false),
        loss.double_value(&[]),
    )
}

#[test]
fn dcs_over_replicas_has_the_gradient_of_the_whole_batch() {
    let (expected, loss) = in_one_graph();
    let found = over_devices(mopq(), Sampling::Dcs);
    for (gradients, _) in &found {
        for (name, (got, want)) in ["W", "b", "C"].iter().zip(gradients.iter().zip(&expected)) {
            assert!(
                relative(got, want) < 1e-12,
                "{name}: {}",
                relative(got, want)
            );
        }
    }
    let total: f64 = found.iter().map(|(_, share)| share).sum();
    assert!((total - loss).abs() < 1e-12, "{total} {loss}");
}

#[test]
fn without_image_losses_the_gradient_differs() {
    let (expected, _) = in_one_graph();
    let (found, _) = &over_devices(mopq(), Sampling::Ncs)[0];
    for (got, want) in [(&found[0], &expected[0]), (&found[2], &expected[2])] {
        assert!(relative(got, want) > 0.1, "{}", relative(got, want));
    }
}

#[test]
fn every_device_holds_the_same_summed_gradient_bit_for_bit() {
    for sampling in [Sampling::InBatch, Sampling::Ncs, Sampling::Dcs] {
        let found = over_devices(mopq(), sampling);
        for (gradients, _) in &found[1..] {
            for (a, b) in gradients.iter().zip(&found[0].0) {
                assert_eq!(max_difference(a, b), 0.0, "{sampling:?}");
            }
        }
    }
}

/// Values that a device gets from the others have no gradient: its loss does not depend on their graph, so their inputs
/// receive no gradient even if they require one.
#[test]
fn a_device_has_no_gradient_to_other_slices() {
    let devices = parse("cpu:2").unwrap();
    let mut fleet = Fleet::start(&devices, Duration::from_secs(60), |seat| {
        Ok(move |(q, k): (Tensor, Tensor)| {
            let contrast = Contrast::new(Sampling::Dcs, &seat.gather, ROWS, None);
            let loss = contrast.cross_entropies(&q, &[&k])?.remove(0);
            Ok((loss, q, k))
        })
    })
    .unwrap();
    let job = |seed| {
        let leaf = |s| random_tensor(s, &[ROWS, 8]).set_requires_grad(true);
        (leaf(seed), leaf(seed + 1))
    };
    let answers = fleet.run(vec![job(1), job(3)]).unwrap();
    for (here, there) in [(0, 1), (1, 0)] {
        let (loss, q, k) = &answers[here];
        let (_, other_q, other_k) = &answers[there];
        let gradients = Tensor::run_backward(&[loss], &[q, k, other_q, other_k], true, false);
        assert!(gradients[0].defined() && gradients[1].defined());
        assert!(!gradients[2].defined() && !gradients[3].defined());
    }
}

#[test]
fn replicas_take_the_same_steps() {
    let devices = parse("cpu:3").unwrap();
    let mut fleet = Fleet::start(&devices, Duration::from_secs(60), |seat| {
        let mut replica = replica(mopq(), Sampling::Dcs);
        Ok(move |slice: Slice| {
            let rates = Rates {
                encoder: 1e-3,
                quantizer: 1e-2,
            };
            replica.step(&seat.gather, &slice, rates)?;
            Ok(replica
                .model
                .parameters()
                .iter()
                .map(|p| p.tensor.detach().copy())
                .collect::<Vec<_>>())
        })
    })
    .unwrap();
    let start = replica(mopq(), Sampling::Dcs).model.parameters();
    let (queries, keys, _) = batch();
    for _ in 0..3 {
        let slices = (0..3).map(|device| Slice {
            queries: Input::Vectors(queries.narrow(0, device * ROWS, ROWS)),
            keys: Input::Vectors(keys.narrow(0, device * ROWS, ROWS)),
            rows: ROWS,
            key_ids: None,
        });
        let after = fleet.run(slices.collect()).unwrap();
        for (p, first) in start.iter().enumerate() {
            assert!(
                max_difference(&after[0][p], &first.tensor) > 1e-3,
                "{} did not move",
                first.name
            );
            assert_eq!(max_difference(&after[0][p], &after[1][p]), 0.0);
            assert_eq!(max_difference(&after[0][p], &after[2][p]), 0.0);
        }
    }
}

fn rows_of(tensor: &Tensor) -> Vec<Vec<f64>> {
    Vec::<Vec<f64>>::try_from(tensor.detach().contiguous()).unwrap()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn square_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum()
}

/// Returns CE(A, B), by loops.
fn plain_ce(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let rows = a.len() as f64;
    (0..a.len())
        .map(|r| b.iter().map(|c| dot(&a[r], c).exp()).sum::<f64>().ln() - dot(&a[r], &b[r]))
        .sum::<f64>()
        / rows
}

/// Returns (z^, z̄, Sum_i log p_i*) of each row, by loops, with the nearest codeword of 2 x 5 x 4 at temperature 1.
fn plain_quantize(
    z: &[Vec<f64>],
    codebook: &SoftCodebook,
) -> (Vec<Vec<f64>>, Vec<Vec<f64>>, Vec<f64>) {
    let (mut hard, mut soft, mut log_p) = (Vec::new(), Vec::new(), Vec::new());
    for row in z {
        let (mut row_hard, mut row_soft, mut row_log_p) = (Vec::new(), Vec::new(), 0.0);
        for i in 0..2 {
            let codewords = rows_of(&codebook.codewords.get(i as i64));
            let slice = &row[i * 4..i * 4 + 4];
            let logits: Vec<f64> = codewords
                .iter()
                .map(|c| -square_distance(slice, c))
                .collect();
            let best = (0..5)
                .max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
                .unwrap();
            let sum: f64 = logits.iter().map(|s| s.exp()).sum();
            row_hard.extend_from_slice(&codewords[best]);
            row_soft.extend((0..4).map(|x| {
                (0..5)
                    .map(|j| logits[j].exp() / sum * codewords[j][x])
                    .sum::<f64>()
            }));
            row_log_p += logits[best] - sum.ln();
        }
        hard.push(row_hard);
        soft.push(row_soft);
        log_p.push(row_log_p);
    }
    (hard, soft, log_p)
}

#[test]
fn each_objective_agrees_with_plain_arithmetic() {
    let codebook = book();
    let (q, k) = (random_tensor(21, &[7, 8]), random_tensor(22, &[7, 8]));
    let gather = Gather::solo();
    let contrast = Contrast::new(Sampling::InBatch, &gather, 7, None);
    let found = |objective: Objective| {
        objective
            .loss(&q, &k, Some(&codebook), &contrast)
            .unwrap()
            .double_value(&[])
    };
    let (pq, pk) = (rows_of(&q), rows_of(&k));
    let (hat, soft_k, log_p) = plain_quantize(&pk, &codebook);
    let (hat_q, soft_q, _) = plain_quantize(&pq, &codebook);
    let mean = |f: &dyn Fn(usize) -> f64| (0..7).map(f).sum::<f64>() / 7.0;
    let distortion = mean(&|r| square_distance(&pk[r], &hat[r]));

    let check = |name: &str, got: f64, want: f64| {
        assert!((got - want).abs() < 1e-9, "{name}: {got} {want}")
    };
    check("dense", found(Objective::Dense), plain_ce(&pq, &pk));
    check(
        "mopq",
        found(mopq()),
        plain_ce(&pq, &hat) + plain_ce(&pq, &pk),
    );
    let with_terms = Objective::Mopq(mopq::Mopq {
        dense_weight: 0.0,
        probability_weight: 0.3,
        probability_term: ProbabilityTerm::Log,
        reconstruction_weight: 0.2,
    });
    check(
        "mopq with terms",
        found(with_terms),
        plain_ce(&pq, &hat) - 0.3 * mean(&|r| log_p[r]) + 0.2 * distortion,
    );
    check(
        "dqn",
        found(Objective::Dqn(dqn::Dqn { weight: 0.5 })),
        plain_ce(&pq, &pk) + 0.5 * distortion,
    );
    let errors = mean(&|r| mean(&|c| (dot(&pq[r], &pk[c]) - dot(&pq[r], &hat[c])).powi(2)));
    check(
        "dvsq",
        found(Objective::Dvsq(dvsq::Dvsq { weight: 0.5 })),
        plain_ce(&pq, &pk) + 0.5 * errors,
    );
    let gap = mean(&|r| {
        (square_distance(&soft_q[r], &hat_q[r]).sqrt()
            + square_distance(&soft_k[r], &hat[r]).sqrt())
            / 2.0
    });
    check(
        "spq",
        found(Objective::Spq(spq::Spq { weight: 0.5 })),
        plain_ce(&soft_q, &soft_k) + plain_ce(&soft_q, &hat) + 0.5 * gap,
    );

    // DPQ takes codes from the keys and values from the codewords.
    let keys = random_tensor(23, &[2, 5, 4]);
    let by_keys = SoftCodebook::new(
        &codebook.codewords,
        Selection::Keys(keys.copy()),
        1.0,
        StraightThrough::Softmax,
    );
    let got = Objective::Dpq(dpq::Dpq { weight: 0.5 })
        .loss(&q, &k, Some(&by_keys), &contrast)
        .unwrap()
        .double_value(&[]);
    let by_keys_distortion = mean(&|r| {
        (0..2)
            .map(|i| {
                let (keys, values) = (rows_of(&keys.get(i)), rows_of(&codebook.codewords.get(i)));
                let slice = &pk[r][i as usize * 4..i as usize * 4 + 4];
                let best = (0..5)
                    .max_by(|&a, &b| dot(slice, &keys[a]).total_cmp(&dot(slice, &keys[b])))
                    .unwrap();
                square_distance(slice, &values[best])
            })
            .sum()
    });
    check("dpq", got, plain_ce(&pq, &pk) + 0.5 * by_keys_distortion);
}

/// The reason for Theorem 2.2: <q, k^ + e> = <q, k^> + <q, e>, the same for every key. So shifting every codeword of a
/// codebook by one vector, with codes kept, changes no ranking, while the distortion changes.
#[test]
fn shifting_every_codeword_of_a_codebook_changes_distortion_and_no_ranking() {
    let codebook = book();
    let (q, k) = (random_tensor(31, &[20, 8]), random_tensor(32, &[50, 8]));
    let quantized = codebook.quantize(&k);
    let shift = random_tensor(33, &[2, 1, 4]) * 3.0;
    let shifted = SoftCodebook::new(
        &(&codebook.codewords + shift),
        Selection::L2,
        1.0,
        StraightThrough::Softmax,
    );
    let moved = shifted.decode(&quantized.codes);
    // A ranking depends only on the differences of scores within a query.
    let gaps = |hat: &Tensor| {
        let scores = q.matmul(&hat.tr());
        &scores - scores.narrow(1, 0, 1)
    };
    assert!(max_difference(&gaps(&moved), &gaps(&quantized.hat)) < 1e-12);
    let distortion = |hat: &Tensor| {
        crate::train::loss::reconstruction(&k, hat)
            .mean(Kind::Double)
            .double_value(&[])
    };
    assert!(distortion(&moved) > 1.5 * distortion(&quantized.hat));
}

/// Lemma 2.1: a slice keeps its code under a shift e of its codebook while |e| is below half the margin between its
/// nearest and second-nearest codeword (in distance, not squared).
#[test]
fn a_shift_below_half_the_smallest_margin_leaves_re_encoded_codes_unchanged() {
    let codebook = book();
    let k = random_tensor(42, &[50, 8]);
    let codes = codebook.quantize(&k).codes;
    for i in 0..2i64 {
        let codewords = rows_of(&codebook.codewords.get(i));
        let margin = rows_of(&k.narrow(1, i * 4, 4))
            .iter()
            .map(|slice| {
                let mut distances: Vec<f64> = codewords
                    .iter()
                    .map(|c| square_distance(slice, c).sqrt())
                    .collect();
                distances.sort_by(f64::total_cmp);
                distances[1] - distances[0]
            })
            .fold(f64::INFINITY, f64::min);
        for seed in 0..20 {
            let direction = random_tensor(100 + seed, &[4]);
            let unit = &direction / direction.square().sum(Kind::Double).sqrt();
            let shift = Tensor::zeros([2, 1, 4], (Kind::Double, tch::Device::Cpu));
            shift.get(i).get(0).copy_(&(unit * (0.4999 * margin)));
            let shifted = SoftCodebook::new(
                &(&codebook.codewords + shift),
                Selection::L2,
                1.0,
                StraightThrough::Softmax,
            );
            assert_eq!(
                max_difference(&shifted.quantize(&k).codes, &codes),
                0.0,
                "book {i}, seed {seed}"
            );
        }
    }
}
