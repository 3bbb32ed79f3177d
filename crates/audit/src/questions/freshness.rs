//! How long is a page served from the store, and is it ever older than it may be?
//!
//! A page counts as too old only if it was asked for later than its lifetime after the first user had it, and one second more, because a
//! cache may count whole seconds. A delay of this machine makes a cache look better, never worse.

use std::time::{Duration, SystemTime};

use futures_util::future::join;
use stockade_model::units::{format_duration, milliseconds};
use stockade_record::clock::since_1970;

use super::{EXPIRY, failures::Failures, requests_for, tally::Tally, variants::fault_of_whole};
use crate::{
    answer::{Answer, Mark, counted},
    case::OriginRequest,
    page::Page,
    questions::Question,
    setup::Audit,
    truth::Violation,
    users::{PATIENCE, UserRequest},
};

pub(super) const QUESTIONS: &[Question] = &[
    Question::new("freshness.max-age", "A page may be stored for 2 seconds (max-age)", |audit| {
        Box::pin(kept(audit, "max-age", Lifetime::Stated(TWO_SECONDS), |request| {
            Page::of(request).cache_control("max-age=2")
        }))
    })
    .rule("RFC 9111, 4.2")
    .mostly_waits(),
    Question::new(
        "freshness.s-maxage",
        "A page may be stored for 2 seconds by a shared cache (s-maxage), for 60 by others",
        |audit| {
            Box::pin(kept(audit, "s-maxage", Lifetime::Stated(TWO_SECONDS), |request| {
                Page::of(request).cache_control("max-age=60, s-maxage=2")
            }))
        },
    )
    .rule("RFC 9111, 5.2.2.10")
    .mostly_waits(),
    Question::new("freshness.expires", "A page expires in 2 seconds (Expires)", |audit| {
        Box::pin(kept(audit, "expires", Lifetime::Stated(TWO_SECONDS), |request| {
            Page::of(request).field("expires", &date(TWO_SECONDS))
        }))
    })
    .rule("RFC 9111, 5.3")
    .mostly_waits(),
    Question::new("freshness.expires-0", "A page has already expired (Expires: 0)", |audit| {
        Box::pin(kept(audit, "expires-0", Lifetime::Stated(Duration::ZERO), |request| {
            Page::of(request).field("expires", "0")
        }))
    })
    .rule("RFC 9111, 5.3")
    .mostly_waits(),
    Question::new(
        "freshness.clock",
        "The origin's clock is an hour ahead, and a page expires 2 seconds after its Date",
        |audit| {
            Box::pin(kept(audit, "clock", Lifetime::Stated(TWO_SECONDS), |request| {
                let hour = Duration::from_hours(1);
                Page::of(request).field("date", &date(hour)).field("expires", &date(hour + TWO_SECONDS))
            }))
        },
    )
    .rule("RFC 9111, 4.2.1")
    .mostly_waits(),
    Question::new(
        "freshness.age-of-origin",
        "A page with max-age=60 is 58 seconds old when it arrives (Age)",
        |audit| {
            Box::pin(kept(audit, "age-of-origin", Lifetime::Stated(TWO_SECONDS), |request| {
                Page::of(request).cache_control("max-age=60").field("age", "58")
            }))
        },
    )
    .rule("RFC 9111, 4.2.3")
    .mostly_waits(),
    Question::new(
        "freshness.heuristic",
        "A page without a lifetime was changed 20 seconds ago (Last-Modified)",
        |audit| {
            Box::pin(kept(audit, "heuristic", Lifetime::Heuristic(TWO_SECONDS), |request| {
                let changed = SystemTime::UNIX_EPOCH + since_1970() - Duration::from_secs(20);
                Page::of(request).field("last-modified", &httpdate::fmt_http_date(changed))
            }))
        },
    )
    .mostly_waits(),
    Question::new("freshness.no-lifetime", "A page states no lifetime", |audit| {
        Box::pin(kept(audit, "no-lifetime", Lifetime::Heuristic(Duration::ZERO), Page::of))
    })
    .mostly_waits(),
    Question::new("freshness.no-cache", "A page has to be validated before each use (no-cache)", |audit| {
        Box::pin(each_asked(audit, "no-cache", "no-cache"))
    })
    .rule("RFC 9111, 5.2.2.4")
    .mostly_waits(),
    Question::new("freshness.max-age-0", "A page is stale when it arrives (max-age=0)", |audit| {
        Box::pin(each_asked(audit, "max-age-0", "max-age=0"))
    })
    .rule("RFC 9111, 4.2")
    .mostly_waits(),
    Question::new(
        "freshness.two-lines",
        "A page has max-age=60 in one line of Cache-Control, and no-store in the next",
        |audit| {
            Box::pin(kept(audit, "two-lines", Lifetime::Stated(Duration::ZERO), |request| {
                Page::of(request).cache_control("max-age=60").cache_control("no-store")
            }))
        },
    )
    .rule("RFC 9110, 5.3")
    .mostly_waits(),
    Question::new("freshness.age", "The Age field of a stored page that is 3 seconds old", |audit| {
        Box::pin(age(audit))
    })
    .rule("RFC 9111, 4")
    .mostly_waits(),
    Question::new(
        "freshness.validation",
        "A page with an entity tag has expired and is unchanged",
        |audit| Box::pin(validation(audit)),
    )
    .rule("RFC 9111, 4.3")
    .mostly_waits(),
    Question::new(
        "freshness.stale-while-revalidate",
        "An expired page may be served for 3 seconds while it is refreshed",
        |audit| Box::pin(stale_while_revalidate(audit)),
    )
    .rule("RFC 5861, 3")
    .mostly_waits(),
];

