//! A TCP stream and the TLS on it, after the HTTP library let go of both. Read and written without
//! blocking: what is not ready is waited for by the task's waker.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::task::{Context, Poll, ready};

use dial::relay::carry_by;
use rustls::ServerConnection;
use socket2::SockRef;
use tokio::net::TcpStream;
use wire::relay::Decoder;

/// Bytes that one read takes.
const READ_LEN: usize = 64 * 1024;
/// What the kernel may hold unsent: 1 ms at 1 Gbit/s. What is in it can no longer be dropped.
const UNSENT_LEN: u32 = 128 * 1024;

thread_local! {
    /// One for each thread, since nothing of it outlives a call.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_LEN]);
}

/// One stream.
pub(super) struct Stream {
    tcp: TcpStream,
    tls: ServerConnection,
    pub(super) decoder: Decoder,
}

/// What reading brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// Perhaps whole frames, and perhaps more is there.
    Bytes,
    /// The other end is done.
    End,
}

/// Lets TLS write to a socket that never blocks.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    /// Takes over from HTTP; `early` was read already.
    pub(super) fn new(tcp: TcpStream, mut tls: ServerConnection, early: &[u8]) -> io::Result<Self> {
        let socket = SockRef::from(&tcp);
        let _ = socket.set_tcp_nodelay(true);
        carry_by(&socket, UNSENT_LEN);
        tls.set_buffer_limit(None);
        let mut this = Self { tcp, tls, decoder: Decoder::default() };
        this.decoder.push(early);
        this.take_plain()?;
        Ok(this)
    }

    /// Reads what is there, once, and gives it to the decoder.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Came>> {
        SCRATCH.with_borrow_mut(|scratch| {
            loop {
                ready!(self.tcp.poll_read_ready(context))?;
                let len = match self.tcp.try_read(scratch) {
                    Ok(0) => return Poll::Ready(Ok(Came::End)),
                    Ok(len) => len,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(error) => return Poll::Ready(Err(error)),
                };
                return Poll::Ready(self.open(&scratch[..len]));
            }
        })
    }

    fn open(&mut self, mut sealed: &[u8]) -> io::Result<Came> {
        while !sealed.is_empty() {
            if self.tls.read_tls(&mut sealed)? == 0 {
                return Ok(Came::End);
            }
            let state = self.tls.process_new_packets().map_err(io::Error::other)?;
            self.take_plain()?;
            if state.peer_has_closed() {
                return Ok(Came::End);
            }
        }
        Ok(Came::Bytes)
    }

    /// Moves what TLS opened to the decoder.
    fn take_plain(&mut self) -> io::Result<()> {
        loop {
            match self.tls.reader().read(self.decoder.room()) {
                Ok(0) => return Ok(()),
                Ok(len) => self.decoder.fill(len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Seals bytes; [`Stream::poll_flush`] sends them.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tls.writer().write_all(bytes)
    }

    /// Says that nothing follows.
    pub(super) fn close(&mut self) {
        self.tls.send_close_notify();
    }

    /// Sends what was sealed, until all of it is with the kernel. Returns whether anything was
    /// taken, also when it is not done.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> (bool, Poll<io::Result<()>>) {
        let mut moved = false;
        while self.tls.wants_write() {
            match self.tcp.poll_write_ready(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return (moved, Poll::Ready(Err(error))),
                Poll::Pending => return (moved, Poll::Pending),
            }
            match self.tls.write_tls(&mut Socket(&self.tcp)) {
                Ok(_) => moved = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return (moved, Poll::Ready(Err(error))),
            }
        }
        (moved, Poll::Ready(Ok(())))
    }
}
