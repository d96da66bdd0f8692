//! Who waits for what, and who is told of congestion.

use repair::control::Control;
use repair::spread::{Spread, Wait};
use repair::table::Upper;
use wire::frame::Head;
use wire::virtio;

use super::*;

const TUNING: &Tuning = &Tuning::DEFAULT;
const ALARM_US: u64 = TUNING.alarm_us;
const REPORT_US: u64 = TUNING.report_us;
const WAIT_US_MAX: u64 = TUNING.repair.waiting.order_us;

/// Takes all, or nothing, by rules of a number.
struct All(bool, u32);

impl Judge for All {
    fn admits(&mut self, _: &[u8]) -> bool {
        self.0
    }

    fn rules(&self) -> u32 {
        self.1
    }

    fn has_share(&mut self) -> bool {
        true
    }
}

/// A frame as a piece of a block.
fn protected(index: u8, block: u32, inner: &[u8]) -> Vec<u8> {
    let mut plain = vec![0; Protected::FIXED_LEN];
    Protected::write_fixed(index, block, 900, 0, &mut plain);
    [plain, inner.to_vec()].concat()
}

/// How long a piece waits for the one before it, of a flow on a path that keeps its order,
/// where the pieces so far came as `wrap` makes them.
fn waits_us(wrap: fn(u8, &[u8]) -> Vec<u8>) -> Option<u64> {
    let mut receiver = Receiver::new(1, &Budget::new(BYTES_MAX), TUNING);
    receiver.set_first(0, Index(5));
    let now_us = 1_000;
    let mut plain = [0; Ordered::FIXED_LEN + 40];
    for (index, number) in [0, 2].into_iter().enumerate() {
        Ordered::write_fixed(7, number, &mut plain);
        let packet = &mut plain[Ordered::FIXED_LEN..];
        (packet[0], packet[3], packet[9], packet[32]) = (0x45, 40, protocol::TCP, 0x50);
        let plain = wrap(index as u8, &plain);
        let frame = frame::parse(&plain).expect("a frame");
        receiver.handle_frame((Index(5), index as u64), &frame, 0, &mut All(true, 0), now_us);
    }
    receiver.order.poll_timeout().map(|until_us| until_us - now_us)
}

#[test]
fn a_flow_waits_for_repair_where_frames_are_protected_and_nowhere_else() {
    assert_eq!(waits_us(|index, inner| protected(index, 9, inner)), Some(WAIT_US_MAX));
    assert_eq!(waits_us(|_, inner| inner.to_vec()), None, "datagrams as they are");
}

#[test]
fn tcp_is_told_of_congestion_and_others_that_can_be_marked() {
    let heeded = |protocol: u8, ecn: Ecn, is_ordered: bool| {
        // A bare IPv4 header and eight bytes.
        let mut bytes = [0; 40];
        (bytes[0], bytes[3], bytes[9]) = (0x45, 40, protocol);
        bytes[32] = 0x50;
        packet::set_ecn(&mut bytes, ecn).expect("a packet");
        heeded(&packet::parse(&bytes).expect("a packet"), is_ordered)
    };
    for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
        assert_eq!(heeded(protocol::TCP, ecn, false), Some(ecn));
        assert_eq!(heeded(protocol::UDP, ecn, true), Some(ecn), "QUIC, for instance");
        let others = (ecn != Ecn::NotEct).then_some(ecn);
        assert_eq!(heeded(protocol::UDP, ecn, false), others);
        assert_eq!(heeded(132, ecn, false), others, "SCTP");
    }
}

