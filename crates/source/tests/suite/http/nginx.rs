//! Any HTTP server: nginx, with and without TLS.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use stockade_services::{NginxServer, free_port};
use stockade_source::documents::{self, NamedDocument};
use tempfile::TempDir;

use crate::http::support::{
    SLACK, assert_all_answered, assert_all_late, assert_error, assert_serves, encoded, fetch_until_errors,
    url, with,
};

/// Settings of a server that accepts documents.
const WITH_PUT: &[&str] = &["dav_methods PUT", "create_full_put_path on"];

#[tokio::test]
async fn fill_stores_documents_and_overwrites_nothing() {
    let nginx = NginxServer::with(WITH_PUT).unwrap();
    let place = url(&format!("{}/docs/{{id}}.json?connections=4", nginx.url()));
    let mut documents = documents::generate(50);
    documents.push(NamedDocument { id: "ü ?#%2F".into(), body: "{}".into() });
    assert_serves(&place.fill(&documents).await.unwrap(), &documents).await;
    let file = |id: &str| nginx.documents().join("docs").join(format!("{id}.json"));
    assert_eq!(fs::read(file(&documents[0].id)).unwrap(), documents[0].body);

    // A document that is equal as JSON but not in its bytes, and a missing document.
    fs::write(file("ü ?#%2F"), "{ }\n").unwrap();
    fs::remove_file(file(&documents[1].id)).unwrap();
    assert_serves(&place.fill(&documents).await.unwrap(), &documents).await;
    assert_eq!(fs::read(file("ü ?#%2F")).unwrap(), b"{ }\n", "existing files stay");

    fs::write(file(&documents[2].id), "{\"another\":\"document\"}").unwrap();
    fs::remove_file(file(&documents[1].id)).unwrap();
    let other = format!("it holds another document `{}`; leave --docs-from out", documents[2].id);
    assert_error(place.fill(&documents).await, &[&nginx.url(), &other]);
    assert!(!file(&documents[1].id).exists(), "nothing is written where there are others");
}

#[tokio::test]
async fn read_only_server_serves_its_documents() {
    let nginx = NginxServer::start().unwrap();
    let place = url(&nginx.url());
    let documents = documents::generate(5);
    assert_error(place.fill(&documents).await, &["405 Method Not Allowed to PUT: it takes no documents"]);
    for document in &documents {
        fs::write(nginx.documents().join(&*document.id), &document.body).unwrap();
    }
    assert_serves(&place.fill(&documents).await.unwrap(), &documents).await;
}

#[tokio::test]
async fn ids_come_from_a_file_or_from_the_server_itself() {
    let nginx = NginxServer::start().unwrap();
    let directory = TempDir::new().unwrap();
    let (file, served) = (directory.path().join("ids.json"), nginx.documents().join("ids.json"));
    let documents = documents::generate(5);
    for document in &documents {
        fs::write(nginx.documents().join(&*document.id), &document.body).unwrap();
    }
    let mut ids: Vec<_> = documents.iter().map(|document| &*document.id).collect();
    ids.push(ids[0]);
    fs::write(&file, serde_json::to_string(&ids).unwrap()).unwrap();
    fs::copy(&file, &served).unwrap();
    let from_server = format!("ids={}/ids.json", nginx.url());
    for ids in [format!("ids={}", encoded(&file)), from_server.clone()] {
        assert_serves(&with(&nginx.url(), &ids).open().await.unwrap(), &documents).await;
    }

    let silent = url(&nginx.url()).open().await.unwrap();
    assert_error(silent.ids().await, &["it has no list of its documents: add ids=FILE-OR-URL"]);
    fs::write(&served, "{}").unwrap();
    let place = with(&nginx.url(), &from_server);
    assert_error(place.open().await, &["`ids`: the list is not a JSON array of strings: invalid type: map"]);
    fs::remove_file(&served).unwrap();
    assert_error(place.open().await, &["`ids`: it answers 404 Not Found"]);
    let absent = format!("ids={}", encoded(&directory.path().join("absent")));
    assert_error(with(&nginx.url(), &absent).open().await, &["`ids`: ", "absent: No such file"]);
}

#[tokio::test]
async fn password_is_required_and_never_shown() {
    let nginx = NginxServer::with(&["auth_basic documents", "auth_basic_user_file users"]).unwrap();
    let documents = documents::generate(3);
    for document in &documents {
        fs::write(nginx.documents().join(&*document.id), &document.body).unwrap();
    }
    let folder = nginx.documents().parent().unwrap().to_owned();
    fs::write(folder.join("users"), "ada:{PLAIN}se@/ü\n").unwrap();
    let place = |user: &str| url(&nginx.url().replace("//", &format!("//{user}")));
    assert_serves(&place("ada:se%40%2F%C3%BC@").fill(&documents).await.unwrap(), &documents).await;
    for user in ["ada:secret@", "secret@", ""] {
        let refused = ["cannot be used: 401 Unauthorized: check the user and the password in the URL"];
        assert_error(place(user).fill(&documents).await, &refused);
        assert!(!format!("{:?}", place(user)).contains("secret"));
    }
    let listed = folder.join("ids.json");
    fs::write(&listed, "[\"a\"]").unwrap();
    let ids = format!("ids={}", encoded(&listed));
    let place = with(&nginx.url().replace("//", "//ada:secret@"), &ids);
    assert_error(place.open().await, &["401 Unauthorized"]);
}

