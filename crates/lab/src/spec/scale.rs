//! `--scale`: multiplies the dimensions that an experiment lists.

use stockade_record::{judge::Claim, metrics::FigureWindow};

use super::{Experiment, ScaledDimension};

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScaleError {
    /// The scaled load exceeds the bounds of loads, or is empty.
    #[error("--scale {factor} makes {} {reason}", if test.is_empty() { "the load".to_owned() } else { format!("the load of test `{test}`") })]
    Load { test: String, factor: f64, reason: String },
    /// A scaled window is shorter than a second.
    #[error("--scale {factor} leaves less than a second of the window `({window})`: scale by {} or more", 1.0 / window.seconds().unwrap_or(1) as f64)]
    FigureWindow { window: FigureWindow, factor: f64 },
}

impl Experiment {
    /// Multiplies the dimensions that the file lists. Claims that do not hold at any scale are not judged any more.
    ///
    /// # Errors
    /// [`ScaleError`] where a file with the scaled values would be invalid.
    pub fn scale(&mut self, factor: f64) -> Result<(), ScaleError> {
        for dimension in self.scaled.clone() {
            if dimension == ScaledDimension::LoadDuration {
                self.check_windows(factor)?;
            }
            for cell in &mut self.cells {
                cell.target.scale(dimension, factor).map_err(|error| ScaleError::Load {
                    test: cell.test.clone(),
                    factor,
                    reason: error.when_scaled(),
                })?;
            }
            if dimension == ScaledDimension::LoadDuration {
                self.scale_windows(factor);
            }
        }
        for claim in &mut self.claims {
            claim.is_judged = claim.any_scale;
            claim.expect.iter_mut().for_each(|(_, comparison)| comparison.scale(factor));
        }
        Ok(())
    }

    fn check_windows(&self, factor: f64) -> Result<(), ScaleError> {
        let is_too_short =
            |window: &FigureWindow| window.seconds().is_some_and(|seconds| (seconds as f64) * factor < 1.0);
        match self.claims.iter().flat_map(Claim::windows).find(is_too_short) {
            Some(window) => Err(ScaleError::FigureWindow { window, factor }),
            None => Ok(()),
        }
    }

    fn scale_windows(&mut self, factor: f64) {
        let comparisons = self.claims.iter_mut().flat_map(|claim| &mut claim.expect);
        comparisons.for_each(|(_, comparison)| comparison.stretch(factor));
        for window in self.published.iter_mut().filter_map(|selector| selector.window.as_mut()) {
            *window = window.stretched(factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{OPEN, open_with},
        *,
    };

    #[test]
    fn scaled_values_have_the_bounds_of_written_values() {
        let scale = |text: &str, factor| {
            Experiment::parse("t.toml", text).unwrap().scale(factor).map_err(|error| error.to_string())
        };
        let refused = |words: &str| Err(words.to_owned());
        assert_eq!(scale(OPEN, 1e3), Ok(()));
        assert_eq!(scale(OPEN, 1e6), refused("--scale 1000000 makes the load longer than 30 days"));
        let many = OPEN.replace("10/s", "1/us").replace("60s", "500s");
        assert_eq!(scale(&many, 3.0), refused("--scale 3 makes the load more than 1,000,000,000 requests"));
        let writes = open_with("writes = { every = \"1us\", invalidate = \"soft\" }");
        let too_many = "--scale 100 makes the load more than 1,000,000,000 requests and writes";
        assert_eq!(scale(&writes, 100.0), refused(too_many));
        let window = open_with("[[hypothesis]]\ntext = \"h\"\nexpect = [\"failed(10s..30s) == 0\"]");
        assert_eq!(scale(&window, 0.05), Ok(()));
        let nothing =
            "--scale 0.04 leaves less than a second of the window `(10s..30s)`: scale by 0.05 or more";
        assert_eq!(scale(&window, 0.04), refused(nothing));
    }

    #[test]
    fn scaled_experiment_judges_the_claims_that_hold_at_any_scale() {
        let text = open_with(
            "[[hypothesis]]\ntext = \"whole\"\nexpect = [\"requests == 600\"]\n\
             [[hypothesis]]\ntext = \"any\"\nexpect = [\"requests == 600 * scale\"]\nany_scale = true",
        );
        let mut experiment = Experiment::parse("t.toml", &text).unwrap();
        let judged = |experiment: &Experiment| -> Vec<_> {
            experiment.claims.iter().filter(|claim| claim.is_judged).map(|claim| claim.text.clone()).collect()
        };
        let implicit = "nothing was served beyond its limit";
        assert_eq!(judged(&experiment), ["whole", "any", implicit]);
        experiment.scale(0.5).unwrap();
        assert_eq!(judged(&experiment), ["any", implicit]);
    }
}
