//! `plan`: from an access log to a `[cache]` block.

mod page;
mod verify;

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write},
    process::Stdio,
};

use flate2::{Compression, write::GzEncoder};
use serde_json::Value;

use crate::support::{ProgramOutput, Sandbox};

/// Two minutes of a server: five pages, one after another, a request every two seconds; times of loads, and a scanner now and then.
fn small_log() -> String {
    let mut log = String::new();
    for n in 0..60 {
        let (minute, second) = (n / 30, n % 30 * 2);
        let (page, bytes) = (n % 5, 2_000 + n % 5);
        line(
            &mut log,
            &format!("13:0{minute}:{second:02}"),
            &format!("GET /page/{page} HTTP/1.1"),
            200,
            bytes,
        );
        if n % 20 == 0 {
            line(&mut log, &format!("13:0{minute}:{second:02}"), "POST /xmlrpc.php HTTP/1.1", 405, 9);
        }
    }
    log
}

/// A line of the Combined Log Format.
fn line(log: &mut String, time: &str, request: &str, status: u16, bytes: usize) {
    let _ = writeln!(
        log,
        r#"203.0.113.9 - - [10/Oct/2025:{time} +0000] "{request}" {status} {bytes} "-" "curl/8""#
    );
}

fn plan(sandbox: &Sandbox, arguments: &[&str]) -> ProgramOutput {
    let output = sandbox.stockade(&[&["plan"], arguments].concat());
    assert_eq!(output.code, 0, "{}", output.stderr);
    output
}

/// A text in one line.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn json(sandbox: &Sandbox, arguments: &[&str]) -> Value {
    let output = plan(sandbox, &[arguments, &["--format", "json"]].concat());
    serde_json::from_str(&output.stdout).expect("one JSON object")
}

