//! A socket of ICMP with a filter, and what stands around a datagram in its messages.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use carrier::icmp::Echo;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use wire::checksum::Sum;
use wire::ping::{HEAD_LEN, ICMP_LEN, MARKER};

/// The types that requests of ours get at the input, which are for experiments (RFC 4727).
pub(crate) const TAKEN_V4: u8 = 253;
/// See [`TAKEN_V4`] (RFC 4443).
pub(crate) const TAKEN_V6: u8 = 200;
const ECHO: [u8; 2] = [8, 128];
const REPLY: [u8; 2] = [0, 129];
/// What the kernel holds in each direction, in bytes: 30 ms at 1 Gbit/s. It may give less.
const KERNEL_LEN: usize = 4 * 1024 * 1024;
/// Bytes of one message with its heads; nothing larger is sent.
const MESSAGE_LEN: usize = 2048;

/// What a message of ICMP says beside its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) from: IpAddr,
    /// The address of ours to which it was sent, if the kernel says so.
    pub(crate) to: Option<IpAddr>,
    pub(crate) id: u16,
    pub(crate) sequence: u16,
}

/// A socket, and memory for a batch of messages.
pub(crate) struct Port {
    socket: Socket,
    io: UdpSocketState,
    is_v6: bool,
    /// The kernel hands over an IP header.
    has_head: bool,
    /// The type that comes.
    kind: u8,
    memory: Vec<u8>,
    out: Vec<u8>,
}

impl Port {
    /// For replies to the identifier `id`, and the identifier that there is: a ping socket has its
    /// own.
    ///
    /// # Errors
    /// The kernel's; what is missing.
    pub(crate) fn asking(to: IpAddr, id: u16, mark: Option<u32>) -> io::Result<(Self, u16)> {
        let kind = REPLY[usize::from(to.is_ipv6())];
        let (this, id) = match open(to.is_ipv6(), Type::RAW) {
            Ok(socket) => {
                filter(&socket, to.is_ipv6(), kind, Word::Id(id))?;
                (Self::new(socket, to.is_ipv6(), to.is_ipv4(), kind)?, id)
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let socket = open(to.is_ipv6(), Type::DGRAM).map_err(|_| {
                    let why = "a ping needs CAP_NET_RAW, or a group within \
                               net.ipv4.ping_group_range";
                    io::Error::new(error.kind(), why)
                })?;
                let any: IpAddr = match to {
                    IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                socket.bind(&SocketAddr::new(any, 0).into())?;
                let own = socket.local_addr()?.as_socket().map_or(0, |own| own.port());
                (Self::new(socket, to.is_ipv6(), false, kind)?, own)
            }
            Err(error) => return Err(error),
        };
        if let Some(mark) = mark {
            this.socket.set_mark(mark)?;
        }
        Ok((this, id))
    }

    /// For requests to `at` that a [`Rule`](crate::Rule) gave another type.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn answering(at: IpAddr) -> io::Result<Self> {
        let socket = open(at.is_ipv6(), Type::RAW)?;
        let kind = if at.is_ipv6() { TAKEN_V6 } else { TAKEN_V4 };
        filter(&socket, at.is_ipv6(), kind, Word::Marker)?;
        socket.bind(&SocketAddr::new(at, 0).into())?;
        Self::new(socket, at.is_ipv6(), at.is_ipv4(), kind)
    }

    fn new(socket: Socket, is_v6: bool, has_head: bool, kind: u8) -> io::Result<Self> {
        let _ = socket.set_recv_buffer_size(KERNEL_LEN);
        let _ = socket.set_send_buffer_size(KERNEL_LEN);
        // It lets nothing be fragmented, so that what fits can be found out.
        let io = UdpSocketState::new((&socket).into())?;
        let memory = vec![0; MESSAGE_LEN * BATCH_SIZE];
        Ok(Self { socket, io, is_v6, has_head, kind, memory, out: Vec::new() })
    }

    pub(crate) const fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn may_fragment(&self) -> bool {
        self.io.may_fragment()
    }

    /// Reads at most `count` messages, and gives each to `take` with its payload; how many came.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` where nothing waits.
    pub(crate) fn read(
        &mut self,
        count: usize,
        mut take: impl FnMut(Message, &[u8]),
    ) -> io::Result<usize> {
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let count = count.clamp(1, BATCH_SIZE);
        let slices = self.memory.chunks_mut(MESSAGE_LEN).take(count);
        let mut buffers: Vec<IoSliceMut<'_>> = slices.map(IoSliceMut::new).collect();
        let came = self.io.recv((&self.socket).into(), &mut buffers, &mut metas)?;
        let messages = self.memory.chunks(MESSAGE_LEN).zip(&metas).take(came);
        for (bytes, meta) in messages {
            let bytes = &bytes[..meta.len.min(MESSAGE_LEN)];
            if let Some((message, at)) = self.message(bytes, meta) {
                take(message, &bytes[at]);
            }
        }
        Ok(came)
    }

