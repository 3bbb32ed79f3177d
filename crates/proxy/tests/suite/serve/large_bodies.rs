//! Bodies in the file of large bodies: the bytes of the origin, over every protocol, whatever happens to their entries.

use std::{fs, io::Write, path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use stockade_http::body_file::{BodyFile, SENDFILE_BYTES_MIN};
use stockade_proxy::{
    admin::{Purge, PurgeTarget},
    server::ProxyServer,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::serve::support::*;

const LIMIT: usize = 64 << 20;
/// The bound of pages that wait for the next body.
const SPARE_BYTES: u64 = LIMIT as u64 / 32;
const CACHE: &str =
    "[cache]\nstrategy = \"fallback\"\nlimit = { bytes = \"64MiB\", max_object = \"8MiB\" }\n";

/// Around the smallest body of the file, around pages, and around the chunks of a heap.
const SIZES: [usize; 14] = [
    0,
    1,
    SENDFILE_BYTES_MIN - 1,
    SENDFILE_BYTES_MIN,
    SENDFILE_BYTES_MIN + 1,
    (5 << 12) - 1,
    5 << 12,
    (5 << 12) + 1,
    (64 << 10) - 1,
    64 << 10,
    (64 << 10) + 1,
    100_000,
    300 << 10,
    (2 << 20) + 5,
];

/// A different body for each seed.
fn body(bytes: usize, seed: usize) -> Vec<u8> {
    let mut body = content(bytes);
    body.iter_mut().for_each(|byte| *byte = byte.wrapping_add(seed.to_le_bytes()[0]));
    body
}

fn chunked(body: &[u8]) -> Vec<u8> {
    let mut response =
        b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(7_000) {
        write!(response, "{:x}\r\n", chunk.len()).expect("memory");
        response.extend_from_slice(chunk);
        response.extend_from_slice(b"\r\n");
    }
    response.extend_from_slice(b"0\r\n\r\n");
    response
}

/// Serves `/sized/BYTES/SEED` and `/chunked/BYTES/SEED`.
async fn start_origin() -> Origin {
    Origin::responding(|received| {
        let mut path = received.target().split('/').skip(1);
        let is_chunked = path.next() == Some("chunked");
        let mut number = || path.next().and_then(|number| number.parse().ok()).expect("a number");
        let body = body(number(), number());
        let fields = ["Cache-Control: max-age=60", "ETag: \"e\"", "Content-Type: image/png"];
        if is_chunked { chunked(&body) } else { sized("200 OK", &fields, &body) }
    })
    .await
}

fn file(proxy: &ProxyServer) -> &Arc<BodyFile> {
    proxy.proxy().body_file().expect("this system has files in memory")
}

fn resident_bytes(proxy: &ProxyServer) -> u64 {
    file(proxy).resident_bytes().expect("its size")
}

fn purge_all(proxy: &ProxyServer) {
    let _ =
        proxy.proxy().purge(&Purge { target: PurgeTarget::All, mode: stockade_cache::Invalidation::Hard });
}

/// A response, once the proxy has counted what it sent.
async fn get_in(client: &mut Client, proxy: &ProxyServer, path: &str, fields: &[&str]) -> Answer {
    let answer = client.send("GET", path, fields).await;
    client.send("HEAD", path, &[]).await;
    with_timeout(proxy.proxy().cache().wait_idle()).await;
    answer
}

/// Sends a request, and returns the body of the response to it.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str, fields: &[&str]) -> Vec<u8> {
    let fields = [fields, &["Connection: close"]].concat();
    with_timeout(stream.write_all(request("GET", path, &fields).as_bytes()))
        .await
        .expect("it takes a request");
    let mut response = Vec::new();
    // Whether a peer ends TLS in good order is not the point.
    let _ = with_timeout(stream.read_to_end(&mut response)).await;
    let end = response.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    response.split_off(end + 4)
}

async fn connect_tls(proxy: &ProxyServer, folder: &Path) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    let certificate = fs::read(folder.join("cert.pem")).expect("a certificate");
    roots.add(CertificateDer::from_pem_slice(&certificate).expect("a certificate")).expect("a valid one");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let tcp = TcpStream::connect(proxy.addresses()[0]).await.expect("it listens");
    let name = ServerName::try_from("localhost").expect("a name");
    with_timeout(TlsConnector::from(Arc::new(config)).connect(name, tcp)).await.expect("a handshake")
}

