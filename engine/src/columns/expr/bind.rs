//! What an expression means for the columns that there are.

use super::ExprError;
use super::ast::{Ast, Compare, Expr, Literal, LiteralValue, Name};
use super::like::Pattern;
use super::node::{Node, StringTest, Subject, Test, Truth};
use super::number::Place;
use super::ranges::Ranges;
use crate::columns::schema::Schema;
use crate::columns::time;
use crate::columns::value::ColumnType;
use std::sync::Arc;

/// A filter that knows its columns. Two that are equal pass the same rows, so masks are kept by them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BoundExpr(Arc<Node>);

impl BoundExpr {
    /// Returns the conditions.
    pub(crate) fn node(&self) -> &Node {
        &self.0
    }

    /// Its bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl Expr {
    /// Finds the columns of the expression and compares each with values of its type.
    ///
    /// # Errors
    /// A column that is not there, or a comparison that its type does not have, with the character where it is.
    pub(crate) fn bind(&self, schema: &Schema) -> Result<BoundExpr, ExprError> {
        let binder = Binder {
            text: &self.text,
            schema,
        };
        Ok(BoundExpr(Arc::new(binder.bind(&self.root, false)?)))
    }
}

struct Binder<'a> {
    text: &'a str,
    schema: &'a Schema,
}

/// Nobody knows, of any row.
const NULL: Node = Node::Constant(None);

