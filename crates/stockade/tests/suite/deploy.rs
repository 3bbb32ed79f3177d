//! The files of deploy/ that run loads on agents name commands and flags that exist, and fit together.

use std::{fs, path::PathBuf, process::Command};

use crate::support::root;

/// The folders and files that have commands of loads on agents: each is one deployment.
const DEPLOYMENTS: [&str; 3] = ["kubernetes", "agents.compose.yaml", "agents.nomad.hcl"];

fn files(deployment: &str) -> Vec<PathBuf> {
    let path = root().join("deploy").join(deployment);
    if path.is_file() {
        return vec![path];
    }
    let entries = fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// The lists of arguments of `args:`, `command:` and `args =`, in the styles of YAML and in HCL.
fn argument_lists(text: &str) -> Vec<Vec<String>> {
    let mut lists = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let line = line.trim_start().trim_start_matches("- ");
        let keys = ["args:", "command:", "args "];
        let Some(rest) = keys.iter().find_map(|key| line.strip_prefix(key)) else { continue };
        let rest = rest.trim_start().trim_start_matches('=').trim();
        if rest.is_empty() {
            let mut list = Vec::new();
            while let Some(item) = lines.next_if(|line| line.trim_start().starts_with("- ")) {
                list.push(item.trim().trim_start_matches("- ").trim_matches('"').to_owned());
            }
            lists.push(list);
            continue;
        }
        let mut flow = rest.to_owned();
        while !flow.trim_end().ends_with(']') {
            flow.push_str(lines.next().expect("the end of a list"));
        }
        let list = flow.trim().trim_start_matches('[').trim_end_matches(']');
        // Arguments have no commas.
        let items = list.split(',').map(|item| item.trim().trim_matches('"').to_owned());
        lists.push(items.filter(|item| !item.is_empty()).collect());
    }
    lists
}

/// The value of the variable that an argument in HCL names, or the argument.
fn with_variables(argument: String, text: &str) -> String {
    let Some(name) = argument.strip_prefix("var.") else { return argument };
    let (_, variable) = text.split_once(&format!("variable \"{name}\"")).expect("a variable");
    let (_, value) = variable.split_once("default").expect("its default");
    value.split('"').nth(1).expect("a text").to_owned()
}

/// The commands of a deployment for the program.
fn commands(deployment: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    for file in files(deployment) {
        let text = fs::read_to_string(file).expect("readable");
        let of_file = argument_lists(&text).into_iter().filter(|list| {
            list.first().is_some_and(|first| ["agent", "load", "origin"].contains(&first.as_str()))
        });
        commands.extend(of_file.map(|list| {
            list.into_iter().map(|argument| with_variables(argument, &text)).collect::<Vec<_>>()
        }));
    }
    commands
}

fn value<'a>(command: &'a [String], flag: &str) -> &'a str {
    let at = command.iter().position(|argument| argument == flag);
    &command[at.unwrap_or_else(|| panic!("{flag} is not in {command:?}")) + 1]
}

#[test]
fn commands_of_deployments_are_accepted() {
    for deployment in DEPLOYMENTS {
        for command in commands(deployment) {
            // Arguments before `--help` are parsed first, values too.
            let output = Command::new(env!("CARGO_BIN_EXE_stockade")).args(&command).arg("--help").output();
            let output = output.expect("it starts");
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{deployment}: {command:?}: {message}");
        }
    }
}

#[test]
fn agents_of_deployments_may_reach_the_target_and_are_as_many_as_are_awaited() {
    for deployment in DEPLOYMENTS {
        let commands = commands(deployment);
        let of = |name: &str| commands.iter().find(|command| command[0] == name).expect("a command");
        let (agent, load) = (of("agent"), of("load"));
        let url = load[1].strip_prefix("http://").expect("a URL");
        let (server, _) = url.split_once('/').expect("a path");
        assert_eq!(value(agent, "--allow-target"), server, "{deployment}");
        assert_eq!(value(agent, "--nats"), value(load, "--on"), "{deployment}");
        let awaited = value(load, "--agents");
        let text: String =
            files(deployment).iter().map(|file| fs::read_to_string(file).expect("readable")).collect();
        let has = |count: String| text.contains(&count);
        assert!(
            has(format!("parallelism: {awaited}\n  completions: {awaited}\n"))
                || has(format!("count = {awaited}\n"))
                || text.matches("hostname: agent-").count().to_string() == awaited,
            "{deployment}: {awaited} agents"
        );
    }
}

#[test]
fn lists_of_arguments_are_read_in_each_style() {
    let text =
        "args:\n  - load\n  - \"3\"\ncommand: [\"agent\", \"--nats\"]\nargs = [\n  \"origin\", var.url,\n]\n";
    assert_eq!(argument_lists(text), [vec!["load", "3"], vec!["agent", "--nats"], vec!["origin", "var.url"]]);
}
