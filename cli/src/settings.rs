//! Settings that every command takes.

use clap::Args;
use mopqdb::{MAX_THREADS, Options};

/// Settings that every command takes.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Print one JSON object per line
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,

    /// Threads for scans, encoding and rebuilding; 0: all cores
    #[arg(
        long,
        global = true,
        value_name = "N",
        env = "MOPQDB_THREADS",
        hide_env_values = true,
        default_value_t = 0,
        value_parser = threads,
        help_heading = "Everywhere"
    )]
    pub threads: usize,

    /// Memory for the buffers of rebuild, compact, train and eval, as 512M or 2G
    #[arg(long, global = true, value_name = "BYTES", env = "MOPQDB_MEMORY_LIMIT", hide_env_values = true, default_value = "512M", value_parser = bytes, help_heading = "Everywhere")]
    pub memory_limit: usize,
}

impl Settings {
    /// Returns the engine's options for these settings.
    pub fn options(&self) -> Options {
        Options::default()
            .threads(self.threads)
            .memory_limit(self.memory_limit)
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }
}

/// Parses the number of threads, up to the engine's limit.
fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if threads <= MAX_THREADS => Ok(threads),
        Ok(_) => Err(format!("at most {MAX_THREADS}; 0 means one per core")),
        Err(_) => Err(format!("give a number from 0 to {MAX_THREADS}")),
    }
}

/// Parses `512M` as a number of bytes. Units are powers of 1024.
fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        unit => return Err(format!("{unit:?} is not a unit; use K, M or G, as in 512M")),
    };
    let number: usize = digits
        .parse()
        .map_err(|_| "give a number, as in 512M".to_owned())?;
    let bytes = number
        .checked_mul(1 << shift)
        .ok_or("that is more than can be addressed")?;
    match bytes {
        0..0x10_0000 => Err("at least 1M is needed".into()),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_parsed_with_their_units() {
        assert_eq!(bytes("512M"), Ok(512 << 20));
        assert_eq!(bytes("2g"), Ok(2 << 30));
        assert_eq!(bytes("1048576"), Ok(1 << 20));
        assert!(bytes("12 parsecs").is_err());
        assert!(bytes("4K").unwrap_err().contains("1M"));
        assert!(bytes("99999999999999999999G").is_err());
    }
}
