//! MongoDB starts, is killed, restarts, and leaves nothing behind.

use std::{fs, net::TcpStream, path::PathBuf};

use stockade_services::MongoDbServer;

/// The folder of its files, read from its command line.
fn folder_of(server: &MongoDbServer) -> PathBuf {
    let listens = format!("--listen-addr=127.0.0.1:{}", server.port());
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let command = fs::read(entry.unwrap().path().join("cmdline")).ok()?;
        String::from_utf8(command).ok()
    });
    let folder = processes.filter(|command| command.contains(&listens)).find_map(|command| {
        let folder = command.split('\0').find_map(|argument| argument.strip_prefix("--state-dir="));
        folder.map(PathBuf::from)
    });
    folder.expect("a process that listens there")
}

#[test]
fn mongodb_restarts_after_a_kill_and_leaves_nothing() {
    let mut server = MongoDbServer::start().unwrap();
    let at = ("127.0.0.1", server.port());
    let folder = folder_of(&server);
    assert!(folder.join("state.json").exists(), "{}", folder.display());
    server.kill();
    assert!(TcpStream::connect(at).is_err());
    server.restart().unwrap();
    assert_eq!(folder_of(&server), folder);
    // A frozen server must stop too when its handle is dropped.
    server.process().unwrap().freeze();
    drop(server);
    assert!(TcpStream::connect(at).is_err());
    assert!(!fs::exists(&folder).unwrap());
}

#[test]
fn mongodb_speaks_tls_on_its_second_port() {
    let server = MongoDbServer::with_tls().unwrap();
    let certificate = fs::read_to_string(server.certificate()).unwrap();
    assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"), "{certificate}");
    let tls_port = server.tls_port().unwrap();
    assert_ne!(tls_port, server.port());
    TcpStream::connect(("127.0.0.1", tls_port)).unwrap();
}
