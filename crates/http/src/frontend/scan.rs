//! Reads the framing of HTTP/1 requests before hyper does. Pure.
//!
//! hyper normalises some heads: of `Content-Length` and `Transfer-Encoding` it shows one, repeated lengths become
//! one, and a bare LF ends a line as CRLF does. A proxy in front of this one may read such bytes differently, and then
//! disagrees about where a request ends (RFC 9112, 11.2). The scanner reads the same bytes more strictly. hyper alone
//! decides where requests end: a head that hyper has parsed and the scanner has not accepted is rejected, so a
//! disagreement between the two is safe.

use memchr::memchr;

use super::head::Rejection;

/// The longest line before a chunk. Chunk extensions are not used in practice.
const CHUNK_LINE_BYTES_MAX: usize = 1_024;
/// The largest trailer section: hyper's limit.
const TRAILER_BYTES_MAX: usize = 16 * 1_024;

const LINE_TOO_LONG: Rejection = Rejection::bad_request("a line is too long");

#[derive(Debug)]
pub(super) struct FramingScanner {
    position: ScanPosition,
    /// The start of a line whose end has not arrived.
    line: Vec<u8>,
    framing: BodyFraming,
    heads_accepted: u64,
    head_bytes_max: usize,
    rejection: Option<Rejection>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanPosition {
    /// Before a request, or in its first line.
    RequestLine,
    /// In the header section, after this many bytes of the head.
    Fields(usize),
    /// In a body, before this many last bytes.
    Body(u64),
    /// In the line that holds the size of a chunk.
    ChunkSize,
    /// In the data of a chunk, before this many last bytes.
    ChunkData(u64),
    /// In the end of line after the data of a chunk.
    ChunkEnd,
    /// In the trailer section, after this many bytes of it.
    Trailers(usize),
    /// After an error: nothing more is read.
    Failed,
}

/// The framing of a body, from its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFraming {
    None,
    Sized(u64),
    Chunked,
}

impl FramingScanner {
    pub(super) fn new(head_bytes_max: usize) -> Self {
        Self {
            position: ScanPosition::RequestLine,
            line: Vec::new(),
            framing: BodyFraming::None,
            heads_accepted: 0,
            head_bytes_max,
            rejection: None,
        }
    }

    /// Reads on. Fails in a malformed body: with the number of valid bytes before the fault.
    pub(super) fn feed(&mut self, input: &[u8]) -> Result<(), (usize, Rejection)> {
        let mut bytes = input;
        while !bytes.is_empty() {
            let valid = input.len() - bytes.len();
            match &mut self.position {
                ScanPosition::Body(missing) | ScanPosition::ChunkData(missing) => {
                    let taken = usize::try_from(*missing).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[taken..];
                    *missing -= taken as u64;
                    if *missing == 0 {
                        let is_chunk = matches!(self.position, ScanPosition::ChunkData(_));
                        self.position =
                            if is_chunk { ScanPosition::ChunkEnd } else { ScanPosition::RequestLine };
                    }
                }
                ScanPosition::Failed => return Ok(()),
                ScanPosition::Fields(read) if self.line.is_empty() => {
                    let taken = irrelevant_fields(bytes, self.head_bytes_max);
                    *read += taken;
                    bytes = &bytes[taken..];
                    if !bytes.is_empty() {
                        bytes = self.feed_line(bytes).map_err(|rejection| (valid, rejection))?;
                    }
                }
                ScanPosition::RequestLine
                | ScanPosition::Fields(_)
                | ScanPosition::ChunkSize
                | ScanPosition::ChunkEnd
                | ScanPosition::Trailers(_) => {
                    bytes = self.feed_line(bytes).map_err(|rejection| (valid, rejection))?;
                }
            }
        }
        Ok(())
    }

    /// How many heads were complete and unambiguous.
    pub(super) fn heads_accepted(&self) -> u64 {
        self.heads_accepted
    }

    /// Why no further head is accepted.
    pub(super) fn rejection(&self) -> Option<Rejection> {
        self.rejection
    }

