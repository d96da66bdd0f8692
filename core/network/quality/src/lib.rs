//! How much more a path carries: its available bandwidth, as a range.
//!
//! The available bandwidth of a path is what its tightest link has left beside the traffic of
//! others. It is found by self-loading streams: packets of one size at one rate. If the rate is
//! above what is left, they queue, and each is delayed a little more than the one before. If it is
//! below, delays stay. No packet has to be lost for that, and both clocks may be wrong.
//!
//! The life of one estimate:
//!
//! 1. [`Estimator::poll_stream`] wants a *train*, packets as fast as they can be sent. How far it
//!    is spread at the receiver is the asymptotic dispersion rate, which lies between what is left
//!    and the capacity.
//! 2. A second train at another rate gives a second point of a line: the ratio of the rates in and
//!    out grows linearly above what is left. The line gives a first capacity and a first estimate.
//! 3. Then come *fleets* of streams at one rate each. The shell sends a stream, notes when each
//!    packet really left, and the peer tells when each arrived. [`Estimator::handle_stream`] takes
//!    both. A fleet ends when its verdict is clear: the rate is too high, it is not, or it is grey.
//! 4. The next rate is the middle between the highest that was carried and the lowest that was
//!    not; around grey rates, the middle beside them. It ends when both are near enough.
//! 5. [`Estimator::outcome`] is a range, or says why there is none. It never gives a number for a
//!    path with two delays, with a token bucket, or one that did not converge in a minute.
//!
//! What is measured and what is meant are kept apart. A stream's rate is that of its real send
//! times. One whose sender paused is thrown away. Packets that one interrupt delivered are one
//! event, and only the last of them, which waited least, counts ([`judge`]).
//!
//! Two judges must agree: the trend of medians of delays, and the growth of delay per time over
//! all streams of the fleet with its standard error. If they do not, the rate is grey.
//!
//! An estimate costs about a tenth of what a bulk transfer of ten seconds would carry at the
//! estimate, trains included, and loads the path with a tenth of it on average. What chance adds
//! within such a cost is not small: beside much traffic that comes by chance, on a slow line, the
//! answer is that there is none ([`Outcome::NotConverged`]).

//! Who runs it: the daemon, when somebody asks. Streams are frames of the link, sealed in the
//! session, and not UDP inside the network. There repair, order and pacing would move the packets
//! that measure, and this machine's ring would be measured with the path. A frame says also which
//! numbers it had, so that the weather is judged without it; and the peer's Hello says whether it
//! knows soundings at all. A stream is sealed at once and sent by a thread of its own: in the loop
//! that moves packets it would wait for them.

#![forbid(unsafe_code)]

mod estimator;
mod fleet;
mod stream;

pub use estimator::{Estimator, Limits, Outcome, StreamPlan};
pub use fleet::{Fleet, Verdict};
pub use stream::{Arrival, Discard, Judged, Probe, Trend, judge};
