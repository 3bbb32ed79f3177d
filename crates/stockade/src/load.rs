//! `stockade load`: sends requests at their due times and reports the results.

mod capacity;
mod live;
mod resolve;
mod settings;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{self, IsTerminal},
    path::PathBuf,
    sync::Arc,
};

use stockade_lab::host;
use stockade_load::{
    LoadRecord,
    generator::{CancellationToken, LoadRunner, LoadTest, LoadTestRun, ThisProcess},
    report::{Render, ReportOptions, expectation_lines, openmetrics},
    summary::Summary,
    tally::Tally,
};
use stockade_model::units::format_count;
use stockade_record::{
    progress::RunObserver,
    record::{Expectation, Record, Verdict},
    storage::Recorder,
};

use self::live::LiveReport;
use crate::{
    cli::{LoadArgs, OnArgs, Out},
    exit::{CommandError, Exit},
    progress::{LiveScreen, RunView, stop_on_signals},
    run::{default_directories, print},
    telemetry::Telemetry,
    ui::LiveUi,
};

/// The sender of a load: agents, or this process.
fn sender(on: &OnArgs, stop: &CancellationToken) -> Result<Arc<dyn LoadRunner>, CommandError> {
    let agents = on.connect(BTreeMap::new(), stop)?;
    Ok(agents.map_or_else(|| Arc::new(ThisProcess) as _, |agents| agents.loads))
}

/// Standard output has the report and nothing else.
pub fn load(args: &LoadArgs) -> Result<Exit, CommandError> {
    if let Some(claims) = &args.capacity {
        return capacity::search(args, claims);
    }
    let LoadArgs { format, out, on, .. } = args;
    let mut load = resolve::load(args)?;
    let stream = match format.render {
        Render::Stream(stream) => Some(stream),
        Render::Fold(_) => None,
    };
    load.observes_samples = stream.is_some() || out.is_some();
    if on.on.is_some() && load.observes_samples {
        return Err(CommandError::Usage(
            "agents keep their samples: start them as `stockade agent --out DIR`, and remove --out and formats of samples here"
                .to_owned(),
        ));
    }
    let stop = stop_on_signals();
    let loads = sender(on, &stop)?;
    // Before the output files: a load that cannot start leaves no empty file.
    let ready = loads.prepare(&load)?;
    let telemetry = Telemetry::start(&args.telemetry, None)?;
    let title = title(&load);
    let ui = args.ui.address.map(|address| LiveUi::start(address, &title)).transpose()?;
    let mut observers: Vec<_> = ui.iter().map(|ui| Box::new(ui.observer()) as Box<dyn RunObserver>).collect();
    // Samples on the same terminal would break its lines.
    if stream.is_none() || !io::stdout().is_terminal() {
        observers.push(screen(&load));
    }
    let place = (!args.no_record).then(|| args.record.clone().unwrap_or_else(new_directory));
    let recorder = place.as_deref().and_then(|place| {
        Recorder::create(place).inspect_err(|error| say!("the load has no record: {error}")).ok()
    });
    let place = place.filter(|_| recorder.is_some());
    let head = Record { spec: settings::text(args), ..host::new_record(&title, load.seed) };
    let record = LoadRecord::start(&load, head, on.on.is_none(), recorder, Box::new(observers));
    let mut live = LiveReport::new(&load, (stream, out.as_ref()), telemetry.figures(), record)?;
    let LoadTestRun { summary, end } = ready.run(&mut live, &stop)?;
    let was_cancelled = end.was_cancelled;
    let (record, finished) = live.finish();
    let expectations = args.expect.iter().flat_map(|claims| summary.judge(claims, was_cancelled));
    let options = ReportOptions { buckets: args.buckets.clone(), expectations: expectations.collect() };
    let verdict = verdict(&summary, &options.expectations, was_cancelled);
    // The view leaves the terminal.
    let recorded = record.finish(&summary, &options.expectations, verdict, was_cancelled);
    if let Render::Fold(render) = format.render {
        print(&render(&summary, &options))?;
    }
    if format.name != "text" {
        for reason in &summary.generator.invalid_reasons {
            say!("INVALID: {reason}");
        }
        for expectation in &options.expectations {
            say!("{}", expectation_lines(expectation).trim_end());
        }
    }
    match (recorded, place) {
        (Err(error), _) => say!("the load has no complete record: {error}"),
        (_, Some(place)) => say!("record, report.md and report.html in {}", place.display()),
        (_, None) => {}
    }
    telemetry.finish(|| openmetrics::snapshot(&summary));
    // The report comes first: an output file that could not be written does not hide it.
    finished?;
    exit(verdict, &summary, &options.expectations, was_cancelled)
}

/// The view of a load at a terminal.
fn screen(load: &LoadTest) -> Box<dyn RunObserver> {
    Box::new(LiveScreen::open(RunView::of_load(&load.plan.to_string())))
}

/// A new directory in `runs/load`: another load may start in the same second. Its record reports why it cannot be made.
fn new_directory() -> PathBuf {
    let _ = fs::create_dir_all("runs/load");
    let is_ours = |directory: &PathBuf| {
        !fs::create_dir(directory).is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
    };
    default_directories(OsStr::new("load")).find(is_ours).expect("numbers do not end")
}

/// Of its page: the plan, and the server without anything secret.
fn title(load: &LoadTest) -> String {
    let url = &load.traffic.request(0).template.url;
    let port = url.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}, {}{port}", load.plan, url.host().unwrap_or_default())
}

/// Claims decide where there are some: a late generator does not matter to a claim about counts.
fn verdict(summary: &Summary, expectations: &[Expectation], was_cancelled: bool) -> Verdict {
    match Verdict::worst(expectations.iter().map(|expectation| expectation.verdict)) {
        Verdict::Supported if was_cancelled => Verdict::Invalid,
        Verdict::Supported if expectations.is_empty() && !summary.generator.is_valid() => Verdict::Invalid,
        verdict => verdict,
    }
}

fn exit(
    verdict: Verdict,
    summary: &Summary,
    expectations: &[Expectation],
    was_cancelled: bool,
) -> Result<Exit, CommandError> {
    let generator = &summary.generator;
    let is_late_only = generator.invalid_reasons.len() == generator.time_reason_count;
    match verdict {
        // Without a claim no verdict hangs on the times: the load was sent, and its figures are printed with the reasons to doubt them.
        Verdict::Invalid if expectations.is_empty() && is_late_only && !was_cancelled => {
            done(&summary.measured)
        }
        Verdict::Refuted => Ok(Exit::Refuted),
        Verdict::Invalid | Verdict::Inconclusive | Verdict::NotJudged => Ok(Exit::Undecided),
        Verdict::Supported => done(&summary.measured),
    }
}

/// A load without a successful request fails.
fn done(tally: &Tally) -> Result<Exit, CommandError> {
    if tally.requests() == 0 || tally.successes > 0 {
        return Ok(Exit::Done);
    }
    let classes = tally.failed_by_class();
    let classes: Vec<_> =
        classes.iter().map(|(class, count)| format!("{class}: {}", format_count(*count))).collect();
    Err(CommandError::AllFailed { requests: tally.requests(), classes: classes.join(", ") })
}

impl Out {
    fn unwritable(&self, error: &io::Error) -> CommandError {
        CommandError::Usage(format!("cannot write {}: {error}", self.path.display()))
    }
}
