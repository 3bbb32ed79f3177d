//! Reads HTTP/1 strictly by the grammar of RFC 9112: pure.
//!
//! It shares no code with hyper, which the proxy uses, and it normalises nothing: whatever two parsers could read in
//! two ways is a [`Fault`]. It reads the bytes that a proxy sends, never those of a case.

use std::fmt::{Display, Formatter, Result as FmtResult};

/// Ambiguous or invalid bytes, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault(pub &'static str);

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.write_str(self.0)
    }
}

/// The end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
    /// The end of the connection: responses only.
    Close,
}

/// Requests, or responses to these methods, in turn.
#[derive(Clone, Copy, Debug)]
pub enum Side<'a> {
    Requests,
    Responses {
        /// True if the nth request was HEAD.
        is_head: &'a [bool],
        /// True if the sender has closed the connection.
        is_closed: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Without its line ending.
    pub start: Vec<u8>,
    /// Names as they came; values without surrounding white space.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub framing: Framing,
    /// Without the framing of chunks.
    pub body: Vec<u8>,
    pub is_complete: bool,
}

/// All messages of one direction of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    pub messages: Vec<Message>,
    /// In any of the messages, or in the bytes after them.
    pub faults: Vec<Fault>,
    /// The bytes after the last message that could be read.
    pub consumed: usize,
}

impl Message {
    /// The values of the fields with this name, in any case.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.fields
            .iter()
            .filter(move |(own, _)| own.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value.as_slice())
    }

    /// The method of a request.
    #[must_use]
    pub fn method(&self) -> String {
        self.word(0)
    }

    /// The target of a request.
    #[must_use]
    pub fn target(&self) -> String {
        self.word(1)
    }

    /// The status of a response; 0 without one.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.word(1).parse().unwrap_or(0)
    }

    fn word(&self, at: usize) -> String {
        let word = self.start.split(|byte| *byte == b' ').nth(at).unwrap_or_default();
        word.escape_ascii().to_string()
    }
}

/// Reads on until a fault makes the rest unreadable, or the bytes end.
#[must_use]
pub fn parse(bytes: &[u8], side: Side<'_>) -> Parsed {
    parse_up_to(usize::MAX, bytes, side)
}

/// Reads one message.
#[must_use]
pub fn parse_first(bytes: &[u8], side: Side<'_>) -> Parsed {
    parse_up_to(1, bytes, side)
}

fn parse_up_to(messages_max: usize, bytes: &[u8], side: Side<'_>) -> Parsed {
    let mut parsed = Parsed::default();
    let mut finals = 0;
    let is_partial = |parsed: &Parsed| parsed.messages.last().is_some_and(|last| !last.is_complete);
    while parsed.consumed < bytes.len() && parsed.messages.len() < messages_max && !is_partial(&parsed) {
        let mut reader = Reader { bytes, at: parsed.consumed, faults: Vec::new() };
        let message = reader.message(side, finals);
        parsed.faults.append(&mut reader.faults);
        let Some(message) = message else { break };
        finals += usize::from(message.status() >= 200);
        parsed.consumed = reader.at;
        parsed.messages.push(message);
    }
    parsed.faults.sort_unstable();
    parsed.faults.dedup();
    parsed
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    faults: Vec<Fault>,
}

impl<'a> Reader<'a> {
    /// `None`: the head is incomplete.
    fn message(&mut self, side: Side<'_>, number: usize) -> Option<Message> {
        let start = self.line()?.to_vec();
        let is_request = matches!(side, Side::Requests);
        if is_request {
            self.check_request_line(&start);
        } else {
            self.check_status_line(&start);
        }
        let fields = self.fields()?;
        let mut message =
            Message { start, fields, framing: Framing::None, body: Vec::new(), is_complete: true };
        if is_request {
            self.check_host(&message);
        }
        message.framing = self.framing(&message, side, number);
        self.body(&mut message, side);
        Some(message)
    }

