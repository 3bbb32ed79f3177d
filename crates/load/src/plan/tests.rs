//! Plans from code and from files.

use std::fs;

use miette::Diagnostic;
use proptest::prelude::*;
use stockade_model::seed::Seed;

use super::*;
use crate::schedule::ArrivalProcess;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn parse(text: &str) -> Result<Plan, String> {
    Plan::parse("plan.toml", text).map_err(|error| {
        let place = error.position().map_or(String::new(), |(line, column)| format!("{line}:{column}: "));
        let help = error.help_text().map_or(String::new(), |help| format!(" [{help}]"));
        format!("{place}{error}{help}")
    })
}

/// The plan with a phase of these lines, as text, or its error.
fn describe(lines: &str) -> String {
    match parse(&format!("[[phase]]\n{lines}\n")) {
        Ok(plan) => plan.to_string(),
        Err(error) => error,
    }
}

const WHOLE: &str = r#"
[[phase]]
rate = "100/s"
for = "10s"
arrivals = "poisson"
[[phase]]
ramp = { from = "100/s", to = "1000/s" }
for = "30s"
[[phase]]
sine = { mean = "500/s", amplitude = "200/s", period = "20s", start = "trough" }
for = "60s"
[[phase]]
pause = "5s"
[[phase]]
burst = 1000
[[phase]]
connections = 64
think = "10ms..50ms"
for = "10s"
requests = 100_000
[[phase]]
connections = 1
requests = 7
[[phase]]
burst = 3
"#;

#[test]
fn file_can_have_every_kind_of_phase() {
    let plan = parse(WHOLE).unwrap();
    assert_eq!(
        plan.to_string(),
        "10s at 100/s (poisson), 30s from 100/s to 1000/s, 60s around 500/s (+-200/s every 20s, from its trough), \
         5s pause, 1000 at once; 64 connections for 10s or 100000 requests, each thinking 10ms..50ms; \
         1 connection until 7 requests; 3 at once"
    );
    let [Segment::Open(open), Segment::Closed(loops), Segment::Closed(_), Segment::Open(_)] = plan.segments()
    else {
        panic!("{plan:?}")
    };
    assert_eq!((open.requests(), open.duration()), (1_000 + 16_500 + 30_000 + 1_000, secs(105)));
    assert_eq!((loops.connections, loops.end), (64, EndCondition::FirstOf(secs(10), 100_000)));
    // A phase that ends after seven requests has no known duration.
    assert_eq!((plan.duration(), plan.requests()), (None, Some(48_500 + 100_000 + 7 + 3)));
    assert_eq!((plan.connections_max(), plan.peak_per_second().round()), (64, 1_000.0));
}

#[test]
fn constructors_set_duration_and_requests() {
    let closed = |until| Plan::closed_loop(ClosedLoop::new(8, until));
    for (plan, lasts, requests, words) in [
        (Plan::constant(rate("5/s"), secs(2)), Some(2_000), Some(10), "2s at 5/s"),
        (Plan::fixed_count(rate("3/s"), 10), Some(3_333), Some(10), "3.33s at 3/s"),
        (Plan::burst(7), Some(0), Some(7), "7 at once"),
        (Plan::replay(vec![secs(2), secs(1)]), Some(2_000), Some(2), "2 replayed in 2s"),
        (closed(EndCondition::Duration(secs(2))), Some(2_000), None, "8 connections for 2s"),
        (closed(EndCondition::Requests(9)), None, Some(9), "8 connections until 9 requests"),
        (
            closed(EndCondition::FirstOf(secs(2), 9)),
            Some(2_000),
            Some(9),
            "8 connections for 2s or 9 requests",
        ),
    ] {
        let plan = plan.unwrap();
        assert_eq!(plan.duration().map(|lasts| lasts.as_millis()), lasts, "{words}");
        assert_eq!((plan.requests(), plan.to_string().as_str()), (requests, words));
    }
}

#[test]
fn empty_and_excessive_plans_are_refused() {
    let loops = |connections, until| Phase::Closed(ClosedLoop::new(connections, until));
    for (phases, beyond) in [
        (vec![], ScheduleLimitError::NoRequests),
        (vec![Phase::Open(Step::pause(secs(1)))], ScheduleLimitError::NoRequests),
        (vec![loops(0, EndCondition::Requests(1))], ScheduleLimitError::NoRequests),
        (vec![loops(1, EndCondition::FirstOf(secs(1), 0))], ScheduleLimitError::NoRequests),
        (vec![loops(1, EndCondition::FirstOf(secs(0), 1))], ScheduleLimitError::NoRequests),
        (
            vec![Phase::Open(Step::burst(600_000_000)), loops(1, EndCondition::Requests(600_000_000))],
            ScheduleLimitError::TooManyRequests,
        ),
        (vec![loops(1, EndCondition::Duration(Duration::from_hours(721)))], ScheduleLimitError::TooLong),
    ] {
        assert_eq!(Plan::new(phases.clone()), Err(beyond), "{phases:?}");
    }
    assert_eq!(Plan::constant(rate("1/s"), secs(0)), Err(ScheduleLimitError::NoRequests));
    assert_eq!(Plan::open_loop(Schedule::new(Vec::new())), Err(ScheduleLimitError::NoRequests));
    assert_eq!(Plan::burst(u64::MAX), Err(ScheduleLimitError::TooManyRequests));
    assert!(Plan::closed_loop(ClosedLoop::new(1, EndCondition::Duration(secs(1)))).is_ok());
}

