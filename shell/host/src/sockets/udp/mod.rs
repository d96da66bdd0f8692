//! UDP sockets: where sealed datagrams leave and enter.
//!
//! Stages: [`Sockets::bind`] opens one socket a family on one port and asks for every offload;
//! [`Arena::receive`] fills an [`Arena`] with as many coalesced datagrams as wait; [`Batch`] is
//! the memory lent to the core for outgoing ones, in runs of equal size to one destination, and
//! [`Sockets::flush`] hands each run to the kernel as one unit, or cut, where the kernel or the
//! card refuses units (EIO, EINVAL, EMSGSIZE).

mod arena;
mod messages;

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use link::Endpoint;

pub use self::arena::{Arena, Received};
use self::messages::address_of;
pub(crate) use self::messages::{Messages, name_of};
use crate::linux::sys::{self, check};
use crate::sockets::batch::{Batch, Run};
pub use crate::sockets::batch::{SEGMENTS_MAX, UNIT_LEN_MAX};

/// Receive buffer that is asked for: 40 ms at 1.4 Gbit/s. Both are forced past the system's limit
/// where the capability allows, else as large as the limit.
pub const RECEIVE_BUFFER_LEN: libc::c_int = 7 << 20;
/// Send buffer that is asked for: 1 ms at 1 Gbit/s. What is in it can no longer be thought about
/// again, and inner packets wait behind it; so no more than keeps the line busy.
pub const SEND_BUFFER_LEN: libc::c_int = pace::BELOW_LEN_MAX as libc::c_int;
/// Messages that one system call takes or gives.
pub const MESSAGES_MAX: usize = 64;
/// Bytes of the largest datagram that is usual: what a link of 1500 carries over IPv4.
pub const USUAL_LEN: usize = 1_472;

const SOL_UDP: libc::c_int = 17;
const UDP_SEGMENT: libc::c_int = 103;
const UDP_GRO: libc::c_int = 104;

/// One socket.
#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    v6: bool,
    /// Whether the kernel and the card still take units; off for good after EIO or EINVAL.
    segmentation: bool,
    /// Whether large datagrams leave whole or not at all, and whether the socket is set so now.
    keeps_whole: bool,
    is_whole: bool,
    messages: Messages,
}

/// What sending did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Datagrams that the kernel took.
    pub datagrams: u64,
    /// Datagrams that it did not take: no route, blocked by a filter, unreachable.
    pub refused: u64,
    /// Times that a run was refused and went out cut, or without its source address.
    pub cut: u64,
}

/// The sockets of one port, one a family; a kernel without IPv6 has one.
#[derive(Debug)]
pub struct Sockets {
    v4: Option<Socket>,
    v6: Option<Socket>,
    port: u16,
    /// Send buffer that both have.
    send_buffer: usize,
    is_stamped: bool,
    /// What was sent and refused since the start.
    pub sent: Sent,
}

impl Sockets {
    /// Binds both families to `port`; 0 lets the kernel choose one that is free in both.
    ///
    /// # Errors
    /// "address in use" names the port and how to find who has it.
    pub fn bind(port: u16, fwmark: u32) -> io::Result<Self> {
        const TRIES: usize = 100;
        let mut tries = 0;
        loop {
            tries += 1;
            let v4 = optional(Socket::bind(false, port))?;
            let chosen = match &v4 {
                Some(socket) => socket.port()?,
                None => port,
            };
            match optional(Socket::bind(true, chosen)) {
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse && port == 0 && tries < TRIES => {}
                Err(error) => return Err(error),
                Ok(v6) => {
                    let chosen = match &v6 {
                        Some(socket) => socket.port()?,
                        None => chosen,
                    };
                    let send_buffer = SEND_BUFFER_LEN as usize;
                    let sent = Sent::default();
                    let is_stamped = false;
                    let sockets = Self { v4, v6, port: chosen, send_buffer, is_stamped, sent };
                    if sockets.v4.is_none() && sockets.v6.is_none() {
                        return Err(io::Error::other("this kernel has neither IPv4 nor IPv6"));
                    }
                    if fwmark != 0 {
                        sockets.set_fwmark(fwmark)?;
                    }
                    return Ok(sockets);
                }
            }
        }
    }

