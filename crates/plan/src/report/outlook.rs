//! The cache under other conditions, in each format.

use std::time::Duration;

use serde_json::{Value, json};
use stockade_model::units::format_span;

use super::{CachePlan, lifetime_text, nanos_text, peak, percent, rate, table::Table};
use crate::{
    outlook::{ConditionFigures, Outlook},
    recommend::Peak,
};

pub(super) const HEADING: &str =
    "The same cache with another ttl, with more traffic, on one more node, and after a restart";

/// A row for each condition; `None`: the plan has none.
pub(super) fn table(plan: &CachePlan) -> Option<Table> {
    let (outlook, chosen) = (plan.outlook.as_ref()?, plan.recommendation.as_ref().ok()?);
    let is_sampled = outlook.planned.loads_per_s_in_busiest_minute.error.is_some();
    let about = if is_sampled { "~" } else { "" };
    let row = |condition: String, figures: &ConditionFigures| {
        vec![
            condition,
            format!("{about}{}", percent(figures.hit_ratio)),
            format!("{about}{}", rate(figures.loads_per_s)),
            peak(figures.loads_per_s_in_busiest_minute),
            format_span(Duration::from_nanos(figures.age_max_ns)),
        ]
    };
    let (has_routes, lifetime) = (!chosen.routes.routes.is_empty(), lifetime_text(chosen.lifetime));
    let with_routes = if has_routes { " and the routes" } else { "" };
    let mut rows = vec![row(format!("as planned, {lifetime}{with_routes}"), &outlook.planned)];
    let for_all = if has_routes { " for all" } else { "" };
    let ttl = |ttl_s: u64| format!("ttl {}{for_all}", nanos_text(ttl_s * 1_000_000_000));
    rows.extend(outlook.ttls.iter().map(|(ttl_s, figures)| row(ttl(*ttl_s), figures)));
    rows.push(row(format!("traffic x{}", outlook.growth), &outlook.more_traffic));
    rows.push(row("one more node".to_owned(), &outlook.one_more_node));
    let none = || "-".to_owned();
    let restart = peak(outlook.restart_loads_per_s);
    rows.push(vec!["restart in the worst minute".to_owned(), none(), none(), restart, none()]);
    let header = ["condition", "hit ratio", "loads/s", "busiest minute", "oldest"];
    Some(Table { header: header.map(str::to_owned).to_vec(), rows })
}

pub(super) fn json(outlook: &Outlook) -> Value {
    let peak = |peak: Peak| json!({ "per_s": peak.per_s, "error": peak.error });
    let figures = |figures: &ConditionFigures| {
        json!({
            "hit_ratio": figures.hit_ratio,
            "source_loads_per_s": figures.loads_per_s,
            "source_loads_per_s_busiest_minute": peak(figures.loads_per_s_in_busiest_minute),
            "age_max_s": Duration::from_nanos(figures.age_max_ns).as_secs_f64(),
        })
    };
    let with = |name: &str, value: Value, of: &ConditionFigures| {
        let mut json = figures(of);
        json[name] = value;
        json
    };
    json!({
        "planned": figures(&outlook.planned),
        "ttls": outlook.ttls.iter().map(|(ttl_s, of)| with("ttl_s", (*ttl_s).into(), of)).collect::<Vec<_>>(),
        "more_traffic": with("times", outlook.growth.into(), &outlook.more_traffic),
        "one_more_node": figures(&outlook.one_more_node),
        "restart": { "source_loads_per_s_busiest_minute": peak(outlook.restart_loads_per_s) },
    })
}
