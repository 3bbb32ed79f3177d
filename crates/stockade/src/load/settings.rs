//! The settings of a load in its record, in the form of an experiment file, without anything secret.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use stockade_model::units::format_duration;

use crate::cli::LoadArgs;

/// A line for each setting that was typed, as `compare` shows differences. Values of headers, contents of files, and queries of URLs may be secret, so only
/// their names are here.
pub fn text(args: &LoadArgs) -> String {
    let mut text = String::from("[load]\n");
    let mut line = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "{key} = {value}");
        }
    };
    let quoted = |value: &dyn ToString| format!("{:?}", value.to_string());
    let file = |path: &Path| quoted(&path.display());
    let files = |paths: &[_]| {
        let paths: Vec<_> = paths.iter().map(|path: &PathBuf| file(path)).collect();
        (!paths.is_empty()).then(|| format!("[{}]", paths.join(", ")))
    };
    let duration = |value: Duration| quoted(&format_duration(value));
    let flag = |is_set: bool| is_set.then(|| "true".to_owned());
    line("url", args.url.as_deref().map(|url| quoted(&without_query(url))));
    line("rate", args.rate.map(|rate| quoted(&rate)));
    line("connections", args.connections.map(|count| count.to_string()));
    line("burst", args.burst.map(|count| count.to_string()));
    line("schedule", args.schedule.as_deref().map(file));
    line("arrivals", args.arrivals.map(|arrivals| quoted(&format!("{arrivals:?}").to_lowercase())));
    line("think", args.think.as_ref().map(|think| quoted(think)));
    line("duration", args.duration.map(duration));
    line("requests", args.requests.map(|count| count.to_string()));
    line("warmup", Some(args.warmup).filter(|warmup| !warmup.is_zero()).map(duration));
    line("max_in_flight", args.max_in_flight.map(|count| count.to_string()));
    line("threads", args.threads.map(|count| count.to_string()));
    line("targets", args.targets.as_deref().map(file));
    line("urls", args.urls.as_deref().map(file));
    line("random", flag(args.random));
    line("replay", files(&args.replay));
    line("replay_hosts", flag(args.replay_hosts));
    line("speed", args.speed.map(|speed| speed.to_string()));
    line("share", args.share.map(|share| share.to_string()));
    line("keys", args.keys.as_ref().map(|keys| quoted(keys)));
    text + &args.request.lines()
}

/// The URL without its query, which may have a token.
fn without_query(url: &str) -> String {
    match url.split_once('?') {
        Some((path, _)) => format!("{path}?..."),
        None => url.to_owned(),
    }
}
