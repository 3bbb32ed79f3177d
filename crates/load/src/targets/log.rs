//! Access logs and traces, for replay.
//!
//! ```text
//! LogReader (any format, one log or several) -> time and request -> requests, sorted by time
//! ```
//!
//! **Requests.** Paths are requested at a [`BaseUrl`]; of an absolute URL only the path is used, and its host where the hosts of
//! the log are sent ([`HostHeader::Logged`]). A key of a trace is a path. Logs have no bodies, so GET and HEAD are replayed and
//! other methods are [skipped](SkipReason) and counted, unless [`ReplayedMethods::All`] wants them without. So are lines without a request
//! (`-`, or the bytes of a TLS handshake) and bad lines. `User-Agent` and `Referer` are not replayed.
//!
//! **Times.** Servers log a request when it ends, so lines are sorted by time; equal times keep their order. If all times
//! are whole seconds, the k requests of a second are spread evenly over it: all at its start would be bursts that did not
//! happen, and random times would change the load from run to run. A log without any time has an order only.
//!
//! **Limits.** 20,000,000 lines and requests, and 1,000,000 different URLs. A request takes 16 bytes of memory (20 when it is
//! handed out), a URL about 300 and its path, and 150 more with a host.

mod request;

use std::{fmt, hash::BuildHasher, sync::Arc, time::Duration};

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use http::{HeaderMap, HeaderValue, Method, header, uri::Authority};
use rand::RngExt;
use stockade_logs::{LogSummary, LoggedRequest};
use stockade_model::{seed::Seed, units::format_count};

use super::TARGETS_MAX;
use crate::{template::RequestTemplate, traffic::RequestOrder, url::BaseUrl};
use request::ReplayRequest;

pub use stockade_logs::{BadLine, Format as LogFormat, Input as LogInput, LogError, LogReader};

/// The most lines, and the most requests, of a log.
pub const LINES_MAX: u32 = 20_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// The requests of a log, by time.
///
/// ```
/// use stockade_load::{targets::log::{AccessLog, HostHeader, LogReader}, url::BaseUrl};
///
/// let text = r#"ada - - [17/May/2015:10:05:04 +0000] "GET /b HTTP/1.1" 200 17
/// bob - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 -
/// eve - - [17/May/2015:10:05:03 +0000] "POST /a HTTP/1.1" 201 5
/// ada - - [17/May/2015:10:05:03 +0000] "GET /b HTTP/1.1" 200 17
/// "#;
/// let base: BaseUrl = "http://localhost:8080".parse()?;
/// let reader = LogReader::from_reader("access.log", text.as_bytes(), None)?;
/// let log = AccessLog::read(reader, &base, HostHeader::OfUrl)?.at_speed(2.0)?;
///
/// let due: Vec<_> = log.due_times().iter().map(|due| due.as_millis()).collect();
/// assert_eq!(due, [0, 250, 500]);
/// assert_eq!(log.templates().len(), 2);
/// assert_eq!(log.skipped().to_string(), "1 with a method other than GET and HEAD");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AccessLog {
    templates: Vec<RequestTemplate>,
    requests: Vec<ReplayedRequest>,
    skipped: SkippedLines,
    malformed: Vec<BadLine>,
    lines: u64,
    has_times: bool,
    without_host: u64,
}

/// The `Host` of the replayed requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// That of the base URL.
    #[default]
    OfUrl,
    /// That of the line, where it has one. Connections go to the base URL all the same.
    Logged,
}

impl HostHeader {
    /// For a switch: that of the line, or that of the base URL.
    #[must_use]
    pub const fn logged_if(is_wanted: bool) -> Self {
        if is_wanted { Self::Logged } else { Self::OfUrl }
    }
}

/// The methods that are replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayedMethods {
    /// GET and HEAD.
    #[default]
    Reads,
    /// All but CONNECT, without bodies: for an origin on which they have no effect.
    All,
}

/// The parts of a log to replay, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayOptions {
    /// The `Host` of the requests.
    pub hosts: HostHeader,
    /// Their methods.
    pub methods: ReplayedMethods,
}

impl From<HostHeader> for ReplayOptions {
    fn from(hosts: HostHeader) -> Self {
        Self { hosts, ..Self::default() }
    }
}

/// One request of a log.
#[derive(Clone, Copy, Debug)]
struct ReplayedRequest {
    /// Nanoseconds since 1970 while the log is read, then since the first request.
    at: u64,
    template_index: u32,
    /// The number of the request in the log.
    number: u32,
}

