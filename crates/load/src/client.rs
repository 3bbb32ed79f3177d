//! The HTTP client of one thread: pooled connections, and requests on them.

mod addresses;
mod cache_headers;
mod connect;
mod deadline;
mod http1;
mod http2;
mod response;

#[cfg(any(test, fuzzing))]
pub(crate) use http1::fuzzing;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    future::poll_fn,
    rc::Rc,
    sync::{Arc, PoisonError},
    task::Poll,
};

use http::{HeaderValue, Request, Uri, Version, header};
use stockade_model::time::{Precise, Runtime, Time, before};
use stockade_record::{clock::since_1970, statement::values_crc32};
use tokio::sync::Mutex;

pub use self::response::Sha256Digest;
use self::{
    connect::{ConnectionAddresses, EndpointAddresses, Stream, TransportConnector, is_http2},
    deadline::DeadlineTimer,
    http1::{ADDED_FIELDS, Http1Connection, PreparedRequest, ReadScratch, RequestBytes, read_scratch},
    http2::Http2Connection,
    response::{CompletedResponse, ExchangeError, ExpectedBody},
};
use crate::{
    endpoint::Endpoint,
    follow::follow_redirect,
    retry::RetryBudget,
    sample::{FailureClass, RequestFailure, Response},
    settings::ClientOptions,
    template::RequestTemplate,
    tls::{self, TrustError},
    traffic::{RequestSpec, Traffic},
};

/// The state that the clients of all threads share.
#[derive(Debug)]
pub(crate) struct ClientContext {
    options: ClientOptions,
    traffic: Arc<Traffic>,
    connector: TransportConnector,
    retry_budget: std::sync::Mutex<RetryBudget>,
}

impl ClientContext {
    pub(crate) fn new(options: ClientOptions, traffic: Arc<Traffic>) -> Result<Self, TrustError> {
        // A redirect may lead to any URL.
        let may_encrypt = options.redirects_max > 0
            || traffic.templates().iter().any(|template| Endpoint::of_url(&template.url).is_encrypted);
        let tls = tls::config(&options, may_encrypt)?;
        let connector = TransportConnector::new(&options, tls);
        let retry_budget = std::sync::Mutex::new(RetryBudget::new(options.retries));
        Ok(Self { options, traffic, connector, retry_budget })
    }

