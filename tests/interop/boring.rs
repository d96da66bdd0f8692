//! A peer made of the boringtun crate: its state machine, a TUN and a UDP socket in one thread.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};

use crate::support::keys::decode;
use crate::support::{Context as _, Host, KeyPair, Result, bail, ensure, inside};

/// Room for a packet, its wrapping and whatever a buffer must have beside.
const BUFFER_BYTES: usize = 1 << 16;

/// What the thread can be told.
pub enum Order {
    /// A new session, begun by this side.
    Handshake,
    /// Another UDP port from now on.
    Rebind(u16),
    /// To end.
    End,
}

/// What it is made of.
pub struct Setup {
    pub keys: KeyPair,
    pub peer: [u8; 32],
    pub psk: Option<String>,
    pub keepalive_s: Option<u16>,
    /// Where it sends before it has heard anything.
    pub endpoint: Option<SocketAddr>,
    pub bind: SocketAddr,
    pub ifname: String,
    /// The peer's inner addresses.
    pub allowed: Vec<IpAddr>,
}

/// A running peer, ended on drop.
pub struct Boring {
    orders: SyncSender<Order>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Boring {
    /// Starts it in `host`; its interface is down and without addresses.
    pub fn start(host: &Host, setup: Setup) -> Result<Self> {
        let (orders, inbox) = sync_channel(8);
        let (ready, is_ready) = sync_channel(1);
        let thread = inside::start(host, move || {
            let peer = Peer::new(&setup)?;
            ready.send(())?;
            peer.run(&inbox)
        })?;
        let boring = Self { orders, thread: Some(thread) };
        is_ready.recv_timeout(Duration::from_secs(3)).context("boringtun's peer did not start")?;
        Ok(boring)
    }

    pub fn order(&self, order: Order) -> Result<()> {
        self.orders.send(order).context("boringtun's peer has ended")
    }
}

impl Drop for Boring {
    fn drop(&mut self) {
        let _ = self.orders.try_send(Order::End);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if let Ok(Err(error)) = ended {
                eprintln!("boringtun's peer ended with {error:#}");
            }
        }
    }
}

struct Peer {
    tunn: Tunn,
    tun: File,
    socket: UdpSocket,
    endpoint: Option<SocketAddr>,
    allowed: Vec<IpAddr>,
    out: Vec<u8>,
}

impl Peer {
    fn new(setup: &Setup) -> Result<Self> {
        let tunn = Tunn::new(
            StaticSecret::from(setup.keys.secret),
            PublicKey::from(setup.peer),
            setup.psk.as_deref().map(decode),
            setup.keepalive_s,
            7,
            None,
        );
        let tun = open_tun(&setup.ifname)?;
        let socket = bind(setup.bind)?;
        let (endpoint, allowed) = (setup.endpoint, setup.allowed.clone());
        Ok(Self { tunn, tun, socket, endpoint, allowed, out: vec![0; BUFFER_BYTES] })
    }

    fn run(mut self, inbox: &Receiver<Order>) -> Result<()> {
        let mut packet = vec![0; BUFFER_BYTES];
        let mut ticked = Instant::now();
        loop {
            match inbox.try_recv() {
                Ok(Order::End) | Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
                Ok(Order::Rebind(port)) => {
                    let at = self.socket.local_addr()?;
                    self.socket = bind(SocketAddr::new(at.ip(), port))?;
                }
                Ok(Order::Handshake) => {
                    let result = self.tunn.format_handshake_initiation(&mut self.out, true);
                    send(&self.socket, self.endpoint, &result);
                }
                Err(_) => {}
            }
            wait(&[self.tun.as_raw_fd(), self.socket.as_raw_fd()]);
            while let Ok((n, from)) = self.socket.recv_from(&mut packet) {
                self.receive(&packet[..n], from)?;
            }
            // An interface that is down gives EIO.
            while let Ok(n) = self.tun.read(&mut packet) {
                // The crate leaves allowed addresses to its user.
                let target = Tunn::dst_address(&packet[..n]);
                if !target.is_some_and(|address| self.allowed.contains(&address)) {
                    continue;
                }
                let result = self.tunn.encapsulate(&packet[..n], &mut self.out);
                send(&self.socket, self.endpoint, &result);
            }
            if ticked.elapsed() > Duration::from_millis(100) {
                ticked = Instant::now();
                let result = self.tunn.update_timers(&mut self.out);
                send(&self.socket, self.endpoint, &result);
            }
        }
    }

    fn receive(&mut self, datagram: &[u8], from: SocketAddr) -> Result<()> {
        let mut result = self.tunn.decapsulate(Some(from.ip()), datagram, &mut self.out);
        if !matches!(result, TunnResult::Err(_)) {
            self.endpoint = Some(from);
        }
        loop {
            match result {
                TunnResult::WriteToTunnelV4(bytes, _) | TunnResult::WriteToTunnelV6(bytes, _) => {
                    // Refused while the interface is down.
                    let _ = self.tun.write(bytes);
                    return Ok(());
                }
                TunnResult::WriteToNetwork(_) => {
                    send(&self.socket, self.endpoint, &result);
                    result = self.tunn.decapsulate(None, &[], &mut self.out);
                }
                TunnResult::Done | TunnResult::Err(_) => return Ok(()),
            }
        }
    }
}

fn send(socket: &UdpSocket, endpoint: Option<SocketAddr>, result: &TunnResult<'_>) {
    if let (TunnResult::WriteToNetwork(bytes), Some(endpoint)) = (result, endpoint) {
        // Lost, as anywhere on the way.
        let _ = socket.send_to(bytes, endpoint);
    }
}

fn bind(address: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind {address}"))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Waits at most 20 ms until one of these can be read.
fn wait(fds: &[i32; 2]) {
    let mut polled = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: two initialised entries, as is said.
    unsafe { libc::poll(polled.as_mut_ptr(), 2, 20) };
}

/// A TUN without any offload, read and written one packet at a time, never blocking.
fn open_tun(ifname: &str) -> Result<File> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    ensure!(ifname.len() < libc::IFNAMSIZ, "the name {ifname} is too long");
    for (place, byte) in request.ifr_name.iter_mut().zip(ifname.bytes()) {
        *place = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: TUNSETIFF reads one ifreq, which is alive.
    let outcome = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw const request) };
    if outcome != 0 {
        bail!("no TUN {ifname}: {}", std::io::Error::last_os_error());
    }
    // SAFETY: a flag is set on a descriptor that is open.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    Ok(file)
}
