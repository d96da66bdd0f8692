//! A whole conversation with fixed keys, randomness and time, byte for byte (`golden.txt`), and the
//! same protocol spoken with an implementation that is not ours, in both roles.

use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519;
use noise::{
    Action, Context, Identity, Index, Indices, Instant, Peer, PeerId, PresharedKey, PrivateKey,
    PublicKey, Random, Session, Tai64n, read_initiation,
};

/// The n-th draw consists of bytes n.
struct Script(u8);

impl Random for Script {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0 += 1;
        bytes.fill(self.0);
    }
}

struct End {
    identity: Identity,
    indices: Indices,
    peer: Peer,
    random: Script,
}

impl End {
    fn new(private: [u8; 32], peer: PublicKey, psk: [u8; 32], script: u8) -> Self {
        let mut random = Script(script);
        let mut peer = Peer::new(PeerId(1), peer, &mut random);
        peer.set_preshared_key(PresharedKey::from_bytes(psk));
        let identity = Identity::new(PrivateKey::from_bytes(private));
        Self { identity, indices: Indices::new(), peer, random }
    }

    fn context(&mut self) -> (&mut Peer, Context<'_>) {
        let context = Context {
            identity: &self.identity,
            indices: &mut self.indices,
            random: &mut self.random,
            now: NOW,
            wall: Tai64n::from_unix(1_700_000_000, 500_000_000),
        };
        (&mut self.peer, context)
    }

    fn initiate(&mut self) -> [u8; 148] {
        let (peer, mut context) = self.context();
        peer.initiate(&mut context).expect("the first is never too early")
    }

    fn respond(&mut self, initiation: &[u8]) -> [u8; 92] {
        let message = initiation.try_into().expect("148 bytes");
        let opened = read_initiation(&self.identity, message).expect("genuine");
        assert_eq!(opened.peer(), self.peer.key());
        let (peer, mut context) = self.context();
        peer.accept_initiation(&mut context, opened).expect("genuine")
    }

    fn complete(&mut self, response: &[u8]) {
        let (peer, mut context) = self.context();
        let message = response.try_into().expect("92 bytes");
        peer.accept_response(&mut context, message).expect("genuine");
        assert_eq!(peer.poll_action(), Some(Action::Keepalive));
    }

    fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let session = self.peer.sealer(NOW).expect("a session");
        let mut datagram = vec![0; plain.len() + Session::OVERHEAD];
        datagram[Session::HEADER_LEN..][..plain.len()].copy_from_slice(plain);
        session.seal(&mut datagram).expect("far from the limit");
        datagram
    }

    fn open(&mut self, datagram: &[u8]) -> Vec<u8> {
        let mut bytes = datagram.to_vec();
        let index = Index(u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes")));
        assert_eq!(self.indices.owner(index), Some(PeerId(1)));
        let opened = self.peer.open(&mut self.indices, index, &mut bytes, NOW);
        bytes[opened.expect("genuine").1].to_vec()
    }
}

const NOW: Instant = Instant(1_000_000_000);
const INITIATOR: [u8; 32] = [0x11; 32];
const RESPONDER: [u8; 32] = [0x22; 32];
const PSK: [u8; 32] = [0x33; 32];

fn public(private: [u8; 32]) -> PublicKey {
    PrivateKey::from_bytes(private).public()
}

