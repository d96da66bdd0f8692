//! The few system calls that no safe crate offers, each wrapped once, with its errors kept as
//! `io::Error`. Nothing here decides anything.

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Turns a C return value into a result.
pub(crate) fn check(value: libc::c_int) -> io::Result<libc::c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// As [`check`], for calls that return a length.
pub(crate) fn check_len(value: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(value).map_err(|_| io::Error::last_os_error())
}

/// `open(2)` with `O_CLOEXEC`; `path` ends with a NUL byte.
pub(crate) fn open(path: &std::ffi::CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: `path` is NUL-terminated; the returned descriptor is ours alone.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::open(path.as_ptr(), flags | libc::O_CLOEXEC))?)) }
}

/// Sets an integer socket option.
pub(crate) fn set_option(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    check(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) }).map(drop)
}

/// Binds a socket to a link: it hears and sends there and nowhere else.
pub(crate) fn bind_link(fd: RawFd, link: &str) -> io::Result<()> {
    let len = libc::socklen_t::try_from(link.len()).map_err(io::Error::other)?;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
    // SAFETY: pointer and length describe `link`, which outlives the call.
    check(unsafe { libc::setsockopt(fd, level, name, link.as_ptr().cast(), len) }).map(drop)
}

/// Reads an integer socket option.
pub(crate) fn option(fd: RawFd, level: libc::c_int, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: the pointers describe `value` and `len`, which outlive the call.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) })?;
    Ok(value)
}

/// The user at the other end of a local socket (SO_PEERCRED).
pub(crate) fn peer_user(socket: &impl AsRawFd) -> io::Result<u32> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(12);
    let fd = socket.as_raw_fd();
    let level = libc::SOL_SOCKET;
    let name = libc::SO_PEERCRED;
    // SAFETY: the pointers describe `who` and `len`, which outlive the call.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut who).cast(), &raw mut len) })?;
    Ok(who.uid)
}

/// The user that this process acts as.
pub(crate) fn own_user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Bytes for what the system says of a user: more than any sound entry has.
const USER_LEN_MAX: usize = 1 << 16;

