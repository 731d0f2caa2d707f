//! Rows, queries and hits.

use crate::columns::{ColumnValue, ColumnValueRef, Columns, Expr};
use crate::error::{Error, Result};
use crate::ids::Seq;
use crate::stored::{Precision, StoredRef};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum length of a key in bytes.
pub const MAX_KEY: usize = 64 << 10;
/// The maximum length of a text in bytes.
pub const MAX_TEXT: usize = 64 << 20;
/// The maximum number of hits of a query.
pub const MAX_K: usize = 10_000;
/// The maximum number of candidates of a query.
pub const MAX_CANDIDATES: usize = 1_000_000;

/// A row. Inserting a row with an existing key replaces the old row.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Row {
    /// The key: not empty, at most 64 KiB.
    pub key: String,
    /// The text or vector.
    pub value: Value,
    /// The values of columns, by name. A column that is not there is null.
    pub columns: BTreeMap<String, ColumnValue>,
}

/// The value of a row; all rows of a database have the same kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text, which the database's encoder turns into a vector.
    Text(String),
    /// A precomputed vector.
    Vector(Vec<f32>),
}

/// A borrowed [`Value`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueRef<'a> {
    /// A text.
    Text(&'a str),
    /// A vector.
    Vector {
        /// The stored vector.
        stored: StoredRef<'a>,
        /// The length before normalisation, if known.
        norm: Option<f64>,
    },
}

impl<'a> ValueRef<'a> {
    /// Returns the text, or `None` for a vector.
    pub fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Vector { .. } => None,
        }
    }

    /// Returns its size in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Vector { stored, .. } => stored.bytes() as u64,
        }
    }

    /// Returns the value as the user gave it; a vector up to rounding.
    pub fn given(self) -> Value {
        match self {
            Self::Text(text) => Value::Text(text.to_owned()),
            Self::Vector { stored, norm } => Value::Vector(stored.given(norm)),
        }
    }
}

impl Row {
    /// Creates a row with a text or a vector.
    pub fn new(key: impl Into<String>, value: Value) -> Self {
        Self {
            key: key.into(),
            value,
            columns: BTreeMap::new(),
        }
    }

    /// Creates a row with a text.
    pub fn text(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(key, Value::Text(text.into()))
    }

    /// Creates a row with a vector.
    pub fn vector(key: impl Into<String>, vector: impl Into<Vec<f32>>) -> Self {
        Self::new(key, Value::Vector(vector.into()))
    }

    /// Sets the value of a column. The database adds a column when a row first has a value of it: then it is a column of this
    /// value's type, in which later values have to fit.
    ///
    /// ```
    /// let row = mopqdb::Row::text("a", "banana").set("year", 2020).set("tags", vec!["fruit", "yellow"]);
    /// assert_eq!(row.columns["year"], 2020.into());
    /// ```
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<ColumnValue>) -> Self {
        self.columns.insert(name.into(), value.into());
        self
    }

    /// Checks what must hold in every database: a key, and nothing longer than can be stored.
    ///
    /// # Errors
    /// [`Error::Invalid`] says what is wrong, without naming the row.
    pub fn check(&self) -> Result<()> {
        check(&self.key, self.value.as_given())
    }
}

/// Checks what must hold in every database, of a row.
fn check(key: &str, value: Given<'_>) -> Result<()> {
    if key.is_empty() {
        return Err(Error::invalid("the key is empty"));
    }
    if key.len() > MAX_KEY {
        return Err(Error::invalid(format!(
            "the key has {} bytes; {MAX_KEY} at most can be stored",
            key.len()
        )));
    }
    match value {
        Given::Text(text) if text.len() > MAX_TEXT => Err(Error::invalid(format!(
            "the text has {} bytes; {MAX_TEXT} at most can be stored",
            text.len()
        ))),
        _ => Ok(()),
    }
}

