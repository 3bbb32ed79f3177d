//! Whoever runs it: what is forgotten, what is asked for beforehand, and who may.

use serde_json::json;

use super::{Got, Proxied, talk, until};
use crate::running::get;

/// Three answers are held.
fn warm() -> Proxied {
    let proxied = Proxied::start(&[]);
    for path in ["/news", "/news/today", "/weather"] {
        assert_eq!(proxied.get(path).outcome(), "miss");
    }
    // An answer may be there before it is stored.
    until(|| proxied.stats()["entries"] == 3);
    proxied
}

/// What is asked for, purged, and then which of the three is still there.
#[track_caller]
fn assert_purged(purge: &str, purged: u64, left: [&str; 3]) {
    let proxied = warm();
    let got = proxied.post(purge, "");
    assert_eq!((got.status, &got.json()["purged"]), (200, &purged.into()), "{purge}");
    let found = ["/news", "/news/today", "/weather"].map(|path| proxied.get(path).outcome().to_owned());
    assert_eq!(found, left, "{purge}");
}

#[test]
fn what_is_purged_is_forgotten_and_nothing_else() {
    assert_purged("/purge?url=http://origin/news", 1, ["miss", "hit", "hit"]);
    assert_purged("/purge?url=http://ORIGIN:80/news", 1, ["miss", "hit", "hit"]);
    assert_purged("/purge?url=https://origin/news", 0, ["hit", "hit", "hit"]);
    assert_purged("/purge?prefix=http://origin/news", 2, ["miss", "miss", "hit"]);
    assert_purged("/purge?tag=sport", 2, ["miss", "miss", "hit"]);
    assert_purged("/purge?tag=nothing", 0, ["hit", "hit", "hit"]);
    assert_purged("/purge_all", 3, ["miss", "miss", "miss"]);
}

#[test]
fn what_is_purged_softly_is_what_clients_get_if_the_origin_fails() {
    let proxied = warm();
    assert_eq!(proxied.post("/purge?url=http://origin/news&soft", "").json()["purged"], 1);
    let Proxied { origin, address, proxy: _proxy, sandbox: _sandbox, .. } = proxied;
    drop(origin);
    let got = Got::of(&get(address, "/news"));
    got.assert(200, "all is well", "fallback");
    Got::of(&get(address, "/weather")).assert(200, "rain", "hit");
}

#[test]
fn all_is_forgotten_and_asked_for_anew() {
    let proxied = warm();
    let list = "# the front page\nhttp://origin/news\n\nhttp://origin/weather\nhttp://origin/own\n";
    let got = proxied.post("/purge_all", list);
    assert_eq!((got.status, got.header("content-type")), (200, Some("application/x-ndjson")), "{got:?}");
    let lines: Vec<serde_json::Value> =
        got.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["purged"], 3);
    let last = lines.last().expect("a last line");
    let counts = ["done", "of", "stored", "not_stored", "failed"].map(|count| last[count].as_u64());
    assert_eq!(counts, [3, 3, 2, 1, 0].map(Some), "{last}");
    assert_eq!(last["not_stored_or_failed"][0]["url"], "http://origin/own");
    let found = ["/news", "/news/today", "/weather"].map(|path| proxied.get(path).outcome().to_owned());
    assert_eq!(found, ["hit", "miss", "hit"]);

    // A list that makes no sense purges nothing.
    let wrong = proxied.post("/purge_all", "http://origin/news\nnews\n");
    assert_eq!(wrong.status, 400);
    assert_eq!(wrong.json()["error"], "line 2: `news` is no URL: write http://HOST/PATH");
    assert_eq!(proxied.get("/news").outcome(), "hit");
}

#[test]
fn a_reload_is_asked_for_and_told() {
    let proxied = Proxied::start(&[]);
    let none = proxied.post("/reload", "");
    assert_eq!((none.status, &none.json()["changes"]), (200, &json!([])), "{none:?}");
    super::silent(&proxied.sandbox, &proxied.origin_url(), "hosts = [\"origin\"]\n[timeouts]\nhead = \"5s\"");
    let two = proxied.post("/reload", "").json();
    let changes = json!([
        { "setting": "hosts", "needs_restart": false },
        { "setting": "timeouts", "needs_restart": true },
    ]);
    assert_eq!(two["changes"], changes);
    // What takes a new start is not in force, and told again.
    let shown = super::of_admin(proxied.admin, "GET", "/config", "").json();
    assert_eq!((&shown["timeouts"]["head"], &shown["hosts"]), (&"10s".into(), &json!(["origin"])), "{shown}");
    assert_eq!(proxied.post("/reload", "").json()["changes"], json!([changes[1]]));
    super::silent(&proxied.sandbox, &proxied.origin_url(), "hosts = [5]");
    let wrong = proxied.post("/reload", "");
    assert_eq!(wrong.status, 422, "{wrong:?}");
}

#[test]
fn who_shows_no_token_is_told_nothing() {
    const TOKEN: &str = "open-sesame-open-sesame";
    let sandbox = crate::support::Sandbox::new();
    let token = sandbox.file("token", &format!("{TOKEN}\n"));
    let proxied = Proxied::start(&["--admin-token-file", &token]);
    let ask = |method: &str, path: &str, more: &str| {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n"
        );
        talk(proxied.admin, &format!("{head}{more}\r\n"))
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
            let got = ask(method, path, more);
            assert_eq!(
                (got.status, got.header("www-authenticate").is_some()),
                (401, true),
                "{path}: {got:?}"
            );
        }
        assert_eq!(ask(method, path, &shown).status, 200, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(ask("GET", path, "").status, 200, "{path}");
    }
    let config = ask("GET", "/config", &shown);
    assert!(!config.body.contains(TOKEN), "{config:?}");
    // Another one is in force at once.
    sandbox.file("token", "another-token-of-ours\n");
    assert_eq!(ask("POST", "/reload", &shown).status, 200);
    assert_eq!(ask("GET", "/stats", &shown).status, 401);
    assert_eq!(ask("GET", "/stats", "Authorization: Bearer another-token-of-ours\r\n").status, 200);
}

#[test]
fn pages_of_other_sites_and_names_of_others_are_refused() {
    let proxied = Proxied::start(&[]);
    for (request, status) in [
        (
            "POST /purge_all HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Length: 0\r\n",
            403,
        ),
        ("GET /stats HTTP/1.1\r\nHost: evil.example\r\n", 421),
        ("GET /purge_all HTTP/1.1\r\nHost: localhost\r\n", 405),
    ] {
        let got = talk(proxied.admin, &format!("{request}Connection: close\r\n\r\n"));
        assert_eq!(got.status, status, "{got:?}");
    }
}