#[test]
fn requests_max_bounds_each_segment_and_their_sum() {
    let plan = parse(WHOLE).unwrap().with_requests_max(500);
    assert_eq!((plan.requests_max(), plan.requests()), (Some(500), Some(500)));
    assert!(
        plan.to_string().ends_with("3 at once, 500 requests at most; 500 requests in all at most"),
        "{plan}"
    );
    assert!(plan.segments().iter().all(|part| part.requests().is_some_and(|requests| requests <= 500)));
    let plan = Plan::constant(rate("5/s"), secs(2)).unwrap().with_requests_max(4).with_requests_max(9);
    assert_eq!((plan.requests(), plan.duration()), (Some(4), Some(Duration::from_millis(800))));
    assert_eq!(plan.to_string(), "2s at 5/s, 4 requests at most");
    let plan =
        Plan::closed_loop(ClosedLoop::new(8, EndCondition::Duration(secs(2)))).unwrap().with_requests_max(9);
    assert_eq!(plan.to_string(), "8 connections for 2s or 9 requests");
}

#[test]
fn warmup_does_not_count_towards_requests_max() {
    let plan = Plan::constant(rate("5/s"), secs(2)).unwrap();
    let warm = plan.clone().with_warmup(secs(1)).unwrap();
    assert_eq!(warm.to_string(), "2s at 5/s, after 1s at 5/s to warm up");
    assert_eq!((warm.warmup(), warm.duration(), warm.requests()), (secs(1), Some(secs(3)), Some(15)));
    for limited in [
        warm.clone().with_requests_max(4),
        plan.clone().with_requests_max(4).with_warmup(secs(1)).unwrap(),
        warm.clone().with_requests_max(4).with_warmup(secs(9)).unwrap().with_warmup(secs(1)).unwrap(),
    ] {
        assert_eq!(limited.requests(), Some(9));
        let [Segment::Open(schedule)] = limited.segments() else { panic!("{limited:?}") };
        assert_eq!(schedule.due_times(Seed(1)).count(), 9);
    }
    assert_eq!(warm.with_warmup(Duration::ZERO), Some(plan));

    let closed = Plan::closed_loop(ClosedLoop::new(8, EndCondition::Requests(20))).unwrap();
    let warm = closed.clone().with_warmup(secs(1)).unwrap();
    assert_eq!(warm.to_string(), "8 connections until 20 requests, after 1s to warm up");
    let limited = warm.clone().with_requests_max(9);
    assert_eq!(limited.to_string(), "8 connections until 9 requests, after 1s to warm up");
    assert_eq!(warm.clone().with_warmup(secs(1)), Some(warm.clone()));
    assert_eq!(warm.with_warmup(Duration::ZERO), Some(closed));
    assert_eq!(Plan::burst(7).unwrap().with_warmup(secs(1)), None);
    let poisson =
        Schedule::new(vec![Step::steady(rate("9/s"), secs(9)).with_arrivals(ArrivalProcess::Poisson)]);
    let warm = Plan::open_loop(poisson.with_warmup(secs(2)).unwrap()).unwrap();
    assert_eq!(warm.warmup(), secs(2));
}

#[test]
fn error_has_place_and_remedy() {
    let no_phase = " [write [[phase]], and rate = \"425/s\" and for = \"60s\" below it]";
    for (text, error) in [
        ("", format!("the plan has no phase{no_phase}")),
        ("# none\n", format!("the plan has no phase{no_phase}")),
        ("phase = []", format!("the load has no requests{no_phase}")),
        ("[[phase]]\npause = \"5s\"", format!("the load has no requests{no_phase}")),
        ("[[phases]]\nburst = 1", "1:3: unknown key `phases` [did you mean `phase`?]".to_owned()),
        ("[phase]\nburst = 1", "1:1: write each phase as a table of its own, under [[phase]]".to_owned()),
        ("phase = 3", "1:9: write each phase as a table of its own, under [[phase]]".to_owned()),
        ("[[phase]]\nburst = ", "2:9: string values must be quoted, expected literal string".to_owned()),
    ] {
        assert_eq!(parse(text).unwrap_err(), error, "{text}");
    }
}

