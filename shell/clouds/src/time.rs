//! Dates as clouds write them, to and from seconds since 1970. No library: four formats of one
//! zone.

const DAY_S: u64 = 86_400;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `20150830T123600Z`.
pub(crate) fn stamp(now_s: u64) -> String {
    let (year, month, day) = date(now_s / DAY_S);
    let rest = now_s % DAY_S;
    let hour = rest / 3600;
    let minute = rest / 60 % 60;
    let second = rest % 60;
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Year, month and day of a day since 1970 (Hinnant, "chrono-compatible low-level date
/// algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let of_era = z % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

/// The day since 1970 of a date; none for what is no date after 1970.
fn day(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let of_era = year % 400;
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    days.checked_sub(719_468)
}

fn clock(text: &str) -> Option<u64> {
    let mut parts = text.split(':').map(|part| part.parse::<u64>().ok());
    let mut next = |max| parts.next().flatten().filter(|number| *number <= max);
    Some(next(23)? * 3600 + next(59)? * 60 + next(60)?)
}

/// `Sun, 30 Aug 2015 12:36:00 GMT`, as the field `Date` has it.
pub(crate) fn read_field(text: &str) -> Option<u64> {
    let mut words = text.split_once(", ")?.1.split(' ');
    let of_month = words.next()?.parse().ok()?;
    let named = words.next()?;
    let month = MONTHS.iter().position(|known| *known == named)? as u64 + 1;
    let year = words.next()?.parse().ok()?;
    Some(day(year, month, of_month)? * DAY_S + clock(words.next()?)?)
}

/// `2015-08-30T12:36:00.000Z`, as answers have it.
pub(crate) fn read_answer(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once('T')?;
    let mut parts = date.split('-').map(|part| part.parse::<u64>().ok());
    let mut next = || parts.next().flatten();
    let days = day(next()?, next()?, next()?)?;
    let rest = rest.trim_end_matches('Z');
    Some(days * DAY_S + clock(rest.split('.').next()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_and_read() {
        assert_eq!(stamp(1_440_938_160), "20150830T123600Z");
        assert_eq!(stamp(0), "19700101T000000Z");
        assert_eq!(stamp(951_782_399), "20000228T235959Z");
        assert_eq!(stamp(951_782_400), "20000229T000000Z");
        assert_eq!(read_field("Sun, 30 Aug 2015 12:36:00 GMT"), Some(1_440_938_160));
        assert_eq!(read_answer("2015-08-30T12:36:00.000Z"), Some(1_440_938_160));
        assert_eq!(read_answer("2000-02-29T00:00:00Z"), Some(951_782_400));
        for bad in ["", "x", "Sun, 30 Foo 2015 12:36:00 GMT", "Sun, 30 Aug 1812 12:36:00 GMT"] {
            assert_eq!(read_field(bad), None, "{bad}");
        }
        for bad in ["", "2015-08-30", "2015-13-30T00:00:00Z", "2015-08-30T25:00:00Z", "T"] {
            assert_eq!(read_answer(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_day_for_two_centuries_is_read_as_it_was_written() {
        for days in 0..73_000 {
            let (year, month, of_month) = date(days);
            assert_eq!(day(year, month, of_month), Some(days), "{year}-{month}-{of_month}");
        }
    }
}