    /// A line without its end. A bare LF ends a line too, and is a fault.
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        self.at += end + 1;
        let Some(line) = rest[..end].strip_suffix(b"\r") else {
            self.fault("bare LF");
            return Some(&rest[..end]);
        };
        if line.contains(&b'\r') {
            self.fault("bare CR");
        }
        Some(line)
    }

    fn fault(&mut self, name: &'static str) {
        self.faults.push(Fault(name));
    }

    fn check_request_line(&mut self, line: &[u8]) {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [method, target, version] = words[..] else { return self.fault("request line") };
        if method.is_empty() || !method.iter().all(|byte| is_token_byte(*byte)) {
            self.fault("method");
        }
        if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) || target.contains(&b'#') {
            self.fault("target");
        }
        if !is_version(version) {
            self.fault("version");
        }
    }

    fn check_status_line(&mut self, line: &[u8]) {
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let (version, status, reason) = (words.next(), words.next(), words.next());
        let is_status = |status: &[u8]| status.len() == 3 && status.iter().all(u8::is_ascii_digit);
        if !version.is_some_and(is_version) || !status.is_some_and(is_status) || reason.is_none() {
            self.fault("status line");
        }
        if line.iter().any(|byte| is_control(*byte)) {
            self.fault("control byte");
        }
    }

    /// `None`: the section is incomplete.
    fn fields(&mut self) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Some(fields);
            }
            if line[0] == b' ' || line[0] == b'\t' {
                self.fault("folded line");
                continue;
            }
            let Some(colon) = line.iter().position(|byte| *byte == b':') else {
                self.fault("line without a colon");
                continue;
            };
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            if name.ends_with(b" ") || name.ends_with(b"\t") {
                self.fault("white space before a colon");
            } else if name.is_empty() || !name.iter().all(|byte| is_token_byte(*byte)) {
                self.fault("field name");
            }
            if value.iter().any(|byte| is_control(*byte)) {
                self.fault("control byte");
            }
            fields.push((trim(name).to_vec(), trim(value).to_vec()));
        }
    }

    fn check_host(&mut self, message: &Message) {
        let hosts = message.values("host").count();
        if hosts > 1 || hosts == 0 && message.start.ends_with(b"1.1") {
            self.fault("Host fields");
        }
    }

    fn framing(&mut self, message: &Message, side: Side<'_>, number: usize) -> Framing {
        let lengths: Vec<&[u8]> = message.values("content-length").collect();
        let codings: Vec<&[u8]> = message.values("transfer-encoding").collect();
        if lengths.len() + codings.len() > 1 {
            self.fault("several lengths");
        }
        let length = lengths.first().and_then(|value| {
            let is_number = value.iter().all(u8::is_ascii_digit);
            is_number.then(|| std::str::from_utf8(value).ok()?.parse().ok()).flatten()
        });
        if length.is_none() && !lengths.is_empty() {
            self.fault("Content-Length");
        }
        let is_chunked = codings.last().is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
        if !codings.is_empty() && !is_chunked {
            self.fault("Transfer-Encoding");
        }
        if !codings.is_empty() && !message.start.windows(8).any(|word| word == b"HTTP/1.1") {
            self.fault("Transfer-Encoding in HTTP/1.0");
        }
        let has_body = match side {
            Side::Requests => true,
            Side::Responses { is_head, .. } => {
                let status = message.status();
                status >= 200 && status != 204 && status != 304 && !is_head.get(number).is_some_and(|is| *is)
            }
        };
        match (has_body, is_chunked, length, side) {
            (false, ..) => Framing::None,
            (_, true, ..) => Framing::Chunked,
            (_, _, Some(length), _) => Framing::Length(length),
            (.., Side::Requests) => Framing::None,
            (.., Side::Responses { .. }) => Framing::Close,
        }
    }

    fn body(&mut self, message: &mut Message, side: Side<'_>) {
        let rest = &self.bytes[self.at..];
        match message.framing {
            Framing::None => {}
            Framing::Length(length) => {
                let taken = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
                message.body = rest[..taken].to_vec();
                message.is_complete = taken as u64 == length;
                self.at += taken;
            }
            Framing::Close => {
                message.body = rest.to_vec();
                message.is_complete = matches!(side, Side::Responses { is_closed: true, .. });
                self.at = self.bytes.len();
            }
            Framing::Chunked => message.is_complete = self.chunks(&mut message.body).is_some(),
        }
    }

    /// `None`: the body is incomplete or malformed.
    fn chunks(&mut self, body: &mut Vec<u8>) -> Option<()> {
        loop {
            let line = self.line()?;
            let (size, extension) = line.split_at(line.iter().take_while(|b| b.is_ascii_hexdigit()).count());
            let size = std::str::from_utf8(size).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
            let is_valid = extension.is_empty() || extension[0] == b';';
            let Some(size) = size.filter(|_| is_valid) else {
                self.fault("chunk size");
                return None;
            };
            if extension.iter().any(|byte| is_control(*byte)) {
                self.fault("chunk extension");
            }
            if size == 0 {
                return self.fields().map(|_| ());
            }
            let rest = &self.bytes[self.at..];
            let Some(data) = rest.get(..size) else {
                body.extend_from_slice(rest);
                self.at = self.bytes.len();
                return None;
            };
            body.extend_from_slice(data);
            self.at += size;
            let end = &rest[size..];
            if end.len() < 2 {
                return None;
            }
            if !end.starts_with(b"\r\n") {
                self.fault("chunk end");
                return None;
            }
            self.at += 2;
        }
    }
}

