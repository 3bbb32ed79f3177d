//! A proxy under a load, as it is written.

use std::{path::Path, time::Duration};

use crate::spec::{Experiment, Subject};

/// What is handed on is as it was typed, and what makes no sense is told where it stands.
#[test]
fn a_proxy_is_told_what_is_written_and_its_load_is_checked() {
    const PROXY: &str = r#"
title = "t"
scaled = ["load.duration", "cache.limit.entries"]
[target]
kind = "proxy"
[origin]
recipe = "recipes/a.json"
[cache]
strategy = "breaker"
ttl = "5s"
limit = { entries = 1_000, policy = "lrw" }
[proxy]
threads = 2
bounds = { connections = 50 }
[load]
rate = "10/s"
duration = "100s"
path = "/a"
[[arm]]
name = "a"
[[arm]]
name = "b"
cache.limit.reclaim = 0.5
"#;
    let http = |experiment: &Experiment, at: usize| match &experiment.cells[at].subject {
        Subject::Http(http) => http.clone(),
        Subject::Engine { .. } => panic!("it is none"),
    };
    let mut experiment = Experiment::parse("folder/test.toml", PROXY).unwrap();
    assert_eq!(experiment.folder(), Path::new("folder"));
    let (a, b) = (http(&experiment, 0), http(&experiment, 1));
    assert_eq!((a.path.as_str(), a.cache_bust, a.schedule.lasts()), ("/a", false, Duration::from_secs(100)));
    assert_eq!(a.proxy["bounds"]["connections"], 50);
    let limit = &b.proxy["cache"]["limit"];
    assert_eq!(
        (&limit["entries"], &limit["policy"], &limit["reclaim"]),
        (&1_000.into(), &"lrw".into(), &0.5.into())
    );
    experiment.scale(0.1).unwrap();
    let scaled = http(&experiment, 0);
    assert_eq!(
        (scaled.schedule.lasts(), &scaled.proxy["cache"]["limit"]["entries"]),
        (Duration::from_secs(10), &100.into())
    );
    assert!((scaled.recipe.factor - 0.1).abs() < 1e-9);

    for (from, to, message) in [
        ("\"breaker\"", "\"braker\"", "did you mean `breaker`?"),
        ("path = \"/a\"", "", "missing field `path`"),
        ("path = \"/a\"", "path = \"a\"", "a path begins with `/`"),
        ("rate = \"10/s\"", "keys = 5", "unknown key `keys`"),
        ("recipe = ", "source = ", "[origin] has no `source` where a proxy is the target"),
        ("recipe = \"recipes/a.json\"", "", "there is no origin's recipe"),
        ("duration = \"100s\"", "duration = \"100d\"", "longer than 30 days"),
    ] {
        let error = Experiment::parse("test.toml", &PROXY.replacen(from, to, 1)).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}
