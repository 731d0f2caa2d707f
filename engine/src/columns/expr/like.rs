//! Patterns of `LIKE`: `%` matches any characters, `_` one.

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Pattern(Vec<Piece>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Piece {
    Byte(u8),
    /// One character.
    One,
    /// Any characters. Two of these are never adjacent.
    Many,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// If it ends with the escape character.
    pub(crate) fn new(pattern: &str, escape: Option<char>) -> Result<Self, String> {
        let mut pieces = Vec::with_capacity(pattern.len());
        let mut chars = pattern.chars();
        let literal = |pieces: &mut Vec<Piece>, c: char| {
            let mut bytes = [0; 4];
            pieces.extend(c.encode_utf8(&mut bytes).bytes().map(Piece::Byte));
        };
        while let Some(c) = chars.next() {
            match c {
                c if Some(c) == escape => match chars.next() {
                    Some(escaped) => literal(&mut pieces, escaped),
                    None => {
                        return Err(format!(
                            "the pattern ends with {c:?}, which must be followed by the character that it escapes"
                        ));
                    }
                },
                '_' => pieces.push(Piece::One),
                '%' => {
                    if pieces.last() != Some(&Piece::Many) {
                        pieces.push(Piece::Many);
                    }
                }
                c => literal(&mut pieces, c),
            }
        }
        Ok(Self(pieces))
    }

    /// Returns its size in memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * size_of::<Piece>()
    }

    /// Returns the prefix of every match.
    pub(crate) fn prefix(&self) -> Vec<u8> {
        let bytes = self.0.iter().map_while(|piece| match piece {
            Piece::Byte(byte) => Some(*byte),
            Piece::One | Piece::Many => None,
        });
        bytes.collect()
    }

    /// Returns the only string that matches, if there is only one.
    pub(crate) fn exact(&self) -> Option<String> {
        let prefix = self.prefix();
        (prefix.len() == self.0.len())
            .then(|| String::from_utf8(prefix).expect("bytes of characters"))
    }

    /// Returns `true` if everything that begins with the prefix matches.
    pub(crate) fn is_prefix(&self) -> bool {
        self.0.last() == Some(&Piece::Many) && self.prefix().len() + 1 == self.0.len()
    }

    /// Returns `true` if the string matches. Case counts.
    pub(crate) fn matches(&self, string: &[u8]) -> bool {
        let (mut piece, mut at) = (0, 0);
        // The last `%` passed, and the end of what it matches.
        let mut many: Option<(usize, usize)> = None;
        loop {
            let next = match self.0.get(piece) {
                Some(Piece::Many) => {
                    many = Some((piece + 1, at));
                    piece += 1;
                    continue;
                }
                Some(Piece::Byte(byte)) if string.get(at) == Some(byte) => Some(at + 1),
                Some(Piece::One) if at < string.len() => Some(char_end(string, at)),
                None if at == string.len() => return true,
                _ => None,
            };
            match (next, many) {
                (Some(next), _) => (piece, at) = (piece + 1, next),
                // It matches one more character.
                (None, Some((after, end))) if end < string.len() => {
                    let end = char_end(string, end);
                    many = Some((after, end));
                    (piece, at) = (after, end);
                }
                _ => return false,
            }
        }
    }
}

/// Returns the end of the character at a position.
fn char_end(string: &[u8], at: usize) -> usize {
    let rest = string[at + 1..].iter();
    at + 1 + rest.take_while(|&&byte| byte & 0xc0 == 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition of a match.
    fn matches(pattern: &[char], string: &[char]) -> bool {
        match pattern.split_first() {
            None => string.is_empty(),
            Some(('%', rest)) => (0..=string.len()).any(|at| matches(rest, &string[at..])),
            Some(('_', rest)) => !string.is_empty() && matches(rest, &string[1..]),
            Some((c, rest)) => string.first() == Some(c) && matches(rest, &string[1..]),
        }
    }

    #[test]
    fn patterns_match_by_definition() {
        let strings = |letters: &[char], most: usize| {
            let mut all = vec![String::new()];
            let mut from = 0;
            for _ in 0..most {
                let to = all.len();
                for at in from..to {
                    for letter in letters {
                        let longer = format!("{}{letter}", all[at]);
                        all.push(longer);
                    }
                }
                from = to;
            }
            all
        };
        let mut matched = 0;
        for pattern in strings(&['a', 'ß', '%', '_'], 4) {
            let compiled = Pattern::new(&pattern, Some('\\')).unwrap();
            let chars: Vec<char> = pattern.chars().collect();
            for string in strings(&['a', 'ß', 'b'], 4) {
                let given: Vec<char> = string.chars().collect();
                let expected = matches(&chars, &given);
                assert_eq!(
                    compiled.matches(string.as_bytes()),
                    expected,
                    "{pattern} {string}"
                );
                matched += usize::from(expected);
                if compiled.is_prefix() {
                    assert_eq!(expected, string.as_bytes().starts_with(&compiled.prefix()));
                }
                if let Some(exact) = compiled.exact() {
                    assert_eq!(expected, string == exact);
                }
            }
        }
        assert!(matched > 1000);
    }

    #[test]
    fn escaped_characters_stand_for_themselves() {
        let matches = |pattern: &str, escape, string: &str| {
            Pattern::new(pattern, escape)
                .unwrap()
                .matches(string.as_bytes())
        };
        assert!(matches(r"50\%", Some('\\'), "50%"));
        assert!(!matches(r"50\%", Some('\\'), "500"));
        assert!(matches(r"50\%", None, r"50\abc"));
        assert!(matches("50!%!!", Some('!'), "50%!"));
        assert!(matches(r"a\b\\", Some('\\'), r"ab\"));
        assert!(Pattern::new(r"a\", Some('\\')).is_err());
        assert!(Pattern::new(r"a\", None).is_ok());
    }
}
