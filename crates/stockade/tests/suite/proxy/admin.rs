//! The admin API: purges, warm-ups, reloads and access.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;

use super::{Response, Setup, send_request, until};
use crate::running::get;

/// A proxy that holds three responses.
fn warm() -> Setup {
    let setup = Setup::start(&[]);
    for path in ["/news", "/news/today", "/weather"] {
        assert_eq!(setup.get(path).outcome(), "miss");
    }
    // The client may receive a response before it is stored.
    until(|| setup.stats()["entries"] == 3);
    setup
}

/// Purges, checks the count, and checks the outcomes of the three URLs afterwards.
#[track_caller]
fn assert_purged(purge: &str, purged: u64, left: [&str; 3]) {
    let setup = warm();
    let response = setup.post(purge, "");
    assert_eq!((response.status, &response.json()["purged"]), (200, &purged.into()), "{purge}");
    let found = ["/news", "/news/today", "/weather"].map(|path| setup.get(path).outcome().to_owned());
    assert_eq!(found, left, "{purge}");
}

#[test]
fn purge_removes_the_matching_entries_only() {
    assert_purged("/purge?url=http://origin/news", 1, ["miss", "hit", "hit"]);
    assert_purged("/purge?url=http://ORIGIN:80/news", 1, ["miss", "hit", "hit"]);
    assert_purged("/purge?url=https://origin/news", 0, ["hit", "hit", "hit"]);
    assert_purged("/purge?prefix=http://origin/news", 2, ["miss", "miss", "hit"]);
    assert_purged("/purge?prefix=/news/", 1, ["hit", "miss", "hit"]);
    assert_purged("/purge?tag=sport", 2, ["miss", "miss", "hit"]);
    assert_purged("/purge?tag=nothing", 0, ["hit", "hit", "hit"]);
    assert_purged("/purge_all", 3, ["miss", "miss", "miss"]);
}

#[test]
fn purge_of_a_path_is_for_every_host() {
    let setup = warm();
    let request = "GET /news HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n";
    assert_eq!(send_request(setup.address, request).outcome(), "miss");
    until(|| setup.stats()["entries"] == 4);
    let answer = setup.post("/purge?prefix=/news", "").json();
    assert_eq!(answer, json!({ "purged": 3, "kind": "prefix", "target": "/news", "soft": false }));
    assert_eq!(send_request(setup.address, request).outcome(), "miss");
}

#[test]
fn purge_of_an_unknown_tag_says_which_fields_have_tags() {
    let setup = warm();
    assert_eq!(setup.post("/purge?tag=sport", "").json().get("note"), None);
    let note = "no stored response has this tag in cache-tag, surrogate-key";
    assert_eq!(setup.post("/purge?tag=sports", "").json()["note"], note);
    let route = "[[route]]\norigin = \"app\"\ntag_headers = []\n";
    let file = setup.sandbox.path().join("stockade.toml");
    let text = fs::read_to_string(&file).expect("it is there");
    fs::write(&file, format!("{text}{route}")).expect("written");
    assert_eq!(setup.post("/reload", "").status, 200);
    let note = "no route has tags: set tag_headers, such as [\"surrogate-key\"], in a [[route]]";
    assert_eq!(setup.post("/purge?tag=nothing", "").json()["note"], note);
}

#[test]
fn softly_purged_entry_is_served_as_fallback() {
    let setup = warm();
    assert_eq!(setup.post("/purge?url=http://origin/news&soft", "").json()["purged"], 1);
    let Setup { origin, address, proxy: _proxy, sandbox: _sandbox, .. } = setup;
    drop(origin);
    let response = Response::of(&get(address, "/news"));
    response.assert(200, "all is well", "fallback");
    Response::of(&get(address, "/weather")).assert(200, "rain", "hit");
}

