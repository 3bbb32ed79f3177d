//! The way of a request: from the store, with the load of another request, or from the origin.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header, request};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use tokio::{sync::watch, time::timeout};

use super::{
    fault::{Fault, Faults},
    rules,
    store::{Selection, Store, StoredPage},
    upstream::{Failure, Upstream},
};

/// A waiter then loads the page itself.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Loads of others that a request waits for at most.
const WAITS_MAX: usize = 3;

pub type ReplyBody = BoxBody<Bytes, hyper::Error>;

/// A request as the origin may see it, with its key.
pub struct ClientRequest {
    pub key: String,
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
}

/// A load in progress.
pub struct Load {
    key: String,
    selection: Selection,
    may_be_joined: bool,
    pub is_purged: AtomicBool,
    outcome: watch::Sender<Option<Outcome>>,
}

/// The result of a load for its waiters.
#[derive(Clone)]
enum Outcome {
    Shared(Arc<StoredPage>),
    /// The response is for the leader alone.
    Alone,
    Failed(Failure),
}

/// The result of a load for its leader.
pub enum Loaded {
    New {
        page: Arc<StoredPage>,
        is_shared: bool,
    },
    /// The stale page hides an error.
    Stale(Arc<StoredPage>),
    Streamed(Response<ReplyBody>),
    Failed(Failure),
}

enum Start {
    Hit(Arc<StoredPage>),
    Wait(watch::Receiver<Option<Outcome>>),
    Lead(Arc<Load>, Option<Arc<StoredPage>>),
}

#[derive(Default)]
pub struct State {
    pub store: Store,
    loads: Vec<Arc<Load>>,
    /// Used by faults alone, as the fields below.
    late_purges: Vec<(SystemTime, String)>,
    leaked: Vec<Vec<u8>>,
    pub errors: u32,
    pub closed_until: Option<SystemTime>,
    pub failing_until: Option<SystemTime>,
}

pub struct Cache {
    pub faults: Faults,
    pub upstream: Arc<Upstream>,
    clock_offset_ms: AtomicU64,
    state: Mutex<State>,
}

/// Ends a load, also one that was dropped.
struct Registration<'a>(&'a Cache, &'a Arc<Load>);

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.0.state().loads.retain(|load| !Arc::ptr_eq(load, self.1));
    }
}

impl Cache {
    pub fn new(origin: SocketAddr, faults: Faults) -> Self {
        let upstream = Arc::new(Upstream::new(origin));
        Self { faults, upstream, clock_offset_ms: AtomicU64::new(0), state: Mutex::default() }
    }

    pub fn reload(&self) {
        if self.has(Fault::ForgetsAfterReload) {
            self.state().store = Store::default();
        }
    }

    pub fn advance(&self, time: Duration) {
        self.clock_offset_ms.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
    }

    pub fn leaked_bytes(&self) -> usize {
        self.state().leaked.iter().map(Vec::len).sum()
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults.has(fault)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn now(&self) -> SystemTime {
        SystemTime::now() + Duration::from_millis(self.clock_offset_ms.load(Ordering::Relaxed))
    }

    pub async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Response<ReplyBody> {
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return message(StatusCode::BAD_REQUEST) };
        let body = body.to_bytes();
        let request = Arc::new(self.client_request(parts));
        self.carry_out_late_purges();
        if self.has(Fault::BreakerForAll) && Some(self.now()) < self.state().closed_until {
            return message(StatusCode::SERVICE_UNAVAILABLE);
        }
        let is_for_origin = !body.is_empty()
            || rules::Directives::of(&request.headers, &self.faults).has("no-store")
            || request.headers.contains_key(header::IF_MATCH)
            || request.headers.contains_key(header::IF_UNMODIFIED_SINCE);
        match request.method.as_str() {
            "PURGE" => self.answer_purge(&request),
            "GET" | "HEAD" if is_for_origin => self.pass(&request, body).await,
            "GET" if !request.headers.contains_key(header::RANGE) => self.get(&request).await,
            "GET" | "HEAD" => {
                let found = self.usable(&mut self.state(), &request);
                match found {
                    Ok(page) => self.reply(&request, &page, true),
                    Err(_) => self.pass(&request, body).await,
                }
            }
            _ => self.pass(&request, body).await,
        }
    }

    fn client_request(&self, parts: request::Parts) -> ClientRequest {
        let request::Parts { method, uri, mut headers, .. } = parts;
        rules::remove_hop_by_hop(&mut headers);
        rules::remove_unkeyed(&mut headers, &self.faults);
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let host = uri.authority().map_or(host, |authority| authority.as_str()).to_ascii_lowercase();
        if let Ok(host) = HeaderValue::from_str(&host) {
            headers.insert(header::HOST, host);
        }
        headers.append(header::VIA, HeaderValue::from_static("1.1 faulty-cache"));
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut key = path.to_owned();
        if self.has(Fault::DecodesKeys) {
            key = percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned();
        }
        if self.has(Fault::CutsKeys) {
            key = String::from_utf8_lossy(&key.as_bytes()[..key.len().min(512)]).into_owned();
        }
        if !self.has(Fault::KeyWithoutHost) {
            key.insert_str(0, &host);
        }
        ClientRequest { key, method, uri: path.parse().unwrap_or_default(), headers }
    }

