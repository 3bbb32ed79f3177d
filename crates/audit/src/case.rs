//! The script of an audit's origin: a case for each test, with the requests that reached it.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderValue, StatusCode, header::CACHE_CONTROL, request::Parts};
use stockade_model::time::{Live, Runtime, Time};
use stockade_origin::{Script, ScriptedResponse};

/// The bytes of a page, unless a case needs others.
const PAGE_BYTES: usize = 4_096;

/// The cases of an audit by the first segment of their paths.
pub(crate) struct CaseScript {
    time: Live,
    cases: Mutex<HashMap<String, Arc<Case>>>,
}

/// The pages of one test at the origin, and the requests for them.
pub(crate) struct Case {
    name: String,
    respond: Box<dyn Fn(&OriginRequest) -> ScriptedResponse + Send + Sync>,
    seen: Mutex<Vec<OriginRequest>>,
}

/// A request that reached the origin.
#[derive(Clone, Debug)]
pub(crate) struct OriginRequest {
    /// Its number within the case, from 0.
    pub(crate) number: usize,
    pub(crate) at: Time,
}

impl CaseScript {
    pub(crate) fn new(time: Live) -> Self {
        Self { time, cases: Mutex::default() }
    }

    /// Adds a case, whose paths begin with `/NAME/`.
    pub(crate) fn add(
        &self,
        name: String,
        respond: impl Fn(&OriginRequest) -> ScriptedResponse + Send + Sync + 'static,
    ) -> Arc<Case> {
        let case = Arc::new(Case { name: name.clone(), respond: Box::new(respond), seen: Mutex::default() });
        self.cases.lock().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::clone(&case));
        case
    }
}

impl Script for CaseScript {
    fn respond(&self, request: &Parts) -> ScriptedResponse {
        let name = request.uri.path().split('/').nth(1).unwrap_or_default();
        let case = self.cases.lock().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone);
        match case {
            Some(case) => case.respond(self.time.now()),
            None => ScriptedResponse {
                status: StatusCode::NOT_FOUND,
                ..ScriptedResponse::ok("not of this audit")
            },
        }
    }
}

impl fmt::Debug for CaseScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaseScript").finish_non_exhaustive()
    }
}

impl Case {
    /// The path of a page of the case.
    pub(crate) fn path(&self, page: &str) -> String {
        format!("/{}/{page}", self.name)
    }

    /// The requests so far, in their order.
    pub(crate) fn seen(&self) -> Vec<OriginRequest> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of requests so far.
    pub(crate) fn loads(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn respond(&self, at: Time) -> ScriptedResponse {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let request = OriginRequest { number: seen.len(), at };
        seen.push(request.clone());
        drop(seen);
        (self.respond)(&request)
    }
}

/// A page with this `Cache-Control`, whose text has the number of its load.
pub(crate) fn page(
    request: &OriginRequest,
    cache_control: &'static str,
    latency: Duration,
) -> ScriptedResponse {
    let text = format!("load {} ", request.number);
    let body = text.chars().cycle().take(PAGE_BYTES).collect::<String>();
    let mut response = ScriptedResponse { latency, ..ScriptedResponse::ok(body) };
    response.headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));
    response
}
