//! The course of a run as an SVG: loss, recall and codeword use, one above the other, over the epochs.

use std::fmt::Write as _;

use super::run::EpochRecord;

const WIDTH: f64 = 640.0;
const PANEL: f64 = 150.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 26.0;

/// A picture of the epochs so far.
pub fn svg(records: &[EpochRecord]) -> String {
    let panels: [(&str, Vec<(usize, f64)>); 3] = [
        ("loss", records.iter().map(|r| (r.epoch, r.loss)).collect()),
        (
            "validation recall@10",
            records
                .iter()
                .filter_map(|r| Some((r.epoch, r.recall?)))
                .collect(),
        ),
        (
            "codewords in use (mean)",
            records
                .iter()
                .filter_map(|r| Some((r.epoch, r.used?)))
                .collect(),
        ),
    ];
    let last = records.last().map_or(1, |r| r.epoch).max(2);
    let height = 3.0 * PANEL + 10.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, (title, points)) in panels.iter().enumerate() {
        panel(
            &mut out,
            number as f64 * PANEL,
            title,
            points,
            last,
            records,
        );
    }
    out.push_str("</svg>\n");
    out
}

fn panel(
    out: &mut String,
    top: f64,
    title: &str,
    points: &[(usize, f64)],
    last: usize,
    records: &[EpochRecord],
) {
    let (y0, y1) = (top + PANEL - 22.0, top + TOP);
    let x =
        |epoch: usize| LEFT + (epoch as f64 - 1.0) / (last as f64 - 1.0) * (WIDTH - LEFT - RIGHT);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{title}</text>",
        top + 16.0
    );
    let _ = writeln!(
        out,
        "<path d=\"M{LEFT} {y1}V{y0}H{}\" fill=\"none\" stroke=\"#888\"/>",
        WIDTH - RIGHT
    );
    if let Some(end) = records
        .iter()
        .filter(|r| r.phase == "warmup")
        .map(|r| r.epoch)
        .max()
    {
        let end = x(end.min(last));
        let _ = writeln!(
            out,
            "<path d=\"M{end:.1} {y1}V{y0}\" stroke=\"#bbb\" stroke-dasharray=\"3 3\"/>"
        );
    }
    for epoch in [1, last] {
        let anchor = if epoch == 1 { "start" } else { "end" };
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{epoch}</text>",
            x(epoch),
            y0 + 13.0
        );
    }
    let low = points.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let high = points.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
    if !(low.is_finite() && high.is_finite()) {
        return;
    }
    let span = if high > low {
        high - low
    } else {
        high.abs().max(1.0)
    };
    let y = |value: f64| y0 - (value - low) / span * (y0 - y1);
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{y0}\" text-anchor=\"end\">{}</text>",
        LEFT - 5.0,
        number(low)
    );
    if high > low {
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT - 5.0,
            y1 + 8.0,
            number(high)
        );
    }
    let line: Vec<String> = points
        .iter()
        .map(|&(epoch, value)| format!("{:.1},{:.1}", x(epoch), y(value)))
        .collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#1f6fb4\" stroke-width=\"1.6\"/>",
        line.join(" ")
    );
    for &(epoch, value) in points {
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.2\" fill=\"#1f6fb4\"><title>epoch {epoch}: {}</title></circle>",
            x(epoch),
            y(value),
            number(value)
        );
    }
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.4}")
    }
}
