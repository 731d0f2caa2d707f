//! Filters: conditions on columns, written in SQL.
//!
//! [`Expr::parse`] takes the text, [`Expr::bind`] finds its columns and turns every comparison into a [`Test`] of the values of
//! one column, and [`BoundExpr::mask`] tells the rows for which it is true. Logic is that of SQL: a comparison with
//! null is neither true nor false, and what is not true does not pass.

mod ast;
mod bind;
mod like;
mod node;
mod number;
mod parse;
mod ranges;
#[cfg(test)]
mod tests;

pub use ast::Expr;
pub(crate) use bind::BoundExpr;
pub(crate) use node::{Node, StringTest, Subject, Test, Truth};
pub(crate) use ranges::Ranges;

use crate::error::Error;
use std::fmt;

/// The longest expression, in characters.
pub const MAX_EXPR: usize = 10_000;
/// How deep expressions nest.
pub(crate) const MAX_DEPTH: usize = 64;

/// What is wrong with an expression, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExprError {
    /// What is wrong, and what to do instead.
    pub what: String,
    /// The character where it is, counted from 0.
    pub at: usize,
    /// The expression around it.
    line: String,
    /// The place of the character in the line.
    mark: usize,
}

impl ExprError {
    fn new(text: &str, at: usize, what: impl Into<String>) -> Self {
        const AROUND: usize = 36;
        let chars: Vec<char> = text.chars().collect();
        let at = at.min(chars.len());
        let start = at.saturating_sub(AROUND);
        let end = (at + AROUND).min(chars.len());
        let cut = |is: bool| if is { "..." } else { "" };
        let before = cut(start > 0);
        let plain = |c: &char| if c.is_control() { ' ' } else { *c };
        let shown: String = chars[start..end].iter().map(plain).collect();
        Self {
            what: what.into(),
            at,
            line: format!("{before}{shown}{}", cut(end < chars.len())),
            mark: before.len() + at - start,
        }
    }
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what, line, mark, ..
        } = self;
        writeln!(f, "{what}, at character {} of the filter:", self.at + 1)?;
        writeln!(f, "  {line}")?;
        write!(f, "  {:mark$}^", "")
    }
}

impl std::error::Error for ExprError {}

impl From<ExprError> for Error {
    fn from(error: ExprError) -> Self {
        Self::invalid(error.to_string())
    }
}
