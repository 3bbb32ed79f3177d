//! Pages with several variants, parts and conditions: does each request get those that it asked for?

mod conditions;
mod encodings;
mod parts;

use std::collections::BTreeSet;

use futures_util::future::join_all;
use http::{
    HeaderMap,
    header::{ACCEPT_LANGUAGE, VARY},
};

use super::{EXPIRY, SHORT_LOAD, tally::Tally};
use crate::{
    answer::{Answer, Mark},
    case::{Case, OriginRequest},
    page::Page,
    questions::Question,
    setup::Audit,
    stamp::BodyFault,
    truth::Violation,
    users::UserRequest,
};

const MATCH: &str = "RFC 9111, 4.1";
const LANGUAGES: [&str; 2] = ["de", "fr"];
const OTHERS: &str = "requests got the variant of another language.";

pub(super) const QUESTIONS: &[Question] = &[
    Question::new(
        "variants.vary",
        "`Vary: accept-language`, two languages, 100 users at once, 40 afterwards",
        |audit| Box::pin(vary(audit)),
    )
    .rule(MATCH),
    Question::new(
        "variants.vary-star",
        "`Vary: *` with `max-age=60`, 30 users at once, 10 afterwards",
        |audit| Box::pin(vary_star(audit)),
    )
    .rule(MATCH)
    .mostly_waits(),
    Question::new("variants.encodings", "`Vary: accept-encoding`, clients with gzip and without", |audit| {
        Box::pin(encodings::encodings(audit))
    })
    .rule(MATCH),
    Question::new("variants.many", "A page in 200 variants, each asked for twice", |audit| {
        Box::pin(many(audit))
    })
    .rule(MATCH),
    Question::new(
        "variants.vary-appears",
        "A page without `Vary` expires and has it from then on, 40 users at once",
        |audit| Box::pin(vary_appears(audit)),
    )
    .rule(MATCH)
    .mostly_waits(),
    Question::new("variants.head", "HEAD before, after and together with GET", |audit| {
        Box::pin(parts::head(audit))
    })
    .rule("RFC 9110, 9.3.2 and 8.6"),
    Question::new(
        "variants.range",
        "Ranges of a page that is stored, of one that is not, and at the same time as whole pages",
        |audit| Box::pin(parts::range(audit)),
    )
    .rule("RFC 9110, 15.3.7"),
    Question::new(
        "variants.if-range",
        "The rest of a page that has changed, with `If-Range` and the old tag",
        |audit| Box::pin(parts::if_range(audit)),
    )
    .rule("RFC 9110, 13.1.5")
    .mostly_waits(),
    Question::new(
        "variants.if-none-match",
        "`If-None-Match` with the page's tag, with another, and at the same time as requests without it",
        |audit| Box::pin(conditions::if_none_match(audit)),
    )
    .rule("RFC 9110, 13.1.2 and 15.4.5"),
    Question::new("variants.revalidation", "Two variants with tags expire, and 20 users at once", |audit| {
        Box::pin(conditions::revalidation(audit))
    })
    .rule(MATCH)
    .mostly_waits(),
    Question::new(
        "variants.304-fields",
        "A 304 with another lifetime and another value of a field",
        |audit| Box::pin(conditions::fields_of_304(audit)),
    )
    .rule("RFC 9111, 3.2 and 4.3.4")
    .mostly_waits(),
];

async fn vary(audit: &Audit<'_>) -> Answer {
    const AFTERWARDS: usize = 40;
    let case =
        audit.case("vary", |request| by_language(request).cache_control("max-age=60").after(SHORT_LOAD));
    let mut requests = speakers(audit, &case, 100).await;
    let before = case.loads();
    for _ in 0..AFTERWARDS / 10 {
        requests.extend(speakers(audit, &case, 10).await);
    }
    let again = case.loads() - before;
    let (mark, text) = match again {
        0 => (Mark::Best, "Each request got its language, and both are stored.".to_owned()),
        again => (
            if again > AFTERWARDS / 2 { Mark::Weak } else { Mark::Good },
            format!(
                "Each request got its language; {again} of {AFTERWARDS} requests for loaded pages were loads again."
            ),
        ),
    };
    languages(audit, &requests).answer(OTHERS, mark, &text).with("loads", case.loads()).with("again", again)
}

