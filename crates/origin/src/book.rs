//! The recipes that are in force, and which one a path meets.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use stockade_model::{
    capacity::{Desk, Full},
    seed::Seed,
    time::Time,
};

use crate::{
    content::{Rendition, Shelf},
    counts::Counts,
    recipe::Recipe,
    stages::{Plan, Stage},
};

/// Every route, at one moment: it is replaced, never changed.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// By pattern.
    routes: BTreeMap<Arc<str>, Arc<Route>>,
    exact: Found,
    /// By their length, the longest first.
    prefixes: Vec<(usize, Found)>,
}

type Found = HashMap<Arc<str>, Arc<Route>>;

/// A recipe in force.
#[derive(Debug)]
pub struct Route {
    /// What was asked for.
    pub recipe: Arc<Recipe>,
    /// What was answered.
    pub counts: Arc<Counts>,
    shelf: Arc<Shelf>,
    clock: Clock,
    desk: Option<Mutex<Desk>>,
    seed: Seed,
    drawn: AtomicU64,
}

/// When a route's first stage began.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// Stages have not been started: it is the beginning all the time.
    Held,
    /// On the origin's clock, and on the wall's.
    Since(Time, SystemTime),
}

/// What becomes of a request, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// When its time has come.
    Planned {
        /// What.
        plan: Plan,
        /// When.
        due: Time,
    },
    /// No worker is free, and the queue is full: 503, at once.
    Rejected,
    /// The first stage has not begun: 406, at once.
    NotYet,
}

impl Route {
    /// Of a recipe whose content is there. Counts go on where there was such a route before.
    #[must_use]
    pub fn new(
        recipe: Arc<Recipe>,
        shelf: Arc<Shelf>,
        counts: Arc<Counts>,
        clock: Clock,
        seed: Seed,
    ) -> Self {
        let desk = recipe.capacity.map(|capacity| Mutex::new(Desk::new(Some(capacity))));
        Self { recipe, counts, shelf, clock, desk, seed, drawn: AtomicU64::new(0) }
    }

    /// The same from the beginning: stages, chance, and nobody at work.
    #[must_use]
    pub fn restarted(&self, clock: Clock) -> Self {
        Self::new(
            Arc::clone(&self.recipe),
            Arc::clone(&self.shelf),
            Arc::clone(&self.counts),
            clock,
            self.seed,
        )
    }

    /// How far its stages are.
    #[must_use]
    pub fn elapsed(&self, now: Time) -> Duration {
        match self.clock {
            Clock::Held => Duration::ZERO,
            Clock::Since(began, _) => now - began,
        }
    }

    /// The stage at a moment, if the first one has begun.
    #[must_use]
    pub fn stage(&self, now: Time) -> Option<&Stage> {
        self.recipe.stages.at(self.elapsed(now))
    }

    /// When its stage changes next.
    #[must_use]
    pub fn next_change(&self, now: Time) -> Option<Time> {
        let Clock::Since(began, _) = self.clock else { return None };
        self.recipe.stages.next_after(now - began).map(|at| began + at)
    }

    /// What becomes of a request that comes now. With a capacity that is the stage's doing at the moment
    /// at which a worker is free.
    #[must_use]
    pub fn fate(&self, now: Time) -> Fate {
        let Some(stage) = self.stage(now) else { return Fate::NotYet };
        let desk = self.desk.as_ref().filter(|_| !stage.refuses());
        let Some(desk) = desk else {
            let plan = self.plan(stage);
            return Fate::Planned { plan, due: now + plan.latency };
        };
        let mut planned = None;
        let due = desk.lock().unwrap_or_else(PoisonError::into_inner).admit(now, |begins| {
            planned = self.stage(begins).map(|stage| self.plan(stage));
            planned.map(|plan| plan.latency).unwrap_or_default()
        });
        match (due, planned) {
            (Ok(due), Some(plan)) => Fate::Planned { plan, due },
            (Ok(_), None) => Fate::NotYet,
            (Err(Full), _) => Fate::Rejected,
        }
    }

    fn plan(&self, stage: &Stage) -> Plan {
        stage.certain().unwrap_or_else(|| {
            let n = self.drawn.fetch_add(1, Relaxed);
            stage.plan(&mut self.seed.nth(n))
        })
    }

    /// What it serves at a moment.
    pub(crate) async fn rendition(&self, now: Time) -> Arc<Rendition> {
        let wall = match self.clock {
            Clock::Held => SystemTime::UNIX_EPOCH,
            Clock::Since(_, wall) => wall,
        };
        let Some(every) = self.recipe.version_every else { return self.shelf.version(1, wall).await };
        let nanos = |nanos: u128| u64::try_from(nanos).unwrap_or(u64::MAX);
        let past = nanos(self.elapsed(now).as_nanos() / every.as_nanos().max(1));
        let began = wall + Duration::from_nanos(nanos(every.as_nanos()).saturating_mul(past));
        self.shelf.version(past.saturating_add(1), began).await
    }

