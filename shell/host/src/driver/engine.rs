//! A node with its device and its sockets: what moves packets.
//!
//! Stages, in the order in which they appear below: `pump_out`, `pump_in`, `settle`.

use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use link::{Destination, Relayed};
use node::{Clock, Inbox, Node, Stamps, Unsounded};
use noise::{Instant, PublicKey, Tai64n};
use pace::{Allowance, Moderation, Pressure, Taken};
use wire::coalesce::Coalescer;
use wire::ip::protocol;
use wire::virtio;

use crate::KernelRandom;
use crate::linux::sys;
use crate::linux::tun::{self, Device};
use crate::sockets::batch::Batch;
use crate::sockets::bucket::Bucket;
use crate::sockets::carriers::Carriers;
use crate::sockets::outgoing::Outgoing;
use crate::sockets::relay::Streams;
use crate::sockets::soundings::{Sealed, Stream};
use crate::sockets::udp::{Arena, MESSAGES_MAX, Sockets};

/// Packets or superpackets that one turn takes from the device.
const UNITS_A_TURN: u64 = 64;
/// Bytes that wait in the batch before it is sent: one superpacket, still in the cache.
const FLUSH_LEN: usize = 60_000;
/// Bytes that one turn receives at once, while messages are large: what the cache holds.
const RECEIVE_LEN: usize = 512 * 1024;
/// Handshake messages a turn while data flows, and while it does not.
const HANDSHAKES_BUSY: usize = 1;
const HANDSHAKES_IDLE: usize = 16;

/// What the kernel did not take, beside the node's own counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Units for this machine, packets or superpackets: the interface is down, or out of memory.
    pub units: u64,
    /// Datagrams for others, with packets, handshakes or questions about paths: no route, a
    /// filter, an address that is gone, too large for the path.
    pub datagrams: u64,
}

/// A node, its device, its sockets, and the memory they share.
#[derive(Debug)]
pub struct Engine {
    /// The node.
    pub node: Node,
    /// The interface.
    pub device: Device,
    /// The sockets, while the interface is up.
    pub sockets: Option<Sockets>,
    /// Streams to relays.
    pub streams: Streams,
    /// Sockets beside those of UDP.
    pub carriers: Carriers,
    /// The clock of this turn.
    pub clock: Clock,
    /// What the wall clock is to stamps, if something is kept of them.
    pub stamps: Option<Stamps>,
    random: KernelRandom,
    unit: Vec<u8>,
    batch: Batch,
    arena: Arena,
    inbox: Inbox,
    coalescer: Coalescer,
    /// Mean length of the messages received last, in bytes.
    message_len: usize,
    pressure: Pressure,
    bucket: Bucket,
    /// What the device, and sockets that are no more, did not take.
    refused: Refused,
    moderation: Moderation,
}

impl Engine {
    /// An engine around `device`, without sockets.
    #[must_use]
    pub fn new(device: Device) -> Self {
        let udp = device.offloads().udp;
        let bucket = Bucket::install(device.name());
        let carriers = Carriers::new(device.name());
        Self {
            node: Node::new(),
            device,
            sockets: None,
            streams: Streams::default(),
            carriers,
            clock: read_clock(None),
            stamps: None,
            random: KernelRandom,
            unit: vec![0; tun::UNIT_LEN_MAX],
            batch: Batch::new(),
            arena: Arena::new(),
            inbox: Inbox::with_capacity(INBOX_PACKETS),
            coalescer: Coalescer::new(INBOX_PACKETS).with_udp(udp),
            message_len: 1500,
            pressure: Pressure::default(),
            bucket,
            refused: Refused::default(),
            moderation: Moderation::default(),
        }
    }

    /// Whether what comes next may gather, after a turn that left nothing waiting.
    pub(crate) fn may_pause(&mut self) -> bool {
        self.moderation.handle_turn(self.clock.now.0)
    }

    /// Sends and receives by `sockets` from now on.
    pub fn set_sockets(&mut self, sockets: Option<Sockets>) {
        let old = std::mem::replace(&mut self.sockets, sockets);
        self.refused.datagrams += old.map_or(0, |old| old.sent.refused);
    }