#[test]
fn phase_has_one_kind_and_only_its_keys() {
    for (lines, error) in [
        (
            "for = \"5s\"",
            "1:1: this phase has no kind [a phase has one of `rate`, `ramp`, `sine`, `pause`, `burst`, `connections`]",
        ),
        ("rat = \"5/s\"", "2:1: unknown key `rat` [did you mean `rate`?]"),
        ("rate = \"5/s\"", "1:1: the rate has no duration: write for = \"60s\""),
        ("rate = 5\nfor = \"1s\"", "2:8: `5` has no period: write `5/s` or `5/m`"),
        ("rate = \"5/s\"\nfor = 5", "3:7: `5` has no unit: write `5ms` or `5s`"),
        (
            "rate = \"5/s\"\nfor = \"0s\"",
            "3:7: a phase of this kind is longer than 0: write a longer time, or remove it",
        ),
        (
            "rate = \"0/s\"\nfor = \"1s\"",
            "2:8: `0/s` is out of range: write at least 1 request, and at most one a nanosecond",
        ),
        (
            "rate = \"5/s\"\nfor = \"1s\"\narrivals = \"poison\"",
            "4:12: unknown value `poison` [did you mean `poisson`?]",
        ),
        (
            "rate = \"5/s\"\nfor = \"1s\"\nthink = \"1s\"",
            "4:9: `think` belongs to `connections`, and this phase is a rate: remove it",
        ),
        ("rate = \"5/s\"\nburst = 5", "3:9: this phase is a rate: write a burst as another phase"),
        (
            "burst = 5\nfor = \"1s\"",
            "3:7: `for` belongs to `rate`, `ramp`, `sine`, `connections`, and this phase is a burst: remove it",
        ),
        ("burst = 0", "2:9: a burst has 1 to 1,000,000,000 requests"),
        ("burst = -5", "2:9: a burst has 1 to 1,000,000,000 requests"),
        ("pause = \"0s\"", "2:9: a pause is longer than 0: write a longer one, or remove it"),
        ("pause = \"31d\"", "1:1: with this phase the plan is longer than 30 days"),
        (
            "rate = \"1/ns\"\nfor = \"2s\"",
            "1:1: with this phase the plan has more than 1,000,000,000 requests",
        ),
        (
            "ramp = \"5/s\"\nfor = \"1s\"",
            "2:8: invalid type: string \"5/s\", expected a table such as { from = \"100/s\", to = \"1000/s\" }",
        ),
        ("ramp = { from = \"5/s\" }\nfor = \"1s\"", "2:8: missing field `to`"),
        (
            "ramp = { from = \"0/s\", to = \"0/m\" }\nfor = \"1s\"",
            "2:8: a ramp from 0 to 0 has no requests: write pause = \"5s\"",
        ),
        ("ramp = { from = \"0/s\", too = \"1/s\" }", "2:24: unknown key `too` [did you mean `to`?]"),
        (
            "sine = { mean = \"5/s\", amplitude = \"6/s\", period = \"1s\" }\nfor = \"1s\"",
            "2:8: 6/s below 5/s is negative: write an amplitude of 5/s at most",
        ),
        (
            "sine = { mean = \"5/s\", amplitude = \"5/s\", period = \"0s\" }\nfor = \"1s\"",
            "2:8: the period is 0: write a longer one, such as `20s`",
        ),
        (
            "sine = { mean = \"5/s\", amplitude = \"5/s\", period = \"1s\", start = \"through\" }\nfor = \"1s\"",
            "2:66: unknown value `through` [did you mean `trough`?]",
        ),
        (
            "connections = 5",
            "1:1: the closed loop has no end: write for = \"60s\", requests = 10_000 or both",
        ),
        ("connections = 0\nfor = \"1s\"", "2:15: there are 1 to 1,000,000 connections"),
        ("connections = 5\nrequests = 0", "3:12: there are 1 to 1,000,000,000 requests"),
        (
            "connections = 5\nrequests = 1\nthink = \"2ms..1ms\"",
            "4:9: `2ms..1ms` ends before it begins: write the smaller latency first",
        ),
        ("connections = 5\nrequests = 1\nthink = 5", "4:9: `5` has no unit: write `5ms` or `5s`"),
        (
            "connections = 5\nrequests = 1\narrivals = \"poisson\"",
            "4:12: `arrivals` belongs to `rate`, `ramp`, `sine`, and this phase is a closed loop: remove it",
        ),
    ] {
        assert_eq!(describe(lines), error, "{lines}");
    }
}

