//! The answer, in several formats. Each is one file.

mod html;
mod json;
mod live;
mod markdown;
mod outlook;
mod table;
mod text;
mod traffic;
mod verify;

use std::{fmt::Write as _, time::Duration};

pub use self::{
    live::{LIVE_FORMATS, LiveShadow, RenderLive},
    verify::verification_text,
};

use stockade_model::units::{
    format_count, format_duration, format_exact_size, format_size, format_span, ratio,
};

use crate::{
    curve::{Curve, CurveSettings, Lifetime},
    diagnosis::Finding,
    exchange::{Exchange, ExchangeCounts},
    outlook::Outlook,
    policy::Policy,
    recommend::{NoRecommendation, Peak, Recommendation},
    replay::{Capacity, Ttl},
    scale::scaled,
    strategies::{OriginModel, StrategyFigures},
    trace::{Request, Trace},
    traffic::Traffic,
    verify::Verification,
};

/// A plan: the figures of a log, curves, and a cache.
#[derive(Debug)]
pub struct Plan {
    /// The name of the log, for people.
    pub log: String,
    /// Lines, or records, that could not be read.
    pub bad_lines: u64,
    /// Requests that do not count, such as those of other statuses than the caller wants.
    pub left_out: u64,
    /// The requests that count and are not stored, and why.
    pub exchanges: ExchangeCounts,
    /// Writes of a trace, which do not count.
    pub writes_left_out: u64,
    /// The log is one of a server, which may leave out values.
    pub is_access_log: bool,
    /// The caller has said how old responses may be.
    pub is_ttl_stated: bool,
    /// The log says when requests came.
    pub has_times: bool,
    /// The requests.
    pub trace: Trace,
    /// The settings of the curves.
    pub settings: CurveSettings,
    /// Curves, in the order of the settings.
    pub curves: Vec<Curve>,
    /// The cache.
    pub recommendation: Result<Recommendation, NoRecommendation>,
    /// Runs of strategies over the busiest part of the log, if the caller asked for them.
    pub strategies: Option<StrategyRuns>,
    /// Assumptions that the caller made for lack of an argument, a sentence each.
    pub assumptions: Vec<String>,
    /// All requests of the log by bots, routes, hosts, types and statuses.
    pub traffic: Traffic,
    /// The cache for the requests that are not by bots, where they matter.
    pub without_bots: Option<Recommendation>,
    /// Why there are few hits, and what would give more.
    pub findings: Vec<Finding>,
    /// The cache under other conditions, if the caller asked for them.
    pub outlook: Option<Outlook>,
    /// Predicted and measured figures, if the plan was verified. The text of the plan goes before them.
    pub verification: Option<Verification>,
}

/// Strategies on the busiest part of the log.
#[derive(Debug)]
pub struct StrategyRuns {
    /// The requests of the part.
    pub requests: usize,
    /// How long it takes.
    pub span: Duration,
    /// The origin.
    pub origin: OriginModel,
    /// A run for each strategy.
    pub figures: Vec<StrategyFigures>,
}

/// Writes a plan in one format.
pub type Render = fn(&Plan) -> String;

/// Each format with its function.
pub const FORMATS: [(&str, Render); 4] =
    [("text", text::render), ("html", html::render), ("md", markdown::render), ("json", json::render)];

/// `512MiB`, or `36,000 entries`.
#[must_use]
pub fn capacity_text(capacity: Capacity) -> String {
    match capacity {
        Capacity::Entries(1) => "1 entry".to_owned(),
        Capacity::Entries(entries) => format!("{} entries", format_count(entries)),
        Capacity::Bytes(bytes) => {
            let exact = format_exact_size(bytes);
            // Of a size that no unit divides three digits are enough.
            if exact.len() > "1023KiB".len() { format_size(bytes as f64) } else { exact }
        }
    }
}

