//! QUIC through a ring, as source 002 has it: eight connections, each between a client and a server
//! of its own, whose first datagrams have 1,280 bytes.
//!
//! A path that does not take such datagrams lets no handshake pass. They are 1,308 bytes with IPv4
//! and 1,328 with IPv6, which is why a VPN with an MTU of 1280 fails here (docs/sources.md, 002.5
//! (9)). Both ends are tasks of this process with sockets in the hosts. CUBIC, as everywhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::netns::Host;
use lab::sys;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, RecvStream, SendStream, ServerConfig,
    TokioRuntime, TransportConfig, VarInt,
};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections of a transfer.
pub(super) const CONNECTIONS: usize = 8;
/// Payload of the first datagrams; none is ever smaller where it has to be full.
const FIRST_BYTES: u16 = 1_280;
/// Times that one connection may be begun, as often as in source 002.
const TRIES: u32 = 3;
/// How long one handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
const FIRST_PORT: u16 = 18_000;
/// What is sent at once by one connection.
static CHUNK: [u8; 65_536] = [0x5a; 65_536];
/// Between two looks at what came, and at what asks this process to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const NAME: &str = "bench";
const ALPN: &[u8] = b"warren-bench/1";

/// Who sends: the clients, or the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Forth,
    Back,
}

/// A transfer to be made. The clients are in `from`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) from: &'a Host,
    pub(super) to: &'a Host,
    /// Of `to`.
    pub(super) address: &'a str,
    pub(super) way: Way,
    pub(super) seconds: u32,
}

/// What became of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Done {
    /// Handshakes that ended without a connection; there may be [`TRIES`] of each.
    pub(super) handshakes_failed: u32,
    /// Why the last of them failed.
    pub(super) why: String,
    /// How long those took that succeeded.
    pub(super) handshakes_ms: Vec<f64>,
    /// All eight together. None where a connection was never made.
    pub(super) flow: Option<Flow>,
}

/// What came through all eight.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Flow {
    pub(super) received_bytes: f64,
    pub(super) seconds: f64,
    /// In each second.
    pub(super) seconds_mbit_s: Vec<f64>,
}

impl Flow {
    pub(super) fn mbit_s(&self) -> f64 {
        self.received_bytes * 8.0 / self.seconds / 1e6
    }
}

/// Runs a transfer to its end.
///
/// # Errors
/// Returns an error when a socket cannot be made, a connection breaks, nothing arrives, or a signal
/// asks this process to end. A handshake that fails is none.
pub(super) fn run(job: Job<'_>) -> Result<Done> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = Builder::new_multi_thread()
        .worker_threads(cores.min(CONNECTIONS))
        .enable_all()
        .build()
        .context("no threads for QUIC")?;
    let done = runtime.block_on(transfer(job));
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

async fn transfer(job: Job<'_>) -> Result<Done> {
    let ip: IpAddr = job.address.parse().context("no address")?;
    let (server, client) = settings()?;
    let received = Arc::new(AtomicU64::new(0));
    let mut endpoints = Vec::new();
    let mut serving = JoinSet::new();
    let mut connecting = JoinSet::new();
    for port in (FIRST_PORT..).take(CONNECTIONS) {
        let at = SocketAddr::new(ip, port);
        let own = endpoint(job.to, at, Some(server.clone()))?;
        serving.spawn(serve(own.clone(), job.way, Arc::clone(&received)));
        let any = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { any_ipv6() };
        let theirs = endpoint(job.from, SocketAddr::new(any, 0), None)?;
        connecting.spawn(connect(theirs.clone(), client.clone(), at));
        endpoints.extend([own, theirs]);
    }
    let mut done = Done::default();
    let mut connections = Vec::new();
    while !connecting.is_empty() {
        sys::check_interrupted()?;
        let Ok(Some(one)) = timeout(LOOK_EVERY, connecting.join_next()).await else { continue };
        let one = one.context("a handshake panicked")?;
        done.handshakes_failed += one.failed;
        if !one.why.is_empty() {
            done.why = one.why;
        }
        connections.extend(one.connection);
        done.handshakes_ms.extend(one.took.map(|took| took.as_secs_f64() * 1e3));
    }
    if connections.len() == CONNECTIONS {
        let flow = load(connections, job, &received).await;
        endpoints.iter().for_each(|endpoint| endpoint.close(VarInt::from_u32(0), b""));
        done.flow = Some(flow?);
    }
    Ok(done)
}

fn any_ipv6() -> IpAddr {
    Ipv6Addr::UNSPECIFIED.into()
}

/// Of both ends: a certificate of one transfer, which is looked at by nobody.
fn settings() -> Result<(ServerConfig, ClientConfig)> {
    let (server, client) = lab::tls::ends(NAME)?;
    let mut server = (*server).clone();
    let mut client = (*client).clone();
    server.alpn_protocols = vec![ALPN.to_vec()];
    client.alpn_protocols = vec![ALPN.to_vec()];
    let mut transport = TransportConfig::default();
    transport.initial_mtu(FIRST_BYTES).min_mtu(FIRST_BYTES);
    let transport = Arc::new(transport);
    let mut server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(server)?));
    server.transport_config(Arc::clone(&transport));
    let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client)?));
    client.transport_config(transport);
    Ok((server, client))
}

/// A socket in a host, and QUIC on it.
fn endpoint(host: &Host, at: SocketAddr, server: Option<ServerConfig>) -> Result<Endpoint> {
    let socket = sys::in_netns(&host.path(), || UdpSocket::bind(at))?
        .with_context(|| format!("cannot open UDP at {at}"))?;
    on_socket(socket, server)
}

