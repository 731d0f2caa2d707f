//! Markdown tables, and numbers as people read them.

/// A table with a head. Cells may hold anything but line ends.
#[derive(Debug, Clone)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With these columns.
    pub fn new(head: &[&str]) -> Self {
        Self {
            head: head.iter().map(|cell| (*cell).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// One more row.
    ///
    /// # Panics
    /// If it has not as many cells as there are columns.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "a cell a column: {cells:?}");
        self.rows.push(cells);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells
                .iter()
                .map(|cell| cell.replace('|', "\\|").replace('\n', " "))
                .collect();
            format!("| {} |", cells.join(" | "))
        };
        writeln!(f, "{}", line(&self.head))?;
        writeln!(f, "|{}", "---|".repeat(self.head.len()))?;
        for row in &self.rows {
            writeln!(f, "{}", line(row))?;
        }
        Ok(())
    }
}

/// Three digits that count: 12,300, 123, 12.3, 1.23, 0.0123.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    if value == 0.0 {
        return "0".into();
    }
    let digits = value.abs().log10().floor() as i32;
    // Rounding may carry: 9.996 is 10.0.
    let unit = 10f64.powi(digits - 2);
    let rounded = (value / unit).round() * unit;
    let digits = rounded.abs().log10().floor() as i32;
    if digits >= 3 {
        thousands(rounded.round() as i64)
    } else {
        format!("{rounded:.*}", (2 - digits).clamp(0, 9) as usize)
    }
}

/// As [`number`], or a dash where nothing was measured.
pub fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), number)
}

/// A recall: .123.
pub fn recall(value: Option<f64>) -> String {
    match value {
        None => "–".into(),
        Some(value) if value >= 0.9995 => "1".into(),
        Some(value) => format!("{value:.3}").trim_start_matches('0').to_owned(),
    }
}

/// 1,234,567.
pub fn thousands(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if n < 0 { format!("-{out}") } else { out }
}

/// The middle one, or the mean of the middle two.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_a_row_and_no_stray_bars() {
        let mut table = Table::new(&["peer", "q/s"]);
        table.row(vec!["a|b".into(), "1\n2".into()]);
        assert_eq!(
            table.to_string(),
            "| peer | q/s |\n|---|---|\n| a\\|b | 1 2 |\n"
        );
    }

    #[test]
    #[should_panic(expected = "a cell a column")]
    fn a_row_with_a_cell_too_few_is_refused() {
        Table::new(&["peer", "q/s"]).row(vec!["a".into()]);
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        let cases = [
            (0.0, "0"),
            (0.012345, "0.0123"),
            (1.0, "1.00"),
            (9.996, "10.0"),
            (99.96, "100"),
            (123.4, "123"),
            (999.6, "1,000"),
            (12_345.0, "12,300"),
            (-4_567_890.0, "-4,570,000"),
            (f64::NAN, "–"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn recalls_are_short() {
        assert_eq!(recall(Some(0.1234)), ".123");
        assert_eq!(recall(Some(0.9999)), "1");
        assert_eq!(recall(Some(0.0)), ".000");
        assert_eq!(recall(None), "–");
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
