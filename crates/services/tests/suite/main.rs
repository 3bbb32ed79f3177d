//! Servers start, respond, and leave nothing behind.

mod mongodb;

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

use stockade_services::{CouchDbServer, NginxServer, PostgresServer, RedisServer};

fn send_command(port: u16, command: &str) -> String {
    exchange(port, &format!("{command}\r\nQUIT\r\n"))
}

fn get(port: u16, target: &str, headers: &str) -> String {
    exchange(port, &format!("GET {target} HTTP/1.0\r\n{headers}\r\n"))
}

fn exchange(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn redis_restarts_empty_after_a_kill_and_leaves_nothing() {
    let mut redis = RedisServer::start().unwrap();
    assert!(send_command(redis.port(), "SET key value").starts_with("+OK"));
    let folder = send_command(redis.port(), "CONFIG GET dir");
    let folder = PathBuf::from(folder.lines().nth(4).expect("a folder"));
    assert!(fs::exists(&folder).unwrap(), "{}", folder.display());
    redis.kill();
    assert!(TcpStream::connect(("127.0.0.1", redis.port())).is_err());
    redis.restart().unwrap();
    assert!(send_command(redis.port(), "GET key").starts_with("$-1"));
    let port = redis.port();
    drop(redis);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!fs::exists(&folder).unwrap());
}

#[test]
fn postgres_restarts_with_its_data_after_a_kill_and_leaves_nothing() {
    let mut postgres = PostgresServer::start().unwrap();
    postgres.query("CREATE TABLE t AS SELECT 'kept' AS c").unwrap();
    let folder = PathBuf::from(postgres.query("SHOW data_directory").unwrap());
    assert!(fs::exists(folder.parent().unwrap()).unwrap(), "{}", folder.display());
    assert!(
        postgres.query("SELECT nonsense").unwrap_err().to_string().contains("\"nonsense\" does not exist")
    );
    postgres.kill();
    assert!(TcpStream::connect(("127.0.0.1", postgres.port())).is_err());
    postgres.restart().unwrap();
    assert_eq!(postgres.query("SELECT c FROM t").unwrap(), "kept");
    let port = postgres.port();
    // A frozen server must stop too when its handle is dropped.
    postgres.process().unwrap().freeze();
    drop(postgres);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!fs::exists(folder.parent().unwrap()).unwrap());
}

#[test]
fn postgres_speaks_tls_with_its_own_certificate() {
    let postgres = PostgresServer::with_tls().unwrap();
    let certificate = fs::read_to_string(postgres.certificate()).unwrap();
    assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"), "{certificate}");
    let is_encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(postgres.query(is_encrypted).unwrap(), "t");
}

/// Set in the process that starts a server and keeps it running.
const HOLDS: &str = "STOCKADE_TEST_HOLDS";

#[test]
fn postgres_stops_when_its_owner_process_is_killed() {
    if env::var_os(HOLDS).is_some() {
        let postgres = PostgresServer::start().unwrap();
        println!("\nheld: {} {}", postgres.port(), postgres.query("SHOW data_directory").unwrap());
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let name = "postgres_stops_when_its_owner_process_is_killed";
    let mut holder = Command::new(env::current_exe().unwrap());
    holder.args([name, "--exact", "--nocapture"]).env(HOLDS, "1");
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map_while(Result::ok);
    let held = lines.find_map(|line| line.strip_prefix("held: ").map(str::to_owned)).expect("it started");
    let (port, folder) = held.split_once(' ').unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    // Closed or reset: the process on this port has ended.
    assert!(
        client.read(&mut [0]).is_ok_and(|read| read == 0)
            || TcpStream::connect(client.peer_addr().unwrap()).is_err()
    );
    let folder = PathBuf::from(folder);
    while fs::exists(folder.parent().unwrap()).unwrap() {
        thread::yield_now();
    }
}

#[test]
fn couchdb_restarts_empty_after_a_kill_and_leaves_nothing() {
    let mut couchdb = CouchDbServer::start().unwrap();
    let authorization = "Authorization: Basic c3RvY2thZGU6b3BlbiBzZXNhbWU=\r\n";
    let answer = get(couchdb.port(), "/absent", authorization);
    assert!(answer.contains("{\"error\":\"not_found\",\"reason\":\"no_db_file\"}"), "{answer}");
    couchdb.kill();
    assert!(TcpStream::connect(("127.0.0.1", couchdb.port())).is_err());
    couchdb.restart().unwrap();
    let port = couchdb.port();
    assert!(get(port, "/absent", "").starts_with("HTTP/1.1 401"));
    drop(couchdb);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn nginx_serves_its_documents_after_a_kill_and_leaves_nothing() {
    let mut nginx = NginxServer::start().unwrap();
    let documents = nginx.documents();
    fs::write(documents.join("a"), "{}").unwrap();
    for expected in [vec![2], vec![2, 2]] {
        assert!(get(nginx.port(), "/a", "").ends_with("\r\n\r\n{}"));
        assert_eq!(nginx.connections().unwrap(), expected, "connection 1 is the readiness check");
        nginx.kill();
        assert!(TcpStream::connect(("127.0.0.1", nginx.port())).is_err());
        nginx.restart().unwrap();
    }
    let port = nginx.port();
    drop(nginx);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!fs::exists(&documents).unwrap());
}
