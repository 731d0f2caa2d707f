//! The exchange between devices: each gives tensors and gets those of all devices, as detached copies, in device order.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tch::{Device, Tensor};

/// One device's side of the exchange.
///
/// Rounds follow one another: every device calls [`Gather::all`] the same number of times in the same order. If a
/// device fails, or does not call it within the timeout, the wait of the others ends with an error that names it.
#[derive(Debug, Clone)]
pub struct Gather {
    shared: Arc<Shared>,
    rank: usize,
    device: Device,
}

/// Why the exchange ended. The cause is another device, never the one that reports it.
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
    /// What each device gave; cleared when all have taken it.
    given: Vec<Option<Vec<Tensor>>>,
    taken: usize,
    /// Why the exchange has ended: which device failed or did not respond.
    ended: Option<String>,
}

impl Gather {
    /// Returns the sides of an exchange, one per device.
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

    /// Returns the exchange of a single device.
    pub fn solo() -> Self {
        let alone = super::Named {
            name: "cpu:0".into(),
            device: Device::Cpu,
        };
        Self::new(&[alone], Duration::from_secs(1)).remove(0)
    }

    /// Returns this device's place in the order.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> usize {
        self.shared.names.len()
    }

    /// Gives `mine` and returns the tensors of all devices: `[device][tensor]`, on this device, without gradients.
    pub fn all(&self, mine: &[&Tensor]) -> Result<Vec<Vec<Tensor>>> {
        let copies = mine.iter().map(|t| t.detach().copy()).collect();
        let deadline = Instant::now() + self.shared.timeout;
        // The last round's values stay until the slowest device has taken them.
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

    /// Returns, for each device, whether it has given its part of a round and waits for the others.
    pub(super) fn waiting(&self) -> Vec<bool> {
        self.lock().given.iter().map(Option::is_some).collect()
    }

    /// Ends the wait of all devices, because this one can't continue.
    pub fn fail(&self) {
        let words = format!("device {} failed", self.shared.names[self.rank]);
        self.lock().ended.get_or_insert(words);
        self.shared.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Round> {
        // A poisoned lock means that a device panicked, and `ended` says which.
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

/// Returns the message for devices that did not respond.
pub(super) fn silence(names: &str, timeout: Duration) -> String {
    let seconds = timeout.as_secs_f64();
    format!("device {names} did not answer for {seconds} s; the run ends (--device-timeout)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::parse;

    #[test]
    fn all_devices_get_all_tensors_in_device_order_in_every_round() {
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
    fn gathered_tensors_have_no_gradient() {
        let side = Gather::solo();
        let x = Tensor::from_slice(&[1.0f32]).set_requires_grad(true);
        assert!(!side.all(&[&(&x * 2.0)]).unwrap()[0][0].requires_grad());
    }

    #[test]
    fn an_unresponsive_device_is_named() {
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
