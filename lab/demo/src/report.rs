//! Numbers out of what programs print for people.

use std::time::Duration;

use anyhow::{Context, Result};

/// How long the first answer took, of ping's output.
pub(crate) fn first_answer(ping: &str) -> Result<Duration> {
    let time = ping.lines().find_map(|line| line.split("time=").nth(1)?.split(' ').next());
    let time = time.with_context(|| format!("ping printed no time:\n{ping}"))?;
    milliseconds(time).with_context(|| format!("ping printed the time {time:?}"))
}

/// The average round trip, of ping's output.
pub(crate) fn average(ping: &str) -> Result<Duration> {
    let line = ping.lines().find(|line| line.starts_with("rtt min/avg/max"));
    let average = line.and_then(|line| line.split(" = ").nth(1)?.split('/').nth(1));
    average.and_then(milliseconds).with_context(|| format!("ping printed no average:\n{ping}"))
}

/// Bits a second that arrived, of iperf3's output with `-f m`.
pub(crate) fn received_bits_s(iperf: &str) -> Result<f64> {
    let line = iperf.lines().find(|line| line.trim_end().ends_with("receiver"));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let unit = words.iter().position(|word| *word == "Mbits/sec");
    let number = unit.and_then(|unit| words.get(unit.checked_sub(1)?)?.parse::<f64>().ok());
    let megabits_s = number.with_context(|| format!("iperf3 printed no rate:\n{iperf}"))?;
    Ok(megabits_s * 1e6)
}

/// The sum at the beginning of `sha256sum`'s output.
pub(crate) fn sum(sha256sum: &str) -> Result<&str> {
    let sum = sha256sum.split_whitespace().next().unwrap_or_default();
    let is_sum = sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit());
    is_sum.then_some(sum).with_context(|| format!("sha256sum printed {sha256sum:?}"))
}

/// A rate with its unit.
pub(crate) fn rate_text(bits_s: f64) -> String {
    if bits_s < 999.5e6 {
        format!("{:.0} Mbit/s", bits_s / 1e6)
    } else {
        format!("{:.2} Gbit/s", bits_s / 1e9)
    }
}

/// A number with a comma between thousands.
pub(crate) fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn milliseconds(text: &str) -> Option<Duration> {
    let ms = text.parse::<f64>().ok().filter(|ms| ms.is_finite() && *ms >= 0.0)?;
    Some(Duration::from_secs_f64(ms / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: &str = "PING 10.70.0.2 (10.70.0.2) 56(84) bytes of data.\n\
        64 bytes from 10.70.0.2: icmp_seq=1 ttl=64 time=1.52 ms\n\
        64 bytes from 10.70.0.2: icmp_seq=2 ttl=64 time=0.210 ms\n\n\
        --- 10.70.0.2 ping statistics ---\n\
        2 packets transmitted, 2 received, 0% packet loss, time 100ms\n\
        rtt min/avg/max/mdev = 0.210/0.865/1.520/0.655 ms\n";

    #[test]
    fn ping_is_read() {
        assert_eq!(first_answer(PING).unwrap(), Duration::from_micros(1520));
        assert_eq!(average(PING).unwrap(), Duration::from_micros(865));
        let silent = "2 packets transmitted, 0 received, 100% packet loss, time 1009ms\n";
        assert!(first_answer(silent).unwrap_err().to_string().contains("100% packet loss"));
        assert!(average(silent).is_err());
        assert!(first_answer("time=-1 ms").is_err() && first_answer("time=NaN ms").is_err());
    }

    #[test]
    fn iperf_is_read_by_what_arrived() {
        let text = "[ ID] Interval           Transfer     Bitrate         Retr\n\
            [  5]   0.00-1.00   sec   512 MBytes  4295 Mbits/sec    1             sender\n\
            [  5]   0.00-1.04   sec   510 MBytes  4113 Mbits/sec                  receiver\n\n\
            iperf Done.\n";
        assert_eq!(received_bits_s(text).unwrap(), 4113e6);
        assert!(received_bits_s("iperf3: error - unable to connect").is_err());
        assert!(received_bits_s("Mbits/sec receiver").is_err());
    }

    #[test]
    fn a_sum_is_a_sum() {
        let sums = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sum(&format!("{sums}  random.bin\n")).unwrap(), sums);
        assert!(sum("").is_err() && sum("sha256sum: random.bin: No such file").is_err());
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(count_text(0), "0");
        assert_eq!(count_text(999), "999");
        assert_eq!(count_text(1_234_567), "1,234,567");
        assert_eq!(rate_text(950.4e6), "950 Mbit/s");
        assert_eq!(rate_text(4113e6), "4.11 Gbit/s");
    }
}
