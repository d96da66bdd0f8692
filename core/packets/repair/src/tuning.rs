//! Every tuned number of this crate: what nothing proves, but a measurement found good.
//!
//! Bounds of memory, sizes of formats and mathematics are none of these; they are constants beside
//! what they bound. `make ablation` measures what each number is worth, and
//! docs/measurements/ablation.md has the table. A number that is worth nothing is deleted, with its
//! branch.
//!
//! A constructor is handed a `&'static Tuning`, [`Tuning::DEFAULT`] everywhere but in measurements.

use crate::bounds::LANE_CHUNKS;

/// The tuned numbers, by the question that they answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// What is believed of loss?
    pub belief: Belief,
    /// What is assumed of a path that is not known?
    pub unknown: Unknown,
    /// Is there a queue?
    pub queue: Queue,
    /// Who tells delays?
    pub telling: Telling,
    /// How much is spent?
    pub spending: Spending,
    /// Did it help?
    pub worth: Worth,
    /// How long may anything wait?
    pub waiting: Waiting,
}

/// What is believed of loss (`estimate`, `spells`, `model`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Belief {
    /// Microseconds in which the sum that follows the weather forgets half.
    pub quick_half_us: f64,
    /// Chunks that it does not forget by that.
    pub quick_chunks: f64,
    /// Microseconds in which the sum for what is rare forgets half.
    pub slow_half_us: f64,
    /// Chunks that it does not forget by that.
    pub slow_chunks: f64,
    /// Microseconds in which half of what is known is forgotten while every chunk meets a queue.
    pub blind_half_us: f64,
    /// What rests on fewer than `known_chunks` fades sooner by as much, down to this share of
    /// `blind_half_us`.
    pub weight_min: f64,
    /// Chunks that met a queue, for each that met none, from which on what is known fades.
    pub blind_times: f64,
    /// Microseconds in which half of everything is forgotten, for paths with little traffic.
    pub old_half_us: f64,
    /// The same of shares that only describe: queue, residual.
    pub shown_half_us: f64,
    /// Longest time between two reports that counts, microseconds.
    pub pause_us_max: u64,
    /// So many chunks say something of a path. Below so many judged ones, and `known_losses`, it is
    /// not known; so many make up a spell; so many that came without a pause say how far it
    /// reorders; and for so many after a loss packets tell their delay.
    pub known_chunks: f64,
    /// Below so many lost chunks, and `known_chunks`, a path is not known.
    pub known_losses: f64,
    /// Of the losses in a queue, the share of runs judged to have come while it was short: where a
    /// queue begins and ends, its first and last losses share a group with what came through.
    pub spill: f64,
    /// Runs that are forgiven so at most: more of them are weather, whatever else went on.
    pub spill_max: f64,
    /// Where something was lost, so many judged chunks say enough.
    pub enough_chunks: f64,
    /// Microseconds over which the growth of the queue is averaged.
    pub gradient_us: f64,
    /// Spells that are compared.
    pub spells: usize,
    /// Of these so many may stand out at most.
    pub out_max: usize,
    /// And one for each so many.
    pub out_each: usize,
    /// A spell that stands out has so many times the losses of the worst of the others.
    pub out_times: f64,
    /// And so many losses more.
    pub out_losses: f64,
    /// A fitted chain forgets at least what this leaves, for each chunk.
    pub memory_max: f64,
    /// Windows below which their spread says nothing.
    pub windows_min: f64,
}

/// What is assumed of a path that is not known (`control`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unknown {
    /// Share lost: a new flow can bear the least, and that is when a path becomes known.
    pub loss: f64,
    /// Losses to a run. Repair planned for single losses rebuilds none of a run, and a new flow
    /// pays for each that is left; planned for runs it costs more until the path is known.
    pub burst: f64,
    /// Residual loss aimed at.
    pub target: f64,
    /// The same where something met a queue. Less would cost more than it saves: a first flight
    /// that overruns a queue for its repair has lost what that was to save.
    pub queued_target: f64,
    /// Where something met a queue, what may hide is taken for this share of what can.
    pub queued_share: f64,
    /// Where more than this share of what was judged last met a queue, the path is being filled.
    pub filling: f64,
}

