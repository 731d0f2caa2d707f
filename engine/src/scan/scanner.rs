//! The scanner: a kernel, and threads that share a scan.

use super::source::{BlockSource, VectorSource};
use super::topk::Found;
use super::{codes, vectors};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::kernel::pool::Pool;
use crate::metric::Metric;
use crate::quantizer::LookupTable;
use crate::threads;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The minimum share of work for a thread, in CPU cycles: waking a thread and waiting for it take 50 microseconds each
/// on virtual machines.
const SHARE: f64 = 200_000.0;

/// From this many queries per thread on, each thread scans all codes for its own queries, which share each part of the
/// codes while it is in cache.
const OWN_QUERIES: usize = 16;

/// Scans sources on a kernel with a pool of persistent threads. Share one; `scan` may be called from many
/// threads at once.
#[derive(Debug)]
pub struct Scanner {
    pub(super) kernel: Kernel,
    pub(super) pool: Pool,
    /// CPU cycles that a thread's share has at least.
    pub(super) share: f64,
    /// Queries that a thread takes for itself, at least, where there are codes enough to share instead.
    pub(super) own_queries: usize,
}

impl Scanner {
    /// Returns a scanner whose scans run on up to `threads` threads, the caller's among them; 0 means one for
    /// each core. An error if `MOPQDB_KERNEL` asks for a kernel that can't be had, if there are more than
    /// [`MAX_THREADS`](crate::MAX_THREADS), or if they can't be started.
    pub fn new(threads: usize) -> Result<Self> {
        let pool = Pool::new(threads::count(threads)?)?;
        Ok(Self::of(Kernel::detect()?, pool))
    }

    /// Returns a scanner on this very kernel. It scans on the caller's thread alone if the others can't be
    /// started.
    pub fn with_kernel(kernel: Kernel, threads: usize) -> Self {
        let pool = threads::count(threads).and_then(Pool::new);
        Self::of(kernel, pool.unwrap_or_else(|_| Pool::alone()))
    }

    fn of(kernel: Kernel, pool: Pool) -> Self {
        Self {
            kernel,
            pool,
            share: SHARE,
            own_queries: OWN_QUERIES,
        }
    }

    /// Returns the kernel it runs.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Returns the number of threads that share a scan, the caller's included.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Returns, for each table, the rows that can be among its k best of all sources, best first. There are up to k
    /// *per source*: a row that ties with the k-th best is kept, since only the caller knows how sources rank. Within a
    /// source ties go to the lower row. Several tables share one pass over the codes.
    pub fn scan(
        &self,
        sources: &[&dyn BlockSource],
        tables: &[LookupTable],
        k: usize,
    ) -> Result<Vec<Vec<Found>>> {
        check_sources(sources.len(), sources.iter().map(|s| (s.rows(), s.live())))?;
        if k == 0 || tables.is_empty() {
            return Ok(vec![Vec::new(); tables.len()]);
        }
        if tables.iter().any(|t| t.shape() != tables[0].shape()) {
            return Err(Error::invalid("tables of several shapes in one scan"));
        }
        codes::scan(self, sources, tables, k)
    }

    /// Like [`scan`](Self::scan), over full-precision vectors: `queries` is (n, dim).
    pub fn scan_exact(
        &self,
        sources: &[&dyn VectorSource],
        queries: &[f32],
        metric: Metric,
        k: usize,
    ) -> Result<Vec<Vec<Found>>> {
        check_sources(sources.len(), sources.iter().map(|s| (s.rows(), s.live())))?;
        let Some(dim) = sources.first().map(|s| s.dim()) else {
            return Err(Error::invalid(
                "an exact scan needs a source, to know its dimensions",
            ));
        };
        if let Some(other) = sources.iter().map(|s| s.dim()).find(|d| *d != dim) {
            return Err(Error::invalid(format!(
                "sources of {dim} and of {other} dimensions in one scan"
            )));
        }
        if dim == 0 || !queries.len().is_multiple_of(dim) {
            return Err(Error::invalid(format!(
                "queries of {} values in all, for vectors of {dim} dimensions",
                queries.len()
            )));
        }
        if let Some(at) = queries.iter().position(|q| !q.is_finite()) {
            return Err(Error::invalid(format!(
                "query {} holds {}",
                at / dim,
                queries[at]
            )));
        }
        if k == 0 {
            return Ok(vec![Vec::new(); queries.len() / dim]);
        }
        vectors::scan(self, sources, queries, metric, k)
    }

