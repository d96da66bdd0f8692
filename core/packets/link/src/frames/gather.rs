//! Small packets that wait for each other until the turn in which they came is over, or something
//! else goes to the same peer: at most as long as the shell reads on without a pause. Where a link
//! asks for it ([`Wishes::hold`]) they wait for those of later turns, too, unless somebody waits
//! for one of them.

use std::time::Duration;

use noise::Instant;
use wire::frame::{self, Bundle, Frame};
use wire::ip::protocol;
use wire::packet::{Packet, Transport};

use crate::frames::manner::Manner;

/// What is wanted for what goes to a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    /// It may be compressed.
    pub(crate) squeeze: bool,
    /// How long the first of a bundle waits for others; zero: until its turn is over.
    pub(crate) hold: Duration,
}

/// Whether somebody may be waiting for this packet to move: all but TCP and UDP, and of these what
/// is as short as a keystroke and not empty (source 004's `-q`).
pub(crate) fn is_urgent(packet: &Packet<'_>, keystroke_len: usize) -> bool {
    let len = match (packet.protocol(), packet.transport()) {
        (protocol::TCP, Ok(Transport::Tcp(tcp))) => tcp.payload().len(),
        (protocol::UDP, Ok(Transport::Udp(udp))) => udp.payload().len(),
        _ => return true,
    };
    (1..=keystroke_len).contains(&len)
}

/// What waits, as it would stand in a bundle.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// A bundle's plaintext, its count not yet written.
    bytes: Vec<u8>,
    count: u8,
    /// How the first is to be sent; the others are sent alike.
    manner: Option<Manner>,
    /// When what waits has waited long enough.
    due: Instant,
}

/// Whether an entry of `len` bytes is small: two such fit into a plaintext of `limit`.
pub(crate) const fn is_small(len: usize, limit: usize) -> bool {
    Bundle::FIXED_LEN + 2 * (Bundle::ENTRY_LEN + len) <= limit
}

impl Gathered {
    /// Whether another entry of `len` bytes may join; where packets are `held`, more readily.
    pub(crate) fn takes(&self, len: usize, manner: Manner, held: bool) -> bool {
        let joined = self.bytes.len() + Bundle::ENTRY_LEN + len;
        self.manner.is_none_or(|first| {
            first.is_alike(&manner, held)
                && joined <= first.shared(&manner).limit()
                && usize::from(self.count) < Bundle::COUNT_MAX
        })
    }

    /// Adds an entry of `len` bytes, which `write` fills.
    pub(crate) fn push(&mut self, len: usize, manner: Manner, write: impl FnOnce(&mut [u8])) {
        if self.bytes.is_empty() {
            self.bytes.resize(Bundle::FIXED_LEN, 0);
        }
        self.manner = Some(self.manner.map_or(manner, |first| first.shared(&manner)));
        self.count += 1;
        self.bytes.extend((len as u16).to_le_bytes());
        let begin = self.bytes.len();
        self.bytes.resize(begin + len, 0);
        write(&mut self.bytes[begin..]);
    }

    /// What is to be sent and how: the only packet as it is, more as a bundle.
    pub(crate) fn plain(&mut self) -> Option<(&[u8], Manner, u64)> {
        let manner = self.manner?;
        if self.count > 1 {
            Bundle::write_fixed(self.count, &mut self.bytes);
            return Some((&self.bytes, manner, self.count.into()));
        }
        Some((&self.bytes[Bundle::FIXED_LEN + Bundle::ENTRY_LEN..], manner, 1))
    }

    /// All that wait, as the bundle that they would leave in.
    pub(crate) fn bundle(&mut self) -> Option<Bundle<'_>> {
        let (fixed, _) = self.bytes.split_at_mut_checked(Bundle::FIXED_LEN)?;
        Bundle::write_fixed(self.count, fixed);
        match frame::parse(&self.bytes) {
            Ok(Frame::Bundle(bundle)) => Some(bundle),
            _ => None,
        }
    }

    /// Says that what waits is to go at `due`, unless it is to go before that anyway.
    pub(crate) fn set_due(&mut self, due: Instant) {
        self.due = if self.count > 1 { self.due.min(due) } else { due };
    }

    /// When what waits, if anything does, has waited long enough.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.count > 0).then_some(self.due)
    }

    /// How many wait.
    pub(crate) const fn count(&self) -> u64 {
        self.count as u64
    }

    /// Forgets what waited; its memory stays.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.manner = None;
    }

    /// Gives memory back where nothing waits.
    pub(crate) fn trim(&mut self) {
        if self.count == 0 {
            self.bytes = Vec::new();
        }
    }
}
