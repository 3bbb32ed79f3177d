//! The servers that an agent runs: origins and proxies of a coordinator's measurements.

use std::{cell::RefCell, collections::BTreeMap, fs, io, net::IpAddr, rc::Rc, sync::Arc};

use async_nats::Subscriber;
use futures_util::StreamExt;
use http::Uri;
use serde_json::{Map, Value};
use stockade_load::AllowedTargets;
use stockade_model::{
    record::Role,
    server::{HostedServer, ServerError, ServerHost, ServerOrder},
};
use tempfile::TempDir;
use tokio::task::{spawn_blocking, spawn_local};

use super::Agent;
use crate::{
    clock::Nanos,
    wait::Ticks,
    wire::{ALIVE_INTERVAL, AgentReply, AgentStatus, ControlMessage, RunId, ServerId, lease_from},
};

/// A machine that runs servers, and its address.
#[derive(Clone, Debug)]
pub struct ServerMachine {
    /// What starts them.
    pub host: Arc<dyn ServerHost>,
    /// Where they listen.
    pub address: IpAddr,
}

/// The settings of a proxy that name no file and no address of its machine.
const PROXY_SETTINGS: [&str; 8] =
    ["bounds", "cache", "hosts", "origin", "route", "shadow", "threads", "timeouts"];
/// Those of its origins; addresses are checked.
const ORIGIN_SETTINGS: [&str; 9] =
    ["connections", "health", "host_header", "http2", "name", "timeouts", "url", "urls", "waiting"];
/// The admin pages that a coordinator may read.
const PAGES: [&str; 3] = ["/current_count", "/start", "/stats"];
/// The most servers of a run at a time.
const SERVERS_MAX: usize = 4;
/// The share of the machine's memory that its servers may take.
const MEMORY_SHARE_MAX: f64 = 0.6;

/// The servers of one coordinator.
pub(super) struct Session {
    run: RunId,
    running: BTreeMap<ServerId, Arc<dyn HostedServer>>,
    /// Servers that are being started.
    starting: usize,
    folder: TempDir,
}

/// The servers of an agent.
pub(super) struct AgentServers {
    machine: ServerMachine,
    session: RefCell<Option<Session>>,
}

impl AgentServers {
    pub(super) fn new(machine: ServerMachine) -> Self {
        Self { machine, session: RefCell::new(None) }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.session.borrow().is_some()
    }

    pub(super) fn address(&self) -> IpAddr {
        self.machine.address
    }

    pub(super) fn memory_mib(&self) -> u64 {
        self.machine.host.memory_mib()
    }

    /// The run whose servers it has.
    pub(super) fn run(&self) -> Option<RunId> {
        self.session.borrow().as_ref().map(|session| session.run.clone())
    }

    fn server(&self, run: &RunId, server: ServerId) -> Result<Arc<dyn HostedServer>, AgentReply> {
        let session = self.session.borrow();
        let of_run = session.as_ref().filter(|session| session.run == *run);
        let found = of_run.and_then(|session| session.running.get(&server)).cloned();
        found.ok_or_else(|| AgentReply::Refused("it has no such server".to_owned()))
    }

    /// An admin page of a server.
    pub(super) async fn page(&self, run: &RunId, server: ServerId, path: String) -> AgentReply {
        if !PAGES.contains(&path.as_str()) {
            return AgentReply::Refused("it shows no such page".to_owned());
        }
        let server = match self.server(run, server) {
            Ok(server) => server,
            Err(refused) => return refused,
        };
        match spawn_blocking(move || server.page(&path)).await {
            Ok(Ok(page)) => AgentReply::Page(page),
            Ok(Err(reason)) => AgentReply::Refused(reason),
            Err(error) => AgentReply::Refused(error.to_string()),
        }
    }

