//! PostgreSQL behind the cache.

use std::path::Path;

use crate::{
    stampede::assert_table,
    support::{ProgramOutput, Sandbox},
};
use stockade_services::PostgresServer;

/// A part of the server's password in every encoding.
const SECRET: &str = "sesame";

#[test]
fn published_table_is_exact_over_postgres() {
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/system_schemas.jsonl");
    let sandbox = Sandbox::new();
    let file = if real.exists() {
        real.display().to_string()
    } else {
        let lines: Vec<String> = (0..777).map(|i| format!("{{\"_id\":\"doc {i}\",\"x\":[{i}]}}")).collect();
        sandbox.file("docs.jsonl", &lines.join("\n"))
    };
    let postgres = PostgresServer::start().unwrap();
    let source = postgres.url();
    let runs = sandbox.stampede(&["100", "--source", &source, "--docs-from", &file]);
    assert_table(&runs);
    assert_eq!(postgres.query("SELECT count(*) FROM documents").unwrap(), "777");
    let arguments = ["10", "100", "--docs", "fixed:3", "--strategy", "none,stampede", "--source", &source];
    let runs = sandbox.stampede(&arguments);
    assert_eq!(runs.len(), 4);
    assert_table(&runs);
    assert_table(&sandbox.stampede(&["10000", "--source", &source, "--docs", "fixed:777"]));

    // The password in the environment is in no process list.
    let source = source.replace(":open%20sesame", "");
    let arguments = ["stampede", "10", "--strategy", "stampede", "--source", &source];
    let output = ProgramOutput::of(
        sandbox.command().args(arguments).env("PGPASSWORD", "open sesame").output().unwrap(),
    );
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let output = ProgramOutput::of(
        sandbox.command().args(arguments).env("PGPASSWORD", "wrong sesame").output().unwrap(),
    );
    output.assert_refused(1, &["password authentication failed for user", "PGPASSWORD"]);
    sandbox
        .stockade(&arguments)
        .assert_refused(1, &["password missing; write it into the URL", "or set PGPASSWORD"]);
}

#[test]
fn errors_have_their_exit_code_and_print_no_secret() {
    let sandbox = Sandbox::new();
    let postgres = PostgresServer::start().unwrap();
    let good = postgres.url();
    let few = sandbox.file("few.jsonl", "{\"_id\":\"a\"}\n{\"_id\":\"b\"}\n");
    postgres.query("CREATE TABLE documents AS SELECT 'a' AS id, 'x' AS body").unwrap();
    for (source, code, words) in [
        (
            good.replace("open", "wrong"),
            1,
            "password authentication failed for user \"stockade\"; check the user",
        ),
        (good.replace("/postgres", "/absent"), 1, "database \"absent\" does not exist; name one that exists"),
        (format!("{good}?table=absent"), 1, "relation \"absent\" does not exist; name another with `table`"),
        (format!("{good}?sslmode=require"), 1, "server does not support TLS; switch TLS on there"),
        (good.replace("://", ":"), 2, "--source: postgres: write `//` and a host after the colon"),
        (
            good.replace("postgres://", "postgers://"),
            2,
            "unknown source `postgers`: did you mean `postgres`?",
        ),
        (format!("{good}?tabel=absent"), 2, "postgres: unknown parameter `tabel`: did you mean `table`?"),
        (good.replace("%20", "/"), 2, "its path has an `@`: write a `/` in a password as %2F"),
        (good.replace("%20", "?"), 2, "write a `?` in a password as %3F"),
    ] {
        let output = sandbox.stockade(&["stampede", "10", "--source", &source]);
        output.assert_refused(code, &[words]);
        assert!(!output.stderr.contains(SECRET), "{}", output.stderr);
    }
    let output = sandbox.stockade(&["stampede", "10", "--source", &good, "--docs-from", &few]);
    output.assert_refused(1, &["it holds 1 other documents; leave --docs-from out"]);
    assert!(!output.stderr.contains(SECRET), "{}", output.stderr);
}
