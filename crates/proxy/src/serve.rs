//! Where requests, the cache and the origin meet.
//!
//! ```text
//! Request -> route, key -- GET ----> the cache, at the key's place
//!    |                      hit, stale, miss, coalesced, fallback: an answer --- is it for this request? -> give
//!    |                                              `- it depends on more: at the place of its variant
//!    |                      answers are not shared: alone -----------------------------------> give, or pass
//!    |-- HEAD -------------> what is stored and fresh -----------------------------------------> give
//!    `-- anything else ----> the origin; what it outdates goes --------------------------------> pass
//! ```
//!
//! A load ([`fetch`]) runs in a task of its own; [`receive`] brings a body in, [`arriving`] is what others read along.

pub mod arriving;
pub mod asked;
pub mod body;
pub mod clock;
pub mod counts;
pub mod fetch;
pub mod give;
pub mod origin;
pub mod receive;
pub mod routes;
pub mod sent;
pub mod stored;
pub mod tier;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{
    Method, Request, Response, StatusCode, Uri,
    uri::{Authority, PathAndQuery},
};
use http_body_util::{BodyExt, Empty};
use stockade_cache::{Answer, Error, Invalidation, Lifespan, Reason, Redis, Strategy, Wish};
use stockade_model::{outcome::Outcome, seed::Seed, time::Runtime};

use self::{
    asked::{Asked, pseudonym},
    body::Body,
    clock::PerCore,
    fetch::load,
    give::{Found, Given, NotGiven, done},
    origin::OriginBody,
    routes::{Rules, RulesError},
    sent::{Came, Sent},
    stored::{Cache, Entry, Place, Stored, url_tag},
};
use crate::{
    admin::{Purge, Warmed, What},
    config::Config,
    front::{Answering, ClientBody, Handler, Peer},
    log::Logger,
    policy::{
        accept::{Suits, Unfit, suits},
        cache_status::{CacheStatus, Forward},
        conditional::{self, HeadEffect},
        hop,
        invalidate::invalidated,
        key::Key,
    },
};

/// Answers requests, from the cache or by asking an origin. Clones are the same.
#[derive(Clone)]
pub struct Proxy {
    rules: Arc<ArcSwap<Rules>>,
    /// All entries.
    root: Cache,
    clock: PerCore,
    log: Option<Logger>,
}

impl Proxy {
    /// Opens what the configuration names. Databases live on the runtime of the caller.
    pub async fn open(config: Config, log: Option<Logger>) -> Result<Self, RulesError> {
        let clock = PerCore::new();
        let strategy = Strategy {
            limit: Some(config.limit.clone()),
            ..Strategy::preset("none").unwrap_or_else(|_| unreachable!("it is the first preset"))
        };
        let root = stockade_cache::Cache::builder(strategy)
            .weigh(stored::weigh)
            .tags(stored::tags)
            .not_found(Entry::is_not_found)
            .lifespan(|entry: &Entry| Some(entry.lifespan()));
        let root = match &config.shared {
            Some(url) => {
                let tier = Redis::at(url.redis.clone());
                root.shared(stockade_cache::Shared::under(tier, tier::Shared, tier::Shared))
            }
            None => root,
        };
        let root = root.build_on(clock.clone(), Seed::from_entropy()).map_err(RulesError::Limit)?;
        let rules = Rules::open(config, &root, None).await?;
        Ok(Self { rules: Arc::new(ArcSwap::from_pointee(rules)), root, clock, log })
    }

