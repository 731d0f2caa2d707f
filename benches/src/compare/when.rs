//! When something was measured, and in which run: figures of one run can be held against each other.

use serde::{Deserialize, Serialize};
use std::time::SystemTime;
use time::OffsetDateTime;

/// One run of `compare`: the second in which it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run(u64);

impl Run {
    /// Now.
    pub fn begin() -> Self {
        Self(now())
    }
}

/// From when to when, in seconds since 1970, and in which run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct When {
    /// The same for all that was measured in one go.
    pub run: Run,
    /// When it was begun.
    pub began: u64,
    /// When the last of it was done.
    pub ended: u64,
}

impl When {
    /// What was begun then, is going on.
    pub fn since(run: Run, began: u64) -> Self {
        let ended = now();
        Self { run, began, ended }
    }

    /// `05:40 to 06:10`
    pub fn hours(&self) -> String {
        format!("{} to {}", hour(self.began), hour(self.ended))
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// `2026-11-18`, UTC.
pub fn day(seconds: u64) -> String {
    at(seconds).date().to_string()
}

fn hour(seconds: u64) -> String {
    let at = at(seconds);
    format!("{:02}:{:02}", at.hour(), at.minute())
}

fn at(seconds: u64) -> OffsetDateTime {
    let seconds = i64::try_from(seconds).unwrap_or(0);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_people_do() {
        let when = When {
            run: Run(1_795_000_000),
            began: 1_795_000_000,
            ended: 1_795_005_400,
        };
        assert_eq!(day(when.began), "2026-11-18");
        assert_eq!(when.hours(), "11:06 to 12:36");
        assert!(now() > 1_790_000_000);
    }
}
