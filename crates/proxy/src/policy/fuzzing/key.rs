//! Cache keys compared with an independent normalisation.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use std::fmt::Write;

use http::uri::PathAndQuery;

use crate::policy::key::CacheKey;

/// An authority, a target and a reference, in lines.
///
/// - The key equals that of an independent normalisation: equal URLs (RFC 3986, 6.2.2) have one key, others have not.
/// - A key is its own key. So is that of a resolved reference.
/// - A spelling of the same path has the same key.
/// - A path that some origin reads with a dot segment is ambiguous. The reference chooses the origin.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.splitn(3, '\n');
    let (authority, target, reference) = (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    );
    let Ok(target) = target.parse::<PathAndQuery>() else { return };
    if !target.as_str().starts_with('/') || !is_authority(authority) {
        return;
    }
    let key = CacheKey::new("http", authority, target.as_str());
    assert_is_normal(&key);
    assert_eq!(key.path(), naive_path(target.path()), "{target}");
    let query = target.query().map(|query| format!("?{query}")).unwrap_or_default();
    assert_eq!(key.path_and_query(), format!("{}{query}", key.path()), "{target}");
    assert_eq!(key.authority(), naive_authority(authority), "{authority}");

    let respelled = format!("{}{query}", respelled(target.path(), data.len()));
    assert_eq!(
        CacheKey::new("HTTP", &authority.to_ascii_uppercase(), &respelled),
        key,
        "{target} as {respelled}"
    );

    let readings: Vec<usize> = reference.bytes().take(8).map(|byte| usize::from(byte) % READINGS).collect();
    assert!(key.is_ambiguous() || !has_dot_segment(key.path(), &readings), "{key} {readings:?}");

    if let Some(other) = key.resolve(reference) {
        assert_is_normal(&other);
        let is_same = other.scheme() == key.scheme() && other.authority() == key.authority();
        assert_eq!(other.has_same_origin(&key), is_same, "{reference}");
        let is_path = reference.starts_with('/') && !reference.starts_with("//");
        if is_path && !reference.contains('#') && reference == reference.trim() {
            assert_eq!(other, CacheKey::new("http", authority, reference));
        }
    }
}

/// Reads a path as an origin does.
type Reader = fn(&[u8]) -> Vec<u8>;

/// How servers and frameworks read a path that was normalised before it reached them.
const READERS: [Reader; 9] = [
    percent_decoded,
    with_overlong_forms,
    with_compatibility_forms,
    // C strings, and request lines that are written again.
    |path| {
        path.split(|byte| matches!(byte, 0 | b'?' | b'#' | b'\r' | b'\n')).next().unwrap_or_default().to_vec()
    },
    |path| path.split(|byte| *byte == b' ').next().unwrap_or_default().to_vec(),
    // Parameters of Java servers, and streams of NTFS.
    |path| {
        each_segment(path, |name| name.split(|byte| matches!(byte, b';' | b':')).next().unwrap_or_default())
    },
    |path| path.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect(),
    |path| path.iter().filter(|byte| !byte.is_ascii_control()).copied().collect(),
    // Names of Windows, in which the form's `+` is a space.
    |path| {
        each_segment(path, |name| {
            let end = name.iter().rposition(|byte| !matches!(byte, b' ' | b'+')).map_or(0, |at| at + 1);
            &name[..end]
        })
    },
];

/// The number of readings that [`has_dot_segment`] knows.
pub(crate) const READINGS: usize = READERS.len();

/// True if a path has a dot segment after it was read in these ways, one after the other.
pub(crate) fn has_dot_segment(path: &str, readings: &[usize]) -> bool {
    let read = readings.iter().fold(path.as_bytes().to_vec(), |path, reader| READERS[*reader](&path));
    read.split(|byte| *byte == b'/').any(|segment| matches!(segment, b"." | b".."))
}

fn each_segment(path: &[u8], read: impl Fn(&[u8]) -> &[u8]) -> Vec<u8> {
    path.split(|byte| *byte == b'/').map(read).collect::<Vec<_>>().join(&b'/')
}

/// With `%u002E` of IIS. An invalid `%` stays.
fn percent_decoded(path: &[u8]) -> Vec<u8> {
    let digits = |text: &[u8], count: usize| {
        let digits = text.get(..count).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut decoded, mut rest) = (Vec::new(), path);
    while let Some((first, after)) = rest.split_first() {
        rest = match (first, digits(after, 2), after.first()) {
            (b'%', Some(byte), _) => {
                decoded.extend(u8::try_from(byte));
                &after[2..]
            }
            (b'%', None, Some(b'u' | b'U')) if digits(&after[1..], 4).is_some() => {
                let character = digits(&after[1..], 4).and_then(char::from_u32).unwrap_or('?');
                decoded.extend(character.to_string().into_bytes());
                &after[5..]
            }
            _ => {
                decoded.push(*first);
                after
            }
        };
    }
    decoded
}

/// ASCII characters in two or three bytes of UTF-8 are decoded, and other bytes that are not UTF-8 are dropped.
fn with_overlong_forms(path: &[u8]) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::new(), path);
    while let Some(first) = rest.first() {
        let length = match rest {
            [high @ (0xC0 | 0xC1), low @ 0x80..=0xBF, ..] => {
                decoded.push((high & 1) << 6 | low & 0x3F);
                2
            }
            [0xE0, high @ (0x80 | 0x81), low @ 0x80..=0xBF, ..] => {
                decoded.push((high & 1) << 6 | low & 0x3F);
                3
            }
            _ => {
                let is_character = |length: &usize| {
                    rest.get(..*length).is_some_and(|text| std::str::from_utf8(text).is_ok())
                };
                let length = (1..=4).find(is_character);
                decoded.extend_from_slice(&rest[..length.unwrap_or(0)]);
                length.unwrap_or(1)
            }
        };
        debug_assert!(*first >= 0x80 || length == 1, "ASCII is one byte");
        rest = &rest[length..];
    }
    decoded
}

