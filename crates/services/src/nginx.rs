//! nginx, with files that it serves and, with `dav_methods PUT`, accepts.

use std::{ffi::OsString, fs, path::PathBuf};

use crate::{
    RunningServer, ServiceError, certificate,
    process::{accepts, path_or_name},
    server::is_a_server,
};

const PROGRAM: &str = "/usr/sbin/nginx";

const GENERAL: &str = "\
daemon off;
master_process off;
pid pid;
events { worker_connections 1024; }
";

/// Paths, log format and timeouts of the `http` block.
const HTTP: &str = "\
client_body_temp_path client_body;
proxy_temp_path proxy;
fastcgi_temp_path fastcgi;
uwsgi_temp_path uwsgi;
scgi_temp_path scgi;
log_format connections '$connection';
access_log connections connections;
keepalive_requests 1000000;
client_max_body_size 0;
default_type application/json;
";

/// An nginx server without documents.
#[derive(Debug)]
pub struct NginxServer {
    server: RunningServer,
    has_tls: bool,
}

impl NginxServer {
    /// Starts a server for the files in [`NginxServer::documents`].
    pub fn start() -> Result<Self, ServiceError> {
        Self::with(&[])
    }

    /// Starts a server with more settings of its `server` block: with `["dav_methods PUT"]` it accepts documents.
    pub fn with(settings: &[&str]) -> Result<Self, ServiceError> {
        Self::new(settings, false)
    }

    /// Starts a server that speaks only TLS, with a self-signed certificate for the host `localhost`.
    pub fn with_tls(settings: &[&str]) -> Result<Self, ServiceError> {
        Self::new(settings, true)
    }

    fn new(settings: &[&str], has_tls: bool) -> Result<Self, ServiceError> {
        let mut nginx = Self { server: RunningServer::new("nginx")?, has_tls };
        fs::create_dir(nginx.documents())?;
        if has_tls {
            certificate::make(nginx.folder())?;
        }
        fs::write(nginx.folder().join("nginx.conf"), nginx.configuration(settings))?;
        nginx.restart()?;
        Ok(nginx)
    }

    /// One process handles all connections and logs the connection of each request.
    fn configuration(&self, settings: &[&str]) -> String {
        let (port, tls) = (self.port(), if self.has_tls { " ssl" } else { "" });
        let mut server = vec![format!("listen 127.0.0.1:{port}{tls}"), "root documents".to_owned()];
        if self.has_tls {
            server.push(format!("ssl_certificate {}", certificate::CERTIFICATE));
            server.push(format!("ssl_certificate_key {}", certificate::KEY));
        }
        server.extend(settings.iter().map(|&setting| setting.to_owned()));
        let server = server.join(";\n");
        format!("{GENERAL}http {{\n{HTTP}server {{\n{server};\n}}\n}}\n")
    }

    /// Restarts the server on the same port, with its documents. Kills it first if it runs.
    pub fn restart(&mut self) -> Result<(), ServiceError> {
        let folder = self.folder();
        let command: [OsString; 7] = [
            path_or_name(PROGRAM).into(),
            "-p".into(),
            folder.into(),
            "-c".into(),
            folder.join("nginx.conf").into(),
            "-e".into(),
            "stderr".into(),
        ];
        self.server.start("KILL", &command, accepts)
    }

    /// `http://127.0.0.1:PORT`, or `https://localhost:PORT` with TLS.
    #[must_use]
    pub fn url(&self) -> String {
        if self.has_tls {
            return format!("https://localhost:{}", self.port());
        }
        format!("http://127.0.0.1:{}", self.port())
    }

    /// The folder of the documents.
    #[must_use]
    pub fn documents(&self) -> PathBuf {
        self.folder().join("documents")
    }

    /// The file with the certificate, if there is one.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder().join(certificate::CERTIFICATE)
    }

    /// The connection number of each request, in the order of the responses.
    pub fn connections(&self) -> Result<Vec<u64>, ServiceError> {
        let written = fs::read_to_string(self.folder().join("connections"))?;
        Ok(written.lines().filter_map(|line| line.parse().ok()).collect())
    }
}

is_a_server!(NginxServer);
