//! Validates a configuration file.

use std::{
    collections::HashSet,
    fmt::Display,
    fs::File as Opened,
    io::Read as _,
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use http::{HeaderName, StatusCode};
use serde::Deserialize as _;
use stockade_cache::{
    AfterWait, Fetch, HedgeAfter, Limit, LoadBounds, Strategy,
    spec::{CacheTable, Span, StatedKey, TomlError},
};
use stockade_http::{
    frontend::ClientPrefix,
    trusted_proxies::{TrustedNetwork, TrustedProxies},
};
use stockade_model::nearest::remedy;
use toml::{
    Spanned,
    de::{DeTable, Deserializer},
};

use super::{
    AccessLogFormat, AdminConfig, ClientBounds, ClientTimeouts, Config, ConfigError, FileError, FlagError,
    Flags, LogConfig, OriginConfig, OriginKind, OriginTimeouts, RouteConfig, SharedTierUrl, TlsFiles,
    file::{
        AdminHost, AdminSection, BoundsSection, ClientDirectivesName, ConfigFile, HeaderFieldName, LogFormat,
        LogSection, RouteSection, SetCookieName, ShadowKeys, ShadowSection, SnapshotSection, SocketAddress,
        TimeoutsSection, UnsafeInvalidationName,
    },
    flags::cache_of,
    route::{ClientDirectives, HostPattern, NamePattern, PathPattern, SetCookie, UnsafeInvalidation},
    shadow::{GhostSize, GhostTtlText, PolicyText, ShadowConfig},
    snapshot::SnapshotConfig,
};
use crate::serve::client_rates::ClientRateBound;

const FILE_BYTES_MAX: u64 = 16 << 20;
/// Routes are searched linearly.
const ROUTES_MAX: usize = 1_000;
/// More are a mistake.
const ORIGINS_MAX: usize = 1_000;
const LISTEN: &str = "127.0.0.1:8080";
/// The default strategy: coalescing, stale if error, and a breaker.
const STRATEGY: &str = "breaker";
const LIMIT_BYTES: usize = 256 << 20;

impl Config {
    /// Loads a file, with flags that override it. Paths in it are relative to its folder.
    pub fn load(path: &Path, flags: &Flags) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        Opened::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| ConfigError::Io { path: name.clone(), error })?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(ConfigError::TooLarge { path: name });
        }
        let text = String::from_utf8(bytes).map_err(|error| ConfigError::NotText {
            path: name.clone(),
            line: error.as_bytes()[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count(),
        })?;
        Self::parse_with(&name, &text, flags)
    }

    /// `name` appears in errors.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::parse_with(name, text, &Flags::default())
    }

    pub fn parse_with(name: &str, text: &str, flags: &Flags) -> Result<Self, ConfigError> {
        let wrong = |wrong| Box::new(FileError::new(name, text, wrong));
        let mut file = file(text).map_err(wrong)?;
        flags.override_file(&mut file)?;
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        let shadow_span = file.shadow.as_ref().map(Spanned::span);
        let mut config = config(file, folder).map_err(wrong)?;
        flags.limit(&mut config.limit)?;
        // The limit may come from flags.
        config.check_shadow().map_err(|message| wrong(TomlError::new(message, shadow_span)))?;
        Ok(config)
    }

    /// At least an origin is required.
    pub fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let mut file = ConfigFile::default();
        flags.override_file(&mut file)?;
        // Flags have been validated; only something required may be missing.
        let mut config = config(file, Path::new("")).map_err(|wrong| FlagError::new(wrong.message))?;
        flags.limit(&mut config.limit)?;
        config.check_shadow().map_err(FlagError::new)?;
        Ok(config)
    }

    fn check_shadow(&self) -> Result<(), String> {
        let Some(config) = &self.shadow else { return Ok(()) };
        let shadow = config.shadow(&self.limit)?;
        cache_of(&self.limit).shadow(shadow).check().map_err(|error| error.to_string())
    }
}

