//! Charts of a run: loss, recall and used codewords over the epochs.

use mopqdb_formats::plot::{COLOURS, Chart, Line, picture};

use super::run::EpochRecord;

/// Draws the epochs so far.
pub fn svg(records: &[EpochRecord]) -> String {
    let line = |value: &dyn Fn(&EpochRecord) -> Option<f64>| {
        let point = |record: &EpochRecord| Some((record.epoch as f64, value(record)?));
        [Line {
            name: String::new(),
            colour: COLOURS[0],
            dashed: false,
            points: records.iter().filter_map(point).collect(),
        }]
    };
    let warm_up = records.iter().rev().find(|r| r.phase == "warmup");
    let warm_up = warm_up.map(|last| last.epoch as f64);
    let [loss, recall, used] = [
        line(&|record| Some(record.loss)),
        line(&|record| record.recall),
        line(&|record| record.used),
    ];
    picture(
        &[
            Chart::new("epoch", "loss", &loss),
            Chart::new("epoch", "validation recall@10", &recall),
            Chart::new("epoch", "codewords in use (mean)", &used),
        ]
        .map(|chart| chart.dotted().marked_at(warm_up)),
    )
}
