//! Turns the arguments into a load.

use std::{num::NonZeroUsize, path::Path, sync::Arc, time::Duration};

use stockade_load::{
    generator::{LoadTest, Share},
    plan::{ClosedLoop, EndCondition, Plan},
    schedule::{ArrivalProcess, DURATION_MAX, Rate, Schedule, ScheduleLimitError, Step},
    targets::{
        BODY_BYTES_MAX, FILE_BYTES_MAX, TargetFileError,
        log::{AccessLog, HostHeader, LogInput, LogReader},
        siege, vegeta,
    },
    template::RequestTemplate,
    traffic::{CacheBust, RequestOrder, Traffic, TrafficOptions},
    url::{BaseUrl, parse_url},
};
use stockade_model::{seed::Seed, units::format_count};
use stockade_record::clock;

use crate::{cli::LoadArgs, exit::CommandError, input::Input};

/// The duration of a load without `--duration` and `--requests`.
const DURATION: Duration = Duration::from_secs(10);
/// The connections of a load without `--rate`, `--connections` and the like.
const CONNECTIONS: usize = 10;
/// The first rate of a search.
pub const LEAST: Rate = match Rate::new(100, Duration::from_secs(1)) {
    Some(rate) => rate,
    None => unreachable!(),
};

pub fn load(args: &LoadArgs) -> Result<LoadTest, CommandError> {
    check(args)?;
    let (traffic, due) = requests(args)?;
    let plan = warmed(plan(args, due)?, args)?;
    Ok(with_plan(args, traffic, plan))
}

/// One trial of a search, at this rate.
pub fn trial(args: &LoadArgs, rate: Rate) -> Result<LoadTest, CommandError> {
    check(args)?;
    if !args.replay.is_empty() {
        return Err(usage(
            "a log has its own rate, and a search sets the rate: remove --replay or --capacity",
        ));
    }
    let (traffic, _) = requests(args)?;
    let plan = trial_plan(rate, args)?;
    Ok(with_plan(args, traffic, plan))
}

/// The plan of a trial.
pub fn trial_plan(rate: Rate, args: &LoadArgs) -> Result<Plan, CommandError> {
    warmed(constant(rate, args)?, args)
}

fn warmed(plan: Plan, args: &LoadArgs) -> Result<Plan, CommandError> {
    match args.warmup {
        Duration::ZERO => Ok(plan),
        lasts => plan.with_warmup(lasts).ok_or_else(|| {
            usage("--warmup needs a load that starts with a rate or connections, not with a burst or a pause")
        }),
    }
}

/// Refuses arguments that would have no effect.
fn check(args: &LoadArgs) -> Result<(), CommandError> {
    // clap's `requires` says nothing where the required option conflicts with another one.
    for (is_there, is_asked_for, message) in [
        (args.think.is_some(), is_closed_loop(args), "--think needs --connections"),
        (
            args.speed.is_some() || args.share.is_some() || args.input.is_some() || args.replay_hosts,
            !args.replay.is_empty(),
            "--speed, --share, --input and --replay-hosts need --replay",
        ),
        (
            args.from.is_some() || args.to.is_some() || args.repeats.is_some() || args.precision.is_some(),
            args.capacity.is_some(),
            "--from, --to, --repeats and --precision need --capacity",
        ),
    ] {
        if is_there && !is_asked_for {
            return Err(usage(message));
        }
    }
    let has_rate = args.rate.is_some() || args.capacity.is_some();
    if args.arrivals.is_some() && !has_rate {
        return Err(usage("--arrivals needs --rate or --capacity; a schedule file has its own `arrivals`"));
    }
    if args.speed.is_some() && (args.rate.is_some() || args.connections.is_some() || args.burst.is_some()) {
        return Err(usage(
            "--speed is relative to the times of the log: remove it, or --rate, --connections or --burst",
        ));
    }
    if args.max_in_flight.is_some() && is_closed_loop(args) {
        return Err(usage("--max-in-flight needs a rate: N --connections have at most N requests in flight"));
    }
    Ok(())
}

/// True with `--connections`, and without any flag that sets due times.
fn is_closed_loop(args: &LoadArgs) -> bool {
    let has_due_times = args.rate.is_some()
        || args.burst.is_some()
        || args.schedule.is_some()
        || !args.replay.is_empty()
        || args.capacity.is_some();
    args.connections.is_some() || !has_due_times
}

