//! Escaping untrusted text for terminals: keys, texts and paths may contain control sequences and bidirectional
//! controls.

use std::borrow::Cow;

/// The replacement for a character that is not shown.
const REPLACEMENT: char = '\u{fffd}';

/// Returns the text as a terminal may show it, on one line: white space becomes a space, and every other control
/// character and bidirectional control becomes `�`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return text.into();
    }
    text.chars().map(shown).collect::<String>().into()
}

/// Returns `true` if a terminal would act on a character instead of showing it.
pub fn acts(c: char) -> bool {
    c.is_control() || is_line_end(c) || turns(c)
}

fn shown(c: char) -> char {
    match c {
        c if !acts(c) => c,
        '\t'..='\r' | '\u{85}' => ' ',
        c if is_line_end(c) => ' ',
        _ => REPLACEMENT,
    }
}

/// Returns `true` for line ends that are not control characters.
fn is_line_end(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}')
}

/// Returns `true` for controls of the bidirectional algorithm (UAX #9), which reorder adjacent characters.
fn turns(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn characters_that_a_terminal_acts_on_are_replaced_and_others_unchanged() {
        for plain in ["", "plain", "ключ 漢字 😀 e\u{301}", "שלום", "a\u{200d}b"] {
            assert_eq!(visible(plain), plain);
        }
        assert_eq!(
            visible("a\tb\nc\r\nd\u{b}e\u{85}f\u{2028}g"),
            "a b c  d e f g"
        );
        assert_eq!(visible("\u{1b}[31mred\u{7}"), "�[31mred�");
        assert_eq!(visible("\0\u{7f}\u{9b}2J"), "���2J");
        let turning = "\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}\u{200e}\u{200f}\u{61c}";
        assert_eq!(visible(turning), "�".repeat(12));
    }
}
