//! Properties of the parser that hold for every input. The target in `fuzz/` calls them with random inputs, a test with
//! the kept corpus.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

use crate::spec::Experiment;

/// No folder: files that an experiment requires do not exist.
const NAME: &str = "/nonexistent/experiment.toml";

/// An experiment file.
///
/// - A file that is refused has a message and can be shown with it.
/// - A comment at its end changes nothing.
/// - Every test has every arm, and a target whose facts can be stated.
pub fn experiment(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Experiment::parse(NAME, text) {
        Ok(experiment) => {
            let commented = Experiment::parse(NAME, &format!("{text}\n# the end"));
            let commented = commented.expect("a comment at the end is valid");
            assert_eq!(outline(&commented), outline(&experiment));
            assert!(!experiment.cells.is_empty() && (1..=1_000).contains(&experiment.repeats));
            for cell in &experiment.cells {
                assert!(experiment.arms.contains(&cell.arm), "{}", cell.arm);
                assert!((0.0..=1.0).contains(&cell.share(1)));
            }
            let _ = experiment.windows();
        }
        Err(error) => {
            assert!(!error.to_string().is_empty(), "{text}");
            let mut shown = String::new();
            let report = miette::NarratableReportHandler::new().render_report(&mut shown, error.as_ref());
            assert!(report.is_ok() && !shown.is_empty());
        }
    }
}

fn outline(experiment: &Experiment) -> String {
    let cells: Vec<_> =
        experiment.cells.iter().map(|cell| (&cell.test, &cell.arm, cell.target.facts())).collect();
    let Experiment { title, context, repeats, tests, arms, claims, .. } = experiment;
    format!("{title:?} {context:?} {repeats} {tests:?} {arms:?} {claims:?} {cells:?}")
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_has_its_properties() {
        super::replay::replay("experiment", super::experiment);
    }
}
