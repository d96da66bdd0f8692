//! The system calls that the standard library lacks, each as a safe function.
//!
//! Everything here either fails with `io::Error` or has no way to go wrong; nothing keeps a
//! pointer past its call.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

mod tap;
mod time;

pub use tap::{Tap, VNET_HEADER_BYTES};
pub use time::{POLLED_MAX, now_ns, poll_readable, prefer_this_thread, sleep_ns, thread_cpu_ns};

/// What a program is put into between fork and exec: a host's namespaces and files.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// The network namespace's file, `/run/netns/<name>`.
    pub netns: PathBuf,
    /// The directory that becomes `/etc`.
    pub etc: PathBuf,
    /// The directory that becomes `/run`; without one the host shares the machine's.
    pub run: Option<PathBuf>,
    /// The host name.
    pub hostname: String,
}

/// Makes `command` run inside `confinement`: its network, a private view of the mounts with its
/// own `/etc` and a `/sys` that shows its devices, and its host name.
///
/// # Errors
/// Returns an error when a path or the name holds a NUL byte; what fails between fork and exec
/// is reported by the command's `spawn`.
pub fn confine(command: &mut Command, confinement: &Confinement) -> io::Result<()> {
    let netns = c_path(&confinement.netns)?;
    let etc = c_path(&confinement.etc)?;
    let run = confinement.run.as_deref().map(c_path).transpose()?;
    let hostname = CString::new(confinement.hostname.as_bytes())?;
    // SAFETY: between fork and exec the closure makes only direct system calls on strings that
    // were built before the fork: it neither allocates nor takes a lock.
    unsafe { command.pre_exec(move || enter(&netns, &etc, run.as_deref(), &hostname)) };
    Ok(())
}

/// Makes `command` end where one of its files, its log too, would become longer than this: what
/// writes without end must not fill the disk.
pub fn bound_files(command: &mut Command, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: between fork and exec the closure makes one system call on a value of its own.
    unsafe {
        command.pre_exec(move || {
            check(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit)).map(drop)
        })
    };
}

fn enter(netns: &CStr, etc: &CStr, run: Option<&CStr>, hostname: &CStr) -> io::Result<()> {
    // SAFETY: every pointer is a NUL-terminated string that outlives the call, or null where
    // the call allows it; the descriptor is used only when open() succeeded.
    unsafe {
        let fd = libc::open(netns.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        check(fd)?;
        check(libc::setns(fd, libc::CLONE_NEWNET))?;
        libc::close(fd);
        check(libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWUTS))?;
        let none = std::ptr::null();
        let slave = libc::MS_SLAVE | libc::MS_REC;
        check(libc::mount(none, c"/".as_ptr(), none, slave, none.cast()))?;
        check(libc::mount(etc.as_ptr(), c"/etc".as_ptr(), none, libc::MS_BIND, none.cast()))?;
        if let Some(run) = run {
            check(libc::mount(run.as_ptr(), c"/run".as_ptr(), none, libc::MS_BIND, none.cast()))?;
        }
        // Sysfs shows the devices of the namespace that mounted it. A machine that forbids the
        // mount still gives a usable host, so a failure here is no error.
        libc::mount(c"sysfs".as_ptr(), c"/sys".as_ptr(), c"sysfs".as_ptr(), 0, none.cast());
        check(libc::sethostname(hostname.as_ptr(), hostname.to_bytes().len()))?;
    }
    Ok(())
}

/// Runs `work` on a thread that has joined the network namespace `netns`; the caller stays
/// where it is. Descriptors opened by `work` keep belonging to that namespace.
///
/// # Errors
/// Returns an error when the namespace cannot be opened or joined.
pub fn in_netns<T: Send>(netns: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let file = File::open(netns)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the descriptor is open, and only this new thread changes its namespace.
            check(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) })?;
            Ok(work())
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the work in a namespace panicked")))
    })
}

/// Mounts an overlay of `lower` at `target` that keeps what is written in `upper`.
///
/// # Errors
/// Returns the kernel's refusal, for example where it has no overlayfs.
pub fn mount_overlay(lower: &str, upper: &Path, work: &Path, target: &Path) -> io::Result<()> {
    let data = format!("lowerdir={lower},upperdir={},workdir={}", upper.display(), work.display());
    let data = CString::new(data)?;
    let target = c_path(target)?;
    let kind = c"overlay".as_ptr();
    // SAFETY: all pointers are NUL-terminated strings that outlive the call.
    check(unsafe { libc::mount(kind, target.as_ptr(), kind, 0, data.as_ptr().cast()) })?;
    Ok(())
}

/// Detaches what is mounted at `target`; it goes away once nobody uses it.
///
/// # Errors
/// Returns the kernel's refusal, `EINVAL` when nothing is mounted there.
pub fn unmount(target: &Path) -> io::Result<()> {
    let target = c_path(target)?;
    // SAFETY: the pointer is a NUL-terminated string that outlives the call.
    check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) })?;
    Ok(())
}

/// Sends `signal` to one process, or to a process group when `pid` is negative.
///
/// # Errors
/// Returns `ESRCH` when there is no such process.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill takes no pointers.
    check(unsafe { libc::kill(pid, signal) })?;
    Ok(())
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on SIGINT and SIGTERM do not end this process but make [`check_interrupted`] fail,
/// so that what was made is removed on the way out.
pub fn catch_interrupts() {
    extern "C" fn note(_signal: libc::c_int) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    let handler = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is safe in a signal.
        unsafe { libc::signal(signal, handler) };
    }
}

/// Fails once a signal asked this process to end.
///
/// # Errors
/// Says so.
pub fn check_interrupted() -> io::Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted by a signal"));
    }
    Ok(())
}

/// Gives a socket so much room for what came and was not read, beyond what the machine gives to
/// all; that needs root.
///
/// # Errors
/// The kernel refuses.
pub fn widen_receive_buffer(socket: &impl AsRawFd, bytes: i32) -> io::Result<()> {
    let size = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value is an integer of the size that is told, and outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const bytes).cast(),
            size,
        )
    };
    check(done).map(drop)
}

/// Whether this process has the rights of root.
#[must_use]
pub fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Clock ticks a second, the unit of times in `/proc/<pid>/stat`.
#[must_use]
pub fn clock_ticks() -> f64 {
    // SAFETY: sysconf takes no pointers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

pub(crate) fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}
