//! The sockets against a real kernel, in a network namespace of its own: what is refused there, and
//! what is full, loses nothing.

use std::process::Command;
use std::time::Duration;

use link::{Outbox, Source};

use super::*;
use crate::linux::netlink::tests::{in_fresh_namespace, ip};
use crate::sockets::outgoing::Outgoing;

/// Two ports, the first with a batch for the second.
struct Ends {
    from: Sockets,
    to: Sockets,
    batch: Batch,
    arena: Arena,
}

/// A datagram as it came: its number, its length, and who sent it.
type Came = (u32, usize, IpAddr);

impl Ends {
    fn new() -> Self {
        ip("link set lo up");
        let bind = || Sockets::bind(0, 0).unwrap();
        Self { from: bind(), to: bind(), batch: Batch::new(), arena: Arena::new() }
    }

    /// Adds a datagram that bears its number.
    fn add(&mut self, number: u32, len: usize, to: &str, source: Option<&str>) {
        let remote = SocketAddr::new(to.parse().unwrap(), self.to.port());
        let source = source.map(|s| Source { address: s.parse().unwrap(), interface: 0 });
        let to = Endpoint { remote, source };
        let (sockets, streams, carriers) = (None, None, None);
        let mut out = Outgoing { batch: &mut self.batch, sockets, streams, carriers };
        out.reserve(&to.into(), len).unwrap()[..4].copy_from_slice(&number.to_le_bytes());
        out.commit();
    }

    fn receive(&mut self) -> Vec<Came> {
        let mut came = Vec::new();
        for fd in self.to.fds().collect::<Vec<_>>() {
            while self.arena.receive(fd, MESSAGES_MAX).unwrap() > 0 {
                let (messages, memory) = self.arena.parts();
                for message in messages {
                    let bytes = &memory[message.start..message.start + message.len];
                    for one in bytes.chunks(message.segment) {
                        let number = u32::from_le_bytes(one[..4].try_into().unwrap());
                        came.push((number, one.len(), message.from.remote.ip()));
                    }
                }
            }
        }
        came
    }

    /// Flushes until nothing waits; tells what came and how often a socket was full.
    fn drain(&mut self) -> (Vec<Came>, u32) {
        let (mut came, mut full) = (Vec::new(), 0);
        for _ in 0..10_000 {
            self.from.flush(&mut self.batch);
            came.extend(self.receive());
            if self.batch.is_empty() {
                std::thread::sleep(Duration::from_millis(200));
                came.extend(self.receive());
                return (came, full);
            }
            full += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("it never empties: {:?}", self.batch);
    }

    fn no_units(&mut self) {
        for socket in self.from.v4.iter_mut().chain(&mut self.from.v6) {
            socket.segmentation = false;
        }
    }
}

fn numbers(came: &[Came]) -> Vec<u32> {
    came.iter().map(|(number, _, _)| *number).collect()
}

#[test]
fn a_unit_above_the_path_mtu_is_cut_and_keeps_its_source() {
    in_fresh_namespace(|| {
        for (to, source) in [("127.0.0.1", "127.0.0.5"), ("::1", "fd00::5")] {
            let mut ends = Ends::new();
            ip("link set lo mtu 1300");
            ip("addr replace fd00::5/128 dev lo");
            for number in 0..10 {
                ends.add(number, 1452, to, Some(source));
            }
            let (came, _) = ends.drain();
            let expected = |number| (number, 1452, source.parse().unwrap());
            assert_eq!(came, (0..10).map(expected).collect::<Vec<_>>());
            let sent = Sent { datagrams: 10, refused: 0, cut: 1 };
            assert_eq!(ends.from.sent, sent, "{to}");
            // The kernel still cuts what fits.
            for number in 0..10 {
                ends.add(number, 1000, to, Some(source));
            }
            assert_eq!(ends.drain().0.len(), 10);
            assert_eq!(ends.from.sent, Sent { datagrams: 20, ..sent });
        }
    });
}

#[test]
fn a_source_that_went_away_is_let_go_in_every_way_of_sending() {
    in_fresh_namespace(|| {
        for (to, gone) in [("127.0.0.1", "10.1.1.1"), ("::1", "fd00::77")] {
            for units in [true, false] {
                for count in [1, 10] {
                    let mut ends = Ends::new();
                    if !units {
                        ends.no_units();
                    }
                    for number in 0..count {
                        ends.add(number, 1000, to, Some(gone));
                    }
                    let (came, _) = ends.drain();
                    let expected = |number| (number, 1000, to.parse().unwrap());
                    assert_eq!(came, (0..count).map(expected).collect::<Vec<_>>(), "{units}");
                    assert_eq!(ends.from.sent.refused, 0);
                }
            }
        }
    });
}

#[test]
fn what_has_no_way_is_counted_and_holds_up_nobody() {
    in_fresh_namespace(|| {
        let mut ends = Ends::new();
        for number in 0..5 {
            ends.add(number, 500, "192.0.2.1", None);
        }
        for number in 5..10 {
            ends.add(number, 500, "127.0.0.1", None);
        }
        assert_eq!(numbers(&ends.drain().0), (5..10).collect::<Vec<_>>());
        assert_eq!(ends.from.sent.datagrams, 5);
        assert_eq!(ends.from.sent.refused, 5);
    });
}

#[test]
fn lc_14_a_batch_of_both_families_through_a_full_socket_loses_and_repeats_nothing() {
    in_fresh_namespace(|| {
        for units in [true, false] {
            let mut ends = Ends::new();
            ip("link set lo mtu 1500");
            if !units {
                ends.no_units();
            }
            // 1.25 MB/s below sockets that take a few datagrams at once.
            let tbf = "qdisc replace dev lo root tbf rate 10mbit burst 16k limit 4mb";
            let tc = Command::new("tc").args(tbf.split(' ')).status().unwrap();
            assert!(tc.success());
            for fd in ends.from.fds() {
                sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 8192).unwrap();
            }
            for number in 0..100 {
                let to = if (number / 7) % 2 == 0 { "127.0.0.1" } else { "::1" };
                ends.add(number, 1200, to, None);
            }
            let (mut came, full) = ends.drain();
            assert!(full > 5, "the socket was full {full} times only");
            let v4: Vec<u32> =
                came.iter().filter(|c| c.2.is_ipv4()).map(|(number, ..)| *number).collect();
            assert!(v4.is_sorted(), "{v4:?}");
            came.sort_unstable();
            assert_eq!(numbers(&came), (0..100).collect::<Vec<_>>(), "units: {units}");
            assert_eq!(ends.from.sent, Sent { datagrams: 100, refused: 0, cut: 0 });
        }
    });
}

