//! From a log and options to a [`CachePlan`]: lifetimes, sizes and the latency of the origin, where the options leave them open.

use std::time::Duration;

use stockade_model::units::format_duration;

use crate::{
    curve::{Curve, CurveSettings, Lifetime, curves, sample},
    diagnosis::{UrlSample, diagnose},
    policy::Policy,
    read::LogContent,
    recommend::{Recommendation, SAVED_LOADS_MIN, recommend},
    replay::{Capacity, Ttl},
    report::CachePlan,
    routes::RouteTtls,
    trace::Trace,
    traffic::Traffic,
    warmup::Warmup,
};

/// The bytes of an entry of the proxy without the response's body: key, headers, and the store's own. Measured with
/// `stockade origin` behind `stockade proxy` (`/stats`) with SIEVE, a key of 18 bytes, 100 bytes to 10 kB; other policies store more.
pub const OVERHEAD_BYTES: u32 = 1_330;
/// The bytes of a marker of the proxy that responses are not shared, measured in the same way.
pub(crate) const MARKER_BYTES: u32 = 290;
/// The bytes that the proxy reserves for a response beyond those of its entry until it is stored (`ENTRY_OVERHEAD_BYTES` of its `fetch.rs`,
/// without the key and the store's own). With 64 KiB, where 4 KiB may be reserved, it stores a body of 1,800 bytes; one of 1,850 bytes is not stored.
pub const RESERVED_BYTES: u32 = 940;
/// The ttl where nothing else is said.
const TTL: Duration = Duration::from_mins(1);
/// The grace of Varnish, which serves as `swr` where staleness allows it.
const SWR: Duration = Duration::from_secs(10);
/// Of a bound on staleness without a ttl, this part is `swr` at most.
const SWR_DIVISOR: u32 = 7;
/// Sizes are powers of two. Where room is given: the number of sizes below it.
const SIZES_BELOW: i32 = 5;
/// The number of sizes above it.
const SIZES_ABOVE: i32 = 4;
/// Where no room is given: the number of sizes, up to twice the room beyond which more saves less than [`SAVED_MIN`] of the loads.
const SIZES: usize = 10;
/// Powers of two below the size of all objects that are examined for that room.
const SIZES_EXAMINED: u32 = 24;
/// The share of the loads that more room has to save.
const SAVED_MIN: f64 = 0.01;
/// With a smaller share of requests by bots the plan without them is the same.
const BOTS_SHARE_MIN: f64 = 0.03;

/// The options of a plan.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// The room to plan for; `None`: choose it.
    pub memory: Option<Capacity>,
    /// Lifetimes to compare; empty: the log's own, or a minute.
    pub ttls: Vec<TtlOption>,
    /// The greatest age that a response may have.
    pub staleness: Option<Duration>,
    /// How long a load takes.
    pub latency: LatencyOption,
    /// Policies to compare.
    pub policies: Vec<&'static Policy>,
    /// Sizes to compare; empty: powers of two up to the size of all objects.
    pub sizes: Vec<SizeOption>,
    /// Replay all requests for each point.
    pub is_exact: bool,
    /// The requests that fill the cache and do not count.
    pub warmup: Warmup,
    /// The largest entry that is stored, in bytes; `None`: the default of the cache, 1 MiB or a sixteenth of the room.
    pub max_object: Option<u64>,
    /// Bytes of an entry without its response: [`OVERHEAD_BYTES`] as in the proxy, or 0 as in published curves.
    pub overhead_bytes: u32,
}

/// A lifetime to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlOption {
    /// Values never expire.
    Never,
    /// The same for all responses.
    Fixed(Duration),
    /// As the log says.
    Headers,
}

/// How long a load takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyOption {
    /// As given.
    Fixed(Duration),
    /// The median of the log.
    Log,
}

/// A size to compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizeOption {
    /// As given.
    Fixed(Capacity),
    /// A share of the size of all objects.
    Share(f64),
}