#[tokio::test]
async fn tls_requires_a_trusted_certificate() {
    let nginx = NginxServer::with_tls(WITH_PUT).unwrap();
    let documents = documents::generate(20);
    let ca = format!("ca={}", encoded(&nginx.certificate()));
    assert_serves(&with(&nginx.url(), &ca).fill(&documents).await.unwrap(), &documents).await;

    let untrusted =
        ["cannot be used: its certificate is not trusted (", "name a file with its authority, ca=FILE"];
    assert_error(url(&nginx.url()).open().await, &untrusted);
    let elsewhere = nginx.url().replace("localhost", "127.0.0.1");
    assert_error(
        with(&elsewhere, &ca).open().await,
        &["its certificate is for another host: write the name"],
    );
    let plain = url(&nginx.url().replace("https", "http"));
    assert_error(plain.fill(&documents).await, &["it answers 400 Bad Request"]);
    let absent = with(&nginx.url(), "ca=absent.pem").open().await;
    assert_error(absent, &["`ca`: absent.pem: ", "name a file of certificates in PEM"]);
    let no_certificate = format!("ca={}", encoded(&nginx.documents().join(&*documents[0].id)));
    assert_error(
        with(&nginx.url(), &no_certificate).open().await,
        &["it contains no certificate; name a file"],
    );

    let without = NginxServer::start().unwrap();
    let place = with(&without.url().replace("http", "https"), &ca);
    assert_error(place.open().await, &["no TLS: ", "check the port and the scheme"]);
}

#[tokio::test]
async fn unreachable_servers_are_reported_with_a_remedy() {
    let port = free_port().unwrap();
    for scheme in ["http", "https", "couchdb"] {
        let place = url(&format!("{scheme}://ada:secret@127.0.0.1:{port}/db"));
        let refused = [&format!("{scheme}://ada@127.0.0.1:{port}/db cannot be used: connection refused")];
        assert_error(place.open().await, &[refused[0], "start the server, or check host and port"]);
    }
    let nowhere = url("http://nowhere.invalid/").open().await;
    assert_error(nowhere, &["no address for host `nowhere.invalid`: ", "check its name"]);
}

#[test]
fn invalid_urls_are_refused() {
    for (text, expected) in [
        ("http:host", "http: write `//` and a host after the colon"),
        ("https://", "https: it names no host"),
        ("http://a:1,b:2/", "http: write one host, or HOST:PORT with a port from 1 to 65535"),
        ("http://a:65536/", "http: write one host, or HOST:PORT with a port from 1 to 65535"),
        ("http://a b/", "http: write one host, or HOST:PORT with a port from 1 to 65535"),
        (
            "http://host/a b",
            "http: its path or its parameters have characters that have to be percent-encoded",
        ),
        ("http://ada:%ff@host/", "http: its user or its password is not UTF-8"),
        ("http://host/?ca=file", "http: `ca` is for a server with TLS"),
        ("https://host/?ca=", "https: `ca` names no file"),
        (
            "https://host/?ids=https://other/ids",
            "https: `ids` is a file, or a URL of the same scheme, host and port, without user and parameters",
        ),
        ("http://host/?timeout=0s", "http: `timeout` has to be above 0"),
        ("couchdb://host/", "couchdb: it names no database: write couchdb://HOST/DATABASE"),
        (
            "couchdb://host/db?colour=1",
            "couchdb: unknown parameter `colour`: use one of: ca, connections, timeout",
        ),
        ("couch://host/db", "unknown source `couch`: did you mean `couchdb`?"),
    ] {
        let read = text.parse::<stockade_source::SourceUrl>();
        assert_eq!(read.err().map(|error| error.to_string()).as_deref(), Some(expected), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_fails_fetches_and_recovers() {
    let mut nginx = NginxServer::with(WITH_PUT).unwrap();
    let documents = documents::generate(20);
    let source = with(&nginx.url(), "timeout=20s&connections=8").fill(&documents).await.unwrap();
    for (error, took) in fetch_until_errors(&source, &documents, || nginx.kill()).await {
        assert!(took < SLACK, "{took:?}: {error}");
        assert!(error.to_string().starts_with(&nginx.url()), "{error}");
    }
    nginx.restart().unwrap();
    assert_all_answered(&source, &documents).await;
    // All idle connections are dead, and no request has noticed it yet.
    nginx.restart().unwrap();
    assert_all_answered(&source, &documents).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_server_times_out_and_recovers() {
    let nginx = NginxServer::with(WITH_PUT).unwrap();
    let documents = documents::generate(20);
    let timeout = Duration::from_secs(2);
    let source = with(&nginx.url(), "timeout=2s&connections=4").fill(&documents).await.unwrap();
    nginx.process().unwrap().freeze();
    assert_all_late(&source, &documents, timeout).await;
    nginx.process().unwrap().thaw();
    assert_all_answered(&source, &documents).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_bounded_and_kept() {
    let nginx = NginxServer::with(WITH_PUT).unwrap();
    let documents = documents::generate(20);
    let source = with(&nginx.url(), "connections=5").fill(&documents).await.unwrap();
    for _ in 0..30 {
        assert_all_answered(&source, &documents).await;
    }
    // A request over a new connection comes last; the requests before it are logged by then.
    let last = url(&nginx.url()).open().await.unwrap();
    last.fetch(&documents[0].id).await.unwrap();
    let mut requests: BTreeMap<u64, usize> = BTreeMap::new();
    for connection in nginx.connections().unwrap() {
        *requests.entry(connection).or_default() += 1;
    }
    let busy: BTreeSet<_> = requests.iter().filter(|(_, count)| **count > 1).collect();
    assert!(busy.len() <= 5 && requests.len() <= 6, "{requests:?}");
}
