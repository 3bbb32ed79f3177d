//! The generated blocks of the book agree with the program, and those of README.md with the results of the benches. A block stands
//! between `<!-- generated: NAME -->` and `<!-- end -->` in a page of docs/reference, in docs/explanation/architecture.md or in README.md.

use std::{collections::BTreeSet, env, fs, path::PathBuf, process::Command, time::Duration};

use serde_json::Value;
use stockade_cache::{
    Breaker, Fetch, GhostCounts, GhostStats, LoadBounds, PRESETS, Preset, Refresh, RequestStats, ShadowStats,
    StoreMode, StoreStats, Strategy, Writer, policy::POLICIES,
};
use stockade_http::frontend::FrontendStats;
use stockade_load::report::FORMATS;
use stockade_model::{
    outcome::Outcomes,
    registry::{Named, Registry},
    telemetry::{Declaration, MetricKind, MetricUnit},
};
use stockade_plan::LOG_FORMATS;
use stockade_proxy::{
    admin::{OriginStats, ProxyStats, RouteStats, ServerStats},
    config::{RELOADS, Reload},
};
use stockade_record::telemetry::{
    HistogramDeclaration,
    family::otel_name,
    measurement::{
        FailureCount, MeasurementSnapshot, OutcomeCount, ProcessSnapshot, RunSnapshot, StatusCount,
        VerdictCount,
    },
};
use stockade_record::{
    compare, history,
    metrics::{METRICS, Metric},
    report,
};
use stockade_source::SOURCES;

use super::support::root;

const REWRITE: &str = "UPDATE_REFERENCE=1 cargo test -p stockade --all-features --test suite reference";

const START: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";

/// The statistics of a distribution, which the page writes as `S`.
const STATISTICS: [&str; 9] = ["min", "mean", "p50", "p75", "p90", "p95", "p99", "p999", "max"];

fn docs() -> PathBuf {
    root().join("docs")
}

#[test]
fn generated_blocks_agree_with_the_program() {
    let mut expected: BTreeSet<String> = [
        "sources",
        "metrics",
        "cache counters",
        "cache metrics",
        "proxy metrics",
        "run telemetry",
        "policies",
        "presets",
        "preset summaries",
        "load formats",
        "formats compare",
        "formats history",
        "formats plan",
        "formats report",
        "log formats",
        "load keys",
        "proxy settings",
        "proxy reloads",
        "decisions",
        "bench proxy",
        "bench cache",
    ]
    .map(str::to_owned)
    .into();
    expected.extend(commands().iter().map(|command| format!("flags {command}")));
    let mut found = BTreeSet::new();
    let mut outdated = Vec::new();
    let reference = fs::read_dir(docs().join("reference")).expect("docs/reference");
    let reference = reference.map(|entry| entry.expect("an entry").path());
    for path in reference.chain(["../README.md", "explanation/architecture.md"].map(|page| docs().join(page)))
    {
        let text = fs::read_to_string(&path).expect("readable");
        let updated = update(&text, |name| {
            assert!(found.insert(name.to_owned()), "{}: `{name}` exists twice", path.display());
            render(name)
        });
        if updated == text {
            continue;
        }
        if env::var_os("UPDATE_REFERENCE").is_some() {
            fs::write(&path, updated).expect("writable");
        } else {
            outdated.push(path.file_name().expect("a name").to_owned());
        }
    }
    assert!(outdated.is_empty(), "{outdated:?} are outdated; rewrite them: {REWRITE}");
    assert_eq!(found, expected, "blocks in the pages");
}

#[test]
fn update_replaces_the_content_of_a_block() {
    let text = "a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n";
    let updated = update(text, |name| format!("new {name}"));
    assert_eq!(updated, "a\n<!-- generated: x -->\nnew x\n<!-- end -->\nb\n");
}

/// A ratio of bench/RESULTS.md, which `make bench` writes from bench/results. The verdict on it has to be *met*: others are not quoted.
fn bench_ratio(results: &str, bench: &str, case: &str, peer: &str) -> String {
    let section = results.split("\n## ").find(|section| section.lines().next() == Some(bench));
    let row = section.unwrap_or_else(|| panic!("no bench {bench}")).lines().find_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let is_its = cells.first() == Some(&case) && cells.get(2).is_some_and(|cell| cell.starts_with(peer));
        is_its.then_some(cells)
    });
    let row = row.unwrap_or_else(|| panic!("{bench} has no row `{case}` with {peer}"));
    assert_eq!(row.last(), Some(&"met"), "{bench}, {case}, {peer}: quote another row");
    row[3].split(' ').next().expect("a ratio").to_owned()
}

