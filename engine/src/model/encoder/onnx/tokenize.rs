//! Tokenizing texts.
//!
//! Padding and truncation in the file are overridden: batches are padded here, to their longest text, and each side is
//! cut to the limit in its bundle. The tokenizers crate panics on some crafted files; a panic becomes an error.

use crate::error::{Error, Result};
use crate::model::encoder::spec::Side;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokenizers::{
    PostProcessor as _, Tokenizer, TruncationDirection, TruncationParams, TruncationStrategy,
};

/// The number of bytes of a text that are read per token of the limit. English has 4 to 5 bytes per token. Time and
/// memory of tokenizing grow with the text, even if tokens are cut off afterwards.
const BYTES_PER_TOKEN: usize = 64;

/// Turns the texts of one side into token ids.
pub struct SideTokenizer {
    tokenizer: Tokenizer,
    prefix: String,
    max_tokens: usize,
}

impl SideTokenizer {
    /// Reads `tokenizer.json` for one side.
    pub fn load(bytes: &[u8], side: &Side) -> Result<Self> {
        let refuse = |why: String| Error::model(format!("the tokenizer can't be used: {why}"));
        let load = || -> tokenizers::Result<Tokenizer> {
            let mut tokenizer = Tokenizer::from_bytes(bytes)?;
            tokenizer.with_padding(None);
            let added = tokenizer
                .get_post_processor()
                .map_or(0, |processor| processor.added_tokens(false));
            if added >= side.max_tokens {
                return Err(format!(
                    "it adds {added} special tokens, but the limit is {}",
                    side.max_tokens
                )
                .into());
            }
            tokenizer.with_truncation(Some(TruncationParams {
                direction: TruncationDirection::Right,
                max_length: side.max_tokens,
                strategy: TruncationStrategy::LongestFirst,
                stride: 0,
            }))?;
            Ok(tokenizer)
        };
        let tokenizer = quietly(load)
            .ok_or_else(|| refuse("the tokenizers library panics on it".into()))?
            .map_err(|error| refuse(error.to_string()))?;
        Ok(Self {
            tokenizer,
            prefix: side.prefix.clone(),
            max_tokens: side.max_tokens,
        })
    }

    /// Returns the token ids of one text, special tokens included, at most `max_tokens`.
    pub fn ids(&self, text: &str) -> Result<Vec<u32>> {
        let text = &text[..text.floor_char_boundary(self.max_tokens * BYTES_PER_TOKEN)];
        let encoded = quietly(|| match self.prefix.as_str() {
            "" => self.tokenizer.encode_fast(text, true),
            prefix => self.tokenizer.encode_fast(format!("{prefix}{text}"), true),
        });
        let encoding = encoded
            .ok_or_else(|| Error::model("the tokenizers library panicked on a text"))?
            .map_err(|error| {
                Error::model_because(format!("a text can't be tokenized: {error}"), error)
            })?;
        let ids = encoding.get_ids();
        if ids.is_empty() {
            return Err(Error::invalid(
                "a text has no token that the encoder knows; leave it out",
            ));
        }
        // The crate keeps what it cut off separately, and never returns more than was requested. A crafted
        // post-processor might.
        Ok(ids[..ids.len().min(self.max_tokens)].to_vec())
    }

    /// Returns one more than the largest id, for models that look tokens up in a table.
    pub(super) fn vocabulary(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }
}

/// Runs `work`; a panic becomes `None`. The caller drops the value, so no partially changed state is left.
fn quietly<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}
