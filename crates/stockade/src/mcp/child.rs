//! A command of this program as a child, and its end as the result of a tool.

use std::{io, path::Path, process::Stdio, time::Duration};

use rmcp::model::CallToolResult;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use stockade_model::time::{Live, Runtime, before};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
};
use tokio_util::sync::CancellationToken;

use crate::cli::exit_codes;

/// Bound of a report and of messages; the rest is read and left out.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// For a command that is interrupted to stop its servers and to write its record.
pub const GRACE: Duration = Duration::from_secs(20);

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    code: i32,
    report: String,
    messages: String,
}

/// Runs a command to its end. A cancelled one is interrupted, as by Ctrl-C.
pub async fn run(program: &Path, arguments: &[String], cancelled: &CancellationToken) -> io::Result<Ended> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (report, messages) = (child.stdout.take(), child.stderr.take());
    let output = async { tokio::join!(text(report), text(messages)) };
    tokio::pin!(output);
    let (report, messages) = match cancelled.run_until_cancelled(&mut output).await {
        Some(output) => output,
        None => {
            interrupt(&child);
            let time = Live::new();
            before(&time, time.now() + GRACE, output).await.ok_or(io::ErrorKind::TimedOut)?
        }
    };
    let code = child.wait().await?.code().unwrap_or(-1);
    Ok(Ended { code, report: report?, messages: messages? })
}

fn interrupt(child: &Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    // A child that has ended needs none.
    let _ = id.map(|id| kill_process(id, Signal::INT));
}

async fn text(output: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(mut output) = output {
        (&mut output).take(OUTPUT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).await?;
        // The child does not wait for its reader.
        tokio::io::copy(&mut output, &mut tokio::io::sink()).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Ended {
    /// Exit code, its meaning, messages and report. 98 and 99 are verdicts, not errors of the tool.
    pub fn result(self, command: &str) -> CallToolResult {
        let meaning = exit_codes(Some(command)).iter().find(|(code, _)| i32::from(*code) == self.code);
        let report = match serde_json::from_str(&self.report) {
            Ok(report) => report,
            Err(_) if self.report.len() > OUTPUT_BYTES_MAX => {
                json!("The report has more than 4 MiB: read it in the record.")
            }
            Err(_) => Value::String(self.report),
        };
        let result = json!({
            "exit_code": self.code,
            "meaning": meaning.map(|(_, meaning)| meaning),
            "messages": self.messages,
            "report": report,
        });
        match self.code {
            0 | 98 | 99 => CallToolResult::structured(result),
            _ => CallToolResult::structured_error(result),
        }
    }
}
