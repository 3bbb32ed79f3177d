//! `stockade origin` as its users run it: a process that prints its address, serves until a signal, and exits with one
//! message if it cannot start.

use std::{
    fs,
    io::Write,
    net::{TcpListener, TcpStream},
};

use rustix::process::Signal;

use crate::{
    running::{PATIENCE, Running, get, request},
    support::{ProgramOutput, Sandbox},
};

const NEWS: &str = r#"{"route": "/news", "body": "all is well", "stages": [{"at": 0}],
    "headers": {"cache-control": "max-age=60"}}"#;

#[track_caller]
fn assert_answered(answer: &str, status: u16, body: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert_eq!(answer.split_once("\r\n\r\n").map(|(_, body)| body), Some(body), "{answer}");
}

/// The output of an origin that does not start.
#[track_caller]
fn refused(sandbox: &Sandbox, arguments: &[&str], stdin: &str) -> ProgramOutput {
    Running::origin(sandbox, arguments, stdin).ended()
}

#[track_caller]
fn assert_one_line(output: &ProgramOutput) {
    assert!(output.stderr.starts_with("error: ") && output.stderr.lines().count() == 1, "{}", output.stderr);
}

#[test]
fn standard_output_is_one_line_with_the_url() {
    let sandbox = Sandbox::new();
    let recipe = sandbox.file("recipe.json", NEWS);
    for listen in ["0", ":0", "localhost:0", "127.0.0.1:0"] {
        let origin = Running::origin(&sandbox, &["--listen", listen, &recipe], "");
        let address = origin.listens("http");
        assert!(address.ip().is_loopback() && address.port() != 0, "{address}");
        assert_eq!(origin.takes_recipes("http"), address);
        assert_answered(&get(address, "/news"), 200, "all is well");
        let output = origin.stopped_by(Signal::TERM);
        assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (0, "", ""));
    }
}

#[test]
fn recipe_without_cache_headers_is_reported_with_the_header_to_add() {
    let sandbox = Sandbox::new();
    let recipe = |route: &str, headers: &str| {
        format!(r#"{{"route": "{route}", "body": "", "stages": [{{"at": 0}}], "headers": {{{headers}}}}}"#)
    };
    let fresh = recipe("/fresh", r#""CDN-Cache-Control": "max-age=60""#);
    let private = recipe("/own", r#""Cache-Control": "private""#);
    let all = format!("[{}, {fresh}, {private}, {}]", recipe("/news*", ""), recipe("/sport", r#""x": "y""#));
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], &all);
    origin.takes_recipes("http");
    assert_eq!(
        origin.stderr_line(),
        "note: a cache that obeys headers will store nothing of /news*, /sport: the recipe has no cache-control, so the answers \
         are private; add \"headers\": {\"cache-control\": \"max-age=60\"}\n"
    );
    let routes: Vec<String> = (0..9).map(|number| recipe(&format!("/{number}"), "")).collect();
    let many = Running::origin(&sandbox, &["-", "--listen", "0"], &format!("[{}]", routes.join(",")));
    many.takes_recipes("http");
    assert!(many.stderr_line().contains(" of /0, /1, /2, /3, /4 and 4 more: "));
}

#[test]
fn recipe_comes_from_standard_input_or_the_admin_api() {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["-", "--listen", "0"], NEWS);
    assert_answered(&get(origin.listens("http"), "/news"), 200, "all is well");

    // Without `-` the origin does not read standard input.
    let empty = Running::origin(&sandbox, &["--listen", "0"], "");
    let address = empty.listens("http");
    let none = "Recipe not set at /news, please POST a recipe for this route to /_admin/add_recipe";
    assert_answered(&get(address, "/news"), 406, none);
    let added = request(address, "POST", "/_admin/add_recipe", NEWS);
    assert!(added.starts_with("HTTP/1.1 201 "), "{added}");
    assert_answered(&get(address, "/news"), 200, "all is well");
}

#[test]
fn paths_in_a_recipe_are_relative_to_it() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path().join("recipes")).unwrap();
    sandbox.file("recipes/seen.txt", "1us\n2us\n");
    let recipe = NEWS.replace("\"at\": 0", "\"at\": 0, \"latency\": \"empirical(seen.txt)\"");
    sandbox.file("recipes/news.json", &recipe);
    let origin = Running::origin(&sandbox, &["recipes/news.json", "--listen", "0"], "");
    assert_answered(&get(origin.listens("http"), "/news"), 200, "all is well");
}