fn on_socket(socket: UdpSocket, server: Option<ServerConfig>) -> Result<Endpoint> {
    let made = Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(TokioRuntime));
    made.context("no QUIC on this socket")
}

/// What became of one connection's handshakes.
#[derive(Debug, Default)]
struct Connected {
    connection: Option<Connection>,
    took: Option<Duration>,
    failed: u32,
    why: String,
}

async fn connect(endpoint: Endpoint, client: ClientConfig, at: SocketAddr) -> Connected {
    let mut done = Connected::default();
    while done.connection.is_none() && done.failed < TRIES {
        let begin = Instant::now();
        let why = match endpoint.connect_with(client.clone(), at, NAME) {
            Ok(connecting) => match timeout(HANDSHAKE_MAX, connecting).await {
                Ok(Ok(connection)) => {
                    done.took = Some(begin.elapsed());
                    done.connection = Some(connection);
                    return done;
                }
                Ok(Err(why)) => why.to_string(),
                Err(_) => format!("no handshake within {HANDSHAKE_MAX:?}"),
            },
            Err(why) => why.to_string(),
        };
        done.failed += 1;
        done.why = why;
    }
    done
}

/// All connections at once, for as long as the job says.
async fn load(
    connections: Vec<Connection>,
    job: Job<'_>,
    received: &Arc<AtomicU64>,
) -> Result<Flow> {
    let begin = Instant::now();
    let mut flows = JoinSet::new();
    for connection in connections {
        flows.spawn(ask(connection, job.way, Arc::clone(received)));
    }
    let mut flow = Flow::default();
    let mut counted = 0;
    for second in 1..=job.seconds {
        while begin.elapsed() < Duration::from_secs(second.into()) {
            sys::check_interrupted()?;
            let ended = flows.try_join_next();
            ensure!(ended.is_none(), "a connection broke: {}", why(ended));
            sleep(LOOK_EVERY).await;
        }
        let now = received.load(Ordering::Relaxed);
        flow.seconds_mbit_s.push((now - counted) as f64 * 8.0 / 1e6);
        counted = now;
    }
    flow.seconds = begin.elapsed().as_secs_f64();
    flow.received_bytes = counted as f64;
    ensure!(counted > 0, "eight connections were made, and nothing arrived on any of them");
    Ok(flow)
}

type Ended = Option<Result<Result<()>, tokio::task::JoinError>>;

fn why(ended: Ended) -> String {
    match ended {
        Some(Ok(Err(why))) => format!("{why:#}"),
        Some(Err(why)) => why.to_string(),
        _ => "it ended early".to_owned(),
    }
}

/// A client on its connection: one byte opens the stream, then who has to send sends.
async fn ask(connection: Connection, way: Way, received: Arc<AtomicU64>) -> Result<()> {
    let (mut to, from) = connection.open_bi().await?;
    to.write_all(&CHUNK[..1]).await?;
    match way {
        Way::Forth => send(to).await,
        Way::Back => take(from, &received).await,
    }
}

async fn serve(endpoint: Endpoint, way: Way, received: Arc<AtomicU64>) -> Result<()> {
    // A handshake that fails is the client's to tell; it may come again.
    loop {
        let Some(incoming) = endpoint.accept().await else { return Ok(()) };
        let Ok(connection) = incoming.await else { continue };
        let Ok((to, mut from)) = connection.accept_bi().await else { continue };
        let mut opening = [0; 1];
        from.read_exact(&mut opening).await?;
        let ended = match way {
            Way::Forth => take(from, &received).await,
            Way::Back => send(to).await,
        };
        if ended.is_ok() {
            return Ok(());
        }
    }
}

async fn send(mut to: SendStream) -> Result<()> {
    loop {
        to.write_all(&CHUNK).await?;
    }
}

async fn take(mut from: RecvStream, received: &AtomicU64) -> Result<()> {
    while let Some(chunk) = from.read_chunk(usize::MAX, true).await? {
        received.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_runtime<T>(work: impl Future<Output = T>) -> T {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.expect("a runtime").block_on(work)
    }

    /// Source 002.5 (9): what a path must take is 1,280 bytes from the first datagram on.
    #[test]
    fn source_002_5_9_the_first_datagram_has_1280_bytes() {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        silent.set_read_timeout(Some(Duration::from_secs(10))).expect("it can be set");
        let at = silent.local_addr().expect("an address");
        in_runtime(async {
            let (_, client) = settings().expect("settings");
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            let endpoint = on_socket(socket, None).expect("an endpoint");
            let _connecting = endpoint.connect_with(client, at, NAME).expect("it begins");
            let mut datagram = [0; 2_000];
            let length = silent.recv(&mut datagram).expect("a datagram");
            assert_eq!(length, usize::from(FIRST_BYTES));
        });
    }

    #[test]
    fn who_does_not_answer_costs_a_handshake_and_no_more() {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let at = silent.local_addr().expect("an address");
        in_runtime(async {
            let (_, client) = settings().expect("settings");
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            let endpoint = on_socket(socket, None).expect("an endpoint");
            let one = timeout(HANDSHAKE_MAX / 10, connect(endpoint.clone(), client.clone(), at));
            assert!(one.await.is_err(), "it waits for an answer");
            let nobody = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 1);
            let refused = connect(endpoint, client, nobody).await;
            assert_eq!(refused.failed, TRIES, "{refused:?}");
            assert!(refused.connection.is_none() && !refused.why.is_empty(), "{refused:?}");
        });
    }
}
