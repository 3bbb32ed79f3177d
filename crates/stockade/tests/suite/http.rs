//! `stockade stampede` on servers that speak HTTP.

use stockade_services::{CouchDbServer, NginxServer};

use crate::{
    stampede::assert_table,
    support::{ProgramOutput, Sandbox},
};

const DOCUMENTS: &str = "{\"_id\":\"a\",\"n\":1}\n{\"_id\":\"b\",\"n\":2}\n{\"_id\":\"c/d\",\"n\":3}\n";

/// The output does not contain the password.
fn assert_no_secret(output: &ProgramOutput, secret: &str) {
    assert!(!format!("{}{}", output.stdout, output.stderr).contains(secret), "{}", output.stderr);
}

#[test]
fn published_table_is_exact_on_couchdb_and_nginx() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("docs.jsonl", DOCUMENTS);
    let couchdb = CouchDbServer::start().unwrap();
    let nginx = NginxServer::with(&["dav_methods PUT", "create_full_put_path on"]).unwrap();
    let ids = sandbox.file("ids.json", "[\"a\", \"b\", \"c/d\"]");
    let http = format!("{}/docs/{{id}}?connections=32&ids={ids}", nginx.url());
    for source in [couchdb.url("docs"), http] {
        let source = ["10", "100", "--docs", "fixed:3", "--strategy", "none,stampede", "--source", &source];
        let filling = sandbox.stampede(&[&source[..], &["--docs-from", &file]].concat());
        let filled = sandbox.stampede(&source);
        for runs in [filling, filled] {
            assert_eq!(runs.len(), 4);
            assert_table(&runs);
        }
    }
}

#[test]
fn wrong_password_of_couchdb_is_reported_and_not_printed() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("docs.jsonl", DOCUMENTS);
    let couchdb = CouchDbServer::start().unwrap();
    let wrong = couchdb.url("docs").replace("sesame", "secret");
    for source in [&wrong, &wrong.replace("couchdb://", "http://")] {
        let output = sandbox.stockade(&["stampede", "10", "--source", source, "--docs-from", &file]);
        output.assert_refused(
            1,
            &["://stockade@127.0.0.1:", "/docs cannot be used: 401 Unauthorized", "check the user"],
        );
        assert_no_secret(&output, "secret");
    }
    let absent = couchdb.url("absent");
    let output = sandbox.stockade(&["stampede", "10", "--source", &absent]);
    output.assert_refused(
        1,
        &["no database at couchdb://stockade@127.0.0.1:", "/absent: check the path, or fill"],
    );
    assert_no_secret(&output, "sesame");
}

#[test]
fn invalid_url_is_reported_without_its_password() {
    let sandbox = Sandbox::new();
    for (source, expected) in [
        ("couchdb://ada:secret@host", "--source: couchdb: it names no database"),
        (
            "couchdb://ada:secret@host/db?tiemout=1s",
            "--source: couchdb: unknown parameter `tiemout`: did you mean",
        ),
        (
            "https://ada:sec/ret@host/",
            "--source: https: its path has an `@`: write a `/` in a password as %2F",
        ),
        ("http://ada:secret@host:http/", "--source: http: write one host, or HOST:PORT"),
        ("htpp://ada:secret@host/", "--source: unknown source `htpp`: did you mean `http`?"),
    ] {
        let output = sandbox.stockade(&["stampede", "10", "--source", source]);
        output.assert_refused(2, &[expected]);
        assert_no_secret(&output, "sec");
    }
}
