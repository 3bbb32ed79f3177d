//! `stockade load`: sends requests at their due times and reports the results.

mod capacity;
mod live;
mod resolve;

use std::io::Write;

use stockade_load::{
    generator::LoadTestRun,
    report::{Render, ReportOptions},
};

use self::live::LiveReport;
use crate::{
    cli::{LoadArgs, Out},
    exit::{CommandError, Exit},
    progress::stop_on_signals,
};

/// Standard output has the report and nothing else.
pub fn load(args: LoadArgs) -> Result<Exit, CommandError> {
    let options = ReportOptions { buckets: args.buckets.clone() };
    let (format, out) = (args.format, args.out.clone());
    if let Some(bounds) = args.capacity.clone() {
        return capacity::search(args, &bounds);
    }
    let mut load = resolve::load(args)?;
    let stream = match format.render {
        Render::Stream(stream) => Some(stream),
        Render::Fold(_) => None,
    };
    load.observes_samples = stream.is_some() || out.is_some();
    // Before the output files: a load that cannot start leaves no empty file.
    let ready = load.prepare()?;
    let mut live = LiveReport::new(&load, stream, out.as_ref())?;
    let LoadTestRun { summary, was_cancelled } = ready.run(&mut live, &stop_on_signals())?;
    let finished = live.finish();
    if let Render::Fold(render) = format.render {
        let text = render(&summary, &options);
        std::io::stdout().write_all(text.as_bytes()).map_err(CommandError::Output)?;
    }
    if format.name != "text" {
        for reason in &summary.generator.invalid_reasons {
            eprintln!("INVALID: {reason}");
        }
    }
    // The report comes first: an output file that could not be written does not hide it.
    finished?;
    let is_valid = summary.generator.is_valid() && !was_cancelled;
    Ok(if is_valid { Exit::Done } else { Exit::Undecided })
}

impl Out {
    fn unwritable(&self, error: &std::io::Error) -> CommandError {
        CommandError::Usage(format!("cannot write {}: {error}", self.path.display()))
    }
}
