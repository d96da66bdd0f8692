//! A node's end of a connection: the library's state machine on a connected UDP socket.

use std::fmt;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use ping::Asker;
use wire::relay::{BODY_LEN_MAX, DATAGRAM_HEADER_LEN, Decoder, HEADER_LEN, split_first, whole};

use crate::conn::Conn;
use crate::end::LineEnd;
use crate::net::Net;
use crate::{SEND_LEN, transport};

/// What a frame costs in the library's buffer beside its bytes, rounded up.
const FRAME_COST: usize = 36;
/// Bytes of a frame, at least; a ping and its answer are shorter, and there is one of each.
const FRAME_LEN_MIN: usize = DATAGRAM_HEADER_LEN + 1;

/// What was dropped on a line, beside what its owner counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounters {
    /// Datagrams that are no frame.
    pub malformed: u64,
    /// Frames for which there was no room though there should have been.
    pub refused: u64,
}

/// A connection to a relay.
pub struct Line {
    conn: Conn,
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
        Self::begin(Net::udp(socket)?, tls, host)
    }

    /// The same by ping, to a responder that has given a place.
    ///
    /// # Errors
    /// `host` is no name.
    pub fn open_by_ping(
        asker: Asker,
        tls: Arc<rustls::ClientConfig>,
        host: &str,
    ) -> io::Result<Self> {
        Self::begin(Net::Ping(Box::new(asker)), tls, host)
    }

    fn begin(net: Net, tls: Arc<rustls::ClientConfig>, host: &str) -> io::Result<Self> {
        let conn = Conn::open(net, tls, transport(), host)?;
        let pending = Vec::new();
        let begun = Vec::new();
        Ok(Self { conn, pending, begun, counters: LineCounters::default() })
    }

    /// Whether it rides in pings.
    #[must_use]
    pub const fn is_by_ping(&self) -> bool {
        matches!(self.conn.net(), Net::Ping(_))
    }

    /// The handshake is done, and frames may be sent.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.conn.is_ready()
    }

    /// Why it is over, once it is.
    #[must_use]
    pub const fn end(&self) -> Option<&LineEnd> {
        self.conn.end()
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
        self.conn.connection.datagrams().max_size().unwrap_or(0)
    }

    /// Bytes of frames that may be given to [`Line::send`] now.
    #[must_use]
    pub fn room(&mut self) -> usize {
        if !self.is_ready() || !self.pending.is_empty() {
            return 0;
        }
        let space = self.conn.connection.datagrams().send_buffer_space();
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
            let sent = self.conn.connection.datagrams().send(frames.slice_ref(frame), false);
            self.counters.refused += u64::from(sent.is_err());
        }
    }

    /// Sends a datagram as it is, be it a frame or not; for tests of the other end.
    pub fn send_raw(&mut self, datagram: &[u8]) {
        let sent = self.conn.connection.datagrams().send(Bytes::copy_from_slice(datagram), false);
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
        self.conn.flush(now)
    }

    /// Reads once from the socket: whether something came, and more may.
    pub fn read(&mut self, scratch: &mut [u8], now: Instant) -> bool {
        self.conn.read(scratch, now)
    }

    /// Grows whenever something authentic came, be it no frame of ours.
    #[must_use]
    pub fn heard(&self) -> u64 {
        let came = self.conn.connection.stats().frame_rx;
        came.acks + came.crypto + came.datagram + came.ping + came.stream
    }

    /// When [`Line::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        self.conn.poll_timeout()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.conn.handle_timeout(now);
    }

    /// Moves whole frames that came to the end of `out`, until it has `len` bytes or more. Returns
    /// whether more may wait.
    pub fn poll_into(&mut self, out: &mut Decoder, len: usize) -> bool {
        self.read_stream(out, len);
        while out.len() < len {
            let Some(datagram) = self.conn.connection.datagrams().recv() else { return false };
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
        self.write_pending();
        self.conn.wait(until)?;
        self.flush(Instant::now());
        self.end().map_or(Ok(()), |end| Err(io::Error::other(end.to_string())))
    }

    fn write_pending(&mut self) {
        let Some(stream) = self.conn.stream.filter(|_| !self.pending.is_empty()) else { return };
        match self.conn.connection.send_stream(stream).write(&self.pending) {
            Ok(len) => drop(self.pending.drain(..len)),
            Err(quinn_proto::WriteError::Blocked) => {}
            Err(why) => self.lose(&why),
        }
    }

    fn read_stream(&mut self, out: &mut Decoder, len: usize) {
        let Some(stream) = self.conn.stream else { return };
        let mut receiving = self.conn.connection.recv_stream(stream);
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
        self.conn.lose(why);
    }
}

impl AsRawFd for Line {
    fn as_raw_fd(&self) -> RawFd {
        self.conn.as_raw_fd()
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Line({:?})", self.conn)
    }
}

#[cfg(test)]
mod tests;
