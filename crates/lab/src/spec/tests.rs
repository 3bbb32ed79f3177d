//! Valid and invalid files.

use std::{any::Any, time::Duration};

use stockade_cache::{EvictionOrder, Fetch, Limit, Policy, StoreMode, Writer};

use super::*;
use stockade_model::capacity::Capacity;
use stockade_source::SourceStage;

use crate::engine::{
    Burst, ClientRetries, DocumentCount, EngineTarget, NodeJsTest, OpenLoad, Popularity, TestedCache,
};

const MINIMAL: &str = "title = \"t\"\n[target]\nkind = \"engine\"\n[load]\nburst = 10\n";

pub(super) fn read(text: &str) -> Result<Experiment, (String, String, Option<String>)> {
    Experiment::parse("test.toml", text).map_err(|error| {
        let at = error.at.map(|at| text[at.offset()..at.offset() + at.len()].to_owned());
        (error.message, at.unwrap_or_default(), error.help)
    })
}

/// The target of a cell, which must be a `T`.
pub(super) fn target<T: Target>(cell: &Cell) -> &T {
    let target: &dyn Any = &*cell.target;
    target.downcast_ref().expect("another kind of target")
}

pub(super) fn burst(cell: &Cell) -> &Burst {
    &target::<EngineTarget<Burst>>(cell).load
}

#[test]
fn minimal_file_has_one_test_and_one_arm() {
    let experiment = read(MINIMAL).unwrap();
    assert_eq!(
        (experiment.tests.as_slice(), experiment.arms.as_slice()),
        (&[String::new()][..], &["cache".to_owned()][..])
    );
    assert_eq!((experiment.repeats, experiment.cells.len()), (1, 1));
    let cell = &experiment.cells[0];
    let Burst { workers, docs, barrier, .. } = burst(cell);
    assert_eq!((*workers, *docs, *barrier), (10, DocumentCount::Scaled, true));
    assert_eq!(target::<EngineTarget<Burst>>(cell).source.to_string(), "sqlite:");
}

#[test]
fn tests_and_arms_are_laid_over_the_base() {
    let text = r#"
title = "t"
[target]
kind = "engine"
[origin]
latency = "1ms..2ms"
[cache]
ttl = "1s"
[load]
burst = [10, 100]
[[test]]
name = "direct"
[[test]]
name = "mailbox"
load.docs = ["scaled", "fixed:3"]
load.barrier = false
cache.writer.mailbox = { cost = "2ms", capacity = 7 }
cache.limit = "none"
[[arm]]
name = "a"
cache.strategy = "stampede"
[[arm]]
name = "b"
cache.strategy = "stampede_async"
cache.fetch = { coalesce = { wait_timeout = "3s" } }
cache.load = { deadline = "4s", max_concurrent = 3, queue = 0 }
cache.limit = { entries = 36_000, bytes = "256MiB", max_object = "300KiB", policy = "lrw", reclaim = 0.3, order = "global" }
cache.ttl = "none"
"#;
    let experiment = read(text).unwrap();
    let tests = [
        "direct/10",
        "direct/100",
        "mailbox/scaled/10",
        "mailbox/scaled/100",
        "mailbox/fixed:3/10",
        "mailbox/fixed:3/100",
    ];
    assert_eq!(experiment.tests, tests);
    assert_eq!(experiment.cells.len(), 12);

    let cell = |test: &str, arm: &str| {
        burst(experiment.cells.iter().find(|c| c.test == test && c.arm == arm).unwrap())
    };
    let a = cell("direct/100", "a");
    assert_eq!((a.workers, a.docs), (100, DocumentCount::Scaled));
    assert_eq!(a.strategy.ttl, Some(Duration::from_secs(1)));
    assert_eq!((a.strategy.writer, &a.strategy.limit), (Writer::Direct, &None));
    assert_eq!(a.behavior.stages.at(Duration::ZERO).latency.to_string(), "1ms..2ms");

    let b = cell("mailbox/fixed:3/10", "b");
    assert_eq!((b.docs, b.barrier), (DocumentCount::Fixed(3), false));
    let strategy = &b.strategy;
    assert_eq!(strategy.fetch, Fetch::coalesce(Duration::from_secs(3)));
    assert_eq!(
        (strategy.store, strategy.ttl),
        (StoreMode::LockedAsync, None),
        "explicit settings override a preset"
    );
    let load = stockade_cache::LoadBounds {
        deadline: Duration::from_secs(4),
        max_concurrent: Some(3),
        queue: 0,
        ..stockade_cache::LoadBounds::DEFAULT
    };
    assert_eq!(strategy.load, load);
    let limit = Limit {
        entries: Some(36_000),
        max_object: Some(300 << 10),
        policy: Policy::LRW,
        reclaim: 0.3,
        order: EvictionOrder::Global,
        ..Limit::bytes(256 << 20)
    };
    assert_eq!(strategy.limit, Some(limit));
    let [cost, call_timeout] = [Duration::from_millis(2), Duration::from_secs(5)];
    assert_eq!(strategy.writer, Writer::Mailbox { cost, call_timeout, capacity: 7 });
}

