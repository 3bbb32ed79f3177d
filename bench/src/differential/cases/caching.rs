//! Responses that are stored, and the requests that they answer.

use super::{
    super::case::{Case, CaseStep, Kind, Question, Reading, Reply, When},
    super::table::Row,
    asks, rows,
};

const FRESH: &str = "Cache-Control: max-age=60\r\n";

pub(super) fn responses() -> Vec<Case> {
    let with_fields = |row: &Row| {
        let case = asked(row, Question::Reused).step(CaseStep::get("")).step(CaseStep::get(""));
        case.replies([Reply::echo(row.text())])
    };
    let mut cases: Vec<Case> = rows(include_str!("directives.txt")).iter().map(with_fields).collect();
    cases.extend(statuses());
    cases
}

/// Final statuses with a declared lifetime, with a heuristic one, and with none.
fn statuses() -> Vec<Case> {
    const STATUSES: [&str; 47] = [
        "200 OK",
        "201 Created",
        "202 Accepted",
        "203 Non-Authoritative",
        "204 No Content",
        "205 Reset Content",
        "207 Multi-Status",
        "226 IM Used",
        "299 Unknown",
        "300 Multiple Choices",
        "301 Moved Permanently",
        "302 Found",
        "303 See Other",
        "305 Use Proxy",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
        "399 Unknown",
        "400 Bad Request",
        "401 Unauthorized",
        "402 Payment Required",
        "403 Forbidden",
        "404 Not Found",
        "405 Method Not Allowed",
        "406 Not Acceptable",
        "407 Proxy Authentication",
        "408 Request Timeout",
        "409 Conflict",
        "410 Gone",
        "411 Length Required",
        "413 Too Large",
        "414 Too Long",
        "415 Unsupported",
        "417 Expectation Failed",
        "418 Teapot",
        "421 Misdirected",
        "422 Unprocessable",
        "425 Too Early",
        "426 Upgrade Required",
        "428 Required",
        "429 Too Many",
        "431 Too Large",
        "451 Unavailable",
        "499 Unknown",
        "500 Error",
        "501 Not Implemented",
        "503 Unavailable",
        "599 Unknown",
    ];
    let case = |status: &'static str, what: &str, clause: &'static str, reading: Reading, fields: &str| {
        let name = format!("{} with {what}", &status[..3]);
        let case = Case::new(Kind::Caching, name, clause).ask(Question::Reused, reading);
        let reply = Reply::Echo { status: status.to_owned(), fields: fields.to_owned() };
        case.step(CaseStep::get("")).step(CaseStep::get("")).replies([reply])
    };
    let mut cases = Vec::new();
    for status in STATUSES {
        cases.push(case(status, "max-age", "9111 3", Reading::Permitted, FRESH));
        // Statuses that RFC 9110 (15.1) declares heuristically cacheable.
        let is_heuristic = ["200", "203", "204", "300", "301", "308", "404", "405", "410", "414", "501"];
        let reading =
            if is_heuristic.contains(&&status[..3]) { Reading::Permitted } else { Reading::Forbidden };
        let modified = "Last-Modified: {now-864000}\r\n";
        cases.push(case(status, "Last-Modified", "9111 4.2.2", reading, modified));
        cases.push(case(status, "no sign of freshness", "9111 4.2.2", Reading::Unsettled, "X: y\r\n"));
    }
    let understand = "Cache-Control: must-understand, max-age=60\r\n";
    cases.push(case("299 Unknown", "must-understand", "9111 5.2.2.3", Reading::Forbidden, understand));
    cases
}

pub(super) fn requests() -> Vec<Case> {
    let of_row = |row: &Row| {
        let mut case = asks(Kind::Caching, row);
        for part in ["first", "second", "third"] {
            match row.find(part) {
                Some(text) if text.contains(" HTTP/1.") => case = case.step(CaseStep::one(text)),
                Some(fields) => case = case.step(CaseStep::get(fields)),
                None if part == "third" => {}
                None => case = case.step(CaseStep::get("")),
            }
        }
        let usual = Reply::echo(if row.text().is_empty() { FRESH } else { row.text() });
        let reply = match (row.find("if"), row.find("status")) {
            (Some(field), Some(status)) => {
                let with = Reply::Echo { status: status.to_owned(), fields: row.part("then").to_owned() };
                Reply::If {
                    when: When::Field(field.to_owned()),
                    then: Box::new(with),
                    otherwise: Box::new(usual),
                }
            }
            _ => usual,
        };
        case.replies([reply])
    };
    rows(include_str!("caching.txt")).iter().map(of_row).collect()
}

pub(super) fn keys() -> Vec<Case> {
    let get = |target: &str, host: &str, fields: &str| {
        CaseStep::one(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"))
    };
    let of_row = |row: &Row| {
        let (first, second, text) = (row.part("first"), row.part("second"), row.text());
        let (target, host) = ("/{id}", "a.test");
        let (question, steps, fields) = match row.section {
            "targets" => (Question::Reused, [get(first, host, ""), get(second, host, "")], ""),
            "hosts" => (Question::Reused, [get(target, first, ""), get(target, second, "")], ""),
            "vary" => (Question::Reused, [get(target, host, first), get(target, host, second)], text),
            _ => (Question::Evil, [get(target, host, text), get(target, host, "")], ""),
        };
        let vary = if fields.is_empty() { String::new() } else { format!("Vary: {fields}\r\n") };
        let mut case = asked(row, question).replies([Reply::echo(format!("{FRESH}{vary}"))]);
        case.steps.extend(steps);
        case
    };
    rows(include_str!("keys.txt")).iter().map(of_row).collect()
}

fn asked(row: &Row, question: Question) -> Case {
    asks(Kind::Caching, row).ask(question, row.reading.unwrap_or(Reading::Unsettled))
}