    pub(super) fn reading(&self, run: &RunId, server: ServerId) -> AgentReply {
        match self.server(run, server).map(|server| server.reading()) {
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
        let _ = spawn_blocking(move || drop(removed)).await;
        AgentReply::Accepted
    }

    /// Ends all servers, and returns once they have ended.
    pub(super) async fn end_all(&self) {
        let session = self.session.borrow_mut().take();
        let _ = spawn_blocking(move || drop(session)).await;
    }

    /// The fault of a server that has ended, or that takes too much memory.
    fn fault(&self) -> Option<String> {
        let mut session = self.session.borrow_mut();
        let running = &mut session.as_mut()?.running;
        if let Some(ended) = running.values().find_map(|server| server.check().err()) {
            return Some(ended.to_string());
        }
        let taken_mib: u64 = running
            .values()
            .filter_map(|server| server.reading())
            .map(|reading| reading.rss_bytes >> 20)
            .sum();
        let memory_mib = self.memory_mib();
        (memory_mib > 0 && taken_mib as f64 > memory_mib as f64 * MEMORY_SHARE_MAX).then(|| {
            format!("its servers took {taken_mib} MiB, more than 60 % of the machine's {memory_mib} MiB")
        })
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
        if let Err(reason) = check(&order, servers.address(), &self.options.allowed) {
            return AgentReply::NotStarted { reason, is_usage: true };
        }
        if servers.session.borrow().is_none() {
            let folder = match TempDir::new() {
                Ok(folder) => folder,
                Err(error) => return not_started(&error),
            };
            let session = Session { run: run.clone(), running: BTreeMap::new(), starting: 0, folder };
            *servers.session.borrow_mut() = Some(session);
            let Ok(control) = self.client.subscribe(self.options.subject.control(&run)).await else {
                return AgentReply::Refused("it has no connection".to_owned());
            };
            spawn_local(Rc::clone(&self).watch_servers(run.clone(), control));
        }
        let folder = {
            let mut session = servers.session.borrow_mut();
            let Some(session) = session.as_mut().filter(|session| session.run == run) else {
                return AgentReply::Refused("it is busy with another run".to_owned());
            };
            if session.running.len() + session.starting >= SERVERS_MAX {
                return AgentReply::Refused(format!("it runs {SERVERS_MAX} servers, and no more"));
            }
            session.starting += 1;
            session.folder.path().join(server.to_string())
        };
        let host = Arc::clone(&servers.machine.host);
        let start = move || {
            fs::create_dir_all(&folder)
                .map_err(|error| ServerError { message: error.to_string(), is_usage: false })?;
            host.start(&order, &folder)
        };
        let started = match spawn_blocking(start).await {
            Ok(started) => started,
            Err(error) => return not_started(&io::Error::other(error)),
        };
        let mut session = servers.session.borrow_mut();
        let of_run = session.as_mut().filter(|session| session.run == run);
        match (of_run, started) {
            (Some(session), Ok(running)) => {
                session.starting -= 1;
                let url = running.url().to_owned();
                session.running.insert(server, running.into());
                AgentReply::Server(url)
            }
            (session, Err(ServerError { message, is_usage })) => {
                session.into_iter().for_each(|session| session.starting -= 1);
                AgentReply::NotStarted { reason: message, is_usage }
            }
            (None, Ok(running)) => {
                // Its coordinator is gone.
                drop(spawn_blocking(move || drop(running)));
                AgentReply::Refused("it has ended".to_owned())
            }
        }
    }

    /// Follows the coordinator of the servers, and ends them without it.
    async fn watch_servers(self: Rc<Self>, run: RunId, mut control: Subscriber) {
        let Some(servers) = &self.servers else { return };
        let (clock, subject) = (self.options.clock, self.options.subject.status(&run, &self.id));
        let mut lease: Nanos = lease_from(clock.now());
        let mut ticks = Ticks::every(ALIVE_INTERVAL);
        loop {
            tokio::select! {
                biased;
                message = control.next() => {
                    match message.map(|message| serde_json::from_slice(&message.payload)) {
                        Some(Ok(ControlMessage::Alive)) if clock.now() < lease => lease = lease_from(clock.now()),
                        Some(Err(_)) => {}
                        // It waited while this process was suspended.
                        Some(Ok(ControlMessage::Alive | ControlMessage::Stop)) | None => break,
                    }
                }
                () = ticks.tick() => {
                    if clock.now() >= lease {
                        break;
                    }
                    let status = match servers.fault() {
                        Some(reason) => AgentStatus::Failed { reason },
                        None => AgentStatus::Alive { ready: None },
                    };
                    self.publish(&subject, &status).await;
                }
            }
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

/// Refuses a server that would touch more of this machine and its network than it may. The error is the reason.
fn check(order: &ServerOrder, address: IpAddr, allowed: &AllowedTargets) -> Result<(), String> {
    if let Some(listen) = order.listen.filter(|listen| listen.ip() != address) {
        return Err(format!(
            "it serves at {address}, and not at {listen}: write that address, or leave `listen` out"
        ));
    }
    match order.role {
        Role::Origin => Ok(()),
        Role::Load => Err("a load is no server".to_owned()),
        Role::Proxy => check_proxy(&order.settings, allowed),
    }
}

fn check_proxy(settings: &str, allowed: &AllowedTargets) -> Result<(), String> {
    let settings: Map<String, Value> =
        serde_json::from_str(settings).map_err(|error| format!("the proxy's settings: {error}"))?;
    refuse_others(&settings, &PROXY_SETTINGS, "a proxy")?;
    let tables = |value: Option<&Value>| match value {
        Some(Value::Array(tables)) => tables.iter().filter_map(Value::as_object).cloned().collect(),
        Some(Value::Object(table)) => vec![table.clone()],
        _ => Vec::new(),
    };
    let mut urls = Vec::new();
    for origin in tables(settings.get("origin")) {
        refuse_others(&origin, &ORIGIN_SETTINGS, "an origin of a proxy")?;
        let of_origin = origin.get("url").into_iter();
        urls.extend(
            of_origin.chain(origin.get("urls").and_then(Value::as_array).into_iter().flatten()).cloned(),
        );
    }
    let caches = tables(settings.get("route")).into_iter().filter_map(|mut route| route.remove("cache"));
    for cache in settings.get("cache").cloned().into_iter().chain(caches) {
        urls.extend(cache.get("shared").cloned());
    }
    for url in urls {
        let url = url.as_str().unwrap_or_default();
        let parsed = url.parse::<Uri>().ok();
        let is_network = parsed
            .as_ref()
            .is_some_and(|url| matches!(url.scheme_str(), Some("http" | "https" | "redis" | "rediss")));
        if !is_network {
            return Err("a proxy on an agent has origins over HTTP, and a shared tier in Redis".to_owned());
        }
        if let Some(url) = parsed.filter(|url| !allowed.has_server(url)) {
            let server = url.authority().map_or("", |authority| authority.as_str());
            let server = server.rsplit('@').next().unwrap_or_default();
            return Err(format!(
                "its proxies may not reach {server}; allowed: {allowed}; allow more with --allow-target when it starts"
            ));
        }
    }
    Ok(())
}

fn refuse_others(table: &Map<String, Value>, allowed: &[&str], of: &str) -> Result<(), String> {
    match table.keys().find(|key| !allowed.contains(&key.as_str())) {
        Some(key) => {
            Err(format!("the setting `{key}` of {of} names files or addresses of one machine: leave it out"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(role: Role, settings: &Value, listen: Option<&str>) -> Result<(), String> {
        let allowed = vec!["10.2.0.0/16:8080".parse().unwrap(), "*.example:*".parse().unwrap()].into();
        let listen = listen.map(|listen| listen.parse().unwrap());
        check(&ServerOrder { role, settings: settings.to_string(), listen }, [10, 2, 0, 5].into(), &allowed)
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
            (json!({"origin": {"url": "http://127.0.0.1:8080"}}), "may not reach"),
            (
                json!({"origin": [{"urls": ["http://a.example", "http://u:secret@evil.test"]}]}),
                "may not reach evil.test;",
            ),
            (json!({"origin": [{"url": "sqlite:/var/lib/users.db"}]}), "over HTTP"),
            (json!({"origin": [{"url": 7}]}), "over HTTP"),
            (json!({"origin": [{"url": "http://a.example", "ca": "/etc/shadow"}]}), "`ca`"),
            (json!({"cache": {"shared": "redis://10.9.9.9"}}), "may not reach"),
            (json!({"route": [{"path": "/*", "cache": {"shared": "redis://10.9.9.9"}}]}), "may not reach"),
            (json!({"tls": {"cert": "a.pem"}}), "`tls`"),
            (json!({"listen": ["0.0.0.0:80"]}), "`listen`"),
            (json!({"log": {"path": "/etc/cron.d/x"}}), "`log`"),
            (json!({"snapshot": {"path": "/etc/cron.d/x"}}), "`snapshot`"),
            (json!({"admin": {"listen": "0.0.0.0:1"}}), "`admin`"),
            (json!([]), "settings"),
        ] {
            let error = proxy(&refused).unwrap_err();
            assert!(error.contains(reason) && !error.contains("secret"), "{refused}: {error}");
        }
    }

    #[test]
    fn servers_listen_at_the_address_of_the_agent() {
        assert_eq!(checked(Role::Origin, &json!([]), Some("10.2.0.5:9000")), Ok(()));
        assert!(checked(Role::Origin, &json!([]), Some("0.0.0.0:9000")).is_err());
        assert!(checked(Role::Load, &json!([]), None).is_err());
    }
}
