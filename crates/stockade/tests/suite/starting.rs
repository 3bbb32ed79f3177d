//! `init` and `check`: an experiment file to start from, and what a run of it takes.

use std::{fs, net::TcpListener};

use stockade_services::free_port;

use crate::{running::Running, support::Sandbox};

/// The file with all of its hypotheses judged at any scale.
fn judged_at_any_scale(text: &str) -> String {
    text.replace("any_scale = true", "").replace("[[hypothesis]]", "[[hypothesis]]\nany_scale = true")
}

/// The files work as written: each hypothesis holds, and a scaled run judges one of them.
#[test]
fn init_writes_an_experiment_that_is_supported() {
    for (target, measurements) in [("engine", "3: 6m of simulated time"), ("proxy", "2: 60s of load")] {
        let sandbox = Sandbox::new();
        let init = sandbox.stockade(&["init", "--target", target]);
        assert_eq!((init.code, init.stdout.as_str()), (0, ""), "{}", init.stderr);
        assert!(init.stderr.contains("stockade run experiment.toml"), "{}", init.stderr);
        let check = sandbox.stockade(&["check", "experiment.toml"]);
        assert_eq!(check.code, 0, "{}", check.stderr);
        assert!(check.stdout.contains(measurements), "{}", check.stdout);
        let text = fs::read_to_string(sandbox.path().join("experiment.toml")).expect("it was written");
        assert_eq!(text.matches("any_scale = true").count(), 1, "{text}");
        let all = sandbox.file("all.toml", &judged_at_any_scale(&text));
        let run = sandbox.stockade(&["run", &all, "--scale", "0.2", "--out", "record"]);
        assert_eq!(run.code, 0, "{target}: {}{}", run.stdout, run.stderr);
        assert!(!run.stdout.contains("not judged"), "{}", run.stdout);
        assert!(text.starts_with("#:schema ./experiment.schema.json\n"), "{text}");
        assert!(sandbox.path().join("experiment.schema.json").exists());
    }
}