    /// True if a head has begun and is incomplete.
    pub(super) fn is_in_head(&self) -> bool {
        matches!(self.position, ScanPosition::Fields(_))
            || self.position == ScanPosition::RequestLine && !self.line.is_empty()
    }

    pub(super) fn is_between_requests(&self) -> bool {
        self.position == ScanPosition::RequestLine && self.line.is_empty()
    }

    /// True if a body is incomplete, or malformed.
    pub(super) fn is_in_body(&self) -> bool {
        !matches!(self.position, ScanPosition::RequestLine | ScanPosition::Fields(_))
    }

    /// Reads to the end of the line. Returns the bytes after it.
    fn feed_line<'bytes>(&mut self, bytes: &'bytes [u8]) -> Result<&'bytes [u8], Rejection> {
        let Some(end) = memchr(b'\n', bytes) else {
            self.buffer_line(bytes)?;
            return Ok(&[]);
        };
        let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
        if self.line.len() + line.len() > self.line_bytes_max() {
            self.fail(LINE_TOO_LONG)?;
        } else if self.line.is_empty() {
            self.end_line(line)?;
        } else {
            self.line.extend_from_slice(line);
            let mut line = std::mem::take(&mut self.line);
            let result = self.end_line(&line);
            line.clear();
            self.line = line;
            result?;
        }
        Ok(rest)
    }

    fn buffer_line(&mut self, part: &[u8]) -> Result<(), Rejection> {
        if self.line.len() + part.len() > self.line_bytes_max() {
            return self.fail(LINE_TOO_LONG);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// Of a line without its LF.
    fn line_bytes_max(&self) -> usize {
        match self.position {
            ScanPosition::RequestLine | ScanPosition::Fields(_) => self.head_bytes_max,
            ScanPosition::Trailers(_) => TRAILER_BYTES_MAX,
            _ => CHUNK_LINE_BYTES_MAX,
        }
    }

    /// `line` is without its LF.
    fn end_line(&mut self, line: &[u8]) -> Result<(), Rejection> {
        use ScanPosition::{Body, ChunkData, ChunkEnd, ChunkSize, Failed, Fields, RequestLine, Trailers};
        let Some((b'\r', line)) = line.split_last() else {
            return self.fail(Rejection::bad_request("a line ends in a bare LF"));
        };
        let length = line.len() + 2;
        match self.position {
            RequestLine if line.is_empty() => {}
            RequestLine if has_fragment(line) => {
                return self.fail(Rejection::bad_request("the target has a fragment"));
            }
            RequestLine => self.position = Fields(length),
            Fields(_) if line.is_empty() => self.end_head(),
            Fields(read) => match framing_after(line, self.framing) {
                Ok(framing) => (self.position, self.framing) = (Fields(read + length), framing),
                Err(rejection) => return self.fail(rejection),
            },
            ChunkSize => match parse_chunk_size(line) {
                Some(0) => self.position = Trailers(0),
                Some(size) => self.position = ChunkData(size),
                None => return self.fail(Rejection::bad_request("a chunk size is invalid")),
            },
            ChunkEnd if line.is_empty() => self.position = ChunkSize,
            ChunkEnd => return self.fail(Rejection::bad_request("a chunk is longer than its size")),
            Trailers(_) if line.is_empty() => self.position = RequestLine,
            Trailers(read) if read + length > TRAILER_BYTES_MAX => {
                return self.fail(Rejection::bad_request("the trailer section is too large"));
            }
            Trailers(read) => self.position = Trailers(read + length),
            Body(_) | ChunkData(_) | Failed => {}
        }
        Ok(())
    }

    fn end_head(&mut self) {
        self.heads_accepted += 1;
        self.position = match std::mem::replace(&mut self.framing, BodyFraming::None) {
            BodyFraming::None | BodyFraming::Sized(0) => ScanPosition::RequestLine,
            BodyFraming::Sized(length) => ScanPosition::Body(length),
            BodyFraming::Chunked => ScanPosition::ChunkSize,
        };
    }

    /// Accepts nothing more. A fault in a head is reported once hyper has parsed that head, one in a body at once.
    fn fail(&mut self, rejection: Rejection) -> Result<(), Rejection> {
        let is_in_head = matches!(self.position, ScanPosition::RequestLine | ScanPosition::Fields(_));
        self.position = ScanPosition::Failed;
        self.line = Vec::new();
        self.rejection = Some(rejection);
        if is_in_head { Ok(()) } else { Err(rejection) }
    }
}

/// The length of the leading complete lines that are not too long, end in CRLF and cannot concern the framing.
fn irrelevant_fields(bytes: &[u8], line_bytes_max: usize) -> usize {
    let mut start = 0;
    while let Some(first) = bytes.get(start)
        && !matches!(first, b'c' | b'C' | b't' | b'T' | b' ' | b'\t' | b'\r')
        && let Some(length) = memchr(b'\n', &bytes[start..])
        && (1..=line_bytes_max).contains(&length)
        && bytes[start + length - 1] == b'\r'
    {
        start += length + 1;
    }
    start
}

/// True if the target has a `#`, which hyper would drop with the bytes after it. A method may contain one.
fn has_fragment(line: &[u8]) -> bool {
    let Some(at) = memchr(b'#', line) else { return false };
    memchr(b' ', line).is_some_and(|space| space < at || line[space..].contains(&b'#'))
}

/// True if the line is a `Connection` field that names the fields of the framing or the host: a proxy that obeys would
/// remove them (RFC 9110, 7.6.1).
fn removes_framing(line: &[u8]) -> bool {
    let Some((name, [b':', value @ ..])) = line.split_at_checked(b"connection".len()) else { return false };
    let is_essential = |option: &[u8]| {
        let option = option.trim_ascii();
        option.eq_ignore_ascii_case(b"content-length") || option.eq_ignore_ascii_case(b"host")
    };
    name.eq_ignore_ascii_case(b"connection") && value.split(|byte| *byte == b',').any(is_essential)
}

/// The framing after a further header line.
fn framing_after(line: &[u8], framing: BodyFraming) -> Result<BodyFraming, Rejection> {
    const LENGTH: &[u8] = b"content-length";
    const CODING: &[u8] = b"transfer-encoding";
    let (name, is_length) = match line[0] {
        b' ' | b'\t' => return Err(Rejection::bad_request("a header line is folded")),
        b'c' | b'C' if removes_framing(line) => {
            return Err(Rejection::bad_request("Connection names a field that has to be forwarded"));
        }
        b'c' | b'C' => (LENGTH, true),
        b't' | b'T' => (CODING, false),
        _ => return Ok(framing),
    };
    let Some((start, rest)) = line.split_at_checked(name.len()) else { return Ok(framing) };
    if !start.eq_ignore_ascii_case(name) {
        return Ok(framing);
    }
    let value = match rest {
        [b':', value @ ..] => value.trim_ascii(),
        [b' ' | b'\t', ..] | [] => {
            return Err(Rejection::bad_request("there is whitespace before a colon"));
        }
        // Another field, whose name is longer.
        _ => return Ok(framing),
    };
    if framing != BodyFraming::None {
        return Err(Rejection::bad_request("the request states its length more than once"));
    }
    if !is_length {
        let is_chunked = value.eq_ignore_ascii_case(b"chunked");
        let not_implemented = Rejection {
            status: http::StatusCode::NOT_IMPLEMENTED,
            reason: "the only supported transfer coding is chunked",
        };
        return if is_chunked { Ok(BodyFraming::Chunked) } else { Err(not_implemented) };
    }
    let length = value.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(value).ok()?.parse().ok());
    length.flatten().map(BodyFraming::Sized).ok_or(Rejection::bad_request("Content-Length is not a number"))
}

/// Hexadecimal digits with optional extensions, which are ignored.
fn parse_chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, rest) = line.split_at(digits);
    // Another parser may take a CR inside an extension for the end of the line.
    if !(rest.is_empty() || rest[0] == b';') || rest.contains(&b'\r') {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()
}

#[cfg(test)]
mod tests;
