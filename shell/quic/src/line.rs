//! A node's end of a connection: the library's state machine on a connected UDP socket.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, RandomConnectionIdGenerator, StreamId,
};
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use wire::relay::{
    BODY_LEN_MAX, DATAGRAM_HEADER_LEN, Decoder, HEADER_LEN, Notice, split_first, whole,
};

use crate::{SEND_LEN, code_of, notice_of, transport};

/// Datagrams that the kernel is given at once.
const SEGMENTS_MAX: usize = 32;
/// Bytes that one read takes: what the kernel joins at most.
const READ_LEN: usize = 64 * 1024;
/// What a frame costs in the library's buffer beside its bytes, rounded up.
const FRAME_COST: usize = 36;
/// Bytes of a frame, at least; a ping and its answer are shorter, and there is one of each.
const FRAME_LEN_MIN: usize = DATAGRAM_HEADER_LEN + 1;
/// The shortest time that is waited for.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// Why a line is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// The relay ended it, and said why if there was a reason.
    Closed(Option<Notice>),
    /// It broke, or what came is none of frames.
    Lost(String),
}

/// What was dropped on a line, beside what its owner counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounters {
    /// Datagrams that are no frame.
    pub malformed: u64,
    /// Frames for which there was no room though there should have been.
    pub refused: u64,
}

/// What the socket did not take yet; it lies in the line's memory.
struct Waiting {
    len: usize,
    segment: Option<usize>,
    ecn: Option<EcnCodepoint>,
}

/// A connection to a relay.
pub struct Line {
    socket: UdpSocket,
    io: UdpSocketState,
    remote: SocketAddr,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    stream: Option<StreamId>,
    end: Option<LineEnd>,
    out: Vec<u8>,
    waiting: Option<Waiting>,
    /// Bytes for the stream that it has no room for.
    pending: Vec<u8>,
    /// Bytes of a frame of the stream that is cut off.
    begun: Vec<u8>,
    counters: LineCounters,
}

