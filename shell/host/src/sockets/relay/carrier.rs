//! A stream to a relay: TLS on a TCP socket, with WebSocket in it where a proxy passes no more, or
//! QUIC on a UDP socket. All take frames from the queue as far as there is room, and leave what
//! came in the stream's decoder.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant as SystemInstant};

use carrier::StreamQueue;
use noise::Instant;
use quic::{Line, LineCounters, LineEnd};
use rustls::ClientConnection;
use wire::relay::{DATAGRAM_HEADER_LEN, Decoder};
use wire::websocket::{Head, Kind, MASK_LEN, Reader, mask};

use super::StreamEnd;
use crate::linux::sys;

/// Bytes of frames that are sealed at once: four records of TLS.
const WRITE_LEN: usize = 64 * 1024;
/// Bytes of frames that one turn takes from a connection of QUIC.
const FRAMES_LEN: usize = 64 * 1024;
/// Messages that one turn reads from a UDP socket, of 64 KiB at most each.
const READS_MAX: usize = 4;
/// Bytes of WireGuard's around an inner packet.
const SEALED_LEN: usize = 32;
/// No path of QUIC is said to take less than what IPv6 asks for: what is longer than a datagram
/// goes on the connection's stream.
const INNER_LEN_MIN: usize = 1280;

/// By what a relay is reached, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierKind {
    /// TLS over TCP.
    Https,
    /// WebSocket in TLS over TCP.
    WebSocket,
    /// Datagrams of QUIC.
    Quic,
    /// Datagrams of QUIC in pings.
    Icmp,
}

impl CarrierKind {
    /// As status and metrics name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::WebSocket => "websocket",
            Self::Quic => "quic",
            Self::Icmp => "icmp",
        }
    }
}

/// A connection to a relay that took us.
pub enum Carrier {
    /// A socket, TLS on it, and what reads the frames of WebSocket if there are any in it.
    Https(TcpStream, Box<ClientConnection>, Option<Box<Reader>>),
    /// A connection of QUIC with its socket.
    Quic(Box<Line>),
}

/// What a read brought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Came {
    /// Something came, be it no frame.
    pub(super) heard: bool,
    /// More may wait.
    pub(super) more: bool,
    /// It is over.
    pub(super) end: Option<StreamEnd>,
}

impl Came {
    const BROKEN: Self = Self { heard: false, more: false, end: Some(StreamEnd::Broken) };
}

impl Carrier {
    /// Makes it one that never blocks.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        match self {
            Self::Https(socket, tls, _) => {
                tls.set_buffer_limit(None);
                socket.set_nonblocking(true)
            }
            Self::Quic(_) => Ok(()),
        }
    }

    pub(super) fn kind(&self) -> CarrierKind {
        match self {
            Self::Https(_, _, None) => CarrierKind::Https,
            Self::Https(_, _, Some(_)) => CarrierKind::WebSocket,
            Self::Quic(line) if line.is_by_ping() => CarrierKind::Icmp,
            Self::Quic(_) => CarrierKind::Quic,
        }
    }

    /// Sends what waits, as far as there is room. Returns whether the socket is full.
    pub(super) fn flush(
        &mut self,
        queue: &mut StreamQueue,
        plain: &mut Vec<u8>,
        now: Instant,
    ) -> io::Result<bool> {
        match self {
            Self::Https(socket, tls, websocket) => {
                let mut line = TlsLine { socket, tls, websocket: websocket.as_deref_mut() };
                line.flush(queue, plain, now)
            }
            Self::Quic(line) => Ok(flush_line(line, queue, plain, now)),
        }
    }

    /// Reads what is there into `decoder`; `scratch` is memory for that.
    pub(super) fn read(&mut self, scratch: &mut [u8], decoder: &mut Decoder) -> Came {
        match self {
            Self::Https(socket, tls, websocket) => {
                let mut line = TlsLine { socket, tls, websocket: websocket.as_deref_mut() };
                line.read(scratch, decoder)
            }
            Self::Quic(line) => read_line(line, scratch, decoder),
        }
    }

    /// Does what is due, and says if that ended it.
    pub(super) fn handle_timeout(&mut self) -> Option<StreamEnd> {
        let Self::Quic(line) = self else { return None };
        line.handle_timeout(SystemInstant::now());
        line.end().map(ended)
    }

    /// How long nothing is due.
    pub(super) fn sleep(&mut self) -> Option<Duration> {
        let Self::Quic(line) = self else { return None };
        Some(line.poll_timeout()?.saturating_duration_since(SystemInstant::now()))
    }

    /// Bytes of the longest inner packet that travels well, which is not yet known of one that
    /// `is_new`; `None` for any.
    pub(super) fn inner_len_max(&mut self, is_new: bool) -> Option<usize> {
        let Self::Quic(line) = self else { return None };
        Some(inner_len(if is_new { quic::FRAME_LEN_MAX } else { line.frame_len_max() }))
    }

    /// What was dropped in it.
    pub(super) fn counters(&self) -> LineCounters {
        match self {
            Self::Https(..) => LineCounters::default(),
            Self::Quic(line) => *line.counters(),
        }
    }
}

