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

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

pub use self::{
    live::{LIVE_FORMATS, LiveShadow, RenderLive},
    verify::verification_text,
};

use stockade_model::{
    registry::{Registry, ReportFormat},
    units::{format_count, format_duration, format_exact_size, format_size, format_span, ratio},
};

use crate::{
    curve::{Curve, CurveSettings, Lifetime},
    diagnosis::Finding,
    exchange::{Exchange, ExchangeCounts},
    outlook::Outlook,
    policy::Policy,
    recommend::{NoRecommendation, Peak, Recommendation},
    replay::{Capacity, Ttl},
    routes::{Evidence, PlannedRoute},
    scale::scaled,
    strategies::{OriginModel, StrategyFigures},
    trace::{Request, Trace},
    traffic::Traffic,
    verify::Verification,
};

/// A smaller share of the loads is shown as nothing.
const NOTHING: f64 = 0.000_5;

/// A plan: the figures of a log, curves, and a cache.
#[derive(Debug)]
pub struct CachePlan {
    /// The name of the log, for people.
    pub log: String,
    /// Lines, or records, that could not be read.
    pub bad_lines: u64,
    /// Lines without a request, such as messages of the server.
    pub without_request: u64,
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
pub type Render = fn(&CachePlan) -> String;

/// Every format of a plan.
pub static FORMATS: Registry<ReportFormat<Render>> = Registry::new(&[
    ReportFormat::new("text", "the cache, and the reasons for it, to read", text::render),
    ReportFormat::new("html", "one page with plots", html::render),
    ReportFormat::new("md", "the same as text, in Markdown", markdown::render),
    ReportFormat::new("json", "every figure", json::render),
]);

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

/// A rate with as many decimals as it needs: two digits, three decimals at most.
fn rate(per_second: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative; a float saturates"
    )]
    match per_second {
        0.000_5..0.05 => format!("{per_second:.3}"),
        0.05..0.995 => format!("{per_second:.2}").trim_end_matches('0').to_owned(),
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

/// The five facts to know first, each with its name, in the same words in each format; none without a recommendation.
fn facts(plan: &CachePlan) -> Vec<(&'static str, String)> {
    let Ok(chosen) = &plan.recommendation else { return Vec::new() };
    let size = match chosen.capacity {
        Capacity::Bytes(_) => capacity_text(chosen.capacity) + " of memory",
        Capacity::Entries(_) => capacity_text(chosen.capacity),
    };
    vec![
        ("Cache size", format!("{size}, with the eviction policy {}", chosen.policy.name)),
        ("Time to live (ttl)", ttl_fact(plan, chosen)),
        ("Origin load, warm cache", warm_fact(plan, chosen)),
        ("Origin load, empty cache", cold_fact(plan)),
        ("Another size", size_fact(chosen)),
    ]
}

fn ttl_fact(plan: &CachePlan, chosen: &Recommendation) -> String {
    let mut text = match chosen.lifetime.ttl {
        Ttl::Never if !plan.has_times => "none, since the log has no times".to_owned(),
        Ttl::Never => "none: responses do not expire".to_owned(),
        Ttl::Fixed(ttl_ns) => nanos_text(ttl_ns),
        Ttl::Logged { default_ns } => {
            format!("as Cache-Control of each response says, else {}", nanos_text(default_ns))
        }
    };
    let mut routes: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for route in &chosen.routes.routes {
        routes.entry(route.ttl_ns).or_default().push(&route.name);
    }
    let each = if routes.is_empty() { "" } else { "each " };
    for (number, (ttl_ns, names)) in routes.into_iter().rev().enumerate() {
        let but = if number == 0 { ", but " } else { ", " };
        let names = names.join(", ");
        let _ = match ttl_ns {
            0 => write!(text, "{but}none for {names}, which are not stored"),
            _ => write!(text, "{but}{} for {names}", nanos_text(ttl_ns)),
        };
    }
    if chosen.lifetime.swr_ns > 0 {
        let swr = nanos_text(chosen.lifetime.swr_ns);
        let _ = write!(text, "; {each}then up to {swr} more, while a new response is loaded (swr)");
    }
    text
}

fn warm_fact(plan: &CachePlan, chosen: &Recommendation) -> String {
    let is_warm = plan.trace.counted().from_ns > 0;
    let from_empty = if is_warm { "" } else { "; without a warm-up" };
    if !plan.has_times {
        return format!("{:.1} of 100 requests{from_empty}", 100.0 * chosen.point.load_ratio);
    }
    let busiest = peak(chosen.loads_per_s_in_busiest_minute);
    format!(
        "{busiest} requests a second in the busiest minute, {} on average{from_empty}",
        rate(chosen.loads_per_s)
    )
}

fn cold_fact(plan: &CachePlan) -> String {
    match (&plan.outlook, plan.has_times) {
        (Some(outlook), _) => format!(
            "{} requests a second in the worst minute, if a restart comes just before it",
            peak(outlook.restart_loads_per_s)
        ),
        (None, true) => "not computed".to_owned(),
        (None, false) => "not known, since the log has no times".to_owned(),
    }
}

fn size_fact(chosen: &Recommendation) -> String {
    let (loads, half) = (chosen.point.load_ratio, chosen.load_ratio_of_half);
    if loads <= 0.0 {
        let half = 100.0 * half;
        return format!("no request goes to the origin; with half the size {half:.1} of 100 do");
    }
    let saved = match chosen.loads_saved_by_double {
        saved if saved < NOTHING => "nothing".to_owned(),
        saved => format!("{} of the requests to the origin", percent(saved)),
    };
    let added = match half / loads - 1.0 {
        added if added < NOTHING => "adds nothing".to_owned(),
        added => format!("adds {}", percent(added)),
    };
    format!("twice the size saves {saved}; half the size {added}")
}

/// The answer in one sentence, without the [facts].
fn answer(plan: &CachePlan) -> String {
    let chosen = match &plan.recommendation {
        Ok(chosen) => chosen,
        Err(reason) => return reason.to_string(),
    };
    let warm = if plan.trace.counted().from_ns > 0 { " once warm" } else { "" };
    let mut text = format!("Hit ratio{warm} {}", percent(1.0 - chosen.point.miss_ratio));
    if plan.has_times && chosen.age_max_ns < u64::MAX {
        let age = format_span(Duration::from_nanos(chosen.age_max_ns));
        let _ = write!(text, "; no answer is older than {age}");
    }
    text + "."
}

/// The savings of the routes with a ttl of their own, in one sentence; `None` without such routes.
fn routes_sentence(plan: &CachePlan) -> Option<String> {
    let Recommendation { routes, lifetime, .. } = plan.recommendation.as_ref().ok()?;
    let what = match routes.routes.len() {
        0 => return None,
        1 => "The route with a ttl of its own saves".to_owned(),
        count => format!("The {count} routes with a ttl of their own save"),
    };
    let about = if routes.is_sampled { "about " } else { "" };
    let ttl_ns = lifetime.ttl.default_ns().unwrap_or(0);
    Some(format!(
        "{what} {about}{} of the requests to the origin{}, compared with {} for all.",
        percent(routes.loads_saved),
        match routes.bytes_saved {
            saved if saved < 0.0 => format!(", with {} more of its bytes", percent(-saved)),
            saved => format!(" and {} of its bytes", percent(saved)),
        },
        nanos_text(ttl_ns)
    ))
}

/// The log in one sentence.
fn log_sentence(plan: &CachePlan) -> String {
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
    // A 206 has a part of its object, so that the trace does not know its size.
    let bytes = if plan.is_access_log { plan.traffic.all.bytes } else { totals.bytes };
    if bytes > 0 {
        let _ = write!(text, ", {}", format_size(bytes as f64));
    }
    if let Ok(recommendation) = &plan.recommendation
        && plan.has_times
    {
        let _ = write!(text, ", {} requests in the busiest second", peak(recommendation.requests_per_s_max));
    }
    text + "."
}

/// The findings, what routes save, the log, the bytes from the origin and the warm-up, a sentence each.
fn sentences(plan: &CachePlan) -> impl Iterator<Item = String> {
    let findings = plan.findings.iter().map(|finding| Some(finding.to_string()));
    let others =
        [routes_sentence(plan), Some(log_sentence(plan)), bytes_sentence(plan), start_sentence(plan)];
    findings.chain(others).flatten()
}

/// The bytes that the origin sends, in one sentence; `None` if the log has no sizes.
fn bytes_sentence(plan: &CachePlan) -> Option<String> {
    let all = plan.trace.counted().object_bytes as f64;
    let chosen = plan.recommendation.as_ref().ok().filter(|_| all > 0.0)?;
    let loads = format_size(chosen.point.byte_load_ratio * all);
    Some(format!("Bytes from the origin: {loads} of the {} of all requested objects.", format_size(all)))
}

/// Objects that the recommended cache does not store, in one sentence; `None`: it stores all.
fn unstored_objects_sentence(plan: &CachePlan) -> Option<String> {
    let chosen = plan.recommendation.as_ref().ok()?;
    let entry_max = plan.settings.entry_max(chosen.capacity)?;
    let entry = |bytes: u32| plan.settings.entry_bytes(bytes);
    let is_large = |request: &&Request| request.exchange().is_storable() && entry(request.bytes) > entry_max;
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
            // The rest of the entry is not the body.
            format_size(entry_max.saturating_sub(entry(0)) as f64),
            format_exact_size(largest.next_power_of_two()),
        )
    })
}