#[test]
fn the_kernel_says_when_a_datagram_came_where_it_is_asked() {
    in_fresh_namespace(|| {
        let mut ends = Ends::new();
        for is_stamped in [true, false] {
            ends.to.set_stamped(is_stamped);
            // The kernel begins a little later.
            std::thread::sleep(Duration::from_millis(100));
            let sent_ns = sys::boottime_ns();
            for to in ["127.0.0.1", "::1"] {
                ends.add(0, 500, to, None);
            }
            ends.from.flush(&mut ends.batch);
            std::thread::sleep(Duration::from_millis(100));
            for fd in ends.to.fds().collect::<Vec<_>>() {
                assert_eq!(ends.arena.receive(fd, MESSAGES_MAX).unwrap(), 1);
                let came = ends.arena.parts().0[0].came;
                assert_eq!(came.is_some(), is_stamped);
                // Long before it was read.
                let late_ns = came.map_or(0, |came| came.0.saturating_sub(sent_ns));
                assert!(late_ns < 90_000_000, "{late_ns}");
            }
        }
    });
}

#[test]
fn the_socket_that_is_full_is_the_one_that_is_waited_for() {
    in_fresh_namespace(|| {
        let mut ends = Ends::new();
        ends.add(0, 100, "::1", None);
        ends.add(1, 100, "127.0.0.1", None);
        let fds: Vec<RawFd> = ends.from.fds().collect();
        let first = ends.batch.blocked().copied().unwrap();
        assert_eq!(ends.from.fd_for(&first), Some(fds[1]));
        ends.batch.advance(1);
        let next = ends.batch.blocked().copied().unwrap();
        assert_eq!(ends.from.fd_for(&next), Some(fds[0]));
    });
}

#[test]
fn a_slow_line_has_a_short_send_buffer_and_no_line_a_longer_one_than_usual() {
    in_fresh_namespace(|| {
        let mut sockets = Sockets::bind(0, 0).unwrap();
        let usual = SEND_BUFFER_LEN as usize;
        for (asked, set) in [(16 << 10, 16 << 10), (usual, usual), (usize::MAX, usual)] {
            sockets.set_send_buffer(asked);
            for fd in sockets.fds() {
                // The kernel counts its own bookkeeping, and doubles what is asked for.
                let has = sys::option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap();
                assert_eq!(has as usize, 2 * set, "{asked}");
            }
        }
    });
}

#[test]
fn what_a_router_marked_is_told_with_the_datagrams_that_it_marked() {
    in_fresh_namespace(|| {
        for (to, level, name) in [
            ("127.0.0.1", libc::IPPROTO_IP, libc::IP_TOS),
            ("::1", libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        ] {
            for units in [true, false] {
                let mut ends = Ends::new();
                if !units {
                    ends.no_units();
                }
                let mut marks = Vec::new();
                // A class of service beside it is none of ours.
                for octet in [0, 1, 2, 3, 0xb8, 0xbb] {
                    for fd in ends.from.fds().collect::<Vec<_>>() {
                        let _ = sys::set_option(fd, level, name, octet);
                    }
                    (0..5).for_each(|number| ends.add(number, 1000, to, None));
                    ends.from.flush(&mut ends.batch);
                    std::thread::sleep(Duration::from_millis(100));
                    for fd in ends.to.fds().collect::<Vec<_>>() {
                        while ends.arena.receive(fd, MESSAGES_MAX).unwrap() > 0 {
                            for message in ends.arena.parts().0 {
                                let count = message.len.div_ceil(message.segment);
                                marks.extend(vec![message.congested; count]);
                            }
                        }
                    }
                }
                let expected = [0, 0, 0, 1, 0, 1].map(|mark| [mark == 1; 5]).concat();
                assert_eq!(marks, expected, "{to} {units}");
            }
        }
    });
}
