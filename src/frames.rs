//! `--frames`: what is spoken between two Warren nodes beside WireGuard.

use clap::ValueEnum;
use clap::builder::RangedI64ValueParser;
use host::quick::{HOLD_MS_MAX, ORDER_MS_MAX, REPAIR_PERCENT};

/// What the option does, in its help.
pub(crate) const HELP: &str = "Whether to repair loss and disorder between Warren nodes; off is \
                               plain WireGuard toward everybody";

/// What `--compress` does, in its help.
pub(crate) const COMPRESS: &str = "Whether to compress what goes to Warren nodes; lengths then \
                                   tell of contents, so it is off unless asked for";

/// What `--hold-ms` does, in its help.
pub(crate) const HOLD: &str = "Milliseconds that a small packet to a Warren node waits for others \
                               to share a datagram with; pings and keystrokes never wait";

/// What `--order-ms` does, in its help.
pub(crate) const ORDER: &str = "Milliseconds that a flow of TCP or UDP from a Warren node waits \
                                for what is late or repaired, at most; 0 passes all at once";

/// What `--repair-max` does, in its help.
pub(crate) const REPAIR_MAX: &str = "Bytes of repair for what goes to Warren nodes, at most, as in \
                                     20%; less for lines that are paid for by the byte";

/// Reads what `--repair-max` says, percent.
pub(crate) fn repair_max(text: &str) -> Result<u8, String> {
    let digits = text.trim().strip_suffix('%').unwrap_or(text).trim();
    let percent = digits.parse().ok().filter(|percent| *percent <= REPAIR_PERCENT);
    percent.ok_or_else(|| format!("write a share from 0% to {REPAIR_PERCENT}%"))
}

/// Reads what `--order-ms` says.
pub(crate) fn order_ms() -> RangedI64ValueParser<u16> {
    RangedI64ValueParser::new().range(0..=ORDER_MS_MAX.into())
}

/// Reads what `--hold-ms` says.
pub(crate) fn hold_ms() -> RangedI64ValueParser<u16> {
    RangedI64ValueParser::new().range(0..=HOLD_MS_MAX.into())
}

/// On or off. Of frames: whether they are spoken with peers that know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Frames {
    /// It is done.
    On,
    /// It is not.
    Off,
}

impl Frames {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// Whether to compress. LZ4 has one level, so each of a scale of 0 to 9 says on or off, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compress {
    /// Where it helps.
    #[value(aliases = ["1", "2", "3", "4", "5", "6", "7", "8", "9"])]
    On,
    /// Never.
    #[value(alias = "0")]
    Off,
}

impl Compress {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        if self == Self::On { "on" } else { "off" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_with_their_sign_and_without_and_no_more_than_half() {
        for (text, percent) in [("20%", Some(20)), ("0", Some(0)), (" 50 % ", Some(50))] {
            assert_eq!(repair_max(text).ok(), percent, "{text}");
        }
        for text in ["51%", "", "%", "0.2", "-1", "a lot"] {
            assert!(repair_max(text).is_err(), "{text}");
        }
    }
}
