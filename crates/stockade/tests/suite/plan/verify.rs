//! `plan --verify`: measured and predicted figures, or the reason why not.

use std::fs;

use serde_json::Value;

use super::line;
use crate::support::{ProgramOutput, Sandbox};

/// Two minutes with five requests a second for forty pages, one in twenty of them HEAD.
fn log() -> String {
    let mut log = String::new();
    for n in 0..600_usize {
        let (minute, second, page) = (n / 300, n / 5 % 60, n * n % 41 % 40);
        let (method, bytes) = if n % 20 == 7 { ("HEAD", 0) } else { ("GET", 900) };
        let request = format!("{method} /page/{page} HTTP/1.1");
        line(&mut log, &format!("13:0{minute}:{second:02}"), &request, 200, bytes);
    }
    log
}

/// Four caches, each measured for this long.
fn verify(sandbox: &Sandbox, time: &str, arguments: &[&str]) -> ProgramOutput {
    let log = sandbox.file("access.log", &log());
    let verify = ["plan", &log, "--memory", "1MiB", "--experiment", "e", "--verify", "--verify-time", time];
    sandbox.stockade(&[&verify, arguments].concat())
}

#[test]
fn figures_of_a_measurement_are_beside_the_predicted_ones() {
    let sandbox = Sandbox::new();
    let output = verify(&sandbox, "4s", &["--format", "json"]);
    let plan: Value = serde_json::from_str(&output.stdout).expect("one JSON object");
    let verified = &plan["verified"];
    let code = match verified["verdict"].as_str() {
        Some("supported") => 0,
        Some("refuted") => 99,
        Some("invalid") => 98,
        other => panic!("{other:?}: {}", output.stderr),
    };
    assert_eq!(output.code, code, "{verified:#}");
    let arms = verified["arms"].as_array().expect("arms");
    let names: Vec<_> = arms.iter().filter_map(|arm| arm["name"].as_str()).collect();
    assert_eq!(names, ["planned", "half_the_room", "lru", "shorter_ttl"]);
    for arm in arms {
        let (is_measured, reasons) = (arm["measured"].as_bool(), arm["reasons"].as_array().expect("reasons"));
        assert_eq!(is_measured, Some(reasons.is_empty()), "{arm:#}");
        for figure in ["hit_ratio", "loads_per_request"] {
            let difference = arm[figure]["difference"].as_f64();
            assert_eq!(difference.is_some(), reasons.is_empty(), "{arm:#}");
            // A busy machine may be further off than a point, and nothing else is that far.
            assert!(difference.is_none_or(|difference| difference.abs() < 0.05), "{arm:#}");
        }
    }
    assert!(output.stderr.contains("; record, report.md and report.html in e/record"), "{}", output.stderr);
    let requests = fs::read_to_string(sandbox.path().join("e/requests.jsonl")).expect("written");
    assert!(requests.contains(r#""method":"HEAD""#), "{requests}");
}

#[test]
fn replay_that_is_late_for_its_lifetimes_is_not_a_measurement() {
    let sandbox = Sandbox::new();
    // No machine sends to the 50 us, and no load takes less than that.
    let output = verify(&sandbox, "1s", &["--ttl", "1ms"]);
    assert_eq!(output.code, 98, "{}", output.stdout);
    assert!(output.stderr.contains("\ninvalid; record, "), "{}", output.stderr);
    let (plan, verified) = output.stdout.split_once("\nPredicted and measured with ").expect("both");
    assert!(plan.contains("\n[cache]\n"), "{plan}");
    assert_eq!(verified.matches(" %, not measured\n").count(), 8, "{verified}");
    let flat = verified.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("not a measurement: ")
            && flat.contains("are allowed where responses are fresh for 1ms"),
        "{flat}"
    );
    assert!(flat.contains("run it on a quiet machine, or slower with --verify-time"), "{flat}");
    assert!(!verified.contains(" points"), "{verified}");
}
