//! Lines in the Common Log Format: `host ident user [time] "request" status bytes`. The rest of a line is ignored.

use std::borrow::Cow;

use super::{LogLine, request::ReplayRequest, time};

pub(super) fn parse_line(line: &str) -> Result<LogLine<'_>, String> {
    parse(line).map_err(|error| {
        let sample = format!("host - - [{}] \"GET / HTTP/1.1\" 200 17", time::COMMON);
        format!("{error}: the lines of a log have the form `{sample}`, or are JSON")
    })
}

fn parse(line: &str) -> Result<LogLine<'_>, &'static str> {
    let (before, at, rest) = split_time(line).ok_or("the line has no time in brackets")?;
    // Host, ident and user. A virtual host may precede them, and nginx does not quote a user name with spaces.
    if before.split_whitespace().count() < 3 {
        return Err("the line has fewer than three words before its time");
    }
    let rest = rest.strip_prefix(" \"").ok_or("the line has no request in quotation marks after its time")?;
    let end = closing_quote(rest).ok_or("the line's request has no closing quotation mark")?;
    let (request, rest) = (&rest[..end], &rest[end + 1..]);
    let mut words = rest.strip_prefix(' ').unwrap_or_default().split(' ');
    let is_number = |word: Option<&str>| {
        word.is_some_and(|word| {
            word == "-" || (!word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()))
        })
    };
    if !is_number(words.next()) || !is_number(words.next()) {
        return Err("the line has no status and size after its request");
    }
    let request = match unescape(request) {
        Cow::Borrowed(request) => ReplayRequest::parse(request),
        Cow::Owned(request) => ReplayRequest::parse(&request)
            .map(|ReplayRequest { is_head, path }| ReplayRequest { is_head, path: path.into_owned().into() }),
    };
    Ok(LogLine { at, request })
}

/// The text before the time, the time in nanoseconds, and the text after it.
fn split_time(line: &str) -> Option<(&str, u64, &str)> {
    line.match_indices('[').find_map(|(from, _)| {
        let end = from + 1 + time::COMMON.len();
        let text = line.get(from + 1..end)?;
        let rest = line.get(end..)?.strip_prefix(']')?;
        Some((&line[..from], time::parse_common(text)?, rest))
    })
}

/// The position of the first quotation mark that is not escaped.
fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

/// Decodes the escapes of Apache (`\"`, `\\`, `\n`, `\x16`) and nginx (`\x22`).
fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let mut byte = *byte;
        if byte == b'\\'
            && let Some((escape, after)) = rest.split_first()
        {
            rest = after;
            let hex = rest.get(..2).and_then(|hex| str::from_utf8(hex).ok());
            byte = match (escape, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
                (b'x', Some(byte)) => {
                    rest = &rest[2..];
                    byte
                }
                // No URL has any of these characters, so one stands for all.
                (b'b' | b'f' | b'n' | b'r' | b't' | b'v', _) => b'\n',
                (other, _) => *other,
            };
        }
        bytes.push(byte);
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}
