//! A cache in front of a database that dies under load, and returns.

use std::{
    fs,
    ops::DerefMut,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use stockade_cache::{Breaker, Cache, Strategy};
use stockade_model::{
    outcome::Outcome,
    source::{Document, Source},
    time::{Live, Runtime, before},
};
use stockade_services::{MongoDb, Postgres, Server};
use stockade_source::{SourceUrl, documents};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinSet,
};

const CONNECTIONS: usize = 4;

/// Short, so that much happens in little time.
fn strategy(preset: &str) -> Strategy {
    const MS: Duration = Duration::from_millis(1);
    let preset = Strategy::preset(preset).unwrap();
    let breaker = Breaker { open_for: 100 * MS, ramp: 100 * MS, ..Breaker::DEFAULT };
    let breaker = preset.breaker.is_some().then_some(breaker);
    Strategy { ttl: Some(5 * MS), throttle: 20 * MS, breaker, ..preset }
}

/// Asks for every document in turn until it is to stop, and tells what each request came to.
async fn client(
    cache: Cache<Arc<str>, Document>,
    source: Arc<dyn Source>,
    documents: Arc<[documents::NamedDocument]>,
    tell: UnboundedSender<Result<Outcome, String>>,
    stop: Arc<AtomicBool>,
) {
    for document in documents.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (id, source) = (Arc::clone(&document.id), Arc::clone(&source));
        let load = move || async move { source.fetch(&id).await.map(Option::unwrap_or_default) };
        let answer = cache.get_with(Arc::clone(&document.id), load).await;
        let answer = answer.map_err(|error| error.to_string()).map(|answer| {
            assert_eq!(answer.value, document.body);
            answer.outcome
        });
        drop(tell.send(answer));
        tokio::task::yield_now().await;
    }
}

/// Waits until requests have come to this so often.
async fn await_outcomes(
    told: &mut UnboundedReceiver<Result<Outcome, String>>,
    outcome: Outcome,
    times: usize,
) {
    let time = Live::new();
    let enough = async {
        let mut seen = 0;
        while seen < times {
            let answer = told.recv().await.expect("clients go on");
            seen += usize::from(answer.expect("nobody is told an error") == outcome);
        }
    };
    let patience = time.now() + Duration::from_secs(30);
    assert!(before(&time, patience, enough).await.is_some(), "{outcome:?}");
}

/// A server that can die.
trait Mortal: DerefMut<Target = Server> {
    /// Where its documents are, with as many connections.
    fn source(&self) -> SourceUrl;

    fn restart(&mut self);

    /// How many connections it has, and how many of a driver's own are among them.
    fn connections(&self) -> (usize, usize);
}

impl Mortal for Postgres {
    fn source(&self) -> SourceUrl {
        format!("{}?connections={CONNECTIONS}&timeout=1s", self.url()).parse().unwrap()
    }

    fn restart(&mut self) {
        self.restart().unwrap();
    }

    fn connections(&self) -> (usize, usize) {
        let open = "SELECT count(*) FROM pg_stat_activity \
                    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        (self.ask(open).unwrap().parse().unwrap(), 0)
    }
}

impl Mortal for MongoDb {
    /// The driver waits for a server to return: for as long as a fetch may take, unless it is told otherwise.
    fn source(&self) -> SourceUrl {
        format!("{}?connections={CONNECTIONS}&timeout=2s&serverSelectionTimeoutMS=50", self.url())
            .parse()
            .unwrap()
    }

    fn restart(&mut self) {
        self.restart().unwrap();
    }

    fn connections(&self) -> (usize, usize) {
        let port = format!(":{:04X}", self.port());
        let is_established = |line: &&str| {
            let columns: Vec<_> = line.split_whitespace().collect();
            columns[1].ends_with(&port) && columns[3] == "01"
        };
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        // Two watch the server.
        (table.lines().skip(1).filter(is_established).count(), 2)
    }
}

async fn survives_two_deaths(mut server: impl Mortal, preset: &str) {
    let mut documents = documents::generate(20);
    let source = server.source().fill(&documents).await.unwrap();
    // Databases may write them in another way.
    for document in &mut documents {
        document.body = source.fetch(&document.id).await.unwrap().expect("it was filled in");
    }
    let documents: Arc<[_]> = documents.into();
    let cache = Cache::new(strategy(preset)).unwrap();
    let (tell, mut told) = mpsc::unbounded_channel();
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for _ in 0..16 {
        let (source, documents) = (Arc::clone(&source), Arc::clone(&documents));
        clients.spawn(client(cache.clone(), source, documents, tell.clone(), Arc::clone(&stop)));
    }
    await_outcomes(&mut told, Outcome::Miss, 200).await;
    for _ in 0..2 {
        server.kill();
        await_outcomes(&mut told, Outcome::Fallback, 1_000).await;
        server.restart();
        // What was told until now is of the dead one.
        for _ in 0..told.len() {
            told.recv().await.expect("clients go on").expect("nobody is told an error");
        }
        await_outcomes(&mut told, Outcome::Miss, 200).await;
    }
    stop.store(true, Ordering::Relaxed);
    clients.join_all().await;
    cache.idle().await;
    let (open, of_driver) = server.connections();
    assert!(open <= CONNECTIONS + of_driver, "{open} connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_serves_what_is_stale_while_postgres_is_dead() {
    survives_two_deaths(Postgres::start().unwrap(), "fallback").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_breaker_serves_what_is_stale_while_postgres_is_dead() {
    survives_two_deaths(Postgres::start().unwrap(), "breaker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_serves_what_is_stale_while_mongodb_is_dead() {
    survives_two_deaths(MongoDb::start().unwrap(), "fallback").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_breaker_serves_what_is_stale_while_mongodb_is_dead() {
    survives_two_deaths(MongoDb::start().unwrap(), "breaker").await;
}
