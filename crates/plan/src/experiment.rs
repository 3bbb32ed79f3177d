//! An experiment that confirms a plan: a part of the log through the real proxy, as `stockade run` does it.
//!
//! ```text
//! the busiest part of the log -> faster, so that it takes half a minute or as long as the caller says; lifetimes are shorter by as much
//!     -> plan.toml, requests.jsonl, recipe.json          for the proxy
//!     -> a replay with the same requests and lifetimes   the prediction
//! ```
//!
//! The origin serves bodies of the logged sizes, rounded up to four sizes an octave. The planned ttl is a second
//! or longer: the part of the log is chosen for that. Methods are those of the log; statuses and `Cache-Control` are of the same
//! [effect](crate::exchange) as the logged ones, with lifetimes of whole seconds.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    ops::Range,
    time::Duration,
};

use serde_json::json;
use stockade_model::units::ratio;

use crate::{
    curve::Lifetime,
    exchange::Exchange,
    policy::Policy,
    recommend::Recommendation,
    replay::{CacheSetup, Capacity, Ttl},
    report::{CachePlan, cache_table, capacity_text, lifetime_text, nanos_text, percent},
    routes::RouteTtls,
    scale::scaled,
    trace::{Key, NewRequest, Request, SECOND_NS, Trace, TraceBuilder, busiest},
};

/// The usual time of the load.
pub const LOAD_TIME: Duration = Duration::from_secs(30);
/// The most requests.
const REQUESTS_MAX: usize = 60_000;
/// The shortest ttl: the proxy's clock has steps of a millisecond, and a load takes about one.
const TTL_MIN_NS: u64 = 1_000_000_000;
/// A load that the origin answers at once takes about this long.
const LATENCY_MIN_NS: u64 = 1_000_000;
/// Larger bodies are cut, unless the cache stores them.
const BODY_BYTES_MAX: u32 = 4 << 20;
/// Longer lifetimes are cut, to a year.
const LIFETIME_SECONDS_MAX: u32 = 31_536_000;
/// The greatest difference between a figure and its prediction, as a share of the requests.
pub const TOLERANCE: f64 = 0.01;
/// How much shorter the ttl of an arm is, to see another lifetime.
const SHORTER: u64 = 4;

/// The files of an experiment, and what they should give.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// `plan.toml`.
    pub toml: String,
    /// `requests.jsonl`: the load.
    pub requests: String,
    /// `recipe.json`: the origin.
    pub recipe: String,
    /// The planned cache first.
    pub arms: Vec<PredictedArm>,
    /// The number of requests.
    pub requests_count: u64,
    /// How long a load takes.
    pub latency: Duration,
    /// The answers by status.
    pub statuses: BTreeMap<u16, u64>,
}

/// A cache of the experiment.
#[derive(Clone, Debug)]
pub struct PredictedArm {
    /// The name of its arm.
    pub name: &'static str,
    /// The cache, for people.
    pub cache: String,
    /// Requests that a fresh response answers, as a share of all but writes that succeed and HEAD that misses. `None`: some are 404,
    /// which the load generator counts as failed requests.
    pub hit_ratio: Option<f64>,
    /// Loads of GET, those in the background included.
    pub loads: u64,
    /// The shortest time for which a response is fresh; `None`: all are for ever.
    pub shortest_lifetime: Option<Duration>,
}

