//! Access logs, for replay.
//!
//! ```text
//! file, plain or gzip -> lines -> time and request (common or json) -> requests, sorted by time
//! ```
//!
//! **Formats.** The Common Log Format, formats that start like it (Combined, Traefik's), and JSON [lines](JSON_FIELDS). A
//! line that starts with `{` is JSON. The words before a line's time are ignored, so a virtual host may precede the client.
//!
//! **Requests.** Paths are requested at a [`BaseUrl`]; of an absolute URL only the path is used. Logs have no bodies, so GET
//! and HEAD are replayed and other methods are [skipped](SkipReason) and counted. So are lines without a request (`-`, or
//! the bytes of a TLS handshake) and lines in another format, up to [`MALFORMED_PERCENT_MAX`]. `User-Agent` and `Referer`
//! are not replayed.
//!
//! **Times.** Servers log a request when it ends, so lines are sorted by time; equal times keep their order. If all times
//! are whole seconds, the k requests of a second are spread evenly over it: all at its start would be bursts that did not
//! happen, and random times would change the load from run to run.
//!
//! **Limits.** 20,000,000 lines of 64 KiB, and 1,000,000 different URLs. A request takes 16 bytes of memory (20 when it is
//! handed out), a URL about 300 and its path.

mod request;

use std::{borrow::Cow, fmt, hash::BuildHasher, io::Read, path::Path, sync::Arc, time::Duration};

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use http::Method;
use rand::RngExt;
use stockade_logs::{
    common::{self, CommonLine, unescape},
    input::{InputReader, Line},
    json::{self, JsonLine, JsonRequest},
    time::TimeParser,
};
use stockade_model::{seed::Seed, units::format_count};

use super::{LineError, TARGETS_MAX, TargetFileError, file_error, open_file};
use crate::{template::RequestTemplate, traffic::RequestOrder, url::BaseUrl};
use request::ReplayRequest;

pub use stockade_logs::json::JSON_FIELDS;

/// The most lines of a log.
pub const LINES_MAX: u32 = 20_000_000;

/// The most lines in another format, in percent of all lines that are not blank. A log with more is refused.
pub const MALFORMED_PERCENT_MAX: u64 = 10;

/// The most lines in another format of which the errors are stored.
const MALFORMED_ERRORS_MAX: usize = 3;

const SECOND_NS: u64 = 1_000_000_000;

/// The requests of a log, by time.
///
/// ```
/// use stockade_load::{url::BaseUrl, targets::log::AccessLog};
///
/// let text = r#"ada - - [17/May/2015:10:05:04 +0000] "GET /b HTTP/1.1" 200 17
/// bob - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 -
/// eve - - [17/May/2015:10:05:03 +0000] "POST /a HTTP/1.1" 201 5
/// ada - - [17/May/2015:10:05:03 +0000] "GET /b HTTP/1.1" 200 17
/// "#;
/// let base: BaseUrl = "http://localhost:8080".parse()?;
/// let log = AccessLog::read("access.log", text.as_bytes(), &base)?.at_speed(2.0)?;
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
    malformed: Vec<TargetFileError>,
    lines: u32,
}

/// One request of a log.
#[derive(Clone, Copy, Debug)]
struct ReplayedRequest {
    /// Nanoseconds since 1970 while the log is read, then since the first request.
    at: u64,
    template_index: u32,
    line: u32,
}

const _: () = assert!(size_of::<ReplayedRequest>() == 16);

/// The time of a line in nanoseconds since 1970, and its request.
type ParsedLine<'a> = (u64, Result<ReplayRequest<'a>, SkipReason>);

/// Why a line is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// Neither GET nor HEAD: the log does not have the body.
    Method,
    /// The line has no request.
    NoRequest,
    /// The URL cannot be sent again: it has no path, or characters that the log has lost.
    Url,
    /// The line has another format.
    Malformed,
}

/// The lines that are not replayed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkippedLines([u64; SkipReason::ALL.len()]);

/// Why a log cannot be replayed with these options. The message names the remedy.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ReplayError {
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
    TooMany,
}

impl AccessLog {
    /// Reads a file.
    pub fn open(path: &Path, base: &BaseUrl) -> Result<Self, TargetFileError> {
        let name = path.display().to_string();
        let file = open_file(path).map_err(|message| file_error(&name, message))?;
        Self::read(&name, file, base)
    }

