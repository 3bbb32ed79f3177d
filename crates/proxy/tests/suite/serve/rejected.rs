//! Rejected and private answers compared with a page for all: what they leave of it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use stockade_proxy::server::ProxyServer;

use crate::serve::support::*;

/// A page that expires at once, and the answers of its origin by their number.
async fn origin(answers: impl Fn(usize, &ReceivedRequest) -> Vec<u8> + Send + Sync + 'static) -> Origin {
    Origin::responding(move |received| answers(received.number, received)).await
}

/// Has expired on its way, and may be used for an hour if the origin fails.
fn expired(body: &str) -> Vec<u8> {
    sized("200 OK", &["Cache-Control: max-age=1, stale-if-error=3600", "Age: 100"], body.as_bytes())
}

const FALLBACK: &str =
    "[cache]\nstrategy = \"fallback\"\nthrottle = \"0s\"\nload = { soft_timeout = \"none\" }\n";

async fn herd(proxy: &ProxyServer, field: &'static str) -> Vec<Answer> {
    answers(send_concurrently(proxy, 100, move |_| request("GET", "/", &[field])).await).await
}

#[tokio::test]
async fn rejected_request_leaves_the_page_its_fallback_and_its_coalescing() {
    for rejection in [
        sized("403 Forbidden", &["Cache-Control: no-store"], b"blocked"),
        sized("200 OK", &["Cache-Control: private"], b"yours"),
        sized("200 OK", &["Cache-Control: max-age=60", "Set-Cookie: a=b"], b"yours"),
        sized("429 Too Many Requests", &["X: y"], b"slowly"),
        sized("401 Unauthorized", &["Cache-Control: no-store"], b"who"),
    ] {
        for field in ["X: y", "Cookie: user=ada"] {
            let (is_failing, rejected) = (Arc::new(AtomicUsize::new(0)), rejection.clone());
            let fails = Arc::clone(&is_failing);
            let origin = origin(move |number, _| match number {
                0 => expired("page"),
                1 => rejected.clone(),
                _ if fails.load(SeqCst) == 1 => sized("503 Away", &["X: y"], b"away"),
                _ => good(b"new page"),
            })
            .await;
            let proxy = proxy_with(&origin.url(), FALLBACK, "connections = 200").await;
            get(&proxy, "/").await.assert_body(b"page");
            // The first of the next requests is rejected, and only that one.
            let rejected = send(&proxy, "GET", "/", &[field]).await;
            assert_ne!(rejected.text(), "page", "{:?}", rejected.head);
            // While the origin fails the old page is still there.
            is_failing.store(1, SeqCst);
            let answer = send(&proxy, "GET", "/", &[field]).await;
            assert_eq!((answer.text(), answer.outcome()), ("page", "fallback"), "{rejection:?}");
            is_failing.store(0, SeqCst);
            let before = origin.count();
            for answer in herd(&proxy, field).await {
                assert_eq!((answer.status(), answer.text()), (200, "new page"));
            }
            assert!(origin.count() - before <= 3, "{} loads", origin.count() - before);
        }
    }
}

#[tokio::test]
async fn leader_that_is_rejected_makes_way_for_another() {
    let origin = Origin::start(|received, mut line| async move {
        use tokio::io::AsyncWriteExt;
        // The others have to be waiting by then.
        elapse(std::time::Duration::from_millis(200)).await;
        let bytes = match received.number {
            0 => expired("page"),
            1 => sized("403 Forbidden", &["Cache-Control: no-store"], b"blocked"),
            _ => good(b"new page"),
        };
        line.write_all(&bytes).await.ok().map(|()| line)
    })
    .await;
    let proxy = proxy_with(&origin.url(), FALLBACK, "connections = 200").await;
    get(&proxy, "/").await.assert_body(b"page");
    let all = herd(&proxy, "Cookie: user=ada").await;
    assert_eq!(all.iter().filter(|answer| answer.status() == 403).count(), 1);
    assert_eq!(all.iter().filter(|answer| answer.text() == "new page").count(), 99);
    assert_eq!(origin.count(), 3);
}

#[tokio::test]
async fn deleted_page_is_out_of_service() {
    for status in ["404 Not Found", "410 Gone", "451 Unavailable For Legal Reasons", "301 Moved", "302 Found"]
    {
        for (field, is_removed) in
            [("X: y", true), ("Cookie: user=ada", false), ("Authorization: ada", false)]
        {
            let answer = sized(status, &["Location: /"], b"gone");
            let origin = origin(move |number, _| match number {
                0 => sized(
                    "200 OK",
                    &[
                        "Cache-Control: max-age=1, stale-while-revalidate=3600, stale-if-error=3600",
                        "Age: 100",
                    ],
                    b"page",
                ),
                1 | 2 => answer.clone(),
                _ => sized("503 Away", &["X: y"], b"away"),
            })
            .await;
            let proxy = proxy_with(
                &origin.url(),
                "[cache]\nstrategy = \"swr\"\nsie = \"1h\"\nthrottle = \"0s\"\n",
                "",
            )
            .await;
            get(&proxy, "/").await.assert_body(b"page");
            // It is stale: the refresh brings the news.
            send(&proxy, "GET", "/", &[field]).await.assert_body(b"page");
            let answer = send(&proxy, "GET", "/", &[field]).await;
            assert_eq!(answer.text(), "gone", "{status} {field} {:?}", answer.head);
            let answer = send(&proxy, "GET", "/", &["X: z"]).await;
            let expected = if is_removed { (503, "away") } else { (200, "page") };
            assert_eq!((answer.status(), answer.text()), expected, "{status} {field} {:?}", answer.head);
        }
    }
}

