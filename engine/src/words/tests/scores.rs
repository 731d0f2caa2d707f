//! Counts and scores are those of the plain formula, however rows are split into parts.

use super::*;
use crate::scan::Found;
use proptest::prelude::*;
use std::collections::BTreeSet;
use tantivy::Term;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::query::{
    Bm25StatisticsProvider, BooleanQuery, EnableScoring, Occur, Query as _, TermQuery,
};
use tantivy::schema::{Field, IndexRecordOption};

/// Returns the tokens of each text.
fn tokenized(settings: Settings, texts: &[String]) -> Vec<Vec<String>> {
    let tokenizer = Tokenizer::new(settings);
    let tokens = |text: &String| {
        let mut tokens = tokenizer.tokens(text);
        let mut found = Vec::new();
        while let Some(token) = tokens.next() {
            found.push(token.to_owned());
        }
        found
    };
    texts.iter().map(tokens).collect()
}

/// BM25 in a few lines: returns the score of every row, 0 without any term. Only rows in `counted` are counted.
fn plain(rows: &[Vec<String>], counted: &[bool], query: &[String]) -> Vec<f32> {
    let len = |row: &Vec<String>| {
        let byte = FieldNormReader::fieldnorm_to_id(row.len() as u32);
        FieldNormReader::id_to_fieldnorm(byte)
    };
    let living = || rows.iter().zip(counted).filter(|(_, counted)| **counted);
    let n = living().count() as f64;
    let average = (living().map(|(row, _)| f64::from(len(row))).sum::<f64>() / n) as f32;
    let terms: BTreeSet<&String> = query.iter().collect();
    let mut scores = vec![0_f32; rows.len()];
    for term in terms {
        let df = living().filter(|(row, _)| row.contains(term)).count() as f64;
        let idf = ((n - df + 0.5) / (df + 0.5)).ln_1p() as f32;
        for (row, score) in rows.iter().zip(&mut scores) {
            let tf = row.iter().filter(|token| *token == term).count() as f32;
            let norm = 1.2 * (1.0 - 0.75 + 0.75 * len(row) as f32 / average);
            if tf > 0.0 {
                *score += idf * (1.0 + 1.2) * (tf / (tf + norm));
            }
        }
    }
    scores
}

/// Rows split into parts, some of which are segments and some runs.
struct Parts {
    parts: Vec<Box<dyn Indexed>>,
    live: Vec<Option<Vec<u64>>>,
    first: Vec<usize>,
    _dirs: Vec<tempfile::TempDir>,
}

impl Parts {
    /// Splits before these rows. With `leave_out`, segments are made without their dead rows.
    fn new(texts: &[String], live: &[bool], cuts: &BTreeSet<usize>, leave_out: bool) -> Self {
        let settings = Settings::default();
        let mut parts = Self {
            parts: Vec::new(),
            live: Vec::new(),
            first: Vec::new(),
            _dirs: Vec::new(),
        };
        let ends: Vec<_> = cuts.iter().copied().chain([texts.len()]).collect();
        let mut first = 0;
        for (at, end) in ends.into_iter().enumerate() {
            let own = &texts[first..end];
            let own_live = &live[first..end];
            if at % 2 == 0 {
                let texts: Vec<_> = own.iter().zip(own_live).collect();
                let texts: Vec<_> = texts
                    .into_iter()
                    .map(|(text, live)| (*live || !leave_out).then_some(text.as_str()))
                    .collect();
                let (dir, words) = segment(settings, &texts);
                parts._dirs.push(dir);
                parts.parts.push(Box::new(words));
            } else {
                let texts = own.iter().map(String::as_str);
                let words = RunWords::of(&Tokenizer::new(settings), texts);
                parts.parts.push(Box::new(words));
            }
            let all = own_live.iter().all(|live| *live);
            parts.live.push((!all).then(|| bits(own_live)));
            parts.first.push(first);
            first = end;
        }
        parts
    }

    fn counts(&self, terms: &Terms) -> Counts {
        let mut counts = Counts::none(terms);
        for (part, live) in self.parts.iter().zip(&self.live) {
            counts += &part.count(terms, live.as_deref()).unwrap();
        }
        counts
    }