    /// Pattern, status and latency in milliseconds, as `OriginSimulator` lists them; and a fault, if there is one.
    #[must_use]
    pub fn status_line(&self, now: Time) -> String {
        let pattern = &self.recipe.route;
        let Some(stage) = self.stage(now) else { return format!("{pattern} 406 0") };
        let line = format!("{pattern} {} {}", stage.status, stage.latency.in_milliseconds());
        let faults: Vec<_> =
            stage.fault.shares().filter_map(|(share, fault)| Some((share, (*fault)?.name()))).collect();
        match faults.as_slice() {
            [] => line,
            [(share, name)] if *share >= 1.0 => format!("{line} {name}"),
            some => {
                let some: Vec<_> = some.iter().map(|(share, name)| format!("{name}:{share}")).collect();
                format!("{line} {}", some.join(","))
            }
        }
    }
}

impl Book {
    /// With these routes in place of those of the same pattern.
    #[must_use]
    pub fn with(&self, routes: impl IntoIterator<Item = Route>) -> Self {
        let added = routes.into_iter().map(|route| (route.recipe.route.as_str().into(), Arc::new(route)));
        Self::of(self.routes.clone().into_iter().chain(added).collect())
    }

    fn of(routes: BTreeMap<Arc<str>, Arc<Route>>) -> Self {
        let mut exact = Found::new();
        let mut prefixes: BTreeMap<usize, Found> = BTreeMap::new();
        for (pattern, route) in &routes {
            exact.insert(Arc::clone(pattern), Arc::clone(route));
            if let Some(prefix) = pattern.strip_suffix('*') {
                prefixes.entry(prefix.len()).or_default().insert(prefix.into(), Arc::clone(route));
            }
        }
        Self { routes, exact, prefixes: prefixes.into_iter().rev().collect() }
    }

    /// All of them from the beginning.
    #[must_use]
    pub fn restarted(&self, clock: Clock) -> Self {
        let restarted = |(pattern, route): (&Arc<str>, &Arc<Route>)| {
            (Arc::clone(pattern), Arc::new(route.restarted(clock)))
        };
        Self::of(self.routes.iter().map(restarted).collect())
    }

    /// The route that a path meets: the one that is written so, else the one with the longest beginning.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<&Arc<Route>> {
        let mut prefixes = self.prefixes.iter();
        let mut longest = || prefixes.find_map(|(length, routes)| routes.get(path.get(..*length)?));
        self.exact.get(path).or_else(&mut longest)
    }

    /// All of them, by pattern.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.values()
    }

    /// The counts of the route of this pattern.
    #[must_use]
    pub fn counts(&self, pattern: &str) -> Option<Arc<Counts>> {
        self.routes.get(pattern).map(|route| Arc::clone(&route.counts))
    }

    /// How much memory all contents take.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes_without(|_| false)
    }

    /// How much memory all contents take but those of some patterns.
    pub fn content_bytes_without(&self, is_left_out: impl Fn(&str) -> bool) -> u64 {
        let counted = self.routes.iter().filter(|(pattern, _)| !is_left_out(pattern));
        counted.map(|(_, route)| route.shelf.bytes()).sum()
    }

    /// Whether nobody listens: every route refuses.
    #[must_use]
    pub fn refuses(&self, now: Time) -> bool {
        let refuses = |route: &Arc<Route>| route.stage(now).is_some_and(Stage::refuses);
        !self.routes.is_empty() && self.routes.values().all(refuses)
    }

    /// Whether nobody listens until stages are started.
    #[must_use]
    pub fn begins_refusing(&self) -> bool {
        let refuses = |route: &Arc<Route>| route.recipe.stages.at(Duration::ZERO).is_some_and(Stage::refuses);
        !self.routes.is_empty() && self.routes.values().all(refuses)
    }

    /// Whether nobody will ever listen again, once the last stages have begun.
    #[must_use]
    pub fn ends_refusing(&self) -> bool {
        let refuses = |route: &Arc<Route>| route.recipe.stages.last().is_some_and(Stage::refuses);
        !self.routes.is_empty() && self.routes.values().all(refuses)
    }

    /// When some stage changes next.
    #[must_use]
    pub fn next_change(&self, now: Time) -> Time {
        self.routes.values().filter_map(|route| route.next_change(now)).min().unwrap_or(Time::NEVER)
    }
}
