//! Retries within a budget, so that a load generator cannot prolong an outage.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(feature = "http")]
pub(crate) use budget::RetryBudget;

/// The retries of failed requests; none by default.
///
/// Retried are failures of connections, timeouts, truncated answers, and the statuses 408, 429, 500, 502, 503 and 504.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Retries {
    /// The most attempts after a request's first one.
    pub max: u32,
    /// The pause before each further attempt.
    pub backoff: Duration,
    /// The share of requests that may be retried, over all requests of the run: 0.1 allows one retry for ten requests.
    pub budget: f64,
}

impl Default for Retries {
    fn default() -> Self {
        Self { max: 0, backoff: Duration::from_millis(100), budget: 0.1 }
    }
}

#[cfg(feature = "http")]
mod budget {
    use super::Retries;
    use crate::sample::{FailureClass, RequestFailure, Response};

    /// A token bucket: every request adds [`Retries::budget`] tokens, every retry takes one.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct RetryBudget {
        retries: Retries,
        tokens: f64,
    }

    impl RetryBudget {
        /// The capacity. The bucket starts full, since no request precedes the first failures.
        const TOKENS_MAX: f64 = 10.0;

        pub(crate) fn new(retries: Retries) -> Self {
            Self { retries, tokens: if retries.budget > 0.0 { Self::TOKENS_MAX } else { 0.0 } }
        }

        /// Adds the tokens of one more request.
        pub(crate) fn deposit(&mut self) {
            self.tokens = (self.tokens + self.retries.budget).min(Self::TOKENS_MAX);
        }

        /// Takes a token if a request that has made `attempts` attempts may make another one.
        pub(crate) fn try_retry(&mut self, attempts: u32, result: &Result<Response, RequestFailure>) -> bool {
            if attempts > self.retries.max || !is_retryable(result) || self.tokens < 1.0 {
                return false;
            }
            self.tokens -= 1.0;
            true
        }
    }

    /// True if a later attempt may succeed.
    fn is_retryable(result: &Result<Response, RequestFailure>) -> bool {
        match result {
            Ok(response) => matches!(response.status, 408 | 429 | 500 | 502 | 503 | 504),
            Err(failure) => matches!(
                failure.class,
                FailureClass::Refused
                    | FailureClass::Unreachable
                    | FailureClass::ConnectTimeout
                    | FailureClass::Reset
                    | FailureClass::Closed
                    | FailureClass::Truncated
                    | FailureClass::Timeout
            ),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn outage_gets_no_more_retries_than_the_budget() {
            let mut budget = RetryBudget::new(Retries { max: 3, budget: 0.1, ..Retries::default() });
            let refused = Err(FailureClass::Refused.into());
            let mut retries = 0;
            for _ in 0..1_000 {
                budget.deposit();
                retries += (1..10).take_while(|attempts| budget.try_retry(*attempts, &refused)).count();
            }
            assert!((105..=110).contains(&retries), "{retries}");
        }

        #[test]
        fn permanent_failures_are_not_retried() {
            let mut budget = RetryBudget::new(Retries { max: 1, ..Retries::default() });
            let answered = |status| {
                Ok(Response {
                    status,
                    bytes: 0,
                    wire_bytes: 0,
                    outcome: None,
                    may_be_stale: false,
                    deviation: None,
                    stated: None,
                })
            };
            for result in
                [answered(200), answered(404), Err(FailureClass::Tls.into()), Err(FailureClass::Dns.into())]
            {
                assert!(!budget.try_retry(1, &result), "{result:?}");
            }
            assert!(budget.try_retry(1, &answered(503)));
            assert!(!budget.try_retry(2, &answered(503)), "the request has had its one retry");
            let mut empty = RetryBudget::new(Retries { max: 1, budget: 0.0, ..Retries::default() });
            assert!(!empty.try_retry(1, &answered(503)), "a budget of 0 has no tokens");
        }
    }
}
