//! What is read, what is refused and where, and which expressions are equal.

use super::*;
use crate::columns::schema::Schema;
use crate::columns::value::ColumnType;

fn schema() -> Schema {
    let mut schema = Schema::default();
    for (name, kind) in [
        ("year", ColumnType::Int),
        ("score", ColumnType::Float),
        ("lang", ColumnType::String),
        ("tags", ColumnType::Strings),
        ("at", ColumnType::Timestamp),
        ("deleted", ColumnType::Bool),
        ("a.b", ColumnType::Int),
        ("type", ColumnType::String),
        ("date", ColumnType::Timestamp),
        ("Großes Feld", ColumnType::Int),
    ] {
        schema.introduce(name, kind).unwrap();
    }
    schema
}

fn bind(text: &str) -> Result<BoundExpr, ExprError> {
    Expr::parse(text)?.bind(&schema())
}

#[test]
fn the_whole_language_is_parsed() {
    for text in [
        "year >= 2020 AND lang IN ('en','de') AND tags HAS 'rust' AND lang LIKE 'intro%' AND deleted IS NOT TRUE",
        "year = -5 or year<>+5 or 2020 <= year"
            .replace("+5", "5")
            .as_str(),
        "score BETWEEN -1.5 AND 2e3 AND score NOT BETWEEN 0 AND .5",
        "deleted",
        "NOT deleted AND (year) = (2020)",
        "(year > 1 OR lang = 'x') IS UNKNOWN",
        "deleted = TRUE OR deleted != false OR deleted IN (TRUE, NULL)",
        "at >= '2024-05-01' AND date < '2024-05-01T12:00:00+02:00'",
        "a.b = 1 AND \"a.b\" = 1 AND \"Großes Feld\" = 1",
        "type = 'it''s' and TYPE IS NULL"
            .replace("TYPE", "type")
            .as_str(),
        "lang NOT LIKE '50!%' ESCAPE '!' AND lang LIKE 'x' ESCAPE ''",
        "key LIKE 'doc-%' AND key IN ('a', 'b') AND key != 'c'",
        "tags IS NOT NULL AND NOT tags HAS 'x' AND tags has 'y'",
        "year NOT IN (1, 2.0, NULL) OR TRUE OR NULL",
        "year\n  =\t1",
        "year = -9223372036854775808",
        "lang = 'ein ''Wort'' -- kein Kommentar /* auch nicht */'",
    ] {
        bind(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    }
}

#[test]
fn errors_name_the_cause_and_show_the_place() {
    let mut others: Vec<String> = Vec::new();
    for (text, at, why) in [
        ("", 0, "empty"),
        ("  ", 0, "empty"),
        (
            "yaer >= 2020",
            0,
            "there is no column \"yaer\"; the columns are year (int), score (float)",
        ),
        ("year = 1 AND Year = 2", 13, "did you mean \"year\""),
        ("lang = \"en\"", 7, "single quotes: 'en'"),
        ("\"en\" = lang", 7, "single quotes: 'lang'"),
        ("\"en\" = 5", 0, "double quotes are for names"),
        (
            "year = 'x'",
            7,
            "column \"year\" is an int, and this is a string; compare it with a number",
        ),
        (
            "lang = 5",
            7,
            "column \"lang\" is a string, and this is a number",
        ),
        ("at > 5", 5, "a timestamp, and this is a number"),
        ("at > 'yesterday'", 5, "\"yesterday\" is not a timestamp"),
        ("at > '2024-05-01T12:00:00'", 5, "with Z or an offset"),
        ("year = TRUE", 7, "this is TRUE"),
        ("deleted > FALSE", 0, "no order"),
        ("deleted = 'true'", 10, "TRUE or FALSE"),
        ("year", 0, "neither true nor false"),
        ("year IS TRUE", 0, "neither true nor false"),
        ("tags = 'x'", 0, "ask tags HAS 'x'"),
        ("tags IN ('x')", 0, "HAS"),
        ("lang HAS 'x'", 0, "compare it with ="),
        ("tags HAS 5", 9, "this is a number"),
        ("year LIKE '2%'", 0, "LIKE matches strings"),
        ("lang LIKE 5", 10, "this is a number"),
        ("lang LIKE 'x\\'", 10, "escapes"),
        ("lang LIKE 'x' ESCAPE 'ab'", 21, "one character"),
        ("text = 'x'", 0, "can't ask the text"),
        ("vector IS NULL", 0, "can't ask the vector"),
        (
            "year = 9223372036854775808",
            7,
            "beyond the integers of 64 bits",
        ),
        ("score > -1e400", 9, "beyond the range"),
        ("score = NaN", 8, "no such number"),
        ("year = 1 +", 9, "do not calculate: +"),
        ("year - 1 = 5", 5, "do not calculate: -"),
        ("year * 2 > 5", 5, "do not calculate: *"),
        ("year = - - 5", 11, "a number is expected after a minus"),
        ("year = --5", 7, "no comments"),
        ("year /* x */ = 5", 5, "no comments"),
        ("year = 5 # x", 9, "no comments"),
        ("year = ?", 7, "no placeholders"),
        ("year = $1", 7, "no placeholders"),
        ("year = :year", 7, "no placeholders"),
        ("lower(lang) = 'x'", 0, "no functions"),
        ("year = abs(5)", 7, "no functions"),
        ("CAST(year AS text) = 'x'", 0, "no casts"),
        ("year::text = 'x'", 4, "no casts"),
        ("year IN (SELECT 1)", 9, "no sub-queries"),
        ("EXISTS (SELECT 1)", 0, "no sub-queries"),
        ("year = ANY(1)", 7, "no sub-queries"),
        ("lang ILIKE 'x'", 5, "case-sensitive"),
        ("CASE WHEN year = 1 THEN TRUE END", 5, "do not have this"),
        ("at > DATE '2024-05-01'", 5, "only a string"),
        ("at > TIMESTAMP '2024-05-01'", 5, "only a string"),
        ("year IS DISTINCT FROM 5", 8, "do not have this"),
        ("lang ~ 'x'", 5, "regular expressions"),
        ("tags[1] = 'x'", 4, "tags HAS"),
        ("year == 5", 5, "write ="),
        ("year = 5;", 8, "semicolon"),
        ("year = 5 lang = 'x'", 9, "AND or OR joins"),
        ("year = 5)", 8, "does not belong here"),
        ("(year = 5", 9, "expected: )"),
        ("year =", 6, "the end"),
        ("year IN ()", 9, "expected"),
        ("year = lang", 7, "lang is a name"),
        ("5 = 5", 0, "name of a column"),
        ("5", 0, "not a condition"),
        ("'x'", 0, "not a condition"),
        ("year = 1 = 2", 0, "name of a column"),
        ("lang = 'x", 7, "unterminated string"),
        ("lang = 'ä' AND\nlang = 5", 22, "this is a number"),
        ("lang = N'x'", 7, "not part of filters"),
        ("lang = X'00'", 7, "not part of filters"),
        ("lang || 'x' = 'y'", 5, "do not calculate"),
        ("(year, score) = 5", 1, "name of a column"),
        ("NOT", 0, "no column \"NOT\""),
        ("year = 1 AND", 12, "the end"),
        ("(lang = 'x') HAS 'y'", 13, "has follows the name"),
        ("year BETWEEN 1", 14, "the end"),
        ("* = 5", 0, "not"),
        ("year = 0x1F", 7, "not part of filters"),
        ("year = 1_000", 8, ""),
        ("lang = E'x'", 8, "does not belong here"),
        ("\0", 0, ""),
        ("lang = 'x' 'y'", 11, ""),
    ] {
        let Err(error) = bind(text) else {
            others.push(format!("{text} is not refused"));
            continue;
        };
        if !error.what.contains(why) || error.at != at {
            others.push(format!("{text} is to say {why:?} at {at}: {error}"));
            continue;
        }
        let shown = error.to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 3, "{shown}");
        if let Some(wrong) = text.chars().nth(at) {
            let mark = lines[2].chars().count() - 1;
            let shown = lines[1].chars().nth(mark).unwrap();
            assert!(shown == wrong || wrong.is_control(), "{error}");
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
}

#[test]
fn an_error_shows_the_place_in_a_long_expression() {
    let text = format!(
        "{}yaer = 5{}",
        "year = 1 OR ".repeat(100),
        " OR year = 1".repeat(100)
    );
    let error = bind(&text).unwrap_err();
    assert_eq!(error.at, 1200);
    let shown = error.to_string();
    assert!(
        shown.contains(", at character 1201 of the filter:\n  ...year = 1 OR "),
        "{shown}"
    );
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[1].find("yaer"), lines[2].find('^'));
    assert_eq!(lines[1].len(), 2 + 3 + 36 + 36 + 3);
    assert!(lines[1].ends_with("..."));
}

#[test]
fn expressions_with_the_same_meaning_are_equal() {
    for same in [
        &[
            "year BETWEEN 5 AND 7",
            "year >= 5 AND year <= 7",
            "7 >= year AND NOT year < 5",
            "NOT (year < 5 OR year > 7)",
            "year IN (5, 7, 6, 5)",
            "year > 4.5 AND year < 7.000001",
        ][..],
        &[
            "lang = 'x' AND year = 1",
            "year = 1.0 AND lang IN ('x')",
            "(year = 1) AND (lang LIKE 'x' AND year = 1)",
        ],
        &[
            "deleted",
            "deleted = TRUE",
            "deleted != FALSE",
            "NOT NOT deleted",
            "NOT deleted = FALSE",
        ],
        &[
            "NOT (lang = 'x' AND tags HAS 'y')",
            "NOT tags HAS 'y' OR lang != 'x'",
        ],
        &[
            "lang NOT IN ('b', 'a')",
            "NOT lang IN ('a', 'b', 'a')",
            "lang != 'a' AND lang != 'b'",
        ][..2],
        &["NOT lang IS NULL", "lang IS NOT NULL"],
        &["score = 0", "score = -0.0"],
        &[
            "TRUE",
            "NOT FALSE",
            "TRUE OR year = 1",
            "key IS NOT NULL",
            "NULL IS NULL",
        ],
        &["NULL", "year = NULL", "NOT year = NULL", "tags HAS NULL"],
        &["(year = 5) IS TRUE", "NOT ((year = 5) IS NOT TRUE)"],
    ] {
        let bound: Vec<_> = same.iter().map(|text| bind(text).unwrap()).collect();
        for (text, other) in same.iter().zip(&bound) {
            assert_eq!(*other, bound[0], "{text} is {}", same[0]);
        }
    }
    let different = [
        "year = 5",
        "year != 5",
        "score = 5",
        "year = 5 OR NULL",
        "(year = 5) IS TRUE",
        "key = '5'",
        "lang = '5'",
    ];
    for (at, a) in different.iter().enumerate() {
        for b in &different[at + 1..] {
            assert_ne!(bind(a).unwrap(), bind(b).unwrap(), "{a}, {b}");
        }
    }
}

#[test]
fn a_bound_expression_takes_memory_for_its_meaning() {
    let bound = bind("year = 1 OR (score = 2 AND tags IS NULL) IS NULL OR key = 'x'").unwrap();
    let long = bind(&format!("lang IN ('{}')", "x".repeat(5000))).unwrap();
    assert!(long.bytes() > 5000 && bound.bytes() < 1000);
}

/// Runs on a stack of this many KiB.
fn on_a_stack_of<T: Send + 'static>(kib: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(kib << 10);
    thread.spawn(work).unwrap().join().unwrap()
}