    /// Puts other rules in force. No entry is lost; what has not changed goes on as it was.
    pub async fn reload(&self, config: Config) -> Result<(), RulesError> {
        let before = self.rules.load_full();
        let rules = Rules::open(config, &self.root, Some(&before)).await?;
        self.rules.store(Arc::new(rules));
        Ok(())
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> Arc<Rules> {
        self.rules.load_full()
    }

    /// Asks for a URL as a client would, and reads the answer to its end.
    pub async fn warm(&self, url: Uri) -> Warmed {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let peer = Peer { address: loopback, local: loopback, is_tls: url.scheme_str() == Some("https") };
        let (head, ()) = Request::get(url).body(()).unwrap_or_default().into_parts();
        let (key, route) = match self.rules.load().find(&head, peer) {
            Ok(found) => found,
            Err(refused) => return Warmed::NotStored(refused.1.response.status().as_u16()),
        };
        let asked = Arc::new(Asked::new(head, key.clone(), peer, route));
        let given = get(&asked, &self.clock).await;
        let status = given.response.status();
        if let Err(error) = given.response.into_body().collect().await {
            return Warmed::Failed(error.to_string());
        }
        // The last of it has been read before it is stored.
        let place = Place::from(key);
        self.root.settled(&place).await;
        match self.root.peek(&place).map(|held| held.value) {
            Some(Entry::Answer(_)) => Warmed::Stored,
            _ if status.is_server_error() => Warmed::Failed(status.to_string()),
            _ => Warmed::NotStored(status.as_u16()),
        }
    }

    /// Outdates what is meant; how many answers there were.
    #[must_use]
    pub fn purge(&self, purge: &Purge) -> usize {
        let Purge { what, how } = purge;
        let key = |uri: &Uri| {
            let authority = uri.authority().map_or("", Authority::as_str);
            Key::of(
                uri.scheme_str().unwrap_or("http"),
                authority,
                uri.path_and_query().map_or("/", PathAndQuery::as_str),
            )
        };
        match what {
            What::Url(url) => {
                let key = key(url);
                let rules = self.rules.load();
                outdate(&self.root, rules.known_by(key), *how)
            }
            What::Prefix(prefix) => {
                let prefix = prefix.parse().map(|url| key(&url).to_string()).unwrap_or(prefix.clone());
                self.root.invalidate_where(|place| place.key.as_str().starts_with(&prefix), *how)
            }
            What::Tag(tag) => self.root.invalidate_tag(tag, *how),
            What::All => self.root.clear(*how),
        }
    }

    /// All entries.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.root
    }
}

/// How often a request looks elsewhere for what it selects.
const PLACES_MAX: usize = 4;

impl Handler for Proxy {
    type Body = Sent;

    fn answer(&self, request: Request<ClientBody>, peer: Peer) -> Answering<Sent> {
        let log = self.log.as_ref().map(|logger| (clock::now(), logger.clone()));
        let came = Came { clock: self.clock.clone(), at: self.clock.now(), log };
        let (head, body) = request.into_parts();
        let rules = self.rules.load();
        let (asked, at_once) = match rules.find(&head, peer) {
            Ok((key, route)) => {
                let asked = Arc::new(Asked::new(head, key, peer, route));
                let hit = hit(&asked);
                (asked, hit)
            }
            Err(refused) => {
                let (key, refused) = *refused;
                let asked = Asked::new(head, key, peer, Arc::clone(&rules.nowhere));
                (Arc::new(asked), Some(refused))
            }
        };
        drop(rules);
        if let Some(given) = at_once {
            return Answering::Now(sent(given, asked, came));
        }
        let rules = Arc::clone(&self.rules);
        Answering::Later(Box::pin(async move {
            let given = serve(&asked, body, &came.clock, &rules).await;
            asked.set_answered();
            sent(given, asked, came)
        }))
    }
}

fn sent(given: Given, asked: Arc<Asked>, came: Came) -> Response<Sent> {
    let outcome = given.status.outcome;
    Sent::new(given.into_response(), asked, outcome, came)
}

/// What is here and fresh, to who wants just that: at once, since nobody has to be waited for.
fn hit(asked: &Asked) -> Option<Given> {
    if asked.method != Method::GET || !asked.directives.is_silent() || asked.is_loop() {
        return None;
    }
    let mut place = Place::from(asked.key.clone());
    for _ in 0..PLACES_MAX {
        let Some(answer) = asked.route.cache.hit(&place) else {
            place = of_variant(asked, &place)?;
            continue;
        };
        let Entry::Answer(stored) = &answer.value else { return None };
        if stored.is_for(&asked.headers) {
            let status = done(&answer, stored, Forward::UriMiss);
            return Found { stored, resident: answer.age, status }.give(asked).ok();
        }
        place.variant = Some(Arc::new(stored.vary.selecting(&asked.headers)));
    }
    None
}

/// Where the variant is that a request selects, if the last answer to its URL is for others. That may have expired: what
/// it was selected by is known all the same, and nobody has to wait until those others have it loaded anew.
fn of_variant(asked: &Asked, place: &Place) -> Option<Place> {
    if place.variant.is_some() {
        return None;
    }
    let Entry::Answer(last) = asked.route.cache.peek(place)?.value else { return None };
    if last.is_for(&asked.headers) {
        return None;
    }
    Some(Place { key: place.key.clone(), variant: Some(Arc::new(last.vary.selecting(&asked.headers))) })
}

