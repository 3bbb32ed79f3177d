//! Cells of the targets whose parts are processes.

mod event;
mod load;

use std::{net::SocketAddr, ops::Range, time::Duration};

use serde::Deserialize;
use serde_json::{Map, Value};
use stockade_cache::spec::{
    TomlError,
    value::{DurationValue, TextValue},
};
use stockade_load::{
    settings::RequestSettings,
    url::{BaseUrl, UrlError},
};
use stockade_model::{nearest::remedy, units::format_duration};
use stockade_record::record::ClockKind;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use self::{
    event::{CacheControl, EventTable, KnownProcesses},
    load::HttpLoadTable,
};
#[cfg(feature = "schema")]
use super::schema::{KindName, RecipeForms};
use super::{
    Cell, KeySpans, app,
    cache::{self, CacheTables},
    tables::{self, TomlTable},
    targets::{CellNames, find},
};
use crate::{
    http::{
        AccountingWindow, AppTarget, CacheReset, HttpLoad, HttpTraffic, PreflightProbe, ProxyTarget,
        RecipeSource, RecipeSpec, UrlTarget,
    },
    services::RunService,
    target::Target,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub(super) struct HttpTables {
    target: HttpTargetTable,
    #[cfg_attr(feature = "schema", schemars(with = "Option<CacheTables>"))]
    cache: Option<Spanned<CacheTables>>,
    #[cfg_attr(feature = "schema", schemars(with = "HttpLoadTable"))]
    load: Spanned<HttpLoadTable>,
    /// Events during the load.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<EventTable>"))]
    event: Vec<Spanned<EventTable>>,
    /// Requests that check the setup, apart from the load.
    #[serde(default)]
    preflight: Preflight,
    /// Measurements besides the load.
    #[serde(default)]
    sample: SampleTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct HttpTargetTable {
    #[expect(dead_code, reason = "read by `targets::cells`")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<KindName>"))]
    kind: Option<String>,
    /// Kind `url`: where the load goes.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    url: Option<Spanned<String>>,
    /// Kind `url`: process of a server that runs already.
    #[cfg_attr(feature = "schema", schemars(with = "Option<u32>"))]
    pid: Option<Spanned<u32>>,
    /// Kind `url`: shell command that runs before each measurement and ends.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    before: Option<Spanned<String>>,
    /// Kind `url`: shell command that serves `url` in the foreground. Each measurement starts and stops it.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    command: Option<Spanned<String>>,
    /// Kind `url`: how the cache becomes cold before each measurement: `purge` or `command`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<ResetTable>"))]
    reset: Option<Spanned<ResetTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct ResetTable {
    /// Request to the target, such as "PURGE /*".
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>", regex(pattern = "^[A-Z]+ /")))]
    purge: Option<String>,
    /// Shell command.
    command: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct Preflight {
    /// One request each.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<ProbeTable>"))]
    probes: Vec<Spanned<ProbeTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct ProbeTable {
    /// When it is sent, counted from the start of the load. Default: before the load.
    at: Option<TextValue<DurationValue>>,
    /// Its path, which begins with `/`.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^/")))]
    path: String,
    /// Add a unique query. Default: false.
    #[serde(default)]
    cache_bust: bool,
    /// The expected status.
    status: u16,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct SampleTable {
    /// Where the time of each kind of thread goes.
    #[cfg_attr(feature = "schema", schemars(with = "Option<AccountingTable>"))]
    accounting: Option<Spanned<AccountingTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
struct AccountingTable {
    /// When it begins, counted from the start of the load. Default: at its start.
    #[serde(default)]
    at: TextValue<DurationValue>,
    /// How long it lasts, a second or more.
    #[serde(rename = "for")]
    length: TextValue<DurationValue>,
}

/// Reads the tables of one test and arm of the target `proxy`.
pub(super) fn read_proxy(
    mut table: TomlTable<'_>,
    layer: CellNames<'_>,
    span: Range<usize>,
) -> Result<Vec<Cell>, TomlError> {
    let (settings, origin) = (proxy_settings(&mut table)?, recipe(&mut table)?);
    let request = request_settings(&mut table)?;
    let tables: HttpTables = tables::read(table, span)?;
    let Some(cache) = &tables.cache else {
        let remedy =
            format!("write cache.strategy = \"stampede\" into arm `{}`, or [cache] for all arms", layer.arm);
        return Err(missing(&format!("cache of arm `{}`", layer.arm), &remedy));
    };
    cache::strategy(cache.get_ref(), Some(cache.span()))?;
    if origin.is_none() {
        let remedy = "write [origin] recipe = \"recipe.json\", or the recipe itself";
        return Err(missing("origin's recipe", remedy));
    }
    tables.target.refuse_address(layer.arm)?;
    tables.cells(layer, origin.as_ref(), &request, CacheControl::Restart, |load| {
        Box::new(ProxyTarget { load, settings: settings.clone() })
    })
}

/// Reads the tables of one test and arm of the target `app`.
pub(super) fn read_app(
    mut table: TomlTable<'_>,
    layer: CellNames<'_>,
    span: Range<usize>,
) -> Result<Vec<Cell>, TomlError> {
    let settings = app_settings(&mut table, span.clone())?;
    let request = request_settings(&mut table)?;
    let tables: HttpTables = tables::read(table, span)?;
    tables.target.refuse_address(layer.arm)?;
    tables.cells(layer, None, &request, CacheControl::Signal, |load| {
        Box::new(AppTarget { load, settings: settings.clone() })
    })
}

/// Reads the tables of one test and arm of the target `url`.
pub(super) fn read_url(
    mut table: TomlTable<'_>,
    layer: CellNames<'_>,
    span: Range<usize>,
) -> Result<Vec<Cell>, TomlError> {
    let origin = recipe(&mut table)?;
    let request = request_settings(&mut table)?;
    let tables: HttpTables = tables::read(table, span)?;
    if let Some(cache) = &tables.cache {
        let message = "a target at a URL has a cache of its own: leave [cache] out";
        return Err(TomlError::new(message, Some(cache.span())));
    }
    let HttpTargetTable { pid, before, command, reset, .. } = &tables.target;
    let url = tables.target.base_url()?;
    if let (Some(pid), Some(_)) = (pid, command) {
        let message = "the process of `command` is measured: leave `pid` out";
        return Err(TomlError::new(message, Some(pid.span())));
    }
    if command.is_none() && origin.as_ref().is_some_and(|origin| origin.listen.is_none()) {
        let remedy =
            "write listen = \"127.0.0.1:9000\" into [origin], the address to which the target forwards";
        return Err(missing("address of the origin", remedy));
    }
    let reset = reset.as_ref().map(read_reset).transpose()?;
    let text = |command: &Option<Spanned<String>>| command.as_ref().map(|command| command.get_ref().clone());
    let (pid, before, command) = (pid.as_ref().map(|pid| *pid.get_ref()), text(before), text(command));
    if let Some(accounting) = tables.sample.accounting.as_ref().filter(|_| pid.is_none() && command.is_none())
    {
        let message =
            "the processes of this target are not known: write its `pid` or its `command` into [target]";
        return Err(TomlError::new(message, Some(accounting.span())));
    }
    let control = match (&command, pid) {
        (Some(_), _) => CacheControl::Restart,
        (None, Some(_)) => CacheControl::Signal,
        (None, None) => CacheControl::Nothing,
    };
    tables.cells(layer, origin.as_ref(), &request, control, |load| {
        let (url, before, command, reset) = (url.clone(), before.clone(), command.clone(), reset.clone());
        Box::new(UrlTarget { load, url, pid, before, command, reset })
    })
}

impl HttpTables {
    /// A cell for each swept load.
    fn cells(
        &self,
        layer: CellNames<'_>,
        origin: Option<&RecipeSpec>,
        request: &RequestSettings,
        cache: CacheControl,
        target: impl Fn(HttpLoad) -> Box<dyn Target>,
    ) -> Result<Vec<Cell>, TomlError> {
        let loads = self.load.get_ref().read(request, &Some(self.load.span()))?;
        let shortest = loads.iter().map(|(_, traffic)| traffic.duration()).min().unwrap_or_default();
        let probes = self.preflight.probes.iter().map(|probe| read_probe(probe, shortest));
        let probes = probes.collect::<Result<Vec<_>, _>>()?;
        let events =
            event::read(&self.event, KnownProcesses { cache, has_origin: origin.is_some() }, shortest)?;
        let accounting = self.sample.accounting.as_ref();
        let accounting = accounting.map(|table| read_accounting(table, shortest)).transpose()?;
        let is_sweep = loads.len() > 1;
        let cell = |(users, traffic): (Option<usize>, HttpTraffic)| {
            let swept = users.filter(|_| is_sweep).map(|users| users.to_string());
            let parts = [Some(layer.test.to_owned()).filter(|test| !test.is_empty()), swept];
            let (name, origin) = (layer.arm.to_owned(), origin.cloned());
            let (probes, events) = (probes.clone(), events.clone());
            Cell {
                test: parts.into_iter().flatten().collect::<Vec<_>>().join("/"),
                arm: layer.arm.to_owned(),
                clock: ClockKind::Live,
                target: target(HttpLoad { name, origin, traffic, probes, events, accounting }),
                spans: KeySpans::default(),
            }
        };
        Ok(loads.into_iter().map(cell).collect())
    }
}

impl HttpTargetTable {
    fn base_url(&self) -> Result<String, TomlError> {
        let Some(url) = &self.url else {
            return Err(missing("url in [target]", "write url = \"http://127.0.0.1:8080\""));
        };
        let base: Result<BaseUrl, UrlError> = url.get_ref().parse();
        let base = base.map_err(|error| TomlError::new(error.to_string(), Some(url.span())))?;
        Ok(base.to_string())
    }

    /// Refuses an address for a target that the run starts.
    fn refuse_address(&self, arm: &str) -> Result<(), TomlError> {
        let Self { url, pid, before, command, reset, .. } = self;
        let texts = [url, before, command].into_iter().flatten().map(Spanned::span);
        let span =
            texts.chain(pid.as_ref().map(Spanned::span)).chain(reset.as_ref().map(Spanned::span)).next();
        span.map_or(Ok(()), |span| {
            let message = format!(
                "the run starts the target of arm `{arm}`, which has no URL and no process yet: leave this out, or write it into the \
                 arms that it belongs to"
            );
            Err(TomlError::new(message, Some(span)))
        })
    }
}

/// A method and a path: `PURGE /*`.
fn method_and_path(request: &str) -> Option<(&str, &str)> {
    request.split_once(' ').filter(|(method, path)| {
        !method.is_empty()
            && method.bytes().all(|byte| byte.is_ascii_uppercase())
            && path.starts_with('/')
            && !path.contains(char::is_whitespace)
    })
}

/// `{ purge = "PURGE /*" }` or `{ command = "..." }`.
fn read_reset(reset: &Spanned<ResetTable>) -> Result<CacheReset, TomlError> {
    let wrong = |message: &str| TomlError::new(message, Some(reset.span()));
    match reset.get_ref() {
        ResetTable { purge: Some(request), command: None } => {
            let (method, path) = method_and_path(request)
                .ok_or_else(|| wrong("`purge` is a method and a path: write \"PURGE /*\""))?;
            Ok(CacheReset::Purge { method: method.to_owned(), path: path.to_owned() })
        }
        ResetTable { purge: None, command: Some(command) } => Ok(CacheReset::Command(command.clone())),
        _ => Err(wrong("a reset is one of `purge` and `command`")),
    }
}

fn read_probe(probe: &Spanned<ProbeTable>, ends: Duration) -> Result<PreflightProbe, TomlError> {
    let ProbeTable { at, path, cache_bust, status } = probe.get_ref();
    if !path.starts_with('/') {
        let message = "a probe's path begins with `/`: the target's address comes before it";
        return Err(TomlError::new(message, Some(probe.span())));
    }
    if at.as_ref().is_some_and(|at| at.0.0 >= ends) {
        let message = format!("the load is over after {}: write an earlier `at`", format_duration(ends));
        return Err(TomlError::new(message, Some(probe.span())));
    }
    Ok(PreflightProbe {
        at: at.as_ref().map(|at| at.0.0),
        path: path.clone(),
        cache_bust: *cache_bust,
        status: *status,
    })
}

fn read_accounting(
    accounting: &Spanned<AccountingTable>,
    ends: Duration,
) -> Result<AccountingWindow, TomlError> {
    let AccountingTable { at: TextValue(at), length: TextValue(length) } = accounting.get_ref();
    let wrong = |message: String| TomlError::new(message, Some(accounting.span()));
    if length.0 < Duration::from_secs(1) {
        return Err(wrong(
            "processor time is counted in ticks of 10 ms: account for a second or more".to_owned(),
        ));
    }
    if at.0.saturating_add(length.0) > ends {
        let ends = format_duration(ends);
        return Err(wrong(format!(
            "the load is over after {ends}: write an earlier `at` or a shorter `for`"
        )));
    }
    Ok(AccountingWindow { at: at.0, length: length.0 })
}

fn missing(what: &str, remedy: &str) -> TomlError {
    TomlError { message: format!("there is no {what}"), span: None, help: Some(remedy.to_owned()) }
}

/// Takes the keys of `[load]` that are flags of `stockade load`, too.
fn request_settings(table: &mut TomlTable<'_>) -> Result<RequestSettings, TomlError> {
    let known = tables::keys_of::<RequestSettings>();
    let further = tables::keys_of::<HttpLoadTable>();
    let Some((_, value)) = table.iter_mut().find(|(key, _)| key.get_ref() == "load") else {
        return Ok(RequestSettings::default());
    };
    let span = value.span();
    let DeValue::Table(load) = value.get_mut() else { return Ok(RequestSettings::default()) };
    let all = || known.iter().chain(further).copied();
    if let Some(key) = load.keys().find(|key| !all().any(|name| name == key.get_ref())) {
        let message = format!("unknown key `{}`", key.get_ref());
        let help = Some(remedy(key.get_ref(), all()));
        return Err(TomlError { message, span: Some(key.span()), help });
    }
    let mut taken = TomlTable::new();
    for name in known {
        let key = load.keys().find(|key| key.get_ref() == name).cloned();
        if let Some((key, value)) = key.and_then(|key| Some((key.clone(), load.remove(&key)?))) {
            taken.insert(key, value);
        }
    }
    tables::read(taken, span)
}

/// The settings of the proxy, as written: `[proxy]`, and `[cache]`, which stays in the table and is validated
/// here, too.
fn proxy_settings(table: &mut TomlTable<'_>) -> Result<Map<String, Value>, TomlError> {
    let mut settings = tables::take(table, "proxy")?.as_ref().map(object).unwrap_or_default();
    if let Some((_, cache)) = find(table, "cache") {
        settings.insert("cache".to_owned(), json(cache));
    }
    Ok(settings)
}

/// The settings of the app, as written, after validation: `[origin]` and `[cache]`.
fn app_settings(table: &mut TomlTable<'_>, span: Range<usize>) -> Result<Map<String, Value>, TomlError> {
    let mut app = TomlTable::new();
    for name in ["origin", "cache"] {
        if let Some(key) = table.keys().find(|key| key.get_ref() == name).cloned()
            && let Some(value) = table.remove(&key)
        {
            app.insert(key, value);
        }
    }
    let settings = object(&app);
    // A database of the run has no address yet.
    let origin = app.iter_mut().find(|(key, _)| key.get_ref() == "origin");
    if let Some((_, origin)) = origin
        && let DeValue::Table(origin) = origin.get_mut()
        && let Some((_, source)) = origin.iter_mut().find(|(key, _)| key.get_ref() == "source")
        && let Some((service, rest)) = source.get_ref().as_str().and_then(RunService::from_url)
    {
        let there = format!("{}://localhost/it{rest}", service.name());
        *source.get_mut() = DeValue::String(there.into());
    }
    app::read(app, span)?;
    Ok(settings)
}

/// `[origin]` of targets with a recipe, whose reader is [`recipe`].
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[schemars(inline, deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct RecipeOriginTable {
    /// Over HTTP: the origin's recipe, as a file next to the experiment or written here.
    recipe: RecipeForms,
    /// Over HTTP: address of the origin, where a foreign cache expects it. Default: a free port.
    listen: Option<String>,
}

const ORIGIN_KEYS: [&str; 2] = ["recipe", "listen"];

/// The recipe of the origin, as written, and its listener.
fn recipe(table: &mut TomlTable<'_>) -> Result<Option<RecipeSpec>, TomlError> {
    let (mut source, mut listen, mut first) = (None, None, None);
    for (key, value) in tables::take(table, "origin")?.unwrap_or_default() {
        first.get_or_insert(key.span());
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("recipe", DeValue::String(path)) => source = Some(RecipeSource::File(path.as_ref().into())),
            ("recipe", recipe) => source = Some(RecipeSource::Inline(json(recipe))),
            ("listen", address) => {
                let address: Option<SocketAddr> = address.as_str().and_then(|address| address.parse().ok());
                let message = "an origin listens at an address and a port: write \"127.0.0.1:9000\"";
                listen = Some(address.ok_or_else(|| TomlError::new(message, Some(value.span())))?);
            }
            (other, _) => {
                return Err(TomlError {
                    message: format!("[origin] has no `{other}` where a proxy is the target"),
                    span: Some(key.span()),
                    help: Some(remedy(other, ORIGIN_KEYS)),
                });
            }
        }
    }
    match (source, first) {
        (Some(source), _) => Ok(Some(RecipeSpec { source, listen, factor: 1.0 })),
        (None, None) => Ok(None),
        (None, at) => Err(TomlError::new("an origin serves a `recipe`: write one", at)),
    }
}

fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Null, Value::from)
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(value) => Value::from(*value),
        DeValue::Datetime(time) => Value::from(time.to_string()),
        DeValue::Array(array) => array.iter().map(|value| json(value.get_ref())).collect(),
        DeValue::Table(table) => Value::Object(object(table)),
    }
}

fn object(table: &DeTable<'_>) -> Map<String, Value> {
    table.iter().map(|(key, value)| (key.get_ref().to_string(), json(value.get_ref()))).collect()
}

#[cfg(test)]
mod tests;
