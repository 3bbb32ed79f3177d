//! Tables and sentences that the human-readable reports share.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{
    AgentReport, Audit, ClockKind, EventFigures, Example, Expectation, Host, HttpFigures, Hypothesis,
    LoadFigures, Record, Role, Run, Verdict, Violation,
};
use stockade_model::{
    message::shown,
    units::{format_count, format_milliseconds},
};

use crate::{
    judge::{self, Names, Selector},
    metrics::{Evidence, FigureUnit, FigureWindow, Metric, Results, median},
    reference,
};

/// One test: a row for each measured arm.
pub(super) struct SummaryTable {
    pub(super) test: String,
    pub(super) title: String,
    pub(super) headings: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// Errors, probes and events, by arm.
    pub(super) notes: Vec<String>,
}

struct Column {
    metric: &'static str,
    heading: &'static str,
    shown: Shown,
}

/// How the figures of a column are formatted, and when it is shown.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Plain,
    /// As a percentage.
    Percent,
    /// Only if an arm has a nonzero figure.
    IfAny,
    /// The same, with two decimals.
    IfAnyRounded,
}

const fn plain(metric: &'static str, heading: &'static str) -> Column {
    Column { metric, heading, shown: Shown::Plain }
}

const OF_BURSTS: &[Column] = &[
    plain("source_loads", "DB operations"),
    plain("stores.total", "store messages"),
    plain("failed", "failed"),
    plain("finished", "finished"),
    plain("response.p50", "p50"),
    plain("response.p99", "p99"),
    plain("response.max", "max"),
];

const OF_OPEN_LOADS: &[Column] = &[
    plain("failed", "failed"),
    Column { metric: "outcomes.stale", heading: "stale", shown: Shown::IfAny },
    Column { metric: "outcomes.fallback", heading: "fallback", shown: Shown::IfAny },
    Column { metric: "outcomes.coalesced", heading: "coalesced", shown: Shown::IfAny },
    Column { metric: "hit_ratio", heading: "hit ratio", shown: Shown::Percent },
    plain("source_loads", "source loads"),
    Column { metric: "amplification", heading: "loads/episode", shown: Shown::IfAnyRounded },
    plain("response.p99", "answered p99"),
    plain("response.max", "answered max"),
];

const OVER_HTTP: &[Column] = &[
    Column { metric: "achieved_rate", heading: "a second", shown: Shown::IfAnyRounded },
    plain("failed", "failed"),
    Column { metric: "outcomes.stale", heading: "stale", shown: Shown::IfAny },
    Column { metric: "outcomes.fallback", heading: "fallback", shown: Shown::IfAny },
    Column { metric: "outcomes.coalesced", heading: "coalesced", shown: Shown::IfAny },
    Column { metric: "outcomes.unreported", heading: "unreported", shown: Shown::IfAny },
    Column { metric: "hit_ratio", heading: "hit ratio", shown: Shown::Percent },
    plain("source_loads", "source loads"),
    Column { metric: "offload", heading: "offload", shown: Shown::Percent },
    plain("response.p50", "answered p50"),
    plain("response.p99", "p99"),
    plain("response.p999", "p99.9"),
    plain("response.max", "max"),
    Column { metric: "proxy.entries.max", heading: "entries", shown: Shown::IfAny },
    Column { metric: "proxy.rss.max", heading: "proxy MiB", shown: Shown::IfAnyRounded },
    Column { metric: "proxy.cpu.mean", heading: "proxy cores", shown: Shown::IfAnyRounded },
];

/// The figures of one test that matter most: a row for each measured arm, under [`arm_headings`].
pub(super) struct ArmRows {
    pub(super) test: String,
    /// The most of an arm.
    pub(super) requests: u64,
    pub(super) rows: Vec<Vec<String>>,
}

const OF_ARMS: [Column; 6] = [
    plain("requests", "requests"),
    Column { metric: "hit_ratio", heading: "hit ratio", shown: Shown::Percent },
    plain("source_loads", "source loads"),
    plain("failed", "failed"),
    plain("response.p50", "answered p50"),
    plain("response.p99", "p99"),
];

