//! Lines in the Common Log Format: `host ident user [time] "request" status bytes`, and any text after it.

use std::{borrow::Cow, net::IpAddr, time::Duration};

use memchr::{memchr, memchr_iter, memchr2_iter, memmem};

use crate::{
    time::{self, TimeParser},
    value::{self, lossy},
};

const SECOND_NS: u64 = 1_000_000_000;

/// The parts of a line, as logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonLine<'a> {
    /// The words before the time: host, ident and user. A virtual host may precede them.
    pub before: &'a [u8],
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// The text between the quotation marks; [`unescape`] decodes it.
    pub request: &'a [u8],
    /// `-` or digits.
    pub status: &'a [u8],
    /// `-` or digits.
    pub bytes: &'a [u8],
    /// The text after the size.
    pub after: &'a [u8],
}

impl<'a> CommonLine<'a> {
    /// Reads a line. [`explained`] completes an error.
    pub fn parse(line: &'a [u8], times: &mut TimeParser) -> Result<Self, &'static str> {
        let (before, at_ns, rest) = split_time(line, times).ok_or("the line has no time in brackets")?;
        // Host, ident and user. A virtual host may precede them, and nginx does not quote a user name with spaces.
        if words(before).nth(2).is_none() {
            return Err("the line has fewer than three words before its time");
        }
        let rest =
            rest.strip_prefix(b" \"").ok_or("the line has no request in quotation marks after its time")?;
        let first = closing_quote(rest).ok_or("the line's request has no closing quotation mark")?;
        let mut end = first;
        loop {
            let request = &rest[..end];
            // Some servers write the marks within a request as they are. It may be long, so that its last word is looked at last.
            let is_end = || {
                let last = request.rsplit(|byte| *byte == b' ').next();
                end == first || last.is_some_and(|word| word.starts_with(b"HTTP/"))
            };
            let (status, after) = split_word(rest[end + 1..].strip_prefix(b" ").unwrap_or_default());
            let (bytes, after) = split_word(after);
            if is_number(status) && is_number(bytes) && is_end() {
                return Ok(Self { before, at_ns, request, status, bytes, after });
            }
            let next = closing_quote(&rest[end + 1..]);
            end += 1 + next.ok_or("the line has no status and size after its request")?;
        }
    }

    /// The virtual host before the client, as in Apache's `vhost_combined` (`example.org:443 192.0.2.7 - - ...`), or without a port
    /// before an address, as in `$host $remote_addr - $remote_user ...` of nginx; or after it in place of the ident, as lighttpd
    /// writes it. The clients that proxies name have commas between them.
    #[must_use]
    pub fn virtual_host(&self) -> Option<&'a str> {
        let mut words = words(self.before);
        let (first, second) = (words.next()?, words.next()?);
        if second == b"-" || first.ends_with(b",") {
            return None;
        }
        let is_address = |word: &str| word.parse::<IpAddr>().is_ok();
        let (first, second) =
            (str::from_utf8(first).ok()?, str::from_utf8(second).ok()?.trim_end_matches(','));
        // After it there are the client, ident and user.
        if words.nth(1).is_none() {
            let is_host = second.contains('.') && !second.contains('@') && !is_address(second);
            return (is_host && is_address(first)).then_some(second);
        }
        let (host, port) = first.rsplit_once(':').unwrap_or((first, ""));
        let is_port = (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
        // An IPv6 address has brackets before a port.
        if is_port && !host.is_empty() && (!host.contains(':') || host.starts_with('[')) {
            return Some(host);
        }
        let is_client = is_address(second) && !is_address(first);
        (is_client && first != "-").then_some(first)
    }
}

/// True for the lines of the error logs of nginx and `LiteSpeed` (`2026/01/31 08:00:01 [error] ...`) and of Apache
/// (`[Sat Jan 31 08:00:01.250 2026] [core:error] ...`), which a container writes to the same place.
pub(crate) fn is_error_log(line: &[u8]) -> bool {
    let forms: [&[u8]; 3] =
        [b"0000/00/00 00:00:00 [A", b"0000-00-00 00:00:00.000000 [A", b"[AAA AAA 00 00:00:00"];
    forms.iter().any(|form| time::has_form(line, form))
}

/// The message about a line in another format.
#[must_use]
pub fn explained(error: &str) -> String {
    let sample = format!("host - - [{}] \"GET / HTTP/1.1\" 200 17", time::COMMON);
    format!("{error}: the lines of a log have the form `{sample}`, or are JSON")
}

/// The user agent of the text after the size: the second text in quotation marks, after the referrer.
pub(crate) fn user_agent(after: &[u8]) -> Option<&[u8]> {
    let after = after.trim_ascii_start();
    let rest = match after.strip_prefix(b"\"") {
        Some(referrer) => &referrer[closing_quote(referrer)? + 1..],
        // Traefik before its version 2.
        None => after.strip_prefix(b"- ")?,
    };
    let agent = rest.trim_ascii_start().strip_prefix(b"\"")?;
    value::known(&agent[..closing_quote(agent)?])
}

/// The service time in the text after the user agent, where a known format has it.
pub(crate) fn service_time(after: &[u8]) -> Option<Duration> {
    match after.last()? {
        b'"' => None,
        b's' => traefik_duration(after),
        _ => ingress_duration(after),
    }
}

/// Traefik's lines end in the time until the response, as in ` "router" "server" 3ms`.
fn traefik_duration(after: &[u8]) -> Option<Duration> {
    let rest = after.strip_suffix(b"ms")?;
    let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, digits) = rest.split_at(rest.len() - digits);
    if before.ends_with(b" ") { value::number(digits).map(Duration::from_millis) } else { None }
}

