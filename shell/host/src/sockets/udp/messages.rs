//! The C structures of `sendmmsg(2)` and `recvmmsg(2)`: names, control data, and what they mean.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

use link::Source;

use super::{MESSAGES_MAX, SOL_UDP, UDP_GRO, UDP_SEGMENT};
use crate::linux::sys::check;
use crate::sockets::batch::Run;

/// Bytes of control data a message: a segment size, a source address, a traffic class and a time,
/// aligned.
pub(super) const CONTROL_LEN: usize = 128;
/// Congestion met, in the low two bits of the traffic class.
const CE: u8 = 3;

/// Control data needs the alignment of its header.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control(pub(super) [u8; CONTROL_LEN]);

/// Outgoing messages, built in place and reused: nothing is cleared or allocated a batch.
pub(crate) struct Messages {
    headers: Vec<libc::mmsghdr>,
    names: Vec<libc::sockaddr_storage>,
    pieces: Vec<libc::iovec>,
    controls: Vec<Control>,
    count: usize,
}

// SAFETY: the pointers in `headers` and `pieces` are written by `push` and read by `send`
// only, between which the borrow of their targets and of `self` lasts; a sent or cleared
// batch leaves them dangling and unread.
unsafe impl Send for Messages {}

impl std::fmt::Debug for Messages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Messages").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Messages {
    pub(crate) fn new() -> Self {
        // SAFETY: all-zero bytes are valid for these C structures.
        let (name, header) = unsafe { (zeroed(), zeroed()) };
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            headers: vec![header; MESSAGES_MAX],
            names: vec![name; MESSAGES_MAX],
            pieces: vec![empty; MESSAGES_MAX],
            controls: vec![Control([0; CONTROL_LEN]); MESSAGES_MAX],
            count: 0,
        }
    }

    /// Sends `messages` (at most [`MESSAGES_MAX`]): each a run for its destination, its bytes,
    /// and whether the kernel shall cut them by the run's segment size. Returns how many the
    /// kernel took, at least one.
    pub(crate) fn send<'a>(
        &mut self,
        fd: &OwnedFd,
        messages: impl Iterator<Item = (&'a Run, &'a [u8], bool)>,
    ) -> io::Result<usize> {
        self.count = 0;
        for (run, bytes, cut) in messages.take(MESSAGES_MAX) {
            self.push(run, bytes, cut);
        }
        loop {
            // SAFETY: `push` pointed the first `count` headers at `self`'s vectors, which do not
            // move, and at the bytes that the iterator lent for `'a`.
            let sent = unsafe {
                libc::sendmmsg(
                    fd.as_raw_fd(),
                    self.headers.as_mut_ptr(),
                    libc::c_uint::try_from(self.count).unwrap_or(1),
                    libc::MSG_DONTWAIT as _,
                )
            };
            match check(sent) {
                Ok(sent) => return Ok(usize::try_from(sent).unwrap_or(1).max(1)),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn push(&mut self, run: &Run, bytes: &[u8], cut: bool) {
        let i = self.count;
        let endpoint = run.to;
        let (name, name_len) = name_of(&endpoint.remote);
        self.names[i] = name;
        self.pieces[i] =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let segment = if cut { u16::try_from(run.segment).ok() } else { None };
        let control_len = write_control(&mut self.controls[i], segment, endpoint.source);
        let header = &mut self.headers[i].msg_hdr;
        header.msg_name = (&raw mut self.names[i]).cast();
        header.msg_namelen = name_len;
        header.msg_iov = &raw mut self.pieces[i];
        header.msg_iovlen = 1;
        header.msg_control = match control_len {
            0 => std::ptr::null_mut(),
            _ => self.controls[i].0.as_mut_ptr().cast(),
        };
        header.msg_controllen = control_len as _;
        header.msg_flags = 0;
        self.count += 1;
    }
}

const fn align(len: usize) -> usize {
    (len + size_of::<usize>() - 1) & !(size_of::<usize>() - 1)
}

const HEADER_LEN: usize = align(size_of::<libc::cmsghdr>());

/// Appends one control message at `at`; returns where the next one starts.
fn append(control: &mut Control, at: usize, level: i32, kind: i32, data: &[u8]) -> usize {
    // SAFETY: an all-zero header is valid.
    let mut header: libc::cmsghdr = unsafe { zeroed() };
    header.cmsg_len = (HEADER_LEN + data.len()) as _;
    header.cmsg_level = level;
    header.cmsg_type = kind;
    let next = at + HEADER_LEN + align(data.len());
    assert!(next <= CONTROL_LEN, "control data has room for both messages");
    // SAFETY: `at` is aligned by `align`, the buffer by its type, and `next` is in bounds.
    unsafe { control.0.as_mut_ptr().add(at).cast::<libc::cmsghdr>().write(header) };
    control.0[at + HEADER_LEN..at + HEADER_LEN + data.len()].copy_from_slice(data);
    next
}

/// The bytes of a C structure without padding.
fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: the callers' types (in_pktinfo, in6_pktinfo) have no padding bytes.
    unsafe { std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }
}

fn write_control(control: &mut Control, segment: Option<u16>, source: Option<Source>) -> usize {
    let mut at = 0;
    if let Some(size) = segment {
        at = append(control, at, SOL_UDP, UDP_SEGMENT, &size.to_ne_bytes());
    }
    // The interface is left to the routing table: a source is sticky, a route is not.
    match source.map(|source| source.address) {
        Some(IpAddr::V4(address)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            append(control, at, libc::IPPROTO_IP, libc::IP_PKTINFO, bytes_of(&info))
        }
        Some(IpAddr::V6(address)) => {
            let scoped = address.is_unicast_link_local();
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: address.octets() },
                ipi6_ifindex: match source {
                    Some(source) if scoped => source.interface as _,
                    _ => 0,
                },
            };
            append(control, at, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, bytes_of(&info))
        }
        None => at,
    }
}

