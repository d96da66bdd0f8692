//! The kernel's news of links, addresses and routes, reduced to what a node wants to know.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::sys::{check, check_len};

const RTMGRP: [libc::c_int; 5] = [
    libc::RTMGRP_LINK,
    libc::RTMGRP_IPV4_IFADDR,
    libc::RTMGRP_IPV4_ROUTE,
    libc::RTMGRP_IPV6_IFADDR,
    libc::RTMGRP_IPV6_ROUTE,
];

/// What changed since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// An interface came, went, or changed its state or MTU.
    pub links: bool,
    /// An address or a route came or went: another source address may be right now.
    pub routes: bool,
}

/// A netlink socket that hears of changes in the namespace it was opened in.
#[derive(Debug)]
pub struct Monitor {
    fd: OwnedFd,
}

impl Monitor {
    /// Subscribes; needs no privilege.
    ///
    /// # Errors
    /// What `socket(2)` and `bind(2)` say.
    pub fn new() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers; the descriptor is ours alone.
        let fd = unsafe {
            OwnedFd::from_raw_fd(check(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE))?)
        };
        // SAFETY: an all-zero address is valid.
        let mut name: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        name.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        name.nl_groups = RTMGRP.iter().fold(0, |bits, group| bits | group.cast_unsigned());
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: `name` is a whole sockaddr_nl and outlives the call.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), len) })?;
        Ok(Self { fd })
    }

    /// For an event loop.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Reads all that waits. An overflow of the socket counts as a change of everything.
    #[must_use]
    pub fn drain(&self) -> Changed {
        let mut changed = Changed::default();
        let mut buffer = [0_u8; 16 * 1024];
        loop {
            // SAFETY: pointer and length describe `buffer`.
            let got = unsafe {
                libc::recv(self.fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0)
            };
            match check_len(got) {
                Ok(len) => note(&buffer[..len], &mut changed),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    changed = Changed { links: true, routes: true };
                }
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => return changed,
            }
        }
    }
}

/// Walks the messages in `bytes` by their headers: length (4 bytes), type (2 bytes), more.
fn note(mut bytes: &[u8], changed: &mut Changed) {
    while let Some((header, _)) = bytes.split_at_checked(16) {
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        match u16::from_ne_bytes([header[4], header[5]]) {
            libc::RTM_NEWLINK | libc::RTM_DELLINK => changed.links = true,
            libc::RTM_NEWADDR | libc::RTM_DELADDR | libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
                changed.routes = true;
            }
            _ => {}
        }
        let next = len.max(16).next_multiple_of(4);
        bytes = bytes.get(next..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        bytes[..4].copy_from_slice(&u32::try_from(len).expect("short").to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes
    }

    #[test]
    fn every_message_of_a_datagram_is_seen() {
        let mut bytes = message(libc::RTM_NEWLINK, 32);
        bytes.extend(message(libc::RTM_DELROUTE, 28));
        let mut changed = Changed::default();
        note(&bytes, &mut changed);
        assert_eq!(changed, Changed { links: true, routes: true });
    }

    #[test]
    fn lying_lengths_end_the_walk() {
        for len in [0_u32, 3, 15, 4_000_000_000] {
            let mut bytes = message(libc::RTM_NEWADDR, 16);
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            let mut changed = Changed::default();
            note(&bytes, &mut changed);
            assert!(changed.routes);
        }
        note(&[1, 2, 3], &mut Changed::default());
    }
}