/// The experiment that confirms a plan, whose load takes `load_time` at most; `None` without a recommendation. In a longer time than
/// [`LOAD_TIME`] it is the same part of the log, slower.
#[must_use]
pub fn experiment(plan: &CachePlan, load_time: Duration) -> Option<Experiment> {
    let recommendation = plan.recommendation.as_ref().ok()?;
    let ttl_ns = recommendation.lifetime.ttl.default_ns();
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let fastest_ns = nanos(load_time.min(LOAD_TIME));
    let of_routes =
        recommendation.routes.routes.iter().map(|route| route.ttl_ns).filter(|ttl_ns| *ttl_ns > 0);
    let span_max = ttl_ns
        .into_iter()
        .chain(of_routes)
        .min()
        .map_or(u64::MAX, |ttl_ns| (ttl_ns / TTL_MIN_NS).max(1).saturating_mul(fastest_ns));
    let requests = plan.trace.requests();
    let part = busiest(requests, span_max, REQUESTS_MAX);
    let span_ns = requests[part.clone()].last()?.at_ns - requests[part.clone()].first()?.at_ns;
    let speed = (span_ns as f64 / nanos(load_time) as f64).max(1.0);
    let is_logged = matches!(recommendation.lifetime.ttl, Ttl::Logged { .. });
    // Larger bodies are cut: they are larger than any entry of the cache, and the origin keeps all of them.
    let largest = recommendation.max_object.unwrap_or(0).saturating_mul(2).max(BODY_BYTES_MAX.into());
    let largest = u32::try_from(largest).unwrap_or(u32::MAX);
    let replayed = Replayed::of(&plan.trace, part, speed, largest, is_logged, &plan.settings.routes);
    let trace = &replayed.trace;

    let latency_ns = plan.settings.latency_ns.max(LATENCY_MIN_NS);
    let arms = arms(recommendation, ttl_ns, speed);
    // The proxy counts a forwarded request neither as a lookup nor as a load, and a write that fails as a failed lookup.
    let is_failed_write = |request: &&Request| request.exchange() == Exchange::Passed;
    let failed_writes = trace.requests().iter().filter(is_failed_write).count() as u64;
    let routes = planned_routes(plan, speed);
    let route_ttls = RouteTtls::of(trace, routes.iter().map(|(path, ttl_ns)| (&**path, *ttl_ns)));
    let has_not_found = replayed.has(PageKind::NotFound);
    let predicted: Vec<PredictedArm> = arms
        .iter()
        .map(|arm| {
            let setup = plan.settings.setup(arm.capacity, arm.lifetime);
            let setup = CacheSetup { latency_ns, routes: route_ttls, ..setup };
            let replay = arm.policy.replay(trace, &setup);
            let cache = format!(
                "{}, {}, {}",
                capacity_text(arm.capacity),
                arm.policy.name,
                lifetime_text(arm.lifetime)
            );
            PredictedArm {
                name: arm.name,
                cache,
                hit_ratio: ratio(replay.hits, replay.requests + failed_writes - replay.forwarded)
                    .filter(|_| !has_not_found),
                loads: replay.loads - replay.forwarded,
                shortest_lifetime: arm.lifetime.ttl.default_ns().map(|ttl_ns| {
                    let logged_ns = replayed.pages.iter().filter_map(|page| page.kind.declared_ns());
                    let others_ns = logged_ns.chain(routes.iter().map(|(_, ttl_ns)| *ttl_ns));
                    Duration::from_nanos(others_ns.filter(|ttl_ns| *ttl_ns > 0).fold(ttl_ns, u64::min))
                }),
            }
        })
        .collect();
    Some(Experiment {
        toml: toml(plan, &arms, &routes, &predicted, &replayed, speed),
        requests: replayed.lines(),
        recipe: replayed.recipe(plan.settings.latency_ns, ttl_ns.is_some()),
        arms: predicted,
        requests_count: trace.totals().requests,
        latency: Duration::from_nanos(latency_ns),
        statuses: replayed.statuses(),
    })
}

struct Arm {
    name: &'static str,
    policy: &'static Policy,
    capacity: Capacity,
    lifetime: Lifetime,
}

/// The planned cache, half of the room, another policy, and a shorter ttl. Lifetimes are shorter by `speed`.
fn arms(recommendation: &Recommendation, ttl_ns: Option<u64>, speed: f64) -> Vec<Arm> {
    let shorter = |nanos: u64| scaled(nanos, 1.0 / speed);
    let lifetime = Lifetime {
        ttl: match (recommendation.lifetime.ttl, ttl_ns) {
            (Ttl::Logged { default_ns }, _) => Ttl::Logged { default_ns: shorter(default_ns) },
            (_, Some(ttl_ns)) => Ttl::Fixed(shorter(ttl_ns)),
            (_, None) => Ttl::Never,
        },
        swr_ns: shorter(recommendation.lifetime.swr_ns),
    };
    let planned = || Arm {
        name: "planned",
        policy: recommendation.policy,
        capacity: recommendation.capacity,
        lifetime,
    };
    let other_policy = if recommendation.policy.name == "lru" { "sieve" } else { "lru" };
    let mut arms = vec![
        planned(),
        Arm { name: "half_the_room", capacity: recommendation.capacity.times(0.5), ..planned() },
    ];
    if let Ok(policy) = Policy::named(other_policy) {
        arms.push(Arm { name: other_policy, policy, ..planned() });
    }
    if let Ttl::Fixed(ttl_ns) = lifetime.ttl {
        let lifetime = Lifetime { ttl: Ttl::Fixed(ttl_ns / SHORTER), ..lifetime };
        arms.push(Arm { name: "shorter_ttl", lifetime, ..planned() });
    }
    arms
}

