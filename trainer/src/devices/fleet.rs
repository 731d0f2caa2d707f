//! One thread per device, each with a worker that takes one job at a time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use tch::Device;

use super::gather::{Waited, silence};
use super::{Gather, Named};

/// What a worker gets at its start.
#[derive(Debug)]
pub struct Seat {
    /// The name of its device in errors.
    pub name: String,
    /// The device on which it computes.
    pub device: Device,
    /// Its side of the exchange.
    pub gather: Gather,
}

/// The threads of a run. A job is sent to every device at once. Either every device answers, or there is an error that
/// names the device at fault; after an error the fleet can't be used any more.
pub struct Fleet<Job, Answer> {
    names: Vec<String>,
    jobs: Vec<Sender<Job>>,
    answers: Receiver<(usize, Result<Answer>)>,
    /// Tells which devices are waiting for others.
    exchange: Gather,
    timeout: Duration,
    finished: bool,
}

impl<Job: Send + 'static, Answer: Send + 'static> Fleet<Job, Answer> {
    /// Starts one thread per device. `make` builds the worker in its own thread.
    pub fn start<Make, Work>(devices: &[Named], timeout: Duration, make: Make) -> Result<Self>
    where
        Make: Fn(Seat) -> Result<Work> + Clone + Send + 'static,
        Work: FnMut(Job) -> Result<Answer> + 'static,
    {
        let (answer, answers) = channel();
        let mut jobs = Vec::new();
        let sides = Gather::new(devices, timeout);
        let exchange = sides.first().context("there are no devices")?.clone();
        for (rank, (named, gather)) in devices.iter().zip(sides).enumerate() {
            let (sender, todo) = channel::<Job>();
            let (answer, make, named) = (answer.clone(), make.clone(), named.clone());
            std::thread::Builder::new()
                .name(named.name.clone())
                .spawn(move || serve(rank, &named, gather, &make, &todo, &answer))
                .with_context(|| format!("starting the thread of device {}", devices[rank].name))?;
            jobs.push(sender);
        }
        Ok(Self {
            names: devices.iter().map(|d| d.name.clone()).collect(),
            jobs,
            answers,
            exchange,
            timeout,
            finished: false,
        })
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> usize {
        self.jobs.len()
    }

    /// Gives each device its job and waits for every answer, in device order.
    pub fn run(&mut self, jobs: Vec<Job>) -> Result<Vec<Answer>> {
        assert_eq!(
            jobs.len(),
            self.jobs.len(),
            "there must be one job per device"
        );
        ensure!(
            !self.finished,
            "a device has failed before, so the run has ended"
        );
        self.finished = true;
        for (rank, job) in jobs.into_iter().enumerate() {
            // A thread that has ended has left its reason among the answers.
            let _ = self.jobs[rank].send(job);
        }
        let mut answers: Vec<Option<Result<Answer>>> = self.jobs.iter().map(|_| None).collect();
        // Devices wait for one another up to the timeout and can then say which one was missing, so this thread waits a
        // little longer. A device that came late to the exchange waits longer still, and is not at fault.
        let deadline = Instant::now() + self.timeout + Duration::from_secs(2).min(self.timeout);
        while answers.iter().any(Option::is_none) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok((rank, answer)) => answers[rank] = Some(answer),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.judge(answers)
    }

    /// Returns all answers, or the most informative error: the failing device's own, then one that names a missing
    /// device.
    fn judge(&mut self, answers: Vec<Option<Result<Answer>>>) -> Result<Vec<Answer>> {
        let mut whole = Vec::new();
        let mut own: Option<Error> = None;
        let mut of_others: Option<Error> = None;
        let mut silent = Vec::new();
        let waiting = self.exchange.waiting();
        for (rank, answer) in answers.into_iter().enumerate() {
            match answer {
                Some(Ok(answer)) => whole.push(answer),
                Some(Err(error)) if error.is::<Failed>() => {
                    own.get_or_insert(error);
                }
                Some(Err(error)) => {
                    of_others.get_or_insert(error);
                }
                None => silent.push(rank),
            }
        }
        if let Some(error) = own.or(of_others) {
            return Err(error);
        }
        if !silent.is_empty() {
            let at_fault: Vec<usize> = silent.iter().copied().filter(|&r| !waiting[r]).collect();
            let named = if at_fault.is_empty() {
                silent
            } else {
                at_fault
            };
            let names: Vec<&str> = named
                .iter()
                .map(|&rank| self.names[rank].as_str())
                .collect();
            bail!(silence(&names.join(", "), self.timeout));
        }
        self.finished = false;
        Ok(whole)
    }
}

/// A device's own failure.
#[derive(Debug)]
struct Failed(String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "device {} failed", self.0)
    }
}