/// Runs `plan -` with this on its standard input.
fn piped(
    sandbox: &Sandbox,
    arguments: &[&str],
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Piped {
    let mut child = sandbox
        .command()
        .args(["plan", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = io::BufWriter::new(child.stdin.take().expect("a pipe"));
    write(&mut input).and_then(|()| input.flush()).expect("the program reads all of it");
    drop(input);
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0;
    // The output fits into the pipe.
    while child.try_wait().expect("a child").is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
        peak_kib = peak.and_then(|kib| kib.trim().parse().ok()).unwrap_or(peak_kib);
        std::thread::yield_now();
    }
    Piped {
        output: ProgramOutput::of(child.wait_with_output().expect("it has ended")),
        peak_mib: peak_kib >> 10,
    }
}

struct Piped {
    output: ProgramOutput,
    /// The greatest resident memory.
    peak_mib: u64,
}

#[test]
fn answer_comes_first_and_the_block_last() {
    let sandbox = Sandbox::new();
    let log = sandbox.file("access.log", &small_log());
    let output = plan(&sandbox, &[&log, "--memory", "1MiB", "--origin-latency", "100ms", "--warmup", "0"]);
    let text = words(&output.stdout);
    // Each page is loaded when it is requested first, and once more after its ttl of a minute: 13 loads in 119 seconds, 7 in a minute.
    let facts = "Cache size 1MiB of memory, with the eviction policy sieve \
         Time to live (ttl) 60s; then up to 10s more, while a new response is loaded (swr) \
         Origin load, warm cache 0.12 requests a second in the busiest minute, 0.11 on average; without a warm-up \
         Origin load, empty cache 0.12 requests a second in the worst minute, if a restart comes just before it \
         Another size twice the size saves nothing; half the size adds nothing \
         Hit ratio 79.4 %; no answer is older than 70s. ";
    assert!(text.starts_with(&format!("{facts}{log}: 63 requests for 6 keys in ")), "{text}");
    let loads =
        " - No cache stores the responses to 4.8 % of the requests: 3 with another method than GET or HEAD. ";
    assert!(text.contains(loads), "{text}");
    let block = "\n[cache]\nstrategy = \"swr\"\nttl      = \"60s\"\nswr      = \"10s\"\nlimit    = { bytes = \"1MiB\", policy = \"sieve\" }\n";
    assert!(output.stdout.ends_with(block), "{}", output.stdout);
    assert_eq!(output.stderr, "format: clf\n");

    let markdown = plan(&sandbox, &[&log, "--format", "md", "--sizes", "1,5", "--policy", "lru"]).stdout;
    assert!(markdown.contains(&format!("```toml\n{}", "[cache]\n")), "{markdown}");
    assert!(markdown.contains("| size | lru |\n|---|---:|\n| 1 entry | 0.0 |\n| 5 entries |"), "{markdown}");
}

#[test]
fn json_has_the_shape_of_the_contract() {
    let sandbox = Sandbox::new();
    let log = sandbox.file("access.log", &(small_log() + "not a line of it\n"));
    let plan = json(&sandbox, &[&log, "--policy", "lru,belady", "--ttl", "10s,1m", "--sizes", "64KiB,1MiB"]);
    assert_eq!((&plan["requests"], &plan["bad_lines"], &plan["keys"]), (&63.into(), &1.into(), &6.into()));
    let recommendation = &plan["recommendation"];
    assert_eq!(recommendation["cache"]["ttl"], "60s");
    assert_eq!(recommendation["cache"]["limit"]["policy"], "lru");
    assert!(recommendation["cache"]["limit"]["bytes"].is_u64(), "{recommendation}");
    assert_eq!(recommendation["stale_max_s"], 70.0);
    for ratio in ["hit_ratio", "source_loads_per_s_max"] {
        assert!(recommendation[ratio].as_f64().is_some_and(|value| value > 0.0), "{ratio}: {recommendation}");
    }
    let curves = plan["curves"].as_array().expect("curves");
    let of: Vec<_> = curves.iter().map(|curve| (curve["policy"].as_str(), curve["ttl_s"].as_f64())).collect();
    let expected = [("lru", 10.0), ("lru", 60.0), ("belady", 10.0), ("belady", 60.0)];
    assert_eq!(of, expected.map(|(policy, ttl_s)| (Some(policy), Some(ttl_s))));
    for point in curves.iter().flat_map(|curve| curve["points"].as_array().expect("points")) {
        assert!(point["bytes"] == 65_536 || point["bytes"] == 1 << 20, "{point}");
        assert!(point["miss_ratio"].as_f64().is_some_and(|ratio| (0.0..=1.0).contains(&ratio)), "{point}");
        assert_eq!(point["exact"], true);
    }
    // The recommendation gives what its curve says at the same size.
    let chosen = &recommendation["cache"]["limit"]["bytes"];
    let points = curves[1]["points"].as_array().expect("points");
    let point = points.iter().find(|point| point["bytes"] == *chosen).expect("it is one of the sizes");
    let hits = 1.0 - point["miss_ratio"].as_f64().expect("a ratio");
    assert_eq!(Value::from(hits), recommendation["hit_ratio"]);

    let entries = json(&sandbox, &[&log, "--memory", "4", "--ttl", "never"]);
    assert_eq!(entries["recommendation"]["cache"]["limit"]["entries"], 4);
    assert!(entries["recommendation"]["stale_max_s"].is_null() && entries["curves"][0]["ttl_s"].is_null());
    assert_eq!(entries["curves"].as_array().map(Vec::len), Some(9), "six that ship, and three");
    let all = json(&sandbox, &[&log, "--policy", "all"]);
    assert_eq!(all["curves"].as_array().map(Vec::len), Some(stockade_plan::POLICIES.len()));
}

#[test]
fn block_is_accepted_in_an_experiment() {
    let sandbox = Sandbox::new();
    let log = sandbox.file("access.log", &small_log());
    let one = sandbox.file("one.log", small_log().lines().next().expect("a line"));
    let arguments: [&[&str]; 6] = [
        &[&log],
        &[&log, "--ttl", "never"],
        &[&log, "--staleness", "5s"],
        &[&log, "--memory", "100"],
        &[&log, "--ttl", "1s", "--staleness", "1s", "--policy", "lfu"],
        // Nothing is requested again.
        &[&one],
    ];
    for arguments in arguments {
        let text = plan(&sandbox, arguments).stdout;
        let block = &text[text.find("[cache]\n").expect("a block")..];
        let experiment = format!(
            "title = \"A plan\"\n[target]\nkind = \"engine\"\n[origin]\nsource = \"simulated:50\"\nlatency = \"5ms\"\n{block}\
             [load]\nrate = \"10/s\"\nduration = \"1s\"\n"
        );
        let file = sandbox.file("plan.toml", &experiment);
        let check = sandbox.stockade(&["check", &file]);
        assert_eq!(check.code, 0, "{block}\n{}", check.stderr);
    }
}

#[test]
fn experiment_that_confirms_a_plan_is_accepted() {
    let sandbox = Sandbox::new();
    let log = sandbox.file("access.log", &small_log());
    let site = sandbox.file("site.log", &site());
    for (directory, log, arguments) in
        [("a", &log, &["--memory", "1MiB"][..]), ("b", &log, &["--ttl", "never"]), ("c", &site, &TIGHT)]
    {
        let output = plan(&sandbox, &[&[log.as_str(), "--experiment", directory], arguments].concat());
        let file = format!("{directory}/plan.toml");
        assert!(
            output.stderr.ends_with(&format!("to confirm the plan: stockade run {file}\n")),
            "{}",
            output.stderr
        );
        assert!(output.stdout.contains("\n[cache]\n"), "{}", output.stdout);
        let check = sandbox.stockade(&["check", &file]);
        assert_eq!(check.code, 0, "{}", check.stderr);
        // Four caches, with three routes and the rest of the requests each.
        let routes =
            fs::read_to_string(sandbox.path().join(&file)).expect("written").matches("path ").count();
        assert_eq!(
            routes,
            if directory == "c" {
                16
            } else if directory == "a" {
                4
            } else {
                0
            }
        );
    }
    let occupied = sandbox.file("occupied", "");
    let refused = sandbox.stockade(&["plan", &log, "--experiment", &occupied]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("occupied: cannot write the experiment: "), "{}", refused.stderr);
}

/// Files that never change, tables that change each minute, and searches that are not repeated, for two hours.
fn site() -> String {
    let mut log = String::new();
    for n in 0..7_200_usize {
        let time = format!("{:02}:{:02}:{:02}", n / 3_600, n / 60 % 60, n % 60);
        line(&mut log, &time, &format!("GET /static/{}.css HTTP/1.1", n % 100), 200, 10_000 + n % 100);
        line(&mut log, &time, &format!("GET /search?q={n} HTTP/1.1"), 200, 2_000);
        if n % 5 == 0 {
            line(&mut log, &time, &format!("GET /api/{} HTTP/1.1", n / 5 % 10), 200, 500 + n / 60);
        }
    }
    log
}

/// Room for the files and the tables of the [site], and too little for the searches between two requests for a file.
const TIGHT: [&str; 4] = ["--memory", "1300KiB", "--policy", "lru"];

#[test]
fn routes_with_a_ttl_of_their_own_are_a_configuration_of_the_proxy() {
    let sandbox = Sandbox::new();
    let log = sandbox.file("site.log", &site());
    let text = plan(&sandbox, &[&[log.as_str()], &TIGHT[..]].concat()).stdout;
    let block = &text[text.find("\n[[route]]").expect("routes")..];
    let settings: Vec<&str> =
        block.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let expected = [
        "[[route]]",
        "path         = \"/search\"",
        "default_ttl  = \"0s\"  # not stored",
        "[[route]]",
        "path         = \"/static/*\"",
        "default_ttl  = \"1h\"",
        "[[route]]",
        "path         = \"/api/*\"",
        "default_ttl  = \"10s\"",
        "[[route]]",
        "path         = \"/*\"",
        "[cache]",
    ];
    assert_eq!(settings[..12], expected, "{text}");
    let proxy = sandbox.file("proxy.toml", &format!("[[origin]]\nurl = \"http://127.0.0.1:9\"\n{block}"));
    let check = sandbox.stockade(&["proxy", "--config", &proxy, "--check"]);
    assert_eq!(check.code, 0, "{}", check.stderr);

    let plan = json(&sandbox, &[&[log.as_str()], &TIGHT[..]].concat());
    let routes = &plan["recommendation"]["routes"];
    assert_eq!(
        routes["blocks"][1]["settings"],
        serde_json::json!({ "path": "/static/*", "default_ttl": "1h" })
    );
    assert_eq!(routes["blocks"][1]["evidence"]["outdated"], 0);
    assert!(routes["loads_saved"].as_f64().is_some_and(|saved| saved > 0.3), "{routes}");
    // With a stated ttl none is longer.
    let stated = json(&sandbox, &[&[log.as_str(), "--ttl", "1m"], &TIGHT[..]].concat());
    assert!(stated["recommendation"]["routes"].is_null(), "{stated}");
}

#[test]
fn several_files_standard_input_and_gzip_are_one_log() {
    let sandbox = Sandbox::new();
    let log = small_log();
    let whole = sandbox.file("access.log", &log);
    let (half, _) = log.match_indices('\n').nth(30).expect("a line");
    let (first, second) = (sandbox.file("a.log", &log[..=half]), sandbox.file("b.log", &log[half + 1..]));
    let packed = sandbox.path().join("access.log.gz");
    let mut encoder = GzEncoder::new(fs::File::create(&packed).expect("writable"), Compression::fast());
    encoder.write_all(log.as_bytes()).and_then(|()| encoder.finish().map(drop)).expect("written");

    let expected = json(&sandbox, &[&whole]);
    assert_eq!(json(&sandbox, &[&first, &second]), expected);
    // A log that was rotated may come in any order.
    assert_eq!(json(&sandbox, &[&second, &first]), expected);
    assert_eq!(json(&sandbox, &[packed.to_str().expect("UTF-8")]), expected);
    let Piped { output, .. } =
        piped(&sandbox, &["--format", "json"], |input| input.write_all(log.as_bytes()));
    assert_eq!((output.code, serde_json::from_str(&output.stdout).ok()), (0, Some(expected)));
}

#[test]
fn bad_usage_and_bad_logs_are_refused_with_one_message() {
    let sandbox = Sandbox::new();
    let log = sandbox.file("access.log", &small_log());
    let empty = sandbox.file("empty.log", "");
    let mut posts = String::new();
    (0..3).for_each(|_| line(&mut posts, "13:00:00", "POST /form HTTP/1.1", 200, 12));
    let posts = sandbox.file("posts.log", &posts);
    let rubbish = sandbox.path().join("rubbish.bin");
    let bytes: Vec<u8> = (0..20_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&rubbish, bytes).expect("writable");
    let rubbish = rubbish.to_str().expect("UTF-8");
    let cases: [(&[&str], &[&str]); 20] = [
        (&[], &["<LOG>"]),
        (&["missing.log"], &["missing.log", "No such file"]),
        (&["."], &["it is a folder", "name a file"]),
        (&[&empty], &["empty.log", "it is empty"]),
        (&[rubbish], &["rubbish.bin", "binary", "oracle-general"]),
        (&[&posts], &["posts.log", "3 lines, 3 other requests", "--status"]),
        (&[&log, "--input", "clff"], &["`clff`", "did you mean `clf`?"]),
        (&[&log, "--input", "twitter"], &["access.log:1", "63 of 63 lines", "`twitter`"]),
        (&[&log, "--policy", "seive"], &["unknown policy `seive`", "did you mean `sieve`?"]),
        (&[&log, "--memory", "0"], &["--memory", "at least 1"]),
        (&[&log, "--memory", "10MB/s"], &["--memory", "10MB/s"]),
        (&[&log, "--memory", "1KiB"], &["--memory", "no response fits", "KiB"]),
        (&[&log, "--sizes", "64MiB,1B"], &["--sizes", "no response fits"]),
        (&[&log, "--sizes", "1000,64MiB"], &["1000", "64MiB", "one unit"]),
        (&[&log, "--sizes", "10%,64MiB", "--memory", "1000"], &["--memory", "one unit"]),
        (&[&log, "--ttl", "60"], &["`60` has no unit", "`60s`"]),
        (&[&log, "--staleness", "5"], &["`5` has no unit"]),
        (&[&log, "--sizes", "0%"], &["--sizes", "above 0 %"]),
        (&[&log, "--status", "1000"], &["--status", "1000"]),
        (&[&log, "--format", "htm"], &["'htm'", "'html'"]),
    ];
    for (arguments, words) in cases {
        let output = sandbox.stockade(&[&["plan"], arguments].concat());
        output.assert_refused(2, words);
        assert_eq!(output.stderr.matches("error: ").count(), 1, "{arguments:?}: {}", output.stderr);
    }
}

/// Requests of scanners, as nginx and Apache log them.
#[test]
fn log_of_attacks_is_answered() {
    let sandbox = Sandbox::new();
    let mut log = String::new();
    for (request, status) in [
        ("GET / HTTP/1.1", 200),
        (r"\x16\x03\x01\x02\x00\x01\x00\x01\xFC\x03\x03\x9D\xC8", 400),
        ("-", 400),
        ("", 400),
        ("GET /.env HTTP/1.1", 404),
        (r"GET /index.php?s=/Index/\x5Cthink\x5Capp/invokefunction&vars[1][]=<?php HTTP/1.1", 404),
        ("PRI * HTTP/2.0", 400),
        ("CONNECT example.org:443 HTTP/1.1", 400),
        ("GET http://example.org/proxy HTTP/1.1", 404),
        (r"\x03\x00\x00/*\xE0\x00\x00\x00\x00\x00Cookie: mstshash=Administr", 400),
        ("POST /cgi-bin/.%2e/.%2e/.%2e/bin/sh HTTP/1.1", 400),
        ("SSH-2.0-Go", 400),
        (r"GET /${jndi:ldap://203.0.113.9/a}\x22 HTTP/1.1", 404),
        ("GET /\u{fffd}\u{202e} HTTP/1.1", 404),
        ("OPTIONS sip:nm SIP/2.0", 400),
        ("GET / HTTP/1.1", 200),
    ] {
        line(&mut log, "13:00:00", request, status, 1_200);
    }
    line(&mut log, "13:00:01", &format!("GET /{} HTTP/1.1", "A".repeat(200_000)), 414, 177);
    let file = sandbox.file("attacks.log", &log);
    let output = plan(&sandbox, &[&file]);
    assert!(
        output.stderr.contains("left out: ") && output.stderr.contains("more than 64 KiB"),
        "{}",
        output.stderr
    );
    let plan = json(&sandbox, &[&file]);
    assert_eq!((&plan["requests"], &plan["keys"], &plan["bad_lines"]), (&8.into(), &7.into(), &1.into()));
    // The second `GET /` is a hit, so the cache has to be large enough to store it.
    let hit_ratio = plan["recommendation"]["hit_ratio"].as_f64().expect("a ratio");
    assert!((hit_ratio - 1.0 / 8.0).abs() < 1e-9, "{hit_ratio}");
    // A long URL alone is not a log, and its text is not in the message.
    let alone = sandbox.file("alone.log", &"A".repeat(1_000_000));
    let refused = sandbox.stockade(&["plan", &alone]);
    refused.assert_refused(2, &["alone.log"]);
    assert!(refused.stderr.len() < 2_000, "{} bytes", refused.stderr.len());
}

#[test]
fn log_of_one_line_and_times_that_run_backwards_are_answered() {
    let sandbox = Sandbox::new();
    let log = small_log();
    let one = sandbox.file("one.log", log.lines().next().expect("a line"));
    let output = plan(&sandbox, &[&one]);
    let text = words(&output.stdout);
    assert!(text.contains(" Hit ratio 0.0 %; "), "{text}");
    assert!(text.contains("one.log: 1 request for 1 key in 1s, "), "{text}");
    assert!(output.stdout.contains("\nDo not cache this: no key is requested twice. "), "{}", output.stdout);

    let reversed: Vec<&str> = log.lines().rev().collect();
    let reversed = sandbox.file("reversed.log", &(reversed.join("\n") + "\n"));
    let output = plan(&sandbox, &[&reversed]);
    assert!(
        output.stdout.contains("- The lines were sorted by time: 62 of them were behind"),
        "{}",
        output.stdout
    );
    let forwards = sandbox.file("forwards.log", &log);
    assert_eq!(
        json(&sandbox, &[&reversed])["recommendation"],
        json(&sandbox, &[&forwards])["recommendation"]
    );
}

#[test]
fn plan_without_a_cache_to_recommend_says_why() {
    let sandbox = Sandbox::new();
    let log = sandbox.file("access.log", &small_log());
    let text = plan(&sandbox, &[&log, "--policy", "fifo,belady"]).stdout;
    assert!(text.starts_with("No cache to recommend, since no policy of these ships with it: "), "{text}");
    let refused = sandbox.stockade(&["plan", &log, "--ttl", "2s,3s", "--staleness", "1s"]);
    assert_eq!(refused.code, 2);
    let message = "error: every --ttl is longer than --staleness: give a shorter one, or leave --ttl out\n";
    assert!(refused.stderr.ends_with(message), "{}", refused.stderr);
    let plan = json(&sandbox, &[&log, "--ttl", "2s,2s", "--staleness", "2s", "--policy", "lru,lru"]);
    assert!(plan["recommendation"]["cache"].is_object(), "{plan}");
    // What is named twice is computed once.
    assert_eq!(plan["curves"].as_array().map(Vec::len), Some(1));
}

#[test]
fn keys_follow_the_rules() {
    let sandbox = Sandbox::new();
    let mut log = String::new();
    for (n, url) in ["/a?utm=1&id=1", "/a?utm=2&id=1", "/a?id=1", "/a?id=2"].into_iter().enumerate() {
        let _ = writeln!(
            log,
            r#"{{"time":"2025-10-10T13:00:0{n}Z","request":"GET {url} HTTP/1.1","status":{},"host":"h{}","body_bytes_sent":500}}"#,
            if n == 3 { 500 } else { 200 },
            n % 2
        );
    }
    let file = sandbox.file("access.json", &log);
    for (arguments, keys) in [
        (&["--by-host"][..], 4),
        (&[], 4),
        (&["--drop-parameters", "utm"], 2),
        (&["--drop-parameters", "utm", "--by-host"], 3),
        (&["--drop-parameters", "all"], 1),
        (&["--status", "200,500"], 4),
        (&["--status", "200"], 3),
        (&["--status", "500"], 1),
        (&["--status", "200,500", "--drop-parameters", "all"], 1),
    ] {
        let plan = json(&sandbox, &[&[file.as_str()], arguments].concat());
        assert_eq!(plan["keys"], keys, "{arguments:?}");
    }
}

/// A log of 2 pages requested 100 times each, with other requests between them.
fn mixed_log() -> String {
    let mut log = String::new();
    let mut add = |n: u32, part: u32, method: &str, url: &str, status: u16, cache_control: &str| {
        let _ = writeln!(
            log,
            r#"{{"ts":{}.{part},"method":"{method}","uri":"{url}","status":{status},"body_bytes_sent":900,"cache_control":"{cache_control}"}}"#,
            1_760_100_000 + n
        );
    };
    for n in 0..100 {
        add(n, 1, "GET", "/a", 200, "-");
        add(n, 2, "GET", "/me", 200, "private, no-store");
        add(n, 3, "GET", "/login", 302, "-");
        add(n, 4, "GET", "/gone", 404, "-");
        if n % 10 == 5 {
            add(n, 5, "POST", "/a", 200, "-");
        }
    }
    log
}

/// The plan is for the cache in the block: of 410 requests 100 are private and 100 redirects, which are loads; ten writes are
/// loads as well, and after each the page is loaded again.
#[test]
fn methods_statuses_and_cache_control_decide_what_is_stored() {
    let sandbox = Sandbox::new();
    let log = sandbox.file("mixed.json", &mixed_log());
    let arguments =
        [log.as_str(), "--memory", "1MiB", "--ttl", "1h", "--warmup", "0", "--origin-latency", "0s"];
    let plan = json(&sandbox, &arguments);
    let recommendation = &plan["recommendation"];
    let hits = recommendation["hit_ratio"].as_f64().expect("a ratio");
    assert!((hits - (89.0 + 99.0) / 410.0).abs() < 1e-9, "{hits}");
    let loads = recommendation["loads_per_request"].as_f64().expect("a ratio");
    assert!((loads - (11.0 + 1.0 + 200.0 + 10.0) / 410.0).abs() < 1e-9, "{loads}");
    assert_eq!(recommendation["route"], serde_json::json!({ "ttl": "1h", "negative_ttl": "1h" }));
    assert_eq!(
        (&plan["not_storable"], &plan["not_found"], &plan["writes"]),
        (
            &serde_json::json!({ "methods": 10, "cache_control": 100, "statuses": 100 }),
            &100.into(),
            &10.into()
        )
    );
    let text = self::plan(&sandbox, &arguments).stdout;
    let route = "\n[[route]]\nttl          = \"1h\"  # in place of what the origin declares\nnegative_ttl = \"1h\"  # 404 and 410\n\n[cache]\n";
    assert!(text.contains(route), "{text}");
    // The block is one of the proxy's configuration.
    let block = &text[text.find("\n[[route]]").expect("a route")..];
    let proxy = sandbox.file("proxy.toml", &format!("[[origin]]\nurl = \"http://127.0.0.1:9\"\n{block}"));
    let check = sandbox.stockade(&["proxy", "--config", &proxy, "--check"]);
    assert_eq!(check.code, 0, "{}", check.stderr);
}

#[test]
fn pattern_of_the_server_names_the_fields() {
    let sandbox = Sandbox::new();
    let pattern = r"$msec|$request_method|$uri|$status|$body_bytes_sent|$upstream_response_time";
    let mut log = String::new();
    (0..20).for_each(|n| {
        let _ = writeln!(log, "17601{n:05}.125|GET|/{}|200|700|0.050", n % 4);
    });
    let file = sandbox.file("own.log", &log);
    let output = plan(&sandbox, &["--input", pattern, &file]);
    let text = words(&output.stdout);
    assert!(text.contains("20 requests for 4 keys in 20s, "), "{text}");
    assert!(output.stdout.contains("- A load takes 50ms, the median of the log."), "{}", output.stdout);
    let trace = sandbox.file("trace.txt", "a\nb\na\nc\na\nb\n");
    let plan = json(
        &sandbox,
        &[
            &trace, "--input", "keys", "--ttl", "never", "--sizes", "1,2,3", "--policy", "lru", "--warmup",
            "0",
        ],
    );
    let points = plan["curves"][0]["points"].as_array().expect("points");
    let misses: Vec<_> =
        points.iter().map(|point| (6.0 * point["miss_ratio"].as_f64().unwrap()).round()).collect();
    assert_eq!(misses, [6.0, 4.0, 3.0]);
}

#[test]
fn closed_pipe_ends_it_without_an_error() {
    let sandbox = Sandbox::new();
    let log = sandbox.file("access.log", &small_log());
    for format in ["text", "html", "md", "json"] {
        let mut child = sandbox
            .command()
            .args(["plan", &log, "--format", format, "--policy", "all"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), errors.as_str()), (Some(0), "format: clf\n"), "{format}");
    }
}

#[test]
fn sampled_points_are_within_half_a_point_of_exact_ones() {
    let sandbox = Sandbox::new();
    // As libCacheSim's traces: second, key, size, position of the next request. Each octave of the keys is as popular as another.
    let mut random = 1_u64;
    let mut trace = Vec::new();
    for n in 0..1_200_000_u32 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let octave = 1 << ((random >> 32) % 19);
        let key = octave + (random >> 40) % octave;
        trace.extend_from_slice(&(n / 1_000).to_le_bytes());
        trace.extend_from_slice(&key.to_le_bytes());
        trace.extend_from_slice(&500_u32.to_le_bytes());
        trace.extend_from_slice(&(-1_i64).to_le_bytes());
    }
    let path = sandbox.path().join("trace.oracleGeneral");
    fs::write(&path, trace).expect("writable");
    let path = path.to_str().expect("UTF-8");
    let arguments = [path, "--ttl", "never", "--policy", "lru,s3-fifo", "--sizes", "0.5%,1%,2%,4%"];
    let sampled = json(&sandbox, &arguments);
    let exact = json(&sandbox, &[&arguments[..], &["--exact"]].concat());
    for curve in 0..2 {
        let points = |plan: &Value| plan["curves"][curve]["points"].as_array().expect("points").clone();
        let (sampled, exact) = (points(&sampled), points(&exact));
        // The smallest size and the middle one are checked.
        assert_eq!([0, 1, 2, 3].map(|point| sampled[point]["exact"] == true), [true, false, true, false]);
        for (sampled, exact) in sampled.iter().zip(&exact) {
            let ratio = |point: &Value| point["miss_ratio"].as_f64().expect("a ratio");
            assert!((ratio(sampled) - ratio(exact)).abs() < 0.005, "{sampled} {exact}");
            assert_eq!(exact["exact"], true);
        }
    }
    assert_eq!(sampled["recommendation"], exact["recommendation"]);
    let text = words(&plan(&sandbox, &arguments).stdout);
    let note = "- Points with ~ are from a sample of the keys; where they were checked with all requests they are off by 0.";
    assert!(text.contains(note), "{text}");
}

