//! Numbers in filters, which are compared with ints and floats exactly.

use crate::columns::data::float_key;

/// Larger than any int and exact in an `i128`. No float lies between this and the ints.
const BEYOND: i128 = 10_i128.pow(30);

/// A number of an expression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number {
    /// Its place among the integers. A number of more than 30 digits is cut.
    integers: Place,
    /// The nearest float.
    float: f64,
}

/// A place in an order: exactly at `floor`, or right after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) floor: i128,
    pub(super) exact: bool,
}

impl Number {
    /// Parses digits, a point and an exponent, as the tokenizer returns them.
    ///
    /// # Errors
    /// An integer that does not fit 64 bits, or a number beyond the floats.
    pub(super) fn parse(digits: &str, negative: bool) -> Result<Self, String> {
        let sign = if negative { "-" } else { "" };
        let no_number = || format!("{sign}{digits} is not a number");
        let float: f64 = format!("{sign}{digits}").parse().map_err(|_| no_number())?;
        if !float.is_finite() {
            return Err(format!("{sign}{digits} is beyond the range of numbers"));
        }
        let integers = integers(digits, negative).ok_or_else(no_number)?;
        let whole = digits.bytes().all(|b| b.is_ascii_digit());
        if whole && i64::try_from(integers.floor).is_err() {
            return Err(format!("{sign}{digits} is beyond the integers of 64 bits"));
        }
        Ok(Self { integers, float })
    }

    /// Returns its place among ints.
    pub(super) fn among_ints(self) -> Place {
        self.integers
    }

    /// Returns its place among the [keys](float_key) of floats. An integer is compared exactly, any other number as the
    /// float next to it: `0.1` equals the float that is written as 0.1.
    pub(super) fn among_floats(self) -> Place {
        let Place { floor, exact } = self.integers;
        let nearest = if exact && floor.abs() < BEYOND {
            floor as f64
        } else {
            self.float
        };
        let key = i128::from(float_key(nearest));
        let is = |exact| Place { floor: key, exact };
        if !exact || floor.abs() >= BEYOND {
            return is(true);
        }
        // A float this large, or without a fraction, is an integer below 2^127.
        match (nearest as i128).cmp(&floor) {
            std::cmp::Ordering::Equal => is(true),
            std::cmp::Ordering::Less => is(false),
            std::cmp::Ordering::Greater => Place {
                floor: key - 1,
                exact: false,
            },
        }
    }
}

/// Returns the place of a number among the integers, from its digits.
fn integers(text: &str, negative: bool) -> Option<Place> {
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        None => (text, 0),
        Some((digits, exponent)) => {
            // An exponent of many digits makes the number larger, or smaller, than everything.
            let saturated = if exponent.starts_with('-') { -1 } else { 1 } * 1_000_000;
            (
                digits,
                exponent
                    .parse::<i64>()
                    .unwrap_or(saturated)
                    .clamp(-1_000_000, 1_000_000),
            )
        }
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = || whole.bytes().chain(fraction.bytes());
    if !all().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let point = whole.len() as i64 + exponent;
    let mut floor = 0_i128;
    for at in 0..point.max(0) as usize {
        floor = (floor * 10 + i128::from(digit_at(whole, fraction, at))).min(BEYOND);
        let is_done = floor == BEYOND || (floor == 0 && at >= whole.len() + fraction.len());
        if is_done {
            break;
        }
    }
    let behind = all().skip(usize::try_from(point).unwrap_or(0));
    let exact = behind.into_iter().all(|digit| digit == b'0');
    Some(match (negative, exact) {
        (false, exact) => Place { floor, exact },
        (true, true) => Place {
            floor: -floor,
            exact,
        },
        (true, false) => Place {
            floor: -floor - 1,
            exact,
        },
    })
}

/// Returns a digit from before or after the point, or one of the zeros after them.
fn digit_at(whole: &str, fraction: &str, at: usize) -> u8 {
    let digit = whole.as_bytes().get(at);
    let digit = digit.or_else(|| fraction.as_bytes().get(at - whole.len()));
    digit.map_or(0, |digit| digit - b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(floor: i128, exact: bool) -> Place {
        Place { floor, exact }
    }

    #[test]
    fn a_number_has_its_place_among_the_integers() {
        for (text, floor, exact) in [
            ("0", 0, true),
            ("007", 7, true),
            ("2.5", 2, false),
            (".5", 0, false),
            ("5.", 5, true),
            ("2.50e1", 25, true),
            ("2.55e1", 25, false),
            ("9007199254740993.0", 9_007_199_254_740_993, true),
            ("9007199254740992.5", 9_007_199_254_740_992, false),
            ("1e18", 1_000_000_000_000_000_000, true),
            ("1e-5", 0, false),
            ("0e99999999999999999999", 0, true),
            ("1e-99999999999999999999", 0, false),
            ("1e300", BEYOND, true),
            ("0.000", 0, true),
        ] {
            let number = Number::parse(text, false).unwrap();
            assert_eq!(number.among_ints(), place(floor, exact), "{text}");
            let negative = Number::parse(text, true).unwrap().among_ints();
            let floor = if exact { -floor } else { -floor - 1 };
            assert_eq!(negative, place(floor, exact), "-{text}");
        }
    }

    #[test]
    fn a_number_has_its_place_among_the_floats() {
        let key = |float: f64| i128::from(float_key(float));
        let exact = 9_007_199_254_740_992.0;
        for (text, expected) in [
            ("0", place(key(0.0), true)),
            ("0.1", place(key(0.1), true)),
            ("9007199254740992", place(key(exact), true)),
            ("9007199254740993", place(key(exact), false)),
            ("9007199254740995", place(key(exact + 4.0) - 1, false)),
            (
                "9223372036854775807",
                place(key(9.223372036854776e18) - 1, false),
            ),
            ("1e300", place(key(1e300), true)),
            ("1e-400", place(key(0.0), true)),
        ] {
            let number = Number::parse(text, false).unwrap();
            assert_eq!(number.among_floats(), expected, "{text}");
        }
        let number = Number::parse("9007199254740993", true).unwrap();
        assert_eq!(number.among_floats(), place(key(-exact - 2.0), false));
    }

    #[test]
    fn numbers_beyond_what_can_be_stored_are_refused() {
        for text in [
            "9223372036854775808",
            "99999999999999999999",
            "1e309",
            "1x",
            "1e",
        ] {
            assert!(Number::parse(text, false).is_err(), "{text}");
        }
        assert!(Number::parse("9223372036854775808", true).is_ok());
        assert!(Number::parse("9223372036854775809", true).is_err());
    }
}
