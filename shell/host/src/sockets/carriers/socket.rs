//! Raw sockets: of any protocol, of ICMP with a filter, and ping sockets for who may open no raw
//! one.

use std::io;
use std::mem::size_of_val;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use wire::ping::MARKER;

use super::{Family, TAKEN_V4, TAKEN_V6};
use crate::linux::sys::{self, check};
use crate::sockets::udp::{
    RECEIVE_BUFFER_LEN, SEND_BUFFER_LEN, name_of, set_receive_buffer, set_send_buffer,
};

const ECHO_REPLY: u8 = 0;
const ECHO_REPLY_V6: u8 = 129;
/// The option of raw sockets of ICMP that names types which do not pass (linux/icmp.h), and that of
/// ICMPv6 (linux/icmpv6.h).
const ICMP_FILTER: libc::c_int = 1;
const ICMPV6_FILTER: libc::c_int = 1;

fn open(family: Family, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    let domain = if family == Family::V6 { libc::AF_INET6 } else { libc::AF_INET };
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; the descriptor is ours alone.
    let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(domain, kind, protocol))?) };
    let raw = fd.as_raw_fd();
    match family {
        Family::V4 => {
            sys::set_option(raw, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
            sys::set_option(raw, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
            sys::set_option(raw, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, 0)?;
        }
        Family::V6 => {
            sys::set_option(raw, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
            sys::set_option(raw, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            sys::set_option(raw, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, 0)?;
        }
    }
    set_receive_buffer(raw, RECEIVE_BUFFER_LEN)?;
    set_send_buffer(raw, SEND_BUFFER_LEN)?;
    Ok(fd)
}

/// Marks what leaves by `fd`.
pub(super) fn mark(fd: &OwnedFd, fwmark: u32) -> io::Result<()> {
    sys::set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MARK, fwmark.cast_signed())
}

/// One for packets of a protocol.
pub(super) fn raw(family: Family, protocol: u8) -> io::Result<OwnedFd> {
    open(family, libc::SOCK_RAW, protocol.into())
}

/// One for replies to the identifier `id`, and how to send: with a head of ours, or by a ping
/// socket, which has an identifier of its own.
pub(super) fn requester(family: Family, id: u16) -> io::Result<(OwnedFd, Option<u16>)> {
    let protocol = protocol_of(family);
    match open(family, libc::SOCK_RAW, protocol) {
        Ok(fd) => {
            let kind = if family == Family::V6 { ECHO_REPLY_V6 } else { ECHO_REPLY };
            pass_only(&fd, family, kind)?;
            attach(&fd, family, Word { place: 4, value: id.into(), len: 2 })?;
            Ok((fd, None))
        }
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            let fd = open(family, libc::SOCK_DGRAM, protocol).map_err(|_| {
                io::Error::new(
                    error.kind(),
                    "this needs CAP_NET_RAW, or a group within net.ipv4.ping_group_range",
                )
            })?;
            let own = bind_any(&fd, family)?;
            Ok((fd, Some(own)))
        }
        Err(error) => Err(error),
    }
}

/// One for requests that the packet filter has given another type, so that the kernel does not
/// answer them.
pub(super) fn responder(family: Family, at: IpAddr) -> io::Result<OwnedFd> {
    let fd = open(family, libc::SOCK_RAW, protocol_of(family))?;
    let kind = if family == Family::V6 { TAKEN_V6 } else { TAKEN_V4 };
    pass_only(&fd, family, kind)?;
    let value = u32::from_be_bytes(MARKER);
    attach(&fd, family, Word { place: 8, value, len: 4 })?;
    let (name, len) = name_of(&SocketAddr::new(at, 0));
    // SAFETY: `name` holds `len` valid bytes and outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), len) })?;
    Ok(fd)
}

fn protocol_of(family: Family) -> libc::c_int {
    if family == Family::V6 { libc::IPPROTO_ICMPV6 } else { libc::IPPROTO_ICMP }
}

/// Binds a ping socket to an identifier that the kernel chooses; returns that.
fn bind_any(fd: &OwnedFd, family: Family) -> io::Result<u16> {
    let any: IpAddr = match family {
        Family::V4 => std::net::Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let (name, len) = name_of(&SocketAddr::new(any, 0));
    // SAFETY: `name` holds `len` valid bytes and outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), len) })?;
    crate::sockets::udp::port_of(fd.as_raw_fd())
}

/// Lets one type of ICMP pass to the socket. Types from 32 on pass in IPv4 always: the filter of
/// [`attach`] looks at the rest.
fn pass_only(fd: &OwnedFd, family: Family, kind: u8) -> io::Result<()> {
    match family {
        Family::V4 => {
            let blocked: u32 = if kind < 32 { !(1 << kind) } else { !0 };
            sys::set_option(fd.as_raw_fd(), libc::SOL_RAW, ICMP_FILTER, blocked.cast_signed())
        }
        Family::V6 => {
            let mut blocked = [!0_u32; 8];
            blocked[usize::from(kind / 32)] &= !(1 << (kind % 32));
            // SAFETY: the pointer and the length describe `blocked`, which outlives the call.
            check(unsafe {
                libc::setsockopt(
                    fd.as_raw_fd(),
                    libc::IPPROTO_ICMPV6,
                    ICMPV6_FILTER,
                    blocked.as_ptr().cast(),
                    size_of_val(&blocked) as libc::socklen_t,
                )
            })
            .map(drop)
        }
    }
}

/// What a packet of ours has at a place of its ICMP message.
struct Word {
    place: u32,
    value: u32,
    /// Two or four bytes.
    len: u8,
}

/// Has the kernel hand over only packets with this word. In IPv4 a raw socket's filter sees the
/// header first, in IPv6 it does not.
fn attach(fd: &OwnedFd, family: Family, word: Word) -> io::Result<()> {
    // The classic filter's instructions (linux/filter.h).
    const LOAD_X_HEADER_LEN: u16 = 0xb1; // ldx 4*([k]&0xf)
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let is_v4 = family == Family::V4;
    let load: u16 = match (is_v4, word.len) {
        (true, 2) => 0x48,  // ldh [x + k]
        (true, _) => 0x40,  // ld [x + k]
        (false, 2) => 0x28, // ldh [k]
        (false, _) => 0x20, // ld [k]
    };
    let step = |code: u16, jt: u8, jf: u8, k: u32| libc::sock_filter { code, jt, jf, k };
    let mut program = vec![
        step(load, 0, 0, word.place),
        step(IF_EQUAL, 0, 1, word.value),
        step(RETURN, 0, 0, u32::MAX),
        step(RETURN, 0, 0, 0),
    ];
    if is_v4 {
        program.insert(0, step(LOAD_X_HEADER_LEN, 0, 0, 0));
    }
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: `filter` and the program that it points at outlive the call, which copies them.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of_val(&filter) as libc::socklen_t,
        )
    })
    .map(drop)
}
