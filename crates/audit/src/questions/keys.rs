//! The parts of a request that choose the stored page.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use http::Method;

use super::{SHORT_LOAD, tally::Tally};
use crate::{
    answer::{Answer, Mark},
    case::{Case, OriginRequest},
    page::Page,
    questions::Question,
    setup::Audit,
    truth::Violation,
    users::UserRequest,
};

const TARGET: &str = "RFC 9111, 4";
/// In the path, the place of a folder of the case.
const FOLDER: &str = "{folder}";
const MIXED: &str = "requests got the page of another URL";

pub(super) const QUESTIONS: &[Question] = &[
    Question::new("keys.query", "URLs that differ in the query", |audit| {
        Box::pin(paths(audit, "query", &QUERIES, &[]))
    })
    .rule(TARGET),
    Question::new("keys.query-order", "`?a=1&b=2` and `?b=2&a=1`", |audit| Box::pin(query_order(audit))),
    Question::new("keys.case", "Paths that differ in upper and lower case", |audit| {
        Box::pin(paths(audit, "case", &CASES, &[]))
    })
    .rule(TARGET),
    Question::new("keys.slashes", "Paths that differ in slashes, `%2F` and dots", |audit| {
        Box::pin(paths(audit, "slashes", &SLASHES, &DOTS))
    })
    .rule(TARGET),
    Question::new("keys.long", "URLs that differ after 1,000, 4,000 and 8,000 bytes", |audit| {
        Box::pin(long(audit))
    })
    .rule(TARGET),
    Question::new("keys.host", "The same path on two hosts", |audit| Box::pin(host(audit))).rule(TARGET),
    Question::new(
        "keys.unkeyed",
        "Fields that a client chooses and that change pages, such as `X-Forwarded-Host`",
        |audit| Box::pin(unkeyed(audit)),
    ),
    Question::new("keys.methods", "POST, PUT and OPTIONS for the URL of a page", |audit| {
        Box::pin(methods(audit))
    })
    .rule(TARGET),
];

const QUERIES: [&str; 5] = ["page", "page?a=1", "page?a=2", "page?A=1", "page?a=1&b=2"];
const CASES: [&str; 4] = ["page/one", "page/One", "Page/one", "page/ONE"];
const SLASHES: [&str; 6] = ["a/page", "a/page/", "a//page", "/a/page", "a%2Fpage", "a/page;b"];
/// The same URL as the first of `SLASHES` after normalisation, which any component may do (RFC 9110, 4.2.3).
const DOTS: [&str; 3] = ["a/./page", "a/b/../page", "a/p%61ge"];

/// Asks for paths that the origin tells apart, and for some that HTTP lets a cache take for the first of them.
async fn paths(audit: &Audit<'_>, name: &str, different: &[&str], equivalent: &[&str]) -> Answer {
    let case = audit.case(name, |request| Page::of(request).cache_control("max-age=60"));
    let spellings: Vec<&str> = different.iter().chain(equivalent).copied().collect();
    // The path that the origin gets for each, when no other page is stored.
    let mut arriving = Vec::new();
    for (place, spelling) in spellings.iter().enumerate() {
        let folder = format!("control-{place}");
        let before = case.loads();
        audit.users.get(&path_in(&case, &folder, spelling)).await;
        let path = case.seen().get(before).map(|load| load.path().replace(&folder, FOLDER));
        arriving.push(path);
    }
    let (mut tally, mut mixed, mut joined) = (Tally::default(), Vec::new(), Vec::new());
    // Each is the first to be stored in one folder.
    for first in 0..spellings.len() {
        let folder = format!("folder-{first}");
        let order = (first..spellings.len()).chain(0..first);
        for place in order {
            let request = audit.users.get(&path_in(&case, &folder, spellings[place])).await;
            let expected = arriving[place].as_ref().map(|path| path.replace(FOLDER, &folder));
            let is_other =
                expected.is_some_and(|expected| request.page().is_ok_and(|page| page.path != expected));
            let is_equivalent = is_other && is_equivalent(&request, &folder, different, equivalent);
            let fault = (is_other && !is_equivalent).then_some((Violation::WrongBody, TARGET));
            tally.add(audit, &request, fault);
            if is_other {
                let list = if is_equivalent { &mut joined } else { &mut mixed };
                list.push(spellings[place]);
            }
        }
    }
    let (mark, text) = if joined.is_empty() {
        (Mark::Best, format!("{} spellings, each with its own page.", spellings.len()))
    } else {
        let text = format!(
            "The origin tells these apart, and the cache does not: {}. HTTP allows it for spellings of one URL.",
            shown(joined)
        );
        (Mark::Weak, text)
    };
    let wrong = format!("{MIXED} ({}).", shown(mixed));
    tally.answer(&wrong, mark, &text).with("loads", case.loads())
}