fn with_plan(args: &LoadArgs, traffic: Traffic, plan: Plan) -> LoadTest {
    LoadTest {
        id: format!("{}-{:04x}", clock::now(), Seed::from_entropy().0 & 0xffff),
        threads: args.threads,
        plan,
        traffic: Arc::new(traffic),
        options: args.request.client_options(Path::new("")),
        max_in_flight: args.max_in_flight.map(NonZeroUsize::get),
        drain: args.drain.unwrap_or(args.request.timeout()),
        seed: Seed(args.seed),
        first_request: 0,
        share: Share::WHOLE,
        observes_samples: false,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`, and for what was just made")]
fn usage(message: impl ToString) -> CommandError {
    CommandError::Usage(message.to_string())
}

/// The due times of the requests of a log.
type ReplayTimes = Arc<[Duration]>;

/// The requests, and their due times if they come from a log.
fn requests(args: &LoadArgs) -> Result<(Traffic, Option<ReplayTimes>), CommandError> {
    let seed = Seed(args.seed);
    let of_file = args.targets.is_some() || args.urls.is_some();
    if args.random && !of_file {
        return Err(usage("--random needs --targets or --urls: one URL has no order, and a log has its own"));
    }
    if (of_file || !args.replay.is_empty()) && (args.request.method.is_some() || args.request.body.is_some())
    {
        return Err(usage("--method and --body need one URL: a file of targets has its own"));
    }
    let mut due = None;
    let mut order = if args.random { RequestOrder::Random } else { RequestOrder::Sequential };
    let mut targets = match (&args.url, &args.targets, &args.urls, &*args.replay) {
        (Some(url), None, None, []) => vec![one(url, args)?],
        (Some(url), None, None, _) => {
            let (targets, its_order, its_due) = replayed(url, args)?;
            (order, due) = (its_order, Some(its_due));
            targets
        }
        (None, Some(file), None, []) => read_targets(file, vegeta::open, vegeta::read)?,
        (None, None, Some(file), []) => read_targets(file, siege::open, siege::read)?,
        (Some(_), ..) => return Err(usage("one URL or a file of them: remove one")),
        (None, None, None, [_, ..]) => {
            return Err(usage(
                "a log does not say where to connect: write the URL of the server, such as http://localhost:8080",
            ));
        }
        (None, ..) => {
            return Err(usage("no URL: write one, such as http://localhost:8080/, or --targets FILE"));
        }
    };
    targets.iter_mut().for_each(|target| args.request.add_headers(target));
    // From entropy: with the seed, a second run would find the entries of the first in the cache.
    let cache_bust = args.request.cache_bust.then(|| CacheBust::EveryRequest(Seed::from_entropy()));
    let variety = TrafficOptions { order, keys: args.keys, cache_bust };
    Ok((Traffic::new(targets, variety, seed).map_err(usage)?, due))
}

/// A file of targets, or standard input for `-`, whose body files are relative to the working directory.
fn read_targets(
    path: &Path,
    open: fn(&Path) -> Result<Vec<RequestTemplate>, TargetFileError>,
    read: fn(&str, &str, &Path) -> Result<Vec<RequestTemplate>, TargetFileError>,
) -> Result<Vec<RequestTemplate>, CommandError> {
    if path != Path::new("-") {
        return open(path).map_err(usage);
    }
    let mut input = Input::open_truncated(path, FILE_BYTES_MAX)?;
    let text = input.text()?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(usage("standard input has more than 256 MiB: write bodies into files of their own"));
    }
    read(&input.name, &text, Path::new("")).map_err(usage)
}

fn one(url: &str, args: &LoadArgs) -> Result<RequestTemplate, CommandError> {
    let body = args.request.body.as_deref().map(body).transpose()?;
    let method = args.request.method_with(body.is_some());
    let target = RequestTemplate::new(method, parse_url(url).map_err(usage)?);
    Ok(RequestTemplate { body: body.unwrap_or_default().into(), ..target })
}

fn body(path: &Path) -> Result<Vec<u8>, CommandError> {
    let body = Input::open_truncated(path, BODY_BYTES_MAX)?.bytes()?;
    if body.len() as u64 > BODY_BYTES_MAX {
        return Err(usage(format!("{} is larger than 256 MiB: send a smaller body", path.display())));
    }
    Ok(body)
}

fn replayed(
    url: &str,
    args: &LoadArgs,
) -> Result<(Vec<RequestTemplate>, RequestOrder, ReplayTimes), CommandError> {
    let base: BaseUrl = url.parse().map_err(usage)?;
    let inputs: Vec<_> = args.replay.iter().cloned().map(LogInput::from).collect();
    let reader = LogReader::open(&inputs, args.input.clone()).map_err(usage)?;
    let hosts = HostHeader::logged_if(args.replay_hosts);
    let mut log = AccessLog::read(reader, &base, hosts).map_err(usage)?;
    if log.skipped().total() > 0 {
        say!("left out of the log: {}", log.skipped());
    }
    for line in log.malformed() {
        say!("left out: {line}");
    }
    if log.without_host() > 0 {
        let requests = format_count(log.without_host());
        say!("without a host in the log, and sent with that of the URL: {requests}");
    }
    let has_own_pace =
        args.rate.is_none() && args.connections.is_none() && args.burst.is_none() && args.schedule.is_none();
    if has_own_pace {
        log = log.with_times().map_err(usage)?;
    }
    if let Some(share) = args.share {
        log = log.with_share(share, Seed(args.seed)).map_err(usage)?;
        if log.requests() == 0 {
            return Err(usage(format!("--share {share} leaves no request of the log: write a larger share")));
        }
    }
    if let Some(speed) = args.speed {
        log = log.at_speed(speed).map_err(usage)?;
    }
    Ok(log.into_parts())
}

/// The due times of the load.
fn plan(args: &LoadArgs, due: Option<ReplayTimes>) -> Result<Plan, CommandError> {
    let fixed = |what: &str| match args.duration {
        Some(_) => Err(usage(format!("{what} has its own duration: remove --duration"))),
        None => Ok(()),
    };
    let plan = match (args.rate, args.connections, args.burst, &args.schedule) {
        (Some(rate), ..) => return constant(rate, args),
        (_, Some(connections), ..) => return closed_loop(connections.get(), args),
        (_, _, Some(burst), _) => {
            fixed("a burst")?;
            Plan::burst(burst).map_err(beyond)?
        }
        (.., Some(file)) => {
            fixed("a schedule")?;
            Plan::read_file(file)?
        }
        (None, None, None, None) => match due {
            Some(due) => {
                let within = args.duration.map_or(due.len(), |lasts| due.partition_point(|due| *due < lasts));
                Plan::replay(&due[..within]).map_err(beyond)?
            }
            None => {
                let plan = closed_loop(CONNECTIONS, args)?;
                say!("without --rate or --connections, a closed loop: {plan}");
                return Ok(plan);
            }
        },
    };
    Ok(args.requests.map_or(plan.clone(), |most| plan.with_requests_max(most)))
}

/// Connections that send one request after the other, until `--duration` or `--requests` ends them.
fn closed_loop(connections: usize, args: &LoadArgs) -> Result<Plan, CommandError> {
    let end = match (args.duration, args.requests) {
        (Some(lasts), Some(requests)) => EndCondition::FirstOf(lasts, requests),
        (None, Some(requests)) => EndCondition::Requests(requests),
        (lasts, None) => EndCondition::Duration(lasts.unwrap_or(DURATION)),
    };
    let think_time = args.think.clone().unwrap_or_default();
    Plan::closed_loop(ClosedLoop { connections, think_time, end }).map_err(beyond)
}

/// A constant rate, until `--duration` or `--requests` ends it.
fn constant(rate: Rate, args: &LoadArgs) -> Result<Plan, CommandError> {
    let is_by_chance = args.arrivals == Some(ArrivalProcess::Poisson);
    let lasts = match (args.duration, args.requests) {
        (Some(lasts), _) => lasts,
        // The due time of the last request is random.
        (None, Some(_)) if is_by_chance => DURATION_MAX,
        (None, Some(requests)) => rate.due(requests),
        (None, None) => DURATION,
    };
    let step = Step::steady(rate, lasts).with_arrivals(args.arrivals.unwrap_or_default());
    let schedule = Schedule::new(vec![step]);
    Plan::open_loop(args.requests.map_or(schedule.clone(), |most| schedule.with_requests_max(most)))
        .map_err(beyond)
}

fn beyond(beyond: ScheduleLimitError) -> CommandError {
    usage(format!("{beyond}: write a {} time", beyond.remedy()))
}
