//! The exchange between devices: each gives tensors, each gets everybody's, as detached copies, in device order.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tch::{Device, Tensor};

/// One device's side of the exchange.
///
/// Rounds follow one another: every device calls [`Gather::all`] the same number of times in the same order. A device
/// that fails, or stays away longer than the timeout, ends the wait of the others with an error that names it.
#[derive(Debug, Clone)]
pub struct Gather {
    shared: Arc<Shared>,
    rank: usize,
    device: Device,
}

/// Why the exchange ended: another device's doing, never that of the device that reports it.
#[derive(Debug)]
pub(super) struct Waited(String);

impl std::fmt::Display for Waited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Waited {}

#[derive(Debug)]
struct Shared {
    names: Vec<String>,
    timeout: Duration,
    round: Mutex<Round>,
    changed: Condvar,
}

#[derive(Debug)]
struct Round {
    /// What each device gave; cleared when all have taken.
    given: Vec<Option<Vec<Tensor>>>,
    taken: usize,
    /// Why nothing more is exchanged: which device failed or stayed away.
    ended: Option<String>,
}

impl Gather {
    /// The sides of an exchange, one a device.
    pub fn new(devices: &[super::Named], timeout: Duration) -> Vec<Self> {
        let shared = Arc::new(Shared {
            names: devices.iter().map(|d| d.name.clone()).collect(),
            timeout,
            round: Mutex::new(Round {
                given: devices.iter().map(|_| None).collect(),
                taken: 0,
                ended: None,
            }),
            changed: Condvar::new(),
        });
        devices
            .iter()
            .enumerate()
            .map(|(rank, named)| Self {
                shared: Arc::clone(&shared),
                rank,
                device: named.device,
            })
            .collect()
    }

    /// The exchange of a device that is alone.
    pub fn solo() -> Self {
        let alone = super::Named {
            name: "cpu:0".into(),
            device: Device::Cpu,
        };
        Self::new(&[alone], Duration::from_secs(1)).remove(0)
    }

    /// This device's place in the order.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many devices there are.
    pub fn devices(&self) -> usize {
        self.shared.names.len()
    }

    /// Gives `mine`, gets everybody's: `[device][tensor]`, on this device, without gradients.
    pub fn all(&self, mine: &[&Tensor]) -> Result<Vec<Vec<Tensor>>> {
        let copies = mine.iter().map(|t| t.detach().copy()).collect();
        let deadline = Instant::now() + self.shared.timeout;
        // The last round's values are still here while a slower device has not taken them.
        let mut round = self.wait(deadline, |round| round.given[self.rank].is_none())?;
        round.given[self.rank] = Some(copies);
        drop(round);
        self.shared.changed.notify_all();
        let mut round = self.wait(deadline, |round| round.given.iter().all(Option::is_some))?;
        let all = round
            .given
            .iter()
            .flatten()
            .map(|tensors| tensors.iter().map(|t| t.to_device(self.device)).collect())
            .collect();
        round.taken += 1;
        if round.taken == self.devices() {
            round.taken = 0;
            round.given.fill_with(|| None);
            drop(round);
            self.shared.changed.notify_all();
        }
        Ok(all)
    }

    /// Of each device, whether it has given its part of a round and waits for the others.
    pub(super) fn waiting(&self) -> Vec<bool> {
        self.lock().given.iter().map(Option::is_some).collect()
    }

    /// Ends everybody's wait: this device can't go on.
    pub fn fail(&self) {
        let words = format!("device {} failed", self.shared.names[self.rank]);
        self.lock().ended.get_or_insert(words);
        self.shared.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Round> {
        // A poisoned lock is a device that panicked, and `ended` tells that.
        self.shared
            .round
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(
        &self,
        deadline: Instant,
        ready: impl Fn(&Round) -> bool,
    ) -> Result<MutexGuard<'_, Round>> {
        let mut round = self.lock();
        loop {
            if let Some(words) = &round.ended {
                return Err(Waited(words.clone()).into());
            }
            if ready(&round) {
                return Ok(round);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let away: Vec<&str> = self
                    .shared
                    .names
                    .iter()
                    .zip(&round.given)
                    .filter(|(_, given)| given.is_none())
                    .map(|(name, _)| name.as_str())
                    .collect();
                round.ended = Some(silence(&away.join(", "), self.shared.timeout));
                self.shared.changed.notify_all();
                continue;
            }
            round = self
                .shared
                .changed
                .wait_timeout(round, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// The words for devices that stayed away.
pub(super) fn silence(names: &str, timeout: Duration) -> String {
    let seconds = timeout.as_secs_f64();
    format!("device {names} did not answer for {seconds} s; the run ends (--device-timeout)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::parse;

    #[test]
    fn everybody_gets_everything_in_device_order_round_after_round() {
        let sides = Gather::new(&parse("cpu:3").unwrap(), Duration::from_secs(20));
        std::thread::scope(|scope| {
            for side in sides {
                scope.spawn(move || {
                    for turn in 0..200i64 {
                        let mine = Tensor::from_slice(&[side.rank() as i64, turn]);
                        let all = side.all(&[&mine]).unwrap();
                        for (device, tensors) in all.iter().enumerate() {
                            assert_eq!(
                                Vec::<i64>::try_from(&tensors[0]).unwrap(),
                                [device as i64, turn]
                            );
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn what_is_gathered_carries_no_gradient() {
        let side = Gather::solo();
        let x = Tensor::from_slice(&[1.0f32]).set_requires_grad(true);
        assert!(!side.all(&[&(&x * 2.0)]).unwrap()[0][0].requires_grad());
    }

    #[test]
    fn a_device_that_stays_away_is_named() {
        let mut sides = Gather::new(&parse("cpu:3").unwrap(), Duration::from_millis(500));
        sides.remove(1);
        std::thread::scope(|scope| {
            for side in sides {
                scope.spawn(move || {
                    let words = side.all(&[]).unwrap_err().to_string();
                    assert!(
                        words.contains("cpu:1") && !words.contains("cpu:0,"),
                        "{words}"
                    );
                });
            }
        });
    }
}