    /// Returns the best rows, as one list.
    fn best(&self, terms: &Terms, scorer: &Scorer, depth: usize) -> Vec<(usize, f32)> {
        let parts = self.parts.iter().zip(&self.live);
        let parts = parts.map(|(part, live)| (&**part, live.as_deref()));
        let mut found = best(parts, terms, scorer, depth).unwrap();
        assert!(found.is_sorted_by(|a, b| a.score >= b.score));
        let row = |found: &Found| self.first[found.source as usize] + found.row as usize;
        found.sort_by(|a, b| b.score.total_cmp(&a.score).then(row(a).cmp(&row(b))));
        found.truncate(depth);
        found.iter().map(|f| (row(f), f.score)).collect()
    }

    /// Returns the scores of some rows.
    fn score(&self, terms: &Terms, scorer: &Scorer, rows: &[usize]) -> Vec<f32> {
        let mut scores = Vec::new();
        for (at, part) in self.parts.iter().enumerate() {
            let first = self.first[at];
            let end = self.first.get(at + 1).copied().unwrap_or(usize::MAX);
            let own: Vec<u32> = (rows.iter())
                .filter(|row| (first..end).contains(row))
                .map(|row| (row - first) as u32)
                .collect();
            let mut part_scores = vec![f32::NAN; own.len()];
            part.score(terms, scorer, &own, &mut part_scores).unwrap();
            scores.extend(part_scores);
        }
        scores
    }
}

fn bits(rows: &[bool]) -> Vec<u64> {
    let mut bits = vec![0; rows.len().div_ceil(64)];
    for (row, _) in rows.iter().enumerate().filter(|(_, set)| **set) {
        bits[row / 64] |= 1 << (row % 64);
    }
    bits
}

/// Compares parts with the plain formula.
fn compare(texts: &[String], live: &[bool], parts: &Parts, query: &str, depth: usize) {
    let settings = Settings::default();
    let rows = tokenized(settings, texts);
    let terms = Terms::of(&Tokenizer::new(settings), query);
    let words: Vec<String> = terms.iter().map(str::to_owned).collect();
    let counts = parts.counts(&terms);
    for (term, df) in words.iter().zip(&counts.df) {
        let having = rows.iter().zip(live);
        let having = having.filter(|(row, live)| **live && row.contains(term));
        assert_eq!(having.count() as u64, *df, "{term}");
    }
    let scorer = Scorer::new(&counts);
    let expected = plain(&rows, live, &words);
    let living: Vec<_> = (0..texts.len()).filter(|&row| live[row]).collect();
    let scores = parts.score(&terms, &scorer, &living);
    for (&row, score) in living.iter().zip(&scores) {
        assert_eq!(
            score.to_bits(),
            expected[row].to_bits(),
            "row {row}, {query:?}"
        );
    }
    let mut ranked: Vec<_> = living.iter().map(|&row| (row, expected[row])).collect();
    ranked.retain(|(_, score)| *score > 0.0);
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    ranked.truncate(depth);
    assert_eq!(parts.best(&terms, &scorer, depth), ranked, "{query:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn scores_match_the_plain_formula_for_any_parts_and_dead_rows(
        seed: u64,
        rows in 1..300_usize,
        cuts in prop::collection::btree_set(1..300_usize, 0..4),
        dead_in_ten in 0..4_u64,
        leave_out: bool,
        depth in 1..30_usize,
    ) {
        let mut seed = Seed(seed);
        let longest = [3, 12, 60][seed.below(3) as usize];
        let texts: Vec<_> = (0..rows).map(|_| seed.text(longest)).collect();
        let live: Vec<_> = (0..rows).map(|_| seed.below(10) >= dead_in_ten).collect();
        let cuts = cuts.into_iter().filter(|cut| *cut < rows).collect();
        let parts = Parts::new(&texts, &live, &cuts, leave_out);
        for _ in 0..20 {
            let query = seed.text(12);
            compare(&texts, &live, &parts, &query, depth);
            let turned: Vec<_> = query.split(' ').rev().collect();
            compare(&texts, &live, &parts, &turned.join(" "), depth);
        }
    }
}

