//! A parser of HTTP/1.1 responses (RFC 9112), without sockets and clocks.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Status};

use crate::{
    client::{
        cache_headers::{CacheHeaders, CacheReport},
        response::{BodyVerifier, CompletedResponse, ExpectedBody, location},
    },
    follow::is_redirect,
    sample::{Deviation, FailureClass, RequestFailure, Response},
    truth::{StatedAnswer, StatementFields},
};

pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;
/// Heads with more fields are parsed again with room for [`HEADERS_MAX`].
const HEADERS_USUAL: usize = 128;
const HEADERS_MAX: usize = 4_096;

/// Parses one response.
pub(crate) struct ResponseReader {
    expected: ExpectedBody,
    state: ReadState,
    /// The start of an incomplete head, or of an incomplete line between chunks.
    partial: Vec<u8>,
    head: ResponseHead,
    body: BodyVerifier,
}

/// The fields of a head.
#[derive(Clone, Debug, Default)]
struct ResponseHead {
    status: u16,
    cache: Option<CacheReport>,
    keeps_alive: bool,
    location: Option<Box<str>>,
    deviation: Option<Deviation>,
    stated: Option<StatedAnswer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
    Head,
    /// The remaining bytes of the body.
    Length(u64),
    /// The line with the size of the next chunk.
    ChunkSize,
    /// The remaining bytes of the chunk.
    Chunk(u64),
    /// The line end after a chunk.
    ChunkEnd,
    Trailers,
    /// A body that ends with the connection.
    UntilClose,
}

/// How the end of a body is determined.
enum ResponseFraming {
    NoBody,
    Length(u64),
    Chunked,
    UntilClose,
}

impl ResponseReader {
    pub(crate) fn new(expected: ExpectedBody) -> Self {
        Self {
            expected,
            state: ReadState::Head,
            partial: Vec::new(),
            head: ResponseHead::default(),
            body: BodyVerifier::new(false, None, None),
        }
    }