/// The time of a request without one, until the log has been read.
const NO_TIME: u64 = u64::MAX;

const _: () = assert!(size_of::<ReplayedRequest>() == 16);

/// Why a line is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// Neither GET nor HEAD: the log does not have the body.
    Method,
    /// The line has no request.
    NoRequest,
    /// The URL cannot be sent again: it has no path, or characters that the log has lost.
    Url,
    /// The request has no time, and others have one.
    Time,
    /// The line has another format, an impossible value, more than 64 KiB, or a time far from those of the lines around it.
    Malformed,
}

/// The lines that are not replayed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkippedLines([u64; SkipReason::ALL.len()]);

/// Why a log cannot be replayed with these options. The message names the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// It has no line.
    #[error("the log has no line: name one with requests")]
    Empty,
    /// It has no request that can be replayed.
    #[error("the log has no request that can be replayed: {0}")]
    NoRequest(SkippedLines),
    /// It has more than [`TARGETS_MAX`] URLs.
    #[error("the log has more than 1,000,000 different URLs: replay a part of it")]
    TooManyUrls,
    /// It has more than [`LINES_MAX`] requests, in fewer lines.
    #[error("the log has more than 20,000,000 requests: replay a part of it")]
    TooManyRequests,
    /// The hosts of the log are asked for, and it has none.
    #[error("the log has no hosts: send that of the URL, or a header `Host`")]
    NoHosts,
    /// The times of the log are asked for, and it has none.
    #[error(
        "the log has no times: state when its requests are due, by a rate, connections, a burst or a schedule"
    )]
    NoTimes,
    /// The speed is not above zero.
    #[error("`{0}` is not a speed: write a factor such as `2` or `0.5`")]
    Speed(f64),
    /// The share is not above 0 and at most 1.
    #[error("`{0}` is not a share of the requests: write more than 0 and at most 1, such as `0.1`")]
    Share(f64),
    /// The repeated log has more than [`LINES_MAX`] requests.
    #[error(
        "repeated for this time the log has more than 20,000,000 requests: write a shorter time, or a lower speed"
    )]
    TooManyRounds,
}

impl AccessLog {
    /// Reads a log to its end.
    pub fn read(
        reader: LogReader<'_>,
        base: &BaseUrl,
        options: impl Into<ReplayOptions>,
    ) -> Result<Self, ReplayError> {
        let mut builder = AccessLogBuilder::new(base, options.into());
        let summary =
            reader.with_lines_max(LINES_MAX.into()).try_for_each(|request| builder.add(&request))?;
        builder.finish(summary)
    }

    /// Each method, host and URL once, in the order of the lines.
    #[must_use]
    pub fn templates(&self) -> &[RequestTemplate] {
        &self.templates
    }

    /// The template of each request, by time.
    #[must_use]
    pub fn order(&self) -> RequestOrder {
        RequestOrder::Listed(self.requests.iter().map(|request| request.template_index).collect())
    }

    /// When each request is due after the first one, ascending; all zero if the log has no times.
    #[must_use]
    pub fn due_times(&self) -> Arc<[Duration]> {
        self.requests.iter().map(|request| Duration::from_nanos(request.at)).collect()
    }

    /// The same within `duration`; a shorter log repeats. The gap between two rounds is the mean gap between requests.
    pub fn due_times_within(&self, duration: Duration) -> Result<Arc<[Duration]>, ReplayError> {
        let gaps = u32::try_from(self.requests.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let gap = self.duration().checked_div(gaps).unwrap_or_default();
        // A log whose requests all have the same time does not repeat.
        let rounds = if gap.is_zero() { 1 } else { usize::MAX };
        if rounds > 1 && duration.as_nanos() / gap.as_nanos() > u128::from(LINES_MAX) {
            return Err(ReplayError::TooManyRounds);
        }
        let starts =
            std::iter::successors(Some(Duration::ZERO), |start| Some(*start + self.duration() + gap));
        let round = |start: Duration| {
            self.requests.iter().map(move |request| start + Duration::from_nanos(request.at))
        };
        Ok(starts.take(rounds).flat_map(round).take_while(|due| *due < duration).collect())
    }

    /// [`templates`](Self::templates), [`order`](Self::order) and [`due_times`](Self::due_times).
    #[must_use]
    pub fn into_parts(self) -> (Vec<RequestTemplate>, RequestOrder, Arc<[Duration]>) {
        let (order, due) = (self.order(), self.due_times());
        (self.templates, order, due)
    }

    /// The number of requests; 0 only where [`with_share`](Self::with_share) left none.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The number of lines read, skipped ones included.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The number of requests that have no host in the log, where the hosts of the log are sent.
    #[must_use]
    pub fn without_host(&self) -> u64 {
        self.without_host
    }

    /// Refuses a log that has an order only.
    pub fn with_times(self) -> Result<Self, ReplayError> {
        if self.has_times { Ok(self) } else { Err(ReplayError::NoTimes) }
    }

    /// When the last request is due.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.requests.last().map_or(Duration::ZERO, |last| Duration::from_nanos(last.at))
    }

