//! The logs of servers and services, in the layouts that their vendors document. No format is named.

use stockade_logs::FORMATS;

use super::try_read;

/// A log of a vendor, and what it says.
struct Fixture {
    log: &'static str,
    format: &'static str,
    /// Comments and blank lines are among them.
    lines: u64,
    requests: &'static [&'static str],
}

macro_rules! log {
    ($name:literal) => {
        include_str!(concat!("fixtures/", $name))
    };
}

const FIXTURES: &[Fixture] = &[
    // <https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/standard-logs-reference.html>
    Fixture {
        log: log!("cloudfront.log"),
        format: "w3c",
        lines: 8,
        requests: &[
            "@1769893351 read GET|shop.example.org|/product/42.html?size=m&color=blue 200 4187B took=213ms",
            // The time of a hit is not that of the origin.
            "@1769893351 read GET|shop.example.org|/product/42.html?size=m&color=blue 200 4187B",
            "@1769893353 write POST|SHOP.example.org|/cart 303 391B took=87ms",
            "@1769893360 read GET|shop.example.org|/gone 404 912B took=51ms",
        ],
    },
    // <https://learn.microsoft.com/windows/win32/http/w3c-logging>
    Fixture {
        log: log!("iis.log"),
        format: "w3c",
        lines: 12,
        requests: &[
            "@1769846401 read GET||/catalog/item.aspx?id=17 200 15123B took=46ms",
            "@1769846402 read GET||/style.css 304 211B took=3ms",
            "@1769851800 read GET|www.example.org|/catalog/item.aspx?id=18 200 15200B took=1.25s",
            "@1769851807 write POST|www.example.org|/login 302 180B took=90ms",
        ],
    },
];

#[test]
fn logs_of_vendors_are_read_unaided() {
    for Fixture { log, format, lines, requests } in FIXTURES {
        let (found, summary) = try_read(log, None).unwrap_or_else(|error| panic!("{format}: {error}"));
        assert_eq!(found, *requests, "{format}");
        assert_eq!((&*summary.format.to_string(), summary.lines), (*format, *lines));
        assert_eq!((summary.bad_lines, summary.without_request), (0, 0), "{format}");
        // The same, named.
        assert_eq!(try_read(log, Some(format)).unwrap().0, found, "{format}");
        assert!(FORMATS.iter().any(|known| known.name == *format), "{format}");
    }
}

/// The lines of requests, cut off after a third, are bad, and the others are read as before.
#[test]
fn lines_that_were_cut_are_counted() {
    for Fixture { log, format, lines, requests } in FIXTURES {
        for part in [3, 4, 6] {
            let cut: String = log
                .lines()
                .rfind(|line| !line.starts_with('#'))
                .map(|line| line.chars().take(line.len() / part).collect())
                .unwrap();
            let (found, summary) = try_read(log.repeat(9) + &cut, Some(format)).unwrap();
            assert_eq!(found.len(), requests.len() * 9, "{format} {cut}");
            assert_eq!((summary.lines, summary.bad_lines), (lines * 9 + 1, 1), "{format} {cut}");
        }
    }
}

/// Words that were swapped, lost or repeated are read or refused, without a panic.
#[test]
fn lines_with_other_columns_do_not_panic() {
    for Fixture { log, format, .. } in FIXTURES {
        for line in log.lines() {
            for separator in [' ', '\t', ',', '"'] {
                let words: Vec<_> = line.split(separator).collect();
                for at in 0..words.len() {
                    let mut others = words.clone();
                    others.remove(at);
                    let less = others.join(&separator.to_string());
                    others.insert(others.len() - at, "-1 \u{fffd}\0");
                    others.rotate_left(at);
                    let other = others.join(&separator.to_string());
                    for line in [less, other, words[..at].join(" ")] {
                        let _ = try_read(format!("{log}{line}\n"), Some(format));
                        let _ = try_read(&line, None);
                    }
                }
            }
        }
    }
}

#[test]
fn table_without_its_header_is_refused() {
    let log = log!("iis.log");
    let rows: String = log.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect();
    let error = try_read(&rows, Some("w3c")).unwrap_err().to_string();
    assert!(
        error.starts_with("log:1: no `#Fields` line with a `cs-uri-stem` comes before the line"),
        "{error}"
    );
}