/// What a user gives for a row, borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Given<'a> {
    Text(&'a str),
    Vector(&'a [f32]),
}

impl Value {
    /// Borrows the value.
    pub(crate) fn as_given(&self) -> Given<'_> {
        match self {
            Self::Text(text) => Given::Text(text),
            Self::Vector(vector) => Given::Vector(vector),
        }
    }
}

/// Rows to insert, borrowed: keys in one slice, texts or vectors in another.
///
/// ```
/// use mopqdb::{CreateOptions, Database, Metric, Options, RowBatch};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("colours.db");
/// let db = Database::create(&path, &CreateOptions::vectors(2, Metric::Ip), Options::default())?;
/// let (keys, values) = (["red", "blue"], [1.0, 0.0, 0.0, 1.0]);
/// db.insert_batch(RowBatch::vectors(&keys, &values)?)?;
/// assert_eq!(db.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RowBatch<'a> {
    rows: Form<'a>,
    columns: Option<&'a Columns>,
}

#[derive(Debug, Clone, Copy)]
enum Form<'a> {
    Rows(&'a [Row]),
    Texts {
        keys: &'a [&'a str],
        texts: &'a [&'a str],
    },
    Vectors {
        keys: &'a [&'a str],
        values: &'a [f32],
        dim: usize,
    },
}

impl<'a> RowBatch<'a> {
    /// Takes a key for each text.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are more of one than of the other.
    pub fn texts(keys: &'a [&'a str], texts: &'a [&'a str]) -> Result<Self> {
        match keys.len() == texts.len() {
            true => Ok(Self::of(Form::Texts { keys, texts })),
            false => Err(Error::invalid(format!(
                "{} keys for {} texts",
                keys.len(),
                texts.len()
            ))),
        }
    }

    /// Takes a key for each vector; `values` has the vectors one after the other.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the values do not make as many vectors of one width as there are keys.
    pub fn vectors(keys: &'a [&'a str], values: &'a [f32]) -> Result<Self> {
        let dim = values.len().checked_div(keys.len()).unwrap_or(0);
        match dim * keys.len() == values.len() && (dim > 0 || keys.is_empty()) {
            true => Ok(Self::of(Form::Vectors { keys, values, dim })),
            false => Err(Error::invalid(format!(
                "{} values do not make {} vectors of one width",
                values.len(),
                keys.len()
            ))),
        }
    }

    fn of(rows: Form<'a>) -> Self {
        Self {
            rows,
            columns: None,
        }
    }

    /// Gives the rows columns. Those of a [`Row`] are its own.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are values for more or fewer rows.
    pub fn with_columns(mut self, columns: &'a Columns) -> Result<Self> {
        if matches!(self.rows, Form::Rows(_)) {
            return Err(Error::invalid(
                "these rows have columns of their own; set their values there",
            ));
        }
        if columns.rows() != self.len() {
            return Err(Error::invalid(format!(
                "columns with {} values for {} rows",
                columns.rows(),
                self.len()
            )));
        }
        self.columns = Some(columns);
        Ok(self)
    }

    /// Returns the values of columns that a row has, by name.
    pub(crate) fn columns(self, at: usize) -> impl Iterator<Item = (&'a str, ColumnValueRef<'a>)> {
        let own = match self.rows {
            Form::Rows(rows) => Some(&rows[at].columns),
            Form::Texts { .. } | Form::Vectors { .. } => None,
        };
        let own = own.into_iter().flatten();
        let own = own.map(|(name, value)| (&name[..], value.as_ref()));
        own.chain(
            self.columns
                .into_iter()
                .flat_map(move |columns| columns.row(at)),
        )
    }

    /// Returns the number of rows.
    pub fn len(self) -> usize {
        match self.rows {
            Form::Rows(rows) => rows.len(),
            Form::Texts { keys, .. } | Form::Vectors { keys, .. } => keys.len(),
        }
    }

    /// Returns `true` if there are no rows.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub(crate) fn key(self, at: usize) -> &'a str {
        match self.rows {
            Form::Rows(rows) => &rows[at].key,
            Form::Texts { keys, .. } | Form::Vectors { keys, .. } => keys[at],
        }
    }

    pub(crate) fn given(self, at: usize) -> Given<'a> {
        match self.rows {
            Form::Rows(rows) => rows[at].value.as_given(),
            Form::Texts { texts, .. } => Given::Text(texts[at]),
            Form::Vectors { values, dim, .. } => Given::Vector(&values[at * dim..(at + 1) * dim]),
        }
    }

    pub(crate) fn check(self, at: usize) -> Result<()> {
        check(self.key(at), self.given(at))
    }
}

