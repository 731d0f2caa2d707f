//! Resources of an encoder.

/// The resources that an encoder may use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncoderOptions {
    /// The number of threads. The default is the number that the process may use.
    pub threads: usize,
}

impl Default for EncoderOptions {
    fn default() -> Self {
        Self {
            threads: crate::threads::cores(),
        }
    }
}

impl EncoderOptions {
    /// Returns options with this number of threads; 0 means the default.
    pub fn with_threads(threads: usize) -> Self {
        match threads {
            0 => Self::default(),
            threads => Self { threads },
        }
    }
}
