//! An answer in HTTP/1.1, from bytes as they come (RFC 9112): no sockets, no clocks.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Response, Status};

use crate::{
    body::{Body, Expected, is_gzip},
    follow,
    outcome::CacheHeaders,
    sample::{Answer, Class, Failure},
};

/// A head may be so large.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;
/// And have so many lines.
const HEADERS_MAX: usize = 128;

/// Reads one answer.
pub(crate) struct Reader {
    expected: Expected,
    state: State,
    /// The part of a head, or of a line between chunks, that is there so far.
    partial: Vec<u8>,
    head: Head,
    body: Body,
}

/// What the head said.
#[derive(Clone, Debug, Default)]
struct Head {
    status: u16,
    outcome: Option<stockade_model::outcome::Outcome>,
    keeps_alive: bool,
    location: Option<Box<str>>,
}

/// An answer, and what becomes of its connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Done {
    pub(crate) answer: Answer,
    /// The connection can take another request.
    pub(crate) keeps_alive: bool,
    /// Where it points, if it redirects.
    pub(crate) location: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// So many bytes are to come.
    Length(u64),
    /// The line with the next chunk's size is to come.
    ChunkSize,
    /// So many bytes of this chunk.
    Chunk(u64),
    /// The line end after a chunk.
    ChunkEnd,
    Trailers,
    /// All until the connection closes.
    UntilClose,
}

/// How the end of a body is known.
enum Framing {
    Nothing,
    Length(u64),
    Chunked,
    UntilClose,
}

impl Reader {
    pub(crate) fn new(expected: Expected) -> Self {
        Self {
            expected,
            state: State::Head,
            partial: Vec::new(),
            head: Head::default(),
            body: Body::new(false, None),
        }
    }

