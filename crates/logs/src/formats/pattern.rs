//! Access logs in a format that the server's configuration states: nginx's `log_format`, and the strings of Apache's `LogFormat` and
//! of `varnishncsa -F`.

mod variables;

use std::{str::FromStr, time::Duration};

use jiff::fmt::strtime;
use memchr::{memchr, memchr_iter, memmem::Finder};
use stockade_model::message::shown;

use self::variables::{Token, Value, Variable};
use super::{LineParser, Parsed, Visit};
use crate::{
    common::{closing_quote, unescape},
    format::{Content, FormatKind, StatedFormat, new_parser},
    logged::{LoggedKey, LoggedRequest, Operation},
    request,
    time::TimeParser,
    value::{self, DeclaredCaching, Problem},
};

pub(crate) const PATTERN: FormatKind = FormatKind {
    name: "PATTERN",
    summary: "nginx's log_format ($remote_addr ...), or Apache's and Varnish's (%h %l %u %t \"%r\" %s %b)",
    is_access_log: true,
    is_forward: false,
    is_guessed: false,
    is_free_text: true,
    content: Content::Stated(stated),
};

fn stated(text: &str) -> Option<StatedFormat> {
    text.contains(['$', '%']).then(|| {
        let pattern: Pattern = text.parse()?;
        Ok((text.to_owned(), new_parser(move || PatternLines::new(pattern.clone()))))
    })
}

/// A format such as `$remote_addr [$time_local] "$request" $status`, compiled.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The text before the first variable.
    start: Vec<u8>,
    variables: Vec<DelimitedVariable>,
}

/// A variable, and the text after it.
#[derive(Clone, Debug)]
struct DelimitedVariable {
    /// None: the value is not used.
    value: Option<Value>,
    /// As written.
    name: String,
    /// The spaces within the value.
    spaces: usize,
    is_list: bool,
    /// The value has no space within, and may have spaces before it.
    is_word: bool,
    end: End,
}

/// Where a value ends.
#[derive(Clone, Debug)]
enum End {
    /// Before this text.
    Text(Box<Finder<'static>>),
    /// Before the slash of the path that follows a host.
    Slash,
    /// With the line.
    Line,
}

/// Why a pattern is refused. The message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A request cannot be found.
    #[error(
        "the pattern has neither a request nor a URL: add `$request` or `$request_uri` (nginx), `%r` or `%U` (Apache, Varnish)"
    )]
    NoRequest,
    /// Two variables have nothing between them.
    #[error("`{0}` and `{1}` have nothing between them: their values cannot be told apart")]
    Adjacent(String, String),
    /// A percent sign without a directive.
    #[error("`{0}` is not a directive of Apache: write `%%` for a percent sign")]
    Directive(String),
}

impl FromStr for Pattern {
    type Err = PatternError;

    /// A `$` makes it a pattern of nginx.
    fn from_str(text: &str) -> Result<Self, PatternError> {
        let tokens = if text.contains('$') { variables::nginx(text) } else { variables::apache(text)? };
        Self::compile(tokens)
    }
}

impl Pattern {
    /// A pattern of the variables of [layouts](super::layouts). Those without quotation marks or brackets around are words.
    pub(super) fn of_layout(text: &str) -> Result<Self, PatternError> {
        let mut pattern = Self::compile(variables::layout(text))?;
        let mut before: &[u8] = &pattern.start;
        for variable in &mut pattern.variables {
            let is_text = matches!(before.last(), Some(b'"' | b'['))
                || matches!(&*variable.name, "$any" | "$rest" | "$content_type");
            variable.is_word = !is_text;
            before = if let End::Text(end) = &variable.end { end.needle() } else { &[] };
        }
        Ok(pattern)
    }

