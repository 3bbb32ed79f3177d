use http_body_util::{Empty, Full};

use super::*;

type Bytes = bytes::Bytes;

fn status<B: Body>(request: &Request<B>) -> u16 {
    check(request, 10).map_or_else(|rejection| rejection.status.as_u16(), |()| 200)
}

fn request(method: &str, target: &str, version: Version, fields: &[(&str, &str)]) -> Request<Empty<Bytes>> {
    let builder = Request::builder().method(method).uri(target).version(version);
    let builder = fields.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
    builder.body(Empty::new()).expect("a valid request")
}

#[test]
fn targets_are_checked() {
    let cases = [
        ("GET", "/", 200),
        ("GET", "/a?b", 200),
        ("GET", "//b/c", 200),
        ("OPTIONS", "*", 200),
        ("GET", "*", 400),
        ("GET", "http://a", 200),
        ("GET", "http://A/", 200),
        ("GET", "https://a?b", 200),
        ("GET", "http://b/", 400),
        ("GET", "http://a:80/", 400),
        ("GET", "http://u@a/", 400),
        ("GET", "ftp://a/", 400),
        ("GET", "a", 400),
        ("GET", "a:80", 400),
        ("TRACE", "/", 405),
        ("CONNECT", "a:80", 501),
        ("PURGE", "/", 200),
    ];
    for (method, target, expected) in cases {
        let request = request(method, target, Version::HTTP_11, &[("host", "a")]);
        assert_eq!(status(&request), expected, "{method} {target}");
    }
}

#[test]
fn every_version_needs_its_host() {
    type Fields = &'static [(&'static str, &'static str)];
    use Version as V;
    let cases: [(V, &str, Fields, u16); 9] = [
        (V::HTTP_10, "/", &[], 200),
        (V::HTTP_10, "/", &[("host", "a b")], 400),
        (V::HTTP_11, "/", &[], 400),
        (V::HTTP_11, "http://a/", &[], 400),
        (V::HTTP_11, "/", &[("host", "a"), ("host", "a")], 400),
        (V::HTTP_2, "/", &[], 400),
        (V::HTTP_2, "/", &[("host", "a")], 200),
        (V::HTTP_2, "http://a/", &[], 200),
        (V::HTTP_2, "http://a/", &[("host", "b")], 400),
    ];
    for (version, target, fields, expected) in cases {
        assert_eq!(
            status(&request("GET", target, version, fields)),
            expected,
            "{version:?} {target} {fields:?}"
        );
    }
}

#[test]
fn framing_fields_are_checked() {
    let cases: [(&[(&str, &str)], u16); 12] = [
        (&[("content-length", "1")], 200),
        (&[("transfer-encoding", "chunked")], 200),
        (&[("transfer-encoding", "Chunked")], 200),
        (&[("transfer-encoding", "gzip, chunked")], 501),
        (&[("transfer-encoding", "chunked, chunked")], 501),
        (&[("transfer-encoding", "")], 501),
        (&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], 400),
        (&[("transfer-encoding", "chunked"), ("content-length", "1")], 400),
        (&[("content-length", "1"), ("content-length", "1")], 400),
        (&[("content-length", "1, 1")], 400),
        (&[("content-length", "1"), ("expect", "100-Continue")], 200),
        (&[("content-length", "1"), ("expect", "200-ok")], 417),
    ];
    for (fields, expected) in cases {
        let request = request("POST", "/", Version::HTTP_11, fields);
        let (mut head, _) = request.into_parts();
        head.headers.insert(HOST, "a".parse().expect("a valid value"));
        let request = Request::from_parts(head, Full::new(Bytes::from_static(b"x")));
        assert_eq!(status(&request), expected, "{fields:?}");
    }
    let http1_framing = request("GET", "http://a/", Version::HTTP_2, &[("transfer-encoding", "chunked")]);
    assert_eq!(status(&http1_framing), 400);
}

#[test]
fn too_many_fields_are_rejected() {
    let many = |count: usize| [[("host", "a")].to_vec(), vec![("x", "y"); count - 1]].concat();
    assert_eq!(status(&request("GET", "/", Version::HTTP_11, &many(10))), 200);
    assert_eq!(status(&request("GET", "/", Version::HTTP_11, &many(11))), 431);
}
