//! Access logs, to be replayed: what was asked, and when.
//!
//! ```text
//! file, maybe gzip -> lines -> when and what (common or json) -> requests, sorted by time
//! ```
//!
//! Read are the Common Log Format and whatever begins like it (Combined, Traefik's), and JSON [lines](JSON_FIELDS). If
//! the first thing in a log is a `{`, it is JSON. What stands before a line's time is not looked at: a virtual host
//! before the client is one more word there.
//!
//! A log has paths, and they are asked for at a [`Base`]; of whole URLs the path is taken. It has no bodies: GET and
//! HEAD are replayed, other methods are [skipped](Reason) and counted, and so are lines without a request in their
//! request's place (`-`, or the bytes of somebody who spoke TLS). A line that is not in the log's format at all is an
//! error, and then nothing is read. Nor are `User-Agent` and `Referer` sent: who asked is the load generator.
//!
//! Logs are out of order, as servers write a line when they are done with a request: they are sorted by time, and what
//! has the same time stays in its order. If all times are whole seconds, the k requests of a second are spread evenly
//! over it. The log does not say when in that second they came; all at once would be a burst a second that never was,
//! and by chance would be another load every time.
//!
//! So much is read: 20,000,000 lines of 64 KiB, and 1,000,000 different URLs. In memory a request has 16 bytes, 20 as
//! it is handed out, and a URL about 300 and its path.

mod common;
mod json;
mod lines;
mod request;
mod time;

use std::{fmt, hash::BuildHasher, io::Read, path::Path, sync::Arc, time::Duration};

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use http::Method;
use rand::RngExt;
use stockade_model::{seed::Seed, units::format_count};

use super::{TARGETS_MAX, TargetsError, Wrong, open, wrong};
use crate::{
    target::{Base, Target},
    traffic::Order,
};
use lines::Lines;
use request::Request;

pub use json::JSON_FIELDS;

/// A log has no more lines.
pub const LINES_MAX: u32 = 20_000_000;

const SECOND: u64 = 1_000_000_000;

/// The requests of a log, by time.
///
/// ```
/// use stockade_load::{target::Base, targets::log::Log};
///
/// let text = r#"ada - - [17/May/2015:10:05:04 +0000] "GET /b HTTP/1.1" 200 17
/// bob - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 -
/// eve - - [17/May/2015:10:05:03 +0000] "POST /a HTTP/1.1" 201 5
/// ada - - [17/May/2015:10:05:03 +0000] "GET /b HTTP/1.1" 200 17
/// "#;
/// let base: Base = "http://localhost:8080".parse()?;
/// let log = Log::read("access.log", text.as_bytes(), &base)?.at_speed(2.0)?;
///
/// let due: Vec<_> = log.due().iter().map(|due| due.as_millis()).collect();
/// assert_eq!(due, [0, 250, 500]);
/// assert_eq!(log.targets().len(), 2);
/// assert_eq!(log.skipped().to_string(), "1 with a method other than GET and HEAD");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Log {
    targets: Vec<Target>,
    requests: Vec<Logged>,
    skipped: Skipped,
    lines: u32,
}

/// One request of a log.
#[derive(Clone, Copy, Debug)]
struct Logged {
    /// Nanoseconds: while it is read since 1970, then since the first request.
    at: u64,
    target: u32,
    line: u32,
}

const _: () = assert!(size_of::<Logged>() == 16);

/// What a line says.
struct Said<'a> {
    /// Nanoseconds since 1970.
    at: u64,
    request: Result<Request<'a>, Reason>,
}

/// Why a line is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Neither GET nor HEAD: the log does not have the body.
    Method,
    /// What stands in the request's place is none.
    NoRequest,
    /// A URL that cannot be sent again: no path, or characters that the log has lost.
    Url,
}

/// How many lines are not replayed, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped([u64; Reason::ALL.len()]);

/// A log cannot be replayed like this. The message says what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// Standing still, or backwards.
    #[error("`{0}` is no speed: write how many times as fast as it was, such as `2` or `0.5`")]
    Speed(f64),
    /// Nothing, or more than all.
    #[error("`{0}` is no share of the requests: write more than 0 and at most 1, such as `0.1`")]
    Share(f64),
    /// More requests than a log may have.
    #[error(
        "repeated for so long it has more than 20,000,000 requests: write a shorter time, or a lower speed"
    )]
    TooMany,
}

