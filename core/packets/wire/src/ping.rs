//! What rides in ICMP echoes (RFC 792, RFC 4443) between a requester and a responder.
//!
//! A request and its reply each begin with [`HEAD_LEN`] bytes of ours behind the eight of ICMP; the
//! rest is a datagram, or nothing. Numbers are big-endian.
//!
//! ```text
//! request: marker 4 | cookie 4 | tag 4 | life 1 | hold 1 | flags 1 | zero 1
//! reply:   tag 4    | cookie 4 | held 2 | waiting 2 | came 2 | flags 1 | zero 1
//! ```
//!
//! Flags of a request: 1 = what follows is padding. Of a reply: 1 = the pool ran dry, 2 = the
//! responder knows who asks.
//!
//! The *marker* is by which a packet filter tells requests of ours from everybody's. The *cookie*
//! is given by a responder to who has proved a key, so that nobody else's requests take room there.
//! The *tag* is the requester's own, so that a reply is known for one.

/// Bytes of ours in front of a datagram.
pub const HEAD_LEN: usize = 16;
/// Bytes of ICMP's own header.
pub const ICMP_LEN: usize = 8;
/// The first bytes of every request.
pub const MARKER: [u8; 4] = *b"WRN1";
/// What follows a request is padding.
const PADDED: u8 = 1;
/// The pool ran dry since the reply before.
const DRY: u8 = 1;
/// Who asks has proved a key.
const PROVEN: u8 = 2;

/// The head of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// What the responder gave; 0 = nothing yet.
    pub cookie: u32,
    /// The requester's own.
    pub tag: u32,
    /// How long the request may be kept, quarters of a second.
    pub life: u8,
    /// How long it is to be kept before an empty reply, quarters of a second; 0 = it waits for a
    /// datagram.
    pub hold: u8,
    /// What follows is no datagram: it only makes room for one in the reply.
    pub is_padded: bool,
}

/// The head of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// That of the request.
    pub tag: u32,
    /// What the next requests are to have; 0 = nothing is given.
    pub cookie: u32,
    /// Requests that are kept beside this one.
    pub held: u16,
    /// Datagrams that wait for requests.
    pub waiting: u16,
    /// Requests that came so far, modulo 2^16.
    pub came: u16,
    /// There was no request for a datagram since the reply before.
    pub is_dry: bool,
    /// The responder knows who asks, so that a reply may be longer than its request.
    pub is_proven: bool,
}

fn head<const LEN: usize>(bytes: &[u8], at: usize) -> [u8; LEN] {
    let mut out = [0; LEN];
    out.copy_from_slice(&bytes[at..at + LEN]);
    out
}

impl Request {
    /// Reads the head; the datagram follows it. `None` if it is none of ours.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        if payload.len() < HEAD_LEN || payload[..4] != MARKER {
            return None;
        }
        Some(Self {
            cookie: u32::from_be_bytes(head(payload, 4)),
            tag: u32::from_be_bytes(head(payload, 8)),
            life: payload[12],
            hold: payload[13],
            is_padded: payload[14] & PADDED != 0,
        })
    }

    /// The bytes of it.
    #[must_use]
    pub fn bytes(&self) -> [u8; HEAD_LEN] {
        let mut out = [0; HEAD_LEN];
        out[..4].copy_from_slice(&MARKER);
        out[4..8].copy_from_slice(&self.cookie.to_be_bytes());
        out[8..12].copy_from_slice(&self.tag.to_be_bytes());
        [out[12], out[13]] = [self.life, self.hold];
        out[14] = u8::from(self.is_padded) * PADDED;
        out
    }
}

impl Reply {
    /// Reads the head; the datagram follows it. `None` if it is too short for one.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        if payload.len() < HEAD_LEN {
            return None;
        }
        Some(Self {
            tag: u32::from_be_bytes(head(payload, 0)),
            cookie: u32::from_be_bytes(head(payload, 4)),
            held: u16::from_be_bytes(head(payload, 8)),
            waiting: u16::from_be_bytes(head(payload, 10)),
            came: u16::from_be_bytes(head(payload, 12)),
            is_dry: payload[14] & DRY != 0,
            is_proven: payload[14] & PROVEN != 0,
        })
    }

    /// The bytes of it.
    #[must_use]
    pub fn bytes(&self) -> [u8; HEAD_LEN] {
        let mut out = [0; HEAD_LEN];
        out[..4].copy_from_slice(&self.tag.to_be_bytes());
        out[4..8].copy_from_slice(&self.cookie.to_be_bytes());
        out[8..10].copy_from_slice(&self.held.to_be_bytes());
        out[10..12].copy_from_slice(&self.waiting.to_be_bytes());
        out[12..14].copy_from_slice(&self.came.to_be_bytes());
        out[14] = (u8::from(self.is_dry) * DRY) | (u8::from(self.is_proven) * PROVEN);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
        let request = Request { cookie: 0x0102_0304, tag: 7, life: 16, hold: 3, is_padded: true };
        assert_eq!(Request::parse(&request.bytes()), Some(request));
        assert_eq!(request.bytes()[..6], *b"WRN1\x01\x02");
        let reply =
            Reply { tag: 7, cookie: 9, held: 300, waiting: 2, came: 0xffff, ..Reply::default() };
        let reply = Reply { is_dry: true, is_proven: true, ..reply };
        assert_eq!(Reply::parse(&reply.bytes()), Some(reply));
    }

    #[test]
    fn what_is_short_or_of_somebody_else_is_none() {
        let request = Request::default().bytes();
        for len in 0..HEAD_LEN {
            assert_eq!(Request::parse(&request[..len]), None);
            assert_eq!(Reply::parse(&request[..len]), None);
        }
        assert_eq!(Request::parse(&[8; 56]), None, "an ordinary ping");
    }
}