/// The paths of the experiment that stand for the routes of the plan, with their ttls, which are shorter by `speed`.
fn planned_routes(plan: &CachePlan, speed: f64) -> Vec<(String, u64)> {
    let numbers = (1_u8..).take(plan.trace.routes().len());
    let ttls = numbers.filter_map(|number| Some((number, plan.settings.routes.ttl_ns(number)?)));
    ttls.map(|(number, ttl_ns)| (format!("{}/*", route_folder(number)), scaled(ttl_ns, 1.0 / speed)))
        .collect()
}

/// The path of the pages of a route of the plan; empty for 0.
fn route_folder(route: u8) -> String {
    if route == 0 { String::new() } else { format!("/route{route}") }
}

/// Requests of a log, in less time.
struct Replayed {
    trace: Trace,
    /// The URL of each key.
    pages: Vec<Page>,
}

/// A URL of the origin, which always gives the same response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Page {
    /// The number of its route in the log, if the plan has a ttl for it; else 0.
    route: u8,
    bytes: u32,
    kind: PageKind,
    /// That of the log.
    key: Key,
}

/// The status and the `Cache-Control` of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PageKind {
    /// 200 without a lifetime.
    Plain,
    /// 200 with one, in seconds.
    Fresh(u32),
    /// 404 without a lifetime.
    NotFound,
    /// 302 with a lifetime, in seconds.
    Moved(u32),
    /// 302 without one.
    MovedOnce,
    /// 200, `private, no-store`.
    Private,
    /// 422, to a write.
    Refused,
}

