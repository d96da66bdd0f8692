//! Bytes of two streams, each into the other, until both have ended. Neither reads ahead of what
//! the other takes by more than a buffer, so nothing queues here.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::linux::sys::{Interest, Poll};

/// Bytes under way in one direction.
const BUFFER_BYTES: usize = 32 << 10;
/// How often it is looked whether all is to end.
const LOOK: Duration = Duration::from_secs(1);

/// One direction.
struct Lane {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    is_over: bool,
    is_told: bool,
}

impl Lane {
    fn new() -> Self {
        Self { bytes: vec![0; BUFFER_BYTES], start: 0, end: 0, is_over: false, is_told: false }
    }

    const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    const fn wants(&self) -> bool {
        self.is_empty() && !self.is_over
    }

    /// Moves what can be moved now; whether anything was.
    fn carry(&mut self, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<bool> {
        let mut is_moved = false;
        if self.wants() {
            match from.read(&mut self.bytes) {
                Ok(0) => self.is_over = true,
                Ok(len) => (self.start, self.end, is_moved) = (0, len, true),
                Err(error) => patient(error)?,
            }
        }
        if !self.is_empty() {
            match to.write(&self.bytes[self.start..self.end]) {
                Ok(len) => (self.start, is_moved) = (self.start + len, true),
                Err(error) => patient(error)?,
            }
        }
        if self.is_over && self.is_empty() && !self.is_told {
            self.is_told = true;
            to.shutdown(Shutdown::Write)?;
        }
        Ok(is_moved)
    }
}

fn patient(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

/// Carries both ways until both streams have ended, one breaks, or `is_ended`.
pub(super) fn pump(
    near: &TcpStream,
    far: &TcpStream,
    is_ended: impl Fn() -> bool,
) -> io::Result<()> {
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let mut out = Lane::new();
    let mut back = Lane::new();
    let poll = Poll::new()?;
    let mut ready = Vec::new();
    while !(is_ended() || out.is_told && back.is_told) {
        if out.carry(near, far)? | back.carry(far, near)? {
            continue;
        }
        for (stream, sends, takes) in [(near, &out, &back), (far, &back, &out)] {
            let interest = Interest { readable: sends.wants(), writable: !takes.is_empty() };
            poll.watch(stream.as_raw_fd(), interest)?;
        }
        poll.wait(Some(LOOK), &mut ready)?;
        // Who hung up for good takes nothing any more, though the other has not ended.
        let is_gone = |fd: i32, lane: &Lane| {
            lane.is_told && ready.iter().any(|ready| ready.fd == fd && ready.failed)
        };
        if is_gone(near.as_raw_fd(), &out) || is_gone(far.as_raw_fd(), &back) {
            break;
        }
    }
    Ok(())
}
