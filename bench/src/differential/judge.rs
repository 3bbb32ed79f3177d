//! The rules by which our proxy is lax. Pure.
//!
//! **Lax**, whatever the others do:
//! 1. the origin receives bytes that two parsers could read in two ways (a fault of [`super::wire`]);
//! 2. the origin sees more requests than the client sent, as the standard reads its bytes;
//! 3. another client gets a response that is not that to its own request;
//! 4. a client receives bytes that two parsers could read in two ways;
//! 5. ours does what the standard forbids.
//!
//! **Lax**, compared with the others:
//!
//! 6. ours does what the standard leaves open (a SHOULD, a MAY, bytes outside of the grammar, or silence), and at
//!    least one other proxy does not.
//!
//! Not lax: ours does what the standard names and permits, and another proxy does not. These are counted apart, as
//! **permitted**. So is what is lax by rule 5 or 6 but has a reason in the file of cases: an **exception**.
//!
//! **Stricter**: ours does not, and at least one other does. **Other**: all do or all do not, in different ways.
//!
//! Rule 2 does not apply to cases about responses of the origin and about caching: there a proxy may repeat a request.

use super::{
    case::{Case, Kind, Reading},
    observation::Observation,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All proxies did the same.
    Same,
    Stricter,
    Other,
    Permitted,
    /// Lax by this rule, with the case's reason why not.
    Exception(&'static str),
    /// Lax by this rule.
    Lax(String),
}

impl Verdict {
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Stricter => "stricter",
            Self::Other => "other",
            Self::Permitted => "permitted",
            Self::Exception(_) => "exception",
            Self::Lax(_) => "**lax**",
        }
    }
}

/// The verdict on the nth question of a case. The first observation is ours.
#[must_use]
pub fn judge(case: &Case, question: usize, observations: &[Observation]) -> Verdict {
    let ours = &observations[0];
    let others = &observations[1..];
    let is_done = ours.answers[question];
    let is_disputed = others.iter().any(|other| other.answers[question] != is_done);
    if let Some(reason) = lax_by_bytes(case, ours).filter(|_| question == 0) {
        return Verdict::Lax(reason);
    }
    let lax = match case.asks[question].1 {
        Reading::Forbidden if is_done => Some("the standard forbids it"),
        Reading::Unsettled if is_done && is_disputed => Some("another proxy does not"),
        _ => None,
    };
    if let Some(lax) = lax {
        return case.exception.map_or_else(|| Verdict::Lax(lax.to_owned()), Verdict::Exception);
    }
    let is_same = observations.iter().all(|other| {
        let is_refusal = !is_done && !other.answers[question];
        // Refusals differ in their status only.
        is_refusal || other.details[question] == ours.details[question]
    });
    match (is_disputed, is_done) {
        (true, true) => Verdict::Permitted,
        (true, false) => Verdict::Stricter,
        (false, _) if is_same => Verdict::Same,
        (false, _) => Verdict::Other,
    }
}

/// Rules 1 to 4.
fn lax_by_bytes(case: &Case, ours: &Observation) -> Option<String> {
    let is_about_requests = !matches!(case.kind, Kind::Responses | Kind::Caching);
    if let Some(fault) = ours.faults_sent.first() {
        return Some(format!("the origin received: {fault}"));
    }
    if is_about_requests && ours.requests_seen > case.requests_max {
        return Some(format!("{} requests, the client sent {}", ours.requests_seen, case.requests_max));
    }
    if ours.is_victim_misled {
        return Some("another client got the response".to_owned());
    }
    ours.faults_returned.first().map(|fault| format!("the client received: {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::{
        case::{CaseStep, Question},
        wire::Fault,
    };

    fn observed(is_done: bool) -> Observation {
        Observation {
            answers: vec![is_done],
            details: vec![if is_done { "POST 5 B" } else { "400" }.to_owned()],
            ..Observation::default()
        }
    }

    fn case(reading: Reading) -> Case {
        Case::request(Kind::Framing, "a", "9112 6.3", reading, CaseStep::get(""))
    }

    #[test]
    fn verdict_depends_on_reading_and_peers() {
        use Reading::{Forbidden, Permitted, Unsettled};
        let another = || Verdict::Lax("another proxy does not".to_owned());
        let forbids = || Verdict::Lax("the standard forbids it".to_owned());
        for (reading, ours, other, expected) in [
            (Forbidden, true, true, forbids()),
            (Forbidden, true, false, forbids()),
            (Forbidden, false, true, Verdict::Stricter),
            (Forbidden, false, false, Verdict::Same),
            (Unsettled, true, false, another()),
            (Unsettled, true, true, Verdict::Same),
            (Unsettled, false, true, Verdict::Stricter),
            (Permitted, true, false, Verdict::Permitted),
            (Permitted, false, true, Verdict::Stricter),
        ] {
            let observations = [observed(ours), observed(true), observed(other)];
            let observations = if other { &observations[..] } else { &[observed(ours), observed(false)][..] };
            assert_eq!(judge(&case(reading), 0, observations), expected, "{reading:?} {ours} {other}");
        }
        let one_refuses = [observed(true), observed(true), observed(false)];
        assert_eq!(judge(&case(Unsettled), 0, &one_refuses), another(), "one peer suffices");
    }

    #[test]
    fn ambiguous_bytes_and_extra_requests_are_lax_in_any_case() {
        let lax = |ours: Observation| {
            let verdict = judge(&case(Reading::Permitted), 0, &[ours, observed(true)]);
            assert!(matches!(verdict, Verdict::Lax(_)), "{verdict:?}");
        };
        lax(Observation { faults_sent: vec![Fault("bare LF")], ..observed(true) });
        lax(Observation { faults_returned: vec![Fault("bare LF")], ..observed(true) });
        lax(Observation { requests_seen: 2, ..observed(true) });
        lax(Observation { is_victim_misled: true, ..observed(true) });
    }

    #[test]
    fn exceptions_and_other_differences_are_counted_apart() {
        let excepted = case(Reading::Forbidden).except("why");
        assert_eq!(judge(&excepted, 0, &[observed(true), observed(true)]), Verdict::Exception("why"));
        let mut longer = observed(true);
        longer.details[0] = "POST 9 B".to_owned();
        assert_eq!(judge(&case(Reading::Permitted), 0, &[observed(true), longer]), Verdict::Other);
        assert_eq!(Question::Forwarded.text(), "forwarded");
    }
}