impl<'a> From<&'a [Row]> for RowBatch<'a> {
    fn from(rows: &'a [Row]) -> Self {
        Self::of(Form::Rows(rows))
    }
}

/// The result of an insert.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inserted {
    /// Rows with a new key.
    pub new: u64,
    /// Rows that replaced a row with the same key.
    pub replaced: u64,
    /// Rows that existed with identical content; they were skipped.
    pub unchanged: u64,
}

impl Inserted {
    /// Returns the number of rows of the call.
    pub fn rows(&self) -> u64 {
        self.new + self.replaced + self.unchanged
    }
}

/// A query: a text or a vector.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Query<'a> {
    /// A text, for a database that encodes texts.
    Text(&'a str),
    /// A vector with the dimensions of the stored vectors.
    Vector(&'a [f32]),
}

impl<'a> From<&'a str> for Query<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Query<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [f32]> for Query<'a> {
    fn from(vector: &'a [f32]) -> Self {
        Self::Vector(vector)
    }
}

impl<'a> From<&'a Vec<f32>> for Query<'a> {
    fn from(vector: &'a Vec<f32>) -> Self {
        Self::Vector(vector)
    }
}

impl<'a, const N: usize> From<&'a [f32; N]> for Query<'a> {
    fn from(vector: &'a [f32; N]) -> Self {
        Self::Vector(vector)
    }
}

/// How rows are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Search {
    /// Find candidates by codes and order them by their stored vectors. The same as [`Exact`](Self::Exact) if there
    /// are no codes.
    #[default]
    Auto,
    /// Use codes only: the fastest way, approximate, reads no stored vectors.
    Codes,
    /// Compare the query with the stored vector of every row.
    Exact,
    /// The words of texts, by BM25. Needs no encoder.
    Words,
}

impl Search {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Codes, Self::Exact, Self::Words];

    /// Returns the name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Codes => "codes",
            Self::Exact => "exact",
            Self::Words => "words",
        }
    }
}

impl std::fmt::Display for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// How [`Search::Auto`] makes one order of what vectors and words say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Fusion {
    /// By the similarity plus the weighted score of the words; the weight is learned from pairs, or a default.
    #[default]
    Weighted,
    /// By reciprocal ranks: the sum of 1 / (60 + rank) over both orders. For comparison: on most sets that were measured it
    /// finds less than the better of the two.
    ReciprocalRank,
}

/// Serving settings of a model, as measured: how many candidates a query takes. They are kept with the database, under
/// the id of the model, and options of a query go before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Serving {
    /// Hits for which the settings were measured.
    pub k: u32,
    /// Candidates of a query for this many hits.
    pub candidates: u32,
    /// Cells that a query looks at, whatever its hits, under a model with cells; `None`: the default of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<u32>,
}

/// Which cells a query looks at, under a model with cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Probes {
    /// All: the answer is that of a scan of all codes.
    All,
    /// This many, those with the best scores; and further ones in that order, until they hold at least as many rows that
    /// pass the filter as candidates are wanted.
    Cells(usize),
}

impl Serving {
    /// Takes the number of hits that was measured, and the candidates of such a query.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are no hits, or fewer candidates than hits.
    pub fn new(k: u32, candidates: u32) -> Result<Self> {
        let serving = Self {
            k,
            candidates,
            probes: None,
        };
        match serving.is_valid() {
            true => Ok(serving),
            false => Err(Error::invalid(format!(
                "{candidates} candidates for {k} hits; a query has at least one hit, and as many candidates as hits"
            ))),
        }
    }