#[test]
fn ratios_without_the_verdict_met_are_not_quoted() {
    let page = "\n## hits\n\n| case | stockade | peer | ratio (interval) | sittings | aim | verdict |\n\
        | a | 2 | x: 1 | 2.00 (1.9 to 2.1) | 1 to 2 | >= 1 | met |\n| b | 2 | x: 1 | 1.30 (0.9 to 2.1) | 1 to 2 | >= 1 | open |\n";
    assert_eq!(bench_ratio(page, "hits", "a", "x"), "2.00");
    let open = std::panic::catch_unwind(|| bench_ratio(page, "hits", "b", "x"));
    let message = *open.unwrap_err().downcast::<String>().expect("a message");
    assert!(message.contains("hits, b, x: quote another row"), "{message}");
}

/// The text with every block rendered anew, from its name.
fn update(text: &str, mut render: impl FnMut(&str) -> String) -> String {
    let mut updated = String::new();
    let mut rest = text;
    while let Some((before, block)) = rest.split_once(START) {
        let (name, block) = block.split_once(" -->\n").expect("a name");
        let (_, after) = block.split_once(END).unwrap_or_else(|| panic!("`{name}` has no end"));
        let content = render(name);
        updated.extend([before, START, name, " -->\n", content.trim_end(), "\n", END]);
        rest = after;
    }
    updated + rest
}

fn render(name: &str) -> String {
    let bench = |bench: &str, case: &str, peer: &str| {
        let results = fs::read_to_string(docs().join("../bench/RESULTS.md")).expect("bench/RESULTS.md");
        bench_ratio(&results, bench, case, peer)
    };
    match name {
        "bench proxy" => format!(
            "For the same processor time it serves {} times as many hits of 1 KiB as nginx, {} times over TLS 1.3, and {} times as many as\n\
            Varnish ([all benches](bench/RESULTS.md), also those in which it is slower).",
            bench("proxy", "1 KiB", "nginx"),
            bench("proxy", "1 KiB, TLS 1.3", "nginx"),
            bench("proxy", "1 KiB", "Varnish"),
        ),
        "bench cache" => format!(
            "On two threads it looks up small values {} times as often a second as `quick_cache`, {} times as often as `foyer` and {} times as\n\
            often as `moka` ([all benches](bench/RESULTS.md#hits)).",
            bench("hits", "u64, 2 threads: lookups", "quick_cache"),
            bench("hits", "u64, 2 threads: lookups", "foyer"),
            bench("hits", "u64, 2 threads: lookups", "moka"),
        ),
        "sources" => table(&["URL", "source"], summaries(&SOURCES)),
        "metrics" => metrics_table(),
        "cache counters" => {
            let rows = METRICS.iter().filter(|metric| metric.is_reported());
            let rows = rows.map(|metric| vec![code(metric.name), metric.summary.to_owned()]);
            table(&["metric", "meaning"], rows)
        }
        "cache metrics" => telemetry_table(
            [declared(Outcomes::METRICS), declared(RequestStats::METRICS), declared(StoreStats::METRICS)]
                .concat(),
        ),
        "proxy metrics" => {
            let histogram = |histogram: &HistogramDeclaration<RouteStats>| {
                [code(histogram.family), "histogram of seconds".to_owned(), histogram.help.trim().to_owned()]
            };
            let mut rows: Vec<_> = RouteStats::HISTOGRAMS.iter().map(histogram).collect();
            rows.extend(declared(RouteStats::METRICS));
            rows.extend(declared(OriginStats::METRICS));
            rows.extend(declared(ServerStats::METRICS));
            rows.extend(declared(FrontendStats::METRICS));
            rows.extend(declared(ProxyStats::METRICS));
            rows.extend(declared(ShadowStats::METRICS));
            rows.extend(declared(GhostCounts::METRICS));
            rows.extend(declared(GhostStats::METRICS));
            telemetry_table(rows)
        }
        "run telemetry" => run_telemetry_table(),
        "policies" => {
            let rows = POLICIES.iter().map(|policy| {
                vec![code(policy.name), policy.summary.to_owned(), policy.entry_bytes.to_string()]
            });
            table(&["policy", "evicted first", "more bytes an entry"], rows)
        }
        "presets" => presets_table(),
        "preset summaries" => table(&["preset", "what happens"], summaries(&PRESETS)),
        "load formats" => formats(&FORMATS),
        "formats compare" => formats(&compare::report::FORMATS),
        "formats history" => formats(&history::report::FORMATS),
        "formats plan" => formats(&stockade_plan::report::FORMATS),
        "formats report" => formats(&report::FORMATS),
        "log formats" => table(&["`--input`", "log"], summaries(&LOG_FORMATS)),
        "load keys" => load_keys(),
        "proxy settings" => settings_tables(),
        "proxy reloads" => reloads_table(),
        "decisions" => decisions_table(),
        _ => {
            let command = name.strip_prefix("flags ").unwrap_or_else(|| panic!("nothing renders `{name}`"));
            let help = help(&[command, "--help"]);
            let lines: Vec<_> = help.lines().map(str::trim_end).collect();
            format!("```text\n{}\n```", lines.join("\n").trim_end())
        }
    }
}