    /// What the kernel did not take since the start.
    #[must_use]
    pub fn refused(&self) -> Refused {
        let now = self.sockets.as_ref().map_or(0, |sockets| sockets.sent.refused);
        let now = now + self.carriers.refused();
        Refused { datagrams: self.refused.datagrams + now, ..self.refused }
    }

    /// Reads the clock; once a turn, and again after datagrams were received. What comes while a
    /// turn takes its time would else seem to have come before it was sent, and the least delay of
    /// a path, by which queues are told, would be one that no datagram can have.
    pub fn tick(&mut self) {
        self.clock = read_clock(self.stamps.as_mut());
        self.batch.handle_time(self.clock.now.0);
        self.streams.tick(self.clock.now);
        self.carriers.tick(self.clock.now);
    }

    /// Since 1970, by this turn's clock.
    #[must_use]
    pub fn wall() -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    /// Takes what the machine sends. Returns whether more may wait.
    ///
    /// # Errors
    /// The device is gone.
    pub fn pump_out(&mut self) -> io::Result<bool> {
        let flush_len = FLUSH_LEN.min(self.batch.unit_len());
        let mut out = Outgoing {
            batch: &mut self.batch,
            sockets: self.sockets.as_mut(),
            streams: Some(&mut self.streams),
            carriers: Some(&mut self.carriers),
        };
        // What an earlier turn could not send goes first, and holds up the rest.
        out.flush();
        let mut more = true;
        let mut units = 0;
        let mut taken = Taken::default();
        while units < UNITS_A_TURN && out.len() < flush_len {
            let Some(len) = self.device.read(&mut self.unit)? else {
                more = false;
                break;
            };
            units += 1;
            taken.bytes += len as u64;
            let Some((header, packet)) = self.unit[..len].split_at_mut_checked(virtio::LEN) else {
                continue;
            };
            let protocol = protocol_of(packet);
            taken.units += u64::from(is_unpaced(protocol));
            self.moderation.note_packets(u64::from(protocol != Some(protocol::TCP)));
            let header = virtio::Header::decode(header).unwrap_or_default();
            self.node.handle_packet(header, packet, self.clock.now, &mut out);
            if out.waiting() >= flush_len {
                // A small packet that waits for others does not wait for much of somebody else's.
                self.node.handle_actions(self.clock, &mut self.random, &mut out);
                out.flush();
            }
        }
        self.node.handle_actions(self.clock, &mut self.random, &mut out);
        out.flush();
        let is_blocked = out.batch.blocked().is_some() || self.carriers.blocked_fd().is_some();
        taken.emptied = !more;
        taken.blocked = is_blocked;
        let told = self.pressure.handle_turn(self.clock.now.0, taken);
        self.hold_back(told);
        Ok(more)
    }

    /// Sets the bucket and what the sockets below take, if there is something to be set.
    fn hold_back(&mut self, told: Option<Allowance>) {
        if let Some(allowance) = told {
            self.bucket.set(allowance);
            let below_len = usize::try_from(allowance.below_len).unwrap_or(usize::MAX);
            self.batch.set_unit_len(below_len);
            if let Some(sockets) = &mut self.sockets {
                sockets.set_send_buffer(below_len);
            }
        }
    }

    /// Ends what senders are held back by where nothing comes any more, and so no turn does it.
    pub fn look(&mut self) {
        let told = self.pressure.handle_look(self.clock.now.0);
        self.hold_back(told);
    }

