//! The server is restarted, or reloads its configuration, while users ask.

use std::{sync::Arc, time::Duration};

use futures_util::future::join;
use stockade_model::units::format_duration;

use super::failures::Failures;
use crate::{
    answer::{Answer, Mark},
    case::Case,
    page::Page,
    questions::{Needs, Question},
    setup::Audit,
    users::UserRequest,
};

pub(super) const QUESTIONS: &[Question] = &[
    Question::new(
        "restart.reload",
        "The configuration is reloaded while users ask for 20 stored pages",
        |audit| Box::pin(reload(audit)),
    )
    .needs(Needs::Reload),
    Question::new(
        "restart.restart",
        "The server is restarted while users ask for 20 stored pages",
        |audit| Box::pin(restart(audit)),
    )
    .needs(Needs::Server),
];

const PAGES: usize = 20;
const PAUSE: Duration = Duration::from_millis(10);
/// After the change, for a server that follows it a moment later.
const AFTERWARDS: Duration = Duration::from_secs(1);

async fn reload(audit: &Audit<'_>) -> Answer {
    let pages = stored(audit, "reload").await;
    let change = async {
        audit.users.wait(AFTERWARDS / 2).await;
        let result = audit.control.reload().await;
        audit.users.wait(AFTERWARDS).await;
        result
    };
    let (requests, result) = asked_during(audit, &pages.case, change).await;
    if let Err(error) = result {
        return Answer::new(Mark::Unknown, format!("The configuration was not read again: {error}."));
    }
    let kept = kept(audit, &pages).await;
    let failed: Vec<_> = requests.iter().filter(|request| !request.is_ok()).collect();
    let mark = match (failed.len(), kept) {
        (0, PAGES) => Mark::Best,
        (0, 1..) => Mark::Good,
        _ => Mark::Weak,
    };
    let answer = Answer::new(mark, format!("{} {}", failures(&requests), kept_pages(kept)));
    answer.with("requests", requests.len()).with("failed", failed.len()).with("kept", kept)
}

async fn restart(audit: &Audit<'_>) -> Answer {
    let pages = stored(audit, "restart").await;
    let change = async {
        audit.users.wait(AFTERWARDS / 2).await;
        let result = audit.control.restart().await;
        audit.users.wait(AFTERWARDS / 2).await;
        result
    };
    let (requests, result) = asked_during(audit, &pages.case, change).await;
    if let Err(error) = result {
        return Answer::new(Mark::Unknown, format!("The server did not start again: {error}."));
    }
    let kept = kept(audit, &pages).await;
    let failed: Vec<_> = requests.iter().filter(|request| !request.is_ok()).collect();
    // A process that inherits the sockets of the one before it would refuse no connection.
    let mark = match (failed.len(), kept) {
        (0, PAGES) => Mark::Best,
        (_, PAGES) => Mark::Good,
        _ => Mark::Weak,
    };
    let away = failed.first().zip(failed.last()).map(|(first, last)| last.ended() - first.sent);
    let away =
        away.map_or_else(String::new, |time| format!(" Users had errors for {}.", format_duration(time)));
    let text = format!("{}{away} {}", failures(&requests), kept_pages(kept));
    Answer::new(mark, text).with("requests", requests.len()).with("failed", failed.len()).with("kept", kept)
}

/// Pages in the store, and the load that each has.
struct StoredPages {
    case: Arc<Case>,
    loads: Vec<Option<usize>>,
}

async fn stored(audit: &Audit<'_>, name: &str) -> StoredPages {
    let case = audit.case(name, |request| Page::of(request).cache_control("max-age=600"));
    let mut loads = Vec::new();
    for page in 0..PAGES {
        loads.push(audit.users.get(&case.path(&page.to_string())).await.load());
    }
    StoredPages { case, loads }
}

/// Requests one after another until a change has ended.
async fn asked_during<T>(
    audit: &Audit<'_>,
    case: &Case,
    change: impl Future<Output = T>,
) -> (Vec<UserRequest>, T) {
    let is_over = std::cell::Cell::new(false);
    let asked = async {
        let mut requests = Vec::new();
        while !is_over.get() {
            let path = case.path(&(requests.len() % PAGES).to_string());
            requests.push(audit.users.get(&path).await);
            audit.users.wait(PAUSE).await;
        }
        requests
    };
    let change = async {
        let output = change.await;
        is_over.set(true);
        output
    };
    join(asked, change).await
}

/// The number of pages that are still served from the store.
async fn kept(audit: &Audit<'_>, StoredPages { case, loads }: &StoredPages) -> usize {
    let mut kept = 0;
    for (page, load) in loads.iter().enumerate() {
        let request = audit.users.get(&case.path(&page.to_string())).await;
        kept += usize::from(load.is_some() && request.load() == *load);
    }
    kept
}

fn failures(requests: &[UserRequest]) -> String {
    let failures = Failures::of(requests);
    if failures.some() {
        failures.sentence()
    } else {
        format!("All {} requests were answered.", failures.requests)
    }
}

fn kept_pages(kept: usize) -> String {
    match kept {
        PAGES => "All pages were still stored afterwards.".to_owned(),
        0 => "Afterwards each page was loaded again.".to_owned(),
        kept => format!("Afterwards {kept} of {PAGES} pages were still stored."),
    }
}
