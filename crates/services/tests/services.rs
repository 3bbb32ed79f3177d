//! Servers start, answer, and leave nothing behind.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
};

use stockade_services::Redis;

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