    fn compile(tokens: Vec<Token>) -> Result<Self, PatternError> {
        let mut start = Vec::new();
        let mut found: Vec<(Variable, Vec<u8>)> = Vec::new();
        for token in tokens {
            match (token, found.last_mut()) {
                (Token::Text(text), None) => start.extend(text),
                (Token::Text(text), Some((_, end))) => end.extend(text),
                (Token::Variable(variable), _) => found.push((variable, Vec::new())),
            }
        }
        let best = |slot: usize| {
            let rank = |(variable, _): &(Variable, _)| {
                variable.value.as_ref().filter(|value| value.slot() == slot).map(Value::rank)
            };
            found.iter().filter_map(rank).min()
        };
        let best: Vec<_> = (0..Value::SLOTS).map(best).collect();
        if best[Value::Request.slot()].is_none() && best[Value::Url(0).slot()].is_none() {
            return Err(PatternError::NoRequest);
        }
        let mut delimited = Vec::with_capacity(found.len());
        let mut variables = found.into_iter().peekable();
        while let Some((variable, text)) = variables.next() {
            let end = match variables.peek() {
                _ if !text.is_empty() => End::Text(Box::new(Finder::new(&text).into_owned())),
                None => End::Line,
                Some((next, _)) => {
                    let is_url = matches!(&next.value, Some(Value::Url(_)));
                    if !is_url || !matches!(&variable.value, Some(Value::Host(_))) {
                        return Err(PatternError::Adjacent(shown(&variable.name), shown(&next.name)));
                    }
                    End::Slash
                }
            };
            let Variable { name, value, spaces, is_list } = variable;
            let value = value.filter(|value| best[value.slot()] == Some(value.rank()));
            delimited.push(DelimitedVariable { value, name, spaces, is_list, is_word: false, end });
        }
        Ok(Self { start, variables: delimited })
    }
}

impl DelimitedVariable {
    /// True if a word can be the value.
    fn accepts(&self, word: &[u8]) -> bool {
        let is_status = || matches!(word, b"-" | b"-1") || value::number(word).is_some();
        memchr(b' ', word).is_none() && (self.value != Some(Value::Status) || is_status())
    }

    /// The value at the start of a text, and the text after the end of the value.
    fn split<'a>(&self, text: &'a [u8], is_quoted: bool) -> Option<(&'a [u8], &'a [u8])> {
        let end = match &self.end {
            End::Line => return Some((text, &[])),
            End::Slash => {
                let end = memchr(b'/', text)?;
                return Some(text.split_at(end));
            }
            End::Text(end) => end,
        };
        let length = end.needle().len();
        if is_quoted
            && end.needle().starts_with(b"\"")
            && let Some(at) = closing_quote(text)
            && text[at..].starts_with(end.needle())
        {
            return Some((&text[..at], &text[at + length..]));
        }
        let mut from = match self.spaces.checked_sub(1) {
            Some(nth) => memchr_iter(b' ', text).nth(nth)? + 1,
            None => 0,
        };
        loop {
            let at = from + end.find(text.get(from..)?)?;
            // nginx lists the values of several upstreams, as in `0.1, 0.2 : 0.3`.
            let is_within_list = self.is_list
                && (text[..at].ends_with(b",")
                    || text[..at].ends_with(b" :")
                    || text[at..].starts_with(b" : "));
            if !is_within_list {
                return Some((&text[..at], &text[at + length..]));
            }
            from = at + 1;
        }
    }
}

/// The lines of a log in a pattern.
#[derive(Debug)]
pub(crate) struct PatternLines {
    pattern: Pattern,
    times: TimeParser,
    /// Those of [`Value::StrftimeTime`].
    without_offset: u64,
}

/// The values of a line, as logged.
#[derive(Default)]
struct Values<'a> {
    request: Option<&'a [u8]>,
    method: Option<&'a [u8]>,
    url: Option<&'a [u8]>,
    query: &'a [u8],
    host: Option<&'a [u8]>,
    at_ns: Option<u64>,
    status: Option<u16>,
    bytes: Option<u64>,
    declared_caching: DeclaredCaching,
    service_time: Option<Duration>,
    is_hit: bool,
    user_agent: Option<&'a [u8]>,
    content_type: Option<&'a [u8]>,
    is_without_offset: bool,
}

impl PatternLines {
    pub fn new(pattern: Pattern) -> Self {
        Self { pattern, times: TimeParser::default(), without_offset: 0 }
    }
}

impl LineParser for PatternLines {
    fn times_without_offset(&self) -> u64 {
        self.times.times_without_offset() + self.without_offset
    }

    fn parse(&mut self, line: &[u8], visit: &mut Visit<'_>) -> Result<Parsed, Problem> {
        let mut values = Values::default();
        let start = &self.pattern.start;
        let mut rest = line.strip_prefix(&start[..]).ok_or("the line does not start as the pattern does")?;
        let mut is_quoted = start.ends_with(b"\"");
        for variable in &self.pattern.variables {
            if variable.is_word {
                rest = rest.trim_ascii_start();
            }
            let split = variable.split(rest, is_quoted);
            let Some((text, after)) = split.filter(|(text, _)| !variable.is_word || variable.accepts(text))
            else {
                return Err(format!(
                    "the line does not go on as the pattern does after `{}`",
                    shown(&variable.name)
                )
                .into());
            };
            if let Some(value) = &variable.value {
                values.set(value, text, &mut self.times)?;
            }
            rest = after;
            is_quoted = matches!(&variable.end, End::Text(end) if end.needle().ends_with(b"\""));
        }
        self.without_offset += u64::from(values.is_without_offset);
        Ok(values.visit(visit))
    }
}