async fn serve(asked: &Arc<Asked>, body: ClientBody, clock: &PerCore, rules: &Arc<ArcSwap<Rules>>) -> Given {
    if asked.is_loop() {
        let done = CacheStatus::forwarded(Outcome::Error, Forward::Bypass);
        return Given::words(StatusCode::LOOP_DETECTED, "this request has been here before", done);
    }
    match asked.method {
        Method::GET if asked.directives.no_store => forward(asked, body, Forward::Bypass).await,
        Method::GET => get(asked, clock).await,
        Method::HEAD => head(asked, body).await,
        _ => {
            // What it changes is to be outdated although its client has gone.
            let (theirs, rules) = (Arc::clone(asked), Arc::clone(rules));
            let done = CacheStatus::forwarded(Outcome::Error, Forward::Method);
            #[expect(clippy::disallowed_methods, reason = "on the thread of its connection")]
            let changed = tokio::spawn(async move { change(&theirs, body, &rules).await });
            let broken = |_| Given::words(StatusCode::BAD_GATEWAY, "the request broke off", done);
            changed.await.unwrap_or_else(broken)
        }
    }
}

/// Asks the origin for what may change something. What that outdates goes before anybody has the answer.
async fn change(asked: &Arc<Asked>, body: ClientBody, rules: &ArcSwap<Rules>) -> Given {
    let given = forward(asked, body, Forward::Method).await;
    let answer = &given.response;
    for key in invalidated(&asked.method, &asked.key, answer.status(), answer.headers()) {
        // It may be what another route has.
        outdate(&asked.route.cache, rules.load().known_by(key), Invalidation::Hard);
    }
    given
}

/// What a request's own directives make of what is stored.
enum Wanted {
    /// Whatever the strategy has it given.
    Wish(Wish, Forward),
    /// This, stale as it is: the request says that it may be.
    Stale(Arc<Stored>, Duration),
    /// Nothing that is here will do, and it wants nothing else.
    Nothing,
}

fn wanted(asked: &Asked, place: &Place) -> Wanted {
    let miss = if place.variant.is_some() { Forward::VaryMiss } else { Forward::UriMiss };
    let directives = &asked.directives;
    if directives.is_silent() {
        return Wanted::Wish(Wish::Stored, miss);
    }
    let held = asked.route.cache.peek(place);
    let found = held.and_then(|held| match held.value {
        Entry::Answer(stored) => Some((stored, held.age)),
        Entry::Unshared(_) | Entry::Another(_) => None,
    });
    let Some((stored, resident)) = found else {
        return if directives.only_if_cached { Wanted::Nothing } else { Wanted::Wish(Wish::Stored, miss) };
    };
    // What it selects instead is looked for at its own place.
    let is_for = stored.is_for(&asked.headers);
    let age = stored.freshness.age(resident);
    match suits(directives, &stored.freshness, age, stored.lifetime()) {
        Suits::Yes => Wanted::Wish(Wish::Stored, miss),
        _ if !is_for => Wanted::Wish(Wish::Stored, miss),
        Suits::Stale => Wanted::Stale(stored, resident),
        Suits::No(_) if directives.only_if_cached => Wanted::Nothing,
        Suits::No(Unfit::Expired | Unfit::MustValidate) => Wanted::Wish(Wish::Stored, Forward::Stale),
        Suits::No(_) => Wanted::Wish(Wish::Anew, Forward::Request),
    }
}

