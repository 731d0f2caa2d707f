//! The report as a self-contained page: recall curves, training curves, codeword use, hits side by side.

use super::SEED;
use super::measure::{Facts, Measured, tells_exact};
use anyhow::Result;
use mopqdb::eval::{Questions, bootstrap};
use mopqdb::{Search, Snapshot};
use mopqdb_formats::page;
use mopqdb_formats::plot::{COLOURS, Chart, Line, bars, escape};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write;

/// Queries whose hits are shown.
pub(super) const SAMPLES: usize = 12;

/// Lines whose hits are shown: two models, each searched in three ways.
const SIDES: usize = 6;

/// Returns the page.
pub(super) fn page(
    measured: &[Measured],
    cuts: &[usize],
    questions: &Questions,
    snapshot: &Snapshot,
) -> Result<String> {
    let lines: Vec<&Measured> = measured.iter().collect();
    let models: Vec<&Facts> = (0..lines.len())
        .filter(|n| Measured::begins(&lines, *n))
        .map(|n| &*lines[n].model)
        .collect();
    let heading = format!(
        "Recall of {} on {} queries over {} rows",
        match &models[..] {
            [one] => name(one),
            many => format!("{} models", many.len()),
        },
        questions.all.len(),
        snapshot.rows()
    );
    let mut page = String::new();
    page += &figures(&lines, cuts);
    page += "<h2>Recall by depth</h2>";
    page += &curves(&lines, cuts);
    page += &training(&models);
    page += &codewords(&models);
    page += &hits(&lines, questions, snapshot)?;
    Ok(page::page("mopqdb eval", &heading, &page))
}

fn name(model: &Facts) -> String {
    format!("{} {}", model.method, model.short())
}

/// Returns the model and how its rows were searched.
fn title(line: &Measured) -> String {
    let name = name(&line.model);
    match (line.ranks.search, &line.model.codes) {
        (_, None) | (Search::Exact, _) => format!("{name}: exact"),
        (Search::Codes, _) => format!("{name}: codes"),
        (Search::Words, _) => format!("{name}: words"),
        _ => format!("{name}: codes, then stored vectors"),
    }
}

fn figures(lines: &[&Measured], cuts: &[usize]) -> String {
    let mut html = String::from("<table id=\"figures\"><tr><th>model and search</th>");
    for k in cuts {
        let _ = write!(html, "<th class=\"n\">recall@{k}</th>");
    }
    html += "<th class=\"n\">loss / spread</th><th class=\"n\">distinct codes</th></tr>";
    for line in lines {
        let mark = if line.model.active { " (active)" } else { "" };
        let _ = write!(html, "<tr><td>{}{mark}</td>", escape(&title(line)));
        for &k in cuts {
            let interval = bootstrap::interval(&line.ranks.recalls(k), SEED);
            let _ = write!(
                html,
                "<td class=\"n\">{:.4}<br><small>{:.3}–{:.3}</small></td>",
                line.ranks.recall(k),
                interval.low,
                interval.high
            );
        }
        match line.codes() {
            Some(codes) => {
                let _ = write!(
                    html,
                    "<td class=\"n\">{:.4}</td><td class=\"n\">{}</td></tr>",
                    codes.relative_distortion, codes.distinct
                );
            }
            None => html += "<td class=\"n\">–</td><td class=\"n\">–</td></tr>",
        }
    }
    html + "</table><p><small>Intervals are 95%, by bootstrap over queries. Ties count by chance.</small></p>"
}

/// Returns the depths of a curve: every one at first, then some.
fn depths(deepest: usize) -> Vec<usize> {
    let mut depths: Vec<usize> = (1..=deepest.min(20)).collect();
    let mut next = 24.0_f64;
    while (next as usize) < deepest {
        depths.push(next as usize);
        next *= 1.15;
    }
    if deepest > 20 {
        depths.push(deepest);
    }
    depths
}

fn curves(lines: &[&Measured], cuts: &[usize]) -> String {
    let depths = depths(cuts.last().copied().unwrap_or(100));
    let curve = |name: String, colour, dashed, recall: &dyn Fn(usize) -> f64| Line {
        name,
        colour,
        dashed,
        points: depths.iter().map(|&k| (k as f64, recall(k))).collect(),
    };
    let mut curves = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let dashed = line.codes().is_none();
        curves.push(curve(title(line), colour, dashed, &|k| {
            line.ranks.recall(k)
        }));
        if tells_exact(lines, n) {
            let exact = &line.model.exact;
            let name = "full-precision vectors".to_owned();
            curves.push(curve(name, "#888888", true, &|k| exact.recall(k)));
        }
    }
    let mut html = Chart::new("k", "recall@k", &curves).log_x().inline() + &legend(&curves);
    if lines.iter().any(|line| line.ranks.candidates(1).is_some()) {
        html += "<p><small>Between the depths of the table, candidates are those of the next one.</small></p>";
    }
    html
}

