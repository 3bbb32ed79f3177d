//! Claims about a load, and its exit code.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::Value;

use super::{
    json, load,
    stub::{Stub, answer, ok},
};
use crate::support::{ProgramOutput, Sandbox};

/// Five requests on one connection: no such load is late.
fn five(stub: &Stub, options: &[&str]) -> ProgramOutput {
    load(&Sandbox::new(), &[&[stub.url("/").as_str(), "-c", "1", "-n", "5"], options].concat())
}

#[test]
fn supported_claims_exit_with_0() {
    let stub = Stub::new(|_| ok("well"));
    let claims = ["--expect", "success>=0.999&&p999<10s", "--expect", "response.p99.9 < 10s and failed == 0"];
    let output = five(&stub, &claims);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{}", output.stdout);
    let (_, verdicts) = output.stdout.split_once("\nvalid\n\n").expect("a valid load");
    let verdicts: Vec<_> = verdicts.lines().map(|line| line.split_once(": it was ").unwrap().0).collect();
    assert_eq!(
        verdicts,
        [
            "supported     success>=0.999",
            "supported     p999<10s",
            "supported     response.p99.9 < 10s",
            "supported     failed == 0"
        ]
    );
}

#[test]
fn refuted_claim_exits_with_99() {
    let stub = Stub::new(|request| match request.path() {
        "/" => answer("503 Service Unavailable", "", "no"),
        _ => ok("well"),
    });
    let claims = ["--expect", "failed == 0", "--expect", "p99 < 10s", "--format", "json"];
    let output = five(&stub, &claims);
    assert_eq!(output.code, 99, "{output:?}");
    let verdicts: Vec<_> = output.stderr.lines().collect();
    assert_eq!(verdicts[0], "refuted       failed == 0: it was 5");
    assert!(verdicts[1].starts_with("supported     p99 < 10s: it was "), "{output:?}");
    let report = json(&output);
    let expect = report["stockade"]["expect"].as_array().expect("two claims");
    let key = |index: usize, name: &str| &expect[index][name];
    assert_eq!((key(0, "expr"), key(0, "verdict")), (&"failed == 0".into(), &"refuted".into()));
    assert_eq!((key(0, "left"), key(0, "right")), (&5.into(), &0.into()));
    assert_eq!((key(1, "right"), key(1, "verdict")), (&10_000.into(), &"supported".into()));
    let without = json(&five(&stub, &["--format", "json"]));
    assert!(without["stockade"].get("expect").is_none(), "absent without claims");
}

#[test]
fn reason_against_a_load_concerns_only_claims_that_it_can_change() {
    // The second request is never answered, and the others wait behind it until the load ends.
    let run = |claim: &str| {
        let served = AtomicUsize::new(0);
        let stub =
            Stub::new(move |_| if served.fetch_add(1, Relaxed) == 0 { ok("well") } else { Vec::new() });
        let plan = ["--rate", "20/s", "-d", "400ms", "--max-in-flight", "1", "--drain", "100ms"];
        let url = stub.url("/");
        load(
            &Sandbox::new(),
            &[&[url.as_str()], &plan[..], &["--format", "json", "--expect", claim]].concat(),
        )
    };
    for (claim, code, verdict) in [
        ("failed == 1", 98, "invalid"),
        ("failed == 0", 99, "refuted"),
        ("dropped == 0", 99, "refuted"),
        ("min < 1m", 98, "invalid"),
        ("min < 1m and dropped == 0", 99, "invalid"),
    ] {
        let output = run(claim);
        assert_eq!(output.code, code, "{claim}: {output:?}");
        assert_eq!(json(&output)["stockade"]["expect"][0]["verdict"], Value::from(verdict), "{claim}");
        assert!(
            output.stderr.starts_with("INVALID: the limit of 1 requests in flight was reached: "),
            "{output:?}"
        );
    }
}

#[test]
fn load_without_a_success_exits_with_1() {
    let stub = Stub::new(|_| answer("503 Service Unavailable", "", "no"));
    let message =
        "error: all of 5 requests failed (status 503: 5): check the URL, and that its server works\n";
    for claims in [&[][..], &["--expect", "requests == 5"]] {
        let output = five(&stub, claims);
        assert_eq!((output.code, output.stderr.as_str()), (1, message));
        assert!(output.stdout.contains("success     0.0 % answered"), "the report comes first: {output:?}");
    }
    let output = load(&Sandbox::new(), &["http://127.0.0.1:1/", "-c", "1", "-n", "2"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("all of 2 requests failed (connection refused: 2)"), "{output:?}");
}
