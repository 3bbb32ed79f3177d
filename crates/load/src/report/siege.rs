//! The final text of siege.

use stockade_record::report::siege::SiegeReport;

use super::ReportOptions;
use crate::summary::Summary;

/// Renders the report.
#[must_use]
pub fn render(summary: &Summary, _: &ReportOptions) -> String {
    report(summary).to_string()
}

pub(super) fn report(summary: &Summary) -> SiegeReport<'_> {
    let tally = &summary.measured;
    let answered = &tally.times.response;
    SiegeReport {
        status_codes: &tally.status_codes,
        elapsed: summary.attack_duration() + summary.wait_duration(),
        wire_bytes_in: tally.wire_bytes_in,
        answered: answered.count(),
        mean: answered.mean().unwrap_or_default(),
        longest: answered.max().unwrap_or_default(),
        shortest: answered.min().unwrap_or_default(),
    }
}