    /// Takes the next bytes; returns the response if they complete it.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<Option<CompletedResponse>, RequestFailure> {
        loop {
            let (used, is_done) = match self.state {
                ReadState::Head => match self.consume_head(bytes)? {
                    Some(consumed) => consumed,
                    None => return Ok(None),
                },
                ReadState::Length(left) => {
                    let used = self.consume_body(bytes, left)?;
                    self.state = ReadState::Length(left - used as u64);
                    (used, left == used as u64)
                }
                ReadState::Chunk(left) => {
                    let used = self.consume_body(bytes, left)?;
                    let left = left - used as u64;
                    self.state = if left == 0 { ReadState::ChunkEnd } else { ReadState::Chunk(left) };
                    (used, false)
                }
                ReadState::UntilClose => (self.consume_body(bytes, u64::MAX)?, false),
                ReadState::ChunkSize | ReadState::ChunkEnd | ReadState::Trailers => {
                    self.consume_chunk_line(bytes)?
                }
            };
            bytes = &bytes[used..];
            if is_done {
                if !bytes.is_empty() && bytes.iter().all(|byte| b"\r\n".contains(byte)) {
                    self.head.deviation = Some(self.expected.accept(Deviation::LinesAfterBody)?);
                } else if !bytes.is_empty() {
                    let more = format!("{} bytes after the end of the body", bytes.len());
                    return Err(RequestFailure::new(FailureClass::Malformed, more));
                }
                return self.finish().map(Some);
            }
            if bytes.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Takes the end of the connection.
    pub(crate) fn close(&mut self) -> Result<CompletedResponse, RequestFailure> {
        match self.state {
            ReadState::UntilClose => self.finish(),
            ReadState::Head if self.partial.is_empty() => Err(FailureClass::Closed.into()),
            ReadState::Head => Err(RequestFailure::new(FailureClass::Truncated, "within the head")),
            ReadState::Length(left) => Err(RequestFailure::new(
                FailureClass::Truncated,
                format!("{left} bytes short of its Content-Length"),
            )),
            _ => Err(RequestFailure::new(FailureClass::Truncated, "before its last chunk")),
        }
    }

    /// True if the body ends with the connection.
    pub(crate) fn ends_with_connection(&self) -> bool {
        self.state == ReadState::UntilClose
    }

    /// True if any byte of the response has arrived.
    pub(crate) fn has_data(&self) -> bool {
        self.state != ReadState::Head || !self.partial.is_empty()
    }

    fn finish(&mut self) -> Result<CompletedResponse, RequestFailure> {
        let sizes = std::mem::replace(&mut self.body, BodyVerifier::new(false, None, None)).finish()?;
        Ok(CompletedResponse {
            response: Response {
                status: self.head.status,
                bytes: sizes.bytes,
                wire_bytes: sizes.wire_bytes,
                outcome: self.head.cache.map(|report| report.outcome),
                may_be_stale: self.head.cache.is_some_and(|report| report.may_be_stale),
                deviation: self.head.deviation,
                stated: sizes.compared_with(self.head.stated.take()),
            },
            keeps_alive: self.head.keeps_alive && self.state != ReadState::UntilClose,
            location: self.head.location.take(),
        })
    }

    fn consume_body(&mut self, bytes: &[u8], left: u64) -> Result<usize, RequestFailure> {
        let used = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        self.body.push(&bytes[..used])?;
        Ok(used)
    }

    /// Returns how many of these bytes belong to the head, and whether the response ends with it; none if the head is
    /// incomplete.
    fn consume_head(&mut self, bytes: &[u8]) -> Result<Option<(usize, bool)>, RequestFailure> {
        let partial_bytes = self.partial.len();
        if partial_bytes == 0 {
            // Nearly every head arrives whole: it is parsed without a copy.
            if let Some((used, is_done)) = self.parse_head(bytes)? {
                return Ok(Some((used, is_done)));
            }
            self.partial.extend_from_slice(bytes);
        } else {
            self.partial.extend_from_slice(bytes);
            // A head that arrives byte by byte is parsed only where it may have ended.
            if may_end_head(&self.partial, partial_bytes) {
                let partial = std::mem::take(&mut self.partial);
                if let Some((used, is_done)) = self.parse_head(&partial)? {
                    return Ok(Some((used - partial_bytes, is_done)));
                }
                self.partial = partial;
            } else if !may_be_http(&self.partial) {
                return Err(FailureClass::Malformed.into());
            }
        }
        if self.partial.len() > HEAD_BYTES_MAX {
            return Err(head_too_large());
        }
        Ok(None)
    }

    /// Parses the head at the start of these bytes if it is complete; returns its length, and whether the response ends
    /// with it.
    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<(usize, bool)>, RequestFailure> {
        let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADERS_USUAL];
        let mut response = httparse::Response::new(&mut []);
        let parsed =
            ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut headers);
        match parsed {
            Ok(Status::Complete(used)) => self.take_head(&response, used, None),
            Ok(Status::Partial) => Ok(None),
            Err(
                httparse::Error::TooManyHeaders | httparse::Error::HeaderName | httparse::Error::HeaderValue,
            ) => self.parse_unusual_head(bytes),
            Err(error) => Err(RequestFailure::new(FailureClass::Malformed, error.to_string())),
        }
    }

    /// Parses a head with many fields, or with such as common clients accept.
    #[cold]
    fn parse_unusual_head(&mut self, bytes: &[u8]) -> Result<Option<(usize, bool)>, RequestFailure> {
        let mut config = ParserConfig::default();
        let mut deviation = None;
        loop {
            let mut headers = vec![MaybeUninit::<Header<'_>>::uninit(); HEADERS_MAX];
            let mut response = httparse::Response::new(&mut []);
            match config.parse_response_with_uninit_headers(&mut response, bytes, &mut headers) {
                Ok(Status::Complete(used)) => return self.take_head(&response, used, deviation),
                Ok(Status::Partial) => return Ok(None),
                Err(httparse::Error::TooManyHeaders) => return Err(head_too_large()),
                Err(httparse::Error::HeaderName | httparse::Error::HeaderValue) if deviation.is_none() => {
                    deviation = Some(self.expected.accept(Deviation::Fields)?);
                    config.allow_obsolete_multiline_headers_in_responses(true);
                    config.allow_spaces_after_header_name_in_responses(true);
                }
                Err(error) => return Err(RequestFailure::new(FailureClass::Malformed, error.to_string())),
            }
        }
    }

    /// Takes a complete head of this length; returns the length, and whether the response ends with it.
    fn take_head(
        &mut self,
        response: &httparse::Response<'_, '_>,
        used: usize,
        mut deviation: Option<Deviation>,
    ) -> Result<Option<(usize, bool)>, RequestFailure> {
        if used > HEAD_BYTES_MAX {
            return Err(head_too_large());
        }
        let status = response
            .code
            .filter(|status| *status >= 100)
            .ok_or_else(|| RequestFailure::new(FailureClass::Malformed, "a status below 100"))?;
        let fields = HeaderFields::parse(response, self.expected.is_checked)?;
        if (100..200).contains(&status) && status != 101 {
            // An interim response: the final one follows.
            self.state = ReadState::Head;
            return Ok(Some((used, false)));
        }
        let has_body = self.expected.has_body(status);
        let framing = if has_body { fields.framing() } else { ResponseFraming::NoBody };
        let has_two_ends = fields.is_chunked && fields.length.is_some();
        if has_two_ends {
            deviation = Some(self.expected.accept(Deviation::LengthAndChunks)?);
        }
        let location = fields.location.filter(|_| is_redirect(status)).map(location);
        if location.as_ref().is_some_and(|(_, is_encoded)| *is_encoded) {
            deviation = Some(self.expected.accept(Deviation::Location)?);
        }
        let cache = fields.caches.report();
        let stated =
            fields.statement.stated(|| fields.caches.age_s(), cache.is_none_or(CacheReport::may_be_fallback));
        self.head = ResponseHead {
            status,
            cache,
            // RFC 9112, 6.3: two ends of one body are a sign of an attack.
            keeps_alive: fields.keeps_alive && status != 101 && !has_two_ends,
            location: location.map(|(text, _)| text),
            deviation,
            stated,
        };
        self.body = self.expected.verifier(status, fields.encoding, self.head.stated.as_ref());
        let (state, is_done) = match framing {
            ResponseFraming::NoBody => (ReadState::Length(0), true),
            ResponseFraming::Length(length) => (ReadState::Length(length), length == 0),
            ResponseFraming::Chunked => (ReadState::ChunkSize, false),
            ResponseFraming::UntilClose => (ReadState::UntilClose, false),
        };
        self.state = state;
        Ok(Some((used, is_done)))
    }

    /// Consumes a line between chunks, or a trailer. True: the response is complete.
    fn consume_chunk_line(&mut self, bytes: &[u8]) -> Result<(usize, bool), RequestFailure> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(bytes.len(), |end| end + 1);
        self.partial.extend_from_slice(&bytes[..used]);
        if self.partial.len() > HEAD_BYTES_MAX {
            return Err(RequestFailure::new(FailureClass::HeadTooLarge, "a chunk line over 64 KiB"));
        }
        if end.is_none() {
            return Ok((used, false));
        }
        let malformed = || RequestFailure::new(FailureClass::Malformed, "a chunk without a size");
        let line = std::mem::take(&mut self.partial);
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let (state, is_done) = match self.state {
            ReadState::ChunkEnd if text.is_empty() => (ReadState::ChunkSize, false),
            ReadState::Trailers => (ReadState::Trailers, text.is_empty()),
            ReadState::ChunkSize => match httparse::parse_chunk_size(&line) {
                Ok(Status::Complete((_, 0))) => (ReadState::Trailers, false),
                Ok(Status::Complete((_, size))) => (ReadState::Chunk(size), false),
                _ => return Err(malformed()),
            },
            _ => return Err(malformed()),
        };
        self.state = state;
        Ok((used, is_done))
    }
}