    /// The lines that are not replayed.
    #[must_use]
    pub fn skipped(&self) -> &SkippedLines {
        &self.skipped
    }

    /// The errors of the first lines that are [malformed](SkipReason::Malformed), at most three.
    #[must_use]
    pub fn malformed(&self) -> &[BadLine] {
        &self.malformed
    }

    /// Divides all times by `speed`.
    pub fn at_speed(mut self, speed: f64) -> Result<Self, ReplayError> {
        if !(speed.is_finite() && speed > 0.0) {
            return Err(ReplayError::Speed(speed));
        }
        for request in &mut self.requests {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "not negative, and a float saturates"
            )]
            let at = (request.at as f64 / speed).round() as u64;
            request.at = at;
        }
        Ok(self)
    }

    /// Keeps a random share of the requests. A larger share of the same seed includes a smaller one.
    ///
    /// It is a share of requests, not of URLs: each URL repeats less often, so the hit ratio of a cache is lower.
    pub fn with_share(mut self, share: f64, seed: Seed) -> Result<Self, ReplayError> {
        if !(share > 0.0 && share <= 1.0) {
            return Err(ReplayError::Share(share));
        }
        self.requests.retain(|request| seed.nth(request.number.into()).random::<f64>() < share);
        Ok(self)
    }
}

/// A log while it is read.
struct AccessLogBuilder<'a> {
    base: &'a BaseUrl,
    options: ReplayOptions,
    templates: Vec<RequestTemplate>,
    /// Indices of `templates`, by method, host and path.
    known: HashTable<u32>,
    requests: Vec<ReplayedRequest>,
    skipped: SkippedLines,
    without_host: u64,
    /// Requests of the log so far.
    count: u32,
}

impl<'a> AccessLogBuilder<'a> {
    fn new(base: &'a BaseUrl, options: ReplayOptions) -> Self {
        Self {
            base,
            options,
            templates: Vec::new(),
            known: HashTable::new(),
            requests: Vec::new(),
            skipped: SkippedLines::default(),
            without_host: 0,
            count: 0,
        }
    }

    fn add(&mut self, logged: &LoggedRequest<'_>) -> Result<(), ReplayError> {
        let first = self.count;
        self.count = first.saturating_add(logged.repeats);
        if self.count > LINES_MAX {
            return Err(ReplayError::TooManyRequests);
        }
        let repeats = u64::from(logged.repeats);
        let is_host_sent = self.options.hosts == HostHeader::Logged;
        let request = match ReplayRequest::of(logged, self.options.methods) {
            Ok(request) if is_host_sent => request,
            Ok(request) => ReplayRequest { host: None, ..request },
            Err(reason) => {
                self.skipped.0[reason as usize] += repeats;
                return Ok(());
            }
        };
        match self.template_index(&request)? {
            Some(template_index) => {
                let lacks_host = is_host_sent && request.host.is_none();
                self.without_host += if lacks_host { repeats } else { 0 };
                let at = logged.at_ns.unwrap_or(NO_TIME);
                let request = |number| ReplayedRequest { at, template_index, number };
                self.requests.extend((first..self.count).map(request));
            }
            None => self.skipped.0[SkipReason::Url as usize] += repeats,
        }
        Ok(())
    }

