//! Rules of the project that the compiler does not check.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand};
use stockade_load::sample::FailureClass;

use super::support::root;

/// The packages that the README's first command compiles at most: decisions/016-first-build.md.
const FIRST_BUILD_PACKAGES_MAX: usize = 119;

/// The packages that a user of the cache compiles at most, without its features: decisions/039-what-a-user-builds.md.
const CACHE_PACKAGES_MAX: usize = 24;
/// Packages that only results, configuration files and experiments need.
const BANNED_IN_CACHE: [&str; 12] = [
    "base64",
    "byteorder",
    "flate2",
    "hdrhistogram",
    "metrics",
    "nom",
    "num-traits",
    "rand_distr",
    "serde",
    "serde_derive",
    "stockade-record",
    "strsim",
];

/// Files and folders where time and randomness are arguments, in addition to the files whose description says "Pure": the engine, the
/// judge, and the decisions of a load. These words are banned however they are imported; clippy.toml bans the calls in every crate.
const PURE: [&str; 30] = [
    "crates/cache/src",
    "crates/http/src/field.rs",
    "crates/load/src/claims.rs",
    "crates/load/src/client/http1/reader.rs",
    "crates/load/src/client/cache_headers.rs",
    "crates/load/src/plan.rs",
    "crates/load/src/plan/file.rs",
    "crates/load/src/retry.rs",
    "crates/load/src/schedule",
    "crates/load/src/schedule.rs",
    "crates/load/src/search.rs",
    "crates/load/src/traffic",
    "crates/load/src/traffic.rs",
    "crates/record/src/judge.rs",
    "crates/record/src/judge",
    "crates/lab/src/engine/answer_audit.rs",
    "crates/lab/src/engine/burst.rs",
    "crates/lab/src/engine/node_js_cache.rs",
    "crates/lab/src/engine/open.rs",
    "crates/lab/src/engine/clock.rs",
    "crates/lab/src/engine/open_tally.rs",
    "crates/lab/src/engine/tested_cache.rs",
    "crates/lab/src/engine/open_traffic.rs",
    "crates/plan/src/policy",
    "crates/plan/src/policy.rs",
    "crates/plan/src/recommend.rs",
    "crates/plan/src/sample.rs",
    "crates/proxy/src/config/route.rs",
    "crates/proxy/src/config/settings.rs",
    "crates/proxy/src/policy",
];
const IMPURE: [&str; 8] =
    ["thread", "Instant", "SystemTime", "RandomState", "HashSet", "select", "from_entropy", "rng"];

/// A trait with more required methods is hard to implement anew.
const REQUIRED_METHODS_MAX: usize = 3;
/// Traits with more, and the reason.
const LARGE_TRAITS: [(&str, &str, usize, &str); 5] = [
    (
        "crates/cache/src/policy/eviction.rs",
        "EvictionPolicy",
        4,
        "a default of `list` would let a policy that cannot be replaced compile",
    ),
    ("crates/cache/src/policy/eviction.rs", "PolicyEntries", 4, "the fields of one slot"),
    (
        "crates/plan/src/policy.rs",
        "EvictionPolicy",
        4,
        "the start of a policy, and the three changes of its keys",
    ),
    ("crates/proxy/src/admin.rs", "Control", 6, "a method for each page of the admin listener"),
    (
        "crates/record/src/server.rs",
        "StartedServer",
        6,
        "a server is a child or remote, and these differ in all of it",
    ),
];

/// A longer file has a part that should be its own module.
const LINES_MAX: usize = 800;

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

/// Names and versions of the packages that a build of `package` without its features compiles.
fn compiled_packages(package: &str) -> BTreeSet<(String, String)> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--package", package, "--no-default-features", "--locked", "--offline"])
        .args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"])
        .current_dir(root())
        .output()
        .expect("cargo tree");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let packages = String::from_utf8(tree.stdout).expect("UTF-8");
    let parts = packages.lines().filter_map(|line| line.split_once(" v"));
    // Behind the version: where a package of the workspace is, or that it is a macro.
    parts.map(|(name, rest)| (name.to_owned(), rest.split(' ').next().unwrap_or(rest).to_owned())).collect()
}

#[test]
fn crate_imports_follow_the_graph() {
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
    assert_eq!(members, imports_in_architecture());
}

/// The table of ARCHITECTURE.md: each crate, and the crates that it imports.
fn imports_in_architecture() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (_, table) = text.split_once("| crate | imports |\n|---|---|\n").expect("the table of imports");
    let names = |cell: &str| -> BTreeSet<String> {
        let name = |name: &str| if name == "stockade" { name.to_owned() } else { format!("stockade-{name}") };
        // Names are between backticks.
        cell.split('`').skip(1).step_by(2).map(name).collect()
    };
    let rows = table.lines().map_while(|line| line.strip_prefix("| ")?.split_once(" | "));
    rows.flat_map(|(crates, imports)| names(crates).into_iter().map(move |name| (name, names(imports))))
        .collect()
}

