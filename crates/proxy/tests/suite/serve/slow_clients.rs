//! Clients that send or read slowly do not hold the connections to the origin that misses need.

use stockade_proxy::server::ProxyServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::serve::support::*;

const CONNECTIONS: usize = 4;
const FEW: &str = "connections = 4";

/// Answers a request once its body, of the declared length, has arrived: with the number of its bytes, and their sum.
async fn origin_that_reads() -> Origin {
    Origin::start(|received, mut line| async move {
        let length = received.field("content-length").map_or(0, |length| length.parse().expect("a number"));
        let mut body = vec![0; length];
        line.read_exact(&mut body).await.ok()?;
        let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
        let answer = if length == 0 { good(b"page") } else { good(format!("{length} {sum}").as_bytes()) };
        line.write_all(&answer).await.ok().map(|()| line)
    })
    .await
}

/// The network of this number.
fn network(number: usize) -> [u8; 4] {
    [127, 1, u8::try_from(number).expect("a small number"), 1]
}

/// Requests of different clients, each with `sent` bytes of a body of `length`.
async fn uploads(proxy: &ProxyServer, count: usize, length: usize, sent: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for number in 0..count {
        let mut client = Client::connect_from(network(number), proxy).await;
        let head = format!("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        client.write([head.as_bytes(), &content(length)[..sent]].concat()).await;
        clients.push(client);
    }
    clients
}

#[tokio::test]
async fn short_upload_takes_a_connection_when_it_is_whole() {
    let origin = origin_that_reads().await;
    let proxy = proxy_with(&origin.url(), "", FEW).await;
    let body = content(1_000);
    let clients = uploads(&proxy, 2 * CONNECTIONS, body.len(), 1).await;
    get(&proxy, "/miss").await.assert_body(b"page");
    assert_eq!(origin.count(), 1);
    let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
    for mut client in clients {
        client.write(&body[1..]).await;
        let head = client.head_to("POST").await.expect("an answer");
        client.rest(head, Vec::new()).await.assert_body(format!("{} {sum}", body.len()).as_bytes());
    }
}

#[tokio::test]
async fn long_uploads_take_half_of_the_connections() {
    const SENT: usize = 100_000;
    let origin = origin_that_reads().await;
    let proxy = proxy_with(&origin.url(), "", FEW).await;
    let body = content(1_000_000);
    let clients = uploads(&proxy, 2 * CONNECTIONS, body.len(), SENT).await;
    until(|| origin.count() == CONNECTIONS / 2).await;
    get(&proxy, "/miss").await.assert_body(b"page");
    assert_eq!(origin.count(), CONNECTIONS / 2 + 1);
    // The others follow.
    let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
    let rest = clients.into_iter().map(|mut client| {
        let body = &body;
        async move {
            client.write(&body[SENT..]).await;
            let head = client.head_to("POST").await.expect("an answer");
            client.rest(head, Vec::new()).await.assert_body(format!("{} {sum}", body.len()).as_bytes());
        }
    });
    with_timeout(futures_util::future::join_all(rest)).await;
}

/// Each of these holds a connection until its client has taken the response, which is not stored.
#[tokio::test]
async fn clients_that_do_not_read_give_connections_back_to_misses() {
    let large = content(16 << 20);
    let origin = Origin::responding(move |received| match received.target() {
        "/private" => sized("200 OK", &["Cache-Control: no-store"], &large),
        _ => good(b"page"),
    })
    .await;
    let proxy = proxy_with(&origin.url(), "", FEW).await;
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let mut client = Client::connect_from(network(number), &proxy).await;
        client.write(request("GET", "/private", &[])).await;
        clients.push(client);
    }
    until(|| origin.count() == CONNECTIONS).await;
    let miss = get(&proxy, "/miss").await;
    assert_eq!(miss.status(), 200);
    drop(clients);
}

const GREEDY: [u8; 4] = [127, 0, 9, 1];
const OTHER: [u8; 4] = [127, 0, 1, 1];

