//! Concurrent requests: coalescing, streaming to waiters, variants.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::{io::AsyncWriteExt, sync::Semaphore};

use crate::serve::support::*;

#[derive(Clone, Copy, Debug)]
enum Framing {
    Length,
    Chunks,
    Close,
}

/// An origin that sends the second half of each body after a permit.
async fn half_gated(framing: Framing, body: Vec<u8>, gate: &Arc<Semaphore>) -> Origin {
    let (body, gate) = (Arc::new(body), Arc::clone(gate));
    Origin::start(move |_, mut line| {
        let (body, gate) = (Arc::clone(&body), Arc::clone(&gate));
        async move {
            let (first, second) = body.split_at(body.len() / 2);
            let header = "Cache-Control: max-age=60\r\n";
            let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            let (head, first, second) = match framing {
                Framing::Length => {
                    let head = format!("HTTP/1.1 200 OK\r\n{header}Content-Length: {}\r\n\r\n", body.len());
                    (head, first.to_vec(), second.to_vec())
                }
                Framing::Chunks => {
                    let head = format!("HTTP/1.1 200 OK\r\n{header}Transfer-Encoding: chunked\r\n\r\n");
                    (head, chunk(first), [chunk(second), b"0\r\n\r\n".to_vec()].concat())
                }
                Framing::Close => {
                    (format!("HTTP/1.0 200 OK\r\n{header}\r\n"), first.to_vec(), second.to_vec())
                }
            };
            line.write_all(&[head.into_bytes(), first].concat()).await.ok()?;
            gate.acquire().await.ok()?.forget();
            line.write_all(&second).await.ok()?;
            if let Framing::Close = framing { None } else { Some(line) }
        }
    })
    .await
}

/// Reads the head and the first part of the body.
async fn first_part(client: &mut Client) -> (Head, Vec<u8>) {
    let mut head = client.head_to("GET").await.expect("an answer");
    let some = client.more(&mut head).await.expect("a body").expect("something of it");
    (head, some)
}

#[tokio::test]
async fn thousand_clients_stream_from_one_load() {
    const CLIENTS: usize = 1_000;
    let body = content(200_000);
    for framing in [Framing::Length, Framing::Chunks, Framing::Close] {
        let gate = Arc::new(Semaphore::new(0));
        let origin = half_gated(framing, body.clone(), &gate).await;
        let proxy = proxy(&origin).await;
        let clients = send_concurrently(&proxy, CLIENTS, |_| request("GET", "/", &[])).await;
        // Every client has a part before the origin sends the second half.
        let begun = join_all(clients.into_iter().map(|mut client| async move {
            let (head, some) = first_part(&mut client).await;
            (client, head, some)
        }))
        .await;
        assert_eq!((origin.count(), origin.in_progress()), (1, 1), "{framing:?}");
        gate.add_permits(1);
        let ends =
            begun.into_iter().map(|(mut client, head, some)| async move { client.rest(head, some).await });
        let answers = join_all(ends).await;
        let mut misses = 0;
        for answer in &answers {
            answer.assert_body(&body);
            assert_eq!(answer.field("content-length").is_some(), matches!(framing, Framing::Length));
            misses += usize::from(answer.outcome() == "miss");
            assert!(["miss", "coalesced"].contains(&answer.outcome()), "{:?}", answer.head);
        }
        assert_eq!(misses, 1, "{framing:?}");
        let hit = get(&proxy, "/").await;
        hit.assert_body(&body);
        assert_eq!((hit.outcome(), origin.count()), ("hit", 1), "{framing:?}");
    }
}

