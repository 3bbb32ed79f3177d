//! PostgreSQL as a source: valid and invalid servers, kills and freezes.

use std::{sync::Arc, time::Duration};

use stockade_model::{
    source::{Source, SourceError},
    time::{Live, Runtime, before},
};
use stockade_services::PostgresServer;
use stockade_source::{SourceUrl, documents};
use tokio::{runtime, sync::mpsc, task::JoinSet};

/// A guard against hanging, not a bound on speed.
const PATIENCE: Duration = Duration::from_mins(1);

fn url(postgres: &PostgresServer, parameters: &str) -> SourceUrl {
    format!("{}?{parameters}", postgres.url()).parse().unwrap()
}

/// The message of an error. It must not contain the password.
#[track_caller]
fn message<T>(result: Result<T, impl std::fmt::Display + std::fmt::Debug>) -> String {
    let error = result.err().expect("an error");
    assert!(!format!("{error}{error:?}").contains("sesame"), "{error:?}");
    error.to_string()
}

async fn assert_serves(source: &Arc<dyn Source>, documents: &[documents::NamedDocument]) {
    let ids = source.ids().await.unwrap();
    assert_eq!(ids.len(), documents.len());
    assert!(ids.is_sorted());
    for document in documents {
        assert_eq!(source.fetch(&document.id).await.unwrap().as_ref(), Some(&document.body));
    }
    for nobody_wrote in ["this", "", "th\0is", "'; DROP TABLE documents; --"] {
        assert_eq!(source.fetch(nobody_wrote).await.unwrap(), None, "not found is an answer");
    }
}

/// The number of other clients of the server.
fn clients(postgres: &PostgresServer) -> usize {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    postgres.query(sql).unwrap().parse().unwrap()
}

/// Queries until the condition holds.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    assert!((0..500).any(|_| condition()), "{what}");
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

#[tokio::test(flavor = "multi_thread")]
async fn fill_stores_documents_and_overwrites_nothing() {
    let postgres = PostgresServer::start().unwrap();
    let database = url(&postgres, "");
    // Sorted by bytes, independent of the database's collation.
    let mut documents = documents::generate(250);
    documents[0].id = "B".into();
    documents[1].id = "a".into();
    documents[2].id = "Ä".into();
    documents[3].body = vec![0, 0xff, b'\n'].into();
    assert_serves(&database.fill(&documents).await.unwrap(), &documents).await;
    assert_serves(&database.fill(&documents).await.unwrap(), &documents).await;
    for other in [&documents[..20], &documents::generate(250)] {
        let refused = message(database.fill(other).await);
        assert!(
            refused.contains("it holds 250 other documents; leave --docs-from out to use them, or"),
            "{refused}"
        );
    }
    assert_serves(&database.open().await.unwrap(), &documents).await;
    let other_scheme = postgres.url().replace("postgres:", "postgresql:") + "?table=public.documents";
    assert_serves(&other_scheme.parse::<SourceUrl>().unwrap().open().await.unwrap(), &documents).await;
    eventually("all connections are closed with their sources", || clients(&postgres) == 0);
}

