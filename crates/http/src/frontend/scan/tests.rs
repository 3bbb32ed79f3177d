use proptest::prelude::*;

use super::*;

const MAX: usize = 8_192;

/// Scans these parts. Returns accepted heads, the rejection, and whether the scanner is in a head, in a body, or between
/// requests.
fn scan<'parts>(
    parts: impl IntoIterator<Item = &'parts [u8]>,
) -> (u64, Option<&'static str>, bool, bool, bool) {
    let mut scanner = FramingScanner::new(MAX);
    for part in parts {
        if scanner.feed(part).is_err() {
            break;
        }
    }
    let rejection = scanner.rejection().map(|rejection| rejection.reason);
    (
        scanner.heads_accepted(),
        rejection,
        scanner.is_in_head(),
        scanner.is_in_body(),
        scanner.is_between_requests(),
    )
}

#[test]
fn heads_and_bodies_are_distinguished() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let sized = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n\r\n\r\nx";
    let chunked =
        "POST / HTTP/1.1\r\nTRANSFER-encoding:\tChunked \r\n\r\n2;a=\"b\"\r\n\n\n\r\n00\r\nT: x\r\n\r\n";
    let between = (true, false, false);
    let cases = [
        (String::new(), 0, between),
        (get.to_owned(), 1, between),
        (format!("\r\n\r\n{get}\r\n{get}"), 2, between),
        (format!("{sized}{get}{sized}"), 3, between),
        (format!("{chunked}{get}{chunked}{sized}"), 4, between),
        ("GET".to_owned(), 0, (false, true, false)),
        (format!("{get}GET / HTTP/1.1\r\nHost"), 1, (false, true, false)),
        (sized[..sized.len() - 1].to_owned(), 1, (false, false, true)),
        (chunked[..chunked.len() - 2].to_owned(), 1, (false, false, true)),
        ("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n".to_owned(), 1, between),
        ("POST / HTTP/1.1\r\nContent-Lengthy: x\r\nContent-Lengt: y\r\nTe: z\r\n\r\n".to_owned(), 1, between),
    ];
    for (bytes, heads, (is_between, is_in_head, is_in_body)) in cases {
        let expected = (heads, None, is_in_head, is_in_body, is_between);
        assert_eq!(scan([bytes.as_bytes()]), expected, "{bytes:?}");
    }
}

#[test]
fn head_faults_wait_and_body_faults_fail_at_once() {
    let mut scanner = FramingScanner::new(MAX);
    let valid_head = b"GET / HTTP/1.1\r\n\r\n";
    assert_eq!(
        scanner.feed(&[&valid_head[..], b"GET / HTTP/1.1\nHost: a\r\n\r\n", valid_head].concat()),
        Ok(())
    );
    assert_eq!(
        (scanner.heads_accepted(), scanner.rejection().map(|rejection| rejection.reason)),
        (1, Some("a line ends in a bare LF"))
    );

    let mut scanner = FramingScanner::new(MAX);
    let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    let result = scanner.feed(&[&head[..], b"1 \r\n"].concat());
    assert_eq!(
        result.map_err(|(valid, rejection)| (valid, rejection.reason)),
        Err((head.len(), "a chunk size is invalid"))
    );
    assert_eq!(scanner.heads_accepted(), 1);
}

#[test]
fn memory_is_bounded() {
    let endless = |start: &str, part: &str| {
        let mut scanner = FramingScanner::new(MAX);
        assert_eq!(scanner.feed(start.as_bytes()), Ok(()));
        for _ in 0..100_000 {
            let _ = scanner.feed(part.as_bytes());
        }
        assert!(scanner.line.capacity() <= 2 * TRAILER_BYTES_MAX, "{}", scanner.line.capacity());
        scanner.rejection().map(|rejection| rejection.reason)
    };
    let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(endless("", "x"), Some("a line is too long"));
    assert_eq!(endless("GET / HTTP/1.1\r\n", "x"), Some("a line is too long"));
    assert_eq!(endless(chunked, "0"), Some("a line is too long"));
    assert_eq!(endless(&format!("{chunked}0\r\n"), "x"), Some("a line is too long"));
    assert_eq!(endless(&format!("{chunked}0\r\n"), "x: y\r\n"), Some("the trailer section is too large"));
}

/// Whether it arrives in one read or in several.
#[test]
fn long_lines_are_rejected_in_any_split() {
    let field = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(MAX));
    let size = format!(
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;{}\r\nx\r\n0\r\n\r\n",
        "y".repeat(CHUNK_LINE_BYTES_MAX)
    );
    for (bytes, heads, is_in_body) in [(field, 0, false), (size, 1, true)] {
        let expected = (heads, Some("a line is too long"), false, true, false);
        for step in [1, 100, bytes.len()] {
            assert_eq!(scan(bytes.as_bytes().chunks(step)), expected, "{step} bytes a read");
            let mut scanner = FramingScanner::new(MAX);
            let is_err = bytes.as_bytes().chunks(step).any(|part| scanner.feed(part).is_err());
            assert_eq!(is_err, is_in_body, "a fault in a head waits for hyper");
        }
    }
}

#[test]
fn chunk_sizes_are_parsed_strictly() {
    let cases: [(&str, Option<u64>); 14] = [
        ("0", Some(0)),
        ("00", Some(0)),
        ("fF", Some(255)),
        ("ffffffffffffffff", Some(u64::MAX)),
        ("a;x", Some(10)),
        ("a;x=\"y z\"", Some(10)),
        ("", None),
        (";x", None),
        ("+1", None),
        ("-1", None),
        ("1 ", None),
        ("0x1", None),
        ("10000000000000000", None),
        ("1;x\ry", None),
    ];
    for (line, size) in cases {
        assert_eq!(parse_chunk_size(line.as_bytes()), size, "{line:?}");
    }
}

/// Valid and malformed requests, of parts that matter to framing, in any order.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let parts = [
        "GET / HTTP/1.1\r\n",
        "POST / HTTP/1.1\r\n",
        "Host: a\r\n",
        "Content-Length: 3\r\n",
        "content-length:0\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "\r\n",
        "\n",
        "\r",
        "abc",
        "3\r\nabc\r\n",
        "0\r\n\r\n",
        "X: y\r\n",
        " ",
        "5;x\r\nhello\r\n",
        "\0",
        "Transfer-Encoding : chunked\r\n",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..20)
        .prop_map(|parts| parts.concat().into_bytes())
}

proptest! {
    /// The result does not depend on how the bytes are split.
    #[test]
    fn splits_of_the_input_do_not_matter(bytes in bytes(), cuts in prop::collection::vec(0_usize..200, 0..10)) {
        let expected = scan([&bytes[..]]);
        prop_assert_eq!(scan(bytes.chunks(1)), expected);
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        prop_assert_eq!(scan(cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]])), expected);
    }

    /// It does not panic, and accepts no more heads than the input has ends of heads.
    #[test]
    fn any_input_is_scanned(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (heads, ..) = scan([&bytes[..]]);
        let ends = bytes.windows(4).filter(|window| window == b"\r\n\r\n").count();
        prop_assert!(heads <= ends as u64);
    }
}
