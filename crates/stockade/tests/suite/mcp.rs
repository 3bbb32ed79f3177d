//! `stockade mcp` in the bytes of its protocol: a line of JSON for each message.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use serde_json::{Value, json};

use crate::support::Sandbox;

/// A claim that fails.
const EXPERIMENT: &str = "title = \"A source\"\n[target]\nkind = \"engine\"\n[origin]\nsource = \"simulated:50\"\nlatency = \"20ms\"\n\
    [cache]\nstrategy = \"stampede\"\nttl = \"1s\"\n[load]\nrate = \"100/s\"\nduration = \"10s\"\n\
    [[hypothesis]]\ntext = \"no request succeeds\"\nexpect = [\"success == 0\"]\n";

/// A client with one session.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    id: u64,
}

impl Client {
    fn new(sandbox: &Sandbox) -> Self {
        let mut command = sandbox.command();
        command.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut client = Self { child, input, output, id: 0 };
        let hello = client.request(
            "initialize",
            &json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
        );
        assert_eq!(hello["result"]["serverInfo"]["name"], "stockade", "{hello}");
        client.notify("notifications/initialized", &json!({}));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").expect("the program reads");
    }

    fn notify(&mut self, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    fn begin(&mut self, method: &str, params: &Value) -> u64 {
        self.id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}));
        self.id
    }

    /// The response with this id; notifications come before it.
    fn response(&mut self, id: u64) -> Value {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).expect("the program writes"), 0, "it ended");
            let message: Value =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if message["id"] == id {
                return message;
            }
        }
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin(method, params);
        self.response(id)
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// The end of input is the end of the program.
    fn end(self) {
        let Self { mut child, input, output, .. } = self;
        drop(input);
        drop(output);
        assert!(child.wait().expect("a child").success());
    }
}

#[test]
fn agent_goes_from_a_file_to_a_verdict_with_tools_alone() {
    let sandbox = Sandbox::new();
    let mut client = Client::new(&sandbox);
    let tools = client.request("tools/list", &json!({}));
    let tools = tools["result"]["tools"].as_array().expect("tools");
    let names: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["audit", "init", "check", "run", "compare", "plan"]);
    let described = |tool: &Value| tool["description"].is_string() && tool["inputSchema"]["type"] == "object";
    assert!(tools.iter().all(described), "{tools:?}");

    let written = client.call("init", &json!({"file": "example.toml"}));
    assert_eq!(written["result"]["structuredContent"]["exit_code"], 0, "{written}");
    assert!(sandbox.path().join("example.toml").exists());
    sandbox.file("e.toml", EXPERIMENT);
    let checked = client.call("check", &json!({"file": "e.toml"}));
    assert_eq!(checked["result"]["structuredContent"]["exit_code"], 0, "{checked}");
    let ran = client.call("run", &json!({"file": "e.toml"}));
    let result = &ran["result"];
    assert_eq!(
        (&result["isError"], &result["structuredContent"]["exit_code"]),
        (&json!(false), &json!(99)),
        "{ran}"
    );
    assert_eq!(result["structuredContent"]["meaning"], "a hypothesis refuted");
    let record = result["structuredContent"]["report"]["record"].as_str().expect("a record").to_owned();
    let compared = client.call("compare", &json!({"before": record, "after": record}));
    assert_eq!(compared["result"]["structuredContent"]["exit_code"], 0, "{compared}");
    client.end();
}

#[test]
fn wrong_calls_say_what_is_wrong() {
    let sandbox = Sandbox::new();
    let mut client = Client::new(&sandbox);
    let error = |answer: Value| answer["error"]["message"].as_str().expect("an error").to_owned();
    assert_eq!(error(client.call("audits", &json!({}))), "there is no tool `audits`: did you mean `audit`?");
    assert!(error(client.call("run", &json!({"file": "a", "out": "b"}))).contains("unknown field `out`"));
    let absent = client.call("run", &json!({"file": "absent.toml"}));
    let result = &absent["result"]["structuredContent"];
    assert_eq!((&absent["result"]["isError"], &result["exit_code"]), (&json!(true), &json!(2)), "{absent}");
    assert!(result["messages"].as_str().is_some_and(|text| text.contains("absent.toml")), "{absent}");
    let option = client.call("check", &json!({"file": "--help"}));
    assert_eq!(option["result"]["structuredContent"]["exit_code"], 2, "{option}");
    client.end();
}

/// 192.0.2.0/24 is for documentation (RFC 5737): nothing is sent there.
#[test]
fn loads_stay_on_this_machine() {
    let sandbox = Sandbox::new();
    let text = "title = \"Elsewhere\"\n[target]\nkind = \"url\"\nurl = \"http://192.0.2.1:8080\"\n[load]\npath = \"/\"\nrate = \"1/s\"\nduration = \"1s\"\n";
    sandbox.file("e.toml", text);
    let mut client = Client::new(&sandbox);
    let ran = client.call("run", &json!({"file": "e.toml"}));
    let messages = ran["result"]["structuredContent"]["messages"].as_str().unwrap_or_default();
    assert!(ran["result"]["isError"] == true && messages.contains("allowed: 127.0.0.0/8"), "{ran}");
    let checked = client.call("check", &json!({"file": "e.toml"}));
    let messages = checked["result"]["structuredContent"]["messages"].as_str().unwrap_or_default();
    assert!(checked["result"]["isError"] == true && messages.contains("allowed: 127.0.0.0/8"), "{checked}");
    let audited = client.call("audit", &json!({"url": "http://192.0.2.1:8080"}));
    let messages = audited["result"]["structuredContent"]["messages"].as_str().unwrap_or_default();
    assert!(audited["result"]["isError"] == true && messages.contains("is not on this machine"), "{audited}");
    client.end();
}

/// An experiment that takes an hour, at a server that takes connections and never answers.
fn write_long(sandbox: &Sandbox) -> TcpListener {
    let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let url = format!("http://{}", server.local_addr().expect("an address"));
    let text = format!(
        "title = \"Long\"\n[target]\nkind = \"url\"\nurl = \"{url}\"\n[load]\npath = \"/\"\nrate = \"1/s\"\nduration = \"1h\"\n"
    );
    sandbox.file("long.toml", &text);
    server
}

/// It holds the turn until it ends.
#[test]
fn cancelled_tool_is_interrupted_and_the_next_one_runs() {
    let sandbox = Sandbox::new();
    let server = write_long(&sandbox);
    sandbox.file("e.toml", EXPERIMENT);
    let mut client = Client::new(&sandbox);
    let id = client.begin("tools/call", &json!({"name": "run", "arguments": {"file": "long.toml"}}));
    // The run has begun.
    drop(server.accept().expect("a connection"));
    client.notify("notifications/cancelled", &json!({"requestId": id, "reason": "enough"}));
    let ran = client.call("run", &json!({"file": "e.toml"}));
    assert_eq!(ran["result"]["structuredContent"]["exit_code"], 99, "{ran}");
    client.end();
}

/// The run ends before the program does, and its pipe with it.
#[test]
fn end_of_the_session_ends_the_tool() {
    let sandbox = Sandbox::new();
    let server = write_long(&sandbox);
    let mut client = Client::new(&sandbox);
    client.begin("tools/call", &json!({"name": "run", "arguments": {"file": "long.toml", "test": []}}));
    drop(server.accept().expect("a connection"));
    client.end();
    let runs = std::fs::read_dir(sandbox.path().join("runs/long")).expect("runs");
    let records = runs.map(|run| run.expect("a run").path().join("record.json"));
    assert_eq!(records.filter(|record| record.exists()).count(), 1, "an interrupted run keeps its record");
}
