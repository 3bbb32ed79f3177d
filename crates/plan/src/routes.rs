//! Routes with a ttl of their own, where they save loads: what a log can say of each path.
//!
//! A log has neither the content of a response nor its validators. It has evidence:
//!
//! | evidence | conclusion |
//! |---|---|
//! | The answers that a longer ttl would have given have the size that the server sent at that time. | The route may have that ttl. |
//! | Many answers of the ttl of the plan have another size than the server sent at that time. | The route changes, and gets a shorter ttl. |
//! | Nearly all requests are for URLs that are requested once. | Nothing of the route is stored, so that it does not push out others. |
//!
//! A content that changes and keeps its size is not seen. Where some clients accept compression and others do not, the size
//! changes and the content does not: that route keeps the ttl of the plan.
//!
//! ```text
//! sample of the keys -> each ttl in a cache without a limit: loads and answers of another size, by route -> candidates
//!     -> a replay of the chosen cache with all of them, and without each: those that save enough stay
//! ```

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::FixedState;

use crate::{
    curve::{CurveSettings, Lifetime, TTL_GRID_S},
    diagnosis::UNIQUE_MIN,
    exchange::Exchange,
    policy::Policy,
    replay::{CacheSetup, Capacity, Replay, Ttl},
    trace::{Key, Request, SECOND_NS, Trace},
    traffic,
};

/// The routes of a trace, and a number for all other requests: a request has five bits for it.
pub(crate) const ROUTES: usize = 32;
/// The names that are told apart while a log is read. A route with a name that comes later is not examined.
const NAMES_MAX: usize = 4_096;
/// A longer name is not a route.
const NAME_BYTES_MAX: usize = 100;
/// The routes of a plan, at most.
const PLANNED_MAX: usize = 5;
/// All routes together save at least this share of the loads or of the bytes, and so does each that is not there for its changes.
pub const SAVED_MIN: f64 = 0.02;
/// A ttl is too long for a route if a larger share of its answers has another size than the server sent,
pub const OUTDATED_MAX: f64 = 0.01;
/// and the ttl of the plan is too long for a route with a larger share than this one.
pub const OUTDATED_MANY: f64 = 0.1;
/// With fewer answers whose sizes can be compared nothing is said of a route.
const COMPARED_MIN: u64 = 100;
/// The shortest ttl that saves all but this share of the loads that the longest one saves.
const REST_MAX: f64 = 0.05;

/// The routes of keys, by number, while a log is read; 0: none.
#[derive(Debug, Default)]
pub(crate) struct RouteNames {
    numbers: HashMap<Box<[u8]>, u16, FixedState>,
    name: Vec<u8>,
}

impl RouteNames {
    /// The number of the route of a key, which is a path or a host and a path.
    pub(crate) fn number(&mut self, key: &[u8]) -> u16 {
        if !write_name(key, &mut self.name) {
            return 0;
        }
        if let Some(number) = self.numbers.get(&*self.name) {
            return *number;
        }
        let number = u16::try_from(self.numbers.len() + 1).unwrap_or(0);
        if usize::from(number) > NAMES_MAX {
            return 0;
        }
        self.numbers.insert(self.name.as_slice().into(), number);
        number
    }

    /// Marks each request with its route, for the routes with the most requests. Returns their names, from number 1 on.
    pub(crate) fn mark(&self, requests: &mut [Request], of_key: &[u16]) -> Arc<[Box<str>]> {
        if self.numbers.is_empty() {
            return Arc::default();
        }
        let mut names = vec![(0_u64, &[][..], 0_usize); self.numbers.len() + 1];
        for (name, number) in &self.numbers {
            names[usize::from(*number)] = (0, name, usize::from(*number));
        }
        let of = |request: &Request| usize::from(of_key[request.key() as usize]);
        requests.iter().for_each(|request| names[of(request)].0 += 1);
        let mut marks = vec![0; names.len()];
        names.swap_remove(0);
        names.sort_unstable_by(|one, other| (other.0, one.1).cmp(&(one.0, other.1)));
        names.truncate(ROUTES - 1);
        for (mark, (.., number)) in (1..).zip(&names) {
            marks[*number] = mark;
        }
        for request in requests {
            *request = request.in_route(marks[of(request)]);
        }
        names.iter().map(|(_, name, _)| String::from_utf8_lossy(name).into()).collect()
    }
}

