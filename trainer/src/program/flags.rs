//! The flags of `mopqdb-train`, which `mopqdb train` passes on.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};

use crate::config::{
    Activation, JointConfig, Method, Sampling, Schedule, Select, Start, StraightThrough,
    TrainConfig,
};

/// Learns a new model over the rows of a database: from pairs, or without any from the rows alone. The database still
/// answers with the old one, until `mopqdb rebuild`.
///
/// Unless OMP_WAIT_POLICY is set, it restarts itself with OMP_WAIT_POLICY=PASSIVE, so that idle threads sleep.
#[derive(Debug, Parser)]
#[command(name = "mopqdb-train", version, args_override_self = true)]
pub struct Flags {
    /// The database, whose present rows are read.
    pub db: PathBuf,
    /// Training pairs: query TAB key text. Without them the method is distill; pq and opq then quantize behind the principal
    /// axes of the rows.
    #[arg(long)]
    pub pairs: Option<PathBuf>,
    /// Validation pairs; without them a tenth of the training queries is set aside (2,000 at most). Without any pairs an
    /// epoch is judged by how many of the exact first ten rows it finds.
    #[arg(long)]
    pub valid: Option<PathBuf>,
    /// Real queries without labels, for distill: a text per line, or vectors (npy, fvecs, fbin).
    #[arg(long)]
    pub query_log: Option<PathBuf>,
    /// The second column is the key itself, not its text.
    #[arg(long)]
    pub key_ids: bool,
    /// Queries are vectors of this file (npy, fvecs, fbin); pairs are row number TAB key.
    #[arg(long)]
    pub queries: Option<PathBuf>,
    /// Vectors of the queries of --valid; without it --queries is for both.
    #[arg(long)]
    pub valid_queries: Option<PathBuf>,
    /// Learn this part alone, and keep the others of the active model.
    #[arg(long, value_enum)]
    pub only: Option<Only>,
    /// Leave out pairs whose key is not in the database, and say how many.
    #[arg(long)]
    pub skip_missing: bool,
    /// A configuration in TOML; flags override it.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// The directory of the run; without it one in the database's `runs`, named by a hash of everything that decides the result.
    #[arg(long)]
    pub run: Option<PathBuf>,
    /// Start over, even if the same run was interrupted or finished before.
    #[arg(long)]
    pub fresh: bool,
    /// Write the bundle to this directory and do not register it in the database.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Also train on half of the pairs, which shows whether more pairs would help. Takes half as long again.
    #[arg(long)]
    pub half: bool,
    /// Write the report at the end as a page, too.
    #[arg(long)]
    pub html: Option<PathBuf>,
    /// Print one JSON object on stdout instead of text.
    #[arg(long)]
    pub json: bool,
    /// Print no progress on stderr.
    #[arg(long)]
    pub quiet: bool,

