//! A static-token encoder made of the texts themselves: token vectors by a truncated SVD of their tf-idf matrix
//! (randomised, as Halko, Martinsson and Tropp have it), a text the normalised sum of its tokens'.

use std::collections::HashMap;

use mopqdb_trainer::random::Random;
use tch::{Kind, Tensor};

pub struct StaticEncoder {
    ids: HashMap<String, usize>,
    idf: Vec<f32>,
    /// (tokens, dim)
    vectors: Vec<f32>,
    dim: usize,
}

impl StaticEncoder {
    /// From the texts of keys and training queries.
    pub fn fit(texts: &[&str], dim: usize, seed: u64) -> Self {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for text in texts {
            let mut tokens = tokens(text);
            tokens.sort();
            tokens.dedup();
            tokens
                .into_iter()
                .for_each(|token| *counts.entry(token).or_default() += 1);
        }
        let mut kept: Vec<(String, usize)> = counts
            .into_iter()
            .filter(|&(_, count)| count >= 3)
            .collect();
        kept.sort();
        let idf = kept
            .iter()
            .map(|&(_, count)| (texts.len() as f32 / count as f32).ln())
            .collect();
        let ids: HashMap<String, usize> = kept
            .into_iter()
            .enumerate()
            .map(|(id, (token, _))| (token, id))
            .collect();
        let mut random = Random::new(seed, "encoder", 0);
        let start: Vec<f32> = (0..ids.len() * dim)
            .map(|_| random.normal() as f32)
            .collect();
        let mut encoder = Self {
            ids,
            idf,
            vectors: start,
            dim,
        };
        for _ in 0..3 {
            encoder.iterate(texts);
        }
        encoder
    }

    /// One power iteration: tokens -> texts -> tokens, made orthonormal.
    fn iterate(&mut self, texts: &[&str]) {
        let mut sums = vec![0f32; self.vectors.len()];
        for text in texts {
            let vector = self.encode_one(text);
            for (id, weight) in self.weights(text) {
                let slot = &mut sums[id * self.dim..][..self.dim];
                slot.iter_mut()
                    .zip(&vector)
                    .for_each(|(sum, x)| *sum += weight * x);
            }
        }
        let sums = Tensor::from_slice(&sums).view([-1, self.dim as i64]);
        let (basis, _) = Tensor::linalg_qr(&sums, "reduced");
        self.vectors =
            Vec::<f32>::try_from(basis.to_kind(Kind::Float).contiguous().view(-1)).unwrap();
    }

    fn weights(&self, text: &str) -> Vec<(usize, f32)> {
        let mut counts: HashMap<usize, f32> = HashMap::new();
        for token in tokens(text) {
            if let Some(&id) = self.ids.get(&token) {
                *counts.entry(id).or_default() += 1.0;
            }
        }
        let mut weights: Vec<(usize, f32)> = counts
            .into_iter()
            .map(|(id, count)| (id, (1.0 + count.ln()) * self.idf[id]))
            .collect();
        weights.sort_by_key(|weight| weight.0);
        let norm = weights
            .iter()
            .map(|(_, w)| w * w)
            .sum::<f32>()
            .sqrt()
            .max(1e-6);
        weights.iter_mut().for_each(|(_, w)| *w /= norm);
        weights
    }

    fn encode_one(&self, text: &str) -> Vec<f32> {
        let mut vector = vec![0f32; self.dim];
        for (id, weight) in self.weights(text) {
            let token = &self.vectors[id * self.dim..][..self.dim];
            vector
                .iter_mut()
                .zip(token)
                .for_each(|(sum, x)| *sum += weight * x);
        }
        vector
    }

    /// Vectors of length 1 (texts, dim); a text of unknown tokens is near 0 in all.
    pub fn encode(&self, texts: &[&str]) -> Vec<f32> {
        let mut all = Vec::with_capacity(texts.len() * self.dim);
        for text in texts {
            let mut vector = self.encode_one(text);
            let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-6);
            vector.iter_mut().for_each(|x| *x /= norm);
            all.extend(vector);
        }
        all
    }
}

/// Lower-case words, with snake_case and CamelCase taken apart.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut token = String::new();
    let mut before_lower = false;
    for c in text.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && before_lower) {
            if token.len() > 1 {
                tokens.push(std::mem::take(&mut token));
            }
            token.clear();
        }
        if c.is_alphanumeric() {
            token.extend(c.to_lowercase());
        }
        before_lower = c.is_lowercase();
    }
    if token.len() > 1 {
        tokens.push(token);
    }
    tokens
}
