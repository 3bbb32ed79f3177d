//! `--shadow` and `plan --live`.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;

use super::{Setup, stats};

/// The output of `plan --live` for the admin API of a proxy.
fn live(setup: &Setup, more: &[&str]) -> (i32, String, String) {
    let url = format!("http://{}", setup.admin);
    let output = setup.sandbox.stockade(&[&["plan", "--live", url.as_str()], more].concat());
    (output.code, output.stdout, output.stderr)
}

#[test]
fn plan_asks_a_proxy_in_production() {
    let setup = Setup::start(&["--max-entries", "2", "--shadow"]);
    // Half of the cache has one of them.
    for path in ["/news", "/weather"].into_iter().cycle().take(40) {
        assert_eq!(setup.get(path).status, 200);
    }
    let stats = stats(setup.admin);
    let ghosts = stats["shadow"]["ghosts"].as_array().expect("ghosts");
    assert_eq!(ghosts[0]["name"], "as configured");
    assert_eq!(ghosts[0]["total"]["requests"], 40, "{stats}");

    let (code, text, _) = live(&setup, &[]);
    assert_eq!(code, 0);
    assert!(text.contains("0.5x size would cost"), "{text}");
    assert!(text.contains("\nas configured  "), "{text}");
    assert!(text.contains("The sample has 40 requests so far"), "{text}");
    let (_, markdown, _) = live(&setup, &["--format", "md"]);
    assert!(markdown.contains("| 2x size | 512MiB, 4 entries | sieve |"), "{markdown}");
    let (_, json, _) = live(&setup, &["--format", "json"]);
    let json: Value = serde_json::from_str(&json).expect("one JSON object");
    let half = &json["ghosts"][1];
    assert_eq!(json["hit_ratio_since_start"], 0.95);
    assert!(half["name"] == "0.5x size" && half["hit_ratio_change"].as_f64() < Some(-0.5), "{json}");
}

/// A request is one request for the ghosts, whatever its response is.
#[test]
fn responses_that_may_not_be_cached_are_no_hits() {
    let setup = Setup::start(&["--shadow"]);
    for _ in 0..5 {
        assert_eq!(setup.get("/own").status, 200);
    }
    let stats = stats(setup.admin);
    for ghost in stats["shadow"]["ghosts"].as_array().expect("ghosts") {
        let total = &ghost["total"];
        assert_eq!((&total["requests"], &total["hits"]), (&5.into(), &0.into()), "{stats}");
    }
}

/// A client that never requests a URL twice fills the ghosts, and no more than that.
#[test]
fn memory_of_ghosts_is_bounded() {
    let setup = Setup::start(&["--max-bytes", "1MiB", "--shadow"]);
    let resident = |stats: &Value| stats["resident_bytes"].as_u64().expect("on Linux");
    let before = resident(&stats(setup.admin));
    let url = format!("http://{}/news", setup.address);
    let flood = setup.sandbox.stockade(&["load", &url, "--requests", "20000", "--cache-bust"]);
    assert_eq!(flood.code, 0, "{}", flood.stderr);
    let after = stats(setup.admin);
    let shadow = &after["shadow"];
    assert!(shadow["sampled_requests"].as_u64() > Some(1_000), "{shadow}");
    let bound = shadow["bytes_max"].as_u64().expect("a bound") + (1 << 20);
    // Connections and the allocator have 16 MiB.
    assert!(resident(&after) < before + bound + (16 << 20), "{before}, then {after}");
    assert!(shadow["keys"].as_u64() <= Some(16_384), "{shadow}");
}

#[test]
fn live_figures_that_cannot_be_had_have_a_remedy() {
    let setup = Setup::start(&[]);
    let refused = |arguments: &[&str], remedy: &str| {
        let output = setup.sandbox.stockade(&[&["plan"], arguments].concat());
        assert_eq!(output.code, 2, "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains(remedy), "{arguments:?}: {}", output.stderr);
    };
    let admin = format!("http://{}", setup.admin);
    refused(&["--live", &admin], "start it with --shadow");
    refused(&["--live", &admin, "--format", "html"], "write text, md or json");
    refused(&["--live", &admin, "access.log"], "cannot be used with");
    refused(&["--live", &setup.origin_url()], "write the URL that `stockade proxy --admin` prints");
    refused(&["--live", "127.0.0.1:9180"], "such as http://127.0.0.1:9180");
    refused(&["--live", "http://user:sesame@127.0.0.1"], "--admin-token-file");
    refused(&["--live", "http://127.0.0.1:1"], "127.0.0.1:1: Connection refused");
    refused(&["--live", &admin, "--admin-token-file", "none"], "--admin-token-file: none: No such file");

    let token = setup.sandbox.file("token", "open-sesame-open\n");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("the own file");
    let guarded = Setup::start(&["--shadow", "--admin-token-file", &token]);
    assert!(live(&guarded, &[]).2.contains("write --admin-token-file FILE"));
    let other = setup.sandbox.file("other", "open-barley-open-1\n");
    assert!(live(&guarded, &["--admin-token-file", &other]).2.contains("it has another token"));
    let empty = setup.sandbox.file("empty", "\n");
    assert!(live(&guarded, &["--admin-token-file", &empty]).2.contains("holds no token"));
    let (code, text, error) = live(&guarded, &["--admin-token-file", &token]);
    assert!(code == 0 && text.contains("no requests"), "{text} {error}");
}