/// The headers that determine how to read a response.
struct HeaderFields<'a> {
    length: Option<u64>,
    is_chunked: bool,
    keeps_alive: bool,
    /// `Content-Encoding`
    encoding: Option<&'a [u8]>,
    location: Option<&'a [u8]>,
    caches: CacheHeaders<'a>,
    /// Empty unless the response is checked.
    statement: StatementFields<'a>,
}

impl<'a> HeaderFields<'a> {
    fn parse(response: &httparse::Response<'_, 'a>, is_checked: bool) -> Result<Self, RequestFailure> {
        let mut fields = Self {
            length: None,
            is_chunked: false,
            // HTTP/1.0 closes by default.
            keeps_alive: response.version == Some(1),
            encoding: None,
            location: None,
            caches: CacheHeaders::default(),
            statement: StatementFields::default(),
        };
        let mut closes = false;
        for header in response.headers.iter() {
            let (name, value) = (header.name, header.value);
            // The length rejects most headers at once.
            match name.len() {
                8 if name.eq_ignore_ascii_case("location") => {
                    fields.location = Some(value);
                }
                10 if name.eq_ignore_ascii_case("connection") => {
                    for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                        closes |= token.eq_ignore_ascii_case(b"close");
                        fields.keeps_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                14 if name.eq_ignore_ascii_case("content-length") => fields.add_length(value)?,
                16 if name.eq_ignore_ascii_case("content-encoding") => {
                    fields.encoding = Some(value);
                }
                17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                    let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
                    fields.is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
                    if !fields.is_chunked {
                        return Err(RequestFailure::new(
                            FailureClass::Malformed,
                            "a Transfer-Encoding other than chunked",
                        ));
                    }
                }
                _ => {
                    if !fields.caches.record(name, value) && is_checked {
                        fields.statement.record(name, value);
                    }
                }
            }
        }
        fields.keeps_alive &= !closes;
        Ok(fields)
    }

