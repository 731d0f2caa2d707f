//! Phrases that readers stumble over, and where they are said.

/// Phrases that do not belong in this project's prose, and what to write instead. Each word may list alternatives.
const PHRASES: &[(&str, &str)] = &[
    ("anew", "again"),
    ("mend|mends|mended|mending", "fix, repair"),
    (
        "beside",
        "next to, during, in addition to, compared with, with",
    ),
    (
        "so many rows|bytes|bits|texts|keys|strings|values|queries|hits|tokens|digits|nulls",
        "N rows, this many rows",
    ),
    (
        "byte|bytes|row|rows|line|lines|hit|hits|files|queries|texts|numbers|steps|pairs \
         a row|key|second|line|segment|query|file|batch|field|epoch|device|token|number|step",
        "per: bytes per row",
    ),
    (
        "a replica|scale a device|token",
        "per: one replica per device",
    ),
    ("number|numbers a vector", "per: numbers per vector"),
    ("whole vectors", "full-precision vectors"),
    ("nobody comes", "does nothing"),
    ("none stale|half", "no stale result, no partial result"),
    ("living rows|row", "live rows"),
    ("unless said", "default:"),
    ("is|are no error|errors", "is not an error"),
    ("is|are said", "is reported, is an error"),
    ("told apart", "distinguished"),
    ("by the clock", "wall-clock time"),
    ("come|came by", "chosen"),
    ("ready made", "precomputed, or nothing"),
    ("finding one's way", "a map of the code"),
    ("goes|go on", "continue"),
    ("put|puts aside", "move aside, move to orphans"),
    ("but for", "except"),
    ("as asked", "as requested"),
    ("the very", "the same, exactly the"),
    ("unasked", "automatically, without a request"),
    ("loudly", "with a message"),
    ("in place of", "instead of"),
];

/// Returns the line and the words of each forbidden phrase, with its replacement.
pub fn forbidden(text: &str) -> Vec<(usize, String, &'static str)> {
    let words = words(text);
    let mut found = Vec::new();
    for (phrase, replacement) in PHRASES {
        let phrase: Vec<Vec<&str>> = phrase
            .split_whitespace()
            .map(|word| word.split('|').collect())
            .collect();
        for window in words.windows(phrase.len()) {
            let is_phrase = (window.iter().zip(&phrase))
                .all(|((_, word), allowed)| allowed.contains(&word.as_str()));
            if is_phrase {
                let said: Vec<&str> = window.iter().map(|(_, word)| word.as_str()).collect();
                found.push((window[0].0, said.join(" "), *replacement));
            }
        }
    }
    found.sort();
    found
}

/// Splits prose into lower-case words with their line numbers. A phrase does not cross an empty word, which stands for
/// punctuation, a table cell and a blank line.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            found.push((number + 1, String::new()));
        }
        let mut word = String::new();
        for c in line.chars().chain([' ']) {
            if c.is_alphanumeric() || c == '\'' || c == '_' {
                word.extend(c.to_lowercase());
                continue;
            }
            if !word.is_empty() {
                found.push((number + 1, std::mem::take(&mut word)));
            }
            if !c.is_whitespace() && c != '-' {
                found.push((number + 1, String::new()));
            }
        }
    }
    found
}

#[test]
fn a_phrase_is_found_across_lines_and_not_across_punctuation() {
    let found = |text| -> Vec<(usize, String)> {
        let found = forbidden(text).into_iter();
        found.map(|(line, said, _)| (line, said)).collect()
    };
    assert_eq!(
        found("first\n8 bytes\na row, Anew"),
        [(2, "bytes a row".to_owned()), (3, "anew".to_owned())]
    );
    assert_eq!(found("| 8 bytes | a row |\nbytes.\nA row"), []);
    assert_eq!(found("8 bytes\n\na row; 8 bytes per row"), []);
}
