//! A hop's part of a circuit: two neighbours, its own layers, and nothing of anybody else.

use std::net::Ipv4Addr;
use std::ops::Range;

use noise::{Instant, PeerId};
use wire::frame::{Cell, UNIT};

use crate::body::{self, Numbers};
use crate::handshake::{Agreed, First, Second};
use crate::layer::{Kind, Layer, TAG_LEN};
use crate::neighbour::Side;
use crate::window::Window;
use crate::word::{LONG, Word};
use crate::{Drop, HOPS_MAX};

/// What stands behind a hop.
pub(crate) enum Next {
    /// Nothing: it is the last one.
    None,
    /// A neighbour that was asked.
    Asked { side: Side, mask: [u8; 32], first: First, number: u64 },
    /// The next hop, and how it was made one.
    Made { side: Side, first: First, second: Second },
}

/// One circuit, as a hop has it.
pub(crate) struct Hop {
    pub(crate) previous: Side,
    pub(crate) next: Next,
    /// Cells have a layer of ours: the neighbour before us is a hop.
    layered: bool,
    /// Data and control.
    forth: [Layer; 2],
    back: [Layer; 2],
    forth_seen: [Window; 2],
    back_seen: [Window; 2],
    /// How it was made, for whoever asks again.
    pub(crate) first: First,
    pub(crate) second: Second,
    /// The circuit's address here, and the only source beyond.
    pub(crate) address: Ipv4Addr,
    pub(crate) heard: Instant,
    numbers: Numbers,
    /// The largest packet that its client takes.
    room: usize,
}

/// A cell that goes on: to whom, its header, how long its body is, and whether it is control.
pub(crate) struct Relayed {
    pub(crate) to: PeerId,
    pub(crate) header: [u8; Cell::HEADER_LEN],
    pub(crate) len: usize,
    pub(crate) is_word: bool,
}

/// What a cell that came from the client's side is.
pub(crate) enum Came {
    Relayed(Relayed),
    Word(Word, u64),
    Packet(Range<usize>),
}

impl Hop {
    pub(crate) fn new(
        previous: Side,
        layered: bool,
        agreed: &Agreed,
        (first, second): (First, Second),
        address: Ipv4Addr,
        now: Instant,
    ) -> Self {
        Self {
            previous,
            next: Next::None,
            layered,
            forth: Layer::pair(&agreed.forth),
            back: Layer::pair(&agreed.back),
            forth_seen: [Window::new(), Window::new()],
            back_seen: [Window::new(), Window::new()],
            first,
            second,
            address,
            heard: now,
            numbers: Numbers::begin(now),
            room: body::room(HOPS_MAX),
        }
    }

    /// Takes a cell from the client's side, whose body is decrypted in place.
    pub(crate) fn handle_forth(
        &mut self,
        cell: Cell,
        plain: &mut [u8],
        now: Instant,
    ) -> Result<Came, Drop> {
        let body = &mut plain[Cell::HEADER_LEN..][..cell.len];
        let number = self.previous.mask.read(cell.number, body).ok_or(Drop::Malformed)?;
        let lane = (number % 2) as usize;
        if !self.forth_seen[lane].is_fresh(number) {
            return Err(Drop::Replayed);
        }
        if lane == 1
            && let Some(word) = self.word(number, body)
        {
            self.forth_seen[lane].accept(number);
            self.heard = now;
            return Ok(Came::Word(word?, number));
        }
        let mut len = cell.len;
        if self.layered {
            if !self.forth[lane].open(Kind::Relay, number, body) {
                return Err(Drop::Tampered);
            }
            len = len.checked_sub(TAG_LEN).filter(|len| *len > 0).ok_or(Drop::Malformed)?;
        }
        self.forth_seen[lane].accept(number);
        self.heard = now;
        match &self.next {
            Next::Made { side, .. } => {
                let header = header(side, number, &body[..len])?;
                Ok(Came::Relayed(Relayed { to: side.peer, header, len, is_word: lane == 1 }))
            }
            _ if lane == 0 => Ok(Came::Packet(Cell::HEADER_LEN..Cell::HEADER_LEN + len)),
            _ => Err(Drop::NoNext),
        }
    }

