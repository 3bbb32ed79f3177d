//! The tools: their arguments, and the command line of each. Pure.

use rmcp::{
    handler::server::common::schema_for_type,
    model::{JsonObject, Tool},
    schemars::{self, JsonSchema},
};
use serde::{Deserialize, de::DeserializeOwned};
use stockade_model::nearest::remedy;

use crate::cli::McpArgs;

/// A tool by its name, which is a command of the program.
struct ToolKind {
    name: &'static str,
    description: &'static str,
    tool: fn(&Self) -> Tool,
    command: fn(JsonObject, &McpArgs) -> Result<CommandLine, String>,
}

static TOOLS: [ToolKind; 6] = [
    tool::<AuditTool>(
        "audit",
        "Examine an HTTP cache: play its origin and its users, and answer up to 90 questions about herds, outages, freshness, privacy, \
         variants, purges, limits and keys, each with a mark, evidence and a remedy. Takes two minutes; a group alone at most half a minute.",
    ),
    tool::<InitTool>(
        "init",
        "Write an example experiment to a new file, or the experiment of an answer of an audit.",
    ),
    tool::<CheckTool>(
        "check",
        "Start the servers of an experiment once, without a load: what it would run and how long, or where the file is wrong.",
    ),
    tool::<RunTool>(
        "run",
        "Run an experiment and judge its hypotheses: supported, refuted or inconclusive. Its record is a new directory.",
    ),
    tool::<CompareTool>(
        "compare",
        "Compare two records of one experiment: which figures are better, worse or the same.",
    ),
    tool::<PlanTool>(
        "plan",
        "Replay an access log in caches of several sizes and policies: a size, a lifetime, and the load that is left for the origin.",
    ),
];

const fn tool<T: Arguments>(name: &'static str, description: &'static str) -> ToolKind {
    ToolKind {
        name,
        description,
        tool: |kind| Tool::new(kind.name, kind.description, schema_for_type::<T>()),
        command: |arguments, args| {
            let arguments: T = serde_json::from_value(arguments.into()).map_err(|error| error.to_string())?;
            let mut line = CommandLine::default();
            arguments.write(&mut line, args);
            Ok(line)
        },
    }
}

/// In the order of their use.
pub fn list() -> Vec<Tool> {
    TOOLS.iter().map(|kind| (kind.tool)(kind)).collect()
}

/// The command line of a call.
///
/// # Errors
/// No tool has this name, or the arguments are not those of the tool.
pub fn arguments(name: &str, arguments: JsonObject, args: &McpArgs) -> Result<Vec<String>, String> {
    let kind = TOOLS.iter().find(|kind| kind.name == name);
    let kind = kind.ok_or_else(|| {
        format!("there is no tool `{name}`: {}", remedy(name, TOOLS.iter().map(|kind| kind.name)))
    })?;
    let CommandLine { options, operands } = (kind.command)(arguments, args)?;
    // Operands cannot be options.
    Ok([name.to_owned()].into_iter().chain(options).chain(["--".to_owned()]).chain(operands).collect())
}

trait Arguments: DeserializeOwned + JsonSchema + 'static {
    fn write(self, line: &mut CommandLine, args: &McpArgs);
}

#[derive(Debug, Default)]
struct CommandLine {
    options: Vec<String>,
    operands: Vec<String>,
}

impl CommandLine {
    /// `--NAME=VALUE` for each value.
    fn option(&mut self, name: &str, values: impl IntoIterator<Item = impl ToString>) {
        self.options.extend(values.into_iter().map(|value| format!("--{name}={}", value.to_string())));
    }

    fn operands(&mut self, values: impl IntoIterator<Item = String>) {
        self.operands.extend(values);
    }

    /// The servers of this machine, and those that the one who started the server allows.
    fn allowed_targets(&mut self, args: &McpArgs) {
        self.option("allow-target", LOOPBACK);
        self.option("allow-target", &args.allow_target);
    }

