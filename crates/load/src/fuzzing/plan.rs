//! Plan files, rates and schedules.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use crate::plan::Plan;

/// A plan file.
///
/// - A plan that is refused has a message of one line, at a place in the file, that can be shown with the file.
/// - A comment at its end changes nothing.
/// - A plan has a bounded number of requests or a duration, and a text.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Plan::parse("/nonexistent/plan.toml", text) {
        Ok(plan) => {
            let commented = Plan::parse("/nonexistent/plan.toml", &format!("{text}\n# the end"));
            assert_eq!(commented.expect("a comment at the end is valid").to_string(), plan.to_string());
            assert!(plan.duration().is_some() || plan.requests().is_some(), "{plan}");
            assert!(!plan.segments().is_empty() && plan.peak_per_second() >= 0.0, "{plan}");
            let _ = (plan.connections_max(), plan.burst_max(), plan.warmup());
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty(), "{text}");
            if let Some((line, column)) = error.position() {
                let line = text.split('\n').nth(line - 1).expect("a line of the file");
                assert!(column <= line.chars().count() + 1, "{message}: column {column} of {line:?}");
            }
            let mut shown = String::new();
            let report = miette::NarratableReportHandler::new().render_report(&mut shown, error.as_ref());
            assert!(report.is_ok() && !shown.is_empty());
        }
    }
}
