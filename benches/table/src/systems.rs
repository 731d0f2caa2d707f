//! The runs that make up each table.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use mopqdb_trainer::config::{Method, Sampling, Select, TrainConfig};

use crate::Outcomes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    /// All nine systems at 8 x 256.
    Systems,
    /// MoPQ-b by selection function, at the rate that the systems' table chose.
    Selection,
    /// PQ, OPQ, MoPQ-b and MoPQ-a by code size, at the rates that the systems' table chose.
    Sizes,
    /// DQN by weight: recall and distortion.
    Dqn,
}

pub(crate) struct Experiment {
    /// The name of its folder.
    pub(crate) name: String,
    pub(crate) config: TrainConfig,
}

pub(crate) const WEIGHTS: [f64; 5] = [1.0, 1e-1, 1e-2, 1e-3, 1e-4];
/// Several rates, so that no system must learn at a rate that suits another.
const RATES: [f64; 3] = [2e-3, 1e-3, 3e-4];
/// NCS attracts a key with its full weight and repels it with its device's share, so it diverges at the higher rates.
const NCS_RATES: [f64; 4] = [2e-3, 1e-3, 3e-4, 1e-4];

fn rates(system: &str) -> &'static [f64] {
    match system {
        "mopq-ncs" => &NCS_RATES,
        _ => &RATES,
    }
}
/// The code sizes of the paper.
pub(crate) const SIZES: [(usize, usize); 4] = [(4, 128), (4, 256), (8, 256), (16, 256)];
/// A temperature depends on the range of its logits: squared distances, cosines, products.
pub(crate) const TEMPERATURES: [f64; 4] = [1.0, 0.3, 0.1, 0.03];
pub(crate) const SELECTIONS: [(&str, Select); 4] = [
    ("l2", Select::L2),
    ("cosine", Select::Cosine),
    ("product", Select::Product),
    ("bilinear", Select::Bilinear),
];

/// The nine systems in the paper's order, by folder name; then two on one device with the whole batch.
pub(crate) const SYSTEMS: [&str; 11] = [
    "pq",
    "opq",
    "dqn",
    "dvsq",
    "spq",
    "dpq",
    "mopq-b",
    "mopq-ncs",
    "mopq-dcs",
    "opq-one",
    "mopq-b-one",
];

/// The systems whose recall is measured for each code size.
pub(crate) const SIZED: [&str; 4] = ["pq", "opq", "mopq-b", "mopq-dcs"];

/// Returns the runs of a table, first those by which others are chosen: sweeps in the folder `out`, or the values that
/// validation chose in the folder of another set.
pub(crate) fn experiments(
    table: Table,
    seeds: u64,
    out: &Path,
    chosen_on: Option<&Path>,
    shared: &toml::Table,
) -> Result<Box<dyn Iterator<Item = Experiment>>> {
    let base = base(shared)?;
    let sweeps = chosen_on.is_none();
    for (folder, system) in chosen_on.into_iter().flat_map(|f| SYSTEMS.map(|s| (f, s))) {
        let mut tried = rates(system).iter().map(|&rate| rate_name(system, rate));
        ensure!(
            tried.any(|name| outcomes(&folder.join(name)).is_some()),
            "--chosen-on: no rate of {system} was tried in {}; run its systems first",
            folder.display()
        );
    }
    let out = chosen_on.unwrap_or(out).to_path_buf();
    Ok(match table {
        Table::Systems => Box::new(SYSTEMS.into_iter().flat_map(move |system| {
            let (base, out) = (base.clone(), out.clone());
            let config = of_system(system, &base);
            let sweep: Vec<Experiment> = if weighted(&config) && sweeps {
                weights(system, &config)
            } else {
                Vec::new()
            };
            // Evaluated lazily, when the runs by which they are chosen are finished.
            let tuned = {
                let (config, out) = (config.clone(), out.clone());
                move |seed, learning_rate| TrainConfig {
                    seed,
                    learning_rate,
                    quantization_weight: if weighted(&config) {
                        Some(chosen_weight(&out, system))
                    } else {
                        config.quantization_weight
                    },
                    ..config.clone()
                }
            };
            let of_rate = tuned.clone();
            let rates = if sweeps { rates(system) } else { &[] };
            let rates = rates.iter().map(move |&rate| Experiment {
                name: rate_name(system, rate),
                config: of_rate(1, rate),
            });
            let runs = (1..=seeds).map(move |seed| Experiment {
                name: format!("{system}-seed{seed}"),
                config: tuned(seed, chosen_rate(&out, system)),
            });
            sweep.into_iter().chain(rates).chain(runs)
        })),
        Table::Selection => Box::new(SELECTIONS.into_iter().flat_map(move |(name, select)| {
            let (base, out) = (base.clone(), out.clone());
            let config = TrainConfig {
                select,
                learning_rate: chosen_rate(&out, "mopq-b"),
                ..of_system("mopq-b", &base)
            };
            let sweep = if sweeps {
                temperatures(name, &config)
            } else {
                Vec::new()
            };
            sweep
                .into_iter()
                .chain((1..=seeds).map(move |seed| Experiment {
                    name: format!("select-{name}-seed{seed}"),
                    config: TrainConfig {
                        seed,
                        temperature: chosen_temperature(&out, name),
                        ..config.clone()
                    },
                }))
        })),
        Table::Sizes => Box::new(SIZES.into_iter().flat_map(move |(subspaces, codewords)| {
            let (base, out) = (base.clone(), out.clone());
            SIZED.into_iter().flat_map(move |system| {
                let out = out.clone();
                let config = TrainConfig {
                    subspaces,
                    codewords,
                    ..of_system(system, &base)
                };
                (1..=seeds).map(move |seed| Experiment {
                    name: size_name(system, subspaces, codewords, seed),
                    config: TrainConfig {
                        seed,
                        learning_rate: chosen_rate(&out, system),
                        ..config.clone()
                    },
                })
            })
        })),
        Table::Dqn => Box::new(weights("dqn", &of_system("dqn", &base)).into_iter()),
    })
}

