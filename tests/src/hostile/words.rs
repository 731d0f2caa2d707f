//! Words of any texts and any query.

use super::Scratch;
use mopqdb::{Language, WordsSettings};

/// Texts, one per line, of which the last is the query, after a byte with the settings: a word index in a file and one in
/// memory give the same bits.
pub fn words(bytes: &[u8]) {
    let Some((&choice, text)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let language = Language::ALL[usize::from(choice >> 2) % Language::ALL.len()];
    let settings = WordsSettings::default()
        .language(language)
        .folding(choice & 1 == 1)
        .bigrams(choice & 2 == 2);
    let mut texts: Vec<&str> = text.split('\n').collect();
    let query = texts.pop().expect("split gives one piece or more");
    let dir = Scratch::dir();
    mopqdb::testing::words_agree(&dir.0, settings, &texts, query).expect("the file is sound");
}