/// Why there is no plan. The message names the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Nothing can expire in a log without times.
    #[error(
        "the log has no times, so nothing expires in it: leave out --ttl and --staleness, or name the column with the time"
    )]
    NoTimes,
    /// A log without times has no durations.
    #[error("the log has no times: give --warmup as a share of its requests, such as 10%")]
    WarmupNoTimes,
    /// No request is left to count.
    #[error("--warmup is as long as the log: give a shorter one, such as 10%")]
    Warmup,
    /// All lifetimes are longer than the bound.
    #[error("every --ttl is longer than --staleness: give a shorter one, or leave --ttl out")]
    Staleness,
    /// No response of the log says for how long it is fresh.
    #[error("no response of the log says for how long it is fresh: give a --ttl, or log Cache-Control")]
    NoTtls,
}

/// Computes the curves and chooses a cache. `progress` gets the number of finished and of planned replays, which may grow.
pub fn plan(
    log: String,
    content: LogContent,
    options: &PlanOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<CachePlan, PlanError> {
    let LogContent { exchanges, left_out, writes_left_out, service_time, has_times, is_by_host, .. } =
        content;
    let (bad_lines, without_request) = (content.summary.bad_lines, content.summary.without_request);
    let is_access_log = content.summary.format.is_access_log();
    let LogContent { trace, without_bots, urls, traffic, .. } = content;
    if !has_times && matches!(options.warmup, Warmup::Duration(_)) {
        return Err(PlanError::WarmupNoTimes);
    }
    let trace = trace.with_warmup(options.warmup);
    if trace.counted().requests == 0 {
        return Err(PlanError::Warmup);
    }
    let mut assumptions = Vec::new();
    let is_timed = options.staleness.is_some() || options.ttls.iter().any(|ttl| *ttl != TtlOption::Never);
    if !has_times && is_timed {
        return Err(PlanError::NoTimes);
    }
    let is_too_old = |ttl: &TtlOption| match (ttl, options.staleness) {
        (TtlOption::Fixed(ttl), Some(bound)) => *ttl > bound,
        (TtlOption::Never, Some(_)) => true,
        _ => false,
    };
    if !options.ttls.is_empty() && options.ttls.iter().all(is_too_old) {
        return Err(PlanError::Staleness);
    }
    if options.ttls.contains(&TtlOption::Headers) && !trace.has_ttls() {
        return Err(PlanError::NoTtls);
    }
    let lifetimes = if has_times {
        lifetimes(options, &trace, &mut assumptions)
    } else {
        assumptions.push("The log has no times, so nothing expires.".to_owned());
        vec![Lifetime { ttl: Ttl::Never, swr_ns: 0 }]
    };
    if trace.totals().bytes == 0 && options.memory.is_some_and(|memory| matches!(memory, Capacity::Bytes(_)))
    {
        assumptions
            .push(format!("The log has no sizes: each entry takes {} bytes.", options.overhead_bytes.max(1)));
    }
    let latency = latency(options.latency, service_time, has_times, &mut assumptions);
    let mut settings = CurveSettings {
        policies: options.policies.clone(),
        lifetimes,
        sizes: Vec::new(),
        latency_ns: nanos(latency),
        overhead_bytes: options.overhead_bytes,
        max_object: options.max_object,
        routes: RouteTtls::NONE,
    };
    let sample = sample(&trace);
    settings.sizes = sizes(options, &trace, sample.as_ref(), &settings);
    let curves = curves(&trace, sample.as_ref().filter(|_| !options.is_exact), &settings, progress);
    let is_ttl_stated = options.staleness.is_some() || !options.ttls.is_empty();
    let route_ttl_max_ns =
        (has_times && is_access_log).then(|| if is_ttl_stated { 0 } else { trace.totals().span_ns });
    let (memory, staleness_ns) = (options.memory, options.staleness.map(nanos));
    let recommendation = recommend(&trace, &curves, &settings, memory, staleness_ns, route_ttl_max_ns);
    let findings = recommendation.as_ref().map_or_else(
        |_| Vec::new(),
        |chosen| diagnose(&trace, &urls, &settings, chosen, options, is_by_host),
    );
    let without_bots = without_bots.filter(|_| traffic.bots_share() >= BOTS_SHARE_MIN).and_then(|trace| {
        let (traffic, urls) = (Traffic::default(), UrlSample::default());
        let content = LogContent { trace, without_bots: None, traffic, urls, ..content };
        without_bots_plan(content, options, recommendation.as_ref().ok()?)
    });
    settings.routes = recommendation.as_ref().map_or(RouteTtls::NONE, |chosen| chosen.routes.ttls(&trace));
    Ok(CachePlan {
        log,
        bad_lines,
        without_request,
        left_out,
        exchanges,
        writes_left_out,
        is_access_log,
        is_ttl_stated,
        has_times,
        trace,
        settings,
        curves,
        recommendation,
        strategies: None,
        verification: None,
        assumptions,
        traffic,
        without_bots,
        findings,
        outlook: None,
    })
}

/// How long a load takes.
fn latency(
    option: LatencyOption,
    service_time: Option<Duration>,
    has_times: bool,
    assumptions: &mut Vec<String>,
) -> Duration {
    match (option, service_time) {
        (LatencyOption::Fixed(latency), _) => latency,
        (LatencyOption::Log, Some(median)) => {
            assumptions.push(format!("A load takes {}, the median of the log.", format_duration(median)));
            median
        }
        (LatencyOption::Log, None) if !has_times => Duration::ZERO,
        (LatencyOption::Log, None) => {
            assumptions.push(
                "Loads take no time, since the log has no times of the server: --origin-latency sets one."
                    .to_owned(),
            );
            Duration::ZERO
        }
    }
}

/// The cache for the requests that are not by bots, with the policy of the whole log.
fn without_bots_plan(
    content: LogContent,
    options: &PlanOptions,
    chosen: &Recommendation,
) -> Option<Recommendation> {
    let options = PlanOptions { policies: vec![chosen.policy], ..options.clone() };
    plan(String::new(), content, &options, &|_, _| {}).ok()?.recommendation.ok()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn lifetimes(options: &PlanOptions, trace: &Trace, assumptions: &mut Vec<String>) -> Vec<Lifetime> {
    // The part of the bound on staleness that a ttl leaves.
    let swr_beside =
        |ttl: Duration| options.staleness.map_or(SWR, |bound| bound.saturating_sub(ttl).min(SWR));
    let (default_ttl, default_swr) = match options.staleness {
        Some(bound) => {
            let swr = (bound / SWR_DIVISOR).min(SWR);
            (bound.saturating_sub(swr), swr)
        }
        None => (TTL, SWR),
    };
    let logged = Lifetime { ttl: Ttl::Logged { default_ns: nanos(default_ttl) }, swr_ns: nanos(default_swr) };
    if options.ttls.is_empty() {
        let logged_age_ns = trace.ttl_max_ns().map(|longest| longest.saturating_add(logged.swr_ns));
        match (logged_age_ns, options.staleness) {
            (Some(age_ns), Some(bound)) if age_ns > nanos(bound) => assumptions.push(
                "Responses of the log are fresh for longer than --staleness: a ttl for all of them takes their place.".to_owned(),
            ),
            (Some(_), _) => return vec![logged],
            (None, _) => {}
        }
        if options.staleness.is_none() {
            assumptions.push(format!(
                "The ttl is {} and swr {}, since nothing else was said: --ttl and --staleness change them.",
                format_duration(default_ttl),
                format_duration(default_swr)
            ));
        }
        return vec![Lifetime { ttl: Ttl::Fixed(nanos(default_ttl)), swr_ns: nanos(default_swr) }];
    }
    let lifetime = |ttl: &TtlOption| match *ttl {
        TtlOption::Never => Lifetime { ttl: Ttl::Never, swr_ns: 0 },
        TtlOption::Fixed(ttl) => Lifetime { ttl: Ttl::Fixed(nanos(ttl)), swr_ns: nanos(swr_beside(ttl)) },
        TtlOption::Headers => logged,
    };
    let mut lifetimes: Vec<Lifetime> = Vec::new();
    for lifetime in options.ttls.iter().map(lifetime) {
        if !lifetimes.contains(&lifetime) {
            lifetimes.push(lifetime);
        }
    }
    lifetimes
}

fn sizes(
    options: &PlanOptions,
    trace: &Trace,
    sample: Option<&Trace>,
    settings: &CurveSettings,
) -> Vec<Capacity> {
    let has_bytes = match options.memory {
        Some(memory) => matches!(memory, Capacity::Bytes(_)),
        None => trace.totals().bytes > 0,
    };
    let all = if has_bytes {
        Capacity::Bytes(trace.footprint_bytes(settings.overhead_bytes).max(1))
    } else {
        Capacity::Entries(trace.keys_estimate().max(1))
    };
    let mut sizes: Vec<Capacity> = match (&options.sizes[..], options.memory) {
        ([], None) => useful_sizes(all, trace, sample, settings),
        ([], Some(memory)) => {
            (-SIZES_BELOW..=SIZES_ABOVE).map(|power| memory.times(2.0_f64.powi(power))).collect()
        }
        (sizes, _) => {
            let size = |size: &SizeOption| match *size {
                SizeOption::Fixed(capacity) => capacity,
                SizeOption::Share(share) => all.times(share),
            };
            sizes.iter().map(size).collect()
        }
    };
    sizes.retain(|size| size.size() > 0);
    sizes.sort_unstable_by_key(|size| size.size());
    sizes.dedup();
    sizes
}

/// Powers of two up to twice the smallest room that is as good as room for everything, for LRU.
fn useful_sizes(
    all: Capacity,
    trace: &Trace,
    sample: Option<&Trace>,
    settings: &CurveSettings,
) -> Vec<Capacity> {
    let mut largest = match all {
        Capacity::Entries(entries) => Capacity::Entries(entries.next_power_of_two()),
        Capacity::Bytes(bytes) => Capacity::Bytes(bytes.next_power_of_two()),
    };
    // Room for everything is too little for an object that is larger than the part of it that one entry may take.
    let object_bytes = trace.requests().iter().map(|request| request.bytes).max().unwrap_or(0);
    let largest_entry = settings.entry_bytes(object_bytes);
    let entry_max = |size: Capacity| settings.entry_max(size);
    while entry_max(largest).is_some_and(|most| most < largest_entry)
        && entry_max(largest) < entry_max(largest.times(2.0))
    {
        largest = largest.times(2.0);
    }
    let powers = (0..SIZES_EXAMINED).rev().map(|power| largest.times(0.5_f64.powi(power.cast_signed())));
    // In a smaller one no entry fits.
    let is_usable =
        |size: &Capacity| entry_max(*size).map_or(size.size() > 0, |most| most > settings.entry_bytes(0));
    let mut sizes: Vec<Capacity> = powers.filter(is_usable).collect();
    sizes.dedup();
    let examined = CurveSettings { policies: vec![Policy::LRU], sizes: sizes.clone(), ..settings.clone() };
    let is_enough = |curve: &Curve, size: usize| {
        let loads = |size: usize| curve.points.get(size).map_or(0.0, |point| point.load_ratio);
        let fewest = loads(curve.points.len() - 1);
        loads(size) - fewest <= (SAVED_MIN * fewest).max(SAVED_LOADS_MIN)
    };
    let curves = curves(trace, sample, &examined, &|_, _| {});
    let enough = (0..sizes.len()).find(|size| curves.iter().all(|curve| is_enough(curve, *size)));
    let end = (enough.unwrap_or(sizes.len()) + 2).min(sizes.len());
    sizes.truncate(end);
    sizes.split_off(end.saturating_sub(SIZES))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::{
        outlook::outlook,
        read::KeyRules,
        testing::{self, text_in_one_line},
        trace::{NewRequest, TraceBuilder},
    };

    /// The plan for lines of time in seconds, key and bytes.
    fn planned(lines: &str, options: &PlanOptions) -> Result<CachePlan, PlanError> {
        testing::planned(lines, Some("csv:time=0,key=1,size=2"), &KeyRules::default(), options)
    }

    fn options(memory: Capacity, warmup: Warmup) -> PlanOptions {
        PlanOptions {
            memory: Some(memory),
            ttls: vec![TtlOption::Fixed(Duration::from_hours(1))],
            latency: LatencyOption::Fixed(Duration::from_millis(1)),
            warmup,
            ..testing::options()
        }
    }

    /// Ten requests a second for a thousand objects of 100 kB, one after another, again and again.
    #[test]
    fn headline_is_that_of_a_warm_cache() {
        let mut lines = String::new();
        for n in 0..20_000 {
            let _ = writeln!(lines, "{}.{},{},100000", n / 10, n % 10, n % 1_000);
        }
        let plan = |mebibytes: u64, warmup| {
            planned(&lines, &options(Capacity::Bytes(mebibytes << 20), warmup)).expect("a plan")
        };
        let (small, large) = (plan(4, Warmup::default()), plan(512, Warmup::default()));
        let answer = |size, loads, double, hits| {
            format!(
                "Cache size {size} of memory, with the eviction policy lru \
                 Time to live (ttl) 1h; then up to 10s more, while a new response is loaded (swr) \
                 Origin load, warm cache {loads} requests a second in the busiest minute, {loads} on average \
                 Origin load, empty cache 10 requests a second in the worst minute, if a restart comes just before it \
                 Another size {double} \
                 Hit ratio once warm {hits} %; no answer is older than 1h10s. "
            )
        };
        let cold = "Hit ratios and loads leave out the first 2,000 requests, which fill the cache: 10 requests a second to the origin in the \
             busiest minute of the first 3m20s. ";
        let nothing = "twice the size saves nothing; half the size adds nothing";
        let none_left = "no request goes to the origin; with half the size 0.0 of 100 do";
        for (mut plan, answer) in [
            (small, answer("4MiB", "10", nothing, "0.0")),
            (large, answer("512MiB", "0.0", none_left, "100.0")),
        ] {
            plan.outlook = outlook(&plan, 2.0);
            let text = text_in_one_line(&plan);
            assert!(text.starts_with(&answer) && text.contains(cold), "{text}");
        }
        // All requests: the first of each object is a miss.
        let text = text_in_one_line(&plan(512, Warmup::NONE));
        let warm =
            "warm cache 10 requests a second in the busiest minute, 0.5 on average; without a warm-up ";
        assert!(text.contains(warm) && text.contains(" Hit ratio 95.0 %; "), "{text}");
        assert!(!text.contains("fill the cache"), "{text}");
        let short = options(Capacity::Bytes(4 << 20), Warmup::Duration(Duration::from_hours(1)));
        assert_eq!(planned(&lines, &short).err(), Some(PlanError::Warmup));
    }

    /// A log of half a minute: the busiest minute has its average.
    #[test]
    fn short_log_has_no_minute() {
        let mut lines = String::new();
        for n in 0..3_000 {
            let _ = writeln!(lines, "{}.{:02},{n},1000", n / 100, n % 100);
        }
        let plan = planned(&lines, &options(Capacity::Bytes(4 << 20), Warmup::NONE)).expect("a plan");
        assert!(
            text_in_one_line(&plan).contains(" 100 requests a second in the busiest minute, 100 on average"),
            "{}",
            text_in_one_line(&plan)
        );
        let room =
            PlanOptions { max_object: Some(1), memory: None, ..options(Capacity::Bytes(1), Warmup::NONE) };
        let without = planned(&lines, &room).expect("a plan");
        assert_eq!(without.recommendation.err(), Some(crate::recommend::NoRecommendation::NoSize));
    }

    /// 200 videos of 5 MB, five times each, and a page that is requested as often as all of them.
    #[test]
    fn larger_objects_are_planned_for() {
        let mut lines = String::new();
        for n in 0..1_000 {
            let _ = writeln!(lines, "{n}.1,{},5000000\n{n}.2,page,2000", n % 200);
        }
        let room = options(Capacity::Bytes(2 << 30), Warmup::NONE);
        let default = planned(&lines, &room).expect("a plan");
        let point = default.recommendation.as_ref().expect("a cache").point;
        assert!((point.miss_ratio - 0.500_5).abs() < 1e-9 && point.byte_load_ratio > 0.999, "{point:?}");
        let note = " - 1,000 requests with 100.0 % of the bytes are for objects above 1.00 MiB, \
         which the cache does not store: --max-object 8MiB plans for them.";
        assert!(text_in_one_line(&default).contains(note), "{}", text_in_one_line(&default));
        assert!(!testing::rendered(&default, "text").contains("max_object"));
        let larger =
            planned(&lines, &PlanOptions { max_object: Some(8 << 20), ..room.clone() }).expect("a plan");
        let point = larger.recommendation.as_ref().expect("a cache").point;
        assert!((point.miss_ratio - 201.0 / 2_000.0).abs() < 1e-9, "{point:?}");
        assert!(
            (point.byte_miss_ratio - 0.2).abs() < 1e-3 && (point.byte_load_ratio - 0.2).abs() < 1e-3,
            "{point:?}"
        );
        let text = text_in_one_line(&larger);
        assert!(
            text.contains(" Bytes from the origin: 954 MiB of the 4.66 GiB of all requested objects. "),
            "{text}"
        );
        assert!(
            testing::rendered(&larger, "text")
                .ends_with("limit    = { bytes = \"2GiB\", max_object = \"8MiB\", policy = \"lru\" }\n")
        );
        assert!(!text.contains("--max-object"), "{text}");
    }

    /// Stale answers, and those of another request's load, are served; a refresh sends its bytes from the origin.
    #[test]
    fn byte_hit_ratio_counts_stale_and_coalesced_answers() {
        // A miss, one that waits for it, a hit, then a stale answer with a refresh: 1,000 bytes each.
        let lines = "0.0,a,1000\n0.5,a,1000\n2.0,a,1000\n12.5,a,1000\n";
        let ttls = vec![TtlOption::Fixed(Duration::from_secs(10))];
        let latency = LatencyOption::Fixed(Duration::from_secs(1));
        let options = PlanOptions { ttls, latency, ..options(Capacity::Bytes(1 << 20), Warmup::NONE) };
        let point = planned(lines, &options).expect("a plan").recommendation.expect("a cache").point;
        assert_eq!((point.miss_ratio, point.byte_miss_ratio, point.byte_load_ratio), (0.75, 0.25, 0.5));
    }

    /// As many objects of 1,000 bytes as fit without an overhead.
    #[test]
    fn overhead_can_be_left_out() {
        let mut lines = String::new();
        for n in 0..300 {
            let _ = writeln!(lines, "{n}.1,{},1000", n % 100);
        }
        let with = |overhead_bytes| {
            let room = options(Capacity::Bytes(100_000), Warmup::NONE);
            let plan = planned(&lines, &PlanOptions { overhead_bytes, ..room }).expect("a plan");
            plan.recommendation.expect("a cache").point.miss_ratio
        };
        assert_eq!((with(OVERHEAD_BYTES), with(0)), (1.0, 1.0 / 3.0));
    }

    /// 100 URLs twice with 15 minutes between, each fresh for an hour.
    #[test]
    fn half_of_the_requests_for_urls_requested_twice_are_hits() {
        let mut lines = String::new();
        for n in 0..200 {
            let _ = writeln!(lines, "{}.5,{},5000", n + n / 100 * 800, n % 100);
        }
        for latency_ms in [0, 1, 30_000] {
            let latency = LatencyOption::Fixed(Duration::from_millis(latency_ms));
            let options = PlanOptions { latency, ..options(Capacity::Bytes(64 << 20), Warmup::NONE) };
            let plan = planned(&lines, &options).expect("a plan");
            assert!(text_in_one_line(&plan).contains(" Hit ratio 50.0 %; "), "{}", text_in_one_line(&plan));
        }
    }

    /// Room for all objects of a small log is too little for one of them: a cache stores no object larger than a sixteenth of its room.
    #[test]
    fn largest_useful_size_stores_the_largest_object() {
        for object_bytes in [1, 500, 40_000, 900_000, 3_000_000] {
            let mut builder = TraceBuilder::new(usize::MAX, 1);
            for at_ns in [1, 2, 3] {
                let key = b"a".as_slice();
                builder.push(&NewRequest { bytes: Some(object_bytes), ..NewRequest::read(at_ns, key) });
            }
            let trace = builder.finish();
            let settings = CurveSettings {
                policies: Vec::new(),
                lifetimes: vec![Lifetime { ttl: Ttl::Never, swr_ns: 0 }],
                sizes: Vec::new(),
                latency_ns: 0,
                overhead_bytes: OVERHEAD_BYTES,
                max_object: None,
                routes: RouteTtls::NONE,
            };
            let all = Capacity::Bytes(trace.footprint_bytes(OVERHEAD_BYTES));
            let sizes = useful_sizes(all, &trace, None, &settings);
            let entry_max = |size: Capacity| settings.entry_max(size);
            let entry_bytes = object_bytes + u64::from(OVERHEAD_BYTES);
            let (smallest, largest) = (sizes[0], sizes[sizes.len() - 1]);
            assert!(entry_max(smallest).is_some_and(|most| most > OVERHEAD_BYTES.into()), "{sizes:?}");
            // The cache never stores more than 1 MiB.
            let is_stored = entry_max(largest).is_some_and(|most| most >= entry_bytes);
            assert_eq!(is_stored, entry_bytes < 1 << 20, "{object_bytes}: {sizes:?}");
        }
    }
}
