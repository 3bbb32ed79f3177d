//! HTTP/2 to origins, with and without TLS.

use std::{
    convert::Infallible,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use futures_util::future::join_all;
use h2::{Reason, server::SendResponse};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full, StreamBody, channel::Channel};
use hyper::{body::Incoming, server::conn::http2::Builder, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use stockade_http::upstream::{HostHeader, UpstreamError, UpstreamSettings};
use tokio::{
    net::TcpStream,
    runtime::Handle,
    sync::{Notify, mpsc},
};
use tokio_rustls::TlsAcceptor;

use crate::upstream::support::*;

fn http2(stub: &Stub) -> UpstreamSettings {
    UpstreamSettings { http2: true, ..stub.settings() }
}

/// Returns the request body; for an empty body, the method and URI.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let text = format!("{} {}", request.method(), request.uri());
    let body = request.into_body().collect().await?.to_bytes();
    Ok(Response::new(Full::new(if body.is_empty() { Bytes::from(text) } else { body })))
}

#[tokio::test]
async fn concurrent_streams_respect_the_origins_limit() {
    let (under_way, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, most) = (Arc::clone(&under_way), Arc::clone(&peak));
    let stub = Stub::start(move |_, tcp| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            let answer = service_fn(move |request| {
                let (now, most) = (Arc::clone(&now), Arc::clone(&most));
                async move {
                    most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                    stockade_model::time::yield_now().await;
                    let answer = echo(request).await;
                    now.fetch_sub(1, SeqCst);
                    answer
                }
            });
            let mut builder = Builder::new(TokioExecutor::new());
            let _ = builder.max_concurrent_streams(10).serve_connection(TokioIo::new(tcp), answer).await;
        }
    })
    .await;
    let upstream =
        upstream(UpstreamSettings { connections_max: 2, queue_timeout: HANG_GUARD, ..http2(&stub) });
    let expected = format!("GET {}/a", stub.url());
    for answer in with_timeout(join_all((0..500).map(|_| fetch(&upstream, "/a")))).await {
        assert_eq!(answer.expect("an answer"), expected);
    }
    assert!((2..=20).contains(&peak.load(SeqCst)), "{}", peak.load(SeqCst));
    assert_eq!(stub.peak(), 2);
    let state = upstream.status();
    assert_eq!((state.idle, state.busy, state.waiting), (2, 0, 0));
}

#[tokio::test]
async fn bodies_are_relayed_in_both_directions() {
    let stub = Stub::start(|_, tcp| async move {
        let _ =
            Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tcp), service_fn(echo)).await;
    })
    .await;
    let upstream = upstream(http2(&stub));
    // Larger than all flow control windows.
    let large = Bytes::from(vec![b'a'; 40 << 20]);
    let request = Request::post("/").body(Full::new(large.clone()));
    let answer = with_timeout(upstream.send(request.expect("a request"))).await.expect("an answer");
    assert_eq!(answer.body().size_hint().exact(), Some(large.len() as u64));
    assert!(whole(answer).await.expect("all") == large);
    let mut trailers = HeaderMap::new();
    trailers.insert("a", HeaderValue::from_static("b"));
    let frames = [Frame::data(Bytes::from_static(b"abc")), Frame::trailers(trailers)];
    let body = StreamBody::new(futures_util::stream::iter(frames.map(Ok::<_, Infallible>)));
    let answer = with_timeout(upstream.send(Request::post("/").body(body).expect("a request")))
        .await
        .expect("an answer");
    assert_eq!(whole(answer).await.expect("all"), "abc");
    assert_eq!(stub.accepted(), 1);
    // A response to HEAD has a length and no body.
    let head = Request::head("/").body(Full::<Bytes>::default()).expect("a request");
    let answer = with_timeout(upstream.send(head)).await.expect("an answer");
    let length = format!("HEAD {}/", stub.url()).len().to_string();
    assert_eq!(answer.headers()["content-length"], length);
    assert_eq!(answer.body().size_hint().exact(), Some(0));
    assert_eq!(whole(answer).await.expect("all"), "");
}

