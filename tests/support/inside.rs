//! Running code of the test itself inside a host's network.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::thread::{Builder, JoinHandle};

use anyhow::{Context as _, Result, anyhow, ensure};
use lab::netns::Host;

/// Runs `work` on a thread of its own inside `host` and returns what it returns.
pub fn inside<T: Send>(host: &Host, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let path = host.path();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            enter(&path)?;
            work()
        });
        thread.join().map_err(|_| anyhow!("a thread inside a host panicked"))?
    })
}

/// Starts `work` on a thread inside `host`, to be joined later.
pub fn start<T: Send + 'static>(
    host: &Host,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<JoinHandle<Result<T>>> {
    let path = host.path();
    let thread = Builder::new().name(format!("in {}", host.name()));
    let thread = thread.spawn(move || {
        enter(&path)?;
        work()
    });
    thread.context("cannot start a thread")
}

/// Waits for a thread of [`start`].
pub fn join<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread inside a host panicked"))?
}

/// Moves this thread, which must end there, into another network namespace.
pub fn enter(path: &std::path::Path) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    // SAFETY: setns takes a descriptor, which is open, and changes only the calling thread.
    let outcome = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
    (outcome == 0).then_some(()).ok_or_else(|| {
        anyhow!("cannot enter {}: {}", path.display(), std::io::Error::last_os_error())
    })
}

/// Makes the receive buffer of a socket `len` bytes, past what the machine allows others.
pub fn force_receive_buffer(socket: &std::net::UdpSocket, len: i32) -> Result<()> {
    // SAFETY: the option takes an int, which outlives the call.
    let forced = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const len).cast(),
            size_of_val(&len) as libc::socklen_t,
        )
    };
    ensure!(forced == 0, "a receive buffer of {len}: {}", std::io::Error::last_os_error());
    Ok(())
}
