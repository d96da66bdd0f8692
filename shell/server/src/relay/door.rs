//! Where connections of QUIC are taken: one UDP socket for all of them, at the port that HTTPS has.
//!
//! Whoever comes has a place among strangers until its key is proven (threat RL-05), and while many
//! are there, an address has to show first that it receives what is sent to it (RFC 9000, section
//! 8.1.2). What is said before that costs nothing but the answer, which is no longer than the
//! question (threat RL-15).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime};
use socket2::SockRef;
use wire::relay::Notice;

use super::strangers::Strangers;
use super::{Relay, quic as connection};
use crate::tls::Outer;

/// So many strangers may come without showing that their address is theirs.
const UNSHOWN_MAX: usize = 64;
/// Bytes of what comes ahead of the first answer, for one connection and for all.
const EARLY_LEN: u64 = 16 * 1024;
const EARLY_ALL_LEN: u64 = 1024 * 1024;
/// Connections whose first datagram waits to be looked at.
const WAITING_MAX: usize = 256;
/// What the kernel holds for the one socket, in each direction, in bytes: 60 ms at 1 Gbit/s.
const KERNEL_LEN: usize = 8 * 1024 * 1024;
/// Goodbyes may take so long.
const CLOSE_WITHIN: Duration = Duration::from_millis(300);

/// What came by QUIC, and what was dropped or turned away, since the start.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Connections that have proven nothing yet.
    pub(super) strangers: Arc<Strangers>,
    /// Connections of members, and those of them that are over.
    pub(super) entered: AtomicU64,
    pub(super) left: AtomicU64,
    /// Addresses that were asked to show that they receive.
    pub(super) asked: AtomicU64,
    /// Datagrams of connections that had proven nothing.
    pub(super) early: AtomicU64,
    /// Datagrams that are no frame.
    pub(super) malformed: AtomicU64,
    /// Datagrams that came faster than they were taken.
    pub(super) overrun: AtomicU64,
}

/// What a monitor is told of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuicCounts {
    pub(crate) connections: u64,
    pub(crate) entered: u64,
    pub(crate) strangers: usize,
    pub(crate) asked: u64,
    pub(crate) full: u64,
    /// Datagrams that were dropped, by reason.
    pub(crate) dropped: [(&'static str, u64); 3],
}

impl Seen {
    pub(super) fn counts(&self) -> QuicCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // First who left, so that nobody leaves who never came.
        let left = read(&self.left);
        let entered = read(&self.entered);
        QuicCounts {
            connections: entered.saturating_sub(left),
            entered,
            strangers: self.strangers.len(),
            asked: read(&self.asked),
            full: self.strangers.displaced(),
            dropped: [
                ("early", read(&self.early)),
                ("malformed", read(&self.malformed)),
                ("overrun", read(&self.overrun)),
            ],
        }
    }
}

/// The socket.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    endpoint: Endpoint,
}

impl Door {
    /// Opens it, inside a runtime.
    ///
    /// # Errors
    /// The port is taken, or TLS cannot be had.
    pub(crate) fn open(at: SocketAddr, outer: &Arc<Outer>) -> io::Result<Self> {
        let crypto = QuicServerConfig::try_from(outer.quic()?).map_err(io::Error::other)?;
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config
            .transport_config(quic::transport())
            .max_incoming(WAITING_MAX)
            .incoming_buffer_size(EARLY_LEN)
            .incoming_buffer_size_total(EARLY_ALL_LEN);
        let socket = UdpSocket::bind(at)?;
        // The kernel gives what it may.
        let sizes = SockRef::from(&socket);
        let _ = sizes.set_recv_buffer_size(KERNEL_LEN);
        let _ = sizes.set_send_buffer_size(KERNEL_LEN);
        let runtime = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime)?;
        Ok(Self { endpoint })
    }

    /// The same where it can be done without: the reason is logged, once.
    pub(crate) fn try_open(at: SocketAddr, outer: &Arc<Outer>) -> Option<Self> {
        let opened = Self::open(at, outer);
        let told = |error: &io::Error| {
            tracing::error!(
                "no QUIC at UDP {at}: {error}; relays go on over HTTPS alone. Free the port (a \
                 --stun there takes it, too), or say --no-quic"
            );
        };
        opened.inspect_err(told).ok()
    }

    /// Takes connections until the task is dropped.
    pub(crate) async fn serve(self, relay: Arc<Relay>) {
        while let Some(incoming) = self.endpoint.accept().await {
            take(incoming, &relay);
        }
    }

    /// Tells all that this relay ends.
    pub(crate) async fn close(&self) {
        self.endpoint.close(quic::code_of(Some(Notice::Leaving)), b"");
        let _ = tokio::time::timeout(CLOSE_WITHIN, self.endpoint.wait_idle()).await;
    }
}

fn take(incoming: Incoming, relay: &Arc<Relay>) {
    let seen = &relay.by_quic;
    let is_shown = incoming.remote_address_validated();
    if !is_shown && seen.strangers.len() >= UNSHOWN_MAX {
        seen.asked.fetch_add(1, Ordering::Relaxed);
        // It can be asked once; whoever comes back without the answer is nobody.
        let _ = incoming.retry();
        return;
    }
    let (place, cut) = seen.strangers.enter(incoming.remote_address().ip());
    tokio::spawn(connection::serve(Arc::clone(relay), incoming, place, cut));
}
