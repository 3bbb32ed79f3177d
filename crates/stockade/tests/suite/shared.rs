//! Caches over a shared tier, on a real Redis.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
};

use rustix::process::Signal;
use stockade_services::RedisServer;

use crate::{proxy::until, running::Running, support::Sandbox};

/// Ten documents, asked for three hundred times, by a cache that has this in its table.
fn experiment(sandbox: &Sandbox, shared: &str, arms: &str) -> String {
    let path = sandbox.path().join("shared.toml");
    let text = format!(
        r#"
title = "shared"
[target]
kind = "engine"
[origin]
source = "sqlite:"
latency = "20ms"
[cache]
ttl = "30s"
shared = "{shared}"
[load]
rate = "300/s"
duration = "1s"
keys = 10
warm = true
{arms}"#
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

const ARMS: &str = r#"
[[arm]]
name = "bug"
cache.strategy = "xfetch_unit_bug"
[[arm]]
name = "fixed"
cache.strategy = "xfetch_unit_fixed"
[[arm]]
name = "alone"
cache = { strategy = "xfetch", memory = false }
[[arm]]
name = "under"
cache.strategy = "xfetch"
[[hypothesis]]
text = "the slip loads what is fresh, and nobody else does"
expect = [
    "bug.loads_per_request >= 0.1",
    "fixed.source_loads <= 5",
    "alone.source_loads <= 5",
    "under.source_loads <= 5",
    "success == 1",
]
"#;

#[test]
fn the_node_test_and_ours_run_over_one_redis_and_leave_nothing_in_it() {
    let (sandbox, redis) = (Sandbox::new(), RedisServer::with(&["--requirepass", "sesame"]).unwrap());
    let there = redis.url().replace("//", "//:sesame@");
    for shared in ["redis:", &there] {
        let file = experiment(&sandbox, shared, ARMS);
        let out = format!("out-{}", shared.len());
        let said = sandbox.stockade(&["run", &file, "--out", &out]);
        assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
        for file in fs::read_dir(sandbox.path().join(&out)).unwrap() {
            let path = file.unwrap().path();
            assert!(!fs::read_to_string(&path).unwrap().contains("sesame"), "{}", path.display());
        }
        assert!(!said.stdout.contains("sesame") && !said.stderr.contains("sesame"));
    }
    assert_eq!(asked(&redis, "AUTH sesame\r\nDBSIZE"), "+OK\r\n:0\r\n+OK\r\n");
}

/// What it answers, and to QUIT.
fn asked(redis: &RedisServer, commands: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    stream.write_all(format!("{commands}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    answers
}

#[test]
fn who_stops_a_run_leaves_nothing_in_a_redis_either() {
    let (sandbox, redis) = (Sandbox::new(), RedisServer::start().unwrap());
    let arm = "[[arm]]\nname = \"a\"\ncache.strategy = \"stampede\"\n";
    let file = experiment(&sandbox, &redis.url(), arm);
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("\"1s\"", "\"50s\"")).unwrap();
    let running = Running::start(&sandbox, &["run", &file, "--out", "record"], "");
    // The warm-up has stored them all.
    until(|| asked(&redis, "DBSIZE") == ":10\r\n+OK\r\n");
    let said = running.stopped_by(Signal::INT);
    assert_eq!(said.code, 98, "{}", said.stderr);
    assert_eq!(asked(&redis, "DBSIZE"), ":0\r\n+OK\r\n");
}

#[test]
fn a_redis_that_cannot_be_used_is_told_its_place_and_its_remedy() {
    let (sandbox, redis) = (Sandbox::new(), RedisServer::with(&["--requirepass", "sesame"]).unwrap());
    let place = redis.url();
    let with = |password: &str| place.replace("//", &format!("//{password}@"));
    for (shared, words) in [
        (with(":wrong-one"), "it refuses the user or the password: check the URL"),
        (place.clone(), "it asks for a password: write redis://:PASSWORD@HOST"),
        (format!("{}/99", with(":sesame")), "check the URL"),
        ("redis://:sesame@127.0.0.1:1".to_owned(), "check the host and the port"),
        ("redis://:sesame@host.invalid".to_owned(), "check the host and the port"),
        (with(":sesame").replace("redis", "rediss"), "whether it speaks TLS"),
    ] {
        let arm = "[[arm]]\nname = \"a\"\ncache.strategy = \"stampede\"\n";
        let said = sandbox.stockade(&["run", &experiment(&sandbox, &shared, arm), "--out", "refused"]);
        let _ = fs::remove_dir_all(sandbox.path().join("refused"));
        said.assert_refused(1, &["error: the shared tier redis", words]);
        assert!(!said.stderr.contains("sesame") && !said.stderr.contains("wrong-one"), "{}", said.stderr);
    }
}
