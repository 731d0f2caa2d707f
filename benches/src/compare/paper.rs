//! What the paper published, to stand beside what was measured here.

/// A published figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// `8x256`.
    pub size: String,
    /// As the trainer's table calls it: `mopq-b`.
    pub system: String,
    /// `quora`, `news`, `wiki`, `ads`.
    pub set: String,
    /// R@10, R@50, R@100.
    pub recall: [Option<f64>; 3],
}

/// Every recall of its tables.
pub fn recalls() -> Vec<Published> {
    lines(include_str!("../../paper/recall.tsv"))
        .map(|cells| Published {
            size: cells[0].into(),
            system: cells[1].into(),
            set: cells[2].into(),
            recall: numbers(&cells[3..]),
        })
        .collect()
}

/// MoPQ-b by selection function: the size is its name.
pub fn selections() -> Vec<Published> {
    lines(include_str!("../../paper/selection.tsv"))
        .map(|cells| Published {
            size: cells[0].into(),
            system: "mopq-b".into(),
            set: cells[1].into(),
            recall: numbers(&cells[2..]),
        })
        .collect()
}

/// The published set that one of ours stands for, and whether it is of the same kind.
pub fn counterpart(set: &str) -> (&'static str, &'static str) {
    match set {
        "quora" => (
            "quora",
            "the same kind of pairs, other questions and fewer keys",
        ),
        "wiki" => ("wiki", "the same kind of pairs, a tenth of the keys"),
        _ => (
            "news",
            "another kind of text: a headline and its body there",
        ),
    }
}

/// Bytes a key of `MxL`.
pub fn bytes(size: &str) -> Option<f64> {
    let (subspaces, codewords) = size.split_once('x')?;
    let (m, l): (f64, f64) = (subspaces.parse().ok()?, codewords.parse().ok()?);
    Some(m * l.log2().ceil() / 8.0)
}

fn lines(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .skip(1)
        .map(|line| line.split('\t').collect())
}

fn numbers(cells: &[&str]) -> [Option<f64>; 3] {
    [0, 1, 2].map(|n| cells.get(n).and_then(|cell| cell.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_the_paper_is_there_but_for_the_malformed_one() {
        let all = recalls();
        let count = |size: &str| all.iter().filter(|p| p.size == size).count();
        assert_eq!(count("8x256"), 9 * 4);
        assert_eq!(["4x128", "4x256", "16x256"].map(count), [8 * 4; 3]);
        let empty: Vec<&Published> = all.iter().filter(|p| p.recall.contains(&None)).collect();
        assert_eq!(empty.len(), 1, "{empty:?}");
        let dcs = all
            .iter()
            .find(|p| (&*p.size, &*p.system, &*p.set) == ("8x256", "mopq-dcs", "quora"))
            .unwrap();
        assert_eq!(dcs.recall, [Some(0.6717), Some(0.8976), Some(0.9416)]);
        assert!(
            all.iter()
                .all(|p| p.recall.iter().flatten().all(|r| (0.0..1.0).contains(r)))
        );
        assert_eq!(selections().len(), 4 * 4);
    }

    #[test]
    fn code_sizes_are_bytes() {
        assert_eq!(bytes("8x256"), Some(8.0));
        assert_eq!(bytes("4x128"), Some(3.5));
        assert_eq!(bytes("eight"), None);
    }
}