const TWO_SECONDS: Duration = Duration::from_secs(2);
/// A cache may count whole seconds.
const WHOLE_SECONDS: Duration = Duration::from_secs(1);
const WATCHED: Duration = Duration::from_secs(6);

/// The time for which a page may be served from the store.
#[derive(Clone, Copy)]
enum Lifetime {
    Stated(Duration),
    /// As RFC 9111, 4.2.2 suggests; a cache may choose another.
    Heuristic(Duration),
}

/// Asks for a page for some seconds, for another at the begin and the end of them alone, and compares with their lifetime. A cache that
/// refreshes an expired page with the first request after its end serves only the second page when it is much too old.
async fn kept(audit: &Audit<'_>, name: &str, lifetime: Lifetime, page: fn(&OriginRequest) -> Page) -> Answer {
    let case = audit.case(name, page);
    let idle_path = case.path("idle");
    let idle = async {
        let first = audit.users.get(&idle_path).await;
        audit.users.wait(WATCHED).await;
        [first, audit.users.get(&idle_path).await]
    };
    let (mut requests, idle) = join(requests_for(audit, &case.path("page"), PATIENCE, WATCHED), idle).await;
    requests.extend(idle);
    let (loads, reused) = (case.loads(), requests.len().saturating_sub(case.loads()));
    let (limit, is_stated) = match lifetime {
        Lifetime::Stated(limit) => (limit, true),
        Lifetime::Heuristic(limit) => (limit, false),
    };
    let overdue = overdue(&requests, limit);
    let oldest = overdue.iter().map(|(_, late)| *late).max();
    let shown = format_duration(limit);
    let answer = |mark, text: String| {
        let answer = Answer::new(mark, text).with("requests", requests.len()).with("loads", loads);
        oldest.map_or(answer.clone(), |late| answer.with("late_ms", milliseconds(late)))
    };
    let failures = Failures::of(&requests);
    if failures.some() {
        return answer(Mark::Weak, failures.sentence());
    }
    if let Some(late) = oldest {
        let late = format_duration(late);
        if !is_stated {
            let text = match limit {
                Duration::ZERO => format!("The page was served from the store {late} after its first load."),
                _ => format!("The page was served from the store for {late} longer than a tenth of its age."),
            };
            return answer(Mark::Weak, text);
        }
        for (request, _) in &overdue {
            audit.users.found(Violation::TooOld, request, "RFC 9111, 4.2.4");
        }
        let text = if overdue.iter().all(|(request, _)| request.path == idle_path) {
            format!(
                "A request after a pause of {} got the old page, {late} too late.",
                format_duration(WATCHED)
            )
        } else {
            format!("{} of {} answers were too old, by up to {late}.", overdue.len(), requests.len())
        };
        return answer(Mark::Wrong, text);
    }
    match (reused, limit.is_zero()) {
        (0, true) => answer(Mark::Best, "Each request was a load.".to_owned()),
        (0, false) => answer(
            if is_stated { Mark::Weak } else { Mark::Good },
            format!("The page was not stored: {} for {} requests.", counted(loads, "load"), requests.len()),
        ),
        (_, _) => {
            answer(Mark::Best, format!("{}; no answer was older than {shown}.", counted(loads, "load")))
        }
    }
}

/// The answers that were older than a lifetime when they were asked for, and by how much. Their age counts from the moment when the
/// first user had the page.
fn overdue(requests: &[UserRequest], lifetime: Duration) -> Vec<(&UserRequest, Duration)> {
    let first_of = |load| {
        let same = requests.iter().filter(move |request| request.load() == Some(load));
        same.map(UserRequest::ended).min()
    };
    let margin = if lifetime.is_zero() { Duration::ZERO } else { WHOLE_SECONDS };
    let late = |request: &UserRequest| {
        let end = first_of(request.load()?)? + lifetime;
        (request.sent > end + margin).then(|| request.sent - end)
    };
    requests.iter().filter_map(|request| Some((request, late(request)?))).collect()
}

/// Asks for a page four times, one after another. The cache has to ask the origin each time.
async fn each_asked(audit: &Audit<'_>, name: &str, cache_control: &'static str) -> Answer {
    let case = audit.case(name, move |request| {
        Page::of(request).cache_control(cache_control).etag("\"a\"").bytes(10_000)
    });
    let mut tally = Tally::default();
    for _ in 0..4 {
        let before = case.loads();
        let request = audit.users.get(&case.path("page")).await;
        let is_not_asked = request.is_ok() && case.loads() == before;
        tally.add(audit, &request, is_not_asked.then_some((Violation::TooOld, "RFC 9111, 4.2.4")));
    }
    let conditional = case.seen().iter().filter(|request| request.field("if-none-match").is_some()).count();
    let text = match conditional {
        0 => "Each request was a load of the whole page.".to_owned(),
        _ => format!(
            "Each request was a load; {conditional} of them asked whether the page had changed (If-None-Match)."
        ),
    };
    tally
        .answer("requests were answered without asking the origin.", Mark::Best, &text)
        .with("loads", case.loads())
        .with("conditional", conditional)
}