    fn answer_purge(&self, request: &ClientRequest) -> Response<ReplyBody> {
        let mut state = self.state();
        if self.has(Fault::LatePurge) {
            state.late_purges.push((self.now() + Duration::from_secs(2), request.key.clone()));
        } else {
            let is_every_variant = !self.has(Fault::PurgesOneVariant);
            let is_purged = |page: &StoredPage| is_every_variant || page.is_selected_by(&request.headers);
            self.purge(&mut state, &request.key, is_purged);
        }
        message(StatusCode::OK)
    }

    pub fn purge(&self, state: &mut State, key: &str, is_purged: impl Fn(&StoredPage) -> bool) {
        state.store.remove_if(key, is_purged);
        if !self.has(Fault::PurgeLostDuringLoad) {
            // Later requests join no load that began before.
            for load in state.loads.extract_if(.., |load| load.key == key) {
                load.is_purged.store(true, Ordering::Relaxed);
            }
        }
    }

    fn carry_out_late_purges(&self) {
        let now = self.now();
        let mut state = self.state();
        let due: Vec<_> = state.late_purges.extract_if(.., |(due, _)| *due <= now).collect();
        due.iter().for_each(|(_, key)| self.purge(&mut state, key, |_| true));
    }

    /// A page that may be served now, or the stale one. A page that may be served during its refresh starts the refresh.
    fn usable(
        self: &Arc<Self>,
        state: &mut State,
        request: &Arc<ClientRequest>,
    ) -> Result<Arc<StoredPage>, Option<Arc<StoredPage>>> {
        let now = self.now();
        let page = state.store.find(&request.key, &request.headers).ok_or(None)?;
        if page.freshness.is_fresh(now) {
            return Ok(page);
        }
        if !page.freshness.may_serve_during_refresh(now) {
            return Err(Some(page));
        }
        if state.joinable(request).is_none() || self.has(Fault::RefreshesWithoutCoalescing) {
            let load = state.register(request, true);
            tokio::spawn(self.clone().load(request.clone(), load, Some(page.clone())));
        }
        Ok(page)
    }

    async fn get(self: &Arc<Self>, request: &Arc<ClientRequest>) -> Response<ReplyBody> {
        let mut waits = 0;
        loop {
            let mut outcome = match self.start(request) {
                Start::Hit(page) => return self.reply(request, &page, true),
                Start::Lead(load, stale) => return self.lead(request, load, stale).await,
                Start::Wait(outcome) => outcome,
            };
            waits += 1;
            let outcome = match timeout(WAIT_MAX, outcome.wait_for(Option::is_some)).await {
                Ok(Ok(outcome)) => outcome.clone(),
                Ok(Err(_)) => Some(Outcome::Failed(Failure::Broken)),
                Err(_) => None,
            };
            match outcome {
                Some(Outcome::Shared(page))
                    if page.is_selected_by(&request.headers) || self.has(Fault::SharesLeadersVariant) =>
                {
                    return self.reply(request, &page, true);
                }
                Some(Outcome::Alone) if self.has(Fault::SerialisesUncacheable) => {}
                Some(Outcome::Failed(failure)) if waits == WAITS_MAX || self.has(Fault::EndsWithLeader) => {
                    return message(failure.status());
                }
                // Another variant, or a failure: the next load may be shared.
                Some(Outcome::Shared(_) | Outcome::Failed(_)) if waits < WAITS_MAX => {}
                _ => break,
            }
        }
        let (load, stale) = {
            let mut state = self.state();
            let stale = state.store.find(&request.key, &request.headers);
            (state.register(request, false), stale)
        };
        self.lead(request, load, stale).await
    }

    fn start(self: &Arc<Self>, request: &Arc<ClientRequest>) -> Start {
        let mut state = self.state();
        let stale = match self.usable(&mut state, request) {
            Ok(page) => return Start::Hit(page),
            Err(stale) => stale,
        };
        match state.joinable(request) {
            Some(load) => Start::Wait(load.outcome.subscribe()),
            None => Start::Lead(state.register(request, true), stale),
        }
    }

    async fn lead(
        self: &Arc<Self>,
        request: &Arc<ClientRequest>,
        load: Arc<Load>,
        stale: Option<Arc<StoredPage>>,
    ) -> Response<ReplyBody> {
        let loading = self.clone().load(request.clone(), load, stale);
        let loaded = if self.has(Fault::EndsWithLeader) {
            loading.await
        } else {
            // The load goes on if the client gives up.
            tokio::spawn(loading).await.unwrap_or(Loaded::Failed(Failure::Broken))
        };
        match loaded {
            Loaded::New { page, .. } => self.reply(request, &page, false),
            Loaded::Stale(page) => self.reply(request, &page, true),
            Loaded::Streamed(response) => response,
            Loaded::Failed(failure) => message(failure.status()),
        }
    }

