//! Parses the text of a filter: `sqlparser` reads it, with a dialect for `HAS`, and whatever filters do not support is
//! refused by name.

use super::ast::{Ast, Compare, Expr, Literal, LiteralValue, Name};
use super::number::Number;
use super::{ExprError, MAX_DEPTH, MAX_EXPR};
use sqlparser::ast::{BinaryOperator, Expr as Sql, Spanned, UnaryOperator, Value, ValueWithSpan};
use sqlparser::dialect::{Dialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace, Word};

impl Expr {
    /// Parses a filter.
    ///
    /// # Errors
    /// A message, with the position of what is wrong or not supported in filters.
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        let source = Source::new(text)?;
        let tokens = source.tokens()?;
        let parsed = source.parse(tokens)?;
        Ok(Self {
            text: text.into(),
            root: source.convert(&parsed, 0)?,
        })
    }
}

/// SQL without the extensions of other databases, and with `HAS`.
#[derive(Debug)]
struct Filters;

impl Dialect for Filters {
    fn is_identifier_start(&self, c: char) -> bool {
        c.is_alphabetic() || c == '_'
    }

    fn is_identifier_part(&self, c: char) -> bool {
        c.is_alphanumeric() || c == '_'
    }

    fn is_delimited_identifier_start(&self, c: char) -> bool {
        c == '"'
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        is_has(&parser.peek_token_ref().token).then(|| Ok(self.prec_value(Precedence::Eq)))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        left: &Sql,
        precedence: u8,
    ) -> Option<Result<Sql, ParserError>> {
        let at = parser.peek_token_ref();
        if !is_has(&at.token) {
            return None;
        }
        // Nothing else is copied, because the text before a HAS may be long.
        if !matches!(left, Sql::Identifier(_) | Sql::CompoundIdentifier(_)) {
            let at = at.span.start;
            let what = format!("has follows the name of a column{at}");
            return Some(Err(ParserError::ParserError(what)));
        }
        parser.advance_token();
        Some(parser.parse_subexpr(precedence).map(|right| Sql::BinaryOp {
            left: Box::new(left.clone()),
            op: BinaryOperator::Custom("HAS".to_owned()),
            right: Box::new(right),
        }))
    }
}

fn is_has(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("has"))
}

/// Returns the keyword for words that have a meaning in filters. All others are names, whatever they mean elsewhere.
fn keyword(word: &Word) -> Keyword {
    match word.keyword {
        known @ (Keyword::AND
        | Keyword::OR
        | Keyword::NOT
        | Keyword::IN
        | Keyword::LIKE
        | Keyword::ESCAPE
        | Keyword::BETWEEN
        | Keyword::IS
        | Keyword::NULL
        | Keyword::TRUE
        | Keyword::FALSE
        | Keyword::UNKNOWN) => known,
        _ => Keyword::NoKeyword,
    }
}

/// Returns the message for one of these words where it makes no sense as a name.
fn foreign(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    Some(match word.as_str() {
        "select" | "exists" | "with" | "from" | "where" | "any" | "all" | "some" => {
            "filters have no sub-queries; a filter is the condition alone"
        }
        "cast" | "try_cast" | "convert" | "collate" => {
            "filters have no casts; values are compared as the types of their columns"
        }
        "ilike" | "rlike" | "regexp" | "similar" | "glob" => {
            "filters have only LIKE, with % and _, which is case-sensitive"
        }
        "case" | "when" | "interval" | "distinct" | "xor" | "div" | "mod" | "overlaps" => {
            "filters do not have this; they have = != < <= > >=, AND, OR, NOT, IN, LIKE, BETWEEN, IS and HAS"
        }
        "date" | "timestamp" | "time" => {
            "a point in time is only a string, such as '2024-05-01T12:00:00Z'"
        }
        "nan" | "infinity" => "filters have no such number",
        _ => return None,
    })
}

struct Source<'a> {
    text: &'a str,
    /// The position at which each line begins.
    lines: Vec<usize>,
    chars: usize,
}

