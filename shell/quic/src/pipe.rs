//! A stream of bytes to a server on a connection of its own, for who may block: what a TCP
//! connection is elsewhere.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ping::Asker;

use crate::conn::Conn;
use crate::net::Net;
use crate::pipe_transport;

/// How soon it is noticed that a wait was cut.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Ends the waits of a pipe, from another thread.
#[derive(Clone, Debug, Default)]
pub struct Cut(Arc<AtomicBool>);

impl Cut {
    /// From now on every wait fails.
    pub fn cut(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A stream of bytes.
#[derive(Debug)]
pub struct Pipe {
    conn: Conn,
    deadline: Instant,
    cut: Cut,
}

impl Pipe {
    /// Begins one by ping, and waits until `deadline` at most for the other end.
    ///
    /// # Errors
    /// The connection's.
    pub fn open(
        asker: Asker,
        tls: Arc<rustls::ClientConfig>,
        host: &str,
        deadline: Instant,
        is_over: impl Fn() -> bool,
    ) -> io::Result<Self> {
        let conn = Conn::open(Net::Ping(Box::new(asker)), tls, pipe_transport(), host)?;
        let mut this = Self { conn, deadline, cut: Cut::default() };
        while !this.conn.is_ready() {
            this.wait()?;
            if is_over() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(this)
    }

    /// What ends its waits.
    #[must_use]
    pub fn cutter(&self) -> Cut {
        self.cut.clone()
    }

    /// Reads and writes fail after this.
    pub fn limit(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    fn wait(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if self.cut.0.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if now >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.conn.wait(self.deadline.min(now + LOOK_EVERY))?;
        self.conn.flush(Instant::now());
        match self.conn.end() {
            Some(end) => Err(io::Error::new(io::ErrorKind::ConnectionReset, end.to_string())),
            None => Ok(()),
        }
    }

    /// What came, at most `len` bytes; `None` if nothing did yet.
    fn take(&mut self, len: usize) -> io::Result<Option<bytes::Bytes>> {
        let Some(stream) = self.conn.stream else { return Ok(None) };
        let mut receiving = self.conn.connection.recv_stream(stream);
        let Ok(mut chunks) = receiving.read(true) else { return Ok(Some(bytes::Bytes::new())) };
        let next = chunks.next(len);
        // What it wants sent is sent by the next wait.
        let _ = chunks.finalize();
        match next {
            Ok(Some(chunk)) => Ok(Some(chunk.bytes)),
            Ok(None) => Ok(Some(bytes::Bytes::new())),
            Err(quinn_proto::ReadError::Blocked) => Ok(None),
            Err(why) => Err(io::Error::new(io::ErrorKind::ConnectionReset, why.to_string())),
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(came) = self.take(buffer.len())? {
                buffer[..came.len()].copy_from_slice(&came);
                return Ok(came.len());
            }
            self.wait()?;
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            if let Some(stream) = self.conn.stream {
                match self.conn.connection.send_stream(stream).write(bytes) {
                    Ok(len) => return Ok(len),
                    Err(quinn_proto::WriteError::Blocked) => {}
                    Err(why) => {
                        return Err(io::Error::new(
                            io::ErrorKind::ConnectionReset,
                            why.to_string(),
                        ));
                    }
                }
            }
            self.wait()?;
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.conn.flush(Instant::now());
        Ok(())
    }
}
