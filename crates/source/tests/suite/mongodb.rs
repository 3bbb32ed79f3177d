//! MongoDB on a real server: results, errors, and recovery after a kill.

use std::{fs, sync::Arc, time::Duration};

use bson::{Bson, DateTime, doc, oid::ObjectId};
use mongodb::{Client, Collection};
use stockade_model::{
    source::{Source, SourceError},
    time::{Live, Runtime, before},
};
use stockade_services::MongoDbServer;
use stockade_source::{SourceUrl, documents::NamedDocument};
use tokio::{runtime, sync::mpsc, task::JoinSet};

/// A guard against hanging, not a bound on speed.
const PATIENCE: Duration = Duration::from_mins(1);

/// The driver's monitoring connections to a server.
const MONITORS: usize = 2;

/// The URL of the test collection, with these parameters.
fn url(server: &MongoDbServer, parameters: &str) -> SourceUrl {
    format!("{}?{parameters}", server.url()).parse().unwrap()
}

fn documents(count: usize) -> Vec<NamedDocument> {
    let document = |index| NamedDocument {
        id: format!("doc {index:03}").into(),
        body: format!(r#"{{"_id":"doc {index:03}","z":[{index},0.5],"a":{{"c":null,"b":"x"}}}}"#).into(),
    };
    (0..count).map(document).collect()
}

/// The collection, read through the driver without the source.
async fn collection(server: &MongoDbServer, name: &str) -> Collection<bson::Document> {
    Client::with_uri_str(server.url()).await.unwrap().default_database().unwrap().collection(name)
}

async fn assert_serves(source: &Arc<dyn Source>, documents: &[NamedDocument]) {
    let ids = source.ids().await.unwrap();
    assert_eq!(ids, documents.iter().map(|document| Arc::clone(&document.id)).collect::<Vec<_>>());
    for document in documents {
        assert_eq!(source.fetch(&document.id).await.unwrap().as_ref(), Some(&document.body));
    }
    assert_eq!(source.fetch("not written").await.unwrap(), None, "not found is an answer");
}

/// The number of open connections on the server.
fn connections(server: &MongoDbServer) -> usize {
    let port = format!(":{:04X}", server.port());
    let established = |line: &&str| {
        let columns: Vec<_> = line.split_whitespace().collect();
        columns[1].ends_with(&port) && columns[3] == "01"
    };
    fs::read_to_string("/proc/net/tcp").unwrap().lines().skip(1).filter(established).count()
}

/// Fetches until a fetch succeeds.
async fn await_recovery(source: &Arc<dyn Source>, id: &str) {
    for _ in 0..100_000 {
        match source.fetch(id).await {
            Ok(document) => return assert!(document.is_some()),
            Err(error) => drop(error),
        }
    }
    panic!("it does not recover");
}

/// Fetches until the condition holds.
async fn eventually(what: &str, source: &Arc<dyn Source>, condition: impl Fn() -> bool) {
    let time = Live::new();
    let fetching = async {
        while !condition() {
            let _ = source.fetch("doc 000").await;
        }
    };
    before(&time, time.now() + PATIENCE, fetching).await.expect(what);
}

async fn refusal(url: &SourceUrl) -> String {
    url.open().await.err().expect("an error").to_string()
}

#[tokio::test]
async fn fill_stores_documents_and_overwrites_nothing() {
    let server = MongoDbServer::start().unwrap();
    let collection = url(&server, "");
    let all = documents(50);
    assert_serves(&collection.fill(&all[..20]).await.unwrap(), &all[..20]).await;
    assert_serves(&collection.fill(&all).await.unwrap(), &all).await;
    assert_serves(&collection.fill(&all).await.unwrap(), &all).await;
    assert_serves(&collection.open().await.unwrap(), &all).await;

    let fewer = collection.fill(&all[..20]).await.err().expect("an error").to_string();
    assert!(fewer.contains("it holds 50 other documents; leave --docs-from out"), "{fewer}");
    assert!(fewer.ends_with("or name a new collection with collection=NAME"), "{fewer}");
    let mut others = all.clone();
    others[7].body = r#"{"_id":"doc 007","changed":true}"#.into();
    let others = collection.fill(&others).await.err().expect("an error").to_string();
    assert!(others.contains("it holds 50 other documents"), "{others}");
    let keyed = url(&server, "key=z").fill(&all).await.err().expect("an error").to_string();
    assert_eq!(keyed, "mongodb: --docs-from fills it by `_id`: leave `key` out");
    assert_serves(&collection.open().await.unwrap(), &all).await;
}

#[tokio::test]
async fn fill_splits_documents_into_messages() {
    let server = MongoDbServer::start().unwrap();
    let all: Vec<_> = (0..2_500)
        .map(|index| NamedDocument {
            id: format!("{index:04} of many").into(),
            body: format!(r#"{{"_id":"{index:04} of many"}}"#).into(),
        })
        .collect();
    let source = url(&server, "collection=many").fill(&all).await.unwrap();
    assert_eq!(source.ids().await.unwrap().len(), 2_500);
    assert_eq!(source.fetch("2499 of many").await.unwrap().as_ref(), Some(&all[2_499].body));
}

#[tokio::test]
async fn keys_of_several_types_are_fetched_by_their_text() {
    let server = MongoDbServer::start().unwrap();
    let object = ObjectId::parse_str("56e1fc72e0c917e9c4714161").unwrap();
    let keys = [Bson::from(object), 7_i32.into(), 8_589_934_592_i64.into(), (-1.0).into(), "text".into()];
    let inserted = keys.map(|key| doc! { "z": 1, "_id": key });
    collection(&server, "mixed").await.insert_many(inserted).await.unwrap();
    let source = url(&server, "collection=mixed").open().await.unwrap();
    let ids = source.ids().await.unwrap();
    assert_eq!(
        ids.iter().map(|id| &**id).collect::<Vec<_>>(),
        ["-1", "56e1fc72e0c917e9c4714161", "7", "8589934592", "text"]
    );
    for id in &ids {
        let found = source.fetch(id).await.unwrap().expect("a document");
        assert!(found.ends_with(br#""z":1}"#), "{found:?}");
    }

    collection(&server, "dated").await.insert_one(doc! { "_id": DateTime::from_millis(0) }).await.unwrap();
    let error = url(&server, "collection=dated").open().await.unwrap().ids().await.unwrap_err().to_string();
    assert!(error.contains("a document's `_id` is a value of type DateTime"), "{error}");
}

#[tokio::test]
async fn key_setting_selects_another_field() {
    let server = MongoDbServer::start().unwrap();
    let people = [
        doc! { "_id": 1, "name": "Grace" },
        doc! { "_id": 2, "name": "Ada", "since": DateTime::from_millis(0) },
        doc! { "_id": 3 },
    ];
    let collection = collection(&server, "people").await;
    collection.insert_many(people).await.unwrap();
    let source = url(&server, "collection=people&key=name").open().await.unwrap();
    assert_eq!(
        source.ids().await.unwrap(),
        ["Ada".into(), "Grace".into()],
        "documents without a name are not listed"
    );
    let ada = source.fetch("Ada").await.unwrap().unwrap();
    assert_eq!(ada, r#"{"_id":2,"name":"Ada","since":{"$date":"1970-01-01T00:00:00Z"}}"#);
    collection.insert_one(doc! { "name": "Ada" }).await.unwrap();
    let error = source.ids().await.unwrap_err().to_string();
    assert!(
        error
            .ends_with("several documents have the `name` `Ada`: name a field without repeats with key=NAME"),
        "{error}"
    );
    let none = refusal(&url(&server, "collection=people&key=nam")).await;
    assert!(none.contains("no document has a `nam`; name the field"), "{none}");
}

#[tokio::test]
async fn missing_parts_are_reported_with_a_remedy() {
    let server = MongoDbServer::start().unwrap();
    url(&server, "").fill(&documents(1)).await.unwrap();
    collection(&server, "empty").await.client().database("test").create_collection("empty").await.unwrap();
    let at = |rest: &str| server.url().replace("/test", rest).parse::<SourceUrl>().unwrap();
    let port = server.port();
    for (url, expected) in [
        (
            at("/test?collection=documets"),
            "it has no collection `documets`; fill it with --docs-from FILE.jsonl, or name another: did you mean",
        ),
        (at("/test?collection=empty"), "its collection `empty` is empty; fill it with --docs-from"),
        (at("/absent?authSource=test"), "there is no database `absent`; check its name, or fill it"),
        (at("/absent"), "it refuses the user or the password"),
        (server.url().replace("%3Alace", "%3aless").parse().unwrap(), "it refuses the user or the password"),
        (server.url().replace("ada", "eve").parse().unwrap(), "it refuses the user or the password"),
        (
            format!("mongodb://127.0.0.1:{port}/test").parse().unwrap(),
            "it does not let this user read there; name one",
        ),
        ("mongodb://127.0.0.1:1/test".parse().unwrap(), "connection refused; check that the server runs"),
        ("mongodb://no.such.host.invalid/test".parse().unwrap(), "the host is not found; check its name"),
        ("mongodb+srv://no.such.host.invalid/test?timeout=2s".parse().unwrap(), "the host is not found"),
    ] {
        let error = refusal(&url).await;
        assert!(error.contains(expected), "{error}");
        assert!(error.starts_with(&format!("{url} cannot be used: ")), "{error}");
        for secret in ["lace", "less"] {
            assert!(!error.contains(secret) && !format!("{url:?}").contains(secret), "{error}");
        }
    }
}

#[tokio::test]
async fn tls_requires_a_trusted_certificate() {
    let server = MongoDbServer::with_tls().unwrap();
    url(&server, "").fill(&documents(3)).await.unwrap();
    let tls = |host: &str, parameters: &str| {
        let place = format!("@{host}:{}/", server.tls_port().unwrap());
        let url = server.url().replace(&format!("@127.0.0.1:{}/", server.port()), &place);
        format!("{url}?{parameters}").parse::<SourceUrl>().unwrap()
    };
    let trusted = format!("tls=true&tlsCAFile={}", server.certificate().display());
    assert_serves(&tls("localhost", &trusted).open().await.unwrap(), &documents(3)).await;
    for (url, expected) in [
        (tls("localhost", "tls=true"), "name its authority with tlsCAFile=FILE.pem"),
        (tls("127.0.0.1", &trusted), "not valid for name"),
        (
            tls("localhost", ""),
            "the connection was lost; check that the server runs, and whether it wants TLS",
        ),
        (
            url(&server, "tls=true&timeout=300ms"),
            "no answer within 300ms; check the host, the port and whether",
        ),
        (
            tls("localhost", "tls=true&tlsCAFile=absent.pem"),
            "the files for TLS cannot be used; check tlsCAFile",
        ),
    ] {
        let error = refusal(&url).await;
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("lace"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_server_fails_fetches_and_recovers() {
    let mut server = MongoDbServer::start().unwrap();
    let all = documents(3);
    let source = url(&server, "connections=4&timeout=2s").fill(&all).await.unwrap();
    let time = Live::new();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let mut clients = JoinSet::new();
    for _ in 0..32 {
        let (source, time, sender) = (Arc::clone(&source), time.clone(), sender.clone());
        clients.spawn(async move {
            loop {
                let began = time.now();
                match source.fetch("doc 000").await {
                    Ok(_) => drop(sender.send(())),
                    Err(error) => return (error.to_string(), time.now() - began),
                }
            }
        });
    }
    for _ in 0..1_000 {
        receiver.recv().await.unwrap();
    }
    assert!(connections(&server) <= 4 + MONITORS, "{}", connections(&server));
    server.kill();
    let failed = before(&time, time.now() + PATIENCE, clients.join_all()).await.expect("none hangs");
    assert_eq!(failed.len(), 32);
    for (error, took) in failed {
        assert!(error.contains("connection refused") || error.contains("connection was lost"), "{error}");
        assert!(took < PATIENCE, "{took:?}");
    }
    server.restart().unwrap();
    await_recovery(&source, "doc 000").await;
    assert_serves(&source, &all).await;
    let mut fetches = JoinSet::new();
    for _ in 0..100 {
        let source = Arc::clone(&source);
        fetches.spawn(async move { source.fetch("doc 001").await.is_ok() });
    }
    assert!(fetches.join_all().await.into_iter().all(|is_ok| is_ok), "every connection is a new one");
    assert!(connections(&server) <= 4 + MONITORS, "{}", connections(&server));
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_server_times_out_and_recovers() {
    let server = MongoDbServer::start().unwrap();
    let time = Live::new();
    // A shorter time than the driver's monitor needs to notice, and a longer one.
    for (parameters, rounds) in
        [("connections=3&timeout=2s", 2), ("connections=3&timeout=2s&heartbeatFrequencyMS=500", 8)]
    {
        let source = url(&server, parameters).fill(&documents(3)).await.unwrap();
        server.process().unwrap().freeze();
        // The server's threads do not all stop at once.
        while source.fetch("doc 000").await.is_ok() {}
        for _ in 0..rounds {
            let mut fetches = JoinSet::new();
            for _ in 0..20 {
                let (source, time) = (Arc::clone(&source), time.clone());
                fetches.spawn(async move {
                    let began = time.now();
                    (source.fetch("doc 000").await.unwrap_err(), time.now() - began)
                });
            }
            let failed = before(&time, time.now() + PATIENCE, fetches.join_all()).await.expect("none hangs");
            for (error, took) in failed {
                assert!(matches!(error, SourceError::TimedOut { .. }), "{error}");
                assert!(took < PATIENCE, "{took:?}");
            }
        }
        let opening = refusal(&url(&server, "timeout=100ms")).await;
        assert!(
            opening.contains("no answer within 100ms; check the host, the port and whether"),
            "{opening}"
        );
        server.process().unwrap().thaw();
        await_recovery(&source, "doc 000").await;
        eventually("abandoned connections close", &source, || connections(&server) <= 3 + MONITORS).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_fetches_leave_nothing_behind() {
    let server = MongoDbServer::start().unwrap();
    let all = documents(3);
    let source = url(&server, "connections=4").fill(&all).await.unwrap();
    let time = Live::new();
    for round in 0..250_u32 {
        // In each state: waiting for a permit, connecting, querying.
        let patience = Duration::from_micros(u64::from(round % 50) * 40);
        let fetches = (0..8).map(|_| source.fetch("doc 000")).collect::<Vec<_>>();
        for fetch in fetches {
            let _ = before(&time, time.now() + patience, fetch).await;
        }
    }
    assert!(connections(&server) <= 4 + MONITORS, "{}", connections(&server));
    assert_serves(&source, &all).await;
    drop(source);
    let other = url(&server, "").open().await.unwrap();
    eventually("its connections are closed", &other, || connections(&server) <= 1 + MONITORS).await;
}

#[test]
fn source_uses_the_runtime_that_opened_it() {
    let server = MongoDbServer::start().unwrap();
    let home = runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let source = home.block_on(url(&server, "").fill(&documents(3))).unwrap();
    for _ in 0..2 {
        let visitor = runtime::Builder::new_current_thread().build().unwrap();
        visitor.block_on(assert_serves(&source, &documents(3)));
    }
    drop(home);
    let visitor = runtime::Builder::new_current_thread().build().unwrap();
    let message = visitor.block_on(source.fetch("doc 000")).unwrap_err().to_string();
    assert!(message.ends_with("the runtime that it was opened on has ended"), "{message}");
}