impl Binder<'_> {
    fn wrong(&self, at: usize, what: impl Into<String>) -> ExprError {
        ExprError::new(self.text, at, what)
    }

    /// Requires: expressions nest no deeper than the parser lets them.
    fn bind(&self, ast: &Ast, negate: bool) -> Result<Node, ExprError> {
        match ast {
            Ast::And(parts) | Ast::Or(parts) => {
                let parts = parts.iter().map(|part| self.bind(part, negate));
                let parts = parts.collect::<Result<_, _>>()?;
                Ok(Node::combined(parts, matches!(ast, Ast::And(_)) != negate))
            }
            Ast::Not(of) => self.bind(of, !negate),
            Ast::Is { of, what, negated } => self.is(of, *what, *negated != negate),
            Ast::Column(name) => match self.subject(name)? {
                subject @ Subject::Column(_, ColumnType::Bool) => {
                    Ok(Node::test(subject, Test::Bool(true), negate))
                }
                subject => Err(self.wrong(
                    name.at,
                    format!(
                        "{} is {}, which is neither true nor false; compare it with a value",
                        self.named(name, subject),
                        kind(subject).described()
                    ),
                )),
            },
            Ast::Constant(is) => Ok(Node::Constant(is.map(|is| is != negate))),
            Ast::Compare {
                column,
                compare,
                with,
            } => self.compare(column, *compare, with, negate),
            Ast::Between {
                column,
                low,
                high,
                negated,
            } => {
                let negate = *negated != negate;
                let parts = vec![
                    self.compare(column, Compare::GreaterOrEqual, low, negate)?,
                    self.compare(column, Compare::LessOrEqual, high, negate)?,
                ];
                Ok(Node::combined(parts, !negate))
            }
            Ast::In {
                column,
                list,
                negated,
            } => self.one_of(column, list, *negated != negate),
            Ast::Like {
                column,
                pattern,
                escape,
                negated,
            } => self.like(column, pattern, *escape, *negated != negate),
            Ast::Has { column, item } => {
                let subject = self.subject(column)?;
                if kind(subject) != ColumnType::Strings {
                    return Err(self.wrong(
                        column.at,
                        format!(
                            "{} is {}, and HAS asks lists of strings; compare it with =",
                            self.named(column, subject),
                            kind(subject).described()
                        ),
                    ));
                }
                match &item.value {
                    LiteralValue::Null => Ok(NULL),
                    LiteralValue::String(item) => Ok(Node::test(
                        subject,
                        StringTest::In(vec![item.clone()]).into(),
                        negate,
                    )),
                    _ => Err(self.mismatch(column, subject, item)),
                }
            }
        }
    }

    fn is(&self, of: &Ast, what: Option<bool>, negated: bool) -> Result<Node, ExprError> {
        // Of a column of any type it can be asked whether it is null.
        if let (Ast::Column(name), None) = (of, what) {
            return Ok(match self.subject(name)? {
                Subject::Key => Node::Constant(Some(negated)),
                Subject::Column(column, _) => Node::IsNull { column, negated },
            });
        }
        Ok(match self.bind(of, false)? {
            Node::Constant(is) => Node::Constant(Some((is == what) != negated)),
            // It is one or the other.
            of @ (Node::Is { .. } | Node::IsNull { .. }) if what.is_none() => {
                drop(of);
                Node::Constant(Some(negated))
            }
            of => Node::Is {
                of: Box::new(of),
                truth: match what {
                    Some(true) => Truth::True,
                    Some(false) => Truth::False,
                    None => Truth::Null,
                },
                negated,
            },
        })
    }

    fn compare(
        &self,
        name: &Name,
        compare: Compare,
        with: &Literal,
        negate: bool,
    ) -> Result<Node, ExprError> {
        let subject = self.subject(name)?;
        let is_order = !matches!(compare, Compare::Equal | Compare::NotEqual);
        match kind(subject) {
            ColumnType::Strings => {
                return Err(self.wrong(
                    name.at,
                    format!(
                        "{} is a list of strings; ask {} HAS 'x'",
                        self.named(name, subject),
                        name.name
                    ),
                ));
            }
            ColumnType::Bool if is_order => {
                return Err(self.wrong(
                    name.at,
                    format!(
                        "{} is a bool, and bools have no order; ask whether it IS TRUE",
                        self.named(name, subject)
                    ),
                ));
            }
            _ => {}
        }
        if matches!(with.value, LiteralValue::Null) {
            return Ok(NULL);
        }
        if let LiteralValue::Bool(is) = with.value
            && kind(subject) == ColumnType::Bool
        {
            let differs = compare == Compare::NotEqual;
            return Ok(Node::test(subject, Test::Bool(is), differs != negate));
        }
        if let Some(place) = self.place(name, subject, with)? {
            let test = Test::Number(Ranges::compared(compare, place));
            return Ok(Node::test(subject, test, negate));
        }
        let LiteralValue::String(string) = &with.value else {
            return Err(self.mismatch(name, subject, with));
        };
        let string = string.clone();
        let (test, negated) = match compare {
            Compare::Equal => (StringTest::In(vec![string]), false),
            Compare::NotEqual => (StringTest::In(vec![string]), true),
            Compare::Less => (StringTest::Below(string, false), false),
            Compare::LessOrEqual => (StringTest::Below(string, true), false),
            Compare::Greater => (StringTest::Below(string, true), true),
            Compare::GreaterOrEqual => (StringTest::Below(string, false), true),
        };
        Ok(Node::test(subject, test.into(), negated != negate))
    }

    /// The place of a literal among the values of a column of numbers; `None` if the column has strings.
    fn place(
        &self,
        name: &Name,
        subject: Subject,
        literal: &Literal,
    ) -> Result<Option<Place>, ExprError> {
        match (kind(subject), &literal.value) {
            (ColumnType::Int, LiteralValue::Number(number)) => Ok(Some(number.among_ints())),
            (ColumnType::Float, LiteralValue::Number(number)) => Ok(Some(number.among_floats())),
            (ColumnType::Timestamp, LiteralValue::String(text)) => {
                let micros = time::parse(text).map_err(|why| {
                    let what = format!("{}: {why}", self.named(name, subject));
                    self.wrong(literal.at, what)
                })?;
                Ok(Some(Place {
                    floor: micros.into(),
                    exact: true,
                }))
            }
            (ColumnType::String, LiteralValue::String(_)) => Ok(None),
            _ => Err(self.mismatch(name, subject, literal)),
        }
    }

    fn one_of(&self, name: &Name, list: &[Literal], negated: bool) -> Result<Node, ExprError> {
        let subject = self.subject(name)?;
        if kind(subject) == ColumnType::Strings {
            return Err(self.wrong(
                name.at,
                format!(
                    "{} is a list of strings; ask {} HAS 'x' OR {} HAS 'y'",
                    self.named(name, subject),
                    name.name,
                    name.name
                ),
            ));
        }
        let or_null = list
            .iter()
            .any(|item| matches!(item.value, LiteralValue::Null));
        let known = list
            .iter()
            .filter(|item| !matches!(item.value, LiteralValue::Null));
        let mut strings = Vec::new();
        let mut numbers = Vec::new();
        let mut bools = Vec::new();
        for item in known {
            match &item.value {
                LiteralValue::Bool(is) if kind(subject) == ColumnType::Bool => bools.push(*is),
                LiteralValue::String(string) if kind(subject) == ColumnType::String => {
                    strings.push(string.clone());
                }
                _ => {
                    let place = self.place(name, subject, item)?;
                    let place = place.ok_or_else(|| self.mismatch(name, subject, item))?;
                    let equal = Ranges::compared(Compare::Equal, place);
                    numbers.extend_from_slice(equal.as_slice());
                }
            }
        }
        let test = match kind(subject) {
            ColumnType::Bool => match (bools.contains(&true), bools.contains(&false)) {
                (true, true) => {
                    // Every value is in the list.
                    let parts = [true, false].map(|is| Node::test(subject, Test::Bool(is), false));
                    return Ok(Node::combined(parts.to_vec(), negated));
                }
                (false, false) => return Ok(NULL),
                (is, _) => Test::Bool(is),
            },
            ColumnType::String => {
                strings.sort_unstable();
                strings.dedup();
                StringTest::In(strings).into()
            }
            _ => Test::Number(Ranges::new(numbers)),
        };
        Ok(match or_null {
            false => Node::test(subject, test, negated),
            true => Node::Test {
                subject,
                test,
                negated,
                or_null,
            },
        })
    }

    fn like(
        &self,
        name: &Name,
        pattern: &Literal,
        escape: Option<char>,
        negated: bool,
    ) -> Result<Node, ExprError> {
        let subject = self.subject(name)?;
        if kind(subject) != ColumnType::String {
            return Err(self.wrong(
                name.at,
                format!(
                    "{} is {}, and LIKE matches strings",
                    self.named(name, subject),
                    kind(subject).described()
                ),
            ));
        }
        let text = match &pattern.value {
            LiteralValue::Null => return Ok(NULL),
            LiteralValue::String(text) => text,
            _ => return Err(self.mismatch(name, subject, pattern)),
        };
        let compiled = Pattern::new(text, escape).map_err(|why| self.wrong(pattern.at, why))?;
        let test = match compiled.exact() {
            Some(only) => StringTest::In(vec![only]).into(),
            None => StringTest::Like(compiled).into(),
        };
        Ok(Node::test(subject, test, negated))
    }

    fn subject(&self, name: &Name) -> Result<Subject, ExprError> {
        if name.name == "key" {
            return Ok(Subject::Key);
        }
        match self.schema.find(&name.name) {
            Some(column) => Ok(Subject::Column(column.id, column.kind)),
            None if matches!(name.name.as_str(), "text" | "vector") => Err(self.wrong(
                name.at,
                format!(
                    "a filter can't ask the {} of a row; {}",
                    name.name,
                    self.schema.list()
                ),
            )),
            None => {
                let what = self.schema.unknown(&name.name);
                let what = match name.quoted {
                    true => {
                        format!("{what}; double quotes are for names, strings are in single ones")
                    }
                    false => what,
                };
                Err(self.wrong(name.at, what))
            }
        }
    }

    fn named(&self, name: &Name, subject: Subject) -> String {
        match subject {
            Subject::Key => "the key".to_owned(),
            Subject::Column(..) => format!("column {:?}", name.name),
        }
    }

    fn mismatch(&self, name: &Name, subject: Subject, literal: &Literal) -> ExprError {
        let is = match &literal.value {
            LiteralValue::Null => "NULL",
            LiteralValue::Bool(true) => "TRUE",
            LiteralValue::Bool(false) => "FALSE",
            LiteralValue::Number(_) => "a number",
            LiteralValue::String(_) => "a string",
        };
        let with = match kind(subject) {
            ColumnType::Bool => "TRUE or FALSE",
            ColumnType::Int | ColumnType::Float => "a number, without quotes",
            ColumnType::String | ColumnType::Strings => "a string, in single quotes",
            ColumnType::Timestamp => "a string such as '2024-05-01T12:00:00Z'",
        };
        self.wrong(
            literal.at,
            format!(
                "{} is {}, and this is {is}; compare it with {with}",
                self.named(name, subject),
                kind(subject).described()
            ),
        )
    }
}

fn kind(subject: Subject) -> ColumnType {
    match subject {
        Subject::Key => ColumnType::String,
        Subject::Column(_, kind) => kind,
    }
}
