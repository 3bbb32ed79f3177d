//! `stockade ui`: the records of a directory in a browser.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use stockade_http::server::{self, Connections};
use stockade_model::time::Live;
use stockade_record::{
    compare::COMPARED_MIN_EFFECT,
    history::{self, IndexedRecord, IndexedRecords},
    report::html::{self, records},
    storage::{self, StorageError},
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use super::{Access, HTML, LIMITS, UiError, harden, parameters};
use crate::{
    cli::UiArgs,
    exit::{CommandError, Exit},
    progress::LiveScreen,
    run::print,
    telemetry::lower_priority,
};

/// Serves them until Ctrl-C.
pub fn ui(args: &UiArgs) -> Result<Exit, CommandError> {
    // A directory without a record is an error before a browser shows it, and the first reading may take long.
    let mut live = None;
    history::read_records(&args.records, false, &mut |read, all| {
        live.get_or_insert_with(|| LiveScreen::steps(all)).next(format!("records read: {read}"));
    })?;
    drop(live);
    let listener =
        server::bind(args.listen).map_err(|error| UiError::Listen { address: args.listen, error })?;
    let address = listener.local_addr().map_err(UiError::Serve)?;
    let access = Access::of(address);
    let url = access.url(address);
    let pages = Pages { directory: args.records.as_path().into(), access };
    lower_priority();
    let runtime = server::runtime().map_err(UiError::Serve)?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener).map_err(UiError::Serve)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(UiError::Serve)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(UiError::Serve)?;
        print(&format!("{url}\n"))?;
        say!("records of {}; Ctrl-C ends it", args.records.display());
        let time = Live::new();
        let respond = move |request: Request<_>| {
            let response = pages.respond(&request);
            async move { response }
        };
        let connections = Connections::within(LIMITS);
        tokio::select! {
            () = server::serve(&listener, &connections, &time, respond) => {}
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(Exit::Done)
    })
}

fn read(directory: &Path) -> Result<IndexedRecords, StorageError> {
    history::read_records(directory, false, &mut |_, _| {})
}

/// The pages. A record is named by the hash of its folder: no part of a request becomes a path.
#[derive(Clone)]
struct Pages {
    directory: Arc<Path>,
    access: Access,
}

type Body = Full<Bytes>;

fn page(html: String) -> Response<Body> {
    let mut response = Response::new(Full::new(html.into()));
    response.headers_mut().insert(CONTENT_TYPE, HTML);
    response
}

fn unknown() -> Response<Body> {
    server::text(StatusCode::NOT_FOUND, "no such page or record; the records are at /\n")
}

impl Pages {
    fn respond<B>(&self, request: &Request<B>) -> Response<Body> {
        let refused = self.access.refusal(request);
        let respond = || {
            self.answer(request).unwrap_or_else(|error| {
                let mut response = Response::new(Full::new(format!("{error}\n").into()));
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                response
            })
        };
        let mut response = refused.unwrap_or_else(respond);
        harden(response.headers_mut());
        response
    }

    fn answer<B>(&self, request: &Request<B>) -> Result<Response<Body>, StorageError> {
        let ids: Vec<&str> = parameters(request, "r").collect();
        Ok(match request.uri().path() {
            "/" => {
                let IndexedRecords { records, unreadable, .. } = read(&self.directory)?;
                let unreadable: Vec<_> = unreadable.iter().map(ToString::to_string).collect();
                page(records::list(&self.directory, &records, &unreadable, &self.access.query()))
            }
            "/record" => match self.find(ids.get(..1).unwrap_or_default())?.first() {
                Some(directory) => {
                    let (record, results) = storage::read(directory)?;
                    page(html::render(&record, &results))
                }
                None => unknown(),
            },
            "/overlay" if !(2..=records::OVERLAY_MAX).contains(&ids.len()) => {
                server::text(StatusCode::BAD_REQUEST, "choose two to five records at /\n")
            }
            "/overlay" => {
                let found = self.find(&ids)?;
                let records = found.iter().map(|directory| storage::read(directory));
                let records = records.collect::<Result<Vec<_>, _>>()?;
                if records.is_empty() { unknown() } else { page(records::overlay(records)) }
            }
            "/history" => {
                let mut records = read(&self.directory)?.records;
                records.retain(|record| record.is_complete);
                let history = history::history(&records, None, COMPARED_MIN_EFFECT);
                page(history::report::html::render(&history))
            }
            _ => unknown(),
        })
    }

    /// The folders of these records, in the order of their starts; none if one of them is unknown.
    fn find(&self, ids: &[&str]) -> Result<Vec<PathBuf>, StorageError> {
        let records = read(&self.directory)?.records;
        let is_chosen = |record: &&IndexedRecord| ids.contains(&records::id(record).as_str());
        let found: Vec<_> =
            records.iter().filter(is_chosen).map(|record| self.directory.join(&record.directory)).collect();
        Ok(if found.len() == ids.len() { found } else { Vec::new() })
    }
}
