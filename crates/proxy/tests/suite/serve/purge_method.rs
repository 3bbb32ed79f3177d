//! `PURGE` on the addresses of clients.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::{Value, json};

use crate::serve::support::*;

const TOKEN: &str = "open-sesame-open-sesame";

fn admin(settings: &str) -> String {
    format!("[log]\nformat = \"none\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{settings}\n")
}

fn token_file(folder: &Path) -> String {
    let path = folder.join("token");
    fs::write(&path, TOKEN).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the own file");
    format!("token_file = \"{}\"", path.display())
}

async fn origin() -> Origin {
    Origin::responding(|received| {
        let fields = ["Cache-Control: max-age=60", "Vary: Accept-Language"];
        sized("200 OK", &fields, received.number.to_string().as_bytes())
    })
    .await
}

fn purged(answer: &Answer) -> Value {
    assert_eq!(answer.status(), 200, "{answer:?}");
    serde_json::from_str(answer.text()).expect("JSON")
}

#[tokio::test]
async fn purge_with_the_token_removes_all_variants_of_the_url() {
    let (folder, origin) = (tempfile::tempdir().expect("a folder"), origin().await);
    let proxy = start_with(&origin, &admin(&token_file(folder.path()))).await;
    for language in ["Accept-Language: de", "Accept-Language: fr"] {
        send(&proxy, "GET", "/a?b", &[language]).await;
    }
    get(&proxy, "/a").await;
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let answer = send(&proxy, "PURGE", "/a?b", &[&bearer]).await;
    let entries = purged(&answer);
    assert_eq!((&entries["kind"], &entries["target"]), (&json!("url"), &json!("//a/a?b")));
    assert!(entries["purged"].as_u64() >= Some(2), "{entries}");
    assert_eq!(send(&proxy, "GET", "/a?b", &["Accept-Language: de"]).await.outcome(), "miss");
    assert_eq!(get(&proxy, "/a").await.outcome(), "hit");
    assert_eq!(purged(&send(&proxy, "PURGE", "/none", &[&bearer]).await)["purged"], 0);
    assert!(origin.requests().iter().all(|received| received.method() == "GET"), "no PURGE is forwarded");
}

#[tokio::test]
async fn purge_with_a_star_removes_the_urls_of_its_host_with_that_prefix() {
    let origin = origin().await;
    let proxy = start_with(&origin, &admin("purge_from = [\"127.0.0.1\"]")).await;
    for path in ["/news/1", "/news/2", "/new"] {
        get(&proxy, path).await;
    }
    send(&proxy, "GET", "/news/1", &["Host: b"]).await;
    let answer = purged(&send(&proxy, "PURGE", "/news/*", &[]).await);
    assert_eq!(answer, json!({ "purged": 2, "kind": "prefix", "target": "//a/news/*", "soft": false }));
    assert_eq!(get(&proxy, "/news/1").await.outcome(), "miss");
    assert_eq!(get(&proxy, "/new").await.outcome(), "hit");
    assert_eq!(send(&proxy, "GET", "/news/1", &["Host: b"]).await.outcome(), "hit");
}

#[tokio::test]
async fn purge_without_permission_is_refused_and_removes_nothing() {
    let (folder, origin) = (tempfile::tempdir().expect("a folder"), origin().await);
    let token = token_file(folder.path());
    let balancer = "trusted_proxies = [\"127.0.0.1\"]\n";
    let forwarded = "X-Forwarded-For: 192.0.2.1";
    let wrong = "Authorization: Bearer open-sesame-open-sesamE";
    for (settings, field, status) in [
        ("[log]\nformat = \"none\"".to_owned(), "X: y", 405),
        // Without a token every client is admitted to the admin listener, and none here.
        (admin(""), "X: y", 405),
        (admin(&token), "X: y", 403),
        (admin(&token), wrong, 403),
        (admin("purge_from = [\"10.0.0.0/8\"]"), "X: y", 403),
        // A client cannot name its own address.
        (admin("purge_from = [\"10.0.0.0/8\"]"), "X-Forwarded-For: 10.0.0.1", 403),
        // The balancer's address is not that of its clients.
        (format!("{balancer}{}", admin("purge_from = [\"127.0.0.1\"]")), forwarded, 403),
        (format!("{balancer}{}", admin("purge_from = [\"127.0.0.1\"]")), "X: y", 403),
        (format!("{balancer}{}", admin("purge_from = [\"192.0.2.1\"]")), forwarded, 200),
    ] {
        let proxy = start_with(&origin, &settings).await;
        get(&proxy, "/a").await;
        let answer = send(&proxy, "PURGE", "/a", &[field]).await;
        assert_eq!(answer.status(), status, "{settings} {field}");
        assert_eq!(answer.field("allow").is_some(), status == 405, "{answer:?}");
        let outcome = if status == 200 { "miss" } else { "hit" };
        assert_eq!(get(&proxy, "/a").await.outcome(), outcome, "{settings} {field}");
    }
    assert!(origin.requests().iter().all(|received| received.method() == "GET"), "no PURGE is forwarded");
}
