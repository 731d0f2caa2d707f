//! Filters compared with the obvious: random columns, rows and expressions, each row evaluated by itself.

use super::batch::{ColumnBatch, ColumnSource};
use super::bits;
use super::data::ColumnData;
use super::eval::KeyRead;
use super::expr::Expr;
use super::schema::{ColumnId, Schema};
use super::value::{ColumnType, ColumnValue};
use crate::error::Result;
use std::cmp::Ordering;

/// A small generator of numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `below`.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

const EXACT: i64 = 1 << 53;
const INTS: [i64; 15] = [
    i64::MIN,
    -EXACT - 1,
    -3,
    -1,
    0,
    1,
    2,
    7,
    11,
    20,
    300,
    EXACT,
    EXACT + 1,
    i64::MAX - 1,
    i64::MAX,
];
const FLOATS: [f64; 12] = [
    -1e300,
    -9.223372036854776e18,
    -2.5,
    -1.0,
    -0.0,
    0.0,
    0.5,
    2.0,
    7.0,
    9007199254740992.0,
    9007199254740994.0,
    9.223372036854776e18,
];
const STRINGS: [&str; 10] = ["", "a", "ab", "abc", "b", "de", "en", "ä", "äb", "%"];
const PATTERNS: [&str; 10] = ["%", "a%", "%b", "_", "_b", "a_c", "", "abc", "%b%", "\\%"];
const TIMES: [(i64, &str); 4] = [
    (0, "1970-01-01"),
    (1_000_000, "1970-01-01T00:00:01Z"),
    (-1, "1969-12-31T23:59:59.999999Z"),
    (951_825_600_500_000, "2000-02-29T14:00:00.5+02:00"),
];

/// Rows: their keys, and one value per column.
pub(crate) struct Rows {
    pub(crate) schema: Schema,
    pub(crate) keys: Vec<String>,
    pub(crate) values: Vec<Vec<ColumnValue>>,
}

impl Rows {
    pub(crate) fn random(random: &mut Random, rows: usize) -> Self {
        let mut schema = Schema::default();
        for at in 0..1 + random.below(8) {
            let kind = random.one(&ColumnType::ALL);
            schema.introduce(&format!("c{at}"), kind).unwrap();
        }
        // How many of ten values are null, and how many different values there are: blocks with one value are skipped.
        let habits: Vec<(usize, usize)> = (schema.columns().iter())
            .map(|_| (random.one(&[0, 1, 5, 10]), random.one(&[1, 3, 12])))
            .collect();
        let values = (0..rows).map(|row| {
            let columns = schema.columns().iter().zip(&habits);
            let value = |(column, &(nulls, most)): (&super::Column, &(usize, usize))| {
                // Later rows have other values.
                let shift = row / 3000;
                match random.below(10) < nulls {
                    true => ColumnValue::Null,
                    false => value(random, column.kind, most, shift),
                }
            };
            columns.map(value).collect()
        });
        let values = values.collect();
        Self {
            keys: (0..rows).map(|row| format!("k{}", row * 7)).collect(),
            schema,
            values,
        }
    }

    /// Returns some of the rows.
    pub(crate) fn batch(&self, rows: std::ops::Range<usize>) -> ColumnBatch {
        let mut batch = ColumnBatch::nulls(rows.len());
        for (at, column) in self.schema.columns().iter().enumerate() {
            let mut data = ColumnData::new(column.kind);
            let values = self.values[rows.clone()].iter();
            values.for_each(|row| data.push(&row[at].as_ref()));
            batch.set(column.id, data);
        }
        batch
    }
}

fn value(random: &mut Random, kind: ColumnType, most: usize, shift: usize) -> ColumnValue {
    let at = |random: &mut Random, len: usize| (random.below(most.min(len)) + shift) % len;
    match kind {
        ColumnType::Bool => (random.below(2.min(most)) == 1).into(),
        ColumnType::Int => INTS[at(random, INTS.len())].into(),
        ColumnType::Float => FLOATS[at(random, FLOATS.len())].into(),
        ColumnType::String => STRINGS[at(random, STRINGS.len())].into(),
        ColumnType::Strings => {
            let count = random.below(4);
            let items: Vec<_> = (0..count)
                .map(|_| STRINGS[at(random, STRINGS.len())])
                .collect();
            items.into()
        }
        ColumnType::Timestamp => ColumnValue::Timestamp(TIMES[at(random, TIMES.len())].0),
    }
}