#[test]
fn many_rows_are_scored_across_windows_and_blocks() {
    let mut seed = Seed(11);
    let mut texts: Vec<_> = (0..20_000).map(|_| seed.text(8)).collect();
    // One word in two distant rows, and one in all rows of a window except its ends.
    texts[3].push_str(" rare");
    texts[19_999].push_str(" rare");
    let live: Vec<_> = (0..texts.len()).map(|_| seed.below(50) > 0).collect();
    let parts = Parts::new(&texts, &live, &BTreeSet::from([12_345]), false);
    for query in [
        "rare",
        "w1",
        "w0 w1 w2 rare w1999",
        "w19 w199",
        "nowhere",
        "",
    ] {
        compare(&texts, &live, &parts, query, 100);
    }
    // The same rows, with more and more of them dead: sums that were kept are updated.
    for _ in 0..3 {
        let mut live = live.clone();
        (0..300).for_each(|_| live[seed.below(20_000) as usize] ^= true);
        let parts = Parts {
            live: vec![Some(bits(&live[..12_345])), Some(bits(&live[12_345..]))],
            ..Parts::new(&texts, &live, &BTreeSet::from([12_345]), false)
        };
        compare(&texts, &live, &parts, "w0 w5 rare", 100);
    }
}

#[test]
fn sums_of_lengths_follow_changes_of_live_rows() {
    let (_dir, words) = segment(Settings::default(), &all(&["a", "b c", "d e f", ""]));
    let terms = Terms::of(&Tokenizer::new(Settings::default()), "e");
    let count = |live: Option<u64>| {
        let live = live.map(|live| [live]);
        let counts = words
            .count(&terms, live.as_ref().map(|live| &live[..]))
            .unwrap();
        (counts.rows, counts.total_len, counts.df[0])
    };
    assert_eq!(count(None), (4, 6, 1));
    assert_eq!(count(Some(0b1111)), (4, 6, 1));
    assert_eq!(count(Some(0b1011)), (3, 3, 0));
    assert_eq!(count(Some(0b0100)), (1, 3, 1));
    assert_eq!(count(Some(0b1110)), (3, 5, 1));
    assert_eq!(count(Some(0)), (0, 0, 0));
    assert_eq!(count(None), (4, 6, 1));
}

/// Counts given to the search library.
struct Given {
    counts: Counts,
    terms: Vec<String>,
}

impl Bm25StatisticsProvider for Given {
    fn total_num_tokens(&self, _: Field) -> tantivy::Result<u64> {
        Ok(self.counts.total_len)
    }

    fn total_num_docs(&self) -> tantivy::Result<u64> {
        Ok(self.counts.rows)
    }

    fn doc_freq(&self, term: &Term) -> tantivy::Result<u64> {
        let text = term.value();
        let text = text.as_str().unwrap();
        let at = self.terms.iter().position(|term| term == text).unwrap();
        Ok(self.counts.df[at])
    }
}

#[test]
fn scores_equal_those_of_the_search_library_if_the_logarithms_do() {
    let mut seed = Seed(5);
    let settings = Settings::default();
    let texts: Vec<_> = (0..4000).map(|_| seed.text(40)).collect();
    let live = vec![true; texts.len()];
    let parts = Parts::new(&texts, &live, &BTreeSet::from([1000, 2500]), false);
    let index = writer::index_of(settings, &texts);
    let reader = index.reader().unwrap();
    let searcher = reader.searcher();
    let field = index.schema().get_field(FIELD).unwrap();
    let (mut same, mut queries) = (0, 0);
    for _ in 0..2000 {
        let terms = Terms::of(&Tokenizer::new(settings), &seed.text(12));
        let counts = parts.counts(&terms);
        let scorer = Scorer::new(&counts);
        let ours = parts.score(&terms, &scorer, &(0..texts.len()).collect::<Vec<_>>());
        let given = Given {
            counts: counts.clone(),
            terms: terms.iter().map(str::to_owned).collect(),
        };
        let clauses = terms.iter().map(|term| {
            let term = Term::from_field_text(field, term);
            let query = TermQuery::new(term, IndexRecordOption::WithFreqs);
            (
                Occur::Should,
                Box::new(query) as Box<dyn tantivy::query::Query>,
            )
        });
        let query = BooleanQuery::new(clauses.collect());
        let scoring = EnableScoring::enabled_from_statistics_provider(&given, &searcher);
        let weight = query.weight(scoring).unwrap();
        let mut theirs = vec![0_f32; texts.len()];
        weight
            .for_each(searcher.segment_reader(0), &mut |row, score| {
                theirs[row as usize] = score;
            })
            .unwrap();
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert!(
                (ours - theirs).abs() <= 4e-7 * theirs,
                "{ours} and {theirs}"
            );
        }
        // The library uses the machine's f32 logarithm, mopqdb the f64 logarithm rounded to f32.
        let logarithms = counts.df.iter().all(|&df| {
            let odds = ((counts.rows - df) as f32 + 0.5) / (df as f32 + 0.5);
            let ours = ((counts.rows - df) as f64 + 0.5) / (df as f64 + 0.5);
            (1.0 + odds).ln() == ours.ln_1p() as f32
        });
        queries += 1;
        if logarithms {
            let bits = |scores: &[f32]| scores.iter().map(|s| s.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&ours), bits(&theirs));
            same += 1;
        }
    }
    assert!(
        same > queries / 10,
        "{same} of {queries} queries had the same logarithms"
    );
}