    /// Sets the cells that a query looks at.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are none.
    pub fn with_probes(self, probes: u32) -> Result<Self> {
        let serving = Self {
            probes: Some(probes),
            ..self
        };
        match serving.is_valid() {
            true => Ok(serving),
            false => Err(Error::invalid(
                "0 probes; a query looks at one cell at least",
            )),
        }
    }

    pub(crate) fn is_valid(self) -> bool {
        self.k > 0 && self.candidates >= self.k && self.probes != Some(0)
    }

    /// Returns the candidates of a query for k hits: in proportion to what was measured, and never fewer than k.
    pub fn candidates_for(self, k: usize) -> usize {
        let scaled = k as u128 * u128::from(self.candidates);
        let scaled = scaled.div_ceil(u128::from(self.k.max(1)));
        usize::try_from(scaled).unwrap_or(usize::MAX).max(k)
    }
}

/// Options of a query.
///
/// ```
/// use mopqdb::{QueryOptions, Search};
/// let fast = QueryOptions::top(10).search(Search::Codes);
/// let thorough = QueryOptions::top(10).candidates(2_000);
/// let second_page = QueryOptions::top(10).offset(10);
/// # let _ = (fast, thorough, second_page);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QueryOptions {
    /// The maximum number of hits, including `offset`: 1 to 10,000.
    pub k: usize,
    /// Restricts the search to these rows.
    pub filter: Option<Filter>,
    /// How rows are found.
    pub search: Search,
    /// How many rows [`Search::Auto`] takes by codes and scores by their stored vectors. By default what was measured
    /// for the model ([`Serving`]), else [`default_candidates`](Self::default_candidates). More candidates raise recall
    /// and time.
    pub candidates: Option<usize>,
    /// Which cells a search by codes looks at, under a model that has cells; other models refuse it. By default what was
    /// measured for the model ([`Serving`]), else [`default_probes`](Self::default_probes). More probes raise recall and
    /// time.
    pub probes: Option<Probes>,
    /// The number of best hits to skip.
    pub offset: usize,
    /// Skip hits with a lower [`score`](Hit::score).
    pub min_score: Option<f32>,
    /// Skip hits with a lower [`similarity`](Hit::similarity).
    pub min_similarity: Option<f32>,
    /// How [`Search::Auto`] uses words.
    pub fusion: Fusion,
    /// The columns that hits come with.
    pub columns: Vec<String>,
}

impl QueryOptions {
    /// Returns the default options for the k best rows.
    pub fn top(k: usize) -> Self {
        Self {
            k,
            filter: None,
            search: Search::Auto,
            candidates: None,
            probes: None,
            offset: 0,
            min_score: None,
            min_similarity: None,
            fusion: Fusion::default(),
            columns: Vec::new(),
        }
    }

    /// Restricts the search to these rows; after another restriction, to those that pass both. The filter is exact; it is
    /// applied before the top k are taken.
    pub fn among(mut self, filter: Filter) -> Self {
        self.filter = Some(match self.filter.take() {
            Some(before) => before.and(filter),
            None => filter,
        });
        self
    }

    /// Sets the columns that hits come with; see [`Hit::columns`].
    pub fn columns<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.columns = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how rows are found.
    pub fn search(mut self, search: Search) -> Self {
        self.search = search;
        self
    }

    /// Sets the number of candidates: at least `k` and `offset` together.
    pub fn candidates(mut self, candidates: usize) -> Self {
        self.candidates = Some(candidates);
        self
    }

    /// Sets which cells are looked at.
    pub fn probes(mut self, probes: Probes) -> Self {
        self.probes = Some(probes);
        self
    }

    /// Skips the first `offset` hits.
    pub fn offset(mut self, offset: usize) -> Self {
        self.offset = offset;
        self
    }

    /// Sets how [`Search::Auto`] uses words.
    pub fn fusion(mut self, fusion: Fusion) -> Self {
        self.fusion = fusion;
        self
    }

