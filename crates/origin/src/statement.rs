//! What the origin states about its responses: the sizes and checksums of bodies, and how long a shared cache may serve them. Pure.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use http::{HeaderMap, header::CONTENT_ENCODING};
use stockade_record::statement::{BodyStatement, Freshness};

use crate::recipe::CACHE_HEADERS;

/// The size and the checksum of a body as it was before its compression. `None`: its encoding is another one than gzip.
pub(crate) fn of_body(body: &[u8], headers: &HeaderMap) -> Option<BodyStatement> {
    let mut sum = Checksum::default();
    match headers.get(CONTENT_ENCODING).map(|encoding| encoding.as_bytes().to_ascii_lowercase()) {
        None => (&mut sum).write_all(body).ok()?,
        Some(encoding) if encoding == b"gzip" => {
            let mut gzip = MultiGzDecoder::new(&mut sum);
            gzip.write_all(body).and_then(|()| gzip.try_finish()).ok()?;
        }
        Some(_) => return None,
    }
    Some(BodyStatement { bytes: sum.bytes, crc32: sum.crc32.finalize() })
}

#[derive(Default)]
struct Checksum {
    bytes: u64,
    crc32: crc32fast::Hasher,
}

impl Write for &mut Checksum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        self.crc32.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The longest times that any of the fields for caches allows. `None`: the headers have no such field, or one has no
/// lifetime, so that a cache may choose it.
pub(crate) fn freshness(headers: &HeaderMap) -> Option<Freshness> {
    let fields = CACHE_HEADERS.into_iter().filter(|name| headers.contains_key(name));
    let each = fields.map(|name| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        let directives: Vec<_> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
        of_directives(&directives)
    });
    let each: Option<Vec<Freshness>> = each.collect();
    each?.into_iter().reduce(|a, b| Freshness {
        lifetime_s: a.lifetime_s.max(b.lifetime_s),
        stale_s: a.stale_s.max(b.stale_s),
        stale_if_error_s: a.stale_if_error_s.max(b.stale_if_error_s),
    })
}

/// Of the directives of one field (RFC 9111, 5.2.2; RFC 5861).
fn of_directives(directives: &[&str]) -> Option<Freshness> {
    let has = |wanted: &str| directives.iter().any(|name| name.eq_ignore_ascii_case(wanted));
    if ["no-store", "no-cache", "private"].into_iter().any(has) {
        return Some(Freshness::default());
    }
    let seconds = |wanted: &str| {
        let values = directives.iter().filter_map(|directive| {
            let (name, value) = directive.split_once('=')?;
            let value = value.trim().trim_matches('"');
            let is_wanted = name.trim().eq_ignore_ascii_case(wanted) && !value.is_empty();
            let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
            // More than 32 bits are "a long time", as in RFC 9111, 1.2.2.
            (is_wanted && is_number).then(|| value.parse().unwrap_or(u32::MAX))
        });
        values.max()
    };
    Some(Freshness {
        lifetime_s: seconds("s-maxage").or_else(|| seconds("max-age"))?,
        stale_s: seconds("stale-while-revalidate").unwrap_or_default(),
        stale_if_error_s: seconds("stale-if-error").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let mut headers = HeaderMap::new();
        headers.extend(lines.iter().map(line));
        headers
    }

    #[test]
    fn freshness_is_that_of_the_fields_for_caches() {
        let cc = "cache-control";
        for (lines, expected) in [
            (&[][..], None),
            (&[(cc, "max-age=60")][..], Some([60, 0, 0])),
            (&[(cc, "public, max-age=60, S-MaxAge=\"5\"")], Some([5, 0, 0])),
            (&[(cc, "max-age=1, stale-while-revalidate=2, stale-if-error=3")], Some([1, 2, 3])),
            (&[(cc, "max-age=1"), (cc, "stale-while-revalidate=2")], Some([1, 2, 0])),
            (&[(cc, "max-age=60, no-cache")], Some([0, 0, 0])),
            (&[(cc, "private, stale-while-revalidate=2")], Some([0, 0, 0])),
            (&[(cc, "private=\"x-user\", max-age=7")], Some([7, 0, 0])),
            (&[(cc, "no-store")], Some([0, 0, 0])),
            (&[(cc, "max-age=99999999999")], Some([u32::MAX, 0, 0])),
            (&[(cc, "public")], None),
            (&[(cc, "max-age=x")], None),
            (&[(cc, "max-age=0"), ("surrogate-control", "max-age=60")], Some([60, 0, 0])),
            (&[(cc, "public"), ("cdn-cache-control", "max-age=60")], None),
        ] {
            let found = freshness(&headers(lines))
                .map(|found| [found.lifetime_s, found.stale_s, found.stale_if_error_s]);
            assert_eq!(found, expected, "{lines:?}");
        }
    }

    #[test]
    fn body_is_stated_as_it_is_before_compression() {
        let stated = Some(BodyStatement { bytes: 9, crc32: 0xcbf4_3926 });
        assert_eq!(of_body(b"123456789", &HeaderMap::new()), stated);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(b"123456789").unwrap();
        let gzip = gzip.finish().unwrap();
        let of_gzip = headers(&[("content-encoding", "GZIP")]);
        assert_eq!(of_body(&gzip, &of_gzip), stated);
        assert_eq!(of_body(b"123456789", &of_gzip), None);
        assert_eq!(of_body(&gzip, &headers(&[("content-encoding", "br")])), None);
    }
}
