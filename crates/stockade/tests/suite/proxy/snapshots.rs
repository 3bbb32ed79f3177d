//! `--snapshot` and `[snapshot]`: a proxy that is killed begins with its responses, and without those that were purged.

use std::{fs, path::Path};

use rustix::process::Signal;

use super::{Response, Running, admin_request, config_without_log, get, start_proxy, until};
use crate::support::Sandbox;

/// As [`super::RECIPE`], which has the responses.
fn origin(sandbox: &Sandbox) -> Running {
    Running::origin(sandbox, &["-", "--listen", "0"], super::RECIPE)
}

/// True if the snapshot has this text.
fn has(path: &Path, text: &str) -> bool {
    let snapshot = fs::read(path).unwrap_or_default();
    snapshot.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn a_killed_proxy_begins_with_its_responses() {
    let sandbox = Sandbox::new();
    let origin = origin(&sandbox);
    let url = format!("http://{}", origin.listens("http"));
    let path = sandbox.path().join("cache.snapshot");
    let config =
        config_without_log(&sandbox, &url, "[snapshot]\npath = \"cache.snapshot\"\nevery = \"50ms\"\n");
    let (proxy, address, admin) = start_proxy(&sandbox, &config, &[]);
    assert!(proxy.stderr_line().contains("cache.snapshot: 0 responses restored"));
    for number in 0..100 {
        let path = if number % 10 == 0 { "weather" } else { "news" };
        assert_eq!(Response::of(&get(address, &format!("/{path}?{number}"))).outcome(), "miss");
    }
    until(|| has(&path, "/weather?90") && has(&path, "/news?99"));
    let purged = admin_request(admin, "POST", "/purge?tag=weather", "");
    assert_eq!(purged.json()["purged"], 10);
    // SIGKILL.
    drop(proxy);

    let (proxy, address, _) = start_proxy(&sandbox, &config, &[]);
    let restored = proxy.stderr_line();
    assert!(restored.contains("cache.snapshot: 90 responses restored"), "{restored}");
    let restarted = Response::of(&get(address, "/news?99"));
    restarted.assert(200, "all is well", "hit");
    assert!(restarted.header("age").is_some(), "{restarted:?}");
    assert_eq!(Response::of(&get(address, "/weather?90")).outcome(), "miss");
    drop(proxy);
}

/// The last snapshot is written when the proxy stops.
#[test]
fn a_proxy_that_stops_writes_a_snapshot() {
    let sandbox = Sandbox::new();
    let origin = origin(&sandbox);
    let url = format!("http://{}", origin.listens("http"));
    let config = config_without_log(&sandbox, &url, "");
    let path = sandbox.path().join("cache.snapshot");
    let flags = ["--snapshot", path.to_str().expect("UTF-8")];
    let (proxy, address, _) = start_proxy(&sandbox, &config, &flags);
    assert_eq!(Response::of(&get(address, "/news")).outcome(), "miss");
    assert_eq!(proxy.stopped_by(Signal::TERM).code, 0);
    let (proxy, address, _) = start_proxy(&sandbox, &config, &flags);
    assert!(proxy.stderr_line().contains("1 responses restored"));
    assert_eq!(Response::of(&get(address, "/news")).outcome(), "hit");
    drop(proxy);
    fs::write(&path, "something else").expect("a file");
    let (proxy, address, _) = start_proxy(&sandbox, &config, &flags);
    let line = proxy.stderr_line();
    assert!(line.contains("this is not a snapshot of a cache; the cache starts without it"), "{line}");
    assert_eq!(Response::of(&get(address, "/news")).status, 200);
    let missing = sandbox.path().join("no such folder/cache.snapshot");
    let check = sandbox.stockade(&[
        "proxy",
        "--check",
        "--origin",
        &url,
        "--snapshot",
        missing.to_str().expect("UTF-8"),
    ]);
    check.assert_refused(2, &["[snapshot] path: cannot write the snapshot to ", "No such file or directory"]);
}
