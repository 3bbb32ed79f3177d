//! One thread's way to the servers: connections that are kept, and requests on them.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    path::PathBuf,
    rc::Rc,
    sync::{Arc, PoisonError},
    task::Poll,
    time::Duration,
};

use http::{Request, Uri, Version, header};
use stockade_model::time::{Precise, Runtime, Time, before};
use tokio::sync::{Mutex, OnceCell};

use crate::{
    alarm::Alarm,
    body::{Digest, Expected},
    connect::{Address, Connector, Stream, is_http2},
    endpoint::Endpoint,
    follow::followed,
    http1::{Done, Http1, Prepared, Scratch, Sent, USER_AGENT, scratch},
    http2::Http2,
    retry::{Budget, Retries},
    sample::{Answer, Class, Failure},
    target::Target,
    tls::{self, Trust, TrustError},
    traffic::{Asked, Traffic},
};

/// How requests are made.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// From when an attempt begins until its answer has to be complete.
    pub timeout: Duration,
    /// HTTP/2, from the first byte on or as TLS settles it, and nothing else.
    pub http2: bool,
    /// Connections are kept for more than one request.
    pub keep_alive: bool,
    /// Whom encrypted connections trust.
    pub trust: Trust,
    /// A socket to which all connections go, whatever the URLs say.
    pub unix: Option<PathBuf>,
    /// How many redirects in a row are followed.
    pub redirects: u32,
    /// What is done about a failure.
    pub retries: Retries,
    /// What every body has to be, as SHA-256 of what it is decoded.
    pub digest: Option<Digest>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            http2: false,
            keep_alive: true,
            trust: Trust::System,
            unix: None,
            redirects: 0,
            retries: Retries::default(),
            digest: None,
        }
    }
}

/// What all threads share: how requests are made, and for what.
#[derive(Debug)]
pub(crate) struct Common {
    options: Options,
    traffic: Arc<Traffic>,
    connector: Connector,
    budget: std::sync::Mutex<Budget>,
}

impl Common {
    pub(crate) fn new(options: Options, traffic: Arc<Traffic>) -> Result<Self, TrustError> {
        // A redirect may lead anywhere.
        let may_encrypt =
            options.redirects > 0 || traffic.targets().iter().any(|target| is_encrypted(&target.url));
        let tls = tls::config(&options.trust, options.http2, options.keep_alive, may_encrypt)?;
        let connector = Connector { unix: options.unix.clone(), tls };
        let budget = std::sync::Mutex::new(Budget::new(options.retries));
        Ok(Self { options, traffic, connector, budget })
    }
}

fn is_encrypted(url: &Uri) -> bool {
    Endpoint::of(url).is_encrypted
}

/// One thread's connections.
pub(crate) struct Client {
    common: Arc<Common>,
    clock: Precise,
    sites: RefCell<Vec<Rc<Site>>>,
    /// By target: where it is, and how it is asked for.
    targets: Vec<(Rc<Site>, Prepared)>,
    scratch: Scratch,
    /// How many requests an HTTP/2 connection takes at once, if its peer takes as many.
    pub(crate) streams_max: Cell<usize>,
    pub(crate) opened: Cell<u64>,
    pub(crate) retried: Cell<u64>,
    /// Requests sent once more because their connection had been closed, or was about to be, before anybody looked at
    /// them.
    pub(crate) resent: Cell<u64>,
}

/// An endpoint, and the connections to it that are free.
struct Site {
    endpoint: Endpoint,
    address: OnceCell<Address>,
    #[expect(clippy::vec_box, reason = "each moves out and in with every request")]
    idle: RefCell<Vec<Box<Line>>>,
    multiplexed: RefCell<Vec<Http2>>,
    /// Held by whoever connects for all: many streams share what one opens.
    connecting: Mutex<()>,
}

/// A connection with HTTP/1.1, and when its request is given up.
struct Line {
    http1: Http1,
    alarm: Alarm<Precise>,
    /// It has served a request, and may have been closed since.
    is_used: bool,
}

