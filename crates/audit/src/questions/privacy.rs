//! Pages that have an owner: does any user get another user's page?

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::{join, join_all};
use http::{
    HeaderMap,
    header::{AUTHORIZATION, COOKIE, SET_COOKIE},
};

use super::{EXPIRY, SHORT_LOAD, tally::Tally};
use crate::{
    answer::{Answer, Mark},
    case::{Case, OriginRequest},
    page::Page,
    questions::Question,
    setup::Audit,
    truth::Violation,
    users::{Ask, UserRequest},
};

const AT_ONCE: usize = 20;
const AFTERWARDS: usize = 8;
/// A field of no meaning to HTTP, so that a cache which forwards each request with a cookie is examined, too.
const X_USER: &str = "x-user";
/// Of a test with thousands of users.
const BATCHES: usize = 20;
const BATCH: usize = 100;
const PATHS: usize = 20;
/// No batch begins later: some caches answer waiting requests one by one if the page is not stored.
const BATCHES_TIME: Duration = Duration::from_secs(6);

pub(super) const QUESTIONS: &[Question] = &[
    Question::new("privacy.authorization", "`max-age=60` pages for requests with `Authorization`", |audit| {
        Box::pin(authorization(audit))
    })
    .rule("RFC 9111, 3.5"),
    Question::new(
        "privacy.private",
        "`private, max-age=60` pages, users at once and one after another",
        |audit| Box::pin(not_shared(audit, "private", "private, max-age=60", PRIVATE)),
    )
    .rule(PRIVATE)
    .mostly_waits(),
    Question::new("privacy.no-store", "`no-store` pages, users at once and one after another", |audit| {
        Box::pin(not_shared(audit, "no-store", "no-store", NO_STORE))
    })
    .rule(NO_STORE)
    .mostly_waits(),
    Question::new(
        "privacy.zero-lifetime",
        "`max-age=0` pages, users at once and one after another",
        |audit| Box::pin(not_shared(audit, "zero-lifetime", "max-age=0", STALE)),
    )
    .rule(STALE)
    .mostly_waits(),
    Question::new(
        "privacy.cookies",
        "`max-age=60` pages for requests with cookies, without `Vary`",
        |audit| Box::pin(cookies(audit)),
    ),
    Question::new(
        "privacy.set-cookie",
        "`max-age=60` pages that set a cookie, a different one for each load",
        |audit| Box::pin(set_cookie(audit)),
    )
    .mostly_waits(),
    Question::new(
        "privacy.became-private",
        "A public page expires and is private from then on, and 100 users ask at that moment",
        |audit| Box::pin(became_private(audit)),
    )
    .rule(PRIVATE)
    .mostly_waits(),
    Question::new(
        "privacy.qualified",
        "Pages for all with a field for one user: `private=\"x-user\"`, `no-cache=\"x-user\"`, `no-cache=\"set-cookie\"`",
        |audit| Box::pin(qualified(audit)),
    )
    .rule("RFC 9111, 5.2.2.7 and 5.2.2.4")
    .mostly_waits(),
    Question::new(
        "privacy.many-users",
        "Up to 2,000 users, 100 at once, and 20 paths with pages of five kinds of `Cache-Control` and `Vary`",
        |audit| Box::pin(many_users(audit)),
    )
    .rule("RFC 9111, 3.5, 4.1, 4.2.4, 5.2.2.5 and 5.2.2.7"),
];

const AUTHORIZED: &str = "RFC 9111, 3.5";
const PRIVATE: &str = "RFC 9111, 5.2.2.7";
const NO_CACHE: &str = "RFC 9111, 5.2.2.4";
pub(super) const NO_STORE: &str = "RFC 9111, 5.2.2.5";
/// A response without a lifetime is stale when it arrives.
const STALE: &str = "RFC 9111, 4.2.4";
const VARY: &str = "RFC 9111, 4.1";

