//! Lanes: where chunks go, when blocks close, and what their repair costs.

use std::collections::BTreeMap;

use sim::rng::Rng;

use super::*;
use crate::code::block::{Assembler, BYTES_MAX};
use crate::weather::limits::Limits;
use crate::weather::table::Sent;
use wire::frame::{Losses, Report};

const TUNING: &Tuning = &Tuning::DEFAULT;
const HOLD_US: u64 = TUNING.waiting.hold_us;
const PAIR_US: u64 = TUNING.waiting.pair_us;
const PAUSE_US: u64 = TUNING.waiting.pause_us;
const SAVED_FIRST: u32 = TUNING.spending.saved_first;

#[test]
fn neighbours_go_to_different_blocks_and_a_full_lane_is_repaired() {
    let clear = Losses { judged: 1_000, lost: 20, runs: 20, ..Losses::default() };
    let mut control = Control::new(TUNING);
    control.handle_report(&Report { clear, ..Report::default() }, Sent::of_tcp(1_000), 0);
    let (mut spread, mut next) = (Spread::new(TUNING), 9);
    spread.depth = 4;
    let mut last = None;
    for n in 0..4 * LANE_CHUNKS {
        let place = spread
            .handle_chunk(&[n as u8; 50], (Upper::Tcp, Wait::Answer), &mut next, 5)
            .expect("room");
        assert_ne!(last.replace(place.block), Some(place.block));
        assert_eq!(usize::from(place.index), n / 4);
    }
    assert_eq!((next, spread.poll_timeout()), (13, Some(0)));
    assert_eq!(spread.handle_chunk(&[1; 50], (Upper::Tcp, Wait::Answer), &mut next, 5), None);
    assert!(spread.poll_repair(&control, 5).is_none(), "they keep their distance");
    assert_eq!(spread.poll_timeout(), Some(5 + PAUSE_US));
    let each = control.repair_chunks(Upper::Tcp, LANE_CHUNKS);
    for n in 0..4 * each {
        let repair = spread.poll_repair(&control, 5 + PAUSE_US).expect("four blocks are full");
        assert_eq!((repair.block, usize::from(repair.index)), (9 + (n as u32 + 3) % 4, n / 4));
        assert_eq!((usize::from(repair.shape.data), repair.coded.1.len()), (LANE_CHUNKS, 50));
    }
    assert!(each > 0 && spread.poll_repair(&control, 5 + PAUSE_US).is_none());
    assert_eq!(spread.poll_timeout(), None);
}

/// A repair chunk is as long as the longest of its block.
#[test]
fn bc_09_few_large_chunks_among_small_ones_are_not_repaired_with_more_than_half_the_bytes() {
    let control = known(2_500, 10_000);
    for (large, small) in [(0, 60), (4, 60), (20, 60), (64, 1_400)] {
        let (mut spread, mut next) = (Spread::new(TUNING), 0);
        let (mut bytes, mut repaired, mut count) = (0, 0, 0);
        for n in 0..LANE_CHUNKS {
            let len = if n < large { 1_400 } else { small };
            let kind = (Upper::Tcp, Wait::Ordered);
            spread.handle_chunk(&vec![1; len], kind, &mut next, 0).expect("room");
            bytes += len;
        }
        assert!(spread.poll_repair(&control, 1_000_000).is_none(), "the block closes");
        while let Some(repair) = spread.poll_repair(&control, 2_000_000) {
            (repaired, count) = (repaired + repair.coded.1.len(), count + 1);
        }
        assert!(count > 0 && repaired <= bytes / CAP + 1_400, "{large}: {repaired} of {bytes}");
        if large == 0 || large == 64 {
            assert_eq!(count, control.repair_chunks(Upper::Tcp, LANE_CHUNKS));
        }
    }
}

/// A line that is metered: what is wanted is not what may be spent, in large blocks and in small.
#[test]
fn bc_09_repair_costs_no_more_than_it_may() {
    for share in [0.0, 0.05, 0.2, 0.5] {
        let limits = Limits { share, ..Limits::usual(&TUNING.waiting) };
        for (lost, chunks, gap_us) in [(2_500, 6_400, 100), (500, 2_000, 40_000)] {
            let mut control = known(lost, 1_000_000 / gap_us);
            control.set_limits(limits);
            let (mut spread, mut next, mut spent) = (Spread::new(TUNING), 0, 0);
            spread.heed(&control);
            for n in 0..chunks {
                let now_us = n * gap_us;
                let kind = (Upper::Tcp, Wait::Ordered);
                spread.handle_chunk(&[1; 900], kind, &mut next, now_us).expect("room");
                let end_us = now_us + gap_us - 1;
                let mut at_us = now_us;
                while at_us <= end_us {
                    while spread.poll_repair(&control, at_us).is_some() {
                        spent += 1;
                    }
                    let Some(due_us) = spread.poll_timeout() else { break };
                    at_us = due_us.max(at_us + 1);
                }
            }
            let most = (chunks as f64 * share).ceil() as u64 + u64::from(SAVED_FIRST);
            assert!(spent <= most, "{share}, {gap_us} us: {spent} of {chunks}");
            assert!(share == 0.0 || spent * 3 > most, "{share}, {gap_us} us: {spent}");
            assert!(share > 0.0 || spent == 0);
        }
    }
}

/// A path that is known: of 10,000 chunks so many lost, and so many sent a second.
fn known(lost: u32, rate: u64) -> Control {
    let clear = Losses { judged: 10_000, lost, runs: lost, ..Losses::default() };
    let (mut control, report) = (Control::new(TUNING), Report { clear, ..Report::default() });
    (0..40).for_each(|n| control.handle_report(&report, Sent::of_tcp(rate), n * 1_000_000));
    control
}

