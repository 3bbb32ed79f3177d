//! The arguments of pages and exporters.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use clap::Args;
use stockade_http::client::HttpUrl;

use crate::telemetry::parse_url;

#[derive(Clone, Debug, Args)]
pub struct TelemetryArgs {
    /// Serve the figures so far for Prometheus, at `/metrics` of this address; a port alone is on 127.0.0.1, port 0 is a free
    /// one
    #[arg(long, value_name = "ADDR", help_heading = "Telemetry", value_parser = address)]
    pub prometheus: Option<SocketAddr>,
    /// Send the figures to this OpenTelemetry collector every 5 s and at the end, by OTLP over HTTP: `http://127.0.0.1:4318`
    #[arg(long, value_name = "URL", help_heading = "Telemetry", value_parser = parse_url)]
    pub otlp: Option<HttpUrl>,
}

#[derive(Clone, Debug, Args)]
pub struct LivePageArgs {
    /// Serve the report while the run goes on [default ADDR: a free port of 127.0.0.1]; a port alone is on 127.0.0.1, other addresses
    /// need the token that is printed
    #[arg(
        id = "ui",
        long = "ui",
        value_name = "ADDR",
        num_args = 0..=1,
        default_missing_value = "0",
        value_parser = address
    )]
    pub address: Option<SocketAddr>,
}

#[derive(Clone, Debug, Args)]
pub struct UiArgs {
    /// Directory of the records, or one record
    #[arg(value_name = "DIR", default_value = "runs")]
    pub records: PathBuf,
    /// Address of the pages; a port alone is on 127.0.0.1, port 0 is a free one, and other addresses need the token that is printed
    #[arg(long, value_name = "ADDR", default_value = "7117", value_parser = address)]
    pub listen: SocketAddr,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        Err(_) => {
            let remedy = "write a port or an address, such as 9464 or 127.0.0.1:9464; a file or a URL comes before `--ui`";
            text.parse().map_err(|_| remedy.to_owned())
        }
    }
}
