//! What one client can take from the others: memory, threads, time.

use std::{
    collections::BTreeSet,
    env,
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use stockade_origin::{Options, Origin, Refused, StartError};

use crate::support::{PATIENCE, add, connect, get, options, page, send, serving, with_admin};

const SECOND: Duration = Duration::from_secs(1);

fn list(recipes: impl Iterator<Item = String>) -> String {
    format!("[{}]", recipes.collect::<Vec<_>>().join(","))
}

/// Runs this test in a program of its own, whose shell does something first; whether this is that program.
fn alone(name: &str, first: &str) -> bool {
    if env::var_os("ALONE").is_some() {
        return true;
    }
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{first}; exec \"$0\" --exact \"$1\" --nocapture")]);
    let told = shell.arg(env::current_exe().unwrap()).arg(name).env("ALONE", "1").output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    false
}

#[test]
fn what_is_declared_is_summed_up_before_anything_is_made() {
    let origin = serving(r#"{"route": "/first", "random_content": "1mb", "stages": [{"at": 0}]}"#);
    let at = origin.address;
    let began = Instant::now();
    for body in
        [r#""random_content": "256mb""#, r#""body": "<<256mb>>""#, r#""body": "<<128mb>><<version>>""#]
    {
        let recipes =
            list((0..1_000).map(|n| format!(r#"{{"route": "/{n}", {body}, "stages": [{{"at": 0}}]}}"#)));
        let reply = add(at, &recipes);
        assert_eq!(reply.status, 413, "{}", reply.text());
    }
    // With what stays in force, but without what is replaced.
    let rest = |route: &str| {
        let rest = format!(
            r#"{{"route": "/rest", "random_content": "0b", "stages": []}}, {{"route": "{route}",
                                "body": "<<version>><<256mb>>", "stages": []}}"#
        );
        format!("[{rest}, {{\"route\": \"/more\", \"body\": \"<<256mb>>\"}}]")
    };
    assert_eq!(add(at, &rest("/second")).status, 413);
    assert!(began.elapsed() < SECOND * 5, "nothing was made: {:?}", began.elapsed());
    assert_eq!(page(at, "routes"), "/first");
}

#[test]
fn whoever_gives_up_holds_up_nobody() {
    let origin = serving(r#"{"route": "/a", "body": "a", "stages": [{"at": 0}]}"#);
    let at = origin.address;
    // It takes connections in, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let far = format!(r#"{{"route": "/far", "origin": "http://{}/"}}"#, silent.local_addr().unwrap());
    let mut tcp = connect(at).unwrap();
    send(&mut tcp, "POST", "/_admin/add_recipe", "", &far);
    let (waiting, _) = silent.accept().unwrap();
    let began = Instant::now();
    assert_eq!(get(at, "/a").text(), "a", "requests go on");
    assert_eq!(page(at, "start"), "ok!", "and so do stages");
    drop(tcp);
    assert_eq!(add(at, r#"{"route": "/b", "body": "b", "stages": [{"at": 0}]}"#).status, 201);
    assert!(began.elapsed() < SECOND * 5, "{:?}", began.elapsed());
    assert_eq!(page(at, "routes"), "/a\n/b");
    drop(waiting);
}

#[test]
fn contents_are_fetched_several_at_once() {
    let far = serving(r#"{"body": "far", "stages": [{"at": 0, "latency": "500ms"}]}"#);
    let origin = Origin::start(&Options::default()).unwrap();
    let recipes =
        list((0..16).map(|n| format!(r#"{{"route": "/{n}", "origin": "http://{}/{n}"}}"#, far.address)));
    let began = Instant::now();
    assert_eq!(add(origin.address, &recipes).status, 201);
    assert!(began.elapsed() < SECOND * 4, "{:?}", began.elapsed());
}

#[test]
fn name_and_password_of_a_url_are_sent_and_never_told() {
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = far.local_addr().unwrap();
    let asked = thread::spawn(move || {
        let (mut tcp, _) = far.accept().unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            tcp.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let moved = "HTTP/1.1 302 Found\r\nLocation: http://ada:s%20ecret@host/\r\nContent-Length: 0\r\n\r\n";
        tcp.write_all(moved.as_bytes()).unwrap();
        String::from_utf8(head).unwrap()
    });
    let origin = Origin::start(&Options::default()).unwrap();
    let reply = add(origin.address, &format!(r#"{{"route": "/", "origin": "http://ada:s%20ecret@{at}/x"}}"#));
    // "ada:s ecret"
    let head = asked.join().unwrap().to_lowercase();
    assert!(head.contains("\r\nauthorization: basic ywrhonmgzwnyzxq=\r\n"), "{head}");
    assert_eq!(reply.status, 502);
    let told = reply.text();
    assert!(told.contains("write http://host/ instead") && !told.contains("ecret"), "{told}");
}

#[test]
fn plain_http_needs_no_authority() {
    if !alone(
        "bounds::plain_http_needs_no_authority",
        "export SSL_CERT_FILE=/dev/null SSL_CERT_DIR=/dev/null",
    ) {
        return;
    }
    let far = serving(r#"{"body": "far", "stages": [{"at": 0}]}"#);
    let origin = Origin::start(&Options::default()).unwrap();
    let recipe =
        |scheme: &str| format!(r#"{{"origin": "{scheme}://{}/", "stages": [{{"at": 0}}]}}"#, far.address);
    assert_eq!(add(origin.address, &recipe("http")).status, 201);
    assert_eq!(get(origin.address, "/").text(), "far");
    let reply = add(origin.address, &recipe("https"));
    assert!(reply.text().contains("this machine trusts no authority"), "{}", reply.text());
}

/// Nothing tells when a kernel is done.
fn pass(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        thread::yield_now();
    }
}

#[test]
fn one_that_could_not_listen_again_tries_again() {
    if !alone("bounds::one_that_could_not_listen_again_tries_again", "ulimit -n 64") {
        return;
    }
    let recipe = r#"{"body": "b", "stages": [{"at": 0}, {"at": "200ms", "fault": "refuse"}, {"at": "3s"}]}"#;
    let (origin, admin) = with_admin(recipe);
    let began = Instant::now();
    let is_refused =
        |tcp: io::Result<TcpStream>| tcp.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    while !is_refused(connect(origin.address)) {
        assert!(began.elapsed() < SECOND * 3, "it never refused");
        thread::yield_now();
    }
    // Connections that were open then are closed now.
    pass(SECOND / 5);
    // The last descriptors are taken while nobody listens, and given back when somebody should.
    let taken: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    pass((SECOND * 7 / 2).saturating_sub(began.elapsed()));
    drop(taken);
    let began = Instant::now();
    while connect(origin.address).is_err() {
        assert!(began.elapsed() < SECOND * 5, "it is deaf");
        thread::yield_now();
    }
    assert_eq!(page(admin, "status"), "ok!");
}

#[test]
fn held_stages_that_refuse_lock_nobody_out() {
    let recipe = r#"{"body": "b", "stages": [{"at": 0, "fault": "refuse"}, {"at": "1s"}]}"#;
    let held = |recipe| Origin::start(&Options { is_held: true, ..options(recipe) });
    assert!(matches!(held(recipe), Err(StartError::Refused(Refused::Final))));
    let origin = held(r#"{"body": "b", "stages": [{"at": 0}]}"#).unwrap();
    let reply = add(origin.address, recipe);
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("until stages are started"), "{}", reply.text());
    // Once they are not held any more, it is over in a second.
    page(origin.address, "start");
    assert_eq!(add(origin.address, recipe).status, 201);
}

#[test]
fn a_restart_counts_from_none_on() {
    let origin = serving(r#"{"body": "b", "stages": [{"at": 0}]}"#);
    let at = origin.address;
    add(at, r#"{"route": "/more", "body": "b", "stages": [{"at": 0}]}"#);
    for path in ["/", "/more", "/"] {
        get(at, path);
    }
    page(at, "restart");
    get(at, "/");
    let count: Value = serde_json::from_str(&page(at, "current_count")).unwrap();
    assert_eq!((&count["total_requests"], &count["200"]), (&1.into(), &1.into()));
}

#[test]
fn last_modified_is_that_of_the_start() {
    let recipe = r#"{"body": "b", "stages": [{"at": 0}], "last_modified": true}"#;
    let origin = Origin::start(&Options { is_held: true, ..options(recipe) }).unwrap();
    let told = || get(origin.address, "/").header("last-modified").to_owned();
    assert!(told().contains("1970"));
    page(origin.address, "start");
    assert!(!told().contains("1970"), "{}", told());
}

#[test]
fn a_large_version_is_made_once_for_all_who_wait() {
    let recipe = r#"{"body": "<<version>><<4mb>>", "stages": [{"at": 0}], "etag": true, "version_every": "400ms",
                     "headers": {"content-encoding": "gzip"}}"#;
    let small = r#"{"route": "/small", "body": "b", "stages": [{"at": 0}]}"#;
    let origin = serving(&format!("[{recipe}, {small}]"));
    let at = origin.address;
    let ask_all = || {
        let asking: Vec<_> =
            (0..16).map(|_| thread::spawn(move || get(at, "/").header("etag").to_owned())).collect();
        // It takes tens of milliseconds to be packed; who asks for something else does not wait for it.
        assert_eq!(get(at, "/small").text(), "b");
        asking.into_iter().map(|asking| asking.join().unwrap()).collect::<BTreeSet<_>>()
    };
    let began = Instant::now();
    let tags: BTreeSet<_> = (0..3).flat_map(|_| ask_all()).collect();
    let versions = began.elapsed().as_millis() / 400 + 2;
    assert!(tags.len() as u128 <= versions, "a version has one tag: {tags:?}");
}

#[test]
fn what_names_the_body_goes_out_with_no_other_text() {
    let recipe = |status: u16| {
        format!(
            r#"{{"route": "/{status}", "body": "b", "stages": [{{"at": 0, "status": {status}}}], "headers":
                {{"etag": "\"a\"", "last-modified": "Tue, 15 Nov 1994 12:45:26 GMT", "accept-ranges": "bytes"}}}}"#
        )
    };
    let origin = serving(&list([404, 500].map(recipe).into_iter()));
    for path in ["/404", "/500"] {
        let reply = get(origin.address, path);
        for name in ["etag", "last-modified", "accept-ranges"] {
            assert_eq!(reply.header(name), "", "{path}: {name}");
        }
    }
}

#[test]
fn routes_are_found_by_the_longest_beginning() {
    let routes = ["/*", "/a*", "/ab*", "/abc/*", "/abd*", "/é*"].map(|route| route.replace('é', "%C3%A9"));
    let recipes = list(
        routes
            .iter()
            .map(|route| format!(r#"{{"route": "{route}", "body": "{route}", "stages": [{{"at": 0}}]}}"#)),
    );
    let origin = serving(&recipes);
    for (path, route) in
        [("/", "/*"), ("/a", "/a*"), ("/abc", "/ab*"), ("/abc/", "/abc/*"), ("/abd/e", "/abd*")]
    {
        assert_eq!(get(origin.address, path).text(), route, "{path}");
    }
}
