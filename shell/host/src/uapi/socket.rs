//! The listening socket: made with its final permissions, never stolen from a living owner, removed
//! only while it is still ours.

use std::fs;
use std::io;
use std::mem::{offset_of, size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::linux::sys::check;

/// Clients that may wait to be accepted.
const BACKLOG: libc::c_int = 16;
/// How often a socket is made whose file somebody else removes at that moment.
const ATTEMPTS: u32 = 32;
/// What is waited after the first such attempt; after the second twice as long, and so on.
const PAUSE: Duration = Duration::from_micros(100);

/// A listening socket in the file system and the eye that is kept on it.
#[derive(Debug)]
pub(super) struct Listener {
    fd: OwnedFd,
    watch: OwnedFd,
    path: PathBuf,
    /// Device and inode of the socket we made.
    identity: (u64, u64),
}

impl Listener {
    /// Listens at `path`, readable and writable for the owner only. EADDRINUSE if somebody else
    /// answers there; what nobody answers at is removed.
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        // `wg` removes a socket at which nobody listens: the one that a crashed program left, and
        // ours in the moment between its bind and its listen. Then it is made once more.
        for attempt in 1..ATTEMPTS {
            match Self::bind_once(path) {
                // Both change one folder and so wait for each other: without ever longer pauses
                // they would go on in step.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    std::thread::sleep(PAUSE * attempt);
                }
                other => return other,
            }
        }
        Self::bind_once(path)
    }

    fn bind_once(path: &Path) -> io::Result<Self> {
        let fd = match listen(path) {
            Err(e) if e.raw_os_error() == Some(libc::EADDRINUSE) && is_stale(path)? => {
                fs::remove_file(path)?;
                listen(path)?
            }
            other => other?,
        };
        let identity = identity(path)?;
        let watch = watch(path)?;
        Ok(Self { fd, watch, path: path.to_owned(), identity })
    }

    /// Readable when the socket's file was touched: see [`Listener::is_gone`].
    pub(super) fn watch_fd(&self) -> RawFd {
        self.watch.as_raw_fd()
    }

    /// The next client, if one waits.
    pub(super) fn accept(&self) -> io::Result<Option<UnixStream>> {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let null = std::ptr::null_mut();
        let no_len = std::ptr::null_mut();
        // SAFETY: a null address asks for none; the new descriptor is ours alone.
        let accepted = unsafe { libc::accept4(self.fd.as_raw_fd(), null, no_len, flags) };
        match check(accepted) {
            // SAFETY: as above.
            Ok(fd) => Ok(Some(UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) }))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::ECONNABORTED) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Drinks the watch empty and tells whether the socket's file is no longer ours.
    pub(super) fn is_gone(&self) -> bool {
        let mut events = [0u8; 4096];
        loop {
            let fd = self.watch.as_raw_fd();
            // SAFETY: pointer and length describe `events`; the descriptor does not block.
            let got = unsafe { libc::read(fd, events.as_mut_ptr().cast(), events.len()) };
            if got <= 0 {
                break;
            }
        }
        !self.is_ours()
    }

    fn is_ours(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.is_ours() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|m| (m.dev(), m.ino()))
}

/// Whether `path` is a socket that nobody listens at.
fn is_stale(path: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let fd = socket()?;
    let (address, len) = address(path)?;
    // SAFETY: pointer and length describe `address`, which outlives the call.
    let connected = unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len) };
    match check(connected) {
        Err(e) if e.raw_os_error() == Some(libc::ECONNREFUSED) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(e),
        // the socket does not block: a full backlog is EAGAIN, a sign of life
        _ => Ok(false),
    }
}

fn listen(path: &Path) -> io::Result<OwnedFd> {
    let fd = socket()?;
    let (address, len) = address(path)?;
    // SAFETY: all three take the descriptor; bind's pointer and length describe `address`. The mode
    // that the socket has when it is bound is the mode its file gets, so there is no moment at
    // which others could connect, and the umask of the process stays alone.
    unsafe {
        check(libc::fchmod(fd.as_raw_fd(), 0o600))?;
        check(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len))?;
        check(libc::listen(fd.as_raw_fd(), BACKLOG))?;
    }
    Ok(fd)
}

fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no pointers; the descriptor is ours alone.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::socket(libc::AF_UNIX, kind, 0))?)) }
}

fn address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all zeros is a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket's path is too long"));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = from.cast_signed() as libc::c_char;
    }
    let len = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    debug_assert!(len <= size_of::<libc::sockaddr_un>());
    Ok((address, libc::socklen_t::try_from(len).unwrap_or(0)))
}

/// An inotify descriptor that is readable when the file at `path` is unlinked or replaced.
fn watch(path: &Path) -> io::Result<OwnedFd> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::IN_NONBLOCK | libc::IN_CLOEXEC;
    let mask = libc::IN_ATTRIB | libc::IN_DELETE_SELF | libc::IN_MOVE_SELF;
    // SAFETY: `path` ends with a NUL byte and outlives the call; the descriptor is ours alone.
    unsafe {
        let fd = OwnedFd::from_raw_fd(check(libc::inotify_init1(flags))?);
        check(libc::inotify_add_watch(fd.as_raw_fd(), path.as_ptr(), mask))?;
        Ok(fd)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// `wg show` while a program starts again after a crash: it connects, is refused by what the
    /// crash left, and removes that, often at the very moment at which we do.
    #[test]
    fn a_wg_that_clears_up_at_the_same_moment_is_no_obstacle() {
        let dir = std::env::temp_dir().join(format!("warren-uapi-race-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let path = dir.join("wg0.sock");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if is_stale(&path).unwrap_or(false) {
                        // It may be gone by now, or be a new one: that is the point.
                        let _ = fs::remove_file(&path);
                    }
                    std::thread::sleep(Duration::from_micros(20));
                }
            });
            let bound = (0..300).map(|_| {
                // A crash leaves the file: nothing listens, and nobody removed it.
                drop(std::os::unix::net::UnixListener::bind(&path));
                // A process that another test starts has a copy until it is its own program.
                while !is_stale(&path).unwrap_or(true) {
                    std::thread::sleep(Duration::from_micros(50));
                }
                Listener::bind(&path).map(drop)
            });
            let failed: Vec<_> = bound.filter_map(Result::err).collect();
            stop.store(true, Ordering::Relaxed);
            assert!(failed.is_empty(), "{failed:?}");
        });
        fs::remove_dir_all(&dir).expect("removed");
    }
}