    async fn load(
        self: Arc<Self>,
        request: Arc<ClientRequest>,
        load: Arc<Load>,
        stale: Option<Arc<StoredPage>>,
    ) -> Loaded {
        let registration = Registration(&self, &load);
        let mut loaded = self.fetch(&request, &load, stale.as_ref()).await;
        if let Loaded::Failed(_) = loaded
            && let Some(page) = stale.filter(|page| page.freshness.may_hide_errors(self.now()))
        {
            loaded = Loaded::Stale(page);
        }
        // A waiter that goes on does not join this load again.
        drop(registration);
        let outcome = match &loaded {
            Loaded::New { page, is_shared: true } | Loaded::Stale(page) => Outcome::Shared(page.clone()),
            Loaded::New { page, .. } if self.has(Fault::CrossUserCoalescing) => Outcome::Shared(page.clone()),
            Loaded::New { .. } | Loaded::Streamed(_) => Outcome::Alone,
            Loaded::Failed(failure) => Outcome::Failed(*failure),
        };
        load.outcome.send_replace(Some(outcome));
        loaded
    }

    /// A page for a client that may have it already, or wants a part.
    fn reply(&self, request: &ClientRequest, page: &StoredPage, is_from_store: bool) -> Response<ReplyBody> {
        let (mut status, mut headers, mut body) = (page.status, page.headers.clone(), page.body.clone());
        if is_from_store && self.has(Fault::WrongAge) {
            headers.remove(header::AGE);
        } else if is_from_store {
            headers.insert(header::AGE, page.freshness.age(self.now()).as_secs().into());
        }
        if self.has(Fault::LeaksMemory) {
            self.state().leaked.push(body.to_vec());
        }
        if is_from_store && self.has(Fault::DropsFields) {
            let is_dropped = |name: &HeaderName| {
                name.as_str().starts_with("x-") || ["etag", "link"].contains(&name.as_str())
            };
            rules::remove_if(&mut headers, is_dropped);
        }
        let is_whole = status == StatusCode::OK;
        if is_whole && rules::client_has(&request.headers, &page.headers) {
            (status, body) = (StatusCode::NOT_MODIFIED, Bytes::new());
            rules::remove_if(&mut headers, rules::is_of_body);
        } else if is_whole
            && request.method == Method::GET
            && (rules::range_applies(&request.headers, &page.headers) || self.has(Fault::MixesRanges))
            && let Some((first, end)) = rules::range(&request.headers, body.len())
        {
            status = StatusCode::PARTIAL_CONTENT;
            let mut range = format!("bytes {first}-{}/{}", end.saturating_sub(1), body.len());
            if first >= end {
                status = StatusCode::RANGE_NOT_SATISFIABLE;
                range = format!("bytes */{}", body.len());
            }
            body = body.slice(first..end);
            headers.insert(header::CONTENT_RANGE, range.parse().expect("a range is ASCII"));
        }
        if ![StatusCode::NOT_MODIFIED, StatusCode::NO_CONTENT].contains(&status) {
            headers.insert(header::CONTENT_LENGTH, body.len().into());
        }
        if request.method == Method::HEAD {
            body = Bytes::new();
            if self.has(Fault::HeadWithOtherLength) {
                headers.insert(header::CONTENT_LENGTH, 0.into());
            }
        }
        let mut response = Response::new(full(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

impl State {
    fn register(&mut self, request: &ClientRequest, may_be_joined: bool) -> Arc<Load> {
        let selection = self.store.selection(&request.key, &request.headers);
        let load = Load::new(&request.key, selection, may_be_joined);
        self.loads.push(load.clone());
        load
    }

    /// The load of the variant that a request selects, as far as the fields are known.
    fn joinable(&self, request: &ClientRequest) -> Option<&Arc<Load>> {
        let selection = self.store.selection(&request.key, &request.headers);
        let is_same = |load: &&Arc<Load>| load.key == request.key && load.selection == selection;
        self.loads.iter().filter(|load| load.may_be_joined).find(is_same)
    }
}

impl Load {
    pub fn new(key: &str, selection: Selection, may_be_joined: bool) -> Arc<Self> {
        let (outcome, _) = watch::channel(None);
        Arc::new(Self { key: key.to_owned(), selection, may_be_joined, is_purged: false.into(), outcome })
    }
}

pub fn full(body: Bytes) -> ReplyBody {
    Full::new(body).map_err(|never| match never {}).boxed()
}

/// A response of the cache itself.
pub fn message(status: StatusCode) -> Response<ReplyBody> {
    let mut response = Response::new(full(Bytes::from(status.canonical_reason().unwrap_or_default())));
    *response.status_mut() = status;
    response
}