impl<'a> Source<'a> {
    fn new(text: &'a str) -> Result<Self, ExprError> {
        let chars = text.chars().count();
        if chars > MAX_EXPR {
            return Err(ExprError::new(
                text,
                MAX_EXPR,
                format!(
                    "the filter has {chars} characters, but at most {MAX_EXPR} are allowed; many keys can be given as a set of keys"
                ),
            ));
        }
        let breaks = text.chars().enumerate().filter(|&(_, c)| c == '\n');
        let lines = [0].into_iter().chain(breaks.map(|(at, _)| at + 1));
        Ok(Self {
            text,
            lines: lines.collect(),
            chars,
        })
    }

    fn wrong(&self, at: usize, what: impl Into<String>) -> ExprError {
        ExprError::new(self.text, at, what)
    }

    /// Returns the position of a place; the end of the text if the place is unknown.
    fn at(&self, place: Location) -> usize {
        let line = usize::try_from(place.line).unwrap_or(usize::MAX);
        let start = line.checked_sub(1).and_then(|line| self.lines.get(line));
        let column = usize::try_from(place.column).unwrap_or(usize::MAX);
        match start {
            Some(start) => start
                .saturating_add(column.saturating_sub(1))
                .min(self.chars),
            None => self.chars,
        }
    }

