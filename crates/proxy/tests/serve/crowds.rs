//! Many who ask at once: one of them asks the origin, and nobody waits for anybody.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::{io::AsyncWriteExt, sync::Semaphore};

use crate::support::*;

/// How the end of a body is told.
#[derive(Clone, Copy, Debug)]
enum Framing {
    Length,
    Chunks,
    Close,
}

/// An origin that holds back the second half of its answers until there is a permit.
async fn halves(framing: Framing, body: Vec<u8>, gate: &Arc<Semaphore>) -> Origin {
    let (body, gate) = (Arc::new(body), Arc::clone(gate));
    Origin::start(move |_, mut line| {
        let (body, gate) = (Arc::clone(&body), Arc::clone(&gate));
        async move {
            let (first, second) = body.split_at(body.len() / 2);
            let told = "Cache-Control: max-age=60\r\n";
            let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            let (head, first, second) = match framing {
                Framing::Length => {
                    let head = format!("HTTP/1.1 200 OK\r\n{told}Content-Length: {}\r\n\r\n", body.len());
                    (head, first.to_vec(), second.to_vec())
                }
                Framing::Chunks => {
                    let head = format!("HTTP/1.1 200 OK\r\n{told}Transfer-Encoding: chunked\r\n\r\n");
                    (head, chunk(first), [chunk(second), b"0\r\n\r\n".to_vec()].concat())
                }
                Framing::Close => (format!("HTTP/1.0 200 OK\r\n{told}\r\n"), first.to_vec(), second.to_vec()),
            };
            line.write_all(&[head.into_bytes(), first].concat()).await.ok()?;
            gate.acquire().await.ok()?.forget();
            line.write_all(&second).await.ok()?;
            if let Framing::Close = framing { None } else { Some(line) }
        }
    })
    .await
}

/// Reads until something of the body is there.
async fn beginning(client: &mut Client) -> (Head, Vec<u8>) {
    let mut head = client.head_to("GET").await.expect("an answer");
    let some = client.more(&mut head).await.expect("a body").expect("something of it");
    (head, some)
}

#[tokio::test]
async fn a_thousand_read_along_with_one() {
    const CLIENTS: usize = 1_000;
    let body = content(200_000);
    for framing in [Framing::Length, Framing::Chunks, Framing::Close] {
        let gate = Arc::new(Semaphore::new(0));
        let origin = halves(framing, body.clone(), &gate).await;
        let proxy = proxy(&origin).await;
        let clients = crowd(&proxy, CLIENTS, |_| request("GET", "/", &[])).await;
        // Everybody has something before the origin has sent the rest.
        let begun = join_all(clients.into_iter().map(|mut client| async move {
            let (head, some) = beginning(&mut client).await;
            (client, head, some)
        }))
        .await;
        assert_eq!((origin.count(), origin.underway()), (1, 1), "{framing:?}");
        gate.add_permits(1);
        let ends =
            begun.into_iter().map(|(mut client, head, some)| async move { client.rest(head, some).await });
        let answers = join_all(ends).await;
        let mut misses = 0;
        for answer in &answers {
            answer.is(&body);
            assert_eq!(answer.field("content-length").is_some(), matches!(framing, Framing::Length));
            misses += usize::from(answer.did() == "miss");
            assert!(["miss", "coalesced"].contains(&answer.did()), "{:?}", answer.head);
        }
        assert_eq!(misses, 1, "{framing:?}");
        let hit = get(&proxy, "/").await;
        hit.is(&body);
        assert_eq!((hit.did(), origin.count()), ("hit", 1), "{framing:?}");
    }
}