/// Serves a connection; `answer` handles each stream and its number from 0.
async fn serve_streams(
    tcp: TcpStream,
    mut answer: impl FnMut(
        usize,
        Request<h2::RecvStream>,
        SendResponse<Bytes>,
        &mut h2::server::Connection<TcpStream, Bytes>,
    ),
) {
    let mut connection = h2::server::handshake(tcp).await.expect("a handshake");
    let mut n = 0;
    while let Some(Ok((request, respond))) = connection.accept().await {
        answer(n, request, respond, &mut connection);
        n += 1;
    }
}

fn ok(respond: &mut SendResponse<Bytes>, body: &'static str) {
    let mut sending = respond.send_response(Response::new(()), false).expect("a stream");
    sending.send_data(Bytes::from_static(body.as_bytes()), true).expect("a stream");
}

#[tokio::test]
async fn refused_stream_is_retried_for_any_method() {
    let seen = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&seen);
    let stub = Stub::start(move |n, tcp| {
        let own = Arc::clone(&own);
        serve_streams(tcp, move |m, _, mut respond, connection| {
            own.fetch_add(1, SeqCst);
            match (n, m) {
                (0, 0) => ok(&mut respond, "hello"),
                // The retry uses the next connection.
                (0, 1) => respond.send_reset(Reason::REFUSED_STREAM),
                (0, _) => {
                    ok(&mut respond, "bye");
                    connection.graceful_shutdown();
                }
                (_, _) => ok(&mut respond, "again"),
            }
        })
    })
    .await;
    let upstream = upstream(http2(&stub));
    let post = || Request::post("/").body(Full::<Bytes>::default()).expect("a request");
    for expected in ["hello", "bye", "again", "again"] {
        // A refused stream is safe to retry even for POST.
        let answer = with_timeout(upstream.send(post())).await.expect("an answer");
        assert_eq!(whole(answer).await.expect("all"), expected);
        if expected == "bye" {
            until(|| upstream.status().idle == 0).await;
        }
    }
    assert_eq!((seen.load(SeqCst), stub.accepted()), (5, 2));
}

#[tokio::test]
async fn content_of_a_refused_stream_is_sent_again() {
    let stub = Stub::start(|_, tcp| {
        serve_streams(tcp, |n, request, mut respond, _| {
            if n.is_multiple_of(2) {
                return respond.send_reset(Reason::REFUSED_STREAM);
            }
            drop(Handle::current().spawn(async move {
                let (mut body, mut read) = (request.into_body(), Vec::new());
                while let Some(Ok(data)) = body.data().await {
                    read.extend_from_slice(&data);
                    body.flow_control().release_capacity(data.len()).expect("an open stream");
                }
                let mut sending = respond.send_response(Response::new(()), false).expect("a stream");
                sending.send_data(read.into(), true).expect("a stream");
            }));
        })
    })
    .await;
    let upstream = upstream(http2(&stub));
    let kept = vec![b'a'; 64 << 10];
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        for bytes in [1, 20_000, kept.len()] {
            let content = Bytes::copy_from_slice(&kept[..bytes]);
            // In one part, and in several of an unknown size.
            let parts: Vec<_> = content.chunks(30_000).map(Bytes::copy_from_slice).collect();
            let parts = parts.into_iter().map(|part| Ok::<_, Infallible>(Frame::data(part)));
            let streamed = StreamBody::new(futures_util::stream::iter(parts));
            for body in [Full::new(content.clone()).boxed(), BodyExt::boxed(streamed)] {
                let request = Request::builder().method(&method).uri("/").body(body).expect("a request");
                let answer = with_timeout(upstream.send(request)).await.expect("an answer");
                assert!(whole(answer).await.expect("all") == content, "{method} {bytes}");
            }
        }
    }
    // More is not kept, and goes on a new connection.
    let request = Request::post("/").body(Full::new(Bytes::from(vec![b'a'; (64 << 10) + 1])));
    let error = with_timeout(upstream.send(request.expect("a request"))).await.expect_err("a reset");
    assert!(matches!(error, UpstreamError::Reset { .. }), "{error:?}");
    assert_eq!(stub.accepted(), 2);
}

