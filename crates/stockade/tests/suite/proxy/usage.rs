//! Invalid arguments and files: exit code 2 and one message with the place and the remedy, without secrets.

use std::net::TcpListener;

use super::config_without_log;
use crate::{
    running::Running,
    support::{ProgramOutput, Sandbox},
};

/// The output of a proxy that does not start.
#[track_caller]
fn refused(sandbox: &Sandbox, arguments: &[&str]) -> ProgramOutput {
    Running::start(sandbox, &[&["proxy"], arguments].concat(), "").ended()
}

#[track_caller]
fn assert_no_secret(output: &ProgramOutput) {
    assert!(!output.stderr.contains("sesame"), "{}", output.stderr);
}

const ORIGIN: &str = "[[origin]]\nname = \"app\"\nurl = \"http://127.0.0.1:1\"\n";

#[test]
fn file_errors_name_the_place_and_the_remedy() {
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
        let output = refused(&sandbox, &["--config", "bad.toml"]);
        let place = format!("[bad.toml:{place}");
        output.assert_refused(2, &[&place, message, remedy]);
        assert!(output.stderr.matches("help: ").count() <= 1, "{}", output.stderr);
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
fn argument_errors_name_the_remedy() {
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
        let output = refused(&sandbox, &["--origin", url]);
        output.assert_refused(2, &[message]);
        assert_no_secret(&output);
        config_without_log(&sandbox, url, "");
        let output = refused(&sandbox, &["--config", "stockade.toml"]);
        output.assert_refused(2, &["stockade.toml:", message]);
        assert_no_secret(&output);
    }
    // The URL is valid, and the database does not run.
    let output = refused(&sandbox, &["--origin", "postgres://ada:sesame@127.0.0.1:1/db", "--listen", "0"]);
    output.assert_refused(1, &["127.0.0.1:1/db cannot be used", "check the host and the port"]);
    assert_no_secret(&output);
}

#[test]
fn unusable_files_are_named() {
    let sandbox = Sandbox::new();
    let url = "http://127.0.0.1:1";
    let token = sandbox.file("token", "sesame");
    sandbox.file("text.pem", "no certificate");
    for (before, words) in [
        ("tls = { cert = \"absent.pem\", key = \"text.pem\" }", &["absent.pem", "No such file"][..]),
        ("tls = { cert = \"text.pem\", key = \"text.pem\" }", &["text.pem", "certificate"]),
    ] {
        config_without_log(&sandbox, url, before);
        refused(&sandbox, &["--config", "stockade.toml", "--listen", "0"]).assert_refused(2, words);
    }
    let with_token = ["--origin", url, "--listen", "0", "--admin", "0", "--admin-token-file"];
    let output = refused(&sandbox, &[&with_token[..], &[&token]].concat());
    output.assert_refused(2, &["token holds no token: write 16 to 1,024 letters"]);
    assert_no_secret(&output);
    refused(&sandbox, &[&with_token[..], &["absent"]].concat())
        .assert_refused(2, &["cannot read the token in", "absent", "No such file"]);
    sandbox.file("log.toml", &format!("[log]\npath = \"no/where.log\"\n[[origin]]\nurl = \"{url}\"\n"));
    refused(&sandbox, &["--config", "log.toml", "--listen", "0"])
        .assert_refused(2, &["cannot write the access log to no/where.log: No such file"]);
    refused(&sandbox, &["--origin", "sqlite:absent.db", "--listen", "0"])
        .assert_refused(1, &["no database at absent.db: check the path"]);
}

#[test]
fn check_prints_ok_without_listening_or_writing() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let text = format!("listen = [\"{listen}\"]\n[log]\npath = \"access.log\"\n{ORIGIN}");
    sandbox.file("stockade.toml", &text);
    let output = refused(&sandbox, &["--config", "stockade.toml", "--check"]);
    assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "ok\n", ""));
    assert!(!sandbox.path().join("access.log").exists());
}

#[test]
fn check_prints_every_problem_with_its_place() {
    let sandbox = Sandbox::new();
    let tls = "[tls]\ncert = \"absent.pem\"\nkey = \"absent.pem\"\n";
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\ntoken_file = \"none\"\n";
    let origin = "[[origin]]\nname = \"app\"\nurl = \"https://127.0.0.1:1\"\nca = \"no-ca.pem\"\n";
    sandbox.file("bad.toml", &format!("{tls}{admin}[log]\npath = \"no/where.log\"\n{origin}"));
    let output = refused(&sandbox, &["--config", "bad.toml", "--check"]);
    assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{}", output.stderr);
    let lines: Vec<&str> = output.stderr.lines().collect();
    let [tls, log, origin, token] = *lines else { panic!("{}", output.stderr) };
    for (line, place, words) in [
        (tls, "[tls]", "absent.pem"),
        (log, "[log] path", "cannot write the access log to no/where.log: No such file"),
        (origin, "[[origin]] app", "no-ca.pem"),
        (token, "[admin] token_file", "cannot read the token in "),
    ] {
        assert!(line.starts_with(&format!("error: bad.toml: {place}: ")) && line.contains(words), "{line}");
    }
    sandbox.file("bad.toml", &format!("lisen = []\n{ORIGIN}"));
    refused(&sandbox, &["--config", "bad.toml", "--check"])
        .assert_refused(2, &["[bad.toml:1:1]", "unknown key `lisen`", "did you mean `listen`?"]);
}

#[test]
fn port_in_use_is_reported() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for arguments in [&["--listen", &address][..], &["--listen", "0", "--admin", &address]] {
        let output = refused(&sandbox, &[&["--origin", "http://127.0.0.1:1"], arguments].concat());
        output.assert_refused(1, &[&format!("cannot listen at {address}: Address already in use")]);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
}

#[test]
fn help_lists_flags_and_presets_in_100_columns() {
    let sandbox = Sandbox::new();
    let output = sandbox.stockade(&["proxy", "--help"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    for flag in [
        "--origin <URL>",
        "--config <FILE.toml>",
        "--admin <ADDR>",
        "--strategy <NAME>",
        "--max-bytes <SIZE>",
    ] {
        assert!(output.stdout.contains(flag), "{flag}:\n{}", output.stdout);
    }
    for line in output.stdout.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for preset in &stockade_cache::PRESETS {
        assert!(output.stdout.contains(preset.name), "{}:\n{}", preset.name, output.stdout);
    }
}
