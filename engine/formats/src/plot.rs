//! Draws small line charts as SVG, to embed in a page or as standalone pictures.
//!
//! ```
//! use mopqdb_formats::plot::{COLOURS, Chart, Line, picture};
//!
//! let losses = [Line {
//!     name: "loss".into(),
//!     colour: COLOURS[0],
//!     dashed: false,
//!     points: vec![(1.0, 0.9), (2.0, 0.5), (3.0, 0.4)],
//! }];
//! let chart = Chart::new("epoch", "loss", &losses).dotted();
//! assert!(picture(&[chart]).starts_with("<svg xmlns="));
//! ```

use std::fmt::Write;

/// Colours that most people can distinguish, on light and dark backgrounds.
pub const COLOURS: [&str; 8] = [
    "#3b7dd8", "#e08214", "#2a9d5c", "#b5498c", "#7a6bd1", "#c0392b", "#1b9e9e", "#8a6d3b",
];

const WIDTH: f64 = 640.0;
/// The height of a chart, both in a page and in a picture.
const HEIGHT: f64 = 320.0;
const PANEL: f64 = 170.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 36.0;

/// The rules that a page has in its own style sheet.
const STYLE: &str = "text{fill:#222}.grid{stroke:#222;opacity:.15}.mark{stroke:#222;opacity:.4}";

/// A line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The name of the line in a legend.
    pub name: String,
    /// The colour: one of [`COLOURS`], or another one.
    pub colour: &'static str,
    /// Whether it is drawn dashed.
    pub dashed: bool,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
}

impl Line {
    /// Returns the points with finite coordinates.
    fn finite(&self) -> impl Iterator<Item = (f64, f64)> {
        let points = self.points.iter().copied();
        points.filter(|(x, y)| x.is_finite() && y.is_finite())
    }
}

/// A chart of lines over integers, such as epochs or depths.
#[derive(Debug, Clone, Copy)]
pub struct Chart<'a> {
    x_name: &'a str,
    y_name: &'a str,
    lines: &'a [Line],
    log_x: bool,
    dotted: bool,
    mark: Option<f64>,
}

impl<'a> Chart<'a> {
    /// Creates a chart of these lines, with the names of the axes.
    pub fn new(x_name: &'a str, y_name: &'a str, lines: &'a [Line]) -> Self {
        Self {
            x_name,
            y_name,
            lines,
            log_x: false,
            dotted: false,
            mark: None,
        }
    }

    /// Makes the x axis logarithmic.
    pub fn log_x(mut self) -> Self {
        self.log_x = true;
        self
    }

    /// Marks each point with a dot that shows its value under the pointer.
    pub fn dotted(mut self) -> Self {
        self.dotted = true;
        self
    }

    /// Draws a dashed vertical line at `x`, if given.
    pub fn marked_at(mut self, x: Option<f64>) -> Self {
        self.mark = x;
        self
    }

