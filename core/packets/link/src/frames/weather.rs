//! The weather of a link's path as it is shown, and what the link does about it.

use noise::{Cipher, Instant};
use repair::table::Upper;

use crate::compression::Squeezes;
use crate::frames::piece::Counters;
use crate::frames::receiver::Receiver;
use crate::frames::sender::Sender;

/// One link's weather. Shares lie between zero and one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weather {
    /// Outwards: what datagrams are sealed with, by its name; "none" without a session.
    pub cipher: &'static str,
    /// No session stands: the last one spoke frames, and what is told is of then.
    pub is_idle: bool,
    /// Outwards: every part of the way is a stream, as far as is known.
    pub in_streams: bool,
    /// Outwards: when the peer told of it last. All that is said of its eye is of then.
    pub told_out: Option<Instant>,
    /// Inwards: when losses were found out last.
    pub told_in: Option<Instant>,
    /// Outwards: share of datagrams lost that is not congestion, as the peer reports it.
    pub loss_out: f64,
    /// Outwards: how many of them are lost in a row, in the mean, where any is.
    pub burst_out: Option<f64>,
    /// Outwards: share of the losses that the peer met while the path's queue was long.
    pub queued_share_out: f64,
    /// Outwards: what repair leaves of `loss_out`.
    pub left_out: f64,
    /// Outwards: payload of the chunks of the superpacket that was sent last, in bytes; 0 before
    /// the first.
    pub chunk_bytes: usize,
    /// Outwards: repair chunks for a full block of TCP, and for one with anything else in it.
    pub repair_chunks: usize,
    /// See `repair_chunks`.
    pub repair_chunks_other: usize,
    /// Lanes that neighbours are dealt to.
    pub depth: usize,
    /// Whether what is sent fills the line lately.
    pub is_full: bool,
    /// How far repair is trusted to help.
    pub trust: f64,
    /// Bytes sent as data, and as repair.
    pub data_bytes: u64,
    /// See `data_bytes`.
    pub repair_bytes: u64,
    /// Small packets sent in bundles.
    pub bundled: u64,
    /// Outwards: between two datagrams of a burst, nanoseconds; 0 where they leave at once.
    pub gap_ns: u32,
    /// Outwards: whether the peer reads what is compressed.
    pub reads_squeezed: bool,
    /// Outwards: what was compressed.
    pub squeezes: Squeezes,
    /// Round trip by the last report, microseconds.
    pub rtt_us: Option<u32>,
    /// Outwards: delay above the smallest, microseconds.
    pub queue_us_out: u32,
    /// Outwards: by how much that grows, microseconds a second.
    pub queue_trend_us_out: i64,
    /// Outwards: how late datagrams come behind younger ones, microseconds.
    pub reorder_us_out: u32,
    /// Inwards: the same.
    pub reorder_us_in: u32,
    /// Inwards: how long TCP may wait for its order at most, microseconds.
    pub order_us_max: u64,
    /// Inwards: pieces by what became of them.
    pub pieces: Counters,
    /// Inwards: pieces that wait for their head, their order or room.
    pub waiting: usize,
    /// Inwards: share of datagrams lost, of what came in the last half minute or so of traffic.
    pub loss_in: f64,
    /// Inwards: what repair left of it.
    pub left_in: f64,
    /// Inwards: pieces rebuilt, of which some were late only.
    pub rebuilt: u64,
    /// Inwards: pieces that waited for an older one, microseconds that they waited all together,
    /// and times that one did not come.
    pub waited: u64,
    /// See `waited`.
    pub waited_us: u64,
    /// See `waited`.
    pub given_up: u64,
}

impl Weather {
    pub(crate) fn of(
        cipher: Option<Cipher>,
        sender: &Sender,
        receiver: &Receiver,
        order_us_max: u64,
    ) -> Self {
        let control = sender.control();
        let estimate = control.estimate();
        let (pieces, blocks, order) = receiver.counters();
        let (data_bytes, repair_bytes) = sender.bytes();
        let (loss_out, left_out) = sender.losses();
        let (loss_in, left_in) = receiver.losses();
        let full = control.full_chunks();
        Self {
            cipher: cipher.map_or("none", Cipher::name),
            is_idle: false,
            in_streams: sender.is_in_streams(),
            told_out: sender.told(),
            told_in: receiver.told(),
            loss_out,
            burst_out: (loss_out > 0.0).then(|| estimate.model.burst()),
            queued_share_out: estimate.queued_share,
            left_out,
            chunk_bytes: sender.chunk_len(),
            repair_chunks: control.repair_chunks(Upper::Tcp, full),
            repair_chunks_other: control.repair_chunks(Upper::Other, full),
            depth: control.depth(),
            is_full: control.is_full(),
            trust: control.trust(),
            data_bytes,
            repair_bytes,
            bundled: sender.bundled(),
            gap_ns: sender.gap_ns(),
            reads_squeezed: sender.reads_squeezed(),
            squeezes: sender.squeezes(),
            rtt_us: sender.rtt_us(),
            queue_us_out: estimate.queue_us,
            queue_trend_us_out: estimate.gradient_us,
            reorder_us_out: estimate.reorder_us,
            reorder_us_in: receiver.reorder_us(),
            order_us_max,
            pieces,
            waiting: receiver.waiting(),
            loss_in,
            left_in,
            rebuilt: blocks.rebuilt,
            waited: order.waited,
            waited_us: order.waited_us,
            given_up: order.given_up,
        }
    }
}
