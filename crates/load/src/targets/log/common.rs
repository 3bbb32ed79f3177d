//! A line of the Common Log Format: `host ident user [time] "request" status bytes`, and whatever follows it.

use std::borrow::Cow;

use super::{Said, request::Request, time};

/// What a line says, or what it lacks.
pub(super) fn said(line: &str) -> Result<Said<'_>, String> {
    read(line).map_err(|wrong| {
        let sample = format!("host - - [{}] \"GET / HTTP/1.1\" 200 17", time::COMMON);
        format!("{wrong}: the lines of a log are to be as `{sample}`, or JSON")
    })
}

fn read(line: &str) -> Result<Said<'_>, &'static str> {
    let (before, at, rest) = timed(line).ok_or("the line has no time in brackets")?;
    // Host, ident and user; a virtual host may come first, and nginx does not say where a user's name ends.
    if before.split_whitespace().count() < 3 {
        return Err("the line has fewer than three words before its time");
    }
    let rest = rest.strip_prefix(" \"").ok_or("the line has no request in quotation marks after its time")?;
    let end = quoted(rest).ok_or("the line's request has no closing quotation mark")?;
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
    let request = match unescaped(request) {
        Cow::Borrowed(request) => Request::of_line(request),
        Cow::Owned(request) => Request::of_line(&request)
            .map(|Request { is_head, path }| Request { is_head, path: path.into_owned().into() }),
    };
    Ok(Said { at, request })
}

/// What is before the time, the time, and what is after it.
fn timed(line: &str) -> Option<(&str, u64, &str)> {
    line.match_indices('[').find_map(|(from, _)| {
        let end = from + 1 + time::COMMON.len();
        let text = line.get(from + 1..end)?;
        let rest = line.get(end..)?.strip_prefix(']')?;
        Some((&line[..from], time::common(text)?, rest))
    })
}

/// Where the quotation mark is that ends a text: none that has a backslash before it.
fn quoted(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

/// With what Apache (`\"`, `\\`, `\n`, `\x16`) and nginx (`\x22`) write in other words as it was.
fn unescaped(text: &str) -> Cow<'_, str> {
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
                // None of them can be in a URL: which one it was does not matter.
                (b'b' | b'f' | b'n' | b'r' | b't' | b'v', _) => b'\n',
                (other, _) => *other,
            };
        }
        bytes.push(byte);
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}
