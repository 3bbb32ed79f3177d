//! What was typed or written wrong: one message with the place and the remedy, no secret, and 2.

use std::net::TcpListener;

use super::silent;
use crate::{
    running::Running,
    support::{Said, Sandbox},
};

/// What it says when it does not begin.
#[track_caller]
fn refused(sandbox: &Sandbox, arguments: &[&str]) -> Said {
    Running::start(sandbox, &[&["proxy"], arguments].concat(), "").ended()
}

#[track_caller]
fn assert_silent(said: &Said) {
    assert!(!said.stderr.contains("sesame"), "{}", said.stderr);
}

const ORIGIN: &str = "[[origin]]\nname = \"app\"\nurl = \"http://127.0.0.1:1\"\n";

#[test]
fn a_file_that_makes_no_sense_is_told_its_place_and_its_remedy() {
    let sandbox = Sandbox::new();
    for (before, after, place, message, remedy) in [
        ("lisen = []\n", "", "1:1", "unknown key `lisen`", "did you mean `listen`?"),
        ("", "conections = 5\n", "4:1", "unknown key `conections`", "did you mean `connections`?"),
        ("[timeouts]\nhead = \"5\"\n", "", "2:8", "`5` has no unit", "write `5ms` or `5s`"),
        ("[timeouts]\nhead = 5\n", "", "2:8", "", "write `5ms` or `5s`"),
        ("[cache]\nstrategy = \"breakr\"\n", "", "", "unknown strategy `breakr`", "did you mean `breaker`?"),
        ("listen = []\n", "", "1:10", "write at least one address", ""),
        ("[cache]\nlimit = { bytes = 5 }\n", "", "2:19", "", "MiB"),
        ("", "[[route]]\norigin = \"ap\"\n", "5:10", "there is no origin named `ap`", "did you mean `app`?"),
        ("[admin]\nlisten = \"0.0.0.0:1\"\n", "", "2:10", "anyone who can reach 0.0.0.0:1", "token_file"),
    ] {
        sandbox.file("bad.toml", &format!("{before}{ORIGIN}{after}"));
        let said = refused(&sandbox, &["--config", "bad.toml"]);
        let place = format!("[bad.toml:{place}");
        said.assert_refused(2, &[&place, message, remedy]);
        assert!(said.stderr.matches("help: ").count() <= 1, "{}", said.stderr);
    }
    for (text, words) in [
        ("\n", &["there is no origin", "write [[origin]]", "or --origin"][..]),
        (
            "[[origin]]\nname = \"app\"\n",
            &["[bad.toml:1:1]", "the origin `app` has no URL", "http://HOST:PORT"],
        ),
    ] {
        sandbox.file("bad.toml", text);
        refused(&sandbox, &["--config", "bad.toml"]).assert_refused(2, words);
    }
}

#[test]
fn what_was_typed_wrong_is_told() {
    let sandbox = Sandbox::new();
    let origin = ["--origin", "http://127.0.0.1:1"];
    for (arguments, words) in [
        (&[][..], &["--origin <URL>"][..]),
        (&["--origin", "nowhere:x"], &["unknown source `nowhere`", "http"]),
        (&["--config", "absent.toml"], &["cannot read absent.toml: No such file or directory"]),
        (&["--strategy", "breakr"], &["--strategy", "did you mean `breaker`?"]),
        (&["--listen", "nowhere"], &["--listen", "write an address and a port, such as 127.0.0.1:8080"]),
        (&["--max-bytes", "5"], &["--max-bytes", "`5` has no unit: write `5KiB` or `5MiB`"]),
        (&["--max-entries", "0"], &["--max-entries"]),
        (&["--reclaim", "3"], &["--reclaim", "between 0 and 1"]),
        (&["--threads", "0"], &["--threads"]),
        (&["--admin-token-file", "token"], &["requires --admin"]),
        (
            &["--admin", "0.0.0.0:1"],
            &["without a token, anyone who can reach 0.0.0.0:1 could purge and reload"],
        ),
    ] {
        let has_origin = arguments.first().is_none_or(|first| matches!(*first, "--origin" | "--config"));
        let arguments = if has_origin { arguments.to_vec() } else { [&origin, arguments].concat() };
        refused(&sandbox, &arguments).assert_refused(2, words);
    }
}

