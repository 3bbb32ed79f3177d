//! The schema accepts and names what the readers accept and name.

use std::{collections::BTreeSet, fs, path::Path};

use jsonschema::Validator;

use super::{super::Experiment, *};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn made() -> Value {
    let proxy = fs::read_to_string(format!("{ROOT}/docs/proxy.schema.json")).expect("docs/proxy.schema.json");
    schema(&serde_json::from_str(&proxy).expect("JSON"))
}

fn validator() -> Validator {
    jsonschema::validator_for(&made()).expect("a schema")
}

fn from_toml(text: &str) -> Value {
    let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    serde_json::to_value(table).expect("JSON")
}

/// The places and messages of the errors.
fn errors(validator: &Validator, file: &Value) -> Vec<(String, String)> {
    let errors = validator.iter_errors(file);
    errors.map(|error| (error.instance_path().to_string(), error.to_string())).collect()
}

#[test]
fn kept_schema_is_that_of_the_readers() {
    let made = serde_json::to_string_pretty(&made()).expect("JSON") + "\n";
    let path = format!("{ROOT}/crates/stockade/experiment.schema.json");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&path, &made).expect("writable");
    }
    let kept = fs::read_to_string(&path).expect("experiment.schema.json");
    assert!(kept == made, "{path} is not that of the readers: make it with UPDATE_SCHEMA=1");
}

#[test]
fn experiments_of_the_project_are_valid_and_name_the_schema() {
    let validator = validator();
    let files = |folder: &str| {
        let entries = fs::read_dir(Path::new(ROOT).join(folder)).expect("a folder");
        let files = entries.map(|entry| entry.expect("an entry").path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect::<Vec<_>>()
    };
    // `stockade init` writes the schema next to its file.
    let templates = files("crates/stockade/src/init");
    assert!(templates.len() >= 3, "{templates:?}");
    for template in templates {
        let text = fs::read_to_string(&template).expect("readable");
        assert_eq!(errors(&validator, &from_toml(&text)), [], "{}", template.display());
    }
    let files = files("experiments");
    assert!(files.len() >= 9, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).expect("readable");
        assert_eq!(errors(&validator, &from_toml(&text)), [], "{}", file.display());
        let named = text.lines().next().and_then(|line| line.strip_prefix("#:schema "));
        let schema =
            file.parent().expect("a folder").join(named.unwrap_or_else(|| panic!("{}", file.display())));
        assert!(schema.ends_with("crates/stockade/experiment.schema.json") && schema.exists(), "{schema:?}");
    }
}

/// The TOML blocks of a page.
fn blocks(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).expect("readable");
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(str::to_owned).collect()
}

fn pages(folder: &Path) -> Vec<std::path::PathBuf> {
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let pages = paths.flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] });
    pages.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn experiments_of_the_documentation_are_valid() {
    let validator = validator();
    let mut count = 0;
    for page in pages(&Path::new(ROOT).join("docs")).into_iter().chain([Path::new(ROOT).join("README.md")]) {
        // Every block of the reference is a part of an experiment.
        let has_parts = page.ends_with("reference/experiments.md");
        for block in blocks(&page) {
            let Ok(table) = block.parse::<toml::Table>() else { continue };
            let mut file = serde_json::to_value(table).expect("JSON");
            let object = file.as_object_mut().expect("a table");
            if has_parts {
                object.entry("title").or_insert_with(|| "t".into());
            }
            if object.contains_key("title") {
                assert_eq!(errors(&validator, &file), [], "{}: {block}", page.display());
                count += 1;
            }
        }
    }
    assert!(count > 10, "{count} blocks");
}

/// The experiment that the faults are written into.
const SOUND: &str = r#"
title = "t"
repeat = 5
[services]
redis = {}
[target]
kind = "engine"
[origin]
source = "simulated:50"
stage = [{ at = "1s", errors = 0.5 }]
[cache]
strategy = "stampede"
[load]
rate = "425/s"
duration = "60s"
[preflight]
probes = [{ path = "/a", status = 200 }]
[sample]
accounting = { for = "1m" }
[proxy]
threads = 2
[[test]]
name = "first"
[[arm]]
name = "one"
[[hypothesis]]
text = "h"
expect = ["failed == 0"]
[reference]
"one.response.p50" = "9ms"
"#;

