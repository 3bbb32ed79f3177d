//! Matches published figures with measured ones.

use crate::record::{LoadFigures, Record};

use crate::judge::{self, Names, Selector};

/// Published figures with their selectors. Windows are stretched by the scale of the record.
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

/// True if the load has another size than the published one. A shorter load is comparable, a smaller burst is not.
pub(crate) fn is_of_another_size(record: &Record, load: &LoadFigures) -> bool {
    record.is_scaled() && matches!(load, LoadFigures::Burst(_))
}

/// True if `--scale` multiplies times; the default of a file without `scaled`.
fn is_time_scaled(record: &Record) -> bool {
    let file = record.spec.parse::<toml::Table>().ok();
    let scaled = file.as_ref().and_then(|file| file.get("scaled")?.as_array());
    scaled.is_none_or(|scaled| scaled.iter().any(|what| what.as_str() == Some("load.duration")))
}