fn legend(lines: &[Line]) -> String {
    let mut html = String::from("<p class=\"legend\">");
    for line in lines {
        let style = if line.dashed { "dashed" } else { "solid" };
        let _ = write!(
            html,
            "<span><i style=\"border-top:3px {style} {}\"></i>{}</span> ",
            line.colour,
            escape(&line.name)
        );
    }
    html + "</p>"
}

/// Returns the training curves: epochs with a loss and perhaps a recall, or the distortions of k-means.
fn training(models: &[&Facts]) -> String {
    let mut html = String::new();
    for (n, model) in models.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let line = |points: Vec<(f64, f64)>| Line {
            name: String::new(),
            colour,
            dashed: false,
            points,
        };
        let mut charts = Vec::new();
        if let Some(epochs) = epochs(&model.training).or_else(|| epochs(&model.course)) {
            for (field, what) in [("loss", "loss"), ("recall", "validation recall@10")] {
                let points: Vec<(f64, f64)> = epochs
                    .iter()
                    .filter_map(|epoch| Some((epoch["epoch"].as_f64()?, epoch[field].as_f64()?)))
                    .collect();
                if points.len() > 1 {
                    let lines = [line(points)];
                    charts.push(Chart::new("epoch", what, &lines).dotted().inline());
                }
            }
        } else if let Some(distortions) = model.training["distortions"].as_array() {
            let points: Vec<(f64, f64)> = distortions
                .iter()
                .enumerate()
                .filter_map(|(round, value)| Some((round as f64 + 1.0, value.as_f64()?)))
                .collect();
            if points.len() > 1 {
                let lines = [line(points)];
                charts.push(
                    Chart::new("round", "mean squared error", &lines)
                        .dotted()
                        .inline(),
                );
            }
        }
        if !charts.is_empty() {
            let _ = write!(
                html,
                "<h2>Training of {}</h2>{}",
                escape(&name(model)),
                charts.join("")
            );
        }
    }
    html
}

/// Returns the first list of objects with an epoch and a loss, wherever it is.
fn epochs(value: &Value) -> Option<&Vec<Value>> {
    match value {
        Value::Array(items)
            if items
                .first()
                .is_some_and(|item| item["epoch"].is_number() && item["loss"].is_number()) =>
        {
            Some(items)
        }
        Value::Array(items) => items.iter().find_map(epochs),
        Value::Object(fields) => fields.values().find_map(epochs),
        _ => None,
    }
}

fn codewords(models: &[&Facts]) -> String {
    let mut html = String::new();
    for (n, model) in models.iter().enumerate() {
        let Some(codes) = &model.codes else {
            continue;
        };
        let _ = write!(
            html,
            "<h2>Codewords of {}</h2><table class=\"codewords\"><tr><th>subspace</th><th class=\"n\">used</th><th class=\"n\">entropy, bits</th><th>rows per codeword, most used first</th></tr>",
            escape(&name(model))
        );
        for (subspace, counts) in codes.usage.iter().enumerate() {
            let _ = write!(
                html,
                "<tr><td>{subspace}</td><td class=\"n\">{} of {}</td><td class=\"n\">{:.2}</td><td>{}</td></tr>",
                codes.used[subspace],
                counts.len(),
                codes.entropy[subspace],
                bars(counts, COLOURS[n % COLOURS.len()])
            );
        }
        html += "</table>";
    }
    html
}

/// Returns the hits of the first lines for some queries, side by side.
fn hits(lines: &[&Measured], questions: &Questions, snapshot: &Snapshot) -> Result<String> {
    let sides = &lines[..lines.len().min(SIDES)];
    let mut wanted: HashMap<u32, String> = HashMap::new();
    for line in sides {
        for (_, row) in line.ranks.samples.iter().flatten() {
            wanted.insert(*row, String::new());
        }
    }
    let mut number = 0;
    snapshot.for_each_row(|row| {
        if let Some(shown) = wanted.get_mut(&number) {
            let text: String = row.text.unwrap_or_default().chars().take(200).collect();
            *shown = format!("<code>{}</code> {}", escape(row.key), escape(&text));
        }
        number += 1;
        Ok(())
    })?;
    let mut html = String::from("<h2>Hits</h2><p><small>Right rows are marked.</small></p>");
    for (n, question) in questions.all.iter().enumerate().take(SAMPLES) {
        let query = match &question.query {
            mopqdb::Value::Text(text) => text.chars().take(300).collect(),
            mopqdb::Value::Vector(_) => format!("vector {n}"),
        };
        let _ = write!(html, "<h3>{}</h3><div class=\"sides\">", escape(&query));
        for line in sides {
            let _ = write!(html, "<div><small>{}</small><ol>", escape(&title(line)));
            for (score, row) in &line.ranks.samples[n] {
                let class = if question.right.contains(row) {
                    " class=\"right\""
                } else {
                    ""
                };
                let _ = write!(
                    html,
                    "<li{class}><small>{score:.3}</small> {}</li>",
                    wanted[row]
                );
            }
            html += "</ol></div>";
        }
        html += "</div>";
    }
    Ok(html)
}
