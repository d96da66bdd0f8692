//! A node's end: requests to one responder.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use carrier::icmp::{POLL, Requester};
use noise::Random;
use quinn_udp::BATCH_SIZE;

use crate::clock::Clock;
use crate::socket::Port;

/// How often a responder is knocked at until it answers.
const KNOCK_EVERY: Duration = Duration::from_millis(400);
/// See [`Asker::remote`].
const ANY_PORT: u16 = 7;
/// How soon a change of the caller's mind is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A socket by which one responder is asked.
pub struct Asker {
    port: Port,
    remote: IpAddr,
    id: u16,
    machine: Requester,
    clock: Clock,
    is_blocking: bool,
}

impl Asker {
    /// Opens it, under a mark if there is one.
    ///
    /// # Errors
    /// The kernel's; where it allows no ping, what is missing.
    pub fn open(remote: IpAddr, mark: Option<u32>, random: &mut dyn Random) -> io::Result<Self> {
        let mut bytes = [0; 8];
        random.fill(&mut bytes);
        let [a, b, c, d, e, f, g, h] = bytes;
        let tag = u32::from_be_bytes([a, b, c, d]);
        let sequence = u16::from_be_bytes([e, f]);
        let (port, id) = Port::asking(remote, u16::from_be_bytes([g, h]).max(1), mark)?;
        let machine = Requester::for_network(tag, sequence, POLL);
        Ok(Self { port, remote, id, machine, clock: Clock::new(), is_blocking: false })
    }

    /// Who answers, with a port that means nothing: QUIC takes no address without one.
    #[must_use]
    pub const fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.remote, ANY_PORT)
    }

    /// Whether what is sent might be cut on the way.
    #[must_use]
    pub fn may_fragment(&self) -> bool {
        self.port.may_fragment()
    }

    /// Asks for a place until there is one; blocks until `deadline` at most, or until `is_over`.
    ///
    /// # Errors
    /// There is no responder, or it does not answer.
    pub fn knock(&mut self, deadline: Instant, is_over: impl Fn() -> bool) -> io::Result<()> {
        let mut next = Instant::now();
        loop {
            let now = Instant::now();
            if self.machine.is_known() {
                return Ok(());
            }
            if self.machine.counters().echoed > 0 {
                let why = "an ordinary host answers pings there, and no relay";
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, why));
            }
            if now >= deadline || is_over() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if now >= next {
                let echo = self.machine.knock(self.clock.at(now));
                self.port.send(self.remote, self.id, None, &echo, &[])?;
                next = now + KNOCK_EVERY;
            }
            self.block(Some(LOOK_EVERY))?;
            self.read(now, |_| {})?;
            self.block(None)?;
        }
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send(&mut self, datagram: &[u8], now: Instant) -> io::Result<()> {
        let echo = self.machine.handle_datagram(self.clock.at(now));
        self.port.send(self.remote, self.id, None, &echo, datagram)
    }

    /// Reads a batch, and gives its datagrams to `take`. Whether something came.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&mut self, now: Instant, take: impl FnMut(&[u8])) -> io::Result<bool> {
        // A batch would be waited for until it is full.
        let count = if self.is_blocking { 1 } else { BATCH_SIZE };
        match self.read_some(count, now, take) {
            Ok(count) => Ok(count > 0),
            Err(error) if is_temporary(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn read_some(
        &mut self,
        count: usize,
        now: Instant,
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<usize> {
        let Self { port, remote, id, machine, clock, .. } = self;
        let at = clock.at(now);
        port.read(count, |message, payload| {
            if message.id != *id || message.from != *remote {
                return;
            }
            if let Some(found) = machine.handle_reply(message.sequence, payload, at) {
                take(&payload[found]);
            }
        })
    }

    /// Has the next read wait for so long for one message, or none wait.
    ///
    /// # Errors
    /// The kernel's.
    pub fn block(&mut self, within: Option<Duration>) -> io::Result<()> {
        self.is_blocking = within.is_some();
        self.port.socket().set_nonblocking(within.is_none())?;
        self.port.socket().set_read_timeout(within)
    }

    /// Sends requests that are due of themselves.
    pub fn handle_timeout(&mut self, now: Instant) {
        let at = self.clock.at(now);
        while let Some(echo) = self.machine.poll_request(at) {
            if self.port.send(self.remote, self.id, None, &echo, &[]).is_err() {
                // It is lost, as one that a network drops.
                break;
            }
        }
    }

    /// When [`Asker::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout().map(|at| self.clock.back(at))
    }
}

impl AsRawFd for Asker {
    fn as_raw_fd(&self) -> RawFd {
        self.port.socket().as_raw_fd()
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Asker({:?} of {})", self.port.socket(), self.remote)
    }
}

fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