    /// Skips hits with a lower score.
    pub fn min_score(mut self, score: f32) -> Self {
        self.min_score = Some(score);
        self
    }

    /// Skips hits with a lower similarity. Not available with [`Search::Codes`], which computes
    /// none.
    pub fn min_similarity(mut self, similarity: f32) -> Self {
        self.min_similarity = Some(similarity);
        self
    }

    /// Returns how many candidates a search for the k best takes by default: ten for each hit, at least 400, which
    /// loses less than a hundredth of what exact search finds on the sets that it was measured on.
    pub fn default_candidates(k: usize) -> usize {
        (10 * k).max(400)
    }

    /// Returns how many of some cells are looked at by default: twice the square root, which on the sets of texts that were
    /// measured loses less than a hundredth of what all of them find. A [tuned](fn@crate::eval::tune) number is usually
    /// smaller.
    pub fn default_probes(cells: usize) -> usize {
        ((4.0 * cells as f64).sqrt().ceil() as usize).min(cells)
    }

    /// Returns which cells a search looks at: the requested number, else the measured one, else the default. The model
    /// has `cells` cells.
    pub(crate) fn wanted_probes(&self, serving: Option<Serving>, cells: usize) -> Result<Probes> {
        let measured = || serving.and_then(|serving| serving.probes);
        match self.probes {
            Some(Probes::Cells(asked)) if asked > cells => Err(Error::invalid(format!(
                "{asked} probes; the active model has {cells} cells: ask for 1 to {cells}, or all"
            ))),
            Some(probes) => Ok(probes),
            None => Ok(match measured() {
                Some(probes) => Probes::Cells((probes as usize).min(cells)),
                None => Probes::Cells(Self::default_probes(cells)),
            }),
        }
    }

    /// Returns how many candidates a search by codes and stored vectors takes: the requested number, else the measured
    /// one, else the default.
    pub(crate) fn wanted_candidates(&self, serving: Option<Serving>) -> usize {
        let depth = self.depth();
        self.candidates.unwrap_or_else(|| match serving {
            Some(serving) => serving.candidates_for(depth).min(MAX_CANDIDATES),
            None => Self::default_candidates(depth),
        })
    }

    /// Returns the number of hits to rank, including those that `offset` skips.
    pub(crate) fn depth(&self) -> usize {
        self.k.saturating_add(self.offset)
    }

    /// Checks that the options do not contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        let depth = self.depth();
        if self.k == 0 {
            return Err(Error::invalid(format!("k is 0; ask for 1 to {MAX_K} hits")));
        }
        if depth > MAX_K {
            let beyond = match self.offset {
                0 => String::new(),
                offset => format!(" with an offset of {offset}"),
            };
            return Err(Error::invalid(format!(
                "k is {}{beyond}; ask for 1 to {MAX_K} hits",
                self.k
            )));
        }
        if let Some(candidates) = self.candidates {
            if self.search != Search::Auto {
                return Err(Error::invalid(format!(
                    "a search by {} takes no candidates; leave them out, or search with auto",
                    self.search
                )));
            }
            if candidates < depth || candidates > MAX_CANDIDATES {
                return Err(Error::invalid(format!(
                    "{candidates} candidates for {depth} hits; ask for {depth} to {MAX_CANDIDATES}"
                )));
            }
        }
        if self.probes.is_some() && matches!(self.search, Search::Exact | Search::Words) {
            return Err(Error::invalid(format!(
                "a search by {} looks at no cells; leave the probes out, or search with auto or codes",
                self.search
            )));
        }
        if self.probes == Some(Probes::Cells(0)) {
            return Err(Error::invalid(
                "0 probes; a query looks at one cell at least",
            ));
        }
        if self.fusion != Fusion::Weighted && self.search != Search::Auto {
            return Err(Error::invalid(format!(
                "a search by {} has one order, and nothing to fuse; search with auto",
                self.search
            )));
        }
        if self.min_similarity.is_some() && matches!(self.search, Search::Codes | Search::Words) {
            return Err(Error::invalid(
                "hits that codes or words alone find have no similarity; use a least score, or another search",
            ));
        }
        let least = [self.min_score, self.min_similarity];
        if least.into_iter().flatten().any(f32::is_nan) {
            return Err(Error::invalid("a least score is not a number"));
        }
        Ok(())
    }
}

