//! The pace of a node's loop: how fast the machine may send, when a datagram leaves, and how soon
//! the loop looks again.
//!
//! Three decisions stand here, each a value that is told what happened and answers at once. Time
//! is an argument in nanoseconds; nothing here knows a socket, a device or a session, so that each
//! runs in a test against a model of ring, bucket and line.
//!
//! - [`Pressure`] is the rate controller of what is sent without a pace. A turn of the loop tells
//!   it what was [`Taken`] from the device; it answers with an [`Allowance`], which the shell gives
//!   to the kernel, so that sockets wait where a ring would overflow.
//! - [`Pacer`] is the clock of a batch. A line that was filled lately is not given a burst at once:
//!   the pacer says how many datagrams of the [`Train`]s that wait may leave now, and when to ask
//!   again.
//! - [`Moderation`] is the pause of a loop that has nothing more to do. Where single packets come
//!   close together they may gather for [`PAUSE`], since to be woken costs more than to move one.
//!
//! What is not here: how much of a path is spent on repair (`repair`), and how wide the gaps of a
//! line are (`link`). The life of a rate: a program floods; the ring is not found empty for a few
//! milliseconds; `Pressure` allows a rate below what the socket took, then follows what the line
//! carries, lets the ring run empty, grows, and ends when the flood does.

#![forbid(unsafe_code)]

mod moderation;
mod pacer;
mod pressure;

pub use moderation::{Moderation, PAUSE};
pub use pacer::{Pacer, Train};
pub use pressure::{Allowance, BELOW_LEN_MAX, FREE, Pressure, Taken};