/// The fields that name the user, the value of `Cache-Control`, a nominated field of `Vary`, and the rule.
const KINDS: [(&str, &str, Option<&str>, &str); 5] = [
    (X_USER, "private, max-age=60", None, PRIVATE),
    ("cookie", "no-store", None, NO_STORE),
    (X_USER, "max-age=0", None, STALE),
    ("authorization", "max-age=60", None, AUTHORIZED),
    (X_USER, "max-age=60", Some(X_USER), VARY),
];

/// The directives that name a field, the field, and the rule. Some caches treat `Set-Cookie` in a way of its own.
const QUALIFIED: [(&str, &str, &str); 3] =
    [("private", X_USER, PRIVATE), ("no-cache", "set-cookie", NO_CACHE), ("no-cache", X_USER, NO_CACHE)];

const ANOTHERS: &str = "requests got the page of another user.";

async fn authorization(audit: &Audit<'_>) -> Answer {
    let case = audit.case("authorization", |request| owned(request).cache_control("max-age=60"));
    let requests = visits(audit, &case, "authorization").await;
    let mut tally = Tally::default();
    for request in &requests {
        let fault = is_anothers(request).then_some((Violation::WrongOwner, AUTHORIZED));
        tally.add(audit, request, fault);
    }
    // The one request without the field is the last: no page of it is in the store before.
    let unnamed = requests.iter().filter(|request| {
        request.headers.contains_key(AUTHORIZATION) && request.page().is_ok_and(|page| page.owner.is_empty())
    });
    let unnamed = unnamed.count();
    let (mark, text) = match unnamed {
        0 => (Mark::Best, "Each request got a page of its user.".to_owned()),
        _ => (
            Mark::Weak,
            format!(
                "The cache removes the field before the origin: {unnamed} of {} requests got the page without a user.",
                requests.len()
            ),
        ),
    };
    tally
        .answer("requests got a page that was loaded with the `Authorization` of another user.", mark, &text)
        .with("loads", case.loads())
        .with("unnamed", unnamed)
}

/// Pages that a shared cache may use for one request alone.
async fn not_shared(
    audit: &Audit<'_>,
    name: &str,
    cache_control: &'static str,
    rule: &'static str,
) -> Answer {
    let case = audit.case(name, move |request| owned(request).cache_control(cache_control));
    let (requests, others) = join(visits(audit, &case, "cookie"), visits(audit, &case, X_USER)).await;
    let mut tally = Tally::default();
    for request in requests.iter().chain(&others) {
        tally.add(audit, request, is_anothers(request).then_some((Violation::WrongOwner, rule)));
    }
    let text = "Each request got the page of its user, with a cookie and without.";
    tally.answer(ANOTHERS, Mark::Best, text).with("loads", case.loads())
}

async fn cookies(audit: &Audit<'_>) -> Answer {
    let case = audit.case("cookies", |request| owned(request).cache_control("max-age=60"));
    let requests = visits(audit, &case, "cookie").await;
    let mut tally = Tally::default();
    for request in &requests {
        tally.add(audit, request, None);
    }
    let shared = requests.iter().filter(|request| is_anothers(request)).count();
    let (mark, text) = match shared {
        0 => (Mark::Best, "Each request got the page of its user.".to_owned()),
        _ => (
            Mark::Weak,
            format!(
                "{shared} of {} requests got a page that was loaded with the cookie of another user. `max-age` allows \
                 it: the origin has to send `private` for such pages.",
                requests.len()
            ),
        ),
    };
    tally.answer(ANOTHERS, mark, &text).with("loads", case.loads()).with("shared", shared)
}

async fn set_cookie(audit: &Audit<'_>) -> Answer {
    let case = audit.case("set-cookie", |request| {
        let cookie = format!("session={}", request.number);
        Page::of(request).cache_control("max-age=60").set_cookie(&cookie).after(latency(request))
    });
    let path = case.path("page");
    let requests = without_names(audit, &path).await;
    let mut tally = Tally::default();
    for request in &requests {
        tally.add(audit, request, None);
    }
    let shared = repeated(&requests, |request| request.field(SET_COOKIE));
    let without = requests.iter().filter(|request| request.is_ok() && request.field(SET_COOKIE).is_none());
    let (mark, text) = match (shared.len(), without.count()) {
        (0, 0) => (Mark::Best, "Each request got a cookie of its own.".to_owned()),
        (0, without) => (
            Mark::Best,
            format!(
                "{without} of {} requests got the page without a cookie, and no request got the cookie of another user.",
                requests.len()
            ),
        ),
        (shared, _) => (
            Mark::Weak,
            format!(
                "{shared} of {} requests got a cookie that was set for another user. HTTP allows it: the origin has to \
                 send `private` or `no-store` with `Set-Cookie`.",
                requests.len()
            ),
        ),
    };
    tally.answer(ANOTHERS, mark, &text).with("loads", case.loads()).with("shared", shared.len())
}