#[test]
fn scaling_multiplies_listed_dimensions_only() {
    let mut fixed = read(MINIMAL).unwrap();
    fixed.scale(0.5).unwrap();
    assert_eq!(burst(&fixed.cells[0]).workers, 10);
    let mut scaled = read(&format!("scaled = [\"load.burst\"]\n{MINIMAL}")).unwrap();
    scaled.scale(0.5).unwrap();
    assert_eq!(burst(&scaled.cells[0]).workers, 5);
    scaled.scale(0.01).unwrap();
    assert_eq!(burst(&scaled.cells[0]).workers, 1);
}

/// The minimal file with more lines.
pub(super) fn with(lines: &str) -> String {
    format!("{MINIMAL}{lines}\n")
}

/// Each case: a file, the message, the place, the remedy (`""`: it is in the message).
pub(super) fn assert_refused(cases: &[(String, &str, &str, &str)]) {
    for (text, message, at, help) in cases {
        let (found, place, remedy) = read(text).unwrap_err();
        assert_eq!(
            (found.as_str(), place.as_str(), remedy.unwrap_or_default().as_str()),
            (*message, *at, *help),
            "{text}"
        );
    }
}

#[test]
fn misspelt_key_suggests_the_nearest() {
    assert_refused(&[
        (with("[orign]"), "unknown key `orign`", "orign", "did you mean `origin`?"),
        (with("[cache]\nstratgy = \"none\""), "unknown key `stratgy`", "stratgy", "did you mean `strategy`?"),
        (with("docks = \"scaled\""), "unknown key `docks`", "docks", "did you mean `docs`?"),
        (
            with("[[arm]]\nname = \"a\"\ncache.tll = \"1s\""),
            "unknown key `tll`",
            "tll",
            "did you mean `ttl`?",
        ),
        (with("[cache]\nstore = \"asinc\""), "unknown value `asinc`", "\"asinc\"", "did you mean `async`?"),
        (
            MINIMAL.replace("engine", "http"),
            "unknown kind of target `http`",
            "\"http\"",
            "use one of: engine, fleet, proxy, app, url",
        ),
        (
            format!("scaled = [\"load.rate\"]\n{MINIMAL}"),
            "unknown value `load.rate`",
            "\"load.rate\"",
            "use one of: load.burst, load.duration, cache.limit.entries",
        ),
    ]);
}

