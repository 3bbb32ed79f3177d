//! What clients send, made harmless.

/// How much of a value is kept, in bytes before they are escaped. A path, `User-Agent` or `Referer` may be as long as a
/// head; who wants more of it has the origin's log.
pub(super) const VALUE_BYTES_MAX: usize = 2_048;

/// What stands for the rest of a value.
const CUT: &[u8] = b"...";

/// Appends a value as it stands in a JSON string: valid UTF-8, no quotation mark, backslash or control. What is not
/// UTF-8 becomes U+FFFD.
pub(super) fn json(line: &mut Vec<u8>, value: &[u8]) {
    let (value, rest) = cut(value);
    if is_plain(value) {
        line.extend_from_slice(value);
    } else {
        for chunk in value.utf8_chunks() {
            chunk.valid().chars().for_each(|c| json_char(line, c));
            if !chunk.invalid().is_empty() {
                line.extend_from_slice("\u{fffd}".as_bytes());
            }
        }
    }
    line.extend_from_slice(rest);
}

fn json_char(line: &mut Vec<u8>, c: char) {
    match c {
        '"' => line.extend_from_slice(b"\\\""),
        '\\' => line.extend_from_slice(b"\\\\"),
        // Controls of both kinds, and what some readers take for the end of a line.
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
            let code = u32::from(c);
            line.extend_from_slice(b"\\u");
            for shift in [12, 8, 4, 0] {
                line.push(hex((code >> shift) & 0xf));
            }
        }
        c => line.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Appends a value as Apache's logs have it: printable ASCII, `\"`, `\\`, and `\xhh` for every other byte.
pub(super) fn apache(line: &mut Vec<u8>, value: &[u8]) {
    let (value, rest) = cut(value);
    if is_plain(value) {
        line.extend_from_slice(value);
        line.extend_from_slice(rest);
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
    line.extend_from_slice(rest);
}

/// Whether it is copied as it is, as nearly everything is. Looking at all of it is quicker than stopping early.
fn is_plain(value: &[u8]) -> bool {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    value.iter().fold(true, |all, byte| all & is_plain(*byte))
}

fn cut(value: &[u8]) -> (&[u8], &'static [u8]) {
    match value.get(..VALUE_BYTES_MAX) {
        Some(kept) if value.len() > VALUE_BYTES_MAX => (kept, CUT),
        _ => (value, b""),
    }
}

fn hex(digit: u32) -> u8 {
    char::from_digit(digit, 16).map_or(b'0', |c| c as u8)
}
