//! The recipes in force, and the route that a path matches.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use stockade_model::{
    capacity::{QueueFull, QueueModel},
    seed::Seed,
    time::Time,
};

use crate::{
    content::{Representation, VersionedContent},
    counters::RouteCounters,
    recipe::Recipe,
    stages::{Behavior, Stage},
};

/// All routes at one moment. A change makes a new table.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteTable {
    by_pattern: BTreeMap<Arc<str>, Arc<OriginRoute>>,
    exact: RoutesByPath,
    /// Prefixes by length, the longest first.
    prefixes: Vec<(usize, RoutesByPath)>,
}

type RoutesByPath = HashMap<Arc<str>, Arc<OriginRoute>>;

/// A recipe in force.
#[derive(Debug)]
pub(crate) struct OriginRoute {
    pub(crate) recipe: Arc<Recipe>,
    pub(crate) counters: Arc<RouteCounters>,
    content: Arc<VersionedContent>,
    clock: RouteClock,
    capacity: Option<Mutex<QueueModel>>,
    seed: Seed,
    /// Random draws so far. The nth draw depends on `seed` and n alone, whatever thread serves the request.
    draws: AtomicU64,
}

/// Start of a route's stages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RouteClock {
    /// The clock stands at 0.
    Held,
    Started {
        at: Time,
        wall: SystemTime,
    },
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// The origin does this at `due`.
    Respond { behavior: Behavior, due: Time },
    /// No worker is free and the queue is full: 503 at once.
    QueueFull,
    /// The first stage has not started: 406 at once.
    NotStarted,
}

impl OriginRoute {
    /// `counters` belong to the pattern: a new recipe for the same pattern continues them.
    pub(crate) fn new(
        recipe: Arc<Recipe>,
        content: Arc<VersionedContent>,
        counters: Arc<RouteCounters>,
        clock: RouteClock,
        seed: Seed,
    ) -> Self {
        let capacity = recipe.capacity.map(|capacity| Mutex::new(QueueModel::new(Some(capacity))));
        Self { recipe, counters, content, clock, capacity, seed, draws: AtomicU64::new(0) }
    }

    /// The same route with a new clock, its random draws from the beginning and no request in its queue.
    pub(crate) fn restarted(&self, clock: RouteClock) -> Self {
        let (recipe, content) = (Arc::clone(&self.recipe), Arc::clone(&self.content));
        Self::new(recipe, content, Arc::clone(&self.counters), clock, self.seed)
    }

    /// The active stage, if the first one has started.
    pub(crate) fn last_started_stage(&self, now: Time) -> Option<&Stage> {
        self.recipe.stages.last_started_at(self.elapsed(now))
    }

    /// Decides what happens to a request that arrives now. If it has to wait for a worker, the stage at the start of
    /// processing counts.
    pub(crate) fn admit(&self, now: Time) -> Disposition {
        let Some(stage) = self.last_started_stage(now) else { return Disposition::NotStarted };
        let capacity = self.capacity.as_ref().filter(|_| !stage.always_refuses());
        let Some(capacity) = capacity else {
            let behavior = self.behavior(stage);
            return Disposition::Respond { behavior, due: now + behavior.latency };
        };
        let mut behavior = None;
        let due = capacity.lock().unwrap_or_else(PoisonError::into_inner).admit(now, |start| {
            behavior = self.last_started_stage(start).map(|stage| self.behavior(stage));
            behavior.map(|behavior| behavior.latency).unwrap_or_default()
        });
        match (due, behavior) {
            (Ok(due), Some(behavior)) => Disposition::Respond { behavior, due },
            (Ok(_), None) => Disposition::NotStarted,
            (Err(QueueFull), _) => Disposition::QueueFull,
        }
    }

    /// The content's version at a moment.
    pub(crate) async fn representation(&self, now: Time) -> Arc<Representation> {
        let started = match self.clock {
            RouteClock::Held => SystemTime::UNIX_EPOCH,
            RouteClock::Started { wall, .. } => wall,
        };
        let Some(every) = self.recipe.version_every else {
            return self.content.representation(1, started).await;
        };
        let saturate = |nanos: u128| u64::try_from(nanos).unwrap_or(u64::MAX);
        let past_versions = saturate(self.elapsed(now).as_nanos() / every.as_nanos().max(1));
        let age = Duration::from_nanos(saturate(every.as_nanos()).saturating_mul(past_versions));
        self.content.representation(past_versions.saturating_add(1), started + age).await
    }

    /// Pattern, status and latency in milliseconds, as in `OriginSimulator`; then the faults with their shares.
    pub(crate) fn status_line(&self, now: Time) -> String {
        let pattern = &self.recipe.route;
        let Some(stage) = self.last_started_stage(now) else { return format!("{pattern} 406 0") };
        let line = format!("{pattern} {} {}", stage.status, stage.latency.in_milliseconds());
        let faults: Vec<_> =
            stage.fault.shares().filter_map(|(share, fault)| Some((share, (*fault)?.name()))).collect();
        match faults.as_slice() {
            [] => line,
            [(share, name)] if *share >= 1.0 => format!("{line} {name}"),
            faults => {
                let faults: Vec<_> = faults.iter().map(|(share, name)| format!("{name}:{share}")).collect();
                format!("{line} {}", faults.join(","))
            }
        }
    }