#[test]
fn purge_all_with_a_list_loads_the_list() {
    let setup = warm();
    let list = "# the front page\nhttp://origin/news\n\nhttp://origin/weather\nhttp://origin/own\n";
    let response = setup.post("/purge_all", list);
    assert_eq!(
        (response.status, response.header("content-type")),
        (200, Some("application/x-ndjson")),
        "{response:?}"
    );
    let lines: Vec<serde_json::Value> =
        response.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["purged"], 3);
    let last = lines.last().expect("a last line");
    let counts = ["done", "of", "stored", "not_stored", "failed"].map(|count| last[count].as_u64());
    assert_eq!(counts, [3, 3, 2, 1, 0].map(Some), "{last}");
    assert_eq!(last["not_stored_or_failed"][0]["url"], "http://origin/own");
    let found = ["/news", "/news/today", "/weather"].map(|path| setup.get(path).outcome().to_owned());
    assert_eq!(found, ["hit", "miss", "hit"]);

    // An invalid list purges nothing.
    let wrong = setup.post("/purge_all", "http://origin/news\nnews\n");
    assert_eq!(wrong.status, 400);
    assert_eq!(wrong.json()["error"], "line 2: `news` is not a URL: write http://HOST/PATH");
    assert_eq!(setup.get("/news").outcome(), "hit");
}

#[test]
fn reload_reports_the_changed_settings() {
    let setup = Setup::start(&[]);
    let none = setup.post("/reload", "");
    assert_eq!((none.status, &none.json()["changes"]), (200, &json!([])), "{none:?}");
    super::config_without_log(
        &setup.sandbox,
        &setup.origin_url(),
        "hosts = [\"origin\"]\n[timeouts]\nhead = \"5s\"",
    );
    let two = setup.post("/reload", "").json();
    let changes = json!([
        { "setting": "hosts", "needs_restart": false },
        { "setting": "timeouts", "needs_restart": true },
    ]);
    assert_eq!(two["changes"], changes);
    // A setting that needs a restart is not in force, and each reload reports it.
    let shown = super::admin_request(setup.admin, "GET", "/config", "").json();
    assert_eq!((&shown["timeouts"]["head"], &shown["hosts"]), (&"10s".into(), &json!(["origin"])), "{shown}");
    assert_eq!(setup.post("/reload", "").json()["changes"], json!([changes[1]]));
    super::config_without_log(&setup.sandbox, &setup.origin_url(), "hosts = [5]");
    let wrong = setup.post("/reload", "");
    assert_eq!(wrong.status, 422, "{wrong:?}");
}

#[test]
fn requests_without_the_token_are_refused() {
    const TOKEN: &str = "open-sesame-open-sesame";
    let sandbox = crate::support::Sandbox::new();
    let token = sandbox.file("token", &format!("{TOKEN}\n"));
    // Otherwise the proxy warns first.
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("the own file");
    let setup = Setup::start(&["--admin-token-file", &token]);
    let send = |method: &str, path: &str, more: &str| {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n"
        );
        send_request(setup.admin, &format!("{head}{more}\r\n"))
    };
    let shown = format!("Authorization: Bearer {TOKEN}\r\n");
    for (method, path) in [
        ("GET", "/stats"),
        ("GET", "/metrics"),
        ("GET", "/config"),
        ("POST", "/purge_all"),
        ("POST", "/reload"),
    ] {
        for more in ["", "Authorization: Bearer open-sesame-open-sesamE\r\n"] {
            let response = send(method, path, more);
            assert_eq!(
                (response.status, response.header("www-authenticate").is_some()),
                (401, true),
                "{path}: {response:?}"
            );
        }
        assert_eq!(send(method, path, &shown).status, 200, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(send("GET", path, "").status, 200, "{path}");
    }
    let config = send("GET", "/config", &shown);
    assert!(!config.body.contains(TOKEN), "{config:?}");
    // A new token is in force after a reload.
    sandbox.file("token", "another-token-of-ours\n");
    assert_eq!(send("POST", "/reload", &shown).status, 200);
    assert_eq!(send("GET", "/stats", &shown).status, 401);
    assert_eq!(send("GET", "/stats", "Authorization: Bearer another-token-of-ours\r\n").status, 200);
}

#[test]
fn other_origins_and_other_hosts_are_refused() {
    let setup = Setup::start(&[]);
    for (request, status) in [
        (
            "POST /purge_all HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Length: 0\r\n",
            403,
        ),
        ("GET /stats HTTP/1.1\r\nHost: evil.example\r\n", 421),
        ("GET /purge_all HTTP/1.1\r\nHost: localhost\r\n", 405),
    ] {
        let response = send_request(setup.admin, &format!("{request}Connection: close\r\n\r\n"));
        assert_eq!(response.status, status, "{response:?}");
    }
}