    /// Reads a log, plain or gzip. `name` is for errors.
    pub fn read(name: &str, from: impl Read, base: &BaseUrl) -> Result<Self, TargetFileError> {
        let mut lines = InputReader::new(from).map_err(|error| LineError::from(error).in_file(name))?;
        let mut builder = AccessLogBuilder::new(base);
        builder.read(&mut lines).map_err(|error| error.in_file(name))?;
        builder.check_malformed().map_err(|error| error.in_file(name))?;
        let log = builder.finish(name, lines.count().try_into().unwrap_or(LINES_MAX));
        if log.requests.is_empty() {
            let reason = if log.skipped.total() == 0 {
                "there is no line in it: name a log with requests".to_owned()
            } else {
                format!("there is no request in it that can be replayed: {}", log.skipped)
            };
            return Err(file_error(name, reason));
        }
        Ok(log)
    }

    /// Each method and URL once, in the order of the lines.
    #[must_use]
    pub fn templates(&self) -> &[RequestTemplate] {
        &self.templates
    }

    /// The template of each request, by time.
    #[must_use]
    pub fn order(&self) -> RequestOrder {
        RequestOrder::Listed(self.requests.iter().map(|request| request.template_index).collect())
    }

    /// When each request is due after the first one, ascending.
    #[must_use]
    pub fn due_times(&self) -> Arc<[Duration]> {
        self.requests.iter().map(|request| Duration::from_nanos(request.at)).collect()
    }