    /// The training method.
    #[arg(long, value_enum)]
    pub method: Option<Method>,
    /// Whose keys are the negatives of a query.
    #[arg(long, value_enum)]
    pub sampling: Option<Sampling>,
    /// Devices, as `cpu:4` or `cuda:0,cuda:1`.
    #[arg(long)]
    pub devices: Option<String>,
    /// Seconds after which a device that does not respond ends the run.
    #[arg(long)]
    pub device_timeout: Option<f64>,
    /// How codewords are chosen.
    #[arg(long, value_enum)]
    pub select: Option<Select>,
    /// Codes per row: bytes, with 256 codewords.
    #[arg(long)]
    pub subspaces: Option<usize>,
    /// Codewords per subspace.
    #[arg(long)]
    pub codewords: Option<usize>,
    /// Width of the learned embedding.
    #[arg(long)]
    pub dim: Option<usize>,
    /// Epochs of the method's own objective.
    #[arg(long)]
    pub epochs: Option<usize>,
    /// Epochs by CE(q, k) before those of the method.
    #[arg(long)]
    pub warmup: Option<usize>,
    /// Epochs without gain after which the run ends; 0: it never ends early.
    #[arg(long)]
    pub patience: Option<usize>,
    /// Pairs per device and step.
    #[arg(long)]
    pub batch: Option<usize>,
    /// Learning rate of head and codebooks; default: 0.002, with --joint 0.001.
    #[arg(long)]
    pub lr: Option<f64>,
    /// How the learning rate changes.
    #[arg(long, value_enum)]
    pub schedule: Option<Schedule>,
    /// Temperature of the softmax over codewords.
    #[arg(long)]
    pub temperature: Option<f64>,
    /// How the gradient passes through the choice of a codeword.
    #[arg(long, value_enum)]
    pub straight_through: Option<StraightThrough>,
    /// The activation behind the projection.
    #[arg(long, value_enum)]
    pub activation: Option<Activation>,
    /// How the codewords are initialised.
    #[arg(long, value_enum)]
    pub start: Option<Start>,
    /// Weight of the un-quantized term next to the quantized one: mopq and distill have both.
    #[arg(long)]
    pub dense_weight: Option<f64>,
    /// Weight of the method's quantization term; without it, a default for each method.
    #[arg(long)]
    pub weight: Option<f64>,
    /// The random seed.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Threads of a CPU device.
    #[arg(long, env = "MOPQDB_THREADS")]
    pub threads: Option<usize>,
    /// Train the encoder too; the database must hold texts.
    #[arg(long)]
    pub joint: bool,
    /// Layers of the encoder that are kept and trained with --joint.
    #[arg(long)]
    pub layers: Option<usize>,
    /// The weights that --joint starts from (safetensors, BERT's names).
    #[arg(long)]
    pub weights: Option<PathBuf>,
}

/// A part of a model that can be learned alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Only {
    /// How candidates are scored: the query map and the weight of words.
    Scorer,
}

/// The methods whose codewords learn by gradients from pairs.
const CODES: &str = "mopq, dqn, dvsq, spq and dpq";
/// The method that learns from queries without labels. With pairs it finds a little less than mopq on debian, so a log
/// given with pairs does not choose it.
const LOGS: &str = "--method distill, which takes --pairs too,";
/// The methods that learn from pairs.
const PAIRS: &str = "the methods that learn from pairs";

impl Flags {
    /// Returns the configuration: the method's defaults, overridden by the file, overridden by flags.
    pub fn train_config(&self) -> Result<TrainConfig> {
        let said = self.file()?;
        let mut config = self.with_file(&said)?;
        fn set<T: Clone>(place: &mut T, flag: &Option<T>) {
            if let Some(value) = flag {
                *place = value.clone();
            }
        }
        set(&mut config.sampling, &self.sampling);
        set(&mut config.devices, &self.devices);
        set(&mut config.device_timeout, &self.device_timeout);
        set(&mut config.select, &self.select);
        set(&mut config.subspaces, &self.subspaces);
        set(&mut config.codewords, &self.codewords);
        set(&mut config.dim, &self.dim);
        set(&mut config.epochs, &self.epochs);
        set(&mut config.warmup, &self.warmup);
        set(&mut config.patience, &self.patience);
        set(&mut config.batch, &self.batch);
        set(&mut config.learning_rate, &self.lr);
        set(&mut config.schedule, &self.schedule);
        set(&mut config.temperature, &self.temperature);
        set(&mut config.straight_through, &self.straight_through);
        set(&mut config.activation, &self.activation);
        set(&mut config.start, &self.start);
        set(&mut config.dense_weight, &self.dense_weight);
        set(&mut config.seed, &self.seed);
        set(&mut config.threads, &self.threads);
        let of_rows = matches!(config.method, Method::Pq | Method::Opq) && self.pairs.is_none();
        if of_rows {
            (config.warmup, config.epochs) = (0, 0);
        }
        if self.weight.is_some() {
            config.quantization_weight = self.weight;
        }
        if self.joint {
            config.joint.get_or_insert_with(JointConfig::default);
        }
        if let Some(joint) = &mut config.joint {
            set(&mut joint.layers, &self.layers);
            // Published: 1e-3, with 1e-4 for the encoder.
            if self.lr.is_none() && !said.contains_key("learning_rate") {
                config.learning_rate = 1e-3;
            }
        }
        // Several devices share their negatives unless the user says otherwise.
        if config.method.needs_pairs()
            && self.sampling.is_none()
            && !said.contains_key("sampling")
            && crate::devices::count(&config.devices)? > 1
        {
            config.sampling = Sampling::Dcs;
        }
        self.refuse_idle(&config)?;
        self.fit(&mut config, usize::MAX)?;
        config.check()?;
        Ok(config)
    }