async fn became_private(audit: &Audit<'_>) -> Answer {
    const USERS: usize = 50;
    let case = audit.case("became-private", |request| match request.nth {
        0 => Page::of(request).cache_control("public, max-age=1"),
        nth => {
            let latency = if nth <= USERS { 3 * SHORT_LOAD } else { Duration::ZERO };
            owned(request).cache_control("private, max-age=60").after(latency)
        }
    });
    let (cookie, field) = (case.path("cookie"), case.path(X_USER));
    join(audit.users.get(&cookie), audit.users.get(&field)).await;
    audit.users.wait(EXPIRY).await;
    let herd = |path, name| join_all((0..USERS).map(move |user| ask(audit, path, name, user).send()));
    let (mut requests, others) = join(herd(&cookie, "cookie"), herd(&field, X_USER)).await;
    requests.extend(others);
    for user in USERS..USERS + AFTERWARDS {
        requests.push(ask(audit, &cookie, "cookie", user).send().await);
        requests.push(ask(audit, &field, X_USER, user).send().await);
    }
    let mut tally = Tally::default();
    for request in &requests {
        tally.add(audit, request, is_anothers(request).then_some((Violation::WrongOwner, PRIVATE)));
    }
    let old =
        requests.iter().filter(|request| request.page().is_ok_and(|page| page.owner.is_empty())).count();
    let text = match old {
        0 => "Each request got the page of its user.".to_owned(),
        old => {
            format!(
                "{old} of {} requests got the old public page, and no request got the page of another user.",
                requests.len()
            )
        }
    };
    tally.answer(ANOTHERS, Mark::Best, &text).with("loads", case.loads()).with("old_pages", old)
}

async fn qualified(audit: &Audit<'_>) -> Answer {
    let case = audit.case("qualified", |request| {
        let load = format!("load={}", request.number);
        let page = Page::of(request).after(latency(request));
        let (directive, field, _) = QUALIFIED[page_of(request) % QUALIFIED.len()];
        page.cache_control(&format!("max-age=60, {directive}=\"{field}\"")).field(field, &load)
    });
    let paths: Vec<_> = (0..QUALIFIED.len()).map(|nth| case.path(&nth.to_string())).collect();
    let all = join_all(paths.iter().map(|path| without_names(audit, path))).await;
    let mut tally = Tally::default();
    let mut broken = Vec::new();
    for ((directive, field, rule), requests) in QUALIFIED.into_iter().zip(all) {
        let repeated = repeated(&requests, |request| request.field(field));
        if !repeated.is_empty() {
            broken.push(format!("`{directive}=\"{field}\"`"));
        }
        for (place, request) in requests.iter().enumerate() {
            let fault = repeated.contains(&place).then_some((Violation::WrongOwner, rule));
            tally.add(audit, request, fault);
        }
    }
    let (mark, text) = if case.loads() + tally.failures.failed < tally.failures.requests {
        (Mark::Best, "The page is stored without the named field.")
    } else {
        (
            Mark::Good,
            "A page with one of these directives is loaded for each request, as if no field were named.",
        )
    };
    let wrong = format!(
        "requests got the named field of another user's response ({} was not followed).",
        broken.join(" and ")
    );
    tally.answer(&wrong, mark, text).with("loads", case.loads())
}

