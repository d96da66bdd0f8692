//! QUIC between a node and a relay, where UDP or ping passes: datagrams that are not sent again and
//! hold up nothing behind them (RFC 9000, RFC 9221).
//!
//! What is here is what both ends have to agree on, and a node's end of a connection. The relay's
//! end is tasks around the same library (`server::relay::quic`).
//!
//! # What is on the wire
//!
//! TLS 1.3 with the protocol name [`ALPN`]; the certificate is looked at by nobody, as over HTTPS,
//! since the relay proves the key that the map names. The node opens one bidirectional stream, on
//! which both say what they say on a stream of HTTPS: the first messages of the Noise handshake,
//! and then frames of [`wire::relay`]. From then on each frame that fits travels in a datagram of
//! its own, and one that does not on the stream. A datagram is one whole frame; anything else is
//! dropped and counted. Who ends the connection says why in its code ([`code_of`]).
//!
//! # The life of a line
//!
//! 1. [`Line::open`] takes a connected UDP socket and begins the handshake; [`Line::wait`] blocks
//!    until something came, for whoever connects on a thread of its own.
//! 2. When [`Line::is_ready`], frames go in by [`Line::send`] and come out by [`Line::poll_into`].
//! 3. A loop takes it over: [`Line::read`] when the socket is readable, [`Line::handle_timeout`]
//!    when [`Line::poll_timeout`] is due, [`Line::flush`] at the end of a turn.
//! 4. [`Line::end`] says that it is over, and why. One that is dropped says so to the relay.
//!
//! # By ping
//!
//! Where neither UDP nor TCP passes the same connection rides in echoes of ICMP
//! ([`Line::open_by_ping`], the crate `ping`). What a node says to its server then goes by a
//! [`Pipe`]: a connection with the protocol name [`PIPE_ALPN`], whose one stream is what a TCP
//! connection is elsewhere.
//!
//! # Bounds
//!
//! A line takes frames only while [`Line::room`] says so, so that what waits, waits in the queue of
//! its owner, which drops what is too old: [`SEND_LEN`] bytes of datagrams wait here, and of the
//! stream one batch. What came and was not looked at is [`RECEIVE_LEN`] at most.
//!
//! # What it does not do
//!
//! Nothing of 0-RTT: a recorded first flight proves nothing. No migration by the node: a line whose
//! network is gone ends, and the next one is made from the new address. It decides nothing about
//! when to connect (`dial`) or what waits for how long (`carrier`).

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::congestion::BbrConfig;
use quinn_proto::{IdleTimeout, TransportConfig, VarInt};
use wire::relay::Notice;

mod conn;
mod end;
mod line;
mod net;
mod pipe;

pub use end::LineEnd;
pub use line::{Line, LineCounters};
pub use pipe::{Cut, Pipe};

/// The protocol that is spoken.
pub const ALPN: &[u8] = b"warren-relay/1";
/// The protocol of a connection that is a stream of bytes to a server, where no TCP passes.
pub const PIPE_ALPN: &[u8] = b"warren-pipe/1";
/// Bytes of datagrams that wait for the congestion window, at most, as much as the kernel may hold
/// unsent of a stream: 50 ms at 10 Mbit/s. What is in it can no longer be dropped.
pub const SEND_LEN: usize = 64 * 1024;
/// Bytes of datagrams that came and were not looked at, at most; the oldest goes first.
pub const RECEIVE_LEN: usize = 256 * 1024;
/// Bytes on the stream that the other end may send ahead: some of the longest frames.
const STREAM_LEN: u32 = 256 * 1024;
/// A connection on which nothing comes for so long is over.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Bytes of a UDP payload at most: what a path of 1500 takes with IPv6. Larger ones are not tried.
const PAYLOAD_LEN_MAX: usize = 1452;
/// Bytes around a frame in a payload, at most: flags, connection number, packet number, tag, and
/// the head of a datagram.
const AROUND_LEN: usize = 1 + 8 + 4 + 16 + 9;
/// Bytes of the longest frame that may travel in a datagram, on a path that takes all sizes.
pub const FRAME_LEN_MAX: usize = PAYLOAD_LEN_MAX - AROUND_LEN;

/// How both ends send: BBR, since a loss on this path is no sign of a queue (the same is asked of
/// the kernel for streams), and small buffers.
#[must_use]
pub fn transport() -> Arc<TransportConfig> {
    Arc::new(settings())
}

/// The same for a node's pipe, whose server may be silent for long.
fn pipe_transport() -> Arc<TransportConfig> {
    let mut transport = settings();
    transport.keep_alive_interval(Some(SILENCE_MAX / 4));
    Arc::new(transport)
}

fn settings() -> TransportConfig {
    let mut transport = TransportConfig::default();
    let idle = IdleTimeout::try_from(SILENCE_MAX).expect("a minute is a time of QUIC");
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .max_idle_timeout(Some(idle))
        .stream_receive_window(VarInt::from_u32(STREAM_LEN))
        .receive_window(VarInt::from_u32(STREAM_LEN))
        .send_window(u64::from(STREAM_LEN))
        .datagram_receive_buffer_size(Some(RECEIVE_LEN))
        .datagram_send_buffer_size(SEND_LEN)
        .allow_spin(false)
        .congestion_controller_factory(Arc::new(BbrConfig::default()));
    transport
}

/// The code with which a connection ends: a notice's number, 0 if there is nothing to say.
#[must_use]
pub fn code_of(notice: Option<Notice>) -> VarInt {
    VarInt::from_u32(notice.map_or(0, |notice| u32::from(notice.to_number())))
}

/// What a code says; `None` if it is nothing that is known.
#[must_use]
pub fn notice_of(code: VarInt) -> Option<Notice> {
    Notice::from_number(u8::try_from(code.into_inner()).ok()?)
}
