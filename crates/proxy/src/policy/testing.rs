//! Header maps for tests.

use http::{HeaderMap, HeaderValue};

pub(crate) type Lines<'a> = &'a [(&'static str, &'a str)];

pub(crate) fn head(lines: Lines<'_>) -> HeaderMap {
    let mut head = HeaderMap::new();
    for (name, value) in lines {
        head.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    head
}
