//! `stockade run` with the origin and the proxy as processes of their own.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    os::unix::{fs::symlink, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    proxy::until,
    running::Running,
    support::{Said, Sandbox},
};
use serde_json::Value;
use stockade_services::free_port;

const EXPERIMENT: &str = r#"
title = "New things only"
scaled = ["load.duration", "cache.limit.entries"]
[target]
kind = "proxy"
[origin]
recipe = [{ route = "/a*", random_content = "10kb", stages = [{ at = 0 }], headers = { cache-control = "public, max-age=60" } }]
[cache]
strategy = "simple"
[proxy]
threads = 1
[load]
rate = "100/s"
duration = "20s"
path = "/a"
cache_bust = true
[[arm]]
name = "limited"
cache.limit = { entries = 400, policy = "lrw", reclaim = 0.5, order = "global" }
[[arm]]
name = "roomy"
cache.limit = { bytes = "1GiB" }
[[hypothesis]]
text = "everybody is answered, and the limit holds"
expect = [
    "success == 1.0",
    "limited.proxy.entries.max <= 400",
    "limited.proxy.entries.max < roomy.proxy.entries.max",
    "proxy.rss.max(10s..20s) > 1",
    "source_loads == requests",
]
"#;

/// A tenth of it: 2 s.
fn run(sandbox: &Sandbox, text: &str, more: &[&str]) -> Said {
    let file = sandbox.file("new.toml", text);
    sandbox.stockade(&[&["run", &file, "--scale", "0.1", "--out", "record"], more].concat())
}

#[test]
fn a_run_starts_what_it_takes_and_looks_at_it() {
    let sandbox = Sandbox::new();
    let said = run(&sandbox, EXPERIMENT, &["--format", "json"]);
    // Beside other tests the generator may be late, and says so.
    assert!([0, 98].contains(&said.code), "{}{}", said.stdout, said.stderr);
    let report: Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!(report["hypotheses"][0]["verdict"], "supported", "{report}");
    let arm = &report["arms"]["limited"];
    assert_eq!((&arm["requests"], &arm["status_codes"]["200"]), (&200.into(), &200.into()), "{arm}");
    for role in ["load", "proxy", "origin"] {
        assert!(arm["rss_mib"][role]["max"].as_f64().is_some_and(|mib| mib > 1.0), "{arm}");
        assert!(arm["cpu"][role]["max"].as_f64().is_some(), "{arm}");
    }
    // What does not apply is absent.
    for what in ["audit", "documents", "stores", "amplification"] {
        assert!(arm.get(what).is_none(), "{what}: {arm}");
    }
    let seconds = fs::read_to_string(sandbox.path().join("record/intervals.jsonl")).expect("seconds");
    let first: Value = serde_json::from_str(seconds.lines().next().expect("one")).expect("JSON");
    assert!(first["holds"]["entries"].as_u64().is_some_and(|entries| entries > 0), "{first}");
    let told = fs::read_to_string(sandbox.path().join("record/setup/limited.1/proxy.toml")).expect("a file");
    assert!(told.contains("\"entries\" = 40,") && told.contains("\"threads\" = 1"), "{told}");
    // A record is a report, too.
    let again = sandbox.stockade(&["report", "record", "--format", "html"]);
    assert!(
        again.stdout.contains("memory of the proxy") && again.stdout.contains("entries held"),
        "{again:?}"
    );
    // Had it been killed, its last line might be a part of one.
    let intervals = sandbox.path().join("record/intervals.jsonl");
    let mut seconds = fs::OpenOptions::new().append(true).open(intervals).expect("seconds");
    seconds.write_all(b"{\"test\":\"\",\"arm\":\"limi").expect("there is room");
    let reported = sandbox.stockade(&["report", "record"]);
    assert_eq!(reported.code, 0, "{}", reported.stderr);
    seconds.write_all(b"\n{}\n").expect("there is room");
    sandbox.stockade(&["report", "record"]).assert_refused(1, &["intervals.jsonl", "line "]);
}

