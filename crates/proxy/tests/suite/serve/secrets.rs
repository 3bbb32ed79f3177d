//! Secrets of operators: the token's file.

use std::{fs, os::unix::fs::PermissionsExt};

use stockade_proxy::{config::Config, server::ProxyServer};

use crate::serve::support::*;

async fn start(origin: &Origin, settings: &str) -> ProxyServer {
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nthreads = 1\n{settings}\n[[origin]]\nurl = \"{}\"\n",
        origin.url()
    );
    let config = Config::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error:?}\n{text}"));
    let again = config.clone();
    ProxyServer::start(config, Box::new(move || Ok(again.clone()))).await.expect("a proxy")
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
        let warnings = start(&origin, &format!("{admin}[log]\nformat = \"none\"\n")).await.warnings;
        assert_eq!(warnings.len(), count, "{warnings:?}");
        assert!(warnings.iter().all(|warning| warning.contains("0644: `chmod 640 ")), "{warnings:?}");
    }
}
