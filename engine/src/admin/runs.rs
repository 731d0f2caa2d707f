//! The records that training leaves in a database.

use crate::disk::files::{Disk, Storage};
use crate::disk::layout::Layout;
use crate::ids::ModelId;
use serde_json::Value;
use std::path::Path;

/// Returns the log of the training run that made a model, one value per line; `None` if the database has no record of
/// it.
///
/// Imported models have none, and records may be deleted at any time. Lines that can't be read are left out.
pub fn training_log(dir: impl AsRef<Path>, model: ModelId) -> Option<Vec<Value>> {
    let (disk, runs) = (Disk::default(), Layout::new(dir.as_ref()).runs());
    let model = model.to_string();
    let made_it = |run: &Path| {
        let result = disk.read(&run.join("result.json")).ok()?;
        let result: Value = serde_json::from_slice(&result).ok()?;
        (result["model"] == model.as_str()).then_some(())
    };
    let names = disk.list(&runs).ok()?;
    let mut homes = names.iter().map(|name| runs.join(name));
    let home = homes.find(|run| made_it(run).is_some())?;
    let log = disk.read(&home.join("run.jsonl")).unwrap_or_default();
    // The last line of a run that is still writing may be incomplete.
    let lines = log.split(|&byte| byte == b'\n');
    Some(
        lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_model_comes_from_its_own_run() {
        let dir = tempfile::tempdir().unwrap();
        let id: ModelId = "ab".repeat(32).parse().unwrap();
        assert_eq!(training_log(dir.path(), id), None);
        for (run, model) in [("a", "cd".repeat(32)), ("b", id.to_string())] {
            let home = dir.path().join("runs").join(run);
            std::fs::create_dir_all(&home).unwrap();
            let result = format!("{{\"model\": \"{model}\"}}");
            std::fs::write(home.join("result.json"), result).unwrap();
            let log = format!("{{\"epoch\": 1, \"phase\": \"{run}\"}}\n{{\"ep");
            std::fs::write(home.join("run.jsonl"), log).unwrap();
        }
        let found = training_log(dir.path(), id).unwrap();
        assert_eq!((found.len(), found[0]["phase"].as_str()), (1, Some("b")));
    }
}