fn path_in(case: &Case, folder: &str, spelling: &str) -> String {
    case.path(&format!("{folder}/{spelling}"))
}

/// True if the URLs of the request and of the page in its answer are the same after normalisation.
fn is_equivalent(request: &UserRequest, folder: &str, different: &[&str], equivalent: &[&str]) -> bool {
    let is_one = |path: &str| {
        let spelling = path.split_once(&format!("/{folder}/")).map_or(path, |(_, spelling)| spelling);
        different.first() == Some(&spelling) || equivalent.contains(&spelling)
    };
    is_one(&request.path) && request.page().is_ok_and(|page| is_one(&page.path))
}

/// Each once, in quotes.
fn shown(mut spellings: Vec<&str>) -> String {
    spellings.sort_unstable();
    spellings.dedup();
    spellings.iter().map(|spelling| format!("`{spelling}`")).collect::<Vec<_>>().join(", ")
}

async fn query_order(audit: &Audit<'_>) -> Answer {
    const QUERIES: [&str; 2] = ["b=2&a=1", "a=1&b=2"];
    let case = audit.case("query-order", |request| Page::of(request).cache_control("max-age=60"));
    let mut tally = Tally::default();
    for query in QUERIES {
        let request = audit.users.get(&case.path(&format!("page?{query}"))).await;
        tally.add(audit, &request, None);
    }
    let seen = case.seen();
    let is_unchanged = seen.iter().zip(QUERIES).all(|(load, query)| load.path().ends_with(query));
    let (mark, text) = match (is_unchanged, seen.len()) {
        (true, 1) => {
            (Mark::Weak, "The cache treats the two as one page, and the origin can tell them apart.")
        }
        (true, _) => (Mark::Best, "The two are two pages, as the URLs say."),
        (false, _) => (Mark::Best, "The cache changes the query before it reaches the origin."),
    };
    tally.answer(&format!("{MIXED}."), mark, text).with("loads", seen.len())
}

async fn long(audit: &Audit<'_>) -> Answer {
    let case = audit.case("long", |request| Page::of(request).cache_control("max-age=60").bytes(20_000));
    let (mut tally, mut refused) = (Tally::default(), Vec::new());
    for (length, end) in
        [1_000, 4_000, 8_000].into_iter().flat_map(|length| ["one", "two"].map(|end| (length, end)))
    {
        for start in ["path-", "query?a="] {
            let path = case.path(&format!("{start}{}{end}", "x".repeat(length)));
            let request = audit.users.get(&path).await;
            let is_other = request.page().is_ok_and(|page| !page.path.ends_with(end));
            if request.is_ok() {
                tally.add(audit, &request, is_other.then_some((Violation::WrongBody, TARGET)));
            } else {
                refused.push(format!("{length} bytes: {}", request.outcome()));
            }
        }
    }
    let (mark, text) = match refused.first() {
        None => (Mark::Best, "Each URL has its own page.".to_owned()),
        Some(first) => (Mark::Good, format!("Each URL has its own page, or an error ({first}).")),
    };
    tally.answer(&format!("{MIXED}."), mark, &text).with("loads", case.loads()).with("refused", refused.len())
}

async fn host(audit: &Audit<'_>) -> Answer {
    const HOSTS: [&str; 2] = ["one.audit.example", "two.audit.example"];
    let case = audit.case("host", |request| {
        Page::of(request).cache_control("max-age=60").variant(request.field("host").unwrap_or_default())
    });
    let ask = |page: &str, host: &str| audit.users.ask(&case.path(page)).field("host", host).send();
    let mut requests = Vec::new();
    for host in HOSTS {
        requests.push(ask(&format!("control-{host}"), host).await);
    }
    let arriving: Vec<_> =
        case.seen().iter().filter_map(|load| load.field("host").map(str::to_owned)).collect();
    let is_forwarded = arriving == HOSTS;
    for _ in 0..2 {
        requests.extend(join_all(HOSTS.map(|host| ask("page", host))).await);
    }
    for host in HOSTS {
        requests.push(ask("another", host).await);
    }
    let mut tally = Tally::default();
    let is_host = |request: &UserRequest, host: &str| request.headers["host"] == host;
    for request in &requests {
        let is_other = request.page().is_ok_and(|page| !is_host(request, &page.variant));
        tally.add(audit, request, (is_forwarded && is_other).then_some((Violation::WrongBody, TARGET)));
    }
    let (mark, text) = match (is_forwarded, requests.iter().all(UserRequest::is_ok)) {
        (true, _) => (Mark::Best, "Each host has its own page.".to_owned()),
        (false, true) => (
            Mark::Good,
            "The cache does not forward `Host`: the origin cannot tell two hosts apart, and one page is right.".to_owned(),
        ),
        (false, false) => {
            let refused = requests.iter().find(|request| !request.is_ok()).map(UserRequest::outcome);
            let text = format!("The cache refuses hosts that it does not know: {}.", refused.unwrap_or_default());
            return Answer::new(Mark::Best, text);
        }
    };
    tally.answer("requests got the page of another host.", mark, &text).with("loads", case.loads())
}

