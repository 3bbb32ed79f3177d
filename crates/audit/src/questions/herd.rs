//! Many users ask for one page at once: how often is it loaded, and how long do they wait?

use std::{fmt::Write, time::Duration};

use futures_util::future::join;
use stockade_model::units::format_duration;
use stockade_origin::ResponseEnding;

use crate::{
    answer::{Answer, Mark, counted},
    case::Case,
    page::Page,
    questions::Question,
    setup::Audit,
    users::UserRequest,
};

const USERS: usize = 200;
/// Where each of them may become a load that takes long.
const FEW_USERS: usize = 50;
const LOAD_TIME: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(30);
/// From the first request until the others follow it.
const HEAD_START: Duration = Duration::from_millis(300);

pub(super) const QUESTIONS: &[Question] = &[
    Question::new("herd.cold", "A page that is not stored, and 200 users at once", |audit| {
        Box::pin(cold(audit))
    }),
    Question::new("herd.expired", "A hot page that has expired, and 200 users at once", |audit| {
        Box::pin(expired(audit))
    }),
    Question::new(
        "herd.refresh",
        "An expired page that may be served while it is refreshed, and 200 users at once",
        |audit| Box::pin(refresh(audit)),
    ),
    Question::new("herd.uncacheable", "A page that must not be stored, and 50 users at once", |audit| {
        Box::pin(uncacheable(audit))
    }),
    Question::new("herd.slow", "A page that takes 12 seconds, and 50 users at once", |audit| {
        Box::pin(slow(audit))
    })
    .mostly_waits(),
    Question::new("herd.leader-stalls", "The first load never ends, the next ones would", |audit| {
        Box::pin(leader_stalls(audit))
    })
    .mostly_waits(),
    Question::new("herd.leader-reset", "The first load breaks off, the next ones would not", |audit| {
        Box::pin(leader_reset(audit))
    }),
    Question::new("herd.leader-cancelled", "The user whose request began the load gives up", |audit| {
        Box::pin(leader_cancelled(audit))
    }),
];

async fn cold(audit: &Audit<'_>) -> Answer {
    let case = audit.case("cold", |request| Page::of(request).cache_control("max-age=60").after(LOAD_TIME));
    let herd = audit.users.herd(&case.path("page"), USERS, PATIENCE).await;
    coalesced(&case, &herd, 0, "")
}

async fn expired(audit: &Audit<'_>) -> Answer {
    old_page(audit, "expired", "max-age=1").await
}

async fn refresh(audit: &Audit<'_>) -> Answer {
    old_page(audit, "refresh", "max-age=1, stale-while-revalidate=60").await
}

/// A herd for a page that has expired.
async fn old_page(audit: &Audit<'_>, name: &str, cache_control: &'static str) -> Answer {
    let case = audit.case(name, move |request| {
        let latency = if request.number == 0 { Duration::ZERO } else { LOAD_TIME };
        Page::of(request).cache_control(cache_control).after(latency)
    });
    audit.users.ask(&case.path("page")).patience(PATIENCE).send().await;
    // Whole seconds count in some caches, and it has to be older than one.
    audit.users.wait(Duration::from_millis(2_500)).await;
    let herd = audit.users.herd(&case.path("page"), USERS, PATIENCE).await;
    let at_once = herd.iter().filter(|request| request.is_ok() && request.took < LOAD_TIME / 2).count();
    let text = match at_once {
        0 => "",
        USERS => " All had the old page at once.",
        _ => " The others had the old page at once.",
    };
    coalesced(&case, &herd, 1, text).with("old_pages", at_once)
}

/// The loads of a herd, after these that came before it.
fn coalesced(case: &Case, herd: &[UserRequest], before: usize, more: &str) -> Answer {
    let loads = case.loads() - before;
    let failed = herd.iter().filter(|request| !request.is_ok()).count();
    let slowest = slowest(herd);
    let mark = match (loads, failed) {
        (1, 0) => Mark::Best,
        (..=3, 0) => Mark::Good,
        _ => Mark::Weak,
    };
    let mut text = format!(
        "{}; the slowest user had the page after {}.{more}",
        counted(loads, "load"),
        format_duration(slowest)
    );
    if failed > 0 {
        let _ = write!(text, " {failed} of {} requests failed: {}.", herd.len(), failure(herd));
    }
    Answer::new(mark, text).with("loads", loads).with("failed", failed).with("slowest_ms", millis(slowest))
}