/// Bytes of the longest inner packet whose frame has `frame_len` bytes.
pub(super) fn inner_len(frame_len: usize) -> usize {
    frame_len.saturating_sub(DATAGRAM_HEADER_LEN + SEALED_LEN).max(INNER_LEN_MIN)
}

impl AsRawFd for Carrier {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Https(socket, ..) => socket.as_raw_fd(),
            Self::Quic(line) => line.as_raw_fd(),
        }
    }
}

/// The parts of a stream over TLS.
struct TlsLine<'a> {
    socket: &'a TcpStream,
    tls: &'a mut ClientConnection,
    websocket: Option<&'a mut Reader>,
}

impl TlsLine<'_> {
    /// Sends what waits, as far as there is room. Returns whether the socket is full.
    fn flush(
        &mut self,
        queue: &mut StreamQueue,
        plain: &mut Vec<u8>,
        now: Instant,
    ) -> io::Result<bool> {
        loop {
            while self.tls.wants_write() {
                match self.tls.write_tls(&mut &*self.socket) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            plain.clear();
            if let Some(body) = self.websocket.as_mut().and_then(|reader| reader.poll_pong()) {
                plain.extend_from_slice(body);
                self.write(Kind::Pong, plain)?;
            } else if queue.is_empty() {
                return Ok(false);
            } else {
                queue.poll_bytes(plain, WRITE_LEN, now);
                self.write(Kind::Binary, plain)?;
            }
        }
    }

    /// Seals frames of the queue, or the body of a pong, in a frame of WebSocket if it is to be.
    fn write(&mut self, kind: Kind, plain: &mut [u8]) -> io::Result<()> {
        if self.websocket.is_none() {
            return self.tls.writer().write_all(plain);
        }
        let mut key = [0; MASK_LEN];
        sys::random(&mut key)?;
        mask(plain, key, 0);
        // TLS holds as much as it is given, so one call takes both, into as few records as it can.
        let head = Head::new(kind, plain.len(), Some(key));
        let parts = [io::IoSlice::new(head.bytes()), io::IoSlice::new(plain)];
        let len = self.tls.writer().write_vectored(&parts)?;
        let is_whole = len == head.bytes().len() + plain.len();
        if is_whole { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Reads once.
    fn read(&mut self, scratch: &mut [u8], decoder: &mut Decoder) -> Came {
        match self.socket.read(scratch) {
            Ok(0) => Came::BROKEN,
            Ok(len) => {
                let end = self.open(&scratch[..len], decoder).err().map(|_| StreamEnd::Broken);
                Came { heard: true, more: len == scratch.len(), end }
            }
            Err(error) if is_temporary(&error) => Came::default(),
            Err(_) => Came::BROKEN,
        }
    }

    fn open(&mut self, mut sealed: &[u8], decoder: &mut Decoder) -> io::Result<()> {
        while !sealed.is_empty() && self.tls.read_tls(&mut sealed)? > 0 {
            self.tls.process_new_packets().map_err(io::Error::other)?;
            loop {
                let room = decoder.room();
                match self.tls.reader().read(room) {
                    Ok(0) => break,
                    Ok(mut len) => {
                        if let Some(reader) = &mut self.websocket {
                            len = reader.open(&mut room[..len]).map_err(io::Error::other)?;
                        }
                        decoder.fill(len);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        if self.websocket.as_ref().is_some_and(|reader| reader.is_closed()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

fn flush_line(line: &mut Line, queue: &mut StreamQueue, plain: &mut Vec<u8>, now: Instant) -> bool {
    let clock = SystemInstant::now();
    loop {
        let room = if queue.is_empty() { 0 } else { line.room() };
        if room == 0 {
            return line.flush(clock);
        }
        plain.clear();
        queue.poll_bytes(plain, room, now);
        line.send(std::mem::take(plain));
        if line.flush(clock) {
            return true;
        }
    }
}

fn read_line(line: &mut Line, scratch: &mut [u8], decoder: &mut Decoder) -> Came {
    let (now, before) = (SystemInstant::now(), line.heard());
    // What did not fit the last time goes first.
    let mut came = Came { more: line.poll_into(decoder, FRAMES_LEN), ..Came::default() };
    for _ in 0..READS_MAX {
        if came.more {
            break;
        }
        if !line.read(scratch, now) {
            return Came { heard: line.heard() != before, more: false, end: line.end().map(ended) };
        }
        came.more = line.poll_into(decoder, FRAMES_LEN);
    }
    // Whoever claims the relay's address proves nothing by that.
    Came { heard: line.heard() != before, more: true, end: line.end().map(ended) }
}

fn ended(end: &LineEnd) -> StreamEnd {
    match end {
        LineEnd::Closed(Some(notice)) => StreamEnd::Notice(*notice),
        LineEnd::Closed(None) | LineEnd::Lost(_) => StreamEnd::Broken,
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nt_08_what_fits_a_datagram_is_told_and_never_less_than_ipv6_needs() {
        assert_eq!(inner_len(quic::FRAME_LEN_MAX), 1_347, "on a path of 1500");
        assert_eq!(inner_len(1_200), INNER_LEN_MIN);
        assert_eq!(inner_len(0), INNER_LEN_MIN);
    }
}
