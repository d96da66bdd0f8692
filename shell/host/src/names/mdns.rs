//! Multicast DNS between a LAN and the network: a thread with sockets on either side, which tells
//! on what [`dns::mdns`] lets pass.
//!
//! What was heard by IPv4 is told by IPv4, and what was heard by IPv6 by IPv6: to programs these
//! are two spaces of names (RFC 6762 section 20), and each has a memory of its own here.
//!
//! All sockets have the port that all programs for multicast DNS share on a machine, and each is
//! bound to its link. They do not hear what the machine itself sends, so nothing is heard twice.
//! What reaches other nodes is for the policy to say: a rule of `multicast` with 224.0.0.251:5353
//! and `[ff02::fb]:5353`.

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use dns::mdns::{Kept, Reflector, Service};

use crate::linux::netlink::Netlink;
use crate::linux::sys::{self, Interest, Poll, check};
use crate::sockets::udp::name_of;

const PORT: u16 = 5353;
const FOUR: IpAddr = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 251));
const SIX: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb));
/// Bytes of a message, at most (RFC 6762 section 17).
const HEARD_LEN_MAX: usize = 9000;
/// Hops that a message may have left: all of them, by which receivers know that it is of the link.
const HOPS: u8 = 255;
/// Messages of one side that are looked at before the other side has its turn.
const TURN: usize = 32;

/// What was told on, and what was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Told on, in either direction.
    pub told: u64,
    /// Of no chosen service.
    pub others: u64,
    /// Told before, malformed, too long, or not to be sent.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Shared {
    ended: AtomicBool,
    told: AtomicU64,
    others: AtomicU64,
    dropped: AtomicU64,
}

/// A relay at work; dropping it ends it.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    end: Option<io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Begins to tell on between the links `lan` and `network` what is of these services. Where
    /// IPv6 cannot be had, IPv4 is served alone, and the log says so.
    ///
    /// # Errors
    /// A link is not there, or a socket cannot be made.
    pub fn start(lan: &str, network: &str, services: &[Service]) -> io::Result<Self> {
        let mut spaces = vec![Space::open(FOUR, [lan, network], services)?];
        match Space::open(SIX, [lan, network], services) {
            Ok(space) => spaces.push(space),
            Err(error) => tracing::warn!("multicast DNS is told on by IPv4 alone: {error}"),
        }
        let (reader, writer) = io::pipe()?;
        let shared = Arc::new(Shared::default());
        let known = shared.clone();
        let thread = std::thread::Builder::new().name("mdns".to_owned()).spawn(move || {
            crate::linux::signals::block_all();
            if let Err(error) = tell(&known, &mut spaces, &reader) {
                tracing::error!("multicast DNS is told on no more: {error}");
            }
        })?;
        Ok(Self { shared, end: Some(writer), thread: Some(thread) })
    }

    /// What came of it so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let shared = &self.shared;
        Counts { told: of(&shared.told), others: of(&shared.others), dropped: of(&shared.dropped) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the relay of multicast DNS had panicked");
        }
    }
}

fn tell(shared: &Shared, spaces: &mut [Space], end: &io::PipeReader) -> io::Result<()> {
    let poll = Poll::new()?;
    poll.watch(end.as_raw_fd(), Interest::READ)?;
    for side in spaces.iter().flat_map(|space| &space.sides) {
        poll.watch(side.as_raw_fd(), Interest::READ)?;
    }
    let mut ready = Vec::new();
    let mut memory = vec![0; HEARD_LEN_MAX];
    while !shared.ended.load(Ordering::Relaxed) {
        poll.wait(None, &mut ready)?;
        for space in &mut *spaces {
            space.pass_on(0, &mut memory, shared);
            space.pass_on(1, &mut memory, shared);
        }
    }
    Ok(())
}

/// What is heard and told by one version of IP.
struct Space {
    group: SocketAddr,
    /// Towards the LAN, and towards the network.
    sides: [UdpSocket; 2],
    reflector: Reflector,
}

impl Space {
    fn open(group: IpAddr, [lan, network]: [&str; 2], services: &[Service]) -> io::Result<Self> {
        let sides = [open(lan, group)?, open(network, group)?];
        let group = SocketAddr::new(group, PORT);
        Ok(Self { group, sides, reflector: Reflector::new(services) })
    }

    /// Tells on what was heard at side `at`: one turn's worth.
    fn pass_on(&mut self, at: usize, memory: &mut [u8], shared: &Shared) {
        let [from, to] = [&self.sides[at], &self.sides[1 - at]];
        for _ in 0..TURN {
            let Ok((len, sender)) = from.recv_from(memory) else { break };
            // Who asks from another port wants an answer there, and is of an older kind.
            if sender.port() != PORT {
                continue;
            }
            let now_ms = sys::awake_ns() / 1_000_000;
            let counted = match self.reflector.handle(&memory[..len], now_ms) {
                Ok(told) if to.send_to(&told, self.group).is_ok() => &shared.told,
                Err(Kept::Others) => &shared.others,
                _ => &shared.dropped,
            };
            counted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A member of the group on a link.
fn open(link: &str, group: IpAddr) -> io::Result<UdpSocket> {
    let family = if group.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes no pointers; the descriptor is ours alone.
    let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(family, kind, 0))?) };
    let raw = fd.as_raw_fd();
    sys::set_option(raw, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    let any: IpAddr = match group {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => {
            sys::set_option(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            Ipv6Addr::UNSPECIFIED.into()
        }
    };
    sys::bind_link(raw, link)?;
    let (own, len) = name_of(&SocketAddr::new(any, PORT));
    // SAFETY: the pointer and the length describe `own`, which outlives the call.
    check(unsafe { libc::bind(raw, (&raw const own).cast(), len) })?;
    let found = Netlink::open().and_then(|mut netlink| netlink.link(link));
    let found = found.map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
    let socket = UdpSocket::from(fd);
    match group {
        IpAddr::V4(group) => {
            join_v4(&socket, group, found.index)?;
            socket.set_multicast_ttl_v4(HOPS.into())?;
            socket.set_multicast_loop_v4(false)?;
        }
        IpAddr::V6(group) => {
            socket.join_multicast_v6(&group, found.index)?;
            sys::set_option(raw, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, HOPS.into())?;
            socket.set_multicast_loop_v6(false)?;
        }
    }
    Ok(socket)
}

/// Joins the group on a link by its number, and sends to it there. For IPv4 the standard library
/// takes a link's address alone, which it need not have; for IPv6 it takes the number.
fn join_v4(socket: &UdpSocket, group: Ipv4Addr, index: u32) -> io::Result<()> {
    let member = libc::ip_mreqn {
        imr_multiaddr: libc::in_addr { s_addr: u32::from_ne_bytes(group.octets()) },
        imr_address: libc::in_addr { s_addr: 0 },
        imr_ifindex: index.cast_signed(),
    };
    let len = size_of::<libc::ip_mreqn>() as libc::socklen_t;
    for option in [libc::IP_ADD_MEMBERSHIP, libc::IP_MULTICAST_IF] {
        let (level, value) = (libc::IPPROTO_IP, (&raw const member).cast());
        // SAFETY: the pointer and the length describe `member`, which outlives the call.
        check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) })?;
    }
    Ok(())
}
