//! The whole loop over the impaired line of `sim`, chunk by chunk: sender, line, receiver, reports
//! on their way back. What is lost for good, what it costs, and that congestion is left alone.
//!
//! `weather.txt` holds the figures of a grid. Where they change for a good reason, the failing test
//! prints the new ones.

mod path;

use std::fmt::Write as _;

use path::{Outcome, Path, Traffic};
use sim::impair::{Impairment, LossModel};
use sim::profile;

/// Chunks of 1400 bytes, 45 at a time, on a line of 1 Gbit/s: 600 Mbit/s of data.
const BULK: Traffic = Traffic { data: 45, chunk_len: 1_400, rate_bps: 600_000_000 };

/// `seconds` of bulk traffic after one second in which the path is learned.
fn bulk(impairment: Impairment, seconds: u64, seed: u64) -> Outcome {
    Path::new(impairment, BULK, seed).run(1_000_000, seconds * 1_000_000)
}

fn line(loss: f64, burst: f64, delay_us: u64) -> Impairment {
    let loss_model = if burst <= 1.0 {
        LossModel::Bernoulli
    } else {
        LossModel::GilbertElliott { burst_packets: burst, loss_in_burst: 1.0 }
    };
    Impairment { loss, loss_model, delay_us, jitter_us: delay_us / 2, ..Impairment::LINE }
}

fn write_row(text: &mut String, label: &str, outcome: &Outcome) {
    writeln!(
        text,
        "{label} {:>4} {:>5} {:>9.2} {:>9.0e} {:>9.2}",
        outcome.repair_chunks,
        outcome.depth,
        outcome.seen_before() * 100.0,
        outcome.residual(),
        outcome.overhead()
    )
    .expect("a string takes it");
}

#[test]
fn the_profiles_are_repaired_at_little_cost() {
    for (name, overhead_max) in [("low", 1.12), ("medium", 1.2), ("high", 1.28)] {
        let outcome = bulk(profile::named(name).expect("known"), 8, 1);
        assert!(outcome.residual() <= 1e-4, "{name}: {outcome}");
        assert!(outcome.overhead() <= overhead_max, "{name}: {outcome}");
        assert!(outcome.seen_before() > 0.0, "{name}: {outcome}");
    }
}

#[test]
fn a_clear_sky_costs_no_repair_chunk() {
    for name in ["baseline", "medium"] {
        let clear = Impairment { loss: 0.0, ..profile::named(name).expect("known") };
        let outcome = bulk(clear, 3, 2);
        assert_eq!((outcome.repair, outcome.lost), (0, 0), "{name}: {outcome}");
    }
}

#[test]
fn the_grid_is_that_of_the_snapshot_and_little_is_lost_for_good() {
    let mut text = String::from(
        "# 45 chunks at a time, 600 Mbit/s of data on 1 Gbit/s, 3 s a row; jitter half the delay.\n\
         # r is for a full block: 64 chunks, 48 where they are dealt to 8 lanes or more (depth).\n\
         # loss %  burst  delay ms    r depth  before %  residual  overhead\n",
    );
    for name in ["low", "medium", "high"] {
        let outcome = bulk(profile::named(name).expect("known"), 3, 3);
        write_row(&mut text, &format!("{name:>25}"), &outcome);
    }
    for loss in [0.001, 0.01, 0.03, 0.1] {
        for burst in [1.0, 2.0, 4.0, 8.0] {
            for delay_us in [1_000, 30_000] {
                let outcome = bulk(line(loss, burst, delay_us), 3, 3);
                let bound = if loss > 0.05 { 6e-4 } else { 2e-4 };
                assert!(outcome.residual() <= bound, "{loss} {burst} {delay_us}: {outcome}");
                assert!(outcome.overhead() <= 1.5, "{loss} {burst} {delay_us}: {outcome}");
                let label = format!("{:>8} {burst:>6} {:>9}", loss * 100.0, delay_us / 1_000);
                write_row(&mut text, &label, &outcome);
            }
        }
    }
    assert_eq!(text, include_str!("weather.txt"), "the figures have changed; now:\n{text}");
}

#[test]
fn smaller_blocks_and_slower_lines_are_repaired_too() {
    for (data, rate_bps, loss) in
        [(45, 20_000_000, 0.01), (10, 100_000_000, 0.01), (4, 50_000_000, 0.005)]
    {
        let impairment = Impairment { rate_bps: rate_bps * 2, ..line(loss, 1.0, 20_000) };
        let traffic = Traffic { data, rate_bps, ..BULK };
        let outcome = Path::new(impairment, traffic, 4).run(5_000_000, 20_000_000);
        assert!(outcome.residual() <= 3e-4 && outcome.overhead() <= 1.5, "{outcome}");
    }
}

#[test]
fn on_a_full_queue_little_is_spent_and_losses_stay_visible() {
    // 100 Mbit/s with 20 ms of queue, drop-tail, and a sender that fills it and halves its rate
    // when it sees a loss: losses come in bursts at the top of the queue.
    for (rate_bps, limit_packets) in [(100_000_000, 179), (20_000_000, 60), (1_000_000_000, 1_000)]
    {
        let full = Impairment { rate_bps, limit_packets, delay_us: 5_000, ..Impairment::LINE };
        let traffic = Traffic { rate_bps, ..BULK };
        let outcome = Path::new(full, traffic, 5).probing().run(3_000_000, 20_000_000);
        assert!(outcome.dropped > 20, "the queue was never full: {outcome}");
        assert!(outcome.overhead() <= 1.03, "{rate_bps}: {outcome}");
        assert!(outcome.seen_queued() > 0.8, "{rate_bps}: {outcome}");
    }
}

#[test]
fn weather_on_a_full_queue_is_repaired_for_what_it_is() {
    let impairment =
        Impairment { limit_packets: 179, rate_bps: 100_000_000, ..line(0.01, 1.0, 2_000) };
    let traffic = Traffic { rate_bps: 100_000_000, ..BULK };
    let outcome = Path::new(impairment, traffic, 6).probing().run(3_000_000, 20_000_000);
    assert!(outcome.overhead() <= 1.25, "{outcome}");
}