#[test]
fn long_chains_are_flat() {
    on_a_stack_of(128, || {
        for (one, joined) in [
            ("year=1", " OR "),
            ("year=1", " AND "),
            ("deleted", " OR "),
            ("NOT deleted", " AND "),
            ("lang LIKE '%a%'", " OR "),
            ("tags HAS 'x'", " AND "),
        ] {
            let count = MAX_EXPR / (one.len() + joined.len());
            let text = vec![one; count].join(joined);
            let bound = bind(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(bound, bind(one).unwrap());
        }
        let many: Vec<String> = (0..1200).map(|at| at.to_string()).collect();
        let list = bind(&format!("year IN ({})", many.join(","))).unwrap();
        assert_eq!(list, bind("year >= 0 AND year < 1200").unwrap());
        let chain: Vec<String> = (0..700).map(|at| format!("year={}", at * 2)).collect();
        let bound = bind(&chain.join(" OR ")).unwrap();
        assert!(bound.bytes() < 30_000, "{} bytes", bound.bytes());
    });
}

#[test]
fn long_incomplete_chains_are_refused() {
    on_a_stack_of(1024, || {
        for joined in [" OR ", " AND ", " = ", " IS "] {
            let text = vec!["year"; MAX_EXPR / (joined.len() + 4) - 2].join(joined);
            for broken in [
                format!("{text} OR ("),
                format!("{text} year"),
                format!("{text} OR 'x"),
            ] {
                assert!(broken.len() <= MAX_EXPR && bind(&broken).is_err());
            }
        }
    });
}

#[test]
fn deep_or_long_filters_are_refused() {
    on_a_stack_of(1024, || {
        let deep = |count: usize| format!("{}year = 1{}", "(".repeat(count), ")".repeat(count));
        bind(&deep(30)).unwrap();
        for text in [
            deep(100),
            deep(4_990),
            "(".repeat(MAX_EXPR),
            "NOT ".repeat(2_499) + "a",
            "NOT(".repeat(2_499),
            "year = ".to_owned() + &"- ".repeat(4_900) + "1",
            "year = ".to_owned() + &"(".repeat(9_000),
            "year = 1".to_owned() + &" IS TRUE".repeat(1_240),
            "year = 1".to_owned() + &" = 1".repeat(2_400),
            "a".to_owned() + &"=1".repeat(4_990),
            "a".to_owned() + &"=1".repeat(4_990) + "(",
            "year".to_owned() + &" IS NULL".repeat(1_240),
            "year IN (".repeat(1_100),
            "lang LIKE ".repeat(990),
            "year BETWEEN ".repeat(700),
            "tags HAS ".repeat(1_100),
            "tags".to_owned() + &" HAS 'x'".repeat(1_200),
            "a".to_owned() + &".a".repeat(4_990),
            "'".repeat(MAX_EXPR - 1),
            "\"".repeat(MAX_EXPR),
            "year = 1e".to_owned() + &"9".repeat(9_900),
            ",".repeat(MAX_EXPR),
            "x".repeat(MAX_EXPR),
            "year = ".to_owned() + &"9".repeat(9_900),
        ] {
            assert!(text.chars().count() <= MAX_EXPR);
            let started = std::time::Instant::now();
            let error = bind(&text).expect_err(&text[..40]);
            assert!(error.to_string().len() < 1 << 16);
            let took = started.elapsed();
            assert!(took.as_secs() < 5, "{took:?}: {}", &text[..40]);
        }
        let error = bind(&"ä".repeat(MAX_EXPR + 1)).unwrap_err();
        assert!(error.what.contains("10001 characters"), "{error}");
        let nested = |count: usize| {
            let (open, close) = ("(".repeat(count), " AND year = 1) IS NULL".repeat(count));
            format!("{open}deleted{close}")
        };
        bind(&nested(20)).unwrap();
    });
}
