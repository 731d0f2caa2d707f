//! Plots as SVG: points and lines over one or two scales. A plot brings its own panel, light or dark as the reader's system
//! is, so it is readable on any page.

use std::fmt::Write;

/// One named series.
#[derive(Debug, Clone)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// (x, y), joined in this order if `line`.
    pub points: Vec<(f64, f64)>,
    /// Join the points.
    pub line: bool,
    /// Draw it thick: ours.
    pub strong: bool,
    /// Draw the line in dashes.
    pub dashed: bool,
}

/// How a scale runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By powers of ten.
    Log,
}

/// A plot of series.
#[derive(Debug, Clone)]
pub struct Plot<'a> {
    /// Above it.
    pub title: &'a str,
    /// Under it.
    pub x: &'a str,
    /// At its left.
    pub y: &'a str,
    /// Of the x axis.
    pub x_scale: Scale,
    /// Of the y axis.
    pub y_scale: Scale,
    /// What is drawn.
    pub series: &'a [Series],
}

// Told apart by people who see red and green alike, and by a printer's greys; each on white and on near-black.
const COLOURS: [&str; 12] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56a4d9", "#8f6bd1", "#7f7f7f",
    "#a0522d", "#5f9e3f", "#c2185b", "#4db6ac",
];
const STYLE: &str = "<style>.panel{fill:#ffffff}.ink{fill:#24292f}.faint{stroke:#d0d7de;fill:none}\
@media (prefers-color-scheme:dark){.panel{fill:#161b22}.ink{fill:#e6edf3}.faint{stroke:#3d444d}}</style>";

const LEFT: f64 = 70.0;
const TOP: f64 = 44.0;
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 300.0;
/// Where the legend's words begin, and what a letter of them takes at most, on average.
const LEGEND: f64 = LEFT + WIDTH + 36.0;
const LETTER: f64 = 7.4;

impl Plot<'_> {
    /// As a whole SVG file.
    pub fn svg(&self) -> String {
        let xs = Axis::new(self.x_scale, self.values(|p| p.0));
        let ys = Axis::new(self.y_scale, self.values(|p| p.1));
        let at = |(x, y): (f64, f64)| {
            (
                LEFT + xs.place(x) * WIDTH,
                TOP + (1.0 - ys.place(y)) * HEIGHT,
            )
        };
        let (bottom, right) = (TOP + HEIGHT, LEFT + WIDTH);
        let height = (bottom + 56.0).max(TOP + 22.0 * self.series.len() as f64 + 20.0);
        let letters = self.series.iter().map(|s| s.name.chars().count()).max();
        let width = (LEGEND + LETTER * letters.unwrap_or(0) as f64 + 12.0)
            .ceil()
            .max(780.0);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"12\" role=\"img\">{STYLE}<title>{0}</title>\
             <rect class=\"panel\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\
             <text class=\"ink\" x=\"{LEFT}\" y=\"26\" font-size=\"15\">{0}</text>",
            escape(self.title)
        );
        for tick in xs.ticks() {
            let (x, _) = at((tick, 0.0));
            let _ = write!(
                svg,
                "<path class=\"faint\" d=\"M{x:.1} {TOP}V{bottom}\"/>\
                 <text class=\"ink\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 17.0,
                label(tick)
            );
        }
        for tick in ys.ticks() {
            let y = TOP + (1.0 - ys.place(tick)) * HEIGHT;
            let _ = write!(
                svg,
                "<path class=\"faint\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                 <text class=\"ink\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                label(tick)
            );
        }
        let _ = write!(
            svg,
            "<text class=\"ink\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text class=\"ink\" transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            LEFT + WIDTH / 2.0,
            bottom + 40.0,
            escape(self.x),
            TOP + HEIGHT / 2.0,
            escape(self.y)
        );
        for (n, series) in self.series.iter().enumerate() {
            self.draw(&mut svg, n, series, &at);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw(
        &self,
        svg: &mut String,
        n: usize,
        series: &Series,
        at: &dyn Fn((f64, f64)) -> (f64, f64),
    ) {
        let colour = COLOURS[n % COLOURS.len()];
        // Where colours come round again, points are rings.
        let paint = match n < COLOURS.len() {
            true => format!("fill=\"{colour}\""),
            false => format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\""),
        };
        let points: Vec<(f64, f64)> = series.points.iter().map(|&p| at(p)).collect();
        let thick = if series.strong { 3.0 } else { 1.8 };
        let dashes = if series.dashed {
            " stroke-dasharray=\"6 4\""
        } else {
            ""
        };
        if series.line && points.len() > 1 {
            let path: Vec<String> = points
                .iter()
                .map(|(x, y)| format!("{x:.1} {y:.1}"))
                .collect();
            let _ = write!(
                svg,
                "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{thick}\"{dashes}/>",
                path.join("L")
            );
        }
        let radius = if series.strong { 6.0 } else { 4.0 };
        for (x, y) in points {
            let _ = write!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" {paint}/>"
            );
        }
        let y = TOP + 10.0 + 22.0 * n as f64;
        let x = LEGEND - 12.0;
        let weight = if series.strong { "bold" } else { "normal" };
        let _ = write!(
            svg,
            "<circle cx=\"{x}\" cy=\"{}\" r=\"{radius}\" {paint}/>\
             <text class=\"ink\" x=\"{LEGEND}\" y=\"{y}\" font-weight=\"{weight}\">{}</text>",
            y - 4.0,
            escape(&series.name)
        );
    }

    fn values(&self, of: impl Fn(&(f64, f64)) -> f64) -> Vec<f64> {
        self.series
            .iter()
            .flat_map(|series| series.points.iter().map(&of))
            .collect()
    }
}

struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    fn new(scale: Scale, values: Vec<f64>) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = match scale {
            _ if values.is_empty() => (0.1, 1.0),
            Scale::Log => (least * 0.7, most * 1.4),
            Scale::Linear => {
                let room = ((most - least) * 0.08).max(most.abs() * 0.02).max(1e-9);
                ((least - room).max(0.0).min(least), most + room)
            }
        };
        Self { scale, low, high }
    }

    /// 0 at the low end, 1 at the high one.
    fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => {
                (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
            }
        };
        place.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let rough = (self.high - self.low) / 5.0;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .map(|n| n * power)
                    .into_iter()
                    .find(|step| *step >= rough)
                    .unwrap_or(10.0 * power);
                let first = (self.low / step).ceil() as i64;
                let last = (self.high / step).floor() as i64;
                (first..=last).map(|n| n as f64 * step).collect()
            }
            Scale::Log => {
                let within = |value: &f64| (self.low..=self.high).contains(value);
                let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
                let of = |steps: &[f64]| -> Vec<f64> {
                    powers
                        .clone()
                        .flat_map(|p| steps.iter().map(move |n| n * 10f64.powi(p)))
                        .filter(within)
                        .collect()
                };
                let tens = of(&[1.0]);
                if tens.len() >= 3 {
                    tens
                } else {
                    of(&[1.0, 2.0, 5.0])
                }
            }
        }
    }
}

fn label(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{}M", value / 1e6),
        v if v >= 1e3 => format!("{}k", value / 1e3),
        v if v >= 1.0 => format!("{value:.0}"),
        0.0 => "0".into(),
        _ => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').to_owned()
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(points: &[(f64, f64)]) -> Series {
        Series {
            name: "a < b & c".into(),
            points: points.to_vec(),
            line: true,
            strong: false,
            dashed: false,
        }
    }

    #[test]
    fn a_plot_has_a_panel_of_its_own_and_all_points_inside() {
        let series = [series(&[(1.0, 10.0), (8.0, 100_000.0)])];
        let svg = Plot {
            title: "t",
            x: "x",
            y: "y",
            x_scale: Scale::Linear,
            y_scale: Scale::Log,
            series: &series,
        }
        .svg();
        assert!(svg.contains("prefers-color-scheme:dark") && svg.contains("class=\"panel\""));
        assert!(svg.contains("a &lt; b &amp; c"), "{svg}");
        for part in svg.split("<circle cx=\"").skip(1).take(2) {
            let x: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((LEFT..=LEFT + WIDTH).contains(&x), "{x}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_long_legend_has_room_and_no_two_series_look_alike() {
        let named = |n: usize| Series {
            name: format!("an index with a long name, number {n}"),
            ..series(&[(n as f64, 1.0)])
        };
        let all: Vec<Series> = (1..=COLOURS.len() + 2).map(named).collect();
        let svg = Plot {
            title: "t",
            x: "x",
            y: "y",
            x_scale: Scale::Linear,
            y_scale: Scale::Linear,
            series: &all,
        }
        .svg();
        let width = svg.split(" width=\"").nth(1).unwrap();
        let width: f64 = width.split('"').next().unwrap().parse().unwrap();
        assert!(width > LEGEND + 7.0 * all[0].name.len() as f64);
        let mut looks: Vec<&str> = svg
            .split("<circle ")
            .skip(1)
            .map(|part| &part[part.find("fill").unwrap()..part.find("/>").unwrap()])
            .collect();
        looks.sort_unstable();
        looks.dedup();
        assert_eq!(looks.len(), all.len());
    }

    #[test]
    fn ticks_are_round_and_within() {
        let axis = Axis::new(Scale::Linear, vec![0.31, 0.74]);
        let ticks = axis.ticks();
        assert!(ticks.len() >= 3, "{ticks:?}");
        assert!(ticks.iter().all(|t| (axis.low..=axis.high).contains(t)));
        assert_eq!(Axis::new(Scale::Log, vec![8.0, 16.0]).ticks(), [10.0, 20.0]);
        assert_eq!(
            Axis::new(Scale::Log, vec![3.0, 4000.0]).ticks(),
            [10.0, 100.0, 1000.0]
        );
    }

    #[test]
    fn a_plot_of_one_point_or_none_is_still_a_plot() {
        for series in [
            vec![],
            vec![series(&[(0.5, 0.5)])],
            vec![series(&[(0.0, 0.0)])],
        ] {
            let svg = Plot {
                title: "",
                x: "",
                y: "",
                x_scale: Scale::Linear,
                y_scale: Scale::Linear,
                series: &series,
            }
            .svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
