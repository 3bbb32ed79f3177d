//! Large and long messages, many pages, memory and idle connections.

use std::{fmt::Write, time::Duration};

use futures_util::future::{join, join_all};
use http::HeaderMap;
use stockade_model::units::format_size;
use tokio::io::AsyncWriteExt;

use super::failures::Failures;
use crate::{
    answer::{Answer, Mark},
    page::Page,
    questions::{Needs, Question},
    setup::Audit,
    truth::Violation,
    users::UserRequest,
};

const LARGE_BYTES: usize = 32 << 20;
const LARGE_USERS: usize = 4;
const LARGE_PATIENCE: Duration = Duration::from_secs(30);
const PAGES: usize = 5_000;
const PAGES_AT_ONCE: usize = 100;
const LAST_PAGES: usize = 1_000;
const SMALL_BYTES: usize = 1_024;
const FIELD_BYTES: usize = 7_000;
const URL_BYTES: usize = 6_000;
/// The origin and the users take 100 in all, and a cache adds some.
const FIELDS: usize = 80;
const ROUND_PAGES: usize = 500;
const ROUND_PAGE_BYTES: usize = 64 << 10;
const ROUND_AT_ONCE: usize = 50;
const IDLE_CONNECTIONS: usize = 200;
const IDLE_USERS: usize = 20;
const IDLE_TIME: Duration = Duration::from_secs(3);

pub(super) const QUESTIONS: &[Question] = &[
    Question::new("limits.large", "A page of 32 MiB, and 4 users at once", |audit| Box::pin(large(audit))),
    Question::new("limits.many", "Many pages (5,000), and one that is asked for all the time", |audit| {
        Box::pin(many(audit))
    }),
    Question::new("limits.long-field", "A field of 7,000 bytes in a response and in a request", |audit| {
        Box::pin(long_field(audit))
    })
    .rule("RFC 9110, 5.4"),
    Question::new("limits.long-url", "Two URLs of 6,000 bytes that differ in the last one", |audit| {
        Box::pin(long_url(audit))
    })
    .rule("RFC 9111, 4"),
    Question::new("limits.many-fields", "A response and a request with 80 fields", |audit| {
        Box::pin(many_fields(audit))
    })
    .rule("RFC 9110, 5.1"),
    Question::new(
        "limits.connections",
        "Clients that send half a request on 200 connections, and 20 users",
        |audit| Box::pin(connections(audit)),
    ),
    Question::new("limits.memory", "The same 500 pages of 64 KiB in three rounds", |audit| {
        Box::pin(memory(audit))
    })
    .needs(Needs::Server),
];

async fn large(audit: &Audit<'_>) -> Answer {
    let case = audit
        .case("limits-large", |request| Page::of(request).bytes(LARGE_BYTES).cache_control("max-age=60"));
    let path = case.path("page");
    let herd = audit.users.herd(&path, LARGE_USERS, LARGE_PATIENCE).await;
    let loads = case.loads();
    let later = audit.users.ask(&path).patience(LARGE_PATIENCE).send().await;
    let is_stored = case.loads() == loads;
    let all: Vec<_> = herd.iter().chain([&later]).collect();
    let wrong = all.iter().filter(|request| request.is_ok() && request.page().is_err()).count();
    let failed = all.iter().find(|request| !request.is_ok());
    let (mark, text) = match failed {
        _ if wrong > 0 => {
            (Mark::Wrong, format!("{wrong} of {} users had a broken page with status 200.", all.len()))
        }
        Some(failed) => (Mark::Weak, format!("A user had no page: {}.", failed.outcome())),
        None if !is_stored => (
            Mark::Weak,
            format!("{loads} loads, and another one for the next user: the page was not stored."),
        ),
        None if loads > 1 => (Mark::Good, format!("{loads} loads, and then the page was stored.")),
        None => (Mark::Best, "1 load, and then the page was stored.".to_owned()),
    };
    Answer::new(mark, text).with("loads", loads).with("is_stored", is_stored)
}

