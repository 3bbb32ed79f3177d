//! The framing scanner compared with a reader of whole inputs, and with hyper.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

mod beside_hyper;
pub mod proxied;

use super::scan::FramingScanner;

/// Small, so that inputs reach it.
const HEAD_BYTES_MAX: usize = 512;
const INPUT_BYTES_MAX: usize = 4_096;
/// As in the scanner: RFC 9112 leaves the limit to the recipient.
const CHUNK_LINE_BYTES_MAX: usize = 1_024;

/// The first byte is the length of uneven reads, the rest is what a client sends.
///
/// - The verdict does not depend on how the input is split into reads.
/// - The scanner finds the ends of heads and messages where a reader of the whole input finds them, and rejects what
///   it rejects.
/// - A request that hyper has parsed and the scanner has accepted ends for both at the same byte, with the same body.
pub fn check(data: &[u8]) {
    let Some((step, bytes)) = data.split_first() else { return };
    if bytes.len() > INPUT_BYTES_MAX {
        return;
    }
    let expected = read_whole(bytes);
    let step = usize::from(*step) + 1;
    for step in [1, step, INPUT_BYTES_MAX] {
        assert_eq!(scan(bytes.chunks(step)), expected.verdict(), "in reads of {step} bytes");
    }
    beside_hyper::check(bytes, step, &expected);
}

/// The accepted heads, and where the scanner stands: rejecting, in a head, in a body.
type Verdict = (usize, bool, bool, bool);

fn scan<'parts>(parts: impl Iterator<Item = &'parts [u8]>) -> Verdict {
    let mut scanner = FramingScanner::new(HEAD_BYTES_MAX);
    for part in parts {
        if scanner.feed(part).is_err() {
            break;
        }
    }
    let is_rejecting = scanner.rejection().is_some();
    let heads = usize::try_from(scanner.heads_accepted()).expect("a small number");
    assert!(!(scanner.is_between_requests() && (scanner.is_in_head() || scanner.is_in_body())));
    (heads, is_rejecting, scanner.is_in_head(), scanner.is_in_body() && !is_rejecting)
}

/// The requests of an input.
#[derive(Debug, Default)]
struct Requests {
    /// Offsets after the heads.
    head_ends: Vec<usize>,
    /// Offsets after the messages that are complete.
    ends: Vec<usize>,
    /// Their bodies, and that of an incomplete message as far as it has arrived.
    bodies: Vec<Vec<u8>>,
    is_rejected: bool,
    /// An incomplete head has begun.
    is_in_head: bool,
}

impl Requests {
    fn verdict(&self) -> Verdict {
        let is_in_body = !self.is_rejected && self.ends.len() < self.head_ends.len();
        (self.head_ends.len(), self.is_rejected, self.is_in_head, is_in_body)
    }
}

/// A part of the input: its length and content, or the reason why it does not end.
enum ParseOutcome<T> {
    Complete(usize, T),
    Incomplete,
    Rejected,
}

#[derive(Clone, Copy)]
enum Framing {
    None,
    Length(u64),
    Chunked,
}

/// Reads the requests of RFC 9112 from a whole input.
fn read_whole(bytes: &[u8]) -> Requests {
    let (mut requests, mut at) = (Requests::default(), 0);
    loop {
        while bytes[at..].starts_with(b"\r\n") {
            at += 2;
        }
        let framing = match head(&bytes[at..]) {
            ParseOutcome::Complete(length, framing) => {
                at += length;
                framing
            }
            ParseOutcome::Incomplete => {
                requests.is_in_head = at < bytes.len();
                return requests;
            }
            ParseOutcome::Rejected => {
                requests.is_rejected = true;
                return requests;
            }
        };
        requests.head_ends.push(at);
        let mut body = Vec::new();
        let read = match framing {
            Framing::None => ParseOutcome::Complete(0, ()),
            Framing::Length(length) => sized(&bytes[at..], length, &mut body),
            Framing::Chunked => chunked(&bytes[at..], &mut body),
        };
        requests.bodies.push(body);
        match read {
            ParseOutcome::Complete(length, ()) => at += length,
            ParseOutcome::Incomplete => return requests,
            ParseOutcome::Rejected => {
                requests.is_rejected = true;
                return requests;
            }
        }
        requests.ends.push(at);
    }
}