/// What the kernel told with a message.
#[derive(Default)]
pub(super) struct Told {
    /// Our address.
    pub(super) source: Option<Source>,
    /// The size of coalesced datagrams.
    pub(super) segment: Option<usize>,
    /// The ECN field of the header is "congestion met"; the kernel joins none that differ in it.
    pub(super) congested: bool,
    /// When it came, by the wall clock, ns.
    pub(super) came_ns: Option<u64>,
}

/// Reads what the kernel told with a message.
pub(super) fn read_control(header: &libc::msghdr) -> Told {
    let mut told = Told::default();
    // SAFETY: the kernel filled `msg_control` up to `msg_controllen`; CMSG_FIRSTHDR and
    // CMSG_NXTHDR stay inside it, and each datum is read unaligned at its own type's size.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = next.as_ref() {
            let data = libc::CMSG_DATA(next);
            match (message.cmsg_level, message.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    let address = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
                    let interface = u32::try_from(info.ipi_ifindex).unwrap_or(0);
                    told.source = Some(Source { address: IpAddr::V4(address), interface });
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                    let interface = info.ipi6_ifindex as u32;
                    told.source = Some(Source { address: IpAddr::V6(address), interface });
                }
                (SOL_UDP, UDP_GRO) => {
                    let size = data.cast::<libc::c_int>().read_unaligned();
                    told.segment = usize::try_from(size).ok();
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
                    told.came_ns = Some(seconds.saturating_mul(1_000_000_000) + nanos);
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => told.congested = *data & 3 == CE,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    let class = data.cast::<libc::c_int>().read_unaligned();
                    told.congested = class & 3 == libc::c_int::from(CE);
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    told
}

/// A socket address as the kernel wants it.
pub(crate) fn name_of(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: a zeroed sockaddr_storage is valid, and large and aligned enough for both families.
    unsafe {
        let mut name: libc::sockaddr_storage = zeroed();
        let len = match address {
            SocketAddr::V4(address) => {
                (&raw mut name).cast::<libc::sockaddr_in>().write(libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                });
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(address) => {
                (&raw mut name).cast::<libc::sockaddr_in6>().write(libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                });
                size_of::<libc::sockaddr_in6>()
            }
        };
        (name, len as libc::socklen_t)
    }
}

/// The address in `name`, for the two families we bind.
pub(super) fn address_of(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that this is a sockaddr_in.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::V4(SocketAddrV4::new(address, u16::from_be(name.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that this is a sockaddr_in6.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            let address = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddr::V6(SocketAddrV6::new(address, port, 0, name.sin6_scope_id)))
        }
        _ => None,
    }
}
