//! State that all listeners of one origin share: the recipes in force, counters and gauges.

use std::{
    collections::HashSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::SystemTime,
};

use arc_swap::ArcSwap;
use stockade_model::{
    seed::Seed,
    time::{Precise, Runtime},
};
use tokio::sync::{Mutex, watch};

use crate::{
    blocking::run_blocking,
    content::{VersionedContent, declared_bytes},
    counters::{Gauge, RouteCounters},
    fetch::{FetchError, FetchFailure, FetchKey, fetch_all},
    recipe::{Recipe, RecipeError, parse},
    routes::{OriginRoute, RouteClock, RouteTable},
    script::Script,
    server::OriginOptions,
};

/// Bound of all contents together.
const CONTENTS_BYTES_MAX: u64 = 1 << 30;

pub(crate) struct OriginState {
    pub(crate) routes: ArcSwap<RouteTable>,
    /// In place of routes.
    pub(crate) script: Option<Arc<dyn Script>>,
    /// Notified after `routes` has changed.
    pub(crate) changed: watch::Sender<()>,
    /// Counters of requests that match no route.
    pub(crate) unrouted: RouteCounters,
    pub(crate) open_requests: Gauge,
    pub(crate) connections: Gauge,
    /// PEM; `None`: connections are not encrypted.
    pub(crate) certificate: Option<String>,
    /// The admin pages stay reachable while every route refuses connections.
    has_admin_listener: bool,
    /// Names that requests for the admin pages may have as their host.
    pub(crate) admin_hosts: Vec<String>,
    seed: Seed,
    is_clock_held: AtomicBool,
    is_clock_held_at_start: bool,
    /// Locked from parsing to installing: two texts at once could exceed the bound on all contents.
    adding: Arc<Mutex<()>>,
    /// The routes that a restart comes back to. Locked while `routes` changes.
    initial: Mutex<Arc<RouteTable>>,
}

/// Recipes were not added. The recipes in force have not changed.
#[derive(Debug, thiserror::Error)]
pub enum AddRecipesError {
    /// The text is not valid.
    #[error("{}", .0.in_one_line())]
    Recipe(#[from] Box<RecipeError>),
    /// A content could not be fetched.
    #[error(transparent)]
    ContentFetch(#[from] FetchError),
    /// No request could reach the origin any more, not even one that changes the recipes.
    #[error(
        "every route refuses connections in its last stage, or until stages are started, so no request could change that: \
         give one route a last stage without `refuse` (with held stages also a first one), or start the origin with \
         --admin ADDR"
    )]
    NeverListensAgain,
    /// The contents take too much memory.
    #[error(
        "all contents together have {} MiB or more: reduce them to at most 1,024 MiB", .bytes.div_ceil(1 << 20)
    )]
    ContentsTooLarge {
        /// Their size, as far as it is known.
        bytes: u64,
    },
}

impl From<FetchFailure> for AddRecipesError {
    fn from(failure: FetchFailure) -> Self {
        match failure {
            FetchFailure::Unavailable(error) => Self::ContentFetch(error),
            FetchFailure::TooLarge => Self::ContentsTooLarge { bytes: CONTENTS_BYTES_MAX + 1 },
        }
    }
}

impl OriginState {
    pub(crate) fn new(options: &OriginOptions, certificate: Option<String>) -> Self {
        Self {
            routes: ArcSwap::default(),
            script: options.script.clone(),
            changed: watch::Sender::new(()),
            unrouted: RouteCounters::default(),
            open_requests: Gauge::default(),
            connections: Gauge::default(),
            certificate,
            has_admin_listener: options.admin.is_some(),
            admin_hosts: options.admin_hosts.clone(),
            seed: options.seed,
            is_clock_held: AtomicBool::new(options.is_clock_held),
            is_clock_held_at_start: options.is_clock_held,
            adding: Arc::default(),
            initial: Mutex::default(),
        }
    }

