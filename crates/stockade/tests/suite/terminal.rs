//! What `stockade run` and `stockade load` write to a terminal and to a pipe.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    net::TcpListener,
    process::{Command, Stdio},
    thread,
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::support::Sandbox;

/// Two arms over a simulated source, in so much real time that the view is drawn.
const EXPERIMENT: &str = r#"
title = "Does coalescing protect the database?"
[target]
kind = "engine"
[origin]
source = "sqlite:"
latency = "20ms"
[cache]
ttl = "100ms"
[load]
rate = "200/s"
duration = "2s"
[[arm]]
name = "simple"
cache.strategy = "simple"
[[arm]]
name = "stampede"
cache.strategy = "stampede"
[[hypothesis]]
text = "both answer every request"
expect = ["success == 1"]
[[hypothesis]]
text = "coalescing makes no load"
expect = ["stampede.source_loads == 0"]
"#;

/// The output of a program: standard error at a terminal, standard output in a pipe.
struct TerminalOutput {
    terminal: String,
    stdout: String,
    code: Option<i32>,
}

/// Runs it with standard error at a terminal of this kind, with 24 rows.
fn at_terminal(command: &mut Command, kind: &str, columns: u16) -> TerminalOutput {
    interrupted_at_terminal(command, kind, columns, None)
}

/// The same with a Ctrl-C as soon as this text is shown.
fn interrupted_at_terminal(
    command: &mut Command,
    kind: &str,
    columns: u16,
    mut interrupt_at: Option<&'static str>,
) -> TerminalOutput {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("it may be opened");
    let name = ptsname(&master, Vec::new()).expect("it has a name");
    let terminal = OpenOptions::new().read(true).write(true).open(name.to_str().expect("a path"));
    let terminal = terminal.expect("it opens");
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).expect("it has a size");
    command.env("TERM", kind).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(terminal);
    let child = command.spawn().expect("the program starts");
    let pid = Pid::from_child(&child);
    // The program has the only end of the terminal: reading ends with it.
    command.stderr(Stdio::null());
    let mut master = File::from(master);
    let reader = thread::spawn(move || {
        let (mut bytes, mut part) = (Vec::new(), [0; 4_096]);
        while let Ok(read @ 1..) = master.read(&mut part) {
            bytes.extend_from_slice(&part[..read]);
            if interrupt_at.is_some_and(|text| String::from_utf8_lossy(&bytes).contains(text)) {
                kill_process(pid, Signal::INT).expect("it runs");
                interrupt_at = None;
            }
        }
        String::from_utf8(bytes).expect("UTF-8")
    });
    let output = child.wait_with_output().expect("it ends");
    TerminalOutput {
        terminal: reader.join().expect("it is read"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        code: output.status.code(),
    }
}

/// The rows of a terminal after this output: line feeds, carriage returns, and the three sequences that the program uses.
fn screen(output: &str, columns: usize) -> Vec<String> {
    let (mut rows, mut row, mut column) = (vec![Vec::new()], 0, 0);
    let mut chars = output.chars();
    while let Some(c) = chars.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\u{1b}' => {
                assert_eq!(chars.next(), Some('['), "a control sequence");
                let sequence: String = chars.by_ref().take_while(|c| !c.is_ascii_alphabetic()).collect();
                let end = output.len() - chars.as_str().len();
                match &output[end - 1..end] {
                    "A" => row -= sequence.parse::<usize>().expect("a number of rows"),
                    "J" => {
                        rows.truncate(row + 1);
                        rows[row].truncate(column);
                    }
                    "m" => {}
                    other => panic!("an unknown sequence: {sequence}{other}"),
                }
            }
            c => {
                assert!(column < columns, "a line is wrapped: {rows:?}");
                let row: &mut Vec<char> = &mut rows[row];
                row.resize(row.len().max(column + 1), ' ');
                row[column] = c;
                column += 1;
            }
        }
        rows.resize(rows.len().max(row + 1), Vec::new());
    }
    rows.into_iter().map(|row| row.into_iter().collect()).collect()
}

/// The output until the last time that the view is drawn.
fn last_view(output: &str) -> &str {
    let end = output.rfind("\x1b[J").expect("it is erased");
    &output[..output[..end].rfind('\r').expect("it moves to the first column")]
}