    /// Checks that all servers of the load may be reached, as far as that is known beforehand. Looks names up.
    pub(crate) async fn check_allowed(&self) -> Result<(), RequestFailure> {
        let endpoints = self.traffic.templates().iter().map(|template| Endpoint::of_url(&template.url));
        for endpoint in endpoints.collect::<BTreeSet<_>>() {
            let addresses = self.connector.addresses_of(&endpoint);
            match self.connector.look_up(&endpoint, &addresses, Time::ZERO).await {
                Err(failure) if failure.class == FailureClass::NotAllowed => return Err(failure),
                // A name without an address fails as the requests do.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// The connections of one thread.
pub(crate) struct ThreadClient {
    context: Arc<ClientContext>,
    clock: Precise,
    pools: RefCell<Vec<Rc<EndpointPool>>>,
    /// By the index of the request template.
    targets: Vec<(Rc<EndpointPool>, PreparedRequest)>,
    scratch: ReadScratch,
    /// False: nothing may be sent any more.
    may_send: Box<dyn Fn() -> bool>,
    /// The most concurrent requests on an HTTP/2 connection, below the limit of its peer.
    pub(crate) streams_max: Cell<usize>,
    pub(crate) connections_opened: Cell<u64>,
    pub(crate) retries: Cell<u64>,
    /// Requests sent again because their connection closed before the server processed them.
    pub(crate) resends: Cell<u64>,
}

/// The free connections to one endpoint.
struct EndpointPool {
    endpoint: Endpoint,
    addresses: Arc<EndpointAddresses>,
    #[expect(clippy::vec_box, reason = "each moves out and in with every request")]
    idle: RefCell<Vec<Box<PooledConnection>>>,
    multiplexed: RefCell<Vec<Http2Connection>>,
    /// Serializes HTTP/2 connects: concurrent requests share the connection that one of them opens.
    connecting: Mutex<()>,
}

/// An HTTP/1.1 connection, with the timer of its current request.
struct PooledConnection {
    http1: Http1Connection,
    timer: DeadlineTimer<Precise>,
    /// It has served a request, so its peer may have closed it since.
    is_used: bool,
}

/// One request on one endpoint, and its deadline.
#[derive(Clone, Copy)]
struct EndpointRequest<'a> {
    pool: &'a EndpointPool,
    prepared: &'a PreparedRequest,
    spec: &'a RequestSpec<'a>,
    attempt_started: Time,
    deadline: Time,
    start_time: &'a StartTime,
}

/// The time when a request was first handed to a ready connection.
pub(crate) type StartTime = Cell<Option<Time>>;

/// Keeps the first time only: later ones are resends and redirects.
fn note_start(start_time: &StartTime, at: Time) {
    start_time.set(start_time.get().or(Some(at)));
}

/// A bound, since a server may close every connection at once.
const RESENDS_MAX: u32 = 3;
/// HTTP/2 connections to one endpoint, where each takes many streams.
const MULTIPLEXED_MAX: usize = 256;
/// A bound, since redirects may name any number of hosts.
const POOLS_MAX: usize = 10_000;

impl ThreadClient {
    pub(crate) fn new(context: Arc<ClientContext>, clock: Precise, may_send: Box<dyn Fn() -> bool>) -> Self {
        let mut client = Self {
            context,
            clock,
            pools: RefCell::default(),
            targets: Vec::new(),
            scratch: read_scratch(),
            may_send,
            streams_max: Cell::new(usize::MAX),
            connections_opened: Cell::new(0),
            retries: Cell::new(0),
            resends: Cell::new(0),
        };
        let keeps_alive = client.context.options.keep_alive;
        let prepare = |template: &RequestTemplate| {
            let pool = client.pool(&template.url);
            let prepared = PreparedRequest::new(template, &pool.endpoint, keeps_alive);
            (pool, prepared)
        };
        client.targets = client.context.traffic.templates().iter().map(prepare).collect();
        client
    }

    pub(crate) fn clock(&self) -> &Precise {
        &self.clock
    }

    /// Opens a connection for the `n`th request in advance; returns whether that worked. The reason of a failure is not
    /// kept: the request itself will fail with it.
    pub(crate) async fn preconnect(&self, n: u64) -> bool {
        let pool = &self.targets[self.context.traffic.request(n).template_index].0;
        let deadline = self.clock.now() + self.context.options.timeout;
        if self.context.options.http2 {
            let connected = before(&self.clock, deadline, self.connect_http2(pool, deadline)).await;
            return connected.is_some_and(|connected| connected.is_ok());
        }
        let Ok(connection) = self.connect_http1(pool, deadline).await else { return false };
        pool.idle.borrow_mut().push(connection);
        true
    }

    /// The `n`th request.
    pub(crate) fn request(&self, n: u64) -> RequestSpec<'_> {
        self.context.traffic.request(n)
    }

    /// Sends a request and reads its response, with retries.
    pub(crate) async fn send(
        &self,
        spec: &RequestSpec<'_>,
        start_time: &StartTime,
    ) -> Result<Response, RequestFailure> {
        let (pool, prepared) = &self.targets[spec.template_index];
        let retries = self.context.options.retries;
        if retries.max == 0 {
            return self.attempt(pool, prepared, spec, start_time).await;
        }
        let budget = || self.context.retry_budget.lock().unwrap_or_else(PoisonError::into_inner);
        budget().deposit();
        let mut attempts = 1;
        loop {
            let result = self.attempt(pool, prepared, spec, start_time).await;
            if !budget().try_retry(attempts, &result) {
                return result;
            }
            attempts += 1;
            self.retries.set(self.retries.get() + 1);
            self.clock.sleep_until(self.clock.now() + retries.backoff).await;
        }
    }

    /// One attempt, redirects included.
    async fn attempt(
        &self,
        pool: &Rc<EndpointPool>,
        prepared: &PreparedRequest,
        spec: &RequestSpec<'_>,
        start_time: &StartTime,
    ) -> Result<Response, RequestFailure> {
        let attempt_started = self.clock.now();
        let deadline = attempt_started + self.context.options.timeout;
        let first = EndpointRequest { pool, prepared, spec, attempt_started, deadline, start_time };
        let mut completed = self.exchange(first).await?;
        let mut previous = None;
        for _ in 0..self.context.options.redirects_max {
            let Some(location) = completed.location.take() else { break };
            let from = previous.as_ref().unwrap_or(spec.template);
            let next = follow_redirect(from, completed.response.status, &location).ok_or_else(|| {
                RequestFailure::new(FailureClass::Malformed, format!("a redirect to `{location}`"))
            })?;
            let pool = self.pool(&next.url);
            let prepared = PreparedRequest::new(&next, &pool.endpoint, self.context.options.keep_alive);
            let path = next.url.path_and_query().map_or("/", |path| path.as_str()).into();
            let spec = RequestSpec { template_index: 0, template: &next, path };
            let request = EndpointRequest { pool: &pool, prepared: &prepared, spec: &spec, ..first };
            completed = self.exchange(request).await?;
            previous = Some(next);
        }
        match completed.location {
            Some(location) if self.context.options.redirects_max > 0 => {
                let more = format!("the next leads to `{location}`");
                Err(RequestFailure::new(FailureClass::Redirects, more))
            }
            _ => Ok(completed.response),
        }
    }

    /// One request and its response. A request that the server did not process because it was closing the connection is
    /// resent on another one, as browsers do (RFC 9110, 9.2.2; RFC 9113, 8.7).
    async fn exchange(&self, request: EndpointRequest<'_>) -> Result<CompletedResponse, RequestFailure> {
        let mut resends = 0;
        loop {
            if !(self.may_send)() {
                return Err(FailureClass::CutOff.into());
            }
            let result = if self.context.options.http2 {
                self.exchange_http2(&request).await
            } else {
                self.exchange_http1(&request).await
            };
            match result {
                Ok(mut completed) => {
                    if let Some(stated) = &mut completed.response.stated {
                        stated.received = since_1970();
                        let received = stated.received;
                        for field in stated.owner.iter_mut().chain(&mut stated.variant) {
                            field.sent_crc32 = sent_crc32(request.spec.template, &field.stated.name);
                        }
                        let requested =
                            || received.saturating_sub(self.clock.now() - request.attempt_started);
                        stated.purge_sent =
                            self.context.options.purges.last_sent(&request.spec.path, requested);
                    }
                    return Ok(completed);
                }
                Err(error) if !error.may_resend || resends == RESENDS_MAX => return Err(error.failure),
                Err(_) => {
                    resends += 1;
                    self.resends.set(self.resends.get() + 1);
                }
            }
        }
    }

    async fn exchange_http1(
        &self,
        request: &EndpointRequest<'_>,
    ) -> Result<CompletedResponse, ExchangeError> {
        let EndpointRequest { pool, prepared, spec, attempt_started, deadline, start_time } = *request;
        let mut connection = match self.take_idle(pool).await {
            Some(connection) => {
                // Taking an idle connection takes no time.
                note_start(start_time, attempt_started);
                connection
            }
            None => {
                let connection =
                    self.connect_http1(pool, deadline).await.map_err(ExchangeError::permanent)?;
                note_start(start_time, self.clock.now());
                connection
            }
        };
        let mut head = Vec::new();
        let expected = self.expected_body(prepared);
        let request = RequestBytes { head: prepared.head(spec, &mut head), body: &prepared.body, expected };
        connection.timer.set(deadline);
        let result = connection.http1.exchange(request, &mut connection.timer, &self.scratch).await;
        let is_resendable = connection.is_used && spec.template.method.is_idempotent();
        connection.is_used = true;
        if let Ok(completed) = &result
            && completed.keeps_alive
            && self.context.options.keep_alive
        {
            pool.idle.borrow_mut().push(connection);
        }
        result.map_err(|error| ExchangeError { may_resend: error.may_resend && is_resendable, ..error })
    }

    async fn exchange_http2(
        &self,
        request: &EndpointRequest<'_>,
    ) -> Result<CompletedResponse, ExchangeError> {
        let EndpointRequest { pool, prepared, spec, deadline, start_time, .. } = *request;
        let http2 = self.http2_connection(pool, deadline).await.map_err(ExchangeError::permanent)?;
        let request = http2_request(spec, &pool.endpoint).map_err(ExchangeError::permanent)?;
        let (body, expected) = (prepared.body.clone(), self.expected_body(prepared));
        let exchange = http2.exchange(request, body, expected, || note_start(start_time, self.clock.now()));
        before(&self.clock, deadline, exchange).await.unwrap_or_else(|| {
            // The whole connection may be dead: as with HTTP/1.1, the next request opens another one.
            http2.retire();
            Err(ExchangeError::permanent(FailureClass::Timeout))
        })
    }

    fn expected_body(&self, prepared: &PreparedRequest) -> ExpectedBody {
        ExpectedBody {
            is_head: prepared.is_head,
            decodes: prepared.decodes,
            digest: self.context.options.body_digest,
            is_strict: self.context.options.is_strict,
            is_checked: self.context.options.checks_answers,
        }
    }

    /// Takes an idle connection that its peer has not closed meanwhile.
    async fn take_idle(&self, pool: &EndpointPool) -> Option<Box<PooledConnection>> {
        loop {
            let mut connection = pool.idle.borrow_mut().pop()?;
            if poll_fn(|cx| Poll::Ready(connection.http1.is_quiet(cx))).await {
                return Some(connection);
            }
        }
    }

    async fn connect_http1(
        &self,
        pool: &EndpointPool,
        deadline: Time,
    ) -> Result<Box<PooledConnection>, RequestFailure> {
        let stream = self.connect(pool, deadline).await?;
        let timer = DeadlineTimer::new(self.clock.clone());
        Ok(Box::new(PooledConnection { http1: Http1Connection::new(stream), timer, is_used: false }))
    }

    /// A connection with capacity: a kept one, or a new one.
    async fn http2_connection(
        &self,
        pool: &EndpointPool,
        deadline: Time,
    ) -> Result<Http2Connection, RequestFailure> {
        let find = || {
            let mut multiplexed = pool.multiplexed.borrow_mut();
            multiplexed.retain(|http2| !http2.is_closing());
            let streams_max = self.streams_max.get();
            let free = multiplexed.iter().find(|http2| http2.has_capacity(streams_max));
            // A server that admits no stream on that many connections will not admit one on another: wait on the last.
            let last = || {
                (streams_max > 1 && multiplexed.len() >= MULTIPLEXED_MAX)
                    .then(|| multiplexed.last())
                    .flatten()
            };
            free.or_else(last).cloned()
        };
        if let Some(http2) = find() {
            return Ok(http2);
        }
        let connecting = async {
            let _guard = pool.connecting.lock().await;
            if let Some(http2) = find() {
                return Ok(http2);
            }
            self.connect_http2(pool, deadline).await
        };
        let connected = before(&self.clock, deadline, connecting).await;
        connected.unwrap_or_else(|| Err(FailureClass::ConnectTimeout.into()))
    }

    async fn connect_http2(
        &self,
        pool: &EndpointPool,
        deadline: Time,
    ) -> Result<Http2Connection, RequestFailure> {
        let stream = self.connect(pool, deadline).await?;
        if pool.endpoint.is_encrypted && !is_http2(&stream) {
            return Err(RequestFailure::new(FailureClass::Tls, "the server does not speak HTTP/2"));
        }
        let http2 = Http2Connection::handshake(stream).await?;
        pool.multiplexed.borrow_mut().push(http2.clone());
        Ok(http2)
    }

    async fn connect(&self, pool: &EndpointPool, deadline: Time) -> Result<Stream, RequestFailure> {
        let connector = &self.context.connector;
        let lookup = connector.look_up(&pool.endpoint, &pool.addresses, self.clock.now());
        let to = before(&self.clock, deadline, lookup).await.unwrap_or_else(|| {
            let detail = format!("{}: the lookup timed out", pool.endpoint.host);
            Err(RequestFailure::new(FailureClass::Dns, detail))
        })?;
        let mut failed = Vec::new();
        let connecting = connector.connect(&pool.endpoint, &to, &self.clock, &mut failed);
        let stream = before(&self.clock, deadline, connecting).await;
        if let (None, ConnectionAddresses::Tcp(addresses)) = (&stream, &to) {
            // No address accepted, or the handshake did not end: the name may have moved.
            failed.clone_from(addresses);
        }
        if !failed.is_empty() {
            pool.addresses.note_failed(&failed).await;
        }
        let stream = stream.unwrap_or_else(|| Err(FailureClass::ConnectTimeout.into()))?;
        self.connections_opened.set(self.connections_opened.get() + 1);
        Ok(stream)
    }

    /// The pool for a URL: a known one, or a new one.
    fn pool(&self, url: &Uri) -> Rc<EndpointPool> {
        let endpoint = Endpoint::of_url(url);
        let mut pools = self.pools.borrow_mut();
        if let Some(pool) = pools.iter().find(|pool| pool.endpoint == endpoint) {
            return Rc::clone(pool);
        }
        let pool = Rc::new(EndpointPool {
            addresses: self.context.connector.addresses_of(&endpoint),
            endpoint,
            idle: RefCell::default(),
            multiplexed: RefCell::default(),
            connecting: Mutex::new(()),
        });
        if pools.len() < POOLS_MAX {
            pools.push(Rc::clone(&pool));
        }
        pool
    }
}

/// The checksum of a field as the request has it on the wire.
fn sent_crc32(template: &RequestTemplate, name: &str) -> Option<u32> {
    let own = values_crc32(template.headers.get_all(name).iter().map(HeaderValue::as_bytes));
    own.or_else(|| {
        let (_, added) = ADDED_FIELDS.iter().find(|(added, _)| added == name)?;
        values_crc32([added.as_bytes()])
    })
}

fn http2_request(spec: &RequestSpec<'_>, endpoint: &Endpoint) -> Result<Request<()>, RequestFailure> {
    let scheme = if endpoint.is_encrypted { "https" } else { "http" };
    let headers = &spec.template.headers;
    let authority = match headers.get(header::HOST).and_then(|host| host.to_str().ok()) {
        Some(host) => host.to_owned(),
        None => endpoint.authority(),
    };
    let mut request = Request::builder()
        .version(Version::HTTP_2)
        .method(spec.template.method.clone())
        .uri(format!("{scheme}://{authority}{}", spec.path))
        .body(())
        .map_err(|error| RequestFailure::new(FailureClass::Malformed, error.to_string()))?;
    let fields = request.headers_mut();
    fields.extend(ADDED_FIELDS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    for name in headers.keys().filter(|name| **name != header::HOST) {
        fields.remove(name);
        for value in headers.get_all(name) {
            fields.append(name, value.clone());
        }
    }
    if !spec.template.body.is_empty() {
        fields.insert(header::CONTENT_LENGTH, spec.template.body.len().into());
    }
    Ok(request)
}
