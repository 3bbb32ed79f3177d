use std::{fmt::Write as _, time::Duration};

use super::*;
use crate::{
    PlanOptions, TtlOption,
    read::KeyRules,
    report::CachePlan,
    testing,
    trace::{NewRequest, TraceBuilder},
};

const HOUR_NS: u64 = 3_600 * SECOND_NS;

/// Ten hours of a server. Each second one of 200 files, which never change, and a search that is not repeated; each five seconds one
/// of ten tables, which all change each minute.
fn site() -> String {
    let mut log = String::new();
    for n in 0..36_000_u32 {
        let time = format!("[31/Jan/2026:{:02}:{:02}:{:02} +0000]", n / 3_600, n / 60 % 60, n % 60);
        let mut line = |url: &str, bytes: u32| {
            let _ = writeln!(log, "192.0.2.1 - - {time} \"GET {url} HTTP/1.1\" 200 {bytes} \"-\" \"-\"");
        };
        line(&format!("/static/{}.css", n % 200), 10_000 + n % 200);
        line(&format!("/search?q={n}"), 2_000);
        if n % 5 == 0 {
            line(&format!("/api/{}", n / 5 % 10), 500 + n / 60);
        }
    }
    log
}

fn planned(log: &str, options: &PlanOptions) -> CachePlan {
    testing::planned(log, None, &KeyRules::default(), options).expect("a plan")
}

fn routes(plan: &CachePlan) -> &RouteTtlPlan {
    &plan.recommendation.as_ref().expect("a cache").routes
}

/// Each route with its ttl in seconds.
fn ttls(plan: &CachePlan) -> Vec<(&str, u64)> {
    routes(plan).routes.iter().map(|route| (&*route.name, route.ttl_ns / SECOND_NS)).collect()
}

/// Room for the files and the tables, and too little for the searches between two requests for a file.
fn tight() -> PlanOptions {
    PlanOptions { memory: Some(Capacity::Bytes(2_600_000)), ..testing::options() }
}

#[test]
fn each_route_has_the_ttl_that_its_responses_allow() {
    let plan = planned(&site(), &tight());
    // A file is requested each 200 seconds: an hour has 10 loads of it, six hours 2, a quarter of an hour 36, and a minute 180. The
    // tables have another size after a minute. Searches push out the files, unless they are not stored.
    assert_eq!(ttls(&plan), [("/search", 0), ("/static/*", 3_600), ("/api/*", 10)]);
    let evidence: Vec<Evidence> = routes(&plan).routes.iter().map(|route| route.evidence).collect();
    assert_eq!(evidence[0], Evidence::UniqueKeys { share: 1.0 });
    // A file is served while it is loaded again.
    assert_eq!(evidence[1], Evidence::SameSize { answers: 36_000 - 200, outdated: 0 });
    let Evidence::Changes { outdated, outdated_left } = evidence[2] else { panic!("{evidence:?}") };
    // A table is loaded each 100 seconds, and found after 50, in the same minute only if it was loaded in the first ten seconds of one:
    // each third time for six of the ten tables, never for the others.
    assert!((outdated - 0.8).abs() < 0.001 && outdated_left == 0.0, "{outdated} {outdated_left}");
    // 36,000 files, 36,000 searches and every other table, against 10 loads of each file and all tables.
    let (before, after) = (36_000.0 + 36_000.0 + 3_600.0, 2_000.0 + 36_000.0 + 7_200.0);
    assert!(
        (routes(&plan).loads_saved - (1.0 - after / before)).abs() < 1e-3,
        "{}",
        routes(&plan).loads_saved
    );
    // The figures of the plan are those of the cache with its routes.
    let chosen = plan.recommendation.as_ref().expect("a cache");
    assert!((chosen.point.load_ratio - after / 79_200.0).abs() < 1e-3, "{}", chosen.point.load_ratio);
    assert_eq!(chosen.age_max_ns, HOUR_NS + 10 * SECOND_NS);
}

#[test]
fn route_that_pushes_out_nothing_is_stored_like_the_others() {
    let plan = planned(&site(), &testing::options());
    assert_eq!(ttls(&plan), [("/static/*", 3_600), ("/api/*", 10)]);
}

#[test]
fn no_route_has_a_longer_ttl_than_stated() {
    let stated = |staleness, ttls| PlanOptions { ttls, staleness, ..tight() };
    let ten_minutes = Duration::from_mins(10);
    for options in [
        stated(Some(Duration::from_secs(70)), vec![]),
        stated(None, vec![TtlOption::Fixed(Duration::from_mins(1))]),
    ] {
        assert_eq!(ttls(&planned(&site(), &options)), [], "{options:?}");
    }
    // Files have ten minutes, and searches push them out; the tables have less, and the longer one saves nothing.
    for options in [stated(Some(ten_minutes), vec![]), stated(None, vec![TtlOption::Fixed(ten_minutes)])] {
        let plan = planned(&site(), &options);
        assert_eq!(ttls(&plan), [("/search", 0), ("/api/*", 10)], "{options:?}");
    }
}

