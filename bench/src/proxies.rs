//! Caches in front of an origin, each in its own process on one core.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use stockade_model::proc::{process_tree, proportional_bytes};

use crate::{
    generators::stockade,
    origin::{ORIGIN, Server},
    process::cpu_seconds,
    suite::OURS,
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

/// The settings of an nginx.
pub struct Nginx {
    pub name: &'static str,
    pub address: &'static str,
    /// As `taskset` has them.
    pub cores: &'static str,
    pub is_sendfile: bool,
    /// `None`: HTTP/1.1 without TLS; otherwise TLS 1.3 with HTTP/1.1 and HTTP/2.
    pub certificate: Option<Certificate>,
    /// The file of its access log, written in blocks of 64 KiB.
    pub log: Option<PathBuf>,
    /// The size of the keys' zone and the limit of the store.
    pub zone: &'static str,
    pub limit: &'static str,
    /// The time after which a request does not wait for another one any more.
    pub lock: &'static str,
}

impl Nginx {
    /// One worker on the first core, 256 MiB, no TLS and no log.
    #[must_use]
    pub fn new(name: &'static str, address: &'static str) -> Self {
        Self {
            name,
            address,
            cores: "0",
            is_sendfile: false,
            certificate: None,
            log: None,
            zone: "16m",
            limit: "256m",
            lock: "1m",
        }
    }

    /// The folder of its store, in memory.
    #[must_use]
    pub fn store(&self, folder: &Path) -> PathBuf {
        in_memory(folder).join(format!("nginx-{}", self.address.rsplit(':').next().unwrap_or_default()))
    }
}

/// Files of a self-signed certificate.
#[derive(Clone)]
pub struct Certificate {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Certificate {
    /// For 127.0.0.1, with a key on the curve P-256.
    pub fn create(folder: &Path) -> Result<Self> {
        let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        let output = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"])
            .arg("-out")
            .arg(&cert)
            .arg("-keyout")
            .arg(&key)
            .output()?;
        if !output.status.success() {
            return Err(format!("openssl: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(Self { cert, key })
    }
}

pub struct Proxy {
    /// Its name in tables.
    pub name: &'static str,
    pub address: &'static str,
    server: Server,
}

impl Proxy {
    /// `stockade proxy` with `more` in its configuration, on these cores, with a thread on each; without a log, unless `more` has one.
    pub fn stockade(folder: &Path, cores: &str, more: &str) -> Result<Self> {
        Self::stockade_at(OURS, "127.0.0.1:18082", folder, cores, more)
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
        let log = if more.contains("[log]") { "" } else { "[log]\nformat = \"none\"\n" };
        let text = format!(
            "listen = [\"{address}\"]\nthreads = {threads}\n{log}\
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

    /// nginx with `proxy_cache` in memory (`/dev/shm`) and a worker for each core.
    pub fn nginx(folder: &Path, nginx: &Nginx) -> Result<Self> {
        let Nginx { name, address, cores, is_sendfile, certificate, log, zone, limit, lock } = nginx;
        let id = address.rsplit(':').next().unwrap_or_default();
        let file = folder.join(format!("nginx-{id}.conf"));
        let store = nginx.store(folder);
        fs::create_dir_all(&store)?;
        let (sendfile, workers) = (if *is_sendfile { "on" } else { "off" }, cores.split(',').count());
        let log = log
            .as_ref()
            .map_or("off".to_owned(), |log| format!("{} combined buffer=64k flush=1s", log.display()));
        let (tls, listen) = certificate.as_ref().map_or_else(
            || (String::new(), ""),
            |Certificate { cert, key }| {
                let (cert, key) = (cert.display(), key.display());
                (
                    format!("ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;"),
                    " ssl http2",
                )
            },
        );
        let text = format!(
            "user root; daemon off; worker_processes {workers}; worker_rlimit_nofile 60000;\n\
             pid {folder}/nginx-{id}.pid; error_log {folder}/nginx-{id}.error;\n\
             events {{ worker_connections 25000; }}\n\
             http {{\n\
             access_log {log}; sendfile {sendfile}; tcp_nopush on; tcp_nodelay on; server_tokens off;\n\
             keepalive_requests 1000000000; keepalive_timeout 75s;\n\
             open_file_cache max=1000; open_file_cache_valid 1h; output_buffers 2 512k; {tls}\n\
             proxy_cache_path {store} levels=1:2 keys_zone=all:{zone} max_size={limit} inactive=1h use_temp_path=off;\n\
             server {{ listen {address}{listen} backlog=16384; location / {{\n\
             proxy_pass http://{ORIGIN}; proxy_http_version 1.1; proxy_set_header Connection '';\n\
             proxy_cache all; proxy_cache_lock on; proxy_cache_lock_timeout {lock}; proxy_cache_lock_age {lock};\n\
             proxy_cache_key $uri$is_args$args;\n\
             add_header Via '1.1 nginx'; add_header Age 0;\n\
             add_header Cache-Status 'nginx; ttl=3600; detail=$upstream_cache_status';\n\
             }} }} }}\n",
            folder = folder.display(),
            store = store.display(),
        );
        fs::write(&file, text)?;
        Self::start(name, address, cores, &["nginx", "-c", file.to_str().ok_or("a path that is not text")?])
    }

    /// Varnish with its store of `limit` on the heap, one pool of threads, and only the log that cannot be disabled.
    pub fn varnish(folder: &Path, cores: &str, limit: &str) -> Result<Self> {
        let address = "127.0.0.1:18085";
        let (host, port) = ORIGIN.split_once(':').ok_or("an address without a port")?;
        let file = folder.join("varnish.vcl");
        fs::write(
            &file,
            format!("vcl 4.1;\nbackend default {{ .host = \"{host}\"; .port = \"{port}\"; }}\n"),
        )?;
        let mask = VARNISH_LOG_RECORDS.map(|tag| format!("-{tag}")).join(",");
        let run = format!(
            "exec varnishd -F -j none -a {address} -f {} -n {}/varnish -s malloc,{limit} -p thread_pools=1 \
             -p thread_pool_min=200 -p listen_depth=16384 -p vsl_mask={mask} > {}/varnish.log 2>&1",
            file.display(),
            folder.display(),
            folder.display(),
        );
        Self::start("Varnish", address, cores, &["sh", "-c", &run])
    }

    fn start(name: &'static str, address: &'static str, cores: &str, program: &[&str]) -> Result<Self> {
        Ok(Self { name, address, server: Server::start_on(cores, program, address)? })
    }

    /// Its memory, including its child processes; pages that they share count once.
    pub fn resident_bytes(&self) -> Result<u64> {
        let bytes = process_tree(self.process()).into_iter().map(proportional_bytes);
        bytes.sum::<Option<u64>>().ok_or_else(|| format!("{} has no smaps_rollup", self.name).into())
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
        process_tree(self.process()).into_iter().map(cpu_seconds).sum()
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
