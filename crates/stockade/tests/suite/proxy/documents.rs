//! A proxy in front of a database of documents: `GET /{id}`.

use std::{fmt::Display, net::SocketAddr, sync::Barrier, thread};

use rusqlite::Connection;
use stockade_services::{CouchDbServer, MongoDbServer, PostgresServer};

use super::{Response, start_proxy, stats};
use crate::{
    running::{Running, get},
    support::{ProgramOutput, Sandbox},
};

/// Concurrent requests.
const CROWD: usize = 100;

/// A proxy in front of a database.
struct DatabaseProxy {
    _sandbox: Sandbox,
    _proxy: Running,
    address: SocketAddr,
    admin: SocketAddr,
}

impl DatabaseProxy {
    /// With these settings of `[cache]`, over the strategy `breaker`; 404s are kept for an hour.
    fn start(url: &impl Display, cache: &str) -> Self {
        let sandbox = Sandbox::new();
        let config = format!(
            "listen = [\"127.0.0.1:0\"]\n[log]\nformat = \"none\"\n[cache]\n{cache}\n[[origin]]\nurl = \"{url}\"\n[[route]]\nnegative_ttl = \"1h\"\n"
        );
        let config = sandbox.file("stockade.toml", &config);
        let (proxy, address, admin) = start_proxy(&sandbox, &config, &["--strategy", "breaker"]);
        Self { _sandbox: sandbox, _proxy: proxy, address, admin }
    }

    fn get(&self, path: &str) -> Response {
        Response::of(&get(self.address, path))
    }

    fn fetches(&self) -> u64 {
        stats(self.admin)["origins"][0]["requests"].as_u64().expect("a count")
    }

    /// A document and a missing document are each loaded once.
    #[track_caller]
    fn assert_serves(&self, is_document: impl Fn(&str) -> bool) {
        let first = self.get("/a");
        assert_eq!((first.status, first.outcome()), (200, "miss"), "{first:?}");
        assert!(is_document(&first.body), "{first:?}");
        assert_eq!(first.header("content-type"), Some("application/json"));
        let again = self.get("/a");
        assert_eq!((again.outcome(), &again.body), ("hit", &first.body));
        let tag = first.header("etag").expect("a validator");
        let unchanged = super::send_request(
            self.address,
            &format!("GET /a HTTP/1.1\r\nHost: origin\r\nIf-None-Match: {tag}\r\nConnection: close\r\n\r\n"),
        );
        assert_eq!((unchanged.status, unchanged.outcome()), (304, "hit"), "{unchanged:?}");

        let missing = [self.get("/none"), self.get("/none")];
        assert_eq!(
            missing.each_ref().map(|response| (response.status, response.outcome())),
            [(404, "miss"), (404, "negative")]
        );
        for (path, status) in [("/", 400), ("/a/b", 400), ("/%00", 400)] {
            assert_eq!(self.get(path).status, status, "{path}");
        }
        assert_eq!(
            super::send_request(
                self.address,
                "DELETE /a HTTP/1.1\r\nHost: origin\r\nConnection: close\r\n\r\n"
            )
            .status,
            405
        );
        assert_eq!(self.get("/a").outcome(), "hit");
    }

    /// [`CROWD`] concurrent requests for one document cost one fetch. Returns how many of them waited for it.
    #[track_caller]
    fn assert_coalesces(&self, path: &str) -> usize {
        let (before, gate, address) = (self.fetches(), Barrier::new(CROWD), self.address);
        let request = || {
            gate.wait();
            Response::of(&get(address, path))
        };
        let outcomes: Vec<String> = thread::scope(|scope| {
            let threads: Vec<_> = (0..CROWD).map(|_| scope.spawn(request)).collect();
            let response = threads.into_iter().map(|thread| thread.join().expect("a response"));
            response
                .inspect(|response| assert_eq!(response.status, 200, "{response:?}"))
                .map(|response| response.outcome().to_owned())
                .collect()
        });
        let count = |outcome: &str| outcomes.iter().filter(|it| *it == outcome).count();
        assert_eq!((count("miss"), count("hit") + count("coalesced")), (1, CROWD - 1), "{outcomes:?}");
        assert_eq!(self.fetches(), before + 1);
        count("coalesced")
    }

