//! The fields of responses and requests: those of the page, and those of a connection.

use http::{
    HeaderName,
    header::{CONNECTION, CONTENT_TYPE, ETAG, LAST_MODIFIED, LINK},
};

use crate::{
    answer::{Answer, Mark},
    page::Page,
    questions::failures::Failures,
    setup::Audit,
    users::UserRequest,
};

const X_A: HeaderName = HeaderName::from_static("x-a");
const X_HOP: HeaderName = HeaderName::from_static("x-hop");
const FIELDS: [(HeaderName, &str); 7] = [
    (X_A, "1"),
    (X_A, "two, three"),
    (CONTENT_TYPE, "text/html; charset=utf-8"),
    (LINK, "</a.css>; rel=preload"),
    (LINK, "</b.js>; rel=preload"),
    (LAST_MODIFIED, "Wed, 01 Jan 2025 00:00:00 GMT"),
    (ETAG, "\"integrity\""),
];

pub(super) async fn same(audit: &Audit<'_>) -> Answer {
    let case = audit.case("integrity-fields", |request| {
        let page = Page::of(request).cache_control("max-age=60");
        FIELDS.iter().fold(page, |page, (name, value)| page.field(name.clone(), value))
    });
    let path = case.path("page");
    let loaded = audit.users.get(&path).await;
    let stored = audit.users.get(&path).await;
    let failures = Failures::of([&loaded, &stored]);
    if failures.some() {
        return Answer::new(Mark::Unknown, failures.sentence());
    }
    if case.loads() > 1 {
        return Answer::new(Mark::Unknown, format!("The page was not stored: {} loads.", case.loads()));
    }
    let mut changed = Vec::new();
    for name in [X_A, CONTENT_TYPE, LINK, LAST_MODIFIED, ETAG] {
        let sent: Vec<_> = FIELDS.iter().filter(|(of, _)| *of == name).map(|(_, value)| *value).collect();
        for (request, place) in [(&loaded, "loaded"), (&stored, "from the store")] {
            let got = values(request, &name);
            if got != sent.join(", ") {
                changed.push(format!("{name} {place}: {}", if got.is_empty() { "missing" } else { &got }));
            }
        }
    }
    if changed.is_empty() {
        return Answer::new(Mark::Best, "Both had all fields of the origin, unchanged.").with("changed", 0);
    }
    Answer::new(Mark::Wrong, format!("{}.", changed.join("; "))).with("changed", changed.len())
}

/// All values of a field, as in one line.
fn values(request: &UserRequest, name: &HeaderName) -> String {
    let Ok(response) = &request.result else { return String::new() };
    let values: Vec<_> = response
        .headers()
        .get_all(name)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
        .collect();
    values.join(", ")
}

pub(super) async fn of_connection(audit: &Audit<'_>) -> Answer {
    let case = audit.case("integrity-hop", |request| {
        Page::of(request).cache_control("max-age=60").field(CONNECTION, "x-hop").field(X_HOP, "origin")
    });
    let path = case.path("page");
    let mut passed = Vec::new();
    for place in ["in the loaded page", "in the stored page"] {
        let request = audit.users.ask(&path).field("connection", "x-hop").field("x-hop", "user").send().await;
        if !request.is_ok() {
            return Answer::new(Mark::Unknown, format!("A user had no page: {}.", request.outcome()));
        }
        if request.field(X_HOP).is_some() {
            passed.push(place);
        }
    }
    if case.seen().iter().any(|request| request.field(X_HOP).is_some()) {
        passed.push("in the request to the origin");
    }
    if passed.is_empty() {
        let text = "A field that `Connection` names is passed on to neither side.";
        return Answer::new(Mark::Best, text).with("passed", 0);
    }
    let text = format!("A field that `Connection` names is passed on: {}.", passed.join(", "));
    Answer::new(Mark::Wrong, text).with("passed", passed.len())
}
