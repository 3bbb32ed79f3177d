//! The report for people: the load, its results, and whether the run is valid.

use std::{
    fmt::{self, Display, Write},
    iter,
    time::Duration,
};

use stockade_model::{
    message::wrapped,
    outcome::Outcome,
    units::{format_count, format_duration, format_size, format_span, ratio},
};
use stockade_record::{
    histogram::Histogram,
    record::{AgentReport, Expectation, HttpFigures},
};

use super::{REPORT_OUTCOMES, ReportOptions, figures::rates};
use crate::{
    sample::Deviation,
    summary::{GeneratorHealth, Summary},
    tally::Tally,
};

/// The columns of the report.
const COLUMNS: usize = 80;

/// The most bars of the line of rates.
const BARS_MAX: usize = 48;

/// The most errors that are listed.
const ERRORS_MAX: usize = 5;

/// At most a page of text.
#[must_use]
pub fn render(summary: &Summary, options: &ReportOptions) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(summary, &mut text);
    if !options.expectations.is_empty() {
        text.push('\n');
    }
    text.extend(options.expectations.iter().map(expectation_lines));
    text
}

/// `supported     p99 < 50ms: it was 12ms`
#[must_use]
pub fn expectation_lines(expectation: &Expectation) -> String {
    let Expectation { expr, verdict, reason, .. } = expectation;
    hanging(&format!("{verdict:<12}  "), &format!("{expr}: {reason}"))
}

fn write(summary: &Summary, to: &mut String) -> fmt::Result {
    let tally = &summary.measured;
    line(to, "asked", &summary.schedule)?;
    line(to, "achieved", achieved(summary))?;
    if let Some(warmup) = &summary.warmup {
        let (requests, p99) = (format_count(warmup.requests()), quantile(&warmup.times.response, 0.99));
        line(to, "warm-up", format_args!("{requests} requests before, not counted here; their p99 {p99}"))?;
    }
    write!(to, "\n{}\n", times(tally))?;
    line(to, "success", success(tally))?;
    line(to, "answers", list(tally.status_codes.iter().map(|(code, count)| (status(*code), *count))))?;
    if tally.wire_bytes_in + tally.bytes_out > 0 {
        line(to, "bodies", bodies(summary))?;
    }
    if tally.outcomes.reported() > 0 {
        line(to, "cache", cache(tally))?;
        if tally.outcomes.unreported > 0 {
            let unreported = format_count(tally.outcomes.unreported);
            let what = "answers do not state what a cache did";
            line(to, "", format_args!("{unreported} {what}; {REPORT_OUTCOMES}"))?;
        }
    }
    if tally.failed() > 0 {
        line(to, "failed", failed(tally))?;
    }
    for (index, error) in tally.errors.iter().take(ERRORS_MAX).enumerate() {
        line(to, if index == 0 { "errors" } else { "" }, error)?;
    }
    if let more @ 1.. = tally.errors.len().saturating_sub(ERRORS_MAX) {
        line(to, "", format_args!("and {more} more"))?;
    }
    exceptions(summary, to)?;
    let rates = rates(summary);
    if rates.len() > 1 {
        line(to, "per second", sparkline(&rates))?;
    }
    let GeneratorHealth { cpu_mean, cpu_max, steal, invalid_reasons, .. } = &summary.generator;
    line(to, "generator", format_args!("{cpu_mean:.2} cores on average, {cpu_max:.2} at most"))?;
    if let Some(steal) = steal.filter(|steal| *steal > HttpFigures::STEAL_MAX) {
        line(
            to,
            "",
            format_args!("other machines had {:.0} % of this host's processor time (steal)", steal * 100.0),
        )?;
    }
    for (index, agent) in AgentReport::of_all(&summary.agents).iter().enumerate() {
        line(to, if index == 0 { "agents" } else { "" }, agent)?;
    }
    let (connections, most) = (summary.connections, summary.in_flight_max);
    let connections = counted(connections, "connection");
    line(to, "", format_args!("{connections}, {} under way at most", counted(most, "request")))?;
    to.push('\n');
    if invalid_reasons.is_empty() {
        let has_answers = summary.measured.successes > 0 || summary.measured.requests() == 0;
        return writeln!(to, "{}", if has_answers { "valid" } else { "valid, and no request succeeded" });
    }
    to.write_str(&hanging("INVALID: ", &invalid_reasons.join("; ")))
}

/// `1 request`, `2,000 requests`
fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", format_count(count), if count == 1 { "" } else { "s" })
}

/// Counts of requests that are not part of the other figures, or that need an explanation.
fn exceptions(summary: &Summary, to: &mut String) -> fmt::Result {
    let counts = [
        ("besides", summary.dropped, "due and never sent"),
        ("of these", summary.sent_after_end, "sent when the schedule was over"),
        ("of these", summary.in_flight_at_end, "under way when the schedule ended"),
        ("in all", summary.measured.retries, "attempts after the first"),
        ("in all", summary.measured.resent, "sent again, as their kept connection had been closed"),
    ];
    for (label, count, what) in counts.into_iter().filter(|(_, count, _)| *count > 0) {
        line(to, label, format_args!("{} {what}", format_count(count)))?;
    }
    for deviation in Deviation::ALL {
        if let Some(count) = summary.measured.deviations.get(deviation.name()) {
            let text = deviation.text();
            line(
                to,
                "accepted",
                format_args!("{}: {text} (--strict refuses it)", counted(*count, "answer")),
            )?;
        }
    }
    Ok(())
}

/// A label of ten letters, and its value.
fn line(to: &mut String, label: &str, what: impl Display) -> fmt::Result {
    to.write_str(&hanging(&format!("{label:<10}  "), &what.to_string()))
}

