//! How fast a line is, as people write it: `500kbit`, `20mbit`, `1gbit`, or `off`.

use core::fmt;
use core::str::FromStr;

/// The slowest line, in bits a second: a large packet takes a tenth of a second.
const BITS_MIN: u64 = 128_000;
/// The fastest.
const BITS_MAX: u64 = 100_000_000_000;
/// Units, the largest first.
const UNITS: [(&str, u64); 3] = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000)];

/// Bits a second of the line that a machine sends by; none where nobody said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineRate(Option<u64>);

/// Why a text is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRate;

impl fmt::Display for BadRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write a rate from 128kbit to 100gbit, as in 20mbit, or off")
    }
}

impl core::error::Error for BadRate {}

impl LineRate {
    /// Bytes a second; 0 for no limit.
    #[must_use]
    pub fn bytes_s(self) -> u64 {
        self.0.unwrap_or_default() / 8
    }
}

impl FromStr for LineRate {
    type Err = BadRate;

    fn from_str(text: &str) -> Result<Self, BadRate> {
        if text == "off" {
            return Ok(Self(None));
        }
        let read = |(unit, bits): &(&str, u64)| {
            let count = text.strip_suffix(unit)?;
            let digits = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
            let count: u64 = count.parse().ok().filter(|_| digits)?;
            count.checked_mul(*bits)
        };
        let bits = UNITS.iter().find_map(read).ok_or(BadRate)?;
        (BITS_MIN..=BITS_MAX).contains(&bits).then_some(Self(Some(bits))).ok_or(BadRate)
    }
}

impl fmt::Display for LineRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bits) = self.0 else { return f.write_str("off") };
        let whole = UNITS.iter().find(|(_, unit)| bits.is_multiple_of(*unit));
        match whole {
            Some((name, unit)) => write!(f, "{}{name}", bits / unit),
            None => write!(f, "{}kbit", bits / 1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written_as_people_say_them() {
        for (text, bytes_s) in
            [("off", 0), ("128kbit", 16_000), ("1500kbit", 187_500), ("20mbit", 2_500_000)]
        {
            let rate: LineRate = text.parse().unwrap();
            assert_eq!((rate.bytes_s(), rate.to_string().as_str()), (bytes_s, text));
        }
        assert_eq!("1000mbit".parse::<LineRate>().unwrap().to_string(), "1gbit");
        for text in [
            "",
            "20",
            "20 mbit",
            "+1mbit",
            "127kbit",
            "101gbit",
            "mbit",
            "20Mbit",
            "99999999999999gbit",
        ] {
            assert_eq!(text.parse::<LineRate>(), Err(BadRate), "{text}");
        }
    }
}