/// An IPv4 packet with this payload; other implementations look at its header.
fn packet(payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + payload.len()).expect("short");
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// Every datagram of the conversation: initiation, response, keepalive, data there, data back.
fn conversation(psk: [u8; 32]) -> [Vec<u8>; 5] {
    let mut a = End::new(INITIATOR, public(RESPONDER), psk, 0x40);
    let mut b = End::new(RESPONDER, public(INITIATOR), psk, 0x60);
    let initiation = a.initiate();
    let response = b.respond(&initiation);
    a.complete(&response);
    let keepalive = a.seal(&[]);
    assert_eq!(b.open(&keepalive), []);
    assert_eq!(b.peer.poll_action(), Some(Action::SendStaged));
    let plain = packet(b"twelve bytes");
    let there = a.seal(&plain);
    assert_eq!(b.open(&there), plain);
    let back = b.seal(&plain);
    assert_eq!(a.open(&back), plain);
    [initiation.to_vec(), response.to_vec(), keepalive, there, back]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_conversation_is_the_recorded_one() {
    let names = ["initiation", "response", "keepalive", "data there", "data back"];
    let mut text = String::new();
    for (title, psk) in [("without a preshared key", [0; 32]), ("with one", PSK)] {
        text += &format!("# {title}\n");
        for (name, datagram) in names.into_iter().zip(conversation(psk)) {
            text += &format!("{name}: {}\n", hex(&datagram));
        }
    }
    let recorded: String = include_str!("golden.txt")
        .lines()
        .filter(|line| !line.starts_with("##"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(text, recorded, "the protocol's bytes have changed:\n{text}");
}

fn theirs(private: [u8; 32], peer: [u8; 32], psk: Option<[u8; 32]>) -> Tunn {
    let peer = x25519::PublicKey::from(public(peer).0);
    Tunn::new(x25519::StaticSecret::from(private), peer, psk, None, 9, None)
}

fn network(result: TunnResult<'_>) -> Vec<u8> {
    match result {
        TunnResult::WriteToNetwork(datagram) => datagram.to_vec(),
        other => panic!("expected a datagram, got {other:?}"),
    }
}

fn inside(result: TunnResult<'_>) -> Vec<u8> {
    match result {
        TunnResult::WriteToTunnelV4(packet, _) => packet.to_vec(),
        other => panic!("expected a packet, got {other:?}"),
    }
}

/// Data both ways once both have the session.
fn exchange(ours: &mut End, theirs: &mut Tunn) {
    let mut buffer = [0; 2048];
    for len in [0, 1, 12, 44, 1400] {
        let plain = packet(&vec![0xa5; len]);
        let padded =
            [&plain[..], &vec![0; plain.len().next_multiple_of(16) - plain.len()]].concat();
        let there = ours.seal(&padded);
        assert_eq!(inside(theirs.decapsulate(None, &there, &mut buffer)), plain);
        let repeated = theirs.decapsulate(None, &there, &mut buffer);
        assert!(matches!(repeated, TunnResult::Err(_)), "they see a replay too");
        let back = network(theirs.encapsulate(&plain, &mut buffer));
        assert_eq!(ours.open(&back)[..plain.len()], plain);
    }
}

#[test]
fn the_recorded_initiation_is_accepted_by_another_implementation() {
    for psk in [None, Some(PSK)] {
        let mut ours = End::new(INITIATOR, public(RESPONDER), psk.unwrap_or_default(), 0x40);
        let mut theirs = theirs(RESPONDER, INITIATOR, psk);
        let mut buffer = [0; 2048];
        let [recorded, ..] = conversation(psk.unwrap_or_default());
        let initiation = ours.initiate();
        assert_eq!(initiation[..], recorded);
        let response = network(theirs.decapsulate(None, &initiation, &mut buffer));
        ours.complete(&response);
        let keepalive = ours.seal(&[]);
        let result = theirs.decapsulate(None, &keepalive, &mut buffer);
        assert!(matches!(result, TunnResult::Done), "a keepalive carries nothing");
        exchange(&mut ours, &mut theirs);
    }
}

#[test]
fn another_implementation_initiates() {
    for psk in [None, Some(PSK)] {
        let mut ours = End::new(RESPONDER, public(INITIATOR), psk.unwrap_or_default(), 0x60);
        let mut theirs = theirs(INITIATOR, RESPONDER, psk);
        let mut buffer = [0; 2048];
        let initiation = network(theirs.format_handshake_initiation(&mut buffer, false));
        let response = ours.respond(&initiation);
        assert!(ours.peer.sealer(NOW).is_none(), "the responder waits for the first packet");
        let keepalive = network(theirs.decapsulate(None, &response, &mut buffer));
        assert_eq!(ours.open(&keepalive), []);
        exchange(&mut ours, &mut theirs);
    }
}

#[test]
fn a_preshared_key_on_one_side_only_makes_no_session() {
    let mut ours = End::new(INITIATOR, public(RESPONDER), PSK, 0x40);
    let mut theirs = theirs(RESPONDER, INITIATOR, None);
    let mut buffer = [0; 2048];
    let initiation = ours.initiate();
    let response = network(theirs.decapsulate(None, &initiation, &mut buffer));
    let message = response[..].try_into().expect("92 bytes");
    let (peer, mut context) = ours.context();
    assert!(peer.accept_response(&mut context, message).is_err());
    assert!(ours.peer.sealer(NOW).is_none());
}