    /// A control message for this very hop, if the cell is one: it is tried on a copy, since for
    /// another hop it would be spoilt.
    fn word(&mut self, number: u64, body: &[u8]) -> Option<Result<Word, Drop>> {
        let mut copy = [0; LONG + TAG_LEN];
        let copy = copy.get_mut(..body.len())?;
        copy.copy_from_slice(body);
        let is_ours = self.forth[1].open(Kind::Own, number, copy);
        is_ours.then(|| Word::read(&copy[..copy.len() - TAG_LEN]).ok_or(Drop::Malformed))
    }

    /// Takes a cell from the other side and adds our layer in place.
    pub(crate) fn handle_back(&mut self, cell: Cell, plain: &mut [u8]) -> Result<Relayed, Drop> {
        let Next::Made { side, .. } = &self.next else { return Err(Drop::Unexpected) };
        let room = &mut plain[Cell::HEADER_LEN..];
        let number = side.mask.read(cell.number, &room[..cell.len]).ok_or(Drop::Malformed)?;
        let lane = (number % 2) as usize;
        // Not authentic yet, and still not taken twice: the number seals our layer.
        if !self.back_seen[lane].accept(number) {
            return Err(Drop::Replayed);
        }
        let mut len = cell.len;
        if self.layered {
            len += TAG_LEN;
            let body = room.get_mut(..len).ok_or(Drop::Malformed)?;
            if !self.back[lane].seal(Kind::Relay, number, body) {
                return Err(Drop::Replayed);
            }
        }
        let header = header(&self.previous, number, &room[..len])?;
        Ok(Relayed { to: self.previous.peer, header, len, is_word: lane == 1 })
    }

    /// Bytes of the frame that a packet of `len` bytes for the client travels in.
    pub(crate) fn frame_len(&self, len: usize) -> Result<usize, Drop> {
        let inner = body::inner_len(len, self.room).ok_or(Drop::TooBig)?;
        Ok(Cell { index: 0, number: [0; 5], len: inner + self.tag_len() }.frame_len())
    }

    /// The largest packet that its client takes.
    pub(crate) const fn room(&self) -> usize {
        self.room
    }

    pub(crate) fn set_room(&mut self, room: u64) {
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        if (body::room(HOPS_MAX)..=body::room(1)).contains(&room) && room % UNIT == 0 {
            self.room = room;
        }
    }

    const fn tag_len(&self) -> usize {
        if self.layered { TAG_LEN } else { 0 }
    }

    /// Writes a packet for the client as a frame.
    pub(crate) fn write_packet(
        &mut self,
        packet: &[u8],
        frame: &mut [u8],
        now: Instant,
    ) -> Result<(), Drop> {
        let inner = body::inner_len(packet.len(), self.room).ok_or(Drop::TooBig)?;
        let number = self.numbers.next(0, now)?;
        frame.fill(0);
        let len = inner + self.tag_len();
        let body = &mut frame[Cell::HEADER_LEN..][..len];
        body[..packet.len()].copy_from_slice(packet);
        if self.layered && !self.back[0].seal(Kind::Relay, number, body) {
            return Err(Drop::Exhausted);
        }
        let header = header(&self.previous, number, body)?;
        frame[..Cell::HEADER_LEN].copy_from_slice(&header);
        Ok(())
    }

    /// A control message of ours for the client, as a frame. Its number is that of the message that
    /// it answers: no other hop of this circuit answers that one, so none uses the number.
    pub(crate) fn write_word(&mut self, word: &Word, number: u64) -> Option<Vec<u8>> {
        let len = word.len() + TAG_LEN;
        let cell = Cell { index: self.previous.theirs, number: [0; 5], len };
        let mut frame = vec![0; cell.frame_len()];
        let body = &mut frame[Cell::HEADER_LEN..][..len];
        word.write(&mut body[..word.len()]);
        if !self.back[1].seal(Kind::Own, number, body) {
            return None;
        }
        let header = header(&self.previous, number, body).ok()?;
        frame[..Cell::HEADER_LEN].copy_from_slice(&header);
        Some(frame)
    }
}

/// The header of a cell for `side`.
pub(crate) fn header(
    side: &Side,
    number: u64,
    body: &[u8],
) -> Result<[u8; Cell::HEADER_LEN], Drop> {
    let masked = side.mask.write(number, body).ok_or(Drop::Malformed)?;
    Ok(Cell { index: side.theirs, number: masked, len: body.len() }.build())
}
