//! A sender and a receiver with the impaired line between them, in virtual time. The coding is
//! real, on eight bytes a chunk; the line sees the length that they would have.

use std::collections::BTreeMap;
use std::fmt;

use repair::block::{Arrival, Assembler, BYTES_MAX, Shape};
use repair::control::Control;
use repair::observe::Observer;
use repair::spread::{self, Spread, Wait};
use repair::table::{self, Upper};
use repair::tuning::Tuning;
use sim::impair::{Impairment, Pipe, Verdict};
use wire::frame::Report;

const REPORT_US: u64 = 100_000;
/// Headers and tags of a chunk on the wire, bytes.
const HEADERS_LEN: usize = 80;
const CODED_LEN: usize = 8;

/// What is sent.
#[derive(Clone, Copy)]
pub(crate) struct Traffic {
    /// Data chunks that come together.
    pub(crate) data: usize,
    /// Bytes of each.
    pub(crate) chunk_len: usize,
    /// Bits of data a second; for a probing sender, the rate of the line.
    pub(crate) rate_bps: u64,
}

/// What came of it, in the time that was measured.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) data: u64,
    pub(crate) repair: u64,
    pub(crate) lost: u64,
    /// Of the whole run: dropped by the line's queue.
    pub(crate) dropped: u64,
    /// At the end: for a full block.
    pub(crate) repair_chunks: usize,
    pub(crate) depth: usize,
    judged: u64,
    lost_clear: u64,
    lost_queued: u64,
}

enum Event {
    Chunk {
        sequence: u64,
        sent_us: u64,
        block: u32,
        shape: Shape,
        index: u8,
        repair: Option<Coded>,
    },
    Report(Report),
    /// The sender looks whether a chunk that was lost on the way was repaired unseen.
    Look {
        block: u32,
        index: u8,
    },
}

type Coded = ([u8; 2], [u8; CODED_LEN]);

/// A block that was sent.
#[derive(Default)]
struct Sent {
    contents: Vec<[u8; CODED_LEN]>,
    counts: bool,
    /// What was passed on, and what of it under a mark of congestion.
    passed: u64,
    marked: u64,
}

impl Sent {
    fn lost(&self) -> u64 {
        self.contents.len() as u64 - u64::from(self.passed.count_ones())
    }

    fn pass(&mut self, index: u8, bytes: &[u8]) {
        assert_eq!(bytes, self.contents[usize::from(index)]);
        assert_eq!(self.passed >> index & 1, 0, "passed on twice");
        self.passed |= 1 << index;
    }
}

pub(crate) struct Path {
    pipe: Pipe,
    traffic: Traffic,
    control: Control,
    observer: Observer,
    assembler: Assembler,
    events: BTreeMap<(u64, u64), Event>,
    blocks: Vec<Sent>,
    spread: Spread,
    sequence: u64,
    sent: u64,
    probing: bool,
    rate_bps: f64,
    slowed_us: u64,
    reported: (u64, u64),
    outcome: Outcome,
}

impl Path {
    pub(crate) fn new(impairment: Impairment, traffic: Traffic, seed: u64) -> Self {
        Self {
            pipe: Pipe::new(impairment, seed).expect("a possible impairment"),
            traffic,
            control: Control::new(&Tuning::DEFAULT),
            observer: Observer::new(&Tuning::DEFAULT),
            assembler: Assembler::new(BYTES_MAX),
            events: BTreeMap::new(),
            blocks: Vec::new(),
            spread: Spread::new(&Tuning::DEFAULT),
            sequence: 0,
            sent: 0,
            probing: false,
            rate_bps: traffic.rate_bps as f64,
            slowed_us: 0,
            reported: (0, 0),
            outcome: Outcome::default(),
        }
    }

    /// Raises the rate until something is lost that is not repaired, or is marked; then slows down.
    pub(crate) fn probing(mut self) -> Self {
        self.probing = true;
        self.rate_bps *= 0.5;
        self
    }

    /// Sends for `learn_us` and then for `measure_us`, which counts.
    pub(crate) fn run(mut self, learn_us: u64, measure_us: u64) -> Outcome {
        let (mut block_us, mut report_us) = (0.0f64, REPORT_US);
        let end_us = learn_us + measure_us;
        while block_us < end_us as f64 {
            let now_us = block_us as u64;
            self.handle_events(now_us, &mut report_us);
            self.send_block(now_us, now_us >= learn_us);
            let bits = (self.traffic.data * self.traffic.chunk_len * 8) as f64;
            block_us += bits / self.rate_bps * 1e6;
            if self.probing {
                self.rate_bps += self.traffic.rate_bps as f64 * 0.5 * bits / self.rate_bps;
            }
        }
        self.outcome.depth = self.control.depth();
        self.outcome.repair_chunks = self
            .control
            .repair_chunks(Upper::Tcp, Tuning::DEFAULT.spending.lane_chunks(self.outcome.depth));
        self.handle_events(end_us + 2_000_000, &mut report_us);
        self.outcome.lost = self.blocks.iter().filter(|block| block.counts).map(Sent::lost).sum();
        self.outcome.dropped = self.pipe.counters().queue_dropped;
        self.outcome
    }

    fn send_block(&mut self, now_us: u64, counts: bool) {
        self.send_spread_repair(now_us);
        for _ in 0..self.traffic.data {
            let bytes = content(self.sequence);
            let mut next = self.blocks.len() as u32;
            let kind = (Upper::Tcp, Wait::Ordered);
            let place = self.spread.handle_chunk(&bytes, kind, &mut next, now_us).expect("room");
            self.blocks.resize_with(next as usize, || Sent { counts, ..Sent::default() });
            self.blocks[place.block as usize].contents.push(bytes);
            self.send(now_us, place.block, place.shape, place.index, None);
            self.sent += 1;
            self.outcome.data += u64::from(self.blocks[place.block as usize].counts);
            self.send_spread_repair(now_us);
        }
    }