    /// The template of a request, a new one if it is the first of its kind; none if its URL cannot be sent.
    fn template_index(&mut self, request: &ReplayRequest<'_>) -> Result<Option<u32>, ReplayError> {
        let (templates, prefix) = (&self.templates, self.base.prefix().len());
        let parts = |index: u32| {
            let template = &templates[index as usize];
            let host = template.headers.get(header::HOST).and_then(|host| host.to_str().ok());
            (&template.method, host, &template.path()[prefix..])
        };
        let key = (&request.method, request.host.as_deref(), &*request.path);
        let hash = hash(key);
        if let Some(index) = self.known.find(hash, |index| parts(*index) == key) {
            return Ok(Some(*index));
        }
        let Ok(url) = self.base.url(&request.path) else { return Ok(None) };
        let mut headers = HeaderMap::new();
        if let Some(host) = request.host.as_deref() {
            let is_host = host.parse::<Authority>().is_ok() && !host.contains('@');
            let Some(host) = HeaderValue::from_str(host).ok().filter(|_| is_host) else { return Ok(None) };
            // A larger map would take more memory than the rest of the template.
            headers = HeaderMap::with_capacity(1);
            headers.insert(header::HOST, host);
        }
        if self.templates.len() == TARGETS_MAX {
            return Err(ReplayError::TooManyUrls);
        }
        let index = u32::try_from(self.templates.len()).unwrap_or(u32::MAX);
        self.known.insert_unique(hash, index, |index| self::hash(parts(*index)));
        self.templates.push(RequestTemplate { headers, ..RequestTemplate::new(request.method.clone(), url) });
        Ok(Some(index))
    }

    /// Sorts the requests, and counts their times from the first.
    fn finish(self, summary: LogSummary) -> Result<AccessLog, ReplayError> {
        let Self { options, templates, mut requests, mut skipped, without_host, .. } = self;
        let LogSummary { lines, without_request, bad_lines, first_bad: malformed, .. } = summary;
        skipped.0[SkipReason::NoRequest as usize] += without_request;
        skipped.0[SkipReason::Malformed as usize] += bad_lines;
        if options.hosts == HostHeader::Logged
            && !requests.is_empty()
            && without_host == requests.len() as u64
        {
            return Err(ReplayError::NoHosts);
        }
        let has_times = requests.iter().any(|request| request.at != NO_TIME);
        if has_times {
            let all = requests.len();
            requests.retain(|request| request.at != NO_TIME);
            skipped.0[SkipReason::Time as usize] += (all - requests.len()) as u64;
        }
        // Unique keys make this sort stable, without the memory of a stable sort.
        requests.sort_unstable_by_key(|request| (request.at, request.number));
        let first_at = match requests.first() {
            Some(first) => first.at,
            None if skipped.total() == 0 => return Err(ReplayError::Empty),
            None => return Err(ReplayError::NoRequest(skipped)),
        };
        if has_times && requests.iter().all(|request| request.at.is_multiple_of(SECOND_NS)) {
            for second in requests.chunk_by_mut(|one, next| one.at == next.at) {
                let count = second.len() as u64;
                second.iter_mut().zip(0..).for_each(|(request, n)| request.at += n * SECOND_NS / count);
            }
        }
        requests.iter_mut().for_each(|request| request.at -= first_at);
        requests.shrink_to_fit();
        Ok(AccessLog { templates, requests, skipped, malformed, lines, has_times, without_host })
    }
}

/// The same in every run.
fn hash(request: (&Method, Option<&str>, &str)) -> u64 {
    FixedState::with_seed(0).hash_one(request)
}

impl SkipReason {
    /// Every reason.
    pub const ALL: [Self; 5] = [Self::Method, Self::NoRequest, Self::Url, Self::Time, Self::Malformed];

    /// A short description.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Method => "with a method other than GET and HEAD",
            Self::NoRequest => "without a request",
            Self::Url => "with a URL that cannot be sent",
            Self::Time => "without a time",
            Self::Malformed => "in another format",
        }
    }
}

impl SkippedLines {
    /// Lines skipped for this reason.
    #[must_use]
    pub fn count(&self, reason: SkipReason) -> u64 {
        self.0[reason as usize]
    }

    /// All skipped lines.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// `12 with a method other than GET and HEAD, 3 without a request`, or `none`.
impl fmt::Display for SkippedLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count =
            |reason: SkipReason| (self.count(reason) > 0).then_some((self.count(reason), reason.text()));
        let texts: Vec<_> = SkipReason::ALL
            .into_iter()
            .filter_map(count)
            .map(|(count, text)| format!("{} {text}", format_count(count)))
            .collect();
        f.write_str(if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }.as_str())
    }
}

#[cfg(test)]
mod tests;