#[tokio::test]
async fn streams_of_http2_and_an_old_client_read_along_as_well() {
    let body = content(300_000);
    for framing in [Framing::Length, Framing::Chunks, Framing::Close] {
        let gate = Arc::new(Semaphore::new(0));
        let origin = halves(framing, body.clone(), &gate).await;
        let proxy = proxy(&origin).await;
        let mut old = Client::connect(&proxy).await;
        old.say("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
        let requests = Http2::connect(&proxy).await;
        let begun = join_all((0..50).map(|_| async {
            let mut answer = requests.get("/").await;
            let some = answer.more().await.expect("no reset").expect("something of it");
            (answer, some)
        }))
        .await;
        let (head, some) = beginning(&mut old).await;
        assert_eq!((origin.count(), origin.underway()), (1, 1), "{framing:?}");
        gate.add_permits(1);
        let ends = begun.into_iter().map(|(mut answer, some)| async move { answer.rest(some).await });
        for whole in join_all(ends).await {
            assert!(whole.expect("no reset") == body, "{framing:?}");
        }
        old.rest(head, some).await.is(&body);
    }
}

#[tokio::test]
async fn who_leads_may_leave_or_never_read() {
    // Larger than what sockets and proxies hold for one who does not read.
    let body = content(900_000);
    for leaves in [true, false] {
        let gate = Arc::new(Semaphore::new(0));
        let origin = halves(Framing::Length, body.clone(), &gate).await;
        let proxy = proxy(&origin).await;
        let mut leader = Client::connect(&proxy).await;
        leader.say(request("GET", "/", &[])).await;
        until(|| origin.count() == 1).await;
        let followers = crowd(&proxy, 20, |_| request("GET", "/", &[])).await;
        let _deaf = if leaves {
            drop(leader);
            None
        } else {
            Some(leader)
        };
        gate.add_permits(1);
        for answer in answers(followers).await {
            answer.is(&body);
        }
        let hit = get(&proxy, "/").await;
        hit.is(&body);
        assert_eq!((hit.did(), origin.count()), ("hit", 1));
    }
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_stored_all_the_same() {
    let body = content(500_000);
    let gate = Arc::new(Semaphore::new(0));
    let origin = halves(Framing::Chunks, body.clone(), &gate).await;
    let proxy = proxy(&origin).await;
    let mut clients = crowd(&proxy, 10, |_| request("GET", "/", &[])).await;
    for client in &mut clients {
        beginning(client).await;
    }
    drop(clients);
    gate.add_permits(1);
    soon(proxy.proxy().cache().idle()).await;
    let hit = get(&proxy, "/").await;
    hit.is(&body);
    assert_eq!((hit.did(), origin.count()), ("hit", 1));
}

/// Streams without end that a test may stop: as many bytes as its permits say, in steps.
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
async fn the_slowest_reader_bounds_what_is_held_of_a_body_too_large() {
    const PERMITS: usize = 1 << 20;
    for length in [None, Some(64_usize << 30)] {
        let gate = Arc::new(Semaphore::new(PERMITS));
        let origin = endless(&gate, length).await;
        let proxy = proxy(&origin).await;
        let mut client = Client::connect(&proxy).await;
        client.say(request("GET", "/", &[])).await;
        beginning(&mut client).await;
        // It reads no more: the origin cannot send on.
        let mut sent = usize::MAX;
        let mut still = 0;
        soon(async {
            while still < 20_000 {
                stockade_model::time::yield_now().await;
                let now = PERMITS - gate.available_permits();
                still = if now == sent { still + 1 } else { 0 };
                sent = now;
            }
        })
        .await;
        assert!(sent * (64 << 10) < 16 << 20, "{} MiB are on their way", sent / 16);
        // Who leaves ends it.
        drop(client);
        until(|| origin.underway() == 0).await;
        assert_eq!(origin.count(), 1);
    }
}

#[tokio::test]
async fn bodies_too_large_are_streamed_to_each_and_small_again_stored() {
    const MOST: usize = 100_000;
    let large = content(3 * MOST);
    for is_chunked in [false, true] {
        let body = large.clone();
        let origin = Origin::saying(move |heard| {
            if heard.target() == "/small" || heard.number > 101 {
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
        first.is(&large);
        assert_eq!((first.did(), origin.count()), ("miss", 1), "{is_chunked}");
        let clients = crowd(&proxy, 100, |_| request("GET", "/", &[])).await;
        for answer in answers(clients).await {
            answer.is(&large);
            assert_eq!(answer.did(), "miss");
        }
        assert_eq!(origin.count(), 101);
        // What others have is stored beside it.
        get(&proxy, "/small").await.is(b"small");
        let small = get(&proxy, "/").await;
        small.is(b"small");
        let hit = get(&proxy, "/").await;
        hit.is(b"small");
        assert_eq!((hit.did(), origin.count()), ("hit", 103), "{is_chunked}");
    }
}

#[tokio::test]
async fn nobody_waits_for_answers_that_are_not_shared() {
    const CLIENTS: usize = 100;
    for (told, asked) in [
        ("Cache-Control: private, max-age=60", ""),
        ("Cache-Control: no-store", ""),
        ("Set-Cookie: session=1\r\nCache-Control: max-age=60", ""),
        ("Cache-Control: max-age=60", "Authorization: Basic eA=="),
        ("Cache-Control: max-age=60\r\nVary: *", ""),
        ("Cache-Control: max-age=60", "Cache-Control: no-store"),
    ] {
        let gate = Arc::new(Semaphore::new(1));
        let held = Arc::clone(&gate);
        let origin = Origin::start(move |heard, mut line| {
            let gate = Arc::clone(&held);
            async move {
                gate.acquire().await.ok()?.forget();
                let who = heard.field("who").unwrap_or_default();
                line.write_all(&sized("200 OK", &[told, &format!("You: {who}")], who.as_bytes()))
                    .await
                    .ok()?;
                Some(line)
            }
        })
        .await;
        let proxy = proxy(&origin).await;
        let says = |who: &str| {
            let fields = [format!("Who: {who}"), asked.to_owned()];
            let fields = fields.iter().map(|line| &**line).filter(|line| !line.is_empty());
            request("GET", "/", &fields.collect::<Vec<_>>())
        };
        let first = answers(crowd(&proxy, 1, |_| says("first")).await).await.remove(0);
        first.is(b"first");
        let clients = crowd(&proxy, CLIENTS, |number| says(&number.to_string())).await;
        // All of them are at the origin at once.
        until(|| origin.underway() == CLIENTS).await;
        gate.add_permits(2 * CLIENTS);
        for (number, answer) in answers(clients).await.into_iter().enumerate() {
            assert_eq!(answer.field("you"), Some(&*number.to_string()), "{told} {asked} {answer:?}");
            answer.is(number.to_string().as_bytes());
        }
        assert_eq!(origin.count(), CLIENTS + 1, "{told} {asked}");
    }
}

#[tokio::test]
async fn who_shows_credentials_costs_the_others_nothing() {
    const CLIENTS: usize = 100;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |heard, mut line| {
        let gate = Arc::clone(&held);
        async move {
            gate.acquire().await.ok()?.forget();
            line.write_all(&good(heard.field("authorization").unwrap_or("anybody").as_bytes())).await.ok()?;
            Some(line)
        }
    })
    .await;
    let proxy = proxy(&origin).await;
    let shows = |who: usize| request("GET", "/", &[&format!("Authorization: {who}")]);
    let leader = crowd(&proxy, 1, shows).await;
    until(|| origin.count() == 1).await;
    let others = crowd(&proxy, CLIENTS, |_| request("GET", "/", &[])).await;
    until(|| proxy.proxy().rules().routes[0].stats().waiters == CLIENTS as u64).await;
    gate.add_permits(2);
    answers(leader).await[0].is(b"0");
    for answer in answers(others).await {
        answer.is(b"anybody");
    }
    assert_eq!(origin.count(), 2, "one for all who have none");
    // What nobody has to be known for is for them, too.
    let known = crowd(&proxy, 1, shows).await;
    answers(known).await[0].is(b"anybody");

    // Of another URL there is nothing: nobody waits for anybody.
    let shows = |who: usize| request("GET", "/own", &[&format!("Authorization: {who}")]);
    gate.add_permits(1);
    answers(crowd(&proxy, 1, shows).await).await[0].is(b"0");
    let all = crowd(&proxy, CLIENTS, shows).await;
    until(|| origin.underway() == CLIENTS).await;
    let anybody = crowd(&proxy, 1, |_| request("GET", "/own", &[])).await;
    until(|| origin.underway() == CLIENTS + 1).await;
    gate.add_permits(CLIENTS + 1);
    for (who, answer) in answers(all).await.into_iter().enumerate() {
        answer.is(who.to_string().as_bytes());
    }
    answers(anybody).await[0].is(b"anybody");
    assert_eq!(origin.count(), 4 + CLIENTS);
}

#[tokio::test]
async fn a_cold_crowd_of_answers_that_are_not_shared_is_each_given_its_own() {
    let origin = Origin::saying(|heard| {
        let who = heard.field("who").unwrap_or_default();
        sized("200 OK", &["Cache-Control: private", &format!("Set-Cookie: is={who}")], who.as_bytes())
    })
    .await;
    let proxy = proxy(&origin).await;
    let clients = crowd(&proxy, 200, |number| request("GET", "/", &[&format!("Who: {number}")])).await;
    for (number, answer) in answers(clients).await.into_iter().enumerate() {
        answer.is(number.to_string().as_bytes());
        assert_eq!(answer.field("set-cookie"), Some(&*format!("is={number}")));
    }
    assert_eq!(origin.count(), 200);
}

#[tokio::test]
async fn each_variant_is_asked_for_once_and_given_to_its_own() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |heard, mut line| {
        let gate = Arc::clone(&held);
        async move {
            gate.acquire().await.ok()?.forget();
            let language = heard.field("accept-language").unwrap_or("none");
            let told = ["Cache-Control: max-age=60", "Vary: Accept-Language"];
            line.write_all(&sized("200 OK", &told, language.as_bytes())).await.ok()?;
            Some(line)
        }
    })
    .await;
    let proxy = proxy(&origin).await;
    let language = |number: usize| ["de", "en", "fr"][number % 3];
    let says = |number: usize| request("GET", "/", &[&format!("Accept-Language: {}", language(number))]);
    let clients = crowd(&proxy, 150, says).await;
    gate.add_permits(1_000);
    for (number, answer) in answers(clients).await.into_iter().enumerate() {
        answer.is(language(number).as_bytes());
    }
    assert_eq!(origin.count(), 3);
    for number in 0..3 {
        let hit = ask(&proxy, "GET", "/", &[&format!("Accept-Language: {}", language(number))]).await;
        hit.is(language(number).as_bytes());
        assert_eq!(hit.did(), "hit");
    }
    assert_eq!(origin.count(), 3);
}

#[tokio::test]
async fn a_variant_that_is_fresh_waits_for_none_that_has_expired() {
    let gate = Arc::new(Semaphore::new(2));
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |heard, mut line| {
        let gate = Arc::clone(&held);
        async move {
            gate.acquire().await.ok()?.forget();
            let language = heard.field("accept-language").unwrap_or_default();
            // The first one, which is found by its URL alone, has expired when it comes.
            let told = match language {
                "de" => ["Cache-Control: max-age=1, must-revalidate", "Age: 100"],
                _ => ["Cache-Control: max-age=60", "Age: 0"],
            };
            let fields = [told[0], told[1], "ETag: \"1\"", "Vary: Accept-Language"];
            line.write_all(&sized("200 OK", &fields, language.as_bytes())).await.ok()?;
            Some(line)
        }
    })
    .await;
    let proxy = proxy(&origin).await;
    let loads = || proxy.proxy().rules().routes[0].stats().loads;
    let en = "Accept-Language: en";
    for language in ["de", "en"] {
        ask(&proxy, "GET", "/", &[&format!("Accept-Language: {language}")]).await.is(language.as_bytes());
    }
    let waiting = crowd(&proxy, 1, |_| request("GET", "/", &["Accept-Language: de"])).await;
    until(|| origin.count() == 3).await;
    let before = loads();
    for wish in ["X: y", "Cache-Control: max-age=50", "Cache-Control: only-if-cached"] {
        let answer = Client::connect(&proxy).await.ask("GET", "/", &[en, wish]).await;
        assert_eq!((answer.status(), answer.did()), (200, "hit"), "{wish} {:?}", answer.head);
        answer.is(b"en");
    }
    assert_eq!((loads(), origin.count()), (before, 3));
    gate.add_permits(1);
    answers(waiting).await[0].is(b"de");
}

#[tokio::test]
async fn what_an_answer_depends_on_may_change() {
    let origin = Origin::saying(|heard| {
        // At first on the language, then on who asks.
        let vary = if heard.number < 2 { "Vary: Accept-Language" } else { "Vary: Accept-Language, Who" };
        let said = format!("{:?} {:?}", heard.field("accept-language"), heard.field("who"));
        sized("200 OK", &["Cache-Control: max-age=60", vary, "Age: 60"], said.as_bytes())
    })
    .await;
    let proxy = proxy(&origin).await;
    for round in 0..4 {
        for who in ["x", "y"] {
            for language in ["de", "en"] {
                let fields = [format!("Who: {who}"), format!("Accept-Language: {language}")];
                let answer = ask(&proxy, "GET", "/", &[&fields[0], &fields[1]]).await;
                assert!(answer.is_whole && answer.text().contains(language), "{round} {:?}", answer.text());
                if round > 0 {
                    assert!(answer.text().contains(who), "{round} {who} {language} {:?}", answer.text());
                }
            }
        }
    }
}

#[tokio::test]
async fn parts_of_what_is_too_large_come_from_the_origin() {
    let body = content(300_000);
    let all = body.clone();
    let origin = Origin::saying(move |heard| match heard.field("range") {
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
    // Nobody knows yet that it is too large.
    ask(&proxy, "GET", "/", &["Range: bytes=10-19"]).await.is(&body);
    for _ in 0..2 {
        let part = ask(&proxy, "GET", "/", &["Range: bytes=10-19"]).await;
        part.is(&body[10..20]);
        assert_eq!((part.status(), part.field("content-range")), (206, Some("bytes 10-19/300000")));
        let none = ask(&proxy, "GET", "/", &["Range: bytes=300000-"]).await;
        assert_eq!((none.status(), none.field("content-range")), (416, Some("bytes */300000")));
        get(&proxy, "/").await.is(&body);
    }
    assert_eq!(origin.count(), 7);
}

#[tokio::test]
async fn the_first_piece_may_be_too_large_already() {
    let body = content(300_000);
    let all = body.clone();
    let origin = Origin::saying(move |_| {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n";
        [format!("{head}{:x}\r\n", all.len()).as_bytes(), &all, b"\r\n0\r\n\r\n"].concat()
    })
    .await;
    let limits = "[cache]\nstrategy = \"fallback\"\nlimit = { bytes = \"64MiB\", max_object = \"1000B\" }\n";
    let proxy = proxy_with(&origin.url(), limits, "").await;
    for number in 0..20 {
        get(&proxy, &format!("/{number}")).await.is(&body);
        assert_eq!(origin.count(), number + 1, "it is asked once for each");
    }
}

#[tokio::test]
async fn who_asks_alone_waits_for_its_own() {
    use stockade_model::time::{Live, Runtime};
    let clock = Live::new();
    let origin = Origin::start(move |heard, mut line| {
        let clock = clock.clone();
        async move {
            if heard.number > 0 {
                clock.sleep_until(clock.now() + std::time::Duration::from_millis(60)).await;
            }
            let number = heard.number.to_string();
            line.write_all(&sized("200 OK", &["Cache-Control: private"], number.as_bytes())).await.ok()?;
            Some(line)
        }
    })
    .await;
    let cache = "[cache]\nstrategy = \"fallback\"\nload = { soft_timeout = \"10ms\" }\n";
    let proxy = proxy_with(&origin.url(), cache, "").await;
    for number in 0..4 {
        get(&proxy, "/").await.is(number.to_string().as_bytes());
    }
}
