//! The scripts of `action.yml` and of the example for GitLab, as a CI service starts them.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::support::{ProgramOutput, Sandbox, root};

/// A claim that holds, and one that fails.
const HOLDS: &str = "success == 1";
const FAILS: &str = "success == 0";

fn script(name: &str) -> String {
    root().join("deploy/ci").join(name).canonicalize().expect("the script").display().to_string()
}

fn write_experiment(sandbox: &Sandbox, name: &str, title: &str, latency: &str, claim: &str) {
    let text = format!(
        "title = {title:?}\n[target]\nkind = \"engine\"\n[origin]\nsource = \"simulated:50\"\nlatency = \"{latency}\"\n[cache]\n\
         strategy = \"stampede\"\nttl = \"1s\"\n[load]\nrate = \"100/s\"\nduration = \"10s\"\n\
         [[hypothesis]]\ntext = \"it <b>works</b> | `well`\"\nexpect = [{claim:?}]\n"
    );
    sandbox.file(name, &text);
}

/// Runs the script; standard output is the summary of the step.
fn gate(sandbox: &Sandbox, settings: &[(&str, &str)]) -> ProgramOutput {
    let summary = sandbox.path().join("step-summary");
    let _ = fs::remove_file(&summary);
    let mut command = sandbox.command_of("bash");
    command.arg(script("run-experiment.sh"));
    command.env("STOCKADE", env!("CARGO_BIN_EXE_stockade")).env("GITHUB_STEP_SUMMARY", &summary);
    command.envs(settings.iter().copied());
    let mut output = ProgramOutput::of(command.output().expect("bash"));
    assert_eq!(output.stdout, "", "the summary is in its file");
    output.stdout = fs::read_to_string(summary).unwrap_or_default();
    output
}

fn keep_record(sandbox: &Sandbox) {
    let at = |name: &str| sandbox.path().join(name);
    let _ = fs::remove_dir_all(at("stockade-last-record"));
    fs::rename(at("stockade-record"), at("stockade-last-record")).expect("a record");
}