/// From the cache, or by a load.
async fn get(asked: &Arc<Asked>, clock: &PerCore) -> Given {
    let mut place = Place::from(asked.key.clone());
    if asked.has_credentials() && is_for_them_alone(asked, &place) {
        return Box::pin(alone(asked, place, Forward::UriMiss)).await;
    }
    for _ in 0..PLACES_MAX {
        if let Some(variant) = of_variant(asked, &place) {
            place = variant;
        }
        let (wish, why) = match wanted(asked, &place) {
            Wanted::Wish(wish, why) => (wish, why),
            Wanted::Stale(stored, resident) => {
                let status = CacheStatus::stored(Outcome::Stale, stored.ttl_s(resident));
                return give(asked, &Found { stored: &stored, resident, status }).await;
            }
            Wanted::Nothing => {
                let done =
                    CacheStatus { forward: None, ..CacheStatus::forwarded(Outcome::Error, Forward::UriMiss) };
                return Given::words(StatusCode::GATEWAY_TIMEOUT, "it is not stored here", done);
            }
        };
        let (theirs, there) = (Arc::clone(asked), place.clone());
        let began = clock.now();
        let answer =
            asked.route.cache.get_arriving(place.clone(), wish, |room| load(theirs, there, room)).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return fail(asked, &error, why),
        };
        let stored = match &answer.value {
            Entry::Answer(stored) => stored,
            // Who has found that out may not have what this one would be given.
            Entry::Unshared(unshared) if unshared.is_of_credentials() && !asked.has_credentials() => continue,
            Entry::Unshared(_) => return Box::pin(alone(asked, place, why)).await,
            // Another has found out that it selects something else; this one may not.
            Entry::Another(last) if last.is_for(&asked.headers) => continue,
            Entry::Another(last) => last,
        };
        if stored.is_for(&asked.headers) {
            // It was told to somebody whom the origin may not know, and nobody says that it is for others as well.
            if answer.outcome == Outcome::Coalesced
                && stored.lifespan == Lifespan::NONE
                && !stored.status.is_success()
                && asked.is_known()
            {
                return Box::pin(alone(asked, place, why)).await;
            }
            if wish == Wish::Anew
                && asked.directives.no_cache
                && let Reason::Failed(error) = &answer.reason
            {
                return fail(asked, error, why);
            }
            if answer.outcome == Outcome::Coalesced {
                asked.route.counts.wait().note(clock.now() - began);
            }
            let status = done(&answer, stored, why);
            return give(asked, &Found { stored, resident: answer.age, status }).await;
        }
        place.variant = Some(Arc::new(stored.vary.selecting(&asked.headers)));
    }
    Box::pin(alone(asked, place, Forward::VaryMiss)).await
}

/// Whether answers to credentials are known not to be shared, and there is none of those who have none.
fn is_for_them_alone(asked: &Asked, place: &Place) -> bool {
    let cache = &asked.route.cache;
    !asked.directives.only_if_cached
        && cache.peek(&Place::of_credentials(&place.key)).is_some()
        && !cache.peek(place).is_some_and(|held| matches!(held.value, Entry::Answer(_)))
}

/// Asks the origin for this request alone. What may be stored all the same is.
async fn alone(asked: &Arc<Asked>, place: Place, why: Forward) -> Given {
    if let Some(own) = asked.take_own() {
        return pass(own, CacheStatus::forwarded(Outcome::Miss, why));
    }
    let place = of_variant(asked, &place).unwrap_or(place);
    let (theirs, there) = (Arc::clone(asked), place.clone());
    let loading = |room| load(theirs, there, room);
    let answer = asked.route.unshared.get_arriving(place.clone(), Wish::Anew, loading).await;
    match answer {
        Ok(Answer { value: Entry::Answer(stored), outcome, age, reason })
            if stored.is_for(&asked.headers) =>
        {
            match reason {
                Reason::Failed(error) if asked.directives.no_cache => fail(asked, &error, why),
                reason => {
                    let answer = Answer { value: (), outcome, age, reason };
                    let status = done(&answer, &stored, why);
                    give(asked, &Found { stored: &stored, resident: age, status }).await
                }
            }
        }
        Ok(Answer { reason: Reason::Failed(error), .. }) | Err(error) => fail(asked, &error, why),
        // What others select has come to the URL just now.
        Ok(Answer { value: Entry::Another(_), .. }) => Box::pin(alone(asked, place, why)).await,
        Ok(_) => match asked.take_own() {
            Some(own) => pass(own, CacheStatus::forwarded(Outcome::Miss, why)),
            None => fail(asked, &Error::LeaderLost, why),
        },
    }
}

/// Nothing could be served; but perhaps what the origin has answered to this request alone.
fn fail(asked: &Asked, error: &Error, why: Forward) -> Given {
    match asked.take_own() {
        Some(own) => pass(own, CacheStatus::forwarded(Outcome::Error, why)),
        None => Given::error(asked, error, why),
    }
}

async fn give(asked: &Arc<Asked>, found: &Found<'_>) -> Given {
    match found.give(asked) {
        Ok(given) => given,
        Err(NotGiven::Late | NotGiven::Condition) => {
            Box::pin(forward(asked, Empty::new(), Forward::Bypass)).await
        }
    }
}