#[test]
fn what_cannot_be_started_is_told_with_its_own_words() {
    let sandbox = Sandbox::new();
    for (from, to, words) in [
        ("strategy = \"simple\"", "strategy = \"simpel\"", &["did you mean `simple`?", "new.toml:"][..]),
        ("threads = 1", "thread = 1", &["the proxy did not start; it said:", "unknown key `thread`"]),
        ("random_content", "random_contents", &["the origin did not start; it said:", "random_contents"]),
        ("path = \"/a\"", "path = \"a\"", &["a path begins with `/`"]),
        ("duration = \"20s\"", "", &["for how long?"]),
        ("recipe = [", "recipes = [", &["[origin] has no `recipes`"]),
        ("[[arm]]", "[load]\n[[arm]]", &["new.toml:"]),
    ] {
        let _ = fs::remove_dir_all(sandbox.path().join("record"));
        run(&sandbox, &EXPERIMENT.replacen(from, to, 1), &[]).assert_refused(2, words);
    }
}

/// A run that goes on, and whose first second is on disk.
fn begun(sandbox: &Sandbox, text: &str) -> (Child, PathBuf) {
    let file = sandbox.file("new.toml", text);
    let mut command = sandbox.command();
    let out = sandbox.path().join("record");
    command.args(["run", &file, "--out"]).arg(&out).stdout(Stdio::piped()).stderr(Stdio::piped());
    // As from a terminal, whose signals are for a group of processes.
    command.process_group(0);
    let running = command.spawn().expect("the program starts");
    let is_up = |folder: fs::DirEntry| {
        let said = fs::read_to_string(folder.path().join("proxy.log")).unwrap_or_default();
        said.contains("admin API")
    };
    until(|| fs::read_dir(out.join("setup")).is_ok_and(|folders| folders.flatten().any(is_up)));
    (running, out)
}

#[test]
fn nothing_outlives_a_run_that_is_killed() {
    let sandbox = Sandbox::new();
    let (mut running, out) = begun(&sandbox, EXPERIMENT);
    running.kill().expect("it runs");
    running.wait().expect("it ends");
    until(|| family(&out).is_empty());
}

#[test]
fn an_interrupt_ends_it_all_and_keeps_what_was_measured() {
    let sandbox = Sandbox::new();
    let (running, out) = begun(&sandbox, EXPERIMENT);
    let told = Command::new("kill").args(["-INT", "--", &format!("-{}", running.id())]).status();
    assert!(told.is_ok_and(|told| told.success()));
    let said = Said::of(running.wait_with_output().expect("it ends"));
    assert_eq!(said.code, 98, "{}", said.stderr);
    assert!(family(&out).is_empty());
    let record = fs::read_to_string(out.join("record.json")).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    assert_eq!((&record["interrupted"], &record["schema"]), (&true.into(), &"stockade.record/1".into()));
}

#[test]
fn a_child_that_is_killed_is_told_at_once_and_nothing_is_left() {
    for command in ["proxy", "origin"] {
        let sandbox = Sandbox::new();
        let (running, out) = begun(&sandbox, EXPERIMENT);
        let child = family(&out).into_iter().find(|(_, told)| told.contains(&format!("\0{command}\0")));
        kill(child.expect("it runs").0, "KILL");
        let said = Said::of(running.wait_with_output().expect("it ends"));
        said.assert_refused(1, &[&format!("the {command} has ended: signal: 9")]);
        assert!(family(&out).is_empty());
        let record = fs::read_to_string(out.join("record.json")).expect("a record");
        let record: Value = serde_json::from_str(&record).expect("JSON");
        assert_eq!(&record["interrupted"], &true);
        let reported = sandbox.stockade(&["report", "record"]);
        assert_eq!(reported.code, 0, "{}", reported.stderr);
    }
}

/// Its admin's pages are another listener's: they tell what it has answered while it refuses everybody.
#[test]
fn an_origin_may_be_gone_until_the_end() {
    let sandbox = Sandbox::new();
    let stages = "stages = [{ at = 0 }, { at = \"10s\", fault = \"refuse\" }]";
    let text = EXPERIMENT.replace("stages = [{ at = 0 }]", stages);
    let said = run(&sandbox, &text, &["--format", "json"]);
    assert!([98, 99].contains(&said.code), "{}{}", said.stdout, said.stderr);
    let report: Value = serde_json::from_str(&said.stdout).expect("JSON");
    let arm = &report["arms"]["roomy"];
    let count = |what: &str| arm[what].as_u64().expect("a count");
    assert!((1..200).contains(&count("failed")) && count("requests") == 200, "{arm}");
}

