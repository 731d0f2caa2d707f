//! The rows for which a filter is true, worked out by blocks of rows.
//!
//! Strings are tested once each where a column has them sorted: what passes is then a range of codes or a table by code, and
//! rows compare numbers alone. Smallest and largest values skip blocks, and so do conditions that have decided already.

use super::batch::ColumnSource;
use super::bits;
use super::data::{
    self, BLOCK_ROWS, Codes, ColumnData, ColumnRead, StringsRef, float_key, float_of_key,
};
use super::expr::{BoundExpr, Node, Ranges, StringTest, Subject, Test, Truth};
use super::value::ColumnType;
use crate::error::Result;
use std::ops::Range;

/// Words of a block.
const WORDS: usize = BLOCK_ROWS / 64;

/// A bit for each row of a block.
type Bits = [u64; WORDS];

/// The keys of rows, dead ones included: a mask is kept while rows die, and serves snapshots in which they live.
pub(crate) trait KeyRead {
    /// Returns the row with this key.
    fn find(&self, key: &str) -> Result<Option<usize>>;
    /// Calls `each` with the rows whose key begins with `prefix`.
    fn for_each(&self, prefix: &str, each: &mut dyn FnMut(usize, &str)) -> Result<()>;
}

impl BoundExpr {
    /// Returns a bit for each row, set if the expression is true.
    ///
    /// # Errors
    /// If what it reads is damaged.
    pub(crate) fn mask(&self, source: &dyn ColumnSource, keys: &dyn KeyRead) -> Result<Vec<u64>> {
        let rows = source.rows();
        let step = Step::new(self.node(), source, keys)?;
        let mut mask = Vec::with_capacity(bits::words(rows));
        for index in 0..rows.div_ceil(BLOCK_ROWS) {
            let block = Block::new(index, rows);
            let found = step.run(&block, false)?;
            mask.extend_from_slice(&found.yes[..block.words().len()]);
        }
        Ok(mask)
    }
}

/// Some rows that are looked at together.
struct Block {
    index: usize,
    rows: Range<usize>,
}

impl Block {
    fn new(index: usize, rows: usize) -> Self {
        let start = index * BLOCK_ROWS;
        Self {
            index,
            rows: start..rows.min(start + BLOCK_ROWS),
        }
    }

    /// Its words among those of all rows.
    fn words(&self) -> Range<usize> {
        self.rows.start / 64..bits::words(self.rows.end)
    }

    /// All its rows.
    fn all(&self) -> Bits {
        std::array::from_fn(|at| bits::used(at, self.rows.len()))
    }
}

/// The rows for which a condition is true, and for which it is false. For the others it is null.
struct Found {
    yes: Bits,
    no: Bits,
}

const NONE: Found = Found {
    yes: [0; WORDS],
    no: [0; WORDS],
};

fn and(into: &mut Bits, other: &Bits) {
    into.iter_mut()
        .zip(other)
        .for_each(|(into, other)| *into &= other);
}

fn or(into: &mut Bits, other: &Bits) {
    into.iter_mut()
        .zip(other)
        .for_each(|(into, other)| *into |= other);
}

/// The bits of `all` that are not in `bits`.
fn except(all: &Bits, bits: &Bits) -> Bits {
    std::array::from_fn(|at| all[at] & !bits[at])
}

fn is_empty(bits: &Bits) -> bool {
    bits.iter().all(|&word| word == 0)
}

/// A condition with what it needs of one source.
enum Step<'a> {
    Constant(Option<bool>),
    IsNull {
        column: &'a dyn ColumnRead,
        negated: bool,
    },
    Key {
        hits: Vec<u64>,
        negated: bool,
        or_null: bool,
    },
    Column {
        column: Held<'a>,
        check: Check<'a>,
        negated: bool,
        or_null: bool,
    },
    All(Vec<Step<'a>>),
    Any(Vec<Step<'a>>),
    Is {
        of: Box<Step<'a>>,
        truth: Truth,
        negated: bool,
    },
}

/// The values of a column, of the type that the schema says.
enum Held<'a> {
    Stored(&'a dyn ColumnRead),
    Converted(Box<ColumnData>),
}

impl Held<'_> {
    fn get(&self) -> &dyn ColumnRead {
        match self {
            Self::Stored(column) => *column,
            Self::Converted(data) => &**data,
        }
    }
}

