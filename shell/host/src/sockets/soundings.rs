//! A stream that measures a path: sealed at once by the loop, sent by another thread, each packet
//! when it is due, by the socket that packets leave by. So the loop goes on meanwhile, and what it
//! has to do does not make a packet late.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use link::{Destination, Endpoint, Outbox};
use noise::Instant;

use crate::linux::sys;
use crate::sockets::batch::Run;
use crate::sockets::udp::{Messages, Sockets};

/// Who sleeps wakes late by up to so long; the rest is waited for awake.
const AWAKE_NS: u64 = 120_000;
/// Who sends a stream runs before all others until it has had a processor for so long. A thousand
/// packets, the most that a stream has, are waited for half of that.
const FIRST_NS_MAX: u64 = 250_000_000;

/// While it lives its thread runs before all that have no deadline, [`FIRST_NS_MAX`] at most. Whom
/// the kernel does not let do so, or who runs in another way by somebody's word, runs as before.
struct First {
    is_first: bool,
    until_ns: u64,
}

impl First {
    fn begin() -> Self {
        let until_ns = sys::thread_ns() + FIRST_NS_MAX;
        Self { is_first: sys::runs_as_others() && sys::run_first(true), until_ns }
    }

    /// Ends it when its time is over.
    fn check(&mut self) {
        if self.is_first && sys::thread_ns() >= self.until_ns {
            self.end();
        }
    }

    fn end(&mut self) {
        if self.is_first {
            self.is_first = false;
            sys::run_first(false);
        }
    }
}

impl Drop for First {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sealed packets of one stream, one behind the other, all as long as each other.
#[derive(Debug, Default)]
pub struct Stream {
    memory: Vec<u8>,
    used: usize,
    len: usize,
    to: Option<Endpoint>,
}

impl Outbox for Stream {
    fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]> {
        self.to = Some(to.udp()?);
        self.len = len;
        self.memory.resize(self.used + len, 0);
        self.memory.get_mut(self.used..)
    }

    fn commit(&mut self) {
        self.used += self.len;
    }
}

/// A stream, and the socket it leaves by.
#[derive(Debug)]
pub struct Sealed {
    stream: Stream,
    to: Endpoint,
    fd: OwnedFd,
}

impl Sealed {
    /// To be sent by one of these sockets.
    ///
    /// # Errors
    /// No packet was sealed, or there is no socket for it.
    pub(crate) fn new(stream: Stream, sockets: Option<&Sockets>) -> io::Result<Self> {
        let nowhere = || io::Error::from(io::ErrorKind::NotConnected);
        let to = stream.to.ok_or_else(nowhere)?;
        let fd = sockets.and_then(|sockets| sockets.another(&to)).ok_or_else(nowhere)??;
        Ok(Self { stream, to, fd })
    }

    /// Whether it goes by IPv6.
    #[must_use]
    pub fn is_v6(&self) -> bool {
        self.to.remote.is_ipv6()
    }

    /// Sends all: `lead` of them as fast as it goes, the others so far apart that `bulk` of them
    /// leave at once and the next after as many gaps. Returns when each really left, in nanoseconds
    /// by the clock of [`now`]. What the system does not take is lost, as far as anybody can tell.
    #[must_use]
    pub fn send(&self, gap: Duration, lead: u32, bulk: u32) -> Vec<u64> {
        sys::sleep_exactly();
        let mut first = First::begin();
        let mut messages = Messages::new();
        let len = self.stream.len.max(1);
        let mut due_ns = sys::boottime_ns();
        let bulk = bulk.max(1);
        let unit_len = len * bulk as usize;
        let unit_gap_ns = gap.as_nanos() as u64 * u64::from(bulk);
        let mut left = Vec::with_capacity(self.stream.used / len);
        for unit in self.stream.memory[..self.stream.used].chunks(unit_len) {
            if left.len() > lead as usize {
                due_ns += unit_gap_ns;
            }
            wait_until(due_ns);
            let at_ns = self.send_unit(&mut messages, unit);
            // What was late is not made up for: that would be a burst.
            if at_ns > due_ns + unit_gap_ns {
                due_ns = at_ns;
            }
            left.extend(std::iter::repeat_n(at_ns, unit.len() / len));
            first.check();
        }
        left
    }

