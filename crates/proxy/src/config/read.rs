//! A file becomes what it means.

use std::{
    collections::HashSet,
    fmt::Display,
    fs::File as Opened,
    io::Read as _,
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    str::FromStr,
};

use http::HeaderName;
use serde::Deserialize as _;
use stockade_cache::{
    Limit, Strategy,
    spec::{CacheTable, Place, Wrong},
};
use stockade_model::nearest::remedy;
use toml::{
    Spanned,
    de::{DeTable, Deserializer},
};

use super::{
    Admin, Bounds, Config, ConfigError, FileError, FlagError, Flags, Format, Kind, Log, Origin, Route,
    TierUrl, Timeouts, Tls,
    file::{
        Address, AdminHost, AdminTable, BoundsTable, File, HeaderWord, LogFormat, LogTable, RouteTable,
        TimeoutsTable,
    },
    route::{HostPattern, NamePattern, PathPattern},
};

/// A configuration is no larger.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// More routes than this would be slow to go through.
const ROUTES_MAX: usize = 1_000;
/// More origins than this are somebody's mistake.
const ORIGINS_MAX: usize = 1_000;
/// Where clients come in if nothing is said.
const LISTEN: &str = "127.0.0.1:8080";
/// What a strategy is if nothing is said: one load for all, stale while it fails, and a source that fails left alone.
const STRATEGY: &str = "breaker";
/// How much is held if nothing is said.
const LIMIT_BYTES: usize = 256 << 20;

impl Config {
    /// Reads and checks a file, with flags laid over it. Files that it names are named from its folder on.
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

    /// Reads and checks the text of a file called `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::parse_with(name, text, &Flags::default())
    }

    /// The same, with flags laid over it.
    pub fn parse_with(name: &str, text: &str, flags: &Flags) -> Result<Self, ConfigError> {
        let wrong = |wrong| Box::new(FileError::new(name, text, wrong));
        let mut file = file(text).map_err(wrong)?;
        flags.lay_over(&mut file)?;
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        let mut config = config(file, folder).map_err(wrong)?;
        flags.limit(&mut config.limit)?;
        Ok(config)
    }

    /// What flags alone say: an origin, at least.
    pub fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let mut file = File::default();
        flags.lay_over(&mut file)?;
        // Nothing that flags can say is wrong by now but that too little is said.
        let mut config = config(file, Path::new("")).map_err(|wrong| FlagError::new(wrong.message))?;
        flags.limit(&mut config.limit)?;
        Ok(config)
    }
}

/// What to write instead, where the reader's own words leave one guessing.
const HINTS: [(&str, &str); 5] = [
    ("missing field `cert`", "a certificate and its key: cert = \"cert.pem\", key = \"key.pem\""),
    ("missing field `key`", "a certificate and its key: cert = \"cert.pem\", key = \"key.pem\""),
    ("missing field `listen`", "say where: listen = \"127.0.0.1:8081\""),
    (
        "expected a sequence",
        "write a list: [[origin]] and [[route]] for each of them, listen = [\"127.0.0.1:8080\"]",
    ),
    ("expected struct OriginTable", "write [[origin]], with two brackets: there may be several"),
];

fn file(text: &str) -> Result<File, Wrong> {
    let unreadable = |error: &toml::de::Error| Wrong::read(error, &HINTS);
    let table = DeTable::parse(text).map_err(|error| unreadable(&error))?;
    if let Some(key) = table.get_ref().keys().find(|key| key.get_ref() == "limit") {
        let mut wrong = Wrong::new("unknown key `limit`", Some(key.span()));
        wrong.help = Some("the limit is the cache's: write [cache.limit]".to_owned());
        return Err(wrong);
    }
    File::deserialize(Deserializer::from(table)).map_err(|error| unreadable(&error))
}

fn config(file: File, folder: &Path) -> Result<Config, Wrong> {
    let listen = listen(&file)?;
    let admin = file.admin.map(|table| admin(table, folder)).transpose()?;
    if let Some(admin) = admin.as_ref().filter(|admin| admin.listen.port() != 0)
        && listen.contains(&admin.listen)
    {
        let message = format!("clients and [admin] cannot both come in at {}", admin.listen);
        return Err(Wrong::new(message, None));
    }
    let (base, has_base_ttl) = base(file.cache.as_ref())?;
    let limit = limit(&base, file.cache.as_ref())?;
    let base = Strategy { limit: None, ..base };
    let shared = file.cache.as_ref().and_then(|table| table.get_ref().shared.as_ref());
    let shared = shared.map(|url| url.get_ref().0.clone());
    if file.origin.len() > ORIGINS_MAX {
        return Err(Wrong::new("there are more than 1,000 origins", None));
    }
    let mut origins: Vec<Origin> = Vec::with_capacity(file.origin.len());
    for table in file.origin {
        let (origin, at) = super::origin::read(table, folder)?;
        if origins.iter().any(|other| other.name == origin.name) {
            let message =
                format!("there are two origins named `{}`: give each a name of its own", origin.name);
            return Err(Wrong::new(message, at));
        }
        origins.push(origin);
    }
    if origins.is_empty() {
        let mut wrong = Wrong::new("there is no origin", None);
        wrong.help =
            Some("write [[origin]] with a name and url = \"http://HOST:PORT\", or --origin URL".to_owned());
        return Err(wrong);
    }
    let routes = routes(file.route, &origins, &base, has_base_ttl)?;
    Ok(Config {
        listen,
        threads: file.threads.and_then(|threads| NonZeroUsize::new(threads.0)),
        tls: file.tls.map(|tls| Tls { certificates: folder.join(tls.cert), key: folder.join(tls.key) }),
        admin,
        hosts: each(&file.hosts, |host: HostPattern| host)?,
        limit,
        shared,
        log: log(file.log, folder),
        timeouts: timeouts(&file.timeouts),
        bounds: bounds(&file.bounds),
        origins,
        routes,
    })
}