/// A head, and a text next to it in as many lines as it needs.
fn hanging(head: &str, text: &str) -> String {
    let (indent, columns) = (" ".repeat(head.len()), COLUMNS - head.len());
    let lines = iter::once(head).chain(iter::repeat(&*indent)).zip(wrapped(text, columns));
    lines.map(|(head, line)| format!("{head}{line}").trim_end().to_owned() + "\n").collect()
}

/// `25,500 requests, 425.0/s; the last was done after 1m`
fn achieved(summary: &Summary) -> String {
    let requests = format_count(summary.measured.requests());
    let took = format_span(summary.attack_duration() + summary.wait_duration());
    match summary.achieved_rate() {
        _ if summary.measured.requests() == 0 => "no requests".to_owned(),
        Some(rate) => format!("{requests} requests, {rate:.1}/s; the last was done after {took}"),
        None => format!("{requests} requests at once; the last was done after {took}"),
    }
}

/// Three distributions, aligned.
fn times(tally: &Tally) -> String {
    const HEADINGS: [&str; 8] = ["min", "mean", "p50", "p90", "p95", "p99", "p99.9", "max"];
    let mut text = " ".repeat(10);
    for heading in HEADINGS {
        let _ = write!(text, " {heading:>7}");
    }
    let mut legend = Vec::new();
    for (label, what, times) in [
        ("response", "since due", &tally.times.response),
        ("service", "on the wire", &tally.times.service),
        ("send lag", "sent late", &tally.times.send_lag),
        ("no answer", "until given up", &tally.times_without_response),
    ] {
        if label == "no answer" && times.count() == 0 {
            continue;
        }
        let _ = write!(text, "\n{label:<10}");
        legend.push(format!("{label}: {what}"));
        for time in [times.min(), times.mean()] {
            let _ = write!(text, " {:>7}", shown(time));
        }
        for at in [0.5, 0.9, 0.95, 0.99, 0.999, 1.0] {
            let _ = write!(text, " {:>7}", quantile(times, at));
        }
    }
    text + "\n" + &hanging(&" ".repeat(12), &legend.join("; "))
}

/// `1.23 MiB received, 402 B per request, 98.2 KiB/s; 2.46 MiB decompressed; 12 B sent`
fn bodies(summary: &Summary) -> String {
    let Tally { wire_bytes_in, bytes_in, bytes_out, .. } = summary.measured;
    let mut text = format!("{} received", format_size(wire_bytes_in as f64));
    if let Some(mean) = ratio(wire_bytes_in, summary.measured.requests()) {
        let _ = write!(text, ", {} per request", format_size(mean));
    }
    let took = (summary.attack_duration() + summary.wait_duration()).as_secs_f64();
    if took > 0.0 {
        let _ = write!(text, ", {}/s", format_size(wire_bytes_in as f64 / took));
    }
    for (count, what) in [(bytes_in, "decompressed"), (bytes_out, "sent")] {
        if count > 0 && (what == "sent" || bytes_in != wire_bytes_in) {
            let _ = write!(text, "; {} {what}", format_size(count as f64));
        }
    }
    text
}

fn shown(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), format_duration)
}

fn quantile(times: &Histogram, quantile: f64) -> String {
    shown(times.quantile(quantile))
}

fn success(tally: &Tally) -> String {
    match ratio(tally.successes, tally.requests()) {
        Some(success) => format!("{} answered with 200 to 399", percent(success)),
        None => "-".to_owned(),
    }
}

/// `3 (status 503: 1, connection refused: 2)`
fn failed(tally: &Tally) -> String {
    format!("{} ({})", format_count(tally.failed()), list(tally.failed_by_class().into_iter()))
}

/// With enough decimals that no failure is rounded away.
fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    match (percent, 100.0 - percent) {
        (_, 0.0) => "100 %".to_owned(),
        (_, ..0.01) => format!("{percent:.4} %"),
        (_, ..1.0) => format!("{percent:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

/// The outcomes in caches.
fn cache(tally: &Tally) -> String {
    let count = |outcome: &Outcome| (outcome.name().to_owned(), tally.outcomes.of(*outcome));
    let all = list(Outcome::ALL.iter().map(count));
    match tally.hit_ratio() {
        Some(hits) => format!("{all} ({} of all lookups hit)", percent(hits)),
        None if tally.hits_of_unknown_freshness > 0 => {
            format!(
                "{all} (cannot tell whether {} of the hits are fresh)",
                format_count(tally.hits_of_unknown_freshness)
            )
        }
        None => all,
    }
}

fn status(code: u16) -> String {
    if code == 0 { "none".to_owned() } else { code.to_string() }
}

/// `200: 25,498, none: 2`, without zeros.
fn list(counts: impl Iterator<Item = (String, u64)>) -> String {
    let counts = counts.filter(|(_, count)| *count > 0);
    let counts: Vec<_> = counts.map(|(what, count)| format!("{what}: {}", format_count(count))).collect();
    if counts.is_empty() { "-".to_owned() } else { counts.join(", ") }
}

/// One bar per second; in a long run a bar is the mean of several seconds. The lowest and the highest rate follow.
fn sparkline(rates: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let max = rates.iter().copied().fold(0.0, f64::max);
    let min = rates.iter().copied().fold(max, f64::min);
    let each = rates.len().div_ceil(BARS_MAX);
    let mut text = String::new();
    for seconds in rates.chunks(each) {
        let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
        let height = if max > 0.0 { mean / max * (BARS.len() - 1) as f64 } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 7")]
        text.push(BARS[(height.round() as usize).min(BARS.len() - 1)]);
    }
    let _ = write!(text, "  {min:.0} to {max:.0}");
    if each > 1 {
        let _ = write!(text, " (a bar: {each} s)");
    }
    text
}