    /// Sends packets that leave at once, and returns when they did. A socket is full where the
    /// slow line is this machine's own; then they leave when it has room.
    fn send_unit(&self, messages: &mut Messages, unit: &[u8]) -> u64 {
        let each = Run::single(self.to, 0, self.stream.len);
        let count = unit.len() / each.len.max(1);
        let whole = Run { len: unit.len(), count, ..each };
        let mut send = |run: &Run, bytes: &[u8], is_cut: bool| {
            messages.send(&self.fd, std::iter::once((run, bytes, is_cut)))
        };
        let mut at_ns = sys::boottime_ns();
        let mut sent = send(&whole, unit, count > 1);
        if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            sys::wait_writable(self.fd.as_raw_fd());
            at_ns = sys::boottime_ns();
            sent = send(&whole, unit, count > 1);
        }
        if sent.is_err() && count > 1 {
            // A kernel or a card that refuses units.
            for datagram in unit.chunks(each.len.max(1)) {
                let _ = send(&each, datagram, false);
            }
        }
        at_ns
    }
}

/// The clock of the loop.
#[must_use]
pub fn now() -> Instant {
    Instant(sys::boottime_ns())
}

fn wait_until(due_ns: u64) {
    loop {
        let left_ns = due_ns.saturating_sub(sys::boottime_ns());
        if left_ns == 0 {
            return;
        }
        match left_ns.checked_sub(AWAKE_NS) {
            Some(sleep_ns) => std::thread::sleep(Duration::from_nanos(sleep_ns)),
            None => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn who_runs_first_does_for_a_bounded_time_and_then_as_before_also_after_a_panic() {
        let first = First::begin();
        if !first.is_first {
            eprintln!("\n*** SKIPPED: the kernel lets this process run before no others ***\n");
            return;
        }
        assert!(!sys::runs_as_others());
        drop(first);
        assert!(sys::runs_as_others());

        let mut first = First::begin();
        first.check();
        assert!(!sys::runs_as_others(), "its time is not over");
        first.until_ns = sys::thread_ns();
        first.check();
        assert!(sys::runs_as_others(), "its time is over");
        drop(first);

        let died = std::panic::catch_unwind(|| {
            let _first = First::begin();
            assert!(!sys::runs_as_others());
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(died.is_err() && sys::runs_as_others());
    }

    #[test]
    fn a_stream_leaves_in_its_order_and_not_before_its_time() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let to = Endpoint::new(peer.local_addr().unwrap());
        let mut stream = Stream::default();
        for place in 0..20 {
            stream.reserve(&to.into(), 100).unwrap().fill(place);
            stream.commit();
        }
        let sockets = Sockets::bind(0, 0).unwrap();
        assert!(Sealed::new(Stream::default(), Some(&sockets)).is_err(), "nothing was sealed");
        let sealed = Sealed::new(stream, Some(&sockets)).unwrap();
        assert!(!sealed.is_v6());
        let gap = Duration::from_micros(500);
        let left = sealed.send(gap, 8, 4);
        assert_eq!(left.len(), 20);
        assert!(sys::runs_as_others(), "it no longer runs before others");
        for (place, at) in (0_u64..).zip(&left) {
            // The first left a little after the beginning.
            assert!(
                at - left[0] + 100_000 >= (place / 4 * 4).saturating_sub(8) * 500_000,
                "{place}: {left:?}"
            );
            let mut bytes = [0; 200];
            assert_eq!(peer.recv(&mut bytes).unwrap(), 100);
            assert!(bytes[..100].iter().all(|byte| u64::from(*byte) == place), "{place}");
        }
    }
}
