//! A filter as it was written, without the schema.

use super::number::Number;
use std::sync::Arc;

/// A filter as it was written. Its columns are looked up when it is used by a [`Filter`](crate::Filter).
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    pub(super) text: Arc<str>,
    pub(super) root: Ast,
}

impl Expr {
    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A part of an expression. Chains of `AND` and of `OR` are flat, so the tree is at most
/// [`MAX_DEPTH`](super::MAX_DEPTH) deep.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ast {
    And(Vec<Ast>),
    Or(Vec<Ast>),
    Not(Box<Ast>),
    Is {
        of: Box<Ast>,
        /// `None` is null.
        what: Option<bool>,
        negated: bool,
    },
    /// A column alone.
    Column(Name),
    /// `TRUE`, `FALSE` or `NULL` alone.
    Constant(Option<bool>),
    Compare {
        column: Name,
        compare: Compare,
        with: Literal,
    },
    Between {
        column: Name,
        low: Literal,
        high: Literal,
        negated: bool,
    },
    In {
        column: Name,
        list: Vec<Literal>,
        negated: bool,
    },
    Like {
        column: Name,
        pattern: Literal,
        /// `None` if no character escapes another.
        escape: Option<char>,
        negated: bool,
    },
    Has {
        column: Name,
        item: Literal,
    },
}

/// The name of a column, and its position in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) name: String,
    pub(super) at: usize,
    /// Whether it was in double quotes.
    pub(super) quoted: bool,
}

/// A value, and its position in the text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Literal {
    pub(super) value: LiteralValue,
    pub(super) at: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum LiteralValue {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Compare {
    /// Returns the comparison with its sides exchanged.
    pub(super) fn flipped(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }
}
