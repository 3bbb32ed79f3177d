//! TLS.

use std::{
    fs,
    io::Read,
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use stockade_http::{
    client::{ClientError, HttpClient, HttpUrl, block_within},
    frontend::{
        CertificateFiles, CertificateLoadError, CloseReason, Frontend, FrontendSettings, FrontendStartError,
        ServerCertificate,
    },
    tls::Trust,
};
use tempfile::TempDir;

use crate::frontend::support::{
    HANG_GUARD, SHORT, TestHandler, connect, read_response, read_to_close, send, start, wait_for_stats,
};

type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// Writes a new certificate and its key. Returns the certificate.
fn write_certificate(folder: &Path) -> CertificateDer<'static> {
    let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a valid name");
    fs::write(folder.join("cert.pem"), generated.cert.pem()).expect("a temporary directory");
    fs::write(folder.join("key.pem"), generated.signing_key.serialize_pem()).expect("a temporary directory");
    CertificateDer::from_pem_slice(generated.cert.pem().as_bytes()).expect("a certificate")
}

fn certificate_files(folder: &Path) -> CertificateFiles {
    CertificateFiles { certificates: folder.join("cert.pem"), key: folder.join("key.pem") }
}

fn settings(folder: &Path) -> FrontendSettings {
    let listen_tls = vec![([127, 0, 0, 1], 0).into()];
    FrontendSettings {
        listen: Vec::new(),
        listen_tls,
        certificate: Some(certificate_files(folder)),
        ..FrontendSettings::default()
    }
}

/// Its certificate files are deleted when the directory is dropped.
fn start_tls(
    change: impl FnOnce(&mut FrontendSettings),
) -> (Frontend, TestHandler, TempDir, CertificateDer<'static>) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let certificate = write_certificate(folder.path());
    let mut settings = settings(folder.path());
    change(&mut settings);
    let (frontend, handler) = start(settings);
    (frontend, handler, folder, certificate)
}

fn config(
    trusted: &CertificateDer<'static>,
    version: &'static rustls::SupportedProtocolVersion,
    alpn: &str,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(&[version]).expect("a supported version");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    Arc::new(config)
}

fn shake_hands(address: SocketAddr, config: Arc<ClientConfig>) -> std::io::Result<TlsClient> {
    let name = ServerName::try_from("localhost").expect("a valid name");
    let session = ClientConnection::new(config, name).expect("a valid configuration");
    let mut tls = StreamOwned::new(session, connect(address));
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock)?;
    }
    Ok(tls)
}

fn get(tls: &mut TlsClient) -> String {
    send(tls, b"GET /connection HTTP/1.1\r\nHost: a\r\n\r\n");
    read_response(tls).1
}

#[test]
fn small_client_gets_a_reply_from_a_server_that_it_trusts() {
    let (frontend, _, folder, _) = start_tls(|_| ());
    let url = format!("https://localhost:{}/connection", frontend.addresses()[0].port());
    let get = |trust: &Trust| {
        let url = HttpUrl::parse(&url).expect("a URL");
        let client = HttpClient::new(url, HeaderMap::new(), trust, 1 << 10).expect("certificates");
        block_within(HANG_GUARD, client.send(Method::GET, Bytes::new())).expect("a runtime").expect("in time")
    };
    for trust in [Trust::File(folder.path().join("cert.pem")), Trust::Insecure] {
        assert_eq!(get(&trust).expect("a reply").status(), StatusCode::OK);
    }
    let other = tempfile::tempdir().expect("a temporary directory");
    write_certificate(other.path());
    let refused = get(&Trust::File(other.path().join("cert.pem")));
    assert!(matches!(refused, Err(ClientError::Tls(_))), "{refused:?}");
}

#[test]
fn versions_and_alpn_are_negotiated() {
    let (frontend, _, _folder, certificate) = start_tls(|_| ());
    let address = frontend.addresses()[0];
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut tls = shake_hands(address, config(&certificate, version, "http/1.1")).expect("a handshake");
        assert_eq!(tls.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert_eq!(get(&mut tls), format!("{address} true"));
        let tls = shake_hands(address, config(&certificate, version, "h2")).expect("a handshake");
        assert_eq!(tls.conn.alpn_protocol(), Some(&b"h2"[..]));
    }
    let refused = shake_hands(address, config(&certificate, &rustls::version::TLS13, "spdy/3"));
    assert!(refused.is_err());
    wait_for_stats(&frontend, |stats| stats.tls_failures == 1);
}

