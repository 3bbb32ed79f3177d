//! One page without a network: the answer, the block to copy, the curves, the tables.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};
use stockade_record::page::{PAGE_SCRIPT, THEME_STYLE, UPLOT_NOTICE, UPLOT_SCRIPT, UPLOT_STYLE};

use super::{
    CachePlan, answer, cache_block, capacity_text, curve_heading, curve_table, facts, notes, outlook,
    route_block, sentences, strategies_heading, strategies_table, table::Table, traffic, verify,
};
use crate::{
    curve::{Lifetime, Point},
    replay::Capacity,
};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

pub(super) fn render(plan: &CachePlan) -> String {
    let title = format!("A cache for {}", plan.log);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(THEME_STYLE)) (PreEscaped(UPLOT_STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (title) }
                    @let facts = facts(plan);
                    @if !facts.is_empty() {
                        dl.facts { @for (name, fact) in &facts { div { dt { (name) } dd { (fact) } } } }
                    }
                    p.answer { (answer(plan)) }
                    @for sentence in sentences(plan) { p { (prose(&sentence)) } }
                    @if let Ok(recommendation) = &plan.recommendation {
                        (block(&cache_block(recommendation)))
                        @if let Some(route) = route_block(plan) {
                            p { "In the configuration of the proxy also:" }
                            (block(&route))
                        }
                    }
                    @for (number, lifetime) in plan.settings.lifetimes.iter().enumerate() {
                        (curves(plan, number, *lifetime))
                    }
                    @if let Some(table) = outlook::table(plan) {
                        h2 { "Other conditions" }
                        p { (outlook::HEADING) "." }
                        (table_of("Other conditions", &table))
                    }
                    @if let Some(runs) = &plan.strategies {
                        h2 { "Strategies" }
                        p { (strategies_heading(runs)) "." }
                        (table_of("Strategies", &strategies_table(runs)))
                    }
                    (verify::html(plan))
                    @if let Some((heading, tables, without_bots)) = traffic::tables(plan) {
                        h2 { "Traffic" }
                        p { (heading) }
                        @for (name, table) in tables { (table_of(name, &table)) }
                        @if let Some(sentence) = without_bots { p { (sentence) } }
                    }
                    @let notes = notes(plan);
                    @if !notes.is_empty() {
                        h2 { "Notes" }
                        ul { @for note in notes { li { (prose(&note)) } } }
                    }
                    h2 { "Policies" }
                    dl { @for policy in &plan.settings.policies { dt { (policy.name) } dd { (policy.summary) } } }
                }
                script type="application/json" id="curves" { (PreEscaped(data(plan))) }
                script { (PreEscaped(UPLOT_NOTICE)) (PreEscaped(UPLOT_SCRIPT)) (PreEscaped(PAGE_SCRIPT)) (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// A sentence, whose options are not divided at their hyphens.
fn prose(sentence: &str) -> Markup {
    html! {
        @for (nth, word) in sentence.split(' ').enumerate() {
            @if nth > 0 { " " }
            @if word.starts_with("--") { span.option { (word) } } @else { (word) }
        }
    }
}

/// A block to copy.
fn block(text: &str) -> Markup {
    html! {
        section.block {
            pre tabindex="0" role="region" aria-label="Block to copy" { code { (text) } }
            button.copy type="button" { "Copy" }
        }
    }
}

/// The curves of one lifetime: a plot, and the same as a table.
fn curves(plan: &CachePlan, number: usize, lifetime: Lifetime) -> Markup {
    let table = curve_table(plan, lifetime);
    html! {
        section {
            h2 { (curve_heading(plan, "Curves by size", lifetime)) }
            div.plot data-lifetime=(number) {}
            details {
                summary { "As a table, in percent" }
                (table_of(&curve_heading(plan, "Hit ratio in percent", lifetime), &table))
            }
        }
    }
}

/// A table that scrolls sideways. `name` is for screen readers.
pub(super) fn table_of(name: &str, table: &Table) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label=(name) {
            table {
                thead { tr { @for heading in &table.header { th scope="col" { (heading) } } } }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (column, cell) in row.iter().enumerate() {
                                @if column == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The data of the plots, as JSON for the script.
fn data(plan: &CachePlan) -> String {
    let ratios = |points: &[Point], ratio: fn(&Point) -> f64| points.iter().map(ratio).collect::<Vec<_>>();
    let lifetimes = plan.settings.lifetimes.iter().map(|lifetime| {
        let curves = plan.curves.iter().filter(|curve| curve.lifetime == *lifetime);
        let lines = curves.map(|curve| {
            json!({
                "policy": curve.policy.name,
                "ships": curve.policy.shipped.is_some(),
                "bound": curve.policy.is_bound,
                "views": [
                    ratios(&curve.points, |point| 1.0 - point.miss_ratio),
                    ratios(&curve.points, |point| 1.0 - point.byte_miss_ratio),
                    ratios(&curve.points, |point| point.load_ratio),
                    ratios(&curve.points, |point| point.wait_ratio),
                ],
            })
        });
        Value::Array(lines.collect())
    });
    let data = json!({
        "sizes": plan.settings.sizes.iter().map(|size| size.size()).collect::<Vec<_>>(),
        "names": plan.settings.sizes.iter().map(|size| capacity_text(*size)).collect::<Vec<_>>(),
        "axis": match plan.settings.sizes.first() {
            Some(Capacity::Entries(_)) => "entries",
            _ => "memory",
        },
        "chosen": plan.recommendation.as_ref().ok().map(|chosen| json!({
            "room": chosen.capacity.size(),
            "policy": chosen.policy.name,
            "lifetime": plan.settings.lifetimes.iter().position(|lifetime| *lifetime == chosen.lifetime),
        })),
        "lifetimes": lifetimes.collect::<Vec<_>>(),
    });
    // `</script>` must not end the element.
    data.to_string().replace('<', "\\u003c")
}