/// From what is stored and fresh; else the origin is asked for the head alone, which may say something about that.
async fn head(asked: &Arc<Asked>, body: ClientBody) -> Given {
    let mut place = Place::from(asked.key.clone());
    let mut held = asked.route.cache.peek(&place);
    if let Some(Entry::Answer(stored)) = held.as_ref().map(|held| &held.value)
        && !stored.is_for(&asked.headers)
    {
        place.variant = Some(Arc::new(stored.vary.selecting(&asked.headers)));
        held = asked.route.cache.peek(&place);
    }
    let not_stored = || {
        let done = CacheStatus { forward: None, ..CacheStatus::forwarded(Outcome::Error, Forward::UriMiss) };
        Given::words(StatusCode::GATEWAY_TIMEOUT, "it is not stored here", done)
    };
    let Some((stored, resident, is_fresh)) = held.and_then(|held| match held.value {
        Entry::Answer(stored) => Some((stored, held.age, !held.fresh_for.is_zero())),
        Entry::Unshared(_) | Entry::Another(_) => None,
    }) else {
        if asked.directives.only_if_cached {
            return not_stored();
        }
        return forward(asked, body, Forward::UriMiss).await;
    };
    let age = stored.freshness.age(resident);
    let suits = suits(&asked.directives, &stored.freshness, age, stored.lifetime());
    if suits == Suits::Stale || suits == Suits::Yes && is_fresh {
        let outcome = if suits == Suits::Yes { Outcome::Hit } else { Outcome::Stale };
        let status = CacheStatus::stored(outcome, stored.ttl_s(resident));
        return give(asked, &Found { stored: &stored, resident, status }).await;
    }
    if asked.directives.only_if_cached {
        return not_stored();
    }
    let given = forward(asked, body, Forward::Stale).await;
    let (answer, length) = (&given.response, stored.content.length().unwrap_or(0));
    match conditional::head_effect(stored.status, &stored.headers, length, answer.status(), answer.headers())
    {
        HeadEffect::Freshens => {
            // Unless it has been purged meanwhile, or is another by now.
            let is_there = asked.route.cache.peek(&place).is_some_and(
                |held| matches!(held.value, Entry::Answer(there) if Arc::ptr_eq(&there, &stored)),
            );
            let entry = fetch::freshened_by_head(asked, &place, &stored, answer.headers());
            if let Some(entry) = entry.filter(|_| is_there) {
                asked.route.cache.insert(place, entry);
            }
        }
        HeadEffect::Invalidates => {
            asked.route.cache.invalidate(&place, Invalidation::Soft);
        }
        HeadEffect::Nothing => {}
    }
    given
}

/// Asks the origin for just what the client asks, and looks at nothing that is stored.
async fn forward<B>(asked: &Arc<Asked>, body: B, why: Forward) -> Given
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    let request = asked.request(asked.method.clone(), asked.forwarded(), body);
    let response = match asked.route.origin.ask(request, asked).await {
        Ok(mut response) => {
            hop::strip(response.headers_mut());
            response
        }
        Err(error) => {
            let done = CacheStatus::forwarded(Outcome::Error, why);
            let status = error.status();
            // Nothing of what is behind the proxy is told.
            let words = match status {
                StatusCode::GATEWAY_TIMEOUT => "the origin has not answered in time",
                StatusCode::PAYLOAD_TOO_LARGE => "the request's body is too large",
                StatusCode::REQUEST_TIMEOUT => "the request's body did not come in time",
                StatusCode::BAD_REQUEST => "the request cannot be sent on",
                _ => "the origin cannot be asked",
            };
            return Given::words(status, words, done);
        }
    };
    pass(response, CacheStatus::forwarded(Outcome::Bypass, why))
}

/// An answer of the origin, as it is.
fn pass(response: Response<OriginBody>, done: CacheStatus) -> Given {
    let mut response = response.map(|body| Body::Passing(Box::new(body)));
    hop::add_via(response.headers_mut(), http::Version::HTTP_11, pseudonym());
    hop::supply_date(response.headers_mut(), clock::now());
    Given::of(response, done)
}

/// Outdates what is stored for a URL; how many answers there were.
fn outdate(cache: &Cache, key: Key, how: Invalidation) -> usize {
    let variants = cache.invalidate_tag(&url_tag(&key), how);
    variants + usize::from(cache.invalidate(&key.into(), how))
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
