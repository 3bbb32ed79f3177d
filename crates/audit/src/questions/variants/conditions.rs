//! Conditional requests: of clients, and of the cache to the origin.

use std::time::Duration;

use futures_util::future::{join, join_all};
use http::{
    HeaderMap,
    header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH},
};

use super::{OTHERS, by_language, fault_of_whole, language_in, languages, speakers};
use crate::{
    answer::{Answer, Mark},
    page::Page,
    questions::{EXPIRY, SHORT_LOAD, tally::Tally},
    setup::Audit,
    truth::Violation,
    users::UserRequest,
};

const TAG: &str = "\"a\"";
/// Values of `If-None-Match` for which the page with `TAG` has not changed.
const SAME: [&str; 3] = [TAG, "\"b\", \"a\"", "W/\"a\""];
const NOT_MODIFIED: &str = "RFC 9110, 15.4.5";
const UPDATE: &str = "RFC 9111, 3.2";
const X_VERSION: &str = "x-version";

pub(super) async fn if_none_match(audit: &Audit<'_>) -> Answer {
    let case = audit.case("if-none-match", |request| {
        Page::of(request).cache_control("max-age=60").etag(TAG).after(SHORT_LOAD)
    });
    let ask = |path: &str, tags: &str| audit.users.ask(path).field("if-none-match", tags).send();
    let stored = case.path("stored");
    let mut requests = vec![audit.users.get(&stored).await];
    let before = case.loads();
    let mut whole = Vec::new();
    for tags in SAME {
        let request = ask(&stored, tags).await;
        if request.is_ok() {
            whole.push(format!("`{tags}`"));
        }
        requests.push(request);
    }
    requests.push(ask(&stored, "\"other\"").await);
    let again = case.loads() - before;
    let cold = case.path("cold");
    requests.push(ask(&cold, TAG).await);
    requests.push(audit.users.get(&cold).await);
    let at_once = case.path("at-once");
    let with_tag = join_all((0..20).map(|_| ask(&at_once, TAG)));
    let (with_tag, without) = join(with_tag, join_all((0..20).map(|_| audit.users.get(&at_once)))).await;
    requests.extend(with_tag.into_iter().chain(without));
    requests.push(audit.users.get(&at_once).await);

    let mut tally = Tally::default();
    for request in &requests {
        tally.add(audit, request, fault_of_condition(request));
    }
    let (mark, text) = if whole.contains(&format!("`{TAG}`")) {
        (Mark::Weak, "A client that has the stored page gets it again.".to_owned())
    } else if again > 0 {
        (
            Mark::Weak,
            format!("{again} of {} conditional requests for a stored page were loads.", SAME.len() + 1),
        )
    } else if whole.is_empty() {
        (Mark::Best, "A client with the tag of the stored page gets 304, one without it the page.".to_owned())
    } else {
        (
            Mark::Good,
            format!("A client with the page's tag gets 304, and the whole page for {}.", whole.join(" and ")),
        )
    };
    tally
        .answer("responses were 304 or 200 for the wrong client, without `ETag`, or not whole.", mark, &text)
        .with("loads", case.loads())
        .with("whole", whole.len())
}

fn fault_of_condition(request: &UserRequest) -> Option<(Violation, &'static str)> {
    let has_tag = has_in_list(&request.headers, TAG);
    match request.status()? {
        304 if has_tag && request.field(ETAG).is_some() => None,
        304 => Some((Violation::WrongStatus, NOT_MODIFIED)),
        _ => fault_of_whole(request),
    }
}