#[test]
fn held_stages_begin_with_the_start_request() {
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
fn separate_admin_listener_has_the_admin_api_alone() {
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
fn tls_origin_serves_its_certificate() {
    let sandbox = Sandbox::new();
    let origin = Running::origin(&sandbox, &["--tls", "--listen", "0", "--admin", "0"], "");
    origin.listens("https");
    let certificate = get(origin.takes_recipes("http"), "/_admin/certificate");
    assert!(certificate.contains("\r\n\r\n-----BEGIN CERTIFICATE-----"), "{certificate}");

    let alone = Running::origin(&sandbox, &["--tls", "--listen", "0"], "");
    assert_eq!(alone.listens("https"), alone.takes_recipes("https"));
}

#[test]
fn signals_end_the_origin_with_requests_in_flight() {
    let sandbox = Sandbox::new();
    let silent = NEWS.replace("\"at\": 0", "\"at\": 0, \"fault\": \"silent\"");
    for signal in [Signal::TERM, Signal::INT] {
        let origin = Running::origin(&sandbox, &["-", "--listen", "0"], &silent);
        // Connections are accepted once the first line is printed.
        let mut open = TcpStream::connect_timeout(&origin.listens("http"), PATIENCE).unwrap();
        open.write_all(b"GET /news HTTP/1.1\r\nHost: origin\r\n\r\n").unwrap();
        let output = origin.stopped_by(signal);
        assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{signal:?}: {}", output.stderr);
        assert!(output.stderr.starts_with("recipes: POST to "), "{signal:?}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{signal:?}: {}", output.stderr);
    }
}

#[test]
fn port_in_use_is_reported_with_the_remedy() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    // Threads of one origin share a port; two origins do not.
    let other = Running::origin(&sandbox, &["--listen", "0"], "");
    for address in [taken.local_addr().unwrap(), other.listens("http")] {
        let address = address.to_string();
        let message = format!("cannot listen at {address}: Address already in use");
        for arguments in [&["--listen", &address][..], &["--listen", "0", "--admin", &address]] {
            let output = refused(&sandbox, arguments, "");
            output.assert_refused(1, &[&message, "choose another port, or 0 for a free one"]);
            assert_one_line(&output);
        }
    }
}

#[test]
fn recipe_errors_name_the_place_and_the_remedy() {
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
            let output = refused(&sandbox, &[argument, "--listen", "0"], stdin);
            output.assert_refused(2, &[&format!("[{name}:{place}]"), message, remedy]);
            assert_eq!(output.stderr.matches("help: ").count(), 1, "{}", output.stderr);
        }
    }
}

#[test]
fn unreadable_recipe_is_reported_with_the_reason() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path().join("folder")).unwrap();
    fs::write(sandbox.path().join("latin.json"), b"{\"body\": \"caf\xe9\", \"stages\": [{\"at\": 0}]}")
        .unwrap();
    for (path, message) in [
        ("absent.json", "cannot read absent.json: No such file or directory"),
        ("folder", "cannot read folder: Is a directory"),
        ("latin.json", "cannot read latin.json: stream did not contain valid UTF-8"),
    ] {
        let output = refused(&sandbox, &[path, "--listen", "0"], "");
        output.assert_refused(2, &[message]);
        assert_one_line(&output);
    }
}

#[test]
fn unfetchable_content_exits_with_1() {
    let sandbox = Sandbox::new();
    // Nothing listens on port 1.
    let recipe =
        r#"{"route": "/far", "origin": "http://127.0.0.1:1/page?token=sesame", "stages": [{"at": 0}]}"#;
    let output = refused(&sandbox, &["-", "--listen", "0"], recipe);
    output.assert_refused(1, &["cannot fetch http://127.0.0.1:1/page?... for route `/far`: ", "refused"]);
    assert_one_line(&output);
    assert!(!output.stderr.contains("sesame"), "{}", output.stderr);
}

#[test]
fn recipe_that_ends_refusing_needs_a_separate_admin_listener() {
    let sandbox = Sandbox::new();
    let recipe = NEWS.replace("{\"at\": 0}", "{\"at\": 0}, {\"at\": \"1h\", \"fault\": \"refuse\"}");
    let output = refused(&sandbox, &["-", "--listen", "0"], &recipe);
    output.assert_refused(2, &["every route refuses connections", "start the origin with --admin ADDR"]);
    assert_one_line(&output);
    let origin = Running::origin(&sandbox, &["-", "--listen", "0", "--admin", "0"], &recipe);
    assert_answered(&get(origin.listens("http"), "/news"), 200, "all is well");
}

#[test]
fn argument_errors_name_the_remedy() {
    let sandbox = Sandbox::new();
    sandbox.file("text.pem", "no certificate");
    let address = "write an address and a port, such as 127.0.0.1:8080, or a port alone";
    for (arguments, words) in [
        (&["--cert", "text.pem"][..], &["not provided", "--key <FILE>"][..]),
        (&["--key", "text.pem"], &["not provided", "--cert <FILE>"]),
        // `--tls` creates a certificate with its key, and never a key for a given certificate.
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
