//! Turning texts into tokens.

use super::*;
use crate::format::checksum;
use crate::words::terms::MAX_TERMS;
use crate::words::tokens::MAX_WORD;

fn tokens(settings: Settings, text: &str) -> Vec<String> {
    let tokenizer = Tokenizer::new(settings);
    let mut tokens = tokenizer.tokens(text);
    let mut found = Vec::new();
    while let Some(token) = tokens.next() {
        found.push(token.to_owned());
    }
    assert_eq!(tokens.next(), None, "it stays at its end");
    found
}

fn plain() -> Settings {
    Settings {
        language: Language::None,
        ..Settings::default()
    }
}

#[test]
fn words_are_runs_of_letters_and_digits_in_lower_case() {
    for (text, expected) in [
        ("", &[][..]),
        (" \t\r\n.,;!?—…", &[]),
        (
            "One, two;THREE_four-5x",
            &["one", "two", "three", "four", "5x"],
        ),
        ("a\0b\u{1}c\u{7f}d\u{85}e", &["a", "b", "c", "d", "e"]),
        (
            "hy\u{ad}phen joi\u{200c}ner wo\u{200b}rds",
            &["hyphen", "joiner", "wo", "rds"],
        ),
        ("❤\u{fe0f} 👩\u{200d}💻 ok", &["ok"]),
        (
            "ÀÉÎ Straße ΣΊΣΥΦΟΣ σίσυφος",
            &["àéî", "straße", "σίσυφοσ", "σίσυφοσ"],
        ),
        ("क्षत्रिय नमस्ते", &["क्षत्रिय", "नमस्ते"]),
        ("한국어 단어", &["한국어", "단어"]),
    ] {
        assert_eq!(tokens(plain(), text), expected, "{text:?}");
    }
}

#[test]
fn composed_and_decomposed_letters_are_the_same_words() {
    let composed = "café Åse ệ 각";
    let decomposed = "cafe\u{301} A\u{30a}se e\u{323}\u{302} \u{1100}\u{1161}\u{11a8}";
    assert_eq!(tokens(plain(), decomposed), tokens(plain(), composed));
    assert_eq!(tokens(plain(), decomposed), ["café", "åse", "ệ", "각"]);
}

#[test]
fn folding_removes_only_accents() {
    let folding = Settings {
        folding: true,
        ..plain()
    };
    assert_eq!(
        tokens(folding, "Café naïve ﬁn Ｗide ệ e\u{301}"),
        ["cafe", "naive", "fin", "wide", "e", "e"]
    );
    // Marks that act as letters stay.
    assert_eq!(tokens(folding, "हिन्दी が"), tokens(plain(), "हिन्दी が"));
}

#[test]
fn scripts_without_spaces_become_pairs_of_characters() {
    for (text, expected) in [
        ("東京都", &["東京", "京都"][..]),
        ("東 京", &["東", "京"]),
        ("カタカナ", &["カタ", "タカ", "カナ"]),
        ("ไทย", &["ไท", "ทย"]),
        ("iPhoneは高い。2台", &["iphone", "は高", "高い", "2", "台"]),
        ("東京、大阪", &["東京", "大阪"]),
        ("东京tokyo东", &["东京", "tokyo", "东"]),
        ("𠀋𠀌", &["𠀋𠀌"]),
    ] {
        assert_eq!(tokens(plain(), text), expected, "{text:?}");
    }
    let runs = Settings {
        bigrams: false,
        ..plain()
    };
    assert_eq!(tokens(runs, "東京都 ไทย"), ["東京都", "ไทย"]);
}

#[test]
fn words_become_stems_of_the_language() {
    let of = |language, text| {
        let settings = Settings {
            language,
            ..Settings::default()
        };
        tokens(settings, text)
    };
    assert_eq!(
        of(Language::English, "Running runs dogs"),
        ["run", "run", "dog"]
    );
    assert_eq!(of(Language::German, "Häuser laufen"), ["haus", "lauf"]);
    assert_eq!(of(Language::None, "Running"), ["running"]);
}

#[test]
fn long_words_are_cut_between_characters() {
    let long = "ab".repeat(10_000);
    assert_eq!(tokens(plain(), &long), [&long[..MAX_WORD]]);
    // 127 letters of two bytes fit into 255.
    let wide = "é".repeat(10_000);
    assert_eq!(tokens(plain(), &wide), ["é".repeat(127)]);
    // The word is cut at the first letter that does not fit; later letters are dropped even if they would fit.
    let mixed = format!("{}é{}", "a".repeat(254), "b".repeat(9));
    assert_eq!(tokens(plain(), &mixed), ["a".repeat(254)]);
    let dense = "東".repeat(1000);
    assert_eq!(tokens(plain(), &dense).len(), 999);
}

#[test]
fn a_query_has_each_term_once_in_byte_order() {
    let tokenizer = Tokenizer::new(plain());
    let terms = Terms::of(&tokenizer, "the cat, THE dog: the Cat");
    assert_eq!(terms.iter().collect::<Vec<_>>(), ["cat", "dog", "the"]);
    assert!(Terms::of(&tokenizer, " ... ").is_empty());
    // Of too many terms, the first are used.
    let text: Vec<_> = (0..5000).map(|n| format!("{n:05} common")).collect();
    let terms = Terms::of(&tokenizer, &text.join(" "));
    assert_eq!(terms.len(), MAX_TERMS);
    assert_eq!(terms.iter().last(), Some("common"));
    assert_eq!(terms.iter().nth(MAX_TERMS - 2), Some("01022"));
}

/// The ids of words files say how their terms were made. If this fails, the same texts now give different terms: raise
/// `tokens::VERSION`, so that existing files count as missing.
#[test]
fn terms_are_those_of_this_tokenizer_version() {
    let texts = "nationality's organizations happily; l'économie françaises; Häuser größere; niños corriendo; \
                 красивыми городами; ευχαριστούμε; kitapların evlerinden; الكتاب والمكتبة; gatti mangiavano; \
                 katten löpande; huse løbende; talossa juoksevat; házakban; fietsen lopend; falando cidades; \
                 orașelor; வீடுகள்; 東京タワー; ภาษาไทย; e\u{301}tude ﬁne";
    let mut made = String::new();
    for &language in Language::ALL {
        for (folding, bigrams) in [(false, true), (true, false)] {
            let settings = Settings {
                language,
                folding,
                bigrams,
            };
            made += &tokens(settings, texts).join(" ");
            made.push('\n');
        }
    }
    assert_eq!(checksum(made.as_bytes()), 10042977214581519814, "{made}");
}

#[test]
fn ids_of_settings_are_distinct_and_stable() {
    let mut ids = std::collections::HashSet::new();
    for &language in Language::ALL {
        for folding in [false, true] {
            for bigrams in [false, true] {
                let settings = Settings {
                    language,
                    folding,
                    bigrams,
                };
                assert!(ids.insert(settings.id()));
                let json = serde_json::to_string(&settings).unwrap();
                assert!(json.contains(&format!("{:?}", language.name())), "{json}");
                assert_eq!(serde_json::from_str::<Settings>(&json).unwrap(), settings);
            }
        }
    }
    assert_eq!(Settings::default().id().short(), "2429f406f0aa");
    assert_eq!(
        serde_json::to_string(&Settings::default()).unwrap(),
        r#"{"language":"english","folding":false,"bigrams":true}"#
    );
    assert!(serde_json::from_str::<Settings>(r#"{"language":"klingon"}"#).is_err());
}
