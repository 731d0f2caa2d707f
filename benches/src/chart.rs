//! A bar chart as SVG, by hand: no plotting library is worth its build here.

use std::fmt::Write;

/// One group of bars: a label, and a value for each of the chart's series, if it was measured.
pub struct Group {
    /// What was measured.
    pub label: String,
    /// One a series.
    pub values: Vec<Option<f64>>,
}

const COLOURS: [&str; 4] = ["#2a6f97", "#c1666b", "#d4b483", "#7a9e7e"];

/// Horizontal bars, on one linear scale.
pub fn bars(title: &str, unit: &str, series: &[&str], groups: &[Group]) -> String {
    let (left, width, bar) = (330.0, 520.0, 13.0);
    let largest = groups
        .iter()
        .flat_map(|g| g.values.iter().flatten())
        .fold(f64::MIN_POSITIVE, |max, v| max.max(*v));
    let height = 70.0 + groups.len() as f64 * (series.len() as f64 * bar + 10.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"980\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/><text x=\"12\" y=\"22\" \
         font-size=\"15\">{title} ({unit})</text>"
    );
    for (i, name) in series.iter().enumerate() {
        let x = left + 170.0 * i as f64;
        let _ = write!(
            svg,
            "<rect x=\"{x}\" y=\"34\" width=\"11\" height=\"11\" fill=\"{}\"/><text x=\"{}\" y=\"44\">{name}</text>",
            COLOURS[i % COLOURS.len()],
            x + 16.0
        );
    }
    let mut y = 60.0;
    for group in groups {
        let _ = write!(
            svg,
            "<text x=\"12\" y=\"{}\">{}</text>",
            y + bar,
            group.label
        );
        for (i, value) in group.values.iter().enumerate() {
            if let Some(value) = value {
                let length = value / largest * width;
                let _ = write!(
                    svg,
                    "<rect x=\"{left}\" y=\"{y}\" width=\"{length:.1}\" height=\"{}\" fill=\"{}\"/>\
                     <text x=\"{:.1}\" y=\"{}\">{value:.3}</text>",
                    bar - 2.0,
                    COLOURS[i % COLOURS.len()],
                    left + length + 4.0,
                    y + bar - 3.0
                );
            }
            y += bar;
        }
        y += 10.0;
    }
    svg.push_str("</svg>\n");
    svg
}