fn is_version(word: &[u8]) -> bool {
    word == b"HTTP/1.1" || word == b"HTTP/1.0"
}

/// RFC 9110, 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Without optional white space (RFC 9110, 5.6.3).
fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// All but the horizontal tab.
fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(bytes: &str) -> Vec<&'static str> {
        parse(bytes.as_bytes(), Side::Requests).faults.into_iter().map(|fault| fault.0).collect()
    }

    #[test]
    fn requests_are_split_by_their_framing() {
        let bytes = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi\
            POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nho\r\n1;x\r\n!\r\n0\r\nT: 1\r\n\r\n\
            GET /c HTTP/1.1\r\nHost: a\r\n\r\n";
        let parsed = parse(bytes, Side::Requests);
        assert_eq!(parsed.faults, []);
        assert_eq!(parsed.consumed, bytes.len());
        let seen: Vec<_> =
            parsed.messages.iter().map(|one| (one.target(), one.body.clone(), one.is_complete)).collect();
        let expected = [("/a", "hi"), ("/b", "ho!"), ("/c", "")];
        assert_eq!(seen, expected.map(|(target, body)| (target.to_owned(), body.as_bytes().to_vec(), true)));
    }

    #[test]
    fn incomplete_requests_are_marked() {
        for (bytes, messages) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n", 0),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab", 1),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", 1),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n", 1),
        ] {
            let parsed = parse(bytes.as_bytes(), Side::Requests);
            assert_eq!(parsed.messages.len(), messages, "{bytes}");
            assert!(parsed.messages.iter().all(|one| !one.is_complete), "{bytes}");
            assert_eq!(parsed.faults, [], "{bytes}");
        }
    }

    #[test]
    fn ambiguous_bytes_are_faults() {
        for (bytes, expected) in [
            ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "request line"),
            ("G{T / HTTP/1.1\r\nHost: a\r\n\r\n", "method"),
            ("GET /#x HTTP/1.1\r\nHost: a\r\n\r\n", "target"),
            ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", "version"),
            ("GET / HTTP/1.1\r\n\r\n", "Host fields"),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "Host fields"),
            ("GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", "bare LF"),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: y\rz\r\n\r\n", "bare CR"),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n", "folded line"),
            ("GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", "white space before a colon"),
            ("GET / HTTP/1.1\r\nHost: a\r\nX(: y\r\n\r\n", "field name"),
            ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", "line without a colon"),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", "control byte"),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +0\r\n\r\n", "Content-Length"),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
                "several lengths",
            ),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n", "Transfer-Encoding"),
            (
                "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                "Transfer-Encoding in HTTP/1.0",
            ),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n", "chunk size"),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", "chunk end"),
        ] {
            assert!(faults(bytes).contains(&expected), "{bytes:?}: {:?}", faults(bytes));
        }
    }

    #[test]
    fn responses_end_as_their_requests_require() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n\
            HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nHTTP/1.1 200 OK\r\n\r\nrest";
        for is_closed in [false, true] {
            let parsed = parse(bytes, Side::Responses { is_head: &[true, false, false], is_closed });
            let seen: Vec<_> = parsed.messages.iter().map(|one| (one.status(), one.is_complete)).collect();
            assert_eq!(seen, [(100, true), (200, true), (304, true), (200, is_closed)]);
            assert_eq!(parsed.faults, []);
        }
    }
}
