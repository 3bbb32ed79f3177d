//! Many users ask for one page at once: how often is it loaded, and how long do they wait?

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join;
use stockade_model::units::{format_duration, milliseconds};
use stockade_origin::ResponseEnding;

use super::{EXPIRY, failures::Failures, privacy::NO_STORE};
use crate::{
    answer::{Answer, Mark, counted},
    case::Case,
    page::Page,
    questions::Question,
    setup::Audit,
    truth::Violation,
    users::UserRequest,
};

const USERS: usize = 200;
/// The users if each of their requests may become a long load.
const FEW_USERS: usize = 50;
const LONG_LOAD: Duration = Duration::from_secs(1);
const HERD_PATIENCE: Duration = Duration::from_secs(30);
/// From the first request to those of the herd.
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
    })
    .rule(NO_STORE),
    Question::new("herd.slow", "A page that takes 12 seconds, and 50 users at once", |audit| {
        Box::pin(slow(audit))
    })
    .mostly_waits(),
    Question::new("herd.leader-stalls", "The first load never ends, and later loads take 50 ms", |audit| {
        Box::pin(leader_stalls(audit))
    })
    .mostly_waits(),
    Question::new("herd.leader-reset", "The first load breaks off, and later loads do not", |audit| {
        Box::pin(leader_reset(audit))
    }),
    Question::new(
        "herd.leader-cancelled",
        "The first user, whose request began the load, gives up",
        |audit| Box::pin(leader_cancelled(audit)),
    ),
];

async fn cold(audit: &Audit<'_>) -> Answer {
    let case = audit.case("cold", |request| Page::of(request).cache_control("max-age=60").after(LONG_LOAD));
    let herd = audit.users.herd(&case.path("page"), USERS, HERD_PATIENCE).await;
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
        let latency = if request.number == 0 { Duration::ZERO } else { LONG_LOAD };
        Page::of(request).cache_control(cache_control).after(latency)
    });
    let first = audit.users.ask(&case.path("page")).patience(HERD_PATIENCE).send().await;
    let before = case.loads();
    audit.users.wait(EXPIRY).await;
    let herd = audit.users.herd(&case.path("page"), USERS, HERD_PATIENCE).await;
    // A refresh begins after the user has the old page.
    audit.users.wait(LONG_LOAD / 2).await;
    let old =
        herd.iter().filter(|request| request.load().is_some() && request.load() == first.load()).count();
    let text = match old {
        0 => String::new(),
        USERS => " All users had the old page.".to_owned(),
        old => format!(" {old} of {USERS} users had the old page."),
    };
    coalesced(&case, &herd, before, &text).with("old_pages", old)
}

/// The answer of a herd, whose loads follow `before` others.
fn coalesced(case: &Case, herd: &[UserRequest], before: usize, more: &str) -> Answer {
    let loads = case.loads().saturating_sub(before);
    let failures = Failures::of(herd);
    let slowest = slowest(herd);
    let mark = match (loads, failures.failed) {
        (1, 0) => Mark::Best,
        (..=3, 0) => Mark::Good,
        _ => Mark::Weak,
    };
    let text = format!(
        "{}; the slowest user {} after {}.{more}{}",
        counted(loads, "load"),
        if failures.some() { "had a page or an error" } else { "had the page" },
        format_duration(slowest),
        failures.appended()
    );
    Answer::new(mark, text)
        .with("loads", loads)
        .with("failed", failures.failed)
        .with("slowest_ms", milliseconds(slowest))
}

