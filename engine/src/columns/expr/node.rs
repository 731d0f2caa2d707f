//! An expression that knows its columns.

use super::like::Pattern;
use super::ranges::Ranges;
use crate::columns::schema::ColumnId;
use crate::columns::value::ColumnType;

/// A bound expression. Expressions that say the same in another order, with `NOT` elsewhere or as several comparisons of one number are
/// mostly equal: `NOT (a < 5 OR a > 7)` is `a BETWEEN 5 AND 7`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Node {
    /// True, false or null for every row.
    Constant(Option<bool>),
    /// The value is null, or, if negated, is not.
    IsNull {
        /// The column.
        column: ColumnId,
        /// Passes what is not null.
        negated: bool,
    },
    /// A test of one value. Of a null it is null.
    Test {
        /// What is tested.
        subject: Subject,
        /// How.
        test: Test,
        /// Is true of what does not pass.
        negated: bool,
        /// Is null of what does not pass: the list of an `IN` has a null.
        or_null: bool,
    },
    /// At least two, which ascend and are no `And`.
    And(Vec<Node>),
    /// At least two, which ascend and are no `Or`.
    Or(Vec<Node>),
    /// What an expression is. Never null.
    Is {
        /// The expression.
        of: Box<Node>,
        /// What it is asked to be.
        truth: Truth,
        /// Is true of what is something else.
        negated: bool,
    },
}

/// One of three truths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Truth {
    /// It is so.
    True,
    /// It is not so.
    False,
    /// It is not known.
    Null,
}

/// What is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A column, by its type in the schema.
    Column(ColumnId, ColumnType),
    /// The key of the row.
    Key,
}

/// A test of a value that is not null.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Test {
    /// Of a bool: it is this.
    Bool(bool),
    /// Of an int or a timestamp: it is in the set. Of a float: its [key](crate::columns::data::float_key) is.
    Number(Ranges),
    /// Of a string, or of any string of a list.
    String(StringTest),
}

/// A test of a string.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum StringTest {
    /// It is one of these, which ascend.
    In(Vec<String>),
    /// It comes before another, byte by byte, or is the other.
    Below(String, bool),
    /// It matches.
    Like(Pattern),
}

impl From<StringTest> for Test {
    fn from(test: StringTest) -> Self {
        Self::String(test)
    }
}

impl StringTest {
    /// Returns `true` if a string passes.
    pub(crate) fn passes(&self, string: &[u8]) -> bool {
        match self {
            Self::In(strings) => strings
                .binary_search_by(|other| other.as_bytes().cmp(string))
                .is_ok(),
            Self::Below(other, or_equal) => {
                string < other.as_bytes() || *or_equal && string == other.as_bytes()
            }
            Self::Like(pattern) => pattern.matches(string),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::In(strings) => strings.iter().map(|s| size_of::<String>() + s.len()).sum(),
            Self::Below(string, _) => string.len(),
            Self::Like(pattern) => size_of_val(pattern) + pattern.bytes(),
        }
    }
}

impl Node {
    /// A test that is null for nulls alone, without a negation that its set can take.
    pub(super) fn test(subject: Subject, test: Test, negated: bool) -> Self {
        let (test, negated) = match test {
            Test::Number(ranges) if negated => (Test::Number(ranges.complement()), false),
            Test::Bool(is) => (Test::Bool(is != negated), false),
            test => (test, negated),
        };
        Self::Test {
            subject,
            test,
            negated,
            or_null: false,
        }
    }

    /// All of them, or, if not `all`, any.
    pub(super) fn combined(parts: Vec<Self>, all: bool) -> Self {
        let mut flat = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Self::And(parts) if all => flat.extend(parts),
                Self::Or(parts) if !all => flat.extend(parts),
                // What decides alone, and what says nothing.
                Self::Constant(Some(is)) if is != all => return Self::Constant(Some(is)),
                Self::Constant(Some(_)) => {}
                part => flat.push(part),
            }
        }
        // Sorted, tests of one column are neighbours.
        flat.sort_unstable();
        let mut joined: Vec<Self> = Vec::with_capacity(flat.len());
        for part in flat {
            match joined.last_mut() {
                Some(last) if *last == part => {}
                Some(last) => match last.join(&part, all) {
                    Some(both) => *last = both,
                    None => joined.push(part),
                },
                None => joined.push(part),
            }
        }
        // What was joined may stand elsewhere.
        joined.sort_unstable();
        match (joined.len(), all) {
            (0, all) => Self::Constant(Some(all)),
            (1, _) => joined.pop().expect("one is there"),
            (_, true) => Self::And(joined),
            (_, false) => Self::Or(joined),
        }
    }

    /// Returns one test instead of two of the same number.
    fn join(&self, other: &Self, all: bool) -> Option<Self> {
        match (self, other) {
            (
                Self::Test {
                    subject,
                    test: Test::Number(a),
                    negated: false,
                    or_null: false,
                },
                Self::Test {
                    subject: same,
                    test: Test::Number(b),
                    negated: false,
                    or_null: false,
                },
            ) if subject == same => {
                let joined = if all { a.intersection(b) } else { a.union(b) };
                Some(Self::test(*subject, Test::Number(joined), false))
            }
            _ => None,
        }
    }

    /// Its bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Constant(_) | Self::IsNull { .. } => 0,
                Self::Test { test, .. } => match test {
                    Test::Bool(_) => 0,
                    Test::Number(ranges) => ranges.as_slice().len() * 16,
                    Test::String(test) => test.bytes(),
                },
                Self::And(parts) | Self::Or(parts) => parts.iter().map(Self::bytes).sum(),
                Self::Is { of, .. } => of.bytes(),
            }
    }
}