/// Writes the route of a key: `/assets/*`, `/about`, with `--by-host` `example.org /assets/*`. Returns false if a configuration cannot name
/// it, or if it has a number or an id.
fn write_name(key: &[u8], name: &mut Vec<u8>) -> bool {
    let Some(start) = key.iter().position(|byte| *byte == b'/') else { return false };
    let (host, path) = key.split_at(start);
    let path = &path[..path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len())];
    let route = traffic::route(path);
    let segment = route.strip_prefix(b"/").unwrap_or(route);
    let (segment, rest) = segment.strip_suffix(b"/").map_or((segment, &b""[..]), |segment| (segment, b"/*"));
    let is_plain =
        |text: &[u8]| text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(byte));
    let is_host =
        host.is_empty() || host.strip_suffix(b" ").is_some_and(|host| !host.is_empty() && is_plain(host));
    let is_path =
        is_plain(segment) && !matches!(segment, b"." | b"..") && (rest.is_empty() || !segment.is_empty());
    name.clear();
    for part in [host, b"/", segment, rest] {
        name.extend_from_slice(part);
    }
    is_host && is_path && name.len() <= NAME_BYTES_MAX
}

/// The ttls of at most five routes of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteTtls([RouteTtl; PLANNED_MAX]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RouteTtl {
    /// As the trace numbers it; 0: none.
    route: u8,
    ttl_ns: u64,
}

impl RouteTtls {
    /// No route has one.
    pub const NONE: Self = Self([RouteTtl { route: 0, ttl_ns: 0 }; PLANNED_MAX]);

    /// Those of these routes, as the trace numbers them, in nanoseconds. 0: nothing is stored. The first five count.
    #[must_use]
    pub fn of<'a>(trace: &Trace, routes: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        let mut ttls = Self::NONE;
        let numbered = routes.into_iter().filter_map(|(name, ttl_ns)| {
            let (route, _) = (1..).zip(trace.routes()).find(|(_, known)| ***known == *name)?;
            Some(RouteTtl { route, ttl_ns })
        });
        ttls.0.iter_mut().zip(numbered).for_each(|(place, ttl)| *place = ttl);
        ttls
    }

    /// The ttl of a route's responses; `None`: that of the cache.
    #[inline]
    pub(crate) fn ttl_ns(&self, route: u8) -> Option<u64> {
        self.0.iter().find(|ttl| route > 0 && ttl.route == route).map(|ttl| ttl.ttl_ns)
    }

    /// True if no route has a ttl.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

/// A route with a ttl of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRoute {
    /// Such as `/assets/*`; with `--by-host` after the host and a space.
    pub name: String,
    /// In nanoseconds; 0: nothing is stored.
    pub ttl_ns: u64,
    /// Its share of the requests.
    pub share: f64,
    /// Why.
    pub evidence: Evidence,
}

/// The evidence for the ttl of a route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Evidence {
    /// Counts of the answers with its ttl.
    SameSize {
        /// All answers of the cache.
        answers: u64,
        /// Those with another size than the server sent at that time.
        outdated: u64,
    },
    /// The share of the answers with another size than the server sent at that time,
    Changes {
        /// with the ttl of the plan,
        outdated: f64,
        /// and with its own.
        outdated_left: f64,
    },
    /// This share of its requests is for URLs that are requested once.
    UniqueKeys {
        /// The share.
        share: f64,
    },
}

/// The routes of a plan, compared with the one ttl of the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteTtlPlan {
    /// At most five, the most requested first.
    pub routes: Vec<PlannedRoute>,
    /// The share of the loads that they save.
    pub loads_saved: f64,
    /// The share of the bytes from the origin that they save.
    pub bytes_saved: f64,
    /// The saved shares are from a sample of the keys.
    pub is_sampled: bool,
}

