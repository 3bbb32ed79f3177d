//! `run --scale`: claims about the whole are shown and not judged.

use serde_json::Value;

use crate::support::{ProgramOutput, Sandbox};

/// In virtual time. A lifetime does not scale: the first claim is false for half of the load.
const EXPERIMENT: &str = r#"
title = "An expiry"
[target]
kind = "engine"
[origin]
source = "simulated:1"
latency = "20ms"
[cache]
strategy = "stampede"
ttl = "3s"
[load]
rate = "100/s"
duration = "10s"
[[hypothesis]]
text = "the key expires three times"
expect = ["source_loads == 4"]
abort = true
[[hypothesis]]
text = "a hundred requests a second"
expect = ["requests == 1000 * scale", "failed == 0"]
any_scale = true
"#;

/// The same as bursts, which have no implicit claim.
const BURST: &str = r#"
title = "A burst"
scaled = ["load.burst"]
[target]
kind = "engine"
[origin]
source = "simulated:9"
latency = "5ms"
[load]
burst = 100
docs = "fixed:9"
[[hypothesis]]
text = "a hundred requests"
expect = ["requests == 100"]
"#;

fn run(sandbox: &Sandbox, text: &str, more: &[&str]) -> ProgramOutput {
    let file = sandbox.file("scaled.toml", text);
    sandbox.stockade(&[&["run", &file], more].concat())
}

#[test]
fn claim_about_the_whole_is_shown_and_not_judged_in_every_format() {
    let sandbox = Sandbox::new();
    let whole = run(&sandbox, EXPERIMENT, &["--out", "whole"]);
    assert_eq!(whole.code, 0, "{}", whole.stdout);
    assert!(!whole.stdout.contains("not judged") && !whole.stdout.contains("scaled"), "{}", whole.stdout);
    let half = run(&sandbox, EXPERIMENT, &["--out", "half", "--scale", "0.5"]);
    assert_eq!(half.code, 0, "{}{}", half.stdout, half.stderr);
    for (format, texts) in [
        (
            "text",
            &[
                "An expiry\none repeat; scaled by 0.5; ",
                "- not judged   the key expires three times\n               source_loads == 4: the run is scaled (2 against 4)\n",
                "✓ supported    a hundred requests a second\n",
            ][..],
        ),
        (
            "md",
            &[
                "**supported** (one repeat; scaled by 0.5; ",
                "2 of 3 supported, 1 of 3 not judged.",
                "- **not judged**: the key expires three times\n  - `source_loads == 4`: the run is scaled (2 against 4)\n",
                "- **supported**: a hundred requests a second\n  - `requests == 1000 * scale`: held in 1 of 1 (500 against 500)\n",
            ],
        ),
        (
            "html",
            &[
                "<span class=\"badge supported\">supported</span> one repeat; scaled by 0.5; ",
                "<span class=\"badge not judged\">not judged</span> the key expires three times",
            ],
        ),
        (
            "json",
            &[
                "\"scale\":0.5,",
                "\"verdict\":\"not_judged\",\"expect\":[{\"expr\":\"source_loads == 4\",\"left\":2.0,\"right\":4.0,",
            ],
        ),
        (
            "junit",
            &[
                "tests=\"3\" failures=\"0\" errors=\"0\" skipped=\"1\"",
                "scaled by 0.5",
                "<skipped message=\"source_loads == 4: the run is scaled\">not judged: source_loads == 4: the run is scaled (2 against 4)</skipped>",
            ],
        ),
        (
            "summary",
            &[
                "**Supported**: 2 of 3 hypotheses supported, 1 not judged, scaled by 0.5 (An expiry)",
                "| not judged | the key expires three times |",
            ],
        ),
        (
            "openmetrics",
            &[
                "stockade_scale=\"0.5\"",
                "stockade_run_hypotheses{verdict=\"not judged\"} 1",
                "stockade_run_hypotheses{verdict=\"supported\"} 2",
            ],
        ),
    ] {
        let printed = sandbox.stockade(&["report", "half", "--format", format]);
        assert_eq!((printed.code, printed.stderr.as_str()), (0, ""), "{format}");
        for text in texts {
            assert!(printed.stdout.contains(text), "{format}: {text}\n{}", printed.stdout);
        }
    }
    // `compare` judges figures of one load, and series of other scales are apart.
    assert_eq!(sandbox.stockade(&["compare", "half", "half"]).code, 0);
    sandbox
        .stockade(&["compare", "whole", "half"])
        .assert_refused(2, &["10s at 100/s before, and 5s at 100/s after"]);
    let history = sandbox.stockade(&["history", "."]).stdout;
    assert!(history.contains("scale 0.5"), "{history}");
}

#[test]
fn judged_claims_decide_the_exit_of_a_scaled_run() {
    let sandbox = Sandbox::new();
    let wrong = EXPERIMENT.replace("== 1000 * scale", "== 1000");
    assert_eq!(run(&sandbox, &wrong, &["--out", "wrong", "--scale", "0.5"]).code, 99);
    // Nothing is judged: nothing is supported.
    let none = run(&sandbox, BURST, &["--out", "none", "--scale", "0.5", "--format", "json"]);
    assert_eq!(none.code, 98, "{}", none.stderr);
    let report: Value = serde_json::from_str(&none.stdout).expect("JSON");
    let verdicts = [&report["verdict"], &report["hypotheses"][0]["verdict"]];
    assert_eq!(verdicts, ["inconclusive", "not_judged"]);
    let reason =
        "A scaled run judges the hypotheses with `any_scale = true`: the others are about the whole.";
    for format in ["md", "summary"] {
        let printed = sandbox.stockade(&["report", "none", "--format", format]).stdout;
        assert!(printed.contains(reason), "{printed}");
    }
    assert_eq!(run(&sandbox, BURST, &["--out", "all"]).code, 0);
    let nothing_claimed = BURST.split("[[hypothesis]]").next().expect("a head");
    assert_eq!(run(&sandbox, nothing_claimed, &["--out", "nothing", "--scale", "0.5"]).code, 0);
}

#[test]
fn scale_in_a_claim_about_the_whole_is_refused_with_its_place() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("whole.toml", &EXPERIMENT.replace("any_scale = true", ""));
    let refused = sandbox.stockade(&["check", &file]);
    refused.assert_refused(2, &["judged in scaled runs", "20 │ expect = [\"requests == 1000 * scale\""]);
    let file = sandbox.file("whole.toml", EXPERIMENT);
    let check = |more: &[&str]| sandbox.stockade(&[&["check", &file], more].concat()).stdout;
    assert!(
        check(&["--scale", "0.5"])
            .contains("hypotheses    3, with 4 comparisons; scaled, it judges 2 of them")
    );
    assert!(check(&[]).contains("hypotheses    3, with 4 comparisons\n"));
}
