//! Databases of documents behind it: `GET /{id}`.

use std::{fmt::Display, net::SocketAddr, sync::Barrier, thread};

use rusqlite::Connection;
use stockade_services::{CouchDbServer, MongoDbServer, PostgresServer};

use super::{Got, started, stats};
use crate::{
    running::{Running, get},
    support::{Said, Sandbox},
};

/// How many ask at once.
const CROWD: usize = 100;

/// A proxy in front of a database.
struct Served {
    _sandbox: Sandbox,
    _proxy: Running,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Served {
    /// With these settings of `[cache]`, over the strategy `breaker`; 404s are kept for an hour.
    fn start(url: &impl Display, cache: &str) -> Self {
        let sandbox = Sandbox::new();
        let config = format!(
            "listen = [\"127.0.0.1:0\"]\n[log]\nformat = \"none\"\n[cache]\n{cache}\n[[origin]]\nurl = \"{url}\"\n[[route]]\nnegative_ttl = \"1h\"\n"
        );
        let config = sandbox.file("stockade.toml", &config);
        let (proxy, address, admin) = started(&sandbox, &config, &["--strategy", "breaker"]);
        Self { _sandbox: sandbox, _proxy: proxy, address, admin }
    }

    fn get(&self, path: &str) -> Got {
        Got::of(&get(self.address, path))
    }

    fn fetches(&self) -> u64 {
        stats(self.admin)["origins"][0]["requests"].as_u64().expect("a count")
    }

    /// A document is found, once; one that is not there is not, once.
    #[track_caller]
    fn assert_serves(&self, is_document: impl Fn(&str) -> bool) {
        let first = self.get("/a");
        assert_eq!((first.status, first.outcome()), (200, "miss"), "{first:?}");
        assert!(is_document(&first.body), "{first:?}");
        assert_eq!(first.header("content-type"), Some("application/json"));
        let again = self.get("/a");
        assert_eq!((again.outcome(), &again.body), ("hit", &first.body));
        let tag = first.header("etag").expect("a validator");
        let unchanged = super::talk(
            self.address,
            &format!("GET /a HTTP/1.1\r\nHost: origin\r\nIf-None-Match: {tag}\r\nConnection: close\r\n\r\n"),
        );
        assert_eq!((unchanged.status, unchanged.outcome()), (304, "hit"), "{unchanged:?}");

        let missing = [self.get("/none"), self.get("/none")];
        assert_eq!(
            missing.each_ref().map(|got| (got.status, got.outcome())),
            [(404, "miss"), (404, "negative")]
        );
        for (path, status) in [("/", 400), ("/a/b", 400), ("/%00", 400)] {
            assert_eq!(self.get(path).status, status, "{path}");
        }
        assert_eq!(
            super::talk(self.address, "DELETE /a HTTP/1.1\r\nHost: origin\r\nConnection: close\r\n\r\n")
                .status,
            405
        );
        assert_eq!(self.get("/a").outcome(), "hit");
    }

    /// A hundred who ask for the same at the same moment cost one fetch. How many of them waited.
    #[track_caller]
    fn assert_coalesces(&self, path: &str) -> usize {
        let (before, gate, address) = (self.fetches(), Barrier::new(CROWD), self.address);
        let ask = || {
            gate.wait();
            Got::of(&get(address, path))
        };
        let outcomes: Vec<String> = thread::scope(|scope| {
            let asking: Vec<_> = (0..CROWD).map(|_| scope.spawn(ask)).collect();
            let got = asking.into_iter().map(|asking| asking.join().expect("an answer"));
            got.inspect(|got| assert_eq!(got.status, 200, "{got:?}"))
                .map(|got| got.outcome().to_owned())
                .collect()
        });
        let count = |outcome: &str| outcomes.iter().filter(|it| *it == outcome).count();
        assert_eq!((count("miss"), count("hit") + count("coalesced")), (1, CROWD - 1), "{outcomes:?}");
        assert_eq!(self.fetches(), before + 1);
        count("coalesced")
    }

    /// The database is gone: what has expired is served all the same.
    #[track_caller]
    fn assert_falls_back(&self) {
        let mut got = self.get("/a");
        super::until(|| {
            got = self.get("/a");
            assert_eq!(got.status, 200, "{got:?}");
            got.outcome() != "hit"
        });
        assert_eq!(got.outcome(), "fallback", "{got:?}");
        assert!(got.cache().contains("fwd=stale") || got.cache().contains("hit; ttl=-"), "{got:?}");
    }
}

/// Soon expired, if nothing else is said.
const SHORT: &str = "ttl = \"200ms\"";
const LONG: &str = "ttl = \"1h\"";

#[test]
fn sqlite() {
    let folder = Sandbox::new();
    let path = folder.path().join("documents.db");
    let database = Connection::open(&path).unwrap();
    database.execute_batch("CREATE TABLE documents (id TEXT PRIMARY KEY, body BLOB)").unwrap();
    for id in ["a", "b"] {
        database
            .execute("INSERT INTO documents VALUES (?1, ?2)", (id, format!("{{\"_id\":\"{id}\"}}")))
            .unwrap();
    }
    let served = Served::start(&format!("sqlite:{}", path.display()), LONG);
    served.assert_serves(|body| body == "{\"_id\":\"a\"}");
    served.assert_coalesces("/b");
}

#[test]
fn postgres() {
    let mut postgres = PostgresServer::start().unwrap();
    // Each document takes so long that whoever asks meanwhile has to wait.
    postgres.ask("CREATE TABLE stored AS SELECT id, '{\"_id\":\"' || id || '\"}' AS body FROM (VALUES ('a'), ('b')) AS ids (id)").unwrap();
    postgres
        .ask("CREATE VIEW documents AS SELECT id, body FROM stored, LATERAL (SELECT pg_sleep(0.3)) AS slow")
        .unwrap();
    let served = Served::start(&postgres.url(), LONG);
    served.assert_serves(|body| body == "{\"_id\":\"a\"}");
    assert!(served.assert_coalesces("/b") > CROWD / 2);

    let short = Served::start(&postgres.url(), SHORT);
    assert_eq!(short.get("/a").outcome(), "miss");
    postgres.kill();
    short.assert_falls_back();
    let never_asked = short.get("/b");
    assert!(matches!(never_asked.status, 502 | 503), "{never_asked:?}");
    assert!(!never_asked.body.contains("sesame"), "{never_asked:?}");
    // It comes back, and nobody has to do anything.
    postgres.restart().unwrap();
    super::until(|| {
        let got = short.get("/b");
        got.status == 200 && got.body == "{\"_id\":\"b\"}"
    });
}

/// Fills a database as its users do.
#[track_caller]
fn fill(url: &str) {
    let sandbox = Sandbox::new();
    let file = sandbox.file("docs.jsonl", "{\"_id\":\"a\",\"n\":1}\n{\"_id\":\"b\",\"n\":2}\n");
    let Said { code, stderr, .. } = sandbox.stockade(&[
        "stampede",
        "10",
        "--strategy",
        "stampede",
        "--source",
        url,
        "--docs",
        "fixed:1",
        "--docs-from",
        &file,
    ]);
    assert_eq!(code, 0, "{stderr}");
}

#[test]
fn mongodb() {
    let mut mongodb = MongoDbServer::start().unwrap();
    fill(&mongodb.url());
    let served = Served::start(&mongodb.url(), LONG);
    served.assert_serves(|body| body == "{\"_id\":\"a\",\"n\":1}");
    served.assert_coalesces("/b");
    let short = Served::start(&mongodb.url(), SHORT);
    assert_eq!(short.get("/a").outcome(), "miss");
    mongodb.kill();
    short.assert_falls_back();
}

#[test]
fn couchdb() {
    let mut couchdb = CouchDbServer::start().unwrap();
    fill(&couchdb.url("docs"));
    let served = Served::start(&couchdb.url("docs"), LONG);
    served.assert_serves(|body| body.contains("\"_id\":\"a\"") && body.contains("\"_rev\":\"1-"));
    served.assert_coalesces("/b");
    let short = Served::start(&couchdb.url("docs"), SHORT);
    assert_eq!(short.get("/a").outcome(), "miss");
    couchdb.kill();
    short.assert_falls_back();
}
