//! HEAD, ranges and `If-Range`.

use std::{ops::Range, time::Duration};

use futures_util::future::{join, join_all};
use http::{
    Method,
    header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG},
};

use super::fault_of_whole;
use crate::{
    answer::{Answer, Mark},
    case::{Case, OriginRequest},
    page::Page,
    questions::{EXPIRY, SHORT_LOAD, tally::Tally},
    setup::Audit,
    stamp::Stamp,
    truth::Violation,
    users::UserRequest,
};

const BYTES: usize = 4_096;
/// Values of `Range`, and the bytes that they mean in a page of `BYTES`.
const RANGES: [(&str, Range<usize>); 3] =
    [("bytes=100-299", 100..300), ("bytes=-200", 3_896..4_096), ("bytes=4000-", 4_000..4_096)];
const PART: &str = "RFC 9110, 15.3.7";
const CONDITION: &str = "RFC 9110, 13.1.5";
const SAME_LENGTH: &str = "RFC 9110, 8.6";
/// Of a page that changes, before and after.
const TAGS: [&str; 2] = ["\"first\"", "\"second\""];

pub(super) async fn head(audit: &Audit<'_>) -> Answer {
    let case = audit.case("head", |request| {
        let latency = if request.path().ends_with("at-once") { SHORT_LOAD } else { Duration::ZERO };
        Page::of(request).cache_control("max-age=60").etag("\"a\"").bytes(BYTES).after(latency)
    });
    let head = |path: &str| audit.users.ask(path).method(Method::HEAD).send();
    let mut requests = Vec::new();
    let cold = case.path("cold");
    requests.push(head(&cold).await);
    for _ in 0..2 {
        requests.push(audit.users.get(&cold).await);
    }
    let stored = case.path("stored");
    let page = audit.users.get(&stored).await;
    let before = case.loads();
    let head_of_stored = head(&stored).await;
    let again = case.loads() - before;
    let different = [CONTENT_TYPE, ETAG]
        .into_iter()
        .filter(|name| page.field(name) != head_of_stored.field(name))
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>();
    let failure = (!head_of_stored.is_ok()).then(|| head_of_stored.outcome());
    requests.extend([page, head_of_stored]);
    let at_once = case.path("at-once");
    let heads = join_all((0..20).map(|_| head(&at_once)));
    let (heads, pages) = join(heads, join_all((0..20).map(|_| audit.users.get(&at_once)))).await;
    requests.extend(heads.into_iter().chain(pages));

    let mut tally = Tally::default();
    for request in &requests {
        tally.add(audit, request, fault_of_head_or_page(request));
    }
    let (mark, text) = match (failure, different.is_empty(), again) {
        (Some(outcome), ..) => (Mark::Weak, format!("HEAD for a stored page failed: {outcome}.")),
        (None, true, 0) => {
            (Mark::Best, "HEAD for a stored page is answered from the store, with the fields of GET.".into())
        }
        (None, true, _) => (Mark::Good, "Each HEAD request is a load.".to_owned()),
        (None, false, _) => {
            (Mark::Weak, format!("HEAD for a stored page differs from GET in {}.", different.join(" and ")))
        }
    };
    tally
        .answer("responses to HEAD and GET were false: another length, or not the whole page.", mark, &text)
        .with("loads", case.loads())
}

fn fault_of_head_or_page(request: &UserRequest) -> Option<(Violation, &'static str)> {
    if request.method == Method::GET {
        return fault_of_whole(request);
    }
    let is_length_false = request.field(CONTENT_LENGTH).is_some_and(|bytes| bytes != BYTES.to_string());
    (request.is_ok() && is_length_false).then_some((Violation::WrongBody, SAME_LENGTH))
}

pub(super) async fn range(audit: &Audit<'_>) -> Answer {
    let case = audit.case("range", |request| {
        let latency = if request.path().ends_with("at-once") { SHORT_LOAD } else { Duration::ZERO };
        Page::of(request).cache_control("max-age=60").bytes(BYTES).ranges().after(latency)
    });
    let mut requests = Vec::new();
    let stored = case.path("stored");
    requests.push((audit.users.get(&stored).await, None));
    let before = case.loads();
    for (value, range) in RANGES {
        requests.push((part(audit, &stored, value, None).await, Some(range)));
    }
    let again = case.loads() - before;
    let parts = requests.iter().filter(|(request, _)| request.status() == Some(206)).count();
    for (name, (value, range)) in ["cold-0", "cold-1", "cold-2"].into_iter().zip(RANGES) {
        let cold = case.path(name);
        requests.push((part(audit, &cold, value, None).await, Some(range)));
        requests.push((audit.users.get(&cold).await, None));
        let [(value, range), ..] = RANGES;
        requests.push((part(audit, &cold, value, None).await, Some(range)));
    }
    let at_once = case.path("at-once");
    let herd = (0..40).map(|user| {
        let at_once = &at_once;
        let asked = RANGES.get(user % (RANGES.len() + 1)).cloned();
        async move {
            match asked {
                Some((value, range)) => (part(audit, at_once, value, None).await, Some(range)),
                None => (audit.users.get(at_once).await, None),
            }
        }
    });
    requests.extend(join_all(herd).await);

    let mut tally = Tally::default();
    for (request, range) in &requests {
        tally.add(audit, request, fault_of_part(&case, request, range.clone()));
    }
    let count = RANGES.len();
    let (mark, text) = match (again, parts) {
        (0, parts) if parts == count => {
            (Mark::Best, "Ranges of a stored page are answered from the store.".to_owned())
        }
        (0, _) => (Mark::Good, "A stored page is sent as a whole for a range of it.".to_owned()),
        (again, _) => (Mark::Weak, format!("{again} of {count} ranges of a stored page were loads.")),
    };
    tally
        .answer("responses had other bytes than `Range` or `Content-Range` says.", mark, &text)
        .with("loads", case.loads())
        .with("parts", parts)
}