async fn uncacheable(audit: &Audit<'_>) -> Answer {
    let latency = Duration::from_millis(200);
    let case =
        audit.case("uncacheable", move |request| Page::of(request).cache_control("no-store").after(latency));
    let herd = audit.users.herd(&case.path("page"), FEW_USERS, PATIENCE).await;
    let (loads, slowest) = (case.loads(), slowest(&herd));
    let answer =
        |mark, text| Answer::new(mark, text).with("loads", loads).with("slowest_ms", millis(slowest));
    let took = format_duration(slowest);
    if loads < FEW_USERS {
        return answer(
            Mark::Wrong,
            format!(
                "{} for {FEW_USERS} users: some had a page with `no-store` that was another's.",
                counted(loads, "load")
            ),
        );
    }
    // A queue of this machine delays requests, too, but not each until the one before it has been answered.
    let at: Vec<_> = case.seen().iter().map(|request| request.at).collect();
    let waited = at.windows(2).filter(|pair| pair[1] - pair[0] >= latency).count();
    if waited >= FEW_USERS / 2 {
        let text = format!(
            "{waited} of {FEW_USERS} loads began when the one before had ended: the last user had the page after {took}."
        );
        return answer(Mark::Weak, text);
    }
    answer(
        Mark::Best,
        format!("{FEW_USERS} loads at the same time: the last user had the page after {took}."),
    )
}

async fn slow(audit: &Audit<'_>) -> Answer {
    let case = audit
        .case("slow", |request| Page::of(request).cache_control("max-age=60").after(Duration::from_secs(12)));
    let herd = audit.users.herd(&case.path("page"), FEW_USERS, PATIENCE).await;
    coalesced(&case, &herd, 0, "")
}

async fn leader_stalls(audit: &Audit<'_>) -> Answer {
    let case = audit.case("stalls", |request| {
        let ending = if request.number == 0 { ResponseEnding::Silent } else { ResponseEnding::Complete };
        Page::of(request).cache_control("max-age=60").after(Duration::from_millis(50)).ending(ending)
    });
    let (leader, herd) = led(audit, &case, PATIENCE / 2, PATIENCE / 2).await;
    let waited = median(&herd);
    let loads = case.loads();
    let failed = herd.iter().filter(|request| !request.is_ok()).count();
    let mark = match waited.as_secs() {
        0 if failed == 0 => Mark::Best,
        1..6 if failed == 0 => Mark::Good,
        _ => Mark::Weak,
    };
    let text = if failed > 0 {
        format!(
            "{failed} of {} users who came after it had no page within {}.",
            herd.len(),
            format_duration(PATIENCE / 2)
        )
    } else {
        let half = format_duration(waited);
        format!("Half of the users who came after it had the page after {half}; {loads} loads in all.")
    };
    Answer::new(mark, text)
        .with("loads", loads)
        .with("failed", failed)
        .with("median_ms", millis(waited))
        .with("leader_ok", leader.is_ok())
}

async fn leader_reset(audit: &Audit<'_>) -> Answer {
    let case = audit.case("reset", |request| {
        let ending =
            if request.number == 0 { ResponseEnding::Reset(1_000) } else { ResponseEnding::Complete };
        Page::of(request).cache_control("max-age=60").after(LOAD_TIME).ending(ending)
    });
    let (leader, herd) = led(audit, &case, PATIENCE, PATIENCE).await;
    coalesced(
        &case,
        &herd,
        1,
        if leader.is_ok() { " The first user had it, too." } else { " The first user had an error." },
    )
}

async fn leader_cancelled(audit: &Audit<'_>) -> Answer {
    let case =
        audit.case("cancelled", |request| Page::of(request).cache_control("max-age=60").after(2 * LOAD_TIME));
    let (_, herd) = led(audit, &case, LOAD_TIME, PATIENCE).await;
    coalesced(&case, &herd, 0, "")
}

/// A user, and others a moment later, each with the time after which they give up.
async fn led(
    audit: &Audit<'_>,
    case: &Case,
    leader_patience: Duration,
    patience: Duration,
) -> (UserRequest, Vec<UserRequest>) {
    let path = case.path("page");
    let herd = async {
        audit.users.wait(HEAD_START).await;
        audit.users.herd(&path, FEW_USERS, patience).await
    };
    join(audit.users.ask(&path).patience(leader_patience).send(), herd).await
}

fn median(herd: &[UserRequest]) -> Duration {
    let mut times: Vec<_> = herd.iter().map(|request| request.took).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn slowest(herd: &[UserRequest]) -> Duration {
    herd.iter().map(|request| request.took).max().unwrap_or_default()
}

/// The first failure of a herd.
fn failure(herd: &[UserRequest]) -> String {
    herd.iter().find(|request| !request.is_ok()).map_or_else(String::new, UserRequest::outcome)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
