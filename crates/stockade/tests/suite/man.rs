//! `stockade man`: the pages have the flags of the help, and render.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use crate::{
    reference::commands,
    support::{ProgramOutput, Sandbox},
};

/// The page of a command, or of the program.
fn page(command: Option<&str>) -> String {
    let arguments: Vec<_> = ["man"].into_iter().chain(command).collect();
    let output = Sandbox::new().stockade(&arguments);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{command:?}");
    output.stdout
}

/// The page as a terminal of 100 columns shows it, or nothing without groff. A warning is an error.
fn rendered(page: &str) -> Option<String> {
    let mut groff = Command::new("groff");
    groff.args(["-man", "-Tutf8", "-ww", "-rLL=100n", "-P-cbou"]);
    groff.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = groff.spawn().ok()?;
    child.stdin.take().expect("a pipe").write_all(page.as_bytes()).expect("groff reads");
    let output = ProgramOutput::of(child.wait_with_output().expect("it ends"));
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    Some(output.stdout)
}

/// The flags that lines of a help text start with.
fn flags(help: &str) -> Vec<&str> {
    let starts = help.lines().filter_map(|line| line.strip_prefix("  "));
    let flags = starts.filter_map(|line| {
        let line = line.trim_start();
        let line = line.split_once(", ").map_or(line, |(_, long)| long);
        line.starts_with("--").then(|| line.split(' ').next()).flatten()
    });
    flags.collect()
}

#[test]
fn page_of_every_command_names_the_flags_of_its_help() {
    for command in commands() {
        let page = page(Some(&command)).replace("\\-", "-");
        let help = Sandbox::new().stockade(&[&command, "--help"]).stdout;
        let flags = flags(&help);
        assert!(flags.contains(&"--help"), "{help}");
        for flag in flags {
            assert!(page.contains(&format!("\\fB{flag}\\fR")), "{command}: {flag}");
        }
        assert!(page.contains(&format!(".SH SYNOPSIS\n\\fBstockade {command}\\fR")), "{command}: {page}");
        let judges = !["check", "init", "plan"].contains(&command.as_str());
        let verdicts = judges.then_some(["98", "99"]).into_iter().flatten();
        for code in ["0", "1", "2"].into_iter().chain(verdicts) {
            assert!(page.contains(&format!(".TP 4\n\\fB{code}\\fR\n")), "{command}: exit code {code}");
        }
    }
}

#[test]
fn page_of_the_program_lists_every_command_that_has_a_page() {
    let page = page(None).replace("\\-", "-");
    let listed = page.lines().filter_map(|line| line.strip_prefix("stockade-")?.strip_suffix("(1)"));
    assert_eq!(listed.collect::<Vec<_>>(), commands());
}

#[test]
fn pages_render_without_warnings() {
    for command in [None].into_iter().chain(commands().iter().map(|command| Some(command.as_str()))) {
        let Some(text) = rendered(&page(command)) else { return };
        assert!(text.contains("EXIT STATUS"), "{command:?}: {text}");
        assert!(!text.contains("\u{2010}\n"), "{command:?}: a hyphenated word in {text}");
        let long = text.lines().find(|line| line.chars().count() > 100);
        assert_eq!(long, None, "{command:?}");
    }
}

#[test]
fn end_of_the_help_becomes_sections() {
    let load = page(Some("load")).replace("\\-", "-");
    assert!(load.contains("\n.SH FORMATS\n.TP\n\\fBtext\\fR\nthe load, its results"), "{load}");
    assert!(load.contains("\n.SS When\n"), "{load}");
    assert!(load.contains("\n\\fB1\\fR\nevery request failed\n"), "{load}");
    assert!(!load.contains("Exit codes"), "{load}");
    let title =
        format!(".TH STOCKADE-LOAD 1 \" \" \"stockade {}\" \"User Commands\"", env!("CARGO_PKG_VERSION"));
    assert!(load.contains(&title), "{load}");
    assert!(load.contains("attempt after this time [default: 30s]\n"), "{load}");
    assert!(load.contains("output [default: text] [possible values: text, json, vegeta"), "{load}");
    let origin = page(Some("origin"));
    assert!(origin.contains("\n.SH \"A RECIPE\"\n.nf\n{\"route\""), "{origin}");
}

#[test]
fn page_of_an_unknown_command_is_refused_with_the_nearest_name() {
    let sandbox = Sandbox::new();
    sandbox.stockade(&["man", "laod"]).assert_refused(2, &["unknown command `laod`: did you mean `load`?"]);
    sandbox.stockade(&["man", "app"]).assert_refused(2, &["unknown command `app`"]);
}