impl Replayed {
    /// The requests with these numbers, `speed` times as fast. With `is_logged` responses have the lifetimes of the log, else that of
    /// the plan counts.
    fn of(
        log: &Trace,
        part: Range<usize>,
        speed: f64,
        bytes_max: u32,
        is_logged: bool,
        routes: &RouteTtls,
    ) -> Self {
        let mut builder = TraceBuilder::new(usize::MAX, 1);
        let mut pages = Vec::new();
        let mut known = BTreeSet::new();
        // A key with several kinds or sizes of responses becomes as many pages. HEAD and a write are for the last of them.
        let mut last: BTreeMap<Key, Page> = BTreeMap::new();
        let first_ns = log.requests().get(part.start).map_or(0, |first| first.at_ns);
        for index in part {
            let request = log.requests()[index];
            let (key, exchange) = (request.key(), request.exchange());
            let seconds = log.ttl_ns(index).map(|ttl_ns| faster_seconds(ttl_ns, speed));
            let kind = match (exchange, seconds) {
                (Exchange::Planned, Some(seconds)) if is_logged => PageKind::Fresh(seconds),
                (Exchange::NotFound, _) => PageKind::NotFound,
                (Exchange::Declared, Some(seconds)) => PageKind::Moved(seconds),
                (Exchange::NotShareable, _) => PageKind::Private,
                (Exchange::NoLifetime | Exchange::HeadOther, _) => PageKind::MovedOnce,
                (Exchange::Passed, _) => PageKind::Refused,
                _ => PageKind::Plain,
            };
            let route = routes.ttl_ns(request.route()).map_or(0, |_| request.route());
            let own = Page { route, bytes: rounded(request.bytes, bytes_max), kind, key };
            let page = match exchange {
                // A write to a page that is not there has no effect.
                Exchange::Write => {
                    last.get(&key).copied().filter(|page| page.kind != PageKind::NotFound).unwrap_or(own)
                }
                // It fails on a page of its own.
                Exchange::Passed => own,
                Exchange::Head | Exchange::HeadOther => last.get(&key).copied().unwrap_or(own),
                _ => *last.entry(key).insert_entry(own).get(),
            };
            if known.insert(page) {
                pages.push(page);
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "not negative, and earlier"
            )]
            let at_ns = ((request.at_ns - first_ns) as f64 / speed) as u64;
            builder.push(&NewRequest {
                // Not a whole second, which would be spread.
                at_ns: at_ns | 1,
                key: page.path().as_bytes(),
                exchange: match exchange {
                    // The response is that of the page.
                    Exchange::Head | Exchange::HeadOther if page.kind.is_ok() => Exchange::Head,
                    Exchange::Head => Exchange::HeadOther,
                    other => other,
                },
                bytes: Some(page.bytes.into()),
                ttl_ns: page.kind.declared_ns(),
            });
        }
        Self { trace: builder.finish(), pages }
    }

    /// One JSON object a line, as `stockade load --replay` reads it.
    fn lines(&self) -> String {
        let mut lines = String::new();
        for request in self.trace.requests() {
            let (seconds, micros) = (request.at_ns / SECOND_NS, request.at_ns / 1_000 % 1_000_000);
            let method = match request.exchange() {
                Exchange::Head | Exchange::HeadOther => "HEAD",
                Exchange::Write | Exchange::Passed => "POST",
                _ => "GET",
            };
            let path = self.pages[request.key() as usize].path();
            let _ = writeln!(lines, r#"{{"ts":{seconds}.{micros:06},"method":"{method}","uri":"{path}"}}"#);
        }
        lines
    }

    /// A route for each size and kind. With a ttl of the plan the origin states none.
    fn recipe(&self, latency_ns: u64, has_ttl: bool) -> String {
        let latency = format!("{latency_ns}ns");
        let folders: BTreeSet<(u8, u32, PageKind)> =
            self.pages.iter().map(|page| (page.route, page.bytes, page.kind)).collect();
        let routes: Vec<_> = folders
            .into_iter()
            .map(|(route, bytes, kind)| {
                let mut headers = json!({});
                if kind.status() == 302 {
                    headers["location"] = "/".into();
                }
                if let Some(cache_control) = kind.cache_control(has_ttl) {
                    headers["cache-control"] = cache_control.into();
                }
                json!({
                    "route": format!("{}/*", folder(route, bytes, kind)),
                    "random_content": format!("{bytes}b"),
                    "stages": [{ "at": 0, "latency": latency, "status": kind.status() }],
                    "headers": headers,
                })
            })
            .collect();
        format!("{}\n", json!(routes))
    }

    /// The number of requests by the status of their page.
    fn statuses(&self) -> BTreeMap<u16, u64> {
        let mut statuses = BTreeMap::new();
        for request in self.trace.requests() {
            *statuses.entry(self.pages[request.key() as usize].kind.status()).or_default() += 1;
        }
        statuses
    }

    fn has(&self, kind: PageKind) -> bool {
        self.pages.iter().any(|page| page.kind == kind)
    }
}

/// The path of the pages of one size and kind.
fn folder(route: u8, bytes: u32, kind: PageKind) -> String {
    let seconds = kind.declared_seconds().map_or_else(String::new, |seconds| format!("-{seconds}s"));
    let name = match kind {
        PageKind::Plain | PageKind::Fresh(_) => "",
        PageKind::NotFound => "-not-found",
        PageKind::Moved(_) | PageKind::MovedOnce => "-moved",
        PageKind::Private => "-private",
        PageKind::Refused => "-refused",
    };
    format!("{}/{bytes}b{name}{seconds}", route_folder(route))
}

impl Page {
    fn path(&self) -> String {
        format!("{}/{}", folder(self.route, self.bytes, self.kind), self.key)
    }
}

impl PageKind {
    /// The lifetime that the page declares.
    fn declared_seconds(self) -> Option<u32> {
        match self {
            Self::Fresh(seconds) | Self::Moved(seconds) => Some(seconds),
            _ => None,
        }
    }

    fn declared_ns(self) -> Option<u64> {
        self.declared_seconds().map(|seconds| u64::from(seconds) * SECOND_NS)
    }

