//! What a connection's bytes go through.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use quic::Pipe;
use rustls::{ClientConnection, StreamOwned};

/// The shortest wait that a socket can be given; zero would mean for ever.
const WAIT_MIN: Duration = Duration::from_millis(1);

pub(super) enum Stream {
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Plain(TcpStream),
    Local(UnixStream),
    Pipe(Box<Pipe>),
}

impl Stream {
    /// Reads and writes from now on end at `deadline`.
    pub(super) fn limit(&mut self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Some(left.max(WAIT_MIN));
        match self {
            Self::Tls(stream) => {
                stream.sock.set_read_timeout(left)?;
                stream.sock.set_write_timeout(left)
            }
            Self::Plain(stream) => {
                stream.set_read_timeout(left)?;
                stream.set_write_timeout(left)
            }
            Self::Local(stream) => {
                stream.set_read_timeout(left)?;
                stream.set_write_timeout(left)
            }
            Self::Pipe(pipe) => {
                pipe.limit(deadline);
                Ok(())
            }
        }
    }

    /// Whether there is something to read, or the end. Of others than TCP nobody can tell.
    pub(super) fn has_news(&self) -> bool {
        let socket = match self {
            Self::Tls(stream) => &stream.sock,
            Self::Plain(socket) => socket,
            Self::Local(_) | Self::Pipe(_) => return false,
        };
        let waits = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let is_quiet =
            socket.set_nonblocking(true).is_ok() && socket.peek(&mut [0]).is_err_and(waits);
        !is_quiet || socket.set_nonblocking(false).is_err()
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tls(stream) => stream.read(bytes),
            Self::Plain(stream) => stream.read(bytes),
            Self::Local(stream) => stream.read(bytes),
            Self::Pipe(pipe) => pipe.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tls(stream) => stream.write(bytes),
            Self::Plain(stream) => stream.write(bytes),
            Self::Local(stream) => stream.write(bytes),
            Self::Pipe(pipe) => pipe.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => stream.flush(),
            Self::Plain(stream) => stream.flush(),
            Self::Local(stream) => stream.flush(),
            Self::Pipe(pipe) => pipe.flush(),
        }
    }
}
