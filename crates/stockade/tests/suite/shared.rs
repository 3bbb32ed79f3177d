//! Caches over a shared tier, on a real Redis.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
};

use rustix::process::Signal;
use stockade_services::RedisServer;

use crate::{proxy::until, running::Running, support::Sandbox};

/// 300 requests for ten documents, with these settings of the shared tier and these arms.
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
fn runs_over_one_redis_leave_no_keys_in_it() {
    let (sandbox, redis) = (Sandbox::new(), RedisServer::with(&["--requirepass", "sesame"]).unwrap());
    let there = redis.url().replace("//", "//:sesame@");
    for shared in ["redis:", &there] {
        let file = experiment(&sandbox, shared, ARMS);
        let out = format!("out-{}", shared.len());
        let output = sandbox.stockade(&["run", &file, "--out", &out]);
        assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
        let record = sandbox.path().join(&out);
        for path in [record.clone(), record.join("plots")].iter().flat_map(|folder| files(folder)) {
            assert!(!fs::read_to_string(&path).unwrap().contains("sesame"), "{}", path.display());
        }
        assert!(!output.stdout.contains("sesame") && !output.stderr.contains("sesame"));
    }
    assert_eq!(redis_replies(&redis, "AUTH sesame\r\nDBSIZE"), "+OK\r\n:0\r\n+OK\r\n");
}

/// The files of a folder, one at least.
fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = paths.filter(|path| path.is_file()).collect();
    assert!(!files.is_empty(), "{}", folder.display());
    files
}

/// The replies to these commands and to QUIT.
fn redis_replies(redis: &RedisServer, commands: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    stream.write_all(format!("{commands}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    answers
}

#[test]
fn stopped_run_leaves_no_keys_in_redis() {
    let (sandbox, redis) = (Sandbox::new(), RedisServer::start().unwrap());
    let arm = "[[arm]]\nname = \"a\"\ncache.strategy = \"stampede\"\n";
    let file = experiment(&sandbox, &redis.url(), arm);
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("\"1s\"", "\"50s\"")).unwrap();
    let running = Running::start(&sandbox, &["run", &file, "--out", "record"], "");
    // The warm-up stores all ten.
    until(|| redis_replies(&redis, "DBSIZE") == ":10\r\n+OK\r\n");
    let output = running.stopped_by(Signal::INT);
    assert_eq!(output.code, 98, "{}", output.stderr);
    assert_eq!(redis_replies(&redis, "DBSIZE"), ":0\r\n+OK\r\n");
}

#[test]
fn unusable_redis_is_reported_with_the_remedy() {
    let (sandbox, redis) = (Sandbox::new(), RedisServer::with(&["--requirepass", "sesame"]).unwrap());
    let place = redis.url();
    let with = |password: &str| place.replace("//", &format!("//{password}@"));
    for (shared, words) in [
        (with(":wrong-one"), "it refuses the user or the password: check the URL"),
        (place.clone(), "it asks for a password: write redis://:PASSWORD@HOST"),
        (format!("{}/99", with(":sesame")), "check the URL"),
        ("redis://:sesame@127.0.0.1:1".to_owned(), "check the host and the port"),
        ("redis://:sesame@host.invalid".to_owned(), "check the host and the port"),
        (with(":sesame").replace("redis", "rediss"), "that it speaks TLS"),
    ] {
        let arm = "[[arm]]\nname = \"a\"\ncache.strategy = \"stampede\"\n";
        let output = sandbox.stockade(&["run", &experiment(&sandbox, &shared, arm), "--out", "refused"]);
        let _ = fs::remove_dir_all(sandbox.path().join("refused"));
        output.assert_refused(1, &["error: arm `a`: the shared tier redis", words]);
        assert!(
            !output.stderr.contains("sesame") && !output.stderr.contains("wrong-one"),
            "{}",
            output.stderr
        );
    }
}
