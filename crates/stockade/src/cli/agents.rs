//! The arguments of loads on other machines.

use std::{collections::BTreeMap, net::IpAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use clap::Args;
use stockade_load::TargetPattern;
use stockade_model::units::parse_duration;
use stockade_record::record::Role;

/// How to reach NATS.
#[derive(Clone, Debug, Args)]
pub struct NatsArgs {
    /// File of credentials of NATS: a .creds file, the seed of an nkey, or a line `user:password` [default: the content of the
    /// variable `STOCKADE_NATS_CREDENTIALS`]
    #[arg(long, value_name = "FILE", help_heading = "Agents")]
    pub nats_credentials: Option<PathBuf>,
    /// Trust only the certificate authorities of this file (PEM) for NATS
    #[arg(long, value_name = "FILE", help_heading = "Agents")]
    pub nats_ca: Option<PathBuf>,
}

/// The agents of `load` and `run`.
#[derive(Clone, Debug, Args)]
pub struct OnArgs {
    /// Send the load from agents (`stockade agent`) that are at this NATS server: `nats://127.0.0.1:4222`; after a comma the
    /// first part of their subjects [default: stockade]
    #[arg(long, value_name = "NATS-URL", help_heading = "Agents")]
    pub on: Option<String>,
    /// Wait for this number of agents [default: those that are there]
    #[arg(long, value_name = "N", help_heading = "Agents", requires = "on", value_parser = agents)]
    pub agents: Option<usize>,
    /// Only agents with this label; may be repeated
    #[arg(long, value_name = "LABEL", help_heading = "Agents", requires = "on")]
    pub agent_label: Vec<String>,
    /// Move a part of the load from an agent that cannot hold its share to the others, and record it
    #[arg(long, help_heading = "Agents", requires = "on")]
    pub rebalance: bool,
    /// How long to wait for agents
    #[arg(long, value_name = "D", help_heading = "Agents", value_parser = parse_duration, default_value = "60s")]
    pub agents_wait: Duration,
    #[command(flatten)]
    pub nats: NatsArgs,
}

/// The agents of the servers of `run`.
#[derive(Clone, Debug, Args)]
pub struct PlaceArgs {
    /// Run the origin on an agent with this label and --serve [default: on this machine]
    #[arg(long, value_name = "LABEL", help_heading = "Agents", requires = "on")]
    pub origin_label: Option<String>,
    /// Run the proxy on an agent with this label and --serve [default: on this machine]
    #[arg(long, value_name = "LABEL", help_heading = "Agents", requires = "on")]
    pub proxy_label: Option<String>,
}

impl PlaceArgs {
    /// The labels by role.
    pub fn labels(&self) -> BTreeMap<Role, String> {
        let labels = [(Role::Origin, &self.origin_label), (Role::Proxy, &self.proxy_label)];
        labels.into_iter().filter_map(|(role, label)| Some((role, label.clone()?))).collect()
    }
}

#[derive(Debug, Args)]
pub struct AgentArgs {
    /// NATS server at which to wait: `nats://127.0.0.1:4222`, `tls://nats.example:4222`; after a comma the first part of the
    /// subjects [default: stockade]
    #[arg(long = "nats", value_name = "NATS-URL")]
    pub url: String,
    /// Name in reports [default: the name of this machine]
    #[arg(long, value_name = "N")]
    pub name: Option<String>,
    /// Servers that loads and proxies may reach: `10.2.0.0/16:8080`, `*.staging.example:443`, `unix:/run/app.sock`; may be repeated
    /// [default: those of this machine]
    #[arg(long, value_name = "PATTERN")]
    pub allow_target: Vec<TargetPattern>,
    /// Part of a load, relative to the weights of the other agents [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = weight)]
    pub weight: Option<NonZeroU32>,
    /// Label, for `--agent-label`, `--origin-label` and `--proxy-label`; may be repeated
    #[arg(long, value_name = "LABEL")]
    pub label: Vec<String>,
    /// Run origins and proxies of experiments at this address, by which other machines reach it, and send no loads
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["weight", "out"], value_parser = address)]
    pub serve: Option<IpAddr>,
    /// Write every sample of its loads to this folder, a file each, in Vegeta's format
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How long to try to reach NATS
    #[arg(long, value_name = "D", value_parser = parse_duration, default_value = "60s")]
    pub wait: Duration,
    #[command(flatten)]
    pub nats: NatsArgs,
    #[command(flatten)]
    pub parent: super::ParentArgs,
}

fn agents(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1_000) => Ok(count),
        _ => Err("write how many, 1 to 1000".to_owned()),
    }
}

fn weight(text: &str) -> Result<NonZeroU32, String> {
    match text.parse() {
        Ok(weight) if weight <= NonZeroU32::new(1_000).expect("not zero") => Ok(weight),
        _ => Err("write 1 to 1000".to_owned()),
    }
}

/// An address that others can reach.
fn address(text: &str) -> Result<IpAddr, String> {
    match text.parse::<IpAddr>() {
        Ok(address) if !address.is_unspecified() => Ok(address),
        _ => Err("write the address by which other machines reach this one, such as 10.2.0.5".to_owned()),
    }
}