#[test]
fn dependencies_are_those_that_deny_toml_allows() {
    let rules = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let rules: toml::Table = rules.parse().expect("TOML");
    let list = |table: &str, key: &str| rules[table][key].as_array().expect("a list").clone();
    let text = |value: &toml::Value| value.as_str().expect("text").to_owned();
    let banned: BTreeSet<_> = list("bans", "deny").iter().map(|rule| text(&rule["crate"])).collect();
    let licences: BTreeSet<_> = list("licenses", "allow").iter().map(text).collect();
    let registries: BTreeSet<_> = list("sources", "allow-registry").iter().map(text).collect();

    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).features(CargoOpt::AllFeatures);
    // The packages of other systems were never downloaded.
    let linux = ["--filter-platform", "x86_64-unknown-linux-gnu", "--locked", "--offline"];
    let packages = command.other_options(linux.map(str::to_owned)).exec().expect("cargo metadata").packages;
    assert!(packages.len() > 100, "{}", packages.len());
    for package in packages {
        let name = package.name.as_str();
        assert!(!banned.contains(name), "{name} came in: cargo tree -i {name}");
        let licence = package.license.unwrap_or_default().replace('/', " OR ").replace(['(', ')'], "");
        let is_allowed = |all: &str| all.split(" OR ").any(|one| licences.contains(one.trim()));
        assert!(licence.split(" AND ").all(is_allowed), "{name}: licence {licence:?} is not in deny.toml");
        let source = package.source.map(|source| source.repr);
        let is_known = |source: &str| registries.contains(source.trim_start_matches("registry+"));
        assert!(source.as_deref().is_none_or(is_known), "{name} comes from {source:?}");
    }
}

#[test]
fn first_command_compiles_few_packages() {
    let packages = compiled_packages("stockade");
    assert!((50..=FIRST_BUILD_PACKAGES_MAX).contains(&packages.len()), "{}: {packages:#?}", packages.len());
}

#[test]
fn user_of_the_cache_compiles_few_packages() {
    let packages = compiled_packages("stockade-cache");
    assert!((10..=CACHE_PACKAGES_MAX).contains(&packages.len()), "{}: {packages:#?}", packages.len());
    for (document, cap) in [
        ("ARCHITECTURE.md", format!("{CACHE_PACKAGES_MAX} packages")),
        ("decisions/039-what-a-user-builds.md", format!("caps the packages at {CACHE_PACKAGES_MAX} ")),
        ("decisions/016-first-build.md", format!("caps them at {FIRST_BUILD_PACKAGES_MAX},")),
    ] {
        let text = fs::read_to_string(root().join(document)).expect("readable");
        assert!(text.contains(&cap), "{document} lacks `{cap}`");
    }
    for (name, _) in packages {
        assert!(
            !BANNED_IN_CACHE.contains(&&*name),
            "{name} came in: cargo tree --package stockade-cache -i {name}"
        );
    }
}

/// A user with the oldest Rust that the manifest of the cache states can compile its dependencies.
#[test]
fn dependencies_of_the_cache_need_no_newer_rust_than_the_cache() {
    let mut command = MetadataCommand::new();
    let linux = ["--filter-platform", "x86_64-unknown-linux-gnu", "--locked", "--offline"];
    command.manifest_path(root().join("Cargo.toml")).other_options(linux.map(str::to_owned));
    let rust_versions: BTreeMap<_, _> = command
        .exec()
        .expect("cargo metadata")
        .packages
        .into_iter()
        .map(|package| ((package.name.to_string(), package.version.to_string()), package.rust_version))
        .collect();
    let packages = compiled_packages("stockade-cache");
    let of =
        |package| rust_versions.get(package).unwrap_or_else(|| panic!("{package:?} is unknown")).as_ref();
    let ours = packages
        .iter()
        .find(|(name, _)| name == "stockade-cache")
        .and_then(&of)
        .expect("the manifest states it");
    for package in &packages {
        assert!(
            of(package).is_none_or(|needed| needed <= ours),
            "{package:?} needs Rust {}, not {ours}",
            of(package).expect("it is newer")
        );
    }
}

/// True if the first paragraph of a file's description says "Pure" as a sentence, or after a colon.
fn is_described_as_pure(text: &str) -> bool {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    paragraph
        .split(['.', ':'])
        .map(str::trim)
        .any(|sentence| sentence.eq_ignore_ascii_case("pure") || sentence.starts_with("Pure functions"))
}