/// The keys of a source, for [`KeyRead`].
pub(crate) struct Keys<'a>(pub(crate) &'a [String]);

impl KeyRead for Keys<'_> {
    fn find(&self, key: &str) -> Result<Option<usize>> {
        Ok(self.0.iter().position(|other| other == key))
    }

    fn for_each(&self, prefix: &str, each: &mut dyn FnMut(usize, &str)) -> Result<()> {
        let with_prefix = self.0.iter().enumerate();
        let with_prefix = with_prefix.filter(|(_, key)| key.starts_with(prefix));
        with_prefix.for_each(|(row, key)| each(row, key));
        Ok(())
    }
}

/// A literal: its text and its value.
#[derive(Debug, Clone)]
enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    /// Multiples of one half, which are exact.
    Float(f64),
    String(String),
    Time(i64, &'static str),
}

impl Literal {
    fn text(&self) -> String {
        match self {
            Self::Null => "NULL".into(),
            Self::Bool(is) => is.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => format!("{value:.1}"),
            Self::String(text) => format!("'{}'", text.replace('\'', "''")),
            Self::Time(_, text) => format!("'{text}'"),
        }
    }

    /// Compares a value with it; `None` if one of them is null.
    fn compare(&self, value: &ColumnValue) -> Option<Ordering> {
        Some(match (value, self) {
            (ColumnValue::Null, _) | (_, Self::Null) => return None,
            (ColumnValue::Bool(a), Self::Bool(b)) => a.cmp(b),
            (ColumnValue::Int(a), Self::Int(b)) => a.cmp(b),
            (ColumnValue::Int(a), Self::Float(b)) => {
                // Doubled, they are integers.
                (i128::from(*a) * 2).cmp(&((b * 2.0) as i128))
            }
            (ColumnValue::Float(a), Self::Float(b)) => a.partial_cmp(b)?,
            (ColumnValue::Float(a), Self::Int(b)) => {
                let floor = (a.floor() as i128).cmp(&i128::from(*b));
                match floor {
                    Ordering::Equal if a.fract() != 0.0 => Ordering::Greater,
                    other => other,
                }
            }
            (ColumnValue::String(a), Self::String(b)) => a.as_bytes().cmp(b.as_bytes()),
            (ColumnValue::Timestamp(a), Self::Time(b, _)) => a.cmp(b),
            other => panic!("{other:?}"),
        })
    }
}

