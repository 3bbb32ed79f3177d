//! Clients share the connections to an origin: slow requests and event streams of one do not keep those of another waiting.

use std::sync::Arc;

use stockade_proxy::server::ProxyServer;
use tokio::{io::AsyncWriteExt, sync::Semaphore};

use crate::serve::support::*;

const OTHER: [u8; 4] = [127, 0, 1, 1];
const CONNECTIONS: usize = 8;
/// The connections that one client may hold.
const SHARE: usize = 6;
const FEW: &str = "connections = 8\nwaiting = 100";
const EVENT_STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n7\r\ndata: 1\r\n";

/// Answers `/slow/...` when there is a permit, and does not end `/events/...` before.
async fn gated_origin(gate: &Arc<Semaphore>) -> Origin {
    let gate = Arc::clone(gate);
    Origin::start(move |received, mut line| {
        let gate = Arc::clone(&gate);
        async move {
            let (is_slow, is_event_stream) =
                (received.target().starts_with("/slow/"), received.target().starts_with("/events/"));
            if is_event_stream {
                line.write_all(EVENT_STREAM).await.ok()?;
            }
            if is_slow || is_event_stream {
                gate.acquire().await.expect("an open gate").forget();
            }
            let answer = if is_event_stream { b"0\r\n\r\n".to_vec() } else { good(b"page") };
            line.write_all(&answer).await.ok().map(|()| line)
        }
    })
    .await
}

fn waiting(proxy: &ProxyServer) -> u64 {
    proxy.proxy().router().routes[0].origin.stats().waiting
}

/// As from 127.0.0.1, over HTTP/2.
async fn send_many(client: &[Http2], path: &str, count: usize) -> Vec<h2::client::ResponseFuture> {
    let mut answers = Vec::new();
    for number in 0..count {
        answers.push(client[number % client.len()].start_get(&format!("{path}/{number}")).await);
    }
    answers
}

async fn connect_many(proxy: &ProxyServer, count: usize) -> Vec<Http2> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(Http2::connect(proxy).await);
    }
    clients
}

#[tokio::test]
async fn slow_misses_of_one_client_do_not_keep_another_waiting() {
    let gate = Arc::new(Semaphore::new(0));
    let origin = gated_origin(&gate).await;
    let proxy = proxy_with(&origin.url(), "", FEW).await;
    let greedy = connect_many(&proxy, 5).await;
    let slow = send_many(&greedy, "/slow", 1_000).await;
    until(|| origin.in_progress() == SHARE && waiting(&proxy) == 100).await;
    let mut other = Client::connect_from(OTHER, &proxy).await;
    for number in 0..20 {
        let answer = other.send("GET", &format!("/miss/{number}"), &[]).await;
        assert_eq!((answer.status(), answer.outcome()), (200, "miss"), "{number}");
    }
    assert_eq!(origin.in_progress(), SHARE);
    // Requests of clients that have left do not wait any more.
    drop((slow, greedy));
    until(|| waiting(&proxy) == 0).await;
    assert_eq!((origin.in_progress(), origin.count()), (SHARE, SHARE + 20));
    assert_eq!(other.send("GET", "/miss/20", &[]).await.status(), 200);
    // Those that the origin has received are completed for the cache.
    gate.add_permits(SHARE);
    until(|| origin.in_progress() == 0).await;
    let target = origin.requests()[0].target().to_owned();
    assert_eq!(get(&proxy, &target).await.outcome(), "hit");
}

#[tokio::test]
async fn requests_of_another_client_take_the_places_of_the_newest_ones_in_a_full_queue() {
    let gate = Arc::new(Semaphore::new(0));
    let origin = gated_origin(&gate).await;
    let proxy = proxy_with(&origin.url(), "", "connections = 1\nwaiting = 4").await;
    let greedy = connect_many(&proxy, 1).await;
    let first = send_many(&greedy, "/slow/first", 1).await;
    until(|| origin.in_progress() == 1).await;
    let mut queued = Vec::new();
    for number in 1..=4 {
        queued.extend(send_many(&greedy, &format!("/slow/queued/{number}"), 1).await);
        until(|| waiting(&proxy) == number).await;
    }
    // One more of the same client finds the queue full.
    assert_eq!(greedy[0].get("/slow/refused").await.head.status, 503);
    let mut other = Client::connect_from(OTHER, &proxy).await;
    other.write(request("GET", "/miss", &[])).await;
    let displaced = with_timeout(queued.pop().expect("the newest")).await.expect("an answer");
    assert_eq!(displaced.status(), 503);
    assert_eq!(displaced.headers()["retry-after"], "1");
    // The other client is the next one, or the one after it.
    gate.add_permits(2);
    let head = other.head_to("GET").await.expect("an answer");
    assert_eq!(other.rest(head, Vec::new()).await.status(), 200);
    gate.add_permits(2);
    for answer in first.into_iter().chain(queued) {
        assert_eq!(with_timeout(answer).await.expect("an answer").status(), 200);
    }
}

