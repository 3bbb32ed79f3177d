//! MongoDB starts, is killed, comes back, and leaves nothing behind.

use std::{fs, net::TcpStream, path::PathBuf};

use stockade_services::MongoDb;

/// Where it has its files, from the command line that it was started with.
fn folder_of(server: &MongoDb) -> PathBuf {
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
fn mongodb_starts_is_killed_comes_back_and_leaves_nothing() {
    let mut server = MongoDb::start().unwrap();
    let at = ("127.0.0.1", server.port());
    let folder = folder_of(&server);
    assert!(folder.join("state.json").exists(), "{}", folder.display());
    server.kill();
    assert!(TcpStream::connect(at).is_err());
    server.restart().unwrap();
    assert_eq!(folder_of(&server), folder);
    // As it may be when its holder dies.
    server.process().unwrap().freeze();
    drop(server);
    assert!(TcpStream::connect(at).is_err());
    assert!(!fs::exists(&folder).unwrap());
}

#[test]
fn mongodb_speaks_tls_on_a_port_of_its_own() {
    let server = MongoDb::with_tls().unwrap();
    let certificate = fs::read_to_string(server.certificate()).unwrap();
    assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"), "{certificate}");
    let tls_port = server.tls_port().unwrap();
    assert_ne!(tls_port, server.port());
    TcpStream::connect(("127.0.0.1", tls_port)).unwrap();
}
