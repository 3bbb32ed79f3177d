//! TLS and HTTP/2.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;
use h2::{Reason, client::SendRequest};
use http::{Request, Response};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use stockade_origin::{CertificateSource, Origin, OriginOptions, OriginStartError};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::http::support::{options, page, start, wait_for_open_requests};

const RECIPE: &str = r#"[{"body": "b", "stages": [{"at": 0}]},
    {"route": "/slow", "body": "slow", "stages": [{"at": 0, "latency": "100ms"}]},
    {"route": "/hour", "body": "late", "stages": [{"at": 0, "latency": "1h"}]},
    {"route": "/large", "random_content": "300kb", "stages": [{"at": 0}]},
    {"route": "/reset", "random_content": "10kb", "stages": [{"at": 0, "fault": "reset"}]},
    {"route": "/cut", "random_content": "10kb", "stages": [{"at": 0, "fault": "cut"}]},
    {"route": "/malformed", "body": "b", "stages": [{"at": 0, "fault": "malformed"}]},
    {"route": "/refuse", "body": "b", "stages": [{"at": 0, "fault": "refuse"}]}]"#;

/// Starts an origin with TLS, and returns its certificate in PEM.
fn start_with_tls(certificate: CertificateSource) -> (Origin, String) {
    let admin = Some((std::net::Ipv4Addr::LOCALHOST, 0).into());
    let origin =
        Origin::start(&OriginOptions { admin, certificate: Some(certificate), ..options(RECIPE) }).unwrap();
    let pem = page(origin.admin_address.unwrap(), "certificate");
    (origin, pem)
}

async fn handshake(address: SocketAddr, pem: &str, protocol: &[u8]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
}

pub async fn connect_http2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> SendRequest<Bytes> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 20);
    let (requests, connection) = builder.handshake(stream).await.unwrap();
    tokio::runtime::Handle::current().spawn(connection);
    requests
}

/// Head and body; or the error that the stream ends with, and the bytes of the body before it.
pub async fn get(
    requests: &SendRequest<Bytes>,
    path: &str,
) -> Result<(Response<()>, Vec<u8>), (Option<Reason>, usize)> {
    let request = Request::get(format!("http://localhost{path}")).body(()).unwrap();
    let mut requests = requests.clone().ready().await.map_err(|error| (error.reason(), 0))?;
    let (reply, _) = requests.send_request(request, true).map_err(|error| (error.reason(), 0))?;
    let (head, mut body) = reply.await.map_err(|error| (error.reason(), 0))?.into_parts();
    let mut bytes = Vec::new();
    while let Some(part) = body.data().await {
        bytes.extend_from_slice(&part.map_err(|error| (error.reason(), bytes.len()))?);
    }
    Ok((Response::from_parts(head, ()), bytes))
}

#[tokio::test]
async fn self_signed_certificate_can_be_trusted() {
    let (origin, pem) = start_with_tls(CertificateSource::SelfSigned);
    let mut stream = handshake(origin.address, &pem, b"http/1.1").await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nb"), "{text}");
    let requests = connect_http2(handshake(origin.address, &pem, b"h2").await).await;
    assert_eq!(get(&requests, "/").await.unwrap().1, b"b");
    let (head, body) = get(&requests, "/large").await.unwrap();
    assert_eq!((head.status().as_u16(), body.len()), (200, 307_200));
}

#[tokio::test]
async fn faults_work_over_tls() {
    let (origin, pem) = start_with_tls(CertificateSource::SelfSigned);
    for (path, length, has_close) in [("/cut", 5_120, true), ("/reset", 5_120, false), ("/refuse", 0, false)]
    {
        let mut stream = handshake(origin.address, &pem, b"http/1.1").await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let end = stream.read_to_end(&mut bytes).await;
        let body = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| bytes.len() - at - 4);
        assert_eq!((body, end.is_ok()), (length, has_close), "{path}: {end:?}");
    }
}

#[tokio::test]
async fn certificate_is_read_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificates, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificates, generated.cert.pem()).unwrap();
    std::fs::write(&key, generated.signing_key.serialize_pem()).unwrap();
    let (origin, pem) =
        start_with_tls(CertificateSource::PemFiles { certificates: certificates.clone(), key: key.clone() });
    assert_eq!(pem, generated.cert.pem());
    handshake(origin.address, &pem, b"h2").await;
    for (certificates, key, message) in [
        (
            folder.path().join("none"),
            key.clone(),
            "none: cannot read it: No such file or directory (os error 2)",
        ),
        (certificates.clone(), certificates.clone(), "cert.pem: the file contains no private key in PEM"),
        (key.clone(), key.clone(), "key.pem: the file contains no certificate in PEM"),
    ] {
        let certificate = Some(CertificateSource::PemFiles { certificates, key });
        let error = Origin::start(&OriginOptions { certificate, ..OriginOptions::default() }).unwrap_err();
        assert!(
            matches!(error, OriginStartError::Certificate(_)) && error.to_string().ends_with(message),
            "{error}"
        );
    }
}

#[tokio::test]
async fn http2_needs_no_upgrade_and_serves_streams_concurrently() {
    let origin = start(RECIPE);
    let requests = connect_http2(TcpStream::connect(origin.address).await.unwrap()).await;
    let began = Instant::now();
    let replies = join_all((0..100).map(|_| get(&requests, "/slow"))).await;
    assert!(replies.iter().all(|reply| reply.as_ref().unwrap().1 == b"slow"));
    assert!(began.elapsed() >= Duration::from_millis(100), "{:?}", began.elapsed());
    // A hundred requests are open at once, and none ends within an hour.
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let requests = requests.clone();
            tokio::runtime::Handle::current().spawn(async move { drop(get(&requests, "/hour").await) })
        })
        .collect();
    let address = origin.address;
    tokio::task::spawn_blocking(move || wait_for_open_requests(address, 100)).await.unwrap();
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    let head = Request::head("http://localhost/large").body(()).unwrap();
    let (reply, _) = requests.clone().ready().await.unwrap().send_request(head, true).unwrap();
    let reply = reply.await.unwrap();
    assert_eq!(reply.headers()["content-length"], "307200");
    assert!(reply.into_body().data().await.is_none(), "a HEAD request gets no body");
}

#[tokio::test]
async fn fault_ends_its_stream_and_no_other() {
    let origin = start(RECIPE);
    let requests = connect_http2(TcpStream::connect(origin.address).await.unwrap()).await;
    for (path, reason, bytes) in [
        ("/refuse", Reason::REFUSED_STREAM, 0),
        ("/malformed", Reason::PROTOCOL_ERROR, 0),
        ("/reset", Reason::INTERNAL_ERROR, 5_120),
        // The client itself detects that the body is too short, with its last frame.
        ("/cut", Reason::PROTOCOL_ERROR, 0),
    ] {
        let slow = get(&requests, "/slow");
        let (reply, slow) = tokio::join!(get(&requests, path), slow);
        assert_eq!(
            reply.map(|(head, body)| (head.status(), body.len())).unwrap_err(),
            (Some(reason), bytes),
            "{path}"
        );
        assert_eq!(slow.unwrap().1, b"slow", "while {path} is requested");
    }
}