#[tokio::test]
async fn every_protocol_sends_the_bytes_of_the_origin() {
    let origin = start_origin().await;
    let plain = proxy_with(&origin.url(), CACHE, "").await;
    let folder = tempfile::tempdir().expect("a temporary directory");
    let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a valid name");
    fs::write(folder.path().join("cert.pem"), generated.cert.pem()).expect("a temporary directory");
    fs::write(folder.path().join("key.pem"), generated.signing_key.serialize_pem())
        .expect("a temporary directory");
    let tls = format!(
        "[tls]\ncert = {0:?}\nkey = {1:?}\n{CACHE}",
        folder.path().join("cert.pem"),
        folder.path().join("key.pem")
    );
    let encrypted = proxy_with(&origin.url(), &tls, "").await;
    let mut client = Client::connect(&plain).await;
    for (seed, bytes) in SIZES.into_iter().enumerate() {
        for framing in ["sized", "chunked"] {
            let (path, expected) = (format!("/{framing}/{bytes}/{seed}"), body(bytes, seed));
            for outcome in ["miss", "hit", "hit"] {
                let sent_before = file(&plain).sent_bytes();
                let answer = get_in(&mut client, &plain, &path, &[]).await;
                answer.assert_body(&expected);
                assert_eq!(answer.outcome(), outcome, "{path}");
                let sent_bytes = file(&plain).sent_bytes() - sent_before;
                let in_file = if bytes < SENDFILE_BYTES_MIN { 0 } else { bytes as u64 };
                // The last chunk of a body without a length may be short.
                let is_expected = match framing {
                    // After a short count, the rest may be small.
                    "sized" => sent_bytes <= in_file && in_file - sent_bytes < SENDFILE_BYTES_MIN as u64,
                    _ => sent_bytes <= in_file && (sent_bytes > 0) == (in_file > 0),
                };
                assert!(outcome == "miss" || is_expected, "{path}: {sent_bytes}");
            }
            let head = client.send("HEAD", &path, &[]).await;
            let length = (bytes > 0).then(|| bytes.to_string());
            assert_eq!(head.field("content-length"), length.as_deref(), "{path}");
            let http2 = Http2::connect(&plain).await.get(&path).await.rest(Vec::new()).await;
            assert!(http2.expect("a body") == expected, "{path} over HTTP/2");
            for outcome in ["miss", "hit"] {
                let body = exchange(connect_tls(&encrypted, folder.path()).await, &path, &[]).await;
                assert!(outcome == "miss" || body == expected, "{path} over TLS");
                // Until it is stored, another request has a part in its load, in chunks.
                with_timeout(encrypted.proxy().cache().wait_idle()).await;
            }
        }
    }
    let unchanged = send(&plain, "GET", "/sized/307200/12", &["If-None-Match: \"e\""]).await;
    assert_eq!((unchanged.status(), unchanged.body.len()), (304, 0));
}