#[test]
fn invalid_value_names_valid_ones() {
    let docs = "is not a choice of documents: write `scaled`, or `fixed:K` with K of 1 or more";
    assert_refused(&[
        (
            with("[cache]\nstrategy = \"stampeed\""),
            "unknown strategy `stampeed`: did you mean `stampede`?",
            "\"stampeed\"",
            "",
        ),
        (with("[cache]\nttl = 30"), "`30` has no unit: write `30ms` or `30s`", "30", ""),
        (with("[origin]\nlatency = \"5\""), "`5` has no unit: write `5ms` or `5s`", "\"5\"", ""),
        (
            with("[origin]\nsource = \"sqlit:\""),
            "unknown source `sqlit`: did you mean `sqlite`?",
            "\"sqlit:\"",
            "",
        ),
        (with("docs = \"fixed:0\""), &format!("`fixed:0` {docs}"), "\"fixed:0\"", ""),
        (with("docs = [\"fixed:3\", \"all\"]"), &format!("`all` {docs}"), "\"all\"", ""),
        (with("docs = []"), "the list is empty", "[]", ""),
        (MINIMAL.replace("10", "[10, 10]"), "the list has a value twice", "[10, 10]", ""),
        (with("[cache]\nwriter.mailbox.capacity = 0"), "a mailbox holds 1 to 16777216 writes", "0", ""),
        (
            with("[cache]\nwriter.mailbox.capacity = 9000000000000000000"),
            "a mailbox holds 1 to 16777216 writes",
            "9000000000000000000",
            "",
        ),
        (with("[cache]\nlimit.bytes = 4096"), "`4096` has no unit: write `4096KiB` or `4096MiB`", "4096", ""),
        (
            with("[cache]\nlimit = { bytes = \"100B\" }"),
            "nothing could be stored: an entry alone costs more than `max_object`",
            "{ bytes = \"100B\" }",
            "",
        ),
        (with("[cache]\nlimit.entries = 0"), "a limit has room for one entry at least", "0", ""),
        (
            with("[cache]\nlimit = { entries = 7, policy = \"lruu\" }"),
            "unknown policy `lruu`: did you mean `lru`?",
            "\"lruu\"",
            "",
        ),
        (
            with("[cache]\nlimit = { entries = 7, reclaim = 30 }"),
            "`reclaim` is the share of the limit to be cleared: between 0 and 1",
            "{ entries = 7, reclaim = 30 }",
            "",
        ),
        (
            with("[cache]\nlimit = { policy = \"lru\" }"),
            "a limit needs `entries` or `bytes`",
            "{ policy = \"lru\" }",
            "",
        ),
        (
            with("[cache]\nlimit = { entrys = 7 }"),
            "unknown key `entrys`",
            "entrys",
            "did you mean `entries`?",
        ),
        (
            with("[cache]\nlimit = \"all\""),
            "`all` is not a valid limit: write a table such as { entries = 36_000 }, or \"none\"",
            "\"all\"",
            "",
        ),
        (with("[cache]\nload.max_concurrent = 0"), "one load at least may be under way", "0", ""),
        (with("[cache]\nload.queue = -1"), "a queue has room for 0 loads or more", "-1", ""),
        (MINIMAL.replace("10", "0"), "a burst has one worker at least", "0", ""),
        (MINIMAL.replace("10", "[10, -1]"), "a burst has one worker at least", "[10, -1]", ""),
        (format!("repeat = 0\n{MINIMAL}"), "repeat is from 1 to 1000", "0", ""),
    ]);
}

#[test]
fn layers_need_unique_names_and_have_no_load() {
    let plain = "names of arms are made of letters, digits, `_`, `-` and `:`";
    assert_refused(&[
        (with("[[arm]]\ncache.ttl = \"1s\""), "this arm has no name: write name = \"...\"", "[[arm]]", ""),
        (with("[[arm]]\nname = \"a.b\""), plain, "\"a.b\"", ""),
        (
            with("[[test]]\nname = \"a\"\n[[test]]\nname = \"a\""),
            "there are two tests named `a`",
            "\"a\"",
            "",
        ),
        (with("[arm]\nname = \"a\""), "write each arm as a table of its own, under [[arm]]", "arm", ""),
        (
            with("[[arm]]\nname = \"a\"\nload.burst = 7"),
            "arm `a` has a load of its own",
            "load",
            "all arms of a test face the same load: put it into [load] or a [[test]]",
        ),
    ]);
}