/// Requests are kept, at 16 bytes each, and numbers of keys. The text of the log is not.
#[test]
fn memory_is_a_fraction_of_the_log() {
    let sandbox = Sandbox::new();
    let padding = "x".repeat(600);
    let run = |lines: u32| {
        let Piped { output, peak_mib } = piped(&sandbox, &["--policy", "lru"], |input| {
            for n in 0..lines {
                let (hour, minute, second) = (n / 360_000 % 24, n / 6_000 % 60, n / 100 % 60);
                writeln!(
                    input,
                    r#"203.0.113.9 - - [10/Oct/2025:{hour:02}:{minute:02}:{second:02} +0000] "GET /{n}/{padding} HTTP/1.1" 200 1200"#
                )?;
            }
            Ok(())
        });
        assert_eq!(output.code, 0);
        let about =
            format!("requests for {} keys in ", stockade_model::units::format_count(u64::from(lines)));
        assert!(words(&output.stdout).contains(&about), "{}", output.stdout);
        peak_mib
    };
    // 72 and 144 MB, each line a URL of its own.
    let (half, whole) = (run(100_000), run(200_000));
    assert!(half > 4 && whole < 72, "{half} MiB, {whole} MiB with twice as many lines");
}

#[test]
fn a_cache_block_of_ones_own_runs_beside_the_presets() {
    let sandbox = Sandbox::new();
    let log = sandbox.file("access.log", &small_log());
    let own = sandbox.file(
        "proxy.toml",
        "listen = [\"127.0.0.1:1\"]\n[cache]\nstrategy = \"swr\"\nttl = \"2s\"\nswr = \"1s\"\nlimit = { entries = 3 }\n",
    );
    let chosen = format!("swr,{own}");
    let json = json(&sandbox, &[&log, "--strategies", &chosen]);
    let runs = json["strategies"]["runs"].as_array().expect("two runs");
    assert_eq!((&runs[0]["strategy"], &runs[1]["strategy"]), (&"swr".into(), &own.clone().into()));
    // Each page comes every ten seconds, and a value is fresh for two; three are writes.
    assert_eq!((&runs[1]["outcomes"]["hit"], &runs[1]["source_loads"]), (&0.into(), &63.into()), "{json}");
    assert!(runs[0]["outcomes"]["hit"].as_u64() > Some(20), "{json}");

    for (content, message) in [
        ("[cache]\nttl = \"2\"\n", "line 2, column 7: `2` has no unit"),
        ("[cache]\nstratgy = \"swr\"\n", "did you mean `strategy`?"),
        ("listen = []\n", "there is no [cache] table"),
    ] {
        let own = sandbox.file("wrong.toml", content);
        let output = sandbox.stockade(&["plan", &log, "--strategies", &own]);
        assert_eq!(output.code, 2, "{}", output.stderr);
        assert!(output.stderr.contains(message), "{}", output.stderr);
    }
}