impl RouteTtlPlan {
    /// The ttls, as this trace numbers its routes.
    #[must_use]
    pub fn ttls(&self, trace: &Trace) -> RouteTtls {
        RouteTtls::of(trace, self.routes.iter().map(|route| (&*route.name, route.ttl_ns)))
    }

    /// With the shares of the requests that the routes have in the whole trace: a sample of its keys has others.
    pub(crate) fn with_shares_of(mut self, whole: &Trace) -> Self {
        if self.routes.is_empty() {
            return self;
        }
        let mut requests = [0_u64; ROUTES];
        whole.requests().iter().for_each(|request| requests[usize::from(request.route())] += 1);
        let all = whole.requests().len().max(1) as f64;
        for route in &mut self.routes {
            let known = (1..).zip(whole.routes()).find(|(_, name)| ***name == *route.name);
            route.share = known.map_or(0.0, |(number, _): (usize, _)| requests[number] as f64 / all);
        }
        self.routes
            .sort_by(|one, other| other.share.total_cmp(&one.share).then_with(|| one.name.cmp(&other.name)));
        self
    }

    /// The longest ttl, in nanoseconds.
    pub(crate) fn ttl_max_ns(&self) -> Option<u64> {
        self.routes.iter().map(|route| route.ttl_ns).max()
    }
}

/// A cache whose routes are chosen.
pub(crate) struct PlannedCache<'a> {
    pub settings: &'a CurveSettings,
    pub policy: &'static Policy,
    pub capacity: Capacity,
    pub lifetime: Lifetime,
}

impl PlannedCache<'_> {
    /// With these routes.
    pub(crate) fn replay<'a>(
        &self,
        trace: &Trace,
        routes: impl IntoIterator<Item = &'a PlannedRoute>,
    ) -> Replay {
        let ttls = RouteTtls::of(trace, routes.into_iter().map(|route| (&*route.name, route.ttl_ns)));
        let setup = self.settings.setup(self.capacity, self.lifetime);
        self.policy.replay(trace, &CacheSetup { routes: ttls, ..setup })
    }

    /// The routes that save loads or bytes in this cache.
    pub(crate) fn routes(&self, trace: &Trace, Candidates { savers, shorter }: &Candidates) -> RouteTtlPlan {
        if savers.is_empty() {
            return RouteTtlPlan::default();
        }
        let one_ttl = self.replay(trace, []);
        let saved = |routes: &[&PlannedRoute]| {
            let replay = self.replay(trace, routes.iter().copied());
            [(one_ttl.loads, replay.loads), (one_ttl.load_bytes, replay.load_bytes)]
                .map(|(before, after)| if before > 0 { 1.0 - after as f64 / before as f64 } else { 0.0 })
        };
        let pays = |[loads, bytes]: [f64; 2]| loads >= SAVED_MIN || bytes >= SAVED_MIN;
        let mut chosen: Vec<&PlannedRoute> = savers.iter().collect();
        let mut total = saved(&chosen);
        // Of two that save the same loads the weaker one leaves. One may need another: what is no longer pushed out needs a longer ttl.
        for route in savers.iter().rev() {
            let others: Vec<&PlannedRoute> = chosen.iter().copied().filter(|other| *other != route).collect();
            let without = saved(&others);
            if !pays([total[0] - without[0], total[1] - without[1]]) {
                (chosen, total) = (others, without);
            }
        }
        let with_shorter: Vec<&PlannedRoute> =
            chosen.iter().copied().chain(shorter).take(PLANNED_MAX).collect();
        if !chosen.is_empty() && with_shorter.len() > chosen.len() {
            let all = saved(&with_shorter);
            if pays(all) {
                (chosen, total) = (with_shorter, all);
            }
        }
        if !pays(total) {
            return RouteTtlPlan::default();
        }
        let [loads_saved, bytes_saved] = total;
        let routes = chosen.into_iter().cloned().collect();
        RouteTtlPlan { routes, loads_saved, bytes_saved, is_sampled: !trace.is_whole() }
    }
}

