//! Splits a text into tokens. Documents and queries, segments and the tail use the same function.
//!
//! A text is normalised to NFC (with folding: NFKC without accents). A word is a run of letters, digits and their combining
//! marks. It is lower-cased, and then stemmed. All other characters separate words: spaces, punctuation, control characters,
//! emoji. Invisible characters, such as soft hyphens and joiners, are skipped and do not separate words.
//!
//! Han, kana, Thai and some other scripts have no spaces between words. A run of their characters becomes all pairs of
//! neighbouring characters. A single character alone becomes one token, and is found only where it stands alone.

use super::settings::Settings;
use std::collections::HashMap;
use std::iter::Filter;
use std::str::Chars;
use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{Decompositions, Recompositions, UnicodeNormalization as _, is_nfc};

/// Raise this whenever the same text gives different tokens: after a change here, or with another version of `frostem`
/// or `unicode-normalization`. (A newer Rust knows letters that an older one does not. Words with such letters are
/// found once their rows are indexed again.)
pub(super) const VERSION: u32 = 1;

/// The maximum length of a word in bytes of UTF-8. Longer words are cut at the last character that fits, and then
/// stemmed.
pub(crate) const MAX_WORD: usize = 255;

/// Splits texts into tokens according to settings.
#[derive(Clone)]
pub(crate) struct Tokenizer {
    settings: Settings,
    stemmer: Option<frostem::Stemmer>,
}

impl Tokenizer {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            stemmer: settings.language.stemmer(),
        }
    }

    /// Returns the tokens of a text, in order.
    pub(crate) fn tokens<'t>(&'t self, text: &'t str) -> Tokens<'t> {
        self.with(text, None)
    }

    /// Like [`tokens`](Self::tokens), but remembers stems.
    pub(super) fn tokens_of_many<'t>(&'t self, text: &'t str, stems: &'t mut Stems) -> Tokens<'t> {
        self.with(text, Some(stems))
    }

    fn with<'t>(&'t self, text: &'t str, stems: Option<&'t mut Stems>) -> Tokens<'t> {
        let chars = if text.is_ascii() {
            Normal::AsIs(text.chars())
        } else if self.settings.folding {
            Normal::Folded(text.nfkd().filter(is_no_accent as fn(&char) -> bool).nfc())
        } else if is_nfc(text) {
            Normal::AsIs(text.chars())
        } else {
            Normal::Composed(text.nfc())
        };
        Tokens {
            tokenizer: self,
            stems,
            chars,
            ended: false,
            ahead: None,
            run: None,
            word: String::new(),
            cut: false,
        }
    }
}

/// The characters of a text, normalised.
enum Normal<'t> {
    AsIs(Chars<'t>),
    Composed(Recompositions<Chars<'t>>),
    Folded(Recompositions<WithoutAccents<'t>>),
}

type WithoutAccents<'t> = Filter<Decompositions<Chars<'t>>, fn(&char) -> bool>;

fn is_no_accent(c: &char) -> bool {
    !matches!(c, '\u{300}'..='\u{36f}')
}

/// The role of a character in splitting words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Begins or continues a word.
    Letter,
    /// Begins or continues a word, in a script without spaces.
    Dense,
    /// Continues a word.
    Mark,
    /// Is skipped.
    Invisible,
    /// Ends a word.
    Break,
}

impl Class {
    fn of(c: char) -> Self {
        if c.is_ascii() {
            return match c.is_ascii_alphanumeric() {
                true => Self::Letter,
                false => Self::Break,
            };
        }
        if is_invisible(c) {
            return Self::Invisible;
        }
        match (c.is_alphanumeric(), is_combining_mark(c), is_dense(c)) {
            (true, _, true) | (_, true, true) => Self::Dense,
            (true, _, false) => Self::Letter,
            (false, true, false) => Self::Mark,
            (false, false, _) => Self::Break,
        }
    }
}

/// Returns `true` for soft hyphens, joiners, direction marks and variation selectors.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{2069}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{e0100}'..='\u{e01ef}')
}

/// Returns `true` in the blocks of scripts without spaces between words.
fn is_dense(c: char) -> bool {
    matches!(c,
        '\u{e00}'..='\u{eff}'             // Thai, Lao
        | '\u{1000}'..='\u{109f}'         // Myanmar
        | '\u{1780}'..='\u{17ff}'         // Khmer
        | '\u{1950}'..='\u{19df}'         // Tai Le, New Tai Lue
        | '\u{1a20}'..='\u{1aaf}'         // Tai Tham
        | '\u{2e80}'..='\u{2fdf}'         // radicals
        | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{3029}' | '\u{3031}'..='\u{3035}' | '\u{3038}'..='\u{303b}'
        | '\u{3041}'..='\u{312f}'         // kana, Bopomofo
        | '\u{31a0}'..='\u{31bf}' | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' // Han
        | '\u{a9e0}'..='\u{a9ff}' | '\u{aa60}'..='\u{aadf}' // Myanmar, Tai Viet
        | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}'
        | '\u{1aff0}'..='\u{1b16f}'       // kana
        | '\u{20000}'..='\u{3ffff}')
}