/// Remedies for messages of the TOML parser.
const HINTS: [(&str, &str); 6] = [
    ("expected struct ShadowSection", "write [shadow] on a line of its own"),
    ("missing field `cert`", "a certificate and its key: cert = \"cert.pem\", key = \"key.pem\""),
    ("missing field `key`", "a certificate and its key: cert = \"cert.pem\", key = \"key.pem\""),
    ("missing field `listen`", "say where: listen = \"127.0.0.1:8081\""),
    (
        "expected a sequence",
        "write a list: [[origin]] and [[route]] for each of them, listen = [\"127.0.0.1:8080\"]",
    ),
    ("expected struct OriginSection", "write [[origin]], with two brackets: there may be several"),
];

fn file(text: &str) -> Result<ConfigFile, TomlError> {
    let unreadable = |error: &toml::de::Error| TomlError::from_toml(error, &HINTS);
    let table = DeTable::parse(text).map_err(|error| unreadable(&error))?;
    if let Some(key) = table.get_ref().keys().find(|key| key.get_ref() == "limit") {
        let mut wrong = TomlError::new("unknown key `limit`", Some(key.span()));
        wrong.help = Some("write [cache.limit]".to_owned());
        return Err(wrong);
    }
    ConfigFile::deserialize(Deserializer::from(table)).map_err(|error| unreadable(&error))
}

fn config(file: ConfigFile, folder: &Path) -> Result<Config, TomlError> {
    let trusted_proxies: TrustedProxies =
        each(&file.trusted_proxies, |network: TrustedNetwork| network)?.into_iter().collect();
    let (listen, listen_proxy_protocol) = listen(&file, &trusted_proxies)?;
    let admin = file.admin.map(|table| admin(table, folder)).transpose()?;
    if let Some(admin) = admin.as_ref().filter(|admin| admin.listen.port() != 0)
        && listen.iter().chain(&listen_proxy_protocol).any(|address| *address == admin.listen)
    {
        let message = format!("clients and [admin] cannot both listen on {}", admin.listen);
        return Err(TomlError::new(message, None));
    }
    let base = base(file.cache.as_ref())?;
    let limit = limit(&base.strategy, file.cache.as_ref())?;
    let base = StatedStrategy { strategy: Strategy { limit: None, ..base.strategy }, ..base };
    let shared = file.cache.as_ref().and_then(|table| table.get_ref().shared.as_ref());
    let shared = shared.map(|url| url.get_ref().0.clone());
    if file.origin.len() > ORIGINS_MAX {
        return Err(TomlError::new("there are more than 1,000 origins", None));
    }
    let mut origins: Vec<OriginConfig> = Vec::with_capacity(file.origin.len());
    for table in file.origin {
        let (origin, at) = super::origin::read(table, folder)?;
        if origins.iter().any(|other| other.name == origin.name) {
            let message = format!("two origins have the name `{}`: names must be unique", origin.name);
            return Err(TomlError::new(message, at));
        }
        origins.push(origin);
    }
    if origins.is_empty() {
        let mut wrong = TomlError::new("there is no origin", None);
        wrong.help =
            Some("write [[origin]] with a name and url = \"http://HOST:PORT\", or --origin URL".to_owned());
        return Err(wrong);
    }
    let routes = routes(file.route, &origins, &base)?;
    let snapshot = snapshot(file.snapshot, folder, shared.is_some())?;
    Ok(Config {
        listen,
        listen_proxy_protocol,
        trusted_proxies,
        threads: file.threads.and_then(|threads| NonZeroUsize::new(threads.0)),
        tls: file.tls.map(|tls| TlsFiles { certificates: folder.join(tls.cert), key: folder.join(tls.key) }),
        admin,
        hosts: each(&file.hosts, |host: HostPattern| host)?,
        limit,
        shared,
        shadow: file.shadow.map(|table| shadow(table.into_inner())).transpose()?,
        snapshot,
        log: log(file.log, folder)?,
        timeouts: timeouts(&file.timeouts),
        bounds: bounds(&file.bounds)?,
        origins,
        routes,
    })
}