async fn uncacheable(audit: &Audit<'_>) -> Answer {
    let latency = Duration::from_millis(200);
    let case =
        audit.case("uncacheable", move |request| Page::of(request).cache_control("no-store").after(latency));
    let herd = audit.users.herd(&case.path("page"), FEW_USERS, HERD_PATIENCE).await;
    let (loads, slowest) = (case.loads(), slowest(&herd));
    let answer =
        |mark, text| Answer::new(mark, text).with("loads", loads).with("slowest_ms", milliseconds(slowest));
    let took = format_duration(slowest);
    let mut seen = BTreeSet::new();
    let is_shared = |request: &&UserRequest| request.load().is_some_and(|load| !seen.insert(load));
    let shared: Vec<_> = herd.iter().filter(is_shared).collect();
    if !shared.is_empty() {
        shared.iter().for_each(|request| audit.users.found(Violation::WrongOwner, request, NO_STORE));
        let text = format!(
            "{} of {FEW_USERS} users had a page with `no-store` that was loaded for another user.",
            shared.len()
        );
        return answer(Mark::Wrong, text);
    }
    let failures = Failures::of(&herd);
    if failures.some() {
        return answer(Mark::Weak, failures.sentence());
    }
    // A queue of this machine delays requests, too, but not each until the one before it has been answered.
    let at: Vec<_> = case.seen().iter().map(|request| request.at).collect();
    let waited = at.windows(2).filter(|pair| pair[1] - pair[0] >= latency).count();
    if waited >= FEW_USERS / 2 {
        let text = format!(
            "{waited} of {FEW_USERS} loads began after the one before had ended; the slowest user had the page after {took}."
        );
        return answer(Mark::Weak, text);
    }
    answer(
        Mark::Best,
        format!("{FEW_USERS} loads at the same time; the slowest user had the page after {took}."),
    )
}

async fn slow(audit: &Audit<'_>) -> Answer {
    let case = audit
        .case("slow", |request| Page::of(request).cache_control("max-age=60").after(Duration::from_secs(12)));
    let herd = audit.users.herd(&case.path("page"), FEW_USERS, HERD_PATIENCE).await;
    coalesced(&case, &herd, 0, "")
}

async fn leader_stalls(audit: &Audit<'_>) -> Answer {
    let case = audit.case("stalls", |request| {
        let ending = if request.number == 0 { ResponseEnding::Silent } else { ResponseEnding::Complete };
        Page::of(request).cache_control("max-age=60").after(Duration::from_millis(50)).ending(ending)
    });
    let (leader, herd) = led(audit, &case, HERD_PATIENCE / 2, HERD_PATIENCE / 2).await;
    let waited = median(&herd);
    let loads = case.loads();
    let failed = Failures::of(&herd).failed;
    let mark = match waited.as_secs() {
        0 if failed == 0 => Mark::Best,
        1..6 if failed == 0 => Mark::Good,
        _ => Mark::Weak,
    };
    let text = if failed > 0 {
        format!(
            "{failed} of {} later users had no page within {}.",
            herd.len(),
            format_duration(HERD_PATIENCE / 2)
        )
    } else {
        let half = format_duration(waited);
        format!("Half of the later users had the page within {half}; {} in all.", counted(loads, "load"))
    };
    Answer::new(mark, text)
        .with("loads", loads)
        .with("failed", failed)
        .with("median_ms", milliseconds(waited))
        .with("leader_ok", leader.is_ok())
}

async fn leader_reset(audit: &Audit<'_>) -> Answer {
    let case = audit.case("reset", |request| {
        let ending =
            if request.number == 0 { ResponseEnding::Reset(1_000) } else { ResponseEnding::Complete };
        Page::of(request).cache_control("max-age=60").after(LONG_LOAD).ending(ending)
    });
    let (leader, herd) = led(audit, &case, HERD_PATIENCE, HERD_PATIENCE).await;
    coalesced(
        &case,
        &herd,
        1,
        if leader.is_ok() { " The first user had the page, too." } else { " The first user had an error." },
    )
}

async fn leader_cancelled(audit: &Audit<'_>) -> Answer {
    let case =
        audit.case("cancelled", |request| Page::of(request).cache_control("max-age=60").after(2 * LONG_LOAD));
    let (_, herd) = led(audit, &case, LONG_LOAD, HERD_PATIENCE).await;
    coalesced(&case, &herd, 0, "")
}

/// One user, and a herd a moment later, each with the time after which a user gives up.
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
