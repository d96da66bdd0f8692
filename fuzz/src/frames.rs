//! A peer that is who it says, and sends anything at all as frames.

use std::time::Duration;

use noise::{Context, Identity, Indices, Instant, Peer, PeerId, PrivateKey, PublicKey, Tai64n};
use wire::wireguard::{self, TRANSPORT_HEADER_LEN};
use wire::{frame, virtio};

use crate::Seeded;
use crate::machine::{Machine, address, inner};

/// The other end, without a node: whatever it seals is genuine (threats BC-06 to BC-10).
struct Stranger {
    peer: Peer,
    identity: Identity,
    indices: Indices,
    random: Seeded,
    now: Instant,
}

/// A program of steps: a byte for the length of a plaintext, two of them above 250, and the
/// plaintext, which is sealed and sent as it is. A length of zero lets 10 ms pass.
///
/// What is delivered is from the peer's own address, every datagram is counted once, what came took
/// a few steps for each of its bytes (BC-10), and afterwards the session still carries. Nobody who
/// measured nothing is told of arrivals. (No input is long enough to reach the bounds of memory;
/// the tests of BC-06 and BC-10 are.)
pub fn frames(data: &[u8]) {
    let mut stranger = Stranger::new();
    let mut machine = Machine::new(2);
    machine.node.set_frames(true);
    machine.node.set_aes(true);
    machine.knows_key(1, *stranger.identity.public());
    stranger.shake_hands(&mut machine);
    // Half of all inputs find a managed peer, whose paths are probed.
    if data.len().is_multiple_of(2) {
        let candidates = [node::Candidate::Udp(address(1)), node::Candidate::Relay(1)];
        machine.node.set_candidates(stranger.identity.public(), &candidates, stranger.now);
    }
    let mut heard_bytes = 0;
    let mut rest = data;
    while let [len, more @ ..] = rest {
        let (len, more) = match (*len, more) {
            (0, _) => {
                machine.pass(Duration::from_millis(10));
                stranger.now += Duration::from_millis(10);
                rest = more;
                continue;
            }
            (high @ 251.., [low, more @ ..]) => {
                (usize::from(high - 250) << 8 | usize::from(*low), more)
            }
            (len, _) => (usize::from(len), more),
        };
        let plain;
        (plain, rest) = more.split_at(len.min(more.len()));
        let datagram = stranger.seal(plain);
        heard_bytes += datagram.len() as u64;
        machine.receive(address(1), &datagram);
    }
    machine.pass(Duration::from_secs(1));
    assert_eq!(machine.node.arrivals(), None, "told of a stream that was never sent");
    let steps = machine.node.steps();
    assert!(steps <= 2 * heard_bytes, "{steps} steps for {heard_bytes} bytes");
    assert!(machine.delivered.iter().all(|packet| is_from_peer(packet)), "a source not allowed");
    machine.delivered.clear();
    machine.receive(address(1), &stranger.seal(&inner(1, 2, 5)));
    assert_eq!(machine.delivered, [inner(1, 2, 5)]);
}

fn is_from_peer(packet: &[u8]) -> bool {
    packet[0] >> 4 == 4 && packet[12..16] == [10, 0, 0, 1]
}

/// One step.
fn step(plain: &[u8]) -> Vec<u8> {
    [&[plain.len() as u8][..], plain].concat()
}

