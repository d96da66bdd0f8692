//! How many tests run at once: four, since nearly all the time they wait for a timer or a process,
//! and those that measure run alone.

use std::sync::{Condvar, Mutex, PoisonError};

static FREE: Mutex<Option<usize>> = Mutex::new(None);
static FREED: Condvar = Condvar::new();

/// A test's permission to run.
pub struct Turn(usize);

/// Waits for one place among those that run.
pub fn shared() -> Turn {
    take(1)
}

/// Waits until nothing else runs, for tests that measure.
pub fn alone() -> Turn {
    take(places())
}

fn places() -> usize {
    std::env::var("WARREN_TESTS_AT_ONCE").ok().and_then(|n| n.parse().ok()).unwrap_or(4)
}

fn take(n: usize) -> Turn {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let left = *free.get_or_insert_with(places);
        if left >= n {
            *free = Some(left - n);
            return Turn(n);
        }
        free = FREED.wait(free).unwrap_or_else(PoisonError::into_inner);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        *free = Some(free.unwrap_or_default() + self.0);
        FREED.notify_all();
    }
}