fn listen(file: &File) -> Result<Vec<SocketAddr>, Wrong> {
    let Some(written) = &file.listen else {
        return Ok(vec![LISTEN.parse().expect("it is an address")]);
    };
    if written.get_ref().is_empty() {
        return Err(Wrong::new("nobody could come in: write one address at least", Some(written.span())));
    }
    let addresses: Vec<SocketAddr> = each(written.get_ref(), |Address(address)| address)?;
    for (number, address) in addresses.iter().enumerate() {
        if address.port() != 0 && addresses[..number].contains(address) {
            return Err(Wrong::new(
                format!("{address} is there twice"),
                Some(written.get_ref()[number].span()),
            ));
        }
    }
    Ok(addresses)
}

/// Every text of a list as what it stands for; an error points to the one that makes no sense.
fn each<T: FromStr<Err: Display>, U>(list: &[Spanned<String>], of: impl Fn(T) -> U) -> Result<Vec<U>, Wrong> {
    let read = |text: &Spanned<String>| {
        let read = text.get_ref().parse().map(&of);
        read.map_err(|error| Wrong::new(error.to_string(), Some(text.span())))
    };
    list.iter().map(read).collect()
}

fn admin(table: AdminTable, folder: &Path) -> Result<Admin, Wrong> {
    let (at, listen) = (table.listen.span(), table.listen.into_inner().0.0);
    let token_file = table.token_file.map(|path| folder.join(path));
    if token_file.is_none() && !listen.ip().to_canonical().is_loopback() {
        return Err(Wrong {
            message: format!("anybody who can reach {listen} could purge and reload"),
            at: Some(at),
            help: Some("write token_file = \"PATH\" below it, or listen on 127.0.0.1".to_owned()),
        });
    }
    Ok(Admin { listen, token_file, hosts: each(&table.hosts, |AdminHost(host)| host)? })
}

/// What routes without a block of their own do, and whether its ttl was written.
fn base(table: Option<&Spanned<CacheTable<TierUrl>>>) -> Result<(Strategy, bool), Wrong> {
    let usual = Strategy::preset(STRATEGY).expect("it is a preset");
    let Some(table) = table else { return Ok((usual, false)) };
    Ok((strategy(table, &usual)?, table.get_ref().has_ttl()))
}

fn strategy<T>(table: &Spanned<CacheTable<T>>, base: &Strategy) -> Result<Strategy, Wrong> {
    if let Some(memory) = table.get_ref().memory.as_ref().filter(|memory| !*memory.get_ref()) {
        let message = "a proxy keeps its answers in memory: leave `memory` out";
        return Err(Wrong::new(message, Some(memory.span())));
    }
    let strategy = table.get_ref().strategy_over(base);
    strategy.map_err(|error| Wrong::new(error.to_string(), Some(table.span())))
}

fn limit(base: &Strategy, table: Option<&Spanned<CacheTable<TierUrl>>>) -> Result<Limit, Wrong> {
    let place = table.and_then(|table| table.get_ref().limit_place());
    match (&base.limit, place) {
        (Some(limit), _) => Ok(limit.clone()),
        (None, None) => Ok(Limit::bytes(LIMIT_BYTES)),
        (None, place) => {
            let message = "a proxy without a limit eats the machine: write { bytes = \"256MiB\" }";
            Err(Wrong::new(message, place))
        }
    }
}