impl Log {
    /// Reads a file.
    pub fn open(path: &Path, base: &Base) -> Result<Self, TargetsError> {
        let name = path.display().to_string();
        let file = open(path).map_err(|message| wrong(&name, message))?;
        Self::read(&name, file, base)
    }

    /// Reads what errors give a name, packed with gzip or not.
    pub fn read(name: &str, from: impl Read, base: &Base) -> Result<Self, TargetsError> {
        let mut lines = Lines::of(from).map_err(|wrong| wrong.of(name))?;
        let mut log = Reading::begin(base);
        log.read(&mut lines).map_err(|wrong| wrong.of(name))?;
        let log = log.done(lines.count());
        if log.requests.is_empty() {
            let none = if log.skipped.total() == 0 {
                "there is no line in it: name a log with requests".to_owned()
            } else {
                format!("there is no request in it that can be replayed: {}", log.skipped)
            };
            return Err(wrong(name, none));
        }
        Ok(log)
    }

    /// What is asked for: every method and URL once, in the order of the lines.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Which target each request is for, by time.
    #[must_use]
    pub fn order(&self) -> Order {
        Order::Listed(self.requests.iter().map(|logged| logged.target).collect())
    }

    /// When each request is due, counted from the log's first: in ascending order.
    #[must_use]
    pub fn due(&self) -> Arc<[Duration]> {
        self.requests.iter().map(|logged| Duration::from_nanos(logged.at)).collect()
    }

    /// The same for so long, over and over if it is shorter: each round begins as long after the last request of the
    /// one before as requests of the log are apart on average.
    pub fn due_within(&self, lasts: Duration) -> Result<Arc<[Duration]>, ReplayError> {
        let gaps = u32::try_from(self.requests.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let gap = self.lasts().checked_div(gaps).unwrap_or_default();
        // A log of one moment has no pace: it is asked once.
        let rounds = if gap.is_zero() { 1 } else { usize::MAX };
        if rounds > 1 && lasts.as_nanos() / gap.as_nanos() > u128::from(LINES_MAX) {
            return Err(ReplayError::TooMany);
        }
        let begins = std::iter::successors(Some(Duration::ZERO), |begins| Some(*begins + self.lasts() + gap));
        let of_round = |begins: Duration| {
            self.requests.iter().map(move |logged| begins + Duration::from_nanos(logged.at))
        };
        Ok(begins.take(rounds).flat_map(of_round).take_while(|due| *due < lasts).collect())
    }

    /// All of it, for those who replay it: the targets, which request is for which, and when it is due.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Target>, Order, Arc<[Duration]>) {
        let (order, due) = (self.order(), self.due());
        (self.targets, order, due)
    }

    /// How many requests there are; none only if a share of them is.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// How many lines were read, skipped ones too.
    #[must_use]
    pub fn lines(&self) -> u32 {
        self.lines
    }

    /// When the last request is due.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        self.requests.last().map_or(Duration::ZERO, |last| Duration::from_nanos(last.at))
    }

    /// What is not replayed.
    #[must_use]
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// So many times as fast as it was.
    pub fn at_speed(mut self, speed: f64) -> Result<Self, ReplayError> {
        if !(speed.is_finite() && speed > 0.0) {
            return Err(ReplayError::Speed(speed));
        }
        for logged in &mut self.requests {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "not negative, and what is too large becomes the largest"
            )]
            let at = (logged.at as f64 / speed).round() as u64;
            logged.at = at;
        }
        Ok(self)
    }

    /// A part of the requests, each by its own chance: a larger share of the same seed has all of a smaller one.
    ///
    /// It is a share of requests, not of URLs: a cache is asked for each of them less often, and hits less.
    pub fn share(mut self, share: f64, seed: Seed) -> Result<Self, ReplayError> {
        if !(share > 0.0 && share <= 1.0) {
            return Err(ReplayError::Share(share));
        }
        self.requests.retain(|logged| seed.nth(logged.line.into()).random::<f64>() < share);
        Ok(self)
    }
}