/// Two superpackets of one number, of which the second has a chunk that the first has not: by their
/// protocol, the length of their headers and their kind.
fn twice(hello: &[u8], (protocol, header_len, gso_type): (u8, usize, u8)) -> Vec<u8> {
    let joined = |sent_us, segments: u16| {
        let mut header = inner(1, 2, 40)[..header_len].to_vec();
        let payload_len = 10 * segments;
        header[2..4].copy_from_slice(&(header_len as u16 + payload_len).to_be_bytes());
        header[9] = protocol;
        header[20 + 12 * usize::from(header_len > 28)] = 0x50;
        let parts = frame::Head {
            unit: 3,
            tag: 1,
            ordered: true,
            gso_type,
            segment_size: 10,
            number: 0,
            sent_us,
            payload_len,
            header: &header,
        };
        let mut head = vec![0; parts.len()];
        parts.write(&mut head);
        step(&head)
    };
    let part = |index, len| {
        let mut chunk = vec![7; frame::Chunk::FIXED_LEN + len];
        frame::Chunk::write_fixed(3, index, &mut chunk);
        step(&chunk)
    };
    let first = [joined(1, 2), part(0, 10), part(200, 0)].concat();
    let second = [joined(2, 10), part(9, 10), vec![0], part(1, 10)].concat();
    [hello, &first, &second].concat()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let hello = step(&frame::Hello { features: link::features(), ..Default::default() }.build());
    let mut probe = [0; 40];
    frame::Probe { path: 1, nonce: 2, len: 40 }.write(&mut probe);
    let answer = frame::ProbeAnswer { nonce: 2, len: 40, observed: Some(address(1)) }.build();
    let mut call = [0; frame::Candidates::len_of(2)];
    frame::Candidates::write(&[address(1), address(3)], true, &mut call);
    let mut elsewhere = [0; frame::Elsewhere::len_of(2)];
    let runs = [(3, 90), (1_000, u32::MAX)].map(|(first, count)| frame::Run { first, count });
    frame::Elsewhere::write(&runs, &mut elsewhere);
    let paths = [step(&probe), step(&call), vec![0], step(&answer), vec![0; 40]].concat();
    let elsewhere = step(&elsewhere);
    let packet = inner(1, 2, 30);
    let mut head = vec![0; frame::Head::FIXED_LEN + 40];
    frame::Head {
        unit: 1,
        tag: 1,
        ordered: true,
        gso_type: 0,
        segment_size: 10,
        number: 5,
        sent_us: 1,
        payload_len: 10,
        header: &packet[..40],
    }
    .write(&mut head);
    let mut chunk = vec![7; 14];
    frame::Chunk::write_fixed(1, 0, &mut chunk);
    let protect = |index, inner: &[u8]| {
        let mut plain = vec![0; frame::Protected::FIXED_LEN];
        frame::Protected::write_fixed(index, 9, 5, 0, &mut plain);
        [plain, inner.to_vec()].concat()
    };
    let mut repair = vec![0; frame::Repair::FIXED_LEN + 50];
    frame::Repair {
        index: 0,
        data: 2,
        repair: 1,
        block: 9,
        lengths: [0, 50],
        sent_us: 6,
        bytes: &packet,
    }
    .write(&mut repair);
    let mut ordered = vec![0; frame::Ordered::FIXED_LEN];
    frame::Ordered::write_fixed(1, 7, &mut ordered);
    let ordered = [ordered, packet.clone()].concat();
    let entry = |plain: &[u8]| [&[plain.len() as u8, 0], plain].concat();
    let foreign = inner(9, 2, 30);
    let mut bundle = vec![0; frame::Bundle::FIXED_LEN];
    frame::Bundle::write_fixed(3, &mut bundle);
    let bundle = [bundle, entry(&packet), entry(&ordered), entry(&foreign)].concat();
    let squeezed = |inner: &[u8]| [&[0x8c], &crate::squeezed::block(inner, 0)[..]].concat();
    let report = frame::Report { number: 1, ..Default::default() }.build();
    let mut sounding = [0; 40];
    frame::Sounding::write_packet(7, 3, &mut sounding);
    let mut told = [0; frame::Sounding::told_len(3)];
    frame::Sounding::write_told(7, 500, &[1, 0, 9], &mut told);
    let mut ask = [0; frame::Sounding::told_len(9)];
    frame::Sounding::write_ask(7, 0, &mut ask);
    let ask = step(&ask);
    let soundings = [step(&sounding), ask.clone(), step(&told), vec![0], ask].concat();
    vec![
        [&hello[..], &soundings].concat(),
        [hello.clone(), step(&head), step(&chunk)].concat(),
        [hello.clone(), step(&chunk), vec![0], step(&head)].concat(),
        [hello.clone(), step(&protect(0, &packet)), step(&repair)].concat(),
        [hello.clone(), step(&protect(1, &head)), step(&protect(0, &chunk)), vec![0, 0]].concat(),
        [hello.clone(), step(&bundle), step(&protect(2, &bundle))].concat(),
        [hello.clone(), step(&head), step(&squeezed(&chunk)), step(&squeezed(&bundle))].concat(),
        [hello.clone(), step(&protect(0, &squeezed(&packet))), step(&squeezed(&ordered))].concat(),
        twice(&hello, (17, 28, virtio::GSO_UDP_L4)),
        twice(&hello, (6, 40, virtio::GSO_TCPV4)),
        [&hello[..], &paths].concat(),
        [&hello[..], &step(&packet), &elsewhere, &step(&packet), &[0, 0]].concat(),
        [&hello[..], &paths, &[0]].concat(),
        [hello, step(&ordered), step(&report), vec![0; 12]].concat(),
    ]
}

impl Stranger {
    fn new() -> Self {
        // The keys of the stranger before, on purpose.
        noise::forget_nonces();
        let mut random = Seeded(77);
        let identity = Identity::new(PrivateKey::generate(&mut random));
        // The key of `Machine::new(2)`, which draws it first of all.
        let theirs: PublicKey = PrivateKey::generate(&mut Seeded(2)).public();
        let mut peer = Peer::new(PeerId(0), theirs, &mut random);
        peer.set_word(frame::CAPABILITY);
        let now = Instant(1_000_000_000_000);
        Self { peer, identity, indices: Indices::new(), random, now }
    }

    fn shake_hands(&mut self, machine: &mut Machine) {
        let Self { peer, identity, indices, random, now } = self;
        let wall = Tai64n::from_unix(1_800_000_000, 0);
        let mut context = Context { identity, indices, random, now: *now, wall };
        let initiation = peer.initiate(&mut context).expect("the first one");
        machine.receive(address(1), &initiation);
        let response = machine.out.sent.pop().expect("a response").1;
        let response = response.as_slice().try_into().expect("92 bytes");
        peer.accept_response(&mut context, response).expect("a session");
        machine.receive(address(1), &self.seal(&inner(1, 2, 0)));
        assert_eq!(machine.delivered, [inner(1, 2, 0)]);
    }

    fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0; plain.len() + wireguard::OVERHEAD_LEN];
        datagram[TRANSPORT_HEADER_LEN..][..plain.len()].copy_from_slice(plain);
        let session = self.peer.sealer(self.now).expect("within three minutes");
        session.seal(&mut datagram).expect("a few packets");
        datagram
    }
}