#[tokio::test]
async fn own_ttl_of_a_route_is_for_its_statuses() {
    for (status, headers, loads) in [
        ("200 OK", "Cache-Control: max-age=0", 1),
        ("203 Other", "X: y", 1),
        ("301 Moved", "X: y", 1),
        ("302 Found", "X: y", 2),
        ("302 Found", "Cache-Control: max-age=60", 1),
        ("400 Bad Request", "Cache-Control: max-age=0", 2),
        ("403 Forbidden", "X: y", 2),
        ("404 Not Found", "X: y", 2),
        ("429 Too Many Requests", "Cache-Control: max-age=0", 2),
        ("431 Too Large", "X: y", 2),
        ("500 Oops", "Cache-Control: max-age=0", 2),
        ("501 Not Implemented", "Expires: 0", 2),
        ("503 Away", "Cache-Control: max-age=0", 2),
    ] {
        let answer = sized(status, &[headers], b"x");
        let origin = Origin::responding(move |_| answer.clone()).await;
        for setting in ["ttl", "default_ttl"] {
            if setting == "default_ttl" && headers == "Cache-Control: max-age=0" {
                continue;
            }
            let proxy = proxy_with(&origin.url(), &format!("[[route]]\n{setting} = \"1m\"\n"), "").await;
            let before = origin.count();
            for user in ["X: y", "Cookie: user=ada"] {
                let _ = send(&proxy, "GET", "/", &[user]).await;
            }
            assert_eq!(origin.count() - before, loads, "{setting} {status} {headers}");
        }
    }
    let origin = Origin::responding(|_| sized("302 Found", &["Location: /"], b"")).await;
    let proxy = proxy_with(&origin.url(), "[[route]]\nttl = \"1m\"\nttl_statuses = [302]\n", "").await;
    let _ = (get(&proxy, "/").await, get(&proxy, "/").await);
    assert_eq!(origin.count(), 1);
}

#[tokio::test]
async fn route_says_what_becomes_of_cookies() {
    for (setting, loads, of_second) in [
        ("", 2, Some("session=2")),
        ("set_cookie = \"refuse\"\n", 2, Some("session=2")),
        ("set_cookie = \"strip\"\n", 1, None),
        ("set_cookie = \"store\"\n", 1, Some("session=1")),
    ] {
        let origin = Origin::responding(|received| {
            let cookie = format!("Set-Cookie: session={}", received.number + 1);
            sized("200 OK", &["Cache-Control: public, max-age=60", &cookie], b"page")
        })
        .await;
        let proxy = proxy_with(&origin.url(), &format!("[[route]]\n{setting}"), "").await;
        assert_eq!(get(&proxy, "/").await.field("set-cookie"), Some("session=1"), "{setting}");
        assert_eq!(get(&proxy, "/").await.field("set-cookie"), of_second, "{setting}");
        assert_eq!(origin.count(), loads, "{setting}");
    }
}

/// The 304 of an origin that compresses on the way out.
#[tokio::test]
async fn validation_of_a_compressed_page_costs_one_304() {
    for (of_page, of_304) in [
        ("ETag: W/\"x\"\r\nVary: Accept-Encoding", "ETag: \"x\""),
        ("ETag: W/\"x\"\r\nVary: Accept-Encoding, Cookie", "ETag: \"x\"\r\nVary: Cookie"),
        (
            "ETag: \"x-gzip\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nVary: Accept-Encoding",
            "ETag: \"x\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
        ),
    ] {
        let origin = Origin::responding(move |received| match received.field("if-none-match") {
            Some(_) => {
                format!("HTTP/1.1 304 Not Modified\r\n{of_304}\r\nCache-Control: no-cache\r\n\r\n").into()
            }
            None => {
                sized("200 OK", &[of_page, "Cache-Control: no-cache", "Content-Encoding: gzip"], b"zipped")
            }
        })
        .await;
        let proxy = proxy_with(&origin.url(), "", "").await;
        for number in 1..=4 {
            let answer = send(&proxy, "GET", "/", &["Accept-Encoding: gzip"]).await;
            assert_eq!((answer.text(), origin.count()), ("zipped", number), "{of_304}");
            assert_eq!(answer.field("content-encoding"), Some("gzip"));
            assert!(of_page.contains(&format!("ETag: {}", answer.field("etag").unwrap_or_default())));
        }
    }
}