#[test]
fn merged_pieces_answer_as_one_and_equal_rows_give_equal_files() {
    let mut seed = Seed(3);
    let settings = Settings::default();
    let texts: Vec<_> = (0..30_000).map(|_| seed.text(20)).collect();
    let write = |piece: usize| {
        let dir = tempfile::tempdir().unwrap();
        let mut words = writer(Arc::new(DISK), dir.path(), settings, texts.len());
        for (row, text) in texts.iter().enumerate() {
            if row % piece == piece - 1 {
                words.put_aside().unwrap();
            }
            words.push((row % 7 != 0).then_some(text)).unwrap();
        }
        words.finish().unwrap();
        let names = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 1, "temporary files are gone");
        dir
    };
    let [one, same, four] = [usize::MAX, usize::MAX, 8000].map(write);
    let bytes = |dir: &tempfile::TempDir| std::fs::read(path(dir.path(), settings)).unwrap();
    assert!(
        bytes(&one) == bytes(&same),
        "the file contains random ids or times"
    );
    let [one, four] = [&one, &four].map(|dir| {
        let words = SegmentWords::open(&DISK, &path(dir.path(), settings)).unwrap();
        assert!(words.verify().is_empty());
        words
    });
    for _ in 0..50 {
        let terms = Terms::of(&Tokenizer::new(settings), &seed.text(10));
        let answer = |words: &SegmentWords| {
            let counts = words.count(&terms, None).unwrap();
            let scorer = Scorer::new(&counts);
            let found = best([(words as &dyn Indexed, None)], &terms, &scorer, 50);
            (counts, found.unwrap())
        };
        assert_eq!(answer(&one), answer(&four));
    }
}

#[test]
fn a_vocabulary_has_the_counts_that_each_query_computes() {
    let mut seed = Seed(8);
    let settings = Settings::default();
    let texts: Vec<_> = (0..500).map(|_| seed.text(20)).collect();
    let live: Vec<_> = (0..500).map(|_| seed.below(4) > 0).collect();
    let parts = Parts::new(&texts, &live, &BTreeSet::from([100, 350]), false);
    let mut vocabulary = Vocabulary::new(settings.id());
    for (part, live) in parts.parts.iter().zip(&parts.live) {
        part.count_all(live.as_deref(), &mut vocabulary).unwrap();
    }
    for _ in 0..100 {
        let terms = Terms::of(&Tokenizer::new(settings), &seed.text(30));
        assert_eq!(vocabulary.counts(&terms), parts.counts(&terms));
    }
    let json = serde_json::to_string(&vocabulary).unwrap();
    assert_eq!(
        serde_json::from_str::<Vocabulary>(&json).unwrap(),
        vocabulary
    );
}

#[test]
fn scoring_with_counts_of_other_rows_does_not_panic() {
    let (_dir, words) = segment(Settings::default(), &all(&["cat dog", "dog", "emu"]));
    let terms = Terms::of(&Tokenizer::new(Settings::default()), "cat dog emu");
    for (rows, total_len, df) in [
        (1, 1, [5, 6, u64::MAX]),
        (0, 0, [0, 0, 0]),
        (10, 0, [0, 1, 2]),
        (u64::MAX, u64::MAX, [0, 1, u64::MAX]),
    ] {
        let scorer = Scorer::new(&Counts {
            rows,
            total_len,
            df: df.to_vec(),
        });
        let found = best([(&words as &dyn Indexed, None)], &terms, &scorer, 10).unwrap();
        assert_eq!(found.len(), 3, "{rows} {df:?}");
        assert!(found.iter().all(|f| f.score.is_finite() && f.score > 0.0));
    }
}

