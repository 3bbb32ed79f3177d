//! HTTP Archives, which browsers save: <http://www.softwareishard.com/blog/har-12-spec>.

use std::{fmt, io::Read, time::Duration};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use crate::{
    format::{self, FormatKind},
    input::{InputReader, ReadError},
    logged::{LoggedKey, LoggedRequest, Operation},
    request,
    time::TimeParser,
    value::{self, Problem},
};

pub(crate) const HAR: FormatKind = FormatKind {
    name: "har",
    summary: "HTTP Archive of a browser, up to 256 MiB",
    is_access_log: true,
    is_forward: true,
    is_guessed: false,
    is_free_text: false,
    content: format::Content::Document,
};

/// The largest document, after decompression.
const DOCUMENT_BYTES_MAX: u64 = 256 << 20;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// A longer service time (a day) is not one.
const MILLISECONDS_MAX: f64 = 86_400e3;

/// Why a document could not be read to its end.
pub(crate) enum HarError {
    Read(ReadError),
    /// It is not as it should be on this line, from 1.
    Document {
        line: u64,
        problem: Problem,
    },
}

/// Takes the entries: a request, none, or the reason why an entry is bad.
type VisitEntry<'v> = dyn FnMut(Result<Option<LoggedRequest<'_>>, Problem>) + 'v;

/// Reads `log.entries`. Bodies are not stored.
pub(crate) fn read(input: &mut InputReader<'_>, visit: &mut VisitEntry<'_>) -> Result<(), HarError> {
    // Some tools write a byte order mark.
    if input.peek(BOM.len()).map_err(HarError::Read)?.starts_with(BOM) {
        input.next_record(BOM.len()).map_err(HarError::Read)?;
    }
    let mut limited = input.take(DOCUMENT_BYTES_MAX);
    let mut json = serde_json::Deserializer::from_reader(&mut limited);
    let mut times = TimeParser::default();
    let mut entry = |entry: Entry| visit_entry(&entry, &mut times, visit);
    let entries = ObjectSeed { name: "entries", inner: EntriesSeed(&mut entry) };
    let read = ObjectSeed { name: "log", inner: entries }.deserialize(&mut json).and_then(|()| json.end());
    read.map_err(|error| {
        let line = error.line() as u64;
        let problem = if limited.limit() == 0 {
            "the document has more than 256 MiB: split it".into()
        } else if error.is_io() {
            return HarError::Read(ReadError { line, message: error.to_string() });
        } else {
            format!("the document is not an HTTP Archive from here on: {error}").into()
        };
        HarError::Document { line, problem }
    })
}

fn visit_entry(entry: &Entry, times: &mut TimeParser, visit: &mut VisitEntry<'_>) {
    let Request { method, url, .. } = &entry.request;
    if !request::is_request(method, url) {
        return visit(Ok(None));
    }
    let mut logged = LoggedRequest {
        operation: Operation::of_method(method),
        ..LoggedRequest::read(LoggedKey::Url { method, host: None, url })
    };
    visit(entry.complete(&mut logged, times).map(|()| Some(logged)));
}

impl Entry {
    fn complete<'a>(&'a self, logged: &mut LoggedRequest<'a>, times: &mut TimeParser) -> Result<(), Problem> {
        if let Some(text) = &self.started {
            logged.at_ns = Some(times.parse_any(text).map_err(|_| "`startedDateTime` is not RFC 3339")?);
        }
        let response = &self.response;
        // -1: not known. A body from the browser's cache has 0.
        let sizes = [response.body_size, response.content.size];
        let bytes = sizes.into_iter().flatten().find(|bytes| *bytes > 0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates")]
        let (bytes, status) = (bytes.map(|bytes| bytes as u64), response.status.map(|status| status as u16));
        logged.bytes = bytes.map(value::checked_size).transpose()?;
        logged.status = status.filter(|status| (100..1_000).contains(status));
        let caching =
            header(&response.headers, "cache-control").map(value::declared_caching).unwrap_or_default();
        (logged.ttl, logged.is_shareable) = (caching.ttl, caching.is_shareable);
        let millis = self.time.filter(|millis| (0.0..MILLISECONDS_MAX).contains(millis));
        let agent = header(&self.request.headers, "user-agent").map(str::as_bytes);
        logged.user_agent = agent.and_then(value::known);
        logged.content_type = response.content.mime_type.as_deref().map(str::as_bytes).and_then(value::known);
        logged.service_time = millis.map(|millis| Duration::from_secs_f64(millis / 1e3));
        Ok(())
    }
}

fn header<'a>(headers: &'a [Header], name: &str) -> Option<&'a str> {
    headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| &*header.value)
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "startedDateTime")]
    started: Option<String>,
    /// Milliseconds.
    time: Option<f64>,
    request: Request,
    #[serde(default)]
    response: Response,
}

#[derive(Deserialize)]
struct Request {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Header>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Response {
    status: Option<f64>,
    #[serde(rename = "bodySize")]
    body_size: Option<f64>,
    content: Content,
    headers: Vec<Header>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Content {
    size: Option<f64>,
    #[serde(rename = "mimeType")]
    mime_type: Option<String>,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    value: String,
}

/// Reads one field of an object, and skips the others.
struct ObjectSeed<S> {
    name: &'static str,
    inner: S,
}

impl<'de, S: DeserializeSeed<'de, Value = ()>> DeserializeSeed<'de> for ObjectSeed<S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: DeserializeSeed<'de, Value = ()>> Visitor<'de> for ObjectSeed<S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with `{}`", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut inner = Some(self.inner);
        while let Some(key) = map.next_key::<String>()? {
            match (key == self.name).then(|| inner.take()).flatten() {
                Some(inner) => map.next_value_seed(inner)?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        match inner {
            None => Ok(()),
            Some(_) => Err(serde::de::Error::custom(format_args!("`{}` is missing", self.name))),
        }
    }
}

/// Hands out the elements of a list.
struct EntriesSeed<'s>(&'s mut dyn FnMut(Entry));

impl<'de> DeserializeSeed<'de> for EntriesSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for EntriesSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(entry) = list.next_element()? {
            (self.0)(entry);
        }
        Ok(())
    }
}