#[tokio::test]
async fn existing_tables_are_served() {
    let postgres = PostgresServer::start().unwrap();
    let documents = documents::generate(20);
    for (table, body) in [("a", "text"), ("b", "varchar"), ("c", "json"), ("d", "bytea")] {
        postgres
            .query(&format!("CREATE TABLE {table} (k varchar(80) UNIQUE, v {body}, more int DEFAULT 7)"))
            .unwrap();
        let database = url(&postgres, &format!("table={table}&key=k&body=v"));
        for _ in 0..2 {
            assert_serves(&database.fill(&documents).await.unwrap(), &documents).await;
        }
    }
    // JSON that is stored in another form, and keys that are not text.
    postgres.query("CREATE TABLE e (id int PRIMARY KEY, body jsonb); INSERT INTO e VALUES (7, '{\"b\":1, \"a\" : 2}')").unwrap();
    let e = url(&postgres, "table=e").open().await.unwrap();
    assert_eq!(e.ids().await.unwrap(), ["7".into()]);
    assert_eq!(e.fetch("7").await.unwrap().unwrap(), r#"{"a": 2, "b": 1}"#);
    assert_eq!([e.fetch("8").await.unwrap(), e.fetch("seven").await.unwrap()], [None, None]);
    let stored = [documents::NamedDocument { id: "7".into(), body: r#"{"a":2,"b":1}"#.into() }];
    url(&postgres, "table=e").fill(&stored).await.unwrap();

    postgres.query("CREATE SCHEMA s; CREATE TABLE s.\"a \"\"b\" (\"the key\" uuid, \"B\" text)").unwrap();
    let odd = url(&postgres, "table=s.a%20%22b&key=the%20key&body=B");
    let uuid = "6f1c0dbe-9d4f-4a6f-b5f1-0c61ba1cd1a2";
    let odd = odd.fill(&[documents::NamedDocument { id: uuid.into(), body: "x".into() }]).await.unwrap();
    assert_eq!(odd.fetch(&uuid.to_uppercase()).await.unwrap().unwrap(), "x");

    // A view that changes, with a repeated key and a missing body.
    postgres
        .query(
            "CREATE TABLE f (id text, body text); INSERT INTO f VALUES ('a', 'x'), ('a', 'y'), ('b', NULL)",
        )
        .unwrap();
    let f = url(&postgres, "table=f").open().await.unwrap();
    assert!(
        message(f.fetch("a").await).contains("several rows have this key: name a column without repeats")
    );
    assert!(message(f.fetch("b").await).contains("a document without a body"));
    postgres.query("DROP TABLE f").unwrap();
    assert!(message(f.fetch("a").await).contains("relation \"f\" does not exist; name another with `table`"));
}

#[tokio::test]
async fn errors_name_place_and_remedy_without_secrets() {
    let postgres = PostgresServer::with(&["max_connections=8", "superuser_reserved_connections=0"]).unwrap();
    postgres
        .query(
            "CREATE TABLE documents (id text, body int); CREATE TABLE secret (id text, body text); \
             CREATE TABLE j (id json, body text); CREATE ROLE bob LOGIN PASSWORD 'bobs sesame'",
        )
        .unwrap();
    let good = postgres.url();
    let at = good.split_once('@').unwrap().1.to_owned();
    let host = at.split_once('/').unwrap().0.to_owned();
    let refusing = format!("127.0.0.1:{}", stockade_services::free_port().unwrap());
    for (url, expected) in [
        (
            good.replace("open", "wrong"),
            "password authentication failed for user \"stockade\"; check the user and the",
        ),
        (
            good.replace("stockade", "absent"),
            "password authentication failed for user \"absent\"; check the user",
        ),
        (
            good.replace(":open%20sesame", ":"),
            "password missing; write it into the URL, after the user and a colon",
        ),
        (good.replace("/postgres", "/absent"), "database \"absent\" does not exist; name one that exists"),
        (
            format!("{good}?table=absent"),
            "relation \"absent\" does not exist; name another with `table`, or make",
        ),
        (format!("{good}?table=absent.a"), "relation \"absent.a\" does not exist; name another with `table`"),
        (
            format!("{good}?key=absent"),
            "column \"absent\" does not exist; name the columns with `key` and `body`",
        ),
        (
            good.clone(),
            "column \"body\" is of type int4; name one of type bytea, text, json or jsonb with `body`",
        ),
        (format!("{good}?table=j"), "operator does not exist: json = json"),
        (
            format!("postgres://bob:bobs%20sesame@{at}?table=secret"),
            "permission denied for table secret; grant it to the user",
        ),
        (
            format!("{good}?sslmode=require"),
            "server does not support TLS; switch TLS on there, or write sslmode=prefer",
        ),
        (good.replace(&host, "absent.invalid"), "check the host"),
        (
            good.replace(&host, &refusing),
            "Connection refused (os error 111); check the host and the port, and whether the server runs",
        ),
        (
            format!("{good}?sslmode=verify-full&sslrootcert=absent.pem"),
            "`sslrootcert`: absent.pem: No such file or directory (os error 2); name a file of certificates in PEM",
        ),
        (
            format!("{good}?sslmode=require&sslrootcert=Cargo.toml"),
            "it contains no certificate; name a file of",
        ),
    ] {
        let url: SourceUrl = url.parse().unwrap();
        assert!(!format!("{url} {url:?}").contains("sesame"));
        let message = message(url.open().await);
        assert!(
            message.starts_with(&format!("{url} cannot be used: ")) && message.contains(expected),
            "{message}"
        );
    }
    let greedy = url(&postgres, "table=secret&connections=20").open().await.unwrap();
    let mut fetches = JoinSet::new();
    for _ in 0..40 {
        let greedy = Arc::clone(&greedy);
        fetches.spawn(async move { greedy.fetch("a").await.err().map(|error| error.to_string()) });
    }
    let errors: Vec<_> = fetches.join_all().await.into_iter().flatten().collect();
    let remedy = "too many clients already; write fewer `connections`, or let the server have more";
    assert!(!errors.is_empty() && errors.iter().all(|error| error.contains(remedy)), "{errors:?}");
}

#[test]
fn invalid_urls_fail_before_connecting() {
    for (url, expected) in [
        ("postgres:ada:plugh@host", "postgres: write `//` and a host after the colon"),
        ("postgres://ada:plu/gh@host/db", "postgres: its path has an `@`: write a `/` in a password as %2F"),
        (
            "postgres://ada:plu?gh@host/db",
            "postgres: it has an `@` after a `?`: write a `?` in a password as %3F",
        ),
        (
            "postgres://ada:plu#gh@host/db",
            "postgres: it has an `@` after a `#`: write a `#` in a password as %23",
        ),
        ("postgres://ada:%ff@host/db", "postgres: its user or password is not UTF-8"),
        (
            "postgres://ada:plugh@host:many/db",
            "postgres: invalid value for option `port`: write postgres://USER:",
        ),
        (
            "postgres://ada:plugh@host/db?tabel=x",
            "postgres: unknown parameter `tabel`: did you mean `table`?",
        ),
        (
            "postgres://host/db?password=plugh",
            "postgres: unknown parameter `password`: use one of: body, key, sslmode",
        ),
        ("postgres://host/db?table=", "postgres: `table` is not a name"),
        ("postgres://host/db?key=a%00b", "postgres: `key` is not a name"),
        ("postgres://host/db?sslmode=requir", "postgres: unknown `sslmode`: did you mean `require`?"),
        (
            "postgres://host/db?sslmode=verify-ca",
            "postgres: unknown `sslmode`: write `verify-full`, which checks",
        ),
        (
            "postgresql://h/db?sslrootcert=a.pem",
            "postgresql: `sslrootcert` is for `sslmode=verify-full`: write both",
        ),
        (
            "postgres://host/db?target_session_attrs=x",
            "postgres: invalid value for option `target_session_attrs`",
        ),
    ] {
        let error = url.parse::<SourceUrl>().unwrap_err();
        assert!(error.is_usage());
        let message = error.to_string();
        assert!(message.starts_with(expected), "{message}");
        assert!(!message.contains("plu") && !message.contains("gh@"), "{message}");
    }
}

#[tokio::test]
async fn sslmode_selects_tls() {
    let postgres = PostgresServer::with_tls().unwrap();
    postgres
        .query("CREATE TABLE documents (id text, body text); INSERT INTO documents VALUES ('a', 'x')")
        .unwrap();
    // True if this connection is encrypted.
    let view = "CREATE VIEW encrypted AS SELECT 'a' AS id, ssl::text AS body FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    postgres.query(view).unwrap();
    let certificate = postgres.certificate().display().to_string();
    let named = postgres.url().replace("127.0.0.1", "localhost");
    let open = async |url: &str, parameters: &str| {
        let url = format!("{url}?table=encrypted&{parameters}");
        let source = url.parse::<SourceUrl>().unwrap().open().await?;
        Ok::<_, stockade_source::OpenError>(source.fetch("a").await.unwrap().unwrap())
    };
    let verified = format!("sslmode=verify-full&sslrootcert={certificate}");
    for (parameters, is_encrypted) in [
        ("", "true"),
        ("sslmode=disable", "false"),
        ("sslmode=prefer", "true"),
        ("sslmode=require", "true"),
        ("sslmode=require&channel_binding=require", "true"),
        (&verified, "true"),
        (&verified.replace("verify-full", "require"), "true"),
    ] {
        assert_eq!(open(&named, parameters).await.unwrap(), is_encrypted, "{parameters}");
    }
    let other_host = message(open(&postgres.url(), &verified).await);
    assert!(other_host.ends_with("; name the host as its certificate does"), "{other_host}");
    let unknown = message(open(&named, "sslmode=verify-full").await);
    assert!(
        unknown.contains(
            "invalid peer certificate: UnknownIssuer; name the file of the certificate authority with `sslrootcert`"
        ),
        "{unknown}"
    );
    // A server that requires TLS.
    let rules = postgres.query("SHOW hba_file").unwrap();
    let rule = "hostssl all all 127.0.0.1/32 scram-sha-256";
    let read = format!("COPY (SELECT '{rule}') TO '{rules}'; SELECT pg_reload_conf()");
    postgres.query(&read).unwrap();
    for _ in 0..1_000 {
        if let Err(refused) = open(&named, "sslmode=disable").await {
            let refused = refused.to_string();
            assert!(refused.ends_with("and whether the server wants sslmode=require"), "{refused}");
            return;
        }
    }
    panic!("it does not read its rules");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_server_fails_fetches_and_recovers() {
    let mut postgres = PostgresServer::start().unwrap();
    let documents = documents::generate(3);
    url(&postgres, "").fill(&documents).await.unwrap();
    let slowly = "CREATE VIEW slowly AS SELECT id, body FROM documents, pg_sleep(0.005)";
    postgres.query(slowly).unwrap();
    let source = url(&postgres, "table=slowly&connections=4&timeout=2s").open().await.unwrap();
    let time = Live::new();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let mut own_clients = JoinSet::new();
    for _ in 0..32 {
        let (source, id, time, sender) =
            (Arc::clone(&source), Arc::clone(&documents[0].id), time.clone(), sender.clone());
        own_clients.spawn(async move {
            loop {
                let began = time.now();
                match source.fetch(&id).await {
                    Ok(_) => drop(sender.send(())),
                    Err(error) => return (error.to_string(), time.now() - began),
                }
            }
        });
    }
    // All connections are in use.
    for _ in 0..64 {
        receiver.recv().await.unwrap();
    }
    assert!(clients(&postgres) <= 4);
    postgres.kill();
    let failed = before(&time, time.now() + PATIENCE, own_clients.join_all()).await.expect("none hangs");
    assert_eq!(failed.len(), 32);
    for (error, took) in failed {
        assert!(error.contains("connection closed") || error.contains("server"), "{error}");
        assert!(took < PATIENCE, "{took:?}");
    }
    postgres.restart().unwrap();
    await_recovery(&source, &documents[0].id).await;
    let mut fetches = JoinSet::new();
    for _ in 0..100 {
        let (source, id) = (Arc::clone(&source), Arc::clone(&documents[1].id));
        fetches.spawn(async move { source.fetch(&id).await.is_ok() });
    }
    assert!(fetches.join_all().await.into_iter().all(|is_ok| is_ok), "every connection is a new one");
    assert!(clients(&postgres) <= 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_server_times_out_and_recovers() {
    let postgres = PostgresServer::start().unwrap();
    let documents = documents::generate(3);
    let source = url(&postgres, "connections=3&timeout=2s").fill(&documents).await.unwrap();
    let time = Live::new();
    postgres.process().unwrap().freeze();
    for _ in 0..2 {
        let mut fetches = JoinSet::new();
        for _ in 0..20 {
            let (source, id, time) = (Arc::clone(&source), Arc::clone(&documents[0].id), time.clone());
            fetches.spawn(async move {
                let began = time.now();
                (source.fetch(&id).await.unwrap_err(), time.now() - began)
            });
        }
        let failed = before(&time, time.now() + PATIENCE, fetches.join_all()).await.expect("none hangs");
        for (error, took) in failed {
            assert!(error.to_string().ends_with(" did not answer within 2s"), "{error}");
            assert!(took >= Duration::from_secs(2), "{took:?}");
        }
    }
    let opening = url(&postgres, "timeout=100ms").open().await;
    assert!(message(opening).contains("no answer within 100ms; check the host, the port and the network"));
    postgres.process().unwrap().thaw();
    await_recovery(&source, &documents[0].id).await;
    eventually("abandoned connections close", || clients(&postgres) <= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_fetches_leave_nothing_behind() {
    let postgres = PostgresServer::start().unwrap();
    let documents = documents::generate(3);
    let source = url(&postgres, "connections=4").fill(&documents).await.unwrap();
    let time = Live::new();
    for round in 0..1_000_u32 {
        // In each state: waiting for a permit, connecting, querying.
        let patience = Duration::from_micros(u64::from(round % 50) * 20);
        let fetches = (0..8).map(|_| source.fetch(&documents[0].id)).collect::<Vec<_>>();
        for fetch in fetches {
            let _ = before(&time, time.now() + patience, fetch).await;
        }
    }
    assert_eq!(source.fetch(&documents[1].id).await.unwrap().as_ref(), Some(&documents[1].body));
    let made: usize = postgres
        .query("SELECT sessions FROM pg_stat_database WHERE datname = 'postgres'")
        .unwrap()
        .parse()
        .unwrap();
    assert!(made < 30, "{made} sessions: connections are not torn down for clients that have gone");
    assert!(clients(&postgres) <= 4);
    drop(source);
    eventually("all connections are closed", || clients(&postgres) == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn query_timeout_cancels_it_and_closes_its_connection() {
    let postgres = PostgresServer::start().unwrap();
    let documents = documents::generate(3);
    let source = url(&postgres, "connections=2&timeout=2s").fill(&documents).await.unwrap();
    let (locker, wire) = tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await.unwrap();
    Live::new().spawn(async { drop(wire.await) });
    locker.batch_execute("BEGIN; LOCK TABLE documents").await.unwrap();
    for _ in 0..4 {
        let error = source.fetch(&documents[0].id).await.unwrap_err();
        assert!(matches!(error, SourceError::TimedOut { .. }), "{error}");
        eventually("two connections, and the locker's", || clients(&postgres) <= 3);
    }
    assert!(message(url(&postgres, "timeout=200ms").open().await).contains("no answer within 200ms"));
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually("no query waits", || postgres.query(waiting).unwrap() == "0");
    eventually("the connection of the failed open is closed", || clients(&postgres) <= 3);
    locker.batch_execute("COMMIT").await.unwrap();
    await_recovery(&source, &documents[0].id).await;
}

#[test]
fn source_uses_the_runtime_that_opened_it() {
    let postgres = PostgresServer::start().unwrap();
    let documents = documents::generate(3);
    let home = runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let source = home.block_on(url(&postgres, "").fill(&documents)).unwrap();
    for _ in 0..2 {
        let visitor = runtime::Builder::new_current_thread().build().unwrap();
        let found = visitor.block_on(source.fetch(&documents[0].id)).unwrap();
        assert_eq!(found.as_ref(), Some(&documents[0].body));
    }
    drop(home);
    let visitor = runtime::Builder::new_current_thread().build().unwrap();
    let message = message(visitor.block_on(source.fetch(&documents[0].id)));
    assert!(message.ends_with("the runtime that it was opened on has ended"), "{message}");
}
