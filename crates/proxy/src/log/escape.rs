//! Escapes values that clients send.

use stockade_model::message::is_unprintable;

/// The most bytes of a value in a line, before they are escaped. A path, `User-Agent` or `Referer` may be as long as a
/// head.
pub(super) const VALUE_BYTES_MAX: usize = 2_048;

const ELLIPSIS: &[u8] = b"...";

/// Appends the content of a JSON string: UTF-8 without quotation marks, backslashes or controls. Other bytes become
/// U+FFFD.
pub(super) fn append_json(line: &mut Vec<u8>, value: &[u8]) {
    let (value, ellipsis) = truncate(value);
    if is_plain(value) {
        line.extend_from_slice(value);
    } else {
        for chunk in value.utf8_chunks() {
            chunk.valid().chars().for_each(|c| append_json_char(line, c));
            if !chunk.invalid().is_empty() {
                line.extend_from_slice("\u{fffd}".as_bytes());
            }
        }
    }
    line.extend_from_slice(ellipsis);
}

fn append_json_char(line: &mut Vec<u8>, c: char) {
    match c {
        '"' => line.extend_from_slice(b"\\\""),
        '\\' => line.extend_from_slice(b"\\\\"),
        // Controls, what changes the direction of the text, and separators that some readers take for the end of a line.
        c if is_unprintable(c) => {
            let code = u32::from(c);
            line.extend_from_slice(b"\\u");
            for shift in [12, 8, 4, 0] {
                line.push(hex((code >> shift) & 0xf));
            }
        }
        c => line.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Appends a value as Apache does: printable ASCII, `\"`, `\\`, and `\xhh` for every other byte.
pub(super) fn append_apache(line: &mut Vec<u8>, value: &[u8]) {
    let (value, ellipsis) = truncate(value);
    if is_plain(value) {
        line.extend_from_slice(value);
        line.extend_from_slice(ellipsis);
        return;
    }
    for &byte in value {
        match byte {
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => line.push(byte),
            _ => {
                line.extend_from_slice(b"\\x");
                line.extend_from_slice(&[hex(u32::from(byte >> 4)), hex(u32::from(byte & 0xf))]);
            }
        }
    }
    line.extend_from_slice(ellipsis);
}

/// True if the value needs no escapes, as nearly all do. Without an early exit the loop is vectorised.
fn is_plain(value: &[u8]) -> bool {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    value.iter().fold(true, |all, byte| all & is_plain(*byte))
}

fn truncate(value: &[u8]) -> (&[u8], &'static [u8]) {
    match value.get(..VALUE_BYTES_MAX) {
        Some(start) if value.len() > VALUE_BYTES_MAX => (start, ELLIPSIS),
        _ => (value, b""),
    }
}

fn hex(digit: u32) -> u8 {
    char::from_digit(digit, 16).map_or(b'0', |c| c as u8)
}
