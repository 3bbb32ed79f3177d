//! The servers that an agent runs: origins and proxies of a coordinator's measurements.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::IpAddr,
    path::PathBuf,
    rc::Rc,
    sync::Arc,
};

use async_nats::Subscriber;
use futures_util::StreamExt;
use http::Uri;
use serde_json::{Map, Value};
use stockade_load::AllowedTargets;
use stockade_model::{
    record::Role,
    server::{MEMORY_SHARE_MAX, ServerError, ServerMachine, ServerOrder, StartedServer},
};
use tempfile::TempDir;
use tokio::{
    sync::Mutex,
    task::{spawn_blocking, spawn_local},
};

use super::Agent;
use crate::{
    clock::Nanos,
    wait::Ticks,
    wire::{ALIVE_INTERVAL, AgentReply, AgentStatus, ControlMessage, RunId, ServerId, lease_from, silence},
};

/// A machine that runs servers, and its address.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The machine, which starts the processes of servers.
    pub machine: Arc<dyn ServerMachine>,
    /// The address at which they listen, and by which other machines reach them.
    pub address: IpAddr,
}

/// The settings of a proxy that name no file and no address of its machine.
const PROXY_SETTINGS: [&str; 8] =
    ["bounds", "cache", "hosts", "origin", "route", "shadow", "threads", "timeouts"];
/// Those of its origins; addresses are checked.
const ORIGIN_SETTINGS: [&str; 9] =
    ["connections", "health", "host_header", "http2", "name", "timeouts", "url", "urls", "waiting"];
/// The parameters in the URL of a shared tier; others name files.
const URL_PARAMETERS: [&str; 3] = ["lease", "prefix", "timeout"];
/// The admin pages that a coordinator may read.
const PAGES: [&str; 3] = ["/current_count", "/start", "/stats"];
/// The most servers of a run at a time.
const SERVERS_MAX: usize = 4;

/// The servers of one coordinator.
struct Session {
    run: RunId,
    /// Runs may have several, one after the other.
    number: u64,
    running: BTreeMap<ServerId, RunningServer>,
    /// Servers that are being started.
    starting: BTreeSet<ServerId>,
    folder: TempDir,
}

struct RunningServer {
    server: Arc<dyn StartedServer>,
    /// Held while a page is read: one at a time, and none beyond the end.
    page: Rc<Mutex<()>>,
}

/// The servers of an agent.
pub(super) struct AgentServers {
    options: ServerOptions,
    memory_mib: u64,
    session: RefCell<Option<Session>>,
    /// The number of the next session.
    next: Cell<u64>,
}

impl AgentServers {
    pub(super) fn new(options: ServerOptions) -> Self {
        let memory_mib = options.machine.memory_mib();
        Self { options, memory_mib, session: RefCell::new(None), next: Cell::new(0) }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.session.borrow().is_some()
    }

    pub(super) fn address(&self) -> IpAddr {
        self.options.address
    }

    pub(super) fn memory_mib(&self) -> u64 {
        self.memory_mib
    }

    /// The run whose servers it has.
    pub(super) fn run(&self) -> Option<RunId> {
        self.session.borrow().as_ref().map(|session| session.run.clone())
    }

    /// A value of a server that runs.
    fn with<T>(
        &self,
        run: &RunId,
        server: ServerId,
        value: impl FnOnce(&RunningServer) -> T,
    ) -> Result<T, AgentReply> {
        let session = self.session.borrow();
        let of_run = session.as_ref().filter(|session| session.run == *run);
        let running = of_run.and_then(|session| session.running.get(&server));
        running.map(value).ok_or_else(|| AgentReply::Refused("it has no such server".to_owned()))
    }