#[test]
fn strategies_run_over_the_log_in_virtual_time() {
    let sandbox = Sandbox::new();
    // A page a second for ten minutes, half of them the same one; that one is requested twice in the sixth minute.
    let lines = (0..600).flat_map(|n| {
        let page = if n % 2 == 0 { 0 } else { n };
        let line = format!(
            "a - - [17/May/2015:10:{:02}:{:02} +0000] \"GET /{page} HTTP/1.1\" 200 500\n",
            n / 60,
            n % 60
        );
        let times = if page == 0 && n / 60 == 5 { 2 } else { 1 };
        std::iter::repeat_n(line, times)
    });
    let log = sandbox.file("access.log", &lines.collect::<String>());
    let arguments = [
        &*log,
        "--ttl",
        "10s",
        "--strategies",
        "simple,fallback",
        "--outage",
        "1m",
        "--origin-model",
        "30ms",
    ];
    let strategies = &json(&sandbox, &arguments)["strategies"];
    assert_eq!((&strategies["requests"], &strategies["outage_s"]), (&630.into(), &60.0.into()));
    let runs = strategies["runs"].as_array().expect("runs");
    let errors = |run: &Value| run["outcomes"]["error"].as_u64().expect("a count");
    let names: Vec<_> = runs.iter().map(|run| run["strategy"].as_str().expect("a name")).collect();
    assert_eq!(names, ["simple", "fallback"]);
    // In the outage fallback has an old answer for the page that is requested again, and none for the others.
    assert!(errors(&runs[0]) > errors(&runs[1]) && errors(&runs[1]) > 0, "{runs:?}");
    assert!(runs[1]["age_max_s"].as_f64().expect("an age") > 10.0);
    let text = words(&plan(&sandbox, &arguments).stdout);
    assert!(text.contains(" Strategies in virtual time: 630 requests of 9m59s, loads take 30ms; the origin fails for the busiest 60s "), "{text}");
    let keys = sandbox.file("keys.txt", "a\nb\na\n");
    let refused = sandbox.stockade(&["plan", &keys, "--input", "keys", "--strategies", "swr"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("the log has no times"), "{}", refused.stderr);
}