/// NFKC of the characters that have a delimiter, a dot, a space or a digit of a code in it (Unicode 15, `UnicodeData.txt`). Those that
/// have no width are dropped.
fn with_compatibility_forms(path: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(path) else { return path.to_vec() };
    let mut read = String::new();
    for character in text.chars() {
        match character {
            '\u{FF01}'..='\u{FF5E}' => read.extend(char::from_u32(u32::from(character) - 0xFEE0)),
            '\u{2024}' | '\u{FE52}' => read.push('.'),
            '\u{2025}' | '\u{FE30}' => read.push_str(".."),
            '\u{FE68}' => read.push('\\'),
            '\u{37E}' | '\u{FE14}' | '\u{FE54}' => read.push(';'),
            '\u{2100}' => read.push_str("a/c"),
            '\u{FE5F}' => read.push('#'),
            '\u{FE6A}' => read.push('%'),
            '\u{2047}' => read.push_str("??"),
            '\u{FE16}' | '\u{FE56}' => read.push('?'),
            '\u{2488}' => read.push_str("1."),
            '\u{A0}' | '\u{3000}' => read.push(' '),
            '\u{AD}' | '\u{200B}'..='\u{200D}' | '\u{FEFF}' => {}
            character => read.push(character),
        }
    }
    read.into_bytes()
}

fn assert_is_normal(key: &CacheKey) {
    assert_eq!(*key, CacheKey::new(key.scheme(), key.authority(), key.path_and_query()));
    assert_eq!(*key, CacheKey::from_normalised(key.as_str()));
    assert_eq!(format!("{}://{}{}", key.scheme(), key.authority(), key.path_and_query()), key.as_str());
}

/// The names and ports that the frontend lets pass, without IPv6.
fn is_authority(text: &str) -> bool {
    let (name, port) = text.split_once(':').unwrap_or((text, "0"));
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c));
    is_name && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
}

fn naive_authority(text: &str) -> String {
    let text = text.to_lowercase();
    let (name, port) = text.split_once(':').unwrap_or((&text, "80"));
    let without_dots = name.trim_end_matches('.');
    let name = if without_dots.is_empty() { name } else { without_dots };
    match port.parse::<u16>() {
        Ok(80) | Err(_) => name.to_owned(),
        Ok(port) => format!("{name}:{port}"),
    }
}

/// An independent normalisation of a path: split, decode, walk.
pub(crate) fn naive_path(path: &str) -> String {
    let decoded: Vec<String> = path.split('/').map(decoded).collect();
    let segments: Vec<&str> = decoded.iter().skip(1).map(String::as_str).collect();
    let mut walked: Vec<&str> = Vec::new();
    for (at, segment) in segments.iter().enumerate() {
        let is_last = at + 1 == segments.len();
        match *segment {
            "." => {}
            ".." => drop(walked.pop()),
            name => {
                walked.push(name);
                continue;
            }
        }
        if is_last {
            walked.push("");
        }
    }
    format!("/{}", walked.join("/"))
}

/// An independent decoder of unreserved characters; a segment with an invalid `%` stays as it is.
fn decoded(segment: &str) -> String {
    let mut decoded = String::new();
    let mut rest = segment;
    while let Some(first) = rest.chars().next() {
        if first != '%' {
            decoded.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let Some(byte) = code(rest) else { return segment.to_owned() };
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            decoded.push(char::from(byte));
        } else {
            decoded.push_str(&rest[..3].to_uppercase());
        }
        rest = &rest[3..];
    }
    decoded
}

/// The byte of a percent code at the start.
fn code(text: &str) -> Option<u8> {
    let digits = text.get(1..3).filter(|digits| digits.chars().all(|digit| digit.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

/// Another spelling of the path, by its number: encodes characters, changes the case of codes, adds dot segments.
fn respelled(path: &str, number: usize) -> String {
    let mut spelled = String::new();
    for (at, segment) in path.split('/').enumerate().skip(1) {
        match (at + number) % 4 {
            0 => spelled.push_str("/."),
            1 => spelled.push_str("/%2e/x/%2E."),
            _ => {}
        }
        spelled.push('/');
        if segment.match_indices('%').any(|(at, _)| code(&segment[at..]).is_none()) {
            spelled.push_str(segment);
            continue;
        }
        let mut digits_left = 0_u32;
        for (at, c) in segment.char_indices() {
            let is_unreserved = c.is_ascii_alphanumeric() || "-._~".contains(c);
            let is_chosen = (at + number).is_multiple_of(3);
            if c == '%' {
                digits_left = 3;
            }
            match c {
                _ if digits_left > 0 && is_chosen => spelled.push(c.to_ascii_lowercase()),
                _ if digits_left > 0 => spelled.push(c.to_ascii_uppercase()),
                c if is_unreserved && is_chosen => {
                    let _ = write!(spelled, "%{:02x}", u32::from(c));
                }
                c => spelled.push(c),
            }
            digits_left = digits_left.saturating_sub(1);
        }
    }
    spelled
}
