//! Marks that routers put on datagrams (RFC 6040). Our own are not capable of it; a plain WireGuard
//! peer may copy what the packet inside says onto its datagram, as Linux's does.

use wire::packet::{self, Ecn};

use crate::counters::Reason;

/// Tells the flow of `inner` that its datagram met congestion: by a mark, or, where it heeds none,
/// by a loss.
///
/// # Errors
/// [`Reason::Congestion`], or [`Reason::InnerMalformed`] for what is no packet.
pub(super) fn tell(inner: &mut [u8]) -> Result<(), Reason> {
    match packet::ecn(inner).map_err(|_| Reason::InnerMalformed)? {
        Ecn::NotEct => Err(Reason::Congestion),
        _ => packet::set_ecn(inner, Ecn::Ce).map_err(|_| Reason::InnerMalformed),
    }
}

#[cfg(test)]
mod tests {
    use link::{Endpoint, Inbox};

    use super::super::tests::{Machine, address, packet_to, settle};
    use super::*;

    /// What arrives of a packet that says `ecn`, and by how much the drops for congestion grow.
    fn arrives(ecn: Ecn, met: bool) -> (Option<Ecn>, u64) {
        let first = 1 + 4 * ecn as u8 + 2 * u8::from(met);
        let (mut a, mut b) = (Machine::new(first), Machine::new(first + 1));
        // Without frames, as between plain WireGuard peers.
        for machine in [&mut a, &mut b] {
            machine.node.set_frames(false);
        }
        a.knows(&b, &[&format!("10.0.0.{}/32", first + 1)]);
        b.knows(&a, &[&format!("10.0.0.{first}/32")]);
        a.send(&packet_to(first, first + 1, 0));
        settle(&mut a, &mut b);
        let mut packet = packet_to(first, first + 1, 1);
        packet::set_ecn(&mut packet, ecn).expect("a packet");
        a.send(&packet);
        let mut datagram = a.out.sent.pop().expect("there is a session").1;
        let (mut inbox, clock, range) = (Inbox::default(), b.clock(), 0..datagram.len());
        inbox.set_congested(met);
        let from = Endpoint::new(address(first)).into();
        let (random, out) = (&mut b.random, &mut b.out);
        b.node.handle_datagram(from, &mut datagram, range, clock, random, &mut inbox, out);
        let came = inbox.take_packets(&mut datagram).pop().map(|came| {
            let says = packet::ecn(&came).expect("a packet");
            packet::set_ecn(&mut packet, says).expect("a packet");
            assert_eq!(came, packet, "nothing else is changed, and the sum is right");
            says
        });
        (came, b.node.counters().dropped(Reason::Congestion))
    }

    #[test]
    fn congestion_that_a_plain_datagram_met_is_told_to_the_packet_inside() {
        for ecn in [Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            assert_eq!(arrives(ecn, false), (Some(ecn), 0));
            assert_eq!(arrives(ecn, true), (Some(Ecn::Ce), 0));
        }
        assert_eq!(arrives(Ecn::NotEct, false), (Some(Ecn::NotEct), 0));
        assert_eq!(arrives(Ecn::NotEct, true), (None, 1), "a loss is all that it heeds");
    }
}
