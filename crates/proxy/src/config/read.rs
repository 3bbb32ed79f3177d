//! Validates a configuration file.

use std::{
    collections::HashSet,
    fs::File as Opened,
    io::Read as _,
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize as _;
use stockade_cache::{
    AfterWait, Fetch, HedgeAfter, Limit, LoadBounds, Strategy,
    spec::{CacheTable, StatedKey, TomlError},
};
use stockade_model::nearest::remedy;
use toml::de::{DeTable, Deserializer};

use super::{
    AdminConfig, Config, ConfigError, FileError, FlagError, Flags, LogConfig, OriginConfig, OriginKind,
    OriginTimeouts, RouteConfig, SharedTierUrl, SnapshotConfig, TlsFiles,
    error::SettingError,
    file::ConfigFile,
    flags::cache_of,
    route::RouteTable,
    value::{PlainDuration, SocketAddress},
};

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
        let located = |error: SettingError| wrong(error.locate(text));
        let mut config = config(file, folder).map_err(located)?;
        flags.limit(&mut config.limit)?;
        // The limit may come from flags.
        config.check_shadow().map_err(|message| located(SettingError::new("shadow", message)))?;
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
    ("expected struct ShadowConfig", "write [shadow] on a line of its own"),
    ("missing field `cert`", "a certificate and its key: cert = \"cert.pem\", key = \"key.pem\""),
    ("missing field `key`", "a certificate and its key: cert = \"cert.pem\", key = \"key.pem\""),
    ("missing field `listen`", "say where: listen = \"127.0.0.1:8081\""),
    (
        "expected a sequence",
        "write a list: [[origin]] and [[route]] for each of them, listen = [\"127.0.0.1:8080\"]",
    ),
    ("expected struct OriginTable", "write [[origin]], with two brackets: there may be several"),
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

fn config(file: ConfigFile, folder: &Path) -> Result<Config, SettingError> {
    let (listen, listen_proxy_protocol) = listen(&file)?;
    let admin = file.admin.map(|table| admin(table, folder)).transpose()?;
    if let Some(SocketAddress(of_admin)) = admin.as_ref().map(|admin| admin.listen)
        && of_admin.port() != 0
        && listen.iter().chain(&listen_proxy_protocol).any(|address| *address == of_admin)
    {
        return Err(SettingError::new("", format!("clients and [admin] cannot both listen on {of_admin}")));
    }
    let base = base(file.cache.as_ref())?;
    let limit_is_stated = file.cache.as_ref().is_some_and(|table| table.limit_span().is_some());
    let limit = limit(&base.strategy, limit_is_stated)?;
    let base = StatedStrategy { strategy: Strategy { limit: None, ..base.strategy }, ..base };
    let shared = file.cache.and_then(|table| table.shared).map(|url| url.into_inner().0);
    let origins = origins(file.origin, folder)?;
    let routes = routes(file.route, &origins, &base)?;
    let snapshot = snapshot(file.snapshot, folder, shared.is_some())?;
    let mut bounds = file.bounds;
    if bounds.burst_per_client.is_some() && bounds.requests_per_client.0.is_none() {
        let message = "a burst is part of a rate: write requests_per_client = \"100/s\"";
        return Err(SettingError::new("bounds.burst_per_client", message));
    }
    bounds.complete();
    Ok(Config {
        listen,
        listen_proxy_protocol,
        trusted_proxies: file.trusted_proxies.into_iter().collect(),
        threads: file.threads.and_then(|threads| NonZeroUsize::new(threads.0)),
        tls: file.tls.map(|tls| TlsFiles { cert: folder.join(tls.cert), key: folder.join(tls.key) }),
        admin,
        hosts: file.hosts,
        limit,
        shared,
        shadow: file.shadow,
        snapshot,
        log: log(file.log, folder),
        timeouts: file.timeouts,
        bounds,
        origins,
        routes,
    })
}

/// The addresses of clients, and those of connections with a header of the PROXY protocol.
fn listen(file: &ConfigFile) -> Result<(Vec<SocketAddr>, Vec<SocketAddr>), SettingError> {
    let addresses = |list: &[SocketAddress]| list.iter().map(|address| address.0).collect::<Vec<_>>();
    let with_header = addresses(&file.listen_proxy_protocol);
    let mut plain = addresses(file.listen.as_deref().unwrap_or_default());
    if !with_header.is_empty() && file.trusted_proxies.is_empty() {
        let message = "any client could name another one in a PROXY protocol header";
        let help = "write the addresses of the load balancers: trusted_proxies = [\"10.0.0.0/8\"]";
        return Err(SettingError::new("listen_proxy_protocol", message).with_help(help));
    }
    if plain.is_empty() && with_header.is_empty() {
        if file.listen.is_some() {
            return Err(SettingError::new("listen", "write at least one address"));
        }
        plain.push(LISTEN.parse().expect("a valid address"));
    }
    let mut known = HashSet::new();
    for (key, list) in [("listen", &plain), ("listen_proxy_protocol", &with_header)] {
        for (index, address) in list.iter().enumerate() {
            if address.port() != 0 && !known.insert(*address) {
                return Err(SettingError::new(
                    format!("{key}.{index}"),
                    format!("{address} is listed twice"),
                ));
            }
        }
    }
    Ok((plain, with_header))
}

fn admin(table: AdminConfig, folder: &Path) -> Result<AdminConfig, SettingError> {
    let SocketAddress(listen) = table.listen;
    if table.token_file.is_none() && !listen.ip().to_canonical().is_loopback() {
        let message = format!("without a token, anyone who can reach {listen} could purge and reload");
        let help = "write token_file = \"PATH\" below it, or listen on 127.0.0.1";
        return Err(SettingError::new("admin.listen", message).with_help(help));
    }
    Ok(AdminConfig { token_file: table.token_file.map(|path| folder.join(path)), ..table })
}

fn log(table: LogConfig, folder: &Path) -> LogConfig {
    let is_file = |path: &PathBuf| path.as_os_str() != "-";
    LogConfig { path: table.path.filter(is_file).map(|path| folder.join(path)), ..table }
}

fn snapshot(
    table: Option<SnapshotConfig>,
    folder: &Path,
    has_shared_tier: bool,
) -> Result<Option<SnapshotConfig>, SettingError> {
    if has_shared_tier && table.is_some() {
        let message = "other nodes may have purged what a snapshot would bring back";
        let help = "leave [snapshot] out: the shared tier has the responses after a restart";
        return Err(SettingError::new("snapshot", message).with_help(help));
    }
    Ok(table.map(|table| SnapshotConfig { path: folder.join(&table.path), ..table }))
}

fn origins(
    tables: Vec<super::origin::OriginTable>,
    folder: &Path,
) -> Result<Vec<OriginConfig>, SettingError> {
    if tables.is_empty() {
        let help = "write [[origin]] with a name and url = \"http://HOST:PORT\", or --origin URL";
        return Err(SettingError::new("", "there is no origin").with_help(help));
    }
    if tables.len() > ORIGINS_MAX {
        return Err(SettingError::new("", "there are more than 1,000 origins"));
    }
    let mut origins: Vec<OriginConfig> = Vec::with_capacity(tables.len());
    for (index, table) in tables.into_iter().enumerate() {
        let at = format!("origin.{index}");
        let origin = OriginConfig::new(table, &at, folder)?;
        if origins.iter().any(|other| other.name == origin.name) {
            let message = format!("two origins have the name `{}`: names must be unique", origin.name);
            return Err(SettingError::new(format!("{at}.name"), message));
        }
        origins.push(origin);
    }
    Ok(origins)
}

/// `open_for` and `wait` of a breaker without a table in the file.
const PROBES_EVERY: Duration = Duration::from_secs(1);

/// The strategy of routes without a cache block, or of one route.
struct StatedStrategy {
    strategy: Strategy,
    /// The settings that the file states.
    stated: Vec<StatedKey>,
}

fn base(table: Option<&CacheTable<SharedTierUrl>>) -> Result<StatedStrategy, SettingError> {
    let strategy = Strategy::preset(STRATEGY).expect("a preset");
    let default = StatedStrategy { strategy, stated: Vec::new() };
    let Some(table) = table else { return Ok(default) };
    default.with(table, "cache")
}

impl StatedStrategy {
    /// With the keys of a table, which is at `at` in the file, in place of its own.
    fn with<T>(&self, table: &CacheTable<T>, at: &str) -> Result<Self, SettingError> {
        let strategy = strategy(table, at, &self.strategy)?;
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
            *hedge_after = Some(HedgeAfter::Time(timeouts.head.0 / 2));
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

fn strategy<T>(table: &CacheTable<T>, at: &str, base: &Strategy) -> Result<Strategy, SettingError> {
    if table.memory.as_ref().is_some_and(|memory| !*memory.get_ref()) {
        let message = "a proxy always stores responses in memory: remove `memory`";
        return Err(SettingError::new(format!("{at}.memory"), message));
    }
    table.strategy_over(base).map_err(|error| SettingError::new(at, error.to_string()))
}

/// `is_stated`: the file has a limit, which may be `"none"`.
fn limit(base: &Strategy, is_stated: bool) -> Result<Limit, SettingError> {
    match &base.limit {
        Some(limit) => Ok(limit.clone()),
        None if is_stated => {
            let message = "a proxy needs a limit: write { bytes = \"256MiB\" }";
            Err(SettingError::new("cache.limit", message))
        }
        None => Ok(Limit::bytes(LIMIT_BYTES)),
    }
}

fn routes(
    tables: Vec<RouteTable>,
    origins: &[OriginConfig],
    base: &StatedStrategy,
) -> Result<Vec<RouteConfig>, SettingError> {
    if tables.len() > ROUTES_MAX {
        return Err(SettingError::new("", "there are more than 1,000 routes"));
    }
    if tables.is_empty() {
        return Ok(vec![route(RouteTable::default(), "", origins, base)?]);
    }
    let mut known = HashSet::new();
    let mut routes = Vec::with_capacity(tables.len());
    for (index, table) in tables.into_iter().enumerate() {
        let at = format!("route.{index}");
        let route = route(table, &at, origins, base)?;
        if !known.insert((route.table.host.clone(), route.table.path.clone())) {
            return Err(SettingError::new(at, format!("there are two routes for `{}`", route.name)));
        }
        routes.push(route);
    }
    // A stable sort: equally specific routes stay in the file's order.
    routes.sort_by_cached_key(RouteConfig::order);
    Ok(routes)
}

/// `at`: its place in the file, if it is not the default route.
fn route(
    mut table: RouteTable,
    at: &str,
    origins: &[OriginConfig],
    base: &StatedStrategy,
) -> Result<RouteConfig, SettingError> {
    let origin = origin_of(table.origin.as_deref(), at, origins)?;
    table.origin = Some(origins[origin].name.clone());
    let of_route;
    let stated = match table.cache.take() {
        None => base,
        Some(cache) => {
            let at = format!("{at}.cache");
            if cache.limit_span().is_some() {
                let message = "the limit applies to all routes: write it into [cache]";
                return Err(SettingError::new(format!("{at}.limit"), message));
            }
            of_route = base.with(&cache, &at)?;
            &of_route
        }
    };
    let negative_ttl = table.negative_ttl.map(|ttl| ttl.0);
    let mut strategy = Strategy { negative_ttl, ..stated.strategy.clone() };
    if let (Some(breaker), false) = (&mut strategy.breaker, stated.states(StatedKey::Breaker)) {
        // A request that waits for a moment gets its page when the origin is back, in place of an error: also if it came before the
        // last probes that failed.
        (breaker.open_for, breaker.wait) = (PROBES_EVERY, 2 * PROBES_EVERY);
    }
    let is_database = match &origins[origin].kind {
        OriginKind::Http(_) => {
            stated.adapt_to(&origins[origin].table.timeouts, &mut strategy);
            false
        }
        OriginKind::Documents(_) => true,
    };
    stated.end_waits_in_loads(&mut strategy);
    // Databases declare no lifetimes.
    let of_cache = strategy.ttl.filter(|_| stated.states(StatedKey::Ttl) || is_database);
    table.default_ttl = table.default_ttl.or(of_cache.map(PlainDuration));
    let host = table.host.as_ref().map(ToString::to_string).unwrap_or_default();
    Ok(RouteConfig { name: format!("{host}{}", table.path), origin, strategy, table })
}

/// The index of the origin with this name, or of the only one.
fn origin_of(name: Option<&str>, at: &str, origins: &[OriginConfig]) -> Result<usize, SettingError> {
    let names = || origins.iter().map(|origin| origin.name.as_str());
    let Some(name) = name else {
        if origins.len() == 1 {
            return Ok(0);
        }
        let names = names().collect::<Vec<_>>().join(", ");
        let message = match at {
            "" => "there are several origins and no [[route]] that names one".to_owned(),
            _ => format!("this route does not name its origin: write origin = one of {names}"),
        };
        return Err(SettingError::new(at, message));
    };
    names().position(|known| known == name).ok_or_else(|| {
        SettingError::new(format!("{at}.origin"), format!("there is no origin named `{name}`"))
            .with_help(remedy(name, names().collect::<Vec<_>>()))
    })
}
