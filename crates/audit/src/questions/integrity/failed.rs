//! Errors of the origin, and connections that it resets.

use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use stockade_origin::ResponseEnding;

use crate::{
    answer::{Answer, Mark},
    page::Page,
    questions::EXPIRY,
    setup::Audit,
    truth::Violation,
    users::UserRequest,
};

/// The name of a page, and the status that it has at times.
type Failed = (&'static str, StatusCode);

const ERRORS: [Failed; 2] =
    [("500", StatusCode::INTERNAL_SERVER_ERROR), ("503", StatusCode::SERVICE_UNAVAILABLE)];
const GONE: [Failed; 2] = [("410", StatusCode::GONE), ("404", StatusCode::NOT_FOUND)];

pub(super) async fn error_stored(audit: &Audit<'_>) -> Answer {
    let case = audit.case("integrity-errors", |request| {
        let status = ERRORS.iter().find(|(page, _)| request.nth == 0 && request.path().ends_with(page));
        match status {
            Some((_, status)) => Page::of(request).status(*status),
            None => Page::of(request).cache_control("max-age=60"),
        }
    });
    let (mut stored, mut failed) = (Vec::new(), Vec::new());
    for (page, status) in ERRORS {
        let path = case.path(page);
        let first = audit.users.get(&path).await;
        let next = audit.users.get(&path).await;
        if next.status() == Some(status.as_u16()) && next.load().is_some() && next.load() == first.load() {
            audit.users.found(Violation::WrongStatus, &next, "RFC 9111, 3");
            stored.push(page);
        } else if !next.is_ok() {
            failed.push(format!("{} after {page}", next.outcome()));
        }
    }
    if !stored.is_empty() {
        let text = format!("The next user had the stored error: {}.", stored.join(" and "));
        return Answer::new(Mark::Wrong, text).with("stored", stored.len());
    }
    if !failed.is_empty() {
        let text = format!("The next user had no page: {}.", failed.join(", "));
        return Answer::new(Mark::Weak, text).with("failed", failed.len());
    }
    Answer::new(Mark::Best, "The next user had the page.").with("stored", 0)
}

pub(super) async fn gone(audit: &Audit<'_>) -> Answer {
    let case = audit.case("integrity-gone", |request| {
        let page = Page::of(request);
        let status = GONE.iter().find(|(page, _)| request.nth > 0 && request.path().ends_with(page));
        match status {
            Some((_, status)) => page.status(*status).cache_control("max-age=60"),
            None => page.cache_control("max-age=1"),
        }
    });
    let paths = GONE.map(|(page, _)| case.path(page));
    for path in &paths {
        audit.users.get(path).await;
    }
    audit.users.wait(EXPIRY).await;
    let mut first = Vec::new();
    for path in &paths {
        first.push(audit.users.get(path).await);
    }
    // For a refresh in the background to end.
    audit.users.wait(Duration::from_secs(1)).await;
    let mut later = Vec::new();
    for path in &paths {
        later.push(audit.users.get(path).await);
    }
    let [first_old, later_old] = [&first, &later].map(|requests| count(requests, UserRequest::is_ok));
    for request in later.iter().filter(|request| request.is_ok()) {
        audit.users.found(Violation::TooOld, request, "RFC 9111, 4.2.4");
    }
    let failed = later.iter().find(|request| !matches!(request.status(), Some(200 | 404 | 410)));
    let (mark, text) = match (first_old, later_old, failed) {
        (_, 1.., _) => (
            Mark::Wrong,
            format!("{later_old} of 2 users had the old page a second after the next request for it."),
        ),
        (_, _, Some(failed)) => (
            Mark::Weak,
            format!("A user had neither the page nor the status of the origin: {}.", failed.outcome()),
        ),
        (1.., ..) => (
            Mark::Good,
            format!(
                "{first_old} of 2 first users had the old page, and the next ones the status of the origin."
            ),
        ),
        (0, ..) => (Mark::Best, "Each user had the status of the origin.".to_owned()),
    };
    Answer::new(mark, text).with("old_at_first", first_old).with("old_later", later_old)
}

pub(super) async fn post_retry(audit: &Audit<'_>) -> Answer {
    const POSTS: usize = 3;
    let case = audit.case("integrity-post", |request| {
        let ending =
            if request.method == Method::POST { ResponseEnding::Refused } else { ResponseEnding::Complete };
        Page::of(request).cache_control("no-store").ending(ending)
    });
    let mut repeated = 0;
    for post in 0..POSTS {
        // Leaves the cache a persistent connection, on which a reset looks as if the origin had closed it before.
        audit.users.get(&case.path("warm")).await;
        let path = case.path(&format!("post-{post}"));
        audit.users.ask(&path).method(Method::POST).send().await;
        repeated += usize::from(case.seen().iter().filter(|request| request.path() == path).count() > 1);
    }
    if repeated > 0 {
        let text = format!("{repeated} of {POSTS} POST requests reached the origin more than once.");
        return Answer::new(Mark::Wrong, text).with("repeated", repeated);
    }
    let reached = case.seen().iter().filter(|request| request.method == Method::POST).count();
    if reached < POSTS {
        let text = format!("{reached} of {POSTS} POST requests reached the origin.");
        return Answer::new(Mark::Unknown, text);
    }
    Answer::new(Mark::Best, "Each POST request reached the origin once.").with("repeated", 0)
}

pub(super) async fn get_after_reset(audit: &Audit<'_>) -> Answer {
    const USERS: usize = 8;
    let case = audit.case("integrity-kept", |request| {
        let ending = match request.path().rsplit('/').next().unwrap_or_default() {
            // The whole page, and then a reset.
            path if path.starts_with("before") => ResponseEnding::Reset(usize::MAX),
            path if path.starts_with("again") && request.nth == 0 => ResponseEnding::Refused,
            _ => ResponseEnding::Complete,
        };
        // Long enough that each request of `after` has a connection, which the cache may use again.
        let latency = Duration::from_millis(if request.path().contains("/after-") { 200 } else { 0 });
        Page::of(request).cache_control("no-store").after(latency).ending(ending)
    });
    let ask = async |name: &str| {
        let paths: Vec<_> = (0..USERS).map(|user| case.path(&format!("{name}-{user}"))).collect();
        join_all(paths.iter().map(|path| audit.users.get(path))).await
    };
    ask("before").await;
    audit.users.wait(Duration::from_millis(200)).await;
    let after = count(&ask("after").await, |request| !request.is_ok());
    let again = count(&ask("again").await, |request| !request.is_ok());
    let mark = match (after, again) {
        (1.., _) => Mark::Weak,
        // A cache that repeats requests on persistent connections alone may have had a new one for some.
        (0, again) if again >= USERS / 2 => Mark::Good,
        _ => Mark::Best,
    };
    let text = format!(
        "{after} of {USERS} requests after a reset failed; {again} of {USERS} requests that were reset without a byte failed."
    );
    Answer::new(mark, text).with("failed_after_reset", after).with("failed_on_reset", again)
}

fn count(requests: &[UserRequest], has: impl Fn(&UserRequest) -> bool) -> usize {
    requests.iter().filter(|request| has(request)).count()
}