/// How values of a column are tested.
enum Check<'a> {
    Bool(bool),
    Numbers(&'a Ranges),
    /// By the codes of strings.
    Codes(Passing),
    /// Each string by itself.
    Strings(&'a StringTest),
}

/// The codes of strings that pass.
enum Passing {
    Range(Range<usize>),
    /// A byte for each code, and for those that are none as far as codes of their width reach.
    Table(Vec<u8>),
}

impl<'a> Step<'a> {
    fn new(node: &'a Node, source: &'a dyn ColumnSource, keys: &dyn KeyRead) -> Result<Self> {
        Ok(match node {
            Node::Constant(is) => Self::Constant(*is),
            Node::IsNull { column, negated } => match source.column(*column) {
                Some(column) => Self::IsNull {
                    column,
                    negated: *negated,
                },
                None => Self::Constant(Some(!negated)),
            },
            Node::Test {
                subject: Subject::Key,
                test,
                negated,
                or_null,
            } => Self::Key {
                hits: key_hits(test, source.rows(), keys)?,
                negated: *negated,
                or_null: *or_null,
            },
            Node::Test {
                subject: Subject::Column(id, kind),
                test,
                negated,
                or_null,
            } => {
                let Some(column) = source.column(*id) else {
                    return Ok(Self::Constant(None));
                };
                let column = held(column, *kind)?;
                Self::Column {
                    check: Check::new(test, column.get())?,
                    column,
                    negated: *negated,
                    or_null: *or_null,
                }
            }
            Node::And(parts) | Node::Or(parts) => {
                let steps = parts.iter().map(|part| Self::new(part, source, keys));
                let mut steps = steps.collect::<Result<Vec<_>>>()?;
                // What is cheap first: it may decide alone.
                steps.sort_by_key(Self::cost);
                match node {
                    Node::And(_) => Self::All(steps),
                    _ => Self::Any(steps),
                }
            }
            Node::Is { of, truth, negated } => Self::Is {
                of: Box::new(Self::new(of, source, keys)?),
                truth: *truth,
                negated: *negated,
            },
        })
    }

    /// What a block takes, about, of nothing in particular.
    fn cost(&self) -> u32 {
        match self {
            Self::Constant(_) | Self::Key { .. } | Self::IsNull { .. } => 0,
            Self::Column { column, check, .. } => match (check, column.get().kind()) {
                (Check::Bool(_), _) => 1,
                (Check::Codes(_), ColumnType::String) => 2,
                (Check::Numbers(_), _) => 4,
                (Check::Codes(_), _) => 16,
                (Check::Strings(_), _) => 64,
            },
            Self::All(parts) | Self::Any(parts) => parts.iter().map(Self::cost).sum(),
            Self::Is { of, .. } => of.cost(),
        }
    }

    /// The rows of a block for which it is true and, if these are asked for, for which it is false. Steps nest as deep as
    /// expressions may.
    fn run(&self, block: &Block, asks_no: bool) -> Result<Found> {
        let decided = |yes: Bits, or_null: bool, negated: bool, known: &Bits| {
            let misses = match or_null {
                true => [0; WORDS],
                false => except(known, &yes),
            };
            match negated {
                true => Found {
                    yes: misses,
                    no: yes,
                },
                false => Found { yes, no: misses },
            }
        };
        Ok(match self {
            Self::Constant(None) => NONE,
            Self::Constant(Some(is)) => decided(block.all(), false, !is, &block.all()),
            Self::IsNull { column, negated } => {
                let all = block.all();
                let nulls = except(&all, &valid(*column, block)?);
                decided(nulls, false, *negated, &all)
            }
            Self::Key {
                hits,
                negated,
                or_null,
            } => {
                let mut yes = [0; WORDS];
                let words = &hits[block.words()];
                yes[..words.len()].copy_from_slice(words);
                decided(yes, *or_null, *negated, &block.all())
            }
            Self::Column {
                column,
                check,
                negated,
                or_null,
            } => {
                let known = valid(column.get(), block)?;
                if is_empty(&known) {
                    return Ok(NONE);
                }
                let mut hits = check.hits(column.get(), block)?;
                and(&mut hits, &known);
                decided(hits, *or_null, *negated, &known)
            }
            Self::All(parts) => {
                let mut found = Found {
                    yes: block.all(),
                    no: [0; WORDS],
                };
                for part in parts {
                    let next = part.run(block, asks_no)?;
                    and(&mut found.yes, &next.yes);
                    or(&mut found.no, &next.no);
                    if !asks_no && is_empty(&found.yes) {
                        break;
                    }
                }
                found
            }
            Self::Any(parts) => {
                let mut found = Found {
                    yes: [0; WORDS],
                    no: block.all(),
                };
                for part in parts {
                    let next = part.run(block, asks_no)?;
                    or(&mut found.yes, &next.yes);
                    and(&mut found.no, &next.no);
                    if !asks_no && found.yes == block.all() {
                        break;
                    }
                }
                found
            }
            Self::Is { of, truth, negated } => {
                let found = of.run(block, *truth != Truth::True)?;
                let all = block.all();
                let yes = match truth {
                    Truth::True => found.yes,
                    Truth::False => found.no,
                    Truth::Null => except(&except(&all, &found.yes), &found.no),
                };
                decided(yes, false, *negated, &all)
            }
        })
    }
}

/// A column as values of the type that the schema says: those stored before it was retyped are converted.
fn held(column: &dyn ColumnRead, kind: ColumnType) -> Result<Held<'_>> {
    if column.kind() == kind {
        return Ok(Held::Stored(column));
    }
    Ok(Held::Converted(Box::new(data::convert(column, kind)?)))
}

