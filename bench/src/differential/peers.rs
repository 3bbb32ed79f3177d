//! The proxies, each in front of an origin of its own, with the defaults of Debian where there are any.

use std::{error::Error, fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use crate::{generators::stockade, proxies::Proxy};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A kind of proxy.
pub struct Peer {
    pub name: &'static str,
    /// Prints its version.
    version: [&'static str; 2],
    pub address: &'static str,
    pub origin: &'static str,
    /// Writes its files into a folder, and returns the command and the settings that the report shows.
    configure: fn(&Peer, &Path) -> Result<(String, String)>,
}

/// A proxy that runs.
pub struct RunningPeer {
    pub name: &'static str,
    pub version: String,
    pub settings: String,
    pub address: &'static str,
    pub origin: &'static str,
    _process: Proxy,
}

/// Ours is the first.
pub const PEERS: [Peer; 5] = [
    Peer {
        name: "Stockade",
        version: ["", ""],
        address: "127.0.0.1:28101",
        origin: "127.0.0.1:28201",
        configure: stockade_proxy,
    },
    Peer {
        name: "nginx",
        version: ["nginx", "-v"],
        address: "127.0.0.1:28102",
        origin: "127.0.0.1:28202",
        configure: nginx,
    },
    Peer {
        name: "Varnish",
        version: ["varnishd", "-V"],
        address: "127.0.0.1:28103",
        origin: "127.0.0.1:28203",
        configure: varnish,
    },
    Peer {
        name: "HAProxy",
        version: ["haproxy", "-v"],
        address: "127.0.0.1:28104",
        origin: "127.0.0.1:28204",
        configure: haproxy,
    },
    Peer {
        name: "Traffic Server",
        version: ["traffic_server", "-V"],
        address: "127.0.0.1:28105",
        origin: "127.0.0.1:28205",
        configure: traffic_server,
    },
];

/// Further ones before real origins: nginx with connections that it keeps, which its defaults do not, and Squid.
pub const SMUGGLING_PEERS: [Peer; 2] = [
    Peer {
        name: "nginx, keepalive",
        version: ["nginx", "-v"],
        address: "127.0.0.1:28106",
        origin: "127.0.0.1:28206",
        configure: nginx_keepalive,
    },
    Peer {
        name: "Squid",
        version: ["squid", "-v"],
        address: "127.0.0.1:28107",
        origin: "127.0.0.1:28207",
        configure: squid,
    },
];

impl Peer {
    /// Starts it, and waits until it listens. `None`: it is not installed.
    pub fn start(&self, folder: &Path) -> Result<Option<RunningPeer>> {
        let version = if self.version[0].is_empty() {
            let output = Command::new(stockade()?).arg("--version").output()?;
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        } else {
            let Ok(output) = Command::new(self.version[0]).arg(self.version[1]).output() else {
                return Ok(None);
            };
            let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            printed.lines().find(|line| line.contains(|c: char| c.is_ascii_digit())).unwrap_or("").to_owned()
        };
        let (command, settings) = (self.configure)(self, folder)?;
        let run = format!("exec {command} > {}/{}.log 2>&1", folder.display(), self.address);
        let process = Proxy::start_anywhere(self.name, self.address, &["sh", "-c", &run])?;
        Ok(Some(RunningPeer {
            name: self.name,
            version,
            settings: settings.replace(&folder.display().to_string(), "FOLDER"),
            address: self.address,
            origin: self.origin,
            _process: process,
        }))
    }
}

/// The default strategy without its breaker, which the broken responses of the cases would open.
fn stockade_proxy(peer: &Peer, _: &Path) -> Result<(String, String)> {
    let arguments =
        format!("proxy --listen {} --origin http://{} --strategy fallback", peer.address, peer.origin);
    Ok((format!("{} {arguments}", stockade()?.display()), format!("stockade {arguments}")))
}

fn nginx(peer: &Peer, folder: &Path) -> Result<(String, String)> {
    let settings = format!(
        "proxy_cache_path {folder}/nginx keys_zone=all:16m;\n\
         server {{\n    listen {};\n    location / {{\n        proxy_pass http://{};\n        \
         proxy_cache all;\n    }}\n}}\n",
        peer.address,
        peer.origin,
        folder = folder.display()
    );
    Ok((nginx_command("nginx", folder, &settings)?, settings))
}

/// As its manual has it: <https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive>
fn nginx_keepalive(peer: &Peer, folder: &Path) -> Result<(String, String)> {
    let settings = format!(
        "proxy_cache_path {folder}/nginx-keepalive keys_zone=all:16m;\n\
         upstream origin {{\n    server {};\n    keepalive 16;\n}}\n\
         server {{\n    listen {};\n    location / {{\n        proxy_pass http://origin;\n        \
         proxy_http_version 1.1;\n        proxy_set_header Connection \"\";\n        proxy_cache all;\n    }}\n}}\n",
        peer.origin,
        peer.address,
        folder = folder.display()
    );
    Ok((nginx_command("nginx-keepalive", folder, &settings)?, settings))
}

/// Writes the file of an nginx, and returns its command.
fn nginx_command(name: &str, folder: &Path, settings: &str) -> Result<String> {
    let file = folder.join(format!("{name}.conf"));
    fs::create_dir_all(folder.join(name))?;
    fs::write(
        &file,
        format!(
            "user root;\ndaemon off;\nworker_processes 1;\npid {folder}/{name}.pid;\n\
             error_log {folder}/{name}.error;\nevents {{}}\nhttp {{\naccess_log off;\n{settings}}}\n",
            folder = folder.display()
        ),
    )?;
    Ok(format!("nginx -c {}", file.display()))
}

fn varnish(peer: &Peer, folder: &Path) -> Result<(String, String)> {
    let (host, port) = peer.origin.split_once(':').ok_or("an address without a port")?;
    let settings = format!(
        "varnishd -a {address} -b {host}:{port} -s malloc,64m    # the built-in VCL",
        address = peer.address
    );
    let command = format!(
        "varnishd -F -j none -a {} -b {host}:{port} -n {}/varnish -s malloc,64m",
        peer.address,
        folder.display()
    );
    Ok((command, settings))
}

fn haproxy(peer: &Peer, folder: &Path) -> Result<(String, String)> {
    let settings = format!(
        "defaults\n    mode http\n    timeout connect 5000\n    timeout client 50000\n    timeout server 50000\n\
         cache all\n    total-max-size 64\n    max-age 60\n\
         frontend all\n    bind {}\n    default_backend origin\n\
         backend origin\n    http-request cache-use all\n    http-response cache-store all\n    server origin {}\n",
        peer.address, peer.origin
    );
    let file = folder.join("haproxy.cfg");
    fs::write(&file, &settings)?;
    Ok((format!("haproxy -db -f {}", file.display()), settings))
}

/// Debian's files, with another root, another port and this origin.
fn traffic_server(peer: &Peer, folder: &Path) -> Result<(String, String)> {
    let root = folder.join("trafficserver");
    for name in ["etc", "run", "log", "cache"] {
        fs::create_dir_all(root.join(name))?;
    }
    for entry in fs::read_dir("/etc/trafficserver")? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), root.join("etc").join(entry.file_name()))?;
        }
    }
    let root_text = root.display();
    let layout = [
        ("prefix", root_text.to_string()),
        ("exec_prefix", "/usr".to_owned()),
        ("bindir", "/usr/bin".to_owned()),
        ("sbindir", "/usr/sbin".to_owned()),
        ("sysconfdir", format!("{root_text}/etc")),
        ("datadir", format!("{root_text}/cache")),
        ("includedir", "/usr/include".to_owned()),
        ("libdir", "/usr/lib/trafficserver".to_owned()),
        ("libexecdir", "/usr/lib/trafficserver/modules".to_owned()),
        ("localstatedir", root_text.to_string()),
        ("runtimedir", format!("{root_text}/run")),
        ("logdir", format!("{root_text}/log")),
        ("cachedir", format!("{root_text}/cache")),
    ];
    let layout: Vec<String> = layout.iter().map(|(name, path)| format!("{name}: {path}")).collect();
    fs::write(root.join("runroot.yaml"), layout.join("\n") + "\n")?;
    fs::write(root.join("etc/storage.config"), format!("{root_text}/cache 64M\n"))?;
    let map = format!("map / http://{}/", peer.origin);
    fs::write(root.join("etc/remap.config"), format!("{map}\n"))?;
    let records = root.join("etc/records.config");
    let (_, port) = peer.address.split_once(':').ok_or("an address without a port")?;
    let ports = format!("CONFIG proxy.config.http.server_ports STRING {port}:ip-in=127.0.0.1");
    let user = "CONFIG proxy.config.admin.user_id STRING #-1";
    fs::write(&records, format!("{}\n{ports}\n{user}\n", fs::read_to_string(&records)?))?;
    let settings =
        format!("# records.config\n{ports}\n# remap.config\n{map}\n# the other files as in the package\n");
    Ok((format!("traffic_server --run-root={root_text}/runroot.yaml"), settings))
}

/// In front of an origin, as its manual has it; in memory.
fn squid(peer: &Peer, folder: &Path) -> Result<(String, String)> {
    let (host, port) = peer.origin.split_once(':').ok_or("an address without a port")?;
    let settings = format!(
        "http_port {} accel defaultsite=a.test no-vhost\n\
         cache_peer {host} parent {port} 0 no-query originserver\n\
         cache_mem 64 MB\nhttp_access allow all\nshutdown_lifetime 0 seconds\n",
        peer.address
    );
    let root = folder.join("squid");
    fs::create_dir_all(&root)?;
    // As root it runs as a user of its own.
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777))?;
    let file = root.join("squid.conf");
    let files = format!(
        "pid_filename {root}/pid\ncache_log {root}/cache.log\naccess_log none\ncoredump_dir {root}\n",
        root = root.display()
    );
    fs::write(&file, format!("{settings}{files}"))?;
    Ok((format!("squid --foreground -f {}", file.display()), settings))
}