/// A block is of one session, and so are the head and the chunks in it, though another session has
/// begun since.
#[test]
fn what_is_rebuilt_is_of_the_session_of_its_repair() {
    let mut packet = [0; 140];
    (packet[0], packet[3], packet[9], packet[32]) = (0x45, 140, protocol::TCP, 0x50);
    let (header, payload) = packet.split_at(40);
    let parts = Head {
        unit: 7,
        tag: 0,
        ordered: false,
        gso_type: virtio::GSO_NONE,
        segment_size: 100,
        number: 0,
        sent_us: 900,
        payload_len: 100,
        header,
    };
    let mut head = vec![0; parts.len()];
    parts.write(&mut head);
    let mut chunk = vec![0; Chunk::FIXED_LEN];
    Chunk::write_fixed(7, 0, &mut chunk);
    chunk.extend(payload);

    let (control, mut spread, mut next_block) =
        (Control::new(&TUNING.repair), Spread::new(&TUNING.repair), 9);
    spread.heed(&control);
    for plain in [&head, &chunk] {
        let kind = (Upper::Tcp, Wait::Ordered);
        assert!(spread.handle_chunk(plain, kind, &mut next_block, 0).is_some());
    }
    assert!(spread.poll_repair(&control, 1_000_000).is_none(), "the block closes");
    let due = spread.poll_repair(&control, 2_000_000).expect("the path is not known");
    let (lengths, bytes) = due.coded;
    let Shape { data, repair } = due.shape;
    let (block, index, sent_us) = (due.block, due.index, 950);
    let mut coded = vec![0; frame::Repair::FIXED_LEN + bytes.len()];
    frame::Repair { index, data, repair, block, lengths, sent_us, bytes }.write(&mut coded);
    let second = protected(1, block, &chunk);

    let mut receiver = Receiver::new(1, &Budget::new(BYTES_MAX), TUNING);
    let take = |receiver: &mut Receiver, counter, plain: &[u8], now_us| {
        let frame = frame::parse(plain).expect("a frame");
        receiver.handle_frame((Index(5), counter), &frame, 0, &mut All(true, 0), now_us);
    };
    take(&mut receiver, 1, &second, 1_000);
    receiver.handle_number(Index(6), 0, true, 2_000);
    take(&mut receiver, 2, &coded, 3_000);
    let mut inbox = Inbox::with_capacity(4);
    assert!(receiver.poll_pieces(&mut inbox, None));
    assert_eq!((inbox.len(), receiver.waiting()), (1, 0), "head and chunk found each other");
}

/// When the first report is due of a path that brought 1,200 datagrams `gap_us` apart, after the
/// first of them: chunks, but for the one of the number `other`, which has no data.
fn reports_us(gap_us: u64, other: u64) -> Option<u64> {
    let mut receiver = Receiver::new(1, &Budget::new(BYTES_MAX), TUNING);
    let mut plain = [0; Protected::FIXED_LEN + 40];
    let inner = &mut plain[Protected::FIXED_LEN..];
    (inner[0], inner[3], inner[9]) = (0x45, 40, protocol::UDP);
    let now_us = |number: u64| 1_000 + number * gap_us;
    (0..1_200).for_each(|number| {
        if number == other {
            return receiver.handle_number(Index(5), number, false, now_us(number));
        }
        Protected::write_fixed(0, number as u32, now_us(number) as u32, 0, &mut plain);
        let frame = frame::parse(&plain).expect("a frame");
        let mut judge = All(true, 0);
        receiver.handle_frame((Index(5), number), &frame, 0, &mut judge, now_us(number));
        assert!(receiver.poll_report(now_us(number) - 1).is_none(), "not before its time");
    });
    receiver.report_us.map(|due_us| due_us - 1_000)
}

#[test]
fn a_new_path_that_brings_much_at_once_is_told_of_soon() {
    // A Gbit/s, and just too slow.
    assert_eq!(reports_us(12, u64::MAX), Some(999 * 12 + ALARM_US));
    assert_eq!(reports_us(56, u64::MAX), Some(REPORT_US));
    // Whichever datagram is the hundredth, and whichever the thousandth.
    assert_eq!([99, 999].map(|other| reports_us(12, other)), [Some(999 * 12 + ALARM_US); 2]);
}

