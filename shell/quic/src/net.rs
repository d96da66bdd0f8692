//! What carries a connection's datagrams: a UDP socket, or echoes of ICMP.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use ping::Asker;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};

/// What the socket did not take yet; it lies in the connection's memory.
pub(crate) struct Waiting {
    pub(crate) len: usize,
    segment: Option<usize>,
    ecn: Option<EcnCodepoint>,
}

impl Waiting {
    pub(crate) fn new(next: &quinn_proto::Transmit) -> Self {
        let ecn = next.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
        Self { len: next.size, segment: next.segment_size, ecn }
    }
}

/// The socket.
#[derive(Debug)]
pub(crate) enum Net {
    Udp { socket: UdpSocket, io: UdpSocketState, remote: SocketAddr },
    Ping(Box<Asker>),
}

impl Net {
    /// A socket that is connected to the other end.
    pub(crate) fn udp(socket: UdpSocket) -> io::Result<Self> {
        let remote = socket.peer_addr()?;
        // It lets nothing be fragmented, so that what fits can be found out.
        let io = UdpSocketState::new((&socket).into())?;
        Ok(Self::Udp { socket, io, remote })
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        match self {
            Self::Udp { remote, .. } => *remote,
            Self::Ping(asker) => asker.remote(),
        }
    }

    pub(crate) fn may_fragment(&self) -> bool {
        match self {
            Self::Udp { io, .. } => io.may_fragment(),
            Self::Ping(asker) => asker.may_fragment(),
        }
    }

    pub(crate) fn segments_max(&self) -> usize {
        match self {
            Self::Udp { io, .. } => io.max_gso_segments(),
            Self::Ping(_) => 1,
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8], waiting: &Waiting, now: Instant) -> io::Result<()> {
        match self {
            Self::Udp { socket, io, remote } => {
                let transmit = Transmit {
                    destination: *remote,
                    ecn: waiting.ecn,
                    contents: bytes,
                    segment_size: waiting.segment,
                    src_ip: None,
                };
                io.try_send((&*socket).into(), &transmit)
            }
            Self::Ping(asker) => asker.send(bytes, now),
        }
    }

    /// Reads once, and gives each datagram to `take`. Whether something came.
    pub(crate) fn read(
        &mut self,
        scratch: &mut [u8],
        now: Instant,
        mut take: impl FnMut(BytesMut, Option<quinn_proto::EcnCodepoint>),
    ) -> io::Result<bool> {
        let (socket, io) = match self {
            Self::Udp { socket, io, .. } => (socket, io),
            Self::Ping(asker) => return asker.read(now, |one| take(BytesMut::from(one), None)),
        };
        let mut metas = [RecvMeta::default()];
        let mut buffers = [IoSliceMut::new(scratch)];
        if io.recv((&*socket).into(), &mut buffers, &mut metas)? == 0 {
            return Ok(false);
        }
        let [meta] = metas;
        let mut data = BytesMut::from(&scratch[..meta.len.min(scratch.len())]);
        while !data.is_empty() {
            let one = data.split_to(meta.stride.clamp(1, data.len()));
            take(one, meta.ecn.and_then(|ecn| quinn_proto::EcnCodepoint::from_bits(ecn as u8)));
        }
        Ok(true)
    }

    /// Has the next read wait for so long, or none.
    pub(crate) fn block(&mut self, within: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Udp { socket, .. } => {
                socket.set_nonblocking(within.is_none())?;
                socket.set_read_timeout(within)
            }
            Self::Ping(asker) => asker.block(within),
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Udp { .. } => None,
            Self::Ping(asker) => asker.poll_timeout(),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Self::Ping(asker) = self {
            asker.handle_timeout(now);
        }
    }
}

impl AsRawFd for Net {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Udp { socket, .. } => socket.as_raw_fd(),
            Self::Ping(asker) => asker.as_raw_fd(),
        }
    }
}
