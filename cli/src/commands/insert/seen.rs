//! The keys of this run. A key that occurs twice in one run is a mistake in the input: one row would silently replace
//! the other.
//!
//! A run may have hundreds of millions of rows, so little is stored per row: one bit for a key that is a row number,
//! and nothing if there is only one such file; 16 bytes for any other key (19 to 28 with the free slots of the table).
//! With `--replace` nothing is stored.

use super::feed::Origin;
use crate::rows::Places;
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_128;

/// The keys so far, each with its place.
pub(super) struct Seen {
    places: Vec<Places>,
    /// The ordinal of number 0 in each source that was begun.
    starts: Vec<u64>,
    /// The ordinal where the next source starts.
    end: u64,
    /// The numbers that were used, by `FILESTEM`; files with the same stem have the same keys.
    numbered: HashMap<String, Vec<Numbers>>,
    own: Table,
}

/// The numbers of one file.
struct Numbers {
    source: usize,
    taken: Vec<u64>,
}

impl Seen {
    pub(super) fn new(places: &[Places]) -> Self {
        Self {
            places: places.to_vec(),
            starts: Vec::new(),
            end: 0,
            numbered: HashMap::new(),
            own: Table::default(),
        }
    }

    /// Returns the place at which this key was used before.
    pub(super) fn find(&self, key: &str, origin: Origin) -> Option<String> {
        if self.is_unique(origin) {
            return None;
        }
        if let Some((stem, number)) = stem_and_number(key)
            && let Some(files) = self.numbered.get(stem)
            && let Some(file) = files.iter().find(|file| file.has(number))
        {
            return Some(self.places[file.source].at(number));
        }
        let ordinal = self.own.find(xxh3_128(key.as_bytes()))?;
        let source = self.starts.partition_point(|start| *start <= ordinal) - 1;
        Some(self.places[source].at(ordinal - self.starts[source]))
    }

    /// Adds a key that [`find`](Self::find) did not find.
    pub(super) fn take(&mut self, key: &str, origin: Origin) {
        if self.is_unique(origin) {
            return;
        }
        if let Some((stem, number)) = stem_and_number(key).filter(|_| origin.numbered) {
            if !self.numbered.contains_key(stem) {
                self.numbered.insert(stem.to_owned(), Vec::new());
            }
            let files = self.numbered.get_mut(stem).expect("just inserted");
            if files.last().is_none_or(|file| file.source != origin.source) {
                files.push(Numbers {
                    source: origin.source,
                    taken: Vec::new(),
                });
            }
            files.last_mut().expect("just pushed").take(number);
            return;
        }
        while self.starts.len() <= origin.source {
            self.starts.push(self.end);
        }
        let ordinal = self.starts[origin.source] + origin.number;
        self.end = self.end.max(ordinal + 1);
        self.own.insert(xxh3_128(key.as_bytes()), ordinal);
    }

    /// Returns `true` if the key is a row number in the only numbered file, so it can't occur twice.
    fn is_unique(&self, origin: Origin) -> bool {
        origin.numbered && self.places.len() == 1
    }
}

impl Numbers {
    fn has(&self, number: u64) -> bool {
        let word = usize::try_from(number / 64).ok();
        let word = word.and_then(|word| self.taken.get(word));
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn take(&mut self, number: u64) {
        let word = (number / 64) as usize;
        if self.taken.len() <= word {
            self.taken.resize(word + 1, 0);
        }
        self.taken[word] |= 1 << (number % 64);
    }
}

/// Splits `FILESTEM:N`, the key of a numbered row of several files. A stem may contain colons.
fn stem_and_number(key: &str) -> Option<(&str, u64)> {
    let (stem, digits) = key.rsplit_once(':')?;
    let canonical = digits == "0" || !digits.starts_with('0');
    (canonical && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
        .map(|number| (stem, number))
}

/// The bits of an entry with the ordinal; the other 88 bits are of the hash.
const ORDINAL_BITS: u32 = 40;
const ORDINAL: u128 = (1 << ORDINAL_BITS) - 1;

/// A map from a key's hash to its ordinal: open addressing with linear probing, in 256 parts so that growing copies
/// little.
///
/// Keys are not stored. 8 bits of the hash choose the part and 88 are compared, so among 10^8 keys two share them with
/// a probability of 10^16 / 2^97, less than 10^-13, which is accepted.
struct Table {
    parts: Vec<Part>,
}

#[derive(Default)]
struct Part {
    /// The entries; 0 is a free slot.
    slots: Vec<u128>,
    used: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            parts: (0..256).map(|_| Part::default()).collect(),
        }
    }
}