#[test]
fn gate_ends_with_the_code_of_the_run() {
    let sandbox = Sandbox::new();
    let experiment = ("STOCKADE_EXPERIMENT", "e.toml");
    write_experiment(&sandbox, "e.toml", "A source", "20ms", HOLDS);
    let first = gate(&sandbox, &[experiment]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert!(
        first.stdout.starts_with("**Supported**: 2 of 2 hypotheses supported (A source)\n"),
        "{}",
        first.stdout
    );
    assert!(first.stdout.ends_with("\nThere is no earlier record to compare with.\n"), "{}", first.stdout);
    let junit = fs::read_to_string(sandbox.path().join("stockade-junit.xml")).expect("written");
    assert!(junit.contains("failures=\"0\""), "{junit}");

    write_experiment(&sandbox, "e.toml", "A source", "20ms", FAILS);
    let refuted = gate(&sandbox, &[experiment]);
    assert_eq!(refuted.code, 99, "{}", refuted.stderr);
    assert!(
        refuted.stdout.starts_with("**Refuted**: 1 of 2 hypotheses refuted, 1 supported"),
        "{}",
        refuted.stdout
    );
    let text = &refuted.stdout;
    assert!(
        text.contains("it &lt;b&gt;works&lt;/b&gt; &#124; &#96;well&#96;") && !text.contains("<b>"),
        "{text}"
    );

    // The engine has no such figure.
    write_experiment(&sandbox, "e.toml", "A source", "20ms", "proxy.entries.max < 5");
    assert_eq!(gate(&sandbox, &[experiment]).code, 98);
    assert_eq!(gate(&sandbox, &[experiment, ("STOCKADE_FAIL_ON", "refuted")]).code, 0);

    sandbox.file("e.toml", "title = \"`````\"\n[load]\nrrate = 1\n");
    let wrong = gate(&sandbox, &[experiment]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    assert!(
        wrong.stdout.starts_with("**Failed**: the experiment did not run (exit code 2)\n"),
        "{}",
        wrong.stdout
    );
    assert_eq!(wrong.stdout.matches("```").count(), 2, "{}", wrong.stdout);
    assert!(wrong.stderr.contains("rrate"), "{}", wrong.stderr);
    assert!(!sandbox.path().join("stockade-junit.xml").exists());
}

#[test]
fn second_run_is_compared_with_the_last_record() {
    let sandbox = Sandbox::new();
    let experiment = ("STOCKADE_EXPERIMENT", "e.toml");
    write_experiment(&sandbox, "e.toml", "A source", "20ms", HOLDS);
    assert_eq!(gate(&sandbox, &[experiment]).code, 0);
    keep_record(&sandbox);
    let same = gate(&sandbox, &[experiment, ("STOCKADE_FAIL_ON", "inconclusive,regression")]);
    assert_eq!(same.code, 0, "{}", same.stderr);
    assert!(
        same.stdout.contains("\nSince the last record, **A source**: 0 worse, 0 better, "),
        "{}",
        same.stdout
    );
    // Slower: shown, and a failure only where that is asked for.
    write_experiment(&sandbox, "e.toml", "A source", "40ms", HOLDS);
    for (settings, code) in [
        (&[experiment][..], 0),
        (&[experiment, ("STOCKADE_FAIL_ON", "regression")], 99),
        (&[experiment, ("STOCKADE_FAIL_ON", "regression"), ("STOCKADE_MIN_EFFECT", "200%")], 0),
    ] {
        let slower = gate(&sandbox, settings);
        assert_eq!(slower.code, code, "{settings:?}: {}", slower.stderr);
        assert_eq!(
            slower.stdout.starts_with("**Worse than the last record**"),
            code == 99,
            "{}",
            slower.stdout
        );
    }
    let off = gate(&sandbox, &[experiment, ("STOCKADE_COMPARE", "false")]);
    assert!(!off.stdout.contains("last record"), "{}", off.stdout);
    // Another load has nothing to compare with.
    let scaled = gate(&sandbox, &[experiment, ("STOCKADE_ARGS", "--seed 2 --test x")]);
    assert_eq!(scaled.code, 2, "{}", scaled.stdout);
    let text = fs::read_to_string(sandbox.path().join("e.toml")).expect("readable").replace("10s", "20s");
    sandbox.file("e.toml", &text);
    let other = gate(&sandbox, &[experiment, ("STOCKADE_FAIL_ON", "regression")]);
    assert_eq!(other.code, 0, "{}", other.stderr);
    assert!(other.stdout.contains("\nSince the last record, nothing can be compared:\n"), "{}", other.stdout);
}

#[test]
fn odd_names_are_names_and_never_commands() {
    let sandbox = Sandbox::new();
    let name = "-a b'c\"$(touch hacked);`touch hacked`*.toml";
    write_experiment(&sandbox, name, "$(touch hacked) `touch hacked`", "20ms", HOLDS);
    let settings = [
        ("STOCKADE_EXPERIMENT", name),
        ("STOCKADE_ARGS", r#"--out "a $(touch hacked) b" --seed '2'"#),
        ("STOCKADE_RECORD", "the record; touch hacked"),
    ];
    // `--out` is given twice: refused by the program, and not by a shell.
    let twice = gate(&sandbox, &settings);
    assert_eq!(twice.code, 2, "{}", twice.stderr);
    assert!(twice.stderr.contains("--out"), "{}", twice.stderr);
    let once = gate(&sandbox, &[settings[0], ("STOCKADE_ARGS", "--seed '2'\n--repeat \"2\""), settings[2]]);
    assert_eq!(once.code, 0, "{}", once.stderr);
    assert!(once.stdout.contains("; seed 2; "), "{}", once.stdout);
    assert!(sandbox.path().join("the record; touch hacked/record.json").exists());
    for (setting, value, message) in [
        ("STOCKADE_ARGS", "--seed '2", "a quote without an end"),
        ("STOCKADE_FAIL_ON", "$(touch hacked)", "write inconclusive, regression or refuted"),
        ("STOCKADE_EXPERIMENT", "", "set it to the file of the experiment"),
        ("STOCKADE_RECORD", ".", "which is not a record"),
    ] {
        let refused = gate(&sandbox, &[settings[0], (setting, value)]);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains(message), "{}", refused.stderr);
    }
    assert!(!sandbox.path().join("hacked").exists());
}

/// A `gh` that notes its arguments, and knows the comment in the file `comment`.
const GH: &str = r#"#!/usr/bin/env bash
printf '%s\n' "$*" >>calls
[[ ! -e refuses ]] || { echo 'HTTP 403: Resource not accessible by integration' >&2; exit 1; }
case "$*" in *--paginate*) cat comment 2>/dev/null || true ;; *) cp "${@: -1:1}" posted 2>/dev/null || cp "$(sed 's/.*@//' <<<"$*")" posted ;; esac
"#;