    fn json(&mut self) {
        self.option("format", ["json"]);
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AuditTool {
    /// Installed server that is started as the cache: nginx, varnish, haproxy, squid, trafficserver, envoy or stockade
    preset: Option<String>,
    /// Configuration of the preset: a file with the placeholders `{listen}` and `{origin}`. Default: the stock configuration
    config: Option<String>,
    /// In place of a preset: the URL of a cache that runs and forwards to `origin_listen`
    url: Option<String>,
    /// Address of the origin, which the audit plays. Default: 127.0.0.1:9080
    origin_listen: Option<String>,
    /// Questions or groups, such as `herd`, `outage`, `privacy` or `herd.cold`. Default: all
    #[serde(default)]
    ask: Vec<String>,
    /// Record of an earlier audit, to compare with
    against: Option<String>,
    /// Exit code 99 for an answer with this mark or a worse one (`weak`, `wrong`), of this id, or worse than in `against` (`worse`)
    #[serde(default)]
    fail_on: Vec<String>,
}

impl Arguments for AuditTool {
    fn write(self, line: &mut CommandLine, args: &McpArgs) {
        line.json();
        line.option("preset", self.preset);
        line.option("config", self.config);
        line.option("origin-listen", self.origin_listen);
        line.option("ask", self.ask);
        line.option("against", self.against);
        line.option("fail-on", self.fail_on);
        line.allowed_targets(args);
        line.operands(self.url);
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InitTool {
    /// File to write
    file: String,
    /// The cache that is tested: `engine` in this process, `url` at a URL, or `proxy`. Default: engine
    target: Option<String>,
    /// Record of an audit: the experiment asks one of its questions again
    from_audit: Option<String>,
    /// Question of that record, such as `herd.cold`
    answer: Option<String>,
}

impl Arguments for InitTool {
    fn write(self, line: &mut CommandLine, _: &McpArgs) {
        line.option("target", self.target);
        line.option("from-audit", self.from_audit);
        line.option("answer", self.answer);
        line.operands([self.file]);
    }
}

/// The networks of this machine.
const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];

/// The part of an experiment that is checked or run.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Part {
    /// File of the experiment
    file: String,
    /// Only these tests and the tests below them
    #[serde(default)]
    test: Vec<String>,
    /// Only these arms
    #[serde(default)]
    arms: Vec<String>,
    /// Multiply the settings that the file lists as `scaled`
    scale: Option<f64>,
    /// Measure every arm this number of times
    repeat: Option<u32>,
}

impl Part {
    fn write(self, line: &mut CommandLine, args: &McpArgs) {
        line.allowed_targets(args);
        line.option("test", self.test);
        line.option("arms", self.arms.split_first().map(|_| self.arms.join(",")));
        line.option("scale", self.scale);
        line.option("repeat", self.repeat);
        line.operands([self.file]);
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
struct CheckTool(Part);

impl Arguments for CheckTool {
    fn write(self, line: &mut CommandLine, args: &McpArgs) {
        self.0.write(line, args);
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
struct RunTool(Part);

impl Arguments for RunTool {
    fn write(self, line: &mut CommandLine, args: &McpArgs) {
        line.json();
        self.0.write(line, args);
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CompareTool {
    /// Directory of the record before the change
    before: String,
    /// Directory of the record after it
    after: String,
    /// Least change that counts, such as `5%`
    min_effect: Option<String>,
}

impl Arguments for CompareTool {
    fn write(self, line: &mut CommandLine, _: &McpArgs) {
        line.json();
        line.option("min-effect", self.min_effect);
        line.operands([self.before, self.after]);
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlanTool {
    /// Access logs, also compressed ones
    logs: Vec<String>,
    /// Time for which responses are fresh, such as `1m`; `headers`: as the log says. Default: headers where the log has them, else 1m
    ttl: Option<String>,
    /// Greatest age that a response may have
    staleness: Option<String>,
    /// Time that a load takes, such as `200ms`
    origin_latency: Option<String>,
}

impl Arguments for PlanTool {
    fn write(self, line: &mut CommandLine, _: &McpArgs) {
        line.json();
        line.option("ttl", self.ttl);
        line.option("staleness", self.staleness);
        line.option("origin-latency", self.origin_latency);
        line.operands(self.logs);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(name: &str, given: Value) -> Result<String, String> {
        let args = McpArgs { allow_target: vec!["10.2.0.7".parse().unwrap()] };
        let Value::Object(given) = given else { panic!("an object") };
        arguments(name, given, &args).map(|line| line.join(" "))
    }

    #[test]
    fn calls_are_command_lines() {
        for (name, given, expected) in [
            (
                "audit",
                json!({ "preset": "nginx", "ask": ["herd", "keys.host"] }),
                "audit --format=json --preset=nginx --ask=herd --ask=keys.host --allow-target=127.0.0.0/8 --allow-target=::1/128 --allow-target=10.2.0.7/32:* --",
            ),
            ("init", json!({ "file": "--force" }), "init -- --force"),
            (
                "run",
                json!({ "file": "a.toml", "arms": ["a", "b"], "scale": 0.5 }),
                "run --format=json --allow-target=127.0.0.0/8 --allow-target=::1/128 --allow-target=10.2.0.7/32:* --arms=a,b --scale=0.5 -- a.toml",
            ),
            (
                "check",
                json!({ "file": "a.toml" }),
                "check --allow-target=127.0.0.0/8 --allow-target=::1/128 --allow-target=10.2.0.7/32:* -- a.toml",
            ),
            ("compare", json!({ "before": "a", "after": "b" }), "compare --format=json -- a b"),
            ("plan", json!({ "logs": ["a.gz"], "ttl": "1m" }), "plan --format=json --ttl=1m -- a.gz"),
        ] {
            assert_eq!(line(name, given).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn wrong_calls_are_named() {
        assert_eq!(
            line("audits", json!({})),
            Err("there is no tool `audits`: did you mean `audit`?".to_owned())
        );
        let refused = line("audit", json!({ "command": "sh" })).unwrap_err();
        assert!(refused.contains("unknown field `command`"), "{refused}");
        let refused = line("compare", json!({ "before": "a" })).unwrap_err();
        assert!(refused.contains("missing field `after`"), "{refused}");
    }
}