async fn many(audit: &Audit<'_>) -> Answer {
    let case = audit
        .case("limits-many", |request| Page::of(request).bytes(SMALL_BYTES).cache_control("max-age=300"));
    let hot = case.path("hot");
    let paths: Vec<_> = (0..PAGES).map(|page| case.path(&format!("page-{page}"))).collect();
    let mut failed = 0;
    for part in paths.chunks(PAGES_AT_ONCE - 1) {
        failed += Failures::of(&ask_all(audit, part.iter().chain([&hot])).await).failed;
    }
    let loads = case.loads();
    let hot_loads = case.seen().iter().filter(|request| request.path() == hot).count();
    for part in paths[PAGES - LAST_PAGES..].chunks(PAGES_AT_ONCE) {
        failed += Failures::of(&ask_all(audit, part).await).failed;
    }
    let kept = LAST_PAGES.saturating_sub(case.loads() - loads);
    let mark = match (hot_loads, kept) {
        _ if failed > 0 => Mark::Weak,
        (1, LAST_PAGES) => Mark::Best,
        (1, kept) if kept >= LAST_PAGES / 2 => Mark::Good,
        _ => Mark::Weak,
    };
    let text = match failed {
        0 => format!(
            "The page that is asked for all the time was loaded {}; {kept} of the last {LAST_PAGES} pages were still stored.",
            times(hot_loads)
        ),
        failed => format!("{failed} of {} requests failed.", PAGES + LAST_PAGES),
    };
    Answer::new(mark, text).with("hot_loads", hot_loads).with("kept", kept).with("failed", failed)
}

async fn ask_all<'p>(audit: &Audit<'_>, paths: impl IntoIterator<Item = &'p String>) -> Vec<UserRequest> {
    join_all(paths.into_iter().map(|path| audit.users.get(path))).await
}

fn times(times: usize) -> String {
    if times == 1 { "once".to_owned() } else { format!("{times} times") }
}

async fn long_field(audit: &Audit<'_>) -> Answer {
    let case = audit.case("limits-long-field", |request| {
        let page = Page::of(request).cache_control("no-store");
        if request.path().ends_with("response") {
            page.field("x-long", &"r".repeat(FIELD_BYTES))
        } else {
            page
        }
    });
    let response = audit.users.get(&case.path("response")).await;
    let got = response.field("x-long").map_or(0, str::len);
    let value = "q".repeat(FIELD_BYTES);
    let request = audit.users.ask(&case.path("request")).field("x-long", &value).send().await;
    let arrived = case
        .seen()
        .iter()
        .find(|request| request.path().ends_with("request"))
        .map(|request| request.field("x-long").map_or(0, str::len));
    let cut = [("response", response.is_ok().then_some(got)), ("request", arrived)];
    passed_or_failed(cut, FIELD_BYTES, "bytes", [&response, &request])
}

async fn many_fields(audit: &Audit<'_>) -> Answer {
    let case = audit.case("limits-many-fields", |request| {
        let page = Page::of(request).cache_control("no-store");
        let fields = if request.path().ends_with("response") { FIELDS } else { 0 };
        (0..fields).fold(page, |page, field| page.field(format!("x-many-{field}"), "1"))
    });
    let response = audit.users.get(&case.path("response")).await;
    let got = response.result.as_ref().map_or(0, |response| many_in(response.headers()));
    let path = case.path("request");
    let request = (0..FIELDS).fold(audit.users.ask(&path), |ask, _| ask.field("x-many", "1")).send().await;
    let seen = case.seen();
    let arrived = seen.iter().find(|request| request.path().ends_with("request"));
    let arrived = arrived.map(|request| many_in(&request.headers));
    let passed = [("response", response.is_ok().then_some(got)), ("request", arrived)];
    passed_or_failed(passed, FIELDS, "fields", [&response, &request])
}

/// The values of the fields `x-many`. Those of one name may be joined in one line.
fn many_in(headers: &HeaderMap) -> usize {
    let many = headers.iter().filter(|(name, _)| name.as_str().starts_with("x-many"));
    many.map(|(_, value)| value.as_bytes().split(|byte| *byte == b',').count()).sum()
}

