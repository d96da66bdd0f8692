//! Where connections of QUIC are taken: one UDP socket for all of them, at the port that HTTPS has.
//!
//! A connection has a place among strangers until its key is proven (threat RL-05), and while many
//! are there, an address has to show first that it receives what is sent to it (RFC 9000, section
//! 8.1.2). What is said before that costs nothing but the answer, which is no longer than the
//! question (threat RL-15).
//!
//! By ping the same is said in echoes of ICMP to this machine's address, with places of its own for
//! strangers. There a node may say, too, what it says to the server over HTTPS elsewhere: a
//! connection for that is a [`Pipe`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime};
use socket2::SockRef;
use wire::relay::Notice;

use super::ping::PingSocket;
use super::way::{Pipes, Way};
use super::{Relay, quic as connection};
use crate::held::held;
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
/// What the kernel says where it has no such family.
const AFNOSUPPORT: i32 = 97;
/// Goodbyes may take so long.
const CLOSE_WITHIN: Duration = Duration::from_millis(300);

/// The socket.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    endpoint: Endpoint,
    socket: Option<Arc<PingSocket>>,
}

/// Where pings are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpAt {
    /// At every address of the machine.
    Any,
    /// At one.
    One(IpAddr),
}

impl Door {
    /// Opens one at a UDP port, inside a runtime.
    ///
    /// # Errors
    /// The port is taken, or TLS cannot be had.
    pub(crate) fn open(at: SocketAddr, outer: &Arc<Outer>) -> io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        // The kernel gives what it may.
        let sizes = SockRef::from(&socket);
        let _ = sizes.set_recv_buffer_size(KERNEL_LEN);
        let _ = sizes.set_send_buffer_size(KERNEL_LEN);
        let config = config(outer, &[quic::ALPN])?;
        let runtime = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime)?;
        Ok(Self { endpoint, socket: None })
    }

    /// Opens those by ping that are wanted, inside a runtime; `name` tells apart who has them.
    ///
    /// # Errors
    /// What is missing, and how to mend it.
    pub(crate) fn by_ping(
        name: &str,
        at: Option<IcmpAt>,
        outer: &Arc<Outer>,
    ) -> io::Result<Vec<Self>> {
        let at: Vec<IpAddr> = match at {
            None => Vec::new(),
            Some(IcmpAt::One(at)) => vec![at],
            Some(IcmpAt::Any) => {
                vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]
            }
        };
        let mut doors = Vec::new();
        for (number, at) in at.into_iter().enumerate() {
            match Self::ping(name, at, outer) {
                Ok(door) => doors.push(door),
                // A machine without IPv6 answers by IPv4.
                Err(error) if number > 0 && error.raw_os_error() == Some(AFNOSUPPORT) => {}
                Err(error) => {
                    let why = format!("--icmp: {error}");
                    return Err(io::Error::new(error.kind(), why));
                }
            }
        }
        Ok(doors)
    }

    fn ping(name: &str, at: IpAddr, outer: &Arc<Outer>) -> io::Result<Self> {
        let socket = PingSocket::open(name, at)?;
        let config = config(outer, &[quic::ALPN, quic::PIPE_ALPN])?;
        let own = EndpointConfig::default();
        let runtime = Arc::new(TokioRuntime);
        let shared = Arc::clone(&socket) as Arc<dyn quinn::AsyncUdpSocket>;
        let endpoint = Endpoint::new_with_abstract_socket(own, Some(config), shared, runtime)?;
        Ok(Self { endpoint, socket: Some(socket) })
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

    /// Takes connections until the task is dropped; `pipes` takes those that are pipes.
    pub(crate) async fn serve(self, relay: Arc<Relay>, pipes: Option<Pipes>) {
        if let Some(socket) = &self.socket {
            held(&relay.pings).push(Arc::clone(socket));
        }
        let way = Way::new(relay, self.socket.clone(), pipes);
        while let Some(incoming) = self.endpoint.accept().await {
            take(incoming, &way);
        }
    }

    /// Tells all that this relay ends.
    pub(crate) async fn close(&self) {
        self.endpoint.close(quic::code_of(Some(Notice::Leaving)), b"");
        let _ = tokio::time::timeout(CLOSE_WITHIN, self.endpoint.wait_idle()).await;
    }
}

fn config(outer: &Arc<Outer>, protocols: &[&[u8]]) -> io::Result<ServerConfig> {
    let crypto = QuicServerConfig::try_from(outer.quic(protocols)?).map_err(io::Error::other)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config
        .transport_config(quic::transport())
        .max_incoming(WAITING_MAX)
        .incoming_buffer_size(EARLY_LEN)
        .incoming_buffer_size_total(EARLY_ALL_LEN);
    Ok(config)
}

fn take(incoming: Incoming, way: &Way) {
    let seen = way.seen();
    // By ping every address has shown that it receives: it has the cookie.
    let is_shown = way.is_by_ping() || incoming.remote_address_validated();
    if !is_shown && seen.strangers.len() >= UNSHOWN_MAX {
        seen.asked.fetch_add(1, Ordering::Relaxed);
        // It can be asked once; whoever comes back without the answer is nobody.
        let _ = incoming.retry();
        return;
    }
    let (place, cut) = seen.strangers.enter(incoming.remote_address().ip());
    tokio::spawn(connection::serve(way.clone(), incoming, place, cut));
}