    /// True if a response to HEAD freshens it.
    fn is_ok(self) -> bool {
        matches!(self, Self::Plain | Self::Fresh(_))
    }

    fn status(self) -> u16 {
        match self {
            Self::Plain | Self::Fresh(_) | Self::Private => 200,
            Self::NotFound => 404,
            Self::Moved(_) | Self::MovedOnce => 302,
            Self::Refused => 422,
        }
    }

    /// Without a ttl of the plan a page is fresh for a year.
    fn cache_control(self, has_ttl: bool) -> Option<String> {
        match self {
            Self::Plain | Self::NotFound if !has_ttl => Some("public, max-age=31536000".to_owned()),
            Self::Plain | Self::NotFound => Some("public".to_owned()),
            Self::Fresh(seconds) | Self::Moved(seconds) => Some(format!("public, max-age={seconds}")),
            Self::Private => Some("private, no-store".to_owned()),
            Self::MovedOnce | Self::Refused => None,
        }
    }
}

/// A lifetime that is shorter by `speed`, in seconds, rounded up to four values an octave; zero stays zero.
fn faster_seconds(ttl_ns: u64, speed: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
    let seconds = (ttl_ns as f64 / SECOND_NS as f64 / speed).round() as u32;
    if ttl_ns == 0 { 0 } else { rounded(seconds, LIFETIME_SECONDS_MAX) }
}

/// The next of four values an octave, from 1 on.
fn rounded(value: u32, max: u32) -> u32 {
    let steps = (f64::from(value.clamp(1, max)).log2() * 4.0).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and the maximum")]
    let rounded = (steps / 4.0).exp2().round() as u32;
    rounded
}

