//! What is for one client, and for nobody else unless somebody says so.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use stockade_proxy::server::Server;
use tokio::{io::AsyncWriteExt, sync::Semaphore};

use crate::support::*;

/// An origin that gives each of its answers for a permit.
async fn gated(gate: &Arc<Semaphore>, answer: impl Fn(&Heard) -> Vec<u8> + Send + Sync + 'static) -> Origin {
    let gate = Arc::clone(gate);
    Origin::start(move |heard, mut line| {
        let (gate, bytes) = (Arc::clone(&gate), answer(&heard));
        async move {
            gate.acquire().await.ok()?.forget();
            line.write_all(&bytes).await.ok().map(|()| line)
        }
    })
    .await
}

fn waiters(proxy: &Server) -> u64 {
    proxy.proxy().rules().routes[0].stats().waiters
}

fn known(user: usize) -> String {
    request("GET", "/", &[&format!("Cookie: user={user}")])
}

#[tokio::test]
async fn what_says_nothing_of_its_life_is_for_who_asked() {
    for told in [
        "Content-Type: text/html",
        "ETag: \"1\"",
        "Cache-Control: must-revalidate",
        // It has just been made: a tenth of its age is nothing.
        "Last-Modified: Fri, 01 Jan 2100 00:00:00 GMT",
    ] {
        let gate = Arc::new(Semaphore::new(0));
        let fails = Arc::new(AtomicBool::new(false));
        let is_failing = Arc::clone(&fails);
        let origin = gated(&gate, move |heard| {
            if is_failing.load(SeqCst) {
                return sized("503 Away", &["X: y"], b"away");
            }
            sized("200 OK", &[told], heard.field("cookie").unwrap_or_default().as_bytes())
        })
        .await;
        let cache = "[cache]\nstrategy = \"breaker\"\nswr = \"1m\"\n";
        let proxy = proxy_with(&origin.url(), cache, "connections = 100").await;
        let first = crowd(&proxy, 1, known).await;
        until(|| origin.count() == 1).await;
        let others = crowd(&proxy, 20, |number| known(number + 1)).await;
        until(|| waiters(&proxy) == 20).await;
        gate.add_permits(1_000);
        let all = answers(first).await.into_iter().chain(answers(others).await);
        for (number, answer) in all.enumerate() {
            answer.is(format!("user={number}").as_bytes());
            assert_eq!(answer.did(), "miss", "{told}");
        }
        assert_eq!(origin.count(), 21, "{told}");
        // Nor is it what is stale when the origin fails.
        fails.store(true, SeqCst);
        let answer = ask(&proxy, "GET", "/", &["Cookie: user=99"]).await;
        assert_eq!(answer.status(), 503, "{told} {:?}", answer.text());
        answer.is(b"away");
    }
}

