//! A cluster of Redis servers, without persistence and without replicas.

use std::ffi::OsString;

use crate::{
    RunningServer, ServiceError, free_port, process::retry_until_ok, redis::send_command, server::is_a_server,
};

const SERVERS: usize = 3;

const SLOTS: usize = 16_384;

/// Three Redis servers with a third of the slots each. A killed server's slots are unavailable; the other servers
/// continue.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<ClusterNode>,
}

#[derive(Debug)]
struct ClusterNode {
    server: RunningServer,
    bus: u16,
}

impl RedisCluster {
    pub fn start() -> Result<Self, ServiceError> {
        let servers = (0..SERVERS).map(|_| ClusterNode::start()).collect::<Result<Vec<_>, _>>()?;
        let cluster = Self { servers };
        for (number, server) in cluster.servers.iter().enumerate() {
            let [from, to] = [number, number + 1].map(|number| number * SLOTS / SERVERS);
            server.run_command(&format!("CLUSTER ADDSLOTSRANGE {from} {}", to - 1))?;
            server.run_command(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1))?;
        }
        for server in &cluster.servers[1..] {
            cluster.servers[0].run_command(&format!(
                "CLUSTER MEET 127.0.0.1 {} {}",
                server.port(),
                server.bus
            ))?;
        }
        cluster.await_complete()?;
        Ok(cluster)
    }

    /// Waits until all servers know the owner of every slot.
    pub fn await_complete(&self) -> Result<(), ServiceError> {
        const COMPLETE: [&str; 2] = ["cluster_state:ok", "cluster_slots_ok:16384"];
        for server in &self.servers {
            let is_complete = || match send_command(server.port(), "CLUSTER INFO") {
                Ok(info) if COMPLETE.iter().all(|line| info.contains(line)) => Ok(()),
                Ok(info) => Err(info),
                Err(error) => Err(error.to_string()),
            };
            retry_until_ok(is_complete).map_err(|reason| server.failed(reason))?;
        }
        Ok(())
    }

    /// `redis+cluster://127.0.0.1:PORT,127.0.0.1:PORT,..`
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(|server| server.port()).collect()
    }

    /// The index of the server that has the slot of `name`.
    pub fn server_of(&self, name: &str) -> Result<usize, ServiceError> {
        let slot = self.servers[0].run_command(&format!("CLUSTER KEYSLOT {name}"))?;
        let slot: usize = slot.trim_start_matches(':').parse().map_err(|_| self.servers[0].failed(slot))?;
        Ok((0..SERVERS).rfind(|number| number * SLOTS / SERVERS <= slot).unwrap_or(0))
    }

    /// Kills a server. Its connections are reset and its data is lost.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].kill();
    }

    /// Restarts a server, empty, with its slots, and waits until the other servers know it.
    pub fn restart(&mut self, server: usize) -> Result<(), ServiceError> {
        self.servers[server].restart()?;
        self.await_complete()
    }
}

impl ClusterNode {
    fn start() -> Result<Self, ServiceError> {
        let mut member = Self { server: RunningServer::new("redis-cluster")?, bus: free_port()? };
        member.restart()?;
        Ok(member)
    }

    fn restart(&mut self) -> Result<(), ServiceError> {
        let (port, bus) = (self.port(), self.bus);
        let command = format!(
            "redis-server --port {port} --bind 127.0.0.1 --save  --appendonly no --cluster-enabled yes \
             --cluster-port {bus} --cluster-node-timeout 1000 --cluster-require-full-coverage no --dir"
        );
        let mut command: Vec<_> = command.split(' ').map(OsString::from).collect();
        command.push(self.folder().into());
        let is_ready = |port| match send_command(port, "PING") {
            Ok(reply) if reply.starts_with("+PONG") => Ok(()),
            Ok(reply) => Err(format!("it answers {reply:?}")),
            Err(error) => Err(error.to_string()),
        };
        self.server.start("KILL", &command, is_ready)
    }

    fn run_command(&self, command: &str) -> Result<String, ServiceError> {
        let reply = send_command(self.port(), command)?;
        if reply.starts_with('-') { Err(self.failed(format!("{command}: {reply}"))) } else { Ok(reply) }
    }

    fn failed(&self, reason: String) -> ServiceError {
        let log = std::fs::read_to_string(self.folder().join("log")).unwrap_or_default();
        ServiceError::NotReady { program: "redis-server".to_owned(), reason, log }
    }
}

is_a_server!(ClusterNode);
