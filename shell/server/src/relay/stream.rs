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
use wire::websocket::{Head, Kind, Reader, Side};

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
    /// What reads the node's frames of WebSocket, if it asked for that.
    websocket: Option<Box<Reader>>,
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
    pub(super) fn new(
        tcp: TcpStream,
        mut tls: ServerConnection,
        early: &[u8],
        is_websocket: bool,
    ) -> io::Result<Self> {
        let socket = SockRef::from(&tcp);
        let _ = socket.set_tcp_nodelay(true);
        carry_by(&socket, UNSENT_LEN);
        tls.set_buffer_limit(None);
        let websocket = is_websocket.then(|| Box::new(Reader::new(Side::Client)));
        let mut this = Self { tcp, tls, decoder: Decoder::default(), websocket };
        let mut early = early.to_vec();
        let len = payload(&mut this.websocket, &mut early)?;
        this.decoder.push(&early[..len]);
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
            let is_closed = self.websocket.as_ref().is_some_and(|reader| reader.is_closed());
            if is_closed || state.peer_has_closed() {
                return Ok(Came::End);
            }
        }
        Ok(Came::Bytes)
    }

    /// Moves what TLS opened to the decoder, and answers what WebSocket asks.
    fn take_plain(&mut self) -> io::Result<()> {
        loop {
            let room = self.decoder.room();
            match self.tls.reader().read(room) {
                Ok(0) => break,
                Ok(len) => {
                    let len = payload(&mut self.websocket, &mut room[..len])?;
                    self.decoder.fill(len);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        // While something waits for the socket no answer is added, so that who asks and does not
        // read holds no memory (threat RL-18).
        if self.tls.wants_write() {
            return Ok(());
        }
        if let Some(body) = self.websocket.as_mut().and_then(|reader| reader.poll_pong()) {
            let head = Head::new(Kind::Pong, body.len(), None);
            self.tls.writer().write_all(&[head.bytes(), body].concat())?;
        }
        Ok(())
    }

    /// Seals bytes; [`Stream::poll_flush`] sends them.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.websocket.is_none() {
            return self.tls.writer().write_all(bytes);
        }
        // TLS holds as much as it is given, so one call takes both, into as few records as it can.
        let head = Head::new(Kind::Binary, bytes.len(), None);
        let parts = [io::IoSlice::new(head.bytes()), io::IoSlice::new(bytes)];
        let len = self.tls.writer().write_vectored(&parts)?;
        if len == head.bytes().len() + bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Says that nothing follows.
    pub(super) fn close(&mut self) {
        if self.websocket.is_some() {
            let head = Head::new(Kind::Close, 0, None);
            // What no longer takes it is closed without it.
            let _ = self.tls.writer().write_all(head.bytes());
        }
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

/// Bytes of what was read that are a relay's frames, which stand in front then.
fn payload(websocket: &mut Option<Box<Reader>>, bytes: &mut [u8]) -> io::Result<usize> {
    match websocket {
        None => Ok(bytes.len()),
        Some(reader) => {
            reader.open(bytes).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
        }
    }
}
