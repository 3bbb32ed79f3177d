//! Responses as bytes, split anywhere.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use super::*;

fn expected() -> ExpectedBody {
    ExpectedBody { is_head: false, decodes: true, digest: None, is_strict: false, is_checked: false }
}

/// Parses a response from these chunks, and then the end of the connection.
fn read<'a>(
    expected: ExpectedBody,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<CompletedResponse, RequestFailure> {
    let mut reader = ResponseReader::new(expected);
    for chunk in chunks {
        if let Some(completed) = reader.push(chunk)? {
            return Ok(completed);
        }
    }
    reader.close()
}

fn class(text: &str) -> FailureClass {
    read(expected(), [text.as_bytes()]).unwrap_err().class
}

#[test]
fn head_determines_the_end_of_the_body() {
    for (text, status, bytes, keeps_alive) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, 5, true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\nConnection: Close\r\n\r\nhello", 200, 5, false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, 0, true),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, 5, false),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", 200, 5, true),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204, 0, true),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, 0, true),
        ("HTTP/1.1 500 Oops\r\n\r\nuntil the end", 500, 13, false),
        (
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            200,
            2,
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n",
            200,
            11,
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nTrailer: x\r\n\r\n",
            200,
            2,
            true,
        ),
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 200, 2, true),
    ] {
        let whole =
            read(expected(), [text.as_bytes()]).unwrap_or_else(|failure| panic!("{text:?}: {failure}"));
        assert_eq!(
            (whole.response.status, whole.response.bytes, whole.keeps_alive),
            (status, bytes, keeps_alive),
            "{text:?}"
        );
        let bytewise = read(expected(), text.as_bytes().chunks(1));
        assert_eq!(bytewise.as_ref(), Ok(&whole), "{text:?}, a byte at a time");
    }
}

#[test]
fn response_to_head_has_no_body() {
    let head = ExpectedBody { is_head: true, ..expected() };
    let text = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n";
    let completed = read(head, [text.as_bytes()]).unwrap();
    assert_eq!((completed.response.bytes, completed.keeps_alive), (0, true));
}

#[test]
fn truncated_malformed_and_oversized_responses_have_their_own_class() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
    let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(HEAD_BYTES_MAX));
    let large = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: {}\r\n\r\n", "b".repeat(HEAD_BYTES_MAX));
    let endless_chunk =
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{}", "x".repeat(HEAD_BYTES_MAX + 1));
    for (text, expected_class) in [
        ("", FailureClass::Closed),
        ("HTTP/1.1 20", FailureClass::Truncated),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", FailureClass::Truncated),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", FailureClass::Truncated),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n", FailureClass::Malformed),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", FailureClass::Malformed),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", FailureClass::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, world", FailureClass::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", FailureClass::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello", FailureClass::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", FailureClass::Malformed),
        // 0 stands for no response.
        ("HTTP/1.1 000 Nothing\r\nContent-Length: 0\r\n\r\n", FailureClass::Malformed),
        ("HTTP/1.1 099 Nothing\r\nContent-Length: 0\r\n\r\n", FailureClass::Malformed),
        ("SSH-2.0-OpenSSH_9.6\r\n", FailureClass::Malformed),
        ("\u{15}\u{3}\u{3}", FailureClass::Malformed),
        (&many, FailureClass::HeadTooLarge),
        (&endless, FailureClass::HeadTooLarge),
        (&large, FailureClass::HeadTooLarge),
        (&endless_chunk, FailureClass::HeadTooLarge),
    ] {
        assert_eq!(class(text), expected_class, "{:?}", text.get(..80).unwrap_or(text));
    }
}