    /// Accepts the same length twice, but not two lengths.
    fn add_length(&mut self, value: &[u8]) -> Result<(), RequestFailure> {
        for part in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            let is_number = !part.is_empty() && part.iter().all(u8::is_ascii_digit);
            let length =
                std::str::from_utf8(part).ok().filter(|_| is_number).and_then(|part| part.parse().ok());
            match (length, self.length) {
                (Some(length), None) => self.length = Some(length),
                (Some(length), Some(other)) if length == other => {}
                _ => {
                    return Err(RequestFailure::new(FailureClass::Malformed, "an invalid Content-Length"));
                }
            }
        }
        Ok(())
    }

    fn framing(&self) -> ResponseFraming {
        match (self.is_chunked, self.length) {
            (true, _) => ResponseFraming::Chunked,
            (false, Some(length)) => ResponseFraming::Length(length),
            (false, None) => ResponseFraming::UntilClose,
        }
    }
}

fn head_too_large() -> RequestFailure {
    let limit = format!("over {} KiB or {HEADERS_MAX} headers", HEAD_BYTES_MAX >> 10);
    RequestFailure::new(FailureClass::HeadTooLarge, limit)
}

/// True if an empty line ends in the bytes from `seen` on.
fn may_end_head(bytes: &[u8], seen: usize) -> bool {
    let bytes = &bytes[seen.saturating_sub(3)..];
    bytes.windows(2).any(|two| two == b"\n\n") || bytes.windows(3).any(|three| three == b"\n\r\n")
}

fn may_be_http(bytes: &[u8]) -> bool {
    const PREFIX: &[u8] = b"HTTP/1.";
    // Empty lines may precede the status line.
    let bytes = bytes.trim_ascii_start();
    let length = bytes.len().min(PREFIX.len());
    bytes[..length] == PREFIX[..length]
}

#[cfg(test)]
mod tests;
