//! Prints the tables as Markdown.

use std::path::Path;

use anyhow::Result;
use mopqdb::eval::bootstrap::{Interval, over_runs, ratio};

use crate::systems::{self, SELECTIONS, SIZED, SIZES, SYSTEMS, Table, WEIGHTS};
use crate::{AT, Outcomes};

pub(crate) fn print(table: Table, set: &str, out: &Path, seeds: u64) -> Result<()> {
    let runs = |name: &dyn Fn(u64) -> String| -> Vec<Outcomes> {
        (1..=seeds)
            .filter_map(|seed| systems::outcomes(&out.join(name(seed))))
            .collect()
    };
    match table {
        Table::Systems => {
            println!("\n### {set}\n");
            head("system", "OPQ's");
            let opq = runs(&|seed| format!("opq-seed{seed}"));
            for system in SYSTEMS {
                let found = runs(&|seed| format!("{system}-seed{seed}"));
                let name = match found.first() {
                    Some(first) if systems::weighted(&first.config) => format!(
                        "{system} (rate {}, w {})",
                        first.config.learning_rate,
                        first.config.weight()
                    ),
                    Some(first) => format!("{system} (rate {})", first.config.learning_rate),
                    None => system.to_owned(),
                };
                row(&name, &found, &opq);
            }
        }
        Table::Selection => {
            println!("\n### {set}: selection functions, MoPQ-b\n");
            head("selection (temperature)", "l2's");
            let l2 = runs(&|seed| format!("select-l2-seed{seed}"));
            for (name, _) in SELECTIONS {
                let found = runs(&|seed| format!("select-{name}-seed{seed}"));
                let label = match found.first() {
                    Some(first) => format!("{name} ({})", first.config.temperature),
                    None => name.to_owned(),
                };
                row(&label, &found, &l2);
            }
        }
        Table::Sizes => {
            println!("\n### {set}: code sizes\n");
            head("size, system", "OPQ's");
            for (subspaces, codewords) in SIZES {
                let of = |system: &str| {
                    runs(&|seed| systems::size_name(system, subspaces, codewords, seed))
                };
                let opq = of("opq");
                for system in SIZED {
                    row(
                        &format!("{subspaces}x{codewords} {system}"),
                        &of(system),
                        &opq,
                    );
                }
            }
        }
        Table::Dqn => {
            println!("\n### {set}: DQN by weight, seed 1\n");
            println!(
                "| w | R@10 | R@50 | R@100 | distortion | relative |\n|---|---|---|---|---|---|"
            );
            for weight in WEIGHTS {
                if let Some(found) = systems::outcomes(&out.join(format!("dqn-weight{weight}"))) {
                    let [r10, r50, r100] = found.recall;
                    println!(
                        "| {weight} | {r10:.4} | {r50:.4} | {r100:.4} | {:.3} | {:.3} |",
                        found.distortion, found.relative_distortion
                    );
                }
            }
        }
    }
    Ok(())
}

/// Prints a table's heading: recalls, each with its ratio to that of `against` and the ratio's interval; then
/// properties of the codes.
fn head(first: &str, against: &str) {
    let recalls = AT.map(|n| format!("R@{n} | times {against}")).join(" | ");
    println!(
        "| {first} | seeds | {recalls} | un-quantized R@10 | distortion | relative | used | CPU-s |"
    );
    println!("|{}", "---|".repeat(13));
}

fn row(name: &str, found: &[Outcomes], against: &[Outcomes]) {
    if found.is_empty() {
        println!("| {name} | 0 |{}", " |".repeat(11));
        return;
    }
    let mean =
        |of: &dyn Fn(&Outcomes) -> f64| found.iter().map(of).sum::<f64>() / found.len() as f64;
    let queries = |runs: &[Outcomes], at: usize| {
        let of = |run: &Outcomes| run.queries[at].iter().map(|&r| f64::from(r)).collect();
        over_runs(&runs.iter().map(of).collect::<Vec<Vec<f64>>>())
    };
    let times = |at: usize| {
        if against.is_empty() {
            return String::new();
        }
        let (ours, theirs) = (queries(found, at), queries(against, at));
        let value = ours.iter().sum::<f64>() / theirs.iter().sum::<f64>();
        let Interval { low, high } = ratio(&ours, &theirs, 1);
        format!("{value:.3} [{low:.3}, {high:.3}]")
    };
    let recalls = [0, 1, 2].map(|at| format!("{:.4} | {}", mean(&|o| o.recall[at]), times(at)));
    println!(
        "| {name} | {} | {} | {:.4} | {:.2} | {:.3} | {:.0} | {:.0} |",
        found.len(),
        recalls.join(" | "),
        mean(&|o| o.unquantized[0]),
        mean(&|o| o.distortion),
        mean(&|o| o.relative_distortion),
        mean(&|o| o.used),
        mean(&|o| o.cpu_seconds),
    );
}