#[test]
fn rarer_terms_have_more_weight_and_unseen_ones_most() {
    let (_dir, words) = segment(Settings::default(), &all(&["cat", "dog", "emu"]));
    let terms = Terms::of(&Tokenizer::new(Settings::default()), "cat dog emu");
    let scorer = Scorer::new(&Counts {
        rows: 100,
        total_len: 100,
        df: vec![99, 1, 0],
    });
    let mut scores = [0.0; 3];
    words
        .score(&terms, &scorer, &[0, 1, 2], &mut scores)
        .unwrap();
    assert!(
        scores.is_sorted_by(|a, b| a < b) && scores[0] > 0.0,
        "{scores:?}"
    );
}

#[test]
fn unusual_texts_are_found_by_their_words() {
    let many: Vec<_> = (0..100_000).map(|n| format!("t{n}")).collect();
    let many = many.join(" ");
    let long = "x".repeat(1 << 20);
    let texts = [
        "",
        "\0\u{1b}[31mred\u{7f}",
        &many,
        "ผมรักภาษาไทย",
        "我们在东京看猫",
        "東京タワーへ行く",
        &long,
        "…",
    ];
    let settings = Settings::default();
    let tokenizer = Tokenizer::new(settings);
    let (_dir, words) = segment(settings, &all(&texts));
    let run = RunWords::of(&tokenizer, texts);
    for (query, expected) in [
        ("red", &[][..]),
        ("31mRED", &[1]),
        ("t0 t99999", &[2]),
        ("ภาษา", &[3]),
        ("东京", &[4]),
        ("東京", &[5]),
        ("猫", &[]),
        (&long, &[6]),
        ("the of and", &[]),
        ("", &[]),
        ("\0…", &[]),
    ] {
        let terms = Terms::of(&tokenizer, query);
        for part in [&words as &dyn Indexed, &run] {
            let scorer = Scorer::new(&part.count(&terms, None).unwrap());
            let found = best([(part, None)], &terms, &scorer, 10).unwrap();
            let rows: Vec<_> = found.iter().map(|f| f.row).collect();
            assert_eq!(rows, expected, "{:?}", query.get(..20));
        }
    }
    for part in [&words as &dyn Indexed, &run] {
        let terms = Terms::of(&tokenizer, &many);
        let counts = part.count(&terms, None).unwrap();
        assert_eq!(counts.rows, 8);
        assert!(counts.df.iter().all(|df| *df == 1));
    }
}

#[test]
fn segments_without_rows_or_words_find_nothing() {
    for texts in [&[][..], &[None; 70], &[Some(""), Some("..."), None]] {
        let (_dir, words) = segment(Settings::default(), texts);
        let terms = Terms::of(&Tokenizer::new(Settings::default()), "some words");
        let counts = words.count(&terms, None).unwrap();
        assert_eq!((counts.rows, counts.total_len), (texts.len() as u64, 0));
        let scorer = Scorer::new(&counts);
        let found = best([(&words as &dyn Indexed, None)], &terms, &scorer, 10).unwrap();
        assert!(found.is_empty());
        assert!(words.verify().is_empty());
    }
}

#[test]
fn rows_excluded_by_a_filter_are_not_found_but_still_counted() {
    let texts: Vec<_> = (0..200).map(|n| format!("cat number{n}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (_dir, words) = segment(Settings::default(), &all(&texts));
    let terms = Terms::of(&Tokenizer::new(Settings::default()), "cat");
    let scorer = Scorer::new(&words.count(&terms, None).unwrap());
    let mask = [0b101, 0, 1 << 63, 0];
    let part = (&words as &dyn Indexed, Some(&mask[..]));
    let found = best([part], &terms, &scorer, 10).unwrap();
    assert_eq!(found.iter().map(|f| f.row).collect::<Vec<_>>(), [0, 2, 191]);
    let mut all = [0.0; 2];
    words.score(&terms, &scorer, &[0, 1], &mut all).unwrap();
    assert_eq!(
        all, [found[0].score; 2],
        "a row that is asked for has its score"
    );
}