/// Those of ingress-nginx end in ` 486 0.120 [default-web-80] [] 10.0.0.7:80 1234 0.118 200 5f3c...`: the time that the upstream took,
/// of several the sum.
/// <https://kubernetes.github.io/ingress-nginx/user-guide/nginx-configuration/log-format/>
fn ingress_duration(after: &[u8]) -> Option<Duration> {
    let rest = &after[memmem::find(after, b" [")?..];
    // Without the spaces within the lists of several upstreams.
    let lists = lossy(&rest[memmem::rfind(rest, b"] ")? + 2..]).replace(", ", ",").replace(" : ", ":");
    let words: Vec<_> = lists.split(' ').collect();
    let [_addresses, _sizes, times, _statuses, _id] = words[..] else { return None };
    value::duration(times.as_bytes(), SECOND_NS)
}

pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// The text before the next space, and the text after it.
fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    memchr(b' ', text).map_or((text, &[]), |at| (&text[..at], &text[at + 1..]))
}

fn is_number(word: &[u8]) -> bool {
    word == b"-" || (!word.is_empty() && word.iter().all(u8::is_ascii_digit))
}

/// The text before the time, the time in nanoseconds, and the text after it.
fn split_time<'a>(line: &'a [u8], times: &mut TimeParser) -> Option<(&'a [u8], u64, &'a [u8])> {
    memchr_iter(b'[', line).find_map(|from| {
        let end = from + 1 + time::COMMON.len();
        let text = line.get(from + 1..end)?;
        let rest = line.get(end..)?.strip_prefix(b"]")?;
        Some((&line[..from], times.parse_common(text)?, rest))
    })
}

/// The position of the first quotation mark that is not escaped.
pub(crate) fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut escaped = None;
    memchr2_iter(b'"', b'\\', text).find(|at| {
        if escaped == Some(*at) {
            return false;
        }
        if text[*at] == b'\\' {
            escaped = Some(at + 1);
        }
        text[*at] == b'"'
    })
}

/// Decodes the escapes of Apache (`\"`, `\\`, `\n`, `\x16`) and nginx (`\x22`). Bytes that are not UTF-8 are replaced.
#[must_use]
pub fn unescape(text: &[u8]) -> Cow<'_, str> {
    if memchr(b'\\', text).is_none() {
        return lossy(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
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
