//! The name of a run: a hash of everything that decides its result.

use anyhow::Result;
use xxhash_rust::xxh3::Xxh3;

use super::asked::Asked;
use super::rows::Rows;
use super::unlabelled::Log;
use crate::config::TrainConfig;
use crate::joint::Origin;

impl Asked {
    /// Hashes configuration, rows, queries, pairs, and the weights that an encoder starts from.
    pub(super) fn fingerprint(
        &self,
        rows: &Rows,
        config: &TrainConfig,
        origin: Option<&Origin>,
    ) -> Result<String> {
        let mut hash = Hash::default();
        hash.bytes(toml::to_string(config)?.as_bytes());
        hash.bytes(rows.encoder_name().as_bytes());
        hash.texts(&rows.corpus.keys);
        hash.texts(rows.corpus.texts.as_deref().unwrap_or_default());
        hash.floats(&rows.corpus.vectors);
        for pairs in [&self.train, &self.valid] {
            hash.texts(&pairs.queries);
            for (query, row) in &pairs.pairs {
                hash.bytes(&query.to_le_bytes());
                hash.bytes(&row.to_le_bytes());
            }
        }
        for vectors in [&self.vectors, &self.valid_vectors].into_iter().flatten() {
            vectors.iter().for_each(|vector| hash.floats(vector));
        }
        match &self.log {
            Some(Log::Texts(texts)) => hash.texts(texts),
            Some(Log::Vectors(vectors)) => hash.floats(vectors),
            None => {}
        }
        if let Some(origin) = origin {
            hash.bytes(&origin.config);
            hash.bytes(&origin.weights);
            hash.bytes(&origin.tokenizer);
        }
        Ok(format!("{:016x}", hash.0.digest()))
    }
}

/// A hash of parts with their lengths, so that different lists of parts are different bytes.
#[derive(Default)]
struct Hash(Xxh3);

impl Hash {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn texts(&mut self, texts: &[String]) {
        self.0.update(&(texts.len() as u64).to_le_bytes());
        texts.iter().for_each(|text| self.bytes(text.as_bytes()));
    }

    fn floats(&mut self, values: &[f32]) {
        self.0.update(&(values.len() as u64).to_le_bytes());
        for value in values {
            self.0.update(&value.to_le_bytes());
        }
    }
}