#[test]
fn one_comment_is_posted_and_then_updated() {
    let sandbox = Sandbox::new();
    let gh = sandbox.file("gh", GH);
    fs::set_permissions(gh, fs::Permissions::from_mode(0o755)).expect("ours");
    sandbox.file("summary.md", "**Supported**\n");
    let comment = |token: &str| {
        let mut command = sandbox.command_of("bash");
        let path = format!("{}:{}", sandbox.path().display(), std::env::var("PATH").unwrap_or_default());
        command.arg(script("comment-on-pull-request.sh")).env("PATH", path).env("GH_TOKEN", token);
        command.envs([("COMMENT_KEY", "a b-->"), ("COMMENT_FILE", "summary.md"), ("PULL_REQUEST", "7")]);
        command.env("GITHUB_REPOSITORY", "owner/name");
        let output = ProgramOutput::of(command.output().expect("bash"));
        assert_eq!(output.code, 0, "{}", output.stderr);
        output.stdout
    };
    let read = |name: &str| fs::read_to_string(sandbox.path().join(name)).unwrap_or_default();
    assert!(comment("").contains("::warning::no token"));
    assert_eq!(comment("token"), "");
    assert_eq!(read("posted"), "<!-- stockade: a_b--__ -->\n**Supported**\n");
    assert!(
        read("calls").contains("api --method POST repos/owner/name/issues/7/comments --field"),
        "{}",
        read("calls")
    );
    sandbox.file("comment", "41\n");
    assert_eq!(comment("token"), "");
    assert!(
        read("calls").contains("--method PATCH repos/owner/name/issues/comments/41 "),
        "{}",
        read("calls")
    );
    sandbox.file("refuses", "");
    assert!(
        comment("token").starts_with("::warning::the comments of the pull request cannot be read: HTTP 403")
    );
}

#[test]
fn names_have_only_characters_of_cache_keys() {
    let sandbox = Sandbox::new();
    let root = root();
    let names = |key: &str, version: &str| {
        let output = sandbox.path().join("output");
        let _ = fs::remove_file(&output);
        let mut command = sandbox.command_of("bash");
        command.arg(script("choose-names.sh")).env("GITHUB_ACTION_PATH", &root).env("GITHUB_OUTPUT", &output);
        command.envs([("EXPERIMENT", "tests/herd.toml"), ("KEY", key), ("VERSION", version)]);
        command.envs([("FEATURES", "http,databases"), ("RUNNER_OS", "Linux"), ("RUNNER_ARCH", "X64")]);
        command.env("RUNNER_TEMP", "/tmp/runner");
        let ended = ProgramOutput::of(command.output().expect("bash"));
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        fs::read_to_string(output).expect("outputs")
    };
    let of_file = names("", "");
    assert!(of_file.starts_with("name=tests-herd.toml-"), "{of_file}");
    assert_eq!(names("herd", "").lines().next(), Some("name=herd"));
    let hostile = names("x\nrecord=/,:\"$(touch hacked)", "1.0\nroot=/");
    for outputs in [&of_file, &hostile] {
        assert_eq!(outputs.lines().count(), 8, "{outputs}");
        let safe = |c: char| c.is_ascii_alphanumeric() || "._-=/".contains(c);
        assert!(outputs.lines().all(|line| line.chars().all(safe)), "{outputs}");
        assert!(outputs.ends_with("\nroot=/tmp/runner/stockade\n"), "{outputs}");
    }
    assert_ne!(of_file, names("", "1.0"));
    assert!(!sandbox.path().join("hacked").exists());
}