#[tokio::test]
async fn http2_streams_and_http10_clients_stream_from_one_load() {
    let body = content(300_000);
    for framing in [Framing::Length, Framing::Chunks, Framing::Close] {
        let gate = Arc::new(Semaphore::new(0));
        let origin = half_gated(framing, body.clone(), &gate).await;
        let proxy = proxy(&origin).await;
        let mut old = Client::connect(&proxy).await;
        old.write("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
        let requests = Http2::connect(&proxy).await;
        let begun = join_all((0..50).map(|_| async {
            let mut answer = requests.get("/").await;
            let some = answer.more().await.expect("no reset").expect("something of it");
            (answer, some)
        }))
        .await;
        let (head, some) = first_part(&mut old).await;
        assert_eq!((origin.count(), origin.in_progress()), (1, 1), "{framing:?}");
        gate.add_permits(1);
        let ends = begun.into_iter().map(|(mut answer, some)| async move { answer.rest(some).await });
        for whole in join_all(ends).await {
            assert!(whole.expect("no reset") == body, "{framing:?}");
        }
        old.rest(head, some).await.assert_body(&body);
    }
}

#[tokio::test]
async fn leader_may_disconnect_or_stop_reading() {
    // Larger than the buffers of sockets and proxy for a client that does not read.
    let body = content(900_000);
    for leaves in [true, false] {
        let gate = Arc::new(Semaphore::new(0));
        let origin = half_gated(Framing::Length, body.clone(), &gate).await;
        let proxy = proxy(&origin).await;
        let mut leader = Client::connect(&proxy).await;
        leader.write(request("GET", "/", &[])).await;
        until(|| origin.count() == 1).await;
        let followers = send_concurrently(&proxy, 20, |_| request("GET", "/", &[])).await;
        let _unread = if leaves {
            drop(leader);
            None
        } else {
            Some(leader)
        };
        gate.add_permits(1);
        for answer in answers(followers).await {
            answer.assert_body(&body);
        }
        let hit = get(&proxy, "/").await;
        hit.assert_body(&body);
        assert_eq!((hit.outcome(), origin.count()), ("hit", 1));
    }
}

#[tokio::test]
async fn load_without_clients_is_finished_and_stored() {
    let body = content(500_000);
    let gate = Arc::new(Semaphore::new(0));
    let origin = half_gated(Framing::Chunks, body.clone(), &gate).await;
    let proxy = proxy(&origin).await;
    let mut clients = send_concurrently(&proxy, 10, |_| request("GET", "/", &[])).await;
    for client in &mut clients {
        first_part(client).await;
    }
    drop(clients);
    gate.add_permits(1);
    with_timeout(proxy.proxy().cache().wait_idle()).await;
    let hit = get(&proxy, "/").await;
    hit.assert_body(&body);
    assert_eq!((hit.outcome(), origin.count()), ("hit", 1));
}

/// An origin with an endless body; each permit releases one step of it.
async fn endless(gate: &Arc<Semaphore>, length: Option<usize>) -> Origin {
    const STEP: usize = 64 << 10;
    let gate = Arc::clone(gate);
    Origin::start(move |_, mut line| {
        let gate = Arc::clone(&gate);
        async move {
            let how = length.map_or("Transfer-Encoding: chunked".to_owned(), |length| {
                format!("Content-Length: {length}")
            });
            let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{how}\r\n\r\n");
            line.write_all(head.as_bytes()).await.ok()?;
            let step = content(STEP);
            loop {
                gate.acquire().await.ok()?.forget();
                if length.is_none() {
                    line.write_all(format!("{STEP:x}\r\n").as_bytes()).await.ok()?;
                }
                line.write_all(&step).await.ok()?;
                if length.is_none() {
                    line.write_all(b"\r\n").await.ok()?;
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn slow_reader_throttles_the_origin_for_unstorable_bodies() {
    const PERMITS: usize = 1 << 20;
    for length in [None, Some(64_usize << 30)] {
        let gate = Arc::new(Semaphore::new(PERMITS));
        let origin = endless(&gate, length).await;
        let proxy = proxy(&origin).await;
        let mut client = Client::connect(&proxy).await;
        client.write(request("GET", "/", &[])).await;
        first_part(&mut client).await;
        // The client stops reading, so the origin stalls.
        let mut sent = usize::MAX;
        let mut still = 0;
        with_timeout(async {
            while still < 20_000 {
                stockade_model::time::yield_now().await;
                let now = PERMITS - gate.available_permits();
                still = if now == sent { still + 1 } else { 0 };
                sent = now;
            }
        })
        .await;
        assert!(sent * (64 << 10) < 16 << 20, "{} MiB are on their way", sent / 16);
        // A disconnect ends the load.
        drop(client);
        until(|| origin.in_progress() == 0).await;
        assert_eq!(origin.count(), 1);
    }
}

#[tokio::test]
async fn oversized_bodies_are_not_coalesced_and_smaller_ones_are_stored_again() {
    const OBJECT_BYTES_MAX: usize = 100_000;
    let large = content(3 * OBJECT_BYTES_MAX);
    for is_chunked in [false, true] {
        let body = large.clone();
        let origin = Origin::responding(move |received| {
            if received.target() == "/small" || received.number > 101 {
                return good(b"small");
            }
            if !is_chunked {
                return good(&body);
            }
            let mut bytes =
                b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n"
                    .to_vec();
            for piece in body.chunks(7_000) {
                bytes.extend([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
            }
            bytes.extend(b"0\r\n\r\n");
            bytes
        })
        .await;
        let limits =
            "[cache]\nstrategy = \"fallback\"\nlimit = { bytes = \"64MiB\", max_object = \"100000B\" }\n";
        let proxy = proxy_with(&origin.url(), limits, "connections = 2000").await;
        let first = get(&proxy, "/").await;
        first.assert_body(&large);
        assert_eq!((first.outcome(), origin.count()), ("miss", 1), "{is_chunked}");
        let clients = send_concurrently(&proxy, 100, |_| request("GET", "/", &[])).await;
        for answer in answers(clients).await {
            answer.assert_body(&large);
            assert_eq!(answer.outcome(), "miss");
        }
        assert_eq!(origin.count(), 101);
        // Other URLs are stored.
        get(&proxy, "/small").await.assert_body(b"small");
        let small = get(&proxy, "/").await;
        small.assert_body(b"small");
        let hit = get(&proxy, "/").await;
        hit.assert_body(b"small");
        assert_eq!((hit.outcome(), origin.count()), ("hit", 103), "{is_chunked}");
    }
}

#[tokio::test]
async fn known_private_responses_are_not_coalesced() {
    const CLIENTS: usize = 100;
    for (header, field) in [
        ("Cache-Control: private, max-age=60", ""),
        ("Cache-Control: no-store", ""),
        ("Set-Cookie: session=1\r\nCache-Control: max-age=60", ""),
        ("Cache-Control: max-age=60", "Authorization: Basic eA=="),
        ("Cache-Control: max-age=60\r\nVary: *", ""),
        ("Cache-Control: max-age=60", "Cache-Control: no-store"),
    ] {
        let gate = Arc::new(Semaphore::new(1));
        let held = Arc::clone(&gate);
        let origin = Origin::start(move |received, mut line| {
            let gate = Arc::clone(&held);
            async move {
                gate.acquire().await.ok()?.forget();
                let user = received.field("user").unwrap_or_default();
                line.write_all(&sized("200 OK", &[header, &format!("You: {user}")], user.as_bytes()))
                    .await
                    .ok()?;
                Some(line)
            }
        })
        .await;
        let proxy = proxy(&origin).await;
        let request_for = |user: &str| {
            let fields = [format!("User: {user}"), field.to_owned()];
            let fields = fields.iter().map(|line| &**line).filter(|line| !line.is_empty());
            request("GET", "/", &fields.collect::<Vec<_>>())
        };
        let first = answers(send_concurrently(&proxy, 1, |_| request_for("first")).await).await.remove(0);
        first.assert_body(b"first");
        let clients = send_concurrently(&proxy, CLIENTS, |number| request_for(&number.to_string())).await;
        // All requests reach the origin concurrently.
        until(|| origin.in_progress() == CLIENTS).await;
        gate.add_permits(2 * CLIENTS);
        for (number, answer) in answers(clients).await.into_iter().enumerate() {
            assert_eq!(answer.field("you"), Some(&*number.to_string()), "{header} {field} {answer:?}");
            answer.assert_body(number.to_string().as_bytes());
        }
        assert_eq!(origin.count(), CLIENTS + 1, "{header} {field}");
    }
}

#[tokio::test]
async fn authorized_leader_does_not_delay_anonymous_requests() {
    const CLIENTS: usize = 100;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |received, mut line| {
        let gate = Arc::clone(&held);
        async move {
            gate.acquire().await.ok()?.forget();
            line.write_all(&good(received.field("authorization").unwrap_or("anonymous").as_bytes()))
                .await
                .ok()?;
            Some(line)
        }
    })
    .await;
    let proxy = proxy(&origin).await;
    let authorized = |user: usize| request("GET", "/", &[&format!("Authorization: {user}")]);
    let leader = send_concurrently(&proxy, 1, authorized).await;
    until(|| origin.count() == 1).await;
    let others = send_concurrently(&proxy, CLIENTS, |_| request("GET", "/", &[])).await;
    until(|| proxy.proxy().router().routes[0].stats().requests.waiters == CLIENTS as u64).await;
    gate.add_permits(2);
    answers(leader).await[0].assert_body(b"0");
    for answer in answers(others).await {
        answer.assert_body(b"anonymous");
    }
    assert_eq!(origin.count(), 2, "one load for all anonymous requests");
    // A public entry serves authorized requests as well.
    let known = send_concurrently(&proxy, 1, authorized).await;
    answers(known).await[0].assert_body(b"anonymous");

    // Without an entry, requests with different credentials are not coalesced.
    let authorized = |user: usize| request("GET", "/own", &[&format!("Authorization: {user}")]);
    gate.add_permits(1);
    answers(send_concurrently(&proxy, 1, authorized).await).await[0].assert_body(b"0");
    let all = send_concurrently(&proxy, CLIENTS, authorized).await;
    until(|| origin.in_progress() == CLIENTS).await;
    let anonymous = send_concurrently(&proxy, 1, |_| request("GET", "/own", &[])).await;
    until(|| origin.in_progress() == CLIENTS + 1).await;
    gate.add_permits(CLIENTS + 1);
    for (user, answer) in answers(all).await.into_iter().enumerate() {
        answer.assert_body(user.to_string().as_bytes());
    }
    answers(anonymous).await[0].assert_body(b"anonymous");
    assert_eq!(origin.count(), 4 + CLIENTS);
}

#[tokio::test]
async fn concurrent_requests_receive_separate_private_responses() {
    let origin = Origin::responding(|received| {
        let user = received.field("user").unwrap_or_default();
        sized("200 OK", &["Cache-Control: private", &format!("Set-Cookie: is={user}")], user.as_bytes())
    })
    .await;
    let proxy = proxy(&origin).await;
    let clients =
        send_concurrently(&proxy, 200, |number| request("GET", "/", &[&format!("User: {number}")])).await;
    for (number, answer) in answers(clients).await.into_iter().enumerate() {
        answer.assert_body(number.to_string().as_bytes());
        assert_eq!(answer.field("set-cookie"), Some(&*format!("is={number}")));
    }
    assert_eq!(origin.count(), 200);
}

#[tokio::test]
async fn each_variant_is_loaded_once() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |received, mut line| {
        let gate = Arc::clone(&held);
        async move {
            gate.acquire().await.ok()?.forget();
            let language = received.field("accept-language").unwrap_or("none");
            let header = ["Cache-Control: max-age=60", "Vary: Accept-Language"];
            line.write_all(&sized("200 OK", &header, language.as_bytes())).await.ok()?;
            Some(line)
        }
    })
    .await;
    let proxy = proxy(&origin).await;
    let language = |number: usize| ["de", "en", "fr"][number % 3];
    let request_for =
        |number: usize| request("GET", "/", &[&format!("Accept-Language: {}", language(number))]);
    let clients = send_concurrently(&proxy, 150, request_for).await;
    gate.add_permits(1_000);
    for (number, answer) in answers(clients).await.into_iter().enumerate() {
        answer.assert_body(language(number).as_bytes());
    }
    assert_eq!(origin.count(), 3);
    for number in 0..3 {
        let hit = send(&proxy, "GET", "/", &[&format!("Accept-Language: {}", language(number))]).await;
        hit.assert_body(language(number).as_bytes());
        assert_eq!(hit.outcome(), "hit");
    }
    assert_eq!(origin.count(), 3);
}

#[tokio::test]
async fn fresh_variant_does_not_wait_for_the_refresh_of_another() {
    let gate = Arc::new(Semaphore::new(2));
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |received, mut line| {
        let gate = Arc::clone(&held);
        async move {
            gate.acquire().await.ok()?.forget();
            let language = received.field("accept-language").unwrap_or_default();
            // The first variant, which the URL alone selects, is stale on arrival.
            let header = match language {
                "de" => ["Cache-Control: max-age=1, must-revalidate", "Age: 100"],
                _ => ["Cache-Control: max-age=60", "Age: 0"],
            };
            let fields = [header[0], header[1], "ETag: \"1\"", "Vary: Accept-Language"];
            line.write_all(&sized("200 OK", &fields, language.as_bytes())).await.ok()?;
            Some(line)
        }
    })
    .await;
    let proxy = proxy(&origin).await;
    let loads = || proxy.proxy().router().routes[0].stats().requests.loads;
    let en = "Accept-Language: en";
    for language in ["de", "en"] {
        send(&proxy, "GET", "/", &[&format!("Accept-Language: {language}")])
            .await
            .assert_body(language.as_bytes());
    }
    let waiting = send_concurrently(&proxy, 1, |_| request("GET", "/", &["Accept-Language: de"])).await;
    until(|| origin.count() == 3).await;
    let before = loads();
    for wish in ["X: y", "Cache-Control: max-age=50", "Cache-Control: only-if-cached"] {
        let answer = Client::connect(&proxy).await.send("GET", "/", &[en, wish]).await;
        assert_eq!((answer.status(), answer.outcome()), (200, "hit"), "{wish} {:?}", answer.head);
        answer.assert_body(b"en");
    }
    assert_eq!((loads(), origin.count()), (before, 3));
    gate.add_permits(1);
    answers(waiting).await[0].assert_body(b"de");
}

#[tokio::test]
async fn vary_may_change_between_responses() {
    let origin = Origin::responding(|received| {
        // First on the language, then also on `User`.
        let vary = if received.number < 2 { "Vary: Accept-Language" } else { "Vary: Accept-Language, User" };
        let text = format!("{:?} {:?}", received.field("accept-language"), received.field("user"));
        sized("200 OK", &["Cache-Control: max-age=60", vary, "Age: 60"], text.as_bytes())
    })
    .await;
    let proxy = proxy(&origin).await;
    for round in 0..4 {
        for user in ["x", "y"] {
            for language in ["de", "en"] {
                let fields = [format!("User: {user}"), format!("Accept-Language: {language}")];
                let answer = send(&proxy, "GET", "/", &[&fields[0], &fields[1]]).await;
                assert!(answer.is_whole && answer.text().contains(language), "{round} {:?}", answer.text());
                if round > 0 {
                    assert!(answer.text().contains(user), "{round} {user} {language} {:?}", answer.text());
                }
            }
        }
    }
}

#[tokio::test]
async fn ranges_of_oversized_bodies_come_from_the_origin() {
    let body = content(300_000);
    let all = body.clone();
    let origin = Origin::responding(move |received| match received.field("range") {
        Some("bytes=10-19") => {
            let fields = ["Content-Range: bytes 10-19/300000", "Cache-Control: max-age=60"];
            sized("206 Partial Content", &fields, &all[10..20])
        }
        Some(_) => sized("416 No", &["Content-Range: bytes */300000"], b""),
        None => good(&all),
    })
    .await;
    let limits = "[cache]\nstrategy = \"fallback\"\nlimit = { bytes = \"64MiB\", max_object = \"1000B\" }\n";
    let proxy = proxy_with(&origin.url(), limits, "").await;
    // The size is unknown before the first response.
    send(&proxy, "GET", "/", &["Range: bytes=10-19"]).await.assert_body(&body);
    for _ in 0..2 {
        let part = send(&proxy, "GET", "/", &["Range: bytes=10-19"]).await;
        part.assert_body(&body[10..20]);
        assert_eq!((part.status(), part.field("content-range")), (206, Some("bytes 10-19/300000")));
        let none = send(&proxy, "GET", "/", &["Range: bytes=300000-"]).await;
        assert_eq!((none.status(), none.field("content-range")), (416, Some("bytes */300000")));
        get(&proxy, "/").await.assert_body(&body);
    }
    assert_eq!(origin.count(), 7);
}

#[tokio::test]
async fn first_chunk_may_exceed_the_object_limit() {
    let body = content(300_000);
    let all = body.clone();
    let origin = Origin::responding(move |_| {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n";
        [format!("{head}{:x}\r\n", all.len()).as_bytes(), &all, b"\r\n0\r\n\r\n"].concat()
    })
    .await;
    let limits = "[cache]\nstrategy = \"fallback\"\nlimit = { bytes = \"64MiB\", max_object = \"1000B\" }\n";
    let proxy = proxy_with(&origin.url(), limits, "").await;
    for number in 0..20 {
        get(&proxy, &format!("/{number}")).await.assert_body(&body);
        assert_eq!(origin.count(), number + 1, "one load for each URL");
    }
}

#[tokio::test]
async fn private_response_is_awaited_beyond_the_soft_timeout() {
    use stockade_model::time::{Live, Runtime};
    let clock = Live::new();
    let origin = Origin::start(move |received, mut line| {
        let clock = clock.clone();
        async move {
            if received.number > 0 {
                clock.sleep_until(clock.now() + std::time::Duration::from_millis(60)).await;
            }
            let number = received.number.to_string();
            line.write_all(&sized("200 OK", &["Cache-Control: private"], number.as_bytes())).await.ok()?;
            Some(line)
        }
    })
    .await;
    let cache = "[cache]\nstrategy = \"fallback\"\nload = { soft_timeout = \"10ms\" }\n";
    let proxy = proxy_with(&origin.url(), cache, "").await;
    for number in 0..4 {
        get(&proxy, "/").await.assert_body(number.to_string().as_bytes());
    }
}