/// The addresses of clients, and those of connections with a header of the PROXY protocol.
fn listen(
    file: &ConfigFile,
    trusted: &TrustedProxies,
) -> Result<(Vec<SocketAddr>, Vec<SocketAddr>), TomlError> {
    let addresses = |written: Option<&Spanned<Vec<Spanned<String>>>>| -> Result<Vec<SocketAddr>, TomlError> {
        written.map_or(Ok(Vec::new()), |list| each(list.get_ref(), |SocketAddress(address)| address))
    };
    let (plain, with_header) = (file.listen.as_ref(), file.listen_proxy_protocol.as_ref());
    let (mut listen, listen_proxy_protocol) = (addresses(plain)?, addresses(with_header)?);
    if let Some(list) = with_header.filter(|_| !listen_proxy_protocol.is_empty() && trusted.is_empty()) {
        return Err(TomlError {
            message: "any client could name another one in a PROXY protocol header".to_owned(),
            span: Some(list.span()),
            help: Some(
                "write the addresses of the load balancers: trusted_proxies = [\"10.0.0.0/8\"]".to_owned(),
            ),
        });
    }
    if listen.is_empty() && listen_proxy_protocol.is_empty() {
        if let Some(list) = plain {
            return Err(TomlError::new("write at least one address", Some(list.span())));
        }
        listen.push(LISTEN.parse().expect("a valid address"));
    }
    let mut known = HashSet::new();
    let lists = [plain, with_header].into_iter().flatten().map(Spanned::get_ref);
    let spans = lists.flatten().map(Spanned::span);
    for (address, span) in listen.iter().chain(&listen_proxy_protocol).zip(spans) {
        if address.port() != 0 && !known.insert(*address) {
            return Err(TomlError::new(format!("{address} is listed twice"), Some(span)));
        }
    }
    Ok((listen, listen_proxy_protocol))
}

/// Parses each string of a list; an error points at the invalid one.
fn each<T: FromStr<Err: Display>, U>(
    list: &[Spanned<String>],
    of: impl Fn(T) -> U,
) -> Result<Vec<U>, TomlError> {
    let read = |text: &Spanned<String>| {
        let read = text.get_ref().parse().map(&of);
        read.map_err(|error| TomlError::new(error.to_string(), Some(text.span())))
    };
    list.iter().map(read).collect()
}

fn admin(table: AdminSection, folder: &Path) -> Result<AdminConfig, TomlError> {
    let (at, listen) = (table.listen.span(), table.listen.into_inner().0.0);
    let token_file = table.token_file.map(|path| folder.join(path));
    if token_file.is_none() && !listen.ip().to_canonical().is_loopback() {
        return Err(TomlError {
            message: format!("without a token, anyone who can reach {listen} could purge and reload"),
            span: Some(at),
            help: Some("write token_file = \"PATH\" below it, or listen on 127.0.0.1".to_owned()),
        });
    }
    let hosts = each(&table.hosts, |AdminHost(host)| host)?;
    let purge_from = each(&table.purge_from, |network: TrustedNetwork| network)?;
    Ok(AdminConfig { listen, token_file, hosts, purge_from })
}

fn snapshot(
    table: Option<Spanned<SnapshotSection>>,
    folder: &Path,
    has_shared_tier: bool,
) -> Result<Option<SnapshotConfig>, TomlError> {
    let Some(table) = table else { return Ok(None) };
    if has_shared_tier {
        return Err(TomlError {
            message: "other nodes may have purged what a snapshot would bring back".to_owned(),
            span: Some(table.span()),
            help: Some("leave [snapshot] out: the shared tier has the responses after a restart".to_owned()),
        });
    }
    let SnapshotSection { path, every } = table.into_inner();
    let every = every.map_or(SnapshotConfig::EVERY, |every| every.0.0);
    Ok(Some(SnapshotConfig { path: folder.join(path), every }))
}

fn shadow(table: ShadowSection) -> Result<ShadowConfig, TomlError> {
    let mut shadow = ShadowConfig::default();
    if let Some(sizes) = table.sizes {
        shadow.sizes = each(&sizes, |size: GhostSize| size)?;
    }
    if let Some(policies) = table.policies {
        shadow.policies = Some(each(&policies, |PolicyText(policy)| policy)?);
    }
    if let Some(ttls) = table.ttls {
        shadow.ttls = each(&ttls, |GhostTtlText(ttl)| ttl)?;
    }
    if let Some(ShadowKeys(keys)) = table.keys {
        shadow.keys_max = keys;
    }
    Ok(shadow)
}

/// `open_for` and `wait` of a breaker without a table in the file.
const PROBES_EVERY: Duration = Duration::from_secs(1);