impl<'a> Values<'a> {
    fn set(&mut self, value: &Value, text: &'a [u8], times: &mut TimeParser) -> Result<(), Problem> {
        let known = (!matches!(text, b"" | b"-")).then_some(text);
        match value {
            Value::Request => self.request = Some(text),
            Value::Method => self.method = known,
            Value::Url(_) => self.url = Some(text),
            Value::Query => self.query = known.unwrap_or_default(),
            Value::Host(_) => self.host = known,
            Value::Status => self.status = value::status(text),
            Value::Size(_) => self.bytes = value::size(text)?,
            Value::CacheControl(_) => self.declared_caching = value::declared_caching(&value::lossy(text)),
            // The last one that is known.
            Value::ServiceTime { unit_ns, .. } => {
                self.service_time = value::duration(text, *unit_ns).or(self.service_time);
            }
            Value::CacheStatus => self.is_hit = value::is_hit(text),
            Value::UserAgent => self.user_agent = value::known(text),
            Value::ContentType(_) => self.content_type = value::known(text),
            Value::CommonTime => self.at_ns = Some(common_time(text, times)?),
            Value::TextTime => self.at_ns = Some(text_time(text, times)?),
            Value::NumberTime { unit_ns } => {
                let time = value::decimal_ns(text, *unit_ns);
                self.at_ns = Some(time.ok_or("the time is not a number")?);
            }
            Value::StrftimeTime(format) => {
                let (at_ns, is_without_offset) = strftime_time(format, text)?;
                (self.at_ns, self.is_without_offset) = (Some(at_ns), is_without_offset);
            }
        }
        Ok(())
    }

    fn visit(&self, visit: &mut Visit<'_>) -> Parsed {
        let request = self.request.map(unescape);
        let (method, url) = (self.method.map(unescape), self.url.map(unescape));
        let with_query;
        let (method, url) = match (&request, &url) {
            (Some(request), _) => match request::split(request) {
                Some(split) => split,
                None => return Parsed::NoRequest,
            },
            (None, Some(url)) => {
                let query = self.query.strip_prefix(b"?").unwrap_or(self.query);
                with_query = if query.is_empty() || url.contains('?') {
                    url.clone()
                } else {
                    format!("{url}?{}", unescape(query)).into()
                };
                (method.as_deref().unwrap_or("GET"), &*with_query)
            }
            (None, None) => return Parsed::NoRequest,
        };
        if !request::is_request(method, url) {
            return Parsed::NoRequest;
        }
        let host = self.host.map(unescape);
        visit(LoggedRequest {
            at_ns: self.at_ns,
            operation: Operation::of_method(method),
            status: self.status,
            bytes: self.bytes,
            ttl: self.declared_caching.ttl,
            is_shareable: self.declared_caching.is_shareable,
            // The time of a hit is that of the cache.
            service_time: self.service_time.filter(|_| !self.is_hit),
            user_agent: self.user_agent,
            content_type: self.content_type,
            ..LoggedRequest::read(LoggedKey::Url { method, host: host.as_deref(), url })
        });
        Parsed::Requests
    }
}

fn common_time(text: &[u8], times: &mut TimeParser) -> Result<u64, Problem> {
    let bare = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(text);
    times.parse_common(bare).ok_or_else(|| "the time is not like 17/May/2015:10:05:03 +0000".into())
}

fn text_time(text: &[u8], times: &mut TimeParser) -> Result<u64, Problem> {
    let time = str::from_utf8(text).ok().and_then(|text| times.parse_any(text).ok());
    time.ok_or_else(|| "the time is not RFC 3339".into())
}

/// The time, and whether it has no offset.
fn strftime_time(format: &str, text: &[u8]) -> Result<(u64, bool), Problem> {
    let parse = || {
        let time = strtime::parse(format, text).ok()?;
        let with_offset = time.to_timestamp().ok();
        // Without a zone it is UTC: differences are right, and they are what counts.
        let utc = || Some(time.to_datetime().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp());
        let at = with_offset.or_else(utc)?;
        Some((u64::try_from(at.as_nanosecond()).ok()?, with_offset.is_none()))
    };
    parse().ok_or_else(|| "the time does not have its format".into())
}