impl std::error::Error for Failed {}

fn serve<Job, Answer, Make, Work>(
    rank: usize,
    named: &Named,
    gather: Gather,
    make: &Make,
    todo: &Receiver<Job>,
    answer: &Sender<(usize, Result<Answer>)>,
) where
    Make: Fn(Seat) -> Result<Work>,
    Work: FnMut(Job) -> Result<Answer>,
{
    // Ends the wait of the others with the reason. An error of waiting has its cause in another device and stays as it
    // is.
    let exchange = gather.clone();
    let give_up = |error: Error| {
        let error = if error.is::<Waited>() {
            error
        } else {
            exchange.fail();
            error.context(Failed(named.name.clone()))
        };
        let _ = answer.send((rank, Err(error)));
    };
    let seat = Seat {
        name: named.name.clone(),
        device: named.device,
        gather,
    };
    let mut work = match guarded(|| make(seat)) {
        Ok(work) => work,
        Err(error) => return give_up(error),
    };
    while let Ok(job) = todo.recv() {
        match guarded(|| work(job)) {
            Ok(done) => {
                if answer.send((rank, Ok(done))).is_err() {
                    return;
                }
            }
            Err(error) => return give_up(error),
        }
    }
}

/// Turns a panic into an error with its message (libtorch's errors are panics in tch).
fn guarded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic: Box<dyn Any + Send>| {
        let words = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("it panicked");
        Err(anyhow!("{words}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::parse;
    use tch::Tensor;

    /// Runs three devices that exchange one value per job. On the second job cpu:1 behaves as `harm` says, while the
    /// others take some seconds.
    fn run_slowly(
        timeout: f64,
        seconds: f64,
        harm: fn(u32) -> Result<()>,
    ) -> (Result<Vec<i64>>, Result<Vec<i64>>) {
        let devices = parse("cpu:3").unwrap();
        let mut fleet = Fleet::start(&devices, Duration::from_secs_f64(timeout), move |seat| {
            Ok(move |job: u32| {
                if job == 2 {
                    match seat.name == "cpu:1" {
                        true => harm(job)?,
                        false => std::thread::sleep(Duration::from_secs_f64(seconds)),
                    }
                }
                let all = seat.gather.all(&[&Tensor::from_slice(&[i64::from(job)])])?;
                Ok(all.iter().map(|t| t[0].int64_value(&[0])).sum())
            })
        })
        .unwrap();
        (fleet.run(vec![1, 1, 1]), fleet.run(vec![2, 2, 2]))
    }

    fn run_with(timeout: f64, harm: fn(u32) -> Result<()>) -> (Result<Vec<i64>>, Result<Vec<i64>>) {
        run_slowly(timeout, 0.0, harm)
    }

    fn hang(_: u32) -> Result<()> {
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }

    #[test]
    fn an_error_names_the_device_that_failed() {
        let (first, second) = run_with(30.0, |_| bail!("out of memory"));
        assert_eq!(first.unwrap(), [3, 3, 3]);
        assert_eq!(
            format!("{:#}", second.unwrap_err()),
            "device cpu:1 failed: out of memory"
        );
    }

    #[test]
    fn a_panic_is_reported_like_an_error() {
        let (_, second) = run_with(30.0, |_| panic!("a tensor of the wrong shape"));
        assert_eq!(
            format!("{:#}", second.unwrap_err()),
            "device cpu:1 failed: a tensor of the wrong shape"
        );
    }

    #[test]
    fn a_device_that_hangs_is_named_and_does_not_hang_the_run() {
        let begin = Instant::now();
        let (_, second) = run_with(3.0, hang);
        let words = format!("{:#}", second.unwrap_err());
        assert!(
            words.contains("device cpu:1 did not answer for 3 s"),
            "{words}"
        );
        assert!(begin.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn only_the_device_that_hangs_is_named() {
        // They come to the exchange so late that the run is given up before their own wait is over.
        let (_, second) = run_slowly(3.0, 2.9, hang);
        let words = format!("{:#}", second.unwrap_err());
        assert!(words.contains("device cpu:1 did not answer"), "{words}");
    }
}
