//! Limits on what one client can take from the others: memory, threads, time.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use stockade_origin::{AddRecipesError, Origin, OriginOptions, OriginStartError};
use stockade_services::in_own_process;

use crate::http::support::{
    HANG_TIMEOUT, add_recipes, connect, current_count, get, options, page, receive, send, start,
    start_with_admin, wait_until,
};

/// Bound of the origin for one fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

fn list(recipes: impl Iterator<Item = String>) -> String {
    format!("[{}]", recipes.collect::<Vec<_>>().join(","))
}

#[test]
fn declared_sizes_are_checked_before_contents_are_built() {
    // The peak of memory is that of the whole process.
    in_own_process(
        "http::bounds::declared_sizes_are_checked_before_contents_are_built",
        "",
        reject_oversized_recipes,
    );
}

fn reject_oversized_recipes() {
    let origin = start(r#"{"route": "/first", "random_content": "1mb", "stages": [{"at": 0}]}"#);
    let address = origin.address;
    for body in
        [r#""random_content": "256mb""#, r#""body": "<<256mb>>""#, r#""body": "<<128mb>><<version>>""#]
    {
        let recipes =
            list((0..1_000).map(|n| format!(r#"{{"route": "/{n}", {body}, "stages": [{{"at": 0}}]}}"#)));
        let reply = add_recipes(address, &recipes);
        assert_eq!(reply.status, 413, "{}", reply.text());
    }
    // The sum includes the contents in force that the text does not replace. A template with `<<version>>` counts
    // three times.
    let text = r#"[{"route": "/rest", "random_content": "0b", "stages": []},
                   {"route": "/second", "body": "<<version>><<256mb>>", "stages": []},
                   {"route": "/more", "body": "<<256mb>>"}]"#;
    assert_eq!(add_recipes(address, text).status, 413);
    assert_eq!(page(address, "routes"), "/first");
    let peak = peak_resident_mib();
    assert!(peak < 128, "a content of 128 MiB or more was built: {peak} MiB at the peak");
}

fn peak_resident_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
    peak.unwrap().trim().parse::<u64>().unwrap() >> 10
}

#[test]
fn abandoned_recipe_does_not_block_others() {
    let origin = start(r#"{"route": "/a", "body": "a", "stages": [{"at": 0}]}"#);
    let address = origin.address;
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let recipe = format!(r#"{{"route": "/far", "origin": "http://{}/"}}"#, silent.local_addr().unwrap());
    let mut tcp = connect(address).unwrap();
    send(&mut tcp, "POST", "/_admin/add_recipe", "", &recipe);
    let (fetch, _) = silent.accept().unwrap();
    let began = Instant::now();
    assert_eq!(get(address, "/a").text(), "a", "requests are served meanwhile");
    assert_eq!(page(address, "start"), "ok!", "stages can be started meanwhile");
    drop(tcp);
    assert_eq!(add_recipes(address, r#"{"route": "/b", "body": "b", "stages": [{"at": 0}]}"#).status, 201);
    assert!(began.elapsed() < FETCH_TIMEOUT, "the abandoned recipe held the others up until its timeout");
    assert_eq!(page(address, "routes"), "/a\n/b");
    drop(fetch);
}

#[test]
fn sixteen_contents_are_fetched_at_once() {
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let far_address = far.local_addr().unwrap();
    let server = thread::spawn(move || {
        // No fetch is answered before all sixteen have connected.
        let fetches: Vec<_> = (0..16).map(|_| far.accept().unwrap().0).collect();
        for mut fetch in fetches {
            read_head(&mut fetch);
            fetch.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nfar").unwrap();
        }
    });
    let origin = Origin::start(&OriginOptions::default()).unwrap();
    let recipes =
        list((0..16).map(|n| format!(r#"{{"route": "/{n}", "origin": "http://{far_address}/{n}"}}"#)));
    let reply = add_recipes(origin.address, &recipes);
    assert_eq!(reply.status, 201, "{}", reply.text());
    server.join().unwrap();
}

/// Reads a request up to the end of its head.
fn read_head(tcp: &mut TcpStream) -> String {
    tcp.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tcp.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn credentials_of_a_url_are_sent_and_never_shown() {
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let far_address = far.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut tcp, _) = far.accept().unwrap();
        let head = read_head(&mut tcp);
        let redirect =
            "HTTP/1.1 302 Found\r\nLocation: http://ada:s%20ecret@host/\r\nContent-Length: 0\r\n\r\n";
        tcp.write_all(redirect.as_bytes()).unwrap();
        head
    });
    let origin = Origin::start(&OriginOptions::default()).unwrap();
    let recipe = format!(r#"{{"route": "/", "origin": "http://ada:s%20ecret@{far_address}/x"}}"#);
    let reply = add_recipes(origin.address, &recipe);
    // Base64 of "ada:s ecret", in lower case.
    let head = server.join().unwrap().to_lowercase();
    assert!(head.contains("\r\nauthorization: basic ywrhonmgzwnyzxq=\r\n"), "{head}");
    assert_eq!(reply.status, 502);
    let text = reply.text();
    assert!(text.contains("write http://host/ instead") && !text.contains("ecret"), "{text}");
}

#[test]
fn plain_http_needs_no_certificate_authority() {
    in_own_process(
        "http::bounds::plain_http_needs_no_certificate_authority",
        "export SSL_CERT_FILE=/dev/null SSL_CERT_DIR=/dev/null",
        fetch_without_authorities,
    );
}

fn fetch_without_authorities() {
    let far = start(r#"{"body": "far", "stages": [{"at": 0}]}"#);
    let origin = Origin::start(&OriginOptions::default()).unwrap();
    let recipe =
        |scheme: &str| format!(r#"{{"origin": "{scheme}://{}/", "stages": [{{"at": 0}}]}}"#, far.address);
    assert_eq!(add_recipes(origin.address, &recipe("http")).status, 201);
    assert_eq!(get(origin.address, "/").text(), "far");
    let reply = add_recipes(origin.address, &recipe("https"));
    assert!(reply.text().contains("the system has no trusted certificate authority"), "{}", reply.text());
}

#[test]
fn listener_without_a_descriptor_tries_again() {
    let name = "http::bounds::listener_without_a_descriptor_tries_again";
    in_own_process(name, "ulimit -n 64", listen_with_64_descriptors);
}

fn listen_with_64_descriptors() {
    let serves = r#"{"body": "b", "stages": [{"at": 0}]}"#;
    let refuses = r#"{"body": "b", "stages": [{"at": 0, "fault": "refuse"}]}"#;
    let (origin, admin_address) = start_with_admin(serves);
    // Two connections that stay open, since no new one can be opened without a descriptor.
    let (mut open, mut admin) = (connect(origin.address).unwrap(), connect(admin_address).unwrap());
    let exchange = |tcp: &mut TcpStream, method: &str, path: &str, body: &str| {
        send(tcp, method, path, "", body);
        receive(tcp, method).unwrap()
    };
    assert_eq!(exchange(&mut open, "GET", "/", "").status, 200);
    assert_eq!(exchange(&mut admin, "POST", "/_admin/add_recipe", refuses).status, 201);
    let is_refused =
        |tcp: io::Result<TcpStream>| tcp.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    wait_until(|| is_refused(connect(origin.address)));
    // The origin closes the connections that were accepted meanwhile. Those for admin pages are not counted.
    wait_until(|| exchange(&mut admin, "GET", "/_admin/current_count", "").json()["connections"]["now"] == 1);
    // Takes the last descriptors while the listener is closed.
    let files: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
    assert_eq!(exchange(&mut admin, "POST", "/_admin/add_recipe", serves).status, 201);
    // The thread of the listener answers these requests. It has tried to listen before.
    for _ in 0..2 {
        assert_eq!(exchange(&mut open, "GET", "/", "").status, 200);
    }
    drop(files);
    wait_until(|| connect(origin.address).is_ok());
    assert_eq!(page(admin_address, "status"), "ok!");
}

#[test]
fn held_stages_that_refuse_need_an_admin_listener() {
    let recipe = r#"{"body": "b", "stages": [{"at": 0, "fault": "refuse"}, {"at": "1s"}]}"#;
    let start_held = |recipe| Origin::start(&OriginOptions { is_clock_held: true, ..options(recipe) });
    assert!(matches!(start_held(recipe), Err(OriginStartError::Recipes(AddRecipesError::NeverListensAgain))));
    let origin = start_held(r#"{"body": "b", "stages": [{"at": 0}]}"#).unwrap();
    let reply = add_recipes(origin.address, recipe);
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("until stages are started"), "{}", reply.text());
    // A clock that runs ends the refusal after a second.
    page(origin.address, "start");
    assert_eq!(add_recipes(origin.address, recipe).status, 201);
}

#[test]
fn restart_clears_counters() {
    let origin = start(r#"{"body": "b", "stages": [{"at": 0}]}"#);
    let address = origin.address;
    add_recipes(address, r#"{"route": "/more", "body": "b", "stages": [{"at": 0}]}"#);
    for path in ["/", "/more", "/"] {
        get(address, path);
    }
    page(address, "restart");
    get(address, "/");
    let count = current_count(address);
    assert_eq!((&count["total_requests"], &count["200"]), (&1.into(), &1.into()));
}

#[test]
fn last_modified_is_the_time_of_the_start() {
    let recipe = r#"{"body": "b", "stages": [{"at": 0}], "last_modified": true}"#;
    let origin = Origin::start(&OriginOptions { is_clock_held: true, ..options(recipe) }).unwrap();
    let last_modified = || get(origin.address, "/").header("last-modified").to_owned();
    assert!(last_modified().contains("1970"));
    page(origin.address, "start");
    assert!(!last_modified().contains("1970"), "{}", last_modified());
}

#[test]
fn requests_share_one_build_of_a_large_version() {
    let recipe = r#"{"body": "<<version>><<4mb>>", "stages": [{"at": 0}], "etag": true, "version_every": "400ms",
                     "headers": {"content-encoding": "gzip"}}"#;
    let small = r#"{"route": "/small", "body": "b", "stages": [{"at": 0}]}"#;
    let origin = start(&format!("[{recipe}, {small}]"));
    let address = origin.address;
    let get_tags = || {
        let clients: Vec<_> =
            (0..16).map(|_| thread::spawn(move || get(address, "/").header("etag").to_owned())).collect();
        // Compression takes tens of milliseconds. Requests for other routes do not wait for it.
        assert_eq!(get(address, "/small").text(), "b");
        clients.into_iter().map(|client| client.join().unwrap()).collect::<BTreeSet<_>>()
    };
    let began = Instant::now();
    let tags: BTreeSet<_> = (0..3).flat_map(|_| get_tags()).collect();
    let versions = began.elapsed().as_millis() / 400 + 2;
    assert!(tags.len() as u128 <= versions, "a version has one tag: {tags:?}");
}

#[test]
fn error_texts_carry_no_validators_of_the_content() {
    let recipe = |status: u16| {
        format!(
            r#"{{"route": "/{status}", "body": "b", "stages": [{{"at": 0, "status": {status}}}], "headers":
                {{"etag": "\"a\"", "last-modified": "Tue, 15 Nov 1994 12:45:26 GMT", "accept-ranges": "bytes"}}}}"#
        )
    };
    let origin = start(&list([404, 500].map(recipe).into_iter()));
    for path in ["/404", "/500"] {
        let reply = get(origin.address, path);
        for name in ["etag", "last-modified", "accept-ranges"] {
            assert_eq!(reply.header(name), "", "{path}: {name}");
        }
    }
}

#[test]
fn longest_prefix_wins() {
    let routes = ["/*", "/a*", "/ab*", "/abc/*", "/abd*", "/é*"].map(|route| route.replace('é', "%C3%A9"));
    let recipes = list(
        routes
            .iter()
            .map(|route| format!(r#"{{"route": "{route}", "body": "{route}", "stages": [{{"at": 0}}]}}"#)),
    );
    let origin = start(&recipes);
    for (path, route) in
        [("/", "/*"), ("/a", "/a*"), ("/abc", "/ab*"), ("/abc/", "/abc/*"), ("/abd/e", "/abd*")]
    {
        assert_eq!(get(origin.address, path).text(), route, "{path}");
    }
}