/// A request, and when it is to be answered.
#[derive(Clone, Copy)]
struct Exchange<'a> {
    site: &'a Site,
    prepared: &'a Prepared,
    asked: &'a Asked<'a>,
    /// When its attempt began.
    began: Time,
    deadline: Time,
    started: &'a Started,
}

/// When a request was handed to a connection that was ready.
pub(crate) type Started = Cell<Option<Time>>;

/// A connection is ready: the first one that is counts.
fn start(started: &Started, at: Time) {
    started.set(started.get().or(Some(at)));
}

/// What is closed each time it is sent will be so once more.
const RESENDS_MAX: u32 = 3;
/// So many connections of many streams each are enough.
const MULTIPLEXED_MAX: usize = 256;
/// So many redirects may lead to so many different hosts.
const SITES_MAX: usize = 10_000;

impl Client {
    pub(crate) fn new(common: Arc<Common>, clock: Precise) -> Self {
        let mut client = Self {
            common,
            clock,
            sites: RefCell::default(),
            targets: Vec::new(),
            scratch: scratch(),
            streams_max: Cell::new(usize::MAX),
            opened: Cell::new(0),
            retried: Cell::new(0),
            resent: Cell::new(0),
        };
        let keeps_alive = client.common.options.keep_alive;
        let prepare = |target: &Target| {
            let site = client.site(&target.url);
            let prepared = Prepared::new(target, &site.endpoint, keeps_alive);
            (site, prepared)
        };
        client.targets = client.common.traffic.targets().iter().map(prepare).collect();
        client
    }

    pub(crate) fn clock(&self) -> &Precise {
        &self.clock
    }

    /// Opens a connection for the `n`th request before it is due; whether that worked. What fails now fails again then,
    /// and is told then.
    pub(crate) async fn open_for(&self, n: u64) -> bool {
        let site = &self.targets[self.common.traffic.nth(n).index].0;
        let deadline = self.clock.now() + self.common.options.timeout;
        if self.common.options.http2 {
            return before(&self.clock, deadline, self.one_more(site, deadline))
                .await
                .is_some_and(|one| one.is_ok());
        }
        let Ok(line) = self.connect(site, deadline).await else { return false };
        site.idle.borrow_mut().push(line);
        true
    }

