//! One ICMP echo and its answer, for `warren ping`: with a raw socket where that is allowed, else
//! with the kernel's own for pings (`net.ipv4.ping_group_range`).

use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use wire::checksum::Sum;
use wire::icmp::{Icmp, Icmp6};

use crate::linux::sys::{check, check_len};
use crate::sockets::udp;

const HEADER_LEN: usize = 8;
/// Bytes that an echo may carry.
pub const PAYLOAD_LEN_MAX: usize = 65_000;

/// A socket for echoes to one address.
#[derive(Debug)]
pub struct Echo {
    fd: OwnedFd,
    to: IpAddr,
    /// The kernel fills in the identifier of its own sockets.
    is_raw: bool,
    id: u16,
}

impl Echo {
    /// A socket for echoes to `to`.
    ///
    /// # Errors
    /// Neither kind of socket is allowed to this user.
    pub fn new(to: IpAddr) -> io::Result<Self> {
        let (family, protocol) = match to {
            IpAddr::V4(_) => (libc::AF_INET, libc::IPPROTO_ICMP),
            IpAddr::V6(_) => (libc::AF_INET6, libc::IPPROTO_ICMPV6),
        };
        let open = |kind| {
            // SAFETY: no pointers; the descriptor is ours alone.
            unsafe {
                check(libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol))
                    .map(|fd| OwnedFd::from_raw_fd(fd))
            }
        };
        let (fd, is_raw) = match open(libc::SOCK_RAW) {
            Ok(fd) => (fd, true),
            Err(_) => (open(libc::SOCK_DGRAM)?, false),
        };
        let (name, len) = udp::name_of(&(to, 0).into());
        // SAFETY: `name` holds `len` valid bytes and outlives the call.
        check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const name).cast(), len) })?;
        let id = (std::process::id() & 0xffff) as u16;
        Ok(Self { fd, to, is_raw, id })
    }

    /// Sends one echo with `payload_len` bytes and waits for its answer; the time it took, or
    /// `None` if there was none in time.
    ///
    /// # Errors
    /// What `send(2)` says: the interface is down, or the packet is too long.
    pub fn ask(
        &self,
        sequence: u16,
        payload_len: usize,
        within: Duration,
    ) -> io::Result<Option<Duration>> {
        let mut packet = vec![0; HEADER_LEN + payload_len.min(PAYLOAD_LEN_MAX)];
        packet[0] = if self.to.is_ipv4() { Icmp::ECHO_REQUEST } else { Icmp6::ECHO_REQUEST };
        packet[4..6].copy_from_slice(&self.id.to_be_bytes());
        packet[6..8].copy_from_slice(&sequence.to_be_bytes());
        if self.to.is_ipv4() {
            // For IPv6 the kernel does it, which knows our address.
            let sum = Sum::of(&packet).checksum();
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        let begin = Instant::now();
        // SAFETY: pointer and length describe `packet`.
        let sent =
            unsafe { libc::send(self.fd.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0) };
        check_len(sent)?;
        let mut answer = vec![0; packet.len() + 128];
        loop {
            let left = within.saturating_sub(begin.elapsed());
            if left.is_zero() || !self.wait(left)? {
                return Ok(None);
            }
            // SAFETY: pointer and length describe `answer`.
            let got = unsafe {
                let memory = answer.as_mut_ptr().cast();
                libc::recv(self.fd.as_raw_fd(), memory, answer.len(), libc::MSG_DONTWAIT)
            };
            match check_len(got) {
                Ok(len) if self.answers(&answer[..len], sequence) => {
                    return Ok(Some(begin.elapsed()));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // An ICMP error to our echo: nobody answers, and the next may fare better.
                Err(error) if error.kind() == io::ErrorKind::HostUnreachable => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn wait(&self, within: Duration) -> io::Result<bool> {
        let mut poll = MaybeUninit::new(libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let milliseconds = libc::c_int::try_from(within.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the pointer describes one whole pollfd, which outlives the call.
        match check(unsafe { libc::poll(poll.as_mut_ptr(), 1, milliseconds.max(1)) }) {
            Ok(count) => Ok(count > 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn answers(&self, answer: &[u8], sequence: u16) -> bool {
        let header = match (self.to, self.is_raw) {
            // A raw IPv4 socket gives the IP header, too.
            (IpAddr::V4(_), true) => answer.first().map_or(0, |byte| usize::from(byte & 15) * 4),
            _ => 0,
        };
        let Some(answer) = answer.get(header..).filter(|answer| answer.len() >= HEADER_LEN) else {
            return false;
        };
        let kind = if self.to.is_ipv4() { Icmp::ECHO_REPLY } else { Icmp6::ECHO_REPLY };
        let is_ours = !self.is_raw || answer[4..6] == self.id.to_be_bytes();
        answer[0] == kind && is_ours && answer[6..8] == sequence.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_machine_answers_in_both_families() {
        for to in ["127.0.0.1", "::1"] {
            let echo = Echo::new(to.parse().unwrap()).expect("root may");
            for sequence in 0..3 {
                let took = echo.ask(sequence, 100, Duration::from_secs(5)).expect("it is sent");
                assert!(took.is_some(), "{to} {sequence}");
            }
        }
    }
}
