//! Who is let in where there is not room for all: one rule for the server, its relay, a relay of
//! its own, QUIC, and the socket of a node's daemon.
//!
//! The rule, for all who hold a place, whatever it is a place for:
//!
//! 1. Places are bounded, and those who have proven nothing have a bound of their own. They
//!    displace each other and nobody else.
//! 2. A newcomer is never refused. Where all places are taken, the source that holds most loses its
//!    oldest. So whoever opens thousands displaces their own, and one that comes and says at once
//!    who it is does not notice.
//! 3. Silence is no right: a connection that is kept open between two requests holds a place as
//!    one that has asked for nothing yet does.
//! 4. A source is what one party can have many addresses of. Of IPv6 that is a /64, and a /48 has
//!    65,536 of them: first the /48 that holds most is found, then the /64 in it.
//! 5. Who has proven a key is counted by that key, and not by where it comes from.
//!
//! [`Crowd`] is places by that rule. It holds what is to be told to who is displaced, and knows
//! neither sockets nor tasks. [`Buckets`] are rates, of anything that can be compared, in a table
//! with a bound: full buckets are forgotten first, since they say nothing.
//!
//! Both are values without a clock: the time comes as an argument, in milliseconds of any clock
//! that only grows. A place costs O(log n) to take, to give back and to lose, whoever holds how
//! many, so that a flood of newcomers pays no more than each of them alone.

#![forbid(unsafe_code)]

mod buckets;
mod crowd;
mod source;

pub use buckets::{Buckets, ENTRIES_MAX, Rate};
pub use crowd::{Crowd, Number};
pub use source::Source;
