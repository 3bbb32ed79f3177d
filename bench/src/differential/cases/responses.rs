//! Odd responses of the origin: whether they are delivered, stored, or left in a connection.

use super::{
    super::case::{Case, CaseStep, Kind, Question, Reading, Reply, Then},
    asks, rows,
};

/// The start of a response that may be stored.
const HEAD: &str = "HTTP/1.1 200 OK\r\nX-Serial: {serial}\r\nCache-Control: max-age=60\r\n";

pub(super) fn cases() -> Vec<Case> {
    let rows = rows(include_str!("responses.txt"));
    let mut cases: Vec<Case> = rows
        .iter()
        .map(|row| {
            let text = row.text();
            let (text, then) = match row.section {
                "heads" => (format!("{HEAD}{text}\r\nhello"), Then::KeepOpen),
                "codings" => (format!("{HEAD}{text}\r\n5\r\nhello\r\n0\r\n\r\n"), Then::KeepOpen),
                "chunks" => (format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{text}"), Then::Close),
                "closed" => (text.to_owned(), Then::Close),
                "reset" => (text.to_owned(), Then::Reset),
                _ => (text.to_owned(), Then::KeepOpen),
            };
            case(asks(Kind::Responses, row), text, then)
        })
        .collect();
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let good = format!("{HEAD}Content-Length: 5\r\n\r\nhello");
    for (name, reading, head) in [
        ("20 interim responses", Reading::Permitted, interim.repeat(20)),
        ("2,000 interim responses", Reading::Permitted, interim.repeat(2_000)),
    ] {
        let new = Case::new(Kind::Responses, name, "9110 15.2").ask(Question::Delivered, reading);
        cases.push(case(new, format!("{head}{good}"), Then::KeepOpen));
    }
    for (name, reading, field) in [
        ("a field of 5,000 bytes", Reading::Permitted, format!("X: {}\r\n", "x".repeat(5_000))),
        ("a field of 200,000 bytes", Reading::Permitted, format!("X: {}\r\n", "x".repeat(200_000))),
        ("1,000 fields", Reading::Permitted, "X: 1\r\n".repeat(1_000)),
    ] {
        let new = Case::new(Kind::Responses, name, "9110 5.4").ask(Question::Delivered, reading);
        cases.push(case(new, format!("{HEAD}{field}Content-Length: 5\r\n\r\nhello"), Then::KeepOpen));
    }
    let head = "HEAD /{id} HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let new = Case::new(Kind::Responses, "a body of a response to HEAD", "9112 6.3");
    let answer = format!("{HEAD}Content-Length: 4\r\n\r\nevil");
    let mut to_head =
        new.ask(Question::Evil, Reading::Forbidden).step(CaseStep::one(head)).step(CaseStep::one(head));
    to_head.replies = vec![Reply::raw(answer, Then::KeepOpen)];
    cases.push(to_head);
    cases
}

/// The bytes for a first and a second client; then a victim requests another URL, and gets an echo.
fn case(case: Case, text: String, then: Then) -> Case {
    let mut case = case.step(CaseStep::get("")).step(CaseStep::get(""));
    let odd = Reply::raw(text, then);
    case.replies = vec![Reply::for_target("/victim", Reply::echo("Cache-Control: no-store\r\n"), odd)];
    case.has_victim = true;
    case
}