    /// The port that both are bound to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// For an event loop.
    pub fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.each().map(|socket| socket.fd.as_raw_fd())
    }

    /// The socket that `run` leaves by.
    #[must_use]
    pub fn fd_for(&self, run: &Run) -> Option<RawFd> {
        let socket = if is_v6(run) { &self.v6 } else { &self.v4 };
        socket.as_ref().map(|socket| socket.fd.as_raw_fd())
    }

    /// Another hold on the socket by which what goes there leaves, for another thread.
    pub(crate) fn another(&self, to: &Endpoint) -> Option<io::Result<OwnedFd>> {
        let socket = if to.remote.is_ipv6() { &self.v6 } else { &self.v4 };
        socket.as_ref().map(|socket| socket.fd.try_clone())
    }

    /// Marks what leaves, for policy routing; 0 = no mark.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN.
    pub fn set_fwmark(&self, fwmark: u32) -> io::Result<()> {
        for socket in self.each() {
            sys::set_option(
                socket.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MARK,
                fwmark.cast_signed(),
            )?;
        }
        Ok(())
    }

    /// Has datagrams beyond [`USUAL_LEN`] leave whole or not at all, where nobody counts on their
    /// fragments: what is larger than usual is sent only where it was asked for and passed.
    pub fn keep_whole(&mut self) {
        for socket in self.v4.iter_mut().chain(self.v6.iter_mut()) {
            socket.keeps_whole = true;
        }
    }

    /// Has the kernel take `len` bytes, or [`SEND_BUFFER_LEN`] if that is less, before a socket is
    /// full: on a slow line what is in it waits for long. A call of the kernel only where it
    /// changes.
    pub fn set_send_buffer(&mut self, len: usize) {
        let len = len.min(SEND_BUFFER_LEN as usize);
        if self.send_buffer == len {
            return;
        }
        self.send_buffer = len;
        for socket in self.each() {
            set_buffer(socket.fd.as_raw_fd(), SEND, len as libc::c_int).unwrap_or_else(|error| {
                tracing::debug!(%error, len, "the send buffer stays as it is");
            });
        }
    }

    /// Has the kernel say when each datagram came, or no longer. It costs every packet of the
    /// machine some nanoseconds, so nobody asks for it who does not measure.
    pub fn set_stamped(&mut self, is_stamped: bool) {
        if self.is_stamped == is_stamped {
            return;
        }
        self.is_stamped = is_stamped;
        for socket in self.each() {
            let (fd, name) = (socket.fd.as_raw_fd(), libc::SO_TIMESTAMPNS);
            let set = sys::set_option(fd, libc::SOL_SOCKET, name, is_stamped.into());
            set.unwrap_or_else(|error| tracing::debug!(%error, "times are those of reading"));
        }
    }

    fn each(&self) -> impl Iterator<Item = &Socket> {
        self.v4.iter().chain(self.v6.iter())
    }

    /// Sends what `batch` holds, run by run. What a full socket does not take stays in it: that is
    /// the back-pressure of the network under us.
    pub fn flush(&mut self, batch: &mut Batch) {
        let (runs, memory) = batch.parts();
        let mut done = 0;
        while let Some(first) = runs.get(done) {
            let v6 = is_v6(first);
            let same = runs[done..].iter().take_while(|run| is_v6(run) == v6).count();
            let now = &mut runs[done..done + same];
            let socket = if v6 { self.v6.as_mut() } else { self.v4.as_mut() };
            let sent = match socket {
                Some(socket) => socket.send(now, memory, &mut self.sent),
                None => {
                    self.sent.refused += now.iter().map(Run::datagrams).sum::<u64>();
                    same
                }
            };
            done += sent;
            if sent < same {
                break;
            }
        }
        batch.advance(done);
    }
}

/// The options that set a buffer: past the system's limit, and within it.
type Buffer = [libc::c_int; 2];
const RECEIVE: Buffer = [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF];
const SEND: Buffer = [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF];

fn set_buffer(fd: RawFd, [force, plain]: Buffer, len: libc::c_int) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_SOCKET, force, len)
        .or_else(|_| sys::set_option(fd, libc::SOL_SOCKET, plain, len))
}