    /// Takes what came on the socket `fd`. Returns whether more may wait.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn pump_in(&mut self, fd: RawFd) -> io::Result<bool> {
        if self.streams.has(fd) {
            return Ok(self.pump_stream(fd));
        }
        let via = self.carriers.via(fd);
        let wanted = (RECEIVE_LEN / self.message_len.max(1)).clamp(4, MESSAGES_MAX);
        let got = self.arena.receive(fd, wanted)?;
        if got == 0 {
            return Ok(false);
        }
        self.tick();
        let mut out = Outgoing {
            batch: &mut self.batch,
            sockets: self.sockets.as_mut(),
            streams: Some(&mut self.streams),
            carriers: Some(&mut self.carriers),
        };
        let (messages, memory) = self.arena.parts();
        let mut received = 0;
        for message in messages {
            received += message.len;
            self.inbox.set_congested(message.congested);
            self.inbox.set_came(message.came);
            let (from, Range { mut start, end }) = match (via, &mut out.carriers) {
                (Some(via), Some(carriers)) => match carriers.take(via, message, memory) {
                    Some(found) => found,
                    None => continue,
                },
                _ => (message.from.into(), message.start..message.start + message.len),
            };
            while start < end {
                let datagram = start..(start + message.segment).min(end);
                start = datagram.end;
                self.node.handle_datagram(
                    from,
                    memory,
                    datagram,
                    self.clock,
                    &mut self.random,
                    &mut self.inbox,
                    &mut out,
                );
                // What was rebuilt or had waited needs room of its own.
                while self.node.poll_packets(&mut self.inbox) {
                    deliver(
                        &self.device,
                        &mut self.coalescer,
                        &mut self.inbox,
                        memory,
                        &mut self.refused,
                    );
                }
            }
            if self.inbox.bytes() >= FLUSH_LEN || self.inbox.len() >= INBOX_FLUSH {
                deliver(
                    &self.device,
                    &mut self.coalescer,
                    &mut self.inbox,
                    memory,
                    &mut self.refused,
                );
            }
        }
        deliver(&self.device, &mut self.coalescer, &mut self.inbox, memory, &mut self.refused);
        self.message_len = received / got;
        self.node.handle_actions(self.clock, &mut self.random, &mut out);
        out.flush();
        Ok(got == wanted)
    }

    /// Takes what came by a stream to a relay. Returns whether more may wait.
    fn pump_stream(&mut self, fd: RawFd) -> bool {
        let Some(mut arrived) = self.streams.read(fd) else { return false };
        self.tick();
        self.inbox.set_congested(false);
        self.inbox.set_came(None);
        let relay = arrived.relay;
        let mut count = 0;
        let is_bad = loop {
            let place = match arrived.decoder.poll_frame() {
                Ok(Some(place)) => place,
                Ok(None) => break false,
                Err(_) => break true,
            };
            let Some((peer, datagram)) = place.received(&arrived.decoder) else {
                self.streams.handle_frame(relay, &arrived.decoder.frame(&place));
                continue;
            };
            count += 1;
            let mut out = Outgoing {
                batch: &mut self.batch,
                sockets: self.sockets.as_mut(),
                streams: Some(&mut self.streams),
                carriers: Some(&mut self.carriers),
            };
            let memory = arrived.decoder.memory_mut();
            let from = Destination::Relay(Relayed { relay, peer: PublicKey(peer) });
            let clock = self.clock;
            let random = &mut self.random;
            let inbox = &mut self.inbox;
            self.node.handle_datagram(from, memory, datagram, clock, random, inbox, &mut out);
            let device = &self.device;
            let coalescer = &mut self.coalescer;
            // What was rebuilt or had waited needs room of its own.
            while self.node.poll_packets(&mut self.inbox) {
                deliver(device, coalescer, &mut self.inbox, memory, &mut self.refused);
            }
            if self.inbox.bytes() >= FLUSH_LEN || self.inbox.len() >= INBOX_FLUSH {
                deliver(device, coalescer, &mut self.inbox, memory, &mut self.refused);
            }
        };
        let memory = arrived.decoder.memory_mut();
        let device = &self.device;
        let coalescer = &mut self.coalescer;
        deliver(device, coalescer, &mut self.inbox, memory, &mut self.refused);
        let more = arrived.more;
        self.streams.give_back(arrived, count, is_bad);
        more
    }

    /// Seals a stream for a peer ([`Node::send_stream`]), for another thread to send.
    ///
    /// # Errors
    /// Why there is none.
    pub fn seal_stream(
        &mut self,
        key: &PublicKey,
        packets: u16,
        len: usize,
    ) -> Result<Sealed, Unsounded> {
        let mut stream = Stream::default();
        self.node.send_stream(key, packets, len, self.clock.now, &mut stream)?;
        Sealed::new(stream, self.sockets.as_ref()).map_err(|_| Unsounded::NoSession)
    }

    /// Asks a peer for the arrivals of the last stream ([`Node::ask_arrivals`]).
    ///
    /// # Errors
    /// Why it cannot be asked.
    pub fn ask_arrivals(&mut self) -> Result<(), Unsounded> {
        let mut out = Outgoing {
            batch: &mut self.batch,
            sockets: self.sockets.as_mut(),
            streams: Some(&mut self.streams),
            carriers: Some(&mut self.carriers),
        };
        let asked = self.node.ask_arrivals(self.clock.now, &mut out);
        out.flush();
        asked
    }

    /// Does what is due: handshakes, timers, and what peers want done. While something that came is
    /// `unread` timers are put off, for they tell what did not come in time.
    pub fn settle(&mut self, busy: bool, unread: bool) {
        let mut out = Outgoing {
            batch: &mut self.batch,
            sockets: self.sockets.as_mut(),
            streams: Some(&mut self.streams),
            carriers: Some(&mut self.carriers),
        };
        let budget = if busy { HANDSHAKES_BUSY } else { HANDSHAKES_IDLE };
        self.node.handle_handshakes(budget, self.clock, &mut self.random, &mut out);
        if !unread {
            self.node.handle_timeout(self.clock.now);
        }
        self.node.handle_actions(self.clock, &mut self.random, &mut out);
        out.flush();
        if let Some(sockets) = &mut self.sockets {
            sockets.set_stamped(self.node.is_sounded(self.clock.now));
        }
        self.carriers.handle_timeout();
        self.streams.handle_timeout();
        self.streams.flush();
        if let Some(share) = self.node.poll_overrun() {
            let told = self.pressure.handle_overrun(self.clock.now.0, share);
            self.hold_back(told);
        }
        if let Some(rooms) = self.streams.poll_rooms() {
            self.node.set_relay_rooms(rooms);
        }
        while self.node.poll_packets(&mut self.inbox) || !self.inbox.is_empty() {
            deliver(&self.device, &mut self.coalescer, &mut self.inbox, &mut [], &mut self.refused);
        }
    }

    /// The socket for which datagrams wait because it is full.
    #[must_use]
    pub fn blocked_fd(&self) -> Option<RawFd> {
        let udp = || self.sockets.as_ref()?.fd_for(self.batch.blocked()?);
        udp().or_else(|| self.carriers.blocked_fd())
    }

    /// The sockets that datagrams come by, whatever carries them.
    pub fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.sockets.iter().flat_map(Sockets::fds).chain(self.carriers.fds())
    }

    /// Sends what is early, for no turn comes any more.
    pub(crate) fn release(&mut self) {
        self.batch.hurry();
        if let Some(sockets) = &mut self.sockets {
            sockets.flush(&mut self.batch);
        }
    }

    /// How long until the next datagram may leave, if those that wait are early.
    pub(crate) fn early(&self) -> Option<Duration> {
        self.batch.early_ns().map(Duration::from_nanos)
    }

    /// Whether `fd` is one of the sockets or streams there are now: they may have been replaced.
    #[must_use]
    pub fn has_socket(&self, fd: RawFd) -> bool {
        self.streams.has(fd) || self.fds().any(|ours| ours == fd)
    }

    /// How long the loop may sleep; `None` = until something is ready.
    #[must_use]
    pub fn sleep(&mut self) -> Option<Duration> {
        // One of the pressure's that has passed was for this turn.
        let pressure =
            self.pressure.poll_timeout().map(Instant).filter(|due| *due > self.clock.now);
        let deadline = self.node.poll_timeout().into_iter().chain(pressure).min();
        let ours = deadline.map(|deadline| deadline.since(Instant(sys::boottime_ns())));
        ours.into_iter().chain(self.streams.sleep()).chain(self.carriers.sleep()).min()
    }
}