#[test]
fn errors_point_into_expressions() {
    let expect = |expr: &str| with(&format!("[[hypothesis]]\ntext = \"h\"\nexpect = [\"{expr}\"]"));
    let no_unit = "a time is compared with a number without a unit: write `ms` or `s` behind it";
    let which = "a published figure is that of one arm of one test: write TEST/ARM.metric";
    assert_refused(&[
        (expect("cache.faild == 0"), "unknown metric `faild`: did you mean `failed`?", "cache.faild", ""),
        (expect("response.p99 < 5"), no_unit, "5", ""),
        (
            with("[[hypothesis]]\ntext = \"h\"\nexpect = []"),
            "a hypothesis that expects nothing would always be supported: write at least one comparison",
            "[]",
            "",
        ),
        (
            with("[[hypothesis]]\ntext = \"h\"\nmin_effect = \"5\"\nexpect = [\"failed == 0\"]"),
            "`5` is not a share in percent: write \"5%\"",
            "\"5\"",
            "",
        ),
        (
            with("[[hypothesis]]\ntext = \"h\"\nmin_effect = \"-1%\"\nexpect = [\"failed == 0\"]"),
            "`-1%` is not a share in percent: write \"5%\"",
            "\"-1%\"",
            "",
        ),
        (with("[reference]\n\"cache.failed\" = inf"), "not a finite number", "inf", ""),
        (with("[[reference]]"), "write it as one table: [reference]", "reference", ""),
        (
            with("[reference]\n\"cache.finished\" = 5"),
            "a time is text with a unit, such as \"492.9ms\"",
            "5",
            "",
        ),
        (
            with("[reference]\n\"cache.finishd\" = \"5ms\""),
            "unknown metric `finishd`: did you mean `finished`?",
            "\"cache.finishd\"",
            "",
        ),
        (with("[reference]\n\"finished\" = \"5ms\""), which, "\"finished\"", ""),
    ]);
}

pub(super) const OPEN: &str = "title = \"t\"\n[target]\nkind = \"engine\"\n[origin]\nsource = \"simulated:9\"\n[load]\n\
                    rate = \"10/s\"\nduration = \"60s\"\n";

/// The minimal open load with more lines.
pub(super) fn open_with(lines: &str) -> String {
    format!("{OPEN}{lines}\n")
}

fn open(cell: &Cell) -> &OpenLoad {
    &target::<EngineTarget<OpenLoad>>(cell).load
}

#[test]
fn open_load_has_every_setting_of_its_file() {
    let minimal = read(OPEN).unwrap();
    let cell = &minimal.cells[0];
    assert_eq!(
        (cell.clock, minimal.scaled.as_slice()),
        (ClockKind::Virtual, &[ScaledDimension::LoadDuration][..])
    );
    let load = open(cell);
    assert_eq!(load.traffic.schedule.to_string(), "60s at 10/s");
    assert_eq!(
        (load.traffic.keys, load.traffic.popularity, load.traffic.warm),
        (None, Popularity::Uniform, false)
    );
    assert_eq!(
        (load.traffic.timeout, load.traffic.retries, load.traffic.max_in_flight),
        (None, ClientRetries::default(), 100_000)
    );
    assert_eq!(load.traffic.drain, Duration::from_secs(30));

    let text = open_with(
        r#"arrivals = "poisson"
keys = 7
popularity = { zipf = 0.99 }
warm = true
timeout = "2s"
retries = { most = 3, backoff = "100ms" }
max_in_flight = 1_000
drain = "5s"
[origin]
latency = "20ms"
capacity = { workers = 8, queue = 1_000 }
stage = [{ at = "10s", latency = "500ms", errors = 1.0 }, { at = "30s", state = "refusing" }, { at = "40s", state = "up", errors = 0 }]
[cache]
strategy = "stampede"
ttl = "5s"
[[hypothesis]]
text = "h"
expect = ["failed(10s..40s) > 0"]"#,
    );
    let text = text
        .replace("[origin]\nsource = \"simulated:9\"\n", "")
        .replace("[origin]\n", "[origin]\nsource = \"simulated:9\"\n");
    let mut experiment =
        read(&text.replace("kind = \"engine\"", "kind = \"engine\"\nclock = \"live\"")).unwrap();
    assert_eq!(experiment.cells[0].clock, ClockKind::Live);
    let load = open(&experiment.cells[0]);
    assert_eq!(load.traffic.schedule.to_string(), "60s at 10/s (poisson)");
    assert_eq!(
        (load.traffic.keys, load.traffic.popularity, load.traffic.warm),
        (Some(7), Popularity::Zipf { exponent: 0.99 }, true)
    );
    let retries = ClientRetries { most: 3, backoff: Duration::from_millis(100) };
    assert_eq!(
        (load.traffic.timeout, load.traffic.retries, load.traffic.max_in_flight),
        (Some(Duration::from_secs(2)), retries, 1_000)
    );
    assert_eq!(load.behavior.capacity, Some(Capacity { workers: 8, queue: 1_000 }));
    let stages = |load: &OpenLoad, seconds: &[u64]| -> Vec<String> {
        let stage = |second: &u64| load.behavior.stages.at(Duration::from_secs(*second)).clone();
        let text = |stage: SourceStage| format!("{} {} {:?}", stage.latency, stage.errors, stage.state);
        seconds.iter().map(|second| text(stage(second))).collect()
    };
    let each = ["20ms 0 Up", "500ms 1 Up", "500ms 1 Refusing", "500ms 0 Up"];
    assert_eq!(stages(load, &[9, 10, 30, 40]), each, "each states only what changes");

    experiment.scale(0.5).unwrap();
    let load = open(&experiment.cells[0]);
    assert_eq!(
        (load.traffic.schedule.to_string().as_str(), stages(load, &[4, 5, 15, 20])),
        ("30s at 10/s (poisson)", each.map(str::to_owned).to_vec())
    );
    assert_eq!(experiment.windows(), [FigureWindow::Seconds { from: 5, to: 20 }]);
}