/// The strategy of routes without a cache block, or of one route.
struct StatedStrategy {
    strategy: Strategy,
    /// The settings that the file states.
    stated: Vec<StatedKey>,
}

fn base(table: Option<&Spanned<CacheTable<SharedTierUrl>>>) -> Result<StatedStrategy, TomlError> {
    let strategy = Strategy::preset(STRATEGY).expect("a preset");
    let default = StatedStrategy { strategy, stated: Vec::new() };
    let Some(table) = table else { return Ok(default) };
    default.with(table)
}

impl StatedStrategy {
    /// With the keys of a table in place of its own.
    fn with<T>(&self, table: &Spanned<CacheTable<T>>) -> Result<Self, TomlError> {
        let strategy = strategy(table, &self.strategy)?;
        let table = table.get_ref();
        let mut stated: Vec<_> = table.stated().collect();
        if !table.has_preset() {
            // A table `fetch` replaces that of the base, with what it says of waits.
            let is_kept =
                |key: &&StatedKey| **key != StatedKey::AfterWait || !stated.contains(&StatedKey::Fetch);
            let kept: Vec<_> = self.stated.iter().filter(is_kept).copied().collect();
            stated.extend(kept);
        }
        Ok(Self { strategy, stated })
    }

    fn states(&self, key: StatedKey) -> bool {
        self.stated.contains(&key)
    }

    /// A slow page is not a failure: where the file states nothing, the timeouts of the origin bound a load and the wait
    /// for it, and half of the time for a head passes before a second request for the page.
    fn adapt_to(&self, timeouts: &OriginTimeouts, strategy: &mut Strategy) {
        let LoadBounds { deadline, hedge_after, .. } = &mut strategy.load;
        if !self.states(StatedKey::Deadline) {
            *deadline = (*deadline).max(timeouts.until_head());
        }
        if !self.states(StatedKey::HedgeAfter) {
            *hedge_after = Some(HedgeAfter::Time(timeouts.head / 2));
        }
        if let (Fetch::Coalesce { wait_timeout, .. }, false) =
            (&mut strategy.fetch, self.states(StatedKey::Fetch))
        {
            *wait_timeout = (*wait_timeout).max(*deadline);
        }
    }

    /// A request that does not wait for the end of another's load sends its own, as nginx does after `proxy_cache_lock_timeout`.
    fn end_waits_in_loads(&self, strategy: &mut Strategy) {
        if let (Fetch::Coalesce { wait_timeout, then, .. }, false) =
            (&mut strategy.fetch, self.states(StatedKey::AfterWait))
            && *wait_timeout < strategy.load.deadline
        {
            *then = AfterWait::Load;
        }
    }
}

fn strategy<T>(table: &Spanned<CacheTable<T>>, base: &Strategy) -> Result<Strategy, TomlError> {
    if let Some(memory) = table.get_ref().memory.as_ref().filter(|memory| !*memory.get_ref()) {
        let message = "a proxy always stores responses in memory: remove `memory`";
        return Err(TomlError::new(message, Some(memory.span())));
    }
    let strategy = table.get_ref().strategy_over(base);
    strategy.map_err(|error| TomlError::new(error.to_string(), Some(table.span())))
}

fn limit(base: &Strategy, table: Option<&Spanned<CacheTable<SharedTierUrl>>>) -> Result<Limit, TomlError> {
    let place = table.and_then(|table| table.get_ref().limit_span());
    match (&base.limit, place) {
        (Some(limit), _) => Ok(limit.clone()),
        (None, None) => Ok(Limit::bytes(LIMIT_BYTES)),
        (None, place) => {
            let message = "a proxy needs a limit: write { bytes = \"256MiB\" }";
            Err(TomlError::new(message, place))
        }
    }
}