/// Whether there is a queue (`observe`, `levels`, `control`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// Delays that make a smallest; where few neighbours tell theirs, several groups do together.
    pub timed_min: u32,
    /// In no more groups are these sought behind the one that is judged.
    pub groups_after: u64,
    /// A queue stands if it does so for so long, microseconds.
    pub standing_us: u64,
    /// And for so many chunks.
    pub standing_chunks: u32,
    /// A shorter queue is none, microseconds.
    pub least_us: u32,
    /// One in so many groups may have had a longer queue than the longest that counts.
    pub above: u64,
    /// A chunk is queued above the longest queue divided by this.
    pub part: u64,
    /// After so long without a delay told nobody knows of a queue, microseconds.
    pub stale_us: u64,
    /// For how long, once or twice, the smallest delay is kept, microseconds.
    pub base_us: u64,
    /// For how long, once or twice, the longest queue and reordering are kept, microseconds.
    pub peak_us: u64,
    /// Jitter is no queue: one is so many times as long as chunks come late, and `least_us` more.
    pub jitter_times: u32,
    /// Microseconds over which is averaged whether a queue stands, while one does. TCP that fills a
    /// line empties the queue with each loss, and is back after some round trips.
    pub stands_us: f64,
    /// The same while none does.
    pub empty_us: f64,
    /// The line is full where a queue stood for more than this share of that time.
    pub full_share: f64,
    /// Between two reports must be so much time to say what a line takes, microseconds.
    pub full_us: u64,
    /// For how long, once or twice, what a line takes is remembered, microseconds.
    pub line_us: u64,
}

/// Who tells delays (`observe`, `control`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Telling {
    /// What is lost behind so many that came without telling their delay may have been lost in a
    /// queue.
    pub blind: u32,
    /// Behind so few it may after `blind_us`: a flow has filled a slow line by then.
    pub blind_long: u32,
    /// See `blind_long`: microseconds with traffic.
    pub blind_us: u64,
    /// Between two chunks there is traffic for so long at most, microseconds.
    pub gap_us_max: u64,
    /// For so long after a loss was reported packets tell their delay, microseconds, and until
    /// [`Belief::known_chunks`] were judged.
    pub watch_us: u64,
}

/// How much is spent (`control`, `table`, `full`, `spread`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spending {
    /// Residual loss aimed at, share of data chunks.
    pub target: f64,
    /// The most runs of losses that are left to TCP where it bears them, share of chunks.
    pub runs_max: f64,
    /// And the most losses.
    pub target_max: f64,
    /// The most runs that are left to TCP that fills the line, and so shows that it bears them.
    pub runs_max_full: f64,
    /// And the most losses.
    pub target_max_full: f64,
    /// TCP must be able to be so many times as quick as it is.
    pub headroom: f64,
    /// And no slower than this, in chunks a second (100 Mbit/s): who is slow now may just begin.
    pub rate_min: f64,
    /// For how long, once or twice, the shortest round trip is remembered, microseconds.
    pub rtt_us: u64,
    /// Share of a new rate in the smoothed one.
    pub rate_gain: f64,
    /// Of what the line takes and of what TCP's losses let it have, each counts by this power.
    pub full_power: i32,
    /// More lanes are taken where they cost less than this share.
    pub deeper_share: f64,
    /// Or, where the cap binds, where they leave less than one in so many losses.
    pub deeper_part: f64,
    /// And cost no more than so many times as much.
    pub deeper_cost: f64,
    /// With more lanes than this their blocks are smaller, for all must fill in time.
    pub few_lanes: usize,
    /// Data chunks of such a block.
    pub deep_chunks: usize,
    /// Blocks of so many chunks live on the allowance.
    pub few: usize,
    /// Half chunks of allowance that are saved up at most.
    pub saved_max: u32,
    /// Allowance at the beginning: a connection that opens has no others to share with, and the
    /// loss of its first packet costs it a second, of its first data the slow start.
    pub saved_first: u32,
    /// More repair than this for each chunk is much: with a full packet's own headers it is 1.35
    /// bytes a byte.
    pub dear: f64,
}

/// Whether it helped (`control`, `table`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    /// Missing chunks that a judgement of the repair's worth takes.
    pub evidence: f64,
    /// Below this share rebuilt repair is trusted less.
    pub poor: f64,
    /// Above this share rebuilt it is trusted more.
    pub good: f64,
    /// What is left of trust then.
    pub trust_kept: f64,
    /// By how much trust grows, or the loss that is planned for where more was lost.
    pub gain: f64,
    /// Trust does not fall below; there only one repair chunk is tried.
    pub trust_min: f64,
    /// And only in blocks of so many data chunks.
    pub probe_data: usize,
    /// Where repair was not trusted by `retried` for so long it is again, microseconds.
    pub retry_us: u64,
    /// To what trust is raised then.
    pub retried: f64,
    /// So many losses more than promised are chance.
    pub chance: f64,
    /// So many times what was promised is chance, too.
    pub chance_times: f64,
    /// The loss that is planned for is raised so many times at most.
    pub boost_max: f64,
    /// What a report leaves of that.
    pub boost_kept: f64,
}

impl Worth {
    /// Whether repair that is trusted so far is trusted to help at all.
    pub(crate) fn is_met(&self, trust: f64) -> bool {
        trust > self.trust_min
    }
}

