//! Predicted and measured figures of each cache, in each format.

use std::fmt::Write as _;

use maud::{Markup, html};
use serde_json::{Value, json};
use stockade_model::{message::wrapped, units::format_count};

use super::{CachePlan, text::COLUMNS};
use crate::verify::{Figure, Verification, VerifiedArm};

fn heading(verification: &Verification) -> String {
    format!(
        "Predicted and measured with {} requests through the real proxy",
        format_count(verification.requests)
    )
}

fn difference(figure: Figure) -> Option<String> {
    figure.difference().map(|difference| format!("{:+.2}", 100.0 * difference))
}

/// The measurement as text; `None`: the plan was not verified.
#[must_use]
pub fn verification_text(plan: &CachePlan) -> Option<String> {
    let verification = plan.verification.as_ref()?;
    let mut text = format!("\n{}\n\n", heading(verification));
    for arm in &verification.arms {
        let _ = writeln!(text, "{}: {}", arm.name, arm.cache);
        for (name, figure) in arm.figures() {
            let _ = write!(text, "  {name:<18} predicted {:.2} %, ", 100.0 * figure.predicted);
            let _ = match (figure.measured, difference(figure)) {
                (Some(measured), Some(points)) => {
                    let note = if figure.is_off() { "\n    more than a point off" } else { "" };
                    writeln!(text, "measured {:.2} %, {points} points{note}", 100.0 * measured)
                }
                _ => writeln!(text, "not measured"),
            };
        }
        for line in remarks(arm).flat_map(|remark| wrapped(&remark, COLUMNS - 4)) {
            let _ = writeln!(text, "    {line}");
        }
    }
    Some(text)
}

/// The reasons why it does not count, and its notes.
fn remarks(arm: &VerifiedArm) -> impl Iterator<Item = String> + '_ {
    let reasons = arm.not_measured.iter().map(|reason| format!("not a measurement: {reason}"));
    reasons.chain(arm.notes.iter().map(|note| format!("note: {note}")))
}

pub(super) fn markdown(plan: &CachePlan) -> String {
    let Some(verification) = &plan.verification else { return String::new() };
    let mut text = format!("## Verified\n\n{}\n\n", heading(verification));
    text += "| cache | figure | predicted | measured | points |\n|---|---|---:|---:|---:|\n";
    for [name, figure, predicted, measured, points] in rows(verification) {
        let _ = writeln!(text, "| {name} | {figure} | {predicted} | {measured} | {points} |");
    }
    text.push('\n');
    for arm in &verification.arms {
        for remark in remarks(arm) {
            let _ = writeln!(text, "- {}: {remark}", arm.name);
        }
    }
    text + "\n"
}

/// Cache, figure, predicted, measured, points.
fn rows(verification: &Verification) -> impl Iterator<Item = [String; 5]> + '_ {
    verification.arms.iter().flat_map(|arm| {
        arm.figures().map(move |(name, figure)| {
            let percent = |share: f64| format!("{:.2} %", 100.0 * share);
            let points = difference(figure).unwrap_or_else(|| "-".to_owned());
            [
                format!("{}: {}", arm.name, arm.cache),
                name.to_owned(),
                percent(figure.predicted),
                figure.measured.map_or("not measured".to_owned(), percent),
                if figure.is_off() { format!("{points}, more than one off") } else { points },
            ]
        })
    })
}

pub(super) fn html(plan: &CachePlan) -> Markup {
    let Some(verification) = &plan.verification else { return Markup::default() };
    let header = ["cache", "figure", "predicted", "measured", "points"].map(str::to_owned).to_vec();
    let rows = rows(verification).map(|row| row.to_vec()).collect();
    html! {
        h2 { "Verified" }
        p { (heading(verification)) "." }
        (super::html::table_of("Verified", &super::table::Table { header, rows }))
        ul {
            @for arm in &verification.arms {
                @for remark in remarks(arm) { li { (arm.name) ": " (remark) } }
            }
        }
    }
}