fn routes(
    tables: Vec<Spanned<RouteSection>>,
    origins: &[OriginConfig],
    base: &StatedStrategy,
) -> Result<Vec<RouteConfig>, TomlError> {
    if tables.len() > ROUTES_MAX {
        return Err(TomlError::new("there are more than 1,000 routes", None));
    }
    let everything = || vec![Spanned::new(0..0, RouteSection::default())];
    let tables = if tables.is_empty() { everything() } else { tables };
    let mut known = HashSet::new();
    let mut routes = Vec::with_capacity(tables.len());
    for table in tables {
        let at = Some(table.span()).filter(|span| !span.is_empty());
        let route = route(table.into_inner(), at.clone(), origins, base)?;
        if !known.insert((route.host.clone(), route.path.clone())) {
            let message = format!("there are two routes for `{}`", route.name);
            return Err(TomlError::new(message, at));
        }
        routes.push(route);
    }
    // A stable sort: equally specific routes stay in the file's order.
    routes.sort_by_cached_key(RouteConfig::order);
    Ok(routes)
}

fn route(
    table: RouteSection,
    at: Span,
    origins: &[OriginConfig],
    base: &StatedStrategy,
) -> Result<RouteConfig, TomlError> {
    let origin = origin_of(table.origin.as_ref(), at, origins)?;
    let of_route;
    let stated = match &table.cache {
        None => base,
        Some(cache) => {
            if let at @ Some(_) = cache.get_ref().limit_span() {
                let message = "the limit applies to all routes: write it into [cache]";
                return Err(TomlError::new(message, at));
            }
            of_route = base.with(cache)?;
            &of_route
        }
    };
    let negative_ttl = table.negative_ttl.map(|ttl| ttl.0.0);
    let mut strategy = Strategy { negative_ttl, ..stated.strategy.clone() };
    if let (Some(breaker), false) = (&mut strategy.breaker, stated.states(StatedKey::Breaker)) {
        // A request that waits for a moment gets its page when the origin is back, in place of an error: also if it came before the
        // last probes that failed.
        (breaker.open_for, breaker.wait) = (PROBES_EVERY, 2 * PROBES_EVERY);
    }
    if let OriginKind::Http(http) = &origins[origin].kind {
        stated.adapt_to(&http.timeouts, &mut strategy);
    }
    stated.end_waits_in_loads(&mut strategy);
    // Databases declare no lifetimes.
    let is_database = matches!(origins[origin].kind, OriginKind::Documents { .. });
    let default = strategy.ttl.filter(|_| stated.states(StatedKey::Ttl) || is_database);
    let path = table.path.map_or_else(PathPattern::all, |path| path.0);
    let host = table.host.map(|host| host.0);
    let tag_headers = match table.tag_headers {
        Some(headers) => each(&headers, |HeaderFieldName(header)| header)?,
        None => ["surrogate-key", "cache-tag"].map(HeaderName::from_static).to_vec(),
    };
    Ok(RouteConfig {
        name: format!("{}{path}", host.as_ref().map(ToString::to_string).unwrap_or_default()),
        host,
        path,
        origin,
        ttl: table.ttl.map(|ttl| ttl.0.0),
        ttl_default: table.default_ttl.map(|ttl| ttl.0.0).or(default),
        ttl_statuses: match table.ttl_statuses {
            Some(statuses) => statuses.iter().filter_map(|status| status_code(status.0)).collect(),
            None => TTL_STATUSES.to_vec(),
        },
        set_cookie: match table.set_cookie {
            SetCookieName::Refuse => SetCookie::Refuse,
            SetCookieName::Strip => SetCookie::Strip,
            SetCookieName::Store => SetCookie::Store,
        },
        strategy,
        tag_headers,
        ignored_query: each(&table.ignore_query, |name: NamePattern| name)?,
        client_directives: match table.client_directives {
            ClientDirectivesName::Obey => ClientDirectives::Obey,
            ClientDirectivesName::Ignore => ClientDirectives::Ignore,
        },
        unsafe_invalidation: match table.invalidate_on_unsafe {
            UnsafeInvalidationName::Fallback => UnsafeInvalidation::Fallback,
            UnsafeInvalidationName::Remove => UnsafeInvalidation::Remove,
            UnsafeInvalidationName::None => UnsafeInvalidation::None,
        },
    })
}

/// The statuses to which a route's own lifetimes apply by default: those of pages, and of URLs that have moved for good.
const TTL_STATUSES: [StatusCode; 4] = [
    StatusCode::OK,
    StatusCode::NON_AUTHORITATIVE_INFORMATION,
    StatusCode::NO_CONTENT,
    StatusCode::MOVED_PERMANENTLY,
];