/// How long anything may wait (`spread`, `limits`, `order`, `observe`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waiting {
    /// How long a lane's block fills at most, but for data of TCP, microseconds: half of what flows
    /// wait.
    pub hold_us: u64,
    /// The same with data of TCP in it, on a path that is known. Its repair must be out before
    /// flows give up waiting, and the more chunks share it, the longer the runs that they outlive.
    pub ordered_us: u64,
    /// How long one waits for others at most, where nothing waits for its order, microseconds: two
    /// at 40 a second.
    pub pair_us: u64,
    /// Two come within so many of the gaps between them.
    pub pair_gaps: f64,
    /// When no chunks follow, a block of more than [`Spending::few`] is closed after so long: the
    /// flight of a flow is over, and it waits for an answer. On a path that is not known flows
    /// begin, which can bear the least, so there it is `pause_us`; less also where reordering takes
    /// most of what flows wait. Microseconds.
    pub flight_us: u64,
    /// What the repair chunks of a block take until the last is out, about, microseconds.
    pub leave_us: u64,
    /// The least that is a pause, microseconds: so long wait repair chunks when no chunk follows,
    /// and so long fills a block where chunks come so slowly that each is alone.
    pub pause_us: u64,
    /// Longest time that any piece waits for its order, unless somebody asks for another,
    /// microseconds.
    pub order_us: u64,
    /// A chunk that is missing is judged after at least so long, microseconds.
    pub judge_us_min: u64,
    /// And at most after so long. No more than `observe` can look back.
    pub judge_us_max: u64,
    /// In between, after so many times the reordering that was seen.
    pub judge_times: u64,
}

impl Spending {
    /// Data chunks of a block where `depth` lanes are in use.
    #[must_use]
    pub fn lane_chunks(&self, depth: usize) -> usize {
        if depth > self.few_lanes { self.deep_chunks.min(LANE_CHUNKS) } else { LANE_CHUNKS }
    }
}

impl Tuning {
    /// The numbers that hold.
    pub const DEFAULT: Self = Self {
        belief: Belief {
            quick_half_us: 300_000.0,
            quick_chunks: 2_000.0,
            slow_half_us: 5_000_000.0,
            slow_chunks: 20_000.0,
            blind_half_us: 10_000_000.0,
            weight_min: 0.05,
            blind_times: 10.0,
            old_half_us: 60_000_000.0,
            shown_half_us: 1_000_000.0,
            pause_us_max: 120_000_000,
            known_chunks: 1_000.0,
            known_losses: 2.0,
            spill: 0.02,
            spill_max: 2.0,
            enough_chunks: 4_000.0,
            gradient_us: 500_000.0,
            spells: 16,
            out_max: 4,
            out_each: 3,
            out_times: 2.0,
            out_losses: 32.0,
            memory_max: 0.99,
            windows_min: 8.0,
        },
        unknown: Unknown {
            loss: 0.025,
            burst: 3.0,
            target: 5e-4,
            queued_target: 2e-3,
            queued_share: 1.0 / 3.0,
            filling: 0.2,
        },
        queue: Queue {
            timed_min: 6,
            groups_after: 4,
            standing_us: 10_000,
            standing_chunks: 64,
            least_us: 3_000,
            above: 10,
            part: 2,
            stale_us: 1_000_000,
            base_us: 20_000_000,
            peak_us: 2_000_000,
            jitter_times: 2,
            stands_us: 333_000.0,
            empty_us: 1_000_000.0,
            full_share: 0.5,
            full_us: 50_000,
            line_us: 10_000_000,
        },
        telling: Telling {
            blind: 512,
            blind_long: 32,
            blind_us: 500_000,
            gap_us_max: 100_000,
            watch_us: 2_000_000,
        },
        spending: Spending {
            target: 1e-5,
            runs_max: 1e-3,
            target_max: 5e-3,
            runs_max_full: 2e-2,
            target_max_full: 4e-2,
            headroom: 2.0,
            rate_min: 10_000.0,
            rtt_us: 5_000_000,
            rate_gain: 0.3,
            full_power: 4,
            deeper_share: 0.9,
            deeper_part: 2.0,
            deeper_cost: 1.05,
            few_lanes: 4,
            deep_chunks: 48,
            few: 8,
            saved_max: 32,
            saved_first: 8,
            dear: 0.3,
        },
        worth: Worth {
            evidence: 16.0,
            poor: 0.25,
            good: 0.5,
            trust_kept: 0.8,
            gain: 0.1,
            trust_min: 0.1,
            probe_data: 16,
            retry_us: 30_000_000,
            retried: 0.5,
            chance: 3.0,
            chance_times: 10.0,
            boost_max: 2.0,
            boost_kept: 0.99,
        },
        waiting: Waiting {
            hold_us: 15_000,
            ordered_us: 24_000,
            pair_us: 31_250,
            pair_gaps: 1.25,
            flight_us: 4_000,
            leave_us: 6_000,
            pause_us: 1_000,
            order_us: 30_000,
            judge_us_min: 10_000,
            judge_us_max: 150_000,
            judge_times: 2,
        },
    };
}