fn run(sandbox: &Sandbox, columns: u16, environment: &[(&str, &str)]) -> TerminalOutput {
    let file = sandbox.file("small.toml", EXPERIMENT);
    let mut command = sandbox.command();
    command.args(["run", &file, "--out", "record"]).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    at_terminal(command.envs(environment.iter().copied()), "xterm", columns)
}

#[test]
fn run_draws_in_place_and_leaves_a_summary() {
    let sandbox = Sandbox::new();
    let output = run(&sandbox, 80, &[]);
    assert_eq!(output.code, Some(99), "{}", output.terminal);
    let view = screen(last_view(&output.terminal), 80).join("\n");
    for shown in
        ["Does coalescing protect the database?", "2 of 2", "stampede, repeat 1", "so far   ? inconclusive"]
    {
        assert!(view.contains(shown), "`{shown}` is not in\n{view}");
    }
    // The view is gone, and nothing stands above the summary.
    let end = screen(&output.terminal, 80);
    assert_eq!(end[..2], ["", "refuted: Does coalescing protect the database?"]);
    assert_eq!(end[end.len() - 2..], ["refuted; record, report.md and report.html in record", ""]);
    assert!(!end.join("").contains("so far"), "{end:#?}");
    assert!(output.terminal.contains("\x1b[3"), "verdicts have colours");
    assert!(
        output.stdout.starts_with("Does coalescing") && !output.stdout.contains('\x1b'),
        "{}",
        output.stdout
    );
}

#[test]
fn summary_fits_a_chat() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("virtual.toml", &EXPERIMENT.replace("sqlite:", "simulated:50"));
    let output = at_terminal(sandbox.command().args(["run", &file, "--out", "record"]), "xterm", 80);
    insta::assert_snapshot!(screen(&output.terminal, 80).join("\n").trim(), @r"
    refuted: Does coalescing protect the database?
    one repeat; virtual time (computed)

    ✗ refuted      coalescing makes no load: 278 against 0
    ✓ supported    both answer every request: 1 against 1
    ✓ supported    nothing was served beyond its limit: 0 against 0

     arm       requests  hit ratio  source loads  failed  answered p50   p99
     simple         400     26.50%           294       0          20ms  20ms
     stampede       400     26.50%           278       0          20ms  20ms

    refuted; record, report.md and report.html in record
    ");
}

#[test]
fn interrupt_is_answered_above_the_view() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("long.toml", &EXPERIMENT.replace("\"2s\"", "\"60s\""));
    let mut command = sandbox.command();
    command.args(["run", &file, "--out", "record"]);
    let output = interrupted_at_terminal(&mut command, "xterm", 80, Some("of 60s"));
    assert_eq!(output.code, Some(98), "{}", output.terminal);
    let end = screen(&output.terminal, 80);
    assert_eq!(end[0], "stopping; finished measurements are kept (again to stop at once)");
    assert_eq!(end[1..3], ["", "interrupted: Does coalescing protect the database?"]);
}

#[test]
fn narrow_terminal_wraps_no_line() {
    let output = run(&Sandbox::new(), 40, &[]);
    screen(last_view(&output.terminal), 40);
}

#[test]
fn no_color_has_no_colours() {
    let output = run(&Sandbox::new(), 80, &[("NO_COLOR", "1")]);
    assert!(output.terminal.contains("✗ refuted"), "{}", output.terminal);
    let mut sequences = output.terminal.split("\x1b[").skip(1);
    assert!(
        sequences.all(|rest| !rest.trim_start_matches(|c: char| !c.is_ascii_alphabetic()).starts_with('m'))
    );
}

#[test]
fn dumb_terminal_and_pipe_have_the_last_line_only() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("small.toml", EXPERIMENT);
    let line = "\nrefuted; record, report.md and report.html in ";
    let mut command = sandbox.command();
    let dumb = at_terminal(command.args(["run", &file, "--out", "a"]), "dumb", 80);
    assert_eq!(dumb.terminal.replace('\r', ""), format!("{line}a\n"));
    let piped = sandbox
        .command()
        .args(["run", &file, "--out", "b"])
        .env("CLICOLOR_FORCE", "1")
        .output()
        .expect("runs");
    assert_eq!(String::from_utf8(piped.stderr).expect("UTF-8"), format!("{line}b\n"));
}

/// ESC, BEL, a change of direction and the C1 form of ESC [, as a file writes them.
const HOSTILE: &str = r"\u001b]0;owned\u0007\u202eA\u009b31mB\u2066";