fn formats<T: Named>(registry: &Registry<T>) -> String {
    table(&["`--format`", "content"], summaries(registry))
}

fn summaries<T: Named>(registry: &Registry<T>) -> impl Iterator<Item = Vec<String>> {
    registry.summaries().map(|(name, summary)| vec![code(name), summary.to_owned()])
}

/// Name, kind and help of each metric of a snapshot.
fn declared<S>(metrics: &[Declaration<S>]) -> Vec<[String; 3]> {
    let row = |metric: &Declaration<S>| {
        let name = match metric.label {
            Some((label, value)) => format!("{}{{{label}=\"{value}\"}}", metric.family),
            None => metric.family.to_owned(),
        };
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        let kind = match metric.unit {
            MetricUnit::Count => kind.to_owned(),
            MetricUnit::Bytes => format!("{kind}, bytes"),
            MetricUnit::Seconds => format!("{kind}, seconds"),
        };
        [code(&name), kind, metric.help.trim().to_owned()]
    };
    metrics.iter().map(row).collect()
}

/// Metrics of a run and a load, with both of their names.
fn run_telemetry_table() -> String {
    let mut rows = declared(RunSnapshot::METRICS);
    rows.extend(declared(VerdictCount::METRICS));
    rows.extend(declared(MeasurementSnapshot::METRICS));
    rows.extend(declared(OutcomeCount::METRICS));
    rows.extend(declared(StatusCount::METRICS));
    rows.extend(declared(FailureCount::METRICS));
    rows.extend(MeasurementSnapshot::HISTOGRAMS.iter().map(|histogram| {
        [code(histogram.family), "histogram, seconds".to_owned(), histogram.help.trim().to_owned()]
    }));
    rows.extend(declared(ProcessSnapshot::METRICS));
    // Labels of their own.
    let label = |family: &str| match family.trim_matches('`') {
        "stockade_run_hypotheses" => "`verdict`",
        "stockade_load_outcomes_total" => "`outcome`",
        "stockade_load_responses_total" => "`http.response.status_code`",
        "stockade_load_failures_total" => "`error.type`",
        family if family.starts_with("process_") => "`role`",
        _ => "",
    };
    let row = |[family, kind, help]: [String; 3]| {
        let otel = code(&otel_name(family.trim_matches('`')));
        vec![family.clone(), otel, kind, label(&family).to_owned(), help]
    };
    table(&["Prometheus", "OpenTelemetry", "kind", "label", "meaning"], rows.into_iter().map(row))
}

fn telemetry_table(rows: Vec<[String; 3]>) -> String {
    table(&["metric", "kind", "meaning"], rows.into_iter().map(Vec::from))
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    // A `|` in a cell would end it.
    let line =
        |cells: Vec<String>| format!("| {} |\n", cells.join("\n").replace('|', "\\|").replace('\n', " | "));
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    line(head) + &rule + &rows.map(line).collect::<String>()
}

