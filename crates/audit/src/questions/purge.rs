//! Purges and writes: may a user get the page from before?

use std::time::Duration;

use futures_util::future::{join, join_all};
use http::{
    Method, StatusCode,
    header::{CONTENT_LOCATION, LOCATION},
};
use stockade_model::units::{format_duration, milliseconds};

use super::{EXPIRY, failures::Failures, variants::by_language};
use crate::{
    answer::{Answer, Mark},
    case::Case,
    page::Page,
    questions::{Needs, Question},
    setup::Audit,
    truth::Violation,
    users::UserRequest,
};

const PURGED_LOAD: Duration = Duration::from_millis(1_500);
/// Between the requests after a purge.
const PAUSE: Duration = Duration::from_millis(20);
const REQUESTS_AFTER: usize = 50;
const BURST: usize = 100;
const LANGUAGES: [&str; 3] = ["de", "fr", "en"];
const WRITES: [Method; 3] = [Method::POST, Method::PUT, Method::DELETE];
/// A rule of purges, which no RFC has.
const PURGED: &str = "a purge that has been answered has removed the page";

pub(super) const QUESTIONS: &[Question] = &[
    Question::new("purge.removes", "A stored page that is purged", |audit| Box::pin(removes(audit)))
        .rule(PURGED)
        .needs(Needs::Purge),
    Question::new(
        "purge.during-load",
        "A page that is purged while it is loaded for the first time",
        |audit| Box::pin(during_load(audit)),
    )
    .rule(PURGED)
    .needs(Needs::Purge)
    .mostly_waits(),
    Question::new("purge.during-refresh", "An expired page that is purged while it is refreshed", |audit| {
        Box::pin(during_refresh(audit))
    })
    .rule(PURGED)
    .needs(Needs::Purge)
    .mostly_waits(),
    Question::new("purge.burst", "A burst of purges: 100 pages at once, while users ask for them", |audit| {
        Box::pin(burst(audit))
    })
    .rule(PURGED)
    .needs(Needs::Purge),
    Question::new("purge.variants", "A page in three languages that is purged", |audit| {
        Box::pin(variants(audit))
    })
    .rule(PURGED)
    .needs(Needs::Purge),
    Question::new("purge.post", "A stored page, and a POST, PUT or DELETE request to it", |audit| {
        Box::pin(post(audit))
    })
    .rule("RFC 9111, 4.4"),
    Question::new("purge.error-post", "A stored page, and a POST request to it that fails (500)", |audit| {
        Box::pin(error_post(audit))
    }),
    Question::new("purge.location", "Stored pages that the answer to a POST request names", |audit| {
        Box::pin(location(audit))
    }),
];

/// The answer of a cache to a purge.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Purged {
    Done,
    /// 202: it will be done.
    Accepted,
    NotStored,
    Refused(String),
}

async fn purge(audit: &Audit<'_>, path: &str) -> Purged {
    let Some(purge) = &audit.control.purge else {
        return Purged::Refused("nothing: no purge is known".to_owned());
    };
    let answer = purge.send(&audit.users, path).await;
    match answer.status() {
        Some(202) => Purged::Accepted,
        Some(200..300) => Purged::Done,
        Some(404) => Purged::NotStored,
        _ => Purged::Refused(answer.outcome()),
    }
}

impl Purged {
    /// A stored page could not be purged.
    fn failure(&self) -> Option<Answer> {
        let outcome = match self {
            Self::Done | Self::Accepted => return None,
            Self::NotStored => "status 404",
            Self::Refused(outcome) => outcome,
        };
        Some(Answer::new(Mark::Unknown, format!("The purge was answered with {outcome}.")))
    }

    /// The mark for requests after the purge, with those that got the old page. These are false if the cache had answered that the page
    /// was removed.
    fn mark<'a>(&self, audit: &Audit<'_>, old: impl IntoIterator<Item = &'a UserRequest>) -> Mark {
        let mut mark = Mark::Best;
        for request in old {
            mark = Mark::Weak;
            if *self == Self::Done {
                audit.users.found(Violation::AfterPurge, request, PURGED);
                mark = Mark::Wrong;
            }
        }
        mark
    }
}

