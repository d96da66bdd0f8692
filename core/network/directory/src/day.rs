//! A day of the calendar, as `2027-01-31`, and when it is over.

use core::fmt;

const DAY_S: u64 = 86_400;
const MONTH_DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// A day since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Day {
    year: u64,
    month: u64,
    day: u64,
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_of(year: u64, month: u64) -> u64 {
    if month == 2 && is_leap(year) { 29 } else { MONTH_DAYS[(month - 1) as usize] }
}

impl Day {
    /// Reads `YYYY-MM-DD`; `None` for what is no day from 1970 to 9999.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let digits = |part: &str, len: usize| {
            let is_number = part.len() == len && part.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| part.parse::<u64>().ok()).flatten()
        };
        let mut parts = text.split('-');
        let year = digits(parts.next()?, 4)?;
        let month = digits(parts.next()?, 2)?;
        let day = digits(parts.next()?, 2)?;
        let is_good = parts.next().is_none()
            && year >= 1970
            && (1..=12).contains(&month)
            && (1..=days_of(year, month)).contains(&day);
        is_good.then_some(Self { year, month, day })
    }

    /// Whether it is past.
    #[must_use]
    pub fn is_over(&self, now_unix_s: u64) -> bool {
        let years = (1970..self.year).map(|year| if is_leap(year) { 366 } else { 365 });
        let months = (1..self.month).map(|month| days_of(self.year, month));
        let days = years.chain(months).sum::<u64>() + self.day;
        now_unix_s >= days * DAY_S
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}
