//! Alone in its binary, which cargo runs after and before the others, not beside them: what is timed
//! here shares the machine with no other test.

use std::process::Command;

use serde_json::Value;

#[test]
fn ten_thousand_workers_are_answered_within_the_sources_latency_and_20_ms() {
    let mut finished_ms: Vec<f64> = (0..5)
        .map(|_| {
            let arguments =
                ["10000", "--strategy", "stampede", "--source-latency", "50ms", "--format", "json"];
            let output = Command::new(env!("CARGO_BIN_EXE_stockade"))
                .arg("stampede")
                .args(arguments)
                .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
                .output()
                .expect("the program starts");
            let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
            report["runs"][0]["finished_ms"].as_f64().expect("a figure")
        })
        .collect();
    finished_ms.sort_by(f64::total_cmp);
    assert!(finished_ms[0] >= 50.0 && finished_ms[2] <= 50.0 + 20.0, "{finished_ms:?} ms");
}