/// In front of a proxy that runs already, in the place of a user's cache.
#[test]
fn init_of_a_url_works_with_a_cache_at_its_addresses() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.stockade(&["init", "mine.toml", "--target", "url"]).code, 0);
    let refused = sandbox.stockade(&["check", "mine.toml"]);
    let (origin, cache) = (free_port().expect("a port"), free_port().expect("a port"));
    let path = sandbox.path().join("mine.toml");
    let text = fs::read_to_string(&path).expect("it was written");
    let text = text.replace("127.0.0.1:9000", &format!("127.0.0.1:{origin}"));
    let at = |port: u16| text.replace("127.0.0.1:6081", &format!("127.0.0.1:{port}"));
    fs::write(&path, at(cache)).expect("writable");
    sandbox.stockade(&["check", "mine.toml"]).assert_refused(1, &["arm `mine`: nothing listens at"]);
    // Something may listen at the port of the file on this machine.
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    let url = format!("http://127.0.0.1:{origin}");
    let config = sandbox.file(
        "proxy.toml",
        &format!("listen = [\"127.0.0.1:0\"]\n[[origin]]\nname = \"o\"\nurl = \"{url}\"\n[cache]\nstrategy = \"stampede\"\nttl = \"2s\"\nsie = \"60s\"\n"),
    );
    let proxy = Running::start(&sandbox, &["proxy", "--config", &config], "");
    let cache = proxy.listens("http").port();
    fs::write(&path, at(cache)).expect("writable");
    let check = sandbox.stockade(&["check", "mine.toml"]);
    assert_eq!(check.code, 0, "{}", check.stderr);
    fs::write(&path, judged_at_any_scale(&at(cache))).expect("writable");
    let run = sandbox.stockade(&["run", "mine.toml", "--scale", "0.2", "--out", "record"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}

#[test]
fn init_overwrites_nothing() {
    let sandbox = Sandbox::new();
    sandbox.file("experiment.toml", "title = \"mine\"");
    sandbox.file("experiment.schema.json", "{}");
    let path = sandbox.path().join("experiment.schema.json");
    sandbox.stockade(&["init"]).assert_refused(2, &["experiment.toml exists: name another file"]);
    let other = sandbox.stockade(&["init", "other.toml"]);
    assert_eq!(other.code, 0, "{}", other.stderr);
    assert!(
        other.stderr.contains("kept experiment.schema.json, which is of another version"),
        "{}",
        other.stderr
    );
    assert_eq!(fs::read_to_string(&path).expect("it is kept"), "{}");
    fs::remove_file(&path).expect("it is there");
    assert!(sandbox.stockade(&["init", "third.toml"]).stderr.contains("wrote experiment.schema.json"));
    assert!(fs::read_to_string(path).expect("it is written").contains("Stockade experiment"));
    sandbox
        .stockade(&["init", "no/such/folder.toml"])
        .assert_refused(2, &["cannot write no/such/folder.toml"]);
}

/// Nothing is measured, and the servers end.
#[test]
fn check_names_time_memory_and_the_first_fault() {
    let sandbox = Sandbox::new();
    let port = free_port().expect("a port");
    let listen = free_port().expect("a port");
    let program = env!("CARGO_BIN_EXE_stockade");
    let text = format!(
        r#"
title = "Two caches"
repeat = 3
[origin]
listen = "127.0.0.1:{port}"
recipe = [{{ route = "/*", body = "hello", stages = [{{ at = 0 }}], headers = {{ cache-control = "max-age=60" }} }}]
[load]
rate = "50/s"
duration = "10m"
path = "/{{key}}"
keys = "uniform:5"
[[arm]]
name = "ours"
target.kind = "proxy"
cache = {{ strategy = "stampede", ttl = "2s", limit = {{ bytes = "100MiB" }} }}
[[arm]]
name = "theirs"
target.url = "http://127.0.0.1:{listen}"
target.command = "{program} proxy --origin $STOCKADE_ORIGIN --listen 127.0.0.1:{listen}"
[[hypothesis]]
text = "they differ"
expect = ["ours.failed == 0", "theirs.failed == 0"]
"#
    );
    let file = sandbox.file("two.toml", &text);
    let check = sandbox.stockade(&["check", &file]);
    assert_eq!(check.code, 0, "{}", check.stderr);
    for line in [
        "10m  ours, theirs\n",
        "measurements  6: 1h of load",
        "memory        100 MiB of this machine's ",
        "at most, for `ours`; no known limit in bytes: theirs\n",
        "hypotheses    1, with 2 comparisons",
        "setups        2, and each of them works",
    ] {
        assert!(check.stdout.contains(line), "`{line}` in {}", check.stdout);
    }
    let part = sandbox.stockade(&["check", &file, "--arms", "ours", "--scale", "0.1", "--repeat", "1"]);
    assert!(part.stdout.contains("1: 60s of load"), "{}", part.stdout);
    assert!(!sandbox.path().join("runs").exists(), "nothing was measured");
    let busy = TcpListener::bind(("127.0.0.1", listen)).expect("the server has ended");
    sandbox.stockade(&["check", &file]).assert_refused(1, &["arm `theirs`: something listens at"]);
    drop(busy);
    let fault = sandbox.file("fault.toml", &text.replace("50/s", "50"));
    sandbox.stockade(&["check", &fault]).assert_refused(2, &["fault.toml:8:8", "write `50/s`"]);
    let large = "title = \"t\"\n[target]\nkind = \"engine\"\n[origin]\nsource = \"simulated:5\"\n[load]\nrate = \"1/us\"\n\
                 duration = \"900s\"\nmax_in_flight = 900_000_000\n";
    let large = sandbox.file("large.toml", large);
    sandbox
        .stockade(&["check", &large])
        .assert_refused(2, &["large.toml:9:17", "more than 60 % of", "or less"]);
}
