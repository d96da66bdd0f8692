//! One raw socket, and the datagrams that wait for it: each is written once, behind what the
//! carrier puts in front, and a batch leaves by one call of the kernel.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use link::Endpoint;

use crate::sockets::batch::Run;
use crate::sockets::udp::{MESSAGES_MAX, Messages, Sent, has_source, is_of_source, without_source};

/// Bytes that wait: two superpackets cut into datagrams, and some more.
const MEMORY_LEN: usize = 256 * 1024;

/// One socket with its memory.
#[derive(Debug)]
pub(super) struct Lane {
    fd: OwnedFd,
    memory: Vec<u8>,
    used: usize,
    runs: Vec<Run>,
    /// How many of the runs were sent.
    done: usize,
    messages: Messages,
    is_full: bool,
}

impl Lane {
    pub(super) fn new(fd: OwnedFd) -> Self {
        let messages = Messages::new();
        let memory = vec![0; MEMORY_LEN];
        let runs = Vec::with_capacity(1024);
        Self { fd, memory, used: 0, runs, done: 0, messages, is_full: false }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.fd
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.runs.get(self.done).map_or(0, |run| self.used - run.start)
    }

    /// Adds one datagram for `to`, which `write` fills. `false` if there is no room even after what
    /// waits was sent.
    #[inline]
    pub(super) fn push(
        &mut self,
        to: Endpoint,
        len: usize,
        sent: &mut Sent,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        if self.used + len > self.memory.len() || self.runs.len() == self.runs.capacity() {
            self.flush(sent);
            self.compact();
        }
        if self.runs.len() == self.runs.capacity() {
            return false;
        }
        let Some(slot) = self.memory.get_mut(self.used..self.used + len) else { return false };
        write(slot);
        self.runs.push(Run::single(to, self.used, len));
        self.used += len;
        true
    }

    fn compact(&mut self) {
        let start = self.runs.get(self.done).map_or(self.used, |run| run.start);
        self.memory.copy_within(start..self.used, 0);
        self.used -= start;
        self.runs.drain(..self.done);
        self.runs.iter_mut().for_each(|run| run.start -= start);
        self.done = 0;
    }

    /// Sends what waits, as far as the socket has room.
    pub(super) fn flush(&mut self, sent: &mut Sent) {
        self.is_full = false;
        while self.done < self.runs.len() {
            let window = self.runs[self.done..].iter().take(MESSAGES_MAX);
            let memory = &self.memory;
            let window = window.map(|run| (run, &memory[run.start..run.start + run.len], false));
            match self.messages.send(&self.fd, window) {
                Ok(taken) => {
                    sent.datagrams += taken as u64;
                    self.done += taken;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_full = true;
                    return;
                }
                Err(error) => self.mend(&error, sent),
            }
        }
        self.runs.clear();
        self.used = 0;
        self.done = 0;
    }

    /// The first datagram was refused: an address of ours that is gone is forgotten, else it is
    /// dropped.
    fn mend(&mut self, error: &io::Error, sent: &mut Sent) {
        let run = &mut self.runs[self.done];
        if is_of_source(error) && has_source(run) {
            *run = without_source(run);
            return;
        }
        tracing::debug!(%error, to = %run.to.remote, "datagram refused");
        sent.refused += 1;
        self.done += 1;
    }
}