    /// The next bytes; the answer, if it is complete with them.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<Option<Done>, Failure> {
        loop {
            let (used, is_done) = match self.state {
                State::Head => match self.take_head(bytes)? {
                    Some(taken) => taken,
                    None => return Ok(None),
                },
                State::Length(left) => {
                    let used = self.take_body(bytes, left)?;
                    self.state = State::Length(left - used as u64);
                    (used, left == used as u64)
                }
                State::Chunk(left) => {
                    let used = self.take_body(bytes, left)?;
                    let left = left - used as u64;
                    self.state = if left == 0 { State::ChunkEnd } else { State::Chunk(left) };
                    (used, false)
                }
                State::UntilClose => (self.take_body(bytes, u64::MAX)?, false),
                State::ChunkSize | State::ChunkEnd | State::Trailers => self.take_line(bytes)?,
            };
            bytes = &bytes[used..];
            if is_done {
                if !bytes.is_empty() {
                    let more = format!("{} bytes after the end of the body", bytes.len());
                    return Err(Failure::new(Class::Malformed, more));
                }
                return self.finish().map(Some);
            }
            if bytes.is_empty() {
                return Ok(None);
            }
        }
    }

    /// No more bytes come.
    pub(crate) fn close(&mut self) -> Result<Done, Failure> {
        match self.state {
            State::UntilClose => self.finish(),
            State::Head if self.partial.is_empty() => Err(Class::Closed.into()),
            State::Head => Err(Failure::new(Class::Truncated, "within its head")),
            State::Length(left) => {
                Err(Failure::new(Class::Truncated, format!("{left} bytes short of its Content-Length")))
            }
            _ => Err(Failure::new(Class::Truncated, "before its last chunk")),
        }
    }

    /// Whether only the end of the connection tells the end of the body.
    pub(crate) fn ends_with_connection(&self) -> bool {
        self.state == State::UntilClose
    }

    /// Whether any of it has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.state != State::Head || !self.partial.is_empty()
    }

    fn finish(&mut self) -> Result<Done, Failure> {
        let sizes = std::mem::replace(&mut self.body, Body::new(false, None)).finish()?;
        Ok(Done {
            answer: Answer {
                status: self.head.status,
                bytes: sizes.bytes,
                wire_bytes: sizes.wire_bytes,
                outcome: self.head.outcome,
            },
            keeps_alive: self.head.keeps_alive && self.state != State::UntilClose,
            location: self.head.location.take(),
        })
    }

    fn take_body(&mut self, bytes: &[u8], left: u64) -> Result<usize, Failure> {
        let used = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        self.body.push(&bytes[..used])?;
        Ok(used)
    }

    /// How many bytes of these the head has, and whether the answer ends with it; none: it goes on.
    fn take_head(&mut self, bytes: &[u8]) -> Result<Option<(usize, bool)>, Failure> {
        let had = self.partial.len();
        if had == 0 {
            // Nearly always the whole head comes at once: then it is read where it lies.
            if let Some((used, is_done)) = self.read_head(bytes)? {
                return Ok(Some((used, is_done)));
            }
            self.partial.extend_from_slice(bytes);
        } else {
            self.partial.extend_from_slice(bytes);
            // A head that drips in is looked at when it may have ended, not with every byte.
            if ends_head(&self.partial, had) {
                let partial = std::mem::take(&mut self.partial);
                if let Some((used, is_done)) = self.read_head(&partial)? {
                    return Ok(Some((used - had, is_done)));
                }
                self.partial = partial;
            } else if !could_be_http(&self.partial) {
                return Err(Class::Malformed.into());
            }
        }
        if self.partial.len() > HEAD_BYTES_MAX {
            return Err(too_large());
        }
        Ok(None)
    }

    /// The head at the beginning of these bytes, if it is whole: how long it is, and whether nothing follows.
    fn read_head(&mut self, bytes: &[u8]) -> Result<Option<(usize, bool)>, Failure> {
        let mut room = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADERS_MAX];
        let mut response = Response::new(&mut []);
        let parsed =
            ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut room);
        let used = match parsed {
            Ok(Status::Complete(used)) if used > HEAD_BYTES_MAX => return Err(too_large()),
            Ok(Status::Complete(used)) => used,
            Ok(Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => {
                return Err(too_large());
            }
            Err(error) => return Err(Failure::new(Class::Malformed, error.to_string())),
        };
        let status = response.code.unwrap_or_default();
        let fields = Fields::of(&response)?;
        if (100..200).contains(&status) && status != 101 {
            // Something before the answer: that is still to come.
            self.state = State::Head;
            return Ok(Some((used, false)));
        }
        let has_body = self.expected.has_body(status);
        let framing = if has_body { fields.framing()? } else { Framing::Nothing };
        self.head = Head {
            status,
            outcome: fields.caches.outcome(),
            keeps_alive: fields.keeps_alive && status != 101,
            location: fields.location.filter(|_| follow::redirects(status)).map(Into::into),
        };
        self.body = self.expected.body(status, fields.is_gzip);
        let (state, is_done) = match framing {
            Framing::Nothing => (State::Length(0), true),
            Framing::Length(length) => (State::Length(length), length == 0),
            Framing::Chunked => (State::ChunkSize, false),
            Framing::UntilClose => (State::UntilClose, false),
        };
        self.state = state;
        Ok(Some((used, is_done)))
    }

    /// A line between chunks, or after the last one.
    fn take_line(&mut self, bytes: &[u8]) -> Result<(usize, bool), Failure> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(bytes.len(), |end| end + 1);
        self.partial.extend_from_slice(&bytes[..used]);
        if self.partial.len() > HEAD_BYTES_MAX {
            return Err(Failure::new(Class::HeadTooLarge, "chunks with endless lines"));
        }
        if end.is_none() {
            return Ok((used, false));
        }
        let malformed = || Failure::new(Class::Malformed, "a chunk without its size");
        let line = std::mem::take(&mut self.partial);
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let (state, is_done) = match self.state {
            State::ChunkEnd if text.is_empty() => (State::ChunkSize, false),
            State::Trailers => (State::Trailers, text.is_empty()),
            State::ChunkSize => match httparse::parse_chunk_size(&line) {
                Ok(Status::Complete((_, 0))) => (State::Trailers, false),
                Ok(Status::Complete((_, size))) => (State::Chunk(size), false),
                _ => return Err(malformed()),
            },
            _ => return Err(malformed()),
        };
        self.state = state;
        Ok((used, is_done))
    }
}