/// `ttl 60s with swr 10s`.
#[must_use]
pub fn lifetime_text(lifetime: Lifetime) -> String {
    let swr = if lifetime.swr_ns > 0 {
        format!(" with swr {}", nanos_text(lifetime.swr_ns))
    } else {
        String::new()
    };
    let ttl = match lifetime.ttl {
        Ttl::Never => "no ttl".to_owned(),
        Ttl::Fixed(ttl_ns) => format!("ttl {}", nanos_text(ttl_ns)),
        Ttl::Logged { default_ns } => format!("ttl of the responses, else {}", nanos_text(default_ns)),
    };
    ttl + &swr
}

/// As files write it: whole hours and minutes from two minutes on, such as `1h`; else `90s`.
pub(crate) fn nanos_text(nanos: u64) -> String {
    const MINUTE_NS: u64 = 60_000_000_000;
    const HOUR_NS: u64 = 60 * MINUTE_NS;
    match nanos {
        0..=MINUTE_NS => format_duration(Duration::from_nanos(nanos)),
        _ if nanos.is_multiple_of(HOUR_NS) => format!("{}h", nanos / HOUR_NS),
        _ if nanos.is_multiple_of(MINUTE_NS) => format!("{}m", nanos / MINUTE_NS),
        _ => format_duration(Duration::from_nanos(nanos)),
    }
}

/// A share in percent with one decimal.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A rate with as many decimals as it needs.
fn rate(per_second: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative; a float saturates"
    )]
    match per_second {
        0.000_5..0.05 => format!("{per_second:.3}"),
        ..10.0 => format!("{per_second:.1}"),
        _ => format_count(per_second.round() as u64),
    }
}

/// `1 line`, `2 lines`.
fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", format_count(count))
}

/// A rate; an estimate with its error, as in `~904 (± 6 %)`.
fn peak(peak: Peak) -> String {
    match peak.error {
        None => rate(peak.per_s),
        Some(error) => format!("~{} (± {:.0} %)", rate(peak.per_s), 100.0 * error),
    }
}

/// The answer in one or two sentences.
fn answer(plan: &Plan) -> String {
    let recommendation = match &plan.recommendation {
        Ok(recommendation) => recommendation,
        Err(reason) => return reason.to_string(),
    };
    let Recommendation { policy, capacity, lifetime, point, .. } = recommendation;
    let mut text = format!("{}, {}", capacity_text(*capacity), policy.name);
    if plan.has_times {
        let _ = write!(text, ", {}", lifetime_text(*lifetime));
    }
    let warm = if plan.trace.counted().from_ns > 0 { " once warm" } else { "" };
    let _ = write!(text, ": hit ratio {}{warm}", percent(1.0 - point.miss_ratio));
    if plan.has_times {
        let loads = peak(recommendation.loads_per_s_in_busiest_minute);
        let _ = write!(text, ", {loads} requests a second to the origin at the busiest minute");
        if recommendation.age_max_ns < u64::MAX {
            let age = format_span(Duration::from_nanos(recommendation.age_max_ns));
            let _ = write!(text, ", none older than {age}");
        }
    }
    let size = if matches!(capacity, Capacity::Bytes(_)) { "memory" } else { "number of entries" };
    let half = recommendation.load_ratio_of_half;
    let _ = if point.load_ratio > 0.0 {
        let saved = percent(recommendation.loads_saved_by_double);
        let added = percent(half / point.load_ratio - 1.0);
        write!(text, "; doubling the {size} saves {saved} of the loads at the origin, halving adds {added}.")
    } else {
        write!(
            text,
            "; no loads are left to save, and half of the {size} has {:.1} for 100 requests.",
            100.0 * half
        )
    };
    text
}

/// The log in one sentence.
fn log_sentence(plan: &Plan) -> String {
    let totals = plan.trace.totals();
    let about = if plan.trace.is_whole() { "" } else { "about " };
    let mut text = format!(
        "{}: {} for {about}{}",
        plan.log,
        counted(totals.requests, "request"),
        counted(plan.trace.keys_estimate(), "key"),
    );
    if plan.has_times {
        let _ = write!(text, " in {}", format_span(Duration::from_nanos(totals.span_ns)));
    }
    if totals.bytes > 0 {
        let _ = write!(text, ", {}", format_size(totals.bytes as f64));
    }
    if let Ok(recommendation) = &plan.recommendation
        && plan.has_times
    {
        let _ = write!(text, ", {} requests in the busiest second", peak(recommendation.requests_per_s_max));
    }
    text + "."
}