/// The lines of `run:` in a workflow: on its own line, or indented below `run: |`.
fn shell_lines(workflow: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut block: Option<usize> = None;
    for line in workflow.lines() {
        let indentation = line.len() - line.trim_start().len();
        block = block.filter(|of_run| indentation > *of_run || line.trim().is_empty());
        match line.trim_start().strip_prefix("run:") {
            Some(rest) if rest.trim() == "|" => block = Some(indentation),
            Some(rest) => lines.push(rest),
            None if block.is_some() => lines.push(line),
            None => {}
        }
    }
    lines
}

#[test]
fn inputs_are_no_part_of_a_script_and_every_setting_is_documented() {
    let root = root();
    let read =
        |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let action = read("action.yml");
    let shell = shell_lines(&action);
    assert!(shell.len() >= 8, "{shell:?}");
    assert!(shell.iter().all(|line| !line.contains("${{")), "{shell:?}");
    let scripts =
        ["run-experiment.sh", "install-stockade.sh"].map(|name| read(&format!("deploy/ci/{name}"))).concat();
    let gitlab = read("deploy/ci/gitlab-ci.yml");
    for line in action.lines().chain(gitlab.lines()) {
        let Some((name, _)) = line.trim().split_once(": ").filter(|(name, _)| name.starts_with("STOCKADE"))
        else {
            continue;
        };
        // The example for GitLab reads these itself.
        let is_own = ["STOCKADE_REPOSITORY", "STOCKADE_VERSION", "STOCKADE_FEATURES"].contains(&name);
        assert!(is_own || scripts.contains(&format!("#   {name} ")), "{name}");
    }
    let guide = read("docs/guide/gate-a-pull-request.md");
    let (_, inputs) = action.split_once("\ninputs:\n").expect("inputs");
    let (inputs, _) = inputs.split_once("\noutputs:\n").expect("outputs");
    let names =
        inputs.lines().filter_map(|line| line.strip_prefix("  ").filter(|name| !name.starts_with(' ')));
    for name in names.map(|name| name.trim_end_matches(':')) {
        assert!(name == "token" || guide.contains(&format!("| `{name}` |")), "{name}");
    }
}

#[test]
fn program_is_installed_from_the_action_or_the_registry() {
    let sandbox = Sandbox::new();
    for name in ["cargo", "rustup"] {
        let program =
            sandbox.file(name, "#!/bin/sh\nprintf '%s' \"${0##*/}\"; printf ' [%s]' \"$@\"; echo\n");
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("ours");
    }
    let install = |version: &str, features: &str| {
        let mut command = sandbox.command_of("bash");
        let path = format!("{}:{}", sandbox.path().display(), std::env::var("PATH").unwrap_or_default());
        command.arg(script("install-stockade.sh")).env("PATH", path).env("ROOT", "a root");
        command.env("VERSION", version).env("FEATURES", features);
        let output = ProgramOutput::of(command.output().expect("bash"));
        assert_eq!(output.code, 0, "{}", output.stderr);
        output.stdout.lines().last().expect("the last command").to_owned()
    };
    assert_eq!(
        install("1.2.3", "http,$(x)"),
        "rustup [run] [stable] [cargo] [install] [stockade] [--locked] [--root] [a root] [--no-default-features] \
         [--features] [http,$(x)] [--version] [1.2.3]"
    );
    let of_action = install("", "");
    assert!(of_action.starts_with("rustup [run] [stable] [cargo] [install] [--path] ["), "{of_action}");
    assert!(
        of_action.contains(
            "/crates/stockade] [--locked] [--root] [a root] [--no-default-features] [--features] []"
        )
    );
}