#[test]
fn named_files_are_resolved_in_the_folder_of_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.toml");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Plan::read_file(&path).map(|plan| plan.to_string()).map_err(|error| error.to_string())
    };
    fs::write(folder.path().join("think.txt"), "5ms\n7ms\n").unwrap();
    let thinking = b"[[phase]]\nconnections = 2\nrequests = 9\nthink = \"empirical(think.txt)\"";
    let words = "2 connections until 9 requests, each thinking empirical(think.txt)";
    assert_eq!(read(thinking), Ok(words.to_owned()));
    let shown = path.display();
    assert_eq!(read(b"[[phase]]\n\xff"), Err(format!("{shown}:2: not UTF-8: save the file as UTF-8 text")));
    assert_eq!(
        read(&vec![b'#'; (16 << 20) + 1]),
        Err(format!("{shown} has more than 16 MiB: a plan file is smaller"))
    );
    let missing = Plan::read_file(&folder.path().join("missing.toml")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read ") && missing.contains("missing.toml"), "{missing}");
    fs::write(&path, "[[phase]]\nburst = 0").unwrap();
    let error = Plan::read_file(&path).unwrap_err();
    assert!(error.labels().is_some_and(|labels| labels.count() == 1) && error.source_code().is_some());
}

/// A phase of unusual values.
fn phase() -> impl Strategy<Value = String> {
    fn one_of(values: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
        prop::sample::select(values)
    }
    let rate = || one_of(&["0/s", "1/s", "3/7m", "425/s", "1/ns", "4294967295/5s", "1/9d"]);
    let time = || one_of(&["0", "1ns", "3us", "1.5s", "20s", "30d", "200000d"]);
    let number = || one_of(&["-1", "0", "1", "7", "1000000000", "9223372036854775807"]);
    let think = one_of(&["0", "10ms..50ms", "exponential(mean=1d)", "empirical(nowhere)", "1"]);
    let turn = one_of(&["mean-up", "peak", "mean-down", "trough", "crest"]);
    let lasts =
        prop_oneof![4 => time().prop_map(|time| format!("for = \"{time}\"\n")), 1 => Just(String::new())];
    let arrivals = one_of(&["", "arrivals = \"poisson\"\n", "arrivals = \"constant\"\n"]);
    let shape = prop_oneof![
        rate().prop_map(|rate| format!("rate = \"{rate}\"\n")),
        (rate(), rate()).prop_map(|(from, to)| format!("ramp = {{ from = \"{from}\", to = \"{to}\" }}\n")),
        (rate(), rate(), time(), turn).prop_map(|(mean, amplitude, period, start)| format!(
            "sine = {{ mean = \"{mean}\", amplitude = \"{amplitude}\", period = \"{period}\", start = \"{start}\" }}\n"
        )),
    ];
    let requests =
        prop_oneof![Just(String::new()), number().prop_map(|number| format!("requests = {number}\n"))];
    let lines = prop_oneof![
        4 => (shape, lasts.clone(), arrivals).prop_map(|(shape, lasts, arrivals)| format!("{shape}{lasts}{arrivals}")),
        1 => time().prop_map(|time| format!("pause = \"{time}\"\n")),
        1 => number().prop_map(|number| format!("burst = {number}\n")),
        1 => (number(), lasts, requests, think).prop_map(|(connections, lasts, requests, think)| format!(
            "connections = {connections}\n{lasts}{requests}think = \"{think}\"\n"
        )),
    ];
    lines.prop_map(|lines| format!("[[phase]]\n{lines}"))
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in "\\PC{0,60}", lines in "([a-z]{1,8} = [-0-9a-z\"./{}=, ]{0,20}\n){0,4}") {
        let _ = parse(&text);
        let _ = describe(&lines);
    }

    #[test]
    fn odd_values_do_not_panic(
        phases in prop::collection::vec(phase(), 1..4),
        factor in 0.0..1e6,
        most in 0..1_000_u64,
    ) {
        // Most phases are valid alone; together they soon exceed the limit on the duration.
        for text in phases.iter().cloned().chain([phases.concat()]) {
            let Ok(plan) = parse(&text) else { continue };
            prop_assert!(plan.check().is_ok());
            let limited = plan.clone().with_requests_max(most);
            prop_assert!(limited.requests().is_none_or(|requests| requests <= most), "{limited}");
            let _ = (limited.to_string(), plan.peak_per_second(), plan.connections_max());
            let warm = plan.clone().with_warmup(secs(1));
            prop_assert!(warm.is_none_or(|warm| warm.duration() == plan.duration().map(|lasts| lasts + secs(1))));
            for part in plan.segments() {
                let Segment::Open(schedule) = part else { continue };
                let due: Vec<_> = schedule.due_times(Seed(1)).take(100).collect();
                prop_assert!(due.is_sorted() && due.last().is_none_or(|last| *last <= schedule.duration()));
                prop_assert!(due.len() as u64 <= 2 * schedule.requests() + 100);
                let _ = schedule.stretched(factor).requests();
            }
        }
    }
}
