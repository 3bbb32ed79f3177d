//! Loads whose framing is broken.

use std::time::SystemTime;

use bytes::Bytes;
use http::{Version, header::CONTENT_ENCODING};
use stockade_origin::{ResponseEnding, ScriptedResponse};
use stockade_record::clock::since_1970;

use crate::{
    answer::{Answer, Mark},
    case::{Case, OriginRequest},
    page::Page,
    questions::{failures::Failures, integrity::is_false},
    setup::Audit,
    truth::Violation,
    users::UserRequest,
};

const BYTES: usize = 40_000;
const OVER_LONG_ROUNDS: usize = 5;
/// In each round, after the page that is too long.
const REQUESTS_AFTER: usize = 4;

pub(super) async fn cut(audit: &Audit<'_>) -> Answer {
    first_ends(audit, "integrity-cut", ResponseEnding::Cut(BYTES / 2)).await
}

pub(super) async fn reset(audit: &Audit<'_>) -> Answer {
    first_ends(audit, "integrity-reset", ResponseEnding::Reset(BYTES / 2)).await
}

async fn first_ends(audit: &Audit<'_>, name: &str, ending: ResponseEnding) -> Answer {
    let case = audit.case(name, move |request| {
        let ending = if request.number == 0 { ending.clone() } else { ResponseEnding::Complete };
        Page::of(request).bytes(BYTES).cache_control("max-age=60").ending(ending)
    });
    two_users(audit, &case, "RFC 9111, 3.3").await
}

pub(super) async fn chunked_cut(audit: &Audit<'_>) -> Answer {
    let answer = first_chunked(audit, "integrity-chunked-cut", "").await;
    answer.unwrap_or_else(|| {
        Answer::new(
            Mark::Weak,
            "The cache asks the origin with HTTP/1.0: a body without Content-Length ends with its connection, so a part \
             looks like the whole.",
        )
    })
}

pub(super) async fn bad_chunk(audit: &Audit<'_>) -> Answer {
    let answer = first_chunked(audit, "integrity-bad-chunk", "zz\r\n").await;
    answer.unwrap_or_else(|| {
        Answer::new(Mark::Good, "The cache asks with HTTP/1.0, for which an origin sends no chunks.")
    })
}

/// The first load has a chunk with half of the page, then `rest`, and a close. `None`: HTTP/1.0 has no chunks.
async fn first_chunked(audit: &Audit<'_>, name: &str, rest: &'static str) -> Option<Answer> {
    let case = audit.case(name, move |request| {
        let page = Page::of(request).bytes(BYTES).cache_control("max-age=60").response();
        if request.number > 0 || request.version == Version::HTTP_10 {
            return page;
        }
        let half = page.body.slice(..BYTES / 2);
        let size = format!("{:x}\r\n", half.len());
        raw(page, "Transfer-Encoding: chunked\r\n", &[size.as_bytes(), &half, b"\r\n", rest.as_bytes()])
    });
    let answer = two_users(audit, &case, "RFC 9112, 8").await;
    let has_chunks = case.seen().first().is_none_or(|request| request.version != Version::HTTP_10);
    has_chunks.then_some(answer)
}

/// A user whose load is broken, and the next one.
async fn two_users(audit: &Audit<'_>, case: &Case, rule: &'static str) -> Answer {
    let path = case.path("page");
    let first = audit.users.get(&path).await;
    let next = audit.users.get(&path).await;
    if let Some(answer) = http2(case) {
        return answer;
    }
    let [is_first_false, is_next_false] = [&first, &next].map(|request| is_false(audit, request, rule));
    let (mark, text) = match (is_first_false, is_next_false) {
        (_, true) => {
            (Mark::Wrong, format!("The next user had a broken page from the store: {}.", fault(&next)))
        }
        (true, false) => {
            (Mark::Wrong, format!("The user had a broken page with status 200: {}.", fault(&first)))
        }
        _ if !next.is_ok() => (Mark::Weak, format!("The next user had no page, either: {}.", next.outcome())),
        _ if first.is_ok() => {
            (Mark::Best, "The load was repeated: both users had the whole page.".to_owned())
        }
        _ => (
            Mark::Best,
            format!("The user had an error ({}), and the next one the whole page.", first.outcome()),
        ),
    };
    Answer::new(mark, text).with("loads", case.loads())
}