/// Neither a typo in a file that is read last, nor a probe that nobody would ever send, is found out when hours have gone.
#[test]
fn what_is_wrong_with_any_file_is_told_before_anything_runs() {
    let sandbox = Sandbox::new();
    let tests = "[[test]]\nname = \"a\"\n[[test]]\nname = \"b\"\n";
    for (test_b, words) in [
        ("load.path = \"/b\"\norigin.recipe = \"none.json\"", "none.json: No such file"),
        ("load = { connections = 1, duration = \"20s\", urls = { file = \"none.txt\" } }", "none.txt"),
        ("load = { replay = { log = \"none.log\" }, duration = \"20s\" }", "none.log"),
        ("preflight.probes = [{ at = \"20s\", path = \"/\", status = 200 }]", "the load is over after 20s"),
    ] {
        let text =
            EXPERIMENT.replace("path = \"/a\"\n", "").replace("rate = \"100/s\"\nduration = \"20s\"\n", "");
        let a = "load = { rate = \"100/s\", duration = \"20s\", path = \"/a\" }\n";
        let b = if test_b.starts_with("load = ") { "" } else { a };
        let tests = tests.replacen("[[test]]\nname = \"b\"\n", &format!("{a}[[test]]\nname = \"b\"\n"), 1);
        let path = test_b.replace("load.path = \"/b\"\n", "");
        let text = text.replace(
            "[[arm]]\nname = \"limited\"",
            &format!("{tests}{b}{path}\n[[arm]]\nname = \"limited\""),
        );
        let said = sandbox.stockade(&["run", &sandbox.file("typo.toml", &text), "--out", "typo"]);
        said.assert_refused(2, &[words]);
        assert!(!sandbox.path().join("typo").exists());
    }
}

#[test]
fn what_would_not_fit_into_memory_is_refused_beforehand() {
    let sandbox = Sandbox::new();
    let text =
        EXPERIMENT.replace("\"1GiB\"", "\"900000GiB\"").replace("\"20s\"", "\"20d\"").replace("10kb", "10mb");
    let said = sandbox.stockade(&["run", &sandbox.file("large.toml", &text), "--out", "record"]);
    said.assert_refused(
        2,
        &["its cache would hold about 921600000", " MiB, more than 60 % of this machine's"],
    );
    assert!(!sandbox.path().join("record").exists());
}

/// A password that a process was told is in no file of the record, not even when that process does not start.
#[test]
fn what_is_kept_of_a_run_has_no_passwords() {
    let sandbox = Sandbox::new();
    let text = r#"
title = "Secret"
[target]
kind = "app"
[origin]
source = "postgres://ada:sesame@127.0.0.1:1/db?timeout=100ms"
[load]
connections = 1
duration = "1s"
path = "/a"
"#;
    let said = sandbox.stockade(&["run", &sandbox.file("secret.toml", text), "--out", "record"]);
    said.assert_refused(1, &["the proxy did not start"]);
    assert!(!said.stderr.contains("sesame"), "{}", said.stderr);
    let setup = sandbox.path().join("record/setup/cache.1");
    for file in ["app.toml", "proxy.log"] {
        let kept = fs::read_to_string(setup.join(file)).expect("it is kept");
        assert!(!kept.contains("sesame"), "{file}: {kept}");
    }
    assert!(fs::read_to_string(setup.join("app.toml")).is_ok_and(|kept| kept.contains("ada:******@")));
}

/// What a full disk would do a limit does here: no file gets larger than 8 KiB.
#[test]
fn a_disk_that_is_full_ends_it() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("new.toml", EXPERIMENT);
    let program = sandbox.command().get_program().to_owned();
    let mut shell = sandbox.command_of("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "sh"]).arg(program);
    let out = shell.args(["run", &file, "--out", "record"]).output().expect("a shell");
    let said = Said::of(out);
    said.assert_refused(1, &["record/intervals.jsonl: File too large"]);
    assert!(family(&sandbox.path().join("record")).is_empty());
    let record = fs::read_to_string(sandbox.path().join("record/record.json")).expect("a record");
    assert!(serde_json::from_str::<Value>(&record).is_ok());
}

#[test]
fn a_port_that_is_taken_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let sandbox = Sandbox::new();
    let text = EXPERIMENT.replace("[origin]\n", &format!("[origin]\nlisten = \"{address}\"\n"));
    let said = run(&sandbox, &text, &[]);
    said.assert_refused(1, &["the origin did not start; it said:", &address.to_string(), "in use"]);
}