impl Table {
    fn find(&self, hash: u128) -> Option<u64> {
        let part = &self.parts[(hash >> 120) as usize];
        let wanted = hash << 8 & !ORDINAL;
        if part.slots.is_empty() {
            return None;
        }
        let found = part.slots[part.slot(wanted)];
        // Ordinals are stored plus one, so that no entry is 0.
        (found != 0).then(|| (found & ORDINAL) as u64 - 1)
    }

    fn insert(&mut self, hash: u128, ordinal: u64) {
        let part = &mut self.parts[(hash >> 120) as usize];
        if (part.used + 1) * 8 > part.slots.len() * 7 {
            part.grow();
        }
        // Places from line 10^12 on are reported as that line.
        let entry = hash << 8 & !ORDINAL | (u128::from(ordinal) + 1).min(ORDINAL);
        let slot = part.slot(entry);
        part.used += usize::from(part.slots[slot] == 0);
        part.slots[slot] = entry;
    }
}

impl Part {
    /// Returns the slot of this hash, or the free slot where it belongs. Requires: there is a free slot.
    fn slot(&self, entry: u128) -> usize {
        let slots = self.slots.len();
        let mut at = (((entry >> 64) * slots as u128) >> 64) as usize;
        while self.slots[at] != 0 && (self.slots[at] ^ entry) >> ORDINAL_BITS != 0 {
            at = if at + 1 == slots { 0 } else { at + 1 };
        }
        at
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 3 / 2).max(16);
        let old = std::mem::replace(&mut self.slots, vec![0; slots]);
        for entry in old.into_iter().filter(|entry| *entry != 0) {
            let slot = self.slot(entry);
            self.slots[slot] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(source: usize, number: u64) -> Origin {
        Origin {
            source,
            number,
            numbered: false,
        }
    }

    fn numbered(source: usize, number: u64) -> Origin {
        Origin {
            numbered: true,
            ..own(source, number)
        }
    }

    #[test]
    fn every_key_is_found_at_its_place_and_no_other_key_is_found() {
        let places = ["a", "b", "c"].map(|name| Places::Lines(name.into()));
        let mut seen = Seen::new(&places);
        for n in 0..200_000_u64 {
            let origin = own(n as usize / 80_000, n % 80_000 + 1);
            let key = format!("key {n}");
            assert_eq!(seen.find(&key, origin), None);
            seen.take(&key, origin);
        }
        let here = own(2, 1_000_000);
        assert_eq!(seen.find("key 0", here).unwrap(), "a:1");
        assert_eq!(seen.find("key 79999", here).unwrap(), "a:80000");
        assert_eq!(seen.find("key 80000", here).unwrap(), "b:1");
        assert_eq!(seen.find("key 199999", here).unwrap(), "c:40000");
        assert_eq!(seen.find("key 200000", here), None);
        let slots: usize = seen.own.parts.iter().map(|part| part.slots.len()).sum();
        assert!(slots * 16 < 200_000 * 29, "{slots} slots of 16 bytes");
    }

    #[test]
    fn numbered_keys_collide_with_files_of_the_same_name_and_given_keys() {
        let places = [
            Places::Lines("d/x.txt".into()),
            Places::Rows("e/x.npy".into()),
            Places::Lines("rows.jsonl".into()),
        ];
        let mut seen = Seen::new(&places);
        seen.take("x:1", numbered(0, 1));
        // Line 2 is blank, so no row has its number.
        seen.take("x:3", numbered(0, 3));
        assert_eq!(seen.find("x:2", numbered(1, 2)), None);
        seen.take("x:2", numbered(1, 2));
        assert_eq!(seen.find("x:3", numbered(1, 3)).unwrap(), "d/x.txt:3");
        assert_eq!(seen.find("x:2", own(2, 1)).unwrap(), "e/x.npy: row 2");
        for other in ["x:03", "x:+3", "x:", "y:3", "3", "x:99999999999999999999"] {
            assert_eq!(seen.find(other, own(2, 1)), None, "{other}");
        }
        seen.take("x:7", own(2, 4));
        assert_eq!(seen.find("x:7", numbered(1, 7)).unwrap(), "rows.jsonl:4");
    }

    #[test]
    fn the_numbers_of_one_file_take_no_memory() {
        let mut seen = Seen::new(&[Places::Rows("x.npy".into())]);
        for n in 0..1000 {
            seen.take(&n.to_string(), numbered(0, n));
        }
        assert!(seen.numbered.is_empty() && seen.own.parts.iter().all(|part| part.used == 0));
    }
}