/// A log whose lines are not yet all read.
struct Reading<'a> {
    base: &'a Base,
    targets: Vec<Target>,
    /// Their indices, by method and path.
    known: HashTable<u32>,
    requests: Vec<Logged>,
    skipped: Skipped,
}

impl<'a> Reading<'a> {
    fn begin(base: &'a Base) -> Self {
        let (targets, requests) = (Vec::new(), Vec::new());
        Self { base, targets, known: HashTable::new(), requests, skipped: Skipped::default() }
    }

    fn read(&mut self, lines: &mut Lines<'_>) -> Result<(), Wrong> {
        let mut is_json = None;
        while let Some((number, line)) = lines.next()? {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let wrong = |message: String| Wrong::new(number.into(), message);
            let said = if *is_json.get_or_insert_with(|| line.starts_with('{')) {
                json::said(line).map_err(wrong)?
            } else {
                common::said(line).map_err(wrong)?
            };
            match said.request.and_then(|request| self.target(&request).transpose().ok_or(Reason::Url)) {
                Ok(target) => {
                    let target = target.map_err(wrong)?;
                    self.requests.push(Logged { at: said.at, target, line: number });
                }
                Err(reason) => self.skipped.0[reason as usize] += 1,
            }
        }
        Ok(())
    }

    /// The target of a request, a new one if it must be; none if its URL cannot be sent.
    fn target(&mut self, request: &Request<'_>) -> Result<Option<u32>, String> {
        let (targets, before) = (&self.targets, self.base.prefix().len());
        let parts = |index: u32| {
            let target = &targets[index as usize];
            let path = target.url.path_and_query().map_or("", |path| path.as_str());
            (target.method == Method::HEAD, &path[before..])
        };
        let asked = (request.is_head, &*request.path);
        let hash = hash(asked);
        if let Some(index) = self.known.find(hash, |index| parts(*index) == asked) {
            return Ok(Some(*index));
        }
        let Ok(url) = self.base.at(&request.path) else { return Ok(None) };
        if self.targets.len() == TARGETS_MAX {
            return Err("there are more than 1,000,000 different URLs: replay a part of the log".to_owned());
        }
        let index = u32::try_from(self.targets.len()).unwrap_or(u32::MAX);
        self.known.insert_unique(hash, index, |index| self::hash(parts(*index)));
        let method = if request.is_head { Method::HEAD } else { Method::GET };
        self.targets.push(Target::new(method, url));
        Ok(Some(index))
    }

    fn done(self, lines: u32) -> Log {
        let Self { targets, mut requests, skipped, .. } = self;
        // Lines ascend: this is as stable as it is to be, and needs no second list.
        requests.sort_unstable_by_key(|logged| (logged.at, logged.line));
        if requests.iter().all(|logged| logged.at.is_multiple_of(SECOND)) {
            for second in requests.chunk_by_mut(|one, next| one.at == next.at) {
                let count = second.len() as u64;
                second.iter_mut().zip(0..).for_each(|(logged, n)| logged.at += n * SECOND / count);
            }
        }
        let first = requests.first().map_or(0, |first| first.at);
        requests.iter_mut().for_each(|logged| logged.at -= first);
        requests.shrink_to_fit();
        Log { targets, requests, skipped, lines }
    }
}

/// The same for the same log, in every run.
fn hash(request: (bool, &str)) -> u64 {
    FixedState::with_seed(0).hash_one(request)
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::Method, Self::NoRequest, Self::Url];

    /// In a few words, for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Method => "with a method other than GET and HEAD",
            Self::NoRequest => "without a request",
            Self::Url => "with a URL that cannot be sent",
        }
    }
}

impl Skipped {
    /// How many for this reason.
    #[must_use]
    pub fn count(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// How many in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// `12 with a method other than GET and HEAD, 3 without a request`, or `none`.
impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |reason: Reason| (self.count(reason) > 0).then_some((self.count(reason), reason.text()));
        let texts: Vec<_> = Reason::ALL
            .into_iter()
            .filter_map(count)
            .map(|(count, text)| format!("{} {text}", format_count(count)))
            .collect();
        f.write_str(if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }.as_str())
    }
}

#[cfg(test)]
mod tests;
