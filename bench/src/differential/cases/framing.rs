//! The length of the body of a request.

use super::{
    super::case::{Case, CaseStep, Kind, Reading},
    request, rows,
};

/// A second request, which is one only for a parser that ends the first where the standard does not.
const SMUGGLED: &str = "GET /{id}/smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n";
const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = rows(include_str!("framing.txt"))
        .into_iter()
        .map(|row| {
            let (text, chunks) = (row.text(), format!("5\r\nhello\r\n0\r\n\r\n{SMUGGLED}"));
            let mut requests = row.requests;
            let step = match row.section {
                // A length of 5 for some parsers only: the others see a request line `hello`.
                "lengths" => CaseStep::one(post(text, "hello")),
                "codings" => {
                    // A forbidden request ends its connection.
                    requests = if row.reading == Some(Reading::Forbidden) { 1 } else { 2 };
                    CaseStep::one(post(text, &chunks)).responses(requests)
                }
                "both" => CaseStep::one(post(text, &chunks)),
                "chunks" => CaseStep::one(post(CHUNKED, text)),
                "cut" => CaseStep::one(text).closing(),
                _ => CaseStep::one(text).responses(requests),
            };
            request(Kind::Framing, &row, step).requests_max(requests)
        })
        .collect();
    let many = "1\r\nx\r\n".repeat(1_000) + "0\r\n\r\n";
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(5_000));
    for (name, clause, reading, chunks) in [
        ("a thousand chunks of a byte", "9112 7.1", Reading::Permitted, many),
        ("an extension of 5,000 bytes", "9112 7.1.1", Reading::Permitted, long),
    ] {
        cases.push(Case::request(
            Kind::Framing,
            name,
            clause,
            reading,
            CaseStep::one(post(CHUNKED, &chunks)),
        ));
    }
    cases
}

fn post(fields: &str, body: &str) -> String {
    format!("POST /{{id}} HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n{body}")
}
