//! `stockade app`: documents of a database over HTTP, through the cache of an experiment. A child process of `run`.

use std::{io, num::NonZeroUsize, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;
use stockade_http::frontend::{
    ClientBody, ConnectionInfo, Frontend, FrontendSettings, Handler, HandlerResponse,
};
use stockade_lab::engine::{DocumentApp, DocumentError, RunningApp};
use stockade_load::generator::ProcessLimits;
use stockade_model::{seed::Seed, time::Live};
use stockade_proxy::{
    documents::{found, id, words},
    policy::cache_status::CACHE_STATUS,
};
use tokio::{
    runtime::{Builder, Handle},
    signal::unix::{SignalKind, signal},
};

use crate::{
    child::{Listening, report_ready},
    cli::AppArgs,
    exit::{CommandError, Exit},
};

/// Two segments: the id of a document has one.
const STATS: &str = "/_admin/stats";

pub fn app(args: &AppArgs) -> Result<Exit, CommandError> {
    let app = DocumentApp::load(&args.config)?;
    let _ = ProcessLimits::raised();
    let cannot_start = |error: io::Error| CommandError::Usage(format!("cannot start: {error}"));
    // It runs the clients of Redis and the databases.
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .thread_name("source")
        .build()
        .map_err(cannot_start)?;
    let live = Live::on(runtime.handle().clone());
    let serving = Arc::new(runtime.block_on(app.start(live, Seed::from_entropy()))?);
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        let signal = |kind| signal(kind).map_err(cannot_start);
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let settings = FrontendSettings {
        // One thread, as Node has; the clients of Redis and the database run on another runtime.
        threads: NonZeroUsize::MIN,
        connections_max: 100_000,
        ..FrontendSettings::default()
    };
    let front = Frontend::start(settings, &AppHandler(Arc::clone(&serving)))
        .map_err(|error| CommandError::Usage(error.to_string()))?;
    let listen: Vec<String> = front.addresses().iter().map(|address| format!("http://{address}")).collect();
    let admin = listen.first().map(|url| format!("{url}/_admin"));
    report_ready(&Listening { listen, admin }, &args.parent)?;
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
struct AppHandler(Arc<RunningApp>);

impl Handler for AppHandler {
    type Body = Full<Bytes>;
    type Record = ();

    fn handle(&self, request: Request<ClientBody>, _: ConnectionInfo) -> HandlerResponse<Full<Bytes>, ()> {
        let serving = Arc::clone(&self.0);
        HandlerResponse::Pending(Box::pin(async move {
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
            (answer.map(Full::new), ())
        }))
    }
}

async fn document(serving: &RunningApp, id: &str) -> Response<Bytes> {
    match serving.document(id).await {
        Ok((document, outcome)) => {
            let mut answer = found(document);
            let status = HeaderValue::try_from(format!("app; detail={}", outcome.name()));
            answer.headers_mut().extend(status.ok().map(|status| (CACHE_STATUS, status)));
            answer
        }
        Err(DocumentError::Missing) => words(StatusCode::NOT_FOUND, "no such document\n"),
        Err(DocumentError::TimedOut(said)) => words(StatusCode::GATEWAY_TIMEOUT, said + "\n"),
        Err(DocumentError::Failed(said)) => words(StatusCode::BAD_GATEWAY, said + "\n"),
    }
}

/// The counters, in the shape of a proxy's `/stats`.
fn stats(serving: &RunningApp) -> Response<Bytes> {
    let stats = serving.stats();
    let mut page = json!(stats.store());
    page["routes"] = json!([stats.requests()]);
    // This is the runtime of the only thread that serves.
    let worker = Handle::current().metrics();
    page["workers"] = json!(1);
    page["worker_busy_seconds"] = json!(worker.worker_total_busy_duration(0).as_secs_f64());
    page["worker_parks"] = json!(worker.worker_park_count(0));
    words(StatusCode::OK, page.to_string())
}
