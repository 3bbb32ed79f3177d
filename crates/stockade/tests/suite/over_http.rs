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
    support::{ProgramOutput, Sandbox},
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
any_scale = true
expect = [
    "success == 1.0",
    "limited.proxy.entries.max <= 400",
    "limited.proxy.entries.max < roomy.proxy.entries.max",
    "proxy.rss.max(10s..20s) > 1",
    "source_loads == requests",
]
"#;

/// Runs a tenth of its duration: 2 s.
fn run(sandbox: &Sandbox, text: &str, more: &[&str]) -> ProgramOutput {
    let file = sandbox.file("new.toml", text);
    sandbox.stockade(&[&["run", &file, "--scale", "0.1", "--out", "record"], more].concat())
}

#[test]
fn run_starts_its_processes_and_samples_them() {
    let sandbox = Sandbox::new();
    let output = run(&sandbox, EXPERIMENT, &["--format", "json"]);
    // 98: on a busy machine the generator may be late.
    assert!([0, 98].contains(&output.code), "{}{}", output.stdout, output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(report["hypotheses"][0]["verdict"], "supported", "{report}");
    let arm = &report["arms"]["limited"];
    assert_eq!((&arm["requests"], &arm["status_codes"]["200"]), (&200.into(), &200.into()), "{arm}");
    for role in ["load", "proxy", "origin"] {
        assert!(arm["rss_mib"][role]["max"].as_f64().is_some_and(|mib| mib > 1.0), "{arm}");
        assert!(arm["cpu"][role]["max"].as_f64().is_some(), "{arm}");
    }
    // Inapplicable keys are absent.
    for absent in ["documents", "stores", "amplification"] {
        assert!(arm.get(absent).is_none(), "{absent}: {arm}");
    }
    let no_false_answers = serde_json::json!({ "too_old": 0, "wrong_body": 0, "truncated": 0, "wrong_status": 0, "age_wrong": 0 });
    assert_eq!(arm["audit"], no_false_answers);
    let seconds = fs::read_to_string(sandbox.path().join("record/intervals.jsonl")).expect("seconds");
    let first: Value = serde_json::from_str(seconds.lines().next().expect("one")).expect("JSON");
    assert!(first["holds"]["entries"].as_u64().is_some_and(|entries| entries > 0), "{first}");
    let config =
        fs::read_to_string(sandbox.path().join("record/setup/limited.1/proxy.toml")).expect("a file");
    assert!(config.contains("\"entries\" = 40,") && config.contains("\"threads\" = 1"), "{config}");
    // Every format can be printed from the record.
    let again = sandbox.stockade(&["report", "record", "--format", "html"]);
    assert!(again.stdout.contains("Resident memory") && again.stdout.contains("Entries held"));
    // A killed run may leave an incomplete last line.
    let intervals = sandbox.path().join("record/intervals.jsonl");
    let mut seconds = fs::OpenOptions::new().append(true).open(intervals).expect("seconds");
    seconds.write_all(b"{\"test\":\"\",\"arm\":\"limi").expect("there is room");
    let reported = sandbox.stockade(&["report", "record"]);
    assert_eq!(reported.code, 0, "{}", reported.stderr);
    seconds.write_all(b"\n{}\n").expect("there is room");
    sandbox.stockade(&["report", "record"]).assert_refused(1, &["intervals.jsonl", "line "]);
}

/// Microstate accounting of every process of a run, and what the runtime of the proxy knows.
#[test]
fn time_of_threads_is_accounted() {
    let sandbox = Sandbox::new();
    let text = format!("{EXPERIMENT}\n[sample]\naccounting = {{ at = \"5s\", for = \"10s\" }}\n");
    let output = run(&sandbox, &text, &["--arms", "limited"]);
    assert!([0, 98].contains(&output.code), "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.contains("Where the time goes: "), "{}", output.stdout);
    let record = fs::read_to_string(sandbox.path().join("record/record.json")).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    let accounting = &record["runs"][0]["http"]["accounting"];
    assert!(accounting["for_ms"].as_f64().is_some_and(|length| length > 900.0), "{accounting}");
    assert!(accounting["sampler_cpu"].as_f64().is_some_and(|cores| cores < 0.05), "{accounting}");
    let rows = accounting["threads"].as_array().expect("rows");
    for row in rows {
        let shares = ["user", "system", "waiting", "sleeping"].map(|name| row[name].as_f64().unwrap_or(0.0));
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 0.005, "{row}");
    }
    for role in ["load", "proxy", "origin"] {
        let workers = rows.iter().find(|row| row["role"] == role && row["kind"] == "worker");
        let workers = workers.unwrap_or_else(|| panic!("{role}: {accounting}"));
        assert!(workers["sleeping"].as_f64().is_some_and(|share| share < 1.0), "{workers}");
        let knows_runtime = workers["busy"].as_f64().is_some_and(|share| share > 0.0);
        assert_eq!(knows_runtime, role == "proxy", "{workers}");
    }
}

#[test]
fn failed_start_reports_the_output_of_the_process() {
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

/// Starts a run and waits until its proxy serves.
fn start_run(sandbox: &Sandbox, text: &str) -> (Child, PathBuf) {
    let file = sandbox.file("new.toml", text);
    let mut command = sandbox.command();
    let out = sandbox.path().join("record");
    command.args(["run", &file, "--out"]).arg(&out).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A terminal sends signals to a process group.
    command.process_group(0);
    let running = command.spawn().expect("the program starts");
    let is_up = |folder: fs::DirEntry| {
        let output = fs::read_to_string(folder.path().join("proxy.log")).unwrap_or_default();
        output.contains("admin API")
    };
    until(|| fs::read_dir(out.join("setup")).is_ok_and(|folders| folders.flatten().any(is_up)));
    (running, out)
}

#[test]
fn killed_run_leaves_no_process() {
    let sandbox = Sandbox::new();
    let (mut running, out) = start_run(&sandbox, EXPERIMENT);
    running.kill().expect("it runs");
    running.wait().expect("it ends");
    until(|| processes_of(&out).is_empty());
}

#[test]
fn interrupt_ends_all_processes_and_keeps_the_measurements() {
    let sandbox = Sandbox::new();
    let (running, out) = start_run(&sandbox, EXPERIMENT);
    let status = Command::new("kill").args(["-INT", "--", &format!("-{}", running.id())]).status();
    assert!(status.is_ok_and(|status| status.success()));
    let output = ProgramOutput::of(running.wait_with_output().expect("it ends"));
    assert_eq!(output.code, 98, "{}", output.stderr);
    assert!(processes_of(&out).is_empty());
    let record = fs::read_to_string(out.join("record.json")).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    assert_eq!((&record["interrupted"], &record["schema"]), (&true.into(), &"stockade.record/1".into()));
}

#[test]
fn killed_child_ends_the_run_with_an_error() {
    for command in ["proxy", "origin"] {
        let sandbox = Sandbox::new();
        let (running, out) = start_run(&sandbox, EXPERIMENT);
        let child = processes_of(&out)
            .into_iter()
            .find(|(_, command_line)| command_line.contains(&format!("\0{command}\0")));
        kill(child.expect("it runs").0, "KILL");
        let output = ProgramOutput::of(running.wait_with_output().expect("it ends"));
        output.assert_refused(1, &[&format!("the {command} has ended: signal: 9")]);
        assert!(processes_of(&out).is_empty());
        let record = fs::read_to_string(out.join("record.json")).expect("a record");
        let record: Value = serde_json::from_str(&record).expect("JSON");
        assert_eq!(&record["interrupted"], &true);
        let reported = sandbox.stockade(&["report", "record"]);
        assert_eq!(reported.code, 0, "{}", reported.stderr);
    }
}

/// The admin pages have their own listener, which serves while the origin refuses connections.
#[test]
fn refusing_origin_is_measured_to_the_end() {
    let sandbox = Sandbox::new();
    let stages = "stages = [{ at = 0 }, { at = \"10s\", fault = \"refuse\" }]";
    let text = EXPERIMENT.replace("stages = [{ at = 0 }]", stages);
    let output = run(&sandbox, &text, &["--format", "json"]);
    assert!([98, 99].contains(&output.code), "{}{}", output.stdout, output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let arm = &report["arms"]["roomy"];
    let count = |name: &str| arm[name].as_u64().expect("a count");
    assert!((1..200).contains(&count("failed")) && count("requests") == 200, "{arm}");
}

/// A typo in the file that is read last, or a probe after the end of the load, fails before the first test.
#[test]
fn errors_in_any_file_are_reported_before_the_run() {
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
        let output = sandbox.stockade(&["run", &sandbox.file("typo.toml", &text), "--out", "typo"]);
        output.assert_refused(2, &[words]);
        assert!(!sandbox.path().join("typo").exists());
    }
}

#[test]
fn run_larger_than_memory_is_refused() {
    let sandbox = Sandbox::new();
    let text =
        EXPERIMENT.replace("\"1GiB\"", "\"900000GiB\"").replace("\"20s\"", "\"20d\"").replace("10kb", "10mb");
    let output = sandbox.stockade(&["run", &sandbox.file("large.toml", &text), "--out", "record"]);
    output.assert_refused(
        2,
        &["its cache would hold about 921600000", " MiB, more than 60 % of its machine's"],
    );
    assert!(!sandbox.path().join("record").exists());
}

/// A password in a process's configuration is in no file of the record, even if the process does not start.
#[test]
fn record_has_no_passwords() {
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
    let output = sandbox.stockade(&["run", &sandbox.file("secret.toml", text), "--out", "record"]);
    output.assert_refused(1, &["the proxy did not start"]);
    assert!(!output.stderr.contains("sesame"), "{}", output.stderr);
    let setup = sandbox.path().join("record/setup/cache.1");
    for file in ["app.toml", "proxy.log"] {
        let kept = fs::read_to_string(setup.join(file)).expect("it is kept");
        assert!(!kept.contains("sesame"), "{file}: {kept}");
    }
    assert!(fs::read_to_string(setup.join("app.toml")).is_ok_and(|kept| kept.contains("ada:******@")));
}

/// A limit of 8 KiB per file stands for a full disk.
#[test]
fn full_disk_ends_the_run() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("new.toml", EXPERIMENT);
    let program = sandbox.command().get_program().to_owned();
    let mut shell = sandbox.command_of("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "sh"]).arg(program);
    let out = shell.args(["run", &file, "--out", "record"]).output().expect("a shell");
    let output = ProgramOutput::of(out);
    output.assert_refused(1, &["record/intervals.jsonl: File too large"]);
    assert!(processes_of(&sandbox.path().join("record")).is_empty());
    let record = fs::read_to_string(sandbox.path().join("record/record.json")).expect("a record");
    assert!(serde_json::from_str::<Value>(&record).is_ok());
}

#[test]
fn port_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let sandbox = Sandbox::new();
    let text = EXPERIMENT.replace("[origin]\n", &format!("[origin]\nlisten = \"{address}\"\n"));
    let output = run(&sandbox, &text, &[]);
    output.assert_refused(1, &["the origin did not start; it said:", &address.to_string(), "in use"]);
}

#[test]
fn missing_service_is_reported() {
    let sandbox = Sandbox::new();
    let text = EXPERIMENT.replace("[target]", "[services]\nredis = {}\n[target]");
    let file = sandbox.file("new.toml", &text);
    // A `PATH` with only a shell and two tools.
    for program in ["sh", "cat", "rm"] {
        symlink(Path::new("/bin").join(program), sandbox.path().join(program)).expect("a folder");
    }
    let output =
        sandbox.command().args(["run", &file]).env("PATH", sandbox.path()).output().expect("it starts");
    ProgramOutput::of(output).assert_refused(1, &["redis-server", "`make deps`"]);
}

/// A third-party cache at a URL: its process is sampled, and its loads are the requests that our origin counts.
#[test]
fn running_cache_is_measured_at_its_url() {
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
any_scale = true
expect = ["1/source_loads == 5", "2/source_loads == 0", "success == 1", "proxy.rss.max > 1"]
"#,
        proxy.id()
    );
    let file = sandbox.file("theirs.toml", &text);
    let arguments = ["run", &file, "--scale", "0.1", "--format", "json", "--out", "record"];
    let output = sandbox.stockade(&arguments);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let arm = &report["arms"]["1/cache"];
    assert!(arm["hit_ratio"].as_f64().is_some_and(|ratio| ratio > 0.9), "{arm}");
    let siege = sandbox.stockade(&["report", "record", "--format", "siege"]).stdout;
    assert!(
        siege.contains(" 2/cache, repeat 1, scaled by 0.1\nLifting the server siege...\nTransactions:"),
        "{siege}"
    );
    let without_process = text.replace(&format!("pid = {}", proxy.id()), "pid = 4194304");
    let file = sandbox.file("no_process.toml", &without_process);
    sandbox.stockade(&["run", &file]).assert_refused(2, &["there is no process 4194304"]);
}