/// The routes that may have a ttl of their own.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// Those that may save loads, those that save most first.
    savers: Vec<PlannedRoute>,
    /// Those that change too often for the ttl of the plan.
    shorter: Vec<PlannedRoute>,
}

impl Candidates {
    /// With ttls of at most `ttl_max_ns`.
    pub(crate) fn of(trace: &Trace, lifetime: Lifetime, ttl_max_ns: u64) -> Self {
        match lifetime.ttl {
            Ttl::Fixed(ttl_ns) if !trace.routes().is_empty() => {
                candidates(trace, lifetime, ttl_ns, ttl_max_ns)
            }
            _ => Self::default(),
        }
    }

    /// Those that need more room.
    pub(crate) fn longer(&self) -> impl Iterator<Item = &PlannedRoute> + Clone {
        self.savers.iter().filter(|route| route.ttl_ns > 0)
    }
}

fn candidates(trace: &Trace, lifetime: Lifetime, planned_ns: u64, ttl_max_ns: u64) -> Candidates {
    let grid: Vec<u64> = TTL_GRID_S.iter().map(|ttl_s| ttl_s * SECOND_NS).collect();
    let shorter: Vec<u64> = grid.iter().copied().filter(|ttl_ns| *ttl_ns < planned_ns).collect();
    let longer: Vec<u64> =
        grid.into_iter().filter(|ttl_ns| (planned_ns + 1..=ttl_max_ns).contains(ttl_ns)).collect();
    let tallies = |ttls: &[u64]| -> Vec<(u64, [Tally; ROUTES])> {
        ttls.iter().map(|ttl_ns| (*ttl_ns, tally(trace, *ttl_ns, lifetime.swr_ns))).collect()
    };
    let planned = tally(trace, planned_ns, lifetime.swr_ns);
    let (shorter, longer) = (tallies(&shorter), tallies(&longer));
    // Without the loads that no ttl saves: with a limit a share is smaller.
    let all_loads = planned.iter().map(|tally| tally.loads).sum::<u64>() as f64;
    let all_bytes = planned.iter().map(|tally| tally.load_bytes).sum::<u64>() as f64;
    let usage = usage(trace);
    let all = trace.requests().len().max(1) as f64;
    let (mut savers, mut changing) = (Vec::new(), Vec::new());
    for (number, name) in (1..).zip(trace.routes()) {
        let Usage { requests, once } = usage[number];
        let route = |ttl_ns, evidence| PlannedRoute {
            name: name.to_string(),
            ttl_ns,
            share: requests as f64 / all,
            evidence,
        };
        let now = planned[number];
        if requests as f64 >= SAVED_MIN * all && once as f64 >= UNIQUE_MIN * requests as f64 {
            let share = once as f64 / requests as f64;
            savers.push((requests, route(0, Evidence::UniqueKeys { share })));
            continue;
        }
        if now.outdated_share() > OUTDATED_MANY && now.compared >= COMPARED_MIN {
            // The longest one that few changes outlast, else the shortest one of all.
            let fresh =
                shorter.iter().rev().find(|(_, tallies)| tallies[number].outdated_share() <= OUTDATED_MANY);
            if let Some((ttl_ns, tallies)) = fresh.or(shorter.first()) {
                let outdated_left = tallies[number].outdated_share();
                changing.push((
                    requests,
                    route(*ttl_ns, Evidence::Changes { outdated: now.outdated_share(), outdated_left }),
                ));
            }
            continue;
        }
        let is_fresh = |tally: &Tally| tally.outdated_share() <= OUTDATED_MAX;
        let allowed: Vec<(u64, Tally)> = longer
            .iter()
            .map(|(ttl_ns, tallies)| (*ttl_ns, tallies[number]))
            .take_while(|(_, tally)| is_fresh(tally))
            .collect();
        let Some((_, longest)) = allowed.last() else { continue };
        let enough = |(_, tally): &&(u64, Tally)| {
            let rest = |now: u64, at: u64, longest: u64| {
                (at - longest.min(at)) as f64 <= REST_MAX * now.saturating_sub(longest) as f64
            };
            tally.compared >= COMPARED_MIN
                && rest(now.loads, tally.loads, longest.loads)
                && rest(now.load_bytes, tally.load_bytes, longest.load_bytes)
        };
        let saves = |(_, tally): &&(u64, Tally)| {
            (now.loads.saturating_sub(tally.loads)) as f64 >= SAVED_MIN * all_loads
                || now.load_bytes.saturating_sub(tally.load_bytes) as f64 >= SAVED_MIN * all_bytes
        };
        if let Some((ttl_ns, tally)) = allowed.iter().find(enough).filter(saves) {
            let evidence = Evidence::SameSize { answers: tally.compared, outdated: tally.outdated };
            savers.push((now.loads.saturating_sub(tally.loads), route(*ttl_ns, evidence)));
        }
    }
    let most_first = |mut routes: Vec<(u64, PlannedRoute)>| {
        routes.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        routes.into_iter().take(PLANNED_MAX).map(|(_, route)| route).collect()
    };
    Candidates { savers: most_first(savers), shorter: most_first(changing) }
}

