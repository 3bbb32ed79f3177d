//! Plans of logs that tests write.

use std::time::Duration;

use stockade_logs::LogReader;

use crate::{
    Capacity, LatencyOption, OVERHEAD_BYTES, PlanError, PlanOptions, Policy, Warmup, plan,
    read::{KeyRules, REQUESTS_MAX, read},
    report::{CachePlan, FORMATS},
};

/// The text of a plan in one line.
pub fn text_in_one_line(plan: &CachePlan) -> String {
    rendered(plan, "text").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The plan in a format.
pub fn rendered(plan: &CachePlan, format: &str) -> String {
    (FORMATS.named(format).expect("a format").render)(plan)
}

/// 64 MiB with LRU, loads that take no time, and no warm-up.
pub fn options() -> PlanOptions {
    PlanOptions {
        memory: Some(Capacity::Bytes(64 << 20)),
        ttls: Vec::new(),
        staleness: None,
        latency: LatencyOption::Fixed(Duration::ZERO),
        policies: vec![Policy::LRU],
        sizes: Vec::new(),
        is_exact: false,
        warmup: Warmup::NONE,
        max_object: None,
        overhead_bytes: OVERHEAD_BYTES,
    }
}

/// The plan for these lines; `format`: as `--input`, or told by the lines.
pub fn planned(
    lines: &str,
    format: Option<&str>,
    rules: &KeyRules,
    options: &PlanOptions,
) -> Result<CachePlan, PlanError> {
    let format = format.map(|format| format.parse().expect("a format"));
    let reader = LogReader::from_reader("log", lines.as_bytes(), format).expect("readable");
    let content = read(reader, rules, REQUESTS_MAX).expect("a log");
    plan("log".to_owned(), content, options, &|_, _| {})
}