/// The findings, the log, the bytes from the origin and the cold start, a sentence each.
fn sentences(plan: &Plan) -> impl Iterator<Item = String> {
    let findings = plan.findings.iter().map(|finding| Some(finding.to_string()));
    findings.chain([Some(log_sentence(plan)), bytes_sentence(plan), start_sentence(plan)]).flatten()
}

/// The bytes that the origin sends, in one sentence; `None` if the log has no sizes.
fn bytes_sentence(plan: &Plan) -> Option<String> {
    let all = plan.trace.counted().object_bytes as f64;
    let chosen = plan.recommendation.as_ref().ok().filter(|_| all > 0.0)?;
    let loads = format_size(chosen.point.byte_load_ratio * all);
    Some(format!("Bytes from the origin: {loads} of {}.", format_size(all)))
}

/// Objects that the recommended cache does not store, in one sentence; `None`: it stores all.
fn large_objects(plan: &Plan) -> Option<String> {
    let chosen = plan.recommendation.as_ref().ok()?;
    let entry_max = plan.settings.entry_max(chosen.capacity)?;
    let entry = |bytes: u32| plan.settings.entry_bytes(bytes);
    let is_large = |request: &&Request| entry(request.bytes) > entry_max;
    let (mut requests, mut bytes, mut largest) = (0_u64, 0.0, 0);
    for request in plan.trace.requests().iter().filter(is_large) {
        requests += 1;
        bytes += f64::from(request.bytes);
        largest = largest.max(entry(request.bytes));
    }
    let share = plan.trace.sampled_share();
    let all = plan.trace.totals().object_bytes as f64 * share;
    (requests > 0).then(|| {
        format!(
            "{} with {} of the bytes are for objects above {}, which the cache does not store: --max-object {} plans for them.",
            counted(scaled(requests, 1.0 / share), "request"),
            percent((bytes / all).min(1.0)),
            capacity_text(Capacity::Bytes(entry_max)),
            format_exact_size(largest.next_power_of_two()),
        )
    })
}

/// The loads of an empty cache, and the requests that do not count, in one sentence; `None` without a warm-up.
fn start_sentence(plan: &Plan) -> Option<String> {
    let (from, all) = (plan.trace.counted(), plan.trace.totals().requests);
    if from.from_ns == 0 {
        return None;
    }
    let about = if plan.trace.is_whole() { "" } else { "about " };
    let warmup = counted(all.saturating_sub(from.requests), "request");
    let left_out = format!("it ratios and loads leave out the first {about}{warmup}, which fill the cache.");
    let cold = plan.recommendation.as_ref().ok().and_then(|chosen| chosen.cold_start);
    Some(match cold.filter(|_| plan.has_times) {
        Some(cold) => format!(
            "Cold start: {} requests a second to the origin at the busiest minute of the first {}; h{left_out}",
            peak(cold.loads_per_s_in_busiest_minute),
            format_span(Duration::from_nanos(cold.span_ns)),
        ),
        None => format!("H{left_out}"),
    })
}