    /// Adds all recipes of a text, or none. Texts are added one after another. If the future is dropped, no recipe is
    /// added.
    pub(crate) async fn add_or_replace_recipes(
        &self,
        text: &str,
        name: &str,
        folder: &Path,
        time: &Precise,
    ) -> Result<(), AddRecipesError> {
        // The guard moves through the blocking work: abandoned work ends before the next text begins.
        let adding = Arc::clone(&self.adding).lock_owned().await;
        let (text, name, folder) = (text.to_owned(), name.to_owned(), folder.to_owned());
        let (recipes, adding) = run_blocking(move || (parse(&text, &name, &folder), adding)).await;
        let recipes = recipes?;
        let retained = self.retained_bytes(&recipes);
        let declared = recipes.iter().map(|recipe| declared_bytes(&recipe.content));
        let bytes_left = content_bytes_left(declared.fold(retained, u64::saturating_add))?;
        let fetched = fetch_all(&recipes, bytes_left, time).await?;
        let seed = self.seed;
        let build = move || {
            let mut bytes = retained;
            let built = recipes.into_iter().map(|recipe| {
                let fetched = FetchKey::of(&recipe).and_then(|key| fetched.get(&key).cloned());
                let seed = seed.child(&recipe.route);
                let content = VersionedContent::new(&recipe, fetched, seed);
                bytes += content.memory_bytes();
                content_bytes_left(bytes)?;
                Ok((recipe, content, seed))
            });
            (built.collect::<Result<Vec<_>, AddRecipesError>>(), adding)
        };
        let (built, _adding) = run_blocking(build).await;
        // The lock is the last await, so a dropped future leaves the routes as they were.
        let built = built?;
        let _changing = self.initial.lock().await;
        let old = self.routes.load_full();
        let clock = self.new_clock(time);
        let new = old.with_routes(built.into_iter().map(|(recipe, content, seed)| {
            let counters = old.counters(&recipe.route).unwrap_or_default();
            OriginRoute::new(Arc::new(recipe), Arc::new(content), counters, clock, seed)
        }));
        let never_listens =
            new.refuses_forever() || (self.is_clock_held.load(Relaxed) && new.refuses_while_held());
        if never_listens && !self.has_admin_listener {
            return Err(AddRecipesError::NeverListensAgain);
        }
        // A restart may have changed the routes since the first check.
        content_bytes_left(new.content_bytes())?;
        self.install(new);
        Ok(())
    }

    /// Memory of the contents that these recipes do not replace.
    fn retained_bytes(&self, recipes: &[Recipe]) -> u64 {
        let replaced: HashSet<&str> = recipes.iter().map(|recipe| recipe.route.as_str()).collect();
        self.routes.load().content_bytes_excluding(|pattern| replaced.contains(pattern))
    }

    /// Makes the current routes those that a restart comes back to.
    pub(crate) async fn save_initial(&self) {
        *self.initial.lock().await = self.routes.load_full();
    }

    /// Returns to the state after the start: the first recipes, their clocks and random draws, and no counts.
    pub(crate) async fn restart(&self, time: &Precise) {
        let initial = self.initial.lock().await;
        self.is_clock_held.store(self.is_clock_held_at_start, Relaxed);
        self.install(initial.restarted(self.new_clock(time)));
        self.clear_counters();
    }

    /// Starts the clocks of all routes now.
    pub(crate) async fn start_stages(&self, time: &Precise) {
        let _changing = self.initial.lock().await;
        self.is_clock_held.store(false, Relaxed);
        self.install(self.routes.load().restarted(self.new_clock(time)));
    }

    pub(crate) fn clear_counters(&self) {
        let routes = self.routes.load();
        for counters in routes.routes().map(|route| &*route.counters).chain([&self.unrouted]) {
            counters.clear();
        }
        self.open_requests.clear_max();
        self.connections.clear_max();
    }

    fn install(&self, routes: RouteTable) {
        self.routes.store(Arc::new(routes));
        self.changed.send_replace(());
    }

    fn new_clock(&self, time: &Precise) -> RouteClock {
        if self.is_clock_held.load(Relaxed) {
            return RouteClock::Held;
        }
        #[expect(clippy::disallowed_methods, reason = "Last-Modified is a time of the wall clock")]
        let wall = SystemTime::now();
        RouteClock::Started { at: time.now(), wall }
    }
}

/// Bytes left for contents of routes when the present ones use `used`.
fn content_bytes_left(used: u64) -> Result<u64, AddRecipesError> {
    CONTENTS_BYTES_MAX.checked_sub(used).ok_or(AddRecipesError::ContentsTooLarge { bytes: used })
}
