//! Secrets of clients and operators: in the access log, and in the token's file.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::serve::support::*;

#[tokio::test]
async fn secrets_in_queries_are_not_logged() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = Origin::responding(|received| good(received.target().as_bytes())).await;
    for (number, (setting, url, referer)) in [
        ("", "/a?b=1&Token=***&api_key=***", "https://a/?password=***&c=sesame"),
        (
            "mask_query = [\"b\"]",
            "/a?b=***&Token=sesame&api_key=sesame",
            "https://a/?password=sesame&c=sesame",
        ),
        ("mask_query = [\"*\"]", "/a?b=***&Token=***&api_key=***", "https://a/?password=***&c=***"),
        ("mask_query = []", "/a?b=1&Token=sesame&api_key=sesame", "https://a/?password=sesame&c=sesame"),
    ]
    .into_iter()
    .enumerate()
    {
        for format in ["json", "combined"] {
            let path = folder.path().join(format!("{format}-{number}.log"));
            let log = format!("[log]\nformat = \"{format}\"\npath = \"{}\"\n{setting}\n", path.display());
            let proxy = start_with(&origin, &log).await;
            let fields = ["Referer: https://a/?password=sesame&c=sesame"];
            let answer = send(&proxy, "GET", "/a?b=1&Token=sesame&api_key=sesame", &fields).await;
            // The origin gets what the client sent.
            answer.assert_body(b"/a?b=1&Token=sesame&api_key=sesame");
            let text = log_lines(&path, 1).await;
            assert!(
                text.contains(&format!("{url} ")) || text.contains(&format!("\"{url}\"")),
                "{setting} {text}"
            );
            assert!(text.contains(&format!("\"{referer}\"")), "{setting} {text}");
        }
    }
}

#[tokio::test]
async fn token_file_that_others_can_read_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("token");
    fs::write(&path, "open-sesame-open-sesame").expect("written");
    let origin = Origin::responding(|_| good(b"")).await;
    let admin = format!("[admin]\nlisten = \"127.0.0.1:0\"\ntoken_file = \"{}\"\n", path.display());
    for (mode, count) in [(0o644, 1), (0o600, 0)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the own file");
        let warnings = start_with(&origin, &format!("{admin}[log]\nformat = \"none\"\n")).await.warnings;
        assert_eq!(warnings.len(), count, "{warnings:?}");
        assert!(warnings.iter().all(|warning| warning.contains("0644: `chmod 640 ")), "{warnings:?}");
    }
}
