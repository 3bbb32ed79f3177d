//! Invalidation by unsafe methods: what serves afterwards, and when.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use stockade_cache::Invalidation;
use stockade_proxy::{
    admin::{Purge, PurgeTarget},
    server::ProxyServer,
};
use tokio::{io::AsyncWriteExt, sync::Semaphore};

use crate::serve::support::*;

/// An origin whose GET responses have the field and the number of the request as body, and fail while `is_failing`. Each
/// POST succeeds.
async fn origin(field: &'static str, is_failing: &Arc<AtomicBool>) -> Origin {
    let is_failing = Arc::clone(is_failing);
    Origin::responding(move |received| match received.method() {
        "POST" => sized("200 OK", &[], b"done"),
        _ if is_failing.load(SeqCst) => sized("503 Away", &[], b"failed"),
        _ => sized("200 OK", &[field], received.number.to_string().as_bytes()),
    })
    .await
}

const POST: &[&str] = &["Content-Length: 0"];

#[tokio::test]
async fn invalidated_response_serves_only_if_the_origin_fails() {
    let is_failing = Arc::default();
    let origin = origin("Cache-Control: max-age=60", &is_failing).await;
    let proxy = proxy(&origin).await;
    get(&proxy, "/").await.assert_body(b"0");
    send(&proxy, "POST", "/", POST).await.assert_body(b"done");
    // The second one finds the copy that the first one has left.
    send(&proxy, "POST", "/", POST).await.assert_body(b"done");
    is_failing.store(true, SeqCst);
    let before = origin.count();
    let answer = get(&proxy, "/").await;
    assert_eq!((answer.status(), answer.outcome(), origin.count()), (200, "fallback", before + 1));
    answer.assert_body(b"0");
    let cache_status = answer.field("cache-status").unwrap_or_default();
    assert!(cache_status.contains("fwd=stale; fwd-status=503"), "{cache_status}");
    // It asks for a validation.
    assert_eq!(send(&proxy, "GET", "/", &["Cache-Control: no-cache"]).await.status(), 503);
    is_failing.store(false, SeqCst);
    let number = with_timeout(async {
        loop {
            // The failed key rests for a moment.
            let answer = get(&proxy, "/").await;
            if answer.outcome() == "miss" {
                break answer.text().to_owned();
            }
            assert_eq!(answer.outcome(), "fallback");
        }
    })
    .await;
    let hit = get(&proxy, "/").await;
    assert_eq!((hit.outcome(), hit.text()), ("hit", &*number));
    // The copy is gone: the newer response is the fallback.
    send(&proxy, "POST", "/", POST).await;
    is_failing.store(true, SeqCst);
    let answer = get(&proxy, "/").await;
    assert_eq!((answer.outcome(), answer.text()), ("fallback", &*number));
    // A purge means it: nothing is left.
    let target = PurgeTarget::Url("http://a/".parse().expect("a URL"));
    let mode = Invalidation::Hard;
    assert_eq!(proxy.proxy().purge(&Purge { target, mode }), 1);
    assert_eq!(get(&proxy, "/").await.status(), 503);
}

#[tokio::test]
async fn invalidated_response_that_must_be_validated_is_no_fallback() {
    for field in [
        "Cache-Control: max-age=60, must-revalidate",
        "Cache-Control: s-maxage=60",
        "Cache-Control: max-age=60, stale-if-error=0",
    ] {
        let is_failing = Arc::default();
        let origin = origin(field, &is_failing).await;
        let proxy = proxy(&origin).await;
        assert_eq!(get(&proxy, "/").await.outcome(), "miss");
        send(&proxy, "POST", "/", POST).await;
        is_failing.store(true, SeqCst);
        let answer = get(&proxy, "/").await;
        assert_eq!((answer.status(), answer.text()), (503, "failed"), "{field}");
    }
}