#[test]
fn faults_are_refused_at_their_place() {
    let validator = validator();
    assert_eq!(errors(&validator, &from_toml(SOUND)), []);
    for (from, to, place) in [
        ("title = \"t\"", "", ""),
        ("title = \"t\"", "title = \"t\"\nfoo = 1", ""),
        ("title = \"t\"", "title = \"t\"\nscaled = [\"load.rate\"]", "/scaled/0"),
        ("repeat = 5", "repeat = 0", "/repeat"),
        ("redis = {}", "memcached = {}", "/services"),
        ("redis = {}", "redis = { foo = 1 }", "/services/redis"),
        ("\"engine\"", "\"engin\"", "/target/kind"),
        ("kind = \"engine\"", "foo = 1", "/target"),
        ("source = \"simulated:50\"", "foo = 1", "/origin"),
        ("source = \"simulated:50\"", "latency = 20", "/origin/latency"),
        ("source = \"simulated:50\"", "recipe = [\"a.json\"]", "/origin/recipe"),
        ("at = \"1s\", ", "", "/origin/stage/0"),
        ("errors = 0.5", "errors = 5", "/origin/stage/0/errors"),
        ("\"stampede\"", "\"stampeed\"", "/cache/strategy"),
        ("strategy = \"stampede\"", "foo = 1", "/cache"),
        ("strategy = \"stampede\"", "ttl = 10", "/cache/ttl"),
        ("strategy = \"stampede\"", "limit = { policy = \"lur\" }", "/cache/limit"),
        ("rate = \"425/s\"", "foo = 1", "/load"),
        ("rate = \"425/s\"", "rate = 425", "/load/rate"),
        ("rate = \"425/s\"", "rate = \"425\"", "/load/rate"),
        ("rate = \"425/s\"", "burst = 0", "/load/burst"),
        ("rate = \"425/s\"", "connections = []", "/load/connections"),
        ("rate = \"425/s\"", "popularity = \"zipf\"", "/load/popularity"),
        ("duration = \"60s\"", "duration = 60", "/load/duration"),
        ("duration = \"60s\"", "duration = \"60\"", "/load/duration"),
        ("probes = [", "foo = [", "/preflight"),
        (", status = 200", "", "/preflight/probes/0"),
        ("accounting = ", "foo = ", "/sample"),
        ("for = \"1m\"", "for = 60", "/sample/accounting/for"),
        ("threads = 2", "thread = 2", "/proxy"),
        ("threads = 2", "listen = [\"127.0.0.1:80\"]", "/proxy"),
        ("name = \"first\"", "name = \"first\"\nfoo = 1", "/test/0"),
        ("name = \"first\"", "name = \"first\"\nload.foo = 1", "/test/0/load"),
        ("name = \"first\"", "name = \"first test\"", "/test/0/name"),
        ("name = \"one\"", "", "/arm/0"),
        ("name = \"one\"", "name = \"one\"\nrequires = \"a\"", "/arm/0"),
        ("name = \"one\"", "name = \"one\"\nload.rate = \"1/s\"", "/arm/0"),
        ("expect = [\"failed == 0\"]", "", "/hypothesis/0"),
        ("expect = [\"failed == 0\"]", "expect = \"failed == 0\"", "/hypothesis/0/expect"),
        ("\"9ms\"", "true", "/reference/one.response.p50"),
    ] {
        let text = SOUND.replacen(from, to, 1);
        assert_ne!(text, SOUND, "{from}");
        let errors = errors(&validator, &from_toml(&text));
        let places: Vec<_> = errors.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, [place], "{to}: {errors:?}");
    }
}

#[test]
fn layers_may_hold_parts_of_sections() {
    let validator = validator();
    for (from, to) in [
        ("kind = \"engine\"", "url = \"http://127.0.0.1:80\"\nreset = { purge = \"PURGE /*\" }"),
        ("name = \"first\"", "name = \"first\"\nload.retries.backoff = \"1s\"\nload.replay.speed = 2"),
        ("name = \"first\"", "name = \"first\"\norigin.capacity.queue = 5\norigin.recipe = \"a.json\""),
        ("name = \"one\"", "name = \"one\"\norigin.recipe = { body = \"a\" }"),
        ("name = \"one\"", "name = \"one\"\norigin.recipe = [{ body = \"a\" }, { body = \"b\" }]"),
        ("name = \"one\"", "name = \"one\"\ncache.breaker = { min_calls = 5 }\ncache.fetch.coalesce = {}"),
        ("name = \"one\"", "name = \"one\"\ncache = { strategy = \"xfetch_unit_bug\", beta = 2 }"),
        ("name = \"one\"", "name = \"one\"\nproxy.route = [{ path = \"/a/*\", cache.swr = \"1s\" }]"),
        ("rate = \"425/s\"", "burst = [10, 100]\ndocs = [\"scaled\", \"fixed:5\"]"),
        ("rate = \"425/s\"", "rate = \"1_000/1.5s\"\nkeys = \"zipf:10\"\npopularity = { zipf = 0.99 }"),
    ] {
        let text = SOUND.replacen(from, to, 1);
        assert_ne!(text, SOUND, "{from}");
        assert_eq!(errors(&validator, &from_toml(&text)), [], "{to}");
    }
}