fn toml(
    plan: &CachePlan,
    arms: &[Arm],
    routes: &[(String, u64)],
    predicted: &[PredictedArm],
    replayed: &Replayed,
    speed: f64,
) -> String {
    let trace = &replayed.trace;
    let requests = trace.totals().requests as f64;
    let mut text = format!(
        "# Written by `stockade plan`. Run it with `stockade run plan.toml`.\n\n\
         title   = {}\n\
         context = \"\"\"\n\
         The busiest part of the log, {speed:.1} times as fast; lifetimes are shorter by as much. Each claim is a prediction of `stockade plan`,\n\
         give or take {} of the requests.\n\
         \"\"\"\n\n\
         [target]\nkind = \"proxy\"\n\n\
         [origin]\nrecipe = \"recipe.json\"\n\n\
         [load]\nreplay   = {{ log = \"requests.jsonl\", methods = \"all\" }}\nduration = \"{}us\"\n",
        json!(format!("A cache for {}", plan.log)),
        percent(TOLERANCE),
        // Until just after the last request: a shorter log would begin again.
        trace.totals().span_ns / 1_000 + 1,
    );
    for (arm, PredictedArm { name, cache, hit_ratio, loads, .. }) in arms.iter().zip(predicted) {
        let _ = write!(
            text,
            "\n[[arm]]\nname  = \"{name}\"\n{}",
            cache_table("arm.cache", arm.policy, arm.capacity, arm.lifetime, plan.settings.max_object)
        );
        if let Some(ttl_ns) = arm.lifetime.ttl.default_ns() {
            let others = ("/*".to_owned(), ttl_ns);
            for (path, ttl_of_route_ns) in routes.iter().chain([&others]) {
                let _ = writeln!(text, "\n[[arm.proxy.route]]\npath         = \"{path}\"");
                if matches!(arm.lifetime.ttl, Ttl::Fixed(_)) {
                    let _ = writeln!(text, "ttl          = \"{}\"", nanos_text(*ttl_of_route_ns));
                }
                if replayed.has(PageKind::NotFound) && *ttl_of_route_ns > 0 {
                    let _ = writeln!(text, "negative_ttl = \"{}\"", nanos_text(ttl_ns));
                }
            }
        }
        let (mut text_of, mut claims) = (format!("{cache}: {loads} loads"), String::new());
        if let Some(hits) = hit_ratio {
            let _ = write!(text_of, ", hit ratio {}", percent(*hits));
            let _ = write!(
                claims,
                "\"{name}.hit_ratio >= {:.4}\", \"{name}.hit_ratio <= {:.4}\", ",
                (hits - TOLERANCE).max(0.0),
                (hits + TOLERANCE).min(1.0)
            );
        }
        let (loads, margin) = (*loads as f64, TOLERANCE * requests);
        let _ = write!(
            claims,
            "\"{name}.source_loads >= {:.0}\", \"{name}.source_loads <= {:.0}\"",
            (loads - margin).max(0.0),
            loads + margin
        );
        let _ = write!(text, "\n[[hypothesis]]\ntext   = \"{text_of}\"\nexpect = [{claims}]\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_four_an_octave() {
        for (bytes, rounded) in
            [(0, 1), (1, 1), (1_000, 1_024), (1_024, 1_024), (1_025, 1_218), (5 << 20, 4 << 20)]
        {
            assert_eq!(super::rounded(bytes, BODY_BYTES_MAX), rounded, "{bytes}");
        }
    }

    #[test]
    fn key_of_several_sizes_and_kinds_becomes_several_pages() {
        use Exchange::{Head, HeadOther, NotFound, NotShareable, Passed, Planned, Write};
        let mut builder = TraceBuilder::new(usize::MAX, 1);
        for (at_ns, exchange, bytes) in [
            (10, Planned, 1_000),
            (20, Planned, 1_020),
            (30, Planned, 5_000),
            (40, Planned, 1_000),
            (50, Head, 0),
            (60, NotShareable, 10),
            (65, HeadOther, 0),
            (66, Passed, 512),
            (70, Write, 300),
            (80, NotFound, 300),
            (90, Write, 512),
        ] {
            builder.push(&NewRequest { exchange, bytes: Some(bytes), ..NewRequest::read(at_ns, b"a") });
        }
        let replayed = Replayed::of(&builder.finish(), 0..11, 2.0, BODY_BYTES_MAX, false, &RouteTtls::NONE);
        let methods_and_paths: Vec<String> = replayed
            .lines()
            .lines()
            .map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
                format!("{} {}", line["method"].as_str().unwrap_or(""), line["uri"].as_str().unwrap_or(""))
            })
            .collect();
        let (page, larger) = ("/1024b/0", "/5793b/0");
        let expected = [
            format!("GET {page}"),
            format!("GET {page}"),
            format!("GET {larger}"),
            format!("GET {page}"),
            format!("HEAD {page}"),
            "GET /11b-private/0".to_owned(),
            "HEAD /11b-private/0".to_owned(),
            "POST /512b-refused/0".to_owned(),
            "POST /11b-private/0".to_owned(),
            "GET /304b-not-found/0".to_owned(),
            "POST /512b/0".to_owned(),
        ];
        assert_eq!(methods_and_paths, expected);
        let recipe: serde_json::Value = serde_json::from_str(&replayed.recipe(0, true)).expect("JSON");
        let kinds: Vec<_> = recipe
            .as_array()
            .expect("routes")
            .iter()
            .map(|route| (route["stages"][0]["status"].as_u64(), route["headers"]["cache-control"].as_str()))
            .collect();
        assert_eq!(
            kinds,
            [
                (Some(200), Some("private, no-store")),
                (Some(404), Some("public")),
                (Some(200), Some("public")),
                (Some(422), None),
                (Some(200), Some("public")),
                (Some(200), Some("public")),
            ]
        );
        // A write that is logged as successful is one in the replay, and HEAD has the effect of its page.
        let statuses = BTreeMap::from([(200, 9), (404, 1), (422, 1)]);
        assert_eq!(replayed.statuses(), statuses);
        let exchanges: Vec<_> = replayed.trace.requests()[4..7].iter().map(Request::exchange).collect();
        assert_eq!(exchanges, [Head, NotShareable, HeadOther]);
    }

    #[test]
    fn lifetimes_are_whole_seconds() {
        let seconds = |ttl_s: u64, speed| faster_seconds(ttl_s * SECOND_NS, speed);
        assert_eq!(
            [seconds(0, 2.0), seconds(1, 60.0), seconds(600, 60.0), seconds(86_400, 1.0)],
            [0, 1, 11, 92_682]
        );
        assert_eq!(seconds(u64::MAX / SECOND_NS, 1.0), 33_554_432);
    }
}