/// From a folder in place of the releases of a repository: curl reads `file:` URLs.
#[test]
fn program_of_a_release_is_installed_if_its_checksum_is_right() {
    let sandbox = Sandbox::new();
    let (at, version) = (|path: &str| sandbox.path().join(path), env!("CARGO_PKG_VERSION"));
    let archive = format!("stockade-{version}-x86_64-linux");
    let release = format!("releases/v{version}");
    fs::create_dir_all(at(&archive)).expect("a folder");
    fs::create_dir_all(at(&release)).expect("a folder");
    sandbox.file(&format!("{archive}/stockade"), "#!/bin/sh\necho released\n");
    let shell = |text: &str| {
        let output = sandbox.command_of("sh").args(["-euc", text]).output().expect("sh");
        assert!(output.status.success(), "{output:?}");
    };
    shell(&format!(
        "chmod 755 {archive}/stockade; tar czf {release}/{archive}.tar.gz {archive}; cd {release}; sha256sum *.gz >SHA256SUMS"
    ));
    let program = sandbox.file("cargo", "#!/bin/sh\necho compiled\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    fs::copy(&program, at("rustup")).expect("ours");
    let install = |root: &str, releases: &str| {
        let mut command = sandbox.command_of("bash");
        let path = format!("{}:{}", sandbox.path().display(), std::env::var("PATH").unwrap_or_default());
        command.arg(script("install-stockade.sh")).env("PATH", path).env("ROOT", at(root));
        command.env("RELEASES", format!("file://{}", at(releases).display()));
        ProgramOutput::of(command.output().expect("bash"))
    };
    let installed = install("good", "releases");
    assert_eq!((installed.code, installed.stdout.as_str()), (0, ""), "{}", installed.stderr);
    assert_eq!(fs::read(at("good/bin/stockade")).expect("installed"), b"#!/bin/sh\necho released\n");
    let none = install("none", "elsewhere");
    assert!(none.stdout.ends_with("compiled\n") && none.stderr.contains("it is compiled"), "{none:?}");
    shell(&format!("echo more >>{release}/{archive}.tar.gz"));
    let changed = install("changed", "releases");
    assert!(changed.code == 1 && changed.stderr.contains("another checksum"), "{changed:?}");
    assert!(!at("changed").exists());
}

/// On copies, for the first time and again.
#[test]
fn address_of_the_repository_is_written_into_manifests_and_guides() {
    let sandbox = Sandbox::new();
    let crates = fs::read_dir(root().join("crates")).expect("crates").map(|entry| entry.expect("a crate"));
    let mut paths: Vec<_> =
        crates.map(|entry| format!("crates/{}/Cargo.toml", entry.file_name().display())).collect();
    let manifests = paths.len();
    let guide = "docs/guide/gate-a-pull-request.md";
    let others = ["Cargo.toml", "crates/stockade/pyproject.toml", "deploy/ci/gitlab-ci.yml", guide];
    paths.extend(others.map(str::to_owned));
    paths.push("scripts/set-repository".to_owned());
    for path in &paths {
        let copy = sandbox.path().join(path);
        fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder");
        fs::copy(root().join(path), copy).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let set = |url: &str| {
        let mut command = sandbox.command_of("sh");
        ProgramOutput::of(command.args(["scripts/set-repository", url]).output().expect("sh"))
    };
    let read = |path: &str| fs::read_to_string(sandbox.path().join(path)).expect("a copy");
    for (url, name) in [
        ("https://github.com/some/stockade", "some/stockade"),
        ("https://gitlab.com/other/group/stockade.git/", "other/group/stockade"),
    ] {
        let output = set(url);
        assert_eq!(output.code, 0, "{}", output.stderr);
        let url = url.trim_end_matches('/').trim_end_matches(".git");
        for path in [others[0], others[1], others[2]] {
            assert_eq!(read(path).matches(url).count(), 1, "{path}");
        }
        assert!(read(guide).contains(&format!("uses: {name}@v1")), "{}", read(guide));
        let all: String = paths[..manifests].iter().map(|path| read(path)).collect();
        assert_eq!(all.matches("\nrepository.workspace = true\n").count(), manifests);
    }
    assert!(!read(guide).contains("OWNER/stockade"));
    set("github.com/some/stockade")
        .assert_refused(2, &["is not a URL such as https://github.com/OWNER/stockade"]);
}