/// The rows whose key passes.
fn key_hits(test: &Test, rows: usize, keys: &dyn KeyRead) -> Result<Vec<u64>> {
    let mut hits = vec![0; bits::words(rows)];
    let mut set = |row: usize| hits[row / 64] |= 1 << (row % 64);
    let Test::String(test) = test else {
        // A key is no number.
        return Ok(hits);
    };
    if let StringTest::In(wanted) = test {
        for key in wanted {
            keys.find(key)?.into_iter().for_each(&mut set);
        }
        return Ok(hits);
    }
    let prefix = match test {
        // What it begins with is whole characters, unless the pattern is cut within one, which none is.
        StringTest::Like(pattern) => String::from_utf8(pattern.prefix()).unwrap_or_default(),
        _ => String::new(),
    };
    keys.for_each(&prefix, &mut |row, key| {
        if test.passes(key.as_bytes()) {
            set(row);
        }
    })?;
    Ok(hits)
}

/// The rows of a block that have a value.
fn valid(column: &dyn ColumnRead, block: &Block) -> Result<Bits> {
    let all = block.all();
    if column.nulls() == 0 {
        return Ok(all);
    }
    match column.zone(block.index)?.map(|zone| zone.nulls as usize) {
        Some(0) => return Ok(all),
        Some(nulls) if nulls == block.rows.len() => return Ok([0; WORDS]),
        _ => {}
    }
    let mut valid = all;
    if let Some(words) = column.valid(block.words())? {
        valid
            .iter_mut()
            .zip(words)
            .for_each(|(into, word)| *into &= word);
    }
    Ok(valid)
}

impl<'a> Check<'a> {
    fn new(test: &'a Test, column: &dyn ColumnRead) -> Result<Self> {
        Ok(match test {
            Test::Bool(is) => Self::Bool(*is),
            Test::Number(ranges) => Self::Numbers(ranges),
            Test::String(test) if column.is_sorted() => Self::Codes(Passing::new(test, column)?),
            Test::String(test) => Self::Strings(test),
        })
    }

    /// Returns the rows of a block that pass. The bits of nulls do not count.
    fn hits(&self, column: &dyn ColumnRead, block: &Block) -> Result<Bits> {
        let mut hits = [0; WORDS];
        match self {
            Self::Bool(is) => {
                let words = column.bools(block.words())?;
                for (hits, word) in hits.iter_mut().zip(words) {
                    *hits = if *is { *word } else { !*word };
                }
            }
            Self::Numbers(ranges) => {
                if let Some(zone) = column.zone(block.index)? {
                    if ranges.misses(zone.min, zone.max) {
                        return Ok(hits);
                    }
                    if ranges.covers(zone.min, zone.max) {
                        return Ok(block.all());
                    }
                }
                match column.kind() {
                    ColumnType::Float => {
                        floats(column.floats(block.rows.clone())?, ranges, &mut hits);
                    }
                    _ => ints(column.ints(block.rows.clone())?, ranges, &mut hits),
                }
            }
            Self::Codes(codes) if column.kind() == ColumnType::Strings => {
                let items = data::items(column, block.rows.clone())?;
                // Items that are not there are an error before they take memory.
                let found = column.codes(items.clone())?;
                let mut passed = vec![0; bits::words(items.len())];
                codes.hits(found, &mut passed);
                lists(column, block, items, &passed, &mut hits)?;
            }
            Self::Codes(codes) => {
                if let Some(zone) = column.zone(block.index)?
                    && codes.misses(zone.min, zone.max)
                {
                    return Ok(hits);
                }
                codes.hits(column.codes(block.rows.clone())?, &mut hits);
            }
            Self::Strings(test) if column.kind() == ColumnType::Strings => {
                let items = data::items(column, block.rows.clone())?;
                let codes = column.codes(items.clone())?;
                let mut passed = vec![0; bits::words(items.len())];
                strings(column, codes, items.len(), test, &mut passed)?;
                lists(column, block, items, &passed, &mut hits)?;
            }
            Self::Strings(test) => {
                let rows = block.rows.clone();
                strings(
                    column,
                    column.codes(rows.clone())?,
                    rows.len(),
                    test,
                    &mut hits,
                )?;
            }
        }
        Ok(hits)
    }
}

