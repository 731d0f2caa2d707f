//! How a query and a key are compared. A score is larger for a better match, whatever the metric.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How a query and a key are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Inner product: the score is `<q, k>`.
    Ip,
    /// Inner product of normalised vectors: keys and queries are normalised on entry, zero vectors refused.
    Cosine,
    /// Euclidean: the score is `-|q - k|^2`.
    L2,
}

impl Metric {
    /// Returns the name used in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Cosine => "cosine",
            Self::L2 => "l2",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "ip" => Ok(Self::Ip),
            "cosine" => Ok(Self::Cosine),
            "l2" => Ok(Self::L2),
            other => Err(format!("{other:?} is not a metric; use ip, cosine or l2")),
        }
    }
}
