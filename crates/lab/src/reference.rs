//! Published figures of a record, and which of ours they stand beside.

use stockade_model::record::{Load, Record};

use crate::judge::{self, Names, Selector};

/// Each with what it is of, in the seconds of this record: windows are stretched as its loads were.
pub(crate) fn figures(record: &Record) -> Vec<(Selector, f64)> {
    let arms: Vec<String> = record.arms.iter().map(|arm| arm.name.clone()).collect();
    let names = Names { tests: &record.tests, arms: &arms };
    let factor = if is_time_scaled(record) { record.scale } else { 1.0 };
    let all = record.reference.iter().flat_map(|reference| &reference.figures);
    let known = all.filter_map(|(path, figure)| {
        let selector = judge::selector(path, names).ok()?;
        let window = selector.window.map(|window| window.stretched(factor));
        Some((Selector { window, ..selector }, *figure))
    });
    known.collect()
}

/// Whether the loads of that test are other ones than those that were published: shorter ones are the same, smaller ones
/// are not.
pub(crate) fn is_of_another_size(record: &Record, load: &Load) -> bool {
    record.is_scaled() && matches!(load, Load::Burst(_))
}

/// Whether `--scale` is for times: so it is where the file does not say.
fn is_time_scaled(record: &Record) -> bool {
    let file = record.spec.parse::<toml::Table>().ok();
    let scaled = file.as_ref().and_then(|file| file.get("scaled")?.as_array());
    scaled.is_none_or(|scaled| scaled.iter().any(|what| what.as_str() == Some("load.duration")))
}