#[tokio::test]
async fn stream_faults_map_to_errors_and_keep_the_connection() {
    let stub = Stub::start(move |_, tcp| {
        serve_streams(tcp, move |_, request, mut respond, _| {
            let path = request.uri().path().to_owned();
            let head = || Response::builder().header("Content-Length", "9").body(()).expect("a head");
            match path.as_str() {
                "/reset" => respond.send_reset(Reason::INTERNAL_ERROR),
                "/enhance" => respond.send_reset(Reason::ENHANCE_YOUR_CALM),
                "/huge" => {
                    let large = HeaderValue::try_from(vec![b'a'; 12 << 10]).expect("a value");
                    let huge = (0..12).fold(Response::builder(), |head, _| head.header("a", large.clone()));
                    drop(respond.send_response(huge.body(()).expect("a head"), true));
                }
                "/large" => {
                    let large = HeaderValue::try_from(vec![b'a'; 12 << 10]).expect("a value");
                    let large = (0..6).fold(Response::builder(), |head, _| head.header("a", large.clone()));
                    drop(respond.send_response(large.body(()).expect("a head"), true));
                }
                "/many" => {
                    let many = (0..101).fold(Response::builder(), |head, _| head.header("a", "b"));
                    drop(respond.send_response(many.body(()).expect("a head"), true));
                }
                "/short" => {
                    let mut sending = respond.send_response(head(), false).expect("a stream");
                    sending.send_data(Bytes::from_static(b"hello"), true).expect("a stream");
                }
                "/broken" => {
                    let mut sending = respond.send_response(head(), false).expect("a stream");
                    sending.send_data(Bytes::from_static(b"hello"), false).expect("a stream");
                    sending.send_reset(Reason::INTERNAL_ERROR);
                }
                "/hints" => {
                    let hints = Response::builder().status(StatusCode::EARLY_HINTS).body(()).expect("a head");
                    respond.send_informational(hints).expect("a stream");
                    ok(&mut respond, "hello");
                }
                _ => {
                    // Held until the runtime ends.
                    let sending = respond.send_response(head(), false);
                    drop(Handle::current().spawn(async move {
                        let _held = sending;
                        std::future::pending::<()>().await;
                    }));
                }
            }
        })
    })
    .await;
    let upstream = upstream(UpstreamSettings { idle_timeout: SHORT, ..http2(&stub) });
    for (path, name) in [
        ("/reset", "Reset"),
        ("/enhance", "Reset"),
        ("/large", "HeadTooLarge"),
        ("/huge", "NotHttp"),
        ("/many", "HeadTooLarge"),
        ("/short", "Truncated"),
        ("/broken", "Reset"),
        ("/held", "IdleTimeout"),
    ] {
        let error = fetch(&upstream, path).await.expect_err(path);
        assert!(format!("{error:?}").starts_with(name), "{path}: {error:?}");
    }
    assert_eq!(fetch(&upstream, "/hints").await.expect("an answer"), "hello");
    assert_eq!((stub.accepted(), upstream.status().idle), (1, 1));
}

#[tokio::test]
async fn dropped_body_resets_its_stream_only() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let stub = Stub::start(move |_, tcp| {
        let sender = sender.clone();
        serve_streams(tcp, move |_, _, mut respond, _| {
            let mut sending = respond.send_response(Response::new(()), false).expect("a stream");
            let sender = sender.clone();
            drop(Handle::current().spawn(async move {
                let reset = std::future::poll_fn(|cx| sending.poll_reset(cx)).await;
                let _ = sender.send(reset.expect("a reset"));
            }));
        })
    })
    .await;
    let upstream = upstream(http2(&stub));
    drop(with_timeout(upstream.send(get("/"))).await.expect("an answer"));
    assert_eq!(with_timeout(receiver.recv()).await, Some(Reason::CANCEL));
    let state = upstream.status();
    assert_eq!((state.idle, state.busy, state.endpoints[0].requests), (1, 0, 0));
    // An aborted upload resets its stream as well.
    let (_silent, body) = Channel::<Bytes, Infallible>::new(1);
    drop(
        with_timeout(upstream.send(Request::post("/").body(body).expect("a request")))
            .await
            .expect("an answer"),
    );
    assert_eq!(with_timeout(receiver.recv()).await, Some(Reason::CANCEL));
    assert_eq!(stub.accepted(), 1);
}