async fn many_users(audit: &Audit<'_>) -> Answer {
    let kind_of = |path: usize| KINDS[path % KINDS.len()];
    let case = audit.case("many-users", move |request| {
        let (_, cache_control, vary, _) = kind_of(page_of(request));
        let page = owned(request).cache_control(cache_control).after(SHORT_LOAD / 4);
        vary.into_iter().fold(page, |page, field| page.field("vary", field))
    });
    let mut tally = Tally::default();
    let end = audit.users.now() + BATCHES_TIME;
    for batch in 0..BATCHES {
        if audit.users.now() > end {
            break;
        }
        let users = batch * BATCH..(batch + 1) * BATCH;
        let requests = users.map(|user| {
            let (field, _, _, rule) = kind_of(user % PATHS);
            let path = case.path(&(user % PATHS).to_string());
            async move { (ask(audit, &path, field, user).send().await, rule) }
        });
        for (request, rule) in join_all(requests).await {
            tally.add(audit, &request, is_anothers(&request).then_some((Violation::WrongOwner, rule)));
        }
    }
    let text = format!("Each of {} requests got the page of its user.", tally.failures.requests);
    tally.answer(ANOTHERS, Mark::Best, &text).with("loads", case.loads())
}

/// Requests of users at once, of others one after another, and of one without a name, for a page of their own.
async fn visits(audit: &Audit<'_>, case: &Case, field: &'static str) -> Vec<UserRequest> {
    let path = case.path(field);
    let mut requests = join_all((0..AT_ONCE).map(|user| ask(audit, &path, field, user).send())).await;
    for user in AT_ONCE..AT_ONCE + AFTERWARDS {
        requests.push(ask(audit, &path, field, user).send().await);
    }
    requests.push(audit.users.get(&path).await);
    requests
}

/// Requests without a user's name, at once and one after another.
async fn without_names(audit: &Audit<'_>, path: &str) -> Vec<UserRequest> {
    let mut requests = join_all((0..AT_ONCE).map(|_| audit.users.get(path))).await;
    for _ in 0..AFTERWARDS {
        requests.push(audit.users.get(path).await);
    }
    requests
}

/// The request of a user, whose name is in this field.
fn ask<'a>(audit: &'a Audit<'_>, path: &str, field: &'static str, user: usize) -> Ask<'a> {
    let value = match field {
        "authorization" => format!("Bearer user-{user}"),
        "cookie" => format!("session=user-{user}"),
        _ => format!("user-{user}"),
    };
    audit.users.ask(path).field(field, &value)
}

/// The number at the end of the path.
fn page_of(request: &OriginRequest) -> usize {
    request.path().rsplit('/').next().and_then(|page| page.parse().ok()).unwrap_or(0)
}

/// The page of the user in the request.
fn owned(request: &OriginRequest) -> Page {
    Page::of(request).owner(user_in(&request.headers)).after(latency(request))
}

/// Only requests that are sent at once have to wait.
fn latency(request: &OriginRequest) -> Duration {
    if request.nth < AT_ONCE { SHORT_LOAD } else { Duration::ZERO }
}

/// The user in the fields of a request; empty: none.
fn user_in(headers: &HeaderMap) -> &str {
    let mut values =
        [AUTHORIZATION.as_str(), COOKIE.as_str(), X_USER].into_iter().filter_map(|name| headers.get(name));
    let value = values.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.rsplit([' ', '=']).next().unwrap_or_default()
}

/// True for a page of another user. A page without an owner is for all users.
fn is_anothers(request: &UserRequest) -> bool {
    request.page().is_ok_and(|page| !page.owner.is_empty() && page.owner != user_in(&request.headers))
}

/// The places of the requests whose value an earlier request had.
fn repeated<'a>(
    requests: &'a [UserRequest],
    value: impl Fn(&'a UserRequest) -> Option<&'a str>,
) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let values = requests.iter().enumerate().filter_map(|(place, request)| Some((place, value(request)?)));
    values.filter(|(_, value)| !seen.insert(*value)).map(|(place, _)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_in_one_of_three_fields() {
        for (name, value) in
            [("authorization", "Bearer user-7"), ("cookie", "session=user-7"), (X_USER, "user-7")]
        {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
            assert_eq!(user_in(&headers), "user-7", "{name}");
        }
        assert_eq!(user_in(&HeaderMap::new()), "");
    }
}
