//! TLS and HTTP/2.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use h2::{Reason, client::SendRequest};
use http::{Request, Response};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use stockade_origin::{Identity, Options, Origin, StartError};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::support::{options, page, serving};

const RECIPE: &str = r#"[{"body": "b", "stages": [{"at": 0}]},
    {"route": "/slow", "body": "slow", "stages": [{"at": 0, "latency": "100ms"}]},
    {"route": "/large", "random_content": "300kb", "stages": [{"at": 0}]},
    {"route": "/reset", "random_content": "10kb", "stages": [{"at": 0, "fault": "reset"}]},
    {"route": "/cut", "random_content": "10kb", "stages": [{"at": 0, "fault": "cut"}]},
    {"route": "/malformed", "body": "b", "stages": [{"at": 0, "fault": "malformed"}]},
    {"route": "/refuse", "body": "b", "stages": [{"at": 0, "fault": "refuse"}]}]"#;

/// An encrypted one, and its certificate in PEM.
fn encrypted(identity: Identity) -> (Origin, String) {
    let admin = Some((std::net::Ipv4Addr::LOCALHOST, 0).into());
    let origin = Origin::start(&Options { admin, identity: Some(identity), ..options(RECIPE) }).unwrap();
    let pem = page(origin.admin.unwrap(), "certificate");
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

async fn http2(wire: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> SendRequest<Bytes> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 20);
    let (requests, connection) = builder.handshake(wire).await.unwrap();
    tokio::runtime::Handle::current().spawn(connection);
    requests
}

/// The status and the body; which error, if the stream ends in one, and how much there was before.
async fn get(
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
async fn a_certificate_is_made_that_can_be_trusted() {
    let (origin, pem) = encrypted(Identity::Made);
    let mut wire = handshake(origin.address, &pem, b"http/1.1").await;
    wire.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    wire.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nb"), "{text}");
    let requests = http2(handshake(origin.address, &pem, b"h2").await).await;
    assert_eq!(get(&requests, "/").await.unwrap().1, b"b");
    let (head, body) = get(&requests, "/large").await.unwrap();
    assert_eq!((head.status().as_u16(), body.len()), (200, 307_200));
}

#[tokio::test]
async fn faults_are_done_to_what_is_encrypted_too() {
    let (origin, pem) = encrypted(Identity::Made);
    for (path, length, is_closed) in [("/cut", 5_120, true), ("/reset", 5_120, false), ("/refuse", 0, false)]
    {
        let mut wire = handshake(origin.address, &pem, b"http/1.1").await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        wire.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let ended = wire.read_to_end(&mut bytes).await;
        let body = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| bytes.len() - at - 4);
        assert_eq!((body, ended.is_ok()), (length, is_closed), "{path}: {ended:?}");
    }
}

#[tokio::test]
async fn a_certificate_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificates, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificates, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (origin, pem) = encrypted(Identity::Given { certificates: certificates.clone(), key: key.clone() });
    assert_eq!(pem, made.cert.pem());
    handshake(origin.address, &pem, b"h2").await;
    for (certificates, key, message) in [
        (
            folder.path().join("none"),
            key.clone(),
            "none: cannot read it: No such file or directory (os error 2)",
        ),
        (certificates.clone(), certificates.clone(), "cert.pem: there is no key in PEM in it"),
        (key.clone(), key.clone(), "key.pem: there is no certificate in PEM in it"),
    ] {
        let identity = Some(Identity::Given { certificates, key });
        let error = Origin::start(&Options { identity, ..Options::default() }).unwrap_err();
        assert!(matches!(error, StartError::Tls(_)) && error.to_string().ends_with(message), "{error}");
    }
}

#[tokio::test]
async fn http2_needs_no_upgrade_and_its_streams_do_not_wait_for_each_other() {
    let origin = serving(RECIPE);
    let requests = http2(TcpStream::connect(origin.address).await.unwrap()).await;
    let began = std::time::Instant::now();
    let replies = join_all((0..100).map(|_| get(&requests, "/slow"))).await;
    assert!(replies.iter().all(|reply| reply.as_ref().unwrap().1 == b"slow"));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(100) && took < Duration::from_secs(5), "{took:?}");
    let head = Request::head("http://localhost/large").body(()).unwrap();
    let (reply, _) = requests.clone().ready().await.unwrap().send_request(head, true).unwrap();
    let reply = reply.await.unwrap();
    assert_eq!(reply.headers()["content-length"], "307200");
    assert!(reply.into_body().data().await.is_none(), "the head alone");
}

#[tokio::test]
async fn faults_end_a_stream_and_the_others_live_on() {
    let origin = serving(RECIPE);
    let requests = http2(TcpStream::connect(origin.address).await.unwrap()).await;
    for (path, reason, seen) in [
        ("/refuse", Reason::REFUSED_STREAM, 0),
        ("/malformed", Reason::PROTOCOL_ERROR, 0),
        ("/reset", Reason::INTERNAL_ERROR, 5_120),
        // It is the client who sees that something is missing, with the last part that it has.
        ("/cut", Reason::PROTOCOL_ERROR, 0),
    ] {
        let slow = get(&requests, "/slow");
        let (failed, slow) = tokio::join!(get(&requests, path), slow);
        assert_eq!(
            failed.map(|(head, body)| (head.status(), body.len())).unwrap_err(),
            (Some(reason), seen),
            "{path}"
        );
        assert_eq!(slow.unwrap().1, b"slow", "beside {path}");
    }
}
