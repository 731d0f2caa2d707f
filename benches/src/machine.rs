//! The machine on which figures were measured.

use serde::{Deserialize, Serialize};
use std::{fmt, fs};

/// A machine and its capabilities.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The name of the CPU.
    pub cpu: String,
    /// The number of cores that this process may use.
    pub cores: usize,
    /// The widest vector instructions, in words.
    pub simd: String,
    /// Memory in GB.
    pub memory: f64,
    /// The kernel that scans use.
    pub kernel: String,
    /// This project's version.
    pub version: String,
}

impl Machine {
    /// Describes the machine that runs this program.
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            simd: simd(&field(&cpuinfo, "flags").unwrap_or_default()),
            memory: field(&meminfo, "MemTotal")
                .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok())
                .map_or(0.0, |kb| kb / 1e6),
            kernel: mopqdb::testing::kernel::Kernel::detect()
                .map_or_else(|_| "?".into(), |kernel| kernel.name().to_string()),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} cores, {}, {:.0} GB, kernel {}",
            self.cpu, self.cores, self.simd, self.memory, self.kernel
        )
    }
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

fn simd(flags: &str) -> String {
    let has = |flag: &str| flags.split_whitespace().any(|f| f == flag);
    if has("avx512vbmi") {
        "AVX-512 with VBMI"
    } else if has("avx512f") {
        "AVX-512 without VBMI"
    } else if has("avx2") {
        "AVX2, no AVX-512"
    } else {
        "no AVX2"
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_from_proc_cpuinfo() {
        let text = "processor\t: 0\nmodel name\t: A: CPU\nflags\t\t: fpu avx2 fma\n";
        assert_eq!(field(text, "model name").as_deref(), Some("A: CPU"));
        assert_eq!(simd(&field(text, "flags").unwrap()), "AVX2, no AVX-512");
        assert_eq!(field(text, "none"), None);
        // Linux names the second generation with an underscore and the first without.
        assert_eq!(
            simd("avx2 avx512f avx512vbmi avx512_vbmi2"),
            "AVX-512 with VBMI"
        );
        assert_eq!(simd("avx2 avx512f avx512bw"), "AVX-512 without VBMI");
    }
}