#[test]
fn invalid_open_loads_are_refused() {
    let either = "a load has a `burst`, or a `rate` or `steps`: leave out what belongs to the other";
    let expect = |expr: &str| open_with(&format!("[[hypothesis]]\ntext = \"h\"\nexpect = [\"{expr}\"]"));
    assert_refused(&[
        (OPEN.replace("\"10/s\"", "10"), "`10` has no period: write `10/s` or `10/m`", "10", ""),
        (open_with("burst = 7"), "`rate` is for an open load, and this load is a burst", "\"10/s\"", either),
        (
            open_with("docs = \"scaled\""),
            "`docs` is for a burst, and this load is an open load",
            "\"scaled\"",
            either,
        ),
        (
            OPEN.replace("duration = \"60s\"\n", ""),
            "for how long? Write a `duration`, such as \"60s\", next to the rate",
            "\"10/s\"",
            "",
        ),
        (OPEN.replace("60s", "0s"), "the load has no requests: write a longer time", "\"0s\"", ""),
        (OPEN.replace("60s", "90d"), "longer than 30 days: write a shorter time", "\"90d\"", ""),
        (
            OPEN.replace("10/s", "1/us").replace("60s", "1h"),
            "more than 1,000,000,000 requests: write a shorter time",
            "\"1h\"",
            "",
        ),
        (
            open_with("popularity = { zipf = -1 }"),
            "Zipf's exponent is from 0 (all alike) to 10; about 1 is usual",
            "-1",
            "",
        ),
        (
            open_with("arrivals = \"posson\""),
            "unknown value `posson`",
            "\"posson\"",
            "did you mean `poisson`?",
        ),
        (open_with("keys = 0"), "a load is for one key at least", "0", ""),
        (open_with("max_in_flight = 0"), "one request at least may be under way", "0", ""),
        (
            open_with("popularity = \"zipf\""),
            "Zipf's law has an exponent: write { zipf = 0.99 }",
            "\"zipf\"",
            "",
        ),
        (
            open_with("timeout = \"0s\""),
            "a timeout of zero fails every request: write more, or leave `timeout` out",
            "\"0s\"",
            "",
        ),
        (
            open_with("retries = { most = 101 }"),
            "a client makes 1 to 100 more attempts; without `retries` none",
            "101",
            "",
        ),
        (
            open_with("writes = { every = \"1us\", invalidate = \"soft\" }").replace("60s", "1h"),
            "more than 1,000,000,000 requests and writes: write a longer time between writes",
            "{ every = \"1us\", invalidate = \"soft\" }",
            "",
        ),
        (
            OPEN.replace(
                "rate = \"10/s\"\nduration = \"60s\"",
                "steps = [{ rate = \"10/s\", for = \"9s\" }, { rate = \"1/s\", for = \"0s\" }]",
            ),
            "a step of zero length has no requests: write a longer time, or leave the step out",
            "\"0s\"",
            "",
        ),
        (
            expect("failed(10s..90s) == 0"),
            "`(10s..90s)` ends after the load, which takes 60s: write an earlier end",
            "failed(10s..90s)",
            "",
        ),
        (
            with("[[hypothesis]]\ntext = \"h\"\nexpect = [\"failed(1s..2s) == 0\"]"),
            "a burst has no seconds to choose from: leave the window out",
            "failed(1s..2s)",
            "",
        ),
        (
            OPEN.replace("\"engine\"", "\"engine\"\nclock = \"virtual\"").replace("simulated:9", "sqlite:"),
            "a real source answers in real time",
            "\"virtual\"",
            "write clock = \"live\", or [origin] source = \"simulated:\"",
        ),
    ]);
}

