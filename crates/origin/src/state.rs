//! What all listeners and threads of one origin share.

use std::{
    collections::HashMap,
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
    book::{Book, Clock, Route},
    content::{Fetched, Shelf, Unavailable, is_gzip},
    counts::{Counts, Gauge},
    fetch::fetch,
    recipe::{Content, Recipe, RecipeError, read},
};

/// All contents together may be as large.
const CONTENT_BYTES_MAX: u64 = 1 << 30;

/// What is in force, and what became of it.
pub(crate) struct State {
    pub(crate) book: ArcSwap<Book>,
    /// Told whenever another book is in force.
    pub(crate) changed: watch::Sender<()>,
    /// Requests that met no route.
    pub(crate) unrouted: Counts,
    pub(crate) in_flight: Gauge,
    pub(crate) connections: Gauge,
    /// In PEM, if connections are encrypted.
    pub(crate) certificate: Option<String>,
    /// Whether whoever writes recipes can come in while nobody listens.
    has_admin_of_its_own: bool,
    seed: Seed,
    /// Whether stages wait to be started, now and at first.
    is_held: AtomicBool,
    begins_held: bool,
    /// What it was started with. Locked while the book changes.
    first: Mutex<Arc<Book>>,
}

/// Recipes were not taken in; those that were in force still are.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// They make no sense.
    #[error("{}", .0.in_one_line())]
    Recipe(#[from] Box<RecipeError>),
    /// A content is not where it should be.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// Nobody could ever come in again.
    #[error(
        "in the end every route refuses connections, and with them whoever would change that: add a last stage \
         without `refuse`, or start the origin with --admin ADDR"
    )]
    Final,
    /// They are too much for memory.
    #[error("all contents together have {} MiB: make them 1,024 MiB at most", .bytes.div_ceil(1 << 20))]
    TooMuch {
        /// How much they have.
        bytes: u64,
    },
}

impl State {
    pub(crate) fn new(
        seed: Seed,
        begins_held: bool,
        has_admin_of_its_own: bool,
        certificate: Option<String>,
    ) -> Self {
        Self {
            book: ArcSwap::default(),
            changed: watch::Sender::new(()),
            unrouted: Counts::default(),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            certificate,
            has_admin_of_its_own,
            seed,
            is_held: AtomicBool::new(begins_held),
            begins_held,
            first: Mutex::default(),
        }
    }

    /// Takes in the recipes of a text, all or none.
    pub(crate) async fn add(
        &self,
        text: &str,
        name: &str,
        folder: &Path,
        time: &Precise,
    ) -> Result<(), Refused> {
        let recipes = read(text, name, folder)?;
        let mut routes = Vec::new();
        let mut fetched = HashMap::new();
        for recipe in recipes {
            let content = match &recipe.content {
                Content::Origin(uri) => {
                    let is_gzip = is_gzip(&recipe.headers);
                    let key = (uri.clone(), is_gzip);
                    if !fetched.contains_key(&key) {
                        fetched.insert(key.clone(), fetch(uri, is_gzip, &recipe.route, time).await?);
                    }
                    fetched.get(&key).cloned()
                }
                Content::Random(_) | Content::Template(_) => None,
            };
            routes.push(self.prepared(recipe, content).await);
        }
        // From here on nothing is awaited but the lock: whoever gives up leaves all as it was.
        let _changing = self.first.lock().await;
        let old = self.book.load_full();
        let clock = self.clock(time);
        let new = old.with(routes.into_iter().map(|(recipe, shelf, seed)| {
            let counts = old.counts(&recipe.route).unwrap_or_default();
            Route::new(Arc::new(recipe), Arc::new(shelf), counts, clock, seed)
        }));
        if new.ends_refusing() && !self.has_admin_of_its_own {
            return Err(Refused::Final);
        }
        let bytes = new.content_bytes();
        if bytes > CONTENT_BYTES_MAX {
            return Err(Refused::TooMuch { bytes });
        }
        self.put(new);
        Ok(())
    }

    /// Makes the content beside the requests that are served meanwhile: it may take its time.
    async fn prepared(&self, recipe: Recipe, content: Option<Fetched>) -> (Recipe, Shelf, Seed) {
        let seed = self.seed.child(&recipe.route);
        let make = move || {
            let shelf = Shelf::new(&recipe, content, seed);
            (recipe, shelf, seed)
        };
        match tokio::task::spawn_blocking(make).await {
            Ok(made) => made,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// What is in force now is what a restart comes back to.
    pub(crate) async fn keep(&self) {
        *self.first.lock().await = self.book.load_full();
    }

    /// As it was started: its first recipes, from the beginning.
    pub(crate) async fn restart(&self, time: &Precise) {
        let first = self.first.lock().await;
        self.is_held.store(self.begins_held, Relaxed);
        self.put(first.restarted(self.clock(time)));
    }

    /// The stages of all recipes that are in force begin now.
    pub(crate) async fn start(&self, time: &Precise) {
        let _changing = self.first.lock().await;
        self.is_held.store(false, Relaxed);
        self.put(self.book.load().restarted(self.clock(time)));
    }

    /// Counts from none on.
    pub(crate) fn clear(&self) {
        let book = self.book.load();
        for counts in book.routes().map(|route| &*route.counts).chain([&self.unrouted]) {
            counts.clear();
        }
        self.in_flight.clear();
        self.connections.clear();
    }

    fn put(&self, book: Book) {
        self.book.store(Arc::new(book));
        self.changed.send_replace(());
    }

    fn clock(&self, time: &Precise) -> Clock {
        if self.is_held.load(Relaxed) {
            return Clock::Held;
        }
        #[expect(clippy::disallowed_methods, reason = "Last-Modified is told on the wall's clock")]
        Clock::Since(time.now(), SystemTime::now())
    }
}