#[test]
fn pure_files_are_those_that_say_it_first() {
    for pure in [
        "//! Verdicts. Pure.\nuse std::fs;",
        "//! Verdicts.\n//! Pure: time is an argument.",
        "//! Verdicts: pure.",
        "//! Stages. Pure functions of the time.",
    ] {
        assert!(is_described_as_pure(pure), "{pure}");
    }
    for other in [
        "//! Clocks. Pure, apart from [`Clock`].",
        "//! Modules.\n//!\n//! - `stages`: what a route does. Pure.",
        "//! `core` is pure.",
        "/// Pure.",
    ] {
        assert!(!is_described_as_pure(other), "{other}");
    }
}

#[test]
fn time_and_randomness_are_arguments() {
    // The cache for threads is a shell around the cache, with a runtime of its own.
    let is_shell = |file: &Path| file.ends_with("cache/src/sync.rs");
    // The socket of Redis, and its stream.
    let is_socket = |file: &Path| {
        ["bounded_connection.rs", "reply_bound.rs"]
            .iter()
            .any(|name| file.ends_with(format!("cache/src/tier/redis/{name}")))
    };
    let described = sources(&root().join("crates"))
        .into_iter()
        .filter(|file| is_described_as_pure(&fs::read_to_string(file).expect("readable")))
        .collect::<BTreeSet<_>>();
    assert!(described.len() > 40, "{described:#?}");
    let listed = PURE.into_iter().flat_map(|pure| sources(&root().join(pure)));
    let pure: BTreeSet<_> = listed.chain(described).collect();
    for file in pure.into_iter().filter(|file| !is_shell(file)) {
        let text = fs::read_to_string(&file).expect("readable");
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        // `Builder::build` seeds from entropy if the caller gives no seed; `explored.rs` tests real threads.
        let code = code
            .filter(|line| !line.contains("Seed::from_entropy()") && !line.contains("prop::sample::select"))
            .collect::<Vec<_>>()
            .join("\n");
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let words: BTreeSet<&str> = code.split(|c| !is_word(c)).collect();
        for banned in IMPURE {
            // A snapshot has the time of day, as an argument, and sets with a hasher of their own. Rules for dates have the time of day, too.
            let is_in = |folder: &str| file.to_string_lossy().contains(folder);
            let is_excused = file.ends_with("explored.rs") && banned == "thread"
                || is_in("cache/src/snapshot") && ["SystemTime", "HashSet"].contains(&banned)
                || is_in("proxy/src/policy") && banned == "SystemTime";
            assert!(is_excused || !words.contains(banned), "{}: `{banned}`", file.display());
        }
        // No result of these depends on the order of their maps.
        let is_unordered = file.ends_with("http/src/upstream/shares.rs");
        assert!(
            is_unordered || !words.contains("HashMap") || code.contains("use hashbrown"),
            "{}: an unseeded map",
            file.display()
        );
        let tokio: Vec<_> = code.match_indices("tokio::").map(|(at, _)| &code[at..]).collect();
        assert!(
            is_socket(&file) || tokio.iter().all(|path| path.starts_with("tokio::sync::")),
            "{}: more of tokio than its channels",
            file.display()
        );
    }
}

/// The traits of a file, with the methods that have no body.
fn traits(text: &str) -> Vec<(String, Vec<String>)> {
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let mut traits: Vec<(String, Vec<String>)> = Vec::new();
    let mut end = None;
    for (at, line) in code.iter().enumerate() {
        let declared = line.trim_start().trim_start_matches("pub").trim_start();
        let declared = declared
            .strip_prefix('(')
            .and_then(|rest| rest.split_once(") "))
            .map_or(declared, |(_, rest)| rest);
        let indent = line.len() - line.trim_start().len();
        if let Some(name) = declared.strip_prefix("trait ").filter(|_| !line.trim_end().ends_with('}')) {
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            traits.push((name.split(|c| !is_name(c)).next().unwrap_or_default().to_owned(), Vec::new()));
            end = Some(indent);
        } else if end == Some(indent) && line.trim() == "}" {
            end = None;
        } else if let (Some(outer), Some((_, methods))) = (end, traits.last_mut())
            && indent == outer + 4
            && let Some((before, rest)) = line.split_once("fn ")
            && before.trim().split(' ').all(|word| ["", "async", "unsafe", "const"].contains(&word))
        {
            let last = code[at..]
                .iter()
                .find(|line| line.ends_with(';') || line.ends_with('{') || line.ends_with('}'));
            if last.is_some_and(|last| last.ends_with(';')) {
                methods.push(rest.split(['(', '<']).next().unwrap_or_default().to_owned());
            }
        }
    }
    traits
}

