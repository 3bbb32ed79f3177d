//! The figures of the public suite of HTTP caches are the same wherever they are printed. `scripts/cache-tests` writes them.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::Value;

fn read(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn documents_have_the_figures_of_the_last_run() {
    let summary: Value = serde_json::from_str(&read("docs/results/cache-tests/summary.json")).expect("JSON");
    let count = |kind: &str, name: &str| summary[kind][name].as_u64().expect("a number");
    let not_passed = |kind: &str| -> BTreeSet<String> {
        let names = summary[kind]["not_passed"].as_array().expect("names").iter();
        names.map(|name| name.as_str().expect("a name").to_owned()).collect()
    };
    for kind in ["required", "optional"] {
        assert_eq!(count(kind, "passed") + not_passed(kind).len() as u64, count(kind, "of"), "{kind}");
    }
    let [(required, of_required), (optional, of_optional)] =
        ["required", "optional"].map(|kind| (count(kind, "passed"), count(kind, "of")));
    let figure = format!("{required} of {of_required} required tests");
    let both = format!("{figure} and {optional} of {of_optional} optional ones");
    let page = read("docs/results/cache-tests/README.md");
    for (name, text) in [
        ("README.md", figure.clone()),
        ("docs/results/README.md", figure),
        ("docs/reference/proxy.md", both),
        ("docs/results/cache-tests/README.md", format!("| **Stockade** | **{required}** | **{optional}** |")),
        (
            "docs/results/cache-tests/README.md",
            format!("required ({of_required}) | optional ({of_optional})"),
        ),
    ] {
        assert!(read(name).contains(&text), "{name} lacks `{text}`: run scripts/cache-tests");
    }
    // Each test that does not pass is on the page, with a reason, and no other.
    let table = page.split_once("## Not passed").expect("a section").1;
    let mut listed = BTreeSet::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert!(!cells[2].is_empty(), "no reason: {row}");
        listed.extend(
            cells[0].split(", ").map(|name| (cells[1].to_owned(), name.trim_matches('`').to_owned())),
        );
    }
    let missed = ["required", "optional"]
        .into_iter()
        .flat_map(|kind| not_passed(kind).into_iter().map(move |name| (kind.to_owned(), name)));
    assert_eq!(listed, missed.collect());
}
