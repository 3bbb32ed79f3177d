//! Verdicts against the known truth.

use super::record::Verdict;

/// The truth of a claim on an idle machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    Holds,
    Fails,
    /// Both sides are equal: neither they nor their order can be told apart.
    Undecidable,
}

/// A verdict and the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Right,
    Open,
    /// The verdict is invalid, and its reason says why.
    Invalid,
    Wrong,
}

impl Outcome {
    pub const ALL: [Self; 4] = [Self::Right, Self::Open, Self::Invalid, Self::Wrong];

    /// Invalid without a reason is wrong, too: the reader does not learn what to change.
    pub fn of(truth: Truth, verdict: Verdict, reason: &str) -> Self {
        match (verdict, truth) {
            (Verdict::Supported, Truth::Holds)
            | (Verdict::Refuted, Truth::Fails)
            | (Verdict::Inconclusive, Truth::Undecidable) => Self::Right,
            (Verdict::Inconclusive, _) => Self::Open,
            (Verdict::Invalid, _) if !reason.is_empty() => Self::Invalid,
            _ => Self::Wrong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_right_where_they_say_what_is_true() {
        use Outcome::{Invalid, Open, Right, Wrong};
        for (truth, expected) in [
            (Truth::Holds, [Right, Wrong, Open, Invalid]),
            (Truth::Fails, [Wrong, Right, Open, Invalid]),
            (Truth::Undecidable, [Wrong, Wrong, Right, Invalid]),
        ] {
            let verdicts = [Verdict::Supported, Verdict::Refuted, Verdict::Inconclusive, Verdict::Invalid];
            assert_eq!(verdicts.map(|verdict| Outcome::of(truth, verdict, "late")), expected, "{truth:?}");
            assert_eq!(Outcome::of(truth, Verdict::Invalid, ""), Wrong);
        }
    }
}