#[tokio::test]
async fn unresponsive_connection_is_closed() {
    // The first connection answers once, then stops to read, pings included.
    let gone = Arc::new(Notify::new());
    let own = Arc::clone(&gone);
    let stub = Stub::start(move |n, tcp| {
        let gone = Arc::clone(&own);
        async move {
            let mut connection = h2::server::handshake(tcp).await.expect("a handshake");
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                ok(&mut respond, "hello");
                if n == 0 {
                    // Polls until the response is flushed, then stops.
                    let polled = tokio::select! { accepted = connection.accept() => accepted.is_some(), () = gone.notified() => true };
                    assert!(polled);
                    std::future::pending::<()>().await;
                }
            }
        }
    })
    .await;
    let upstream = upstream(UpstreamSettings { head_timeout: SHORT, connect_timeout: SHORT, ..http2(&stub) });
    assert_eq!(fetch(&upstream, "/").await.expect("an answer"), "hello");
    gone.notify_one();
    let error = fetch(&upstream, "/").await.expect_err("a timeout");
    assert!(matches!(error, UpstreamError::HeadTimeout { .. }), "{error:?}");
    until(|| upstream.status().idle + upstream.status().busy == 0).await;
    assert_eq!(fetch(&upstream, "/").await.expect("an answer"), "hello");
    assert_eq!(stub.accepted(), 2);
}

#[tokio::test]
async fn origin_without_http2_is_an_error() {
    for (answer, names) in [(HELLO, &["NotHttp"][..]), (b"", &["Closed", "Reset"])] {
        let stub = Stub::start(move |_, mut tcp| async move {
            let _ = serve_once(&mut tcp, answer).await;
            if !answer.is_empty() {
                read_to_end(&mut tcp).await;
            }
        })
        .await;
        let error = format!("{:?}", fetch(&upstream(http2(&stub)), "/").await.expect_err("HTTP/1"));
        assert!(names.iter().any(|name| error.starts_with(name)), "{error}");
    }
    // A server that does not complete the handshake.
    let stub = Stub::start(|_, mut tcp| async move { read_to_end(&mut tcp).await }).await;
    let error = fetch(&upstream(UpstreamSettings { connect_timeout: SHORT, ..http2(&stub) }), "/").await;
    assert!(matches!(error, Err(UpstreamError::ConnectTimeout { .. })), "{error:?}");
}

#[tokio::test]
async fn idle_http2_connection_is_closed_after_keep_alive() {
    let stub = Stub::start(|_, tcp| async move {
        let _ =
            Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tcp), service_fn(echo)).await;
    })
    .await;
    let upstream = upstream(UpstreamSettings { keep_alive: SHORT, ..http2(&stub) });
    fetch(&upstream, "/").await.expect("an answer");
    assert_eq!(upstream.status().idle, 1);
    until(|| upstream.status().idle + upstream.status().busy == 0).await;
    fetch(&upstream, "/").await.expect("an answer");
    assert_eq!(stub.accepted(), 2);
}

#[tokio::test]
async fn http2_connection_closes_with_its_last_user() {
    let stub = Stub::start(|_, tcp| async move {
        let _ =
            Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tcp), service_fn(echo)).await;
    })
    .await;
    // Without keep-alive a connection serves one request.
    let once = upstream(UpstreamSettings { keep_alive: std::time::Duration::ZERO, ..http2(&stub) });
    for n in 1..=2 {
        fetch(&once, "/").await.expect("an answer");
        until(|| once.status().idle + once.status().busy == 0).await;
        assert_eq!(stub.accepted(), n);
    }
    until(|| stub.open() == 0).await;
    // An unread body keeps the connection open after the upstream is dropped.
    let kept = upstream(http2(&stub));
    let large = Bytes::from(vec![b'a'; 2 << 20]);
    let request = Request::post("/").body(Full::new(large.clone())).expect("a request");
    let answer = with_timeout(kept.send(request)).await.expect("an answer");
    drop(kept);
    assert!(whole(answer).await.expect("all") == large);
    until(|| stub.open() == 0).await;
    // An idle connection closes with the upstream.
    let idle = upstream(http2(&stub));
    fetch(&idle, "/").await.expect("an answer");
    assert_eq!(stub.open(), 1);
    drop(idle);
    until(|| stub.open() == 0).await;
}

