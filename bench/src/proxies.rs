//! Caches in front of an origin, each in its own process on one core.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    generators::stockade,
    origin::{ORIGIN, Server},
    process::cpu_seconds,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The limit for a cache's shutdown.
const PATIENCE: Duration = Duration::from_secs(10);

/// The log records that Varnish writes for each hit by default.
const VARNISH_LOG_RECORDS: [&str; 23] = [
    "Begin",
    "End",
    "Hit",
    "Link",
    "ReqAcct",
    "ReqHeader",
    "ReqMethod",
    "ReqProtocol",
    "ReqStart",
    "ReqURL",
    "ReqUnset",
    "RespHeader",
    "RespProtocol",
    "RespReason",
    "RespStatus",
    "RespUnset",
    "SessClose",
    "SessOpen",
    "Timestamp",
    "VCL_Log",
    "VCL_call",
    "VCL_return",
    "VCL_use",
];

pub struct Proxy {
    /// Its name in tables.
    pub name: &'static str,
    pub address: &'static str,
    server: Server,
}

impl Proxy {
    /// `stockade proxy` with `more` in its configuration, on these cores, with a thread on each.
    pub fn stockade(folder: &Path, cores: &str, more: &str) -> Result<Self> {
        Self::stockade_at("stockade proxy", "127.0.0.1:18082", folder, cores, more)
    }

    /// As [`stockade`](Self::stockade), where several run at once.
    pub fn stockade_at(
        name: &'static str,
        address: &'static str,
        folder: &Path,
        cores: &str,
        more: &str,
    ) -> Result<Self> {
        let threads = cores.split(',').count();
        let file = folder.join(format!("{name}.toml"));
        let text = format!(
            "listen = [\"{address}\"]\nthreads = {threads}\n[log]\nformat = \"none\"\n\
             [[origin]]\nurl = \"http://{ORIGIN}\"\n{more}"
        );
        fs::write(&file, text)?;
        let program = stockade()?;
        let run = format!(
            "exec {} proxy --config '{}' > '{}' 2>&1",
            program.display(),
            file.display(),
            folder.join(name).display()
        );
        Self::start(name, address, cores, &["sh", "-c", &run])
    }

    /// nginx with `proxy_cache` in memory (`/dev/shm`), one worker.
    pub fn nginx(folder: &Path, is_sendfile: bool) -> Result<Self> {
        let (name, address, setting) = if is_sendfile {
            ("nginx, sendfile on", "127.0.0.1:18083", "on")
        } else {
            ("nginx, sendfile off", "127.0.0.1:18084", "off")
        };
        let file = folder.join(format!("nginx-{setting}.conf"));
        let store = in_memory(folder).join(format!("nginx-{setting}"));
        fs::create_dir_all(&store)?;
        let text = format!(
            "user root; daemon off; worker_processes 1;\n\
             pid {folder}/nginx-{setting}.pid; error_log {folder}/nginx-{setting}.error;\n\
             events {{ worker_connections 4096; }}\n\
             http {{\n\
             access_log off; sendfile {setting}; tcp_nopush on; tcp_nodelay on; server_tokens off;\n\
             keepalive_requests 1000000000; keepalive_timeout 75s;\n\
             open_file_cache max=1000; open_file_cache_valid 1h; output_buffers 2 512k;\n\
             proxy_cache_path {store} levels=1:2 keys_zone=all:16m max_size=256m inactive=1h use_temp_path=off;\n\
             server {{ listen {address}; location / {{\n\
             proxy_pass http://{ORIGIN}; proxy_http_version 1.1; proxy_set_header Connection '';\n\
             proxy_cache all; proxy_cache_lock on; proxy_cache_key $uri$is_args$args;\n\
             add_header Via '1.1 nginx'; add_header Age 0;\n\
             add_header Cache-Status 'nginx; ttl=3600; detail=$upstream_cache_status';\n\
             }} }} }}\n",
            folder = folder.display(),
            store = store.display(),
        );
        fs::write(&file, text)?;
        Self::start(name, address, "0", &["nginx", "-c", file.to_str().ok_or("a path that is no text")?])
    }

    /// Varnish with its store on the heap, one pool of threads, and only the log that cannot be disabled.
    pub fn varnish(folder: &Path) -> Result<Self> {
        let address = "127.0.0.1:18085";
        let (host, port) = ORIGIN.split_once(':').ok_or("an address without a port")?;
        let file = folder.join("varnish.vcl");
        fs::write(
            &file,
            format!("vcl 4.1;\nbackend default {{ .host = \"{host}\"; .port = \"{port}\"; }}\n"),
        )?;
        let mask = VARNISH_LOG_RECORDS.map(|tag| format!("-{tag}")).join(",");
        let run = format!(
            "exec varnishd -F -j none -a {address} -f {} -n {}/varnish -s malloc,256m -p thread_pools=1 \
             -p thread_pool_min=200 -p vsl_mask={mask} > {}/varnish.log 2>&1",
            file.display(),
            folder.display(),
            folder.display(),
        );
        Self::start("Varnish", address, "0", &["sh", "-c", &run])
    }

    fn start(name: &'static str, address: &'static str, cores: &str, program: &[&str]) -> Result<Self> {
        Ok(Self { name, address, server: Server::start_on(cores, program, address)? })
    }

    /// A program on any core.
    pub fn start_anywhere(name: &'static str, address: &'static str, program: &[&str]) -> Result<Self> {
        Ok(Self { name, address, server: Server::start_anywhere(program, address)? })
    }

    /// The process that was started.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.server.0.id()
    }

    /// Its processor time, including its child processes.
    pub fn cpu_seconds(&self) -> Result<f64> {
        with_children(self.process())?.into_iter().map(cpu_seconds).sum()
    }
}

impl Drop for Proxy {
    /// SIGTERM, since a killed parent would leave its child processes behind.
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.process().to_string()).status();
        let began = Instant::now();
        while began.elapsed() < PATIENCE && matches!(self.server.0.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A folder in memory for the files that a cache would otherwise write to a disk.
#[must_use]
pub fn in_memory(folder: &Path) -> PathBuf {
    Path::new("/dev/shm").join(folder.file_name().unwrap_or_default())
}

/// A process and its child processes.
fn with_children(process: u32) -> Result<Vec<u32>> {
    let mut all = vec![process];
    let mut at = 0;
    while let Some(process) = all.get(at) {
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
        for child in children.split_whitespace() {
            all.push(child.parse()?);
        }
        at += 1;
    }
    Ok(all)
}