/// Packets that one delivery holds: a message of 64 KiB may bring that many small ones.
const INBOX_PACKETS: usize = 2048;
/// Packets after which a delivery is due, so that the next message still fits.
const INBOX_FLUSH: usize = 64;

/// Joins what lies in the inbox and writes it to the device; counts the units that it refuses.
fn deliver(
    device: &Device,
    coalescer: &mut Coalescer,
    inbox: &mut Inbox,
    memory: &mut [u8],
    refused: &mut Refused,
) {
    inbox.drain(memory, coalescer, |header, parts| {
        refused.units += u64::from(device.write(&header.encode(), parts).is_err());
    });
}

/// What an IP packet carries, as far as its first header says.
fn protocol_of(packet: &[u8]) -> Option<u8> {
    let place = if packet.first()? >> 4 == 6 { 6 } else { 9 };
    packet.get(place).copied()
}

/// Whether packets of that protocol may come without pace: neither those of TCP do, nor those of
/// ICMP, whose questions wait for answers, and whose answers are the kernel's own, which drops
/// them where they would have to wait.
fn is_unpaced(protocol: Option<u8>) -> bool {
    let paced = [protocol::TCP, protocol::ICMP, protocol::ICMPV6];
    protocol.is_none_or(|protocol| !paced.contains(&protocol))
}