/// A server configuration with a self-signed certificate, and the certificate in a file.
struct Identity {
    config: ServerConfig,
    ca: PathBuf,
    _folder: tempfile::TempDir,
}

fn identity(name: &str, alpn: &[&str]) -> Identity {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a pair");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).expect("a file");
    Identity { config, ca, _folder: folder }
}

/// Serves HTTP/1.1 or HTTP/2 by ALPN.
async fn tls_stub(config: ServerConfig) -> Stub {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Stub::start(move |_, tcp| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut tls) = acceptor.accept(tcp).await else { return };
            let named = tls.get_ref().1.server_name().map(str::to_owned);
            assert!(named.is_none_or(|name| name == "localhost"));
            if tls.get_ref().1.alpn_protocol() == Some(b"h2") {
                let builder = Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(tls), service_fn(echo)).await;
            } else {
                while serve_once(&mut tls, HELLO).await.is_some() {}
            }
        }
    })
    .await
}

#[tokio::test]
async fn alpn_selects_the_http_version() {
    for (alpn, wanted, is_http2) in [
        (&["h2", "http/1.1"][..], true, true),
        (&["h2", "http/1.1"], false, false),
        (&["http/1.1"], true, false),
        (&[], true, false),
    ] {
        let Identity { config, ca, _folder } = identity("localhost", alpn);
        let stub = tls_stub(config).await;
        let url = format!("https://localhost:{}", stub.address.port());
        let settings = UpstreamSettings {
            http2: wanted,
            ca: Some(ca),
            host_header: HostHeader::Origin,
            ..settings(&url)
        };
        let upstream = upstream(settings);
        let expected = if is_http2 { format!("GET {url}/a") } else { "hello".to_owned() };
        for answer in with_timeout(join_all((0..20).map(|_| fetch(&upstream, "/a")))).await {
            assert_eq!(answer.expect("an answer"), expected, "{alpn:?} {wanted}");
        }
        // Six requests at once for each connection.
        assert_eq!(stub.accepted() <= 4, is_http2, "{alpn:?} {wanted}: {}", stub.accepted());
    }
}

#[tokio::test]
async fn untrusted_certificate_or_plain_text_is_a_tls_error() {
    let Identity { config, ca, _folder } = identity("other.example", &[]);
    let stub = tls_stub(config).await;
    let url = format!("https://localhost:{}", stub.address.port());
    let stranger = identity("localhost", &[]);
    for (ca, expected) in [(ca, "for another host"), (stranger.ca.clone(), "not trusted")] {
        let upstream = upstream(UpstreamSettings { ca: Some(ca), ..settings(&url) });
        let error = fetch(&upstream, "/").await.expect_err("an untrusted certificate");
        assert!(
            matches!(error, UpstreamError::Tls { .. }) && error.to_string().contains(expected),
            "{error}"
        );
    }
    // Servers without TLS.
    let plain = Stub::answering(HELLO).await;
    let url = format!("https://localhost:{}", plain.address.port());
    let talks = Stub::on(
        tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port"),
        |_, mut tcp| async move {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut tcp, HELLO).await;
            read_to_end(&mut tcp).await;
        },
    );
    let upstream_of = |url: &str, timeout| {
        upstream(UpstreamSettings {
            ca: Some(stranger.ca.clone()),
            connect_timeout: timeout,
            ..settings(url)
        })
    };
    let error = fetch(&upstream_of(&url, SHORT), "/").await.expect_err("silence");
    assert!(matches!(error, UpstreamError::ConnectTimeout { .. }), "{error:?}");
    let url = format!("https://localhost:{}", talks.address.port());
    let error = fetch(&upstream_of(&url, HANG_GUARD), "/").await.expect_err("plain text");
    assert!(matches!(error, UpstreamError::Tls { .. }), "{error:?}");
    // A missing CA file fails before the first connection.
    let missing = UpstreamSettings { ca: Some("/no/such/file".into()), ..settings(&url) };
    assert!(stockade_http::upstream::Upstream::new(missing).is_err());
}
