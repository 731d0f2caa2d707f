//! How much of the machine an encoder may use.

/// How much of the machine an encoder may use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncoderOptions {
    /// Threads that compute. The default is what the process may use.
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
    /// Options with so many threads; 0 means the default.
    pub fn with_threads(threads: usize) -> Self {
        match threads {
            0 => Self::default(),
            threads => Self { threads },
        }
    }
}
