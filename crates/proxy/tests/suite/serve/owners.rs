//! No user gets what is another's: a search over methods, versions, credentials, directives, speeds and outcomes.
//!
//! The origin knows its users by a cookie or by credentials. Each response names its owner, in the body and in a field. What the
//! origin declares to be for all has no owner.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use stockade_model::seed::Seed;
use stockade_proxy::server::ProxyServer;
use tokio::io::AsyncWriteExt;

use crate::serve::support::*;

/// Heads of responses that belong to one user: no head says that other users may have them. `OWNER` stands for the user.
const OWNED: [&str; 21] = [
    "Content-Type: text/html",
    "Expires: 0",
    "Expires: Thu, 19 Nov 1981 08:52:00 GMT",
    "Cache-Control: max-age=0",
    "Cache-Control: max-age=0\r\nETag: \"OWNER\"",
    "Cache-Control: max-age=0, must-revalidate\r\nETag: W/\"OWNER\"",
    "Cache-Control: max-age=0\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
    "Cache-Control: no-cache",
    "Cache-Control: no-cache\r\nETag: \"OWNER\"",
    "Cache-Control: no-cache\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
    "Cache-Control: public, max-age=0\r\nETag: \"OWNER\"",
    "Cache-Control: s-maxage=0\r\nETag: \"OWNER\"",
    "Cache-Control: must-revalidate\r\nETag: \"OWNER\"",
    "Cache-Control: private, max-age=60",
    "Cache-Control: no-store",
    "Pragma: no-cache\r\nExpires: -1",
    "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
    "Cache-Control: max-age=60\r\nSet-Cookie: session=OWNER",
    "Cache-Control: public, max-age=60\r\nSet-Cookie: session=OWNER",
    "Cache-Control: max-age=60\r\nVary: Cookie, Authorization",
    "Cache-Control: max-age=60\r\nVary: *",
];

/// Heads of responses for all.
const SHARED: [&str; 4] = [
    "Cache-Control: public, max-age=60",
    "Cache-Control: s-maxage=1, stale-while-revalidate=60\r\nETag: \"all\"",
    "Cache-Control: max-age=0, stale-while-revalidate=60, stale-if-error=60",
    "Cache-Control: max-age=1, stale-if-error=60\r\nETag: \"all\"",
];