    /// An admin page of a server.
    pub(super) async fn page(&self, run: &RunId, server: ServerId, path: String) -> AgentReply {
        if !PAGES.contains(&path.as_str()) {
            return AgentReply::Refused("it shows no such page".to_owned());
        }
        let found = self.with(run, server, |running| (Arc::clone(&running.server), Rc::clone(&running.page)));
        let (server, page) = match found {
            Ok(found) => found,
            Err(refused) => return refused,
        };
        let Ok(_reading) = page.try_lock() else {
            return AgentReply::Refused("a page of it is being read".to_owned());
        };
        match spawn_blocking(move || server.page(&path)).await {
            Ok(Ok(page)) => AgentReply::Page(page),
            Ok(Err(reason)) => AgentReply::Refused(reason),
            Err(error) => AgentReply::Refused(error.to_string()),
        }
    }

    pub(super) fn reading(&self, run: &RunId, server: ServerId) -> AgentReply {
        match self.with(run, server, |running| running.server.reading()) {
            Ok(Some(reading)) => AgentReply::Reading(reading),
            Ok(None) => AgentReply::Refused("the process has ended".to_owned()),
            Err(refused) => refused,
        }
    }

    /// Ends a server, and returns once it has ended.
    pub(super) async fn end(&self, run: &RunId, server: ServerId) -> AgentReply {
        let removed = {
            let mut session = self.session.borrow_mut();
            let of_run = session.as_mut().filter(|session| session.run == *run);
            of_run.and_then(|session| session.running.remove(&server))
        };
        if let Some(RunningServer { server, page }) = removed {
            let _last = page.lock().await;
            let _ = spawn_blocking(move || drop(server)).await;
        }
        AgentReply::Accepted
    }

    /// Ends all servers, and returns once they have ended.
    pub(super) async fn end_all(&self) {
        let Some(Session { running, folder, .. }) = self.session.borrow_mut().take() else { return };
        let servers: Vec<_> = running.into_values().map(|running| running.server).collect();
        let _ = spawn_blocking(move || {
            drop(servers);
            drop(folder);
        })
        .await;
    }

    /// The fault of a server that has ended, or of servers that take too much memory.
    fn fault(&self) -> Option<String> {
        let session = self.session.borrow();
        let servers =
            || session.iter().flat_map(|session| session.running.values()).map(|running| &running.server);
        if let Some(ended) = servers().find_map(|server| server.check().err()) {
            return Some(ended.to_string());
        }
        let taken_mib: u64 =
            servers().filter_map(|server| server.reading()).map(|reading| reading.rss_bytes >> 20).sum();
        let memory_mib = self.memory_mib;
        (memory_mib > 0 && taken_mib as f64 > memory_mib as f64 * MEMORY_SHARE_MAX).then(|| {
            format!("its servers took {taken_mib} MiB, more than 60 % of the machine's {memory_mib} MiB")
        })
    }

    /// Begins a session, if there is none. Returns its number if it is new.
    fn begin(&self, run: &RunId) -> io::Result<Option<u64>> {
        let mut session = self.session.borrow_mut();
        if session.is_some() {
            return Ok(None);
        }
        let (number, folder) = (self.next.replace(self.next.get() + 1), TempDir::new()?);
        let (running, starting) = (BTreeMap::new(), BTreeSet::new());
        *session = Some(Session { run: run.clone(), number, running, starting, folder });
        Ok(Some(number))
    }

    /// A place for a server: the number of the session, and a folder. The error is the reason.
    fn place(&self, run: &RunId, server: ServerId) -> Result<(u64, PathBuf), &'static str> {
        let mut session = self.session.borrow_mut();
        let session =
            session.as_mut().filter(|session| session.run == *run).ok_or("it is busy with another run")?;
        if session.running.len() + session.starting.len() >= SERVERS_MAX {
            return Err("it runs no more servers at a time");
        }
        if session.running.contains_key(&server) || !session.starting.insert(server) {
            return Err("it has this server");
        }
        Ok((session.number, session.folder.path().join(server.to_string())))
    }
}