/// The keys that the reader lists in its help for an unknown one.
fn listed(text: &str) -> BTreeSet<String> {
    let error = Experiment::parse("t.toml", text).expect_err(text);
    let help = error.help.unwrap_or_else(|| panic!("{text}: {}", error.message));
    let keys = help.strip_prefix("use one of: ").unwrap_or_else(|| panic!("{text}: {help}"));
    keys.split(", ").map(str::to_owned).collect()
}

/// Files of every kind of target. In each, the line `MARK` is in the section that follows a name.
const ENGINE: &str = "[target]\nkind = \"engine\"\nMARK target\n[origin]\nMARK origin\n[cache]\nMARK cache\n[load]\nburst = 1\nMARK load\n";
const PROXY: &str = "[target]\nkind = \"proxy\"\nMARK target\n[origin]\nrecipe = \"r.json\"\nMARK origin\n[cache]\nMARK cache\n\
                     [load]\nrate = \"1/s\"\nduration = \"1s\"\npath = \"/\"\nMARK load\n[preflight]\nprobes = []\nMARK preflight\n\
                     [sample]\nMARK sample\n";
const APP: &str = "[target]\nkind = \"app\"\nMARK target\n[origin]\nsource = \"sqlite:\"\nMARK origin\n\
                   [cache]\nstrategy = \"xfetch_unit_bug\"\nttl = \"1s\"\nMARK cache\n[load]\nrate = \"1/s\"\nduration = \"1s\"\npath = \"/\"\n";
const FLEET: &str = "[target]\nkind = \"fleet\"\n[fleet]\nnodes = 1\nMARK fleet\n[load]\nrate = \"1/s\"\nduration = \"1s\"\nkeys = 1\nMARK load\n";

const UNKNOWN: &str = "nobody-would-write-this-key";

#[test]
fn sections_have_the_keys_that_the_readers_name() {
    let schema = made();
    let keys = |pointer: &str| -> BTreeSet<String> {
        let keys = schema.pointer(pointer).and_then(Value::as_object);
        keys.unwrap_or_else(|| panic!("{pointer}")).keys().cloned().collect()
    };
    for section in ["target", "origin", "cache", "fleet", "load", "preflight", "sample"] {
        let mark = format!("MARK {section}\n");
        let files = [ENGINE, PROXY, APP, FLEET].into_iter().filter(|file| file.contains(&mark));
        let named: BTreeSet<String> = files
            .flat_map(|file| {
                let file = file.replace(&mark, &format!("{UNKNOWN} = 1\n"));
                let lines = file.lines().filter(|line| !line.starts_with("MARK"));
                listed(&format!("title = \"t\"\n{}", lines.flat_map(|line| [line, "\n"]).collect::<String>()))
            })
            .collect();
        assert_eq!(named, keys(&format!("/$defs/{section}/properties")), "{section}");
    }
    let sections = targets::SECTIONS.map(str::to_owned);
    assert_eq!(keys("/$defs"), sections.clone().into());
    assert_eq!(listed(&format!("{UNKNOWN} = 1")), keys("/properties"));
    let hypothesis = format!("title = \"t\"\n[[hypothesis]]\n{UNKNOWN} = 1");
    assert_eq!(listed(&hypothesis), keys("/properties/hypothesis/items/properties"));
    let services = format!("title = \"t\"\n[services]\n{UNKNOWN} = {{}}");
    assert_eq!(listed(&services), keys("/properties/services/properties"));
    let layer = |more: &[&str], less: &str| -> BTreeSet<String> {
        let more = more.iter().map(|key| (*key).to_owned());
        sections.iter().filter(|key| *key != less).cloned().chain(more).collect()
    };
    assert_eq!(layer(&["name", "requires"], ""), keys("/properties/test/items/properties"));
    assert_eq!(layer(&["name"], "load"), keys("/properties/arm/items/properties"));
}

#[test]
fn every_key_has_a_description() {
    fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
        for part in ["anyOf", "oneOf"].iter().filter_map(|of| schema[*of].as_array()).flatten() {
            undescribed(part, path, found);
        }
        if schema["items"].is_object() {
            undescribed(&schema["items"], path, found);
        }
        for (key, value) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            if !value["description"].is_string() && !value["$ref"].is_string() {
                found.push(path.clone());
            }
            undescribed(value, &path, found);
        }
    }
    let (schema, mut found) = (made(), Vec::new());
    undescribed(&schema, "", &mut found);
    for (name, section) in schema["$defs"].as_object().expect("sections") {
        undescribed(section, name, &mut found);
    }
    let is_variant = |path: &String| {
        ["fetch.coalesce", "refresh.early", "refresh.xfetch", "writer.mailbox"]
            .iter()
            .any(|key| path.ends_with(key))
    };
    found.retain(|path| !is_variant(path));
    assert!(found.is_empty(), "{found:?}");
}
