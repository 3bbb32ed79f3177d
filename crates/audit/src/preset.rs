//! Installed servers as caches, with the configuration that their documentation begins with.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    net::SocketAddr,
    path::Path,
};

use crate::control::{Purge, StartedCache};
use stockade_model::{named, registry::Registry};
use stockade_services::{ProgramServer, ServiceError, Signal, path_or_name};

/// A server that an audit can start.
pub struct Preset {
    pub name: &'static str,
    pub summary: &'static str,
    /// The signal with which it reloads its configuration.
    reload: Option<Signal>,
    /// The request that removes a page, if its configuration allows one.
    purge: Option<&'static str>,
    /// Writes its configuration into a folder and returns its command.
    configure: fn(Settings<'_>) -> io::Result<Vec<String>>,
}

named!(Preset, "preset");

/// Each needs its program, which the message about a missing one names.
pub static PRESETS: Registry<Preset> = Registry::new(&[
    Preset {
        name: "nginx",
        summary: "proxy_cache with its defaults (Debian: nginx)",
        reload: Some(Signal::HUP),
        purge: None,
        configure: nginx,
    },
    Preset {
        name: "varnish",
        summary: "the built-in VCL (Debian: varnish)",
        reload: None,
        purge: None,
        configure: varnish,
    },
    Preset {
        name: "haproxy",
        summary: "cache-use and cache-store (Debian: haproxy)",
        reload: None,
        purge: None,
        configure: haproxy,
    },
    Preset {
        name: "squid",
        summary: "an accelerator with its defaults (Debian: squid)",
        reload: Some(Signal::HUP),
        purge: None,
        configure: squid,
    },
    Preset {
        name: "trafficserver",
        summary: "the files of its package (Debian: trafficserver)",
        reload: None,
        purge: None,
        configure: traffic_server,
    },
    Preset {
        name: "stockade",
        summary: "stockade proxy with its defaults",
        reload: Some(Signal::HUP),
        purge: Some("PURGE {url}"),
        configure: stockade,
    },
]);

/// The values in a configuration.
struct Settings<'a> {
    folder: &'a Path,
    port: u16,
    origin: SocketAddr,
}

impl Preset {
    /// Starts the server.
    ///
    /// # Errors
    /// The program is missing or does not start.
    pub fn start(&self, origin: SocketAddr) -> Result<StartedCache, ServiceError> {
        let configure = |folder: &Path, port| (self.configure)(Settings { folder, port, origin });
        Ok(StartedCache::new(ProgramServer::start(self.name, configure)?, self.reload))
    }

    /// The request that removes a page, if its configuration allows one.
    #[must_use]
    pub fn purge(&self) -> Option<Purge> {
        self.purge?.parse().ok()
    }
}

fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn nginx(Settings { folder, port, origin }: Settings<'_>) -> io::Result<Vec<String>> {
    let configuration = format!(
        "daemon off;
user root;
pid pid;
error_log stderr;
events {{ worker_connections 4096; }}
http {{
access_log off;
client_body_temp_path client_body;
proxy_temp_path proxy;
fastcgi_temp_path fastcgi;
uwsgi_temp_path uwsgi;
scgi_temp_path scgi;
proxy_cache_path cache keys_zone=pages:10m;
server {{
listen 127.0.0.1:{port};
location / {{ proxy_pass http://{origin}; proxy_cache pages; }}
}}
}}
"
    );
    fs::write(folder.join("nginx.conf"), configuration)?;
    let folder = folder.to_string_lossy();
    Ok(command(&[path_or_name("/usr/sbin/nginx"), "-p", &folder, "-e", "stderr", "-c", "nginx.conf"]))
}

#[expect(clippy::unnecessary_wraps, reason = "other servers write files")]
fn varnish(Settings { folder, port, origin }: Settings<'_>) -> io::Result<Vec<String>> {
    let (listen, origin) = (format!("127.0.0.1:{port}"), origin.to_string());
    let work = folder.join("varnish").to_string_lossy().into_owned();
    let varnishd = path_or_name("/usr/sbin/varnishd");
    Ok(command(&[
        varnishd,
        "-F",
        "-j",
        "none",
        "-a",
        &listen,
        "-b",
        &origin,
        "-n",
        &work,
        "-s",
        "malloc,256m",
    ]))
}

fn haproxy(Settings { folder, port, origin }: Settings<'_>) -> io::Result<Vec<String>> {
    let configuration = format!(
        "defaults
mode http
timeout connect 5s
timeout client 60s
timeout server 60s
cache pages
total-max-size 64
max-age 3600
frontend clients
bind 127.0.0.1:{port}
http-request cache-use pages
http-response cache-store pages
default_backend origin
backend origin
server origin {origin}
"
    );
    let file = folder.join("haproxy.cfg");
    fs::write(&file, configuration)?;
    Ok(command(&[path_or_name("/usr/sbin/haproxy"), "-db", "-f", &file.to_string_lossy()]))
}

fn squid(Settings { folder, port, origin }: Settings<'_>) -> io::Result<Vec<String>> {
    let (at, origin_port) = (folder.to_string_lossy(), origin.port());
    let configuration = format!(
        "http_port 127.0.0.1:{port} accel defaultsite=localhost
cache_peer {} parent {origin_port} 0 no-query originserver name=origin
http_access allow all
cache_peer_access origin allow all
pid_filename {at}/pid
cache_log {at}/cache.log
access_log none
coredump_dir {at}
visible_hostname localhost
shutdown_lifetime 1 seconds
",
        origin.ip()
    );
    let file = folder.join("squid.conf");
    fs::write(&file, configuration)?;
    Ok(command(&[path_or_name("/usr/sbin/squid"), "--foreground", "-f", &file.to_string_lossy()]))
}

fn traffic_server(Settings { folder, port, origin }: Settings<'_>) -> io::Result<Vec<String>> {
    let at = folder.to_string_lossy();
    let [etc, runroot] = ["etc", "runroot.yaml"].map(|name| folder.join(name));
    for name in ["etc", "run", "logs", "cache"] {
        fs::create_dir(folder.join(name))?;
    }
    for file in fs::read_dir("/etc/trafficserver")? {
        let file = file?;
        if file.file_type()?.is_file() {
            fs::copy(file.path(), etc.join(file.file_name()))?;
        }
    }
    let folders = format!(
        "prefix: {at}
exec_prefix: /usr
bindir: /usr/bin
sbindir: /usr/sbin
sysconfdir: {at}/etc
datadir: {at}/cache
includedir: /usr/include
libdir: /usr/lib/trafficserver
libexecdir: /usr/lib/trafficserver/modules
localstatedir: {at}
runtimedir: {at}/run
logdir: {at}/logs
cachedir: {at}/cache
"
    );
    fs::write(&runroot, folders)?;
    fs::write(etc.join("storage.config"), format!("{at}/cache 256M\n"))?;
    fs::write(etc.join("remap.config"), format!("map / http://{origin}/\n"))?;
    let records = format!(
        "CONFIG proxy.config.http.server_ports STRING {port}:ip-in=127.0.0.1
CONFIG proxy.config.admin.user_id STRING #-1
"
    );
    OpenOptions::new().append(true).open(etc.join("records.config"))?.write_all(records.as_bytes())?;
    Ok(command(&["traffic_server", &format!("--run-root={}", runroot.display())]))
}

/// The proxy of the program that runs the audit.
fn stockade(Settings { folder, port, origin }: Settings<'_>) -> io::Result<Vec<String>> {
    let configuration = format!(
        "listen = [\"127.0.0.1:{port}\"]

[[origin]]
url = \"http://{origin}\"

[admin]
listen = \"127.0.0.1:0\"
purge_from = [\"127.0.0.1\"]
"
    );
    let file = folder.join("stockade.toml");
    fs::write(&file, configuration)?;
    let program = std::env::current_exe()?;
    Ok(command(&[&program.to_string_lossy(), "proxy", "--config", &file.to_string_lossy()]))
}

impl std::fmt::Debug for Preset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Preset").field(&self.name).finish()
    }
}
