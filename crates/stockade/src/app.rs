//! `stockade app`: documents of a database over HTTP, through a cache of an experiment. A part of runs; nobody types it.

use std::{
    io::{self, Write},
    num::NonZeroUsize,
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;
use stockade_lab::engine::{App, NoDocument, Serving};
use stockade_load::drive::Limits;
use stockade_model::{seed::Seed, time::Live};
use stockade_proxy::{
    documents::{found, id, words},
    front::{Answering, ClientBody, Front, Handler, Peer, Settings},
    policy::cache_status::CACHE_STATUS,
};
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

use crate::{
    cli::AppArgs,
    exit::{Exit, Failure},
    lifeline::end_with_stdin,
};

/// Two segments: no document has such an id.
const STATS: &str = "/_admin/stats";

/// Says where it listens on standard output, and nothing else there.
pub fn app(args: &AppArgs) -> Result<Exit, Failure> {
    let app = App::load(&args.config)?;
    let _ = Limits::raised();
    let cannot_start = |error: io::Error| Failure::Usage(format!("cannot start: {error}"));
    // Redis and databases are spoken to on it.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(cannot_start)?;
    let live = Live::on(runtime.handle().clone());
    let serving = Arc::new(runtime.block_on(app.start(live, Seed::from_entropy()))?);
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        let signal = |kind| signal(kind).map_err(cannot_start);
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let settings = Settings {
        // One, as of Node; Redis and the database are another's.
        threads: NonZeroUsize::MIN,
        connections_max: 100_000,
        ..Settings::default()
    };
    let front = Front::start(settings, &Shelf(Arc::clone(&serving)))
        .map_err(|error| Failure::Usage(error.to_string()))?;
    if args.until_stdin_ends {
        end_with_stdin();
    }
    for address in front.addresses() {
        writeln!(io::stdout(), "http://{address}").map_err(Failure::Output)?;
        eprintln!("it is looked at at http://{address}/_admin");
    }
    runtime.block_on(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    drop(front);
    if let Some(serving) = Arc::into_inner(serving) {
        runtime.block_on(serving.close());
    }
    runtime.shutdown_background();
    Ok(Exit::Done)
}

#[derive(Clone)]
struct Shelf(Arc<Serving>);

impl Handler for Shelf {
    type Body = Full<Bytes>;

    fn answer(&self, request: Request<ClientBody>, _: Peer) -> Answering<Self::Body> {
        let serving = Arc::clone(&self.0);
        Answering::Later(Box::pin(async move {
            let is_head = request.method() == Method::HEAD;
            let answer = match request.uri().path() {
                _ if !is_head && request.method() != Method::GET => {
                    words(StatusCode::METHOD_NOT_ALLOWED, "there are only GET and HEAD\n")
                }
                STATS => stats(&serving),
                path => match id(path) {
                    Some(id) => document(&serving, &id).await,
                    None => words(StatusCode::BAD_REQUEST, "write /ID: one segment, percent-encoded UTF-8\n"),
                },
            };
            answer.map(Full::new)
        }))
    }
}

async fn document(serving: &Serving, id: &str) -> Response<Bytes> {
    match serving.document(id).await {
        Ok((document, outcome)) => {
            let mut answer = found(document);
            let status = HeaderValue::try_from(format!("app; detail={}", outcome.name()));
            answer.headers_mut().extend(status.ok().map(|status| (CACHE_STATUS, status)));
            answer
        }
        Err(NoDocument::Missing) => words(StatusCode::NOT_FOUND, "no such document\n"),
        Err(NoDocument::TimedOut(said)) => words(StatusCode::GATEWAY_TIMEOUT, said + "\n"),
        Err(NoDocument::Failed(said)) => words(StatusCode::BAD_GATEWAY, said + "\n"),
    }
}

/// As a proxy tells them.
fn stats(serving: &Serving) -> Response<Bytes> {
    let counted = serving.counted();
    let cache = counted.cache;
    let route = json!({
        "loads": counted.source_loads,
        "loads_refused": cache.loads_refused,
        "loads_rejected": cache.loads_rejected,
        "waiters": counted.waiters,
        "refreshes": { "all": cache.refreshes },
    });
    let stats = json!({
        "entries": cache.entries,
        "evicted_expired": 0,
        "evicted_size": cache.evicted,
        "reclaims": 0,
        "routes": [route],
    });
    words(StatusCode::OK, stats.to_string())
}