    /// Chooses a shape for stored vectors of this width, where the user gave none.
    pub fn fit(&self, config: &mut TrainConfig, hidden: usize) -> Result<()> {
        let said = self.file()?;
        let of = |flag: Option<usize>, name: &str| flag.is_some() || said.contains_key(name);
        let (dim, subspaces) = (of(self.dim, "dim"), of(self.subspaces, "subspaces"));
        if config.joint.is_none() {
            config.fit(hidden, dim, subspaces);
        }
        Ok(())
    }

    /// Checks, before anything is spent, that the page can be written at the end.
    pub fn check_page(&self) -> Result<()> {
        let Some(path) = &self.html else {
            return Ok(());
        };
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        ensure!(
            parent.is_dir() && !path.is_dir(),
            "--html: {} can't be written: {}",
            path.display(),
            match path.is_dir() {
                true => "it is a directory".to_owned(),
                false => format!("there is no directory {}", parent.display()),
            }
        );
        Ok(())
    }

    /// Returns the values of the file; none if there is no file.
    fn file(&self) -> Result<toml::Table> {
        let Some(path) = &self.config else {
            return Ok(toml::Table::new());
        };
        let text =
            fs::read_to_string(path).with_context(|| format!("{}: reading", path.display()))?;
        toml::from_str(&text).with_context(|| self.no_configuration())
    }

    fn no_configuration(&self) -> String {
        let path = self.config.as_deref().unwrap_or(Path::new("the defaults"));
        format!("{}: not a configuration", path.display())
    }

    /// Returns the defaults of the method, overridden by the file.
    fn with_file(&self, said: &toml::Table) -> Result<TrainConfig> {
        let named = said.get("method").cloned().map(toml::Value::try_into);
        let named = named.transpose().with_context(|| self.no_configuration())?;
        let suited = match &self.pairs {
            None => Method::Distill,
            Some(_) => Method::Mopq,
        };
        let method = self.method.or(named).unwrap_or(suited);
        let mut all = toml::Table::try_from(TrainConfig::of(method))?;
        for (name, value) in said {
            match (all.get_mut(name), value) {
                (Some(toml::Value::Table(whole)), toml::Value::Table(part)) => {
                    whole.extend(part.clone());
                }
                _ => drop(all.insert(name.clone(), value.clone())),
            }
        }
        all.insert("method".into(), method.name().into());
        all.try_into().with_context(|| self.no_configuration())
    }

