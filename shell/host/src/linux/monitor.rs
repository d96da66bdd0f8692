//! The kernel's news of links, addresses and routes, reduced to what a node wants to know.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::linux::sys::{check, check_len};

const RTMGRP: [libc::c_int; 5] = [
    libc::RTMGRP_LINK,
    libc::RTMGRP_IPV4_IFADDR,
    libc::RTMGRP_IPV4_ROUTE,
    libc::RTMGRP_IPV6_IFADDR,
    libc::RTMGRP_IPV6_ROUTE,
];

/// Routing rules, and whether interfaces forward: groups by number (RTNLGRP_*).
const STIRRED: [u32; 4] = [
    8,  // RTNLGRP_IPV4_RULE
    19, // RTNLGRP_IPV6_RULE
    24, // RTNLGRP_IPV4_NETCONF
    25, // RTNLGRP_IPV6_NETCONF
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
        let groups = RTMGRP.iter().fold(0, |bits, group| bits | group.cast_unsigned());
        Ok(Self { fd: subscribe(libc::NETLINK_ROUTE, groups)? })
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

/// Hears whether anybody changes routing rules, packet filters or forwarding, in the namespace it
/// was opened in.
#[derive(Debug)]
pub struct Watch {
    sockets: Vec<OwnedFd>,
}

impl Watch {
    /// Subscribes; packet filters are told of to those with `CAP_NET_ADMIN` only.
    ///
    /// # Errors
    /// What `socket(2)` and `bind(2)` say.
    pub fn new() -> io::Result<Self> {
        let bit = |group: u32| 1 << (group - 1);
        let rules = STIRRED.iter().fold(0, |bits, group| bits | bit(*group));
        let filters = bit(libc::NFNLGRP_NFTABLES.cast_unsigned());
        let mut sockets = vec![subscribe(libc::NETLINK_ROUTE, rules)?];
        // A kernel without packet filters has none to tell of.
        sockets.extend(subscribe(libc::NETLINK_NETFILTER, filters).ok());
        Ok(Self { sockets })
    }

    /// Whether anything changed since the last call, by us or by others.
    #[must_use]
    pub fn is_stirred(&self) -> bool {
        let mut buffer = [0_u8; 16 * 1024];
        let mut is_stirred = false;
        for socket in &self.sockets {
            // A socket that overflowed has heard of much; it is empty then all the same.
            while let Some(heard) = next(socket.as_raw_fd(), &mut buffer) {
                is_stirred = true;
                if heard == 0 {
                    break;
                }
            }
        }
        is_stirred
    }
}

/// Reads one message; none if nothing waits, an empty one if some were lost.
fn next(fd: RawFd, buffer: &mut [u8]) -> Option<usize> {
    // SAFETY: pointer and length describe `buffer`.
    let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    match check_len(got) {
        Ok(len) => Some(len),
        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Some(0),
        Err(_) => None,
    }
}

fn subscribe(protocol: libc::c_int, groups: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; the descriptor is ours alone.
    let fd =
        unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_NETLINK, kind, protocol))?) };
    // SAFETY: an all-zero address is valid.
    let mut name: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    name.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    name.nl_groups = groups;
    let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: `name` is a whole sockaddr_nl and outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), len) })?;
    Ok(fd)
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
    fn rules_filters_and_forwarding_of_others_are_heard_of() {
        use crate::linux::netlink::tests::{in_fresh_namespace, ip, soon};
        in_fresh_namespace(|| {
            let watch = Watch::new().unwrap();
            let heard = || soon(|| if watch.is_stirred() { Ok(()) } else { Err(()) }).is_ok();
            assert!(!watch.is_stirred());
            ip("rule add pref 7 table 9");
            assert!(heard());
            ip("-6 rule add pref 7 table 9");
            assert!(heard());
            let nft = ["add", "table", "inet", "theirs"];
            assert!(std::process::Command::new("nft").args(nft).status().unwrap().success());
            assert!(heard());
            let path = "/proc/sys/net/ipv4/conf/lo/forwarding";
            let other = match std::fs::read_to_string(path).unwrap().trim() {
                "0" => "1",
                _ => "0",
            };
            std::fs::write(path, other).unwrap();
            assert!(heard());
            assert!(!watch.is_stirred(), "and of nothing more");
        });
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
