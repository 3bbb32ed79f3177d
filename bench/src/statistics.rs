//! Statistics for the tables.

/// The median: the mean of the middle two if the count is even.
///
/// # Panics
/// Without values.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

/// The minimum and the maximum.
#[must_use]
pub fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, greatest), &value| {
        (least.min(value), greatest.max(value))
    })
}
