//! Loads on other machines: `stockade agent`, and the coordinator of `load --on` and `run --on`.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    net::{IpAddr, TcpListener},
    num::NonZeroU32,
    sync::Arc,
    thread,
};

use serde_json::json;
use stockade_agents::{
    AgentClock, AgentInfo, AgentOptions, CancellationToken, ConnectionOptions, Coordinator,
    CoordinatorOptions, Credentials, NatsUrl, ServerOptions, SubjectPrefix, serve,
};
use stockade_lab::http::ThisMachine;
use stockade_load::AllowedTargets;
use stockade_record::record::Role;

use crate::{
    child::end_with_stdin,
    cli::{AgentArgs, NatsArgs, OnArgs},
    exit::{CommandError, Exit},
    progress::message,
    run::{Placement, own_program},
};

/// Waits for loads until a signal stops it.
pub fn agent(args: AgentArgs) -> Result<Exit, CommandError> {
    let (connection, subject) = connection(&args.url, &args.nats)?;
    if let Some(folder) = &args.out {
        fs::create_dir_all(folder)
            .map_err(|error| CommandError::Usage(format!("cannot create {}: {error}", folder.display())))?;
    }
    let server = connection.url.to_string();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let options = AgentOptions {
        connection,
        subject,
        name: args.name.unwrap_or_else(machine_name),
        weight: args
            .weight
            .or(u32::try_from(cores).ok().and_then(NonZeroU32::new))
            .unwrap_or(NonZeroU32::MIN),
        labels: args.label,
        allowed: match args.serve {
            _ if !args.allow_target.is_empty() => args.allow_target.into(),
            // Others reach its proxies, and so would reach what listens for this machine alone.
            Some(address) if !address.is_loopback() => AllowedTargets::only(address),
            Some(_) | None => AllowedTargets::default(),
        },
        servers: args.serve.map(server_machine).transpose()?,
        samples: args.out,
        clock: AgentClock::new(),
        patience: args.wait,
    };
    let stop = CancellationToken::new();
    let handle = stop.clone();
    // Without a handler a signal ends the process, and its coordinator finds out.
    let _ = ctrlc::set_handler(move || handle.cancel());
    if args.parent.until_stdin_ends {
        end_with_stdin();
    }
    message(&format!("connecting to NATS at {server}"));
    let on_ready = |agent: &AgentInfo| {
        let AgentInfo { id, name, weight, labels, allowed, serves, .. } = agent;
        let mut ready = json!({"name": name, "id": id, "nats": server, "weight": weight, "labels": labels, "allowed_targets": allowed});
        if let Some(address) = serves {
            ready["serves"] = json!(address);
        }
        // Standard output may be closed: the agent works all the same.
        let _ = writeln!(std::io::stdout(), "{ready}");
    };
    serve(options, on_ready, &stop)?;
    Ok(Exit::Done)
}

impl OnArgs {
    /// Connects to the agents, also to those of servers with these labels; `None`: all is on this machine.
    pub fn connect(
        &self,
        server_labels: BTreeMap<Role, String>,
        stop: &CancellationToken,
    ) -> Result<Option<Placement>, CommandError> {
        let Some(url) = &self.on else { return Ok(None) };
        let (connection, subject) = connection(url, &self.nats)?;
        let options = CoordinatorOptions {
            connection,
            subject,
            agents: self.agents,
            labels: self.agent_label.clone(),
            server_labels,
            agents_wait: self.agents_wait,
            moves_late_shares: self.rebalance,
        };
        let coordinator = Coordinator::connect(&options, stop, |waiting| {
            let wanted = waiting.wanted.map(|wanted| format!(" of {wanted}")).unwrap_or_default();
            let servers = waiting.servers.iter().map(|role| format!(", and one for the {}", role.name()));
            let servers = servers.collect::<Vec<_>>().concat();
            let found = waiting.found.min(waiting.wanted.unwrap_or(usize::MAX));
            message(&format!("waiting for agents: {found}{wanted}{servers}"));
        })?;
        let names: Vec<_> = coordinator.agents().iter().map(|agent| agent.name.as_str()).collect();
        let machines = coordinator.machines();
        let servers: String = machines
            .iter()
            .filter_map(|(role, machine)| Some(format!("; {}: {}", role.name(), machine.name()?)))
            .collect();
        message(&format!("agents: {}{servers}", names.join(", ")));
        Ok(Some(Placement { loads: Arc::new(coordinator), machines }))
    }
}

/// The server, and after a comma the first part of all subjects.
fn connection(url: &str, nats: &NatsArgs) -> Result<(ConnectionOptions, SubjectPrefix), CommandError> {
    let usage = |error: &dyn ToString| CommandError::Usage(error.to_string());
    let (url, subject) = match url.split_once(',') {
        Some((url, subject)) => (url, subject.parse().map_err(|error| usage(&error))?),
        None => (url, SubjectPrefix::default()),
    };
    let url: NatsUrl = url.parse().map_err(|error| usage(&error))?;
    let credentials = match &nats.nats_credentials {
        Some(file) => Some(Credentials::read(file)),
        None => match std::env::var("STOCKADE_NATS_CREDENTIALS") {
            Ok(text) => Some(text.parse()),
            Err(_) => None,
        },
    };
    let credentials = credentials.transpose().map_err(|error| usage(&error))?;
    Ok((ConnectionOptions { url, credentials, authorities: nats.nats_ca.clone() }, subject))
}

/// This program on this machine.
fn server_machine(address: IpAddr) -> Result<ServerOptions, CommandError> {
    TcpListener::bind((address, 0)).map_err(|error| {
        CommandError::Usage(format!("--serve: {address} is not an address of this machine: {error}"))
    })?;
    let machine = Arc::new(ThisMachine { program: own_program(), address });
    Ok(ServerOptions { machine, address })
}

fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
