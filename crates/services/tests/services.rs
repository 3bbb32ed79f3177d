//! Servers start, answer, and leave nothing behind.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

use stockade_services::{Postgres, Redis};

fn ask(port: u16, command: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn redis_starts_is_killed_comes_back_empty_and_leaves_nothing() {
    let mut redis = Redis::start().unwrap();
    assert!(ask(redis.port(), "SET key value").starts_with("+OK"));
    let folder = ask(redis.port(), "CONFIG GET dir");
    let folder = PathBuf::from(folder.lines().nth(4).expect("a folder"));
    assert!(fs::exists(&folder).unwrap(), "{}", folder.display());
    redis.kill();
    assert!(TcpStream::connect(("127.0.0.1", redis.port())).is_err());
    redis.restart().unwrap();
    assert!(ask(redis.port(), "GET key").starts_with("$-1"));
    let port = redis.port();
    drop(redis);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!fs::exists(&folder).unwrap());
}

#[test]
fn postgres_starts_is_killed_comes_back_with_its_data_and_leaves_nothing() {
    let mut postgres = Postgres::start().unwrap();
    postgres.ask("CREATE TABLE t AS SELECT 'kept' AS c").unwrap();
    let folder = PathBuf::from(postgres.ask("SHOW data_directory").unwrap());
    assert!(fs::exists(folder.parent().unwrap()).unwrap(), "{}", folder.display());
    assert!(postgres.ask("SELECT nonsense").unwrap_err().to_string().contains("\"nonsense\" does not exist"));
    postgres.kill();
    assert!(TcpStream::connect(("127.0.0.1", postgres.port())).is_err());
    postgres.restart().unwrap();
    assert_eq!(postgres.ask("SELECT c FROM t").unwrap(), "kept");
    let port = postgres.port();
    // As it may be when its holder dies.
    postgres.process().unwrap().freeze();
    drop(postgres);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!fs::exists(folder.parent().unwrap()).unwrap());
}

#[test]
fn postgres_speaks_tls_with_a_certificate_of_its_own() {
    let postgres = Postgres::with_tls().unwrap();
    let certificate = fs::read_to_string(postgres.certificate()).unwrap();
    assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"), "{certificate}");
    let is_encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(postgres.ask(is_encrypted).unwrap(), "t");
}

/// Set where this program is to start a server and hold it.
const HOLDS: &str = "STOCKADE_TEST_HOLDS";

#[test]
fn postgres_goes_with_whoever_held_it_however_that_ends() {
    if env::var_os(HOLDS).is_some() {
        let postgres = Postgres::start().unwrap();
        println!("\nheld: {} {}", postgres.port(), postgres.ask("SHOW data_directory").unwrap());
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let name = "postgres_goes_with_whoever_held_it_however_that_ends";
    let mut holder = Command::new(env::current_exe().unwrap());
    holder.args([name, "--exact", "--nocapture"]).env(HOLDS, "1");
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told = lines.find_map(|line| line.strip_prefix("held: ").map(str::to_owned)).expect("it started");
    let (port, folder) = told.split_once(' ').unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    // Closed or reset: the process behind it has ended.
    assert!(
        client.read(&mut [0]).is_ok_and(|read| read == 0)
            || TcpStream::connect(client.peer_addr().unwrap()).is_err()
    );
    let folder = PathBuf::from(folder);
    while fs::exists(folder.parent().unwrap()).unwrap() {
        thread::yield_now();
    }
}