const METHODS: [&str; 9] = ["GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "OPTIONS", "POST"];
const USERS: [&str; 5] =
    ["cookie: user=ada", "cookie: user=bob", "authorization: ada", "authorization: bob", "x: y"];
const DIRECTIVES: [&str; 8] = [
    "x-none: 1",
    "x-none: 2",
    "cache-control: no-cache",
    "cache-control: max-stale",
    "cache-control: max-age=0",
    "cache-control: only-if-cached, max-stale=100",
    "range: bytes=0-20",
    "cache-control: no-store",
];
const OUTCOMES: usize = 10;

/// The user of a request; `""`: none.
fn user_of(request: &ReceivedRequest) -> String {
    let cookie = request.field("cookie").and_then(|cookie| cookie.strip_prefix("user="));
    cookie.or(request.field("authorization")).unwrap_or_default().to_owned()
}

/// The response of the origin: by the path, and by chance, as an application that is slow and fails.
fn response(request: &ReceivedRequest, head: &str, outcome: usize) -> Option<Vec<u8>> {
    let is_shared = SHARED.contains(&head);
    let owner = if is_shared { String::new() } else { user_of(request) };
    let head = head.replace("OWNER", &owner);
    let owner_field = format!("X-Owner: {owner}");
    let body = format!("a page of <{owner}>, with some text after it\n");
    let method = request.method();
    // An application that compares what it is asked for with the page of this user.
    let is_current = request.field("if-none-match").is_some_and(|tags| {
        head.lines().any(|line| line.strip_prefix("ETag: ").is_some_and(|tag| tags.contains(tag)))
    });
    // And one that only looks at the date.
    let is_undated = request.field("if-none-match").is_none() && request.field("if-modified-since").is_some();
    match outcome {
        0 => return None,
        1 => return Some(sized("503 Service Unavailable", &[&owner_field], body.as_bytes())),
        2 => {
            return Some(sized("403 Forbidden", &[&owner_field, "Cache-Control: no-store"], body.as_bytes()));
        }
        3 => return Some(sized("404 Not Found", &[&owner_field], body.as_bytes())),
        4 => return Some(sized("302 Found", &[&owner_field, "Location: /login"], body.as_bytes())),
        _ => {}
    }
    if method == "GET" && (is_current || is_undated) {
        return Some(format!("HTTP/1.1 304 Not Modified\r\n{head}\r\n\r\n").into_bytes());
    }
    let mut whole = sized("200 OK", &[&owner_field, &head], body.as_bytes());
    if method == "HEAD" {
        whole.truncate(whole.len() - body.len());
    }
    Some(whole)
}

/// A number of the seed, the same in each run.
fn chance(seed: u64, nth: usize) -> usize {
    usize::try_from(Seed(seed).child(&nth.to_string()).0 >> 1).expect("63 bits")
}

async fn origin() -> Origin {
    let count = AtomicUsize::new(0);
    Origin::start(move |received, mut line| {
        let chance = chance(5, count.fetch_add(1, SeqCst));
        let number: usize = received.target().trim_matches('/').parse().unwrap_or_default();
        let heads: Vec<&str> = OWNED.into_iter().chain(SHARED).collect();
        let head = heads[number % heads.len()];
        // Every second path belongs to an application that fails.
        let outcome =
            if (number / heads.len()).is_multiple_of(2) { OUTCOMES } else { chance / 64 % OUTCOMES };
        let bytes = response(&received, head, outcome);
        // Slower than the soft timeout, at times than a waiter's patience.
        let takes = Duration::from_millis([0, 0, 1, 3, 8][chance % 5]);
        async move {
            if !takes.is_zero() {
                elapse(takes).await;
            }
            line.write_all(&bytes?).await.ok().map(|()| line)
        }
    })
    .await
}

/// Panics if an answer to `user` has another owner.
#[track_caller]
fn assert_own(user: &str, path: &str, request: &str, fields: &[(&str, &str)], body: &[u8]) {
    let user =
        user.rsplit(['=', ' ']).next().filter(|user| ["ada", "bob"].contains(user)).unwrap_or_default();
    let field =
        |name: &str| fields.iter().find(|field| field.0.eq_ignore_ascii_case(name)).map(|field| field.1);
    let session = field("set-cookie").and_then(|cookie| cookie.strip_prefix("session="));
    let text = String::from_utf8_lossy(body);
    let named = text.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(owner, _)| owner);
    for owner in [field("x-owner"), session, named].into_iter().flatten() {
        assert!(owner.is_empty() || owner == user, "{path} of `{owner}` for `{user}`: {request} {fields:?}");
    }
}

/// One request of some user; its answer is checked.
async fn request_by_chance(proxy: &ProxyServer, http2: &Http2, number: usize, paths: usize) {
    let chance = chance(11, number);
    let pick = |list: &[&'static str], shift: usize| list[(chance >> shift) % list.len()];
    let (method, user, directive) = (pick(&METHODS, 0), pick(&USERS, 8), pick(&DIRECTIVES, 16));
    let path = format!("/{}", (chance >> 24) % paths);
    let request = format!("{method} {user} {directive}");
    if (chance >> 48).is_multiple_of(2) {
        let pairs: Vec<(&str, &str)> =
            [user, directive].iter().filter_map(|line| line.split_once(": ")).collect();
        let mut stream = http2.send(method, &path, &pairs).await;
        let head: Vec<_> = stream
            .head
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or("").to_owned()))
            .collect();
        let body = stream.rest(Vec::new()).await.unwrap_or_default();
        let fields: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_own(user, &path, &request, &fields, &body);
        return;
    }
    let mut client = Client::connect(proxy).await;
    let lines = [user, directive, if method == "POST" { "content-length: 0" } else { "x-z: 0" }];
    let answer = client.send(method, &path, &lines).await;
    let fields: Vec<_> = answer.head.text.lines().filter_map(|line| line.split_once(": ")).collect();
    assert_own(user, &path, &request, &fields, &answer.body);
}