async fn removes(audit: &Audit<'_>) -> Answer {
    let case = audit.case("purge-removes", |request| Page::of(request).cache_control("max-age=60"));
    let path = case.path("page");
    let Some(stored) = stored_load(audit, &path).await else { return not_stored() };
    let before = case.loads();
    let purged = purge(audit, &path).await;
    let answered = audit.users.now();
    if let Some(failure) = purged.failure() {
        return failure;
    }
    let mut after = Vec::new();
    for _ in 0..REQUESTS_AFTER {
        after.push(audit.users.get(&path).await);
        audit.users.wait(PAUSE).await;
    }
    let old: Vec<_> = after.iter().filter(|request| request.load() == Some(stored)).collect();
    let failures = Failures::of(&after);
    let loads = case.loads() - before;
    let last = old.last().map_or(Duration::ZERO, |request| request.sent - answered);
    let (mark, text) = match purged.mark(audit, old.iter().copied()) {
        Mark::Best if failures.some() => (Mark::Weak, format!("After the purge, {}", failures.sentence())),
        Mark::Best if loads > 1 => (
            Mark::Good,
            format!(
                "The page was removed at once, and then loaded {loads} times for {REQUESTS_AFTER} requests."
            ),
        ),
        Mark::Best => (
            Mark::Best,
            "The page was removed when the purge was answered, and stored again after one load.".to_owned(),
        ),
        mark => (
            mark,
            format!(
                "{} of {REQUESTS_AFTER} requests had the old page, the last {} after the purge had been answered.",
                old.len(),
                format_duration(last)
            ),
        ),
    };
    Answer::new(mark, text)
        .with("old", old.len())
        .with("loads", loads)
        .with("last_old_ms", milliseconds(last))
}

async fn during_load(audit: &Audit<'_>) -> Answer {
    let case = audit.case("purge-load", |request| {
        let latency = if request.number == 0 { PURGED_LOAD } else { Duration::ZERO };
        Page::of(request).cache_control("max-age=60").after(latency)
    });
    purged_during_load(audit, &case, 1).await
}

async fn during_refresh(audit: &Audit<'_>) -> Answer {
    let case = audit.case("purge-refresh", |request| {
        let latency = if request.number == 1 { PURGED_LOAD } else { Duration::ZERO };
        Page::of(request).cache_control("max-age=1, stale-while-revalidate=30").after(latency)
    });
    audit.users.get(&case.path("page")).await;
    audit.users.wait(EXPIRY).await;
    purged_during_load(audit, &case, 2).await
}

/// A purge after this load has begun and before it has ended, and two users after the purge: one at once, one when the load has ended.
async fn purged_during_load(audit: &Audit<'_>, case: &Case, loads: usize) -> Answer {
    let path = case.path("page");
    let purge_during_load = async {
        let has_begun = have_loads_begun(audit, case, loads).await;
        let purged = purge(audit, &path).await;
        (has_begun, purged, audit.users.get(&path).await)
    };
    let (_, (has_begun, purged, at_once)) = join(audit.users.get(&path), purge_during_load).await;
    // The load may go on without a user.
    audit.users.wait(PURGED_LOAD + Duration::from_millis(300)).await;
    let later = audit.users.get(&path).await;
    if !has_begun {
        return Answer::new(Mark::Unknown, "The page was not loaded.");
    }
    if let Purged::Refused(outcome) = purged {
        return Answer::new(Mark::Unknown, format!("The purge was answered with {outcome}."));
    }
    let is_old = |request: &UserRequest| request.load().is_some_and(|load| load < loads);
    // A load that was on its way is of the old version, too, and the user at once may have waited for it.
    let is_stored_old = |request: &UserRequest| request.load().is_some_and(|load| load + 1 < loads);
    let old = [is_stored_old(&at_once).then_some(&at_once), is_old(&later).then_some(&later)];
    let waited = is_old(&at_once) && !is_stored_old(&at_once);
    let failed = [&at_once, &later].into_iter().find(|request| !request.is_ok());
    let (mark, text) = match (purged.mark(audit, old.into_iter().flatten()), failed) {
        (Mark::Best, Some(failed)) => {
            (Mark::Weak, format!("A user after the purge had {}.", failed.outcome()))
        }
        (Mark::Best, None) if waited => (
            Mark::Weak,
            "A user after the purge waited for the old load; the next one had a new page.".to_owned(),
        ),
        (Mark::Best, None) => (Mark::Best, "Users after the purge had a new page.".to_owned()),
        (mark, _) if is_old(&later) => {
            (mark, "The old page was stored after the purge, and a user had it later.".to_owned())
        }
        (mark, _) => (mark, "A user after the purge had the old page.".to_owned()),
    };
    Answer::new(mark, text)
        .with("is_later_old", is_old(&later))
        .with("is_at_once_old", is_old(&at_once))
        .with("loads", case.loads())
}

