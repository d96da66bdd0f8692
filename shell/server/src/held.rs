//! A mutex that is held although its last holder panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock whose holder panicked is still a lock: every write is a transaction.
pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
