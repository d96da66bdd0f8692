//! How much more a path carries: its available bandwidth, as a range.
//!
//! The available bandwidth of a path is what its tightest link has left beside the traffic of
//! others. It is found by self-loading streams: packets of one size at one rate. While they queue,
//! each is delayed a little more than the one before if the rate is above what is left, and a
//! little less if it is below. No packet has to be lost for that, and both clocks may be wrong.
//!
//! The life of one estimate:
//!
//! 1. [`Estimator::poll_stream`] wants a *train*, packets as fast as they can be sent, and a longer
//!    one, in which a token bucket would show. While they queue, the rate in over the rate out is
//!    one and the growth of delay per time.
//! 2. A train at another rate gives a second point of a line: that ratio grows linearly above what
//!    is left. The line gives the capacity and a first estimate.
//! 3. Then come *streams*. Each has a *lead*: packets that leave at once and make a queue. So a
//!    shaper's bucket is empty, and the queue lasts while others come by chance. What is left is
//!    the stream's rate less the capacity times the growth of delay. The next stream is sent at
//!    that rate, so that an error of the capacity weighs nothing. The shell notes when each packet
//!    really left, and the peer tells when each arrived; [`Estimator::handle_stream`] takes both.
//! 4. It ends when the standard error of all is small enough, or the cost is used up. Streams
//!    without a lead then check that the queue was at the link that has least left. What they say
//!    against it is in the range as well.
//! 5. [`Estimator::outcome`] is a range, or says why there is none. It never gives a number for a
//!    path with two delays, with a token bucket, or one that did not converge in a minute.
//!
//! What is measured and what is meant are kept apart. A stream's rate is that of its real send
//! times, and a pause of the sender does no harm while its queue lasts. Packets that left or
//! arrived at once are one event, and only the last of them, which waited least, counts
//! ([`judge`]).
//!
//! An estimate costs about a tenth of what a bulk transfer of ten seconds would carry at the
//! estimate, trains included, and loads the path with a tenth of it on average. What chance adds
//! within such a cost is not small: beside much traffic that comes by chance, on a slow line, the
//! answer is that there is none ([`Outcome::NotConverged`]). It is the same beside bursts that are
//! longer than a stream. Where all streams fall between those, the range is wrong. A bucket that
//! is deeper than all that is sent does not show.

//! Who runs it: the daemon, when somebody asks. Streams are frames of the link, sealed in the
//! session, and not UDP inside the network. There repair, order and pacing would move the packets
//! that measure, and this machine's ring would be measured with the path. A frame says also which
//! numbers it had, so that the weather is judged without it; and the peer's Hello says whether it
//! knows soundings at all. A stream is sealed at once and sent by a thread of its own: in the loop
//! that moves packets it would wait for them.

#![forbid(unsafe_code)]

mod estimator;
mod stream;

pub use estimator::{Estimator, Limits, Outcome, StreamPlan};
pub use stream::{Arrival, Discard, Judged, Probe, Queued, judge};
