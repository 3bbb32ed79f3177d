//! Prometheus, which scrapes and evaluates rules once a second.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
};

use crate::{RunningServer, ServiceError, server::is_a_server};

#[derive(Debug)]
pub struct PrometheusServer {
    server: RunningServer,
}

impl PrometheusServer {
    /// Starts a server that scrapes `/metrics` of the target, as the job `job`, and has these rules.
    pub fn start(job: &str, target: SocketAddr, rules: &Path) -> Result<Self, ServiceError> {
        let mut server = RunningServer::new("prometheus")?;
        let (file, data) = (server.folder().join("prometheus.yml"), server.folder().join("data"));
        let rules = rules.display();
        let configuration = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\n\
             rule_files: ['{rules}']\n\
             scrape_configs: [{{ job_name: {job}, static_configs: [{{ targets: ['{target}'] }}] }}]\n"
        );
        fs::write(&file, configuration)?;
        let command = [
            "prometheus".to_owned(),
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", data.display()),
            format!("--web.listen-address={}", address(server.port())),
        ];
        server.start("KILL", &command, |port| is_ready(address(port)))?;
        Ok(Self { server })
    }

    /// Of its HTTP API.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        address(self.port())
    }
}

fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn is_ready(address: SocketAddr) -> Result<(), String> {
    let ask = || -> std::io::Result<String> {
        let mut tcp = TcpStream::connect(address)?;
        write!(tcp, "GET /-/ready HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        tcp.read_to_string(&mut answer)?;
        Ok(answer)
    };
    match ask() {
        Ok(answer) if answer.starts_with("HTTP/1.1 200") => Ok(()),
        Ok(answer) => Err(answer.lines().next().unwrap_or_default().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

is_a_server!(PrometheusServer);
