//! What a response says about the end of its body: pure.
//!
//! hyper and h2 decide where a body ends. These checks refuse responses that another parser may cut elsewhere, and leave one spelling of
//! the length for the client.

use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};

/// Why a response is refused.
pub(super) type FramingError = &'static str;

const AMBIGUOUS: FramingError = "the length of its body is ambiguous";

/// Of the registered codings those that change the bytes (RFC 9112, 7.2): without decoding them a client would get other bytes.
const COMPRESSIONS: [&str; 5] = ["gzip", "x-gzip", "deflate", "compress", "x-compress"];

/// Checks the transfer codings of HTTP/1 (RFC 9112, 6.3).
///
/// `chunked` alone ends the body. After any other final coding the end of the connection does; the field is removed with the other
/// fields of the connection. Refused: a length in addition, `chunked` in another place, in another spelling or twice, and compressions.
pub(super) fn check_codings(headers: &HeaderMap) -> Result<(), FramingError> {
    let lines = headers.get_all(TRANSFER_ENCODING);
    if lines.iter().next().is_none() {
        return Ok(());
    }
    if headers.contains_key(CONTENT_LENGTH) {
        return Err(AMBIGUOUS);
    }
    let mut lines = lines.iter().map(|line| line.as_bytes().to_ascii_lowercase());
    let text = lines.next().unwrap_or_default();
    let text = lines.fold(text, |text, line| [text, line].join(&b','));
    if text == b"chunked" {
        return Ok(());
    }
    if memchr::memmem::find(&text, b"chunked").is_some() {
        return Err(AMBIGUOUS);
    }
    let is_compression = |coding: &[u8]| {
        let name = coding.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        COMPRESSIONS.iter().any(|known| known.as_bytes() == name)
    };
    if text.split(|byte| *byte == b',').any(is_compression) {
        return Err("its transfer coding is not supported");
    }
    Ok(())
}

/// Leaves one length of digits: a list of equal lengths is one (RFC 9110, 8.6). A 204 has none.
pub(super) fn normalize_length(status: StatusCode, headers: &mut HeaderMap) -> Result<(), FramingError> {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lines.next() else { return Ok(()) };
    let is_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if lines.next().is_none() && is_digits(first.as_bytes()) && status != StatusCode::NO_CONTENT {
        return Ok(());
    }
    let mut length: Option<Vec<u8>> = None;
    for line in headers.get_all(CONTENT_LENGTH) {
        for text in line.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            match &length {
                _ if !is_digits(text) => return Err(AMBIGUOUS),
                Some(length) if length != text => return Err(AMBIGUOUS),
                _ => length = Some(text.to_vec()),
            }
        }
    }
    headers.remove(CONTENT_LENGTH);
    let length = length.and_then(|length| HeaderValue::from_bytes(&length).ok());
    if let Some(length) = length.filter(|_| status != StatusCode::NO_CONTENT) {
        headers.insert(CONTENT_LENGTH, length);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(name: &http::HeaderName, lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (name.clone(), HeaderValue::from_bytes(line.as_bytes()).unwrap())).collect()
    }

    #[test]
    fn chunked_alone_or_an_unknown_coding_is_unambiguous() {
        for (lines, is_accepted) in [
            (&[][..], true),
            (&["chunked"], true),
            (&["CHUNKED"], true),
            (&["identity"], true),
            (&["x"], true),
            (&["x, y", "z;q=1"], true),
            (&["chunked", "chunked"], false),
            (&["chunked, chunked"], false),
            (&["gzip, chunked"], false),
            (&["chunked, identity"], false),
            (&["chunked", "identity"], false),
            (&["xchunked"], false),
            (&["chunked;q=1"], false),
            (&["gzip"], false),
            (&["x, Deflate;q=1"], false),
            (&["x", "x-gzip "], false),
        ] {
            let mut headers = head(&TRANSFER_ENCODING, lines);
            assert_eq!(check_codings(&headers).is_ok(), is_accepted, "{lines:?}");
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("5"));
            assert_eq!(check_codings(&headers).is_ok(), lines.is_empty(), "{lines:?} and a length");
        }
    }

    #[test]
    fn equal_lengths_are_one() {
        let ok = StatusCode::OK;
        for (status, lines, expected) in [
            (ok, &[][..], Ok(None)),
            (ok, &["5"], Ok(Some("5"))),
            (ok, &["5, 5"], Ok(Some("5"))),
            (ok, &["5 ,5,\t5"], Ok(Some("5"))),
            (ok, &["5", "5"], Ok(Some("5"))),
            (ok, &["5", "5, 5"], Ok(Some("5"))),
            (ok, &["5, 4"], Err(AMBIGUOUS)),
            (ok, &["5", "4"], Err(AMBIGUOUS)),
            (ok, &["5,"], Err(AMBIGUOUS)),
            (ok, &[""], Err(AMBIGUOUS)),
            (ok, &["+5"], Err(AMBIGUOUS)),
            (ok, &["5, 05"], Err(AMBIGUOUS)),
            (StatusCode::NO_CONTENT, &["5"], Ok(None)),
            (StatusCode::NOT_MODIFIED, &["5, 5"], Ok(Some("5"))),
        ] {
            let mut headers = head(&CONTENT_LENGTH, lines);
            let result = normalize_length(status, &mut headers);
            let left: Vec<_> =
                headers.get_all(CONTENT_LENGTH).iter().map(|line| line.to_str().unwrap()).collect();
            let expected_lines: Vec<_> = expected.ok().flatten().into_iter().collect();
            assert_eq!(result, expected.map(|_| ()), "{lines:?}");
            assert!(result.is_err() || left == expected_lines, "{lines:?}: {left:?}");
        }
    }
}
