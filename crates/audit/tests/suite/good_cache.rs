//! The cache without faults.

use std::time::{Duration, Instant, SystemTime};

use http::request::Parts;
use tokio::{join, time::sleep};

use super::{
    faulty_cache::Fault,
    lab::{Lab, Page, field, page},
};

fn date_ago(seconds: u64) -> String {
    httpdate::fmt_http_date(SystemTime::now() - Duration::from_secs(seconds))
}

#[tokio::test]
async fn misses_at_the_same_time_are_one_load() {
    let lab = Lab::start(&[], |_, n| page(n).cached("max-age=60").after_ms(200)).await;
    assert_eq!(lab.together(5).await, "1 1 1 1 1");
    assert_eq!(lab.get("/").await, "1");
    assert_eq!(lab.requests().len(), 1);
}

/// Fields of a page, and the seconds until another load.
#[tokio::test]
async fn lifetimes_are_those_of_rfc_9111() {
    fn script(request: &Parts, n: usize) -> Page {
        let fields = request.uri.path()[1..].split(';').filter(|field| !field.is_empty());
        let fields = fields.map(|field| field.split_once('=').expect("a name and a value"));
        fields.fold(page(n), |page, (name, value)| match (name, value.parse()) {
            ("date", Ok(ago)) => page.with("date", &date_ago(ago)),
            ("expires", Ok(ago)) => page.with("expires", &date_ago(ago)),
            ("last-modified", Ok(ago)) => page.with("last-modified", &date_ago(ago)),
            ("age", _) => page.with("age", value),
            ("status", Ok(status)) => page.status(u16::try_from(status).unwrap()),
            _ => page.cached(&value.replace('%', "\"")),
        })
    }
    for (fields, lifetime_seconds) in [
        ("cc=max-age=100", 100),
        ("cc=max-age=100,s-maxage=50", 50),
        ("cc=max-age=100;cc=s-maxage=50", 50),
        ("cc=max-age=100;age=30", 70),
        ("cc=max-age=100;date=40", 60),
        ("cc=max-age=100;date=400;expires=0", 0),
        ("date=80;expires=20", 0),
        ("date=90;expires=20;age=0", 0),
        ("date=0;last-modified=1000", 100),
        ("date=0;last-modified=1000;status=500", 0),
        ("cc=max-age=100;status=500", 100),
        ("cc=max-age=100,no-cache", 0),
        ("cc=max-age=100,no-cache=%x%", 0),
        ("cc=max-age=100,private=%x,y%", 0),
        ("cc=max-age=x", 0),
        ("cc=public", 0),
    ] {
        let lab = Lab::start(&[], script).await;
        let path = format!("/{fields}");
        assert_eq!(lab.get(&path).await, "1", "{fields}");
        // The dates have whole seconds.
        if lifetime_seconds > 5 {
            lab.advance(lifetime_seconds - 3);
            assert_eq!(lab.get(&path).await, "1", "{fields}");
            lab.advance(4);
        }
        assert_eq!(lab.get(&path).await, "2", "{fields}");
    }
}

#[tokio::test]
async fn stale_page_hides_errors_and_broken_connections() {
    let lab = Lab::start(&[], |_, n| match n {
        1 => page(n).cached("max-age=10, stale-if-error=60"),
        2 => page("error").status(503),
        _ => page("").closed(),
    })
    .await;
    lab.get("/").await;
    lab.advance(15);
    assert_eq!([lab.get("/").await, lab.get("/").await], ["1", "1"]);
    lab.advance(60);
    assert_eq!(lab.get_with("/", &[]).await.status, 502);
}

