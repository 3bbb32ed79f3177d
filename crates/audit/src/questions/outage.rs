//! The origin fails for some seconds: what do users get during that time, and how many requests does the origin get?

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::{join, join_all};
use http::StatusCode;
use stockade_model::{
    time::Time,
    units::{format_duration, milliseconds},
};
use stockade_origin::ResponseEnding;

use super::{BETWEEN_REQUESTS, EXPIRY, STALE_ALLOWED, failures::Failures, requests_for};
use crate::{
    answer::{Answer, Mark, counted},
    case::{Case, OriginRequest},
    page::Page,
    questions::Question,
    setup::Audit,
    truth::Violation,
    users::UserRequest,
};

pub(super) const QUESTIONS: &[Question] = &[
    Question::new(
        "outage.errors",
        "The origin answers with 503 for 3 seconds; old pages are allowed (stale-if-error)",
        |audit| Box::pin(served_during_outage(audit, "errors", error)),
    )
    .mostly_waits(),
    Question::new(
        "outage.reset",
        "The origin resets connections for 3 seconds; old pages are allowed",
        |audit| {
            Box::pin(served_during_outage(audit, "resets", |request| {
                Page::of(request).ending(ResponseEnding::Refused)
            }))
        },
    )
    .mostly_waits(),
    Question::new("outage.silence", "The origin is silent for 3 seconds; old pages are allowed", |audit| {
        Box::pin(served_during_outage(audit, "silence", |request| {
            Page::of(request).ending(ResponseEnding::Silent)
        }))
    })
    .mostly_waits(),
    Question::new(
        "outage.slow",
        "The origin takes 4 seconds; old pages are allowed (stale-while-revalidate)",
        |audit| {
            Box::pin(served_during_outage(audit, "slowness", |request| {
                Page::of(request).cache_control(STALE_ALLOWED).after(SLOW)
            }))
        },
    )
    .mostly_waits(),
    Question::new(
        "outage.must-revalidate",
        "The origin answers with 503; the old page must not be used (must-revalidate)",
        |audit| Box::pin(must_revalidate(audit)),
    )
    .rule("RFC 9111, 5.2.2.2")
    .mostly_waits(),
    Question::new(
        "outage.stale-limit",
        "The origin answers with 503 for 9 seconds; old pages are allowed for 2 (stale-if-error)",
        |audit| Box::pin(stale_limit(audit)),
    )
    .rule("RFC 5861, 4")
    .mostly_waits(),
    Question::new("outage.flapping", "Every second load fails; old pages are allowed", |audit| {
        Box::pin(flapping(audit))
    }),
    Question::new(
        "outage.other-pages",
        "A page fails 80 times; another page of the same origin works",
        |audit| Box::pin(other_pages(audit)),
    ),
    Question::new("outage.recovery", "The origin works again after 3 seconds of errors", |audit| {
        Box::pin(recovery(audit))
    }),
];

const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
const OUTAGE: Duration = Duration::from_secs(3);
const SLOW: Duration = Duration::from_secs(4);
const USERS: usize = 4;
/// A request that takes longer has waited for the origin.
const WAIT: Duration = Duration::from_secs(2);
const OUTAGE_PATIENCE: Duration = Duration::from_secs(6);

/// A page of an origin that can fail.
struct FailingPage {
    case: Arc<Case>,
    path: String,
    fails: Arc<AtomicBool>,
}

impl FailingPage {
    /// The page is stored, and has expired.
    async fn expired(
        audit: &Audit<'_>,
        name: &str,
        cache_control: &'static str,
        failing: fn(&OriginRequest) -> Page,
    ) -> Self {
        let fails = Arc::new(AtomicBool::new(false));
        let is_failing = Arc::clone(&fails);
        let case = audit.case(name, move |request: &OriginRequest| {
            if is_failing.load(Relaxed) {
                return failing(request);
            }
            Page::of(request).cache_control(cache_control)
        });
        let path = case.path("page");
        audit.users.get(&path).await;
        audit.users.wait(EXPIRY).await;
        Self { case, path, fails }
    }