#[test]
fn what_common_clients_accept_is_accepted_and_named_unless_the_client_is_strict() {
    let many = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 2\r\n\r\nok", "A: b\r\n".repeat(300));
    let chunks = "2\r\nok\r\n0\r\n\r\n";
    let both = format!("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
    for (text, deviation, keeps_alive) in [
        (many.as_str(), None, true),
        (&both, Some(Deviation::LengthAndChunks), false),
        ("HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok", Some(Deviation::Fields), true),
        ("HTTP/1.1 200 OK\r\nX : a\r\nContent-Length : 2\r\n\r\nok", Some(Deviation::Fields), true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\r\n", Some(Deviation::LinesAfterBody), true),
        (
            "HTTP/1.1 302 Found\r\nLocation: /a page\r\nContent-Length: 2\r\n\r\nok",
            Some(Deviation::Location),
            true,
        ),
    ] {
        let completed =
            read(expected(), [text.as_bytes()]).unwrap_or_else(|failure| panic!("{text:?}: {failure}"));
        let response = completed.response;
        assert_eq!(
            (response.bytes, response.deviation, completed.keeps_alive),
            (2, deviation, keeps_alive),
            "{text:?}"
        );
        let strict = read(ExpectedBody { is_strict: true, ..expected() }, [text.as_bytes()]);
        assert_eq!(strict.is_ok(), deviation.is_none(), "{text:?}: {strict:?}");
    }
    let latin1 = b"HTTP/1.1 301 Moved\r\nLocation: /caf\xe9\r\nContent-Length: 0\r\n\r\n";
    let completed = read(expected(), [&latin1[..]]).unwrap();
    assert_eq!(completed.location.as_deref(), Some("/caf%E9"));
}

#[test]
fn malformed_start_is_rejected_before_the_head_ends() {
    let mut reader = ResponseReader::new(expected());
    let results: Vec<_> =
        b"SSH-".chunks(1).map(|byte| reader.push(byte).map_err(|failure| failure.class)).collect();
    assert!(results.contains(&Err(FailureClass::Malformed)), "{results:?}");
}

fn gzipped(body: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(body).unwrap();
    gzip.finish().unwrap()
}

fn response(header: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{header}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[test]
fn gzip_is_decoded_only_where_the_client_asked_for_it() {
    let body = "a caching strategy ".repeat(1_000);
    let packed = gzipped(body.as_bytes());
    let bytes = response("Content-Encoding: gzip\r\n", &packed);
    for (decodes, decoded) in [(true, body.len()), (false, packed.len())] {
        let completed = read(ExpectedBody { decodes, ..expected() }, bytes.chunks(700)).unwrap();
        assert_eq!(
            (completed.response.bytes, completed.response.wire_bytes),
            (decoded as u64, packed.len() as u64)
        );
    }
    for broken in [&packed[..packed.len() / 2], &[&packed[..], b"more"].concat(), b"not gzip at all, that"] {
        let bytes = response("Content-Encoding: gzip\r\n", broken);
        assert_eq!(
            read(expected(), [&bytes[..]]).unwrap_err().class,
            FailureClass::Encoding,
            "{} bytes",
            broken.len()
        );
    }
}

#[test]
fn body_with_another_digest_fails() {
    let digest = Sha256::digest("hello").into();
    let with_digest = ExpectedBody { digest: Some(digest), ..expected() };
    for (header, body, expected_class) in [
        ("", b"hello".to_vec(), None),
        ("Content-Encoding: gzip\r\n", gzipped(b"hello"), None),
        ("", b"hallo".to_vec(), Some(FailureClass::Digest)),
        ("", Vec::new(), Some(FailureClass::Digest)),
    ] {
        let bytes = response(header, &body);
        let class = read(with_digest, [&bytes[..]]).err().map(|failure| failure.class);
        assert_eq!(class, expected_class, "{header}{body:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1..20_usize) {
        let _ = read(expected(), bytes.chunks(cut));
    }

    #[test]
    fn mutated_responses_mean_the_same_in_any_chunks(
        which in 0..3_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in 1..40_usize,
    ) {
        let mut bytes = [
            &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nCache-Status: x; hit\r\n\r\nhello, world",
            b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.0 404 No\r\nAge: 7\r\n\r\nhello",
        ][which].to_vec();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let whole = read(expected(), [&bytes[..]]).map_err(|failure| failure.class);
        let chunked = read(expected(), bytes.chunks(cut)).map_err(|failure| failure.class);
        match (whole, chunked) {
            (Ok(whole), Ok(chunked)) => prop_assert_eq!(whole, chunked),
            // Excess bytes are noticed only in the same chunk, and a malformed start before the rest arrives.
            (Ok(_) | Err(_), Err(_)) | (Err(FailureClass::Malformed), Ok(_)) => {}
            (whole, chunked) => prop_assert!(false, "{whole:?} {chunked:?}"),
        }
    }
}