impl Agent {
    /// Starts a server, and returns once it listens.
    pub(super) async fn start_server(
        self: Rc<Self>,
        run: RunId,
        server: ServerId,
        order: ServerOrder,
    ) -> AgentReply {
        let Some(servers) = &self.servers else { return no_servers() };
        let order = match checked_order(&order, servers.address(), &self.options.allowed) {
            Ok(order) => order,
            Err(reason) => return AgentReply::NotStarted { reason, is_usage: true },
        };
        let Ok(control) = self.client.subscribe(self.options.subject.control(&run)).await else {
            return AgentReply::Refused("it has no connection".to_owned());
        };
        match servers.begin(&run) {
            Ok(Some(_)) => drop(spawn_local(Rc::clone(&self).watch_servers(run.clone(), control))),
            Ok(None) => {}
            Err(error) => return not_started(&error),
        }
        let (session, folder) = match servers.place(&run, server) {
            Ok(place) => place,
            Err(reason) => return AgentReply::Refused(reason.to_owned()),
        };
        let machine = Arc::clone(&servers.options.machine);
        let start = move || {
            fs::create_dir(&folder)
                .map_err(|error| ServerError { message: error.to_string(), is_usage: false })?;
            machine.start(&order, &folder)
        };
        let started = spawn_blocking(start).await;
        let mut current = servers.session.borrow_mut();
        let current = current.as_mut().filter(|current| current.number == session);
        let Some(current) = current else {
            // Its coordinator is gone.
            drop(spawn_blocking(move || drop(started)));
            return AgentReply::Refused("it has ended".to_owned());
        };
        current.starting.remove(&server);
        match started {
            Ok(Ok(running)) => {
                let url = running.url().to_owned();
                current.running.insert(server, RunningServer { server: running.into(), page: Rc::default() });
                AgentReply::Server(url)
            }
            Ok(Err(ServerError { message, is_usage })) => {
                AgentReply::NotStarted { reason: message, is_usage }
            }
            Err(error) => not_started(&io::Error::other(error)),
        }
    }

    /// Follows the coordinator of the servers, and ends them without it.
    async fn watch_servers(self: Rc<Self>, run: RunId, mut control: Subscriber) {
        let Some(servers) = &self.servers else { return };
        let clock = self.options.clock;
        let mut lease: Nanos = lease_from(clock.now());
        let mut ticks = Ticks::every(ALIVE_INTERVAL);
        let subject = self.options.subject.status(&run, &self.id);
        let fault = loop {
            let is_alive = tokio::select! {
                biased;
                message = control.next() => {
                    match message.map(|message| serde_json::from_slice(&message.payload)) {
                        Some(Ok(ControlMessage::Alive)) => true,
                        Some(Err(_)) => continue,
                        Some(Ok(ControlMessage::Stop)) | None => break None,
                    }
                }
                () = ticks.tick() => false,
            };
            // A sign of life may have waited while this process was suspended.
            if clock.now() >= lease {
                break Some(silence());
            }
            if is_alive {
                lease = lease_from(clock.now());
                continue;
            }
            if let Some(fault) = servers.fault() {
                break Some(fault);
            }
            self.publish(&subject, &AgentStatus::Alive { ready: None }).await;
        };
        if let Some(reason) = fault {
            self.publish(&subject, &AgentStatus::Failed { reason }).await;
        }
        servers.end_all().await;
    }
}

pub(super) fn no_servers() -> AgentReply {
    AgentReply::Refused("it runs no servers: start it with --serve".to_owned())
}

fn not_started(error: &io::Error) -> AgentReply {
    AgentReply::NotStarted { reason: error.to_string(), is_usage: false }
}

/// Refuses a server that would touch more of this machine and its network than it may. Returns what was checked. The error is the reason.
fn checked_order(
    order: &ServerOrder,
    address: IpAddr,
    allowed: &AllowedTargets,
) -> Result<ServerOrder, String> {
    if let Some(listen) = order.listen.filter(|listen| listen.ip() != address) {
        return Err(format!(
            "it serves at {address}, and not at {listen}: write that address, or leave `listen` out"
        ));
    }
    let settings: Value =
        serde_json::from_str(&order.settings).map_err(|error| format!("its settings: {error}"))?;
    match order.role {
        Role::Origin => check_recipe(&settings)?,
        Role::Proxy => check_proxy(&settings, allowed)?,
        Role::Load => return Err("a load is no server".to_owned()),
    }
    // As it was read here: of a repeated key others may read the first value.
    Ok(ServerOrder { settings: settings.to_string(), ..*order })
}