/// Assumptions, lines left out and errors of estimates, a sentence each.
fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = plan.assumptions.clone();
    let totals = plan.trace.totals();
    if plan.left_out > 0 {
        let verb = if plan.left_out == 1 { "is" } else { "are" };
        let writes = match plan.writes_left_out {
            0 => String::new(),
            writes => format!(", {} of a trace among them", counted(writes, "write")),
        };
        notes.push(format!("{} {verb} left out{writes}.", counted(plan.left_out, "request")));
    }
    notes.extend(permanent_loads(plan));
    notes.extend(lifetimes_of_origin(plan));
    if plan.bad_lines > 0 {
        notes.push(format!("{} could not be read.", counted(plan.bad_lines, "line")));
    }
    if totals.reversals > 0 {
        notes.push(format!(
            "The lines were sorted by time: {} of them were behind an earlier one, by {} at most.",
            format_count(totals.reversals),
            nanos_text(totals.reversal_max_ns)
        ));
    }
    let has_none = plan.recommendation.as_ref().is_ok_and(|chosen| chosen.point.miss_ratio >= 1.0);
    if has_none && plan.findings.is_empty() {
        notes.push(
            "No request finds a fresh response: nothing is requested again within the ttl, or nothing fits."
                .to_owned(),
        );
    }
    let is_sampled = plan.curves.iter().any(|curve| curve.points.iter().any(|point| !point.is_exact));
    if is_sampled {
        let worst = plan.curves.iter().filter_map(|curve| curve.error).reduce(f64::max);
        let error = worst.map_or_else(
            || "their error is not known, because the log does not fit into memory as a whole".to_owned(),
            |worst| {
                format!(
                    "where they were checked with all requests they are off by {:.2} points at most",
                    100.0 * worst
                )
            },
        );
        notes.push(format!("Points with ~ are from a sample of the keys; {error}."));
    }
    if !plan.trace.is_whole() {
        notes.push(format!(
            "The recommendation and its busiest moments rest on {} of the keys as well.",
            percent(plan.trace.sampled_share())
        ));
    }
    notes.extend(large_objects(plan));
    notes
}

/// Requests that are loads whatever the cache, and why, in one sentence; `None`: there are none.
fn permanent_loads(plan: &Plan) -> Option<String> {
    let counts = &plan.exchanges;
    let loads = counts.never_stored();
    let reasons = [
        (counts.other_methods(), "with another method than GET or HEAD"),
        (counts.of(Exchange::NotShareable), "with no-store, no-cache or private"),
        (
            counts.of(Exchange::NoLifetime),
            "with a status that is stored only with a lifetime, such as 302 or 500",
        ),
    ];
    let reasons: Vec<String> = reasons
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, reason)| format!("{} {reason}", format_count(count)))
        .collect();
    let share = ratio(loads, plan.trace.totals().requests).unwrap_or(0.0);
    (loads > 0).then(|| {
        format!(
            "No cache stores the responses to {} of the requests: {}.",
            percent(share),
            reasons.join(", ")
        )
    })
}

/// The lifetimes that the origin declares, where the log does not say, in one sentence.
fn lifetimes_of_origin(plan: &Plan) -> Option<String> {
    let is_unknown =
        plan.is_access_log && !plan.trace.has_ttls() && plan.exchanges.of(Exchange::NotShareable) == 0;
    let is_fixed =
        plan.recommendation.as_ref().is_ok_and(|chosen| matches!(chosen.lifetime.ttl, Ttl::Fixed(_)));
    (is_unknown && is_fixed).then(|| {
        "The log has no Cache-Control: where the origin declares a max-age, that goes before the ttl of [cache] (route.ttl replaces it), and private and no-store are loads."
            .to_owned()
    })
}

/// The block to copy: the `[cache]` table of the recommendation.
fn cache_block(recommendation: &Recommendation) -> String {
    let Recommendation { policy, capacity, lifetime, max_object, .. } = recommendation;
    cache_table("cache", policy, *capacity, *lifetime, *max_object)
}

/// The settings of a `[[route]]` with which the proxy serves as planned, by name, where the `[cache]` table is not enough. A ttl that the
/// caller has not stated is left out: it would replace what the origin declares.
fn route_settings(plan: &Plan) -> Vec<(&'static str, String)> {
    let Ok(Recommendation { lifetime, .. }) = &plan.recommendation else { return Vec::new() };
    let Some(ttl_ns) = lifetime.ttl.default_ns().filter(|_| plan.is_access_log) else { return Vec::new() };
    let mut settings = Vec::new();
    if plan.is_ttl_stated && matches!(lifetime.ttl, Ttl::Fixed(_)) {
        settings.push(("ttl", nanos_text(ttl_ns)));
    }
    if plan.exchanges.of(Exchange::NotFound) > 0 {
        settings.push(("negative_ttl", nanos_text(ttl_ns)));
    }
    settings
}

