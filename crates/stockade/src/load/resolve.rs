//! What was typed becomes a load.

use std::{num::NonZeroUsize, path::Path, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use stockade_lab::host;
use stockade_load::{
    ClientOptions, Retries, Trust,
    generator::{LoadTest, ProcessLimits, default_threads},
    plan::{ClosedLoop, EndCondition, Plan},
    schedule::{ArrivalProcess, DURATION_MAX, Rate, Schedule, ScheduleLimitError, Step},
    targets::{log::AccessLog, siege, vegeta},
    template::RequestTemplate,
    traffic::{CacheBust, RequestOrder, Traffic, TrafficOptions},
    url::{BaseUrl, parse_url},
};
use stockade_model::seed::Seed;

use crate::{cli::LoadArgs, exit::CommandError, input::Input};

/// Where nothing says when to end.
const DURATION: Duration = Duration::from_secs(10);
/// A search begins here.
pub const LEAST: Rate = match Rate::new(100, Duration::from_secs(1)) {
    Some(rate) => rate,
    None => unreachable!(),
};
/// Bodies are no larger.
const BODY_BYTES_MAX: u64 = 256 << 20;

pub fn load(args: LoadArgs) -> Result<LoadTest, CommandError> {
    check(&args)?;
    let (traffic, due) = traffic(&args)?;
    let plan = warmed(plan(&args, due)?, &args)?;
    Ok(with_plan(args, traffic, plan))
}

/// The same for a search, at one of its rates.
pub fn trial(args: LoadArgs, rate: Rate) -> Result<LoadTest, CommandError> {
    check(&args)?;
    if args.replay.is_some() {
        return Err(usage(
            "a log has a pace of its own, and a search tries one rate after the other: leave one out",
        ));
    }
    let (traffic, _) = traffic(&args)?;
    let plan = trial_plan(rate, &args)?;
    Ok(with_plan(args, traffic, plan))
}

/// What one rate of a search is.
pub fn trial_plan(rate: Rate, args: &LoadArgs) -> Result<Plan, CommandError> {
    warmed(constant(rate, args)?, args)
}

fn warmed(plan: Plan, args: &LoadArgs) -> Result<Plan, CommandError> {
    match args.warmup {
        Duration::ZERO => Ok(plan),
        lasts => plan.with_warmup(lasts).ok_or_else(|| {
            usage("--warmup needs a rate or connections to begin with: a burst, or a pause, has neither")
        }),
    }
}

/// What was typed and would mean nothing.
fn check(args: &LoadArgs) -> Result<(), CommandError> {
    // clap would not say so where the option that is asked for excludes another one.
    for (is_there, is_asked_for, message) in [
        (args.think.is_some(), args.connections.is_some(), "--think is of users: it goes with --connections"),
        (
            args.speed.is_some() || args.share.is_some(),
            args.replay.is_some(),
            "--speed and --share are of a log: they go with --replay",
        ),
        (
            args.from.is_some() || args.to.is_some() || args.repeats.is_some() || args.precision.is_some(),
            args.capacity.is_some(),
            "--from, --to, --repeats and --precision are of a search: they go with --capacity",
        ),
    ] {
        if is_there && !is_asked_for {
            return Err(usage(message));
        }
    }
    let has_rate = args.rate.is_some() || args.capacity.is_some();
    if args.arrivals.is_some() && !has_rate {
        return Err(usage(
            "--arrivals say how requests of a --rate are spread; a schedule's file says it itself",
        ));
    }
    if args.speed.is_some() && (args.rate.is_some() || args.connections.is_some() || args.burst.is_some()) {
        return Err(usage("--speed is of the log's own pace: leave it out, or the other pace"));
    }
    if args.max_in_flight.is_some() && args.connections.is_some() {
        return Err(usage("--max-in-flight is for rates: of N --connections N are under way at most"));
    }
    if args.timeout.is_zero() {
        return Err(usage("nobody can be answered in no time: write a longer --timeout"));
    }
    Ok(())
}

fn with_plan(args: LoadArgs, traffic: Traffic, plan: Plan) -> LoadTest {
    let by_itself = || ProcessLimits::raised().in_flight(&plan, args.http2);
    let max_in_flight = args.max_in_flight.map_or_else(by_itself, NonZeroUsize::get);
    LoadTest {
        id: format!("{}-{:04x}", host::now(), Seed::from_entropy().0 & 0xffff),
        threads: args.threads.unwrap_or_else(|| default_threads(&plan)),
        plan,
        traffic: Arc::new(traffic),
        options: ClientOptions {
            timeout: args.timeout,
            http2: args.http2,
            keep_alive: !args.no_keepalive,
            trust: match args.ca {
                _ if args.insecure => Trust::Insecure,
                Some(file) => Trust::File(file),
                None => Trust::System,
            },
            unix_socket: args.unix,
            redirects_max: args.redirects,
            retries: Retries { max: args.retries, backoff: args.retry_backoff, budget: args.retry_budget },
            body_digest: args.sha256,
        },
        max_in_flight,
        drain: args.drain.unwrap_or(args.timeout),
        seed: Seed(args.seed),
        first_request: 0,
        observes_samples: false,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`, and for what was just made")]
fn usage(message: impl ToString) -> CommandError {
    CommandError::Usage(message.to_string())
}

/// When a log has its requests asked.
type Due = Arc<[Duration]>;

/// What is asked, and when, if it is a log that says so.
fn traffic(args: &LoadArgs) -> Result<(Traffic, Option<Due>), CommandError> {
    let seed = Seed(args.seed);
    let of_file = args.targets.is_some() || args.urls.is_some();
    if args.random && !of_file {
        return Err(usage(
            "--random is for --targets or --urls: one URL is always the same, and a log has its order",
        ));
    }
    if (of_file || args.replay.is_some()) && (args.method.is_some() || args.body.is_some()) {
        return Err(usage("--method and --body are for one URL: a file of targets says them itself"));
    }
    let mut due = None;
    let mut order = if args.random { RequestOrder::Random } else { RequestOrder::Sequential };
    let mut targets = match (&args.url, &args.targets, &args.urls, &args.replay) {
        (Some(url), None, None, None) => vec![one(url, args)?],
        (Some(url), None, None, Some(log)) => {
            let (targets, its_order, its_due) = replayed(log, url, args)?;
            (order, due) = (its_order, Some(its_due));
            targets
        }
        (None, Some(file), None, None) => vegeta::open(file).map_err(usage)?,
        (None, None, Some(file), None) => siege::open(file).map_err(usage)?,
        (None, None, None, Some(_)) => {
            return Err(usage(
                "a log has paths only: write the URL of the server to ask, such as http://localhost:8080",
            ));
        }
        (Some(_), ..) => return Err(usage("what is asked is one URL or a file of them, not both")),
        (None, ..) => {
            return Err(usage(
                "what is asked? Write a URL, such as http://localhost:8080/, or --targets FILE",
            ));
        }
    };
    for target in &mut targets {
        add(&mut target.headers, &args.header);
    }
    // What one run has put into a cache another one would find.
    let cache_bust = args.cache_bust.then(|| CacheBust::EveryRequest(Seed::from_entropy()));
    let variety = TrafficOptions { order, keys: args.keys, cache_bust };
    Ok((Traffic::new(targets, variety, seed).map_err(usage)?, due))
}

fn one(url: &str, args: &LoadArgs) -> Result<RequestTemplate, CommandError> {
    let body = args.body.as_deref().map(body).transpose()?;
    let method = match &args.method {
        Some(method) => method.clone(),
        None if body.is_some() => Method::POST,
        None => Method::GET,
    };
    let target = RequestTemplate::new(method, parse_url(url).map_err(usage)?);
    Ok(RequestTemplate { body: body.unwrap_or_default().into(), ..target })
}

fn body(path: &Path) -> Result<Vec<u8>, CommandError> {
    let body = Input::open(path, BODY_BYTES_MAX)?.bytes()?;
    if body.len() as u64 > BODY_BYTES_MAX {
        return Err(usage(format!("{} is larger than 256 MiB: send a smaller body", path.display())));
    }
    Ok(body)
}

fn replayed(
    log: &Path,
    url: &str,
    args: &LoadArgs,
) -> Result<(Vec<RequestTemplate>, RequestOrder, Due), CommandError> {
    let base: BaseUrl = url.parse().map_err(usage)?;
    let mut log = AccessLog::open(log, &base).map_err(usage)?;
    if log.skipped().total() > 0 {
        eprintln!("left out of the log: {}", log.skipped());
    }
    if let Some(share) = args.share {
        log = log.with_share(share, Seed(args.seed)).map_err(usage)?;
        if log.requests() == 0 {
            return Err(usage(format!("--share {share} leaves nothing of the log: write a larger one")));
        }
    }
    if let Some(speed) = args.speed {
        log = log.at_speed(speed).map_err(usage)?;
    }
    Ok(log.into_parts())
}

/// Those of the command line, where a target does not say otherwise.
fn add(headers: &mut HeaderMap, more: &[(HeaderName, HeaderValue)]) {
    let own: Vec<HeaderName> = headers.keys().cloned().collect();
    for (name, value) in more.iter().filter(|(name, _)| !own.contains(name)) {
        headers.append(name, value.clone());
    }
}

/// When it is asked.
fn plan(args: &LoadArgs, due: Option<Due>) -> Result<Plan, CommandError> {
    let fixed = |what: &str| match args.duration {
        Some(_) => Err(usage(format!("{what} takes as long as it takes: leave --duration out"))),
        None => Ok(()),
    };
    let plan = match (args.rate, args.connections, args.burst, &args.schedule) {
        (Some(rate), ..) => return constant(rate, args),
        (_, Some(connections), ..) => {
            let until = match (args.duration, args.requests) {
                (Some(lasts), Some(requests)) => EndCondition::FirstOf(lasts, requests),
                (None, Some(requests)) => EndCondition::Requests(requests),
                (lasts, None) => EndCondition::Duration(lasts.unwrap_or(DURATION)),
            };
            let think = args.think.clone().unwrap_or_default();
            return Plan::closed_loop(ClosedLoop {
                connections: connections.get(),
                think_time: think,
                end: until,
            })
            .map_err(beyond);
        }
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
                return Err(usage(
                    "how much is asked? Write --rate 425/s, --connections 64, --burst 1000 or --schedule FILE.toml",
                ));
            }
        },
    };
    Ok(args.requests.map_or(plan.clone(), |most| plan.with_requests_max(most)))
}

/// So many requests per time, for as long as was typed.
fn constant(rate: Rate, args: &LoadArgs) -> Result<Plan, CommandError> {
    let is_by_chance = args.arrivals == Some(ArrivalProcess::Poisson);
    let lasts = match (args.duration, args.requests) {
        (Some(lasts), _) => lasts,
        // Nobody knows when the last one comes.
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
