//! What the bytes of a connection of HTTP/1 say before hyper makes sense of them: pure.
//!
//! hyper hides what it normalises: of `Content-Length` beside `Transfer-Encoding` it shows one, repeated lengths become
//! one, a bare LF ends a line as CRLF does. Somebody before us may have read such bytes in another way, and then has
//! another opinion of where a request ends (RFC 9112, 11.2). This reads the same bytes beside hyper, more strictly.
//! hyper alone decides where requests end: should the two ever disagree, a head that hyper has seen and this has not is
//! refused, so the error is on the safe side.

use memchr::memchr;

use super::head::Refusal;

/// How long the line before a chunk may be; nobody writes extensions.
const CHUNK_LINE_MAX: usize = 1_024;
/// How many bytes may come behind the last chunk: as hyper has it.
const TRAILERS_MAX: usize = 16 * 1_024;

/// How far the bytes have been read.
#[derive(Debug)]
pub(super) struct Scan {
    place: Place,
    /// What is there of a line that is not whole.
    line: Vec<u8>,
    framing: Framing,
    /// How many heads were whole, and above suspicion.
    heads: u64,
    /// A head may have so many bytes.
    head_bytes_max: usize,
    wrong: Option<Refusal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before a request, or in its first line.
    Start,
    /// In the fields of a head; so many bytes of it have been read.
    Fields(usize),
    /// In a body of which so many bytes are missing.
    Body(u64),
    /// In the line that says how long a chunk is.
    Size,
    /// In a chunk of which so many bytes are missing.
    Chunk(u64),
    /// In the end of the line behind a chunk.
    ChunkEnd,
    /// Behind the last chunk; so many bytes have been read.
    Trailers(usize),
    /// Behind something that is wrong: nothing is read any more.
    Lost,
}

/// What a head says about its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    None,
    Sized(u64),
    Chunked,
}

impl Scan {
    pub(super) fn new(head_bytes_max: usize) -> Self {
        let (place, framing) = (Place::Start, Framing::None);
        Self { place, line: Vec::new(), framing, heads: 0, head_bytes_max, wrong: None }
    }

    /// Reads on. An error is a body that cannot be read: how many bytes were before what is wrong with it.
    pub(super) fn feed(&mut self, all: &[u8]) -> Result<(), (usize, Refusal)> {
        let mut bytes = all;
        while !bytes.is_empty() {
            let begun = all.len() - bytes.len();
            match &mut self.place {
                Place::Body(missing) | Place::Chunk(missing) => {
                    let taken = usize::try_from(*missing).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[taken..];
                    *missing -= taken as u64;
                    if *missing == 0 {
                        let is_chunk = matches!(self.place, Place::Chunk(_));
                        self.place = if is_chunk { Place::ChunkEnd } else { Place::Start };
                    }
                }
                Place::Lost => return Ok(()),
                Place::Fields(read) if self.line.is_empty() => {
                    let taken = plain_fields(bytes);
                    *read += taken;
                    bytes = &bytes[taken..];
                    if !bytes.is_empty() {
                        bytes = self.feed_line(bytes).map_err(|wrong| (begun, wrong))?;
                    }
                }
                Place::Start | Place::Fields(_) | Place::Size | Place::ChunkEnd | Place::Trailers(_) => {
                    bytes = self.feed_line(bytes).map_err(|wrong| (begun, wrong))?;
                }
            }
        }
        Ok(())
    }

    /// How many heads have been whole, and may be believed.
    pub(super) fn heads(&self) -> u64 {
        self.heads
    }

    /// Why no further one may be.
    pub(super) fn wrong(&self) -> Option<Refusal> {
        self.wrong
    }

    /// Whether a head has begun that is not whole.
    pub(super) fn is_in_head(&self) -> bool {
        matches!(self.place, Place::Fields(_)) || self.place == Place::Start && !self.line.is_empty()
    }

    /// Whether nothing is to come that belongs to what has come.
    pub(super) fn is_between_requests(&self) -> bool {
        self.place == Place::Start && self.line.is_empty()
    }

    /// Whether a body has not come to its end, or never will.
    pub(super) fn is_in_body(&self) -> bool {
        !matches!(self.place, Place::Start | Place::Fields(_))
    }