/// The number of the user of this name.
pub(crate) fn user_number(name: &str) -> io::Result<Option<u32>> {
    let name = std::ffi::CString::new(name)?;
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    let mut room = vec![0; USER_LEN_MAX];
    // SAFETY: the name ends with a zero byte; entry, room and found outlive the call, and the
    // length is that of the room.
    let code = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            entry.as_mut_ptr(),
            room.as_mut_ptr(),
            room.len(),
            &raw mut found,
        )
    };
    match code {
        // SAFETY: where something was found, the entry was filled.
        0 if !found.is_null() => Ok(Some(unsafe { entry.assume_init() }.pw_uid)),
        0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => Ok(None),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Nanoseconds of CLOCK_BOOTTIME: monotonic, and it goes on during suspend.
pub(crate) fn boottime_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// Nanoseconds of CLOCK_REALTIME, by which the kernel says when a datagram came.
pub(crate) fn wall_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// Nanoseconds of CLOCK_MONOTONIC, which stands during suspend.
pub(crate) fn awake_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds for which this thread has had a processor.
pub(crate) fn thread_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    // SAFETY: a zeroed timespec is valid, and the call fills it.
    let time = unsafe {
        let mut time: libc::timespec = zeroed();
        libc::clock_gettime(clock, &raw mut time);
        time
    };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// From now on the kernel lets this thread sleep no more than a microsecond longer than it asks
/// for, instead of 50.
pub(crate) fn sleep_exactly() {
    const SLACK_NS: libc::c_ulong = 1_000;
    // SAFETY: takes a number. What is refused leaves the thread as it was.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0) };
}

/// From now on this thread runs before all that have no deadline, or no longer does. Returns
/// whether the kernel let it.
pub(crate) fn run_first(is_first: bool) -> bool {
    let policy = if is_first { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
    // SAFETY: a zeroed sched_param is valid; it outlives the call, which is about this thread.
    unsafe {
        let mut param: libc::sched_param = zeroed();
        param.sched_priority = is_first.into();
        libc::pthread_setschedparam(libc::pthread_self(), policy, &raw const param) == 0
    }
}

/// Whether this thread runs as all do for whom nobody asked for anything else.
pub(crate) fn runs_as_others() -> bool {
    let mut policy = libc::SCHED_OTHER;
    // SAFETY: a zeroed sched_param is valid; the call, which is about this thread, fills both.
    unsafe {
        let mut param: libc::sched_param = zeroed();
        let this = libc::pthread_self();
        libc::pthread_getschedparam(this, &raw mut policy, &raw mut param);
    }
    policy == libc::SCHED_OTHER
}

/// Sleeps until `fd` takes something, for a second at most.
pub(crate) fn wait_writable(fd: RawFd) {
    let mut ask = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: `ask` outlives the call. An error is no sleep.
    unsafe { libc::poll(&raw mut ask, 1, 1_000) };
}

/// Fills `out` from the kernel's generator. Blocks only before the pool was first seeded.
pub(crate) fn random(out: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < out.len() {
        let rest = &mut out[done..];
        // SAFETY: pointer and length describe `rest`.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match check_len(got) {
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What a wait was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    /// Wake when the descriptor can be read.
    pub(crate) readable: bool,
    /// Wake when the descriptor can be written.
    pub(crate) writable: bool,
}

impl Interest {
    /// Readable only: what nearly every descriptor wants.
    pub(crate) const READ: Self = Self { readable: true, writable: false };
    /// Both directions.
    pub(crate) const BOTH: Self = Self { readable: true, writable: true };
    /// Nothing but its end.
    pub(crate) const NOTHING: Self = Self { readable: false, writable: false };
    /// Told once each time that it becomes writable.
    pub(crate) const NEWLY_WRITABLE: Self = Self { readable: false, writable: true };

    fn bits(self) -> u32 {
        let mut bits = 0;
        if self.readable {
            bits |= libc::EPOLLIN;
        }
        if self.writable {
            bits |= libc::EPOLLOUT;
        }
        if self == Self::NEWLY_WRITABLE {
            bits |= libc::EPOLLET;
        }
        bits.cast_unsigned()
    }
}

/// One descriptor that is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// The descriptor as registered.
    pub(crate) fd: RawFd,
    /// It hung up or failed: reading it tells why.
    pub(crate) failed: bool,
}

/// An epoll instance: at most [`Poll::READY_MAX`] descriptors are told a wait.
#[derive(Debug)]
pub(crate) struct Poll {
    fd: OwnedFd,
}

impl Poll {
    /// Descriptors told by one wait, at most.
    pub(crate) const READY_MAX: usize = 64;

    /// A new, empty instance.
    ///
    /// # Errors
    /// What `epoll_create1(2)` says: no descriptors left, or no memory.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers; the descriptor is ours alone.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        Ok(Self { fd })
    }

    /// Watches `fd`, or changes what is watched for.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` says.
    pub(crate) fn watch(&self, fd: RawFd, interest: Interest) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: interest.bits(),
            u64: u64::try_from(fd).unwrap_or(u64::MAX),
        };
        let poll = self.fd.as_raw_fd();
        // SAFETY: `event` outlives both calls.
        let added = unsafe { libc::epoll_ctl(poll, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        match check(added) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                // SAFETY: as above.
                check(unsafe { libc::epoll_ctl(poll, libc::EPOLL_CTL_MOD, fd, &raw mut event) })
                    .map(drop)
            }
            other => other.map(drop),
        }
    }

    /// Stops watching `fd`; a descriptor that is not watched is no error.
    pub(crate) fn forget(&self, fd: RawFd) {
        // SAFETY: DEL ignores the event pointer.
        unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut());
        }
    }

    /// Sleeps for `time`, to the microsecond, or until something is ready. (`epoll_wait(2)` knows
    /// milliseconds alone, and `epoll_pwait2(2)` is not on every kernel.)
    pub(crate) fn doze(&self, time: Duration) {
        let mut own = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let time = libc::timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(1),
            tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
        };
        // SAFETY: both outlive the call. An error is a short sleep.
        unsafe { libc::ppoll(&raw mut own, 1, &raw const time, std::ptr::null()) };
    }

    /// Waits until something is ready or `timeout` has passed; `None` waits without limit.
    /// What is ready is appended to `ready`, which is cleared first.
    ///
    /// # Errors
    /// What `epoll_pwait2(2)` or `epoll_wait(2)` says; an interrupted wait is no error.
    pub(crate) fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; Self::READY_MAX];
        let max = libc::c_int::try_from(events.len()).unwrap_or(1);
        let milliseconds = timeout.map_or(-1, |time| {
            let rounded = time.as_nanos().div_ceil(1_000_000);
            libc::c_int::try_from(rounded).unwrap_or(libc::c_int::MAX)
        });
        // SAFETY: `events` holds `max` entries and outlives the call.
        let count = unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), events.as_mut_ptr(), max, milliseconds)
        };
        let count = match check(count) {
            Ok(count) => usize::try_from(count).unwrap_or(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        let bad = u32::try_from(libc::EPOLLERR | libc::EPOLLHUP).unwrap_or(0);
        for event in &events[..count] {
            let bits = event.events;
            let data = event.u64;
            ready.push(Ready { fd: RawFd::try_from(data).unwrap_or(-1), failed: bits & bad != 0 });
        }
        Ok(())
    }
}

impl AsRawFd for Poll {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
