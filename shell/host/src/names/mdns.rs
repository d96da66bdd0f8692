//! Multicast DNS between a LAN and the network: a thread with a socket on either side, which tells
//! on what [`dns::mdns`] lets pass.
//!
//! Both sockets have the port that all programs for multicast DNS share on a machine, and each is
//! bound to its link. They do not hear what the machine itself sends, so nothing is heard twice.
//! What reaches other nodes is for the policy to say: a rule of `multicast` with 224.0.0.251:5353.

use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use dns::mdns::{Kept, Reflector, Service};

use crate::linux::netlink::Netlink;
use crate::linux::sys::{self, Interest, Poll, check};
use crate::sockets::udp::name_of;

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(224, 0, 0, 251), 5353);
/// Bytes of a message, at most (RFC 6762 section 17).
const HEARD_LEN_MAX: usize = 9000;
/// Hops that a message may have left: all of them, by which receivers know that it is of the link.
const TTL: u32 = 255;
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
    /// Begins to tell on between the links `lan` and `network` what is of these services.
    ///
    /// # Errors
    /// A link is not there, or a socket cannot be made.
    pub fn start(lan: &str, network: &str, services: &[Service]) -> io::Result<Self> {
        let sides = [open(lan)?, open(network)?];
        let reflector = Reflector::new(services);
        let (reader, writer) = io::pipe()?;
        let shared = Arc::new(Shared::default());
        let known = shared.clone();
        let thread = std::thread::Builder::new().name("mdns".to_owned()).spawn(move || {
            crate::linux::signals::block_all();
            if let Err(error) = tell(&known, &sides, reflector, &reader) {
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

fn tell(
    shared: &Shared,
    sides: &[UdpSocket; 2],
    mut reflector: Reflector,
    end: &io::PipeReader,
) -> io::Result<()> {
    let poll = Poll::new()?;
    poll.watch(end.as_raw_fd(), Interest::READ)?;
    for side in sides {
        poll.watch(side.as_raw_fd(), Interest::READ)?;
    }
    let mut ready = Vec::new();
    let mut memory = vec![0; HEARD_LEN_MAX];
    while !shared.ended.load(Ordering::Relaxed) {
        poll.wait(None, &mut ready)?;
        for (from, to) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
            for _ in 0..TURN {
                let Ok((len, sender)) = from.recv_from(&mut memory) else { break };
                // Who asks from another port wants an answer there, and is of an older kind.
                if sender.port() != GROUP.port() {
                    continue;
                }
                let now_ms = sys::awake_ns() / 1_000_000;
                let counted = match reflector.handle(&memory[..len], now_ms) {
                    Ok(told) if to.send_to(&told, GROUP).is_ok() => &shared.told,
                    Err(Kept::Others) => &shared.others,
                    _ => &shared.dropped,
                };
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// A member of the group on a link.
fn open(link: &str) -> io::Result<UdpSocket> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes no pointers; the descriptor is ours alone.
    let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_INET, kind, 0))?) };
    let raw = fd.as_raw_fd();
    sys::set_option(raw, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    sys::bind_link(raw, link)?;
    let (own, len) = name_of(&(Ipv4Addr::UNSPECIFIED, GROUP.port()).into());
    // SAFETY: the pointer and the length describe `own`, which outlives the call.
    check(unsafe { libc::bind(raw, (&raw const own).cast(), len) })?;
    join(raw, link)?;
    let socket = UdpSocket::from(fd);
    socket.set_multicast_ttl_v4(TTL)?;
    socket.set_multicast_loop_v4(false)?;
    Ok(socket)
}

/// Joins the group on a link, and sends to it there.
fn join(fd: RawFd, link: &str) -> io::Result<()> {
    let found = Netlink::open().and_then(|mut netlink| netlink.link(link));
    let found = found.map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
    let member = libc::ip_mreqn {
        imr_multiaddr: libc::in_addr { s_addr: u32::from_ne_bytes(GROUP.ip().octets()) },
        imr_address: libc::in_addr { s_addr: 0 },
        imr_ifindex: found.index.cast_signed(),
    };
    let len = size_of::<libc::ip_mreqn>() as libc::socklen_t;
    for option in [libc::IP_ADD_MEMBERSHIP, libc::IP_MULTICAST_IF] {
        let (level, value) = (libc::IPPROTO_IP, (&raw const member).cast());
        // SAFETY: the pointer and the length describe `member`, which outlives the call.
        check(unsafe { libc::setsockopt(fd, level, option, value, len) })?;
    }
    Ok(())
}
