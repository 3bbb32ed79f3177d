//! `stockade completions`: the scripts, read by the shells themselves.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use crate::support::{ProgramOutput, Sandbox};

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

fn script(shell: &str) -> String {
    let output = Sandbox::new().stockade(&["completions", shell]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{shell}");
    output.stdout
}

/// The words that bash offers for a command line whose last word is incomplete.
fn completed_by_bash(line: &str) -> Vec<String> {
    let words: Vec<_> = line.split(' ').collect();
    let [.., previous, current] = words[..] else { panic!("`{line}` has two words at least") };
    let call = format!(
        "COMP_WORDS=({line} ''); COMP_CWORD={}; _stockade stockade '{current}' '{previous}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words.len() - 1
    );
    let output = run("bash", &["--norc"], &(script("bash") + &call)).expect("bash");
    assert_eq!(output.stderr, "");
    output.stdout.lines().filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The output of a shell with this standard input, or nothing if the shell is not installed.
fn run(shell: &str, arguments: &[&str], input: &str) -> Option<ProgramOutput> {
    let mut shell = Command::new(shell);
    shell.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = shell.spawn().ok()?;
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("the shell reads");
    Some(ProgramOutput::of(child.wait_with_output().expect("it ends")))
}

#[test]
fn scripts_parse_in_their_shells() {
    let mut parsed = Vec::new();
    for (shell, arguments) in
        [("bash", &["-n"][..]), ("zsh", &["-n"]), ("fish", &["--no-execute"]), ("elvish", &["-compileonly"])]
    {
        let sandbox = Sandbox::new();
        let file = sandbox.file("script", &script(shell));
        let Some(output) = run(shell, &[arguments, &[&file]].concat(), "") else { continue };
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{shell}");
        parsed.push(shell);
    }
    assert!(parsed.contains(&"bash"), "bash is not installed");
}

#[test]
fn bash_completes_commands_flags_and_values() {
    for (line, expected) in [
        ("stockade ru", &["run"][..]),
        ("stockade run --f", &["--format"]),
        ("stockade run --format j", &["json", "junit"]),
        ("stockade stampede --strategy stam", &["stampede", "stampede_async"]),
        ("stockade proxy --strategy br", &["breaker"]),
        ("stockade load --format sie", &["siege", "siege-json"]),
        ("stockade load --arrivals p", &["poisson"]),
        ("stockade plan --policy w-", &["w-tinylfu"]),
        ("stockade completions po", &["powershell"]),
        ("stockade proxy --unt", &["--until-stdin-ends"]),
    ] {
        assert_eq!(completed_by_bash(line), expected, "{line}");
    }
}

#[test]
fn hidden_commands_and_flags_are_not_completed() {
    for line in ["stockade ap", "stockade help ap", "stockade proxy --ready"] {
        assert_eq!(completed_by_bash(line), [""; 0], "{line}");
    }
    for shell in SHELLS {
        let script = script(shell);
        assert!(script.contains("until-stdin-ends"), "{shell}: flags are named");
        for hidden in ["ready-json", "a child process of"] {
            assert!(!script.contains(hidden), "{shell}: `{hidden}`");
        }
    }
}

#[test]
fn help_names_a_place_for_each_common_shell() {
    let help = Sandbox::new().stockade(&["completions", "--help"]).stdout;
    for place in ["bash-completion/completions/stockade", "/_stockade", "fish/completions/stockade.fish"] {
        assert!(help.contains(place), "`{place}` is not in:\n{help}");
    }
}

#[test]
fn unknown_shell_and_unknown_strategy_are_refused_with_the_nearest_name() {
    let sandbox = Sandbox::new();
    sandbox
        .stockade(&["completions", "bahs"])
        .assert_refused(2, &["'bahs'", "a similar value exists: 'bash'"]);
    let remedy = ["unknown strategy `stampeed`: did you mean `stampede`?"];
    sandbox.stockade(&["stampede", "--strategy", "stampeed"]).assert_refused(2, &remedy);
}
