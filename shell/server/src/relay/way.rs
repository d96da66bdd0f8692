//! By which socket a connection of QUIC comes, what is counted of it, and who takes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quinn::{Connection, RecvStream, SendStream};

use super::Relay;
use super::ping::PingSocket;
use super::strangers::{Stranger, Strangers};

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

/// A connection by ping on which a node says what it says over HTTPS elsewhere.
pub(crate) struct Pipe {
    pub(crate) proof: Proof,
    pub(crate) sending: SendStream,
    pub(crate) receiving: RecvStream,
    /// Its place among those who have proven nothing by ping.
    pub(crate) stranger: Stranger,
}

/// Who takes such connections.
pub(crate) type Pipes = Arc<dyn Fn(Pipe) + Send + Sync>;

/// Tells the socket of pings that a connection's other end has proved who it is.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    socket: Arc<PingSocket>,
    pub(crate) connection: Connection,
}

impl Proof {
    pub(crate) fn tell(&self) {
        self.socket.prove(self.connection.remote_address());
    }
}

/// By which socket connections come, and what is done with them.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) relay: Arc<Relay>,
    socket: Option<Arc<PingSocket>>,
    pub(super) pipes: Option<Pipes>,
}

impl Way {
    pub(super) const fn new(
        relay: Arc<Relay>,
        socket: Option<Arc<PingSocket>>,
        pipes: Option<Pipes>,
    ) -> Self {
        Self { relay, socket, pipes }
    }

    pub(super) const fn is_by_ping(&self) -> bool {
        self.socket.is_some()
    }

    /// What is counted of it.
    pub(super) fn seen(&self) -> &Seen {
        if self.is_by_ping() { &self.relay.by_ping } else { &self.relay.by_quic }
    }

    /// For connections by ping, what is to be told once a key is proved.
    pub(super) fn proof(&self, connection: &Connection) -> Option<Proof> {
        let socket = self.socket.clone()?;
        Some(Proof { socket, connection: connection.clone() })
    }
}