/// Has a socket keep so much that came, if it may.
pub(crate) fn set_receive_buffer(fd: RawFd, len: libc::c_int) -> io::Result<()> {
    set_buffer(fd, RECEIVE, len)
}

/// Has a socket keep so much that is to leave, if it may.
pub(crate) fn set_send_buffer(fd: RawFd, len: libc::c_int) -> io::Result<()> {
    set_buffer(fd, SEND, len)
}

/// The port that a socket is bound to.
pub(crate) fn port_of(fd: RawFd) -> io::Result<u16> {
    // SAFETY: a zeroed sockaddr_storage is valid and large enough for every family.
    let mut name: libc::sockaddr_storage = unsafe { zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: the pointers describe `name` and `len`, which outlive the call.
    check(unsafe { libc::getsockname(fd, (&raw mut name).cast(), &raw mut len) })?;
    Ok(address_of(&name).map_or(0, |address| address.port()))
}

/// A family that the kernel lacks is no error.
fn optional(socket: io::Result<Socket>) -> io::Result<Option<Socket>> {
    match socket {
        Ok(socket) => Ok(Some(socket)),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => Ok(None),
            _ => Err(error),
        },
    }
}

fn is_v6(run: &Run) -> bool {
    run.to.remote.is_ipv6()
}