#[tokio::test]
async fn ranges_are_slices_of_the_body() {
    const BYTES: usize = 300 << 10;
    let origin = start_origin().await;
    let proxy = proxy_with(&origin.url(), CACHE, "").await;
    let (path, whole) = (format!("/sized/{BYTES}/0"), content(BYTES));
    let mut client = Client::connect(&proxy).await;
    get_in(&mut client, &proxy, &path, &[]).await.assert_body(&whole);
    for (first, last) in [
        (0, BYTES - 1),
        (0, 0),
        (1, 4_096),
        (4_095, 4_096),
        (4_096, 4_096 + SENDFILE_BYTES_MIN - 2),
        (4_097, 4_097 + SENDFILE_BYTES_MIN - 1),
        (65_535, 200_000),
        (BYTES - 20_000, BYTES - 1),
    ] {
        let sent_before = file(&proxy).sent_bytes();
        let answer = get_in(&mut client, &proxy, &path, &[&format!("Range: bytes={first}-{last}")]).await;
        assert_eq!(answer.status(), 206);
        answer.assert_body(&whole[first..=last]);
        let length = last + 1 - first;
        let (in_file, sent_bytes) = (length as u64, file(&proxy).sent_bytes() - sent_before);
        let is_expected = match length {
            ..SENDFILE_BYTES_MIN => sent_bytes == 0,
            _ => sent_bytes <= in_file && in_file - sent_bytes < SENDFILE_BYTES_MIN as u64,
        };
        assert!(is_expected, "{first} to {last}: {sent_bytes}");
    }
    let sent_before = file(&proxy).sent_bytes();
    let ranges = "Range: bytes=10-19,40000-89999,100-299,200000-299999";
    let answer = get_in(&mut client, &proxy, &path, &[ranges]).await;
    assert_eq!((answer.status(), answer.is_whole), (206, true));
    let sent_bytes = file(&proxy).sent_bytes() - sent_before;
    assert!((150_000 - 2 * SENDFILE_BYTES_MIN as u64..=150_000).contains(&sent_bytes), "{sent_bytes}");
    let boundary = answer.field("content-type").and_then(|value| value.split("boundary=").nth(1));
    let boundary = boundary.expect("a boundary");
    let mut expected = Vec::new();
    for (first, last) in [(10, 19), (40_000, 89_999), (100, 299), (200_000, 299_999)] {
        let head = format!(
            "\r\n--{boundary}\r\ncontent-type: image/png\r\ncontent-range: bytes {first}-{last}/{BYTES}\r\n\r\n"
        );
        expected.extend_from_slice(head.as_bytes());
        expected.extend_from_slice(&whole[first..=last]);
    }
    expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    let lower = |bytes: &[u8]| bytes.to_ascii_lowercase();
    assert!(
        lower(&answer.body).ends_with(&lower(&expected)[2..]),
        "{:?}",
        String::from_utf8_lossy(&answer.body[..200])
    );
}

#[tokio::test]
async fn pipelined_requests_get_their_bodies_in_order() {
    let origin = start_origin().await;
    let proxy = proxy_with(&origin.url(), CACHE, "").await;
    let sizes = [300_000, 10, 20_000, 1_000_000, 16_384, 0, 70_000];
    let paths: Vec<_> =
        sizes.iter().enumerate().map(|(seed, bytes)| format!("/sized/{bytes}/{seed}")).collect();
    for path in &paths {
        get(&proxy, path).await;
    }
    let mut client = Client::connect(&proxy).await;
    for _ in 0..5 {
        client.write(paths.iter().map(|path| request("GET", path, &[])).collect::<String>()).await;
        for (seed, bytes) in sizes.into_iter().enumerate() {
            let head = client.head_to("GET").await.expect("an answer");
            client.rest(head, Vec::new()).await.assert_body(&body(bytes, seed));
        }
    }
}

/// After a thousand writes a thread times `sendfile` and copies, and uses the faster one.
#[tokio::test]
async fn bodies_are_equal_while_both_ways_to_send_are_timed() {
    let origin = start_origin().await;
    let proxy = proxy_with(&origin.url(), CACHE, "").await;
    let sizes = [20_000, 150_000, 16_384];
    let paths: Vec<_> =
        sizes.iter().enumerate().map(|(seed, bytes)| format!("/sized/{bytes}/{seed}")).collect();
    let bodies: Vec<_> = sizes.iter().enumerate().map(|(seed, bytes)| body(*bytes, seed)).collect();
    for path in &paths {
        get(&proxy, path).await;
    }
    let mut client = Client::connect(&proxy).await;
    for _ in 0..500 {
        client.write(paths.iter().map(|path| request("GET", path, &[])).collect::<String>()).await;
        for body in &bodies {
            let head = client.head_to("GET").await.expect("an answer");
            client.rest(head, Vec::new()).await.assert_body(body);
        }
    }
    let sent_bytes = file(&proxy).sent_bytes();
    let whole: usize = 500 * sizes.iter().sum::<usize>();
    assert!(sent_bytes > 0 && sent_bytes < whole as u64, "{sent_bytes} of {whole}");
}