/// The headers that matter to whoever reads an answer.
struct Fields<'a> {
    length: Option<u64>,
    is_chunked: bool,
    keeps_alive: bool,
    is_gzip: bool,
    location: Option<&'a str>,
    caches: CacheHeaders<'a>,
}

impl<'a> Fields<'a> {
    fn of(response: &Response<'_, 'a>) -> Result<Self, Failure> {
        let mut fields = Self {
            length: None,
            is_chunked: false,
            // HTTP/1.0 closes, unless it says otherwise.
            keeps_alive: response.version == Some(1),
            is_gzip: false,
            location: None,
            caches: CacheHeaders::default(),
        };
        let mut closes = false;
        for header in response.headers.iter() {
            let (name, value) = (header.name, header.value);
            // By length first: most headers are none of these.
            match name.len() {
                8 if name.eq_ignore_ascii_case("location") => {
                    fields.location = std::str::from_utf8(value).ok();
                }
                10 if name.eq_ignore_ascii_case("connection") => {
                    for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                        closes |= token.eq_ignore_ascii_case(b"close");
                        fields.keeps_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                14 if name.eq_ignore_ascii_case("content-length") => fields.add_length(value)?,
                16 if name.eq_ignore_ascii_case("content-encoding") => {
                    fields.is_gzip = is_gzip(value);
                }
                17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                    let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
                    fields.is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
                    if !fields.is_chunked {
                        return Err(Failure::new(Class::Malformed, "a Transfer-Encoding other than chunked"));
                    }
                }
                _ => {
                    fields.caches.note(name, value);
                }
            }
        }
        fields.keeps_alive &= !closes;
        Ok(fields)
    }

    /// The same length may be told twice, two lengths may not.
    fn add_length(&mut self, value: &[u8]) -> Result<(), Failure> {
        for part in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            let is_number = !part.is_empty() && part.iter().all(u8::is_ascii_digit);
            let length =
                std::str::from_utf8(part).ok().filter(|_| is_number).and_then(|part| part.parse().ok());
            match (length, self.length) {
                (Some(length), None) => self.length = Some(length),
                (Some(length), Some(other)) if length == other => {}
                _ => return Err(Failure::new(Class::Malformed, "a Content-Length that is none")),
            }
        }
        Ok(())
    }

    fn framing(&self) -> Result<Framing, Failure> {
        match (self.is_chunked, self.length) {
            (true, Some(_)) => {
                Err(Failure::new(Class::Malformed, "a Content-Length beside a Transfer-Encoding"))
            }
            (true, None) => Ok(Framing::Chunked),
            (false, Some(length)) => Ok(Framing::Length(length)),
            (false, None) => Ok(Framing::UntilClose),
        }
    }
}

fn too_large() -> Failure {
    let limit = format!("over {} KiB or {HEADERS_MAX} headers", HEAD_BYTES_MAX >> 10);
    Failure::new(Class::HeadTooLarge, limit)
}

/// Whether an empty line may be among the bytes from `had` on.
fn ends_head(bytes: &[u8], had: usize) -> bool {
    let looked_at = &bytes[had.saturating_sub(3)..];
    looked_at.windows(2).any(|two| two == b"\n\n") || looked_at.windows(3).any(|three| three == b"\n\r\n")
}

fn could_be_http(bytes: &[u8]) -> bool {
    const BEGINS: &[u8] = b"HTTP/1.";
    // Empty lines may come before it.
    let bytes = bytes.trim_ascii_start();
    let both = bytes.len().min(BEGINS.len());
    bytes[..both] == BEGINS[..both]
}

#[cfg(test)]
mod tests;