    /// Returns the tokens, without spaces. Tokens that can't be in a filter are refused here.
    fn tokens(&self) -> Result<Vec<TokenWithSpan>, ExprError> {
        let tokens = Tokenizer::new(&Filters, self.text).tokenize_with_location();
        let tokens = tokens.map_err(|e| self.wrong(self.at(e.location), lower(&e.message)))?;
        let mut kept: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
        let mut chained = 0;
        for mut token in tokens {
            let at = self.at(token.span.start);
            match &mut token.token {
                Token::Whitespace(
                    Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_),
                ) => {
                    return Err(self.wrong(
                        at,
                        "filters have no comments; a negative number follows a space",
                    ));
                }
                Token::Whitespace(_) => continue,
                Token::Word(word) => word.keyword = keyword(word),
                Token::LParen => self.opens(kept.last(), at)?,
                Token::RParen
                | Token::Comma
                | Token::Period
                | Token::SingleQuotedString(_)
                | Token::Eq
                | Token::Neq
                | Token::Lt
                | Token::LtEq
                | Token::Gt
                | Token::GtEq => {}
                Token::Number(_, false) => {}
                // Before a number it is a sign; between values it would be arithmetic.
                Token::Minus if !ends_value(kept.last()) => {}
                // The tokenizer places it after the zero.
                Token::HexStringLiteral(_) if self.text.chars().nth(at) == Some('x') && at > 0 => {
                    return Err(self.wrong(at - 1, refusal(&token.token)));
                }
                other => return Err(self.wrong(at, refusal(other))),
            }
            chained = match &token.token {
                Token::Word(word) => match word.keyword {
                    Keyword::AND | Keyword::OR => 0,
                    Keyword::IS | Keyword::IN | Keyword::LIKE | Keyword::BETWEEN => chained + 1,
                    _ => chained + usize::from(is_has(&token.token)),
                },
                Token::Eq | Token::Neq | Token::Lt | Token::LtEq | Token::Gt | Token::GtEq => {
                    chained + 1
                }
                _ => chained,
            };
            // Each of these nests what precedes it, and the parser drops that recursively.
            if chained > MAX_DEPTH {
                return Err(self.wrong(
                    at,
                    "comparisons follow each other; AND or OR joins conditions",
                ));
            }
            kept.push(token);
        }
        match kept.is_empty() {
            true => Err(self.wrong(0, "the filter is empty; leave it out, or write a condition")),
            false => Ok(kept),
        }
    }

    /// A parenthesis after a name is a function call.
    fn opens(&self, before: Option<&TokenWithSpan>, at: usize) -> Result<(), ExprError> {
        match before.map(|token| &token.token) {
            Some(Token::Word(word)) if word.keyword == Keyword::NoKeyword => {
                let what = foreign(&word.value).unwrap_or("filters have no functions");
                let before = before.map_or(at, |token| self.at(token.span.start));
                Err(self.wrong(before, what))
            }
            _ => Ok(()),
        }
    }

    fn parse(&self, tokens: Vec<TokenWithSpan>) -> Result<Sql, ExprError> {
        let mut parser = Parser::new(&Filters)
            .with_recursion_limit(MAX_DEPTH)
            .with_tokens_with_locations(tokens.clone());
        let parsed = match parser.parse_expr() {
            Ok(parsed) => parsed,
            Err(ParserError::RecursionLimitExceeded) => {
                let at = self.at(parser.peek_token_ref().span.start);
                return Err(self.wrong(
                    at,
                    "the filter nests too deep; write it with fewer parentheses",
                ));
            }
            Err(ParserError::ParserError(what) | ParserError::TokenizerError(what)) => {
                let (what, at) = self.placed(&what);
                return Err(self.explained(&tokens, at, what));
            }
        };
        let next = parser.peek_token_ref();
        if next.token != Token::EOF {
            let at = self.at(next.span.start);
            let what = format!(
                "{} does not belong here; AND or OR joins conditions",
                next.token
            );
            return Err(self.explained(&tokens, at, what));
        }
        Ok(parsed)
    }

    /// Separates the place from a parser's message.
    fn placed(&self, what: &str) -> (String, usize) {
        let place = || {
            let (what, place) = what.rsplit_once(" at Line: ")?;
            let (line, column) = place.split_once(", Column: ")?;
            let location = Location::new(line.parse().ok()?, column.parse().ok()?);
            Some((what, self.at(location)))
        };
        let (what, at) = place().unwrap_or((what, self.chars));
        (lower(&what.replace("EOF", "the end")), at)
    }

    /// Returns a better message if there is a word of SQL that filters do not support at a place or before it.
    fn explained(&self, tokens: &[TokenWithSpan], at: usize, what: String) -> ExprError {
        let next = tokens.partition_point(|token| self.at(token.span.start) < at);
        let near = [
            tokens.get(next),
            next.checked_sub(1).map(|before| &tokens[before]),
        ];
        for token in near.into_iter().flatten() {
            if let Token::Word(word) = &token.token
                && word.quote_style.is_none()
                && let Some(what) = foreign(&word.value)
            {
                return self.wrong(self.at(token.span.start), what);
            }
        }
        self.wrong(at, what)
    }

    /// Returns the position at which an expression begins, without recursion: chains of operators nest to the left.
    fn start(&self, mut expr: &Sql) -> usize {
        loop {
            expr = match expr {
                Sql::BinaryOp { left: of, .. }
                | Sql::Nested(of)
                | Sql::UnaryOp { expr: of, .. }
                | Sql::IsNull(of)
                | Sql::IsNotNull(of)
                | Sql::IsTrue(of)
                | Sql::IsNotTrue(of)
                | Sql::IsFalse(of)
                | Sql::IsNotFalse(of)
                | Sql::IsUnknown(of)
                | Sql::IsNotUnknown(of)
                | Sql::InList { expr: of, .. }
                | Sql::Between { expr: of, .. }
                | Sql::Like { expr: of, .. } => of,
                leaf => return self.at(leaf.span().start),
            }
        }
    }

    /// Converts an expression of the parser, which knows other statements too.
    fn convert(&self, expr: &Sql, depth: usize) -> Result<Ast, ExprError> {
        if depth > MAX_DEPTH {
            return Err(self.wrong(
                0,
                "the filter nests too deep; write it with fewer parentheses",
            ));
        }
        let deeper = |of: &Sql| self.convert(of, depth + 1);
        let is = |of: &Sql, what, negated| {
            Ok(Ast::Is {
                of: Box::new(deeper(of)?),
                what,
                negated,
            })
        };
        match expr {
            Sql::Nested(of) => deeper(of),
            Sql::BinaryOp {
                op: op @ (BinaryOperator::And | BinaryOperator::Or),
                ..
            } => {
                let mut parts = Vec::new();
                let mut rest = expr;
                while let Sql::BinaryOp {
                    left,
                    op: same,
                    right,
                } = rest
                    && same == op
                {
                    parts.push(&**right);
                    rest = left;
                }
                parts.push(rest);
                let parts = parts.into_iter().rev().map(deeper);
                let parts = parts.collect::<Result<_, _>>()?;
                Ok(match op {
                    BinaryOperator::And => Ast::And(parts),
                    _ => Ast::Or(parts),
                })
            }
            Sql::UnaryOp {
                op: UnaryOperator::Not,
                expr: of,
            } => Ok(Ast::Not(Box::new(deeper(of)?))),
            Sql::IsNull(of) | Sql::IsUnknown(of) => is(of, None, false),
            Sql::IsNotNull(of) | Sql::IsNotUnknown(of) => is(of, None, true),
            Sql::IsTrue(of) => is(of, Some(true), false),
            Sql::IsNotTrue(of) => is(of, Some(true), true),
            Sql::IsFalse(of) => is(of, Some(false), false),
            Sql::IsNotFalse(of) => is(of, Some(false), true),
            Sql::Identifier(_) | Sql::CompoundIdentifier(_) => Ok(Ast::Column(self.name(expr)?)),
            Sql::Value(ValueWithSpan {
                value: Value::Boolean(value),
                ..
            }) => Ok(Ast::Constant(Some(*value))),
            Sql::Value(ValueWithSpan {
                value: Value::Null, ..
            }) => Ok(Ast::Constant(None)),
            Sql::Value(_) | Sql::UnaryOp { .. } => {
                let literal = self.literal(expr)?;
                Err(self.wrong(literal.at, "a value alone is not a condition; compare a column with it"))
            }
            Sql::BinaryOp { left, op, right } => self.comparison(left, op, right),
            Sql::Between {
                expr,
                negated,
                low,
                high,
            } => Ok(Ast::Between {
                column: self.name(expr)?,
                low: self.literal(low)?,
                high: self.literal(high)?,
                negated: *negated,
            }),
            Sql::InList {
                expr,
                list,
                negated,
            } => Ok(Ast::In {
                column: self.name(expr)?,
                list: list.iter().map(|item| self.literal(item)).collect::<Result<_, _>>()?,
                negated: *negated,
            }),
            Sql::Like {
                negated,
                any: false,
                expr,
                pattern,
                escape_char,
            } => Ok(Ast::Like {
                column: self.name(expr)?,
                pattern: self.literal(pattern)?,
                escape: match escape_char {
                    None => Some('\\'),
                    Some(escape) => self.escape(escape)?,
                },
                negated: *negated,
            }),
            _ => Err(self.wrong(self.start(expr), "filters do not have this; they have = != < <= > >=, AND, OR, NOT, IN, LIKE, BETWEEN, IS and HAS")),
        }
    }

    fn comparison(&self, left: &Sql, op: &BinaryOperator, right: &Sql) -> Result<Ast, ExprError> {
        let compare = match op {
            BinaryOperator::Eq => Compare::Equal,
            BinaryOperator::NotEq => Compare::NotEqual,
            BinaryOperator::Lt => Compare::Less,
            BinaryOperator::LtEq => Compare::LessOrEqual,
            BinaryOperator::Gt => Compare::Greater,
            BinaryOperator::GtEq => Compare::GreaterOrEqual,
            BinaryOperator::Custom(has) if has == "HAS" => {
                return Ok(Ast::Has {
                    column: self.name(left)?,
                    item: self.literal(right)?,
                });
            }
            other => {
                let at = self.start(left);
                return Err(self.wrong(at, format!("filters have no operator {other}")));
            }
        };
        match is_name(left) {
            true => Ok(Ast::Compare {
                column: self.name(left)?,
                compare,
                with: self.literal(right)?,
            }),
            false if is_name(right) => Ok(Ast::Compare {
                column: self.name(right)?,
                compare: compare.flipped(),
                with: self.literal(left)?,
            }),
            // This determines the side that is not a name.
            false => Err(self.name(left).expect_err("it is not a name")),
        }
    }

    /// Returns the name of a column.
    fn name(&self, expr: &Sql) -> Result<Name, ExprError> {
        let parts = match unwrapped(expr) {
            Sql::Identifier(name) => std::slice::from_ref(name),
            Sql::CompoundIdentifier(parts) => parts,
            other => {
                let at = self.start(other);
                return Err(self.wrong(at, "the name of a column is expected here"));
            }
        };
        let names: Vec<&str> = parts.iter().map(|part| part.value.as_str()).collect();
        Ok(Name {
            name: names.join("."),
            at: self.at(parts[0].span.start),
            quoted: parts[0].quote_style.is_some(),
        })
    }

    /// Returns a value.
    fn literal(&self, expr: &Sql) -> Result<Literal, ExprError> {
        let expr = unwrapped(expr);
        let at = self.start(expr);
        let number = |digits: &str, negative| {
            let number = Number::parse(digits, negative).map_err(|why| self.wrong(at, why))?;
            Ok(LiteralValue::Number(number))
        };
        let value = match expr {
            Sql::Value(ValueWithSpan { value, .. }) => match value {
                Value::Null => LiteralValue::Null,
                Value::Boolean(value) => LiteralValue::Bool(*value),
                Value::SingleQuotedString(value) => LiteralValue::String(value.clone()),
                Value::Number(digits, false) => number(digits, false)?,
                other => return Err(self.wrong(at, format!("filters have no values like {other}"))),
            },
            Sql::UnaryOp {
                op: UnaryOperator::Minus,
                expr: of,
            } => match &**of {
                Sql::Value(ValueWithSpan {
                    value: Value::Number(digits, false),
                    span,
                }) => {
                    let at = self.at(span.start);
                    let number = Number::parse(digits, true).map_err(|why| self.wrong(at, why))?;
                    LiteralValue::Number(number)
                }
                other => {
                    let at = self.start(other);
                    return Err(self.wrong(at, "a number is expected after a minus"));
                }
            },
            name @ (Sql::Identifier(_) | Sql::CompoundIdentifier(_)) => {
                let Name { name, quoted, .. } = self.name(name)?;
                let what = match foreign(&name).filter(|_| !quoted) {
                    Some(what) => what.to_owned(),
                    None => format!(
                        "a column is compared with a value, and {name} is a name; a string is in single quotes: '{name}'"
                    ),
                };
                return Err(self.wrong(at, what));
            }
            _ => return Err(self.wrong(at, "a value is expected here: a number, a string in single quotes, TRUE, FALSE or NULL")),
        };
        Ok(Literal { value, at })
    }

    /// Returns the character of an `ESCAPE`; `None` for an empty one.
    fn escape(&self, expr: &Sql) -> Result<Option<char>, ExprError> {
        let Literal { value, at } = self.literal(expr)?;
        if let LiteralValue::String(escape) = value {
            let mut chars = escape.chars();
            let first = chars.next();
            if chars.next().is_none() {
                return Ok(first);
            }
        }
        Err(self.wrong(at, "ESCAPE takes a string of one character, or of none"))
    }
}

