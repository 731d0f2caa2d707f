//! Taking the locks of a store: directly, or under a scheduler in tests that try every order of threads.

use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

static GIVE_WAY: OnceLock<fn()> = OnceLock::new();

/// Makes each lock of a store a point where another thread may run first: `give_way` is called before each attempt to
/// lock. For a scheduler that runs all threads on one operating system thread, where none may block. The setting lasts
/// as long as the process; it does nothing in builds without assertions.
#[cfg(any(test, feature = "testing"))]
pub fn take_turns(give_way: fn()) {
    let _ = GIVE_WAY.set(give_way);
}

/// Locks a mutex and ignores poison: every value is replaced in one step, so it is complete even after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    if cfg!(debug_assertions)
        && let Some(give_way) = GIVE_WAY.get()
    {
        loop {
            give_way();
            match mutex.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(e)) => return e.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
    }
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