#[tokio::test]
async fn what_says_anything_of_its_life_is_for_all_who_wait() {
    for (route, told) in [
        ("", "Cache-Control: no-cache\r\nETag: \"1\""),
        ("", "Cache-Control: public"),
        ("", "Cache-Control: max-age=0"),
        ("", "Cache-Control: stale-if-error=60"),
        ("", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"),
        ("[[route]]\ndefault_ttl = \"1m\"\n", "X: y"),
        ("[[route]]\nttl = \"1m\"\n", "X: y"),
    ] {
        let gate = Arc::new(Semaphore::new(0));
        let origin = gated(&gate, move |heard| {
            sized("200 OK", &[told], heard.field("cookie").unwrap_or_default().as_bytes())
        })
        .await;
        let proxy = proxy_with(&origin.url(), route, "").await;
        let first = crowd(&proxy, 1, known).await;
        until(|| origin.count() == 1).await;
        let others = crowd(&proxy, 20, |number| known(number + 1)).await;
        until(|| waiters(&proxy) == 20).await;
        gate.add_permits(1_000);
        for answer in answers(first).await.into_iter().chain(answers(others).await) {
            answer.is(b"user=0");
        }
        assert_eq!(origin.count(), 1, "{route} {told}");
    }
}

#[tokio::test]
async fn what_is_told_to_somebody_unknown_is_not_told_to_who_is_known() {
    for status in ["302 Found", "401 Unauthorized", "403 Forbidden", "404 Not Found"] {
        let gate = Arc::new(Semaphore::new(0));
        let origin =
            gated(&gate, move |heard| match heard.field("cookie").or(heard.field("authorization")) {
                Some(who) => sized("200 OK", &["Cache-Control: private"], who.as_bytes()),
                None => sized(status, &["Location: /login"], b"who are you?"),
            })
            .await;
        let proxy = proxy(&origin).await;
        let nobody = |_: usize| request("GET", "/", &[]);
        let first = crowd(&proxy, 1, nobody).await;
        until(|| origin.count() == 1).await;
        let unknown = crowd(&proxy, 5, nobody).await;
        let users = crowd(&proxy, 5, known).await;
        let shown = crowd(&proxy, 1, |_| request("GET", "/", &["Authorization: Basic eA=="])).await;
        until(|| waiters(&proxy) == 11).await;
        gate.add_permits(1_000);
        for answer in answers(first).await.into_iter().chain(answers(unknown).await) {
            assert_eq!(answer.status().to_string(), status[..3]);
            answer.is(b"who are you?");
        }
        for (user, answer) in answers(users).await.into_iter().enumerate() {
            answer.is(format!("user={user}").as_bytes());
        }
        answers(shown).await[0].is(b"Basic eA==");
        assert_eq!(origin.count(), 7, "{status}");
    }
}

#[tokio::test]
async fn who_asks_alone_may_ask_for_a_part_or_whether_it_has_changed() {
    for (told, asked) in [
        ("Cache-Control: private, max-age=60", "X: y"),
        ("Cache-Control: no-store", "X: y"),
        ("Cache-Control: max-age=60\r\nSet-Cookie: a=b", "X: y"),
        ("X: y", "X: y"),
        ("Cache-Control: max-age=60", "Authorization: Basic eA=="),
    ] {
        let body = content(1_000);
        let all = body.clone();
        let origin = Origin::saying(move |heard| {
            let fields = |range| [told, "ETag: \"1\"", range];
            match (heard.field("if-none-match"), heard.field("if-match"), heard.field("range")) {
                (Some("\"1\""), ..) => {
                    format!("HTTP/1.1 304 Not Modified\r\n{}\r\n", lines(&fields("X: y"))).into_bytes()
                }
                (_, Some("\"0\""), _) => sized("412 Another", &fields("X: y"), b""),
                (.., Some("bytes=10-19")) if heard.field("if-range") != Some("\"0\"") => {
                    sized("206 Part", &fields("Content-Range: bytes 10-19/1000"), &all[10..20])
                }
                (.., Some("bytes=1000-")) => sized("416 No", &fields("Content-Range: bytes */1000"), b""),
                _ => sized("200 OK", &fields("X: y"), &all),
            }
        })
        .await;
        let proxy = proxy(&origin).await;
        ask(&proxy, "GET", "/", &[asked]).await.is(&body);
        for (number, (fields, status, part)) in [
            (["Range: bytes=10-19", "X: y"], 206, &body[10..20]),
            (["Range: bytes=10-19", "If-Range: \"1\""], 206, &body[10..20]),
            (["Range: bytes=10-19", "If-Range: \"0\""], 200, &body[..]),
            (["Range: bytes=1000-", "X: y"], 416, &body[..0]),
            (["If-None-Match: \"1\"", "X: y"], 304, &body[..0]),
            (["If-None-Match: \"0\"", "X: y"], 200, &body[..]),
            (["If-Match: \"0\"", "X: y"], 412, &body[..0]),
            (["X: y", "X: y"], 200, &body[..]),
        ]
        .into_iter()
        .enumerate()
        {
            let answer = ask(&proxy, "GET", "/", &[asked, fields[0], fields[1]]).await;
            assert_eq!((answer.status(), answer.did()), (status, "miss"), "{told} {asked} {fields:?}");
            answer.is(part);
            assert_eq!(origin.count(), number + 2, "{told} {asked} {fields:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_cannot_have_taken_away_what_says_whom_it_is_for() {
    for (named, told) in [("set-cookie", "Set-Cookie: you=1"), ("vary", "Vary: Who")] {
        let origin = Origin::saying(move |heard| {
            let fields = ["Cache-Control: max-age=60", told, &format!("Connection: {named}")];
            sized("200 OK", &fields, heard.field("who").unwrap_or_default().as_bytes())
        })
        .await;
        let proxy = proxy(&origin).await;
        for who in ["x", "y"] {
            ask(&proxy, "GET", "/", &[&format!("Who: {who}")]).await.is(who.as_bytes());
        }
    }
}