    fn message(&self, bytes: &[u8], meta: &RecvMeta) -> Option<(Message, Range<usize>)> {
        let head = if self.has_head { v4_head(bytes)? } else { 0 };
        let icmp = bytes.get(head..).filter(|icmp| icmp.len() >= ICMP_LEN)?;
        if icmp[0] != self.kind || icmp[1] != 0 {
            return None;
        }
        let word = |at: usize| u16::from_be_bytes([icmp[at], icmp[at + 1]]);
        let from = meta.addr.ip().to_canonical();
        let message = Message { from, to: meta.dst_ip, id: word(4), sequence: word(6) };
        Some((message, head + ICMP_LEN..bytes.len()))
    }

    /// Sends one message; what the kernel has no room for is lost, as in a network.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn send(
        &mut self,
        to: IpAddr,
        id: u16,
        from: Option<IpAddr>,
        echo: &Echo,
        datagram: &[u8],
    ) -> io::Result<()> {
        let is_reply = self.kind != REPLY[usize::from(self.is_v6)];
        let kind = if is_reply { REPLY } else { ECHO }[usize::from(self.is_v6)];
        self.out.clear();
        self.out.extend_from_slice(&[kind, 0, 0, 0]);
        self.out.extend_from_slice(&id.to_be_bytes());
        self.out.extend_from_slice(&echo.sequence.to_be_bytes());
        self.out.extend_from_slice(&echo.head);
        self.out.extend_from_slice(datagram);
        if datagram.is_empty() {
            self.out.resize(ICMP_LEN + HEAD_LEN + usize::from(echo.padding), 0);
        }
        // The checksum of ICMPv6 is the kernel's to fill in.
        let sum = Sum::of(&self.out).checksum();
        self.out[2..4].copy_from_slice(&sum.to_be_bytes());
        let transmit = Transmit {
            destination: SocketAddr::new(to, 0),
            ecn: None,
            contents: &self.out,
            segment_size: None,
            src_ip: from,
        };
        self.io.try_send((&self.socket).into(), &transmit)
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("socket", &self.socket).finish_non_exhaustive()
    }
}

fn open(is_v6: bool, kind: Type) -> io::Result<Socket> {
    let (domain, protocol) = match is_v6 {
        false => (Domain::IPV4, Protocol::ICMPV4),
        true => (Domain::IPV6, Protocol::ICMPV6),
    };
    Socket::new(domain, kind, Some(protocol))
}

/// Bytes of the IPv4 header that a message begins with.
fn v4_head(bytes: &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    let len = usize::from(first & 15) * 4;
    (first >> 4 == 4 && len >= 20 && len <= bytes.len()).then_some(len)
}

/// What a message of ours has behind its type.
enum Word {
    Id(u16),
    Marker,
}

/// Has the kernel hand over only messages of this type with this word. In IPv4 a raw socket's
/// filter sees the header first, in IPv6 it does not.
fn filter(socket: &Socket, is_v6: bool, kind: u8, word: Word) -> io::Result<()> {
    // The classic filter's instructions (linux/filter.h).
    const LOAD_X_HEADER_LEN: u16 = 0xb1; // ldx 4*([k]&0xf)
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    // [ldb, ldh, ld] of [x + k] and of [k].
    let [byte, half, full] = if is_v6 { [0x30, 0x28, 0x20] } else { [0x50, 0x48, 0x40] };
    let (load, place, value) = match word {
        Word::Id(id) => (half, 4, u32::from(id)),
        Word::Marker => (full, 8, u32::from_be_bytes(MARKER)),
    };
    let mut program = Vec::with_capacity(7);
    if !is_v6 {
        program.push(SockFilter::new(LOAD_X_HEADER_LEN, 0, 0, 0));
    }
    program.extend([
        SockFilter::new(byte, 0, 0, 0),
        SockFilter::new(IF_EQUAL, 0, 3, kind.into()),
        SockFilter::new(load, 0, 0, place),
        SockFilter::new(IF_EQUAL, 0, 1, value),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]);
    socket.attach_filter(&program)
}
