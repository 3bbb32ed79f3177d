//! CouchDB's protocol.

use std::time::Duration;

use stockade_services::{CouchDbServer, NginxServer};
use stockade_source::{
    OpenError,
    documents::{self, NamedDocument},
};

use crate::http::support::{
    SLACK, assert_all_answered, assert_all_late, assert_error, assert_serves, encoded, fetch_until_errors,
    url, value, with,
};

#[tokio::test]
async fn fill_stores_documents_and_overwrites_nothing() {
    let couchdb = CouchDbServer::start().unwrap();
    let place = url(&couchdb.url("docs"));
    assert!(matches!(place.open().await, Err(OpenError::Missing { .. })));
    assert_error(
        place.open().await,
        &["no database at couchdb://stockade@127.0.0.1:", "/docs: check the path"],
    );

    let mut documents = documents::generate(520);
    for (id, body) in [("ü ?#%2F/a", "{\"n\":1.0,\"_rev\":\"3-a\"}"), ("..a", "{\"_id\":\"..a\"}")] {
        documents.push(NamedDocument { id: id.into(), body: body.into() });
    }
    let added = |document: &NamedDocument| {
        let mut body = value(&document.body);
        body["_id"] = (*document.id).into();
        NamedDocument { id: document.id.clone(), body: body.to_string().replace("1.0", "1").into() }
    };
    let expected: Vec<_> = documents.iter().map(added).collect();
    assert_serves(&place.fill(&documents).await.unwrap(), &expected).await;
    assert_serves(&place.fill(&documents).await.unwrap(), &expected).await;
    assert_serves(&place.open().await.unwrap(), &expected).await;

    let refused = "it holds 522 other documents; leave --docs-from out to use them, or name a new database";
    assert_error(place.fill(&documents[..20]).await, &[refused]);
    documents[7].body = "{}".into();
    assert_error(place.fill(&documents).await, &[refused]);
    let source = place.open().await.unwrap();
    assert_eq!(value(&source.fetch(&documents[7].id).await.unwrap().unwrap()), value(&expected[7].body));
}

#[tokio::test]
async fn interrupted_fill_is_completed() {
    let couchdb = CouchDbServer::start().unwrap();
    let place = url(&couchdb.url("docs"));
    let documents = documents::generate(30);
    place.fill(&documents[..20]).await.unwrap();
    assert_serves(&place.fill(&documents).await.unwrap(), &documents).await;
}

#[tokio::test]
async fn reserved_names_are_refused() {
    let couchdb = CouchDbServer::start().unwrap();
    let source = url(&couchdb.url("docs")).fill(&documents::generate(1)).await.unwrap();
    for id in ["", "_all_docs", "_design/views", ".", ".."] {
        assert_eq!(source.fetch(id).await.unwrap(), None, "{id}");
    }
    let place = url(&couchdb.url("others"));
    let fill = async |id: &str, body: &'static str| {
        place.fill(&[NamedDocument { id: id.into(), body: body.into() }]).await
    };
    assert_error(fill("_a", "{}").await, &["`_a` is not an id for CouchDB: begin it with another character"]);
    assert_error(fill("a", "[]").await, &["document `a` is not a JSON object: CouchDB holds nothing else"]);
    assert_error(
        fill("a", "{\"_a\":1}").await,
        &["others cannot be used: it ", "Bad special document member: _a"],
    );
}

#[tokio::test]
async fn password_is_required_and_never_shown() {
    let couchdb = CouchDbServer::start().unwrap();
    let wrong = couchdb.url("docs").replace("open%20sesame", "open%20secret");
    let refused =
        ["couchdb://stockade@127.0.0.1:", "401 Unauthorized (Name or password is incorrect.): check"];
    assert_error(url(&wrong).open().await, &refused);
    assert_error(url(&wrong).fill(&documents::generate(1)).await, &refused);
    let without_user = couchdb.url("docs").replace("stockade:open%20sesame@", "");
    assert_error(
        url(&without_user).open().await,
        &["401 Unauthorized (Authentication required.): check the user"],
    );
}

#[tokio::test]
async fn deleted_database_is_an_error() {
    let couchdb = CouchDbServer::start().unwrap();
    let documents = documents::generate(1);
    let source = url(&couchdb.url("docs")).fill(&documents).await.unwrap();
    let there = url(&couchdb.url("docs").replace("couchdb://", "http://").replace("/docs", "/{id}"));
    let mut couchdb = couchdb;
    couchdb.restart().unwrap();
    assert_error(source.fetch(&documents[0].id).await, &["it answers 404 Not Found (no_db_file)"]);
    assert_eq!(there.open().await.unwrap().fetch("docs").await.unwrap(), None, "HTTP knows no databases");
}

#[tokio::test]
async fn couchdb_behind_tls_is_served() {
    let couchdb = CouchDbServer::start().unwrap();
    let proxy =
        format!("location /prefix/ {{ proxy_pass http://127.0.0.1:{}/; }} server_tokens off", couchdb.port());
    let nginx = NginxServer::with_tls(&[&proxy]).unwrap();
    let user = couchdb.url("").split_once('@').unwrap().0.replace("couchdb://", "couchdbs://");
    let there = nginx.url().replace("https://", &format!("{user}@"));
    let documents = documents::generate(10);
    let ca = format!("ca={}", encoded(&nginx.certificate()));
    let source = with(&format!("{there}/prefix/docs"), &ca).fill(&documents).await.unwrap();
    assert_serves(&source, &documents).await;
    assert_error(url(&format!("{there}/prefix/docs")).open().await, &["its certificate is not trusted ("]);
    let plain = format!("{there}/prefix/docs").replace("couchdbs", "couchdb");
    assert_error(url(&plain).open().await, &["it answers 400 Bad Request"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_fails_fetches_and_recovers() {
    let mut couchdb = CouchDbServer::start().unwrap();
    let documents = documents::generate(20);
    let place = with(&couchdb.url("docs"), "timeout=20s&connections=8");
    let source = place.fill(&documents).await.unwrap();
    for (error, took) in fetch_until_errors(&source, &documents, || couchdb.kill()).await {
        assert!(took < SLACK, "{took:?}: {error}");
    }
    couchdb.restart().unwrap();
    // It restarts without its data.
    place.fill(&documents).await.unwrap();
    assert_all_answered(&source, &documents).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_server_times_out_and_recovers() {
    let couchdb = CouchDbServer::start().unwrap();
    let documents = documents::generate(20);
    let timeout = Duration::from_secs(2);
    let source = with(&couchdb.url("docs"), "timeout=2s&connections=4").fill(&documents).await.unwrap();
    couchdb.process().unwrap().freeze();
    assert_all_late(&source, &documents, timeout).await;
    couchdb.process().unwrap().thaw();
    assert_all_answered(&source, &documents).await;
}
