//! A library to preload: the wall clock, and it alone, is wrong by as many seconds as the file
//! in `WALLCLOCK_FILE` says at that moment; and the clock that goes on in suspend, and it alone, is
//! ahead by as many as `BOOTCLOCK_FILE` says, as after a sleep. Compiled by the test that uses it.

use std::ffi::{c_int, c_long};

/// The kernel's timespec on 64-bit machines.
#[repr(C)]
pub struct Timespec {
    seconds: i64,
    nanos: i64,
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

#[cfg(target_arch = "x86_64")]
const SYS_CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")]
const SYS_CLOCK_GETTIME: c_long = 113;

/// CLOCK_REALTIME, CLOCK_REALTIME_COARSE, CLOCK_TAI.
const WALL: [c_int; 3] = [0, 5, 11];

/// CLOCK_BOOTTIME, and its companion for alarms.
const BOOT: [c_int; 2] = [7, 9];

fn offset_s(name: &str) -> i64 {
    let path = std::env::var_os(name);
    let text = path.and_then(|path| std::fs::read_to_string(path).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Stands before the C library's own.
///
/// # Safety
/// `time` must be valid for writing, as for the function it replaces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int {
    // SAFETY: the caller's pointer goes on to the kernel, which checks it.
    let outcome = unsafe { syscall(SYS_CLOCK_GETTIME, c_long::from(clock), time) };
    let name = match clock {
        clock if WALL.contains(&clock) => "WALLCLOCK_FILE",
        clock if BOOT.contains(&clock) => "BOOTCLOCK_FILE",
        _ => return outcome as c_int,
    };
    if outcome == 0 {
        // SAFETY: the kernel has just written there.
        unsafe { (*time).seconds += offset_s(name) };
    }
    outcome as c_int
}
