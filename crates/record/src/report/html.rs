//! `report.html`: one self-contained page. `page.js` draws its plots with uPlot from the data in the page.

pub mod live;
mod over_time;
mod percentiles;
mod plots;
pub mod records;
mod svg;
mod sweeps;

use crate::{
    page,
    record::{Record, Verdict},
};
use maud::{DOCTYPE, Markup, PreEscaped, html};

pub(super) use self::over_time::pictures;
use self::plots::{PagePlots, PlotData};
use super::{accounting, published, summary};
use crate::metrics::Results;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

#[must_use]
pub fn render(record: &Record, results: &Results) -> String {
    let body = html! { (report(record, results)) (drawing()) };
    page(&record.experiment, &body)
}

/// The report of a record, with the data of its plots.
fn report(record: &Record, results: &Results) -> Markup {
    let arms = record.arms.iter().map(|arm| arm.name.clone()).collect();
    let mut plots = PagePlots { arms, plots: Vec::new() };
    let body = html! {
        h1 { (prose(&record.experiment)) }
        p { span class={ "badge " (summary::verdict(record)) } { (summary::verdict(record)) } " " (summary::how(record)) }
        @for sentence in summary::conclusion(record) { p { (prose(&sentence)) } }
        @for paragraph in record.context.iter().flat_map(|context| context.split("\n\n")) { p { (prose(paragraph)) } }
        (hypotheses(record))
        (toolbar(record))
        (measurements(record, results, &mut plots))
        @if let Some(reference) = &record.reference { p { "Published: " (reference.source) "." } }
        (caches(record))
        h2 { "Setup" }
        dl { @for (what, value) in summary::setup(record) { dt { (what) } dd { (value) } } }
        details { summary { "the experiment's file" } pre { (record.spec) } }
    };
    html! { main #report { (body) (data(&plots)) } }
}

/// The tables and plots of each test.
fn measurements(record: &Record, results: &Results, plots: &mut PagePlots) -> Markup {
    html! {
        @for (title, of_sweeps) in sweeps::sections(record, results) {
            h2 { (title) }
            (figures(plots, of_sweeps))
        }
        h2 { "Results" }
        @for table in summary::tables(record, results) {
            h3 { (table.title) }
            (wide_table(&table.headings, &table.rows))
            @for note in &table.notes { p.note { (prose(note)) } }
            @let over_time = over_time::measured(record, results, &table.test);
            @let over_time = over_time.as_ref().map(over_time::plots).unwrap_or_default();
            @if !over_time.is_empty() && record.repeats > 1 { p { "The first repeat, second by second:" } }
            @let of_percentiles = percentiles::of_arms(record, results, &table.test);
            (figures(plots, over_time.into_iter().chain(of_percentiles)))
            @for table in accounting::tables(record, &table.test) {
                h4 { (table.title) }
                (wide_table(&table.headings, &table.rows))
                p.note { (table.note) "." }
            }
            @for (id, report) in published::texts(record, results, &table.test) {
                details { summary { (id) } pre { (report) } }
            }
        }
        @let overlays = percentiles::of_tests(record, results);
        @if !overlays.is_empty() {
            h2 { "Response times by percentile, test over test" }
            (figures(plots, overlays))
        }
    }
}

/// A table that scrolls sideways in a narrow window.
pub(crate) fn wide_table(headings: &[impl AsRef<str>], rows: &[Vec<String>]) -> Markup {
    html! {
        div.wide {
            table {
                thead { tr { @for heading in headings { th { (heading.as_ref()) } } } }
                tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
            }
        }
    }
}

/// The script that draws plots.
fn drawing() -> Markup {
    html! { script { (PreEscaped(page::UPLOT_NOTICE)) (PreEscaped(page::UPLOT_SCRIPT)) (PreEscaped(page::PAGE_SCRIPT)) (PreEscaped(SCRIPT)) } }
}

/// The data of the plots next to it.
fn data(plots: &PagePlots) -> Markup {
    html! { script type="application/json" { (PreEscaped(plots.json())) } }
}

/// The places where the page draws these plots.
fn figures(plots: &mut PagePlots, added: impl IntoIterator<Item = PlotData>) -> Markup {
    html! {
        div.plots {
            @for plot in added {
                @let (title, unit) = (plot.title.clone(), plot.unit);
                figure data-plot=(plots.add(plot)) { figcaption { (title) " " small { (unit) } } }
            }
        }
    }
}

/// The settings of each arm's cache, to be copied into a file of one's own.
fn caches(record: &Record) -> Markup {
    let caches = record.arms.iter().filter_map(|arm| Some((&arm.name, arm.cache.as_ref()?)));
    html! {
        @if record.arms.iter().any(|arm| arm.cache.is_some()) { h2 { "Caches" } }
        div.caches {
            @for (arm, cache) in caches {
                figure {
                    figcaption { (arm) span.controls { button type="button" data-copy { "copy" } } }
                    pre { (cache) }
                }
            }
        }
    }
}

/// The arms to show, and the colours of the page.
fn toolbar(record: &Record) -> Markup {
    html! {
        div.toolbar {
            fieldset aria-label="arms in the plots" {
                @for (index, arm) in record.arms.iter().enumerate() {
                    label { input type="checkbox" checked data-arm=(index); " " (arm.name) }
                }
            }
            select.theme #theme aria-label="colours" {
                option value="" { "as the system" }
                option value="light" { "light" }
                option value="dark" { "dark" }
            }
        }
    }
}

/// A page without other files.
pub(crate) fn page(title: &str, body: &Markup) -> String {
    page_with_style(title, "", body)
}

/// The same with rules of its own after those of every page.
#[must_use]
pub fn page_with_style(title: &str, style: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(page::UPLOT_STYLE)) (PreEscaped(page::THEME_STYLE)) (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// Each claim with its verdict, and the figures that decided it.
fn hypotheses(record: &Record) -> Markup {
    html! {
        @if !record.hypotheses.is_empty() { h2 { "Hypotheses" } }
        @for hypothesis in &record.hypotheses {
            @let is_open = record.in_progress && hypothesis.verdict == Verdict::Inconclusive;
            p.claim { @if is_open { span.badge { "open" } } @else { (badge(hypothesis.verdict)) } " " (prose(&hypothesis.text)) }
            ul.found {
                @for expectation in &hypothesis.expect {
                    li {
                        @if expectation.verdict != hypothesis.verdict { (expectation.verdict) ": " }
                        code { (expectation.expr) } ": " (expectation.reason)
                        (summary::sides_in_parentheses(record, expectation))
                    }
                }
            }
        }
    }
}

/// Text of a file, with code between backticks.
#[must_use]
pub fn prose(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    // A last backtick without another one is a character.
    let is_closed = parts.len() % 2 == 1;
    let is_code = |index: usize| index % 2 == 1 && (is_closed || index + 1 < parts.len());
    html! {
        @for (index, part) in parts.iter().enumerate() {
            @if is_code(index) { code { (part) } } @else if index % 2 == 1 { "`" (part) } @else { (part) }
        }
    }
}

fn badge(verdict: Verdict) -> Markup {
    html! { span class={ "badge " (verdict) } { (verdict) } }
}