#[test]
fn route_with_changes_now_and_then_keeps_the_ttl_of_the_plan() {
    // One of 50 requests finds another size than the one before.
    let changing = site().replace("/static/7.css HTTP/1.1\" 200 10007", "/static/7.css HTTP/1.1\" 200 9");
    assert_ne!(changing, site());
    assert_eq!(ttls(&planned(&changing, &testing::options()))[0], ("/static/*", 3_600));
    let mut lines = String::new();
    for (n, line) in site().lines().filter(|line| line.contains("/static/")).enumerate() {
        let bytes = if n / 200 % 50 == 0 { "77" } else { "10" };
        let _ = writeln!(lines, "{}", line.replacen(" 200 10", &format!(" 200 {bytes}"), 1));
    }
    assert_eq!(ttls(&planned(&lines, &testing::options())), []);
}

#[test]
fn log_without_sizes_or_with_lifetimes_has_no_routes() {
    let without_sizes: String = site()
        .lines()
        .map(|line| {
            line.split_once("\" 200 ").map_or(String::new(), |(start, _)| format!("{start}\" 200 -\n"))
        })
        .collect();
    let entries = PlanOptions { memory: Some(Capacity::Entries(10_000)), ..testing::options() };
    assert_eq!(ttls(&planned(&without_sizes, &entries)), []);
    let mut lines = String::new();
    for n in 0..20_000 {
        let _ = writeln!(
            lines,
            r#"{{"ts":{}.5,"method":"GET","uri":"/static/{}","status":200,"body_bytes_sent":900,"cache_control":"max-age=60"}}"#,
            1_760_000_000 + n,
            n % 100
        );
    }
    assert_eq!(ttls(&planned(&lines, &testing::options())), []);
    let undeclared = lines.replace("max-age=60", "-");
    assert_eq!(ttls(&planned(&undeclared, &testing::options())), [("/static/*", 3_600)]);
}

#[test]
fn sample_of_a_long_log_has_its_routes() {
    let mut builder = TraceBuilder::new(usize::MAX, 1);
    for n in 0..4_000_u32 {
        let route = ["a", "b", "c"][n as usize % 3];
        builder.push(&NewRequest::read(u64::from(n) + 1, format!("/{route}/x{}", n % 1_000).as_bytes()));
    }
    let trace = builder.finish();
    assert_eq!(trace.routes().iter().map(|name| &**name).collect::<Vec<_>>(), ["/a/*", "/b/*", "/c/*"]);
    let sample = trace.sample(4);
    assert_eq!(sample.routes(), trace.routes());
    let of = |trace: &Trace| {
        let mut counts = [0; 4];
        trace.requests().iter().for_each(|request| counts[usize::from(request.route())] += 1);
        counts
    };
    assert_eq!(of(&trace), [0, 1_334, 1_333, 1_333]);
    let [other, a, b, c] = of(&sample);
    assert!(other == 0 && [a, b, c].iter().all(|count| (300..370).contains(count)), "{:?}", of(&sample));
}

#[test]
fn routes_are_those_that_a_configuration_can_name() {
    let name = |key: &str| {
        let mut name = Vec::new();
        write_name(key.as_bytes(), &mut name).then(|| String::from_utf8_lossy(&name).into_owned())
    };
    for (key, expected) in [
        ("/", Some("/")),
        ("/search?q=a/b", Some("/search")),
        ("/static/app.js?v=1", Some("/static/*")),
        ("/~user/a", Some("/~user/*")),
        ("example.org /static/a", Some("example.org /static/*")),
        ("[::1] /static/a", None),
        ("/42/edit", None),
        ("/%2e/a", None),
        ("/../a", None),
        ("//a", None),
        ("/sp\"ace/x", None),
        ("/h\u{e4}/x", None),
        ("key", None),
        ("", None),
    ] {
        assert_eq!(name(key).as_deref(), expected, "{key}");
    }
    assert_eq!(name(&format!("/{}/x", "a".repeat(98))), None);
}

#[test]
fn names_beyond_the_bound_are_none_of_the_routes() {
    let mut names = RouteNames::default();
    let number = |names: &mut RouteNames, n: usize| names.number(format!("/page{n}x/a").as_bytes());
    for n in 0..NAMES_MAX {
        assert_eq!(usize::from(number(&mut names, n)), n + 1);
    }
    assert_eq!((number(&mut names, NAMES_MAX), number(&mut names, 3)), (0, 4));
}
