//! Purge requests.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use stockade_cache::Invalidation;

use super::purge::{Purge, PurgeTarget, url};

/// A query.
///
/// - A purge is read as it was written.
/// - Any text is a tag, if it is not too long, whatever its characters are.
/// - A query that is refused has a message of one line.
pub fn check(data: &[u8]) {
    let Ok(query) = std::str::from_utf8(data) else { return };
    match Purge::read(query) {
        Ok(purge) => assert_eq!(Purge::read(&written(&purge)), Ok(purge), "{query}"),
        Err(message) => assert_is_line(&message),
    }
    match Purge::read_all(query) {
        Ok(purge) => {
            assert_eq!(purge.target, PurgeTarget::All);
            assert_eq!(Purge::read_all(&format!("&{query}&")), Ok(purge), "{query}");
        }
        Err(message) => assert_is_line(&message),
    }
    let tag = Purge { target: PurgeTarget::Tag(query.to_owned()), mode: Invalidation::Hard };
    let is_tag = (1..=1_024).contains(&query.len());
    assert_eq!(Purge::read(&written(&tag)).is_ok_and(|read| read == tag), is_tag, "{query}");
    match url(query) {
        Ok(uri) => {
            let authority = uri.authority().expect("a host").as_str();
            assert!(
                matches!(uri.scheme_str(), Some("http" | "https")) && !authority.contains('@'),
                "{query}"
            );
        }
        Err(message) => assert_is_line(&message),
    }
}

fn assert_is_line(message: &str) {
    assert!(!message.is_empty() && !message.contains(char::is_control), "{message:?}");
}

fn written(Purge { target, mode }: &Purge) -> String {
    let (name, value) = match target {
        PurgeTarget::Url(url) => ("url", url.to_string()),
        PurgeTarget::Prefix(prefix) | PurgeTarget::PathPrefix(prefix) => ("prefix", prefix.clone()),
        PurgeTarget::Tag(tag) => ("tag", tag.clone()),
        PurgeTarget::All => ("all", String::new()),
    };
    let soft = if *mode == Invalidation::Soft { "&soft" } else { "" };
    format!("{name}={}{soft}", utf8_percent_encode(&value, NON_ALPHANUMERIC))
}