    fn fail(&self, fails: bool) {
        self.fails.store(fails, Relaxed);
    }

    /// Requests of some users for this long.
    async fn asked(&self, audit: &Audit<'_>, duration: Duration) -> Vec<UserRequest> {
        let user = |_| requests_for(audit, &self.path, OUTAGE_PATIENCE, duration);
        join_all((0..USERS).map(user)).await.concat()
    }
}

/// Without `Cache-Control`, as servers and frameworks send it.
fn error(request: &OriginRequest) -> Page {
    Page::of(request).status(UNAVAILABLE)
}

async fn served_during_outage(audit: &Audit<'_>, name: &str, failing: fn(&OriginRequest) -> Page) -> Answer {
    let page = FailingPage::expired(audit, name, STALE_ALLOWED, failing).await;
    let before = page.case.loads();
    page.fail(true);
    let requests = page.asked(audit, OUTAGE).await;
    page.fail(false);
    let loads = page.case.loads() - before;
    let Failures { failed, .. } = Failures::of(&requests);
    let waited = requests.iter().filter(|request| request.took >= WAIT).count();
    let old = requests.iter().filter(|request| request.load().is_some_and(|load| load < before)).count();
    let count = requests.len();
    let mark = match () {
        // Some requests have to wait before the cache knows that the origin is silent. Repeated loads burden a failing origin.
        () if failed * 10 > count || waited * 4 > count || loads > count * 2 => Mark::Weak,
        () if failed == 0 && loads <= count / 2 => Mark::Best,
        () => Mark::Good,
    };
    let mut text = format!("{old} of {count} requests got the old page, {failed} failed");
    if let Some(request) = requests.iter().find(|request| !request.is_ok()) {
        let _ = write!(text, " ({})", request.outcome());
    }
    let _ = write!(text, "; {}", counted(loads, "load"));
    if waited > 0 {
        let slowest = requests.iter().map(|request| request.took).max().unwrap_or_default();
        let _ = write!(text, "; {} waited, up to {}", counted(waited, "request"), format_duration(slowest));
    }
    Answer::new(mark, text + ".")
        .with("requests", count)
        .with("old_pages", old)
        .with("failed", failed)
        .with("waited", waited)
        .with("loads", loads)
}

async fn must_revalidate(audit: &Audit<'_>) -> Answer {
    let page = FailingPage::expired(
        audit,
        "must-revalidate",
        "max-age=1, must-revalidate, stale-if-error=60",
        error,
    )
    .await;
    page.fail(true);
    let requests = page.asked(audit, OUTAGE).await;
    let old: Vec<_> =
        requests.iter().filter(|request| request.is_ok() && request.load() == Some(0)).collect();
    old.iter().for_each(|request| audit.users.found(Violation::TooOld, request, "RFC 9111, 5.2.2.2"));
    let count = requests.len();
    match old.len() {
        0 => Answer::new(
            Mark::Best,
            format!("{count} requests were answered, and no request got the old page."),
        ),
        old => Answer::new(Mark::Wrong, format!("{old} of {count} requests got the old page.")),
    }
}

async fn stale_limit(audit: &Audit<'_>) -> Answer {
    let page = FailingPage::expired(audit, "stale-limit", "max-age=1, stale-if-error=2", error).await;
    page.fail(true);
    // The page expired 1.5 seconds ago and may be served for 2. A cache may count whole seconds for both times.
    let limit = audit.users.now() + Duration::from_secs(4);
    let requests = page.asked(audit, Duration::from_secs(9)).await;
    let is_late =
        |request: &&UserRequest| request.is_ok() && request.load() == Some(0) && request.sent > limit;
    let late: Vec<_> = requests.iter().filter(is_late).collect();
    late.iter().for_each(|request| audit.users.found(Violation::TooOld, request, "RFC 5861, 4"));
    match late.last() {
        Some(last) => Answer::new(
            Mark::Wrong,
            format!(
                "{} of {} requests got the old page after the limit, up to {} late.",
                late.len(),
                requests.len(),
                format_duration(last.sent - limit)
            ),
        ),
        None => Answer::new(Mark::Best, "No request got the old page after the limit."),
    }
    .with("requests", requests.len())
    .with("late", late.len())
}