/// A restriction of the rows that are searched.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Filter {
    /// The rows with these keys; keys that do not exist are ignored.
    Keys(BTreeSet<String>),
    /// The rows whose key begins with this prefix.
    Prefix(String),
    /// The rows for which this expression is true; see [`sql`](Self::sql).
    Where(Expr),
    /// The rows that pass each of these.
    All(Vec<Filter>),
}

impl Filter {
    /// Takes a condition on columns, and on the key, in SQL: comparisons, `AND`, `OR`, `NOT`, `IN`, `BETWEEN`, `LIKE`,
    /// `IS [NOT] NULL`, `IS [NOT] TRUE`, and `tags HAS 'x'` of lists. As in SQL, a comparison with null is neither true nor false, and
    /// only rows for which the whole is true pass.
    ///
    /// ```
    /// use mopqdb::Filter;
    /// let filter = Filter::sql("year >= 2020 AND lang IN ('en', 'de') AND deleted IS NOT TRUE")?;
    /// # let _ = filter;
    /// assert!(Filter::sql("year >=").is_err());
    /// # Ok::<(), mopqdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] with the character where it is. Columns are looked for when the filter is used.
    pub fn sql(text: &str) -> Result<Self> {
        Ok(Self::Where(Expr::parse(text)?))
    }

    /// Returns the filter that lets through what both do.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match self {
            Self::All(mut filters) => {
                filters.push(other);
                Self::All(filters)
            }
            first => Self::All(vec![first, other]),
        }
    }
}

/// What found a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FoundBy {
    /// Its code.
    Codes,
    /// Its stored vector.
    Vectors,
    /// Its words.
    Words,
    /// Its words, and its code or stored vector.
    Both,
}

impl FoundBy {
    /// Returns its name, as the program writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Codes => "codes",
            Self::Vectors => "vectors",
            Self::Words => "words",
            Self::Both => "both",
        }
    }
}

/// A found row.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Hit {
    /// The user's key.
    pub key: String,
    /// The score that hits are ordered by; larger is better. With [`Search::Codes`] it is the score of the row's code,
    /// otherwise the similarity.
    pub score: f32,
    /// The metric between the query and the stored vector: the inner product, the cosine, or the negative squared
    /// distance for l2. `None` with [`Search::Codes`].
    pub similarity: Option<f32>,
    /// The BM25 score of the row's words, where words were searched.
    pub words: Option<f32>,
    /// What found the row, where words were searched.
    pub found_by: Option<FoundBy>,
    /// The text, in a database of texts.
    pub text: Option<String>,
    /// The values of the columns that [`QueryOptions::columns`] asks for, by name, nulls among them.
    pub columns: BTreeMap<String, ColumnValue>,
    /// The sequence number of the row; orders hits with equal scores.
    pub seq: Seq,
}

/// The kind of the rows of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowsKind {
    /// Texts: the database has an encoder.
    Text,
    /// Precomputed vectors.
    Vector,
}

impl RowsKind {
    /// Returns the default precision: `F16` for texts, `F32` for vectors.
    pub fn precision(self) -> Precision {
        match self {
            Self::Text => Precision::F16,
            Self::Vector => Precision::F32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_scaled_to_the_hits() {
        let serving = Serving::new(10, 250).unwrap();
        assert_eq!(serving.candidates_for(10), 250);
        assert_eq!(serving.candidates_for(1), 25);
        assert_eq!(serving.candidates_for(100), 2_500);
        assert_eq!(Serving::new(7, 10).unwrap().candidates_for(3), 5);
        assert_eq!(Serving::new(10, 10).unwrap().candidates_for(3), 3);
        assert!(Serving::new(0, 10).is_err() && Serving::new(10, 9).is_err());
    }
}
