//! `--scale`: the same experiment, larger or smaller.

use super::{Experiment, Scaled, Subject, load};
use crate::{engine::Load, judge::Claim, metrics::Window};

/// An experiment cannot be scaled by so much.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScaleError {
    /// A load would be longer or larger than any may be, or nothing.
    #[error("--scale {factor} makes {} {reason}", if test.is_empty() { "the load".to_owned() } else { format!("the load of test `{test}`") })]
    Load {
        /// Which.
        test: String,
        /// By how much.
        factor: f64,
        /// What it would be.
        reason: String,
    },
    /// A claim would look at nothing.
    #[error("--scale {factor} leaves less than a second of the window `({window})`: scale by {} or more", 1.0 / window.seconds().unwrap_or(1) as f64)]
    Window {
        /// Which.
        window: Window,
        /// By how much.
        factor: f64,
    },
}

impl Experiment {
    /// Multiplies what the file says may be scaled.
    ///
    /// # Errors
    /// [`ScaleError`] where the file itself would be refused if it were written like that.
    pub fn scale(&mut self, factor: f64) -> Result<(), ScaleError> {
        for what in self.scaled.clone() {
            match what {
                Scaled::LoadBurst => self.scale_bursts(factor),
                Scaled::LoadDuration => self.scale_durations(factor)?,
                Scaled::CacheLimitEntries => self.cells.iter_mut().for_each(|cell| {
                    if let Subject::Http(http) = &mut cell.subject {
                        http.stretch_entries(factor);
                    }
                }),
            }
        }
        Ok(())
    }

    fn scale_bursts(&mut self, factor: f64) {
        for cell in &mut self.cells {
            let Subject::Engine { load: Load::Burst(burst), .. } = &mut cell.subject else { continue };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a float saturates, and a burst has one worker at least"
            )]
            let workers = (burst.workers as f64 * factor).round() as usize;
            burst.workers = workers.max(1);
        }
    }

    fn scale_durations(&mut self, factor: f64) -> Result<(), ScaleError> {
        let windows = self.claims.iter().flat_map(Claim::windows);
        let is_nothing =
            |window: &Window| window.seconds().is_some_and(|seconds| (seconds as f64) * factor < 1.0);
        if let Some(window) = windows.into_iter().find(is_nothing) {
            return Err(ScaleError::Window { window, factor });
        }
        for cell in &mut self.cells {
            let checked = match &mut cell.subject {
                Subject::Engine { load: Load::Burst(_), .. } => Ok(()),
                Subject::Engine { load: Load::Open(open), .. } => {
                    open.traffic.schedule = open.traffic.schedule.stretched(factor);
                    open.conduct.stages = open.conduct.stages.stretched(factor);
                    load::check(&open.traffic)
                }
                Subject::Http(http) => http.stretch(factor).map_err(Into::into),
            };
            checked.map_err(|beyond| ScaleError::Load {
                test: cell.test.clone(),
                factor,
                reason: beyond.scaled(),
            })?;
        }
        let comparisons = self.claims.iter_mut().flat_map(|claim| &mut claim.expect);
        comparisons.for_each(|(_, comparison)| comparison.stretch(factor));
        for window in self.published.iter_mut().filter_map(|selector| selector.window.as_mut()) {
            *window = window.stretched(factor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{OPEN, open_with},
        *,
    };

    #[test]
    fn what_is_scaled_is_refused_as_if_it_were_written_like_that() {
        let scale = |text: &str, factor| {
            Experiment::parse("t.toml", text).unwrap().scale(factor).map_err(|error| error.to_string())
        };
        let said = |words: &str| Err(words.to_owned());
        assert_eq!(scale(OPEN, 1e3), Ok(()));
        assert_eq!(scale(OPEN, 1e6), said("--scale 1000000 makes the load longer than 30 days"));
        let many = OPEN.replace("10/s", "1/us").replace("60s", "500s");
        assert_eq!(scale(&many, 3.0), said("--scale 3 makes the load more than 1,000,000,000 requests"));
        let writes = open_with("writes = { every = \"1us\", invalidate = \"soft\" }");
        let too_many = "--scale 100 makes the load more than 1,000,000,000 requests and writes";
        assert_eq!(scale(&writes, 100.0), said(too_many));
        let window = open_with("[[hypothesis]]\ntext = \"h\"\nexpect = [\"failed(10s..30s) == 0\"]");
        assert_eq!(scale(&window, 0.05), Ok(()));
        let nothing =
            "--scale 0.04 leaves less than a second of the window `(10s..30s)`: scale by 0.05 or more";
        assert_eq!(scale(&window, 0.04), said(nothing));
    }
}