/// `arm`, then the columns.
pub(super) fn arm_headings() -> Vec<String> {
    ["arm"].into_iter().chain(OF_ARMS.iter().map(|column| column.heading)).map(str::to_owned).collect()
}

pub(super) fn arms(record: &Record, results: &Results) -> Vec<ArmRows> {
    let of_test = |test: &String| {
        let mut of_test = ArmRows { test: test.clone(), requests: 0, rows: Vec::new() };
        for arm in &record.arms {
            let repeats = results.repeats(test, &arm.name);
            let requests = repeats.iter().map(|evidence| evidence.run.outcomes.requests()).max();
            let Some(requests) = requests else { continue };
            of_test.requests = of_test.requests.max(requests);
            let cells = OF_ARMS.iter().map(|Column { metric, shown, .. }| {
                cell(Metric::named(metric).expect("the columns are metrics"), *shown, &repeats)
            });
            of_test.rows.push([arm.name.clone()].into_iter().chain(cells).collect());
        }
        of_test
    };
    record.tests.iter().map(of_test).filter(|of_test| !of_test.rows.is_empty()).collect()
}

/// A table for each measured test; published figures stand next to ours.
pub(super) fn tables(record: &Record, results: &Results) -> Vec<SummaryTable> {
    let published = reference::figures(record);
    record.tests.iter().filter_map(|test| table(record, results, test, &published)).collect()
}

fn table(
    record: &Record,
    results: &Results,
    test: &str,
    published: &[(Selector, f64)],
) -> Option<SummaryTable> {
    let arms = record.arms.iter().map(|arm| (arm.name.as_str(), results.repeats(test, &arm.name)));
    let measured: Vec<(&str, Vec<&Evidence>)> = arms.filter(|(_, repeats)| !repeats.is_empty()).collect();
    let load = &measured.first()?.1.first()?.run.load;
    let of = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let name = if test.is_empty() { String::new() } else { format!("{test}: ") };
    let (title, columns) = match load {
        LoadFigures::Burst(burst) => {
            let (workers, documents) = (of(burst.workers, "worker"), of(burst.documents, "document"));
            (format!("{name}{workers}, {documents}"), OF_BURSTS)
        }
        LoadFigures::Open(open) => {
            let requests = requests(measured.iter().flat_map(|(_, repeats)| repeats));
            let keys = open.documents.map(|keys| format!("{}, ", of(keys, "key"))).unwrap_or_default();
            let title = format!("{name}{}, {keys}{requests}", open.schedule);
            let is_over_http = measured.first()?.1.first()?.run.http.is_some();
            (title, if is_over_http { OVER_HTTP } else { OF_OPEN_LOADS })
        }
    };

    // The published figures of this test, if its load was of this size.
    let is_its = |of: &Selector| of.test.as_deref().unwrap_or_default() == test;
    let is_comparable = !reference::is_of_another_size(record, load);
    let published: Vec<&(Selector, f64)> =
        published.iter().filter(|(of, _)| is_comparable && is_its(of)).collect();
    // A column of published figures only if the test has some.
    let published_figure = |arm: &str, metric: &str| {
        let is_it =
            |of: &Selector| of.arm.as_deref() == Some(arm) && of.window.is_none() && of.metric.name == metric;
        published.iter().find(|(of, _)| is_it(of)).map(|(_, figure)| *figure)
    };
    let mut headings = vec!["arm".to_owned()];
    let mut rows: Vec<Vec<String>> = measured.iter().map(|(arm, _)| vec![(*arm).to_owned()]).collect();
    for Column { metric: name, heading, shown } in columns {
        let metric = Metric::named(name).expect("the columns are metrics");
        let has_some =
            |evidence: &&Evidence| evidence.figure(metric, None).is_some_and(|figure| figure > 0.0);
        if matches!(shown, Shown::IfAny | Shown::IfAnyRounded)
            && !measured.iter().any(|(_, repeats)| repeats.iter().any(has_some))
        {
            continue;
        }
        headings.push((*heading).to_owned());
        for ((_, repeats), row) in measured.iter().zip(&mut rows) {
            row.push(cell(metric, *shown, repeats));
        }
        if measured.iter().any(|(arm, _)| published_figure(arm, name).is_some()) {
            headings.push("published".to_owned());
            for ((arm, _), row) in measured.iter().zip(&mut rows) {
                row.push(
                    published_figure(arm, name)
                        .map(|figure| written(metric, *shown, figure))
                        .unwrap_or_default(),
                );
            }
        }
    }
    let notes = measured.iter().flat_map(|(arm, repeats)| {
        let notes = errors(arm, repeats).chain(probes(arm, repeats)).chain(events(arm, repeats));
        notes.chain(false_answers(arm, repeats))
    });
    let notes = notes.chain(others(&published, columns, &measured)).collect();
    Some(SummaryTable { test: test.to_owned(), title, headings, rows, notes })
}

