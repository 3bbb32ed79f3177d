//! What all listeners and threads of one origin share.

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
    beside::beside,
    book::{Book, Clock, Route},
    content::{Shelf, Unavailable, declared_bytes},
    counts::{Counts, Gauge},
    fetch::{self, fetch_all},
    recipe::{Recipe, RecipeError, read},
};

/// All contents together may be as large.
pub(crate) const CONTENTS_BYTES_MAX: u64 = 1 << 30;

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
    /// Held by whoever takes recipes in, from their text on: what they may take is what all others leave.
    turn: Arc<Mutex<()>>,
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
        "in the end, or until stages are started, every route refuses connections, and with them whoever would change \
         that: let one of them have a last stage, and if stages are held a first one, without `refuse`, or start the \
         origin with --admin ADDR"
    )]
    Final,
    /// They are too much for memory.
    #[error("all contents together have {} MiB or more: make them 1,024 MiB at most", .bytes.div_ceil(1 << 20))]
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
            turn: Arc::default(),
            first: Mutex::default(),
        }
    }

    /// Takes in the recipes of a text, all or none. One text at a time; whoever gives up leaves all as it was.
    pub(crate) async fn add(
        &self,
        text: &str,
        name: &str,
        folder: &Path,
        time: &Precise,
    ) -> Result<(), Refused> {
        // It goes with the work: what nobody waits for any more ends before the next one begins.
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let (text, name, folder) = (text.to_owned(), name.to_owned(), folder.to_owned());
        let (recipes, turn) = beside(move || (read(&text, &name, &folder), turn)).await;
        let recipes = recipes?;
        let stay = self.content_bytes_beside(&recipes);
        let declared = recipes.iter().map(|recipe| declared_bytes(&recipe.content));
        let left = room(declared.fold(stay, u64::saturating_add))?;
        let fetched = fetch_all(&recipes, left, time).await?;
        let seed = self.seed;
        let make = move || {
            let mut bytes = stay;
            let prepared = recipes.into_iter().map(|recipe| {
                let content = fetch::key(&recipe).and_then(|key| fetched.get(&key).cloned());
                let seed = seed.child(&recipe.route);
                let shelf = Shelf::new(&recipe, content, seed);
                bytes += shelf.bytes();
                room(bytes)?;
                Ok((recipe, shelf, seed))
            });
            (prepared.collect::<Result<Vec<_>, Refused>>(), turn)
        };
        let (routes, _turn) = beside(make).await;
        // From here on nothing is awaited but the lock: whoever gives up leaves all as it was.
        let routes = routes?;
        let _changing = self.first.lock().await;
        let old = self.book.load_full();
        let clock = self.clock(time);
        let new = old.with(routes.into_iter().map(|(recipe, shelf, seed)| {
            let counts = old.counts(&recipe.route).unwrap_or_default();
            Route::new(Arc::new(recipe), Arc::new(shelf), counts, clock, seed)
        }));
        let is_final = new.ends_refusing() || (self.is_held.load(Relaxed) && new.begins_refusing());
        if is_final && !self.has_admin_of_its_own {
            return Err(Refused::Final);
        }
        // A restart may have come between.
        room(new.content_bytes())?;
        self.put(new);
        Ok(())
    }

    /// How much memory the contents take that stay with these recipes.
    fn content_bytes_beside(&self, recipes: &[Recipe]) -> u64 {
        let replaced: HashSet<&str> = recipes.iter().map(|recipe| recipe.route.as_str()).collect();
        self.book.load().content_bytes_without(|pattern| replaced.contains(pattern))
    }

    /// What is in force now is what a restart comes back to.
    pub(crate) async fn keep(&self) {
        *self.first.lock().await = self.book.load_full();
    }

    /// As it was started: its first recipes, from the beginning, and nothing counted.
    pub(crate) async fn restart(&self, time: &Precise) {
        let first = self.first.lock().await;
        self.is_held.store(self.begins_held, Relaxed);
        self.put(first.restarted(self.clock(time)));
        self.clear();
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

/// How much more there may be.
fn room(bytes: u64) -> Result<u64, Refused> {
    CONTENTS_BYTES_MAX.checked_sub(bytes).ok_or(Refused::TooMuch { bytes })
}
