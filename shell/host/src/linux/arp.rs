//! A socket for messages of ARP on one link.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::sys::{Interest, Poll, Ready, check, check_len};

/// Bytes of an address of Ethernet.
const MAC_LEN: usize = 6;
const NAME_LEN: libc::socklen_t = size_of::<libc::sockaddr_ll>() as libc::socklen_t;

/// A socket that hears and says what ARP is on one link, and nothing else.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    poll: Poll,
    ready: Vec<Ready>,
    link: u32,
    own: [u8; MAC_LEN],
}

/// A place on a link, as the kernel has it.
fn name_of(link: u32, mac: [u8; MAC_LEN]) -> libc::sockaddr_ll {
    // SAFETY: it is numbers only, of which each may be zero.
    let mut name: libc::sockaddr_ll = unsafe { zeroed() };
    name.sll_family = libc::AF_PACKET as libc::sa_family_t;
    name.sll_protocol = (libc::ETH_P_ARP as u16).to_be();
    name.sll_ifindex = link as libc::c_int;
    name.sll_halen = MAC_LEN as u8;
    name.sll_addr[..MAC_LEN].copy_from_slice(&mac);
    name
}

impl Socket {
    /// A socket on the link of this number.
    ///
    /// # Errors
    /// There is no such link, it is none of Ethernet's kind, or this takes rights that are not had.
    pub fn open(link: u32) -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call takes no pointers; the descriptor is ours alone.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, 0))?) };
        let mut name = name_of(link, [0; MAC_LEN]);
        // SAFETY: `name` holds `NAME_LEN` valid bytes and outlives the call.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), NAME_LEN) })?;
        let mut len = NAME_LEN;
        // SAFETY: the pointers describe `name` and `len`, which outlive the call.
        check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut name).cast(), &raw mut len) })?;
        if usize::from(name.sll_halen) != MAC_LEN {
            let why = "the link has no address of Ethernet";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let own = name.sll_addr.first_chunk().copied().unwrap_or_default();
        let poll = Poll::new()?;
        poll.watch(fd.as_raw_fd(), Interest::READ)?;
        Ok(Self { fd, poll, ready: Vec::new(), link, own })
    }

    /// The link's own address.
    #[must_use]
    pub const fn own(&self) -> [u8; MAC_LEN] {
        self.own
    }

    /// Sends a message.
    ///
    /// # Errors
    /// What `sendto(2)` says: the link is down.
    pub fn send(&self, message: &[u8], to: [u8; MAC_LEN]) -> io::Result<()> {
        let name = name_of(self.link, to);
        // SAFETY: the pointers and lengths describe `message` and `name`, which outlive the call.
        let sent = unsafe {
            let bytes = message.as_ptr().cast();
            let name = (&raw const name).cast();
            libc::sendto(self.fd.as_raw_fd(), bytes, message.len(), 0, name, NAME_LEN)
        };
        check_len(sent).map(drop)
    }

    /// Waits for a message, so long at most; the bytes of it that `memory` has room for.
    ///
    /// # Errors
    /// What `recv(2)` says: the link is down or gone.
    pub fn receive(&mut self, memory: &mut [u8], within: Duration) -> io::Result<Option<usize>> {
        self.poll.wait(Some(within), &mut self.ready)?;
        // SAFETY: pointer and length describe `memory`.
        let got = unsafe {
            let memory_at = memory.as_mut_ptr().cast();
            libc::recv(self.fd.as_raw_fd(), memory_at, memory.len(), libc::MSG_DONTWAIT)
        };
        match check_len(got) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}