/// An expression: its text, and its result for a row.
enum Cond {
    Compare(usize, &'static str, Literal),
    Between(usize, Literal, Literal, bool),
    In(usize, Vec<Literal>, bool),
    Like(usize, String, bool),
    Has(usize, Literal),
    Alone(usize),
    IsNull(usize, bool),
    Constant(Option<bool>),
    Not(Box<Cond>),
    And(Vec<Cond>),
    Or(Vec<Cond>),
    Is(Box<Cond>, Option<bool>, bool),
}

/// Stands for the key instead of a column.
const KEY: usize = usize::MAX;

fn literal(random: &mut Random, kind: ColumnType) -> Literal {
    if random.below(12) == 0 {
        return Literal::Null;
    }
    match kind {
        ColumnType::Bool => Literal::Bool(random.below(2) == 1),
        ColumnType::Int | ColumnType::Float => match random.below(3) {
            0 => Literal::Float(random.one(&[-2.5, -0.5, 0.0, 0.5, 2.0, 7.5, 1e15 + 0.5])),
            _ => Literal::Int(random.one(&INTS)),
        },
        ColumnType::String | ColumnType::Strings => {
            Literal::String(random.one(&STRINGS).to_owned())
        }
        ColumnType::Timestamp => {
            let (micros, text) = random.one(&TIMES);
            Literal::Time(micros, text)
        }
    }
}

impl Cond {
    fn random(random: &mut Random, rows: &Rows, depth: usize) -> Self {
        if depth > 0 && random.below(3) > 0 {
            let parts = |random: &mut Random| {
                let count = 1 + random.below(4);
                let parts = (0..count).map(|_| Self::random(random, rows, depth - 1));
                parts.collect::<Vec<_>>()
            };
            return match random.below(5) {
                0 => Self::Not(Box::new(Self::random(random, rows, depth - 1))),
                1 | 2 => Self::And(parts(random)),
                3 => Self::Or(parts(random)),
                _ => {
                    let what = random.one(&[Some(true), Some(false), None]);
                    let of = Self::random(random, rows, depth - 1);
                    Self::Is(Box::new(of), what, random.below(2) == 1)
                }
            };
        }
        let columns = rows.schema.columns();
        let (column, kind) = match random.below(columns.len() + 1) {
            at if at == columns.len() => (KEY, ColumnType::String),
            at => (at, columns[at].kind),
        };
        if random.below(12) == 0 {
            return Self::Constant(random.one(&[Some(true), Some(false), None]));
        }
        let negated = random.below(2) == 1;
        let value = |random: &mut Random| match column {
            KEY if random.below(3) == 0 => Literal::String(random.one(&rows.keys)),
            _ => literal(random, kind),
        };
        match (random.below(6), kind) {
            (0, _) => Self::IsNull(column, negated),
            (1, ColumnType::Bool) => Self::Alone(column),
            (_, ColumnType::Strings) => Self::Has(column, value(random)),
            (1, _) => {
                let most = random.one(&[5, 40]);
                let count = 1 + random.below(most);
                Self::In(column, (0..count).map(|_| value(random)).collect(), negated)
            }
            (2, ColumnType::String) => {
                let pattern = match column {
                    KEY => random.one(&["k1%", "%7", "k_", "%", "x%"]),
                    _ => random.one(&PATTERNS),
                };
                Self::Like(column, pattern.to_owned(), negated)
            }
            (3, kind) if kind != ColumnType::Bool => {
                Self::Between(column, value(random), value(random), negated)
            }
            (_, ColumnType::Bool) => {
                Self::Compare(column, random.one(&["=", "!=", "<>"]), value(random))
            }
            _ => {
                let compare = random.one(&["=", "!=", "<>", "<", "<=", ">", ">="]);
                Self::Compare(column, compare, value(random))
            }
        }
    }

    fn text(&self) -> String {
        let name = |column: &usize| match *column {
            KEY => "key".to_owned(),
            at => format!("c{at}"),
        };
        let not = |negated: &bool| if *negated { "NOT " } else { "" };
        let list = |items: &[Literal]| {
            let items: Vec<_> = items.iter().map(Literal::text).collect();
            items.join(", ")
        };
        let joined = |parts: &[Self], by: &str| {
            let parts: Vec<_> = parts
                .iter()
                .map(|part| format!("({})", part.text()))
                .collect();
            parts.join(by)
        };
        let truth = |is: &Option<bool>| match is {
            None => "NULL".to_owned(),
            Some(is) => is.to_string().to_uppercase(),
        };
        match self {
            Self::Compare(column, compare, with) => {
                format!("{} {compare} {}", name(column), with.text())
            }
            Self::Between(column, low, high, negated) => format!(
                "{} {}BETWEEN {} AND {}",
                name(column),
                not(negated),
                low.text(),
                high.text()
            ),
            Self::In(column, items, negated) => {
                format!("{} {}IN ({})", name(column), not(negated), list(items))
            }
            Self::Like(column, pattern, negated) => {
                format!("{} {}LIKE '{pattern}'", name(column), not(negated))
            }
            Self::Has(column, item) => format!("{} HAS {}", name(column), item.text()),
            Self::Alone(column) => name(column),
            Self::IsNull(column, negated) => format!("{} IS {}NULL", name(column), not(negated)),
            Self::Constant(is) => truth(is),
            Self::Not(of) => format!("NOT ({})", of.text()),
            Self::And(parts) => joined(parts, " AND "),
            Self::Or(parts) => joined(parts, " OR "),
            Self::Is(of, what, negated) => {
                format!("({}) IS {}{}", of.text(), not(negated), truth(what))
            }
        }
    }