    /// Returns the chart for embedding in a page, whose style sheet gives `.grid` and `.mark` a stroke.
    pub fn inline(&self) -> String {
        let (x, y) = (escape(self.x_name), escape(self.y_name));
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{y} by {x}\">"
        );
        self.draw(&mut svg, 0.0, HEIGHT, self.across());
        svg + "</svg>"
    }

    /// Returns the smallest and largest x of its points.
    fn across(&self) -> Option<(f64, f64)> {
        range(self.points().map(|point| point.0))
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines.iter().flat_map(Line::finite)
    }

    /// Draws the chart from `top` on, over the range `x`.
    fn draw(&self, svg: &mut String, top: f64, height: f64, x: Option<(f64, f64)>) {
        let (right, roof, floor) = (WIDTH - RIGHT, top + TOP, top + height - BOTTOM);
        let _ = write!(
            svg,
            "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\">{}</text>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            roof - 12.0,
            escape(self.y_name),
            (LEFT + right) / 2.0,
            floor + 30.0,
            escape(self.x_name),
        );
        let mut rule = |x1: f64, x2: f64, y1: f64, y2: f64, class: &str| {
            let _ = write!(
                svg,
                "<line {class} x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>"
            );
        };
        let (Some((x_low, x_high)), Some(y)) = (x, range(self.points().map(|point| point.1)))
        else {
            // Nothing has been measured yet.
            rule(LEFT, right, floor, floor, "class=\"grid\"");
            return;
        };
        let (y_low, y_high) = padded(y);
        let scale = |x: f64| if self.log_x { x.max(1e-9).ln() } else { x };
        let across = |x: f64| {
            let share = (scale(x) - scale(x_low)) / (scale(x_high) - scale(x_low)).max(1e-12);
            LEFT + share * (right - LEFT)
        };
        let down = |y: f64| roof + (y_high - y) / (y_high - y_low) * (floor - roof);

        let values: Vec<f64> = (0..=4)
            .map(|n| y_low + (y_high - y_low) * f64::from(n) / 4.0)
            .collect();
        let ticks = ticks(x_low, x_high, self.log_x);
        for &y in &values {
            rule(LEFT, right, down(y), down(y), "class=\"grid\"");
        }
        for &x in &ticks {
            rule(across(x), across(x), roof, floor, "class=\"grid\"");
        }
        if let Some(x) = self.mark.filter(|x| (x_low..=x_high).contains(x)) {
            let class = "class=\"mark\" stroke-dasharray=\"3 3\"";
            rule(across(x), across(x), roof, floor, class);
        }
        let digits = digits((y_high - y_low) / 4.0);
        for y in values {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{y:.digits$}</text>",
                LEFT - 6.0,
                down(y) + 4.0
            );
        }
        for x in ticks {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x:.0}</text>",
                across(x),
                floor + 15.0
            );
        }
        for line in self.lines {
            let path: Vec<String> = (line.finite())
                .map(|(x, y)| format!("{:.1},{:.1}", across(x), down(y)))
                .collect();
            let dash = match line.dashed {
                true => " stroke-dasharray=\"5 4\"",
                false => "",
            };
            let _ = write!(
                svg,
                "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{dash} points=\"{}\"/>",
                line.colour,
                path.join(" ")
            );
            for (x, y) in line.finite().filter(|_| self.dotted) {
                let _ = write!(
                    svg,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{}\"><title>{} {x}: {y:.*}</title></circle>",
                    across(x),
                    down(y),
                    line.colour,
                    escape(self.x_name),
                    digits + 1,
                );
            }
        }
    }
}

/// Draws charts one above the other, over the same range, as a standalone picture.
pub fn picture(charts: &[Chart<'_>]) -> String {
    let height = PANEL * charts.len() as f64 + 8.0;
    let ends = charts.iter().filter_map(Chart::across);
    let x = range(ends.flat_map(|(low, high)| [low, high]));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<style>{STYLE}</style><rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (n, chart) in charts.iter().enumerate() {
        chart.draw(&mut svg, n as f64 * PANEL, PANEL, x);
        svg.push('\n');
    }
    svg + "</svg>\n"
}

/// Draws counts as bars without labels, the largest first, for embedding in a page.
pub fn bars(counts: &[u64], colour: &str) -> String {
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

/// Returns a text escaped for a page or a picture.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Returns the smallest and the largest value, if there are any.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let ends = |ends: Option<(f64, f64)>, value: f64| match ends {
        Some((low, high)) => Some((low.min(value), high.max(value))),
        None => Some((value, value)),
    };
    values.fold(None, ends)
}

/// Adds space below if all values are equal, but none above, so that a recall of 1 stays at the top.
fn padded((low, high): (f64, f64)) -> (f64, f64) {
    match high - low {
        width if width > 1e-12 => (low, high),
        _ => (high - 0.1 * high.abs().max(1.0), high),
    }
}

/// Returns the integers to label on the axis.
fn ticks(low: f64, high: f64, log: bool) -> Vec<f64> {
    let decades = (0..16).map(|n| 10f64.powi(n));
    let mut round = decades.flat_map(|ten| [1.0, 2.0, 5.0].map(|n| n * ten));
    if log {
        return round.filter(|tick| (low..=high).contains(tick)).collect();
    }
    let least = (high - low) / 8.0;
    let step = round.find(|&step| step >= least).unwrap_or(least);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|n| n as f64 * step).collect()
}