pub(super) async fn over_long(audit: &Audit<'_>) -> Answer {
    let case = audit.case("integrity-over-long", |request| {
        let page = Page::of(request).cache_control("max-age=60").response();
        if !request.path().contains("/long-") {
            return page;
        }
        let other = other_page(request);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", other.len());
        let body = page.body.clone();
        raw(page, &length(body.len()), &[&body, head.as_bytes(), &other])
    });
    let (mut wrong, mut failed, mut long_failed) = (0, 0, 0);
    for round in 0..OVER_LONG_ROUNDS {
        let long = audit.users.get(&case.path(&format!("long-{round}"))).await;
        wrong += usize::from(is_false(audit, &long, "RFC 9112, 6.3"));
        long_failed += usize::from(!long.is_ok());
        for page in 0..REQUESTS_AFTER {
            let request = audit.users.get(&case.path(&format!("page-{round}-{page}"))).await;
            wrong += usize::from(is_false(audit, &request, "RFC 9112, 6.3"));
            failed += usize::from(!request.is_ok());
        }
    }
    if let Some(answer) = http2(&case) {
        return answer;
    }
    let after = OVER_LONG_ROUNDS * REQUESTS_AFTER;
    let (mark, text) = match (wrong, failed) {
        (1.., _) => (
            Mark::Wrong,
            format!("{wrong} of {} users had bytes that were not of their page.", OVER_LONG_ROUNDS + after),
        ),
        (0, 1..) => (Mark::Weak, format!("{failed} of {after} requests for other pages failed.")),
        (0, 0) => (Mark::Best, format!("{after} of {after} requests for other pages had their own.")),
    };
    Answer::new(mark, text).with("wrong", wrong).with("failed", failed).with("long_failed", long_failed)
}

/// The bytes after a page that is too long. A request for another path must not get them.
fn other_page(request: &OriginRequest) -> Bytes {
    Page::of(request).variant("rest").response().body
}

pub(super) async fn two_lengths(audit: &Audit<'_>) -> Answer {
    let case = audit.case("integrity-two-lengths", |request| {
        let page = Page::of(request).cache_control("max-age=60").response();
        if request.number > 0 {
            return page;
        }
        let body = page.body.clone();
        raw(page, &format!("{}{}", length(body.len() - 100), length(body.len())), &[&body])
    });
    let path = case.path("page");
    let first = audit.users.get(&path).await;
    let was_repeated = case.loads() > 1;
    let next = audit.users.get(&path).await;
    if let Some(answer) = http2(&case) {
        return answer;
    }
    // A user who got both lengths has a failure that is not a status.
    let has_both = first.result.is_err() && next.result.is_err() && case.loads() == 1;
    let was_taken = first.is_ok() && !was_repeated;
    let is_counted = is_false(audit, &first, "RFC 9112, 6.3");
    if (has_both || was_taken) && !is_counted {
        audit.users.found(Violation::WrongStatus, &first, "RFC 9112, 6.3");
    }
    let (mark, text) = match () {
        () if has_both => {
            (Mark::Wrong, format!("It was stored, and passed on with both: {}.", next.outcome()))
        }
        () if was_taken => {
            (Mark::Wrong, format!("It was passed on with status 200 and {} bytes.", first.body().len()))
        }
        () if !next.is_ok() => {
            (Mark::Weak, format!("The next user had no page, either: {}.", next.outcome()))
        }
        () => {
            (Mark::Best, format!("The user had an error ({}), and the next one the page.", first.outcome()))
        }
    };
    Answer::new(mark, text).with("loads", case.loads())
}

pub(super) async fn mislabelled(audit: &Audit<'_>) -> Answer {
    let case = audit.case("integrity-mislabelled", |request| {
        Page::of(request).cache_control("max-age=60").field(CONTENT_ENCODING, "gzip")
    });
    let path = case.path("page");
    let mut requests = Vec::new();
    for _ in 0..2 {
        requests.push(audit.users.ask(&path).field("accept-encoding", "gzip").send().await);
    }
    let wrong = requests.iter().filter(|request| is_false(audit, request, "RFC 9110, 8.4")).count();
    let passed = requests.iter().filter(|request| request.is_ok()).count() - wrong;
    let (mark, text) = match (wrong, passed) {
        (1.., _) => (Mark::Wrong, format!("{wrong} of 2 users had other bytes than the origin sent.")),
        (0, 2) => (Mark::Best, "The bytes were passed on as they are.".to_owned()),
        _ => (Mark::Good, Failures::of(&requests).sentence()),
    };
    Answer::new(mark, text).with("wrong", wrong).with("passed", passed)
}