/// Probes are sent apart from the load. A failed probe is reported and makes the run invalid.
#[test]
fn failed_probe_makes_the_run_invalid() {
    let sandbox = Sandbox::new();
    let probes = "[preflight]\nprobes = [{ path = \"/a\", status = 200 }, \
                  { at = \"10s\", path = \"/b\", cache_bust = true, status = 200 }]\n[load]";
    let output = run(&sandbox, &EXPERIMENT.replace("[load]", probes), &["--format", "json"]);
    assert_eq!(output.code, 98, "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!((&report["verdict"], &report["arms"]["roomy"]["requests"]), (&"invalid".into(), &200.into()));
    let record = sandbox.stockade(&["report", "record"]);
    let complaint = "the probe of /b at 1s was answered with 406, and not with 200";
    assert!(record.stdout.contains(complaint), "{}", record.stdout);
}

/// The processes with this record in their command line: ids and command lines.
fn processes_of(record: &Path) -> Vec<(u32, String)> {
    let setup = record.join("setup").display().to_string();
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    processes
        .filter_map(|process| {
            let id = process.file_name().to_str()?.parse().ok()?;
            let command_line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let command_line = String::from_utf8_lossy(&command_line).into_owned();
            command_line.contains(&setup).then_some((id, command_line))
        })
        .collect()
}

fn kill(id: u32, signal: &str) {
    let status = Command::new("kill").args([&format!("-{signal}"), &id.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()));
}
