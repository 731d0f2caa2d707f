//! Small charts as SVG, to stand inside a page.

use std::fmt::Write;

/// Colours that are told apart by most eyes, on light and dark.
pub(super) const COLOURS: [&str; 8] = [
    "#3b7dd8", "#e08214", "#2a9d5c", "#b5498c", "#7a6bd1", "#c0392b", "#1b9e9e", "#8a6d3b",
];

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 38.0;

/// A line of a chart.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) colour: &'static str,
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// A chart of lines. `log_x`: equal steps are equal factors.
pub(super) fn lines(x_name: &str, y_name: &str, log_x: bool, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let (x_low, x_high) = range(all().map(|point| point.0));
    let (y_low, y_high) = padded(range(all().map(|point| point.1)));
    let scale = |x: f64| if log_x { x.max(1e-9).ln() } else { x };
    let across = |x: f64| {
        let share = (scale(x) - scale(x_low)) / (scale(x_high) - scale(x_low)).max(1e-12);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    };
    let down = |y: f64| TOP + (y_high - y) / (y_high - y_low).max(1e-12) * (HEIGHT - TOP - BOTTOM);

    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{y_name} by {x_name}\">"
    );
    for n in 0..=4 {
        let y = y_low + (y_high - y_low) * f64::from(n) / 4.0;
        let at = down(y);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            number(y)
        );
    }
    for x in ticks(x_low, x_high, log_x) {
        let at = across(x);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 15.0,
            number(x)
        );
    }
    for line in lines {
        let points: Vec<String> = line
            .points
            .iter()
            .map(|&(x, y)| format!("{:.1},{:.1}", across(x), down(y)))
            .collect();
        let dash = if line.dashed {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{dash} points=\"{}\"/>",
            line.colour,
            points.join(" ")
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x_name}</text><text transform=\"translate(13,{:.1}) rotate(-90)\" text-anchor=\"middle\">{y_name}</text></svg>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 6.0,
        (TOP + HEIGHT - BOTTOM) / 2.0
    );
    svg
}

/// The legend of lines, as HTML.
pub(super) fn legend(lines: &[Line]) -> String {
    let mut html = String::from("<p class=\"legend\">");
    for line in lines {
        let style = if line.dashed { "dashed" } else { "solid" };
        let _ = write!(
            html,
            "<span><i style=\"border-top:3px {style} {}\"></i>{}</span> ",
            line.colour,
            super::html::escape(&line.name)
        );
    }
    html + "</p>"
}

/// How often each codeword of a subspace is used, most used first: a bar each.
pub(super) fn usage(counts: &[u64], colour: &str) -> String {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let most = sorted.first().copied().unwrap_or(0).max(1) as f64;
    let (width, height) = (256.0, 44.0);
    let step = width / sorted.len().max(1) as f64;
    let mut path = format!("M0,{height}");
    for (n, &count) in sorted.iter().enumerate() {
        let top = height * (1.0 - count as f64 / most);
        let _ = write!(
            path,
            "L{:.2},{top:.2}L{:.2},{top:.2}",
            n as f64 * step,
            (n + 1) as f64 * step
        );
    }
    format!(
        "<svg class=\"use\" viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\"><path fill=\"{colour}\" d=\"{path}L{width},{height}Z\"/></svg>"
    )
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    match low <= high {
        true => (low, high),
        false => (0.0, 1.0),
    }
}

/// All the same: room below, none above, so that a recall of 1 stays the top.
fn padded((low, high): (f64, f64)) -> (f64, f64) {
    match high - low {
        width if width > 1e-12 => (low, high),
        _ => (low - 0.1 * low.abs().max(1.0), high),
    }
}

fn ticks(low: f64, high: f64, log: bool) -> Vec<f64> {
    if log {
        let all = [
            1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0,
        ];
        return all
            .into_iter()
            .filter(|tick| (low..=high).contains(tick))
            .collect();
    }
    let step = ((high - low) / 6.0).max(1.0).ceil();
    let count = ((high - low) / step) as usize;
    (0..=count).map(|n| low + n as f64 * step).collect()
}

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
