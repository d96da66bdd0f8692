//! The kernel's network configuration, spoken to over rtnetlink: links, addresses, routes and
//! rules, one blocking request at a time.
//!
//! A [`Netlink`] belongs to the network namespace of the thread that opened it. It is for set-up,
//! tear-down and tests, never for the packet path. Every request carries a sequence number and asks
//! for an acknowledgement, so a call returns when the kernel has done it or says why not.

mod address;
mod discipline;
mod link;
mod route;
mod rule;
#[cfg(test)]
pub(crate) mod tests;

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REQUEST, NetlinkBuffer,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

pub use address::Address;
pub use discipline::TokenBucket;
pub use link::Link;
pub use route::{MAIN_TABLE, Route, Way};
pub use rule::Rule;

/// How often a dump that the kernel changed under our hands is begun again.
const DUMP_ATTEMPTS: u32 = 8;

/// A connection to rtnetlink in one network namespace.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// IPv4 or IPv6, where a request must name one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of `address`.
    pub fn of(address: std::net::IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

impl From<Family> for AddressFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::Inet,
            Family::V6 => Self::Inet6,
        }
    }
}

/// A request the kernel refused: what was asked, why not, and how to mend it.
#[derive(Debug)]
pub struct Error {
    what: String,
    cause: io::Error,
}

impl Error {
    fn new(what: impl Into<String>, cause: io::Error) -> Self {
        Self { what: what.into(), cause }
    }

    /// The kernel's errno, if the kernel was reached at all.
    pub fn errno(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }

    fn mend(&self) -> Option<&'static str> {
        Some(match self.errno()? {
            libc::EACCES if crate::own_user() == 0 => {
                "the kernel has this switched off for the interface: is IPv6 disabled \
                 (net.ipv6.conf.*.disable_ipv6)?"
            }
            libc::EPERM | libc::EACCES => crate::advice(
                "this needs CAP_NET_ADMIN in the network namespace: run as root, or \
                 `setcap cap_net_admin+ep` the program",
                "this root lacks CAP_NET_ADMIN in the network namespace: give it to the container \
                 (docker run --cap-add NET_ADMIN)",
            ),
            libc::EEXIST => "it is there already: remove it or leave it out of the configuration",
            libc::ENODEV => "the interface is gone: was it deleted by another program?",
            libc::ENETUNREACH | libc::EHOSTUNREACH => "is the interface up, and its address set?",
            libc::EOPNOTSUPP | libc::EAFNOSUPPORT => {
                "the kernel lacks this: is IPv6 off, or policy routing not built in?"
            }
            libc::EINVAL => "the kernel finds a value out of range for this interface",
            _ => return None,
        })
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot {}: {}", self.what, self.cause)?;
        self.mend().map_or(Ok(()), |mend| write!(f, "; {mend}"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// What a call here gives.
pub type Result<T> = std::result::Result<T, Error>;

impl Netlink {
    /// Connects to the network namespace of the calling thread.
    pub fn open() -> Result<Self> {
        let connect = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok(socket)
        };
        let socket = connect().map_err(|e| Error::new("open a netlink socket", e))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Creates what `message` describes; fails with EEXIST if it is there.
    fn create(&mut self, what: impl Fn() -> String, message: RouteNetlinkMessage) -> Result<()> {
        self.acknowledged(NLM_F_CREATE | NLM_F_EXCL, message).map_err(|e| Error::new(what(), e))
    }

    /// Asks for `message` and nothing else.
    fn change(&mut self, what: impl Fn() -> String, message: RouteNetlinkMessage) -> Result<()> {
        self.acknowledged(0, message).map_err(|e| Error::new(what(), e))
    }

    /// Every answer to `message`, or the one answer when `flags` has no NLM_F_DUMP.
    fn query(
        &mut self,
        what: &str,
        dump: bool,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        let flags = if dump { NLM_F_DUMP } else { NLM_F_ACK };
        for _ in 0..DUMP_ATTEMPTS {
            match self.exchange(flags, message.clone()) {
                Ok((answers, false)) => return Ok(answers),
                Ok((_, true)) => {}
                Err(e) => return Err(Error::new(what, e)),
            }
        }
        let why = "the configuration kept changing while it was being read";
        Err(Error::new(what, io::Error::new(io::ErrorKind::WouldBlock, why)))
    }

    fn acknowledged(&mut self, flags: u16, message: RouteNetlinkMessage) -> io::Result<()> {
        self.exchange(flags | NLM_F_ACK, message).map(drop)
    }

    /// Sends one request and reads until it is done: the answers, and whether a dump was
    /// interrupted by a change. Answers this code cannot decode are left out.
    fn exchange(
        &mut self,
        flags: u16,
        message: RouteNetlinkMessage,
    ) -> io::Result<(Vec<RouteNetlinkMessage>, bool)> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags | NLM_F_REQUEST;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut answers = Vec::new();
        let mut interrupted = false;
        loop {
            let (received, from) = self.socket.recv_from_full()?;
            if from.port_number() != 0 {
                continue; // only the kernel is port 0
            }
            let mut rest = &received[..];
            while !rest.is_empty() {
                let frame = NetlinkBuffer::new_checked(rest).map_err(invalid)?;
                let length = (frame.length() as usize).next_multiple_of(4).min(rest.len());
                let (this, after) = rest.split_at(length);
                rest = after;
                if frame.sequence_number() != self.sequence {
                    continue;
                }
                interrupted |= frame.flags() & NLM_F_DUMP_INTR != 0;
                match NetlinkMessage::<RouteNetlinkMessage>::deserialize(this) {
                    Ok(NetlinkMessage { payload: NetlinkPayload::InnerMessage(m), .. }) => {
                        answers.push(m);
                    }
                    Ok(NetlinkMessage { payload: NetlinkPayload::Error(e), .. }) => {
                        return e.code.map_or(Ok((answers, interrupted)), |_| Err(e.to_io()));
                    }
                    Ok(NetlinkMessage { payload: NetlinkPayload::Done(_), .. }) => {
                        return Ok((answers, interrupted));
                    }
                    Ok(_) | Err(_) => {}
                }
            }
        }
    }
}

fn invalid(e: netlink_packet_core::DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e.to_string())
}
