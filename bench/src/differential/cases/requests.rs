//! First lines, hosts and header fields of requests.

use super::{
    super::case::{Case, CaseStep, Kind, Reading},
    asks, request, rows,
};

pub(super) fn request_lines() -> Vec<Case> {
    let rest = "Host: a.test\r\n\r\n";
    let rows = rows(include_str!("request_line.txt"));
    let mut cases: Vec<Case> = rows
        .iter()
        .map(|row| request(Kind::RequestLine, row, CaseStep::one(format!("{}{rest}", row.text()))))
        .collect();
    for (name, reading, line) in [
        (
            "a target of 2,000 bytes",
            Reading::Permitted,
            format!("GET /{{id}}/{} HTTP/1.1", "x".repeat(2_000)),
        ),
        (
            "a target of 10,000 bytes",
            Reading::Permitted,
            format!("GET /{{id}}/{} HTTP/1.1", "x".repeat(10_000)),
        ),
        (
            "a target of 100,000 bytes",
            Reading::Permitted,
            format!("GET /{{id}}/{} HTTP/1.1", "x".repeat(100_000)),
        ),
        ("a method of 40 bytes", Reading::Permitted, format!("{} /{{id}} HTTP/1.1", "M".repeat(40))),
        ("a method of 5,000 bytes", Reading::Permitted, format!("{} /{{id}} HTTP/1.1", "M".repeat(5_000))),
    ] {
        let step = CaseStep::one(format!("{line}\r\n{rest}"));
        cases.push(Case::request(Kind::RequestLine, name, "9112 3", reading, step));
    }
    cases
}

pub(super) fn hosts() -> Vec<Case> {
    let rows = rows(include_str!("host.txt"));
    let mut cases: Vec<Case> = rows
        .iter()
        .map(|row| {
            let text = match row.section {
                "fields" => format!("GET /{{id}} HTTP/1.1\r\n{}\r\n", row.text()),
                _ => row.text().to_owned(),
            };
            request(Kind::Host, row, CaseStep::one(text))
        })
        .collect();
    for (name, length) in [("a name of 300 bytes", 300), ("a name of 5,000 bytes", 5_000)] {
        let step = CaseStep::one(format!("GET /{{id}} HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(length)));
        cases.push(Case::request(Kind::Host, name, "3986 3.2.2", Reading::Permitted, step));
    }
    cases
}

pub(super) fn fields() -> Vec<Case> {
    let rows = rows(include_str!("fields.txt"));
    let mut cases: Vec<Case> = rows
        .iter()
        .map(|row| {
            let step =
                if row.section == "requests" { CaseStep::one(row.text()) } else { CaseStep::get(row.text()) };
            if row.asks.is_empty() {
                return request(Kind::Fields, row, step);
            }
            let mut case = asks(Kind::Fields, row).step(step);
            case.has_victim = true;
            case
        })
        .collect();
    for (name, reading, fields) in [
        ("a name of 300 bytes", Reading::Permitted, format!("{}: 1\r\n", "X".repeat(300))),
        ("a value of 5,000 bytes", Reading::Permitted, format!("X: {}\r\n", "x".repeat(5_000))),
        ("a value of 100,000 bytes", Reading::Permitted, format!("X: {}\r\n", "x".repeat(100_000))),
        ("90 fields", Reading::Permitted, "X: 1\r\n".repeat(90)),
        ("1,000 fields", Reading::Permitted, "X: 1\r\n".repeat(1_000)),
    ] {
        cases.push(Case::request(Kind::Fields, name, "9110 5.4", reading, CaseStep::get(&fields)));
    }
    cases
}