/// `STOCKADE_OWNERS=1000000` makes as many requests.
#[tokio::test]
async fn no_user_gets_what_is_anothers() {
    const CONCURRENT: usize = 32;
    let requests: usize =
        env::var("STOCKADE_OWNERS").ok().and_then(|number| number.parse().ok()).unwrap_or(4_000);
    let origin = origin().await;
    for strategy in ["fallback", "breaker", "swr"] {
        let cache = format!(
            "[cache]\nstrategy = \"{strategy}\"\nswr = \"1m\"\nsie = \"1m\"\nload = {{ soft_timeout = \"2ms\", deadline = \"1s\" }}\n\
             fetch = {{ coalesce = {{ wait_timeout = \"5ms\" }} }}\nbreaker = \"none\"\nthrottle = \"1ms\"\n"
        );
        let proxy = proxy_with(&origin.url(), &cache, "connections = 100").await;
        let http2 = Http2::connect(&proxy).await;
        let paths = 2 * (OWNED.len() + SHARED.len());
        let next = Arc::new(AtomicUsize::new(0));
        join_all((0..CONCURRENT).map(|_| async {
            loop {
                let number = next.fetch_add(1, SeqCst);
                if number >= requests / 3 {
                    return;
                }
                request_by_chance(&proxy, &http2, number, paths).await;
            }
        }))
        .await;
        let requests = proxy.proxy().router().routes[0].stats().outcomes;
        println!("{strategy}: {requests:?}");
    }
}

/// The next user of a page without a lifetime, after the first one, while it, and when the origin fails.
#[tokio::test]
async fn page_that_is_expired_when_it_arrives_is_its_users_alone() {
    for head in OWNED {
        for cache in [
            "strategy = \"fallback\"\nswr = \"1m\"\nload = { soft_timeout = \"1ms\" }",
            "strategy = \"swr\"",
            "strategy = \"breaker\"",
        ] {
            let fails = Arc::new(AtomicUsize::new(0));
            let is_failing = Arc::clone(&fails);
            let origin = Origin::start(move |received, mut line| {
                let outcome = if is_failing.load(SeqCst) == 1 { 1 } else { OUTCOMES };
                let bytes = response(&received, head, outcome);
                async move {
                    elapse(Duration::from_millis(5)).await;
                    line.write_all(&bytes?).await.ok().map(|()| line)
                }
            })
            .await;
            let proxy = proxy_with(&origin.url(), &format!("[cache]\n{cache}\n"), "connections = 100").await;
            let cookie = |user: usize| format!("Cookie: user={}", ["ada", "bob"][user % 2]);
            let owner = |user: usize| format!("a page of <{}>", ["ada", "bob"][user % 2]);
            for user in 0..4 {
                let answer = send(&proxy, "GET", "/", &[&cookie(user)]).await;
                assert!(answer.text().starts_with(&owner(user)), "{head} {cache} {:?}", answer.head);
            }
            let clients = send_concurrently(&proxy, 8, |user| request("GET", "/", &[&cookie(user)])).await;
            for (user, answer) in answers(clients).await.into_iter().enumerate() {
                assert!(answer.text().starts_with(&owner(user)), "{head} {cache} {:?}", answer.head);
            }
            fails.store(1, SeqCst);
            for user in 0..2 {
                let answer = send(&proxy, "GET", "/", &[&cookie(user)]).await;
                assert!(answer.text().starts_with(&owner(user)), "{head} {cache} {:?}", answer.head);
            }
        }
    }
}