/// The line at the start, without its CRLF.
fn line(bytes: &[u8], bytes_max: usize) -> ParseOutcome<&[u8]> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() > bytes_max { ParseOutcome::Rejected } else { ParseOutcome::Incomplete };
    };
    match bytes[..end].strip_suffix(b"\r") {
        Some(line) if end <= bytes_max => ParseOutcome::Complete(end + 1, line),
        _ => ParseOutcome::Rejected,
    }
}

/// Only the framing, fragments and what `Connection` removes matter here: hyper checks the rest of a head.
fn head(bytes: &[u8]) -> ParseOutcome<Framing> {
    let (mut at, mut framing, mut is_first) = (0, Framing::None, true);
    loop {
        let text = match line(&bytes[at..], HEAD_BYTES_MAX) {
            ParseOutcome::Complete(length, text) => {
                at += length;
                text.to_ascii_lowercase()
            }
            ParseOutcome::Incomplete => return ParseOutcome::Incomplete,
            ParseOutcome::Rejected => return ParseOutcome::Rejected,
        };
        if std::mem::take(&mut is_first) {
            // A fragment in the target.
            if text.iter().skip_while(|byte| **byte != b' ').any(|byte| *byte == b'#') {
                return ParseOutcome::Rejected;
            }
            continue;
        }
        if text.is_empty() {
            return ParseOutcome::Complete(at, framing);
        }
        if matches!(text[0], b' ' | b'\t') {
            return ParseOutcome::Rejected;
        }
        let name_end = text.iter().position(|byte| matches!(byte, b':' | b' ' | b'\t')).unwrap_or(text.len());
        let is_length = match &text[..name_end] {
            b"connection" if text.get(name_end) == Some(&b':') => {
                let mut options = text[name_end + 1..].split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
                if options.any(|option| option == b"content-length" || option == b"host") {
                    return ParseOutcome::Rejected;
                }
                continue;
            }
            b"content-length" => true,
            b"transfer-encoding" => false,
            _ => continue,
        };
        let (Framing::None, Some(b':')) = (framing, text.get(name_end)) else {
            return ParseOutcome::Rejected;
        };
        let value = text[name_end + 1..].trim_ascii();
        framing = match std::str::from_utf8(value).ok().map(str::parse::<u64>) {
            Some(Ok(length)) if is_length && value[0] != b'+' => Framing::Length(length),
            _ if !is_length && value == b"chunked" => Framing::Chunked,
            _ => return ParseOutcome::Rejected,
        };
    }
}

fn sized(bytes: &[u8], length: u64, body: &mut Vec<u8>) -> ParseOutcome<()> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    body.extend_from_slice(&bytes[..length.min(bytes.len())]);
    if length <= bytes.len() { ParseOutcome::Complete(length, ()) } else { ParseOutcome::Incomplete }
}

fn chunked(bytes: &[u8], body: &mut Vec<u8>) -> ParseOutcome<()> {
    let mut at = 0;
    let next_line = |at: &mut usize, bytes_max| match line(&bytes[*at..], bytes_max) {
        ParseOutcome::Complete(length, text) => {
            *at += length;
            Ok(text)
        }
        ParseOutcome::Incomplete => Err(ParseOutcome::Incomplete),
        ParseOutcome::Rejected => Err(ParseOutcome::Rejected),
    };
    loop {
        let text = match next_line(&mut at, CHUNK_LINE_BYTES_MAX) {
            Ok(text) => text,
            Err(end) => return end,
        };
        let size = text.split(|byte| *byte == b';').next().unwrap_or_default();
        let is_number = !text.contains(&b'\r') && size.iter().all(u8::is_ascii_hexdigit);
        let size = std::str::from_utf8(size).ok().and_then(|size| u64::from_str_radix(size, 16).ok());
        let Some(size) = size.filter(|_| is_number) else { return ParseOutcome::Rejected };
        if size == 0 {
            break;
        }
        match sized(&bytes[at..], size, body) {
            ParseOutcome::Complete(length, ()) => at += length,
            end => return end,
        }
        match next_line(&mut at, CHUNK_LINE_BYTES_MAX) {
            Ok(b"") => {}
            Ok(_) => return ParseOutcome::Rejected,
            Err(end) => return end,
        }
    }
    loop {
        match next_line(&mut at, INPUT_BYTES_MAX) {
            Ok(b"") => return ParseOutcome::Complete(at, ()),
            Ok(_) => {}
            Err(end) => return end,
        }
    }
}
