//! Answers as bytes, cut anywhere.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use super::*;

fn expected() -> Expected {
    Expected { is_head: false, decodes: true, digest: None }
}

/// Reads an answer that comes in these pieces and then ends.
fn read<'a>(expected: Expected, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Done, Failure> {
    let mut reader = Reader::new(expected);
    for piece in pieces {
        if let Some(done) = reader.feed(piece)? {
            return Ok(done);
        }
    }
    reader.close()
}

fn class(text: &str) -> Class {
    read(expected(), [text.as_bytes()]).unwrap_err().class
}

#[test]
fn bodies_end_where_their_head_says() {
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
            (whole.answer.status, whole.answer.bytes, whole.keeps_alive),
            (status, bytes, keeps_alive),
            "{text:?}"
        );
        let dripped = read(expected(), text.as_bytes().chunks(1));
        assert_eq!(dripped.as_ref(), Ok(&whole), "{text:?}, a byte at a time");
    }
}

#[test]
fn an_answer_to_head_has_no_body() {
    let head = Expected { is_head: true, ..expected() };
    let text = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n";
    let done = read(head, [text.as_bytes()]).unwrap();
    assert_eq!((done.answer.bytes, done.keeps_alive), (0, true));
}

#[test]
fn what_is_cut_short_garbled_or_too_large_is_told_apart() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
    let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(HEAD_BYTES_MAX));
    let large = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: {}\r\n\r\n", "b".repeat(HEAD_BYTES_MAX));
    let endless_chunk =
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{}", "x".repeat(HEAD_BYTES_MAX + 1));
    for (text, wanted) in [
        ("", Class::Closed),
        ("HTTP/1.1 20", Class::Truncated),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", Class::Truncated),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", Class::Truncated),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n", Class::Malformed),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", Class::Malformed),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", Class::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, world", Class::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", Class::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello", Class::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", Class::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", Class::Malformed),
        ("SSH-2.0-OpenSSH_9.6\r\n", Class::Malformed),
        ("\u{15}\u{3}\u{3}", Class::Malformed),
        (&many, Class::HeadTooLarge),
        (&endless, Class::HeadTooLarge),
        (&large, Class::HeadTooLarge),
        (&endless_chunk, Class::HeadTooLarge),
    ] {
        assert_eq!(class(text), wanted, "{:?}", text.get(..80).unwrap_or(text));
    }
}

#[test]
fn garbage_that_drips_in_is_known_at_once() {
    let mut reader = Reader::new(expected());
    let fed: Vec<_> =
        b"SSH-".chunks(1).map(|byte| reader.feed(byte).map_err(|failure| failure.class)).collect();
    assert!(fed.contains(&Err(Class::Malformed)), "{fed:?}");
}

fn gzipped(body: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(body).unwrap();
    gzip.finish().unwrap()
}

fn answer(header: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{header}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[test]
fn gzip_is_decoded_where_we_asked_for_it() {
    let body = "a caching strategy ".repeat(1_000);
    let packed = gzipped(body.as_bytes());
    let bytes = answer("Content-Encoding: gzip\r\n", &packed);
    for (decodes, decoded) in [(true, body.len()), (false, packed.len())] {
        let done = read(Expected { decodes, ..expected() }, bytes.chunks(700)).unwrap();
        assert_eq!((done.answer.bytes, done.answer.wire_bytes), (decoded as u64, packed.len() as u64));
    }
    for broken in [&packed[..packed.len() / 2], &[&packed[..], b"more"].concat(), b"not gzip at all, that"] {
        let bytes = answer("Content-Encoding: gzip\r\n", broken);
        assert_eq!(
            read(expected(), [&bytes[..]]).unwrap_err().class,
            Class::Encoding,
            "{} bytes",
            broken.len()
        );
    }
}

#[test]
fn a_body_is_the_one_that_was_expected_or_it_is_not() {
    let digest = Sha256::digest("hello").into();
    let wanted = Expected { digest: Some(digest), ..expected() };
    for (header, body, ended) in [
        ("", b"hello".to_vec(), None),
        ("Content-Encoding: gzip\r\n", gzipped(b"hello"), None),
        ("", b"hallo".to_vec(), Some(Class::Digest)),
        ("", Vec::new(), Some(Class::Digest)),
    ] {
        let bytes = answer(header, &body);
        let class = read(wanted, [&bytes[..]]).err().map(|failure| failure.class);
        assert_eq!(class, ended, "{header}{body:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1..20_usize) {
        let _ = read(expected(), bytes.chunks(cut));
    }

    #[test]
    fn nor_do_answers_with_a_few_bytes_changed(
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
        // However it is cut, it means the same.
        let whole = read(expected(), [&bytes[..]]).map_err(|failure| failure.class);
        let in_pieces = read(expected(), bytes.chunks(cut)).map_err(|failure| failure.class);
        match (whole, in_pieces) {
            (Ok(whole), Ok(in_pieces)) => prop_assert_eq!(whole, in_pieces),
            // What follows the end is known only if it is there at once, and garbage before all of it is.
            (Ok(_) | Err(_), Err(_)) | (Err(Class::Malformed), Ok(_)) => {}
            (whole, in_pieces) => prop_assert!(false, "{whole:?} {in_pieces:?}"),
        }
    }
}
