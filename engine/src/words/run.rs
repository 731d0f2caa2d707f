//! The word index of a run of the tail, in memory.

use super::Indexed;
use super::bm25::{self, Postings, Scorer, Term};
use super::counts::{Counts, Vocabulary};
use super::lens::Lens;
use super::terms::Terms;
use super::tokens::{Stems, Tokenizer};
use crate::error::Result;
use crate::scan::TopK;
use std::collections::HashMap;

/// A word index in memory. Counts and scores equal those of a segment with the same rows, bit for bit.
#[derive(Debug)]
pub(crate) struct RunWords {
    lens: Lens,
    lists: HashMap<Box<str>, List>,
}

/// The rows that have a term, ascending, and how often each has it.
#[derive(Debug, Default)]
struct List {
    rows: Vec<u32>,
    counts: Vec<u32>,
}

impl List {
    fn push(&mut self, row: u32) {
        match (self.rows.last(), self.counts.last_mut()) {
            (Some(&last), Some(count)) if last == row => *count += 1,
            _ => {
                self.rows.push(row);
                self.counts.push(1);
            }
        }
    }
}

impl RunWords {
    /// Indexes the texts of the rows of a run, in order.
    pub(crate) fn of<'t>(tokenizer: &Tokenizer, texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut lens = Vec::new();
        let mut stems = Stems::default();
        let mut lists: HashMap<Box<str>, List> = HashMap::new();
        for (row, text) in (0..).zip(texts) {
            let mut len = 0;
            let mut tokens = tokenizer.tokens_of_many(text, &mut stems);
            while let Some(token) = tokens.next() {
                len += 1;
                match lists.get_mut(token) {
                    Some(list) => list.push(row),
                    None => lists.entry(token.into()).or_default().push(row),
                }
            }
            lens.push(bm25::len_to_byte(len));
        }
        Self {
            lens: Lens::new(lens),
            lists,
        }
    }

    fn terms<'r>(&'r self, terms: &Terms) -> Vec<Term<Whole<'r>>> {
        let found = terms.iter().enumerate().filter_map(|(number, term)| {
            let list = self.lists.get(term)?;
            Some(Term::new(number, Whole::new(list)))
        });
        found.collect()
    }
}

impl Indexed for RunWords {
    fn count(&self, terms: &Terms, live: Option<&[u64]>) -> Result<Counts> {
        let df = |term| {
            let list = self.lists.get(term)?;
            Some(live.map_or(list.rows.len() as u64, |live| {
                Term::new(0, Whole::new(list)).within(live)
            }))
        };
        Ok(Counts {
            rows: self.lens.rows(live),
            total_len: self.lens.total(live),
            df: terms.iter().map(|term| df(term).unwrap_or(0)).collect(),
        })
    }

    fn count_all(&self, live: Option<&[u64]>, into: &mut Vocabulary) -> Result<()> {
        into.rows += self.lens.rows(live);
        into.total_len += self.lens.total(live);
        for (term, list) in &self.lists {
            let df = live.map_or(list.rows.len() as u64, |live| {
                Term::new(0, Whole::new(list)).within(live)
            });
            into.add(term, df);
        }
        Ok(())
    }

    fn best(
        &self,
        terms: &Terms,
        scorer: &Scorer,
        mask: Option<&[u64]>,
        top: &mut TopK,
    ) -> Result<()> {
        scorer.collect(self.terms(terms), self.lens.bytes(), mask, top);
        Ok(())
    }

    fn score(
        &self,
        terms: &Terms,
        scorer: &Scorer,
        rows: &[u32],
        scores: &mut [f32],
    ) -> Result<()> {
        scorer.score(self.terms(terms), self.lens.bytes(), rows, scores);
        Ok(())
    }
}

/// The postings of a list: one block.
struct Whole<'l> {
    list: &'l List,
    ended: bool,
}

impl<'l> Whole<'l> {
    fn new(list: &'l List) -> Self {
        Self { list, ended: false }
    }
}

impl Postings for Whole<'_> {
    fn rows(&self) -> &[u32] {
        if self.ended { &[] } else { &self.list.rows }
    }

    fn counts(&self) -> &[u32] {
        &self.list.counts
    }

    fn advance(&mut self) {
        self.ended = true;
    }

    fn seek(&mut self, row: u32) -> usize {
        self.list.rows.partition_point(|&own| own < row)
    }
}