/// The requests of a route.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    requests: u64,
    /// For keys that are requested once.
    once: u64,
}

fn usage(trace: &Trace) -> [Usage; ROUTES] {
    let mut of_key = vec![0_u32; trace.key_count()];
    let lookups = || trace.requests().iter().filter(|request| request.exchange().is_lookup());
    lookups().for_each(|request| of_key[request.key() as usize] += 1);
    let mut usage = [Usage::default(); ROUTES];
    for request in lookups() {
        let of_route = &mut usage[usize::from(request.route())];
        of_route.requests += 1;
        of_route.once += u64::from(of_key[request.key() as usize] == 1);
    }
    usage
}

/// A route in a cache without a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tally {
    loads: u64,
    load_bytes: u64,
    /// Answers of the cache whose size and the one that the server sent at that time are known.
    compared: u64,
    /// Those of them whose sizes differ.
    outdated: u64,
}

impl Tally {
    fn outdated_share(&self) -> f64 {
        self.outdated as f64 / self.compared.max(1) as f64
    }
}

/// Each route with this ttl. Responses of other kinds than a page of 200 do not count.
fn tally(trace: &Trace, ttl_ns: u64, swr_ns: u64) -> [Tally; ROUTES] {
    /// When it was loaded, and its bytes.
    type Stored = Option<(u64, u32)>;
    let mut stored: Vec<Stored> = vec![None; trace.key_count()];
    let mut tallies = [Tally::default(); ROUTES];
    let at = |key: Key| key as usize;
    for request in trace.requests() {
        match request.exchange() {
            Exchange::Planned => {}
            Exchange::Write | Exchange::NotShareable | Exchange::NoLifetime => {
                stored[at(request.key())] = None;
                continue;
            }
            _ => continue,
        }
        let stored = &mut stored[at(request.key())];
        let tally = &mut tallies[usize::from(request.route())];
        let age_ns = stored.map(|(loaded_ns, _)| request.at_ns - loaded_ns);
        let is_answered = age_ns.is_some_and(|age_ns| age_ns < ttl_ns.saturating_add(swr_ns));
        if let Some((_, bytes)) = stored.filter(|(_, bytes)| is_answered && *bytes > 0 && request.bytes > 0) {
            tally.compared += 1;
            tally.outdated += u64::from(bytes != request.bytes);
        }
        if age_ns.is_none_or(|age_ns| age_ns >= ttl_ns) {
            tally.loads += 1;
            tally.load_bytes += u64::from(request.bytes);
            *stored = Some((request.at_ns, request.bytes));
        }
    }
    tallies
}

#[cfg(test)]
mod tests;