impl Socket {
    fn bind(v6: bool, port: u16) -> io::Result<Self> {
        let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers; the descriptor is ours alone.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(family, kind, 0))?) };
        let raw = fd.as_raw_fd();
        if v6 {
            sys::set_option(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            sys::set_option(raw, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
            sys::set_option(raw, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        } else {
            sys::set_option(raw, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
            sys::set_option(raw, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        }
        let any = if v6 {
            SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)
        } else {
            SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)
        };
        let (name, len) = name_of(&any);
        // SAFETY: `name` holds `len` valid bytes and outlives the call.
        check(unsafe { libc::bind(raw, (&raw const name).cast(), len) })
            .map_err(|error| bind_failed(port, error))?;
        set_buffer(raw, RECEIVE, RECEIVE_BUFFER_LEN)?;
        set_buffer(raw, SEND, SEND_BUFFER_LEN)?;
        // As the kernel's own WireGuard: outer packets may be fragmented on a path that is
        // narrower than the interface's MTU says; inner packets never are.
        if v6 {
            sys::set_option(raw, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, 0)?;
        } else {
            sys::set_option(raw, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, 0)?;
        }
        let coalescing = sys::set_option(raw, SOL_UDP, UDP_GRO, 1).is_ok();
        let segmentation = sys::option(raw, SOL_UDP, UDP_SEGMENT).is_ok();
        tracing::debug!(v6, coalescing, segmentation, "socket bound");
        let keeps_whole = false;
        let is_whole = false;
        Ok(Self { fd, v6, segmentation, keeps_whole, is_whole, messages: Messages::new() })
    }

    fn port(&self) -> io::Result<u16> {
        port_of(self.fd.as_raw_fd())
    }

    /// Sends `runs` in order, until the socket is full; returns how many are done.
    fn send(&mut self, runs: &mut [Run], memory: &[u8], sent: &mut Sent) -> usize {
        let mut next = 0;
        while next < runs.len() {
            let is_large = self.keeps_whole && runs[next].segment > USUAL_LEN;
            self.set_whole(is_large);
            if !self.segmentation {
                if !self.send_cut(&mut runs[next], memory, sent) {
                    break;
                }
                next += 1;
                continue;
            }
            let window = runs[next..].iter().take(MESSAGES_MAX);
            let is_alike = |run: &&Run| !self.keeps_whole || (run.segment > USUAL_LEN) == is_large;
            let window = &runs[next..next + window.take_while(is_alike).count()];
            match self.send_units(window, memory) {
                Ok(taken) => {
                    sent.datagrams += window[..taken].iter().map(Run::datagrams).sum::<u64>();
                    next += taken;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    if !self.mend(&mut runs[next], memory, &error, sent) {
                        break;
                    }
                    next += 1;
                }
            }
        }
        next
    }

    /// Whether what is sent from now on may not be fragmented, on its way or here. A call of the
    /// kernel only where that changes.
    fn set_whole(&mut self, is_whole: bool) {
        if self.is_whole == is_whole {
            return;
        }
        // IP_PMTUDISC_PROBE: told of nothing and asking nobody; IP_PMTUDISC_DONT.
        let value = if is_whole { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_DONT };
        let (level, name) = if self.v6 {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)
        } else {
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)
        };
        match sys::set_option(self.fd.as_raw_fd(), level, name, value) {
            Ok(()) => self.is_whole = is_whole,
            Err(error) => tracing::debug!(%error, "fragments cannot be forbidden"),
        }
    }

    /// The first run of a window was refused: find out whether as a unit or at all. `false` if the
    /// socket is full meanwhile.
    fn mend(&mut self, run: &mut Run, memory: &[u8], error: &io::Error, sent: &mut Sent) -> bool {
        let whole = run.count == 1;
        match error.raw_os_error() {
            // The card cannot checksum units, or the kernel cannot cut them: never again.
            Some(libc::EIO) => {
                self.segmentation = false;
                tracing::info!("segmentation offload refused; sending datagrams one by one");
                self.cut(run, memory, sent)
            }
            // A datagram larger than the path's MTU cannot travel in a unit; alone it is
            // fragmented. A source address that is gone is refused the same way: which of the two
            // it was shows when it is cut.
            Some(libc::EMSGSIZE) if !whole => self.cut(run, memory, sent),
            _ if is_of_source(error) && !whole => self.cut(run, memory, sent),
            _ if is_of_source(error) && has_source(run) => {
                *run = without_source(run);
                self.cut(run, memory, sent)
            }
            _ => {
                sent.refused += run.datagrams();
                true
            }
        }
    }

    /// As [`Self::send_cut`], counted: the run was refused as it was.
    fn cut(&mut self, run: &mut Run, memory: &[u8], sent: &mut Sent) -> bool {
        sent.cut += 1;
        self.send_cut(run, memory, sent)
    }

    /// One message a run; returns how many runs the kernel took, at least one.
    fn send_units(&mut self, runs: &[Run], memory: &[u8]) -> io::Result<usize> {
        let units =
            runs.iter().map(|run| (run, &memory[run.start..run.start + run.len], run.count > 1));
        self.messages.send(&self.fd, units)
    }

    /// One message a datagram. `false` if the socket is full: then the run holds the rest.
    fn send_cut(&mut self, run: &mut Run, memory: &[u8], sent: &mut Sent) -> bool {
        let bytes = &memory[run.start..run.start + run.len];
        let mut next = 0;
        while next < run.count {
            let this = &*run;
            let cut = bytes.chunks(run.segment.max(1)).skip(next).map(|bytes| (this, bytes, false));
            match self.messages.send(&self.fd, cut) {
                Ok(taken) => {
                    sent.datagrams += taken as u64;
                    next += taken;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    run.advance(next);
                    return false;
                }
                // An address that went away: the routing table chooses another.
                Err(error) if is_of_source(&error) && has_source(run) => {
                    *run = without_source(run);
                }
                Err(error) => {
                    tracing::debug!(%error, v6 = self.v6, "datagram refused");
                    sent.refused += 1;
                    next += 1;
                }
            }
        }
        true
    }
}

/// Whether a source address that is gone is refused like this.
pub(crate) fn is_of_source(error: &io::Error) -> bool {
    let refusals = [libc::EINVAL, libc::ENETUNREACH, libc::EADDRNOTAVAIL, libc::ENODEV];
    error.raw_os_error().is_some_and(|errno| refusals.contains(&errno))
}

pub(crate) fn has_source(run: &Run) -> bool {
    run.to.source.is_some()
}

pub(crate) fn without_source(run: &Run) -> Run {
    Run { to: Endpoint::new(run.to.remote), ..*run }
}

fn bind_failed(port: u16, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::AddrInUse {
        return error;
    }
    let text = format!(
        "UDP port {port} is in use; choose another ListenPort, or see who has it: \
         ss -lunp 'sport = :{port}'"
    );
    io::Error::new(io::ErrorKind::AddrInUse, text)
}

#[cfg(test)]
mod tests;
