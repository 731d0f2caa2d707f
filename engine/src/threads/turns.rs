//! How a store's locks are taken: at once in a released build, by turns in a test that runs threads in every order.

use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

static GIVE_WAY: OnceLock<fn()> = OnceLock::new();

/// Makes each lock of a store a place where another thread may come first: `give_way` is called before each try. For a
/// scheduler that runs all threads on one, where nobody may wait for another in the operating system. Stays for the
/// process; does nothing in builds without assertions.
pub fn take_turns(give_way: fn()) {
    let _ = GIVE_WAY.set(give_way);
}

/// A lock whose holder panicked still guards whole values: each is replaced in one step.
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
