//! `stockade plan --live URL`: asks a proxy for the figures of its ghosts.

use std::{
    fs::File,
    io::{ErrorKind, Read as _},
    path::Path,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header::AUTHORIZATION};
use stockade_http::{
    client::{HttpClient, HttpUrl, block_within},
    tls::Trust,
};
use stockade_model::outcome::Outcomes;
use stockade_plan::report::{LIVE_FORMATS, LiveShadow};
use stockade_proxy::admin::ProxyStats;

use crate::{
    cli::PlanArgs,
    exit::{CommandError, Exit},
    run::print,
};

const TIMEOUT: Duration = Duration::from_secs(10);
/// A thousand routes have 4 MiB.
const STATS_BYTES_MAX: usize = 16 << 20;
const TOKEN_BYTES_MAX: u64 = 4 << 10;

pub fn live(url: &HttpUrl, args: &PlanArgs) -> Result<Exit, CommandError> {
    let format = LIVE_FORMATS.named(args.format.name).map_err(|unknown| {
        CommandError::Usage(format!(
            "--live has no format `{}`: write text, md or json; the admin page of the proxy has a picture",
            unknown.name
        ))
    })?;
    let source = url.origin();
    let failed = |reason: String| CommandError::Usage(format!("{source}: {reason}"));
    let token_file = args.admin_token_file.as_deref();
    let authorization = token_file.map(authorization).transpose().map_err(CommandError::Usage)?;
    let stats = ask(url, authorization).map_err(failed)?;
    let shadow =
        stats.shadow.ok_or_else(|| failed("this proxy has no ghosts: start it with --shadow".to_owned()))?;
    let mut outcomes = Outcomes::default();
    stats.routes.iter().for_each(|route| outcomes += route.outcomes);
    match print(&(format.render)(&LiveShadow { source, outcomes, shadow })) {
        Err(CommandError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(Exit::Done),
        printed => printed.map(|()| Exit::Done),
    }
}

fn ask(url: &HttpUrl, authorization: Option<HeaderValue>) -> Result<ProxyStats, String> {
    let has_token = authorization.is_some();
    let url = HttpUrl { path: "/stats".to_owned(), ..url.clone() };
    let headers: HeaderMap = authorization.into_iter().map(|value| (AUTHORIZATION, value)).collect();
    let client = HttpClient::new(url, headers, &Trust::System, STATS_BYTES_MAX);
    let client = client.map_err(|error| error.to_string())?;
    let reply = block_within(TIMEOUT, client.send(Method::GET, Bytes::new()));
    let reply = match reply.map_err(|error| error.to_string())? {
        Some(reply) => reply.map_err(|error| error.to_string()),
        None => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
    };
    let reply =
        reply.map_err(|reason| format!("{reason}: write the URL that `stockade proxy --admin` prints"))?;
    match reply.status() {
        StatusCode::OK => serde_json::from_slice(reply.body()).map_err(|_| {
            "this is not the admin API of a proxy: write the URL that `stockade proxy --admin` prints"
                .to_owned()
        }),
        StatusCode::UNAUTHORIZED if has_token => {
            Err("it has another token: write the file of its `token_file` as --admin-token-file".to_owned())
        }
        StatusCode::UNAUTHORIZED => Err("it needs a token: write --admin-token-file FILE".to_owned()),
        status => Err(format!("/stats answers {status}: write the URL that `stockade proxy --admin` prints")),
    }
}

fn authorization(path: &Path) -> Result<HeaderValue, String> {
    let mut token = String::new();
    File::open(path)
        .and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut token))
        .map_err(|error| format!("--admin-token-file: {}: {error}", path.display()))?;
    let none = || format!("--admin-token-file: {} holds no token", path.display());
    let token = Some(token.trim()).filter(|token| !token.is_empty()).ok_or_else(none)?;
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| none())?;
    value.set_sensitive(true);
    Ok(value)
}