fn base(shared: &toml::Table) -> Result<TrainConfig> {
    // Four devices for all systems, so that in-batch, NCS and DCS differ only in their negatives.
    let default = TrainConfig {
        devices: "cpu:4".into(),
        batch: 128,
        ..TrainConfig::default()
    };
    toml::Table::try_from(default)
        .map(|mut table| {
            table.extend(shared.clone());
            table
        })?
        .try_into()
        .context("--with")
}

/// All systems see the same number of pairs per step.
fn of_system(system: &str, base: &TrainConfig) -> TrainConfig {
    let (method, sampling) = match system {
        "pq" => (Method::Pq, Sampling::InBatch),
        "opq" | "opq-one" => (Method::Opq, Sampling::InBatch),
        "dqn" => (Method::Dqn, Sampling::InBatch),
        "dvsq" => (Method::Dvsq, Sampling::InBatch),
        "spq" => (Method::Spq, Sampling::InBatch),
        "dpq" => (Method::Dpq, Sampling::InBatch),
        "mopq-ncs" => (Method::Mopq, Sampling::Ncs),
        "mopq-dcs" => (Method::Mopq, Sampling::Dcs),
        _ => (Method::Mopq, Sampling::InBatch),
    };
    let mut config = TrainConfig {
        method,
        sampling,
        ..base.clone()
    };
    // The recall of a head varies from epoch to epoch: a baseline that stops at the first lull has not converged.
    if matches!(method, Method::Pq | Method::Opq) {
        config.patience = 0;
    }
    if system.ends_with("-one") {
        config.batch = base.batch * mopqdb_trainer::devices::count(&base.devices).unwrap_or(1);
        config.devices = "cpu:1".into();
    }
    config
}

pub(crate) fn weighted(config: &TrainConfig) -> bool {
    matches!(
        config.method,
        Method::Dqn | Method::Dvsq | Method::Spq | Method::Dpq
    )
}

fn weights(system: &str, config: &TrainConfig) -> Vec<Experiment> {
    let of = |weight: f64| Experiment {
        name: format!("{system}-weight{weight}"),
        config: TrainConfig {
            seed: 1,
            quantization_weight: Some(weight),
            ..config.clone()
        },
    };
    WEIGHTS.into_iter().map(of).collect()
}

fn temperatures(name: &str, config: &TrainConfig) -> Vec<Experiment> {
    let of = |temperature: f64| Experiment {
        name: format!("select-{name}-temperature{temperature}"),
        config: TrainConfig {
            seed: 1,
            temperature,
            ..config.clone()
        },
    };
    TEMPERATURES.into_iter().map(of).collect()
}

pub(crate) fn size_name(system: &str, subspaces: usize, codewords: usize, seed: u64) -> String {
    format!("{system}-{subspaces}x{codewords}-seed{seed}")
}

/// Returns the weight with the highest validation recall.
pub(crate) fn chosen_weight(out: &Path, system: &str) -> f64 {
    best(&WEIGHTS, |weight| {
        out.join(format!("{system}-weight{weight}"))
    })
}

pub(crate) fn rate_name(system: &str, rate: f64) -> String {
    format!("{system}-rate{rate}")
}

/// Returns the rate with the highest validation recall; the first one if there are no runs.
pub(crate) fn chosen_rate(out: &Path, system: &str) -> f64 {
    best(rates(system), |rate| out.join(rate_name(system, rate)))
}

fn chosen_temperature(out: &Path, name: &str) -> f64 {
    best(&TEMPERATURES, |temperature| {
        out.join(format!("select-{name}-temperature{temperature}"))
    })
}

fn best(of: &[f64], folder: impl Fn(f64) -> PathBuf) -> f64 {
    let recall =
        |value: f64| outcomes(&folder(value)).map_or(-1.0, |found| found.validation_recall);
    // Of equal values, the first.
    of.iter()
        .copied()
        .rev()
        .max_by(|&a, &b| recall(a).total_cmp(&recall(b)))
        .expect("some values")
}

/// Returns the folder of a run with the same configuration: the same seed gives the same codebooks.
pub(crate) fn twin(out: &Path, config: &TrainConfig) -> Option<PathBuf> {
    let folders = std::fs::read_dir(out).ok()?;
    folders
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|folder| outcomes(folder).is_some_and(|found| found.config == *config))
}

pub(crate) fn outcomes(folder: &Path) -> Option<Outcomes> {
    serde_json::from_slice(&std::fs::read(folder.join("result.json")).ok()?).ok()
}