/// The tokens of a text, lent one at a time. It allocates one word, not the whole text.
pub(crate) struct Tokens<'t> {
    tokenizer: &'t Tokenizer,
    stems: Option<&'t mut Stems>,
    chars: Normal<'t>,
    ended: bool,
    /// A character that was read too early, and comes next.
    ahead: Option<char>,
    /// The last character of the current run of a script without spaces, and whether a pair had it.
    run: Option<(char, bool)>,
    /// The current token.
    word: String,
    /// The word has reached its limit, and the rest of it is dropped.
    cut: bool,
}

impl Tokens<'_> {
    /// Returns the next token.
    pub(crate) fn next(&mut self) -> Option<&str> {
        self.word.clear();
        self.cut = false;
        loop {
            let next = self.take();
            match next.map_or(Class::Break, Class::of) {
                Class::Invisible => {}
                Class::Mark => {
                    // A mark alone, on an emoji for example, is not a word.
                    if let Some(mark) = next.filter(|_| !self.word.is_empty()) {
                        self.push(mark);
                    }
                }
                Class::Dense if self.tokenizer.settings.bigrams => {
                    if !self.word.is_empty() {
                        self.ahead = next;
                        return Some(self.stemmed());
                    }
                    let next = next.expect("the end is a break");
                    if let Some((last, _)) = self.run.take() {
                        self.run = Some((next, true));
                        self.word.extend([last, next]);
                        return Some(&self.word);
                    }
                    self.run = Some((next, false));
                }
                Class::Letter | Class::Dense => {
                    if self.alone() {
                        self.ahead = next;
                        return Some(&self.word);
                    }
                    self.push(next.expect("the end is a break"));
                }
                Class::Break => {
                    if self.alone() {
                        return Some(&self.word);
                    }
                    if !self.word.is_empty() {
                        return Some(self.stemmed());
                    }
                    next?;
                }
            }
        }
    }

    fn take(&mut self) -> Option<char> {
        if self.ended {
            return None;
        }
        let next = self.ahead.take().or_else(|| match &mut self.chars {
            Normal::AsIs(chars) => chars.next(),
            Normal::Composed(chars) => chars.next(),
            Normal::Folded(chars) => chars.next(),
        });
        self.ended = next.is_none();
        next
    }

    /// Ends the run of a script without spaces. Returns `true` if the run had one character, which is now the token.
    fn alone(&mut self) -> bool {
        let Some((last, false)) = self.run.take() else {
            return false;
        };
        self.word.push(last);
        true
    }

    fn push(&mut self, c: char) {
        if c.is_ascii() {
            self.push_lower(c.to_ascii_lowercase());
        } else {
            c.to_lowercase().for_each(|lower| self.push_lower(lower));
        }
    }

    fn push_lower(&mut self, c: char) {
        // The sigma at the end of a word is the same letter.
        let c = if c == 'ς' { 'σ' } else { c };
        self.cut |= self.word.len() + c.len_utf8() > MAX_WORD;
        if !self.cut {
            self.word.push(c);
        }
    }

    fn stemmed(&mut self) -> &str {
        let Some(stemmer) = self.tokenizer.stemmer else {
            return &self.word;
        };
        let Some(stems) = &mut self.stems else {
            if let Some(stem) = stem(stemmer, &self.word) {
                self.word = stem;
            }
            return &self.word;
        };
        if !stems.0.contains_key(self.word.as_str()) {
            if stems.0.len() == Stems::MOST {
                stems.0.clear();
            }
            let stem = stem(stemmer, &self.word).map(String::into_boxed_str);
            stems.0.insert(self.word.as_str().into(), stem);
        }
        if let Some(Some(stem)) = stems.0.get(self.word.as_str()) {
            self.word.clear();
            self.word.push_str(stem);
        }
        &self.word
    }
}

/// The stems of words seen before, for reading many texts: stemming takes ten times as long as a look-up.
#[derive(Debug, Clone, Default)]
pub(super) struct Stems(HashMap<Box<str>, Option<Box<str>>>);

impl Stems {
    /// At this many words it starts over.
    const MOST: usize = 1 << 16;
}

/// Returns the stem of a word, if it is another word.
fn stem(stemmer: frostem::Stemmer, word: &str) -> Option<String> {
    let stem = stemmer.stem(word);
    (!stem.is_empty() && stem != word).then(|| stem.into_owned())
}