/// Refuses a recipe that names a file.
fn check_recipe(recipe: &Value) -> Result<(), String> {
    match recipe {
        Value::String(text) if text.contains("empirical(") => {
            Err("an origin on an agent reads no file of latencies: write another latency".to_owned())
        }
        Value::Array(values) => values.iter().try_for_each(check_recipe),
        Value::Object(fields) => fields.values().try_for_each(check_recipe),
        _ => Ok(()),
    }
}

fn check_proxy(settings: &Value, allowed: &AllowedTargets) -> Result<(), String> {
    let settings = known_keys(settings, &PROXY_SETTINGS)?;
    for origin in tables(settings.get("origin"))? {
        let origin = known_keys(origin, &ORIGIN_SETTINGS)?;
        let urls = match origin.get("urls") {
            Some(Value::Array(urls)) => urls.as_slice(),
            Some(_) => return Err("`urls` of an origin are a list".to_owned()),
            None => &[],
        };
        origin
            .get("url")
            .into_iter()
            .chain(urls)
            .try_for_each(|url| check_url(url, &["http", "https"], allowed))?;
    }
    let routes = tables(settings.get("route"))?.iter().filter_map(|route| route.get("cache"));
    for cache in settings.get("cache").into_iter().chain(routes) {
        let cache = cache.as_object().ok_or("a `cache` is a table")?;
        cache.get("shared").into_iter().try_for_each(|url| check_url(url, &["redis", "rediss"], allowed))?;
    }
    Ok(())
}

/// A list of tables, whose places could have other meanings in a list of lists.
fn tables(value: Option<&Value>) -> Result<&[Value], String> {
    match value {
        Some(Value::Array(tables)) if tables.iter().all(Value::is_object) => Ok(tables),
        Some(_) => Err("`origin` and `route` are lists of tables".to_owned()),
        None => Ok(&[]),
    }
}

fn known_keys<'a>(table: &'a Value, known: &[&str]) -> Result<&'a Map<String, Value>, String> {
    let table = table.as_object().ok_or("the settings of a proxy are tables")?;
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!(
            "a proxy on an agent has no setting `{key}`: leave it out; it has {}",
            known.join(", ")
        )),
        None => Ok(table),
    }
}

