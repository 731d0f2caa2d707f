//! The report of a run as a page.

use std::fmt::Write as _;

use mopqdb_formats::page::page;
use mopqdb_formats::plot::escape;
use serde_json::Value as Json;

use super::plot;
use super::report::lines;
use super::run::EpochRecord;

/// Returns the page of a finished run.
pub(super) fn of(done: &Json, records: &[EpochRecord]) -> String {
    let mut body = String::from("<pre id=\"report\">");
    for line in lines(done) {
        let _ = writeln!(body, "{}", escape(&line));
    }
    body += "</pre>";
    if let Some(sizes) = done["report"]["other_sizes"].as_array() {
        body += "<h2>Bytes per row</h2><table id=\"sizes\"><tr><th class=\"n\">bytes per row</th><th class=\"n\">recall@10, estimated</th><th></th></tr>";
        for size in sizes {
            let recall = size["recall"].as_f64().unwrap_or(0.0);
            let _ = write!(
                body,
                "<tr><td class=\"n\">{}</td><td class=\"n\">{recall:.3}</td><td><svg class=\"use\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\"><rect width=\"{:.1}\" height=\"10\" fill=\"#888\"/></svg></td></tr>",
                size["bytes"],
                100.0 * recall
            );
        }
        body += "</table>";
    }
    if records.len() > 1 {
        let _ = write!(body, "<h2>Epochs</h2>{}", plot::svg(records));
    }
    let model = done["model"].as_str().unwrap_or_default();
    let method = done["method"].as_str().unwrap_or_default();
    let short = &model[..model.len().min(8)];
    page(
        "mopqdb train",
        &format!("What {method} {short} gained"),
        &body,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_page_has_the_lines_the_sizes_and_the_course() {
        let record = |epoch| EpochRecord {
            epoch,
            phase: "mopq".into(),
            loss: 1.0,
            recall: Some(0.5),
            used: None,
            pairs_per_second: 1.0,
            seconds: 1.0,
            cpu_seconds: 1.0,
        };
        let done = json!({
            "model": "0123456789abcdef", "method": "mopq",
            "report": {"pairs": 12, "other_sizes": [{"bytes": 16, "recall": 0.75}]},
        });
        let page = of(&done, &[record(1), record(2)]);
        for expected in [
            "<h1>What mopq 01234567 gained</h1>",
            "learned from 12 pairs",
            "<td class=\"n\">16</td><td class=\"n\">0.750</td>",
            "validation recall@10",
        ] {
            assert!(page.contains(expected), "{expected:?} in\n{page}");
        }
        assert!(!of(&json!({"report": {}}), &[]).contains("<h2>"));
    }
}
