//! What the lines of a `[Peer]` say of preshared keys, and whether it goes together.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use node::Preshared;
use noise::PresharedKey;

use super::resolve::cut;
use crate::keyfile::{KeyFile, OVERLAP};

/// Line and column.
type At = (usize, usize);

/// The lines so far.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) key: Option<PresharedKey>,
    pub(super) file: Option<(PathBuf, At)>,
    pub(super) period: Option<(Duration, At)>,
    pub(super) overlap: Option<(Duration, At)>,
}

impl Draft {
    /// The key that stands there, or the file that has it.
    pub(super) fn finish(self) -> Result<(Option<Preshared>, Option<KeyFile>), (At, String)> {
        let period = self.period.map(|(period, _)| period);
        let half = period.map_or(OVERLAP, |period| period / 2);
        let overlap = self.overlap.map_or_else(|| OVERLAP.min(half), |(overlap, _)| overlap);
        if let Some((overlap, at)) = self.overlap
            && period.is_some()
            && overlap > half
        {
            let overlap = shown(overlap);
            let half = shown(half);
            let what = format!(
                "PresharedKeyOverlap: {overlap} is more than half of PresharedKeySchedule; write \
                 {half} or less, or a longer schedule"
            );
            return Err((at, what));
        }
        match (self.key, self.file, self.period) {
            (Some(_), Some((_, at)), _) => {
                let what = "PresharedKeyFile: PresharedKey stands there, too; keep one of them";
                Err((at, what.to_owned()))
            }
            (_, None, Some((_, at))) => {
                let what = "PresharedKeySchedule: keys come from a file; say PresharedKeyFile, too";
                Err((at, what.to_owned()))
            }
            (None, Some((path, _)), _) => Ok((None, Some(KeyFile::new(path, period, overlap)))),
            (key, None, None) => Ok((key.map(|key| Preshared::Key(key, overlap)), None)),
        }
    }
}

/// A time as `90`, `90s`, `15m`, `24h` or `7d`.
pub(super) fn time(value: &str, range: RangeInclusive<Duration>) -> Result<Duration, String> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_s = match &value[digits.len()..] {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => 0,
    };
    let is_plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && unit_s > 0;
    let count = digits.parse::<u64>().ok().filter(|_| is_plain);
    let time = count.and_then(|count| count.checked_mul(unit_s)).map(Duration::from_secs);
    time.filter(|time| range.contains(time)).ok_or_else(|| {
        let start = shown(*range.start());
        let end = shown(*range.end());
        format!(
            "`{}` is not a time from {start} to {end}; write it as 90s, 15m, 24h or 7d",
            cut(value)
        )
    })
}

/// A time as [`time`] reads it.
fn shown(time: Duration) -> String {
    let s = time.as_secs();
    match s {
        _ if s > 0 && s.is_multiple_of(86_400) => format!("{}d", s / 86_400),
        _ if s > 0 && s.is_multiple_of(3_600) => format!("{}h", s / 3_600),
        _ => format!("{s}s"),
    }
}