/// The same as a table, with comments.
fn route_block(plan: &Plan) -> Option<String> {
    let settings = route_settings(plan);
    let line = |(name, value): &(&str, String)| {
        let comment = if *name == "ttl" { "in place of what the origin declares" } else { "404 and 410" };
        format!("{name:<12} = \"{value}\"  # {comment}\n")
    };
    let lines: String = settings.iter().map(line).collect();
    (!settings.is_empty()).then(|| format!("[[route]]\n{lines}"))
}

/// The preset that serves with this lifetime.
fn strategy(lifetime: Lifetime) -> &'static str {
    if lifetime.swr_ns > 0 { "swr" } else { "stampede" }
}

/// A table of this name with the settings of a cache.
pub(crate) fn cache_table(
    name: &str,
    policy: &Policy,
    capacity: Capacity,
    lifetime: Lifetime,
    max_object: Option<u64>,
) -> String {
    let strategy = strategy(lifetime);
    let mut table = format!("[{name}]\nstrategy = \"{strategy}\"\n");
    let ttl = lifetime.ttl.default_ns().map_or_else(|| "none".to_owned(), nanos_text);
    let _ = writeln!(table, "ttl      = \"{ttl}\"");
    if lifetime.swr_ns > 0 {
        let _ = writeln!(table, "swr      = \"{}\"", nanos_text(lifetime.swr_ns));
    }
    let size = match capacity {
        Capacity::Entries(entries) => format!("entries = {entries}"),
        Capacity::Bytes(bytes) => {
            let max_object = max_object.map(|object| format_exact_size(object.min(bytes)));
            let max_object =
                max_object.map_or(String::new(), |object| format!(", max_object = \"{object}\""));
            format!("bytes = \"{}\"{max_object}", format_exact_size(bytes))
        }
    };
    let _ = writeln!(table, "limit    = {{ {size}, policy = \"{}\" }}", policy.name);
    table
}

/// Hit ratios of one lifetime: a row for each size, a column for each policy.
fn curve_table(plan: &Plan, lifetime: Lifetime) -> table::Table {
    let curves: Vec<&Curve> = plan.curves.iter().filter(|curve| curve.lifetime == lifetime).collect();
    let mut header = vec!["size".to_owned()];
    header.extend(curves.iter().map(|curve| curve.policy.name.to_owned()));
    let rows = plan.settings.sizes.iter().enumerate().map(|(size, capacity)| {
        let mut row = vec![capacity_text(*capacity)];
        row.extend(curves.iter().map(|curve| {
            let point = &curve.points[size];
            let mark = if point.is_exact { "" } else { "~" };
            format!("{mark}{:.1}", 100.0 * (1.0 - point.miss_ratio))
        }));
        row
    });
    table::Table { header, rows: rows.collect() }
}

/// A heading for the strategies.
fn strategies_heading(runs: &StrategyRuns) -> String {
    let outage = runs.origin.outage;
    let outage = if outage.is_zero() {
        String::new()
    } else {
        format!("; the origin fails for the busiest {}", format_span(outage))
    };
    format!(
        "Strategies in virtual time: {} of {}, loads take {}{outage}",
        counted(runs.requests as u64, "request"),
        format_span(runs.span),
        runs.origin.latency,
    )
}

/// A row for each strategy.
fn strategies_table(runs: &StrategyRuns) -> table::Table {
    let header = ["strategy", "answered", "hit ratio", "loads", "loads/s max", "p50", "p99", "max", "oldest"];
    let rows = runs.figures.iter().map(|figures| {
        let requests = figures.outcomes.requests();
        let share = |count: u64| percent(ratio(count, requests).unwrap_or(0.0));
        let time = |quantile: f64| {
            figures.response.quantile(quantile).map_or_else(|| "-".to_owned(), format_duration)
        };
        vec![
            figures.name.clone(),
            share(requests - figures.outcomes.error),
            share(figures.outcomes.hit),
            format_count(figures.loads),
            format_count(figures.loads_per_s_max),
            time(0.5),
            time(0.99),
            time(1.0),
            format_span(figures.age_max),
        ]
    });
    table::Table { header: header.map(str::to_owned).to_vec(), rows: rows.collect() }
}