/// Neither a stale period nor a soft timeout brings the outdated response back while the origin is well.
#[tokio::test]
async fn slow_origin_after_an_unsafe_request_is_awaited() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |received, mut line| {
        let gate = Arc::clone(&held);
        async move {
            if received.number == 2 {
                gate.acquire().await.ok()?.forget();
            }
            let fields = ["Cache-Control: max-age=60, stale-while-revalidate=60, stale-if-error=60"];
            let body = received.number.to_string();
            line.write_all(&sized("200 OK", &fields, body.as_bytes())).await.ok()?;
            Some(line)
        }
    })
    .await;
    let cache = "[cache]\nstrategy = \"fallback\"\nswr = \"1h\"\nload = { soft_timeout = \"1ms\" }\n";
    let proxy = proxy_with(&origin.url(), cache, "").await;
    get(&proxy, "/").await.assert_body(b"0");
    send(&proxy, "POST", "/", POST).await;
    let clients = send_concurrently(&proxy, 2, |_| request("GET", "/", &[])).await;
    until(|| origin.in_progress() == 1).await;
    // Far beyond the soft timeout.
    elapse(Duration::from_millis(20)).await;
    gate.add_permits(1);
    for answer in answers(clients).await {
        answer.assert_body(b"2");
    }
}

#[tokio::test]
async fn route_chooses_the_effect_of_unsafe_requests() {
    for (setting, fails, expected) in [
        ("fallback", false, "miss"),
        ("fallback", true, "fallback"),
        ("remove", false, "miss"),
        ("remove", true, "error"),
        ("none", false, "hit"),
        ("none", true, "hit"),
    ] {
        let is_failing = Arc::default();
        let origin = origin("Cache-Control: max-age=60", &is_failing).await;
        let route = format!("[[route]]\ninvalidate_on_unsafe = \"{setting}\"\n");
        let proxy = proxy_with(&origin.url(), "", &route).await;
        get(&proxy, "/").await.assert_body(b"0");
        send(&proxy, "POST", "/", POST).await.assert_body(b"done");
        is_failing.store(fails, SeqCst);
        assert_eq!(get(&proxy, "/").await.outcome(), expected, "{setting} {fails}");
    }
}

/// A request with a stale response waits for the soft timeout; once the response is purged, it waits for the load.
#[tokio::test]
async fn purge_during_the_soft_timeout_leaves_the_load() {
    let gate = Arc::new(Semaphore::new(0));
    let of_origin = Arc::clone(&gate);
    let origin = Origin::start(move |received, mut line| {
        let gate = Arc::clone(&of_origin);
        async move {
            if received.number > 0 {
                gate.acquire().await.ok()?.forget();
            }
            let body = format!("{}", received.number);
            let answer = sized(
                "200 OK",
                &["Cache-Control: max-age=1, stale-if-error=600", "Age: 100"],
                body.as_bytes(),
            );
            line.write_all(&answer).await.ok().map(|()| line)
        }
    })
    .await;
    let cache = "[cache]\nstrategy = \"fallback\"\nload = { soft_timeout = \"100ms\", deadline = \"1h\" }\n";
    let proxy = proxy_with(&origin.url(), cache, "").await;
    get(&proxy, "/").await.assert_body(b"0");
    let stale = get_while_loading(&proxy).await;
    assert_eq!((stale.outcome(), stale.text()), ("fallback", "0"));
    gate.add_permits(1);
    with_timeout(proxy.proxy().cache().wait_idle()).await;
    let mut client = Client::connect(&proxy).await;
    client.write(request("GET", "/", &[])).await;
    until(|| origin.count() == 3).await;
    let purge = Purge { target: PurgeTarget::All, mode: Invalidation::Hard };
    let _ = proxy.proxy().purge(&purge);
    elapse(Duration::from_millis(200)).await;
    gate.add_permits(2);
    let head = client.head_to("GET").await.expect("an answer");
    assert_eq!(head.status, 200, "{head:?}");
    // The load that began before the purge is not for requests after it.
    client.rest(head, Vec::new()).await.assert_body(b"3");
}

/// Does not wait for loads that have not ended.
async fn get_while_loading(proxy: &ProxyServer) -> Answer {
    Client::connect(proxy).await.send("GET", "/", &[]).await
}