/// Fields that frameworks read to build links, or to choose a page.
const REFLECTED: [(&str, &str); 8] = [
    ("x-forwarded-host", "audit.example"),
    ("x-forwarded-proto", "audit"),
    ("x-forwarded-port", "4711"),
    ("x-host", "audit.example"),
    ("x-original-url", "/audit"),
    ("x-rewrite-url", "/audit"),
    ("x-http-method-override", "AUDIT"),
    ("forwarded", "host=audit.example"),
];

async fn unkeyed(audit: &Audit<'_>) -> Answer {
    let case = audit.case("unkeyed", |request| {
        let name = request.path().rsplit('/').next().unwrap_or_default();
        Page::of(request).cache_control("max-age=60").variant(request.field(name).unwrap_or_default())
    });
    let mut tally = Tally::default();
    let (mut poisoned, mut forwarded) = (Vec::new(), 0);
    for (name, value) in REFLECTED {
        let first = audit.users.ask(&case.path(name)).field(name, value).send().await;
        let second = audit.users.get(&case.path(name)).await;
        let has_value = |request: &UserRequest| request.page().is_ok_and(|page| page.variant == value);
        forwarded += usize::from(has_value(&first));
        if has_value(&first) && has_value(&second) {
            poisoned.push(format!("`{name}`"));
        }
        tally.add(audit, &first, None);
        tally.add(audit, &second, None);
    }
    let count = REFLECTED.len();
    let (mark, text) = if poisoned.is_empty() {
        let text = format!(
            "{forwarded} of {count} such fields reach the origin, and no page that was loaded with one was served \
             without it."
        );
        (Mark::Best, text)
    } else {
        let text = format!(
            "{} of {count} such fields reach the origin and are not in the key: a page that depends on one is served \
             to all users ({}).",
            poisoned.len(),
            poisoned.join(", ")
        );
        (Mark::Weak, text)
    };
    tally
        .answer(&format!("{MIXED}."), mark, &text)
        .with("unkeyed", poisoned.len())
        .with("forwarded", forwarded)
}

async fn methods(audit: &Audit<'_>) -> Answer {
    let case = audit.case("methods", |request: &OriginRequest| {
        let latency = if request.path().ends_with("at-once") { SHORT_LOAD } else { Duration::ZERO };
        Page::of(request).cache_control("max-age=60").variant(request.method.as_str()).after(latency)
    });
    let (mut requests, mut refused) = (Vec::new(), Vec::new());
    for method in [Method::POST, Method::PUT, Method::OPTIONS] {
        let ask = |asked: &Method, page: &str| {
            audit.users.ask(&case.path(&format!("{method}-{page}"))).method(asked.clone()).send()
        };
        requests.push(ask(&method, "before").await);
        requests.push(ask(&Method::GET, "before").await);
        requests.push(ask(&Method::GET, "after").await);
        requests.push(ask(&method, "after").await);
        let herd = (0..20).map(|user| ask(if user % 2 == 0 { &method } else { &Method::GET }, "at-once"));
        requests.extend(join_all(herd).await);
        if requests.iter().filter(|request| request.method == method).all(|request| !request.is_ok()) {
            refused.push(method.to_string());
        }
    }
    let (mut tally, mut seen) = (Tally::default(), BTreeSet::new());
    for request in requests.iter().filter(|request| !refused.contains(&request.method.to_string())) {
        // Each of the other methods has to reach the origin.
        let is_other = request.page().is_ok_and(|page| {
            let is_repeated = request.method != Method::GET && !seen.insert(page.load);
            page.variant != request.method.as_str() || is_repeated
        });
        tally.add(audit, request, is_other.then_some((Violation::WrongBody, TARGET)));
    }
    let text = match refused.len() {
        0 => "Each response was for the method of its request.".to_owned(),
        _ => format!("Each response was for the method of its request; refused: {}.", refused.join(", ")),
    };
    tally.answer("responses were for another request: with another method, or a stored one to POST, PUT or OPTIONS.", Mark::Best, &text).with("loads", case.loads())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_shown_once() {
        assert_eq!(shown(vec!["b", "a", "b"]), "`a`, `b`");
    }
}
