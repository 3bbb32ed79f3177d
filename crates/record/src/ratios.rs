//! Verdicts on ratios that another program measured, such as `bench/`: the statistics of hypotheses about times, without an
//! experiment.

use crate::{
    judge::CLAIM_MIN_EFFECT,
    statistics::{
        AssumedSpread, Effects, Estimate, FAMILY_ERROR_RATE, Quantity, Region, RepeatEffect, holm, ratio,
    },
};

/// Where a ratio has to lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

/// A ratio and its aim.
#[derive(Clone, Debug)]
pub struct RatioClaim {
    /// One positive ratio for each repeat; one at least.
    pub repeats: Vec<f64>,
    /// `None`: no verdict.
    pub aim: Option<Aim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RatioVerdict {
    /// The interval lies on the side of the aim.
    Met,
    /// It lies on the other side.
    Short,
    /// It lies on both.
    Open,
}

/// The mean ratio of the repeats and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgedRatio {
    /// The geometric mean.
    pub mean: f64,
    pub low: f64,
    pub high: f64,
    /// The interval rests on the spread that is assumed between runs, not on that of the repeats.
    pub is_assumed: bool,
    pub verdict: Option<RatioVerdict>,
    /// The repeats that would decide an open claim in nine of ten cases.
    pub repeats_to_decide: Option<u32>,
}

impl Aim {
    /// The effects that meet it, and those that miss it. A ratio within the minimum effect of its aim meets it.
    fn regions(self) -> (Region, Region) {
        let margin = CLAIM_MIN_EFFECT.ln_1p();
        match self {
            Self::AtLeast(aim) => (Region::above(aim.ln() - margin), Region::below(aim.ln() - margin)),
            Self::AtMost(aim) => (Region::below(aim.ln() + margin), Region::above(aim.ln() + margin)),
        }
    }
}

/// Judges the claims as those of one file: the probability of any false verdict, and of any interval without its ratio, is 5 %.
#[must_use]
pub fn judge(claims: &[RatioClaim]) -> Vec<JudgedRatio> {
    let effects: Vec<Effects> = claims.iter().map(effects).collect();
    let estimates: Vec<Estimate> = effects.iter().map(Effects::estimate).collect();
    let p_value = |(claim, estimate): (&RatioClaim, &Estimate)| {
        claim.aim.map_or(1.0, |aim| {
            let (meets, misses) = aim.regions();
            estimate.p_value_within(meets).min(estimate.p_value_within(misses))
        })
    };
    let p_values: Vec<f64> = claims.iter().zip(&estimates).map(p_value).collect();
    let alphas = holm(&p_values, FAMILY_ERROR_RATE);
    let judged = claims.iter().zip(&effects).zip(&estimates).zip(alphas);
    judged
        .map(|(((claim, effects), estimate), alpha)| judged_ratio(claim, effects, estimate, alpha))
        .collect()
}

fn effects(claim: &RatioClaim) -> Effects {
    let figure = |value: f64| Quantity::figure(value, value, AssumedSpread::Machine);
    let repeat = |ratio: &f64| RepeatEffect::of(figure(*ratio), figure(1.0));
    Effects { repeats: claim.repeats.iter().map(repeat).collect(), within_run: None }
}

fn judged_ratio(claim: &RatioClaim, effects: &Effects, estimate: &Estimate, alpha: f64) -> JudgedRatio {
    let (low, high) = estimate.ratios(alpha);
    let verdict = claim.aim.map(|aim| {
        let (meets, misses) = aim.regions();
        if estimate.p_value_within(meets) <= alpha {
            RatioVerdict::Met
        } else if estimate.p_value_within(misses) <= alpha {
            RatioVerdict::Short
        } else {
            RatioVerdict::Open
        }
    });
    let repeats_to_decide = claim.aim.filter(|_| verdict == Some(RatioVerdict::Open)).and_then(|aim| {
        let (meets, misses) = aim.regions();
        effects.repeats_to_decide(alpha, &[meets, misses])
    });
    JudgedRatio {
        mean: ratio(estimate.measured),
        low,
        high,
        is_assumed: estimate.rests_on_assumed_spread(alpha),
        verdict,
        repeats_to_decide,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(claims: &[(&[f64], Aim)]) -> Vec<Option<RatioVerdict>> {
        let claim =
            |(repeats, aim): &(&[f64], Aim)| RatioClaim { repeats: repeats.to_vec(), aim: Some(*aim) };
        judge(&claims.iter().map(claim).collect::<Vec<_>>())
            .into_iter()
            .map(|judged| judged.verdict)
            .collect()
    }

    #[test]
    fn interval_decides_on_which_side_of_its_aim_a_ratio_lies() {
        let steady = [1.20, 1.22, 1.21, 1.19, 1.20];
        let wide = [0.8, 1.3, 1.1, 0.9, 1.2];
        let cases: &[(&[f64], Aim)] = &[
            (&steady, Aim::AtLeast(1.0)),
            (&steady, Aim::AtMost(1.0)),
            (&wide, Aim::AtLeast(1.0)),
            (&[3.0], Aim::AtLeast(1.0)),
            (&[1.5], Aim::AtLeast(1.0)),
        ];
        let expected = [
            Some(RatioVerdict::Met),
            Some(RatioVerdict::Short),
            Some(RatioVerdict::Open),
            // One run decides a factor of 2.6, not one of 1.5, if it is the only claim.
            Some(RatioVerdict::Open),
            Some(RatioVerdict::Open),
        ];
        assert_eq!(verdicts(cases), expected);
        assert_eq!(verdicts(&cases[3..4]), [Some(RatioVerdict::Met)]);
    }

    #[test]
    fn one_percent_from_the_aim_meets_it() {
        let ratios = [0.995, 0.996, 0.995, 0.995, 0.996];
        assert_eq!(verdicts(&[(&ratios, Aim::AtLeast(1.0))]), [Some(RatioVerdict::Met)]);
        let ratios = [0.985, 0.986, 0.985, 0.985, 0.986];
        assert_eq!(verdicts(&[(&ratios, Aim::AtLeast(1.0))]), [Some(RatioVerdict::Short)]);
    }

    #[test]
    fn mean_is_geometric_and_open_claims_name_the_repeats() {
        let [judged] = judge(&[RatioClaim {
            repeats: vec![1.0, 1.3, 1.1, 0.98, 1.2],
            aim: Some(Aim::AtLeast(1.0)),
        }])[..] else {
            panic!("one claim, one judgement");
        };
        assert!((judged.mean - (1.0_f64 * 1.3 * 1.1 * 0.98 * 1.2).powf(0.2)).abs() < 1e-12);
        assert_eq!(judged.verdict, Some(RatioVerdict::Open));
        assert!(judged.low < 0.99 && judged.high > 1.2, "{judged:?}");
        assert!(judged.repeats_to_decide.is_some_and(|repeats| repeats > 5), "{judged:?}");
        assert_eq!(judge(&[RatioClaim { repeats: vec![2.0], aim: None }])[0].verdict, None);
    }
}