    fn send_spread_repair(&mut self, now_us: u64) {
        while let Some(repair) = self.spread.poll_repair(&self.control, now_us) {
            let spread::Repair { block, shape, index, coded: (lengths, chunk) } = repair;
            let coded = (lengths, chunk.try_into().expect("as long as the data"));
            self.send(now_us, block, shape, index, Some(coded));
            self.outcome.repair += u64::from(self.blocks[block as usize].counts);
        }
    }

    fn send(&mut self, now_us: u64, block: u32, shape: Shape, index: u8, repair: Option<Coded>) {
        let (sequence, is_data) = (self.sequence, repair.is_none());
        self.sequence += 1;
        match self.pipe.offer(now_us * 1_000, self.traffic.chunk_len + HEADERS_LEN) {
            Verdict::Deliver { at_ns, .. } => {
                let event = Event::Chunk { sequence, sent_us: now_us, block, shape, index, repair };
                self.events.insert((at_ns / 1_000, sequence), event);
            }
            Verdict::Lost | Verdict::QueueDropped if is_data => {
                let rtt_us = 2 * self.pipe.impairment().delay_us + 50_000;
                self.events.insert((now_us + rtt_us, sequence), Event::Look { block, index });
            }
            _ => {}
        }
    }

    fn handle_events(&mut self, until_us: u64, report_us: &mut u64) {
        loop {
            let next_us = self.events.first_key_value().map_or(u64::MAX, |((at_us, _), _)| *at_us);
            if next_us.min(*report_us) > until_us {
                return;
            }
            if *report_us <= next_us {
                self.report(*report_us);
                *report_us += REPORT_US;
                continue;
            }
            let Some(((at_us, _), event)) = self.events.pop_first() else { return };
            match event {
                Event::Report(report) => {
                    let sent = table::Sent::of_tcp(std::mem::take(&mut self.sent));
                    self.control.handle_report(&report, sent, at_us);
                    self.spread.heed(&self.control);
                }
                Event::Look { block, index } => self.look(block, index, at_us),
                Event::Chunk { sequence, sent_us, block, shape, index, repair } => {
                    self.observer.handle_chunk(sequence, sent_us as u32, at_us);
                    self.assembler.handle_timeout(at_us);
                    self.receive(block, shape, index, repair, at_us);
                }
            }
        }
    }

    fn receive(&mut self, id: u32, shape: Shape, index: u8, repair: Option<Coded>, now_us: u64) {
        match repair {
            None => {
                let bytes = self.blocks[id as usize].contents[usize::from(index)];
                if self.assembler.handle_data(id, shape, index, &bytes, now_us) == Arrival::Deliver
                {
                    self.blocks[id as usize].pass(index, &bytes);
                }
            }
            Some((lengths, chunk)) => {
                self.assembler.handle_repair(id, shape, index, (lengths, &chunk), now_us);
            }
        }
        while let Some(rebuilt) = self.assembler.poll_rebuilt() {
            let block = &mut self.blocks[rebuilt.block as usize];
            block.pass(rebuilt.index, rebuilt.bytes);
            block.marked |= u64::from(self.observer.is_queued()) << rebuilt.index;
        }
    }

    fn report(&mut self, now_us: u64) {
        let counters = self.assembler.counters();
        let (lost, rebuilt) = self.reported;
        self.reported = (counters.lost, counters.rebuilt);
        let rebuilt = (counters.rebuilt - rebuilt) as u32;
        let missing = (counters.lost - lost) as u32 + rebuilt;
        let report = self.observer.poll_report(missing, rebuilt, now_us);
        self.outcome.judged += u64::from(report.clear.judged + report.queued.judged);
        self.outcome.lost_clear += u64::from(report.clear.lost);
        self.outcome.lost_queued += u64::from(report.queued.lost);
        let at_us = now_us + self.pipe.impairment().delay_us;
        self.events.insert((at_us, u64::MAX), Event::Report(report));
    }

    fn look(&mut self, block: u32, index: u8, now_us: u64) {
        let block = &self.blocks[block as usize];
        let is_seen = block.passed >> index & 1 == 0 || block.marked >> index & 1 == 1;
        if self.probing && is_seen && now_us > self.slowed_us + 60_000 {
            self.slowed_us = now_us;
            self.rate_bps *= 0.7;
        }
    }
}

impl Outcome {
    /// Share of data chunks lost for good.
    pub(crate) fn residual(&self) -> f64 {
        self.lost as f64 / self.data as f64
    }

    /// Chunks sent for each data chunk.
    pub(crate) fn overhead(&self) -> f64 {
        1.0 + self.repair as f64 / self.data as f64
    }

    /// Share of chunks lost as reported.
    pub(crate) fn seen_before(&self) -> f64 {
        (self.lost_clear + self.lost_queued) as f64 / self.judged as f64
    }

    /// Share of the losses that were reported as met in a queue.
    pub(crate) fn seen_queued(&self) -> f64 {
        self.lost_queued as f64 / (self.lost_clear + self.lost_queued) as f64
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.3} % lost ({:.0} % of it in a queue), residual {:.1e} ({} of {}), overhead {:.3}, \
             r {} and depth {} at the end, {} dropped by the queue",
            self.seen_before() * 100.0,
            self.seen_queued() * 100.0,
            self.residual(),
            self.lost,
            self.data,
            self.overhead(),
            self.repair_chunks,
            self.depth,
            self.dropped
        )
    }
}

fn content(number: u64) -> [u8; CODED_LEN] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}
