//! A connection of QUIC as a state machine of the library's, on whichever socket it has.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, RandomConnectionIdGenerator, StreamId, TransportConfig,
};

use crate::end::LineEnd;
use crate::net::{Net, Waiting};
use crate::{code_of, notice_of};

/// Datagrams that the kernel is given at once.
const SEGMENTS_MAX: usize = 32;
/// Bytes that one read takes: what the kernel joins at most.
const READ_LEN: usize = 64 * 1024;
/// The shortest time that is waited for.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// A connection, with the one stream that the node opens on it.
pub(crate) struct Conn {
    net: Net,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    pub(crate) connection: Connection,
    pub(crate) stream: Option<StreamId>,
    end: Option<LineEnd>,
    out: Vec<u8>,
    waiting: Option<Waiting>,
}

impl Conn {
    /// Begins one; `host` is the name of the other end.
    pub(crate) fn open(
        net: Net,
        tls: Arc<rustls::ClientConfig>,
        transport: Arc<TransportConfig>,
        host: &str,
    ) -> io::Result<Self> {
        let crypto = QuicClientConfig::try_from(tls).map_err(io::Error::other)?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport);
        let mut own = EndpointConfig::default();
        // The socket is this connection's alone: nothing has to be told apart by a number.
        own.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(0)));
        let mut endpoint = Endpoint::new(Arc::new(own), None, !net.may_fragment(), None);
        let begun = endpoint.connect(Instant::now(), config, net.remote(), host);
        let (handle, connection) = begun.map_err(io::Error::other)?;
        Ok(Self {
            net,
            endpoint,
            handle,
            connection,
            stream: None,
            end: None,
            out: Vec::new(),
            waiting: None,
        })
    }

    pub(crate) const fn net(&self) -> &Net {
        &self.net
    }

    pub(crate) const fn is_ready(&self) -> bool {
        self.stream.is_some() && self.end.is_none()
    }

    pub(crate) const fn end(&self) -> Option<&LineEnd> {
        self.end.as_ref()
    }

    /// Sends what waits, as far as connection and socket take it. Returns whether the socket is
    /// full.
    pub(crate) fn flush(&mut self, now: Instant) -> bool {
        loop {
            if let Some(waiting) = &self.waiting {
                match self.net.send(&self.out[..waiting.len], waiting, now) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        self.lose(&error);
                    }
                    // A probe of the size, or a network that is away for a moment: what was lost
                    // is found out as any loss is.
                    Ok(()) | Err(_) => {}
                }
            }
            self.out.clear();
            let segments = self.net.segments_max().min(SEGMENTS_MAX);
            let next = self.connection.poll_transmit(now, segments, &mut self.out);
            self.waiting = next.map(|next| Waiting::new(&next));
            self.settle();
            if self.waiting.is_none() {
                return false;
            }
        }
    }

    /// Reads once from the socket: whether something came, and more may.
    pub(crate) fn read(&mut self, scratch: &mut [u8], now: Instant) -> bool {
        let Self { net, endpoint, connection, .. } = self;
        let remote = net.remote();
        let read = net.read(scratch, now, |one, ecn| {
            let mut answer = Vec::new();
            let event = endpoint.handle(now, remote, None, ecn, one, &mut answer);
            // An answer of the endpoint's own would be to what belongs to no connection.
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                connection.handle_event(event);
            }
        });
        match read {
            Ok(came) => {
                self.settle();
                came
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.lose(&error);
                false
            }
            Err(_) => false,
        }
    }

    pub(crate) fn poll_timeout(&mut self) -> Option<Instant> {
        let own = self.connection.poll_timeout();
        own.into_iter().chain(self.net.poll_timeout()).min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.net.handle_timeout(now);
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
            self.settle();
        }
    }

    /// Sends, and waits until something came or is due, but not beyond `until`.
    pub(crate) fn wait(&mut self, until: Instant) -> io::Result<()> {
        let now = Instant::now();
        self.handle_timeout(now);
        self.flush(now);
        let next = self.poll_timeout().map_or(until, |at| at.min(until));
        let pause = next.saturating_duration_since(now).max(WAIT_MIN);
        self.net.block(Some(pause))?;
        let mut scratch = vec![0; READ_LEN];
        let came = self.read(&mut scratch, now);
        self.net.block(None)?;
        let now = Instant::now();
        if came {
            while self.read(&mut scratch, now) {}
        }
        self.handle_timeout(now);
        Ok(())
    }

    /// Takes what the state machine has to say.
    fn settle(&mut self) {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.stream = self.connection.streams().open(Dir::Bi),
                Event::ConnectionLost { reason } => {
                    let end = match reason {
                        ConnectionError::ApplicationClosed(close) => {
                            LineEnd::Closed(notice_of(close.error_code))
                        }
                        reason => LineEnd::Lost(reason.to_string()),
                    };
                    self.end.get_or_insert(end);
                }
                _ => {}
            }
        }
    }

    pub(crate) fn lose(&mut self, why: &dyn fmt::Display) {
        self.end.get_or_insert_with(|| LineEnd::Lost(why.to_string()));
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        if !self.connection.is_closed() {
            let now = Instant::now();
            self.connection.close(now, code_of(None), Bytes::new());
            self.flush(now);
        }
    }
}

impl AsRawFd for Conn {
    fn as_raw_fd(&self) -> RawFd {
        self.net.as_raw_fd()
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}", self.net, self.end)
    }
}