#[test]
fn no_secret_is_shown() {
    let sandbox = Sandbox::new();
    for (url, message) in [
        ("postgres://ada:sesame@127.0.0.1/db?tabel=x", "unknown parameter `tabel`: did you mean"),
        ("http://ada:sesame@127.0.0.1:1", "the client's `Authorization` is forwarded: remove user and"),
        ("postgres://ada:sesa/sesame@127.0.0.1/db", "write a `/` in"),
    ] {
        let said = refused(&sandbox, &["--origin", url]);
        said.assert_refused(2, &[message]);
        assert_silent(&said);
        silent(&sandbox, url, "");
        let said = refused(&sandbox, &["--config", "stockade.toml"]);
        said.assert_refused(2, &["stockade.toml:", message]);
        assert_silent(&said);
    }
    // The file is all right; the database is not there.
    let said = refused(&sandbox, &["--origin", "postgres://ada:sesame@127.0.0.1:1/db", "--listen", "0"]);
    said.assert_refused(1, &["127.0.0.1:1/db cannot be used", "check the host and the port"]);
    assert_silent(&said);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let sandbox = Sandbox::new();
    let url = "http://127.0.0.1:1";
    let token = sandbox.file("token", "sesame");
    sandbox.file("text.pem", "no certificate");
    for (before, words) in [
        ("tls = { cert = \"absent.pem\", key = \"text.pem\" }", &["absent.pem", "No such file"][..]),
        ("tls = { cert = \"text.pem\", key = \"text.pem\" }", &["text.pem", "certificate"]),
    ] {
        silent(&sandbox, url, before);
        refused(&sandbox, &["--config", "stockade.toml", "--listen", "0"]).assert_refused(2, words);
    }
    let with_token = ["--origin", url, "--listen", "0", "--admin", "0", "--admin-token-file"];
    let said = refused(&sandbox, &[&with_token[..], &[&token]].concat());
    said.assert_refused(2, &["token holds no token: write 16 to 1,024 letters"]);
    assert_silent(&said);
    refused(&sandbox, &[&with_token[..], &["absent"]].concat())
        .assert_refused(2, &["cannot read the token in", "absent", "No such file"]);
    sandbox.file("log.toml", &format!("[log]\npath = \"no/where.log\"\n[[origin]]\nurl = \"{url}\"\n"));
    refused(&sandbox, &["--config", "log.toml", "--listen", "0"])
        .assert_refused(2, &["cannot write the access log to no/where.log: No such file"]);
    refused(&sandbox, &["--origin", "sqlite:absent.db", "--listen", "0"])
        .assert_refused(1, &["no database at absent.db: check the path"]);
}

#[test]
fn a_port_that_is_taken_is_told() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for arguments in [&["--listen", &address][..], &["--listen", "0", "--admin", &address]] {
        let said = refused(&sandbox, &[&["--origin", "http://127.0.0.1:1"], arguments].concat());
        said.assert_refused(1, &[&format!("cannot listen at {address}: Address already in use")]);
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    }
}

#[test]
fn its_help_tells_every_flag_in_lines_of_a_terminal() {
    let sandbox = Sandbox::new();
    let said = sandbox.stockade(&["proxy", "--help"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    for flag in [
        "--origin <URL>",
        "--config <FILE.toml>",
        "--admin <ADDR>",
        "--strategy <NAME>",
        "--max-bytes <SIZE>",
    ] {
        assert!(said.stdout.contains(flag), "{flag}:\n{}", said.stdout);
    }
    for line in said.stdout.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for preset in stockade_cache::PRESETS {
        assert!(said.stdout.contains(preset.name), "{}:\n{}", preset.name, said.stdout);
    }
}