pub(super) async fn interim(audit: &Audit<'_>) -> Answer {
    const INTERIM: [(&str, &str); 2] = [
        ("100", "HTTP/1.1 100 Continue\r\n\r\n"),
        ("103", "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"),
    ];
    let case = audit.case("integrity-interim", |request| {
        let page = Page::of(request).cache_control("max-age=60").response();
        let interim = INTERIM.iter().find(|(name, _)| request.path().ends_with(name));
        let Some((_, interim)) = interim.filter(|_| request.version != Version::HTTP_10) else { return page };
        let body = page.body.clone();
        let ending =
            ResponseEnding::Raw([interim.as_bytes(), &head(&length(body.len())), &body].concat().into());
        ScriptedResponse { ending, ..page }
    });
    let (mut wrong, mut failed) = (Vec::new(), Vec::new());
    for (name, _) in INTERIM {
        let path = case.path(name);
        for _ in 0..2 {
            let request = audit.users.get(&path).await;
            if is_false(audit, &request, "RFC 9110, 15.2") {
                wrong.push(name);
            } else if !request.is_ok() {
                failed.push(format!("{name}: {}", request.outcome()));
            }
        }
    }
    if let Some(answer) = http2(&case) {
        return answer;
    }
    if case.seen().iter().any(|request| request.version == Version::HTTP_10) {
        let text = "The cache asks with HTTP/1.0, for which an origin sends no interim responses.";
        return Answer::new(Mark::Good, text);
    }
    wrong.dedup();
    failed.dedup();
    let loads = case.loads();
    let (mark, text) = match () {
        () if !wrong.is_empty() => (Mark::Wrong, format!("{} took the place of the page.", wrong.join(", "))),
        () if !failed.is_empty() => (Mark::Weak, format!("Users had an error after {}.", failed.join(", "))),
        // A cache that takes the interim response for the final one passes the page on as its body.
        () if loads > INTERIM.len() => (
            Mark::Weak,
            format!(
                "The pages after 100 and 103 were not stored: {loads} loads for {} pages.",
                INTERIM.len()
            ),
        ),
        () => (Mark::Best, "Each user had the page after 100 and after 103.".to_owned()),
    };
    Answer::new(mark, text).with("wrong", wrong.len()).with("failed", failed.len()).with("loads", loads)
}

/// A response as bytes, with the fields of its framing, and a close.
fn raw(page: ScriptedResponse, framing: &str, parts: &[&[u8]]) -> ScriptedResponse {
    let bytes = [head(framing), parts.concat()].concat();
    ScriptedResponse { ending: ResponseEnding::Raw(bytes.into()), ..page }
}

fn head(framing: &str) -> Vec<u8> {
    let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since_1970());
    format!("HTTP/1.1 200 OK\r\nDate: {date}\r\nCache-Control: max-age=60\r\n{framing}\r\n").into_bytes()
}

fn length(bytes: usize) -> String {
    format!("Content-Length: {bytes}\r\n")
}

/// The fault of a response's body, in words.
fn fault(request: &UserRequest) -> String {
    request.page().err().map_or_else(|| "it is another page".to_owned(), |fault| fault.to_string())
}

/// These bytes cannot be sent over HTTP/2, which has another framing.
fn http2(case: &Case) -> Option<Answer> {
    let is_http2 = case.seen().iter().any(|request| request.version == Version::HTTP_2);
    is_http2.then(|| Answer::new(Mark::Unknown, "The cache asks with HTTP/2, which has another framing."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_response_has_its_framing_and_its_parts() {
        let page = raw(ScriptedResponse::ok("page"), &length(4), &[b"page", b"rest"]);
        let ResponseEnding::Raw(bytes) = page.ending else { panic!("{page:?}") };
        let text = std::str::from_utf8(&bytes).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nDate: "), "{text}");
        assert!(text.ends_with("Cache-Control: max-age=60\r\nContent-Length: 4\r\n\r\npagerest"), "{text}");
    }
}
