//! Secrets in arguments and files are never printed or recorded.

use std::fs;

use crate::support::{ProgramOutput, Sandbox};
use stockade_services::PostgresServer;

/// A part of every password in these tests.
const SECRET: &str = "sesame";

/// An experiment over a source, whose URL is also in a comment.
fn experiment(source: &str) -> String {
    format!(
        r#"
title = "Two arms"
# source = "{source}"
[target]
kind = "engine"
[origin]
source = "{source}"
[load]
burst = 10
[[arm]]
name = "none"
cache.strategy = "none"
[[arm]]
name = "stampede"
cache.strategy = "stampede"
origin.source = "{source}"
"#
    )
}

#[track_caller]
fn assert_no_secret(output: &ProgramOutput) {
    assert!(
        !output.stdout.contains(SECRET) && !output.stderr.contains(SECRET),
        "{}{}",
        output.stdout,
        output.stderr
    );
}

#[test]
fn run_over_postgres_writes_and_prints_no_secrets() {
    let sandbox = Sandbox::new();
    let postgres = PostgresServer::start().unwrap();
    postgres.query("CREATE TABLE documents AS SELECT 'a' AS id, 'x' AS body").unwrap();
    let file = sandbox.file("secret.toml", &experiment(&postgres.url()));
    let output = sandbox.stockade(&["run", &file, "--out", "record"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert_no_secret(&output);
    for entry in fs::read_dir(sandbox.path().join("record")).unwrap() {
        let path = entry.unwrap().path();
        assert!(!fs::read_to_string(&path).unwrap().contains(SECRET), "{}", path.display());
    }
    let record = fs::read_to_string(sandbox.path().join("record/record.json")).unwrap();
    let masked = postgres.url().replace("open%20sesame", "*************");
    assert_eq!(record.matches(&masked).count(), 3, "the rest of the URL is kept");
    for format in ["text", "md", "html", "json", "junit", "summary", "openmetrics", "kazoo"] {
        let output = sandbox.stockade(&["report", "record", "--format", format]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        assert_no_secret(&output);
    }
    for format in ["text", "json", "md"] {
        assert_no_secret(&sandbox.stockade(&["run", &file, "--format", format]));
    }
    // The arms differ only in the password, and the wrong one is reported.
    let text = experiment(&postgres.url());
    let (before, last) = text.rsplit_once("open").unwrap();
    let wrong = sandbox.file("wrong.toml", &format!("{before}wrong{last}"));
    let output = sandbox.stockade(&["run", &wrong]);
    output.assert_refused(1, &["password authentication failed for user"]);
    assert_no_secret(&output);
}

#[test]
fn file_error_prints_the_line_with_its_secret_masked() {
    let sandbox = Sandbox::new();
    let source = "postgres://ada:op€n-sesame@host/db";
    let good = experiment(source);
    for (text, words) in [
        // Errors in the line of the secret, before it and after it.
        (good.replace("/db", "/db?tabel=x"), "unknown parameter `tabel`"),
        (good.replace("//ada", "ada"), "write `//` and a host"),
        (good.replace("postgres:", "postgers:"), "unknown source `postgers`"),
        (good.replace("op€n-", "op/n-"), "write a `/` in a password as %2F"),
        (good.replace("[origin]\nsource", "[origin]\nsauce"), "unknown key `sauce`"),
        (good.replace("[origin]\n", "[origin]\nlatency = 5\n"), "5ms"),
        (good.replace("[load]", "latncy = \"5ms\"\n[load]"), "unknown key `latncy`"),
        (
            good.replace("[origin]\nsource = ", "[origin]\nlatency = "),
            "is not a duration: write a number and",
        ),
        (good.replace("strategy = \"none\"", &format!("strategy = \"{source}\"")), "unknown strategy"),
        // Invalid TOML.
        (
            good.replace(&format!("source = \"{source}\"\n[load]"), &format!("source = {source}\n[load]")),
            "wrong.toml",
        ),
        (good.replace("host/db\"\n[load]", "host/db\n[load]"), "wrong.toml"),
    ] {
        assert_ne!(text, good);
        sandbox.file("wrong.toml", &text);
        let output = sandbox.stockade(&["run", "wrong.toml"]);
        output.assert_refused(2, &[words]);
        assert_no_secret(&output);
    }
    // Masking keeps the column.
    sandbox.file("wrong.toml", &good.replace("/db\"", "/db\" 5"));
    let output = sandbox.stockade(&["run", "wrong.toml"]);
    assert!(output.stderr.contains("[wrong.toml:7:49]"), "{}", output.stderr);
    assert!(output.stderr.contains("source = \"postgres://ada:**•********@host/db\" 5"), "{}", output.stderr);
}

#[test]
fn misplaced_secret_in_arguments_is_masked() {
    let sandbox = Sandbox::new();
    let source = "postgres://ada:open-sesame@host/db";
    let option = format!("--sauce={source}");
    for (arguments, words) in [
        (&["stampede", source][..], "postgres://ada:***********@host/db"),
        (&["stampede", "10", "--strategy", source], "use one of: none, async"),
        (&["stampede", "10", "--docs-from", source], "cannot read postgres://ada:***********@host/db"),
        (&["stampede", "10", &option], "--sauce"),
        (&["run", source], "cannot read postgres://ada:***********@host/db"),
        (&[source], "unrecognized subcommand"),
    ] {
        let output = sandbox.stockade(arguments);
        output.assert_refused(2, &[words]);
        assert_no_secret(&output);
    }
}
