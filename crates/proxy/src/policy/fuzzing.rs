//! Properties of HTTP's rules: one file for each rule, named after it.

pub(crate) mod date;
pub(crate) mod directives;
pub(crate) mod field;
pub(crate) mod forwarded;
pub(crate) mod key;
pub(crate) mod range;
pub(crate) mod vary;

use http::{HeaderMap, HeaderName, HeaderValue};

/// Field lines with one name. `None`: a value is not allowed in a head.
fn lines(name: &HeaderName, values: &[&[u8]]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(name, HeaderValue::from_bytes(value).ok()?);
    }
    Some(headers)
}
