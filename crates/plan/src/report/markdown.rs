//! For a pull request or a ticket.

use std::fmt::Write as _;

use super::{
    CachePlan, answer, cache_block, curve_heading, curve_table, facts, notes, outlook, route_block,
    sentences, strategies_heading, strategies_table, traffic, verify,
};

pub(super) fn render(plan: &CachePlan) -> String {
    let mut text = format!("# A cache for {}\n\n", plan.log);
    let facts = facts(plan);
    for (name, fact) in &facts {
        let _ = writeln!(text, "- **{name}:** {fact}");
    }
    if !facts.is_empty() {
        text.push('\n');
    }
    let _ = write!(text, "{}\n\n", answer(plan));
    for sentence in sentences(plan) {
        let _ = write!(text, "{sentence}\n\n");
    }
    if let Ok(recommendation) = &plan.recommendation {
        let _ = write!(text, "```toml\n{}```\n\n", cache_block(recommendation));
        if let Some(route) = route_block(plan) {
            let _ = write!(text, "In the configuration of the proxy also:\n\n```toml\n{route}```\n\n");
        }
    }
    for lifetime in &plan.settings.lifetimes {
        let _ = write!(text, "## {}\n\n", curve_heading(plan, "Hit ratio in percent", *lifetime));
        text += &curve_table(plan, *lifetime).markdown();
        text.push('\n');
    }
    if let Some(table) = outlook::table(plan) {
        let _ = write!(text, "## Other conditions\n\n{}\n\n{}\n", outlook::HEADING, table.markdown());
    }
    if let Some(runs) = &plan.strategies {
        let _ = write!(
            text,
            "## Strategies\n\n{}\n\n{}\n",
            strategies_heading(runs),
            strategies_table(runs).markdown()
        );
    }
    text += &verify::markdown(plan);
    if let Some((heading, tables, without_bots)) = traffic::tables(plan) {
        let _ = write!(text, "## Traffic\n\n{heading}\n\n");
        for (_, table) in tables {
            let _ = writeln!(text, "{}", table.markdown());
        }
        text += &without_bots.map_or(String::new(), |sentence| sentence + "\n\n");
    }
    let notes = notes(plan);
    if !notes.is_empty() {
        text += "## Notes\n\n";
        for note in notes {
            let _ = writeln!(text, "- {note}");
        }
    }
    text
}
