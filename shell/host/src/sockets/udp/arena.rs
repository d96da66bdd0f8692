//! Memory for incoming messages, and the call that fills it.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::RawFd;

use link::Endpoint;
use noise::Instant;

use super::MESSAGES_MAX;
use super::messages::{CONTROL_LEN, Control, Told, address_of, read_control};
use crate::linux::sys::{self, check};

/// Room for one message from the kernel: the largest UDP payload, and the coalesced ones.
const MESSAGE_LEN: usize = 65_536;

/// One message from the kernel: one datagram, or several of equal size that it coalesced.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Where it lies in the arena's memory.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
    /// The size of each datagram but the last, which may be shorter.
    pub segment: usize,
    /// Who sent it, and to which of our addresses.
    pub from: Endpoint,
    /// Whether a router marked it: congestion met (RFC 3168).
    pub congested: bool,
    /// When the kernel had it, where it says so ([`super::Sockets::set_stamped`]).
    pub came: Option<Instant>,
}

/// Memory for incoming messages, reused for ever. Pages that are never filled cost nothing.
pub struct Arena {
    memory: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    pieces: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    received: Vec<Received>,
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("received", &self.received).finish_non_exhaustive()
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

impl Arena {
    /// Room for [`MESSAGES_MAX`] messages.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: all-zero bytes are valid for these C structures.
        let (name, header) = unsafe { (zeroed(), zeroed()) };
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            memory: vec![0; MESSAGES_MAX * MESSAGE_LEN],
            names: vec![name; MESSAGES_MAX],
            controls: vec![Control([0; CONTROL_LEN]); MESSAGES_MAX],
            pieces: vec![empty; MESSAGES_MAX],
            headers: vec![header; MESSAGES_MAX],
            received: Vec::with_capacity(MESSAGES_MAX),
        }
    }

    /// What the last [`Arena::receive`] brought, and the memory in which it lies.
    pub fn parts(&mut self) -> (&[Received], &mut [u8]) {
        (&self.received, &mut self.memory)
    }

    /// Takes what waits on the socket `fd`, up to `messages` messages. Returns how many came.
    ///
    /// # Errors
    /// None that a caller could mend; an ICMP error that the kernel reports here counts as
    /// nothing.
    pub fn receive(&mut self, fd: RawFd, messages: usize) -> io::Result<usize> {
        let count = messages.min(MESSAGES_MAX);
        self.received.clear();
        self.prepare(count);
        // SAFETY: `prepare` pointed the first `count` headers at memory that we own and that
        // stays in place during the call.
        let got = unsafe {
            libc::recvmmsg(
                fd,
                self.headers.as_mut_ptr(),
                libc::c_uint::try_from(count).unwrap_or(1),
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let got = match check(got) {
            Ok(got) => usize::try_from(got).unwrap_or(0),
            Err(error) if is_passing(&error) => 0,
            Err(error) => return Err(error),
        };
        let mut clocks = None;
        for i in 0..got {
            let header = &self.headers[i];
            let len = usize::try_from(header.msg_len).unwrap_or(0).min(MESSAGE_LEN);
            let Some(remote) = address_of(&self.names[i]) else { continue };
            let Told { source, segment, congested, came_ns } = read_control(&header.msg_hdr);
            let segment = segment.filter(|&size| size > 0).unwrap_or_else(|| len.max(1));
            let from = Endpoint { remote, source };
            let start = i * MESSAGE_LEN;
            let came = came_ns.map(|came_ns| {
                let now = clocks.get_or_insert_with(|| (sys::boottime_ns(), sys::wall_ns()));
                Instant(now.0.saturating_sub(now.1.saturating_sub(came_ns)))
            });
            self.received.push(Received { start, len, segment, from, congested, came });
        }
        Ok(got)
    }

    /// Points every header at its slot. The pointers are rebuilt each time: nothing in here
    /// outlives a move of the arena.
    fn prepare(&mut self, count: usize) {
        for i in 0..count {
            let start = i * MESSAGE_LEN;
            self.pieces[i] = libc::iovec {
                iov_base: self.memory[start..start + MESSAGE_LEN].as_mut_ptr().cast(),
                iov_len: MESSAGE_LEN,
            };
            let header = &mut self.headers[i].msg_hdr;
            header.msg_name = (&raw mut self.names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut self.pieces[i];
            header.msg_iovlen = 1;
            header.msg_control = self.controls[i].0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_LEN as _;
            header.msg_flags = 0;
        }
    }
}

/// Errors that pass by themselves: nothing there, interrupted, or an ICMP error for an earlier
/// datagram that the kernel reports here.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EAGAIN
                | libc::EINTR
                | libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::ENOBUFS
                | libc::ENOMEM
        )
    )
}