/// True if the terminal would obey anything but what `stockade` draws with: colours, erasing and moving up.
fn assert_obeys_nobody(output: &str) {
    assert!(!output.contains("\u{1b}]") && !output.contains('\u{7}'), "{output:?}");
    let others = ['\u{202e}', '\u{9b}', '\u{2066}', '\u{85}', '\u{7f}'];
    assert!(!output.contains(others), "{output:?}");
}

#[test]
fn titles_and_claims_of_a_file_move_no_cursor() {
    let sandbox = Sandbox::new();
    let text = EXPERIMENT
        .replace("Does coalescing protect the database?", HOSTILE)
        .replace("both answer every request", HOSTILE)
        .replace("duration = \"2s\"", "duration = \"1s\"");
    let file = sandbox.file("hostile.toml", &text);
    let mut command = sandbox.command();
    let output = at_terminal(command.args(["run", &file, "--out", "record"]), "xterm", 80);
    assert!(
        output.stdout.contains("\u{fffd}]0;owned\u{fffd}\u{fffd}A\u{fffd}31mB\u{fffd}"),
        "{}",
        output.stdout
    );
    assert_obeys_nobody(&output.terminal);
    assert_obeys_nobody(&output.stdout);
    // A mistake in the same file.
    let file = sandbox.file("wrong.toml", &(text + &format!("\n[[arm]]\n\"{HOSTILE}\" = \"\u{202e}\"\n")));
    let mut command = sandbox.command();
    let output = at_terminal(command.args(["run", &file, "--out", "other"]), "xterm", 80);
    assert_eq!(output.code, Some(2));
    assert_obeys_nobody(&output.terminal);
}

/// A server answers with what it likes, and the lines of a log have what clients sent.
#[test]
fn servers_and_logs_of_a_load_move_no_cursor() {
    let sandbox = Sandbox::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/{}", listener.local_addr().expect("its address"), "long/".repeat(60));
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _ = connection.read(&mut [0; 4_096]);
            let hostile = "\u{1b}]0;owned\u{7}\u{202e}\u{9b}31m";
            let head =
                format!("HTTP/1.1 302 {hostile}\r\nLocation: gopher://{hostile}\r\nX-Cache: {hostile}\r\n");
            let _ = connection.write_all(format!("{head}Content-Length: 0\r\n\r\n").as_bytes());
        }
    });
    let mut command = sandbox.command();
    command.args(["load", &url, "--connections", "1", "--requests", "3", "--redirects", "2"]);
    let output = at_terminal(&mut command, "xterm", 80);
    assert_obeys_nobody(&output.terminal);
    assert_obeys_nobody(&output.stdout);
    assert!(output.stdout.contains("errors      "), "{}", output.stdout);
    for line in output.stdout.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let line = "a - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 17\n";
    let bad = "\u{1b}]0;owned\u{7}\u{202e}\u{9b}31m\n";
    sandbox.file("a\u{1b}]0;owned\u{7}.log", &(line.repeat(20) + bad));
    let mut command = sandbox.command();
    command.args(["load", &url, "--replay", "a\u{1b}]0;owned\u{7}.log", "--requests", "1"]);
    let output = at_terminal(&mut command, "xterm", 80);
    assert!(output.terminal.contains("left out of the log: 1 in another format"), "{}", output.terminal);
    assert_obeys_nobody(&output.terminal);
}

#[test]
fn load_draws_in_place_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    // Nothing listens there: each request fails at once.
    let mut command = sandbox.command();
    command.args(["load", "http://127.0.0.1:1/", "--rate", "50/s", "--duration", "3s"]);
    let output = at_terminal(&mut command, "xterm", 80);
    let view = screen(last_view(&output.terminal), 80).join("\n");
    for shown in ["3s at 50/s", "/s, asked 50", "status   none ", "failed (connection refused: "] {
        assert!(view.contains(shown), "`{shown}` is not in\n{view}");
    }
    let (erased, after) = output.terminal.rsplit_once("\x1b[J").expect("it is erased");
    assert_eq!(screen(&format!("{erased}\x1b[J"), 80), [""]);
    let (record, error) = after.split_once('\n').expect("two lines");
    assert!(record.starts_with("record, report.md and report.html in runs/load/"), "{after}");
    assert!(error.starts_with("error: all of 150 requests failed"), "{after}");
}
