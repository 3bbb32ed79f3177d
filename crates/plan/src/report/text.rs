//! For a terminal: the answer, the curves, the block to copy.

use std::fmt::Write as _;

use super::{
    Plan, answer, cache_block, curve_table, lifetime_text, notes, outlook, route_block, sentences,
    strategies_heading, strategies_table, traffic,
};

pub(super) fn render(plan: &Plan) -> String {
    let mut text = format!("{}\n\n", answer(plan));
    for sentence in sentences(plan) {
        let _ = writeln!(text, "{sentence}");
    }
    for note in notes(plan) {
        let _ = writeln!(text, "- {note}");
    }
    let traffic = traffic::text(plan);
    if !traffic.is_empty() {
        let _ = write!(text, "\n{traffic}");
    }
    for lifetime in &plan.settings.lifetimes {
        let _ = write!(text, "\nHit ratio in percent, {}\n\n", lifetime_text(*lifetime));
        text += &curve_table(plan, *lifetime).text();
    }
    if let Some(table) = outlook::table(plan) {
        let _ = write!(text, "\n{}\n\n{}", outlook::HEADING, table.text());
    }
    if let Some(runs) = &plan.strategies {
        let _ = write!(text, "\n{}\n\n{}", strategies_heading(runs), strategies_table(runs).text());
    }
    if let Ok(recommendation) = &plan.recommendation {
        if let Some(route) = route_block(plan) {
            let _ = write!(text, "\n# In the configuration of the proxy, beside the table below\n{route}");
        }
        let _ = write!(text, "\n{}", cache_block(recommendation));
    }
    text
}
