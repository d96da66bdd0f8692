//! The output of ping: one round-trip time for each answer.

use anyhow::{Context, Result, ensure};

/// Round-trip times in the order of the answers, microseconds.
///
/// # Errors
/// Returns an error when fewer than nine in ten of `sent` were answered: a median over what is
/// left would flatter.
pub(crate) fn parse(output: &str, sent: usize) -> Result<Vec<f64>> {
    let times = answers(output);
    ensure!(
        times.len() * 10 >= sent * 9 && !times.is_empty(),
        "of {sent} pings {} were answered",
        times.len()
    );
    Ok(times)
}

/// Round-trip times of all answers, microseconds; none when there was no answer.
pub(crate) fn answers(output: &str) -> Vec<f64> {
    output.lines().filter_map(rtt_us).collect()
}

/// What ping says at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// How many it sent.
    pub(crate) sent: f64,
    /// How many answers it read.
    pub(crate) answered: f64,
    /// From the first one sent to the last thing that it did, seconds.
    pub(crate) time_s: f64,
}

/// The summary's
/// `20000 packets transmitted, 19998 received, +1 duplicates, 0.01% packet loss, time 9876ms`.
///
/// # Errors
/// Returns an error when there is no such line.
pub(crate) fn summary(output: &str) -> Result<Summary> {
    let line = output.lines().find(|line| line.contains(" packets transmitted, "));
    let parts: Vec<&str> = line.map(|line| line.split(", ").collect()).unwrap_or_default();
    let number = |before: &str, after: &str| {
        let read = |part: &&str| part.strip_prefix(before)?.strip_suffix(after)?.parse().ok();
        parts.iter().find_map(read)
    };
    let read = || {
        let sent = number("", " packets transmitted")?;
        let answered = number("", " received")?;
        let time_ms: f64 = number("time ", "ms")?;
        Some(Summary { sent, answered, time_s: time_ms / 1e3 })
    };
    read().with_context(|| format!("ping ended without its summary: {}", output.trim()))
}

/// The time in a line such as `64 bytes from 10.9.0.2: icmp_seq=1 ttl=64 time=0.037 ms`.
fn rtt_us(line: &str) -> Option<f64> {
    if line.contains("DUP!") {
        return None;
    }
    let (_, rest) = line.split_once(" time=")?;
    let (number, unit) = rest.trim_end().split_once(' ')?;
    let ms: f64 = number.parse().ok()?;
    // Ping prints at most whole microseconds; the product of the two floats has more digits.
    (unit.starts_with("ms") && ms.is_finite() && ms >= 0.0).then_some((ms * 1e3).round())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "PING 10.9.0.2 (10.9.0.2) 56(84) bytes of data.\n\
        64 bytes from 10.9.0.2: icmp_seq=1 ttl=64 time=0.037 ms\n\
        64 bytes from 10.9.0.2: icmp_seq=1 ttl=64 time=0.040 ms (DUP!)\n\
        64 bytes from 10.9.0.2: icmp_seq=2 ttl=64 time=1.5 ms\n\
        64 bytes from 10.9.0.2: icmp_seq=3 ttl=64 time=112 ms\n\n\
        --- 10.9.0.2 ping statistics ---\n\
        3 packets transmitted, 3 received, 0% packet loss, time 15ms\n\
        rtt min/avg/max/mdev = 0.023/0.034/0.043/0.008 ms\n";

    #[test]
    fn every_answer_counts_once() {
        assert_eq!(parse(OUTPUT, 3).expect("answered"), [37.0, 1_500.0, 112_000.0]);
    }

    #[test]
    fn the_summary_counts_answers_and_tells_the_time() {
        let told = |sent, answered, time_s| Summary { sent, answered, time_s };
        assert_eq!(summary(OUTPUT).expect("a summary"), told(3.0, 3.0, 0.015));
        let lost = "9 packets transmitted, 7 received, +2 duplicates, 22% packet loss, time 1ms";
        assert_eq!(summary(lost).expect("a summary"), told(9.0, 7.0, 0.001));
        assert!(summary("ping: connect: Network is unreachable\n").is_err());
        assert!(summary("9 packets transmitted, 7 received, 22% packet loss\n").is_err());
    }

    #[test]
    fn too_few_answers_are_no_measurement() {
        assert!(parse(OUTPUT, 4).is_err());
        assert!(parse("", 0).is_err());
        assert!(parse("ping: connect: Network is unreachable\n", 200).is_err());
    }

    #[test]
    fn lines_that_only_look_like_answers_are_passed_over() {
        for line in
            ["x time=", "x time=abc ms", "x time=-1 ms", "x time=inf ms", "x time=1 s", "\u{0}"]
        {
            assert_eq!(rtt_us(line), None, "{line:?}");
        }
    }
}