/// Sets of no more ranges are looked for range by range: many values are compared at once.
const FEW_RANGES: usize = 8;

/// The ints that are in the set.
fn ints(values: &[i64], ranges: &Ranges, hits: &mut [u64]) {
    let ranges_of = ranges.as_slice();
    if ranges_of.len() > FEW_RANGES {
        return bits::collect(values, hits, |value| ranges.contains(value));
    }
    for (low, high) in ranges_of {
        // One comparison for two: what is below the range wraps to more than its width.
        let width = high.wrapping_sub(*low) as u64;
        bits::collect(values, hits, |value| {
            value.wrapping_sub(*low) as u64 <= width
        });
    }
}

/// The floats whose keys are in the set.
fn floats(values: &[f64], ranges: &Ranges, hits: &mut [u64]) {
    let ranges_of = ranges.as_slice();
    if ranges_of.len() > FEW_RANGES {
        return bits::collect(values, hits, |value| ranges.contains(float_key(value)));
    }
    for (low, high) in ranges_of {
        // -1 would be the key of the negative zero, which is equal to the other.
        let low = if *low == -1 { 0 } else { *low };
        let high = if *high == -1 { -2 } else { *high };
        let low = low.max(float_key(f64::NEG_INFINITY));
        let high = high.min(float_key(f64::INFINITY));
        if low <= high {
            let (low, high) = (float_of_key(low), float_of_key(high));
            bits::collect(values, hits, |value| low <= value && value <= high);
        }
    }
}

/// The items whose strings pass, one by one.
fn strings(
    column: &dyn ColumnRead,
    codes: Codes<'_>,
    count: usize,
    test: &StringTest,
    hits: &mut [u64],
) -> Result<()> {
    if let Codes::Own(first, end) = codes {
        let all = column.strings(first..end)?;
        for at in 0..all.len() {
            let passes = all.get(at).is_some_and(|string| test.passes(string));
            hits[at / 64] |= u64::from(passes) << (at % 64);
        }
        return Ok(());
    }
    for at in 0..count {
        let passes = test.passes(data::string(column, codes.get(at))?.as_bytes());
        hits[at / 64] |= u64::from(passes) << (at % 64);
    }
    Ok(())
}

/// The lists of which an item passed.
fn lists(
    column: &dyn ColumnRead,
    block: &Block,
    items: Range<usize>,
    passed: &[u64],
    hits: &mut Bits,
) -> Result<()> {
    let offsets = column.offsets(block.rows.clone())?;
    let ends = &offsets[1..];
    let found = bits::count(passed);
    // Few are looked for in the lists, many are walked to.
    let few = found * 16 < ends.len();
    let mut row = 0;
    for item in bits::ones(passed) {
        let item = (items.start + item) as u64;
        row = match few {
            true => ends.partition_point(|&end| end <= item),
            false => {
                let before = ends[row..].iter().take_while(|&&end| end <= item);
                row + before.count()
            }
        };
        let Some(word) = hits.get_mut(row / 64).filter(|_| row < ends.len()) else {
            return Err(column.wrong(format!("item {item} is of no list")));
        };
        *word |= 1 << (row % 64);
    }
    Ok(())
}

