//! Points in time: RFC 3339 as text, microseconds since 1970 in UTC as a number.

const DAY: i64 = 86_400 * SECOND;
const SECOND: i64 = 1_000_000;
/// From the first microsecond of the year 0000 to the end of 9999: the years that four digits can express.
const STORABLE: std::ops::Range<i64> = -62_167_219_200 * SECOND..253_402_300_800 * SECOND;

/// Returns `true` if RFC 3339 can express it.
pub(crate) fn is_storable(micros: i64) -> bool {
    STORABLE.contains(&micros)
}

/// Parses a point in time: `2024-05-01T12:00:00.25+02:00`, or a date alone, which means midnight in UTC.
///
/// # Errors
/// A message that says what is expected or what is wrong.
pub(crate) fn parse(text: &str) -> Result<i64, String> {
    let expected = || {
        format!(
            "{text:?} is not a timestamp; write it as 2024-05-01T12:00:00Z, with Z or an offset such as +02:00"
        )
    };
    let mut rest = text.as_bytes();
    let year = digits(&mut rest, 4).ok_or_else(expected)?;
    let next = |rest: &mut &[u8], mark: u8| {
        let number = (rest.first() == Some(&mark)).then(|| *rest = &rest[1..]);
        number.and_then(|()| digits(rest, 2)).ok_or_else(expected)
    };
    let month = next(&mut rest, b'-')?;
    let day = next(&mut rest, b'-')?;
    if !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) {
        return Err(format!("{text:?} is not a timestamp: there is no such day"));
    }
    let midnight = days_since_1970(year, month, day) * DAY;
    if rest.is_empty() {
        return Ok(midnight);
    }
    let mark = rest[0];
    if !matches!(mark, b'T' | b't' | b' ') {
        return Err(expected());
    }
    let hour = next(&mut rest, mark)?;
    let minute = next(&mut rest, b':')?;
    let second = next(&mut rest, b':')?;
    if hour > 23 || minute > 59 || second > 59 {
        return Err(format!(
            "{text:?} is not a timestamp: there is no such time of day (a leap second can't be stored)"
        ));
    }
    let mut micros = 0;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let len = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if len == 0 {
            return Err(expected());
        }
        let (fraction, after) = fraction.split_at(len);
        if fraction.iter().skip(6).any(|&digit| digit != b'0') {
            return Err(format!(
                "{text:?} has more than six decimal places in its seconds; only microseconds are stored"
            ));
        }
        micros = (0..6).fold(0, |sum, at| {
            sum * 10 + fraction.get(at).map_or(0, |digit| i64::from(digit - b'0'))
        });
        rest = after;
    }
    let offset = match rest {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), after @ ..] => {
            let mut after = after;
            let hours = digits(&mut after, 2).ok_or_else(expected)?;
            let minutes = next(&mut after, b':')?;
            if !after.is_empty() || hours > 23 || minutes > 59 {
                return Err(expected());
            }
            let offset = (hours * 60 + minutes) * 60 * SECOND;
            if *sign == b'-' { -offset } else { offset }
        }
        _ => return Err(expected()),
    };
    let time = ((hour * 60 + minute) * 60 + second) * SECOND + micros;
    let instant = midnight + time - offset;
    match is_storable(instant) {
        true => Ok(instant),
        false => Err(format!("{text:?} is outside the years 0000 to 9999 in UTC")),
    }
}

/// Formats a point in time in UTC, with as many decimal places as it needs.
pub(crate) fn format(micros: i64) -> String {
    let (days, time) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    let (year, month, day) = date(days);
    let (seconds, fraction) = (time / SECOND, time % SECOND);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if fraction > 0 {
        let digits = format!(".{fraction:06}");
        text.push_str(digits.trim_end_matches('0'));
    }
    text.push('Z');
    text
}

/// Takes a number with this many digits.
fn digits(rest: &mut &[u8], count: usize) -> Option<i64> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    taken.iter().try_fold(0, |sum, digit| {
        digit
            .is_ascii_digit()
            .then(|| sum * 10 + i64::from(digit - b'0'))
    })
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap(year)),
        _ => 31,
    }
}

// Years begin in March here, so that the leap day is the last day of its year, and 400 years have 146,097 days.

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_points_in_time() {
        for (text, micros, canonical) in [
            ("1970-01-01T00:00:00Z", 0, None),
            ("1969-12-31T23:59:59.999999Z", -1, None),
            ("2000-02-29T12:00:00.5Z", 951_825_600_500_000, None),
            ("2038-01-19T03:14:08Z", 2_147_483_648_000_000, None),
            ("0000-01-01T00:00:00Z", STORABLE.start, None),
            ("9999-12-31T23:59:59.999999Z", STORABLE.end - 1, None),
            ("1970-01-01", 0, Some("1970-01-01T00:00:00Z")),
            (
                "1970-01-01 02:00:00.120+02:00",
                120_000,
                Some("1970-01-01T00:00:00.12Z"),
            ),
            (
                "1969-12-31t19:00:00.1234560000-05:00",
                123_456,
                Some("1970-01-01T00:00:00.123456Z"),
            ),
        ] {
            assert_eq!(parse(text), Ok(micros), "{text}");
            assert_eq!(format(micros), canonical.unwrap_or(text));
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut expected = (0, 1, 1);
        for days in STORABLE.start / DAY..STORABLE.end / DAY {
            assert_eq!(date(days), expected);
            let (year, month, day) = expected;
            assert_eq!(days_since_1970(year, month, day), days);
            expected = if day < days_in(year, month) {
                (year, month, day + 1)
            } else if month < 12 {
                (year, month + 1, 1)
            } else {
                (year + 1, 1, 1)
            };
        }
        assert_eq!(expected, (10_000, 1, 1));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "2024",
            "2024-05",
            "2024-13-01",
            "2023-02-29",
            "2024-00-01",
            "2024-01-00",
            "2024-05-01T12:00:00",
            "2024-05-01T12:00Z",
            "2024-05-01T24:00:00Z",
            "2024-05-01T12:60:00Z",
            "2016-12-31T23:59:60Z",
            "2024-05-01T12:00:00.Z",
            "2024-05-01T12:00:00.1234567Z",
            "2024-05-01T12:00:00+2:00",
            "2024-05-01T12:00:00+02:00x",
            "2024-05-01T12:00:00+0200",
            "2024-05-01T12:00:00Zz",
            "2024-05-01x12:00:00Z",
            "0000-01-01T00:00:00+00:01",
            "２024-05-01",
            "-024-05-01",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