/// The requests that do not count, and their loads, in one sentence; `None` without a warm-up.
fn start_sentence(plan: &CachePlan) -> Option<String> {
    let (from, all) = (plan.trace.counted(), plan.trace.totals().requests);
    if from.from_ns == 0 {
        return None;
    }
    let about = if plan.trace.is_whole() { "" } else { "about " };
    let warmup = counted(all.saturating_sub(from.requests), "request");
    let mut text = format!("Hit ratios and loads leave out the first {about}{warmup}, which fill the cache");
    let cold = plan.recommendation.as_ref().ok().and_then(|chosen| chosen.cold_start);
    if let Some(cold) = cold.filter(|_| plan.has_times) {
        let loads = peak(cold.loads_per_s_in_busiest_minute);
        let _ = write!(
            text,
            ": {loads} requests a second to the origin in the busiest minute of the first {}",
            format_span(Duration::from_nanos(cold.span_ns)),
        );
    }
    Some(text + ".")
}

/// Assumptions, lines left out and errors of estimates, a sentence each.
fn notes(plan: &CachePlan) -> Vec<String> {
    let mut notes = plan.assumptions.clone();
    let has_longer = |chosen: &Recommendation| chosen.routes.ttl_max_ns() > chosen.lifetime.ttl.default_ns();
    if plan.recommendation.as_ref().is_ok_and(has_longer) {
        notes.push(
            "Routes whose responses kept their size in the log have a longer ttl: look at their content first. A stated --ttl or --staleness is never exceeded."
                .to_owned(),
        );
    }
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
    if plan.without_request > 0 {
        let has = if plan.without_request == 1 { "has" } else { "have" };
        let lines = counted(plan.without_request, "line");
        notes.push(format!("{lines} {has} no request, such as messages of the server."));
    }
    if plan.is_access_log && plan.traffic.bots.is_none() {
        notes.push("The log has no user agents, so that bots are not told apart.".to_owned());
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
    notes.extend(unstored_objects_sentence(plan));
    notes
}

/// Requests that are loads whatever the cache, and why, in one sentence; `None`: the log has no such requests.
fn permanent_loads(plan: &CachePlan) -> Option<String> {
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
fn lifetimes_of_origin(plan: &CachePlan) -> Option<String> {
    let is_unknown =
        plan.is_access_log && !plan.trace.has_ttls() && plan.exchanges.of(Exchange::NotShareable) == 0;
    let is_fixed =
        plan.recommendation.as_ref().is_ok_and(|chosen| matches!(chosen.lifetime.ttl, Ttl::Fixed(_)));
    (is_unknown && is_fixed).then(|| {
        "The log has no Cache-Control: where the origin declares a max-age, that goes before the ttl of [cache] \
         (route.ttl replaces it), and private and no-store are loads."
            .to_owned()
    })
}

/// The block to copy: the `[cache]` table of the recommendation.
fn cache_block(recommendation: &Recommendation) -> String {
    let Recommendation { policy, capacity, lifetime, max_object, .. } = recommendation;
    cache_table("cache", policy, *capacity, *lifetime, *max_object)
}

/// A `[[route]]` of the proxy's configuration.
struct RouteBlock<'a> {
    /// `None`: all requests that no other route has.
    planned: Option<&'a PlannedRoute>,
    /// Names with values.
    settings: Vec<(&'static str, String)>,
    /// Its evidence is from a sample of the keys.
    is_sampled: bool,
}

/// The routes with which the proxy serves as planned, where the `[cache]` table is not enough. A ttl that the caller has not stated
/// leaves what the origin declares.
fn route_blocks(plan: &CachePlan) -> Vec<RouteBlock<'_>> {
    let Ok(Recommendation { lifetime, routes, .. }) = &plan.recommendation else { return Vec::new() };
    let Some(ttl_ns) = lifetime.ttl.default_ns().filter(|_| plan.is_access_log) else { return Vec::new() };
    let not_found = plan.exchanges.of(Exchange::NotFound) > 0;
    let negative_ttl = || not_found.then(|| ("negative_ttl", nanos_text(ttl_ns)));
    let ttl_setting = if plan.is_ttl_stated { "ttl" } else { "default_ttl" };
    let mut blocks: Vec<RouteBlock<'_>> = Vec::new();
    for route in &routes.routes {
        let (host, path) = route.name.split_once(' ').unzip();
        let mut settings: Vec<_> = host.map(|host| ("host", host.to_owned())).into_iter().collect();
        settings.push(("path", path.unwrap_or(&route.name).to_owned()));
        if route.ttl_ns == 0 {
            settings.push(("default_ttl", "0s".to_owned()));
        } else {
            settings.push((ttl_setting, nanos_text(route.ttl_ns)));
            settings.extend(negative_ttl());
        }
        blocks.push(RouteBlock { planned: Some(route), settings, is_sampled: routes.is_sampled });
    }
    let mut others = Vec::new();
    if plan.is_ttl_stated && matches!(lifetime.ttl, Ttl::Fixed(_)) {
        others.push(("ttl", nanos_text(ttl_ns)));
    }
    others.extend(negative_ttl());
    if !blocks.is_empty() {
        // Without it the requests of no other route would have none.
        others.insert(0, ("path", "/*".to_owned()));
    }
    if !others.is_empty() {
        blocks.push(RouteBlock { planned: None, settings: others, is_sampled: routes.is_sampled });
    }
    blocks
}

impl RouteBlock<'_> {
    /// The table, after its reason.
    fn text(&self) -> String {
        let reason = |route| text::hanging("# ", &reason(route, self.is_sampled), "# ");
        let reason = self.planned.map_or_else(String::new, reason);
        let line = |(name, value): &(&str, String)| {
            let comment = match *name {
                "ttl" => "  # in place of what the origin declares",
                "negative_ttl" => "  # 404 and 410",
                "default_ttl" if value == "0s" => "  # not stored",
                _ => "",
            };
            format!("{name:<12} = \"{value}\"{comment}\n")
        };
        let lines: String = self.settings.iter().map(line).collect();
        format!("{reason}[[route]]\n{lines}")
    }
}

