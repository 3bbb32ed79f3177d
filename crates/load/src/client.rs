//! One thread's way to the servers: connections that are kept, and requests on them.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    path::PathBuf,
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use http::{Method, Request, Uri, Version, header};
use stockade_model::time::{Precise, Runtime, Time, before};
use tokio::sync::{Mutex, OnceCell};

use crate::{
    alarm::Alarm,
    body::Digest,
    connect::{Address, Connector, Stream, is_http2},
    endpoint::Endpoint,
    http1::{Done, Expected, Http1, Prepared, Scratch, Sent, USER_AGENT, scratch},
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
}

impl Common {
    pub(crate) fn new(options: Options, traffic: Arc<Traffic>) -> Result<Self, TrustError> {
        // A redirect may lead anywhere.
        let may_encrypt =
            options.redirects > 0 || traffic.targets().iter().any(|target| is_encrypted(&target.url));
        let tls = tls::config(&options.trust, options.http2, may_encrypt)?;
        let connector = Connector { unix: options.unix.clone(), tls };
        Ok(Self { options, traffic, connector })
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
    budget: RefCell<Budget>,
    /// How many requests an HTTP/2 connection takes at once, if its peer takes as many.
    pub(crate) streams_max: Cell<usize>,
    pub(crate) opened: Cell<u64>,
    pub(crate) retried: Cell<u64>,
}

/// An endpoint, and the connections to it that are free.
struct Site {
    endpoint: Endpoint,
    address: OnceCell<Result<Address, Failure>>,
    #[expect(clippy::vec_box, reason = "each moves out and in with every request")]
    idle: RefCell<Vec<Box<Line>>>,
    multiplexed: RefCell<Vec<Http2>>,
    /// Held by whoever connects for all: many streams share what one opens.
    connecting: Mutex<()>,
}

/// A connection with HTTP/1.1, and when its request is given up.
struct Line {
    http1: Http1,
    alarm: Alarm,
}

/// When a request was handed to a connection that was ready.
pub(crate) type Started = Cell<Option<Time>>;

/// So many redirects may lead to so many different hosts.
const SITES_MAX: usize = 10_000;

impl Client {
    pub(crate) fn new(common: Arc<Common>, clock: Precise) -> Self {
        let budget = RefCell::new(Budget::new(common.options.retries));
        let mut client = Self {
            common,
            clock,
            sites: RefCell::default(),
            targets: Vec::new(),
            scratch: scratch(),
            budget,
            streams_max: Cell::new(usize::MAX),
            opened: Cell::new(0),
            retried: Cell::new(0),
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
            return self.multiplexed(site, deadline).await.is_ok();
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
        self.budget.borrow_mut().pay_in();
        let mut attempts = 1;
        loop {
            let ended = self.attempt(site, prepared, asked, started).await;
            if !self.budget.borrow_mut().allows(attempts, &ended) {
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
        let mut done = self.exchange(site, prepared, asked, self.clock.now(), started).await?;
        let mut url = None;
        let mut method = asked.target.method.clone();
        for _ in 0..self.common.options.redirects {
            let Some(location) = done.location.take() else { break };
            let from = url.as_ref().unwrap_or(&asked.target.url);
            let to = redirected(from, &location)
                .ok_or_else(|| Failure::new(Class::Malformed, format!("a redirect to `{location}`")))?;
            if !matches!(done.answer.status, 307 | 308) && method != Method::HEAD {
                method = Method::GET;
            }
            let keeps_body = method == asked.target.method;
            let target = Target {
                method: method.clone(),
                url: to.clone(),
                headers: asked.target.headers.clone(),
                body: if keeps_body { asked.target.body.clone() } else { bytes::Bytes::new() },
            };
            let site = self.site(&to);
            let prepared = Prepared::new(&target, &site.endpoint, self.common.options.keep_alive);
            let path = to.path_and_query().map_or("/", |path| path.as_str()).into();
            let asked = Asked { index: 0, target: &target, path };
            done = self.exchange(&site, &prepared, &asked, self.clock.now(), started).await?;
            url = Some(to);
        }
        Ok(done.answer)
    }

    async fn exchange(
        &self,
        site: &Rc<Site>,
        prepared: &Prepared,
        asked: &Asked<'_>,
        now: Time,
        started: &Started,
    ) -> Result<Done, Failure> {
        let expected = Expected {
            is_head: prepared.is_head,
            decodes: prepared.decodes,
            digest: self.common.options.digest.filter(|_| !prepared.is_head),
        };
        let deadline = now + self.common.options.timeout;
        let start_at = |time: Time| started.set(started.get().or(Some(time)));
        if self.common.options.http2 {
            let http2 = self.multiplexed(site, deadline).await?;
            let request = request(asked, &site.endpoint)?;
            let starts = || start_at(self.clock.now());
            let exchange = http2.exchange(request, prepared.body.clone(), expected, starts);
            return before(&self.clock, deadline, exchange)
                .await
                .unwrap_or_else(|| Err(Class::Timeout.into()));
        }
        let mut line = match self.idle(site).await {
            Some(line) => {
                // That took no time.
                start_at(now);
                line
            }
            None => {
                let line = self.connect(site, deadline).await?;
                start_at(self.clock.now());
                line
            }
        };
        let mut room = Vec::new();
        let sent = Sent { head: prepared.head(asked, &mut room), body: &prepared.body, expected };
        line.alarm.set(deadline);
        let done = line.http1.exchange(sent, &mut line.alarm, &self.scratch).await?;
        if done.keeps_alive && self.common.options.keep_alive {
            site.idle.borrow_mut().push(line);
        }
        Ok(done)
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
        Ok(Box::new(Line { http1: Http1::new(stream), alarm: Alarm::new(self.clock.clone()) }))
    }

    async fn multiplexed(&self, site: &Site, deadline: Time) -> Result<Http2, Failure> {
        let with_room = || {
            let mut multiplexed = site.multiplexed.borrow_mut();
            multiplexed.retain(|http2| !http2.has_ended());
            let most = self.streams_max.get();
            multiplexed.iter().find(|http2| http2.has_room(most)).cloned()
        };
        if let Some(http2) = with_room() {
            return Ok(http2);
        }
        let connecting = async {
            let _turn = site.connecting.lock().await;
            if let Some(http2) = with_room() {
                return Ok(http2);
            }
            let stream = self.stream(site, deadline).await?;
            if site.endpoint.is_encrypted && !is_http2(&stream) {
                return Err(Failure::new(Class::Tls, "the server does not speak HTTP/2"));
            }
            let http2 = Http2::handshake(stream).await?;
            site.multiplexed.borrow_mut().push(http2.clone());
            Ok(http2)
        };
        let connected = before(&self.clock, deadline, connecting).await;
        connected.unwrap_or_else(|| Err(Class::ConnectTimeout.into()))
    }

    async fn stream(&self, site: &Site, deadline: Time) -> Result<Stream, Failure> {
        let connector = &self.common.connector;
        let connecting = async {
            let address = site.address.get_or_init(|| connector.look_up(&site.endpoint)).await;
            connector.connect(&site.endpoint, address.as_ref().map_err(Clone::clone)?).await
        };
        let stream = before(&self.clock, deadline, connecting).await;
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

/// Where a redirect leads, seen from where it came.
fn redirected(from: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    if let Ok(to) = location.parse::<Uri>()
        && to.host().is_some()
        && matches!(to.scheme_str(), Some("http" | "https"))
    {
        return Some(to);
    }
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    let to = match location {
        other if other.starts_with("//") => format!("{scheme}:{other}"),
        path if path.starts_with('/') => format!("{scheme}://{authority}{path}"),
        query if query.starts_with('?') => format!("{scheme}://{authority}{}{query}", from.path()),
        name if !name.contains(':') => {
            let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{scheme}://{authority}{folder}/{name}")
        }
        _ => return None,
    };
    to.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_where_they_say() {
        let from: Uri = "http://a.example:8080/x/y?z".parse().unwrap();
        for (location, to) in [
            ("/p?q", "http://a.example:8080/p?q"),
            ("p", "http://a.example:8080/x/p"),
            ("?q", "http://a.example:8080/x/y?q"),
            ("//b.example/p", "http://b.example/p"),
            ("https://b.example/p#there", "https://b.example/p"),
        ] {
            assert_eq!(redirected(&from, location).unwrap().to_string(), to, "{location}");
        }
        for nowhere in ["ftp://b.example/", "javascript:alert(1)", "http://"] {
            assert_eq!(redirected(&from, nowhere), None, "{nowhere}");
        }
    }
}