/// Published figures without a column, next to ours: a line for each arm and window.
fn others(
    published: &[&(Selector, f64)],
    columns: &[Column],
    measured: &[(&str, Vec<&Evidence>)],
) -> Vec<String> {
    let mut lines: BTreeMap<(&str, Option<FigureWindow>), Vec<String>> = BTreeMap::new();
    for (of, published) in published {
        if of.window.is_none() && columns.iter().any(|column| column.metric == of.metric.name) {
            continue;
        }
        let arm = of.arm.as_deref().unwrap_or_default();
        let repeats = measured.iter().filter(|(name, _)| *name == arm).flat_map(|(_, repeats)| repeats);
        let ours = median(repeats.filter_map(|evidence| evidence.figure(of.metric, of.window)));
        let shown = |figure: f64| written(of.metric, Shown::Plain, figure);
        let ours = ours.map_or_else(|| "-".to_owned(), shown);
        let figures = format!("{} {ours} (published {})", of.metric.name, shown(*published));
        lines.entry((arm, of.window)).or_default().push(figures);
    }
    let line = |((arm, window), figures): ((&str, Option<FigureWindow>), Vec<String>)| {
        let window = window.map(|window| format!(" ({window})")).unwrap_or_default();
        format!("{arm}{window}: {}", figures.join(", "))
    };
    lines.into_iter().map(line).collect()
}

/// A time: the median of its repeats. A count: its value, or its range if it varies.
fn cell(metric: &Metric, shown: Shown, repeats: &[&Evidence]) -> String {
    let figures: Vec<f64> = repeats.iter().filter_map(|evidence| evidence.figure(metric, None)).collect();
    let least = figures.iter().copied().min_by(f64::total_cmp);
    let most = figures.iter().copied().max_by(f64::total_cmp);
    match (least, most, median(figures.into_iter())) {
        (Some(least), Some(most), _) if metric.unit == FigureUnit::Number && least < most => {
            format!("{}..{}", written(metric, shown, least), written(metric, shown, most))
        }
        (_, _, Some(median)) => written(metric, shown, median),
        _ => "-".to_owned(),
    }
}

fn written(metric: &Metric, shown: Shown, figure: f64) -> String {
    match (metric.unit, shown) {
        (FigureUnit::Time, _) => format_milliseconds(figure),
        (FigureUnit::Number, Shown::Percent) => format!("{:.2}%", figure * 100.0),
        (FigureUnit::Number, Shown::IfAnyRounded) => format!("{figure:.2}"),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number of at most 52 bits"
        )]
        (FigureUnit::Number, _) if figure.fract() == 0.0 && (0.0..1e15).contains(&figure) => {
            format_count(figure as u64)
        }
        (FigureUnit::Number, _) => number(figure),
    }
}

/// The requests that were due, sent or not.
fn requests<'a>(runs: impl Iterator<Item = &'a &'a Evidence>) -> String {
    let due = runs.map(|evidence| {
        let dropped = evidence.run.load.open().map_or(0, |open| open.dropped);
        evidence.run.outcomes.requests() + dropped
    });
    let due: BTreeSet<u64> = due.collect();
    match (due.first(), due.last()) {
        (Some(1), Some(1)) => "1 request".to_owned(),
        (Some(least), Some(most)) if least < most => {
            format!("{}..{} requests", format_count(*least), format_count(*most))
        }
        (least, _) => format!("{} requests", format_count(least.copied().unwrap_or_default())),
    }
}

/// At most four decimals.
fn number(figure: f64) -> String {
    ((figure * 1e4).round() / 1e4).to_string()
}