    /// Returns its result for a row, by the tables of the SQL standard.
    fn is(&self, rows: &Rows, row: usize) -> Option<bool> {
        let value = |column: usize| match column {
            KEY => ColumnValue::String(rows.keys[row].clone()),
            at => rows.values[row][at].clone(),
        };
        let not = |is: Option<bool>, negated: bool| is.map(|is| is != negated);
        let all = |parts: &mut dyn Iterator<Item = Option<bool>>| {
            let mut is = Some(true);
            for part in parts {
                is = match (is, part) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (None, _) | (_, None) => None,
                    _ => Some(true),
                };
            }
            is
        };
        let any = |parts: &mut dyn Iterator<Item = Option<bool>>| {
            not(all(&mut parts.map(|part| not(part, true))), true)
        };
        match self {
            Self::Compare(column, compare, with) => {
                let order = with.compare(&value(*column))?;
                Some(match *compare {
                    "=" => order.is_eq(),
                    "!=" | "<>" => order.is_ne(),
                    "<" => order.is_lt(),
                    "<=" => order.is_le(),
                    ">" => order.is_gt(),
                    _ => order.is_ge(),
                })
            }
            Self::Between(column, low, high, negated) => {
                let value = value(*column);
                let parts = [
                    low.compare(&value).map(Ordering::is_ge),
                    high.compare(&value).map(Ordering::is_le),
                ];
                not(all(&mut parts.into_iter()), *negated)
            }
            Self::In(column, items, negated) => {
                let value = value(*column);
                let equal = |item: &Literal| item.compare(&value).map(Ordering::is_eq);
                not(any(&mut items.iter().map(equal)), *negated)
            }
            Self::Like(column, pattern, negated) => match value(*column) {
                ColumnValue::String(text) => {
                    let pattern: Vec<char> = pattern.chars().collect();
                    let text: Vec<char> = text.chars().collect();
                    not(Some(like(&pattern, &text)), *negated)
                }
                _ => None,
            },
            Self::Has(column, item) => match (value(*column), item) {
                (ColumnValue::Strings(items), Literal::String(item)) => Some(items.contains(item)),
                _ => None,
            },
            Self::Alone(column) => match value(*column) {
                ColumnValue::Bool(is) => Some(is),
                _ => None,
            },
            Self::IsNull(column, negated) => {
                Some((value(*column) == ColumnValue::Null) != *negated)
            }
            Self::Constant(is) => *is,
            Self::Not(of) => not(of.is(rows, row), true),
            Self::And(parts) => all(&mut parts.iter().map(|part| part.is(rows, row))),
            Self::Or(parts) => any(&mut parts.iter().map(|part| part.is(rows, row))),
            Self::Is(of, what, negated) => Some((of.is(rows, row) == *what) != *negated),
        }
    }
}

fn like(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|at| like(rest, &text[at..])),
        ['_', rest @ ..] => !text.is_empty() && like(rest, &text[1..]),
        ['\\', c, rest @ ..] | [c, rest @ ..] => text.first() == Some(c) && like(rest, &text[1..]),
    }
}

/// Evaluates random expressions on rows that are distributed over `sources`. Returns how many rows passed.
pub(crate) fn compare(
    random: &mut Random,
    rows: &Rows,
    sources: &[(&dyn ColumnSource, std::ops::Range<usize>)],
    asked: usize,
) -> usize {
    let mut passed = 0;
    for _ in 0..asked {
        let depth = random.below(4);
        let cond = Cond::random(random, rows, depth);
        let text = cond.text();
        let parsed = Expr::parse(&text).unwrap_or_else(|error| panic!("{text}\n{error}"));
        let bound = parsed.bind(&rows.schema);
        let bound = bound.unwrap_or_else(|error| panic!("{text}\n{error}"));
        for (source, range) in sources {
            let keys = &rows.keys[range.clone()];
            let mask = bound.mask(*source, &Keys(keys)).unwrap();
            assert_eq!(mask.len(), bits::words(range.len()));
            for row in range.clone() {
                let expected = cond.is(rows, row) == Some(true);
                let found = bits::get(&mask, row - range.start);
                assert_eq!(found, expected, "{text}\nrow {row}: {:?}", rows.values[row]);
                passed += usize::from(found);
            }
            let last = mask.last().copied().unwrap_or(0);
            let unused = !bits::used(mask.len().saturating_sub(1), range.len());
            assert_eq!(last & unused, 0, "{text}: bits past the last row");
        }
    }
    passed
}