#[test]
fn invalid_origins_are_refused() {
    let origin = |lines: &str| OPEN.replace("[load]", &format!("{lines}\n[load]"));
    assert_refused(&[
        (
            origin("stage = [{ at = \"60s\" }]"),
            "this stage begins after the load, which takes 60s: write an earlier time",
            "{ at = \"60s\" }",
            "",
        ),
        (
            origin("capacity = { workers = 1_000_001, queue = 1 }"),
            "an origin has 1 to 1,000,000 workers",
            "1_000_001",
            "",
        ),
        (
            origin("capacity = { workers = 1, queue = 1_000_001 }"),
            "a queue has room for 0 to 1,000,000 fetches",
            "1_000_001",
            "",
        ),
        (
            origin("stage = [{ at = \"50s\" }, { at = \"30s\" }]"),
            "this stage begins no later than the one before: write stages in the order of time",
            "{ at = \"30s\" }",
            "",
        ),
        (
            origin("stage = [{ at = \"40s\", errors = 50 }]"),
            "a share of fetches is from 0 to 1: write 0.5 for every other one",
            "50",
            "",
        ),
        (
            origin("stage = [{ at = \"40s\", state = \"down\" }]"),
            "unknown value `down`",
            "\"down\"",
            "use one of: up, refusing, silent",
        ),
        (origin("capacity = { workers = 0, queue = 1 }"), "an origin has 1 to 1,000,000 workers", "0", ""),
    ]);
}

#[test]
fn node_test_cache_supports_four_keys_only() {
    let node = |lines: &str| open_with(&format!("[cache]\nstrategy = \"xfetch_unit_bug\"\n{lines}"));
    let experiment = read(&node("ttl = \"60s\"\nbeta = 2")).unwrap();
    let test = NodeJsTest { ttl: Duration::from_mins(1), beta: 2.0, unit: crate::engine::TtlUnit::Seconds };
    assert!(matches!(open(&experiment.cells[0]).target, TestedCache::NodeJsTest(found) if found == test));
    assert_refused(&[
        (
            node("ttl = \"60s\"\nstore = \"async\""),
            "unknown key `store`",
            "store",
            "use one of: strategy, ttl, beta, shared",
        ),
        (
            node("ttl = \"900ms\""),
            "Redis' TTL is read in whole seconds: write \"1s\" or more",
            "\"900ms\"",
            "",
        ),
        (
            node("ttl = \"60s\"\nbeta = -1"),
            "`beta` is 0 or more: 1 as in the paper, more refreshes earlier",
            "-1",
            "",
        ),
        (
            with("[cache]\nstrategy = \"xfetch_unit_bug\"\nttl = \"60s\""),
            "this strategy is for open loads: write a `rate` and a `duration` into [load]",
            "\"xfetch_unit_bug\"",
            "",
        ),
    ]);
}

#[test]
fn invalid_toml_is_refused() {
    for broken in ["title = ", "title = \"t", "[target\n", "title = \"t\"\n[target]\nkind = \"engine\"\n"] {
        assert!(!read(broken).unwrap_err().0.is_empty(), "{broken}");
    }
}

#[test]
fn experiments_of_the_project_are_valid() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        Experiment::load(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

proptest::proptest! {
    /// A damaged line of the project's own experiment is refused or accepted, without a panic.
    #[test]
    fn damage_never_panics(at in 0..8_000_usize, with in "[ -~]{0,3}", cut in 0..6_usize) {
        let whole = include_str!("../../../../experiments/stampede.toml");
        let mut text = whole.to_owned();
        let start = at % text.len();
        if text.is_char_boundary(start) && text.is_char_boundary((start + cut).min(text.len())) {
            text.replace_range(start..(start + cut).min(whole.len()), &with);
            let _ = read(&text);
        }
    }
}