/// One network takes every connection, and gives none back: it is waited for in a head, to read a response, or in a body.
#[tokio::test]
async fn greedy_client_loses_connections_to_others() {
    const CONNECTIONS: usize = 40;
    let large = content(16 << 20);
    let origin = Origin::responding(move |received| match received.target() {
        "/large" => good(&large),
        _ => good(b"page"),
    })
    .await;
    let limits = format!(
        "[bounds]\nconnections = {CONNECTIONS}\n[cache]\nlimit = {{ bytes = \"256MiB\", max_object = \"20MiB\" }}\n\
         [timeouts]\nhead = \"1h\"\nwrite = \"1h\"\nbody = \"1h\"\n"
    );
    for started in [
        "GET / HTTP/1.1\r\nHost: a\r\nX: ",
        "GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nstart",
    ] {
        let proxy = proxy_with(&origin.url(), &limits, "").await;
        get(&proxy, "/large").await;
        let mut greedy = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut client = Client::connect_from(GREEDY, &proxy).await;
            client.write(started).await;
            greedy.push(client);
        }
        for number in 0..CONNECTIONS / 2 {
            let mut client = Client::connect_from(OTHER, &proxy).await;
            let answer = client.send("GET", &format!("/{number}"), &[]).await;
            assert_eq!(answer.status(), 200, "{started:?}, the client {number}");
        }
    }
}

/// One network asks for more connections than there are: idle ones, and heads that never end.
#[tokio::test]
async fn idle_connections_of_others_stay_when_one_client_fills_the_table() {
    const CONNECTIONS: usize = 40;
    let origin = Origin::responding(|_| good(b"page")).await;
    for started in ["", "GET / HTTP/1.1\r\nHost: a\r\nX: "] {
        let limits = format!("[bounds]\nconnections = {CONNECTIONS}\n[timeouts]\nhead = \"1h\"\n");
        let proxy = proxy_with(&origin.url(), &limits, "").await;
        let mut others = Vec::new();
        for _ in 0..CONNECTIONS / 10 {
            let mut client = Client::connect_from(OTHER, &proxy).await;
            assert_eq!(client.send("GET", "/", &[]).await.status(), 200);
            others.push(client);
        }
        let mut greedy = Vec::new();
        for _ in 0..3 * CONNECTIONS {
            let mut client = Client::connect_from(GREEDY, &proxy).await;
            client.write(started).await;
            greedy.push(client);
        }
        for mut client in others {
            assert_eq!(client.send("GET", "/", &[]).await.status(), 200, "{started:?}");
        }
    }
}

#[tokio::test]
async fn connections_of_one_client_are_bounded() {
    let origin = Origin::responding(|_| good(b"page")).await;
    let proxy = proxy_with(&origin.url(), "[bounds]\nconnections_per_client = 3\n", "").await;
    let mut kept = Vec::new();
    for number in 0..4 {
        let mut client = Client::connect_from(GREEDY, &proxy).await;
        let answer = client.send("GET", "/", &[]).await;
        assert_eq!(answer.status(), 200, "{number}");
        kept.push(client);
    }
    // One of its idle connections was closed for the last one.
    let ends = kept.iter_mut().map(|client| Box::pin(client.head_to("GET")));
    let (end, closed, _) = futures_util::future::select_all(ends).await;
    assert!(end.is_err() && closed < 3);
    drop(kept.remove(closed));
    let mut other = Client::connect_from(OTHER, &proxy).await;
    assert_eq!(other.send("GET", "/", &[]).await.status(), 200);
    // A closed connection counts no more.
    drop(kept.swap_remove(0));
    loop {
        let mut client = Client::connect_from(GREEDY, &proxy).await;
        if client.send("GET", "/", &[]).await.status() == 200 {
            break;
        }
    }
}

/// Copies and refreshed entries share a body: no reply sends it, so no copy is held.
#[tokio::test]
async fn shared_bodies_are_not_held_without_a_reply() {
    let body = content(100_000);
    let origin = Origin::responding(move |received| match received.method() {
        "GET" if received.field("if-none-match").is_some() => {
            sized("304 Not Modified", &["ETag: \"1\""], b"")
        }
        "GET" => sized("200 OK", &["Cache-Control: max-age=60, stale-if-error=600", "ETag: \"1\""], &body),
        _ => good(b""),
    })
    .await;
    let limit = "[cache]\nlimit = { bytes = \"2MiB\", max_object = \"200KiB\" }\n";
    let proxy = proxy_with(&origin.url(), limit, "").await;
    for _ in 0..40 {
        get(&proxy, "/changed").await;
        send(&proxy, "GET", "/changed", &["Cache-Control: no-cache"]).await;
        send(&proxy, "POST", "/changed", &["Content-Length: 0"]).await;
    }
    for number in 0..20 {
        let target = format!("/other/{number}");
        get(&proxy, &target).await;
        assert_eq!(get(&proxy, &target).await.outcome(), "hit", "{target}");
    }
}