#[test]
fn traits_have_at_most_three_required_methods() {
    let mut large = Vec::new();
    for file in sources(&root().join("crates")) {
        let name = file.strip_prefix(root()).expect("inside").to_string_lossy().into_owned();
        if name.contains("/tests") {
            continue;
        }
        for (of, methods) in traits(&fs::read_to_string(&file).expect("readable")) {
            if methods.len() > REQUIRED_METHODS_MAX {
                large.push((name.clone(), of, methods.len()));
            }
        }
    }
    large.sort();
    let known = LARGE_TRAITS.map(|(file, name, methods, _)| (file.to_owned(), name.to_owned(), methods));
    assert_eq!(large, known, "give methods a body, or list the trait with its reason");
}

#[test]
fn required_methods_are_those_without_a_body() {
    let text = "pub(crate) trait A: B {\n    const N: u8;\n    fn a(\n        &self,\n    ) -> u8;\n    fn b(&self) {\n        c();\n    }\n    \
                /// fn no();\n    async fn c<T>(&self);\n}\ntrait E {}\nimpl A for X {\n    fn d();\n}\n";
    let names = |methods: &[&str]| methods.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(traits(text), [("A".to_owned(), names(&["a", "c"]))]);
}

#[test]
fn files_are_short_and_without_leftovers() {
    for file in sources(&root().join("crates")) {
        let text = fs::read_to_string(&file).expect("readable");
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{}: {lines} lines, split it", file.display());
        if file.ends_with("tidy.rs") {
            continue;
        }
        for leftover in
            ["todo!", "unimplemented!", "dbg!", "FIXME", "TODO", "XXX", "#[ignore", "thread::sleep"]
        {
            // The exit of a process can only be polled, a slow test server has to sleep, and stock servers know only real time.
            let sleeps = [
                "stockade/tests/stand/client.rs",
                "services/src/process.rs",
                "lab/src/http/child.rs",
                "load/tests/suite/agreement.rs",
                "load/tests/suite/pacing.rs",
            ];
            let is_excused = sleeps.iter().any(|path| file.ends_with(path)) && leftover == "thread::sleep";
            assert!(is_excused || !text.contains(leftover), "{}: `{leftover}`", file.display());
        }
    }
}

#[test]
fn only_the_binary_prints() {
    // A build script talks to cargo, and a test's own process to the test.
    let is_excused = |name: &str| {
        name.starts_with("crates/stockade/")
            || ["/tests", "/examples/", "/oracles", "_tests.rs", "build.rs", "own_process.rs"]
                .iter()
                .any(|part| name.contains(part))
    };
    for file in sources(&root().join("crates")) {
        let name = file.strip_prefix(root()).expect("inside").to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).expect("readable");
        let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let is_print = |line: &str| line.contains("print!(") || line.contains("println!(");
        assert!(is_excused(&name) || !code.any(is_print), "{name}: return the text, or an error with a type");
    }
}

/// Modules of tests, and those that have the properties of parsers for `fuzz/`.
const UNMAPPED: [&str; 4] = ["fuzzing", "oracles", "testing", "tests"];

#[test]
fn architecture_names_each_module_of_the_crates_with_a_table() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (crates, _) = text.split_once("\n## A request\n").expect("the section after the crates");
    let sections: Vec<_> = crates.split("\n### ").skip(1).collect();
    assert!(sections.len() >= 10, "{}", sections.len());
    let mut missing = Vec::new();
    for section in sections {
        let name = section.lines().next().expect("a heading");
        let named: BTreeSet<&str> = section
            .split('`')
            .skip(1)
            .step_by(2)
            .flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_'))
            .collect();
        let library = root().join("crates").join(name).join("src/lib.rs");
        let library = fs::read_to_string(&library).unwrap_or_else(|error| panic!("{name}: {error}"));
        let modules = library.lines().filter_map(|line| line.split_once("mod ")?.1.strip_suffix(';'));
        let unnamed = modules.filter(|module| !named.contains(module) && !UNMAPPED.contains(module));
        missing.extend(unnamed.map(|module| format!("{name}::{module}")));
    }
    assert!(missing.is_empty(), "ARCHITECTURE.md lacks {missing:?}");
}

/// docs/reference is generated from the registries of metrics, presets, flags, formats and settings: tests/suite/reference.rs.
#[test]
fn every_preset_is_in_the_guide() {
    let guide = fs::read_to_string(root().join("docs/guide/choose-a-strategy.md")).expect("the guide");
    for preset in &stockade_cache::PRESETS {
        assert!(guide.contains(&format!("| `{}` |", preset.name)), "{}", preset.name);
    }
}

#[test]
fn every_failure_class_of_a_load_is_documented() {
    let docs = fs::read_to_string(root().join("docs/reference/load.md")).expect("docs/reference/load.md");
    for class in FailureClass::ALL {
        assert!(docs.contains(&format!("\n| `{}` |", class.name())), "{}", class.name());
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