#[tokio::test]
async fn client_with_the_page_gets_304_and_a_range_206() {
    let lab = Lab::start(&[], |_, _| page("0123456789").cached("max-age=60").with("etag", "\"a\"")).await;
    for _ in 0..2 {
        let reply = lab.get_with("/", &[("if-none-match", "\"b\", W/\"a\"")]).await;
        assert_eq!((reply.status, &*reply.body), (304, ""));
        assert_eq!(lab.get_with("/", &[("if-none-match", "\"b\"")]).await.status, 200);
    }
    for (range, status, content_range, body) in [
        ("bytes=2-4", 206, "bytes 2-4/10", "234"),
        ("bytes=8-", 206, "bytes 8-9/10", "89"),
        ("bytes=-3", 206, "bytes 7-9/10", "789"),
        ("bytes=10-", 416, "bytes */10", ""),
        ("bytes=0-1,3-4", 200, "none", "0123456789"),
        ("bytes=4-2", 200, "none", "0123456789"),
    ] {
        let reply = lab.get_with("/", &[("range", range), ("if-range", "\"a\"")]).await;
        assert_eq!((reply.status, reply.field("content-range"), &*reply.body), (status, content_range, body));
    }
    assert_eq!(lab.requests().len(), 1);
}

#[tokio::test]
async fn not_modified_with_another_tag_loads_the_page_again() {
    let lab = Lab::start(&[], |request, n| match field(request, "if-none-match") {
        "none" => page(n).cached("max-age=10").with("etag", "\"a\""),
        _ => page("").status(304).with("etag", "\"b\""),
    })
    .await;
    assert_eq!(lab.get("/").await, "1");
    lab.advance(15);
    assert_eq!(lab.get("/").await, "3");
}

#[tokio::test]
async fn post_invalidates_and_named_fields_end_at_the_cache() {
    let lab = Lab::start(&[], |request, n| {
        page(n).cached("max-age=60").with("connection", "x-own").with("x-own", field(request, "x-hop"))
    })
    .await;
    let first = lab.get_with("/", &[("connection", "x-hop"), ("x-hop", "a")]).await;
    assert_eq!((&*first.body, first.field("x-own")), ("1", "none"));
    assert_eq!(field(&lab.requests()[0], "x-hop"), "none");
    lab.send("POST", "/", &[]).await;
    assert_eq!(lab.get("/").await, "3");
}

#[tokio::test]
async fn waiters_of_a_stalled_leader_go_on_after_two_seconds() {
    let lab = Lab::start(&[], |_, n| page(n).after_ms(if n == 1 { 4_000 } else { 0 })).await;
    let start = Instant::now();
    let waiter = async {
        sleep(Duration::from_millis(50)).await;
        (lab.get("/").await, start.elapsed())
    };
    let leader = tokio::time::timeout(Duration::from_secs(3), lab.get("/"));
    let (_, (body, elapsed)) = join!(leader, waiter);
    assert_eq!(body, "2");
    assert!((Duration::from_secs(2)..Duration::from_secs(3)).contains(&elapsed), "{elapsed:?}");
}

#[tokio::test]
async fn get_is_sent_again_if_its_kept_connection_closes() {
    let lab = Lab::start(&[], |_, n| if n == 2 { page("").closed() } else { page(n) }).await;
    assert_eq!(lab.get("/").await, "1");
    sleep(Duration::from_millis(50)).await;
    assert_eq!(lab.get("/").await, "3");
}

#[tokio::test]
async fn least_recently_used_page_makes_room() {
    let lab =
        Lab::start(&[], |_, n| page(format!("{n}{}", " ".repeat(15 << 20))).cached("max-age=600")).await;
    for path in ["/a", "/b", "/c", "/d", "/a", "/e", "/a", "/b"] {
        lab.get(path).await;
    }
    let loaded: Vec<_> = lab.requests().iter().map(|request| request.uri.path().to_owned()).collect();
    assert_eq!(loaded, ["/a", "/b", "/c", "/d", "/e", "/b"]);
}

#[tokio::test]
async fn plain_hits_are_the_same_with_each_fault() {
    for fault in Fault::ALL.into_iter().chain(Fault::FRESH) {
        let lab = Lab::start(&[fault], |_, n| page(n).cached("max-age=60")).await;
        assert_eq!(
            [lab.get("/").await, lab.get("/").await, lab.get("/?b").await],
            ["1", "1", "2"],
            "{fault:?}"
        );
    }
}