#[test]
fn filters_on_batches_equal_row_by_row_evaluation() {
    let mut passed = 0;
    for seed in 0..300 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let count = random.one(&[0, 1, 64, 100, 300]);
        let rows = Rows::random(&mut random, count.max(1));
        let middle = random.below(count + 1);
        let batches = [
            rows.batch(0..count),
            rows.batch(0..middle),
            rows.batch(middle..count),
        ];
        let merged = ColumnBatch::gather(&[(&batches[1], None), (&batches[2], None)]);
        assert_eq!(merged, batches[0]);
        let sources: [(&dyn ColumnSource, _); 3] = [
            (&batches[0], 0..count),
            (&batches[1], 0..middle),
            (&batches[2], middle..count),
        ];
        passed += compare(&mut random, &rows, &sources, 10);
    }
    assert!(passed > 10_000, "{passed} rows passed");
}

#[test]
fn filters_on_many_blocks_equal_row_by_row_evaluation() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut random = Random::new(seed + 1000);
        let rows = Rows::random(&mut random, 4096 * 2 + 77);
        let batch = rows.batch(0..rows.keys.len());
        compare(&mut random, &rows, &[(&batch, 0..rows.keys.len())], 20);
    }
}

#[test]
fn missing_columns_are_null_and_retyped_ones_are_converted() {
    let mut schema = Schema::default();
    schema.introduce("n", ColumnType::Float).unwrap();
    schema.introduce("none", ColumnType::String).unwrap();
    let mut batch = ColumnBatch::nulls(3);
    let mut data = ColumnData::new(ColumnType::Int);
    for value in [1.into(), ColumnValue::Null, 3.into()] {
        data.push(&value.as_ref());
    }
    batch.set(ColumnId(0), data);
    let keys: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
    for (text, expected) in [
        ("n > 0.5 AND n < 2.5", 0b001),
        ("none IS NULL", 0b111),
        ("none = 'x' OR NOT none = 'x'", 0),
        ("(none LIKE 'x%') IS NULL AND n IS NOT NULL", 0b101),
        ("key >= 'b'", 0b110),
    ] {
        let bound = Expr::parse(text).unwrap().bind(&schema).unwrap();
        assert_eq!(
            bound.mask(&batch, &Keys(&keys)).unwrap(),
            [expected],
            "{text}"
        );
    }
    let mut ints = Schema::default();
    ints.introduce("n", ColumnType::Timestamp).unwrap();
    let bound = Expr::parse("n > '1970-01-01'")
        .unwrap()
        .bind(&ints)
        .unwrap();
    // Values that the type can't hold are those of dead rows.
    assert_eq!(bound.mask(&batch, &Keys(&keys)).unwrap(), [0]);
}

#[test]
fn lists_of_any_length_pass_their_members() {
    let mut schema = Schema::default();
    let mut batch = ColumnBatch::nulls(64);
    for (name, kind) in [
        ("int", ColumnType::Int),
        ("float", ColumnType::Float),
        ("string", ColumnType::String),
    ] {
        let id = schema.introduce(name, kind).unwrap().id;
        let mut data = ColumnData::new(kind);
        for row in 0..64_i64 {
            let value: ColumnValue = match kind {
                ColumnType::Int => (row - 9).into(),
                ColumnType::Float => ((row - 9) as f64).into(),
                _ => (row - 9).to_string().into(),
            };
            data.push(&value.as_ref());
        }
        batch.set(id, data);
    }
    for count in 1..30 {
        // Every second one, so that none touch.
        let members: Vec<i64> = (0..count).map(|at| at * 2 - 9).collect();
        let expected = members
            .iter()
            .fold(0_u64, |bits, member| bits | 1 << (member + 9));
        let numbers: Vec<String> = members.iter().map(i64::to_string).collect();
        let strings: Vec<String> = numbers.iter().map(|number| format!("'{number}'")).collect();
        for (name, list) in [("int", &numbers), ("float", &numbers), ("string", &strings)] {
            for (not, expected) in [("", expected), ("NOT ", !expected)] {
                let text = format!("{name} {not}IN ({})", list.join(", "));
                let bound = Expr::parse(&text).unwrap().bind(&schema).unwrap();
                let mask = bound.mask(&batch, &Keys(&[])).unwrap();
                assert_eq!(mask, [expected], "{text}");
            }
        }
    }
}