/// The probes of the first repeat and their answers.
fn probes<'a>(arm: &'a str, repeats: &[&'a Evidence]) -> impl Iterator<Item = String> + use<'a> {
    let http = repeats.first().and_then(|evidence| evidence.run.http.as_ref());
    http.into_iter().flat_map(|http| &http.probes).map(move |probe| {
        let when =
            probe.at_ms.map_or("before the load".to_owned(), |at| format!("at {}", format_milliseconds(at)));
        let what = probe.status.map_or("nothing".to_owned(), |status| status.to_string());
        format!(
            "{arm}: the probe of {} {when}: {what} after {}",
            probe.path,
            format_milliseconds(probe.took_ms)
        )
    })
}

/// The events of the first repeat.
fn events<'a>(arm: &'a str, repeats: &[&'a Evidence]) -> impl Iterator<Item = String> + use<'a> {
    let run = repeats.first().map(|evidence| &evidence.run);
    run.into_iter().flat_map(|run| &run.events).map(move |figures| {
        let EventFigures { at_ms, took_ms, event, failed } = figures;
        let took = format_milliseconds(*took_ms);
        let result = failed
            .as_ref()
            .map_or_else(|| format!("took {took}"), |reason| format!("failed: {}", shown(reason)));
        format!("{arm}: {} at {}: {result}", shown(event), format_milliseconds(*at_ms))
    })
}

/// The false answers of all repeats, with the first example of each kind.
fn false_answers(arm: &str, repeats: &[&Evidence]) -> Vec<String> {
    let audits = repeats.iter().filter_map(|evidence| evidence.run.load.open()?.audit.as_ref());
    let audit = audits.fold(Audit::default(), Audit::with);
    let line = |(violation, Example { request, answer, rule }): (&Violation, &Example)| {
        let count = audit.count(*violation).unwrap_or_default();
        let metric = violation.metric();
        let [request, answer, rule] = [request, answer, rule].map(|text| shown(text));
        format!("{arm}: {metric} {}: {rule}. The first: {request}, {answer}", format_count(count))
    };
    audit.examples.iter().map(line).collect()
}

/// The summary in sentences.
pub(super) fn conclusion(record: &Record) -> Vec<String> {
    let mut sentences = if record.hypotheses.is_empty() { Vec::new() } else { verdicts(record) };
    let invalid = [
        (
            record.runs.iter().any(Run::has_invalid_counts),
            "Some measurements are invalid, for the reasons above: they support no claim.",
        ),
        (
            record.runs.iter().any(Run::is_invalid),
            "Some measurements are invalid, for the reasons above: their times support no claim.",
        ),
    ];
    sentences.extend(invalid.into_iter().find(|(is_so, _)| *is_so).map(|(_, sentence)| sentence.to_owned()));
    sentences
}

/// The number of hypotheses by verdict.
fn verdicts(record: &Record) -> Vec<String> {
    let all = record.hypotheses.len();
    let of = |verdict: Verdict| record.hypotheses.iter().filter(|known| known.verdict == verdict).count();
    let verdicts =
        [Verdict::Supported, Verdict::Refuted, Verdict::Inconclusive, Verdict::Invalid, Verdict::NotJudged];
    let counts: Vec<_> = verdicts
        .into_iter()
        .filter(|verdict| of(*verdict) > 0)
        .map(|verdict| match of(verdict) {
            count if count == all && all > 1 => format!("all {all} hypotheses are {verdict}"),
            count => format!("{count} of {all} {verdict}"),
        })
        .collect();
    let counts = counts.join(", ") + ".";
    let mut sentences = vec![if record.in_progress {
        format!("So far: {counts}")
    } else {
        counts[..1].to_uppercase() + &counts[1..]
    }];
    sentences.extend(not_judged(record));
    for (_, hypothesis, expectation) in expectations(record) {
        if expectation.verdict == Verdict::Refuted {
            let [left, right] = sides(record, expectation);
            sentences.push(format!(
                "\"{}\" is refuted: {} does not hold ({}), {left} against {right}.",
                hypothesis.text, expectation.expr, expectation.reason
            ));
        }
    }
    sentences
}

/// Why hypotheses are not judged; `None`: all are.
pub(super) fn not_judged(record: &Record) -> Option<String> {
    let is_not_judged = |hypothesis: &Hypothesis| hypothesis.verdict == Verdict::NotJudged;
    let reason =
        "A scaled run judges the hypotheses with `any_scale = true`: the others are about the whole.";
    record.hypotheses.iter().any(is_not_judged).then(|| reason.to_owned())
}

/// Errors of an arm over all its repeats, and failures without an error: dropped stores, unsent requests, steal.
fn errors(arm: &str, repeats: &[&Evidence]) -> impl Iterator<Item = String> + use<> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (message, count) in repeats.iter().flat_map(|evidence| &evidence.run.errors) {
        *counts.entry(message).or_default() += count;
    }
    let failed = counts
        .into_iter()
        .map(|(message, count)| format!("{arm}: {} failed: {message}", format_count(count)));
    let dropped: u64 = repeats.iter().map(|evidence| evidence.run.stores_dropped).sum();
    let dropped = (dropped > 0).then(|| format!("{arm}: {dropped} stores dropped: the mailbox was full"));
    let unsent: u64 = repeats.iter().filter_map(|evidence| Some(evidence.run.load.open()?.dropped)).sum();
    let unsent = (unsent > 0).then(|| {
        format!(
            "{arm}: {} requests not sent: too many were under way, or the load was over",
            format_count(unsent)
        )
    });
    let invalid =
        repeats.iter().filter_map(|evidence| evidence.run.http.as_ref()).flat_map(|http| &http.invalid);
    let invalid = invalid.map(|reason| format!("{arm}: invalid: {reason}"));
    let notes = repeats.iter().filter_map(|evidence| evidence.run.http.as_ref()).flat_map(|http| &http.notes);
    let notes = notes.map(|note| format!("{arm}: {note}"));
    let stolen = repeats.iter().filter_map(|evidence| evidence.run.http.as_ref()?.steal).reduce(f64::max);
    let stolen = stolen.filter(|steal| *steal > HttpFigures::STEAL_MAX);
    let stolen = stolen.map(|steal| {
        format!(
            "{arm}: other virtual machines took {:.0} % of the processor time (steal), which lengthens times",
            steal * 100.0
        )
    });
    failed
        .chain(dropped)
        .chain(unsent)
        .chain(stolen)
        .chain(notes)
        .chain(invalid)
        .collect::<Vec<_>>()
        .into_iter()
}

/// The verdict on the experiment in a few words.
#[must_use]
pub fn verdict(record: &Record) -> String {
    match record.verdict {
        _ if record.in_progress => "in progress".to_owned(),
        _ if record.interrupted => "interrupted".to_owned(),
        Verdict::Invalid => Verdict::Invalid.to_string(),
        _ if record.hypotheses.is_empty() => "measured, nothing claimed".to_owned(),
        verdict => verdict.to_string(),
    }
}

/// How it was measured, in one line.
pub(super) fn how(record: &Record) -> String {
    let mut parts = Vec::new();
    parts.extend(record.aborted.as_ref().map(|reason| format!("aborted: {reason}")));
    if record.interrupted || record.aborted.is_some() {
        parts.push(format!("{} of {} measurements made", record.runs.len(), record.planned));
    }
    parts.push(match record.repeats {
        1 => "one repeat".to_owned(),
        repeats => format!("{repeats} repeats, arms interleaved, times are medians"),
    });
    parts.extend(record.noise.as_ref().map(|noise| format!("`{}` repeats `{}`", noise.arm, noise.of)));
    if !record.looks.is_empty() {
        let after: Vec<_> = record.looks.iter().map(|look| look.repeats.to_string()).collect();
        parts.push(format!("times judged after {} repeats", after.join(", ")));
    }
    if record.is_scaled() {
        let has_window = |expectation: &Expectation| expectation.expr.contains("..");
        let windows = expectations(record).any(|(_, _, expectation)| has_window(expectation));
        parts.push(format!(
            "scaled by {}{}",
            record.scale,
            if windows { ", and so are the windows of claims" } else { "" }
        ));
    }
    if record.clock == ClockKind::Virtual {
        let is_open = record.runs.iter().any(|run| run.load.open().is_some());
        let source = if is_open { "" } else { "; the source answers any number at once" };
        parts.push(format!("virtual time (computed{source})"));
    }
    let unmeasured: Vec<&str> = record
        .tests
        .iter()
        .filter(|test| !test.is_empty() && !record.runs.iter().any(|run| run.test == **test))
        .map(String::as_str)
        .collect();
    if !unmeasured.is_empty() {
        parts.push(format!("not measured: {}", unmeasured.join(" ")));
    }
    parts.join("; ")
}

/// Machine, versions and commit: the data for judging and repeating the figures.
pub(super) fn setup(record: &Record) -> impl Iterator<Item = (&'static str, String)> {
    let setup = [
        ("machine", Some(machine(&record.host))),
        ("commit", record.commit.clone()),
        ("stockade", Some(record.stockade.clone())),
        ("started", Some(record.started_at.clone())),
        ("seed", Some(record.seed.0.to_string())),
        ("load from", agents(record)),
        ("origin on", server(record, Role::Origin)),
        ("proxy on", server(record, Role::Proxy)),
    ];
    setup.into_iter().filter_map(|(what, value)| Some((what, value?)))
}

/// The agent that ran the servers with this role, if it was not this machine.
fn server(record: &Record, role: Role) -> Option<String> {
    record.servers().get(&role).map(|name| (*name).to_owned())
}

/// The machines that sent the load, if it was not this one.
fn agents(record: &Record) -> Option<String> {
    let agents: Vec<_> = AgentReport::of_all(record.agents()).iter().map(ToString::to_string).collect();
    (!agents.is_empty()).then(|| agents.join("; "))
}

pub(crate) fn machine(Host { cpu, cores, memory_mib, os }: &Host) -> String {
    format!("{cpu}, {cores} cores, {memory_mib} MiB, {os}")
}

/// Every expectation with its hypothesis; `true`: the first one of the hypothesis.
pub(super) fn expectations(record: &Record) -> impl Iterator<Item = (bool, &Hypothesis, &Expectation)> {
    record.hypotheses.iter().flat_map(|hypothesis| {
        let numbered = hypothesis.expect.iter().enumerate();
        numbered.map(move |(index, expectation)| (index == 0, hypothesis, expectation))
    })
}

pub(super) const HYPOTHESIS_HEADINGS: [&str; 6] =
    ["verdict", "hypothesis", "expected", "left", "right", "evidence"];

/// A row for each expectation, under [`HYPOTHESIS_HEADINGS`]. `text` and `code` write a cell in the syntax of the report.
pub(super) fn hypothesis_rows(
    record: &Record,
    text: fn(&str) -> String,
    code: fn(&str) -> String,
) -> Vec<Vec<String>> {
    let row = |(is_first, hypothesis, expectation): (bool, &Hypothesis, &Expectation)| {
        let [left, right] = sides(record, expectation).map(|side| text(&side));
        vec![
            expectation.verdict.to_string(),
            if is_first { text(&hypothesis.text) } else { String::new() },
            code(&expectation.expr),
            left,
            right,
            text(&expectation.reason),
        ]
    };
    expectations(record).map(row).collect()
}

/// ` (LEFT against RIGHT)`, empty if neither side has a figure.
pub(super) fn sides_in_parentheses(record: &Record, expectation: &Expectation) -> String {
    if expectation.left.is_none() && expectation.right.is_none() {
        return String::new();
    }
    let [left, right] = sides(record, expectation);
    format!(" ({left} against {right})")
}

/// The two sides of a comparison where it failed or came closest to failing: times with their unit.
pub(super) fn sides(record: &Record, expectation: &Expectation) -> [String; 2] {
    // The record has the comparison only as text.
    let arms: Vec<String> = record.arms.iter().map(|arm| arm.name.clone()).collect();
    let names = Names { tests: &record.tests, arms: &arms };
    let unit =
        judge::parse(&expectation.expr, names).map_or(FigureUnit::Number, |comparison| comparison.unit());
    [expectation.left, expectation.right].map(|side| match (side, unit) {
        (None, _) => "no figure".to_owned(),
        (Some(figure), FigureUnit::Time) => format_milliseconds(figure),
        (Some(figure), FigureUnit::Number) => number(figure),
    })
}
