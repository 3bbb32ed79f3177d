//! MongoDB on a real server: what it serves, what it refuses, and what becomes of it when the server is killed.
#![cfg(feature = "mongodb")]

use std::sync::Arc;

use bson::{Bson, DateTime, doc, oid::ObjectId};
use mongodb::{Client, Collection};
use stockade_model::source::Source;
use stockade_services::MongoDb;
use stockade_source::{SourceUrl, documents::NamedDocument};

/// The URL of its collection, with these parameters.
fn url(server: &MongoDb, parameters: &str) -> SourceUrl {
    format!("{}?{parameters}", server.url()).parse().unwrap()
}

fn documents(count: usize) -> Vec<NamedDocument> {
    let document = |index| NamedDocument {
        id: format!("doc {index:03}").into(),
        body: format!(r#"{{"_id":"doc {index:03}","z":[{index},0.5],"a":{{"c":null,"b":"x"}}}}"#).into(),
    };
    (0..count).map(document).collect()
}

/// The driver's own view of a collection.
async fn collection(server: &MongoDb, name: &str) -> Collection<bson::Document> {
    Client::with_uri_str(server.url()).await.unwrap().default_database().unwrap().collection(name)
}

async fn assert_serves(source: &Arc<dyn Source>, documents: &[NamedDocument]) {
    let ids = source.ids().await.unwrap();
    assert_eq!(ids, documents.iter().map(|document| Arc::clone(&document.id)).collect::<Vec<_>>());
    for document in documents {
        assert_eq!(source.fetch(&document.id).await.unwrap().as_ref(), Some(&document.body));
    }
    assert_eq!(source.fetch("nobody wrote this").await.unwrap(), None, "not found is an answer");
}

async fn refusal(url: &SourceUrl) -> String {
    url.open().await.err().expect("an error").to_string()
}

#[tokio::test]
async fn it_serves_what_it_was_filled_with_and_overwrites_nothing() {
    let server = MongoDb::start().unwrap();
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
async fn more_documents_than_one_message_holds_are_filled_in() {
    let server = MongoDb::start().unwrap();
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
async fn keys_of_several_types_are_found_again_by_their_text() {
    let server = MongoDb::start().unwrap();
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
async fn documents_may_be_fetched_by_another_field() {
    let server = MongoDb::start().unwrap();
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
        "who has no name cannot be asked for"
    );
    let ada = source.fetch("Ada").await.unwrap().unwrap();
    assert_eq!(ada, r#"{"_id":2,"name":"Ada","since":{"$date":"1970-01-01T00:00:00Z"}}"#);
    collection.insert_one(doc! { "name": "Ada" }).await.unwrap();
    let error = source.ids().await.unwrap_err().to_string();
    assert!(error.ends_with("several documents have the `name` `Ada`: they must differ"), "{error}");
    let none = refusal(&url(&server, "collection=people&key=nam")).await;
    assert!(none.contains("no document has a `nam`; name the field"), "{none}");
}

#[tokio::test]
async fn what_is_not_there_is_told_and_what_to_do() {
    let server = MongoDb::start().unwrap();
    url(&server, "").fill(&documents(1)).await.unwrap();
    collection(&server, "empty").await.client().database("test").create_collection("empty").await.unwrap();
    let at = |rest: &str| server.url().replace("/test", rest).parse::<SourceUrl>().unwrap();
    let port = server.port();
    for (url, expected) in [
        (at("/test?collection=documets"), "it has no collection `documets`: did you mean `documents`?"),
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
async fn tls_is_spoken_with_whoever_has_a_certificate_that_is_trusted() {
    let server = MongoDb::with_tls().unwrap();
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