impl Line {
    /// Begins a connection by a socket that is connected to the relay; `host` is its name.
    ///
    /// # Errors
    /// The socket is of no use, or `host` is no name.
    pub fn open(socket: UdpSocket, tls: Arc<rustls::ClientConfig>, host: &str) -> io::Result<Self> {
        let remote = socket.peer_addr()?;
        // It lets nothing be fragmented, so that what fits can be found out.
        let io = UdpSocketState::new((&socket).into())?;
        let crypto = QuicClientConfig::try_from(tls).map_err(io::Error::other)?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport());
        let mut own = EndpointConfig::default();
        // The socket is this connection's alone: nothing has to be told apart by a number.
        own.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(0)));
        let mut endpoint = Endpoint::new(Arc::new(own), None, !io.may_fragment(), None);
        let begun = endpoint.connect(Instant::now(), config, remote, host);
        let (handle, connection) = begun.map_err(io::Error::other)?;
        Ok(Self {
            socket,
            io,
            remote,
            endpoint,
            handle,
            connection,
            stream: None,
            end: None,
            out: Vec::new(),
            waiting: None,
            pending: Vec::new(),
            begun: Vec::new(),
            counters: LineCounters::default(),
        })
    }

    /// The handshake is done, and frames may be sent.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.stream.is_some() && self.end.is_none()
    }

    /// Why it is over, once it is.
    #[must_use]
    pub const fn end(&self) -> Option<&LineEnd> {
        self.end.as_ref()
    }

    /// What was dropped here.
    #[must_use]
    pub const fn counters(&self) -> &LineCounters {
        &self.counters
    }

    /// Bytes of the longest frame that travels in a datagram now; it grows while the path is
    /// being asked what fits.
    #[must_use]
    pub fn frame_len_max(&mut self) -> usize {
        self.connection.datagrams().max_size().unwrap_or(0)
    }

    /// Bytes of frames that may be given to [`Line::send`] now.
    #[must_use]
    pub fn room(&mut self) -> usize {
        if !self.is_ready() || !self.pending.is_empty() {
            return 0;
        }
        let space = self.connection.datagrams().send_buffer_space();
        // Less than half is not worth a turn, and the last frame may be longer than was asked for.
        if space < SEND_LEN / 2 {
            return 0;
        }
        let frames = space.saturating_sub(crate::FRAME_LEN_MAX + FRAME_COST);
        frames / (FRAME_LEN_MIN + FRAME_COST) * FRAME_LEN_MIN
    }

    /// Takes whole frames: each leaves in a datagram of its own if it fits, or else on the stream.
    pub fn send(&mut self, frames: Vec<u8>) {
        let frames = Bytes::from(frames);
        let frame_len_max = self.frame_len_max();
        let mut rest = &frames[..];
        while let Some((frame, behind)) = split_first(rest) {
            rest = behind;
            if frame.len() > frame_len_max {
                self.pending.extend_from_slice(frame);
                continue;
            }
            let sent = self.connection.datagrams().send(frames.slice_ref(frame), false);
            self.counters.refused += u64::from(sent.is_err());
        }
    }

    /// Sends a datagram as it is, be it a frame or not; for tests of the other end.
    pub fn send_raw(&mut self, datagram: &[u8]) {
        let sent = self.connection.datagrams().send(Bytes::copy_from_slice(datagram), false);
        self.counters.refused += u64::from(sent.is_err());
    }

    /// Takes frames that must arrive: they leave on the stream.
    pub fn say(&mut self, frames: &[u8]) {
        self.pending.extend_from_slice(frames);
    }

    /// Sends what waits, as far as connection and socket take it. Returns whether the socket is
    /// full.
    pub fn flush(&mut self, now: Instant) -> bool {
        self.write_pending();
        loop {
            if let Some(waiting) = &self.waiting {
                let transmit = Transmit {
                    destination: self.remote,
                    ecn: waiting.ecn,
                    contents: &self.out[..waiting.len],
                    segment_size: waiting.segment,
                    src_ip: None,
                };
                match self.io.try_send((&self.socket).into(), &transmit) {
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
            let segments = self.io.max_gso_segments().min(SEGMENTS_MAX);
            let next = self.connection.poll_transmit(now, segments, &mut self.out);
            self.waiting = next.map(|next| Waiting {
                len: next.size,
                segment: next.segment_size,
                ecn: next.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
            });
            self.settle();
            if self.waiting.is_none() {
                return false;
            }
        }
    }

    /// Reads once from the socket: whether something came, and more may.
    pub fn read(&mut self, scratch: &mut [u8], now: Instant) -> bool {
        let mut metas = [RecvMeta::default()];
        let mut buffers = [IoSliceMut::new(scratch)];
        let got = self.io.recv((&self.socket).into(), &mut buffers, &mut metas);
        match got {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.lose(&error);
                return false;
            }
            Err(_) => return false,
        }
        let [meta] = metas;
        let mut data = BytesMut::from(&scratch[..meta.len.min(scratch.len())]);
        while !data.is_empty() {
            let one = data.split_to(meta.stride.clamp(1, data.len()));
            let ecn = meta.ecn.and_then(|ecn| quinn_proto::EcnCodepoint::from_bits(ecn as u8));
            let mut answer = Vec::new();
            let event = self.endpoint.handle(now, self.remote, None, ecn, one, &mut answer);
            // An answer of the endpoint's own would be to what belongs to no connection.
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.connection.handle_event(event);
            }
        }
        self.settle();
        true
    }

    /// Grows whenever something authentic came, be it no frame of ours.
    #[must_use]
    pub fn heard(&self) -> u64 {
        let came = self.connection.stats().frame_rx;
        came.acks + came.crypto + came.datagram + came.ping + came.stream
    }

    /// When [`Line::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
            self.settle();
        }
    }

    /// Moves whole frames that came to the end of `out`, until it has `len` bytes or more. Returns
    /// whether more may wait.
    pub fn poll_into(&mut self, out: &mut Decoder, len: usize) -> bool {
        self.read_stream(out, len);
        while out.len() < len {
            let Some(datagram) = self.connection.datagrams().recv() else { return false };
            if whole(&datagram).is_some() {
                out.push(&datagram);
            } else {
                self.counters.malformed += 1;
            }
        }
        true
    }

    /// Sends, and waits until something came or is due, but not beyond `until`; for whoever may
    /// block.
    ///
    /// # Errors
    /// If the line is over.
    pub fn wait(&mut self, until: Instant) -> io::Result<()> {
        let now = Instant::now();
        self.handle_timeout(now);
        self.flush(now);
        let next = self.poll_timeout().map_or(until, |at| at.min(until));
        let pause = next.saturating_duration_since(now).max(WAIT_MIN);
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(Some(pause))?;
        let mut scratch = vec![0; READ_LEN];
        let came = self.read(&mut scratch, now);
        self.socket.set_nonblocking(true)?;
        let now = Instant::now();
        if came {
            while self.read(&mut scratch, now) {}
        }
        self.handle_timeout(now);
        self.flush(now);
        self.end().map_or(Ok(()), |end| Err(io::Error::other(end.to_string())))
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

    fn write_pending(&mut self) {
        let Some(stream) = self.stream.filter(|_| !self.pending.is_empty()) else { return };
        match self.connection.send_stream(stream).write(&self.pending) {
            Ok(len) => drop(self.pending.drain(..len)),
            Err(quinn_proto::WriteError::Blocked) => {}
            Err(why) => self.lose(&why),
        }
    }

    fn read_stream(&mut self, out: &mut Decoder, len: usize) {
        let Some(stream) = self.stream else { return };
        let mut receiving = self.connection.recv_stream(stream);
        let Ok(mut chunks) = receiving.read(true) else { return };
        let mut failed = None;
        while self.begun.len() < len && failed.is_none() {
            match chunks.next(len) {
                Ok(Some(chunk)) => self.begun.extend_from_slice(&chunk.bytes),
                Ok(None) => failed = Some("the relay ended the stream".to_owned()),
                Err(quinn_proto::ReadError::Blocked) => break,
                Err(why) => failed = Some(why.to_string()),
            }
        }
        // What it wants sent is sent by the next flush.
        let _ = chunks.finalize();
        let mut taken = 0;
        while let Some((frame, _)) = split_first(&self.begun[taken..]) {
            if whole(frame).is_none() {
                failed = Some("what came on the stream is no frame".to_owned());
                break;
            }
            out.push(frame);
            taken += frame.len();
        }
        self.begun.drain(..taken);
        if self.begun.len() > HEADER_LEN + BODY_LEN_MAX {
            failed = Some("a frame is longer than 64 KiB".to_owned());
        }
        if let Some(why) = failed {
            self.lose(&why);
        }
    }

    fn lose(&mut self, why: &dyn fmt::Display) {
        self.end.get_or_insert_with(|| LineEnd::Lost(why.to_string()));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.connection.is_closed() {
            let now = Instant::now();
            self.connection.close(now, code_of(None), Bytes::new());
            self.flush(now);
        }
    }
}

impl AsRawFd for Line {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Line({:?}, {:?})", self.socket, self.end)
    }
}

impl fmt::Display for LineEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(Some(notice)) => write!(f, "the relay ended it: {notice:?}"),
            Self::Closed(None) => f.write_str("the relay ended it"),
            Self::Lost(why) => f.write_str(why),
        }
    }
}

#[cfg(test)]
mod tests;