pub(super) fn json(verification: &Verification) -> Value {
    let figure = |figure: Figure| match (figure.measured, figure.difference()) {
        (Some(measured), Some(difference)) => {
            json!({ "predicted": figure.predicted, "measured": measured, "difference": difference })
        }
        _ => json!({ "predicted": figure.predicted }),
    };
    let arm = |arm: &VerifiedArm| {
        let mut json = json!({
            "name": arm.name,
            "cache": arm.cache,
            "measured": arm.is_measured(),
            "reasons": arm.not_measured,
            "notes": arm.notes,
        });
        for (name, of) in arm.figures() {
            json[name.replace(' ', "_")] = figure(of);
        }
        json
    };
    json!({
        "verdict": verification.verdict().to_string(),
        "requests": verification.requests,
        "arms": verification.arms.iter().map(arm).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use crate::{
        read::KeyRules,
        report::{CachePlan, FORMATS, verification_text},
        testing::{self, options, planned},
        verify::{Figure, Verification, VerifiedArm},
    };

    fn arm(name: &'static str, measured: Option<f64>) -> VerifiedArm {
        VerifiedArm {
            name,
            cache: "2MiB, sieve, ttl 30s".to_owned(),
            hit_ratio: Some(Figure { predicted: 0.45, measured }),
            loads_per_request: Figure { predicted: 0.55, measured: measured.map(|hits| 1.0 - hits) },
            not_measured: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// A plan with a cache that is as predicted, one that is not, and one that was not measured.
    fn verified() -> CachePlan {
        let mut lines = String::new();
        for n in 0..40 {
            let time = format!("01/Jan/2026:00:00:{n:02} +0000");
            let _ = writeln!(lines, "1.2.3.4 - - [{time}] \"GET /{} HTTP/1.1\" 200 900", n % 4);
        }
        let mut plan = planned(&lines, None, &KeyRules::default(), &options()).expect("a plan");
        let late = "the load generator was 340ms late at p99, and 50ms are allowed where responses are fresh for 1s: run it on a quiet \
                    machine, or slower with --verify-time";
        let arms = vec![
            VerifiedArm { notes: vec!["1 second was disturbed".to_owned()], ..arm("planned", Some(0.4525)) },
            arm("half_the_room", Some(0.43)),
            VerifiedArm { not_measured: vec![late.to_owned()], ..arm("lru", None) },
        ];
        plan.verification = Some(Verification { requests: 8_000, arms });
        plan
    }

    fn rendered(format: &str) -> String {
        testing::rendered(&verified(), format)
    }

    #[test]
    fn text_has_the_reasons_and_fits_a_terminal() {
        let text = verification_text(&verified()).expect("it is verified");
        assert_eq!(
            text,
            "\n\
             Predicted and measured with 8,000 requests through the real proxy\n\
             \n\
             planned: 2MiB, sieve, ttl 30s\n\
             \x20 hit ratio          predicted 45.00 %, measured 45.25 %, +0.25 points\n\
             \x20 loads per request  predicted 55.00 %, measured 54.75 %, -0.25 points\n\
             \x20   note: 1 second was disturbed\n\
             half_the_room: 2MiB, sieve, ttl 30s\n\
             \x20 hit ratio          predicted 45.00 %, measured 43.00 %, -2.00 points\n\
             \x20   more than a point off\n\
             \x20 loads per request  predicted 55.00 %, measured 57.00 %, +2.00 points\n\
             \x20   more than a point off\n\
             lru: 2MiB, sieve, ttl 30s\n\
             \x20 hit ratio          predicted 45.00 %, not measured\n\
             \x20 loads per request  predicted 55.00 %, not measured\n\
             \x20   not a measurement: the load generator was 340ms late at p99, and 50ms are\n\
             \x20   allowed where responses are fresh for 1s: run it on a quiet machine, or\n\
             \x20   slower with --verify-time\n"
        );
        assert!(text.lines().all(|line| line.chars().count() <= super::COLUMNS));
        // Not a second time in the plan, which is printed before.
        assert!(!rendered("text").contains("Predicted and measured"));
    }

    #[test]
    fn other_formats_say_of_each_cache_whether_it_was_measured() {
        let json: serde_json::Value = serde_json::from_str(&rendered("json")).expect("JSON");
        let verified = &json["verified"];
        assert_eq!((&verified["verdict"], &verified["requests"]), (&"refuted".into(), &8_000.into()));
        let measured: Vec<_> = (0..3).map(|n| verified["arms"][n]["measured"].as_bool()).collect();
        assert_eq!(measured, [Some(true), Some(true), Some(false)]);
        assert_eq!(verified["arms"][0]["hit_ratio"]["measured"], 0.4525);
        assert_eq!(verified["arms"][2]["hit_ratio"], serde_json::json!({ "predicted": 0.45 }));
        let reason = "the load generator was 340ms late";
        assert!(verified["arms"][2]["reasons"][0].as_str().is_some_and(|text| text.starts_with(reason)));
        for format in ["html", "md"] {
            let text = rendered(format);
            assert!(text.contains(&format!("lru: not a measurement: {reason}")), "{format}: {text}");
            assert!(text.contains("not measured") && text.contains("+2.00, more than one off"), "{format}");
        }
        for format in FORMATS.parsed_names() {
            let plan = CachePlan { verification: None, ..super::tests::verified() };
            assert!(!testing::rendered(&plan, format).to_lowercase().contains("verified"));
        }
    }
}