#[tokio::test]
async fn event_streams_take_no_connection_from_misses() {
    let gate = Arc::new(Semaphore::new(0));
    let origin = gated_origin(&gate).await;
    let proxy = proxy_with(&origin.url(), "", FEW).await;
    let greedy = connect_many(&proxy, 2).await;
    let mut streams = Vec::new();
    let mut refused = 0;
    for number in 0..300 {
        let stream = greedy[number % 2].get(&format!("/events/{number}")).await;
        match stream.head.status.as_u16() {
            200 => streams.push(stream),
            status => {
                assert_eq!(
                    (status, &stream.head.headers["retry-after"]),
                    (503, &"1".parse().expect("a value"))
                );
                refused += 1;
            }
        }
    }
    assert_eq!((streams.len(), refused), (SHARE, 300 - SHARE));
    let mut other = Client::connect_from(OTHER, &proxy).await;
    for number in 0..20 {
        assert_eq!(other.send("GET", &format!("/miss/{number}"), &[]).await.status(), 200);
    }
    for stream in &mut streams {
        assert_eq!(stream.more().await.expect("an open stream"), Some(b"data: 1".to_vec()));
    }
    // A stream that has ended makes room for another one.
    drop(streams.pop());
    let next = async {
        loop {
            let stream = greedy[0].get("/events/next").await;
            if stream.head.status == 200 {
                return stream;
            }
        }
    };
    streams.push(with_timeout(next).await);
    // All connections are there for misses, of the same client too.
    let slow = send_many(&greedy, "/slow", CONNECTIONS).await;
    let is_slow = |received: &ReceivedRequest| received.target().starts_with("/slow/");
    let slow_count = || origin.requests().iter().filter(|received| is_slow(received)).count();
    until(|| slow_count() >= SHARE).await;
    assert_eq!(slow_count(), SHARE, "{:?}", proxy.proxy().router().routes[0].origin.stats());
    let mut events = Client::connect_from(OTHER, &proxy).await;
    events.write(request("GET", "/events/other", &[])).await;
    let mut head = events.head_to("GET").await.expect("an answer");
    assert_eq!(head.status, 200);
    assert_eq!(events.more(&mut head).await.expect("an open stream"), Some(b"data: 1".to_vec()));
    drop(slow);
}

#[tokio::test]
async fn load_that_waits_is_served_in_the_turn_of_each_client_that_waits_for_it() {
    let gate = Arc::new(Semaphore::new(0));
    let origin = gated_origin(&gate).await;
    let proxy = proxy_with(&origin.url(), "", FEW).await;
    let greedy = connect_many(&proxy, 1).await;
    let slow = send_many(&greedy, "/slow", SHARE + 50).await;
    let page = greedy[0].start_get("/page").await;
    until(|| origin.in_progress() == SHARE && waiting(&proxy) == 51).await;
    // Its client is over its share; the other one is not.
    let mut other = Client::connect_from(OTHER, &proxy).await;
    let answer = other.send("GET", "/page", &[]).await;
    assert_eq!((answer.status(), answer.outcome()), (200, "coalesced"));
    assert_eq!(with_timeout(page).await.expect("an answer").status(), 200);
    assert_eq!(origin.count(), SHARE + 1);
    drop(slow);
}

#[tokio::test]
async fn request_of_another_client_does_not_share_the_refusal_of_a_load() {
    let gate = Arc::new(Semaphore::new(0));
    let origin = gated_origin(&gate).await;
    let proxy = proxy_with(&origin.url(), "", "connections = 1\nwaiting = 3").await;
    let greedy = connect_many(&proxy, 1).await;
    let first = send_many(&greedy, "/slow/first", 1).await;
    until(|| origin.in_progress() == 1).await;
    let older = send_many(&greedy, "/older", 2).await;
    until(|| waiting(&proxy) == 2).await;
    let page = greedy[0].start_get("/page").await;
    until(|| waiting(&proxy) == 3).await;
    let mut same = Client::connect_from(OTHER, &proxy).await;
    same.write(request("GET", "/page", &[])).await;
    until(|| proxy.proxy().router().routes[0].cache.stats().waiters > 0).await;
    // It takes the place of the load that the other one waits for.
    let mut third = Client::connect_from([127, 0, 2, 1], &proxy).await;
    third.write(request("GET", "/third", &[])).await;
    assert_eq!(with_timeout(page).await.expect("an answer").status(), 503);
    gate.add_permits(1);
    for client in [&mut same, &mut third] {
        let head = client.head_to("GET").await.expect("an answer");
        assert_eq!(client.rest(head, Vec::new()).await.status(), 200);
    }
    for answer in first.into_iter().chain(older) {
        with_timeout(answer).await.expect("an answer");
    }
}