/// By direction, the number that arrived. `None`: nothing arrived, and the user has an error.
fn passed_or_failed(
    arrived: [(&'static str, Option<usize>); 2],
    all: usize,
    unit: &str,
    users: [&UserRequest; 2],
) -> Answer {
    let mut parts = Vec::new();
    let mut mark = Mark::Best;
    for ((direction, arrived), user) in arrived.into_iter().zip(users) {
        match arrived {
            Some(arrived) if arrived < all => {
                mark = Mark::Wrong;
                parts.push(format!("{arrived} of {all} {unit} of the {direction} were passed on"));
            }
            Some(_) if user.is_ok() => {}
            _ => {
                mark = mark.max(Mark::Weak);
                parts.push(format!("{direction}: {}", user.outcome()));
            }
        }
    }
    let text =
        if parts.is_empty() { "Both were passed on.".to_owned() } else { format!("{}.", parts.join("; ")) };
    let count = |arrived: Option<usize>| arrived.unwrap_or(0);
    Answer::new(mark, text).with("response", count(arrived[0].1)).with("request", count(arrived[1].1))
}

async fn long_url(audit: &Audit<'_>) -> Answer {
    let case = audit.case("limits-long-url", |request| Page::of(request).cache_control("max-age=60"));
    let mut requests = Vec::new();
    for last in ["a", "b"] {
        let path = case.path(&format!("page?q={}", "u".repeat(URL_BYTES)));
        requests.push(audit.users.get(&format!("{}{last}", &path[..URL_BYTES - 1])).await);
    }
    let mut wrong = 0;
    for request in requests.iter().filter(|request| request.is_ok()) {
        if request.page().is_ok_and(|page| page.path != request.path) {
            audit.users.found(Violation::WrongBody, request, "RFC 9111, 4");
            wrong += 1;
        }
    }
    let (mark, text) = match requests[0].status() {
        _ if wrong > 0 => (Mark::Wrong, format!("{wrong} of 2 users had the page of another URL.")),
        Some(200) if requests[1].is_ok() => (Mark::Best, "Each user had the page of its URL.".to_owned()),
        Some(414) => (Mark::Good, "The URL was refused with status 414.".to_owned()),
        _ => (Mark::Weak, format!("The users had {} and {}.", requests[0].outcome(), requests[1].outcome())),
    };
    Answer::new(mark, text).with("wrong", wrong)
}

async fn connections(audit: &Audit<'_>) -> Answer {
    let case = audit.case("limits-connections", |request| Page::of(request).cache_control("max-age=60"));
    let path = case.path("page");
    audit.users.get(&path).await;
    let head = format!("GET {} HTTP/1.1\r\nX-Slow: ", case.path("idle"));
    // The first bytes of a handshake.
    let start: &[u8] = if audit.users.origin().starts_with("https:") { &[22, 3, 1] } else { head.as_bytes() };
    let idle = join_all((0..IDLE_CONNECTIONS).map(async |_| {
        let mut connection = audit.users.tcp().await.ok()?;
        connection.write_all(start).await.ok()?;
        Some(connection)
    }));
    let idle: Vec<_> = idle.await.into_iter().flatten().collect();
    let other = async {
        audit.users.wait(IDLE_TIME / 10).await;
        let paths: Vec<_> = (0..IDLE_USERS).map(|user| case.path(&format!("page-{user}"))).collect();
        let ask = |path: &String| audit.users.ask(path).patience(IDLE_TIME).send();
        join(join_all(paths.iter().map(ask)), ask(&path)).await
    };
    let (new, stored) = other.await;
    let failed = Failures::of(new.iter().chain([&stored])).failed;
    let count = idle.len();
    drop(idle);
    let all = IDLE_USERS + 1;
    let (mark, text) = match failed {
        _ if count < IDLE_CONNECTIONS => (
            Mark::Weak,
            format!(
                "The cache took {count} of {IDLE_CONNECTIONS} connections; {failed} of {all} requests failed."
            ),
        ),
        0 => (Mark::Best, format!("{all} of {all} requests of other users were answered.")),
        failed => {
            (Mark::Weak, format!("{failed} of {all} requests of other users had no answer within 3 s."))
        }
    };
    Answer::new(mark, text).with("connections", count).with("failed", failed)
}

async fn memory(audit: &Audit<'_>) -> Answer {
    let case = audit.case("limits-memory", |request| {
        Page::of(request).bytes(ROUND_PAGE_BYTES).cache_control("max-age=300")
    });
    let paths: Vec<_> = (0..ROUND_PAGES).map(|page| case.path(&format!("page-{page}"))).collect();
    let mut resident = Vec::new();
    let mut failed = 0;
    for _ in 0..3 {
        for part in paths.chunks(ROUND_AT_ONCE) {
            failed += Failures::of(&ask_all(audit, part).await).failed;
        }
        let Some(bytes) = audit.control.resident_bytes() else {
            return Answer::new(Mark::Unknown, "The memory of the server cannot be read.");
        };
        resident.push(bytes);
    }
    let grown = |round: usize| resident[round].saturating_sub(resident[round - 1]);
    let requested = (ROUND_PAGES * ROUND_PAGE_BYTES) as u64;
    let mark = match grown(2) {
        _ if failed > 0 => Mark::Weak,
        grown if grown > requested / 4 => Mark::Weak,
        _ => Mark::Best,
    };
    let mut text = format!(
        "{} after the first round; the second added {}, the third {}.",
        format_size(resident[0] as f64),
        format_size(grown(1) as f64),
        format_size(grown(2) as f64)
    );
    if failed > 0 {
        let _ = write!(text, " {failed} of {} requests failed.", 3 * ROUND_PAGES);
    }
    Answer::new(mark, text)
        .with("resident_bytes", resident)
        .with("loads", case.loads())
        .with("failed", failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_one_line_count_each() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-many", "1, 1"), ("x-many", "1"), ("x-many-7", "1"), ("other", "1")] {
            headers.append(name, value.parse().unwrap());
        }
        assert_eq!(many_in(&headers), 4);
    }
}