    /// What the `n`th request asks for.
    pub(crate) fn asked(&self, n: u64) -> Asked<'_> {
        self.common.traffic.nth(n)
    }

    /// Asks for it until it is answered or given up.
    pub(crate) async fn ask(&self, asked: &Asked<'_>, started: &Started) -> Result<Answer, Failure> {
        let (site, prepared) = &self.targets[asked.index];
        let retries = self.common.options.retries;
        if retries.most == 0 {
            return self.attempt(site, prepared, asked, started).await;
        }
        let budget = || self.common.budget.lock().unwrap_or_else(PoisonError::into_inner);
        budget().pay_in();
        let mut attempts = 1;
        loop {
            let ended = self.attempt(site, prepared, asked, started).await;
            if !budget().allows(attempts, &ended) {
                return ended;
            }
            attempts += 1;
            self.retried.set(self.retried.get() + 1);
            self.clock.sleep_until(self.clock.now() + retries.backoff).await;
        }
    }

    async fn attempt(
        &self,
        site: &Rc<Site>,
        prepared: &Prepared,
        asked: &Asked<'_>,
        started: &Started,
    ) -> Result<Answer, Failure> {
        let began = self.clock.now();
        let deadline = began + self.common.options.timeout;
        let mut done = self.exchange(Exchange { site, prepared, asked, began, deadline, started }).await?;
        let mut target = None;
        for _ in 0..self.common.options.redirects {
            let Some(location) = done.location.take() else { break };
            let from = target.as_ref().unwrap_or(asked.target);
            let to = followed(from, done.answer.status, &location)
                .ok_or_else(|| Failure::new(Class::Malformed, format!("a redirect to `{location}`")))?;
            let site = self.site(&to.url);
            let prepared = Prepared::new(&to, &site.endpoint, self.common.options.keep_alive);
            let path = to.url.path_and_query().map_or("/", |path| path.as_str()).into();
            let asked = Asked { index: 0, target: &to, path };
            let exchange =
                Exchange { site: &site, prepared: &prepared, asked: &asked, began, deadline, started };
            done = self.exchange(exchange).await?;
            target = Some(to);
        }
        Ok(done.answer)
    }

    /// One request and its answer. What a server has not looked at, because it was closing the connection, is sent once
    /// more on another one, as every browser does (RFC 9110, 9.2.2; RFC 9113, 8.7).
    async fn exchange(&self, exchange: Exchange<'_>) -> Result<Done, Failure> {
        let mut resends = 0;
        loop {
            let exchanged = if self.common.options.http2 {
                self.exchange_http2(&exchange).await
            } else {
                self.exchange_http1(&exchange).await
            };
            match exchanged {
                Ok(done) => return Ok(done),
                Err((failure, was_looked_at)) if was_looked_at || resends == RESENDS_MAX => {
                    return Err(failure);
                }
                Err(_) => {
                    resends += 1;
                    self.resent.set(self.resent.get() + 1);
                }
            }
        }
    }

    /// Once; with a failure comes whether the server may have looked at the request.
    async fn exchange_http1(&self, exchange: &Exchange<'_>) -> Result<Done, (Failure, bool)> {
        let Exchange { site, prepared, asked, began, deadline, started } = *exchange;
        let mut line = match self.idle(site).await {
            Some(line) => {
                // That took no time.
                start(started, began);
                line
            }
            None => {
                let line = self.connect(site, deadline).await.map_err(|failure| (failure, true))?;
                start(started, self.clock.now());
                line
            }
        };
        let mut room = Vec::new();
        let expected = self.expected(prepared);
        let sent = Sent { head: prepared.head(asked, &mut room), body: &prepared.body, expected };
        line.alarm.set(deadline);
        let done = line.http1.exchange(sent, &mut line.alarm, &self.scratch).await;
        let may_resend = line.is_used && asked.target.method.is_idempotent();
        line.is_used = true;
        if let Ok(done) = &done
            && done.keeps_alive
            && self.common.options.keep_alive
        {
            site.idle.borrow_mut().push(line);
        }
        done.map_err(|(failure, has_begun)| {
            let is_broken = matches!(failure.class, Class::Closed | Class::Reset);
            (failure, has_begun || !may_resend || !is_broken)
        })
    }

    /// The same.
    async fn exchange_http2(&self, exchange: &Exchange<'_>) -> Result<Done, (Failure, bool)> {
        let Exchange { site, prepared, asked, deadline, started, .. } = *exchange;
        let http2 = self.multiplexed(site, deadline).await.map_err(|failure| (failure, true))?;
        let request = request(asked, &site.endpoint).map_err(|failure| (failure, true))?;
        let (body, expected) = (prepared.body.clone(), self.expected(prepared));
        let exchange = http2.exchange(request, body, expected, || start(started, self.clock.now()));
        before(&self.clock, deadline, exchange).await.unwrap_or_else(|| {
            // Who is silent to one may be silent to all: as with HTTP/1.1, the next one connects anew.
            http2.leave();
            Err((Class::Timeout.into(), true))
        })
    }

    fn expected(&self, prepared: &Prepared) -> Expected {
        Expected { is_head: prepared.is_head, decodes: prepared.decodes, digest: self.common.options.digest }
    }

    /// A connection that is open, free, and not closed by its peer meanwhile.
    async fn idle(&self, site: &Site) -> Option<Box<Line>> {
        loop {
            let mut line = site.idle.borrow_mut().pop()?;
            if poll_fn(|cx| Poll::Ready(line.http1.is_quiet(cx))).await {
                return Some(line);
            }
        }
    }

    async fn connect(&self, site: &Site, deadline: Time) -> Result<Box<Line>, Failure> {
        let stream = self.stream(site, deadline).await?;
        let alarm = Alarm::new(self.clock.clone());
        Ok(Box::new(Line { http1: Http1::new(stream), alarm, is_used: false }))
    }

    async fn multiplexed(&self, site: &Site, deadline: Time) -> Result<Http2, Failure> {
        let with_room = || {
            let mut multiplexed = site.multiplexed.borrow_mut();
            multiplexed.retain(|http2| !http2.is_closing());
            let most = self.streams_max.get();
            let free = multiplexed.iter().find(|http2| http2.has_room(most));
            // Who lets nobody in on many connections will not do so on one more: then one waits.
            let any =
                || (most > 1 && multiplexed.len() >= MULTIPLEXED_MAX).then(|| multiplexed.last()).flatten();
            free.or_else(any).cloned()
        };
        if let Some(http2) = with_room() {
            return Ok(http2);
        }
        let connecting = async {
            let _turn = site.connecting.lock().await;
            if let Some(http2) = with_room() {
                return Ok(http2);
            }
            self.one_more(site, deadline).await
        };
        let connected = before(&self.clock, deadline, connecting).await;
        connected.unwrap_or_else(|| Err(Class::ConnectTimeout.into()))
    }

    async fn one_more(&self, site: &Site, deadline: Time) -> Result<Http2, Failure> {
        let stream = self.stream(site, deadline).await?;
        if site.endpoint.is_encrypted && !is_http2(&stream) {
            return Err(Failure::new(Class::Tls, "the server does not speak HTTP/2"));
        }
        let http2 = Http2::handshake(stream).await?;
        site.multiplexed.borrow_mut().push(http2.clone());
        Ok(http2)
    }

    async fn stream(&self, site: &Site, deadline: Time) -> Result<Stream, Failure> {
        let connector = &self.common.connector;
        // One asks for all; who asks in vain is not believed for long.
        let looking = site.address.get_or_try_init(|| connector.look_up(&site.endpoint));
        let address = before(&self.clock, deadline, looking).await.unwrap_or_else(|| {
            Err(Failure::new(Class::Dns, format!("{}: nobody said so in time", site.endpoint.host)))
        })?;
        let stream = before(&self.clock, deadline, connector.connect(&site.endpoint, address)).await;
        let stream = stream.unwrap_or_else(|| Err(Class::ConnectTimeout.into()))?;
        self.opened.set(self.opened.get() + 1);
        Ok(stream)
    }

    /// The one for this URL; a new one if there is none.
    fn site(&self, url: &Uri) -> Rc<Site> {
        let endpoint = Endpoint::of(url);
        let mut sites = self.sites.borrow_mut();
        if let Some(site) = sites.iter().find(|site| site.endpoint == endpoint) {
            return Rc::clone(site);
        }
        let site = Rc::new(Site {
            endpoint,
            address: OnceCell::new(),
            idle: RefCell::default(),
            multiplexed: RefCell::default(),
            connecting: Mutex::new(()),
        });
        if sites.len() < SITES_MAX {
            sites.push(Rc::clone(&site));
        }
        site
    }
}

fn request(asked: &Asked<'_>, endpoint: &Endpoint) -> Result<Request<()>, Failure> {
    let scheme = if endpoint.is_encrypted { "https" } else { "http" };
    let headers = &asked.target.headers;
    let authority = match headers.get(header::HOST).and_then(|host| host.to_str().ok()) {
        Some(host) => host.to_owned(),
        None => endpoint.authority(),
    };
    let mut request = Request::builder()
        .version(Version::HTTP_2)
        .method(asked.target.method.clone())
        .uri(format!("{scheme}://{authority}{}", asked.path))
        .body(())
        .map_err(|error| Failure::new(Class::Malformed, error.to_string()))?;
    let fields = request.headers_mut();
    fields.insert(header::USER_AGENT, header::HeaderValue::from_static(USER_AGENT));
    fields.insert(header::ACCEPT_ENCODING, header::HeaderValue::from_static("gzip"));
    for name in headers.keys().filter(|name| **name != header::HOST) {
        fields.remove(name);
        for value in headers.get_all(name) {
            fields.append(name, value.clone());
        }
    }
    if !asked.target.body.is_empty() {
        fields.insert(header::CONTENT_LENGTH, asked.target.body.len().into());
    }
    Ok(request)
}