    /// Without the database, expired documents are served.
    #[track_caller]
    fn assert_falls_back(&self) {
        let mut response = self.get("/a");
        super::until(|| {
            response = self.get("/a");
            assert_eq!(response.status, 200, "{response:?}");
            response.outcome() != "hit"
        });
        assert_eq!(response.outcome(), "fallback", "{response:?}");
        assert!(
            response.cache().contains("fwd=stale") || response.cache().contains("hit; ttl=-"),
            "{response:?}"
        );
    }
}

/// Expires during the test.
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
    let proxy = DatabaseProxy::start(&format!("sqlite:{}", path.display()), LONG);
    proxy.assert_serves(|body| body == "{\"_id\":\"a\"}");
    proxy.assert_coalesces("/b");
}

#[test]
fn postgres() {
    let mut postgres = PostgresServer::start().unwrap();
    // A query takes 300 ms, so that concurrent requests wait for it.
    postgres.query("CREATE TABLE stored AS SELECT id, '{\"_id\":\"' || id || '\"}' AS body FROM (VALUES ('a'), ('b')) AS ids (id)").unwrap();
    postgres
        .query("CREATE VIEW documents AS SELECT id, body FROM stored, LATERAL (SELECT pg_sleep(0.3)) AS slow")
        .unwrap();
    let proxy = DatabaseProxy::start(&postgres.url(), LONG);
    proxy.assert_serves(|body| body == "{\"_id\":\"a\"}");
    assert!(proxy.assert_coalesces("/b") > CROWD / 2);

    let short = DatabaseProxy::start(&postgres.url(), SHORT);
    assert_eq!(short.get("/a").outcome(), "miss");
    postgres.kill();
    short.assert_falls_back();
    let never_loaded = short.get("/b");
    assert!(matches!(never_loaded.status, 502 | 503), "{never_loaded:?}");
    assert!(!never_loaded.body.contains("sesame"), "{never_loaded:?}");
    // The proxy connects again without a restart of its own.
    postgres.restart().unwrap();
    super::until(|| {
        let response = short.get("/b");
        response.status == 200 && response.body == "{\"_id\":\"b\"}"
    });
}

/// Fills a database with `stockade stampede --docs-from`.
#[track_caller]
fn fill(url: &str) {
    let sandbox = Sandbox::new();
    let file = sandbox.file("docs.jsonl", "{\"_id\":\"a\",\"n\":1}\n{\"_id\":\"b\",\"n\":2}\n");
    let ProgramOutput { code, stderr, .. } = sandbox.stockade(&[
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
    let proxy = DatabaseProxy::start(&mongodb.url(), LONG);
    proxy.assert_serves(|body| body == "{\"_id\":\"a\",\"n\":1}");
    proxy.assert_coalesces("/b");
    let short = DatabaseProxy::start(&mongodb.url(), SHORT);
    assert_eq!(short.get("/a").outcome(), "miss");
    mongodb.kill();
    short.assert_falls_back();
}

#[test]
fn couchdb() {
    let mut couchdb = CouchDbServer::start().unwrap();
    fill(&couchdb.url("docs"));
    let proxy = DatabaseProxy::start(&couchdb.url("docs"), LONG);
    proxy.assert_serves(|body| body.contains("\"_id\":\"a\"") && body.contains("\"_rev\":\"1-"));
    proxy.assert_coalesces("/b");
    let short = DatabaseProxy::start(&couchdb.url("docs"), SHORT);
    assert_eq!(short.get("/a").outcome(), "miss");
    couchdb.kill();
    short.assert_falls_back();
}