fn help(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stockade"));
    let output = command.args(arguments).env("COLUMNS", "100").output().expect("help");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The commands that the help lists.
pub fn commands() -> Vec<String> {
    let help = help(&["--help"]);
    let (_, list) = help.split_once("Commands:\n").expect("a list of commands");
    let lines = list.lines().take_while(|line| line.starts_with("  "));
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names: Vec<_> = names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect();
    assert!(names.len() >= 6, "{names:?}");
    names
}

/// Every metric, except counters of the cache.
fn metrics_table() -> String {
    let mut seen = BTreeSet::new();
    let rows = METRICS.iter().filter(|metric| !metric.is_reported()).filter_map(|metric| {
        let name = code(&documented_name(metric));
        seen.insert(name.clone()).then(|| {
            let judged = if metric.is_timing { "time" } else { "count" };
            let windows = if metric.has_windows { "yes" } else { "" };
            vec![name, judged.into(), windows.into(), metric.summary.to_owned()]
        })
    });
    table(&["metric", "judged as", "windows", "meaning"], rows)
}

/// The name of a metric, or `FAMILY.S` if the family has every statistic.
fn documented_name(metric: &Metric) -> String {
    let Some((family, statistic)) = metric.name.rsplit_once('.') else { return metric.name.to_owned() };
    let has = |statistic: &str| Metric::named(&format!("{family}.{statistic}")).is_some();
    if STATISTICS.contains(&statistic) && STATISTICS.iter().all(|statistic| has(statistic)) {
        return format!("{family}.S");
    }
    metric.name.to_owned()
}

fn presets_table() -> String {
    let head = ["preset", "fetch", "store", "refresh", "ttl", "swr", "sie", "more"];
    table(&head, PRESETS.iter().map(preset_row))
}

fn preset_row(preset: &Preset) -> Vec<String> {
    // Without `..`, so that a new axis gets its column.
    let Strategy {
        fetch,
        load,
        store,
        refresh,
        ttl,
        jitter,
        swr,
        sie,
        negative_ttl,
        throttle,
        breaker,
        writer,
        limit,
    } = &preset.strategy;
    assert_eq!((*jitter, negative_ttl, writer, limit.is_none()), (0.0, &None, &Writer::Direct, true));
    let fetch = match fetch {
        Fetch::Independent => String::new(),
        Fetch::Coalesce { wait_timeout, .. } => format!("coalesce, {}", time(*wait_timeout)),
    };
    let store = match store {
        StoreMode::Sync => "",
        StoreMode::Async => "`async`",
        StoreMode::LockedAsync => "`locked-async`",
    };
    let refresh = match refresh {
        Refresh::None => String::new(),
        Refresh::Early { at } => format!("early, at {at}"),
        Refresh::XFetch { beta } => format!("xfetch, beta {beta}"),
    };
    let soft_timeout = load.soft_timeout.map(|soft| format!("soft timeout {}", time(soft)));
    assert_eq!(LoadBounds { soft_timeout: None, ..*load }, LoadBounds::DEFAULT);
    let throttle = Some(*throttle).filter(|throttle| !throttle.is_zero());
    let throttle = throttle.map(|throttle| format!("throttle {}", time(throttle)));
    let breaker = breaker.map(|breaker| {
        assert_eq!(breaker, Breaker::DEFAULT);
        "breaker".to_owned()
    });
    let more: Vec<_> = [soft_timeout, throttle, breaker].into_iter().flatten().collect();
    let ttl = ttl.map_or_else(|| "never expires".to_owned(), time);
    vec![code(preset.name), fetch, store.into(), refresh, ttl, time(*swr), time(*sie), more.join(", ")]
}

/// A number and a unit; zero is empty.
fn time(duration: Duration) -> String {
    let ms = duration.as_millis();
    let units = [("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];
    let unit = units.into_iter().find(|(_, unit)| ms > 0 && ms.is_multiple_of(*unit));
    unit.map_or_else(String::new, |(name, unit)| format!("{} {name}", ms / unit))
}

/// A table of settings for each table of the proxy's file.
fn settings_tables() -> String {
    let schema = fs::read_to_string(docs().join("proxy.schema.json")).expect("docs/proxy.schema.json");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let properties = schema["properties"].as_object().expect("properties");
    let head = ["setting", "value", "default", "meaning"];
    let mut single = Vec::new();
    let mut tables = String::new();
    for (name, value) in properties {
        let mut rows = Vec::new();
        settings_rows(&schema, name, value, &mut rows);
        if rows.len() == 1 {
            single.append(&mut rows);
            continue;
        }
        let title = if value["type"] == "array" { format!("[[{name}]]") } else { format!("[{name}]") };
        tables.extend(["\n### `".to_owned(), title, "`\n\n".to_owned(), table(&head, rows.into_iter())]);
    }
    table(&head, single.into_iter()) + &tables
}

/// The number and the title of each decision.
fn decisions_table() -> String {
    let entries = fs::read_dir(docs().join("../decisions")).expect("decisions/");
    let files: BTreeSet<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    let rows = files.iter().map(|path| {
        let file = path.file_name().and_then(|name| name.to_str()).expect("UTF-8");
        let text = fs::read_to_string(path).expect("readable");
        let head = text.lines().next().and_then(|line| line.strip_prefix("# ")?.split_once(": "));
        let (number, title) = head.unwrap_or_else(|| panic!("{file} does not begin with `# NNN: TITLE`"));
        assert!(file.starts_with(number), "{file}: number {number}");
        vec![format!("[{number}](../../decisions/{file})"), title.to_owned()]
    });
    table(&["decision", "subject"], rows)
}

/// The effect of a reload on each setting of the proxy.
fn reloads_table() -> String {
    let rows = [
        (Reload::Applied, "applies them"),
        (Reload::AppliedIfKept, "applies them, but does not switch them on or off: that needs a restart"),
        (Reload::NeedsRestart, "does not apply them: they need a restart"),
    ];
    let names = |of: Reload| {
        let settings = RELOADS.iter().filter(|(_, reload)| *reload == of);
        settings.map(|(name, _)| code(name)).collect::<Vec<_>>().join(", ")
    };
    table(&["settings", "a reload"], rows.into_iter().map(|(of, text)| vec![names(of), text.to_owned()]))
}

/// The keys of `[load]` for all kinds of targets.
fn load_keys() -> String {
    let schema =
        fs::read_to_string(docs().join("../crates/stockade/experiment.schema.json")).expect("the schema");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let mut rows = Vec::new();
    for (name, value) in properties(&schema, &schema["$defs"]["load"]) {
        settings_rows(&schema, name, value, &mut rows);
    }
    // One form for a default, as in the help of the flags.
    for row in &mut rows {
        if let Some((meaning, default)) = row[3].clone().split_once(" [default: ") {
            (row[2], row[3]) = (default.trim_end_matches(']').to_owned(), meaning.to_owned());
        }
    }
    table(&["key", "value", "default", "meaning"], rows.into_iter())
}

fn settings_rows(schema: &Value, path: &str, setting: &Value, rows: &mut Vec<Vec<String>>) {
    let description = setting["description"].as_str().unwrap_or_default().replace('\n', " ");
    let (meaning, default) = description.split_once(" Default: ").unwrap_or((&description, ""));
    let (default, more) = default.split_once(". ").unwrap_or((default, ""));
    let meaning = [meaning, more].join(" ");
    let form = form(schema, setting);
    rows.push(vec![code(path), form, default.trim_end_matches('.').to_owned(), meaning.trim().to_owned()]);
    // This table has the settings of `[cache]`.
    if path == "route.cache" {
        return;
    }
    for (name, value) in properties(schema, setting) {
        settings_rows(schema, &format!("{path}.{name}"), value, rows);
    }
}

fn resolve<'a>(schema: &'a Value, setting: &'a Value) -> &'a Value {
    match setting["$ref"].as_str() {
        Some(reference) => schema.pointer(reference.trim_start_matches('#')).expect("a definition"),
        None => setting,
    }
}

/// The alternatives of a setting, or the setting alone.
fn alternatives<'a>(schema: &'a Value, setting: &'a Value) -> Vec<&'a Value> {
    let setting = resolve(schema, setting);
    let several = setting["anyOf"].as_array().or(setting["oneOf"].as_array());
    several.map_or_else(|| vec![setting], |several| several.iter().collect())
}

/// The settings inside a setting: of a table, of each table of a list, of each alternative.
fn properties<'a>(schema: &'a Value, setting: &'a Value) -> Vec<(&'a String, &'a Value)> {
    let tables = alternatives(schema, setting).into_iter().map(|one| match one["items"] {
        Value::Null => one,
        _ => resolve(schema, &one["items"]),
    });
    tables.filter_map(|table| table["properties"].as_object()).flatten().collect()
}

/// The form of a setting's value.
fn form(schema: &Value, setting: &Value) -> String {
    let forms = alternatives(schema, setting).into_iter().map(|one| {
        if let Some(names) = one["enum"].as_array() {
            return names.iter().map(|name| code(&name.to_string())).collect::<Vec<_>>().join(", ");
        }
        match (one["const"].as_str(), one["type"].as_str(), one["pattern"].as_str()) {
            (Some(constant), ..) => code(&format!("\"{constant}\"")),
            (_, Some("string"), Some(pattern)) if pattern.contains("ms|") && pattern.contains("none") => {
                "time, `\"none\"`".into()
            }
            (_, Some("string"), Some(pattern)) if pattern.contains("ms|") => "time".into(),
            (_, Some("string"), Some(pattern)) if pattern.contains("KiB|") => "size".into(),
            (_, Some("string"), _) => "text".into(),
            (_, Some("array"), _) if !properties(schema, one).is_empty() => "tables".into(),
            (_, Some("array"), _) => "list".into(),
            (_, Some("object"), _) => "table".into(),
            (_, Some("boolean"), _) => "`true`, `false`".into(),
            (_, Some("integer" | "number"), _) => "number".into(),
            _ => "nothing".into(),
        }
    });
    forms.collect::<Vec<_>>().join(", ")
}