impl Passing {
    /// The codes of the strings that pass. Requires: the strings are sorted.
    fn new(test: &StringTest, column: &dyn ColumnRead) -> Result<Self> {
        match test {
            StringTest::In(wanted) => {
                let mut codes = Vec::with_capacity(wanted.len().min(column.string_count()));
                for string in wanted {
                    let string = string.as_bytes();
                    let at = first(column, |other| other >= string)?;
                    let is_there = at < column.string_count()
                        && column.strings(at..at + 1)?.get(0) == Some(string);
                    if is_there {
                        codes.push(at);
                    }
                }
                match codes[..] {
                    [] => Ok(Self::Range(0..0)),
                    [one] => Ok(Self::Range(one..one + 1)),
                    _ => {
                        let mut table = table(column);
                        codes.iter().for_each(|&code| table[code] = 1);
                        Ok(Self::Table(table))
                    }
                }
            }
            StringTest::Below(than, or_equal) => {
                let than = than.as_bytes();
                let end = match or_equal {
                    true => first(column, |other| other > than)?,
                    false => first(column, |other| other >= than)?,
                };
                Ok(Self::Range(0..end))
            }
            StringTest::Like(pattern) => {
                let prefix = pattern.prefix();
                let start = first(column, |other| other >= &prefix[..])?;
                let end = first(column, |other| {
                    other > &prefix[..] && !other.starts_with(&prefix)
                })?;
                let end = end.max(start);
                if pattern.is_prefix() || start == end {
                    return Ok(Self::Range(start..end));
                }
                let mut table = table(column);
                // Some at a time: a page of the file is checked when it is first read.
                for from in (start..end).step_by(BLOCK_ROWS) {
                    let to = end.min(from + BLOCK_ROWS);
                    let strings: StringsRef<'_> = column.strings(from..to)?;
                    for (at, passes) in table[from..to].iter_mut().enumerate() {
                        let string = strings.get(at);
                        *passes = u8::from(string.is_some_and(|string| pattern.matches(string)));
                    }
                }
                Ok(Self::Table(table))
            }
        }
    }

    /// Whether none from `min` to `max` passes.
    fn misses(&self, min: i64, max: i64) -> bool {
        match self {
            Self::Range(range) => max < range.start as i64 || min >= range.end as i64,
            Self::Table(_) => false,
        }
    }

    fn hits(&self, codes: Codes<'_>, hits: &mut [u64]) {
        match (self, codes) {
            (Self::Range(range), _) if range.is_empty() => {}
            (Self::Range(range), Codes::U8(codes)) => {
                let (start, last) = (range.start as u8, (range.len() - 1) as u8);
                bits::collect(codes, hits, |code| code.wrapping_sub(start) <= last);
            }
            (Self::Range(range), Codes::U16(codes)) => {
                let (start, last) = (range.start as u16, (range.len() - 1) as u16);
                bits::collect(codes, hits, |code| code.wrapping_sub(start) <= last);
            }
            (Self::Range(range), Codes::U32(codes)) => {
                let (start, last) = (range.start as u32, (range.len() - 1) as u32);
                bits::collect(codes, hits, |code| code.wrapping_sub(start) <= last);
            }
            (Self::Table(table), Codes::U8(codes)) => {
                let table: &[u8; 1 << 8] = table.first_chunk().expect("as long as codes reach");
                bits::collect(codes, hits, |code| table[usize::from(code)] != 0);
            }
            (Self::Table(table), Codes::U16(codes)) => {
                let table: &[u8; 1 << 16] = table.first_chunk().expect("as long as codes reach");
                bits::collect(codes, hits, |code| table[usize::from(code)] != 0);
            }
            (Self::Table(table), Codes::U32(codes)) => {
                // A code that is none passes nothing.
                let passes = |code: u32| table.get(code as usize).is_some_and(|&is| is != 0);
                bits::collect(codes, hits, passes);
            }
            (Self::Range(range), Codes::Own(first, end)) => {
                let codes: Vec<usize> = (first..end).collect();
                bits::collect(&codes, hits, |code| range.contains(&code));
            }
            (Self::Table(table), Codes::Own(first, end)) => {
                let codes: Vec<usize> = (first..end).collect();
                bits::collect(&codes, hits, |code| table[code] != 0);
            }
        }
    }
}

/// A byte for each code that can be, none of which passes.
fn table(column: &dyn ColumnRead) -> Vec<u8> {
    let reach = match column.string_count() {
        count if count <= 1 << 8 => 1 << 8,
        count if count <= 1 << 16 => 1 << 16,
        count => count,
    };
    vec![0; reach]
}

/// The first of the sorted strings for which something holds, as it then does for all after it.
fn first(column: &dyn ColumnRead, holds: impl Fn(&[u8]) -> bool) -> Result<usize> {
    let (mut low, mut high) = (0, column.string_count());
    while low < high {
        let middle = low + (high - low) / 2;
        let string = column.strings(middle..middle + 1)?.get(0);
        match string {
            None => return Err(column.wrong(format!("string {middle} lies nowhere"))),
            Some(string) if holds(string) => high = middle,
            Some(_) => low = middle + 1,
        }
    }
    Ok(low)
}