#[test]
fn a_replaced_certificate_serves_new_connections() {
    let (frontend, _, folder, old) = start_tls(|_| ());
    let address = frontend.addresses()[0];
    let connect_trusting = |certificate: &CertificateDer<'static>| {
        shake_hands(address, config(certificate, &rustls::version::TLS13, "http/1.1"))
    };
    let mut open = connect_trusting(&old).expect("a handshake");
    assert_eq!(get(&mut open), format!("{address} true"));
    let new = write_certificate(folder.path());
    assert!(connect_trusting(&old).is_ok(), "the new certificate is not loaded yet");
    frontend.replace_certificate(
        ServerCertificate::load(&certificate_files(folder.path())).expect("a valid certificate"),
    );
    assert!(connect_trusting(&old).is_err());
    assert!(connect_trusting(&new).is_ok());
    assert_eq!(get(&mut open), format!("{address} true"));
    // Invalid files change nothing.
    let another = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a valid name");
    let cases = [
        ("key.pem", another.signing_key.serialize_pem(), "cannot be used"),
        ("key.pem", "no key".to_owned(), "key.pem: "),
        ("cert.pem", String::new(), "cert.pem: "),
        ("cert.pem", "-----BEGIN CERTIFICATE-----\nAAAA".to_owned(), "cert.pem: "),
    ];
    for (file, content, message) in cases {
        fs::write(folder.path().join(file), content).expect("a temporary directory");
        let error = ServerCertificate::load(&certificate_files(folder.path()))
            .expect_err("the files are invalid")
            .to_string();
        assert!(error.contains(message), "{error}");
        assert!(connect_trusting(&new).is_ok(), "after {error}");
    }
    fs::remove_file(folder.path().join("cert.pem")).expect("it is there");
    assert!(matches!(
        ServerCertificate::load(&certificate_files(folder.path())),
        Err(CertificateLoadError::File { .. })
    ));
    assert_eq!(get(&mut open), format!("{address} true"));
}

#[test]
fn incomplete_handshake_is_closed() {
    let (frontend, handler, _folder, _) = start_tls(|settings| settings.head_timeout = SHORT);
    let mut tcp = handler.hold_accepts(|| {
        let mut tcp = connect(frontend.addresses()[0]);
        send(&mut tcp, &[22, 3, 1, 2]);
        tcp
    });
    assert_eq!(read_to_close(&mut tcp), "");
    wait_for_stats(&frontend, |stats| {
        stats.tls_failures == 1 && stats.closed_for(CloseReason::Head) == 1 && stats.connections == 0
    });
}

#[test]
fn plain_http_on_a_tls_port_fails() {
    let (frontend, handler, _folder, _) = start_tls(|_| ());
    let mut tcp = connect(frontend.addresses()[0]);
    send(&mut tcp, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // A TLS alert, and the end.
    let _ = tcp.read_to_end(&mut Vec::new());
    wait_for_stats(&frontend, |stats| stats.tls_failures == 1 && stats.connections == 0);
    assert_eq!(handler.requests(), Vec::<String>::new());
}

#[test]
fn drain_sends_close_notify() {
    let (frontend, _, _folder, certificate) = start_tls(|_| ());
    let config = config(&certificate, &rustls::version::TLS13, "http/1.1");
    let mut tls = shake_hands(frontend.addresses()[0], config).expect("a handshake");
    get(&mut tls);
    let _ = frontend.drain();
    // Without it rustls reports an error: an attacker may have cut the connection.
    assert_eq!(tls.read(&mut [0]).ok(), Some(0));
}

#[test]
fn tls_without_a_certificate_does_not_start() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let error = Frontend::start(settings(folder.path()), &TestHandler::new());
    assert!(matches!(error, Err(FrontendStartError::Tls(CertificateLoadError::File { .. }))));
    let error = Frontend::start(
        FrontendSettings { certificate: None, ..settings(folder.path()) },
        &TestHandler::new(),
    );
    assert!(matches!(error, Err(FrontendStartError::Tls(CertificateLoadError::NotConfigured))));
}

#[test]
fn plain_text_is_answered_in_plain_text() {
    let (frontend, handler, _folder, _) = start_tls(|_| {});
    for request in
        ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "POST / HTTP/1.0\r\n\r\n"]
    {
        let mut tcp = connect(frontend.addresses()[0]);
        send(&mut tcp, request.as_bytes());
        let response = read_to_close(&mut tcp);
        assert!(response.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{response}");
        assert!(response.ends_with("The plain HTTP request was sent to HTTPS port\n"), "{response}");
    }
    // Anything else is not HTTP.
    let mut tcp = connect(frontend.addresses()[0]);
    send(&mut tcp, b"\0\0\0\0\0\0\0\0");
    assert!(!read_to_close(&mut tcp).contains("HTTP"));
    assert!(handler.requests().is_empty());
    wait_for_stats(&frontend, |stats| stats.tls_failures == 4 && stats.connections == 0);
}
