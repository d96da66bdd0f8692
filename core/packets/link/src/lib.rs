//! One peer: everything between us and one other machine.
//!
//! A [`Link`] owns the protocol machine of its peer (`noise::Peer`), the endpoint at which the
//! peer was last heard, and the packets that wait for a session. It knows neither sockets nor
//! interfaces nor other peers: the node hands it what is for this peer, and lends it an
//! [`Outbox`] to write datagrams into.
//!
//! The life of a packet on its way out:
//!
//! 1. [`Link::send`] gets a superpacket that the node has parsed and routed: one decision for
//!    up to 64 KiB.
//! 2. Without a session the packet is staged, within [`STAGED_PACKETS_MAX`] and
//!    [`STAGED_BYTES_MAX`], and the handshake that it wants is asked for; when the session
//!    comes, the staged packets leave first and in order.
//! 3. With a session each segment is written once, straight into a slot of the outbox, padded,
//!    and sealed where it stands. The slot is then complete; the shell sends it.
//!
//! Toward a peer that speaks frames the third step differs. A superpacket leaves as one head and
//! its segments' payloads as chunks (`sender`); where the path loses, each of them has its place in
//! a block that repair chunks follow; where it reorders, chunks of TCP and UDP are numbered by
//! flow. A small packet waits until the turn is over, and leaves with others that came in it as a
//! bundle (`gather`).
//!
//! A packet of full size has its place only where a probe has shown that there is room for it
//! (`roomy`); elsewhere it is cut in two.
//!
//! Toward a line that was filled lately datagrams are paced: the outbox is told how far apart they
//! should leave (`pacing`).
//!
//! Where the user asked for it, what one datagram is to hold is compressed by itself
//! (`compression`). All that is of frames stands in `frames`, all that is of paths in `paths`.
//!
//! What measures the path goes beside all of that: [`Link::send_soundings`] seals it as it is.
//!
//! And on its way in: [`Link::receive`] opens a datagram where the shell received it and tells
//! where the plaintext lies; the datagram's source becomes the link's endpoint, since it was
//! authentic and fresh (roaming). What the plaintext may claim is the node's to judge. Frames go to
//! [`Link::handle_frame`]: their arrival is noted for the next report, what is missing is rebuilt,
//! a piece that is ahead of its flow waits a little (`receiver`), and
//! [`Link::poll_pieces`] moves the rest into the [`Inbox`], which makes superpackets of it again.
//!
//! What the peer wants to do by itself (handshakes, keepalives) is done by
//! [`Link::handle_actions`], after every input.
//!
//! A *managed* peer, whose candidates a map names, may have many endpoints and relays. Its link
//! keeps `Paths` (docs/paths.md), which probe them inside the session and decide; what is decided
//! stands in the one field that [`Link::send`] reads. Any other peer is followed where it was heard
//! last.

#![forbid(unsafe_code)]

use std::time::Duration;

mod compression;
mod frames;
mod inbox;
mod link;
mod outbox;
mod outcome;
mod paths;
mod preshared;
mod staged;
mod tuning;
mod way;

pub use self::compression::{PORTS_LEFT_ALONE, Squeezes, open as open_squeezed};
pub use self::frames::codel::Codel;
pub use self::frames::features;
pub use self::frames::overrun::Overrun;
pub use self::frames::piece::{Counters as PieceCounters, Judge};
pub use self::frames::receiver::{ORPHANS_MAX, UNITS_MAX};
pub use self::frames::weather::Weather;
pub use self::inbox::{Inbox, OWN_BYTES_MAX};
pub use self::link::{Link, Own, Unsounded, Wake, World};
pub use self::outbox::{Carried, Carrier, Destination, Endpoint, Outbox, Relayed, Source};
pub use self::outcome::{Outcome, Refusal};
pub use self::paths::{CANDIDATES_MAX, Candidate, PathStatus};
pub use self::preshared::{KeyStatus, OverlapTooLong, Preshared, Schedule};
pub use self::staged::{STAGED_BYTES_MAX, STAGED_PACKETS_MAX};
pub use self::tuning::Tuning;
pub use repair::budget::Budget;
pub use repair::code::CHUNK_LEN_MAX;

/// How long a piece of a flow waits for an older one at most, unless somebody asks for another
/// time.
pub const ORDER: Duration = Duration::from_micros(Tuning::DEFAULT.repair.waiting.order_us);
/// How much repair may be sent for what is sent, at most, percent, unless less is asked for.
pub const REPAIR_PERCENT: u8 = (100 / repair::control::CAP) as u8;
/// And the most that can be asked for.
pub const ORDER_MAX: Duration = Duration::from_micros(repair::order::WAIT_US_LIMIT);
