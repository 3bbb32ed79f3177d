//! The arguments of `stockade audit`.

use std::{net::SocketAddr, path::PathBuf, str::FromStr};

use clap::Args;
use stockade_audit::{FailingAnswer, PRESETS, Preset, Purge, Question, questions, report};
use stockade_load::TargetPattern;
use stockade_model::{nearest::nearest, registry::ReportFormat};

use super::{exit_codes_line, http::address, named};

/// An audit needs no file: it plays the origin and the users.
#[derive(Debug, Args)]
#[command(after_help = after_help(), arg_required_else_help = true)]
pub struct AuditArgs {
    /// URL of the cache, which forwards to the address of --origin-listen
    #[arg(value_name = "URL", required_unless_present = "preset", conflicts_with = "preset")]
    pub url: Option<String>,
    /// Start an installed server as the cache
    #[arg(long, value_name = "NAME", value_parser = named(&PRESETS))]
    pub preset: Option<&'static Preset>,
    /// Configuration of the preset, with the placeholders `{listen}` and `{origin}` [default: the stock configuration]
    #[arg(long, value_name = "FILE", requires = "preset", conflicts_with = "url")]
    pub config: Option<PathBuf>,
    /// Address of the origin, which the audit plays; port 0: any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9080", value_parser = address)]
    pub origin_listen: SocketAddr,
    /// Ask this question or this group of questions alone, such as `herd` or `herd.cold`; may be repeated [default: all]
    #[arg(long, value_name = "WHAT")]
    pub ask: Vec<AskedQuestions>,
    /// Command that starts the cache and stays in the foreground: the audit restarts it and measures its memory
    #[arg(long, value_name = "COMMAND", conflicts_with = "preset")]
    pub command: Option<String>,
    /// Command that empties the cache; it runs before each group of questions
    #[arg(long, value_name = "COMMAND")]
    pub reset: Option<String>,
    /// Program of the preset, such as a newer version [default: the installed one]
    #[arg(long, value_name = "PATH", requires = "preset")]
    pub program: Option<PathBuf>,
    /// Command with which the cache reads its configuration again: it is examined meanwhile
    #[arg(long, value_name = "COMMAND")]
    pub reload: Option<String>,
    /// Request that removes a page, such as `PURGE {url}` or `POST /admin/purge?path={path}`: purges are examined, too
    #[arg(long, value_name = "REQUEST")]
    pub purge: Option<Purge>,
    /// Cache that the audit may reach, such as `10.2.0.7:8080`; may be repeated [default: those of this machine]
    #[arg(long, value_name = "PATTERN")]
    pub allow_target: Vec<TargetPattern>,
    /// End with 99 if an answer has this mark or a worse one (`weak`, `wrong`), if the question with this id has, or if a mark is worse than
    /// that of --against (`worse`); may be repeated
    #[arg(long, value_name = "WHAT")]
    pub fail_on: Vec<FailingAnswer>,
    /// Compare with the record of an earlier audit, such as `runs/audit/2026-01-31T10-00-00Z.json`
    #[arg(long, value_name = "RECORD")]
    pub against: Option<PathBuf>,
    /// Keep no record [default: a new file runs/audit/TIME.json]
    #[arg(long)]
    pub no_record: bool,
    /// Format of the report
    #[arg(long, default_value = "text", value_parser = named(&report::FORMATS))]
    pub format: &'static ReportFormat<report::Render>,
}

pub const EXIT_CODES: [(u8, &str); 5] = [
    (0, "done"),
    (1, "failed"),
    (2, "bad usage or file"),
    (98, "a question could not be answered, or interrupted"),
    (99, "an answer that --fail-on names"),
];

const EXAMPLES: &str = "Examples:
  stockade audit --preset nginx
  stockade audit --preset nginx --config my-nginx.conf
  stockade audit http://127.0.0.1:8080 --origin-listen 127.0.0.1:9080 --fail-on wrong";

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{}", exit_codes_line(&EXIT_CODES))
}

/// The id of a question, or of a group.
#[derive(Clone, Copy, Debug)]
pub struct AskedQuestions(pub &'static str);

impl FromStr for AskedQuestions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut groups: Vec<&str> = questions().map(Question::group).collect();
        groups.dedup();
        let ids = || groups.iter().copied().chain(questions().map(|question| question.id));
        let found = ids().find(|id| *id == text).map(Self);
        found.ok_or_else(|| {
            let remedy = match nearest(text, ids()) {
                Some(id) => format!("did you mean `{id}`?"),
                None => format!("use a group ({}), or an id of a report", groups.join(", ")),
            };
            format!("`{text}` is neither a question nor a group: {remedy}")
        })
    }
}
