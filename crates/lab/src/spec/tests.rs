//! Files, good ones and bad ones.

use std::time::Duration;

use stockade_cache::{Fetch, Limit, Load, Order, Policy, Store, Writer};

use super::*;
use crate::engine::Docs;

const MINIMAL: &str = "title = \"t\"\n[target]\nkind = \"engine\"\n[load]\nburst = 10\n";

fn read(text: &str) -> Result<Experiment, (String, String, Option<String>)> {
    Experiment::parse("test.toml", text).map_err(|error| {
        let at = error.at.map(|at| text[at.offset()..at.offset() + at.len()].to_owned());
        (error.message, at.unwrap_or_default(), error.help)
    })
}

#[test]
fn a_minimal_file_is_one_arm_of_one_test() {
    let experiment = read(MINIMAL).unwrap();
    assert_eq!(
        (experiment.tests.as_slice(), experiment.arms.as_slice()),
        (&[String::new()][..], &["cache".to_owned()][..])
    );
    assert_eq!((experiment.repeats, experiment.cells.len()), (1, 1));
    let cell = &experiment.cells[0];
    assert_eq!((cell.burst.workers, cell.burst.docs, cell.burst.barrier), (10, Docs::Scaled, true));
    assert_eq!(cell.source.to_string(), "sqlite:");
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

    let cell =
        |test: &str, arm: &str| experiment.cells.iter().find(|c| c.test == test && c.arm == arm).unwrap();
    let a = cell("direct/100", "a");
    assert_eq!((a.burst.workers, a.burst.docs), (100, Docs::Scaled));
    assert_eq!(a.burst.strategy.ttl, Some(Duration::from_secs(1)));
    assert_eq!((a.burst.strategy.writer, &a.burst.strategy.limit), (Writer::Direct, &None));
    assert_eq!(a.burst.latency.to_string(), "1ms..2ms");

    let b = cell("mailbox/fixed:3/10", "b");
    assert_eq!((b.burst.docs, b.burst.barrier), (Docs::Fixed(3), false));
    let strategy = &b.burst.strategy;
    assert_eq!(strategy.fetch, Fetch::Coalesce { wait_timeout: Duration::from_secs(3) });
    assert_eq!(
        (strategy.store, strategy.ttl),
        (Store::LockedAsync, None),
        "what is written beside a preset wins"
    );
    let load = Load { deadline: Duration::from_secs(4), max_concurrent: Some(3), queue: 0, ..Load::DEFAULT };
    assert_eq!(strategy.load, load);
    let limit = Limit {
        entries: Some(36_000),
        max_object: Some(300 << 10),
        policy: Policy::LRW,
        reclaim: 0.3,
        order: Order::Global,
        ..Limit::bytes(256 << 20)
    };
    assert_eq!(strategy.limit, Some(limit));
    let [cost, call_timeout] = [Duration::from_millis(2), Duration::from_secs(5)];
    assert_eq!(strategy.writer, Writer::Mailbox { cost, call_timeout, capacity: 7 });
}

#[test]
fn scaling_multiplies_only_what_the_file_lists() {
    let mut fixed = read(MINIMAL).unwrap();
    fixed.scale(0.5);
    assert_eq!(fixed.cells[0].burst.workers, 10);
    let mut scaled = read(&format!("scaled = [\"load.burst\"]\n{MINIMAL}")).unwrap();
    scaled.scale(0.5);
    assert_eq!(scaled.cells[0].burst.workers, 5);
    scaled.scale(0.01);
    assert_eq!(scaled.cells[0].burst.workers, 1);
}

/// The minimal file with something behind it.
fn with(lines: &str) -> String {
    format!("{MINIMAL}{lines}\n")
}

/// Each file, and what is said of it: the message, the place, the remedy (`""`: it is in the message).
fn assert_refused(cases: &[(String, &str, &str, &str)]) {
    for (text, message, at, help) in cases {
        let (said, place, remedy) = read(text).unwrap_err();
        assert_eq!(
            (said.as_str(), place.as_str(), remedy.unwrap_or_default().as_str()),
            (*message, *at, *help),
            "{text}"
        );
    }
}

#[test]
fn a_misspelt_key_is_told_the_nearest() {
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
        (MINIMAL.replace("engine", "http"), "unknown value `http`", "\"http\"", "use one of: engine"),
        (
            format!("scaled = [\"load.rate\"]\n{MINIMAL}"),
            "unknown value `load.rate`",
            "\"load.rate\"",
            "use one of: load.burst",
        ),
    ]);
}

#[test]
fn a_value_that_makes_no_sense_is_told_what_would() {
    let docs = "is no choice of documents: write `scaled`, or `fixed:K` with K of 1 or more";
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
            with("[origin]\nsource = \"redis:\""),
            "unknown source `redis:`: use one of: sqlite, simulated",
            "\"redis:\"",
            "",
        ),
        (with("docs = \"fixed:0\""), &format!("`fixed:0` {docs}"), "\"fixed:0\"", ""),
        (with("docs = [\"fixed:3\", \"all\"]"), &format!("`all` {docs}"), "[\"fixed:3\", \"all\"]", ""),
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
        (with("[cache]\nlimit.entries = 0"), "one at least", "0", ""),
        (
            with("[cache]\nlimit = { entries = 7, policy = \"lfu\" }"),
            "unknown policy `lfu`: did you mean `lru`?",
            "\"lfu\"",
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
            "`all` is no limit: write a table such as { entries = 36_000 }, or \"none\"",
            "\"all\"",
            "",
        ),
        (with("[cache]\nload.max_concurrent = 0"), "one at least", "0", ""),
        (with("[cache]\nload.queue = -1"), "a queue has room for 0 loads or more", "-1", ""),
        (MINIMAL.replace("10", "0"), "a burst has one worker at least", "0", ""),
        (MINIMAL.replace("10", "[10, -1]"), "a burst has one worker at least", "[10, -1]", ""),
        (format!("repeat = 0\n{MINIMAL}"), "repeat is from 1 to 1000", "0", ""),
    ]);
}

#[test]
fn layers_have_names_of_their_own_and_no_load() {
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
fn an_expression_is_told_the_place_inside_it() {
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

#[test]
fn what_is_no_toml_is_refused() {
    for broken in ["title = ", "title = \"t", "[target\n", "title = \"t\"\n[target]\nkind = \"engine\"\n"] {
        assert!(!read(broken).unwrap_err().0.is_empty(), "{broken}");
    }
}

#[test]
fn the_experiments_of_the_project_are_valid() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        Experiment::load(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

proptest::proptest! {
    /// Any line of the project's own experiment, damaged in any way, is told off or taken: no panic.
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
