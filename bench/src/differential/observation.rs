//! One case on one proxy: runs it, and answers its questions.

use std::{fmt::Write as _, io, thread, time::Duration};

use super::{
    case::{Case, CaseStep, EVIL, Kind, Question, bytes},
    client::{Exchange, exchange},
    origin::Origin,
    wire::{Fault, Message, Side, parse},
};

/// A proxy may store a response after it has been sent.
const STORING: Duration = Duration::from_millis(40);

/// One proxy, one case.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The answers to the questions of the case.
    pub answers: Vec<bool>,
    /// For each question: the action, as it appears in a report. Two proxies with equal text agree.
    pub details: Vec<String>,
    /// In the bytes that the origin received.
    pub faults_sent: Vec<Fault>,
    /// In the bytes that the clients received.
    pub faults_returned: Vec<Fault>,
    /// The requests that the origin saw, the last client's own excepted.
    pub requests_seen: usize,
    /// The last client got another response than that to its own request.
    pub is_victim_misled: bool,
    /// The requests that were sent, the last client's included.
    pub requests_sent: usize,
}

/// The bytes of both sides.
struct Evidence {
    exchanges: Vec<Exchange>,
    /// How many responses the origin had given before each connection.
    served_before: Vec<usize>,
    victim: Option<Exchange>,
    requests: Vec<Message>,
    faults_sent: Vec<Fault>,
}

