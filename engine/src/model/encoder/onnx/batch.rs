//! Batching texts of similar length, so that little padding is needed.

/// The number of texts that are sorted by length together: enough that neighbours have similar lengths, and few enough
/// that the runtime can start soon.
pub(super) const WINDOW: usize = 2048;

/// The maximum number of tokens in a batch, padding included. Activations of this many tokens stay in the cache: with
/// all-MiniLM-L6-v2 a token took 310 to 333 us of CPU time in batches of 512, 348 in 1024, 379 in 2048.
const BATCH_TOKENS: usize = 512;

/// The maximum number of texts in a batch.
const BATCH_TEXTS: usize = 64;

/// Texts that go through the graph together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The position of each text among those of the caller.
    pub(super) places: Vec<usize>,
    /// The token ids, padded with zeros: (texts, width).
    pub(super) ids: Vec<u32>,
    /// The number of tokens of each text, without padding.
    pub(super) lens: Vec<usize>,
    /// The number of tokens of the longest text.
    pub(super) width: usize,
}

impl Batch {
    /// Returns the number of texts in this batch.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Makes a batch of these texts, in this order.
    fn of(texts: &[(usize, Vec<u32>)]) -> Self {
        let width = texts.iter().map(|(_, ids)| ids.len()).max().unwrap_or(0);
        let mut batch = Self {
            places: Vec::with_capacity(texts.len()),
            ids: vec![0; texts.len() * width],
            lens: Vec::with_capacity(texts.len()),
            width,
        };
        for ((place, ids), row) in texts.iter().zip(batch.ids.chunks_exact_mut(width)) {
            row[..ids.len()].copy_from_slice(ids);
            batch.places.push(*place);
            batch.lens.push(ids.len());
        }
        batch
    }
}

/// Splits a window of tokenized texts into batches, the longest texts first, so that a slow batch does not come last.
pub(super) fn batches(mut texts: Vec<(usize, Vec<u32>)>) -> Vec<Batch> {
    // Texts of equal length are ordered by position, so that the same texts always form the same batches.
    texts.sort_by(|(a_place, a), (b_place, b)| b.len().cmp(&a.len()).then(a_place.cmp(b_place)));
    let mut cut = Vec::new();
    let mut rest = &texts[..];
    while let Some((_, longest)) = rest.first() {
        let fit = (BATCH_TOKENS / longest.len().max(1))
            .clamp(1, BATCH_TEXTS)
            .min(rest.len());
        let (batch, others) = rest.split_at(fit);
        cut.push(Batch::of(batch));
        rest = others;
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_in_one_batch_with_its_tokens() {
        let text = |place: usize| (place, vec![place as u32 + 1; 1 + place * 37 % 300]);
        let texts: Vec<_> = (0..500).map(text).collect();
        let cut = batches(texts.clone());
        let mut seen = vec![false; texts.len()];
        for batch in &cut {
            assert!(
                batch.len() <= BATCH_TEXTS
                    && (batch.len() == 1 || batch.len() * batch.width <= BATCH_TOKENS)
            );
            for ((&place, &len), row) in batch
                .places
                .iter()
                .zip(&batch.lens)
                .zip(batch.ids.chunks(batch.width))
            {
                assert_eq!(row[..len], texts[place].1[..]);
                assert!(row[len..].iter().all(|&id| id == 0));
                assert!(!std::mem::replace(&mut seen[place], true));
            }
        }
        assert!(seen.into_iter().all(|seen| seen));
        let padded: usize = cut.iter().map(|batch| batch.ids.len()).sum();
        let tokens: usize = texts.iter().map(|(_, ids)| ids.len()).sum();
        assert!(padded * 100 <= tokens * 110, "{padded} padded of {tokens}");
    }

    #[test]
    fn a_text_longer_than_a_batch_has_a_batch_of_its_own() {
        let cut = batches(vec![(0, vec![1; BATCH_TOKENS * 2]), (1, vec![1; 3])]);
        assert_eq!(cut.len(), 2);
        assert!(batches(Vec::new()).is_empty());
    }
}