fn check_url(url: &Value, schemes: &[&str], allowed: &AllowedTargets) -> Result<(), String> {
    let url = url.as_str().and_then(|url| url.parse::<Uri>().ok());
    let url = url.filter(|url| url.scheme_str().is_some_and(|scheme| schemes.contains(&scheme)));
    let Some(url) = url else {
        return Err(format!("a proxy on an agent reaches {} URLs here", schemes.join(" and ")));
    };
    let mut keys = url.query().unwrap_or_default().split('&').filter_map(|pair| pair.split('=').next());
    if let Some(key) = keys.find(|key| !key.is_empty() && !URL_PARAMETERS.contains(key)) {
        return Err(format!("a proxy on an agent has no `{key}` in its URLs: leave it out"));
    }
    if allowed.has_server(&url) {
        return Ok(());
    }
    let server = url.authority().map_or("", |authority| authority.as_str());
    let server = server.rsplit('@').next().unwrap_or_default();
    Err(format!(
        "its proxies may not reach {server}; allowed: {allowed}; allow more with --allow-target when it starts"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(role: Role, settings: &Value, listen: Option<&str>) -> Result<(), String> {
        let allowed = vec!["10.2.0.0/16:8080".parse().unwrap(), "*.example:*".parse().unwrap()].into();
        let listen = listen.map(|listen| listen.parse().unwrap());
        let order = ServerOrder { role, settings: settings.to_string(), listen };
        checked_order(&order, [10, 2, 0, 5].into(), &allowed).map(drop)
    }

    #[test]
    fn proxy_reaches_allowed_servers_only() {
        let proxy = |settings: &Value| checked(Role::Proxy, settings, None);
        for allowed in [
            json!({}),
            json!({"origin": [{"name": "a", "url": "http://10.2.0.9:8080"}], "cache": {"strategy": "swr"}}),
            json!({"origin": [{"urls": ["http://a.example", "https://b.example:99/x"]}]}),
            json!({"cache": {"shared": "redis://tier.example:6379?timeout=50ms"}, "route": [{"path": "/*"}]}),
        ] {
            assert_eq!(proxy(&allowed), Ok(()), "{allowed}");
        }
        for (refused, reason) in [
            (json!({"origin": [{"url": "http://10.2.0.9"}]}), "may not reach 10.2.0.9"),
            (json!({"origin": [{"url": "http://10.3.0.9:8080"}]}), "may not reach"),
            (json!({"origin": [{"url": "http://127.0.0.1:8080"}]}), "may not reach"),
            (json!({"origin": {"url": "http://a.example"}}), "lists of tables"),
            (json!({"origin": [["o", "sqlite:/var/lib/users.db"]]}), "lists of tables"),
            (json!({"route": [["/*"]]}), "lists of tables"),
            (json!({"cache": ["swr", "redis://10.9.9.9"]}), "a table"),
            (json!({"cache": {"shared": "redis://tier.example?timeout=1s&ca=/etc/shadow"}}), "`ca`"),
            (json!({"cache": {"shared": "redis://tier.example?c%61=/etc/shadow"}}), "`c%61`"),
            (
                json!({"origin": [{"urls": ["http://a.example", "http://u:secret@evil.test"]}]}),
                "may not reach evil.test;",
            ),
            (json!({"origin": [{"url": "sqlite:/var/lib/users.db"}]}), "http and https"),
            (json!({"origin": [{"url": 7}]}), "http and https"),
            (json!({"origin": [{"url": "http://a.example", "ca": "/etc/shadow"}]}), "`ca`"),
            (json!({"cache": {"shared": "redis://10.9.9.9"}}), "may not reach"),
            (json!({"cache": {"shared": "redis://evil.test,a.example"}}), "may not reach"),
            (json!({"route": [{"path": "/*", "cache": {"shared": "redis://10.9.9.9"}}]}), "may not reach"),
            (json!({"tls": {"cert": "a.pem"}}), "`tls`"),
            (json!({"listen": ["0.0.0.0:80"]}), "`listen`"),
            (json!({"log": {"path": "/etc/cron.d/x"}}), "`log`"),
            (json!({"snapshot": {"path": "/etc/cron.d/x"}}), "`snapshot`"),
            (json!({"admin": {"listen": "0.0.0.0:1"}}), "`admin`"),
            (json!([]), "tables"),
        ] {
            let error = proxy(&refused).unwrap_err();
            assert!(error.contains(reason) && !error.contains("secret"), "{refused}: {error}");
        }
    }

    #[test]
    fn origin_reads_no_file_of_its_machine() {
        let origin = |latency: &str| {
            checked(Role::Origin, &json!([{"route": "/*", "stages": [{"at": 0, "latency": latency}]}]), None)
        };
        assert_eq!(origin("uniform(1ms, 5ms)"), Ok(()));
        assert!(origin("empirical(/etc/passwd)").unwrap_err().contains("no file"));
        let hidden = r#"{"stages": [{"latency": "empiric\u0061l(/etc/passwd)", "latency": "1ms"}]}"#;
        let order = ServerOrder { role: Role::Origin, settings: hidden.to_owned(), listen: None };
        let checked = checked_order(&order, [10, 2, 0, 5].into(), &AllowedTargets::default()).unwrap();
        assert!(!checked.settings.contains("passwd"), "{}", checked.settings);
    }

    #[test]
    fn servers_listen_at_the_address_of_the_agent() {
        assert_eq!(checked(Role::Origin, &json!([]), Some("10.2.0.5:9000")), Ok(()));
        assert!(checked(Role::Origin, &json!([]), Some("0.0.0.0:9000")).is_err());
        assert!(checked(Role::Load, &json!([]), None).is_err());
    }
}
