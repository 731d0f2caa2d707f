//! A static-token encoder with the default model's token vectors: the vector of a text is the sum of its tokens'
//! vectors, weighted by rarity.
//!
//! No layer is run, so encoding takes no time. The claim is about what the head learns.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use mopqdb_trainer::model::bert::read_weights;
use tokenizers::Tokenizer;

pub struct StaticEncoder {
    tokenizer: Tokenizer,
    /// The vectors of the tokens: (tokens, dim).
    vectors: Vec<f32>,
    dim: usize,
    /// The weight of a token: rarer tokens have larger weights.
    rarity: HashMap<u32, f32>,
    unseen: f32,
    /// The mean over the texts that it was fitted to, which is subtracted.
    mean: Vec<f32>,
}

impl StaticEncoder {
    /// Reads the folder with the model's weights and tokenizer, and counts tokens in the texts.
    pub fn fit(model: &Path, texts: &[&str]) -> Result<Self> {
        let mut tokenizer = Tokenizer::from_file(model.join("tokenizer.json"))
            .map_err(anyhow::Error::msg)
            .context("tokenizer.json")?;
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(anyhow::Error::msg)?;
        let weights = read_weights(&std::fs::read(model.join("model.safetensors"))?)?;
        let (_, table) = weights
            .iter()
            .find(|(name, _)| name == "embeddings.word_embeddings.weight")
            .context("the model has no word embeddings")?;
        let dim = table.size()[1] as usize;
        let mut encoder = Self {
            tokenizer,
            vectors: Vec::<f32>::try_from(table.contiguous().view(-1))?,
            dim,
            rarity: HashMap::new(),
            unseen: (texts.len() as f32).ln(),
            mean: vec![0.0; dim],
        };
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for text in texts {
            let mut tokens = encoder.tokens(text)?;
            tokens.sort_unstable();
            tokens.dedup();
            for token in tokens {
                *counts.entry(token).or_default() += 1;
            }
        }
        let rarity = |count: usize| (texts.len() as f32 / count as f32).ln();
        encoder.rarity = counts
            .into_iter()
            .map(|(token, count)| (token, rarity(count)))
            .collect();
        let all = encoder.encode(texts)?;
        let share = 1.0 / texts.len() as f32;
        for vector in all.chunks_exact(dim) {
            encoder
                .mean
                .iter_mut()
                .zip(vector)
                .for_each(|(mean, x)| *mean += share * x);
        }
        Ok(encoder)
    }

    /// Returns the width of the vectors.
    pub fn dim(&self) -> usize {
        self.dim
    }

    fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        // The parts of snake_case and CamelCase count as words too.
        let mut words = String::with_capacity(text.len() + 16);
        let mut before_lower = false;
        for c in text.chars() {
            if c.is_uppercase() && before_lower {
                words.push(' ');
            }
            words.push(if c == '_' { ' ' } else { c });
            before_lower = c.is_lowercase();
        }
        let encoding = self
            .tokenizer
            .encode(words, false)
            .map_err(anyhow::Error::msg)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Returns vectors of length 1: (texts, dim).
    pub fn encode(&self, texts: &[&str]) -> Result<Vec<f32>> {
        let mut all = Vec::with_capacity(texts.len() * self.dim);
        for text in texts {
            let mut vector = vec![0f32; self.dim];
            for token in self.tokens(text)? {
                let weight = *self.rarity.get(&token).unwrap_or(&self.unseen);
                let token = &self.vectors[token as usize * self.dim..][..self.dim];
                vector
                    .iter_mut()
                    .zip(token)
                    .for_each(|(sum, x)| *sum += weight * x);
            }
            normalise(&mut vector);
            vector
                .iter_mut()
                .zip(&self.mean)
                .for_each(|(x, mean)| *x -= mean);
            normalise(&mut vector);
            all.extend(vector);
        }
        Ok(all)
    }
}

fn normalise(vector: &mut [f32]) {
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-6);
    vector.iter_mut().for_each(|x| *x /= norm);
}