/// A [`FinalStatus`](super::file::FinalStatus) is always one.
fn status_code(status: usize) -> Option<StatusCode> {
    StatusCode::from_u16(u16::try_from(status).ok()?).ok()
}

/// The index of the origin with this name, or of the only one.
fn origin_of(name: Option<&Spanned<String>>, at: Span, origins: &[OriginConfig]) -> Result<usize, TomlError> {
    let names = || origins.iter().map(|origin| origin.name.as_str());
    let Some(name) = name else {
        if origins.len() == 1 {
            return Ok(0);
        }
        let names = names().collect::<Vec<_>>().join(", ");
        let message = match at {
            None => "there are several origins and no [[route]] that names one".to_owned(),
            Some(_) => format!("this route does not name its origin: write origin = one of {names}"),
        };
        return Err(TomlError::new(message, at));
    };
    origins.iter().position(|origin| origin.name == *name.get_ref()).ok_or_else(|| TomlError {
        message: format!("there is no origin named `{}`", name.get_ref()),
        span: Some(name.span()),
        help: Some(remedy(name.get_ref(), names().collect::<Vec<_>>())),
    })
}

fn log(table: LogSection, folder: &Path) -> Result<Option<LogConfig>, TomlError> {
    let masked_query = match table.mask_query {
        Some(names) => each(&names, |name: NamePattern| name)?,
        None => LogConfig::default_mask(),
    };
    let format = match table.format {
        LogFormat::Json => AccessLogFormat::Json,
        LogFormat::Combined => AccessLogFormat::Combined,
        LogFormat::None => return Ok(None),
    };
    let is_file = |path: &PathBuf| path.as_os_str() != "-";
    let path = table.path.filter(is_file).map(|path| folder.join(path));
    Ok(Some(LogConfig { format, path, masked_query }))
}

fn timeouts(table: &TimeoutsSection) -> ClientTimeouts {
    let default = ClientTimeouts::default();
    let TimeoutsSection { head, body, write, idle, total, drain, shutdown_delay } = table;
    ClientTimeouts {
        head: head.as_ref().map_or(default.head, |time| time.0.0),
        body: body.as_ref().map_or(default.body, |time| time.0.0),
        write: write.as_ref().map_or(default.write, |time| time.0.0),
        idle: idle.as_ref().map_or(default.idle, |time| time.0.0),
        total: total.as_ref().map_or(default.total, |time| time.0.0),
        drain: drain.as_ref().map_or(default.drain, |time| time.0.0),
        shutdown_delay: shutdown_delay.as_ref().map_or(default.shutdown_delay, |time| time.0.0),
    }
}

fn bounds(table: &BoundsSection) -> Result<ClientBounds, TomlError> {
    let default = ClientBounds::default();
    let BoundsSection {
        head,
        headers,
        body,
        connections,
        connections_per_client,
        requests_per_client,
        burst_per_client,
        client_prefix,
        streams,
    } = table;
    let connections = connections.map_or(default.connections, |count| count.0);
    let rate = requests_per_client.as_ref().and_then(|rate| rate.0.0);
    if let Some(burst) = burst_per_client.as_ref().filter(|_| rate.is_none()) {
        let message = "a burst is part of a rate: write requests_per_client = \"100/s\"";
        return Err(TomlError::new(message, Some(burst.span())));
    }
    let burst = burst_per_client.as_ref().map(|burst| burst.get_ref().0);
    let bits = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
    Ok(ClientBounds {
        head_bytes: head.as_ref().map_or(default.head_bytes, |size| size.0.0),
        headers: headers.map_or(default.headers, |count| count.0),
        body_bytes: body.as_ref().map_or(default.body_bytes, |size| size.0.0),
        connections,
        connections_per_client: connections_per_client
            .map_or(default.connections_per_client.min(connections), |count| count.0),
        client_rate: rate.map(|rate| ClientRateBound::new(rate, burst)),
        client_prefix: ClientPrefix {
            ipv4_bits: client_prefix.ipv4.map_or(default.client_prefix.ipv4_bits, |count| bits(count.0)),
            ipv6_bits: client_prefix.ipv6.map_or(default.client_prefix.ipv6_bits, |count| bits(count.0)),
        },
        streams: streams.map_or(default.streams, |count| count.0),
    })
}