/// False: they have not begun within 5 seconds.
async fn have_loads_begun(audit: &Audit<'_>, case: &Case, loads: usize) -> bool {
    for _ in 0..500 {
        if case.loads() >= loads {
            return true;
        }
        audit.users.wait(Duration::from_millis(10)).await;
    }
    false
}

async fn burst(audit: &Audit<'_>) -> Answer {
    let case = audit.case("purge-burst", |request| Page::of(request).cache_control("max-age=60"));
    let paths: Vec<_> = (0..BURST).map(|page| case.path(&format!("page-{page}"))).collect();
    let first = join_all(paths.iter().map(|path| audit.users.get(path))).await;
    let each = |(path, first): (&'_ String, &'_ UserRequest)| {
        let (path, load) = (path.clone(), first.load());
        async move {
            let purge_and_ask = async {
                let purged = purge(audit, &path).await;
                (purged, audit.users.get(&path).await)
            };
            let (_, (purged, after)) = join(audit.users.get(&path), purge_and_ask).await;
            (purged, after.load().is_some() && after.load() == load, after)
        }
    };
    let after = join_all(paths.iter().zip(&first).map(each)).await;
    if let Some(failure) = after.iter().find_map(|(purged, ..)| purged.failure()) {
        return failure;
    }
    let old = after.iter().filter(|(_, is_old, _)| *is_old);
    let mark = old.clone().map(|(purged, _, request)| purged.mark(audit, [request])).max();
    let (old, failed) = (old.count(), after.iter().filter(|(.., request)| !request.is_ok()).count());
    let (mark, text) = match (mark, failed) {
        (Some(mark), _) => (mark, format!("{old} of {BURST} users had the old page after its purge.")),
        (None, 1..) => (Mark::Weak, format!("{failed} of {BURST} users after the purges had no page.")),
        (None, 0) => (Mark::Best, format!("{BURST} of {BURST} users after the purges had a new page.")),
    };
    Answer::new(mark, text).with("old", old).with("failed", failed)
}

async fn variants(audit: &Audit<'_>) -> Answer {
    let case = audit.case("purge-variants", |request| by_language(request).cache_control("max-age=60"));
    let path = case.path("page");
    let ask = async || {
        let mut requests = Vec::new();
        for language in LANGUAGES {
            requests.push(audit.users.ask(&path).field("accept-language", language).send().await);
        }
        requests
    };
    let (first, again) = (ask().await, ask().await);
    let is_same =
        |(one, other): &(&UserRequest, &UserRequest)| one.load().is_some() && one.load() == other.load();
    if first.iter().zip(&again).filter(is_same).count() < LANGUAGES.len() {
        return not_stored();
    }
    let purged = purge(audit, &path).await;
    if let Some(failure) = purged.failure() {
        return failure;
    }
    let after = ask().await;
    let old: Vec<_> = first.iter().zip(&after).filter(is_same).map(|(_, after)| after).collect();
    let all = LANGUAGES.len();
    let text = match old.len() {
        0 => format!("The page was removed in {all} of {all} languages."),
        old => format!("The old page was served in {old} of {all} languages."),
    };
    let mark = purged.mark(audit, old.iter().copied());
    Answer::new(mark, text).with("old", old.len())
}