/// Sends `packets` alone, `gap_us` apart, over 2 % loss; returns the shares lost and spent.
fn alone(packets: u32, gap_us: u64) -> (f64, f64) {
    let control = known(200, 1_000_000 / gap_us);
    let (mut spread, mut assembler) = (Spread::new(TUNING), Assembler::new(BYTES_MAX));
    spread.heed(&control);
    let (mut rng, mut next, mut sent) = (Rng::new(1), 0, BTreeMap::new());
    let (mut passed, mut spent) = (0u32, 0u32);
    for n in 0..packets {
        let now_us = u64::from(n) * gap_us;
        let packet = vec![n as u8; 40 + n as usize % 1_000];
        let place = spread
            .handle_chunk(&packet, (Upper::Other, Wait::Company), &mut next, now_us)
            .expect("room");
        sent.insert((place.block, place.index), packet.clone());
        if !rng.chance(0.02) {
            assembler.handle_data(place.block, place.shape, place.index, &packet, now_us);
            passed += 1;
        }
        let end_us = now_us + gap_us - 1;
        let mut at_us = now_us;
        while at_us <= end_us {
            while let Some(repair) = spread.poll_repair(&control, at_us) {
                spent += 1;
                if !rng.chance(0.02) {
                    let Repair { block, shape, index, coded } = repair;
                    assembler.handle_repair(block, shape, index, coded, at_us);
                    while let Some(rebuilt) = assembler.poll_rebuilt() {
                        assert_eq!(rebuilt.bytes, sent[&(rebuilt.block, rebuilt.index)]);
                        passed += 1;
                    }
                }
            }
            let Some(due_us) = spread.poll_timeout() else { break };
            at_us = due_us.max(at_us + 1);
        }
    }
    (1.0 - f64::from(passed) / f64::from(packets), f64::from(spent) / f64::from(packets))
}

#[test]
fn a_block_waits_for_company_only_where_company_comes() {
    let wait_us = |lost, rate| company_us(&known(lost, rate), TUNING);
    let waits = [50_000, 4_000, 200, 85, 50, 41, 39, 0].map(|rate| wait_us(200, rate));
    let [lone, pair] = [PAUSE_US, 25_000];
    assert_eq!(waits, [HOLD_US, HOLD_US, HOLD_US, HOLD_US, pair, 30_487, lone, lone]);
    // One in thirty lost is dear where fifteen share, one in fifty is not.
    assert_eq!([330, 200].map(|lost| wait_us(lost, 1_000)), [PAIR_US, HOLD_US]);
    assert_eq!([200, 5].map(|lost| wait_us(lost, 300)), [PAIR_US, HOLD_US]);
}

#[test]
fn bc_09_lone_packets_are_repaired_within_the_allowance() {
    let bounds = [(100, 2e-4), (1_500, 4e-4), (6_000, 1.5e-3), (20_000, 1.5e-3), (50_000, 0.012)];
    for (gap_us, residual_max) in bounds {
        let (residual, spent) = alone(40_000, gap_us);
        assert!(residual <= residual_max, "{gap_us} us apart: {residual} lost");
        assert!(spent > 0.0 && spent <= 0.501, "{gap_us} us apart: {spent} spent");
    }
}

/// A flow's flight, and an acknowledgement of another just behind it: their blocks are due at
/// the same time.
#[test]
fn a_lone_packet_behind_a_flight_takes_none_of_its_repair() {
    let clear = Losses { judged: 1_000, lost: 20, runs: 20, ..Losses::default() };
    let mut control = Control::new(TUNING);
    control.handle_report(&Report { clear, ..Report::default() }, Sent::of_tcp(300), 0);
    let (mut spread, mut next) = (Spread::new(TUNING), 0);
    spread.heed(&control);
    for _ in 0..20 {
        assert!(
            spread.handle_chunk(&[1; 50], (Upper::Tcp, Wait::Ordered), &mut next, 100).is_some()
        );
    }
    let mut sent = [0; 2];
    let mut now_us = 100;
    for step in 0..10 {
        while let Some(repair) = spread.poll_repair(&control, now_us) {
            sent[repair.block as usize] += 1;
        }
        if step == 1 {
            assert!(
                spread
                    .handle_chunk(&[2; 40], (Upper::Tcp, Wait::Answer), &mut next, now_us + 50)
                    .is_some()
            );
        }
        now_us = spread.poll_timeout().unwrap_or(now_us);
    }
    assert_eq!(sent, [control.repair_chunks(Upper::Tcp, 20), control.few_chunks(Upper::Tcp, 1)]);
    assert_eq!(spread.poll_timeout(), None);
}

#[test]
fn a_lane_that_does_not_fill_is_closed_in_time() {
    let (mut spread, mut next) = (Spread::new(TUNING), 0);
    assert!(spread.handle_chunk(&[1; 50], (Upper::Tcp, Wait::Answer), &mut next, 100).is_some());
    assert_eq!(spread.handle_chunk(&[], (Upper::Tcp, Wait::Answer), &mut next, 100), None);
    assert_eq!(spread.poll_timeout(), Some(100 + HOLD_US));
    let mut control = Control::new(TUNING);
    let clear = Losses { judged: 5_000, ..Losses::default() };
    control.handle_report(&Report { clear, ..Report::default() }, Sent::of_tcp(0), 0);
    spread.trim();
    assert_eq!(spread.lanes.len(), 1);
    assert!(spread.poll_repair(&control, 100 + HOLD_US).is_none(), "the path is calm");
    spread.trim();
    assert_eq!(spread.lanes.len(), 0);
    assert_eq!(spread.poll_timeout(), None);
}