    /// Returns the number of threads, at least one, for work of about this many CPU cycles.
    pub(super) fn threads_for(&self, cycles: f64) -> usize {
        ((cycles / self.share) as usize).clamp(1, self.threads())
    }

    /// Applies `work` to each item and returns the results in order. An item takes about `cycles`
    /// CPU cycles.
    pub(crate) fn each<I: Sync, T: Send>(
        &self,
        items: &[I],
        cycles: f64,
        work: impl Fn(&I) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let threads = self.threads_for(items.len() as f64 * cycles);
        self.in_parts(items, threads, |part| part.iter().map(&work).collect())
    }

    /// Returns what `work` makes of all items, in their order, from a run of neighbours for each
    /// thread.
    pub(super) fn in_parts<I: Sync, T: Send>(
        &self,
        items: &[I],
        threads: usize,
        work: impl Fn(&[I]) -> Result<Vec<T>> + Sync,
    ) -> Result<Vec<T>> {
        if threads == 1 || items.len() < 2 {
            return work(items);
        }
        let parts = items.chunks(items.len().div_ceil(threads));
        let parts: Vec<_> = parts.enumerate().collect();
        let done = self.sweep(&parts, threads, Vec::new, |done, &(number, part)| {
            done.push((number, work(part)?));
            Ok(())
        })?;
        let mut done: Vec<_> = done.into_iter().flatten().collect();
        done.sort_unstable_by_key(|(number, _)| *number);
        Ok(done.into_iter().flat_map(|(_, made)| made).collect())
    }

    /// Shares parts out among threads, in ascending order for each; returns every thread's state.
    pub(super) fn sweep<P: Sync, S: Send>(
        &self,
        parts: &[P],
        threads: usize,
        new: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, &P) -> Result<()> + Sync,
    ) -> Result<Vec<S>> {
        let states = Mutex::new(Vec::new());
        let failure = Mutex::new(None);
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        self.pool.run(threads.min(parts.len()), &|| {
            let mut state = None;
            while !failed.load(Ordering::SeqCst)
                && let Some(part) = parts.get(next.fetch_add(1, Ordering::SeqCst))
            {
                if let Err(error) = work(state.get_or_insert_with(&new), part) {
                    failed.store(true, Ordering::SeqCst);
                    lock(&failure).get_or_insert(error);
                }
            }
            lock(&states).extend(state);
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(states.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A piece of work: blocks, or rows, of one source.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) source: u32,
    pub(super) range: Range<usize>,
}

/// Cuts sources of these sizes into ranges of at most `size`.
pub(super) fn chunks(sizes: impl Iterator<Item = usize>, size: usize) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    for (source, end) in sizes.enumerate() {
        let mut start = 0;
        while start < end {
            let next = (start + size).min(end);
            chunks.push(Chunk {
                source: source as u32,
                range: start..next,
            });
            start = next;
        }
    }
    chunks
}

fn check_sources<'a>(
    count: usize,
    sources: impl Iterator<Item = (usize, Option<&'a [u64]>)>,
) -> Result<()> {
    if u32::try_from(count).is_err() {
        return Err(Error::invalid("more sources than a u32 counts"));
    }
    for (source, (rows, live)) in sources.enumerate() {
        if u32::try_from(rows).is_err() {
            return Err(Error::invalid(format!(
                "source {source} has {rows} rows; a u32 must count them"
            )));
        }
        if let Some(live) = live
            && live.len() < rows.div_ceil(64)
        {
            return Err(Error::invalid(format!(
                "source {source} has {rows} rows and live bits for {}",
                live.len() * 64
            )));
        }
    }
    Ok(())
}