async fn post(audit: &Audit<'_>) -> Answer {
    let case = audit.case("purge-post", |request| {
        let page = Page::of(request);
        match request.method {
            Method::GET => page.cache_control("max-age=60"),
            Method::DELETE => page.status(StatusCode::NO_CONTENT),
            _ => page.cache_control("no-store"),
        }
    });
    let (mut kept, mut tested) = (Vec::new(), 0);
    for method in WRITES {
        let path = case.path(method.as_str());
        let Some(stored) = stored_load(audit, &path).await else { return not_stored() };
        let write = audit.users.ask(&path).method(method.clone()).send().await;
        if !matches!(write.status(), Some(200..400)) {
            continue;
        }
        tested += 1;
        let after = audit.users.get(&path).await;
        if after.load() == Some(stored) {
            audit.users.found(Violation::AfterPurge, &after, "RFC 9111, 4.4");
            kept.push(method.to_string());
        }
    }
    if tested == 0 {
        return Answer::new(Mark::Unknown, "The cache refused POST, PUT and DELETE requests.");
    }
    let (mark, text) = if kept.is_empty() {
        (Mark::Best, "The next user had a new page.".to_owned())
    } else {
        (Mark::Wrong, format!("The next user had the stored page after {}.", kept.join(", ")))
    };
    Answer::new(mark, text).with("kept", kept.len()).with("tested", tested)
}

async fn error_post(audit: &Audit<'_>) -> Answer {
    let case = audit.case("purge-error-post", |request| {
        let page = Page::of(request);
        if request.method == Method::GET {
            page.cache_control("max-age=60")
        } else {
            page.status(StatusCode::INTERNAL_SERVER_ERROR)
        }
    });
    let path = case.path("page");
    let Some(stored) = stored_load(audit, &path).await else { return not_stored() };
    if !post_arrives(audit, &case, &path).await {
        return refused_post();
    }
    let loads = case.loads();
    let after = audit.users.get(&path).await;
    match after.load().filter(|_| after.is_ok()) {
        Some(load) if load == stored => Answer::new(Mark::Best, "The page stayed in the store."),
        Some(_) => Answer::new(Mark::Good, "The page was removed, and loaded again for the next user."),
        None => Answer::new(Mark::Weak, format!("The next user had {}.", after.outcome())),
    }
    .with("loads", case.loads() - loads)
}

async fn location(audit: &Audit<'_>) -> Answer {
    const NAMED: [&str; 2] = ["location", "content-location"];
    let case = audit.case("purge-location", |request| {
        let page = Page::of(request);
        let Some((folder, "form")) = request.path().rsplit_once('/') else {
            return page.cache_control("max-age=60");
        };
        let [location, content] = NAMED.map(|name| format!("{folder}/{name}"));
        page.status(StatusCode::CREATED).field(LOCATION, &location).field(CONTENT_LOCATION, &content)
    });
    let mut stored = Vec::new();
    for name in NAMED {
        let Some(load) = stored_load(audit, &case.path(name)).await else { return not_stored() };
        stored.push(load);
    }
    if !post_arrives(audit, &case, &case.path("form")).await {
        return refused_post();
    }
    let mut removed = Vec::new();
    for (name, load) in NAMED.into_iter().zip(stored) {
        let after = audit.users.get(&case.path(name)).await;
        let failures = Failures::of([&after]);
        if failures.some() {
            return Answer::new(Mark::Unknown, failures.sentence());
        }
        if after.load() != Some(load) {
            removed.push(format!("`{name}`"));
        }
    }
    let (mark, text) = match removed.len() {
        0 => (Mark::Good, "Both pages stayed in the store, as HTTP allows.".to_owned()),
        1 => (Mark::Good, format!("The page in {} was removed.", removed[0])),
        _ => (Mark::Best, "Both pages were removed.".to_owned()),
    };
    Answer::new(mark, text).with("removed", removed.len())
}

/// The load of a stored page, which the second of two users has from the store.
async fn stored_load(audit: &Audit<'_>, path: &str) -> Option<usize> {
    let first = audit.users.get(path).await;
    let second = audit.users.get(path).await;
    first.load().filter(|load| second.load() == Some(*load))
}

/// Sends a POST request. True if it reached the origin.
async fn post_arrives(audit: &Audit<'_>, case: &Case, path: &str) -> bool {
    audit.users.ask(path).method(Method::POST).send().await;
    case.seen().iter().any(|request| request.method == Method::POST)
}

fn refused_post() -> Answer {
    Answer::new(Mark::Unknown, "The POST request did not reach the origin.")
}

fn not_stored() -> Answer {
    Answer::new(Mark::Unknown, "The page was not stored.")
}
