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

/// Has what is sent by a socket leave as datagrams of `len` bytes each: `UDP_SEGMENT` of udp(7).
pub fn segment_udp(socket: &std::net::UdpSocket, len: usize) -> Result<()> {
    const SOL_UDP: i32 = 17;
    const UDP_SEGMENT: i32 = 103;
    set(socket, SOL_UDP, UDP_SEGMENT, len as i32).context("segments of UDP")
}

/// Makes the receive buffer of a socket `len` bytes, past what the machine allows others.
pub fn force_receive_buffer(socket: &std::net::UdpSocket, len: i32) -> Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, len)
        .with_context(|| format!("a receive buffer of {len}"))
}

/// Sets an option that takes a value of this kind: setsockopt(2).
pub fn set<T>(socket: &impl std::os::fd::AsRawFd, level: i32, option: i32, value: T) -> Result<()> {
    // SAFETY: the value is alive and as long as is said.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    ensure!(set == 0, "{}", std::io::Error::last_os_error());
    Ok(())
}
