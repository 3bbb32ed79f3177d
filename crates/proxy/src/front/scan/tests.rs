use proptest::prelude::*;

use super::*;

const MAX: usize = 8_192;

/// What a scan makes of bytes that come in these parts: heads, what is wrong, and where it stands.
fn read<'parts>(
    parts: impl IntoIterator<Item = &'parts [u8]>,
) -> (u64, Option<&'static str>, bool, bool, bool) {
    let mut scan = Scan::new(MAX);
    for part in parts {
        if scan.feed(part).is_err() {
            break;
        }
    }
    let wrong = scan.wrong().map(|wrong| wrong.reason);
    (scan.heads(), wrong, scan.is_in_head(), scan.is_in_body(), scan.is_between_requests())
}

#[test]
fn heads_and_bodies_are_told_apart() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let sized = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n\r\n\r\nx";
    let chunked =
        "POST / HTTP/1.1\r\nTRANSFER-encoding:\tChunked \r\n\r\n2;a=\"b\"\r\n\n\n\r\n00\r\nT: x\r\n\r\n";
    let whole = (true, false, false);
    let cases = [
        (String::new(), 0, whole),
        (get.to_owned(), 1, whole),
        (format!("\r\n\r\n{get}\r\n{get}"), 2, whole),
        (format!("{sized}{get}{sized}"), 3, whole),
        (format!("{chunked}{get}{chunked}{sized}"), 4, whole),
        ("GET".to_owned(), 0, (false, true, false)),
        (format!("{get}GET / HTTP/1.1\r\nHost"), 1, (false, true, false)),
        (sized[..sized.len() - 1].to_owned(), 1, (false, false, true)),
        (chunked[..chunked.len() - 2].to_owned(), 1, (false, false, true)),
        ("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n".to_owned(), 1, whole),
        ("POST / HTTP/1.1\r\nContent-Lengthy: x\r\nContent-Lengt: y\r\nTe: z\r\n\r\n".to_owned(), 1, whole),
    ];
    for (bytes, heads, (is_between, is_in_head, is_in_body)) in cases {
        let expected = (heads, None, is_in_head, is_in_body, is_between);
        assert_eq!(read([bytes.as_bytes()]), expected, "{bytes:?}");
    }
}

#[test]
fn what_is_wrong_with_a_head_is_told_later_and_with_a_body_at_once() {
    let mut scan = Scan::new(MAX);
    let good = b"GET / HTTP/1.1\r\n\r\n";
    assert_eq!(scan.feed(&[&good[..], b"GET / HTTP/1.1\nHost: a\r\n\r\n", good].concat()), Ok(()));
    assert_eq!((scan.heads(), scan.wrong().map(|it| it.reason)), (1, Some("a line ends in LF alone")));

    let mut scan = Scan::new(MAX);
    let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    let fed = scan.feed(&[&head[..], b"1 \r\n"].concat());
    assert_eq!(
        fed.map_err(|(believed, wrong)| (believed, wrong.reason)),
        Err((head.len(), "the size of a chunk is none"))
    );
    assert_eq!(scan.heads(), 1);
}

#[test]
fn nothing_is_kept_without_bound() {
    let endless = |start: &str, part: &str| {
        let mut scan = Scan::new(MAX);
        assert_eq!(scan.feed(start.as_bytes()), Ok(()));
        for _ in 0..100_000 {
            let _ = scan.feed(part.as_bytes());
        }
        assert!(scan.line.capacity() <= 2 * TRAILERS_MAX, "{}", scan.line.capacity());
        scan.wrong().map(|wrong| wrong.reason)
    };
    let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(endless("", "x"), Some("a line is too long"));
    assert_eq!(endless("GET / HTTP/1.1\r\n", "x"), Some("a line is too long"));
    assert_eq!(endless(chunked, "0"), Some("a line is too long"));
    assert_eq!(endless(&format!("{chunked}0\r\n"), "x"), Some("a line is too long"));
    assert_eq!(
        endless(&format!("{chunked}0\r\n"), "x: y\r\n"),
        Some("there is too much behind the last chunk")
    );
}

#[test]
fn sizes_of_chunks() {
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
        assert_eq!(chunk_size(line.as_bytes()), size, "{line:?}");
    }
}

/// Requests, good and bad, with parts that decide, in any order.
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
    /// Nothing depends on which bytes come together.
    #[test]
    fn however_the_bytes_come_it_reads_the_same(bytes in bytes(), cuts in prop::collection::vec(0_usize..200, 0..10)) {
        let whole = read([&bytes[..]]);
        prop_assert_eq!(read(bytes.chunks(1)), whole);
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        prop_assert_eq!(read(cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]])), whole);
    }

    /// Whatever comes: it does not fail, and is sure of no more heads than there are ends of heads.
    #[test]
    fn it_reads_anything(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (heads, ..) = read([&bytes[..]]);
        let ends = bytes.windows(4).filter(|it| it == b"\r\n\r\n").count();
        prop_assert!(heads <= ends as u64);
    }
}
