//! The experiments that come with the project, as far as they are computed and not measured.

use std::fs;

use crate::support::Sandbox;

/// Runs one of them and gives what it left; every hypothesis has to be supported.
fn supported(sandbox: &Sandbox, name: &str, scale: &str, seed: &str, out: &str) -> Vec<u8> {
    let file = format!("{}/../../experiments/{name}", env!("CARGO_MANIFEST_DIR"));
    let said = sandbox.stockade(&["run", &file, "--scale", scale, "--seed", seed, "--out", out]);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    fs::read(sandbox.path().join(out).join("intervals.jsonl")).unwrap()
}

#[test]
fn an_expiry_costs_what_its_experiment_says() {
    let sandbox = Sandbox::new();
    let first = supported(&sandbox, "expiry.toml", "0.2", "1", "a");
    assert_eq!(first, supported(&sandbox, "expiry.toml", "0.2", "1", "b"));
}

#[test]
fn an_outage_costs_what_its_experiment_says() {
    let sandbox = Sandbox::new();
    let first = supported(&sandbox, "outage.toml", "1", "1", "a");
    assert_eq!(first, supported(&sandbox, "outage.toml", "1", "1", "b"));
    assert_ne!(first, supported(&sandbox, "outage.toml", "1", "2", "c"));
}
