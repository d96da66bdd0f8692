use super::*;

/// Takes everything.
struct Everything;

impl Judge for Everything {
    fn admits(&mut self, _: &[u8]) -> bool {
        true
    }
}

/// How long a piece waits for the one before it, of a flow on a path that keeps its order,
/// where the pieces so far came as `wrap` makes them.
fn waits_us(wrap: fn(u8, &[u8]) -> Vec<u8>) -> Option<u64> {
    let mut receiver = Receiver::new(1, &Budget::new(BYTES_MAX));
    receiver.set_first(0);
    let now_us = 1_000;
    let mut plain = [0; Ordered::FIXED_LEN + 40];
    for (index, number) in [0, 2].into_iter().enumerate() {
        Ordered::write_fixed(7, number, &mut plain);
        let packet = &mut plain[Ordered::FIXED_LEN..];
        (packet[0], packet[3], packet[9], packet[32]) = (0x45, 40, protocol::TCP, 0x50);
        let plain = wrap(index as u8, &plain);
        let frame = frame::parse(&plain).expect("a frame");
        receiver.handle_frame((Index(5), index as u64), &frame, 0, &mut Everything, now_us);
    }
    receiver.order.poll_timeout().map(|until_us| until_us - now_us)
}

#[test]
fn a_flow_waits_for_what_is_repaired_and_for_nothing_else() {
    fn wrapped(index: u8, inner: &[u8], unrepaired: bool) -> Vec<u8> {
        let mut plain = vec![0; Protected::FIXED_LEN];
        let (block, sent_us) = (9, 900);
        Protected { index, unrepaired, block, sent_us, inner }.write_fixed(0, &mut plain);
        [plain, inner.to_vec()].concat()
    }
    assert_eq!(waits_us(|index, inner| wrapped(index, inner, false)), Some(WAIT_US_MAX));
    assert_eq!(waits_us(|index, inner| wrapped(index, inner, true)), None, "clock alone");
    assert_eq!(waits_us(|_, inner| inner.to_vec()), None, "datagrams as they are");
}

#[test]
fn tcp_is_told_of_congestion_and_others_that_can_be_marked() {
    let heeded = |protocol: u8, ecn: Ecn| {
        // A bare IPv4 header and eight bytes.
        let mut bytes = [0; 40];
        (bytes[0], bytes[3], bytes[9]) = (0x45, 40, protocol);
        bytes[32] = 0x50;
        packet::set_ecn(&mut bytes, ecn).expect("a packet");
        heeded(&packet::parse(&bytes).expect("a packet"))
    };
    for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
        assert_eq!(heeded(protocol::TCP, ecn), Some(ecn));
        let others = (ecn != Ecn::NotEct).then_some(ecn);
        assert_eq!(heeded(protocol::UDP, ecn), others);
        assert_eq!(heeded(132, ecn), others, "SCTP");
    }
}
