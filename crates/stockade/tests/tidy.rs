//! The rules of the house that no compiler checks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use serde_json::Value;
use stockade_load::{report::FORMATS, sample::Class};

/// Who may import whom: the one-way street of ARCHITECTURE.md.
const GRAPH: [(&str, &[&str]); 9] = [
    ("stockade-model", &[]),
    ("stockade-services", &[]),
    ("stockade-cache", &["stockade-model"]),
    ("stockade-source", &["stockade-model"]),
    ("stockade-load", &["stockade-model"]),
    ("stockade-origin", &["stockade-model"]),
    ("stockade-proxy", &["stockade-cache", "stockade-model", "stockade-source"]),
    (
        "stockade-lab",
        &["stockade-cache", "stockade-load", "stockade-model", "stockade-services", "stockade-source"],
    ),
    (
        "stockade",
        &[
            "stockade-cache",
            "stockade-lab",
            "stockade-load",
            "stockade-model",
            "stockade-origin",
            "stockade-proxy",
            "stockade-source",
        ],
    ),
];

/// TLS is rustls with ring, once it is there; nothing that links a C library or needs cmake.
const BANNED_CRATES: [&str; 6] =
    ["openssl", "openssl-sys", "native-tls", "aws-lc-rs", "aws-lc-sys", "boring-sys"];

/// Where time and chance are arguments: the engine, the judge, and what decides in a load. The words are banned in whatever way
/// they are imported; clippy.toml bans the calls in every crate.
const PURE: [&str; 40] = [
    "crates/cache/src",
    "crates/load/src/http1/reader.rs",
    "crates/load/src/outcome.rs",
    "crates/load/src/plan.rs",
    "crates/load/src/plan/file.rs",
    "crates/load/src/retry.rs",
    "crates/load/src/schedule",
    "crates/load/src/schedule.rs",
    "crates/load/src/search.rs",
    "crates/load/src/search/bound.rs",
    "crates/load/src/search/metric.rs",
    "crates/load/src/traffic",
    "crates/load/src/traffic.rs",
    "crates/lab/src/judge.rs",
    "crates/lab/src/judge",
    "crates/lab/src/engine/audit.rs",
    "crates/lab/src/engine/burst.rs",
    "crates/lab/src/engine/node_test.rs",
    "crates/lab/src/engine/open.rs",
    "crates/lab/src/engine/since.rs",
    "crates/lab/src/engine/tally.rs",
    "crates/lab/src/engine/target.rs",
    "crates/lab/src/engine/traffic.rs",
    "crates/origin/src/stages.rs",
    "crates/proxy/src/admin/purge.rs",
    "crates/proxy/src/config/diff.rs",
    "crates/proxy/src/config/route.rs",
    "crates/proxy/src/front/head.rs",
    "crates/proxy/src/front/scan.rs",
    "crates/proxy/src/policy/accept.rs",
    "crates/proxy/src/policy/directives.rs",
    "crates/proxy/src/policy/field.rs",
    "crates/proxy/src/policy/invalidate.rs",
    "crates/proxy/src/policy/key.rs",
    "crates/proxy/src/policy/range.rs",
    "crates/proxy/src/policy/storable.rs",
    "crates/proxy/src/policy/vary.rs",
    "crates/proxy/src/upstream/core.rs",
    "crates/proxy/src/upstream/health.rs",
    "crates/source/src/stages.rs",
];
const IMPURE: [&str; 8] =
    ["thread", "Instant", "SystemTime", "RandomState", "HashSet", "select", "from_entropy", "rng"];

/// Longer files hold a noun that wants out.
const LINES_MAX: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn metadata() -> Metadata {
    MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().expect("cargo metadata")
}

/// Every Rust file below a path, or the file itself.
fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut files: Vec<_> = entries.flat_map(|entry| sources(&entry.expect("an entry").path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files
}

#[test]
fn the_crates_import_each_other_one_way() {
    let metadata = metadata();
    let members: BTreeMap<_, _> = metadata
        .workspace_packages()
        .into_iter()
        .map(|package| {
            let is_ours = |name: &str| name == "stockade" || name.starts_with("stockade-");
            let imports: BTreeSet<_> = package
                .dependencies
                .iter()
                .filter(|dependency| dependency.kind == DependencyKind::Normal && is_ours(&dependency.name))
                .map(|dependency| dependency.name.clone())
                .collect();
            (package.name.to_string(), imports)
        })
        .collect();
    let allowed: BTreeMap<_, BTreeSet<_>> = GRAPH
        .into_iter()
        .map(|(name, imports)| (name.to_owned(), imports.iter().map(|name| (*name).to_owned()).collect()))
        .collect();
    assert_eq!(members.keys().collect::<Vec<_>>(), allowed.keys().collect::<Vec<_>>());
    for (name, imports) in members {
        assert!(imports.is_subset(&allowed[&name]), "{name} imports {imports:?}");
    }
}

#[test]
fn no_banned_crate_is_locked() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    for banned in BANNED_CRATES {
        assert!(!lock.contains(&format!("name = \"{banned}\"")), "{banned} came in: cargo tree -i {banned}");
    }
}

