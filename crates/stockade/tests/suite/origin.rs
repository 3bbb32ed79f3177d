//! `stockade origin` as its users run it: a process that says where it listens, serves until a signal ends it, and says
//! in one message why it does not begin.

use std::{
    fs,
    io::Write,
    net::{TcpListener, TcpStream},
};

use rustix::process::Signal;

use crate::{
    running::{PATIENCE, Running, ask, get},
    support::{Said, Sandbox},
};

const NEWS: &str = r#"{"route": "/news", "body": "all is well", "stages": [{"at": 0}]}"#;

#[track_caller]
fn assert_answered(answer: &str, status: u16, body: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert_eq!(answer.split_once("\r\n\r\n").map(|(_, body)| body), Some(body), "{answer}");
}

/// What it says when it does not begin.
#[track_caller]
fn refused(sandbox: &Sandbox, arguments: &[&str], stdin: &str) -> Said {
    Running::origin(sandbox, arguments, stdin).ended()
}

#[track_caller]
fn assert_one_line(said: &Said) {
    assert!(said.stderr.starts_with("error: ") && said.stderr.lines().count() == 1, "{}", said.stderr);
}

#[test]
fn its_url_is_the_first_line_and_nothing_else_is_on_standard_output() {
    let sandbox = Sandbox::new();
    let recipe = sandbox.file("recipe.json", NEWS);
    for listen in ["0", ":0", "localhost:0", "127.0.0.1:0"] {
        let origin = Running::origin(&sandbox, &["--listen", listen, &recipe], "");
        let address = origin.listens("http");
        assert!(address.ip().is_loopback() && address.port() != 0, "{address}");
        assert_eq!(origin.takes_recipes("http"), address);
        assert_answered(&get(address, "/news"), 200, "all is well");
        let said = origin.stopped_by(Signal::TERM);
        assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "", ""));
    }
}

#[test]
fn a_recipe_comes_from_standard_input_or_later() {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], NEWS);
    assert_answered(&get(origin.listens("http"), "/news"), 200, "all is well");

    // What is on standard input is nobody's business unless it is asked for.
    let empty = Running::origin(&sandbox, &["--listen", "0"], "");
    let address = empty.listens("http");
    let none = "Recipe not set at /news, please POST a recipe for this route to /_admin/add_recipe";
    assert_answered(&get(address, "/news"), 406, none);
    let added = ask(address, "POST", "/_admin/add_recipe", NEWS);
    assert!(added.starts_with("HTTP/1.1 201 "), "{added}");
    assert_answered(&get(address, "/news"), 200, "all is well");
}

#[test]
fn files_of_a_recipe_are_where_the_recipe_is() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path().join("recipes")).unwrap();
    sandbox.file("recipes/seen.txt", "1us\n2us\n");
    let recipe = NEWS.replace("\"at\": 0", "\"at\": 0, \"latency\": \"empirical(seen.txt)\"");
    sandbox.file("recipes/news.json", &recipe);
    let origin = Running::origin(&sandbox, &["recipes/news.json", "--listen", "0"], "");
    assert_answered(&get(origin.listens("http"), "/news"), 200, "all is well");
}

#[test]
fn stages_that_are_held_begin_when_they_are_started() {
    let sandbox = Sandbox::new();
    // The second stage begins in the first nanosecond.
    let recipe = NEWS.replace("{\"at\": 0}", "{\"at\": 0}, {\"at\": \"1ns\", \"status\": 503}");
    let origin = Running::origin(&sandbox, &["-", "--hold", "--listen", "0"], &recipe);
    let address = origin.listens("http");
    assert_answered(&get(address, "/news"), 200, "all is well");
    assert_answered(&get(address, "/_admin/start"), 200, "ok!");
    assert_answered(&get(address, "/news"), 503, "Error 503");
}

#[test]
fn an_admin_of_its_own_is_there_and_nowhere_else() {
    let sandbox = Sandbox::new();
    let admin = ["-", "--listen", "0", "--admin", "127.0.0.1:0"];
    let origin = Running::origin(&sandbox, &admin, NEWS);
    let (address, admin) = (origin.listens("http"), origin.takes_recipes("http"));
    assert_ne!(address, admin);
    assert_answered(&get(admin, "/_admin/routes"), 200, "/news");
    assert!(get(address, "/_admin/routes").starts_with("HTTP/1.1 406 "));
    assert_answered(&get(address, "/news"), 200, "all is well");
}

#[test]
fn an_encrypted_one_says_so_and_tells_its_certificate() {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["--tls", "--listen", "0", "--admin", "0"], "");
    origin.listens("https");
    let certificate = get(origin.takes_recipes("http"), "/_admin/certificate");
    assert!(certificate.contains("\r\n\r\n-----BEGIN CERTIFICATE-----"), "{certificate}");

    let alone = Running::origin(&sandbox, &["--tls", "--listen", "0"], "");
    assert_eq!(alone.listens("https"), alone.takes_recipes("https"));
}

#[test]
fn signals_end_it_whatever_is_under_way() {
    let sandbox = Sandbox::new();
    let silent = NEWS.replace("\"at\": 0", "\"at\": 0, \"fault\": \"silent\"");
    for signal in [Signal::TERM, Signal::INT] {
        let origin = Running::origin(&sandbox, &["-", "--listen", "0"], &silent);
        // From its first line on: nothing else is waited for.
        let mut open = TcpStream::connect_timeout(&origin.listens("http"), PATIENCE).unwrap();
        open.write_all(b"GET /news HTTP/1.1\r\nHost: origin\r\n\r\n").unwrap();
        let said = origin.stopped_by(signal);
        assert_eq!((said.code, said.stdout.as_str()), (0, ""), "{signal:?}: {}", said.stderr);
        assert!(said.stderr.starts_with("recipes: POST to "), "{signal:?}: {}", said.stderr);
        assert_eq!(said.stderr.lines().count(), 1, "{signal:?}: {}", said.stderr);
    }
}