#[test]
fn a_service_that_is_not_there_is_told() {
    let sandbox = Sandbox::new();
    let text = EXPERIMENT.replace("[target]", "[services]\nredis = {}\n[target]");
    let file = sandbox.file("new.toml", &text);
    // A machine with a shell and nothing else.
    for program in ["sh", "cat", "rm"] {
        symlink(Path::new("/bin").join(program), sandbox.path().join(program)).expect("a folder");
    }
    let said =
        sandbox.command().args(["run", &file]).env("PATH", sandbox.path()).output().expect("it starts");
    Said::of(said).assert_refused(1, &["redis-server", "`make deps`"]);
}

/// Somebody else's cache: it is asked where it is, its process is looked at, and what it loads is what our origin was asked.
#[test]
fn a_cache_that_is_there_already_is_asked_where_it_is() {
    let sandbox = Sandbox::new();
    let origin = free_port().expect("a port");
    let url = format!("http://127.0.0.1:{origin}");
    let proxy =
        Running::start(&sandbox, &["proxy", "--origin", &url, "--listen", "0", "--strategy", "simple"], "");
    let address = proxy.listens("http");
    let text = format!(
        r#"
title = "Theirs"
[target]
url = "http://{address}"
pid = {}
[origin]
listen = "127.0.0.1:{origin}"
recipe = [{{ route = "/*", body = "hello", stages = [{{ at = 0 }}], headers = {{ cache-control = "max-age=60" }} }}]
[load]
connections = [1, 2]
duration = "10s"
path = "/{{key}}"
keys = "scan:5"
[[hypothesis]]
text = "it loads each key once"
expect = ["1/source_loads == 5", "2/source_loads == 0", "success == 1", "proxy.rss.max > 1"]
"#,
        proxy.id()
    );
    let file = sandbox.file("theirs.toml", &text);
    let arguments = ["run", &file, "--scale", "0.1", "--format", "json", "--out", "record"];
    let said = sandbox.stockade(&arguments);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    let report: Value = serde_json::from_str(&said.stdout).expect("JSON");
    let arm = &report["arms"]["1/cache"];
    assert!(arm["hit_ratio"].as_f64().is_some_and(|ratio| ratio > 0.9), "{arm}");
    let siege = sandbox.stockade(&["report", "record", "--format", "siege"]).stdout;
    assert!(siege.contains(" 2/cache, repeat 1\nLifting the server siege...\nTransactions:"), "{siege}");
    let nobody = text.replace(&format!("pid = {}", proxy.id()), "pid = 4194304");
    let file = sandbox.file("nobody.toml", &nobody);
    sandbox.stockade(&["run", &file]).assert_refused(2, &["there is no process 4194304"]);
}

/// Probes are asked apart from the load: what they bring is told, and decides whether the run is what it was meant to be.
#[test]
fn probes_say_whether_all_is_as_it_is_meant_to_be() {
    let sandbox = Sandbox::new();
    let probes = "[preflight]\nprobes = [{ path = \"/a\", status = 200 }, \
                  { at = \"10s\", path = \"/b\", cache_bust = true, status = 200 }]\n[load]";
    let said = run(&sandbox, &EXPERIMENT.replace("[load]", probes), &["--format", "json"]);
    assert_eq!(said.code, 98, "{}", said.stderr);
    let report: Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!((&report["verdict"], &report["arms"]["roomy"]["requests"]), (&"invalid".into(), &200.into()));
    let record = sandbox.stockade(&["report", "record"]);
    let complaint = "the probe of /b at 1s was answered with 406, and not with 200";
    assert!(record.stdout.contains(complaint), "{}", record.stdout);
}

/// Processes that have been told something of this record, and what.
fn family(record: &Path) -> Vec<(u32, String)> {
    let setup = record.join("setup").display().to_string();
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    processes
        .filter_map(|process| {
            let id = process.file_name().to_str()?.parse().ok()?;
            let told = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let told = String::from_utf8_lossy(&told).into_owned();
            told.contains(&setup).then_some((id, told))
        })
        .collect()
}

fn kill(id: u32, signal: &str) {
    let told = Command::new("kill").args([&format!("-{signal}"), &id.to_string()]).status();
    assert!(told.is_ok_and(|told| told.success()));
}