#[test]
fn time_and_chance_are_arguments() {
    for file in PURE.into_iter().flat_map(|pure| sources(&root().join(pure))) {
        let text = fs::read_to_string(&file).expect("readable");
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        // `new` is where a cache without a seed of the caller's is made; tests explore real threads.
        let code = code.filter(|line| !line.contains("Seed::from_entropy()")).collect::<Vec<_>>().join("\n");
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let words: BTreeSet<&str> = code.split(|c| !is_word(c)).collect();
        for banned in IMPURE {
            let is_excused = file.ends_with("explored.rs") && banned == "thread";
            assert!(is_excused || !words.contains(banned), "{}: `{banned}`", file.display());
        }
        assert!(
            !words.contains("HashMap") || code.contains("use hashbrown"),
            "{}: an unseeded map",
            file.display()
        );
        let tokio: Vec<_> = code.match_indices("tokio::").map(|(at, _)| &code[at..]).collect();
        assert!(
            tokio.iter().all(|path| path.starts_with("tokio::sync::")),
            "{}: more of tokio than its channels",
            file.display()
        );
    }
}

#[test]
fn files_are_of_a_readable_length_and_without_leftovers() {
    for file in sources(&root().join("crates")) {
        let text = fs::read_to_string(&file).expect("readable");
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{}: {lines} lines, which noun wants out?", file.display());
        if file.ends_with("tidy.rs") {
            continue;
        }
        for leftover in
            ["todo!", "unimplemented!", "dbg!", "FIXME", "TODO", "XXX", "#[ignore", "thread::sleep"]
        {
            // A process tells nobody when it is ready: it has to be asked again.
            let looks_after_one = ["services/src/process.rs", "lab/src/http/child.rs"];
            let is_excused =
                looks_after_one.iter().any(|one| file.ends_with(one)) && leftover == "thread::sleep";
            assert!(is_excused || !text.contains(leftover), "{}: `{leftover}`", file.display());
        }
    }
}

#[test]
fn every_metric_is_documented() {
    let docs = fs::read_to_string(root().join("docs/experiments.md")).expect("docs/experiments.md");
    for metric in stockade_lab::metrics::metrics() {
        let (family, stat) = metric.name.rsplit_once('.').unwrap_or((metric.name, ""));
        let is_distribution = docs.contains(&format!("`{family}.S`")) && docs.contains(&format!("`{stat}`"));
        assert!(is_distribution || docs.contains(&format!("`{}`", metric.name)), "{}", metric.name);
    }
}

#[test]
fn every_preset_is_documented() {
    for document in ["docs/experiments.md", "README.md"] {
        let text = fs::read_to_string(root().join(document)).expect("readable");
        for preset in stockade_cache::PRESETS {
            assert!(text.contains(&format!("| `{}` |", preset.name)), "{document}: {}", preset.name);
        }
    }
}

/// The flags of a command, as its help has them.
fn flags(command: &str) -> Vec<String> {
    let help = Command::new(env!("CARGO_BIN_EXE_stockade")).args([command, "--help"]).output().expect("help");
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    let lines = help.lines().filter(|line| line.trim_start().starts_with('-'));
    let flags = lines.filter_map(|line| line.split(' ').find(|word| word.starts_with("--")));
    // A default that is another flag's may have a line of its own.
    flags.filter(|flag| *flag != "--help" && !flag.ends_with(']')).map(str::to_owned).collect()
}

/// The names of all settings in a JSON schema.
fn settings(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Object(properties)) = object.get("properties") {
                names.extend(properties.keys().cloned());
            }
            object.values().for_each(|value| settings(value, names));
        }
        Value::Array(list) => list.iter().for_each(|value| settings(value, names)),
        _ => {}
    }
}

/// Metrics, pages of the admin's listener and fields of the log are asked of one that runs: tests/cli/proxy/told.rs.
#[test]
fn every_flag_and_setting_of_the_proxy_is_documented() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("readable");
    let manual = read("docs/proxy.md");
    let code: Vec<&str> = manual.split('`').skip(1).step_by(2).collect();
    for flag in flags("proxy") {
        assert!(code.iter().any(|code| code.split(' ').next() == Some(&flag)), "{flag}");
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: BTreeSet<&str> = code.iter().flat_map(|code| code.split(|c| !is_word(c))).collect();
    let schema: Value = serde_json::from_str(&read("docs/proxy.schema.json")).expect("JSON");
    let mut names = BTreeSet::new();
    settings(&schema, &mut names);
    assert!(names.len() > 70, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !words.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for preset in stockade_cache::PRESETS {
        let row = format!("| `{}` | {} |", preset.name, preset.summary);
        assert!(manual.contains(&row), "{row}");
    }
}

#[test]
fn every_flag_failure_and_format_of_a_load_is_documented() {
    let docs = fs::read_to_string(root().join("docs/load.md")).expect("docs/load.md");
    // The first cell of a row in a table, which may have several names.
    let cells: BTreeSet<&str> = docs
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    let is_documented = |name: &str| cells.iter().any(|cell| cell.split(' ').next() == Some(name));
    let flags = flags("load");
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    assert!(flags.len() > 30, "{flags:?}");
    for flag in flags {
        assert!(is_documented(flag), "{flag}");
    }
    for class in Class::ALL {
        assert!(is_documented(class.name()), "{}", class.name());
    }
    for format in FORMATS {
        assert!(is_documented(format.name), "{}", format.name);
    }
}

#[test]
fn every_crate_takes_the_workspaces_lints_and_every_decision_has_a_number_of_its_own() {
    for package in metadata().workspace_packages() {
        let manifest = fs::read_to_string(&package.manifest_path).expect("readable");
        assert!(manifest.contains("[lints]\nworkspace = true"), "{}", package.name);
    }
    let mut numbers = BTreeSet::new();
    for entry in fs::read_dir(root().join("decisions")).expect("decisions/") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        let (number, title) = name.split_once('-').expect("NNN-title.md");
        assert!(
            number.len() == 3 && number.parse::<u32>().is_ok() && title.strip_suffix(".md").is_some(),
            "{name}"
        );
        assert!(numbers.insert(number.to_owned()), "{name}: the number is taken");
    }
}