async fn vary_star(audit: &Audit<'_>) -> Answer {
    let case = audit.case("vary-star", |request| {
        Page::of(request).cache_control("max-age=60").field(VARY, "*").after(SHORT_LOAD)
    });
    let path = case.path("page");
    let mut requests = join_all((0..30).map(|_| audit.users.get(&path))).await;
    for _ in 0..10 {
        requests.push(audit.users.get(&path).await);
    }
    let (mut tally, mut seen) = (Tally::default(), BTreeSet::new());
    for request in &requests {
        let is_repeated = request.load().is_some_and(|load| !seen.insert(load));
        tally.add(audit, request, is_repeated.then_some((Violation::WrongVariant, MATCH)));
    }
    tally
        .answer(
            "requests got a page that was loaded for another request.",
            Mark::Best,
            "Each request reached the origin.",
        )
        .with("loads", case.loads())
}

async fn many(audit: &Audit<'_>) -> Answer {
    const VARIANTS: usize = 200;
    let case = audit.case("many-variants", |request| by_language(request).cache_control("max-age=60"));
    let path = case.path("page");
    let ask =
        |number: usize| audit.users.ask(&path).field("accept-language", &format!("x-{number:03}")).send();
    let mut requests = Vec::new();
    for number in 0..VARIANTS {
        requests.push(ask(number).await);
    }
    let before = case.loads();
    for start in (0..VARIANTS).step_by(50) {
        requests.extend(join_all((start..start + 50).map(ask)).await);
    }
    let kept = VARIANTS.saturating_sub(case.loads() - before);
    let mark = match kept {
        VARIANTS => Mark::Best,
        kept if kept * 2 >= VARIANTS => Mark::Good,
        _ => Mark::Weak,
    };
    let text = format!("Each request got its variant; {kept} of {VARIANTS} variants were stored.");
    languages(audit, &requests).answer("requests got another variant.", mark, &text).with("kept", kept)
}

async fn vary_appears(audit: &Audit<'_>) -> Answer {
    let case = audit.case("vary-appears", |request| match request.nth {
        0 => Page::of(request).cache_control("max-age=1"),
        _ => by_language(request).cache_control("max-age=60").after(2 * SHORT_LOAD),
    });
    audit.users.get(&case.path("page")).await;
    audit.users.wait(EXPIRY).await;
    let mut requests = speakers(audit, &case, 40).await;
    // A cache may load it in the background.
    audit.users.wait(5 * SHORT_LOAD).await;
    requests.extend(speakers(audit, &case, 10).await);
    let old = requests.iter().filter(|request| request.load() == Some(0)).count();
    let text = match old {
        0 => "Each request got its language.".to_owned(),
        old => {
            format!(
                "{old} of {} requests got the old page, and no request got another language.",
                requests.len()
            )
        }
    };
    languages(audit, &requests)
        .answer(OTHERS, Mark::Best, &text)
        .with("loads", case.loads())
        .with("old_pages", old)
}

/// Requests at once, which have the two languages by turns.
async fn speakers(audit: &Audit<'_>, case: &Case, users: usize) -> Vec<UserRequest> {
    let path = case.path("page");
    let requests = (0..users).map(|user| {
        audit.users.ask(&path).field("accept-language", LANGUAGES[user % LANGUAGES.len()]).send()
    });
    join_all(requests).await
}

/// Counts the pages of other languages than that of their request.
fn languages(audit: &Audit<'_>, requests: &[UserRequest]) -> Tally {
    let mut tally = Tally::default();
    for request in requests {
        let is_other = request
            .page()
            .is_ok_and(|page| !page.variant.is_empty() && page.variant != language_in(&request.headers));
        tally.add(audit, request, is_other.then_some((Violation::WrongVariant, MATCH)));
    }
    tally
}

/// The page in the language of the request.
pub(super) fn by_language(request: &OriginRequest) -> Page {
    Page::of(request).field(VARY, ACCEPT_LANGUAGE.as_str()).variant(language_in(&request.headers))
}

fn language_in(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The fault of an answer that has to be a whole page.
pub(super) fn fault_of_whole(request: &UserRequest) -> Option<(Violation, &'static str)> {
    match (request.status()?, request.page()) {
        (206, _) => Some((Violation::WrongStatus, "RFC 9110, 15.3.7")),
        (304, _) => Some((Violation::WrongStatus, "RFC 9110, 15.4.5")),
        (416, _) => Some((Violation::WrongStatus, "RFC 9110, 15.5.17")),
        (200, Err(BodyFault::Truncated { .. })) => Some((Violation::Truncated, "RFC 9112, 8")),
        (200, Err(_)) => Some((Violation::WrongBody, "RFC 9111, 4")),
        _ => None,
    }
}
