//! The script of an audit's origin: a case for each test, with the requests that reached it.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{HeaderMap, Method, StatusCode, Version, header::AsHeaderName, request::Parts};
use stockade_model::time::{Live, Runtime, Time};
use stockade_origin::{Script, ScriptedResponse};

/// The cases of an audit by the first segment of their paths.
pub(crate) struct CaseScript {
    time: Live,
    cases: Mutex<HashMap<String, Arc<Case>>>,
}

/// The pages of one test at the origin, and the requests for them.
pub(crate) struct Case {
    name: String,
    respond: Box<dyn Fn(&OriginRequest) -> ScriptedResponse + Send + Sync>,
    seen: Mutex<SeenRequests>,
}

#[derive(Default)]
struct SeenRequests {
    /// In their order.
    all: Vec<OriginRequest>,
    by_path: HashMap<String, usize>,
}

/// A request that reached the origin.
#[derive(Clone, Debug)]
pub(crate) struct OriginRequest {
    /// Its number within the case, from 0.
    pub(crate) number: usize,
    /// Its number among those for the same path and query, from 0.
    pub(crate) nth: usize,
    pub(crate) at: Time,
    pub(crate) method: Method,
    pub(crate) version: Version,
    /// Path and query as they arrived.
    path: String,
    pub(crate) headers: HeaderMap,
}

impl CaseScript {
    pub(crate) fn new(time: Live) -> Self {
        Self { time, cases: Mutex::default() }
    }

    /// Adds a case, whose paths begin with `/NAME/`.
    pub(crate) fn add<R: Into<ScriptedResponse>>(
        &self,
        name: String,
        respond: impl Fn(&OriginRequest) -> R + Send + Sync + 'static,
    ) -> Arc<Case> {
        let respond = Box::new(move |request: &OriginRequest| respond(request).into());
        let case = Arc::new(Case { name: name.clone(), respond, seen: Mutex::default() });
        self.cases.lock().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::clone(&case));
        case
    }
}

impl Script for CaseScript {
    fn respond(&self, request: &Parts) -> ScriptedResponse {
        let mut segments = request.uri.path().split('/').filter(|segment| !segment.is_empty());
        let name = segments.next().unwrap_or_default();
        let case = self.cases.lock().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone);
        match case {
            Some(case) => case.respond(request, self.time.now()),
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
        self.lock().all.clone()
    }

    /// The number of requests so far.
    pub(crate) fn loads(&self) -> usize {
        self.lock().all.len()
    }

    fn respond(&self, request: &Parts, at: Time) -> ScriptedResponse {
        let path = request.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let mut seen = self.lock();
        let of_path = seen.by_path.entry(path.clone()).or_default();
        let nth = *of_path;
        *of_path += 1;
        let request = OriginRequest {
            number: seen.all.len(),
            nth,
            at,
            method: request.method.clone(),
            version: request.version,
            path,
            headers: request.headers.clone(),
        };
        seen.all.push(request.clone());
        drop(seen);
        (self.respond)(&request)
    }

    fn lock(&self) -> MutexGuard<'_, SeenRequests> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OriginRequest {
    /// Path and query as they arrived.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The first value of a field.
    pub(crate) fn field(&self, name: impl AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The first GET request for a path.
    #[cfg(test)]
    pub(crate) fn of(path: &str) -> Self {
        let (number, at, method) = (0, Time::ZERO, Method::GET);
        let (version, headers) = (Version::HTTP_11, HeaderMap::new());
        Self { number, nth: 0, at, method, version, path: path.to_owned(), headers }
    }
}