pub(super) async fn revalidation(audit: &Audit<'_>) -> Answer {
    let case = audit.case("revalidation", |request| {
        let latency = if request.number < 2 { Duration::ZERO } else { SHORT_LOAD };
        let tag = format!("\"{}\"", language_in(&request.headers));
        by_language(request).cache_control("max-age=1").etag(&tag).after(latency)
    });
    // Each of the two languages, one after the other.
    let mut requests = Vec::new();
    for language in super::LANGUAGES {
        requests.push(audit.users.ask(&case.path("page")).field("accept-language", language).send().await);
    }
    audit.users.wait(EXPIRY).await;
    let before = case.loads();
    requests.extend(speakers(audit, &case, 20).await);
    audit.users.wait(5 * SHORT_LOAD).await;
    requests.extend(speakers(audit, &case, 2).await);

    let [mut own, mut others, mut whole] = [0; 3];
    for load in case.seen().iter().skip(before) {
        let tag = format!("\"{}\"", language_in(&load.headers));
        *(if !load.headers.contains_key(IF_NONE_MATCH) {
            &mut whole
        } else if has_in_list(&load.headers, &tag) {
            &mut own
        } else {
            &mut others
        }) += 1;
    }
    let (mark, text) = match (own, others) {
        (_, 1..) => (
            Mark::Weak,
            format!("{others} of {} loads had the tag of the other variant alone.", own + others + whole),
        ),
        (0, _) => (
            Mark::Good,
            "Each request got its language. The cache loads the whole page when it has expired.".to_owned(),
        ),
        (own, _) => (
            Mark::Best,
            format!("Each request got its language; {own} of {} loads had the variant's tag.", own + whole),
        ),
    };
    languages(audit, &requests)
        .answer(OTHERS, mark, &text)
        .with("own_tag", own)
        .with("others_tag", others)
        .with("without_tag", whole)
}

pub(super) async fn fields_of_304(audit: &Audit<'_>) -> Answer {
    let case = audit.case("304-fields", |request| {
        let (cache_control, version) =
            if request.nth == 0 { ("max-age=1", "1") } else { ("max-age=60", "2") };
        Page::of(request).cache_control(cache_control).etag(TAG).field(X_VERSION, version)
    });
    let path = case.path("page");
    let mut requests = vec![audit.users.get(&path).await];
    audit.users.wait(EXPIRY).await;
    // A cache may send the old page once more, and revalidate it in the background.
    requests.push(audit.users.get(&path).await);
    audit.users.wait(Duration::from_secs(1)).await;
    let before = case.loads();
    let updated = requests.len();
    for _ in 0..3 {
        requests.push(audit.users.get(&path).await);
    }
    let again = case.loads() - before;
    let is_revalidated = case.seen().iter().any(|load| has_in_list(&load.headers, TAG));
    // A cache may leave fields out, or change them.
    let has_old = |request: &UserRequest| {
        request.field(X_VERSION) == Some("1") || request.field(CACHE_CONTROL) == Some("max-age=1")
    };

    let mut tally = Tally::default();
    for (place, request) in requests.iter().enumerate() {
        let is_old = is_revalidated && place >= updated && has_old(request);
        let fault = fault_of_whole(request).or_else(|| is_old.then_some((Violation::WrongBody, UPDATE)));
        tally.add(audit, request, fault);
    }
    let (mark, text) = match (is_revalidated, again) {
        (false, _) => (Mark::Good, "The cache loads the whole page when it has expired."),
        (true, 0) => (Mark::Best, "The stored page has the fields and the lifetime of the 304."),
        (true, _) => (
            Mark::Weak,
            "The stored page has the fields of the 304, and expires before its new lifetime ends.",
        ),
    };
    tally
        .answer("responses had the fields from before the 304, or another body.", mark, text)
        .with("loads", case.loads())
        .with("again", again)
}

/// True if `If-None-Match` has this tag, strong or weak.
fn has_in_list(headers: &HeaderMap, tag: &str) -> bool {
    let tags = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    tags.split(',').any(|listed| listed.trim().trim_start_matches("W/") == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_compared_weakly() {
        let has =
            |value: &str| has_in_list(&HeaderMap::from_iter([(IF_NONE_MATCH, value.parse().unwrap())]), TAG);
        assert!(SAME.into_iter().all(has));
        assert!(!has("\"other\""));
        assert!(!has_in_list(&HeaderMap::new(), TAG));
    }
}
