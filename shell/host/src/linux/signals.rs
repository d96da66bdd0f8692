//! Signals as something to read: nothing of ours runs inside a signal handler.

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::linux::sys::{check, check_len};

/// What a signal asks of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// SIGTERM or SIGINT: clean up and end. SIGUSR1 too, which we send to ourselves.
    End,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// SIGTERM, SIGINT, SIGHUP and SIGUSR1, blocked and readable.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

/// Blocks every signal in the calling thread, so that they reach the thread that reads them.
pub(crate) fn block_all() {
    // SAFETY: the set is initialised by sigfillset before it is read; the mask is this thread's.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

impl Signals {
    /// Blocks the signals in this thread, and in those it starts later.
    ///
    /// # Errors
    /// What `sigprocmask(2)` and `signalfd(2)` say.
    pub fn block() -> io::Result<Self> {
        // SAFETY: the set is initialised by sigemptyset before it is read.
        unsafe {
            let mut set = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            let mut set = set.assume_init();
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1] {
                libc::sigaddset(&raw mut set, signal);
            }
            check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))?;
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let fd = check(libc::signalfd(-1, &raw const set, flags))?;
            Ok(Self { fd: OwnedFd::from_raw_fd(fd) })
        }
    }

    /// For an event loop.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The next signal that came, if any.
    #[must_use]
    pub fn poll_signal(&self) -> Option<Asked> {
        // SAFETY: an all-zero structure is valid; the kernel fills it whole or not at all.
        let info = unsafe {
            let mut info: libc::signalfd_siginfo = zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            let got = libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size);
            check_len(got).ok()?;
            info
        };
        match info.ssi_signo.cast_signed() {
            libc::SIGHUP => Some(Asked::Reload),
            _ => Some(Asked::End),
        }
    }
}
