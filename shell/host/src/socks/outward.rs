//! Sockets of this machine that speak as a circuit: bound to its address and to our link, so that
//! nothing they send takes another way, to this machine itself included.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use dns::{Name, Said};
use noise::Random;

use super::Way;
use crate::KernelRandom;
use crate::linux::sys::{bind_link, check};
use crate::sockets::udp::name_of;

/// How long a connection may take to be made: the kernel tries three times in that.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long a name server has for an answer, and how often it is asked.
const NAME_WITHIN: Duration = Duration::from_millis(1500);
const NAME_TRIES: usize = 3;
const NAME_PORT: u16 = 53;
/// Bytes of an answer over a datagram, at most.
const ANSWER_LEN_MAX: usize = 1500;
/// Datagrams that are looked at while one is waited for.
const ANSWERS_MAX: usize = 16;

/// A connection to `to` through the circuit.
pub(super) fn connect(way: &Way, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no pointers; the descriptor is ours alone.
    let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(family, kind, 0))?) };
    bind_link(fd.as_raw_fd(), &way.link)?;
    let (own, own_len) = name_of(&SocketAddr::new(way.own(to.is_ipv6()), 0));
    let (to, to_len) = name_of(&to);
    // SAFETY: the pointer and the length describe `own`, which outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const own).cast(), own_len) })?;
    let stream = TcpStream::from(fd);
    // The kernel bounds a connect by it as well.
    stream.set_write_timeout(Some(CONNECT_WITHIN))?;
    // SAFETY: the pointer and the length describe `to`, which outlives the call.
    check(unsafe { libc::connect(stream.as_raw_fd(), (&raw const to).cast(), to_len) })?;
    stream.set_write_timeout(None)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A socket for datagrams through the circuit.
pub(super) fn datagrams(way: &Way, is_six: bool) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((way.own(is_six), 0))?;
    bind_link(socket.as_raw_fd(), &way.link)?;
    Ok(socket)
}

/// The addresses of a name, asked at the exit; none if nobody has said any. Those of IPv6 are asked
/// for where there are none of IPv4.
pub(super) fn resolve(way: &Way, names: Ipv4Addr, text: &str) -> io::Result<Vec<IpAddr>> {
    let name = Name::from_text(text).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let found = resolve_as(way, names, &name, false)?;
    if found.is_empty() && way.leads_six { resolve_as(way, names, &name, true) } else { Ok(found) }
}

fn resolve_as(way: &Way, names: Ipv4Addr, name: &Name, is_six: bool) -> io::Result<Vec<IpAddr>> {
    let socket = datagrams(way, false)?;
    socket.set_read_timeout(Some(NAME_WITHIN))?;
    socket.connect((names, NAME_PORT))?;
    let mut id = [0; 2];
    KernelRandom.fill(&mut id);
    let (query, sent) = dns::question(name, is_six, u16::from_be_bytes(id));
    let mut answer = [0; ANSWER_LEN_MAX];
    for _ in 0..NAME_TRIES {
        socket.send(&sent)?;
        for _ in 0..ANSWERS_MAX {
            let Ok(len) = socket.recv(&mut answer) else { break };
            match dns::said(&query, &sent, &answer[..len]) {
                Said::Addresses(found) => return Ok(found),
                Said::Truncated => return resolve_whole(way, names, &query, &sent),
                Said::Failed(_) => return Ok(Vec::new()),
                Said::Foreign => {}
            }
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn resolve_whole(
    way: &Way,
    names: Ipv4Addr,
    query: &dns::Query,
    sent: &[u8],
) -> io::Result<Vec<IpAddr>> {
    let mut stream = connect(way, SocketAddr::new(names.into(), NAME_PORT))?;
    let answer = crate::names::ask_whole(&mut stream, sent)?;
    Ok(match dns::said(query, sent, &answer) {
        Said::Addresses(found) => found,
        _ => Vec::new(),
    })
}
