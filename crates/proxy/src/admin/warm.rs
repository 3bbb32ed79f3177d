//! URLs that are asked for before anybody wants them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Uri;
use serde_json::{Value, json};
use stockade_model::time::{Live, Runtime, before};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{Control, purge};

/// How many URLs a list has at most.
const URLS_MAX: usize = 10_000;
/// How many are asked for at once.
const AT_ONCE: usize = 8;
/// How long one may take.
const TAKES_MAX: Duration = Duration::from_mins(1);
/// How often it is told how far it is.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How many of those that failed are named.
const NAMED_MAX: usize = 20;

/// What came of asking for a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warmed {
    /// Its answer is stored.
    Stored,
    /// It has an answer that is not stored, with this status.
    NotStored(u16),
    /// It has no answer, and why.
    Failed(String),
}

/// Reads a list, one URL a line; empty lines and those that begin with `#` are none. Else says in which line there is
/// what is no URL.
pub(super) fn list(text: &str) -> Result<Vec<Uri>, String> {
    let lines = text.lines().map(str::trim).enumerate();
    let urls = lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| purge::url(line).map_err(|message| format!("line {}: {message}", number + 1)));
    let urls = urls.take(URLS_MAX + 1).collect::<Result<Vec<_>, _>>()?;
    if urls.len() > URLS_MAX { Err("a list has 10,000 URLs at most".to_owned()) } else { Ok(urls) }
}

/// How far it is.
#[derive(Debug, Default)]
struct Progress {
    of: usize,
    stored: usize,
    not_stored: usize,
    failed: usize,
    /// Some of those that are not stored.
    named: Vec<Value>,
}

impl Progress {
    fn add(&mut self, url: &Uri, warmed: Warmed) {
        let why = match warmed {
            Warmed::Stored => {
                self.stored += 1;
                return;
            }
            Warmed::NotStored(status) => {
                self.not_stored += 1;
                json!({ "url": url.to_string(), "status": status })
            }
            Warmed::Failed(why) => {
                self.failed += 1;
                json!({ "url": url.to_string(), "error": why })
            }
        };
        if self.named.len() < NAMED_MAX {
            self.named.push(why);
        }
    }

    fn line(&self, is_done: bool) -> Bytes {
        let Self { of, stored, not_stored, failed, named } = self;
        let done = stored + not_stored + failed;
        let mut line = json!({
            "done": done, "of": of, "stored": stored, "not_stored": not_stored, "failed": failed,
        });
        if is_done && !named.is_empty() {
            line["not_stored_or_failed"] = named.as_slice().into();
        }
        Bytes::from(format!("{line}\n"))
    }
}

/// Asks for all of them, eight at a time, and tells how far it is: a line of JSON a second, and the last one says what
/// failed. Ends when nobody listens any more.
pub(super) async fn run<C: Control>(
    control: Arc<C>,
    urls: Vec<Uri>,
    time: Live,
    told: mpsc::Sender<Bytes>,
    _alone: OwnedSemaphorePermit,
) {
    let mut progress = Progress { of: urls.len(), ..Progress::default() };
    let ask = |url: Uri| {
        let (control, time) = (&control, &time);
        async move {
            let warmed = before(time, time.now() + TAKES_MAX, control.warm(url.clone())).await;
            (url, warmed.unwrap_or_else(|| Warmed::Failed("it takes longer than a minute".to_owned())))
        }
    };
    let mut answers = stream::iter(urls).map(ask).buffer_unordered(AT_ONCE);
    let mut tell_at = time.now() + TELL_EVERY;
    loop {
        let next = before(&time, tell_at, answers.next());
        let next = tokio::select! {
            () = told.closed() => return,
            next = next => next,
        };
        match next {
            Some(Some((url, warmed))) => progress.add(&url, warmed),
            Some(None) => break,
            None => {
                // Who reads slowly is told less often.
                let _ = told.try_send(progress.line(false));
                tell_at = time.now() + TELL_EVERY;
            }
        }
    }
    let _ = told.send(progress.line(true)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_url_a_line() {
        let urls = list("# all\nhttp://h/a\r\n\n  https://h/b?c=d \n").expect("a list");
        assert_eq!(urls, ["http://h/a", "https://h/b?c=d"]);
        assert_eq!(
            list("http://h/\nnews"),
            Err("line 2: `news` is no URL: write http://HOST/PATH".to_owned())
        );
        let many = |count| "http://h/\n".repeat(count);
        assert_eq!(list(&many(10_000)).map(|urls| urls.len()), Ok(10_000));
        assert_eq!(list(&many(10_001)), Err("a list has 10,000 URLs at most".to_owned()));
    }
}