/// The head of a superpacket of UDP with so many datagrams of ten bytes, always of the same number.
fn joined(sent_us: u32, segments: u16, number: Option<u32>) -> Vec<u8> {
    let payload_len = 10 * segments;
    let mut header = [0; 28];
    (header[0], header[9]) = (0x45, protocol::UDP);
    header[2..4].copy_from_slice(&(28 + payload_len).to_be_bytes());
    let parts = Head {
        unit: 7,
        tag: 3,
        ordered: number.is_some(),
        gso_type: virtio::GSO_UDP_L4,
        segment_size: 10,
        number: number.unwrap_or(0),
        sent_us,
        payload_len,
        header: &header,
    };
    let mut head = vec![0; parts.len()];
    parts.write(&mut head);
    head
}

/// One of its chunks.
fn chunk(index: u8, len: usize) -> Vec<u8> {
    let mut chunk = vec![0; Chunk::FIXED_LEN + len];
    Chunk::write_fixed(7, index, &mut chunk);
    chunk
}

fn take(receiver: &mut Receiver, plain: &[u8], (admits, now_us): (bool, u64)) {
    take_by(receiver, plain, &mut All(admits, 0), now_us);
}

fn take_by(receiver: &mut Receiver, plain: &[u8], judge: &mut All, now_us: u64) {
    let frame = frame::parse(plain).expect("a frame");
    let counter = receiver.highest + 1;
    receiver.handle_frame((Index(5), counter), &frame, 0, judge, now_us);
}

/// What the machine is given.
fn passed(receiver: &mut Receiver) -> usize {
    let mut inbox = Inbox::with_capacity(4);
    assert!(receiver.poll_pieces(&mut inbox, None));
    inbox.take_packets(&mut chunk(0, 100)).len()
}

/// Threat BC-07.
#[test]
fn bc_07_a_chunk_that_its_unit_does_not_have_is_refused() {
    let mut receiver = Receiver::new(1, &Budget::new(BYTES_MAX), TUNING);
    take(&mut receiver, &joined(900, 2, None), (true, 1_000));
    for (index, len) in [(200, 0), (2, 0), (2, 10), (1, 9)] {
        take(&mut receiver, &chunk(index, len), (true, 1_000));
    }
    assert_eq!((receiver.counters.refused, passed(&mut receiver)), (4, 0));
    take(&mut receiver, &chunk(1, 10), (true, 1_000));
    assert_eq!(passed(&mut receiver), 1);
}

/// Threat BC-07.
#[test]
fn bc_07_a_unit_with_the_number_of_another_is_not_taken_for_it() {
    let mut receiver = Receiver::new(1, &Budget::new(BYTES_MAX), TUNING);
    take(&mut receiver, &joined(900, 2, None), (true, 1_000));
    take(&mut receiver, &chunk(0, 10), (true, 1_000));
    assert_eq!(passed(&mut receiver), 1);
    // In one batch: a chunk for either.
    let mut inbox = Inbox::with_capacity(4);
    take(&mut receiver, &chunk(1, 10), (true, 1_000));
    assert!(receiver.poll_pieces(&mut inbox, None));
    take(&mut receiver, &joined(901, 10, None), (true, 1_000));
    take(&mut receiver, &chunk(9, 10), (true, 1_000));
    assert!(receiver.poll_pieces(&mut inbox, None));
    assert_eq!(inbox.take_packets(&mut chunk(0, 100)).len(), 2);
    // And one that waits for its order while its number is given to another.
    let mut receiver = Receiver::new(1, &Budget::new(BYTES_MAX), TUNING);
    receiver.set_first(0, Index(5));
    take(&mut receiver, &joined(900, 10, Some(0)), (true, 1_000));
    take(&mut receiver, &protected(0, 9, &chunk(9, 10)), (true, 1_000));
    assert_eq!((passed(&mut receiver), receiver.waiting()), (0, 1));
    take(&mut receiver, &joined(901, 2, Some(20)), (true, 1_000));
    receiver.handle_timeout(1_000 + WAIT_US_MAX);
    assert_eq!((passed(&mut receiver), receiver.counters.headless), (0, 1));
    assert_eq!(receiver.waiting(), 0);
}

