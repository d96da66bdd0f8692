//! The grid: one TCP stream over every delay, loss and rate that is named here.

/// Delays, one way.
pub const DELAYS_MS: [u32; 4] = [1, 20, 60, 150];
/// Losses, percent; they come in bursts of four packets in the mean.
pub const LOSSES: [&str; 4] = ["0", "0.5", "2", "5"];
/// Rates; the queue holds 20 ms, and at least 32 packets.
pub const RATES_MBIT_S: [u32; 3] = [5, 50, 1_000];
/// A line of the slowest rate is measured so many times as long as the others. At 0.5 % it loses in
/// bursts every two seconds, and what the first two of them hit decides about ten seconds.
const SLOWEST_TIMES: u32 = 3;

/// The profiles: delay, loss and rate of each cell.
#[must_use]
pub fn cells() -> Vec<String> {
    let mut cells = Vec::new();
    for rate in RATES_MBIT_S {
        // 20 ms at this rate, in packets of 1500 bytes.
        let limit = (rate * 20 * 1_000 / 8 / 1_500).max(32);
        for delay in DELAYS_MS {
            for loss in LOSSES {
                let burst = if loss == "0" { "" } else { "+burst=4" };
                cells.push(format!(
                    "delay={delay}ms+loss={loss}%{burst}+rate={rate}mbit+limit={limit}"
                ));
            }
        }
    }
    cells
}

/// How long the cell of this profile is measured where others are for so many `seconds`.
#[must_use]
pub fn seconds_of(profile: &str, seconds: u32) -> u32 {
    let slowest = format!("rate={}mbit", RATES_MBIT_S[0]);
    let is_slowest = profile.split('+').any(|word| word == slowest);
    if is_slowest { seconds * SLOWEST_TIMES } else { seconds }
}

#[cfg(test)]
mod tests {
    use sim::impair::Impairment;

    use super::*;
    use crate::ring::impairment;

    #[test]
    fn the_grid_spans_what_the_contract_names_and_every_cell_is_an_impairment() {
        let cells = cells();
        assert_eq!(cells.len(), 48);
        for cell in &cells {
            impairment(cell).unwrap_or_else(|error| panic!("{cell}: {error}"));
        }
        let all: Vec<Impairment> = cells.iter().map(|c| impairment(c).expect("fits")).collect();
        let most = |value: fn(&Impairment) -> f64| all.iter().map(value).fold(0.0, f64::max);
        assert_eq!(most(|i| i.delay_us as f64), 150_000.0);
        assert!((most(|i| i.loss) - 0.05).abs() < 1e-9);
        assert!(all.iter().any(|i| i.rate_bps == 5_000_000 && i.limit_packets == 32));
        assert!(all.iter().any(|i| i.rate_bps == 1_000_000_000 && i.limit_packets == 1_666));
    }

    #[test]
    fn the_slowest_lines_alone_are_measured_for_longer() {
        for (cell, line) in cells().iter().enumerate() {
            assert_eq!(seconds_of(line, 10), if cell < 16 { 30 } else { 10 }, "{line}");
        }
    }
}