/// The kernel has taken the small body when its entry is removed, and has not sent it. The large body is still being sent.
#[tokio::test]
async fn slow_clients_get_bodies_that_are_purged_and_whose_memory_is_used_again() {
    let origin = start_origin().await;
    let proxy = proxy_with(&origin.url(), CACHE, "").await;
    let paths: Vec<_> = [50_000, 8_000_000].map(|bytes| format!("/sized/{bytes}/1")).into();
    for path in &paths {
        get(&proxy, path).await;
    }
    let mut clients = send_concurrently(&proxy, 6, |number| request("GET", &paths[number % 2], &[])).await;
    let mut heads = Vec::new();
    for client in &mut clients {
        heads.push(client.head_to("GET").await.expect("an answer"));
    }
    for round in 0..3 {
        purge_all(&proxy);
        for number in 0..20 {
            let (bytes, seed) = (40_000 + 100_000 * (number % 10), 2 + round * 20 + number);
            get(&proxy, &format!("/sized/{bytes}/{seed}")).await.assert_body(&body(bytes, seed));
        }
    }
    for (number, (mut client, head)) in clients.into_iter().zip(heads).enumerate() {
        let bytes = [50_000, 8_000_000][number % 2];
        client.rest(head, Vec::new()).await.assert_body(&body(bytes, 1));
    }
    purge_all(&proxy);
    until(|| resident_bytes(&proxy) <= SPARE_BYTES).await;
}

#[tokio::test]
async fn clients_that_leave_give_the_memory_back() {
    let origin = start_origin().await;
    let proxy = proxy_with(&origin.url(), CACHE, "").await;
    get(&proxy, "/sized/8000000/1").await;
    let mut clients = send_concurrently(&proxy, 4, |_| request("GET", "/sized/8000000/1", &[])).await;
    for client in &mut clients {
        client.head_to("GET").await.expect("an answer");
    }
    purge_all(&proxy);
    get(&proxy, "/sized/20/1").await;
    assert!(resident_bytes(&proxy) >= 8_000_000, "clients hold the body");
    drop(clients);
    // The next store finds the entry released.
    with_timeout(async {
        let mut number = 0;
        while resident_bytes(&proxy) > SPARE_BYTES {
            number += 1;
            get(&proxy, &format!("/sized/20/{number}")).await;
        }
    })
    .await;
}

/// Each URL is new; bodies are of many sizes.
#[tokio::test]
async fn flood_of_large_bodies_stays_below_the_limit() {
    let origin = start_origin().await;
    let proxy = proxy_with(&origin.url(), CACHE, "").await;
    let mut most = 0;
    for number in 0..300 {
        let bytes = 20_000 + number * 37_003 % 1_000_000;
        let framing = if number % 3 == 0 { "chunked" } else { "sized" };
        get(&proxy, &format!("/{framing}/{bytes}/{number}")).await.assert_body(&body(bytes, number));
        most = most.max(resident_bytes(&proxy));
        with_timeout(proxy.proxy().cache().wait_idle()).await;
        let (resident, counted) = (resident_bytes(&proxy), proxy.proxy().cache().stats().store().bytes);
        assert!(
            counted.is_some_and(|counted| resident <= counted + SPARE_BYTES),
            "{resident} of {counted:?}"
        );
    }
    assert!(most > LIMIT as u64 * 8 / 10 && most <= LIMIT as u64 + SPARE_BYTES, "{most}");
    purge_all(&proxy);
    // A later store finds purged entries released.
    get(&proxy, "/sized/20/1").await;
    until(|| resident_bytes(&proxy) <= SPARE_BYTES).await;
}

/// The origin cuts one body; the other is too large to be stored, which shows only as it arrives.
#[tokio::test]
async fn bodies_that_are_not_stored_leave_nothing_in_the_file() {
    let origin = Origin::start(|received, mut line| async move {
        if received.target() == "/cut" {
            let response = good(&content(500_000));
            line.write_all(&response[..300_000]).await.ok()?;
            return None;
        }
        line.write_all(&chunked(&content(10 << 20))).await.ok().map(|()| line)
    })
    .await;
    let proxy = proxy_with(&origin.url(), CACHE, "").await;
    for _ in 0..2 {
        let cut = get(&proxy, "/cut").await;
        assert!(!cut.is_whole && content(500_000).starts_with(&cut.body), "{} bytes", cut.body.len());
        get(&proxy, "/large").await.assert_body(&content(10 << 20));
    }
    until(|| resident_bytes(&proxy) <= SPARE_BYTES).await;
}