pub(super) async fn if_range(audit: &Audit<'_>) -> Answer {
    let case = audit.case("if-range", |request| {
        let (cache_control, latency) = match (request.nth, request.path().ends_with("joined")) {
            (0, false) => ("max-age=1", Duration::ZERO),
            (_, false) => ("max-age=60", SHORT_LOAD),
            (_, true) => ("max-age=60", Duration::ZERO),
        };
        let page = Page::of(request).cache_control(cache_control).bytes(BYTES).ranges();
        page.etag(tag(request.nth)).after(latency)
    });
    let changed = case.path("changed");
    let mut requests = vec![(audit.users.get(&changed).await, None)];
    // Two parts of a page that changes between them, and the whole page.
    let joined = case.path("joined");
    for (value, range) in [("bytes=0-1999", 0..2_000), ("bytes=2000-", 2_000..BYTES)] {
        requests.push((part(audit, &joined, value, None).await, Some(range)));
    }
    requests.push((audit.users.get(&joined).await, None));
    audit.users.wait(EXPIRY).await;
    let [(value, range), ..] = RANGES;
    let ask = |tag| part(audit, &changed, value, Some(tag));
    let before = requests.len();
    let herd = join_all((0..10).map(|_| ask(TAGS[0]))).await;
    requests.extend(herd.into_iter().map(|request| (request, Some(range.clone()))));
    // A cache that does not keep parts has the new page from here on.
    requests.push((audit.users.get(&changed).await, None));
    for tag in [TAGS[0], TAGS[1], "\"other\""] {
        requests.push((ask(tag).await, Some(range.clone())));
    }
    let parts = requests[before..].iter().filter(|(request, _)| request.status() == Some(206)).count();

    let mut tally = Tally::default();
    for (request, range) in &requests {
        let fault = fault_of_part(&case, request, range.clone()).or_else(|| {
            is_of_another_tag(&case, request, range.as_ref()?).then_some((Violation::WrongBody, CONDITION))
        });
        tally.add(audit, request, fault);
    }
    tally
        .answer(
            "responses were a part of another page than that of the tag, or a mix of two.",
            Mark::Best,
            "With an old tag each response was the whole page or a part of the old one.",
        )
        .with("loads", case.loads())
        .with("parts", parts)
}

/// The tag of a path's load by its number.
fn tag(nth: usize) -> &'static str {
    if nth == 0 { TAGS[0] } else { TAGS[1] }
}

/// True for a part of a page whose tag is not the one in `If-Range`.
fn is_of_another_tag(case: &Case, request: &UserRequest, range: &Range<usize>) -> bool {
    let asked = request.headers.get("if-range");
    let is_part = request.status() == Some(206);
    let load = asked.filter(|_| is_part).and_then(|_| load_of_part(&case.seen(), request.body(), range));
    load.is_some_and(|load| asked.is_some_and(|asked| asked != tag(load.nth)))
}

async fn part(audit: &Audit<'_>, path: &str, range: &str, if_range: Option<&str>) -> UserRequest {
    let ask = audit.users.ask(path).field("range", range);
    if_range.into_iter().fold(ask, |ask, tag| ask.field("if-range", tag)).send().await
}

/// The fault of an answer to a request for a range; `None`: for the whole page.
fn fault_of_part(
    case: &Case,
    request: &UserRequest,
    range: Option<Range<usize>>,
) -> Option<(Violation, &'static str)> {
    let Some(range) = range.filter(|_| request.status() == Some(206)) else {
        return fault_of_whole(request);
    };
    let content_range = format!("bytes {}-{}/{BYTES}", range.start, range.end - 1);
    let is_right = request.field(CONTENT_RANGE) == Some(&content_range)
        && load_of_part(&case.seen(), request.body(), &range).is_some();
    (!is_right).then_some((Violation::WrongBody, PART))
}

/// The load whose page has these bytes at this place.
fn load_of_part(seen: &[OriginRequest], part: &[u8], range: &Range<usize>) -> Option<OriginRequest> {
    let is_it = |load: &&OriginRequest| {
        let stamp =
            Stamp { path: load.path().to_owned(), load: load.number, bytes: BYTES, ..Stamp::default() };
        stamp.body().get(range.clone()) == Some(part)
    };
    seen.iter().find(is_it).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_belongs_to_one_load() {
        let first = OriginRequest::of("/case/page");
        let mut second = first.clone();
        second.number = 1;
        let seen = [first, second];
        for (value, range) in RANGES {
            for load in &seen {
                let mut asked = load.clone();
                asked.headers.insert("range", value.parse().unwrap());
                let part = Page::of(&asked).bytes(BYTES).ranges().response().body;
                assert_eq!(part.len(), range.len());
                assert_eq!(load_of_part(&seen, &part, &range).map(|load| load.number), Some(load.number));
                let mixed = [&part[..part.len() / 2], b"x", &part[part.len() / 2 + 1..]].concat();
                assert!(load_of_part(&seen, &mixed, &range).is_none());
            }
        }
    }
}
