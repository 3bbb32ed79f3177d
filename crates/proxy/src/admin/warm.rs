//! Cache warming: fetches a list of URLs ahead of client requests.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Uri;
use serde_json::{Value, json};
use stockade_model::time::{Live, Runtime, before};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{Control, purge};

const URLS_MAX: usize = 10_000;
const CONCURRENCY: usize = 8;
/// Timeout of one URL.
const FETCH_TIMEOUT: Duration = Duration::from_mins(1);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of failed URLs in the last line.
const FAILURES_LISTED_MAX: usize = 20;

/// The result of warming one URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WarmOutcome {
    Stored,
    /// The response had this status and was not storable.
    NotStored(u16),
    /// There was no response; the text is the error.
    Failed(String),
}

/// Parses a list with one URL per line; empty lines and `#` comments are skipped. The error names the line.
pub(super) fn list(text: &str) -> Result<Vec<Uri>, String> {
    let lines = text.lines().map(str::trim).enumerate();
    let urls = lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| purge::url(line).map_err(|message| format!("line {}: {message}", number + 1)));
    let urls = urls.take(URLS_MAX + 1).collect::<Result<Vec<_>, _>>()?;
    if urls.len() > URLS_MAX { Err("a list has 10,000 URLs at most".to_owned()) } else { Ok(urls) }
}

#[derive(Debug, Default)]
struct WarmProgress {
    of: usize,
    stored: usize,
    not_stored: usize,
    failed: usize,
    /// The first URLs that were not stored, with the reason.
    named: Vec<Value>,
}

impl WarmProgress {
    fn add(&mut self, url: &Uri, warmed: WarmOutcome) {
        let why = match warmed {
            WarmOutcome::Stored => {
                self.stored += 1;
                return;
            }
            WarmOutcome::NotStored(status) => {
                self.not_stored += 1;
                json!({ "url": url.to_string(), "status": status })
            }
            WarmOutcome::Failed(why) => {
                self.failed += 1;
                json!({ "url": url.to_string(), "error": why })
            }
        };
        if self.named.len() < FAILURES_LISTED_MAX {
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

/// Fetches all URLs, eight at a time. Sends a JSON line with the progress each second, and a last line that lists
/// failures. Stops when the receiver is dropped.
pub(super) async fn run<C: Control>(
    control: Arc<C>,
    urls: Vec<Uri>,
    time: Live,
    lines: mpsc::Sender<Bytes>,
    _permit: OwnedSemaphorePermit,
) {
    let mut progress = WarmProgress { of: urls.len(), ..WarmProgress::default() };
    let fetch = |url: Uri| {
        let (control, time) = (&control, &time);
        async move {
            let warmed = before(time, time.now() + FETCH_TIMEOUT, control.warm(url.clone())).await;
            (url, warmed.unwrap_or_else(|| WarmOutcome::Failed("it takes longer than a minute".to_owned())))
        }
    };
    let mut outcomes = stream::iter(urls).map(fetch).buffer_unordered(CONCURRENCY);
    let mut report_at = time.now() + PROGRESS_INTERVAL;
    loop {
        let next = before(&time, report_at, outcomes.next());
        let next = tokio::select! {
            () = lines.closed() => return,
            next = next => next,
        };
        match next {
            Some(Some((url, warmed))) => progress.add(&url, warmed),
            Some(None) => break,
            None => {
                // A full channel means a slow client: skip this line.
                let _ = lines.try_send(progress.line(false));
                report_at = time.now() + PROGRESS_INTERVAL;
            }
        }
    }
    let _ = lines.send(progress.line(true)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_one_url_per_line() {
        let urls = list("# all\nhttp://h/a\r\n\n  https://h/b?c=d \n").expect("a list");
        assert_eq!(urls, ["http://h/a", "https://h/b?c=d"]);
        assert_eq!(
            list("http://h/\nnews"),
            Err("line 2: `news` is not a URL: write http://HOST/PATH".to_owned())
        );
        let many = |count| "http://h/\n".repeat(count);
        assert_eq!(list(&many(10_000)).map(|urls| urls.len()), Ok(10_000));
        assert_eq!(list(&many(10_001)), Err("a list has 10,000 URLs at most".to_owned()));
    }
}
