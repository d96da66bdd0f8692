//! Time and waiting, as exactly as the kernel allows.

use std::os::fd::RawFd;

/// Most descriptors that one call of [`poll_readable`] watches.
pub const POLLED_MAX: usize = 8;

/// Nanoseconds of the monotonic clock.
#[must_use]
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Processor time of the calling thread, nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Asks for wake-ups without slack, and to run before every ordinary thread: on a busy machine
/// a wire would otherwise be as late as the scheduler's time slices are long.
pub fn prefer_this_thread() {
    // SAFETY: the parameter outlives its call, the others touch no memory. Without the rights
    // for real time the thread stays an ordinary one of the highest weight it may have.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        let mut parameter: libc::sched_param = std::mem::zeroed();
        parameter.sched_priority = 1;
        if libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) < 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        }
    }
}

/// Sleeps.
pub fn sleep_ns(ns: u64) {
    let time = timespec(ns);
    // SAFETY: the pointer outlives the call; the remaining time is not asked for. A signal
    // ends the sleep early, which the callers' loops allow for.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

/// Waits until one of the descriptors is readable, or broken, or the time is over.
/// At most [`POLLED_MAX`] of them are watched.
pub fn poll_readable(descriptors: impl Iterator<Item = RawFd>, timeout_ns: u64) {
    let mut polled = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; POLLED_MAX];
    let mut count: libc::nfds_t = 0;
    for (place, fd) in polled.iter_mut().zip(descriptors) {
        place.fd = fd;
        count += 1;
    }
    let time = timespec(timeout_ns);
    // SAFETY: both pointers outlive the call and `count` is no more than the array's length.
    unsafe { libc::ppoll(polled.as_mut_ptr(), count, &raw const time, std::ptr::null()) };
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = timespec(0);
    // SAFETY: the pointer outlives the call; these clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as _,
    }
}
