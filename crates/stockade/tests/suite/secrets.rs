//! What is typed into URLs and files is not told again where it is a secret.

use std::fs;

use crate::support::{Said, Sandbox};
use stockade_services::PostgresServer;

/// A part of every password here.
const SECRET: &str = "sesame";

/// An experiment over a source; the file says it again in a comment.
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
fn assert_silent(said: &Said) {
    assert!(!said.stdout.contains(SECRET) && !said.stderr.contains(SECRET), "{}{}", said.stdout, said.stderr);
}

#[test]
fn a_run_leaves_its_secrets_nowhere() {
    let sandbox = Sandbox::new();
    let postgres = PostgresServer::start().unwrap();
    postgres.ask("CREATE TABLE documents AS SELECT 'a' AS id, 'x' AS body").unwrap();
    let file = sandbox.file("secret.toml", &experiment(&postgres.url()));
    let said = sandbox.stockade(&["run", &file, "--out", "record"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_silent(&said);
    for entry in fs::read_dir(sandbox.path().join("record")).unwrap() {
        let path = entry.unwrap().path();
        assert!(!fs::read_to_string(&path).unwrap().contains(SECRET), "{}", path.display());
    }
    let record = fs::read_to_string(sandbox.path().join("record/record.json")).unwrap();
    let masked = postgres.url().replace("open%20sesame", "*************");
    assert_eq!(record.matches(&masked).count(), 3, "all else of it is told");
    for format in ["text", "md", "html", "json", "kazoo"] {
        let said = sandbox.stockade(&["report", "record", "--format", format]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        assert_silent(&said);
    }
    for format in ["text", "json", "md"] {
        assert_silent(&sandbox.stockade(&["run", &file, "--format", format]));
    }
    // The arms differ in nothing but the password: one of them is wrong, and that is noticed.
    let text = experiment(&postgres.url());
    let (before, last) = text.rsplit_once("open").unwrap();
    let wrong = sandbox.file("wrong.toml", &format!("{before}wrong{last}"));
    let said = sandbox.stockade(&["run", &wrong]);
    said.assert_refused(1, &["password authentication failed for user"]);
    assert_silent(&said);
}

#[test]
fn an_error_in_a_file_shows_the_line_and_not_its_secret() {
    let sandbox = Sandbox::new();
    let source = "postgres://ada:op€n-sesame@host/db";
    let good = experiment(source);
    for (text, words) in [
        // In that very line, before it, after it.
        (good.replace("/db", "/db?tabel=x"), "unknown parameter `tabel`"),
        (good.replace("//ada", "ada"), "write `//` and a host"),
        (good.replace("postgres:", "postgers:"), "unknown source `postgers`"),
        (good.replace("op€n-", "op/n-"), "write a `/` in a password as %2F"),
        (good.replace("[origin]\nsource", "[origin]\nsauce"), "unknown key `sauce`"),
        (good.replace("[origin]\n", "[origin]\nlatency = 5\n"), "5ms"),
        (good.replace("[load]", "latncy = \"5ms\"\n[load]"), "unknown key `latncy`"),
        (good.replace("[origin]\nsource = ", "[origin]\nlatency = "), "is no duration: write a number and"),
        (good.replace("strategy = \"none\"", &format!("strategy = \"{source}\"")), "unknown strategy"),
        // No TOML at all.
        (
            good.replace(&format!("source = \"{source}\"\n[load]"), &format!("source = {source}\n[load]")),
            "wrong.toml",
        ),
        (good.replace("host/db\"\n[load]", "host/db\n[load]"), "wrong.toml"),
    ] {
        assert_ne!(text, good);
        sandbox.file("wrong.toml", &text);
        let said = sandbox.stockade(&["run", "wrong.toml"]);
        said.assert_refused(2, &[words]);
        assert_silent(&said);
    }
    // What is pointed at stays where it is.
    sandbox.file("wrong.toml", &good.replace("/db\"", "/db\" 5"));
    let said = sandbox.stockade(&["run", "wrong.toml"]);
    assert!(said.stderr.contains("[wrong.toml:7:49]"), "{}", said.stderr);
    assert!(said.stderr.contains("source = \"postgres://ada:**•********@host/db\" 5"), "{}", said.stderr);
}

#[test]
fn what_is_typed_in_the_wrong_place_is_not_told_either() {
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
        let said = sandbox.stockade(arguments);
        said.assert_refused(2, &[words]);
        assert_silent(&said);
    }
}