fn routes(
    tables: Vec<Spanned<RouteTable>>,
    origins: &[Origin],
    base: &Strategy,
    has_base_ttl: bool,
) -> Result<Vec<Route>, Wrong> {
    if tables.len() > ROUTES_MAX {
        return Err(Wrong::new("there are more than 1,000 routes", None));
    }
    let everything = || vec![Spanned::new(0..0, RouteTable::default())];
    let tables = if tables.is_empty() { everything() } else { tables };
    let mut known = HashSet::new();
    let mut routes = Vec::with_capacity(tables.len());
    for table in tables {
        let at = Some(table.span()).filter(|span| !span.is_empty());
        let route = route(table.into_inner(), at.clone(), origins, base, has_base_ttl)?;
        if !known.insert((route.host.clone(), route.path.clone())) {
            let message = format!("there are two routes for `{}`", route.name);
            return Err(Wrong::new(message, at));
        }
        routes.push(route);
    }
    // Those that are equally near stay in the file's order.
    routes.sort_by_cached_key(Route::order);
    Ok(routes)
}

fn route(
    table: RouteTable,
    at: Place,
    origins: &[Origin],
    base: &Strategy,
    has_base_ttl: bool,
) -> Result<Route, Wrong> {
    let origin = origin_of(table.origin.as_ref(), at, origins)?;
    let (strategy, has_ttl) = match &table.cache {
        None => (base.clone(), has_base_ttl),
        Some(cache) => {
            if let at @ Some(_) = cache.get_ref().limit_place() {
                let message = "the limit is one for all routes: write it into [cache]";
                return Err(Wrong::new(message, at));
            }
            (strategy(cache, base)?, has_base_ttl || cache.get_ref().has_ttl())
        }
    };
    let strategy = Strategy { negative_ttl: table.negative_ttl.map(|ttl| ttl.0.0), ..strategy };
    // Databases say nothing of their documents' age.
    let says_nothing = matches!(origins[origin].kind, Kind::Documents { .. });
    let usual = strategy.ttl.filter(|_| has_ttl || says_nothing);
    let path = table.path.map_or_else(PathPattern::all, |path| path.0);
    let host = table.host.map(|host| host.0);
    let tag_headers = match table.tag_headers {
        Some(headers) => each(&headers, |HeaderWord(header)| header)?,
        None => ["surrogate-key", "cache-tag"].map(HeaderName::from_static).to_vec(),
    };
    Ok(Route {
        name: format!("{}{path}", host.as_ref().map(ToString::to_string).unwrap_or_default()),
        host,
        path,
        origin,
        ttl: table.ttl.map(|ttl| ttl.0.0),
        ttl_default: table.default_ttl.map(|ttl| ttl.0.0).or(usual),
        strategy,
        tag_headers,
        ignored_query: each(&table.ignore_query, |name: NamePattern| name)?,
    })
}

/// The number of the origin with this name, or of the only one.
fn origin_of(name: Option<&Spanned<String>>, at: Place, origins: &[Origin]) -> Result<usize, Wrong> {
    let names = || origins.iter().map(|origin| origin.name.as_str());
    let Some(name) = name else {
        if origins.len() == 1 {
            return Ok(0);
        }
        let names = names().collect::<Vec<_>>().join(", ");
        let message = match at {
            None => "there are several origins and no [[route]] that says which one is asked".to_owned(),
            Some(_) => format!("this route does not say which origin is asked: origin = one of {names}"),
        };
        return Err(Wrong::new(message, at));
    };
    origins.iter().position(|origin| origin.name == *name.get_ref()).ok_or_else(|| Wrong {
        message: format!("there is no origin named `{}`", name.get_ref()),
        at: Some(name.span()),
        help: Some(remedy(name.get_ref(), names().collect::<Vec<_>>())),
    })
}

fn log(table: LogTable, folder: &Path) -> Option<Log> {
    let format = match table.format {
        LogFormat::Json => Format::Json,
        LogFormat::Combined => Format::Combined,
        LogFormat::None => return None,
    };
    let is_file = |path: &PathBuf| path.as_os_str() != "-";
    Some(Log { format, path: table.path.filter(is_file).map(|path| folder.join(path)) })
}

fn timeouts(table: &TimeoutsTable) -> Timeouts {
    let usual = Timeouts::default();
    let TimeoutsTable { head, body, write, idle, total, drain } = table;
    Timeouts {
        head: head.as_ref().map_or(usual.head, |time| time.0.0),
        body: body.as_ref().map_or(usual.body, |time| time.0.0),
        write: write.as_ref().map_or(usual.write, |time| time.0.0),
        idle: idle.as_ref().map_or(usual.idle, |time| time.0.0),
        total: total.as_ref().map_or(usual.total, |time| time.0.0),
        drain: drain.as_ref().map_or(usual.drain, |time| time.0.0),
    }
}

fn bounds(table: &BoundsTable) -> Bounds {
    let usual = Bounds::default();
    let BoundsTable { head, headers, body, connections, streams } = table;
    Bounds {
        head_bytes: head.as_ref().map_or(usual.head_bytes, |size| size.0.0),
        headers: headers.map_or(usual.headers, |count| count.0),
        body_bytes: body.as_ref().map_or(usual.body_bytes, |size| size.0.0),
        connections: connections.map_or(usual.connections, |count| count.0),
        streams: streams.map_or(usual.streams, |count| count.0),
    }
}