fn read_clock(stamps: Option<&mut Stamps>) -> Clock {
    let now = Instant(sys::boottime_ns());
    let wall = Engine::wall();
    let wall = match stamps {
        Some(stamps) => stamps.handle_clock(wall, now),
        None => Tai64n::from_unix(wall.as_secs(), wall.subsec_nanos()),
    };
    Clock { now, wall }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use link::{Endpoint, Outbox};

    use super::*;
    use crate::linux::netlink::tests::{in_fresh_namespace, ip};

    #[test]
    fn what_may_come_without_pace_is_neither_tcp_nor_pings() {
        let packet = |version: u8, protocol: u8| {
            let mut packet = [0; 40];
            packet[0] = version << 4 | 5;
            packet[if version == 6 { 6 } else { 9 }] = protocol;
            packet
        };
        for version in [4, 6] {
            for paced in [protocol::TCP, protocol::ICMP, protocol::ICMPV6] {
                let packet = packet(version, paced);
                assert!(!is_unpaced(protocol_of(&packet)), "{version}, {paced}");
            }
            // Of fragments nobody looks further.
            for unpaced in [protocol::UDP, protocol::ESP, protocol::SCTP, protocol::FRAGMENT] {
                let packet = packet(version, unpaced);
                assert!(is_unpaced(protocol_of(&packet)), "{version}, {unpaced}");
            }
        }
        assert!(is_unpaced(protocol_of(&[])));
    }

    #[test]
    fn what_the_kernel_does_not_take_is_told_of() {
        in_fresh_namespace(|| {
            let mut engine = Engine::new(Device::create("wt0").unwrap());
            engine.set_sockets(Some(Sockets::bind(0, 0).unwrap()));
            let nowhere: SocketAddr = "192.0.2.1:9".parse().unwrap();
            let mut out = Outgoing {
                batch: &mut engine.batch,
                sockets: engine.sockets.as_mut(),
                streams: None,
                carriers: None,
            };
            out.reserve(&Destination::Udp(Endpoint::new(nowhere)), 32).unwrap().fill(1);
            out.commit();
            out.flush();
            let mut packet = [0; 28];
            (packet[0], packet[3], packet[8]) = (0x45, 28, 64);
            assert!(engine.inbox.push_own(&packet));
            engine.settle(true, false);
            let told = Refused { units: 1, datagrams: 1 };
            assert_eq!(engine.refused(), told, "no route, and an interface that is down");
            engine.set_sockets(None);
            assert_eq!(engine.refused(), told, "the sockets are no more, what was counted is");
        });
    }

    /// A queue is told by the least delay ever seen; one that ends before it began would make every
    /// later datagram look late.
    #[test]
    fn what_comes_during_a_long_turn_is_not_dated_before_it_was_sent() {
        in_fresh_namespace(|| {
            ip("link set lo up");
            let mut engine = Engine::new(Device::create("wt0").unwrap());
            let sockets = Sockets::bind(0, 0).unwrap();
            let fds: Vec<RawFd> = sockets.fds().collect();
            let port = sockets.port();
            engine.set_sockets(Some(sockets));
            engine.tick();
            let began = engine.clock.now;
            std::thread::sleep(Duration::from_millis(30));
            let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
            let sent = sys::boottime_ns();
            peer.send_to(&[0; 148], ("127.0.0.1", port)).unwrap();
            for fd in fds {
                engine.pump_in(fd).unwrap();
            }
            let counters = engine.node.counters();
            assert_eq!(counters.dropped_in(), 1, "it came: {counters:?}");
            assert!(engine.clock.now.0 >= sent && began.0 < sent, "{:?}", engine.clock.now);
        });
    }
}
