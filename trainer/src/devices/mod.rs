//! The devices of a run: their names, the exchange between them ([`Gather`]) and the thread that each has
//! ([`Fleet`]).
//!
//! A device is a thread with its own parameters and its own slice of the batch. Nothing on a device refers to another's
//! graph: values are exchanged as detached copies. Only `Tensor::to_device` can't be tested on a CPU.

mod fleet;
mod gather;

pub use fleet::{Fleet, Seat};
pub use gather::Gather;

use anyhow::{Context, Result, bail, ensure};
use tch::Device;

/// A device with its name in errors.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    /// A name such as `cpu:2` or `cuda:0`.
    pub name: String,
    /// The device of libtorch.
    pub device: Device,
}

/// Parses `cpu`, `cpu:4` (four replicas on the CPU), `cuda:0,cuda:1`, or a mixture.
pub fn parse(text: &str) -> Result<Vec<Named>> {
    let mut devices = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (kind, number) = match part.split_once(':') {
            Some((kind, number)) => {
                let number: usize = number
                    .parse()
                    .with_context(|| format!("devices {text:?}: {number:?} is not a number"))?;
                (kind, Some(number))
            }
            None => (part, None),
        };
        match kind {
            "cpu" => {
                let count = number.unwrap_or(1);
                ensure!(
                    (1..=64).contains(&count),
                    "devices {text:?}: the CPU can have 1 to 64 replicas"
                );
                for _ in 0..count {
                    devices.push(Named {
                        name: format!("cpu:{}", devices.len()),
                        device: Device::Cpu,
                    });
                }
            }
            "cuda" => {
                let index = number.unwrap_or(0);
                let there = tch::Cuda::device_count();
                ensure!(
                    (index as i64) < there,
                    "devices {text:?}: there is no cuda:{index}; libtorch finds {there} CUDA devices"
                );
                devices.push(Named {
                    name: format!("cuda:{index}"),
                    device: Device::Cuda(index),
                });
            }
            _ => bail!("devices {text:?}: write cpu, cpu:4, or cuda:0,cuda:1"),
        }
    }
    Ok(devices)
}

/// Returns how many devices a text names.
pub fn count(text: &str) -> Result<usize> {
    parse(text).map(|devices| devices.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_parsed_and_errors_name_misspellings() {
        assert_eq!(parse("cpu").unwrap().len(), 1);
        let four = parse("cpu:4").unwrap();
        assert_eq!(
            four[3],
            Named {
                name: "cpu:3".into(),
                device: Device::Cpu
            }
        );
        for wrong in ["cpu:0", "gpu:1", "cpu:x", "", "cuda:99"] {
            let words = parse(wrong).unwrap_err().to_string();
            assert!(words.contains(&format!("{wrong:?}")), "{words}");
        }
    }
}