    /// Reads to the end of the line; what is behind it is returned.
    fn feed_line<'bytes>(&mut self, bytes: &'bytes [u8]) -> Result<&'bytes [u8], Refusal> {
        let Some(end) = memchr(b'\n', bytes) else {
            self.keep(bytes)?;
            return Ok(&[]);
        };
        let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
        if self.line.is_empty() {
            self.end_line(line)?;
        } else {
            self.keep(line)?;
            let mut line = std::mem::take(&mut self.line);
            let ended = self.end_line(&line);
            line.clear();
            self.line = line;
            ended?;
        }
        Ok(rest)
    }

    /// Keeps a part of a line, until there is too much of it.
    fn keep(&mut self, part: &[u8]) -> Result<(), Refusal> {
        let max = match self.place {
            Place::Start | Place::Fields(_) => self.head_bytes_max,
            Place::Trailers(_) => TRAILERS_MAX,
            _ => CHUNK_LINE_MAX,
        };
        if self.line.len() + part.len() > max {
            return self.lose(Refusal::bad("a line is too long"));
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// A line without its LF.
    fn end_line(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let Some((b'\r', line)) = line.split_last() else {
            return self.lose(Refusal::bad("a line ends in LF alone"));
        };
        let length = line.len() + 2;
        match self.place {
            Place::Start if line.is_empty() => {}
            Place::Start => self.place = Place::Fields(length),
            Place::Fields(_) if line.is_empty() => self.end_head(),
            Place::Fields(read) => match field(line, self.framing) {
                Ok(framing) => (self.place, self.framing) = (Place::Fields(read + length), framing),
                Err(wrong) => return self.lose(wrong),
            },
            Place::Size => match chunk_size(line) {
                Some(0) => self.place = Place::Trailers(0),
                Some(size) => self.place = Place::Chunk(size),
                None => return self.lose(Refusal::bad("the size of a chunk is none")),
            },
            Place::ChunkEnd if line.is_empty() => self.place = Place::Size,
            Place::ChunkEnd => return self.lose(Refusal::bad("a chunk is longer than it says")),
            Place::Trailers(_) if line.is_empty() => self.place = Place::Start,
            Place::Trailers(read) if read + length > TRAILERS_MAX => {
                return self.lose(Refusal::bad("there is too much behind the last chunk"));
            }
            Place::Trailers(read) => self.place = Place::Trailers(read + length),
            Place::Body(_) | Place::Chunk(_) | Place::Lost => {}
        }
        Ok(())
    }

    fn end_head(&mut self) {
        self.heads += 1;
        self.place = match std::mem::replace(&mut self.framing, Framing::None) {
            Framing::None | Framing::Sized(0) => Place::Start,
            Framing::Sized(length) => Place::Body(length),
            Framing::Chunked => Place::Size,
        };
    }

    /// Nothing is believed from here on. Of a head it is told when hyper has parsed it; of a body, at once.
    fn lose(&mut self, wrong: Refusal) -> Result<(), Refusal> {
        let is_in_head = matches!(self.place, Place::Start | Place::Fields(_));
        self.place = Place::Lost;
        self.line = Vec::new();
        self.wrong = Some(wrong);
        if is_in_head { Ok(()) } else { Err(wrong) }
    }
}

/// How many bytes of whole lines there are at first that say nothing about a body, and end as they should.
fn plain_fields(bytes: &[u8]) -> usize {
    let mut start = 0;
    while let Some(first) = bytes.get(start)
        && !matches!(first, b'c' | b'C' | b't' | b'T' | b' ' | b'\t' | b'\r')
        && let Some(length) = memchr(b'\n', &bytes[start..])
        && length > 0
        && bytes[start + length - 1] == b'\r'
    {
        start += length + 1;
    }
    start
}

/// What a field says about the body, after what was said before it.
fn field(line: &[u8], said: Framing) -> Result<Framing, Refusal> {
    const LENGTH: &[u8] = b"content-length";
    const CODING: &[u8] = b"transfer-encoding";
    let (name, is_length) = match line[0] {
        b' ' | b'\t' => return Err(Refusal::bad("a line is folded")),
        b'c' | b'C' => (LENGTH, true),
        b't' | b'T' => (CODING, false),
        _ => return Ok(said),
    };
    let Some((start, rest)) = line.split_at_checked(name.len()) else { return Ok(said) };
    if !start.eq_ignore_ascii_case(name) {
        return Ok(said);
    }
    let value = match rest {
        [b':', value @ ..] => value.trim_ascii(),
        [b' ' | b'\t', ..] | [] => return Err(Refusal::bad("there is a space before a colon")),
        // The name goes on.
        _ => return Ok(said),
    };
    if said != Framing::None {
        return Err(Refusal::bad("it says more than once how long it is"));
    }
    if !is_length {
        let is_chunked = value.eq_ignore_ascii_case(b"chunked");
        let not_implemented =
            Refusal { status: http::StatusCode::NOT_IMPLEMENTED, reason: "only chunked is understood" };
        return if is_chunked { Ok(Framing::Chunked) } else { Err(not_implemented) };
    }
    let length = value.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(value).ok()?.parse().ok());
    length.flatten().map(Framing::Sized).ok_or(Refusal::bad("Content-Length is no number"))
}

/// Digits of base 16, and perhaps extensions, which nobody reads.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, rest) = line.split_at(digits);
    // A CR in an extension is one that somebody else may take for the end of the line.
    if !(rest.is_empty() || rest[0] == b';') || rest.contains(&b'\r') {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()
}

#[cfg(test)]
mod tests;