    fn elapsed(&self, now: Time) -> Duration {
        match self.clock {
            RouteClock::Held => Duration::ZERO,
            RouteClock::Started { at, .. } => now - at,
        }
    }

    fn next_stage_change(&self, now: Time) -> Option<Time> {
        let RouteClock::Started { at: started, .. } = self.clock else { return None };
        self.recipe.stages.next_start_after(now - started).map(|at| started + at)
    }

    fn behavior(&self, stage: &Stage) -> Behavior {
        stage.constant().unwrap_or_else(|| {
            let n = self.draws.fetch_add(1, Relaxed);
            stage.draw(&mut self.seed.nth(n))
        })
    }
}

impl RouteTable {
    /// A table with these routes added. They replace routes of the same pattern.
    pub(crate) fn with_routes(&self, routes: impl IntoIterator<Item = OriginRoute>) -> Self {
        let added = routes.into_iter().map(|route| (route.recipe.route.as_str().into(), Arc::new(route)));
        Self::new(self.by_pattern.clone().into_iter().chain(added).collect())
    }

    /// A table with all routes restarted.
    pub(crate) fn restarted(&self, clock: RouteClock) -> Self {
        let restarted = |(pattern, route): (&Arc<str>, &Arc<OriginRoute>)| {
            (Arc::clone(pattern), Arc::new(route.restarted(clock)))
        };
        Self::new(self.by_pattern.iter().map(restarted).collect())
    }

    fn new(by_pattern: BTreeMap<Arc<str>, Arc<OriginRoute>>) -> Self {
        let mut exact = RoutesByPath::new();
        let mut prefixes: BTreeMap<usize, RoutesByPath> = BTreeMap::new();
        for (pattern, route) in &by_pattern {
            exact.insert(Arc::clone(pattern), Arc::clone(route));
            if let Some(prefix) = pattern.strip_suffix('*') {
                prefixes.entry(prefix.len()).or_default().insert(prefix.into(), Arc::clone(route));
            }
        }
        Self { by_pattern, exact, prefixes: prefixes.into_iter().rev().collect() }
    }

    /// The route that a path matches: the exact one, else the one with the longest prefix.
    pub(crate) fn find(&self, path: &str) -> Option<&Arc<OriginRoute>> {
        let mut prefixes = self.prefixes.iter();
        let mut longest = || prefixes.find_map(|(length, routes)| routes.get(path.get(..*length)?));
        self.exact.get(path).or_else(&mut longest)
    }

    /// The patterns of recipes without cache headers.
    pub(crate) fn uncacheable(&self) -> Vec<String> {
        let routes = self.by_pattern.iter().filter(|(_, route)| !route.recipe.has_cache_headers());
        routes.map(|(pattern, _)| pattern.to_string()).collect()
    }

    /// All routes, sorted by pattern.
    pub(crate) fn routes(&self) -> impl Iterator<Item = &Arc<OriginRoute>> {
        self.by_pattern.values()
    }

    pub(crate) fn counters(&self, pattern: &str) -> Option<Arc<RouteCounters>> {
        self.by_pattern.get(pattern).map(|route| Arc::clone(&route.counters))
    }

    /// Memory of all contents.
    pub(crate) fn content_bytes(&self) -> u64 {
        self.content_bytes_excluding(|_| false)
    }

    /// Memory of the contents of those routes whose pattern is not excluded.
    pub(crate) fn content_bytes_excluding(&self, is_excluded: impl Fn(&str) -> bool) -> u64 {
        let included = self.by_pattern.iter().filter(|(pattern, _)| !is_excluded(pattern));
        included.map(|(_, route)| route.content.memory_bytes()).sum()
    }

    /// True if every route refuses connections now, so that the listeners have to be closed.
    pub(crate) fn refuses_at(&self, now: Time) -> bool {
        self.all_refuse_in(|route| route.last_started_stage(now))
    }

    /// True if every route refuses connections while the clocks stand at 0.
    pub(crate) fn refuses_while_held(&self) -> bool {
        self.all_refuse_in(|route| route.recipe.stages.last_started_at(Duration::ZERO))
    }

    /// True if every route refuses connections in its last stage.
    pub(crate) fn refuses_forever(&self) -> bool {
        self.all_refuse_in(|route| route.recipe.stages.last())
    }

    /// The next moment at which a stage starts.
    pub(crate) fn next_stage_change(&self, now: Time) -> Time {
        let changes = self.by_pattern.values().filter_map(|route| route.next_stage_change(now));
        changes.min().unwrap_or(Time::NEVER)
    }

    fn all_refuse_in<'t>(&'t self, stage: impl Fn(&'t OriginRoute) -> Option<&'t Stage>) -> bool {
        let refuses = |route: &'t Arc<OriginRoute>| stage(route).is_some_and(Stage::always_refuses);
        !self.by_pattern.is_empty() && self.by_pattern.values().all(refuses)
    }
}
