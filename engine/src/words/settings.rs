//! How texts become terms. Settings are fixed when words are switched on, and their id names words files.

use crate::ids::WordsId;
use crate::ids::content::ContentHash;
use serde::{Deserialize, Serialize};

/// How the texts of a database become terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Settings {
    /// The language of the stemmer.
    pub language: Language,
    /// Removes accents from letters (`café` equals `cafe`) and replaces compatible forms (`ﬁ` equals `fi`).
    pub folding: bool,
    /// Indexes scripts without spaces between words by pairs of characters.
    pub bigrams: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            language: Language::English,
            folding: false,
            bigrams: true,
        }
    }
}

impl Settings {
    setters!(language: Language, folding: bool, bigrams: bool);

    /// Returns the id of these settings with the tokenizer and the index of this program.
    pub(crate) fn id(&self) -> WordsId {
        let hash = ContentHash::new("mopqdb words 1")
            .number(u64::from(super::tokens::VERSION))
            .number(u64::from(super::INDEX_VERSION))
            .field(self.language.name().as_bytes())
            .number(u64::from(self.folding))
            .number(u64::from(self.bigrams));
        WordsId(hash.finish())
    }
}

macro_rules! languages {
    ($($variant:ident $name:literal,)*) => {
        /// A language with a Snowball stemmer, or none.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        #[non_exhaustive]
        pub enum Language {
            /// No stemming.
            None,
            $(#[doc = concat!("The Snowball stemmer `", $name, "`.")] $variant,)*
        }

        impl Language {
            /// All languages.
            pub const ALL: &[Self] = &[Self::None, $(Self::$variant,)*];

            /// Returns the name in settings and in ids.
            pub fn name(self) -> &'static str {
                match self {
                    Self::None => "none",
                    $(Self::$variant => $name,)*
                }
            }

            pub(super) fn stemmer(self) -> Option<frostem::Stemmer> {
                let algorithm = match self {
                    Self::None => return None,
                    $(Self::$variant => frostem::Algorithm::$variant,)*
                };
                Some(frostem::Stemmer::new(algorithm))
            }
        }
    };
}

languages! {
    Arabic "arabic",
    Danish "danish",
    Dutch "dutch",
    English "english",
    Finnish "finnish",
    French "french",
    German "german",
    Greek "greek",
    Hungarian "hungarian",
    Italian "italian",
    Norwegian "norwegian",
    Portuguese "portuguese",
    Romanian "romanian",
    Russian "russian",
    Spanish "spanish",
    Swedish "swedish",
    Tamil "tamil",
    Turkish "turkish",
}