    /// Returns an error for a flag that has no effect.
    fn refuse_idle(&self, config: &TrainConfig) -> Result<()> {
        let (joint, method) = (config.joint.is_some(), config.method);
        let (distill, no_log) = (method == Method::Distill, self.query_log.is_none());
        let both = distill || method == Method::Mopq;
        let weighted = !matches!(method, Method::Pq | Method::Opq | Method::Distill);
        let codes = !matches!(method, Method::Pq | Method::Opq);
        ensure!(
            self.pairs.is_some() || distill || !codes,
            "{} learns from pairs: give them with --pairs, or leave --method out",
            method.name()
        );
        let epochs = self.warmup.is_some() || self.epochs.is_some();
        ensure!(
            self.pairs.is_some() || codes || !epochs,
            "--warmup and --epochs train a projection from pairs: without --pairs, {} quantizes behind the principal axes",
            method.name()
        );
        let no_pairs = self.pairs.is_none() && self.valid.is_none();
        for (flag, given) in [
            ("--key-ids", self.key_ids),
            ("--queries", self.queries.is_some()),
            ("--skip-missing", self.skip_missing),
        ] {
            ensure!(
                !given || !no_pairs,
                "{flag} is about pairs: give --pairs or --valid too (queries without labels are --query-log)"
            );
        }
        for (flag, given, used, of) in [
            (
                "--half",
                self.half,
                self.pairs.is_some() && !joint,
                "--pairs, without --joint,",
            ),
            ("--layers", self.layers.is_some(), joint, "--joint"),
            ("--weights", self.weights.is_some(), joint, "--joint"),
            ("--query-log", !no_log, distill, LOGS),
            (
                "--dense-weight",
                self.dense_weight.is_some(),
                both,
                "mopq and distill",
            ),
            (
                "--sampling",
                self.sampling.is_some() && distill,
                false,
                PAIRS,
            ),
            ("--weight", self.weight.is_some(), weighted, CODES),
            ("--temperature", self.temperature.is_some(), codes, CODES),
            ("--select", self.select.is_some(), codes, CODES),
            ("--start", self.start.is_some(), codes, CODES),
            (
                "--straight-through",
                self.straight_through.is_some(),
                codes,
                CODES,
            ),
        ] {
            ensure!(!given || used, "{flag} has a meaning with {of} only");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(flags: &[&str]) -> Result<TrainConfig> {
        let words = ["mopqdb-train", "db", "--pairs", "p.tsv"];
        Flags::parse_from(words.iter().chain(flags)).train_config()
    }

    fn config(flags: &[&str]) -> TrainConfig {
        parsed(flags).unwrap()
    }

    #[test]
    fn flags_override_the_file_which_overrides_the_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        fs::write(&path, "batch = 64\nseed = 7\n").unwrap();
        let config = config(&["--config", path.to_str().unwrap(), "--seed", "9"]);
        assert_eq!((config.batch, config.seed, config.dim), (64, 9, 128));
    }

    #[test]
    fn several_devices_sample_across_unless_told_otherwise() {
        assert_eq!(config(&["--devices", "cpu:4"]).sampling, Sampling::Dcs);
        assert_eq!(
            config(&["--devices", "cpu:4", "--sampling", "in-batch"]).sampling,
            Sampling::InBatch
        );
        assert_eq!(config(&[]).sampling, Sampling::InBatch);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        for (file, expected) in [
            ("devices = \"cpu:2\"\n", Sampling::Dcs),
            ("devices = \"cpu:2\"\nsampling = \"ncs\"\n", Sampling::Ncs),
        ] {
            fs::write(&path, file).unwrap();
            let config = config(&["--config", path.to_str().unwrap()]);
            assert_eq!(config.sampling, expected, "{file}");
        }
    }

    #[test]
    fn an_encoder_that_learns_has_rates_and_layers_of_its_own() {
        let joint = config(&["--joint"]);
        let rates = (
            joint.learning_rate,
            joint.joint.as_ref().unwrap().learning_rate,
        );
        assert_eq!(rates, (1e-3, 1e-4));
        assert_eq!(config(&["--joint", "--lr", "0.005"]).learning_rate, 0.005);
        assert_eq!(config(&[]).learning_rate, 2e-3);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        fs::write(&path, "learning_rate = 0.004\n[joint]\nlayers = 3\n").unwrap();
        let config = config(&["--config", path.to_str().unwrap(), "--layers", "2"]);
        assert_eq!(config.joint.unwrap().layers, 2);
        assert_eq!(config.learning_rate, 0.004);
    }

    #[test]
    fn a_flag_that_would_change_nothing_is_refused() {
        for flags in [
            &["--layers", "2"][..],
            &["--weights", "w.safetensors"],
            &["--method", "dqn", "--dense-weight", "1"],
            &["--method", "opq", "--weight", "1"],
            &["--method", "pq", "--temperature", "1"],
            &["--method", "pq", "--select", "l2"],
            &["--method", "opq", "--start", "opq"],
        ] {
            let words = parsed(flags).unwrap_err().to_string();
            assert!(words.contains("has a meaning with"), "{flags:?}: {words}");
        }
    }
}