async fn flapping(audit: &Audit<'_>) -> Answer {
    let case = audit.case("flapping", |request| {
        if request.number % 2 == 1 {
            return error(request);
        }
        Page::of(request).cache_control("max-age=1, stale-if-error=60")
    });
    let path = case.path("page");
    let mut failed = 0;
    let count = 5;
    for _ in 0..count {
        failed += usize::from(!audit.users.get(&path).await.is_ok());
        // One request finds an expired page.
        audit.users.wait(Duration::from_millis(1_100)).await;
    }
    let loads = case.loads();
    let answer = |mark, text| Answer::new(mark, text).with("failed", failed).with("loads", loads);
    let loaded = counted(loads, "load");
    match failed {
        0 => answer(Mark::Best, format!("No user had an error; {loaded} for {count} requests.")),
        _ => answer(Mark::Weak, format!("{failed} of {count} requests got the error.")),
    }
}

async fn other_pages(audit: &Audit<'_>) -> Answer {
    let sound = audit.case("sound", |request| Page::of(request).cache_control("no-store"));
    let failing = audit.case("failing", error);
    let [sound_path, failing_path] = [&sound, &failing].map(|case| case.path("page"));
    let fails = async {
        for _ in 0..20 {
            audit.users.herd(&failing_path, USERS, OUTAGE_PATIENCE).await;
            audit.users.wait(Duration::from_millis(50)).await;
        }
    };
    let works = async {
        let mut requests = Vec::new();
        for _ in 0..20 {
            requests.push(audit.users.get(&sound_path).await);
            audit.users.wait(Duration::from_millis(100)).await;
        }
        requests
    };
    let ((), requests) = join(fails, works).await;
    let failures = Failures::of(&requests);
    let (mark, text) = if failures.some() {
        (Mark::Weak, format!("For the page that works, {}", failures.sentence()))
    } else {
        (Mark::Best, format!("All {} requests for the page that works got it.", requests.len()))
    };
    Answer::new(mark, text).with("failed", failures.failed).with("failing_loads", failing.loads())
}

async fn recovery(audit: &Audit<'_>) -> Answer {
    let page = FailingPage::expired(audit, "recovery", "max-age=1, stale-if-error=60", error).await;
    page.fail(true);
    page.asked(audit, OUTAGE).await;
    page.fail(false);
    let healed = audit.users.now();
    let is_new = |request: &UserRequest, seen: &[OriginRequest]| {
        request.load().and_then(|load| seen.get(load)).is_some_and(|load| load.at >= healed)
    };
    let mut first: Option<Time> = None;
    while first.is_none() && audit.users.now() < healed + OUTAGE_PATIENCE {
        let request = audit.users.get(&page.path).await;
        if is_new(&request, &page.case.seen()) {
            first = Some(request.ended());
        }
        audit.users.wait(BETWEEN_REQUESTS / 5).await;
    }
    match first {
        Some(at) => {
            let mark = if at - healed < WAIT { Mark::Best } else { Mark::Good };
            Answer::new(
                mark,
                format!(
                    "A user had a new page {} after the origin worked again.",
                    format_duration(at - healed)
                ),
            )
            .with("recovered_ms", milliseconds(at - healed))
        }
        None => Answer::new(
            Mark::Weak,
            format!(
                "No user had a new page within {} after the origin worked again.",
                format_duration(OUTAGE_PATIENCE)
            ),
        ),
    }
}
