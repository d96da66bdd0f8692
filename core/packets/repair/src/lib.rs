//! # repair: what a lossy path takes, given back
//!
//! This crate protects blocks of chunks by repair chunks and decides how many. It knows no sessions
//! or sockets, and of frames the report alone: chunks are slices, a path is a sequence of numbers,
//! time is microseconds that somebody passes in. Two ends are in it, and a loop between them. What
//! repairs stands in [`code`], what decides in [`weather`]; the first knows nothing of the second.
//!
//! The life of one chunk:
//!
//! 1. A sender asks [`control::Control`] whether the path is calm. If so, nothing below happens.
//! 2. Otherwise [`spread::Spread`] gives the chunk its place in a block that fills as chunks come,
//!    and the chunk leaves at once. Where losses come in bursts, neighbours go into different
//!    blocks. When a block is full, or its time is over, [`block::encode`] makes as many repair
//!    chunks as `Control`'s table says, with the erasure code of [`code::erasure`]: any k of the
//!    k + r chunks are enough. Data and repair chunks are counted on their path.
//! 3. At the other end [`observe::Observer`] sees number and time of every chunk that arrives. It
//!    tells loss from lateness, weather from a full queue.
//! 4. [`block::Assembler`] passes a data chunk on at once and keeps a copy as long as its block
//!    is not complete. As soon as any k are there, what is missing is rebuilt, and passed on.
//! 5. [`order::Order`] holds a piece of a TCP flow back while an older one is missing, for no
//!    longer than reordering was measured to last. All other flows pass.
//! 6. Ten times a second under traffic the observer makes a [`wire::frame::Report`]. At the sender
//!    [`weather::estimate`] fits the chain of [`weather::model`] to it, and `Control` fills its
//!    table.
//!
//! What keeps it honest: losses in a long queue are congestion, and raise nothing; what repair
//! does not mend, it soon no longer costs; half of the data is the most that is ever added.
//! While [`observe::Observer::is_queued`], whoever passes on a rebuilt chunk should mark or drop
//! it, so that flows see the queue. The equations and their limits stand in docs/repair.md.
//!
//! What keeps it bounded: every table here has a named size, and what a peer can fill is its own,
//! within what all of a node may fill together ([`budget`]).
//! No input panics; chunks that contradict themselves are counted and cost their own block.

#![forbid(unsafe_code)]

mod bounds;
pub mod code;
pub mod tuning;
pub mod weather;

pub use code::{aged, block, budget, order};
pub use weather::{control, limits, observe, spread, table};
