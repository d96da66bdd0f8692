//! UDP ASSOCIATE: a client's datagrams through its circuit, as long as its connection stands.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::words::{self, HEAD_LEN_MAX, Host};
use super::{Way, is_open, outward};
use crate::linux::sys::{Interest, Poll};

/// Bytes of a datagram, at most: more than a circuit carries at once.
const DATAGRAM_LEN_MAX: usize = 2048;
/// Names whose addresses are remembered, of one association.
const NAMES_MAX: usize = 64;
/// Datagrams that are taken in one go of each side.
const BATCH: usize = 64;
const LOOK: Duration = Duration::from_secs(1);

/// One client's datagrams.
pub(super) struct Association {
    way: Way,
    names: Ipv4Addr,
    near: UdpSocket,
    /// Of IPv4, and of IPv6 where the circuit leads there.
    far: Vec<UdpSocket>,
    /// Where the client is: its address, and its port once that is known.
    client: SocketAddr,
    known: BTreeMap<String, IpAddr>,
}

impl Association {
    /// For the client at the other end of a connection, which may have said its port.
    pub(super) fn new(way: Way, names: Ipv4Addr, door: (&TcpStream, u16)) -> io::Result<Self> {
        let (control, port) = door;
        let near = UdpSocket::bind((control.local_addr()?.ip(), 0))?;
        let mut far = vec![outward::datagrams(&way, false)?];
        if way.leads_six {
            // A machine without IPv6 has none to give.
            far.extend(outward::datagrams(&way, true));
        }
        near.set_nonblocking(true)?;
        far.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
        let client = SocketAddr::new(control.peer_addr()?.ip(), port);
        Ok(Self { way, names, near, far, client, known: BTreeMap::new() })
    }

    /// Where the client sends to.
    pub(super) fn at(&self) -> io::Result<SocketAddr> {
        self.near.local_addr()
    }

    /// Carries until the connection ends, or `is_ended`.
    pub(super) fn serve(
        mut self,
        control: &TcpStream,
        is_ended: impl Fn() -> bool,
    ) -> io::Result<()> {
        control.set_nonblocking(true)?;
        let poll = Poll::new()?;
        let near = [control.as_raw_fd(), self.near.as_raw_fd()];
        for fd in near.into_iter().chain(self.far.iter().map(UdpSocket::as_raw_fd)) {
            poll.watch(fd, Interest::READ)?;
        }
        let mut ready = Vec::new();
        while !is_ended() {
            poll.wait(Some(LOOK), &mut ready)?;
            let mut said = [0; 64];
            match { control }.read(&mut said) {
                Ok(0) => return Ok(()),
                Err(e) if !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Err(e);
                }
                _ => {}
            }
            for _ in 0..BATCH {
                if !self.carry_out() && !self.carry_back() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// One datagram of the client's; whether there was one.
    fn carry_out(&mut self) -> bool {
        let mut bytes = [0; DATAGRAM_LEN_MAX];
        let Ok((len, from)) = self.near.recv_from(&mut bytes) else { return false };
        let is_client = from.ip() == self.client.ip()
            && (self.client.port() == 0 || from.port() == self.client.port());
        if !is_client {
            return true;
        }
        self.client = from;
        if let Some((host, port, start)) = words::datagram(&bytes[..len])
            && let Some(to) = self.address(host).filter(|to| is_open(*to))
            && let Some(far) = self.far.get(usize::from(to.is_ipv6()))
        {
            // What the kernel has no room for is lost, as datagrams are.
            let _ = far.send_to(&bytes[start..len], (to, port));
        }
        true
    }

    /// One that came for it.
    fn carry_back(&self) -> bool {
        let mut bytes = [0; DATAGRAM_LEN_MAX + HEAD_LEN_MAX];
        let came = self.far.iter().find_map(|far| far.recv_from(&mut bytes).ok());
        let Some((len, from)) = came else { return false };
        if self.client.port() != 0 {
            let mut datagram = words::head(from);
            datagram.extend_from_slice(&bytes[..len]);
            let _ = self.near.send_to(&datagram, self.client);
        }
        true
    }

    fn address(&mut self, host: Host) -> Option<IpAddr> {
        let name = match host {
            Host::Address(address) => return Some(address),
            Host::Name(name) => name,
        };
        if let Some(known) = self.known.get(&name) {
            return Some(*known);
        }
        let found = *outward::resolve(&self.way, self.names, &name).ok()?.first()?;
        if self.known.len() >= NAMES_MAX {
            self.known.clear();
        }
        self.known.insert(name, found);
        Some(found)
    }
}
