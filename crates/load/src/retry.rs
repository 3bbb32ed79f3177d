//! Whether to ask again: retries that cannot become the outage.

use std::time::Duration;

use crate::sample::{Answer, Class, Failure};

/// What is done about a failure; by default nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retries {
    /// How many more attempts a request has.
    pub most: u32,
    /// How long it waits before each.
    pub backoff: Duration,
    /// How many retries there may be for each request, over all requests: 0.1 is one for every ten.
    pub budget: f64,
}

impl Default for Retries {
    fn default() -> Self {
        Self { most: 0, backoff: Duration::from_millis(100), budget: 0.1 }
    }
}

/// What is left of a budget: every request pays in, every retry takes one out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    retries: Retries,
    saved: f64,
}

impl Budget {
    /// No more than so many can be saved up. They are there from the start: the first who fail have nobody before them
    /// who paid in.
    const SAVED_MAX: f64 = 10.0;

    pub(crate) fn new(retries: Retries) -> Self {
        Self { retries, saved: if retries.budget > 0.0 { Self::SAVED_MAX } else { 0.0 } }
    }

    /// One more request.
    pub(crate) fn pay_in(&mut self) {
        self.saved = (self.saved + self.retries.budget).min(Self::SAVED_MAX);
    }

    /// Whether a request that has made so many attempts makes another.
    pub(crate) fn allows(&mut self, attempts: u32, ended: &Result<Answer, Failure>) -> bool {
        if attempts > self.retries.most || !is_worth_it(ended) || self.saved < 1.0 {
            return false;
        }
        self.saved -= 1.0;
        true
    }
}

/// What may be better the next time.
fn is_worth_it(ended: &Result<Answer, Failure>) -> bool {
    match ended {
        Ok(answer) => matches!(answer.status, 408 | 429 | 500 | 502 | 503 | 504),
        Err(failure) => matches!(
            failure.class,
            Class::Refused
                | Class::Unreachable
                | Class::ConnectTimeout
                | Class::Reset
                | Class::Closed
                | Class::Truncated
                | Class::Timeout
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_gets_no_more_than_its_budget() {
        let mut budget = Budget::new(Retries { most: 3, budget: 0.1, ..Retries::default() });
        let refused = Err(Class::Refused.into());
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.pay_in();
            retries += (1..10).take_while(|attempts| budget.allows(*attempts, &refused)).count();
        }
        assert!((105..=110).contains(&retries), "{retries}");
    }

    #[test]
    fn what_would_fail_again_is_not_asked_again() {
        let mut budget = Budget::new(Retries { most: 1, ..Retries::default() });
        let answered = |status| Ok(Answer { status, bytes: 0, wire_bytes: 0, outcome: None });
        for ended in [answered(200), answered(404), Err(Class::Tls.into()), Err(Class::Dns.into())] {
            assert!(!budget.allows(1, &ended), "{ended:?}");
        }
        assert!(budget.allows(1, &answered(503)));
        assert!(!budget.allows(2, &answered(503)), "it has made its one more attempt");
        let mut none = Budget::new(Retries { most: 1, budget: 0.0, ..Retries::default() });
        assert!(!none.allows(1, &answered(503)), "there is nothing to spend");
    }
}
