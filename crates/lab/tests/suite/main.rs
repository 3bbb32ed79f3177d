//! A cache in front of a database that crashes under load and restarts.

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
use stockade_services::{MongoDbServer, PostgresServer, RunningServer};
use stockade_source::{SourceUrl, documents};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinSet,
};

const CONNECTIONS: usize = 4;

/// Short times: much happens in little time.
fn strategy(preset: &str) -> Strategy {
    const MS: Duration = Duration::from_millis(1);
    let preset = Strategy::preset(preset).unwrap();
    let breaker = Breaker { open_for: 100 * MS, ramp: 100 * MS, ..Breaker::DEFAULT };
    let breaker = preset.breaker.is_some().then_some(breaker);
    Strategy { ttl: Some(5 * MS), throttle: 20 * MS, breaker, ..preset }
}

/// Requests every document in turn until cancelled, and reports each outcome.
async fn client(
    cache: Cache<Arc<str>, Document>,
    source: Arc<dyn Source>,
    documents: Arc<[documents::NamedDocument]>,
    sender: UnboundedSender<Result<Outcome, String>>,
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
        drop(sender.send(answer));
        tokio::task::yield_now().await;
    }
}

/// Waits for `times` requests with this outcome.
async fn await_outcomes(
    outcomes: &mut UnboundedReceiver<Result<Outcome, String>>,
    outcome: Outcome,
    times: usize,
) {
    let time = Live::new();
    let enough = async {
        let mut seen = 0;
        while seen < times {
            let answer = outcomes.recv().await.expect("clients keep running");
            seen += usize::from(answer.expect("no request fails") == outcome);
        }
    };
    let patience = time.now() + Duration::from_secs(30);
    assert!(before(&time, patience, enough).await.is_some(), "{outcome:?}");
}

/// A server that can crash.
trait RestartableServer: DerefMut<Target = RunningServer> {
    /// The URL of its documents, with `CONNECTIONS` connections.
    fn source(&self) -> SourceUrl;

    fn restart(&mut self);

    /// The number of connections, and how many of them are monitors of the driver.
    fn connections(&self) -> (usize, usize);
}

impl RestartableServer for PostgresServer {
    fn source(&self) -> SourceUrl {
        format!("{}?connections={CONNECTIONS}&timeout=1s", self.url()).parse().unwrap()
    }

    fn restart(&mut self) {
        self.restart().unwrap();
    }

    fn connections(&self) -> (usize, usize) {
        let open = "SELECT count(*) FROM pg_stat_activity \
                    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        (self.query(open).unwrap().parse().unwrap(), 0)
    }
}

impl RestartableServer for MongoDbServer {
    /// The driver waits for a server to return, by default for as long as a fetch may take.
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
        // Two connections monitor the server.
        (table.lines().skip(1).filter(is_established).count(), 2)
    }
}

async fn survives_two_crashes(mut server: impl RestartableServer, preset: &str) {
    let mut documents = documents::generate(20);
    let source = server.source().fill(&documents).await.unwrap();
    // Databases may format the bodies differently.
    for document in &mut documents {
        document.body = source.fetch(&document.id).await.unwrap().expect("the document exists");
    }
    let documents: Arc<[_]> = documents.into();
    let cache = Cache::new(strategy(preset)).unwrap();
    let (sender, mut outcomes) = mpsc::unbounded_channel();
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for _ in 0..16 {
        let (source, documents) = (Arc::clone(&source), Arc::clone(&documents));
        clients.spawn(client(cache.clone(), source, documents, sender.clone(), Arc::clone(&stop)));
    }
    await_outcomes(&mut outcomes, Outcome::Miss, 200).await;
    for _ in 0..2 {
        server.kill();
        await_outcomes(&mut outcomes, Outcome::Fallback, 1_000).await;
        server.restart();
        // Earlier outcomes are those of the crashed server.
        for _ in 0..outcomes.len() {
            outcomes.recv().await.expect("clients keep running").expect("no request fails");
        }
        await_outcomes(&mut outcomes, Outcome::Miss, 200).await;
    }
    stop.store(true, Ordering::Relaxed);
    clients.join_all().await;
    cache.wait_idle().await;
    let (open, of_driver) = server.connections();
    assert!(open <= CONNECTIONS + of_driver, "{open} connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn fallback_serves_stale_while_postgres_is_down() {
    survives_two_crashes(PostgresServer::start().unwrap(), "fallback").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn breaker_serves_stale_while_postgres_is_down() {
    survives_two_crashes(PostgresServer::start().unwrap(), "breaker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fallback_serves_stale_while_mongodb_is_down() {
    survives_two_crashes(MongoDbServer::start().unwrap(), "fallback").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn breaker_serves_stale_while_mongodb_is_down() {
    survives_two_crashes(MongoDbServer::start().unwrap(), "breaker").await;
}