#[test]
fn a_port_that_is_taken_is_told_with_the_remedy() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    // Threads of one origin share a port; two origins do not.
    let other = Running::origin(&sandbox, &["--listen", "0"], "");
    for address in [taken.local_addr().unwrap(), other.listens("http")] {
        let address = address.to_string();
        let message = format!("cannot listen at {address}: Address already in use");
        for arguments in [&["--listen", &address][..], &["--listen", "0", "--admin", &address]] {
            let said = refused(&sandbox, arguments, "");
            said.assert_refused(1, &[&message, "choose another port, or 0 for a free one"]);
            assert_one_line(&said);
        }
    }
}

#[test]
fn a_bad_recipe_is_told_its_place_and_its_remedy() {
    let sandbox = Sandbox::new();
    for (recipe, place, message, remedy) in [
        ("", "1:1", "the text contains no recipe", "write a recipe, such as"),
        (r#"{"body": "b""#, "1:1", "the object that begins here is not closed", "write `}` at its end"),
        (r#"{"body": "b", "stagse": []}"#, "1:15", "unknown key `stagse`", "did you mean `stages`?"),
        (
            "{\n  \"body\": \"b\",\n  \"stages\": [{\"at\": 0, \"latency\": \"5\"}]\n}\n",
            "3:35",
            "`5` has no unit",
            "write `5ms` or `5s`",
        ),
    ] {
        sandbox.file("bad.json", recipe);
        for (argument, name, stdin) in [("bad.json", "bad.json", ""), ("-", "standard input", recipe)] {
            let said = refused(&sandbox, &[argument, "--listen", "0"], stdin);
            said.assert_refused(2, &[&format!("[{name}:{place}]"), message, remedy]);
            assert_eq!(said.stderr.matches("help: ").count(), 1, "{}", said.stderr);
        }
    }
}

#[test]
fn a_recipe_that_cannot_be_read_is_told_why() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path().join("folder")).unwrap();
    fs::write(sandbox.path().join("latin.json"), b"{\"body\": \"caf\xe9\", \"stages\": [{\"at\": 0}]}")
        .unwrap();
    for (path, message) in [
        ("absent.json", "cannot read absent.json: No such file or directory"),
        ("folder", "cannot read folder: Is a directory"),
        ("latin.json", "cannot read latin.json: stream did not contain valid UTF-8"),
    ] {
        let said = refused(&sandbox, &[path, "--listen", "0"], "");
        said.assert_refused(2, &[message]);
        assert_one_line(&said);
    }
}

#[test]
fn a_content_that_cannot_be_fetched_is_no_fault_of_the_recipe() {
    let sandbox = Sandbox::new();
    // Nobody listens at port 1.
    let recipe =
        r#"{"route": "/far", "origin": "http://127.0.0.1:1/page?token=sesame", "stages": [{"at": 0}]}"#;
    let said = refused(&sandbox, &["-", "--listen", "0"], recipe);
    said.assert_refused(1, &["cannot fetch http://127.0.0.1:1/page?... for route `/far`: ", "refused"]);
    assert_one_line(&said);
    assert!(!said.stderr.contains("sesame"), "{}", said.stderr);
}

#[test]
fn what_ends_refusing_needs_an_admin_of_its_own() {
    let sandbox = Sandbox::new();
    let recipe = NEWS.replace("{\"at\": 0}", "{\"at\": 0}, {\"at\": \"1h\", \"fault\": \"refuse\"}");
    let said = refused(&sandbox, &["-", "--listen", "0"], &recipe);
    said.assert_refused(2, &["every route refuses connections", "start the origin with --admin ADDR"]);
    assert_one_line(&said);
    let origin = Running::origin(&sandbox, &["-", "--listen", "0", "--admin", "0"], &recipe);
    assert_answered(&get(origin.listens("http"), "/news"), 200, "all is well");
}

#[test]
fn what_was_typed_wrong_is_told() {
    let sandbox = Sandbox::new();
    sandbox.file("text.pem", "no certificate");
    let address = "write an address and a port, such as 127.0.0.1:8080, or a port alone";
    for (arguments, words) in [
        (&["--cert", "text.pem"][..], &["not provided", "--key <FILE>"][..]),
        (&["--key", "text.pem"], &["not provided", "--cert <FILE>"]),
        // `--tls` makes a certificate where none is given; it does not make the other half of one.
        (&["--tls", "--cert", "text.pem"], &["not provided", "--key <FILE>"]),
        (
            &["--tls", "--cert", "absent.pem", "--key", "text.pem"],
            &["absent.pem: cannot read it: No such file"],
        ),
        (
            &["--cert", "text.pem", "--key", "text.pem"],
            &["text.pem: the file contains no certificate in PEM"],
        ),
        (&["--listen", "nowhere"], &["--listen", address]),
        (&["--admin", "70000"], &["--admin", address]),
        (&["--threads", "0"], &["--threads"]),
        (&["one.json", "two.json"], &["two.json"]),
    ] {
        refused(&sandbox, arguments, "").assert_refused(2, words);
    }
}