    /// The same within `duration`; a shorter log repeats. The gap between two rounds is the mean gap between requests.
    pub fn due_times_for(&self, duration: Duration) -> Result<Arc<[Duration]>, ReplayError> {
        let gaps = u32::try_from(self.requests.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let gap = self.duration().checked_div(gaps).unwrap_or_default();
        // A log whose requests all have the same time does not repeat.
        let rounds = if gap.is_zero() { 1 } else { usize::MAX };
        if rounds > 1 && duration.as_nanos() / gap.as_nanos() > u128::from(LINES_MAX) {
            return Err(ReplayError::TooMany);
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
    pub fn lines(&self) -> u32 {
        self.lines
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
    pub fn malformed(&self) -> &[TargetFileError] {
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
        self.requests.retain(|request| seed.nth(request.line.into()).random::<f64>() < share);
        Ok(self)
    }
}

/// A log while it is read.
struct AccessLogBuilder<'a> {
    base: &'a BaseUrl,
    templates: Vec<RequestTemplate>,
    /// Indices of `templates`, by method and path.
    known: HashTable<u32>,
    requests: Vec<ReplayedRequest>,
    skipped: SkippedLines,
    /// The first errors.
    malformed: Vec<LineError>,
}

impl<'a> AccessLogBuilder<'a> {
    fn new(base: &'a BaseUrl) -> Self {
        Self {
            base,
            templates: Vec::new(),
            known: HashTable::new(),
            requests: Vec::new(),
            skipped: SkippedLines::default(),
            malformed: Vec::new(),
        }
    }

    fn read(&mut self, lines: &mut InputReader<'_>) -> Result<(), LineError> {
        let mut times = TimeParser::default();
        while let Some(line) = lines.next_line()? {
            let (number, text) = checked(line)?;
            let text = String::from_utf8_lossy(text);
            let text = text.trim();
            if text.is_empty() {
                continue;
            }
            let error = |message: String| LineError::new(number.into(), message);
            let parsed = if text.starts_with('{') {
                parse_json(text, &mut times)
            } else {
                parse_common(text, &mut times)
            };
            let (at, request) = match parsed {
                Ok(parsed) => parsed,
                Err(message) => {
                    self.skipped.0[SkipReason::Malformed as usize] += 1;
                    if self.malformed.len() < MALFORMED_ERRORS_MAX {
                        self.malformed.push(error(message));
                    }
                    continue;
                }
            };
            let index = |request| self.template_index(&request).transpose().ok_or(SkipReason::Url);
            match request.and_then(index) {
                Ok(index) => {
                    let template_index = index.map_err(error)?;
                    self.requests.push(ReplayedRequest { at, template_index, line: number });
                }
                Err(reason) => self.skipped.0[reason as usize] += 1,
            }
        }
        Ok(())
    }

    /// Refuses a log with too many lines in another format.
    fn check_malformed(&self) -> Result<(), LineError> {
        let malformed = self.skipped.count(SkipReason::Malformed);
        let lines = self.requests.len() as u64 + self.skipped.total();
        match self.malformed.first() {
            Some(LineError { line, message }) if malformed * 100 > lines * MALFORMED_PERCENT_MAX => {
                let share = format!(
                    "{} of {} lines have another format, more than {MALFORMED_PERCENT_MAX} %",
                    format_count(malformed),
                    format_count(lines)
                );
                Err(LineError::new(*line, format!("{message}; {share}")))
            }
            _ => Ok(()),
        }
    }

    /// The template of a request, a new one if it is the first of its kind; none if its URL cannot be sent.
    fn template_index(&mut self, request: &ReplayRequest<'_>) -> Result<Option<u32>, String> {
        let (templates, prefix) = (&self.templates, self.base.prefix().len());
        let parts = |index: u32| {
            let template = &templates[index as usize];
            let path = template.url.path_and_query().map_or("", |path| path.as_str());
            (template.method == Method::HEAD, &path[prefix..])
        };
        let key = (request.is_head, &*request.path);
        let hash = hash(key);
        if let Some(index) = self.known.find(hash, |index| parts(*index) == key) {
            return Ok(Some(*index));
        }
        let Ok(url) = self.base.url(&request.path) else { return Ok(None) };
        if self.templates.len() == TARGETS_MAX {
            return Err("there are more than 1,000,000 different URLs: replay a part of the log".to_owned());
        }
        let index = u32::try_from(self.templates.len()).unwrap_or(u32::MAX);
        self.known.insert_unique(hash, index, |index| self::hash(parts(*index)));
        let method = if request.is_head { Method::HEAD } else { Method::GET };
        self.templates.push(RequestTemplate::new(method, url));
        Ok(Some(index))
    }

    /// Sorts the requests, and counts their times from the first.
    fn finish(self, name: &str, lines: u32) -> AccessLog {
        let Self { templates, mut requests, skipped, malformed, .. } = self;
        // Unique keys make this sort stable, without the memory of a stable sort.
        requests.sort_unstable_by_key(|request| (request.at, request.line));
        if requests.iter().all(|request| request.at.is_multiple_of(SECOND_NS)) {
            for second in requests.chunk_by_mut(|one, next| one.at == next.at) {
                let count = second.len() as u64;
                second.iter_mut().zip(0..).for_each(|(request, n)| request.at += n * SECOND_NS / count);
            }
        }
        let first = requests.first().map_or(0, |first| first.at);
        requests.iter_mut().for_each(|request| request.at -= first);
        requests.shrink_to_fit();
        let malformed = malformed.into_iter().map(|error| error.in_file(name)).collect();
        AccessLog { templates, requests, skipped, malformed, lines }
    }
}

/// The number and the text of a line within the limits.
fn checked(line: Line<'_>) -> Result<(u32, &[u8]), LineError> {
    let error = |message: &str| Err(LineError::new(line.number, message));
    let Some(text) = line.text else { return error("the line has more than 64 KiB: leave it out") };
    match u32::try_from(line.number) {
        Ok(number) if number <= LINES_MAX => Ok((number, text)),
        _ => error("there are more than 20,000,000 lines: replay a part of the log, such as its first hour"),
    }
}

fn parse_common<'a>(line: &'a str, times: &mut TimeParser) -> Result<ParsedLine<'a>, String> {
    let line = CommonLine::parse(line.as_bytes(), times).map_err(common::explained)?;
    let request = match unescape(line.request) {
        Cow::Borrowed(request) => ReplayRequest::parse(request),
        Cow::Owned(request) => ReplayRequest::parse(&request).map(ReplayRequest::into_owned),
    };
    Ok((line.at_ns, request))
}

fn parse_json(line: &str, times: &mut TimeParser) -> Result<ParsedLine<'static>, String> {
    let line = JsonLine::parse(line)?;
    let at = line.at_ns(times)?.ok_or_else(json::missing_time)?;
    let request = match line.request()? {
        JsonRequest::Line(request) => ReplayRequest::parse(request),
        JsonRequest::Parts(method, url) => ReplayRequest::from_parts(method, url),
    };
    Ok((at, request.map(ReplayRequest::into_owned)))
}

/// The same in every run.
fn hash(request: (bool, &str)) -> u64 {
    FixedState::with_seed(0).hash_one(request)
}

impl SkipReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Method, Self::NoRequest, Self::Url, Self::Malformed];

    /// A short description.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Method => "with a method other than GET and HEAD",
            Self::NoRequest => "without a request",
            Self::Url => "with a URL that cannot be sent",
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