/// Threat PF-07: a superpacket of which only the head was judged ends with the rules that let it.
#[test]
fn pf_07_a_superpacket_under_way_is_judged_again_when_the_rules_change() {
    let mut receiver = Receiver::new(1, &Budget::new(BYTES_MAX), TUNING);
    take(&mut receiver, &joined(900, 4, None), (true, 1_000));
    take(&mut receiver, &chunk(0, 10), (false, 1_000));
    assert_eq!(passed(&mut receiver), 1, "it was judged");
    take_by(&mut receiver, &chunk(1, 10), &mut All(true, 1), 1_000);
    assert_eq!(passed(&mut receiver), 1, "it may still");
    take_by(&mut receiver, &chunk(2, 10), &mut All(false, 2), 1_000);
    take_by(&mut receiver, &chunk(3, 10), &mut All(true, 2), 1_000);
    assert_eq!((passed(&mut receiver), receiver.counters.refused), (0, 2));
    let mut receiver = Receiver::new(1, &Budget::new(BYTES_MAX), TUNING);
    take(&mut receiver, &joined(900, 4, None), (true, 1_000));
    take(&mut receiver, &chunk(0, 10), (true, 1_000 + UNIT_US));
    assert_eq!((passed(&mut receiver), receiver.waiting()), (0, 1), "nor is it heeded for ever");
}

#[test]
fn a_peer_that_began_anew_may_number_its_blocks_as_it_likes() {
    let packet = [&[0x45, 0, 0, 40, 0, 0, 0, 0, 0, 17][..], &[0; 30]].concat();
    for (anew, late) in [(false, 1), (true, 0)] {
        let mut receiver = Receiver::new(1, &Budget::new(BYTES_MAX), TUNING);
        receiver.set_first(1, Index(5));
        take(&mut receiver, &protected(0, 9_000, &packet), (true, 1_000));
        if anew {
            assert!(receiver.set_first(2, Index(6)) && receiver.echo.is_none());
        }
        take(&mut receiver, &protected(0, 5_000, &packet), (true, 2_000));
        assert_eq!(receiver.counters.late, late);
        assert_eq!(receiver.counters.taken, 2, "each is counted");
        assert_eq!(receiver.counters.ended() as usize + receiver.waiting(), 2);
    }
}

/// Its first word may come behind its first packets: threat BC-08.
#[test]
fn bc_08_what_a_peer_that_began_anew_sent_before_its_word_is_not_forgotten() {
    let mut receiver = Receiver::new(1, &Budget::new(BYTES_MAX), TUNING);
    receiver.set_first(1, Index(4));
    let packet = [&[0x45, 0, 0, 40, 0, 0, 0, 0, 0, 17][..], &[0; 30]].concat();
    take(&mut receiver, &protected(0, 9_000, &packet), (true, 1_000));
    assert!(receiver.set_first(2, Index(5)));
    let mut repair = vec![0; frame::Repair::FIXED_LEN + packet.len()];
    let lengths = [0, packet.len() as u8];
    let bytes = &packet;
    frame::Repair { index: 0, data: 1, repair: 1, block: 9_000, lengths, sent_us: 950, bytes }
        .write(&mut repair);
    take(&mut receiver, &repair, (true, 2_000));
    assert_eq!((receiver.counters.taken, receiver.counters.rebuilt), (1, 0), "it comes once");
}

/// Clocks drift apart: what was told long ago says no round trip.
#[test]
fn an_old_clock_is_not_told_back() {
    let mut receiver = Receiver::new(1, &Budget::new(BYTES_MAX), TUNING);
    take(&mut receiver, &joined(900, 2, None), (true, 1_000));
    let told = |receiver: &mut Receiver, now_us| {
        receiver.handle_number(Index(5), receiver.highest + 1, true, now_us - REPORT_US);
        receiver.poll_report(now_us).map(|report| report.held_us)
    };
    assert_eq!(told(&mut receiver, 101_000), Some(100_000));
    assert_eq!(told(&mut receiver, 20_000_000), Some(u32::MAX));
}
