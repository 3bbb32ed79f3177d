//! One page: a chart for each series, those with a change first.

use maud::{Markup, html};

use super::{chart, result, span};
use crate::{
    compare::{report::change, shown},
    history::{History, Series},
    report::html::page,
};

#[must_use]
pub fn render(history: &History<'_>) -> String {
    let (changed, unchanged): (Vec<_>, Vec<_>) =
        history.series.iter().partition(|series| series.levels.len() > 1);
    let body = html! { main {
        h1 { "History" }
        p { (span(history)) ". " (result(history)) ". A change lasts for three records or more." }
        @if !changed.is_empty() {
            h2 { "Changes" }
            (table(&changed))
            (charts(&changed))
        }
        @if !unchanged.is_empty() {
            h2 { "Without a change" }
            @for group in unchanged.chunk_by(|a, b| is_together(a, b)) {
                details open[changed.is_empty()] {
                    summary { (group[0].experiment) ", " (group[0].place()) ": " (group[0].conditions_in_words()) }
                    (charts(group))
                }
            }
        }
    } };
    page("History", &body)
}

/// True for two metrics of one test and arm.
fn is_together(a: &Series<'_>, b: &Series<'_>) -> bool {
    (a.experiment, a.test, a.arm, &a.conditions) == (b.experiment, b.test, b.arm, &b.conditions)
}

fn table(changed: &[&Series<'_>]) -> Markup {
    html! {
        div.wide {
            table {
                thead { tr { @for heading in ["experiment", "arm", "metric", "verdict", "before", "after", "change", "since", "commit", "also changed"] { th { (heading) } } } }
                tbody {
                    @for series in changed {
                        @for of in series.changes() {
                            tr {
                                td { (series.experiment) }
                                td { (series.place()) }
                                td { (series.metric.name) }
                                td { span class={ "badge " (of.verdict_name()) } { (of.verdict_name()) } }
                                td { (shown(series.metric, of.before)) }
                                td { (shown(series.metric, of.after)) }
                                td { (of.ratio.map(change).unwrap_or_default()) }
                                td { (of.first.started_at) }
                                td { (of.first.commit.as_deref().unwrap_or_default()) }
                                td { (of.differences().join(", ")) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn charts(series: &[&Series<'_>]) -> Markup {
    html! {
        div.plots { @for series in series { figure { (chart::svg(series)) } } }
    }
}
