//! Encrypted connections.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use stockade_proxy::front::{Certified, Cut, Front, Identity, Settings, StartError, TlsError};
use tempfile::TempDir;

use crate::support::{Guide, SOON, connect, one, rest, start, until};

type Encrypted = StreamOwned<ClientConnection, TcpStream>;

/// Writes a new certificate, which is returned, and its key.
fn certify(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a name");
    fs::write(folder.join("cert.pem"), made.cert.pem()).expect("a folder");
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).expect("a folder");
    CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).expect("it is one")
}

fn identity(folder: &Path) -> Identity {
    Identity { certificates: folder.join("cert.pem"), key: folder.join("key.pem") }
}

fn settings(folder: &Path) -> Settings {
    let listen_tls = vec![([127, 0, 0, 1], 0).into()];
    Settings { listen: Vec::new(), listen_tls, identity: Some(identity(folder)), ..Settings::default() }
}

/// A front with a certificate, until the folder is dropped.
fn encrypted(change: impl FnOnce(&mut Settings)) -> (Front, Guide, TempDir, CertificateDer<'static>) {
    let folder = tempfile::tempdir().expect("a folder");
    let certificate = certify(folder.path());
    let mut settings = settings(folder.path());
    change(&mut settings);
    let (front, guide) = start(settings);
    (front, guide, folder, certificate)
}

fn config(
    trusted: &CertificateDer<'static>,
    version: &'static rustls::SupportedProtocolVersion,
    alpn: &str,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(&[version]).expect("a version that is known");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    Arc::new(config)
}

fn shake_hands(address: SocketAddr, config: Arc<ClientConfig>) -> std::io::Result<Encrypted> {
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(config, name).expect("a configuration");
    let mut tls = StreamOwned::new(session, connect(address));
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock)?;
    }
    Ok(tls)
}

fn get(tls: &mut Encrypted) -> String {
    tls.write_all(b"GET /peer HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is listened to");
    one(tls).1
}

#[test]
fn versions_and_protocols() {
    let (front, _, _folder, certificate) = encrypted(|_| ());
    let address = front.addresses()[0];
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut tls = shake_hands(address, config(&certificate, version, "http/1.1")).expect("a handshake");
        assert_eq!(tls.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert_eq!(get(&mut tls), format!("{address} true"));
        let tls = shake_hands(address, config(&certificate, version, "h2")).expect("a handshake");
        assert_eq!(tls.conn.alpn_protocol(), Some(&b"h2"[..]));
    }
    let refused = shake_hands(address, config(&certificate, &rustls::version::TLS13, "spdy/3"));
    assert!(refused.is_err());
    until(&front, |counts| counts.tls_failures == 1);
}

#[test]
fn a_new_certificate_is_for_new_connections() {
    let (front, _, folder, old) = encrypted(|_| ());
    let address = front.addresses()[0];
    let trusts = |certificate: &CertificateDer<'static>| {
        shake_hands(address, config(certificate, &rustls::version::TLS13, "http/1.1"))
    };
    let mut kept = trusts(&old).expect("a handshake");
    assert_eq!(get(&mut kept), format!("{address} true"));
    let new = certify(folder.path());
    assert!(trusts(&old).is_ok(), "nobody has said that there is a new one");
    front.certify(Certified::read(&identity(folder.path())).expect("it is a good one"));
    assert!(trusts(&old).is_err());
    assert!(trusts(&new).is_ok());
    assert_eq!(get(&mut kept), format!("{address} true"));
    // Broken ones change nothing, and say why.
    let another = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a name");
    let cases = [
        ("key.pem", another.signing_key.serialize_pem(), "cannot be used"),
        ("key.pem", "no key".to_owned(), "key.pem: "),
        ("cert.pem", String::new(), "cert.pem: "),
        ("cert.pem", "-----BEGIN CERTIFICATE-----\nAAAA".to_owned(), "cert.pem: "),
    ];
    for (file, content, why) in cases {
        fs::write(folder.path().join(file), content).expect("a folder");
        let refused = Certified::read(&identity(folder.path())).expect_err("it is broken").to_string();
        assert!(refused.contains(why), "{refused}");
        assert!(trusts(&new).is_ok(), "after {refused}");
    }
    fs::remove_file(folder.path().join("cert.pem")).expect("it is there");
    assert!(matches!(Certified::read(&identity(folder.path())), Err(TlsError::File { .. })));
    assert_eq!(get(&mut kept), format!("{address} true"));
}

#[test]
fn who_does_not_shake_hands_is_cut() {
    let (front, _, _folder, _) = encrypted(|settings| settings.head_timeout = SOON);
    let mut tcp = connect(front.addresses()[0]);
    // The beginning of a handshake, and no more.
    tcp.write_all(&[22, 3, 1, 2]).expect("it is listened to");
    assert_eq!(rest(&mut tcp), "");
    until(&front, |counts| counts.tls_failures == 1 && counts.cut_for(Cut::Head) == 1 && counts.open == 0);
}

#[test]
fn who_does_not_encrypt_is_not_answered() {
    let (front, guide, _folder, _) = encrypted(|_| ());
    let mut tcp = connect(front.addresses()[0]);
    tcp.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is listened to");
    // An alert, in bytes, and the end.
    let _ = tcp.read_to_end(&mut Vec::new());
    until(&front, |counts| counts.tls_failures == 1 && counts.open == 0);
    assert_eq!(guide.seen(), Vec::<String>::new());
}

#[test]
fn the_idle_are_told_that_nothing_follows() {
    let (front, _, _folder, certificate) = encrypted(|_| ());
    let config = config(&certificate, &rustls::version::TLS13, "http/1.1");
    let mut tls = shake_hands(front.addresses()[0], config).expect("a handshake");
    get(&mut tls);
    let _ = front.drain();
    // Without that an end is an error to rustls: somebody else may have cut the connection.
    assert_eq!(tls.read(&mut [0]).ok(), Some(0));
}

#[test]
fn a_front_without_a_certificate_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = Front::start(settings(folder.path()), &Guide::new());
    assert!(matches!(refused, Err(StartError::Tls(TlsError::File { .. }))));
    let refused = Front::start(Settings { identity: None, ..settings(folder.path()) }, &Guide::new());
    assert!(matches!(refused, Err(StartError::Tls(TlsError::None))));
}
