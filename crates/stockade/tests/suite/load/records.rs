//! The record of a load: what `report`, `compare`, `history` and `ui` read.

use std::{fs, path::Path};

use super::{
    load,
    stub::{Stub, ok},
};
use crate::support::{ProgramOutput, Sandbox};

const SECRETS: [&str; 4] = ["in-a-query", "in-a-header", "in-a-cookie", "in-a-body"];

fn recorded(sandbox: &Sandbox, stub: &Stub, more: &[&str]) -> ProgramOutput {
    let url = stub.url("/news?token=in-a-query");
    let always = [
        &url,
        "-H",
        "Authorization: Bearer in-a-header",
        "-H",
        "Cookie: session=in-a-cookie",
        "-X",
        "PURGE",
        "--body",
        "body.json",
        "-c",
        "2",
        "-n",
        "40",
    ];
    sandbox.file("body.json", "{\"password\": \"in-a-body\"}");
    load(sandbox, &[&always, more].concat())
}

/// Every file below a directory.
fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(
            |path| if path.is_dir() { files(&path) } else { vec![fs::read_to_string(&path).expect("text")] },
        )
        .collect()
}

#[test]
fn load_is_a_run_of_one_arm_for_every_command_and_has_no_secret() {
    let stub = Stub::new(|_| ok("well"));
    let sandbox = Sandbox::new();
    let (first, second) = ("runs/load/first", "runs/load/second");
    for directory in [first, second] {
        let output =
            recorded(&sandbox, &stub, &["--expect", "success == 1 and p99 < 60s", "--record", directory]);
        assert_eq!(output.code, 0, "{output:?}");
    }
    let report = |format: &str| sandbox.stockade(&["report", first, "--format", format]);
    let junit = report("junit").stdout;
    assert!(junit.contains("tests=\"2\" failures=\"0\"") && junit.contains("success == 1"), "{junit}");
    let json: serde_json::Value = serde_json::from_str(&report("json").stdout).expect("JSON");
    let arm = &json["arms"]["load"];
    assert_eq!(
        (&arm["requests"], &arm["failed"], &arm["status_codes"]["200"]),
        (&40.into(), &0.into(), &40.into())
    );
    assert_eq!(
        (&json["verdict"], &json["hypotheses"][0]["verdict"]),
        (&"supported".into(), &"supported".into())
    );
    let compared = sandbox.stockade(&["compare", first, second]);
    assert!(compared.stdout.contains("response.p99") && !compared.stdout.contains("- body"), "{compared:?}");
    let history = sandbox.stockade(&["history", "runs"]);
    assert!(history.stdout.contains("2 records"), "{history:?}");
    let texts = files(sandbox.path().join("runs").as_path());
    assert!(texts.len() >= 8, "two records with their intervals and reports, not {}", texts.len());
    for secret in SECRETS {
        assert!(texts.iter().all(|text| !text.contains(secret)), "{secret} is in a record");
    }
    assert!(
        texts.iter().any(|text| text.contains("authorization: ...")),
        "the names of headers are settings"
    );
}

#[test]
fn record_is_in_runs_unless_it_is_not_wanted() {
    let stub = Stub::new(|_| ok("well"));
    let sandbox = Sandbox::new();
    assert_eq!(recorded(&sandbox, &stub, &["--no-record"]).code, 0);
    assert!(!sandbox.path().join("runs").exists(), "--no-record keeps nothing");
    assert_eq!(recorded(&sandbox, &stub, &[]).code, 0);
    let records = fs::read_dir(sandbox.path().join("runs/load")).expect("the default directory");
    assert_eq!(records.count(), 1);
}

#[test]
fn directory_that_cannot_be_written_is_a_warning() {
    let stub = Stub::new(|_| ok("well"));
    let sandbox = Sandbox::new();
    sandbox.file("runs", "a file");
    let output = recorded(&sandbox, &stub, &[]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        output.stderr.contains("the load has no record: cannot make the directory runs/load/"),
        "{output:?}"
    );
    assert!(output.stdout.contains("40 requests"), "{output:?}");
}