/// Returns how many decimal places distinguish numbers that are `step` apart.
fn digits(step: f64) -> usize {
    (1.0 - step.log10()).ceil().clamp(0.0, 9.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> Line {
        Line {
            name: "a line".into(),
            colour: COLOURS[0],
            dashed: false,
            points: points.to_vec(),
        }
    }

    /// Returns the points of each line, in order.
    fn drawn(svg: &str) -> Vec<Vec<(f64, f64)>> {
        let lines = svg.split("points=\"").skip(1);
        let number = |text: &str| text.parse::<f64>().unwrap();
        lines
            .map(|rest| rest.split('"').next().unwrap())
            .map(|points| {
                let pairs = points.split_whitespace();
                let pair = |pair: &str| pair.split_once(',').map(|(x, y)| (number(x), number(y)));
                pairs.map(|of| pair(of).unwrap()).collect()
            })
            .collect()
    }

    /// Returns the texts in the picture.
    fn texts(svg: &str) -> Vec<&str> {
        let texts = svg.split("<text ").skip(1);
        texts
            .map(|rest| rest.split(['>', '<']).nth(1).unwrap())
            .collect()
    }

    #[test]
    fn lines_reach_the_corners_of_the_chart() {
        let lines = [line(&[(1.0, 0.0), (3.0, 2.0)]), line(&[(2.0, 1.0)])];
        let svg = Chart::new("epoch", "loss", &lines).inline();
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let (top, bottom) = (TOP, HEIGHT - BOTTOM);
        let middle = ((left + right) / 2.0, (top + bottom) / 2.0);
        assert_eq!(
            drawn(&svg),
            [vec![(left, bottom), (right, top)], vec![middle]]
        );
        let said = texts(&svg);
        assert_eq!(said[..2], ["loss", "epoch"]);
        assert_eq!(said[2..7], ["0.00", "0.50", "1.00", "1.50", "2.00"]);
        assert_eq!(said[7..], ["1", "2", "3"]);
    }

    #[test]
    fn equal_factors_are_equal_steps_on_a_logarithmic_axis() {
        let lines = [line(&[(1.0, 0.5), (10.0, 0.5), (100.0, 1.0)])];
        let svg = Chart::new("k", "recall", &lines).log_x().inline();
        let points = &drawn(&svg)[0];
        assert_eq!(points[1].0 - points[0].0, points[2].0 - points[1].0);
        let said = texts(&svg);
        assert_eq!(said[7..], ["1", "2", "5", "10", "20", "50", "100"]);
    }

    #[test]
    fn the_charts_of_a_picture_share_the_x_axis() {
        let (whole, late) = (
            [line(&[(1.0, 9.0), (2.0, 8.0), (5.0, 7.0)])],
            [line(&[(5.0, 0.5)])],
        );
        let chart = Chart::new("epoch", "a < b", &whole);
        let svg = picture(&[
            chart.marked_at(Some(2.0)),
            Chart::new("epoch", "recall", &late).dotted(),
            Chart::new("epoch", "not measured", &[]),
        ]);
        let lines = drawn(&svg);
        assert_eq!(lines.len(), 2, "a line without points is not drawn");
        assert_eq!(lines[0][2].0, lines[1][0].0);
        assert!(lines[1][0].1 > PANEL, "the second is under the first");
        let mark = format!(
            "<line class=\"mark\" stroke-dasharray=\"3 3\" x1=\"{:.1}\"",
            { lines[0][1].0 }
        );
        assert!(svg.contains(&mark), "{svg}");
        assert!(svg.contains("<title>epoch 5: 0.5000</title>"), "{svg}");
        assert!(svg.contains("a &lt; b"), "{svg}");
        assert!(texts(&svg).contains(&"not measured"));
    }

    #[test]
    fn values_that_are_not_finite_are_left_out() {
        let points = [
            (1.0, f64::NAN),
            (2.0, 1.0),
            (3.0, 2.0),
            (4.0, f64::INFINITY),
        ];
        let svg = Chart::new("epoch", "loss", &[line(&points)])
            .dotted()
            .inline();
        let (left, right) = (LEFT, WIDTH - RIGHT);
        assert_eq!(drawn(&svg), [[(left, HEIGHT - BOTTOM), (right, TOP)]]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn an_axis_has_a_few_distinct_round_labels() {
        for (high, named) in [
            (2.0, vec![1.0, 2.0]),
            (8.0, (1..=8).map(f64::from).collect()),
            (40.0, (1..=8).map(|n| 5.0 * f64::from(n)).collect()),
            (1000.0, (1..=5).map(|n| 200.0 * f64::from(n)).collect()),
        ] {
            assert_eq!(ticks(1.0, high, false), named, "to {high}");
        }
        for (step, needed) in [(0.0001, 5), (0.025, 3), (0.25, 2), (2.5, 1), (25.0, 0)] {
            assert_eq!(digits(step), needed, "{step}");
        }
    }

    #[test]
    fn bars_descend_from_left_to_right() {
        let svg = bars(&[1, 0, 2], "red");
        let path =
            "M0,44L0.00,0.00L85.33,0.00L85.33,22.00L170.67,22.00L170.67,44.00L256.00,44.00L256,44Z";
        assert!(svg.contains(path), "{svg}");
    }
}
