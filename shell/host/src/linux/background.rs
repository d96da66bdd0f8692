//! Going to the background, and processes that start from ours.
//!
//! A process with threads cannot fork and go on. So whoever is to go to the background starts the
//! same program again as a child in a session of its own, in the foreground mode, with a pipe on
//! which the child says that it is ready or why it cannot be. The parent ends when it has heard.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::linux::sys::check;

/// The variable by which the child learns which descriptor the pipe is.
const READY_FD: &str = "WARREN_READY_FD";
/// What the child says when it is ready; anything else is the text of its error.
const READY: u8 = 0;
/// The longest error a child can tell, in bytes.
const ERROR_LEN_MAX: u64 = 64 << 10;

/// Why nothing runs in the background.
#[derive(Debug)]
pub enum Error {
    /// The child could not be started.
    Start(io::Error),
    /// The child said why it cannot be ready.
    Failed(String),
    /// The child ended without a word.
    Died,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(e) => {
                write!(f, "cannot start the background process: {e}; try -f for the foreground")
            }
            Self::Failed(why) => f.write_str(why),
            Self::Died => f.write_str(
                "the background process ended before it was ready; run it with -f to see why",
            ),
        }
    }
}

impl std::error::Error for Error {}

/// Runs this program again with `arguments` in the background and returns when it is ready. Its
/// standard error stays ours if `keep_stderr`; else it has none, so that nobody waits for its end.
///
/// # Errors
/// [`Error`], with what the child said.
pub fn start<I: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = I>,
    keep_stderr: bool,
) -> Result<(), Error> {
    let (reader, writer) = io::pipe().map_err(Error::Start)?;
    let inherited = writer.as_raw_fd();
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("warren")
        .args(arguments)
        .env(READY_FD, inherited.to_string())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(if keep_stderr { Stdio::inherit() } else { Stdio::null() });
    // SAFETY: between fork and exec only async-signal-safe calls are made: setsid and fcntl.
    unsafe {
        command.pre_exec(move || {
            check(libc::setsid())?;
            check(libc::fcntl(inherited, libc::F_SETFD, 0)).map(drop)
        });
    }
    let mut child = command.spawn().map_err(Error::Start)?;
    drop(writer);
    let mut said = Vec::new();
    let mut first = [READY + 1];
    let mut reader = reader.take(ERROR_LEN_MAX);
    if reader.read(&mut first).map_err(Error::Start)? == 1 && first[0] == READY {
        return Ok(());
    }
    said.push(first[0]);
    reader.read_to_end(&mut said).map_err(Error::Start)?;
    let _ = child.wait();
    match String::from_utf8_lossy(&said).trim().trim_start_matches('\u{1}') {
        "" => Err(Error::Died),
        text => Err(Error::Failed(text.to_owned())),
    }
}

/// The child's end of the pipe.
#[derive(Debug)]
pub struct Readiness {
    pipe: io::PipeWriter,
}

impl Readiness {
    /// The pipe to the process that started us in the background; `None` if nobody did. To be
    /// called once, before any descriptor is opened.
    #[must_use]
    pub fn take() -> Option<Self> {
        let fd: RawFd = std::env::var(READY_FD).ok()?.parse().ok().filter(|fd| *fd > 2)?;
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: fstat fills `stat` if it returns 0. A pipe with this number that we did not open
        // is the one our parent left to us, and nobody else in this process knows of it.
        unsafe {
            check(libc::fstat(fd, stat.as_mut_ptr())).ok()?;
            if stat.assume_init().st_mode & libc::S_IFMT != libc::S_IFIFO {
                return None;
            }
            check(libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC)).ok()?;
            Some(Self { pipe: OwnedFd::from_raw_fd(fd).into() })
        }
    }

    /// Tells that all is ready.
    pub fn ready(mut self) {
        let _ = self.pipe.write_all(&[READY]); // a parent that is gone does not mind
    }

    /// Tells why it will never be.
    pub fn failed(mut self, why: &str) {
        let _ = self.pipe.write_all(why.as_bytes());
    }
}

/// Lets the child of `command` take signals again that this process reads from a descriptor.
pub(crate) fn with_default_signals(command: &mut Command) {
    // SAFETY: between fork and exec only async-signal-safe calls are made, on a set that
    // sigemptyset initialises.
    unsafe {
        command.pre_exec(|| {
            let mut set = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            let none = std::ptr::null_mut();
            check(libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), none)).map(drop)
        });
    }
}

/// Sends this process a signal that ends a driver's loop. Not SIGTERM: signals of one kind that
/// wait are one, and a user's would be lost in ours.
pub(crate) fn end_own_loop() {
    // SAFETY: the call takes no pointers.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGUSR1);
    }
}

/// Whether `fd` is a file that everybody may read, write or execute.
#[must_use]
pub fn is_file_for_all(fd: BorrowedFd<'_>) -> bool {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat fills `stat` if it returns 0, and only then is it read.
    let mode = unsafe {
        if check(libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr())).is_err() {
            return false;
        }
        stat.assume_init().st_mode
    };
    mode & libc::S_IFMT == libc::S_IFREG && mode & libc::S_IRWXO != 0
}