/// Returns an expression without the parentheses around it.
fn unwrapped(mut expr: &Sql) -> &Sql {
    while let Sql::Nested(of) = expr {
        expr = of;
    }
    expr
}

fn is_name(expr: &Sql) -> bool {
    matches!(
        unwrapped(expr),
        Sql::Identifier(_) | Sql::CompoundIdentifier(_)
    )
}

/// Returns `true` if a minus after this token would be a subtraction.
fn ends_value(token: Option<&TokenWithSpan>) -> bool {
    token.is_some_and(|token| match &token.token {
        Token::Word(word) => word.keyword == Keyword::NoKeyword && !is_has(&token.token),
        token => matches!(
            token,
            Token::Number(..) | Token::SingleQuotedString(_) | Token::RParen
        ),
    })
}

/// Returns the message for a token that filters do not support.
fn refusal(token: &Token) -> String {
    match token {
        Token::Placeholder(_) | Token::Question | Token::Colon | Token::AtSign => {
            format!("filters have no placeholders such as {token}; write the value")
        }
        Token::Plus
        | Token::Minus
        | Token::Mul
        | Token::Div
        | Token::Mod
        | Token::StringConcat
        | Token::Ampersand
        | Token::Pipe
        | Token::Caret
        | Token::ShiftLeft
        | Token::ShiftRight => {
            format!("filters do not calculate: {token} is not part of them")
        }
        Token::DoubleColon => {
            "filters have no casts; values are compared as the types of their columns".to_owned()
        }
        Token::DoubleEq => "== is not SQL; write =".to_owned(),
        Token::LBracket | Token::RBracket | Token::LBrace | Token::RBrace => {
            format!("filters have no {token}; tags HAS 'x' asks for an item of a list")
        }
        Token::SemiColon => "a filter is one condition, without a semicolon".to_owned(),
        Token::Tilde | Token::TildeAsterisk | Token::ExclamationMarkTilde => {
            "filters have no regular expressions; LIKE has % and _".to_owned()
        }
        Token::Sharp => "filters have no comments".to_owned(),
        token => format!("{token} is not part of filters"),
    }
}

/// Returns a message of the parser that begins in lower case, like ours.
fn lower(what: &str) -> String {
    let mut chars = what.chars();
    let first = chars.next().map(|c| c.to_lowercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}