/// Why a route has a ttl of its own.
fn reason(route: &PlannedRoute, is_sampled: bool) -> String {
    let share = percent(route.share);
    let (sampled, about) = if is_sampled { ("sampled ", "about ") } else { ("", "") };
    match route.evidence {
        Evidence::SameSize { answers, outdated } => format!(
            "{share} of the requests. Of {} {sampled}answers with this ttl {} had another size than the server sent at that time.",
            format_count(answers),
            if outdated == 0 { "none".to_owned() } else { format_count(outdated) }
        ),
        Evidence::Changes { outdated, outdated_left } => format!(
            "{share} of the requests. With the ttl of the cache {} of the {sampled}answers had another size \
             than the server sent at that time, with this one {}.",
            percent(outdated),
            percent(outdated_left)
        ),
        Evidence::UniqueKeys { share: once } => format!(
            "{share} of the requests, {about}{} of them for URLs that are requested once: not stored, unless the origin declares a lifetime or a validator.",
            percent(once)
        ),
    }
}

/// The same as text; `None`: the `[cache]` table is enough.
fn route_block(plan: &CachePlan) -> Option<String> {
    let blocks: Vec<String> = route_blocks(plan).iter().map(RouteBlock::text).collect();
    (!blocks.is_empty()).then(|| blocks.join("\n"))
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

/// `Hit ratio in percent, ttl 60s with swr 10s`.
fn curve_heading(plan: &CachePlan, what: &str, lifetime: Lifetime) -> String {
    let has_routes = plan.recommendation.as_ref().is_ok_and(|chosen| !chosen.routes.routes.is_empty());
    let for_all = if has_routes { " for all routes" } else { "" };
    format!("{what}, {}{for_all}", lifetime_text(lifetime))
}

/// Hit ratios of one lifetime: a row for each size, a column for each policy.
fn curve_table(plan: &CachePlan, lifetime: Lifetime) -> table::Table {
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
