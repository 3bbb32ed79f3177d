//! Messages of HTTP/1.1, read as bytes.

use std::io::{BufRead, Error, ErrorKind, Read, Result};

/// The end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    Bytes(u64),
    Chunked,
    UntilClose,
}

/// Reads a head, without the empty line. `None`: the connection ended before it.
pub fn read_head(from: &mut impl BufRead) -> Result<Option<String>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if from.read_until(b'\n', &mut head)? == 0 {
            return if head.is_empty() { Ok(None) } else { Err(ErrorKind::UnexpectedEof.into()) };
        }
    }
    head.truncate(head.len() - 2);
    String::from_utf8(head).map(Some).map_err(Error::other)
}

/// The values of a field.
pub fn fields<'h>(head: &'h str, name: &'h str) -> impl Iterator<Item = &'h str> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines.filter(move |(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

pub fn field<'h>(head: &'h str, name: &'h str) -> Option<&'h str> {
    fields(head, name).next()
}

/// The status of a response; 0 if it is not one.
pub fn status(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// The method of a request.
pub fn method(head: &str) -> &str {
    head.split(' ').next().unwrap_or_default()
}

fn stated_length(head: &str) -> Option<Length> {
    if field(head, "transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        return Some(Length::Chunked);
    }
    field(head, "content-length")?.parse().ok().map(Length::Bytes)
}

pub fn request_length(head: &str) -> Length {
    stated_length(head).unwrap_or(Length::Bytes(0))
}

pub fn response_length(head: &str, request_method: &str) -> Length {
    if request_method == "HEAD" || status(head) < 200 || [204, 304].contains(&status(head)) {
        return Length::Bytes(0);
    }
    stated_length(head).unwrap_or(Length::UntilClose)
}

/// Reads a body and returns its content; `forward` receives it with its framing, as it arrives.
pub fn read_body(
    from: &mut impl BufRead,
    length: Length,
    mut forward: impl FnMut(&[u8]) -> Result<()>,
) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    match length {
        Length::Bytes(bytes) => copy(from, Some(bytes), &mut content, &mut forward)?,
        Length::UntilClose => copy(from, None, &mut content, &mut forward)?,
        Length::Chunked => loop {
            let line = read_line(from)?;
            forward(line.as_bytes())?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(size, 16).map_err(Error::other)?;
            if size > 0 {
                copy(from, Some(size), &mut content, &mut forward)?;
                forward(read_line(from)?.as_bytes())?;
                continue;
            }
            // Trailers, and an empty line.
            loop {
                let line = read_line(from)?;
                forward(line.as_bytes())?;
                if line == "\r\n" {
                    return Ok(content);
                }
            }
        },
    }
    Ok(content)
}

fn read_line(from: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    if line.ends_with("\r\n") { Ok(line) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

/// Copies this many bytes, or all.
fn copy(
    from: &mut impl Read,
    bytes: Option<u64>,
    content: &mut Vec<u8>,
    forward: &mut impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let (mut left, mut buffer) = (bytes, [0; 16_384]);
    while left != Some(0) {
        let most =
            left.map_or(buffer.len(), |left| buffer.len().min(usize::try_from(left).unwrap_or(buffer.len())));
        let read = from.read(&mut buffer[..most])?;
        if read == 0 {
            return if left.is_none() { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) };
        }
        forward(&buffer[..read])?;
        content.extend_from_slice(&buffer[..read]);
        left = left.map(|left| left - read as u64);
    }
    Ok(())
}