async fn age(audit: &Audit<'_>) -> Answer {
    let case = audit.case("age", |request| Page::of(request).cache_control("max-age=60"));
    let path = case.path("page");
    let first = audit.users.get(&path).await;
    audit.users.wait(Duration::from_secs(3)).await;
    let stored = audit.users.get(&path).await;
    let failures = Failures::of([&first, &stored]);
    if failures.some() {
        return Answer::new(Mark::Unknown, failures.sentence());
    }
    if case.loads() > 1 {
        return Answer::new(Mark::Unknown, "The page was not stored.");
    }
    let loaded = case.seen().first().map_or(first.sent, |load| load.at);
    // At least and at most, in whole seconds.
    let least = (stored.sent - first.ended()).as_secs().saturating_sub(1);
    let most = (stored.ended() - loaded).as_secs() + 1;
    let age = stored.field("age").map(|age| age.trim().parse::<u64>());
    let wrong = |text: String| {
        audit.users.found(Violation::AgeWrong, &stored, "RFC 9111, 4");
        Answer::new(Mark::Wrong, text)
    };
    match age {
        None => wrong("The response from the store has no Age field.".to_owned()),
        Some(Ok(age)) if (least..=most).contains(&age) => {
            Answer::new(Mark::Best, format!("Age: {age}.")).with("age_s", age)
        }
        Some(Ok(age)) => {
            wrong(format!("Age: {age}; the page was {least} to {most} seconds old.")).with("age_s", age)
        }
        Some(Err(_)) => wrong("Its Age is not a number.".to_owned()),
    }
}

async fn validation(audit: &Audit<'_>) -> Answer {
    let case = audit.case("validation", |request| {
        Page::of(request).cache_control("max-age=2").etag("\"a\"").bytes(10_000)
    });
    let path = case.path("page");
    audit.users.get(&path).await;
    audit.users.wait(TWO_SECONDS + WHOLE_SECONDS * 3 / 2).await;
    let during = audit.users.get(&path).await;
    // A cache that serves the old page during its refresh has asked the origin a moment later.
    audit.users.wait(WHOLE_SECONDS / 2).await;
    let after = audit.users.get(&path).await;
    let loads = case.loads();
    let is_conditional = case.seen().iter().skip(1).any(|request| request.field("if-none-match").is_some());
    let mut tally = Tally::default();
    for request in [&during, &after] {
        tally.add(audit, request, fault_of_whole(request));
    }
    let (mark, text) = match is_conditional {
        true if loads > 2 => (
            Mark::Weak,
            "The cache asks whether the page has changed (If-None-Match), but does not extend its lifetime.",
        ),
        true => (
            Mark::Best,
            "The cache asks whether the page has changed (If-None-Match), and extends its lifetime.",
        ),
        false => (Mark::Weak, "The whole page is loaded again."),
    };
    tally.answer("users got another response than the whole page.", mark, text).with("loads", loads)
}

async fn stale_while_revalidate(audit: &Audit<'_>) -> Answer {
    // A slow load does not permit an old page.
    let case = audit.case("stale-while-revalidate", |request| {
        let latency = if request.number == 0 { Duration::ZERO } else { WHOLE_SECONDS };
        Page::of(request).cache_control("max-age=1, stale-while-revalidate=3").after(latency)
    });
    let path = case.path("page");
    audit.users.get(&path).await;
    audit.users.wait(EXPIRY).await;
    let in_time = audit.users.get(&path).await;
    // From the refresh: its latency, its lifetime, its time as a stale page, and one second more for each of the two times.
    audit.users.wait(Duration::from_millis(7_500)).await;
    let later = audit.users.get(&path).await;
    let seen = case.seen();
    let later_load = later.load().and_then(|load| seen.get(load));
    let loads = case.loads();
    let answer = |mark, text: String| Answer::new(mark, text).with("loads", loads);
    if later_load.is_some_and(|load| later.sent > load.at + WHOLE_SECONDS * 7) {
        audit.users.found(Violation::TooOld, &later, "RFC 5861, 3");
        return answer(
            Mark::Wrong,
            "The old page was served after the time for which stale pages are allowed.".to_owned(),
        );
    }
    if in_time.load() == Some(0) {
        return answer(
            Mark::Best,
            "The user had the old page at once, while the cache loaded the new one.".to_owned(),
        );
    }
    let text = if in_time.is_ok() {
        format!("The user waited for the new page: {}.", format_duration(in_time.took))
    } else {
        format!("The user had no page: {}.", in_time.outcome())
    };
    answer(Mark::Weak, text)
}

/// A date this much later than now.
fn date(later: Duration) -> String {
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since_1970() + later)
}
