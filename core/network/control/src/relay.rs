//! How a node and a relay meet, after the HTTP upgrade: who the relay is, and that the node holds
//! the WireGuard key by which others will find it.
//!
//! The node sends the first message of the handshake of [`crate::channel`] as `Open`. The relay
//! reads whose key it shows and answers with its verdict, sealed for that key (`Answer`). A first
//! message may have been recorded and sent again; so the node proves with `Confirm`, sealed under
//! the handshake's keys, that it is there, and only then the relay takes it (threat RL-01).
//!
//! What follows is not sealed again: each datagram is WireGuard's own ciphertext, and who
//! intercepts TLS can drop or add datagrams as anyone on the path of UDP can.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use noise::{PrivateKey, PublicKey, Random};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use wire::relay::Notice;

use crate::channel::{self, BadChannel, Channel, Initiation, Opening};

/// Where a relay is asked for an upgrade.
pub const PATH: &str = "/relay";
/// The protocol that is asked for in the field `Upgrade`.
pub const PROTOCOL: &str = "warren-relay";
/// The protocol that is asked for where a proxy passes no other; [`PROTOCOL`] is spoken in it.
pub const WEBSOCKET: &str = "websocket";
/// What a server adds to a key of WebSocket to show that it knows what was asked (RFC 6455,
/// section 1.3).
const WEBSOCKET_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of a key of WebSocket before it is text.
pub const WEBSOCKET_KEY_LEN: usize = 16;
/// The version of what is spoken after the upgrade.
pub const VERSION: u8 = 1;

/// The node's side, between its first message and the answer.
#[derive(Debug)]
pub struct Caller(Opening);

/// Why a relay does not take a node, or is not the one that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It does not hold the key that the map names, or something changes what is said.
    Channel(BadChannel),
    /// It says why not; `None` is a reason that this version does not know.
    Verdict(Option<Notice>),
}

impl Caller {
    /// Calls the relay with the key `relay`: the first message.
    ///
    /// # Errors
    /// [`BadChannel::LowOrder`] if the relay's key is no key.
    pub fn new(
        node: &PrivateKey,
        relay: &PublicKey,
        random: &mut dyn Random,
    ) -> Result<(Vec<u8>, Self), BadChannel> {
        let (message, opening) = channel::open_relay(node, relay, random)?;
        Ok((message, Self(opening)))
    }

    /// Takes the relay's answer: what to send as `Confirm`.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn finish(self, answer: &[u8]) -> Result<Vec<u8>, Refused> {
        let (channel, payload) = self.0.finish(answer).map_err(Refused::Channel)?;
        match payload[..] {
            [VERSION, 0, ..] => channel.seal(0, &[VERSION]).map_err(Refused::Channel),
            [VERSION, why, ..] => Err(Refused::Verdict(Notice::from_number(why))),
            _ => Err(Refused::Verdict(Some(Notice::Version))),
        }
    }
}

/// Reads a node's first message: whose key it shows.
///
/// # Errors
/// [`BadChannel`].
pub fn read(relay: &PrivateKey, message: &[u8]) -> Result<Initiation, BadChannel> {
    channel::read_relay(relay, message)
}

/// Answers it with the verdict; `None` admits.
///
/// # Errors
/// [`BadChannel`].
pub fn answer(
    initiation: Initiation,
    verdict: Option<Notice>,
    random: &mut dyn Random,
) -> Result<(Vec<u8>, Channel), BadChannel> {
    let verdict = verdict.map_or(0, Notice::to_number);
    let (message, channel, _) = initiation.answer(&[VERSION, verdict], random)?;
    Ok((message, channel))
}

/// Whether a node's `Confirm` proves that it is there.
#[must_use]
pub fn is_confirmed(channel: &Channel, confirm: &[u8]) -> bool {
    channel.receive(0, confirm, 16).is_ok()
}

/// A key of WebSocket as it is sent: `Sec-WebSocket-Key`.
#[must_use]
pub fn websocket_key(bytes: &[u8; WEBSOCKET_KEY_LEN]) -> String {
    STANDARD.encode(bytes)
}

/// What a server answers to a key (RFC 6455, section 4.2.2); `None` if it is no key.
#[must_use]
pub fn websocket_accept(key: &str) -> Option<String> {
    STANDARD.decode(key).ok().filter(|bytes| bytes.len() == WEBSOCKET_KEY_LEN)?;
    // No secret depends on it: it tells a server from an echo.
    let mut hash = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key.as_bytes());
    hash.update(WEBSOCKET_GUID);
    Some(STANDARD.encode(hash.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::tests::testing::Seeded;

    #[test]
    fn a_websocket_is_accepted_as_in_the_example_of_rfc_6455() {
        let accept = websocket_accept("dGhlIHNhbXBsZSBub25jZQ==").unwrap();
        assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(websocket_key(b"the sample nonce"), "dGhlIHNhbXBsZSBub25jZQ==");
        for none in ["", "dGhl", "dGhlIHNhbXBsZSBub25jZQ", "x"] {
            assert_eq!(websocket_accept(none), None, "{none:?}");
        }
    }

    fn keys() -> (PrivateKey, PrivateKey) {
        (PrivateKey::generate(&mut Seeded(1)), PrivateKey::generate(&mut Seeded(2)))
    }

    #[test]
    fn a_node_and_its_relay_meet_and_the_relay_learns_the_nodes_key() {
        let (node, relay) = keys();
        let (message, caller) = Caller::new(&node, &relay.public(), &mut Seeded(3)).unwrap();
        let initiation = read(&relay, &message).unwrap();
        assert_eq!(initiation.key(), node.public());
        let (message, channel) = answer(initiation, None, &mut Seeded(4)).unwrap();
        let confirm = caller.finish(&message).unwrap();
        assert!(is_confirmed(&channel, &confirm));
    }

    #[test]
    fn rl_01_a_recorded_first_message_confirms_nothing() {
        let (node, relay) = keys();
        let (message, caller) = Caller::new(&node, &relay.public(), &mut Seeded(3)).unwrap();
        let (first, _) = answer(read(&relay, &message).unwrap(), None, &mut Seeded(4)).unwrap();
        let confirm = caller.finish(&first).unwrap();
        // Played again to the same relay: what was confirmed then is worth nothing now.
        let (_, again) = answer(read(&relay, &message).unwrap(), None, &mut Seeded(5)).unwrap();
        assert!(!is_confirmed(&again, &confirm));
        assert!(!is_confirmed(&again, &[]));
    }

    #[test]
    fn a_wrong_relay_a_refusal_and_a_control_channel_are_told_apart() {
        let (node, relay) = keys();
        let other = PrivateKey::generate(&mut Seeded(9));
        let (message, caller) = Caller::new(&node, &relay.public(), &mut Seeded(3)).unwrap();
        assert!(read(&other, &message).is_err(), "not made for this relay");
        let (control, _) = channel::open(&node, &relay.public(), &mut Seeded(3)).unwrap();
        assert!(read(&relay, &control).is_err(), "a control channel is no relay's");
        assert!(channel::accept(&relay, &message, &[], &mut Seeded(4)).is_err());
        let initiation = read(&relay, &message).unwrap();
        let (no, _) = answer(initiation, Some(Notice::NotMember), &mut Seeded(4)).unwrap();
        assert_eq!(caller.finish(&no), Err(Refused::Verdict(Some(Notice::NotMember))));
        let (_, caller) = Caller::new(&node, &relay.public(), &mut Seeded(3)).unwrap();
        assert!(matches!(caller.finish(&[0; 60]), Err(Refused::Channel(_))));
    }
}