/// Runs a case. `id` is unique for the case and the proxy.
pub fn observe(address: &str, origin: &Origin, case: &Case, id: &str) -> io::Result<Observation> {
    origin.begin(&case.replies);
    let (mut exchanges, mut served_before) = (Vec::new(), Vec::new());
    for step in &case.steps {
        if !exchanges.is_empty() {
            thread::sleep(STORING);
        }
        served_before.push(origin.served());
        exchanges.push(run(address, step, id)?);
    }
    let victim_step = CaseStep::one("GET /{id}/victim HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let victim = case.has_victim.then(|| run(address, &victim_step, id)).transpose()?;
    let (mut requests, mut faults_sent) = (Vec::new(), Vec::new());
    for received in origin.end() {
        let mut parsed = parse(&received, Side::Requests);
        requests.append(&mut parsed.messages);
        faults_sent.append(&mut parsed.faults);
    }
    requests.retain(|request| !request.target().ends_with("/victim"));
    faults_sent.sort_unstable();
    faults_sent.dedup();
    Ok(Evidence { exchanges, served_before, victim, requests, faults_sent }.observation(case, id))
}

fn run(address: &str, step: &CaseStep, id: &str) -> io::Result<Exchange> {
    let text = bytes(&step.text.replace("{id}", id));
    exchange(address, &text, &step.is_head, step.responses, step.closes)
}

impl Evidence {
    fn observation(self, case: &Case, id: &str) -> Observation {
        let answers: Vec<bool> = case.asks.iter().map(|(asked, _)| self.answer(*asked, case)).collect();
        let details = case.asks.iter().zip(&answers);
        let details = details.map(|((asked, _), is)| self.detail(*asked, *is, case.kind, id)).collect();
        let mut faults_returned: Vec<Fault> =
            self.exchanges.iter().flat_map(|one| one.parsed.faults.clone()).collect();
        faults_returned.sort_unstable();
        faults_returned.dedup();
        Observation {
            details,
            faults_returned,
            requests_seen: self.requests.len(),
            is_victim_misled: self.is_victim_misled(),
            requests_sent: case.steps.iter().map(|step| step.responses).sum::<usize>()
                + usize::from(self.victim.is_some()),
            answers,
            faults_sent: self.faults_sent,
        }
    }

    fn answer(&self, question: Question, case: &Case) -> bool {
        let first = &self.exchanges[0];
        let last = &self.exchanges[self.exchanges.len() - 1];
        match question {
            Question::Forwarded => {
                !self.faults_sent.is_empty() || self.requests.iter().any(|request| request.is_complete)
            }
            Question::FieldForwarded(name) => {
                self.requests.iter().any(|request| request.values(name).next().is_some())
            }
            Question::FieldLost(name) => {
                let has_field = |request: &Message| request.values(name).next().is_some();
                !self.requests.is_empty() && !self.requests.iter().all(has_field)
            }
            Question::Delivered => serial(&first.received).is_some() && final_status(first).is_some(),
            Question::Complete => {
                let response = first.parsed.messages.iter().find(|one| one.status() >= 200);
                response.is_some_and(|one| one.is_complete && serial(&first.received).is_some())
            }
            Question::Reused => {
                let before = self.served_before[case.steps.len() - 1];
                serial(&last.received).is_some_and(|serial| serial <= before)
            }
            Question::Evil => contains(&last.received, EVIL) || self.victim_contains_evil(),
            Question::EvilFirst => contains(&first.received, EVIL),
        }
    }

    fn victim_contains_evil(&self) -> bool {
        self.victim.as_ref().is_some_and(|victim| contains(&victim.received, EVIL))
    }

    /// The body of a response of the origin is the request, so it names the victim's target.
    fn is_victim_misled(&self) -> bool {
        let Some(victim) = &self.victim else { return false };
        serial(&victim.received).is_some() && !contains(&victim.received, "/victim")
    }

    fn detail(&self, question: Question, is: bool, kind: Kind, id: &str) -> String {
        let first = &self.exchanges[0];
        match question {
            Question::Forwarded if is => self.forwarded(kind, id),
            Question::Forwarded => outcome(first),
            Question::FieldForwarded(_) | Question::FieldLost(_) if self.requests.is_empty() => {
                outcome(first)
            }
            Question::FieldForwarded(_) => if is { "forwarded" } else { "removed" }.to_owned(),
            Question::FieldLost(_) => if is { "lost" } else { "kept" }.to_owned(),
            Question::Delivered if is => outcome(first),
            Question::Delivered | Question::Complete if !is => outcome(first),
            Question::Delivered | Question::Complete => "complete".to_owned(),
            Question::Reused if is => "reused".to_owned(),
            Question::Reused => {
                let last = &self.exchanges[self.exchanges.len() - 1];
                if serial(&last.received).is_some() { "fetched".to_owned() } else { outcome(last) }
            }
            Question::Evil | Question::EvilFirst => if is { "yes" } else { "no" }.to_owned(),
        }
    }

    /// The requests as the origin saw them: the part that the kind of the case is about.
    fn forwarded(&self, kind: Kind, id: &str) -> String {
        let mut requests: Vec<String> = self.requests.iter().map(|one| shown(one, kind, id)).collect();
        // Proxies may use two connections, in any order.
        requests.sort();
        let mut text = requests.join(", ");
        if requests.is_empty() {
            text.push_str("unreadable bytes");
        }
        if !self.faults_sent.is_empty() {
            let names: Vec<&str> = self.faults_sent.iter().map(|fault| fault.0).collect();
            let _ = write!(text, " [{}]", names.join(", "));
        }
        text
    }
}

fn shown(request: &Message, kind: Kind, id: &str) -> String {
    let method = request.method();
    match kind {
        Kind::Framing => {
            let more = if request.is_complete { "" } else { " of more" };
            format!("{method} {} B{more}", request.body.len())
        }
        Kind::RequestLine => format!("{method} {}", short(&request.target().replace(id, "ID"))),
        Kind::Host => {
            let hosts: Vec<String> =
                request.values("host").map(|host| short(&host.escape_ascii().to_string())).collect();
            format!("Host: {}", hosts.join(", "))
        }
        Kind::Fields | Kind::Responses | Kind::Caching => "forwarded".to_owned(),
    }
}

fn short(text: &str) -> String {
    if text.len() > 40 {
        format!("{}... ({} B)", text.chars().take(24).collect::<String>(), text.len())
    } else {
        text.to_owned()
    }
}

/// The client's result if the origin's response is not it: a status, unreadable bytes, a close or a wait.
fn outcome(exchange: &Exchange) -> String {
    match final_status(exchange) {
        Some(status) => status.to_string(),
        None if !exchange.received.is_empty() => "unreadable".to_owned(),
        None if exchange.is_closed => "closed".to_owned(),
        None => "waits".to_owned(),
    }
}

fn final_status(exchange: &Exchange) -> Option<u16> {
    exchange.statuses().next()
}

/// The number of the origin's response, which is in its head or its body.
fn serial(received: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"x-serial: ";
    let at = received.windows(NAME.len()).position(|window| window.eq_ignore_ascii_case(NAME))? + NAME.len();
    std::str::from_utf8(received.get(at..at + 3)?).ok()?.parse().ok()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text.as_bytes()))
}
