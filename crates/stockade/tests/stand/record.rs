//! What was measured, as a file for each stack, and the page that is written from all of them.

use std::{
    env, fs,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use serde_json::{Value, json};
use stockade_services::Stack;

use crate::{run::Outcome, verdict::complaints};

/// The folder of the records. Nothing is kept if it is not set.
const FOLDER: &str = "STAND_RESULTS";

pub fn keep(stack: Stack, outcomes: &[Outcome]) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else { return };
    let _lock = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    fs::create_dir_all(&folder).expect("the folder of the records");
    let file = folder.join(format!("{}.json", stack.name));
    let record = json!({ "stack": stack.name, "rows": outcomes.iter().map(row).collect::<Vec<_>>(), "findings": complaints(outcomes) });
    fs::write(file, serde_json::to_string_pretty(&record).expect("JSON")).expect("a record");
}

fn row(outcome: &Outcome) -> Value {
    json!({
        "row": outcome.row.name,
        "cache": outcome.cache.name(),
        "sent": outcome.tally.sent,
        "loads": outcome.loads,
        "not_modified": outcome.not_modified,
        "foreign": outcome.tally.foreign,
        "failed": outcome.tally.failed,
        "longest_seconds": outcome.tally.longest.as_secs_f64(),
    })
}
